"""Writes segments and snapshots so that a failure at any point leaves well-formed files. Blocking; in one thread."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headwater.protocol.files import sync_folder
from headwater.protocol.journal.files import (
    SegmentId,
    SegmentLink,
    segment_header,
    segments_in,
    snapshot_header,
    snapshot_name,
    snapshots_in,
    write_all,
)

SNAPSHOT_STEP_BYTES = 4 << 20  # synced step by step, so that a commit never waits behind a whole snapshot in the disk


class SegmentWriter:
    """Appends to one segment after the other. `write` either has written everything (and synced it, if `sync`) or
    raises OSError, and may then be called again with the same bytes."""

    def __init__(self, folder: Path, own: SegmentId, link: SegmentLink | None, *, sync: bool) -> None:
        self._folder = folder
        self._own = own  # the segment being written, or to be begun with the next write
        self._link = link
        self._sync = sync
        # With O_DSYNC one call writes and syncs. That is as fast as write and fdatasync, and the thread has to come
        # back only once for the interpreter, which a busy event loop may not give it at once.
        self._flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_DSYNC if sync else 0)
        self._descriptor: int | None = None
        self._end = 0

    def set_sync(self, sync: bool) -> None:
        """Whether segments that are begun from now on are synced with each write."""
        self._sync = sync
        self._flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_DSYNC if sync else 0)

    def resume(self, end: int) -> None:
        """Go on in a segment that exists and is good up to `end`; what is behind it is cut off. What was written
        before is made durable first: what is read from it will be acted upon."""
        self._descriptor = os.open(self._folder / self._own.name, self._flags)
        self._end = end
        if os.fstat(self._descriptor).st_size > end:
            os.ftruncate(self._descriptor, end)
        if self._sync:
            os.fsync(self._descriptor)

    def write(self, data: bytes) -> None:
        if self._descriptor is None:
            self._begin(data)
            return
        try:
            write_all(self._descriptor, data, self._end)
        except OSError:
            self._abandon()
            raise
        self._end += len(data)

    def rotate(self, generation: int) -> None:
        """Begin the first segment of a generation. May be called again after it has failed."""
        if self._own.generation != generation:
            if self._descriptor is None:
                self._begin(b"")  # the chain of segments has no gaps, even where nothing was written
            self._leave(SegmentId(generation, 0))
        self._begin(b"")

    def close(self, *, sync: bool) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            try:
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _begin(self, data: bytes) -> None:
        path = self._folder / self._own.name
        content = segment_header(self._own, self._link) + data
        descriptor = os.open(path, self._flags | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            write_all(descriptor, content, 0)
            if self._sync:
                sync_folder(self._folder)
        except OSError:
            os.close(descriptor)
            try:
                path.unlink()
            except OSError:
                # It stays, and the next one, with a link to the same place, takes its place when all is read again.
                self._own = SegmentId(self._own.generation, self._own.serial + 1)
            raise
        self._descriptor, self._end = descriptor, len(content)

    def _abandon(self) -> None:
        # Never again to this segment. Where syncing has failed, the kernel may have marked the pages clean that it
        # could not write: a second attempt would then succeed without anything having reached the disk. So the bytes
        # are written again, to a new file, whose header says how much of this one counts. A full disk is handled in
        # the same way, because an error does not tell reliably which of the two it was. What may have been written of
        # the group is cut off, so that after a crash it cannot be read from memory pages that no disk holds.
        assert self._descriptor is not None
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._end)
        self._leave(SegmentId(self._own.generation, self._own.serial + 1))

    def _leave(self, following: SegmentId) -> None:
        assert self._descriptor is not None
        with suppress(OSError):  # all that counts was synced before; without sync nothing is promised
            os.close(self._descriptor)
        self._descriptor = None
        self._link = SegmentLink(self._own, self._end)
        self._own = following


def write_snapshot(folder: Path, generation: int, data: bytes) -> None:
    """JournaledMachine when this returns; after an OSError there is none, nor half of one."""
    path = folder / snapshot_name(generation)
    passing = path.with_suffix(".tmp")
    try:
        descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            header = snapshot_header(generation, data)
            write_all(descriptor, header, 0)
            for start in range(0, len(data), SNAPSHOT_STEP_BYTES):
                write_all(descriptor, memoryview(data)[start : start + SNAPSHOT_STEP_BYTES], len(header) + start)
                os.fdatasync(descriptor)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(passing, path)
        sync_folder(folder)
    except OSError:
        for leftover in (passing, path):
            with suppress(OSError):
                leftover.unlink()
        raise


def remove_before(folder: Path, generation: int) -> None:
    """Remove all generations before this one, snapshots first: as long as a snapshot is there, so are the segments that
    follow it."""
    for old in snapshots_in(folder):
        if old < generation:
            (folder / snapshot_name(old)).unlink(missing_ok=True)
    for segment in segments_in(folder):
        if segment.generation < generation:
            (folder / segment.name).unlink(missing_ok=True)
