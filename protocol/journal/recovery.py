"""Recovery of a journal's folder: the newest good snapshot and the records after it, up to the first damaged one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headwater.protocol.errors import ConfigError
from headwater.protocol.files import sync_folder, write_file
from headwater.protocol.journal.files import (
    SEGMENT_HEADER_BYTES,
    Damaged,
    SegmentId,
    SegmentLink,
    check_snapshot_is_ours,
    read_records,
    read_segment_header,
    read_snapshot,
    segments_in,
    snapshot_name,
    snapshots_in,
)
from headwater.protocol.journal.tails import judge

BAD_FILES_MAX = 5  # cut bytes are kept for an operator to look at; those of older accidents make room
LOSSES_NAME = "journal.losses"  # how many records were lost; there until a snapshot was taken since
TAIL_BYTES_MAX = 64 << 20  # so much of a damaged tail is looked at when its records are counted


@dataclass(slots=True)
class ChainedSegment:
    """A segment of the chain, and how far it is good."""

    segment: SegmentId
    link: SegmentLink | None
    end: int = 0


@dataclass(slots=True)
class Recovered:
    """What was found; the folder has been put in order accordingly."""

    snapshot: bytes | None = None
    base: int = 0  # the generation the snapshot begins
    generation: int = 0  # the generation to go on in
    parts: list[ChainedSegment] = field(default_factory=list)
    was_cut: bool = False
    lost_records: int = 0
    records: int = 0
    bytes: int = 0


def recover(folder: Path, on_warning: Callable[[str], None]) -> Recovered:
    """Raises ConfigError, with nothing changed, if a file is not of this program and version."""
    return _Recovery(folder, on_warning).run()


class _Recovery:
    def __init__(self, folder: Path, on_warning: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = on_warning
        self._recovered = Recovered()
        self._kept: set[Path] = set()  # the .bad files of this recovery, never removed by it

    def run(self) -> Recovered:
        segments, snapshots = segments_in(self._folder), snapshots_in(self._folder)
        headers = {segment: self._header(segment) for segment in segments}
        for generation in snapshots:
            check_snapshot_is_ours(self._folder / snapshot_name(generation))
        for leftover in self._folder.glob("snapshot-*.tmp"):
            leftover.unlink()
        recovered = self._recovered
        self._remember_losses()
        self._choose_snapshot(snapshots)
        parts, behind = self._chain([s for s in segments if s.generation >= recovered.base], headers)
        self._read(parts, behind)
        recovered.generation = recovered.parts[-1].segment.generation if recovered.parts else recovered.base
        sync_folder(self._folder)
        return recovered

    def _header(self, segment: SegmentId) -> SegmentLink | Damaged | EOFError | None:
        try:
            return read_segment_header(self._folder / segment.name, segment)
        except (Damaged, EOFError) as problem:
            return problem

    def _remember_losses(self) -> None:
        """An earlier opening may have found a loss and have been killed before its owner could act upon it."""
        with suppress(FileNotFoundError):
            count = (self._folder / LOSSES_NAME).read_text(encoding="ascii").strip()
            self._recovered.was_cut = True
            self._recovered.lost_records = int(count) if count.isdecimal() else 1
            self._warn(
                f"records that may have been reported durable were lost from the journal in {self._folder} before, "
                f"at least {self._recovered.lost_records:,}, and no snapshot was taken since"
            )

    def _lose(self, records: int) -> None:
        """Write down, before anything is cut, that something is lost."""
        self._recovered.was_cut = True
        self._recovered.lost_records = max(records, self._recovered.lost_records)  # some may have been counted before
        write_file(self._folder / LOSSES_NAME, f"{self._recovered.lost_records}\n")

    def _choose_snapshot(self, generations: list[int]) -> None:
        for generation in reversed(generations):
            path = self._folder / snapshot_name(generation)
            try:
                self._recovered.snapshot = read_snapshot(path, generation)
            except Damaged as problem:
                kept = self._set_aside(path)
                self._warn(
                    f"the snapshot {path} is damaged: {problem}; the one before it and the journal since are used "
                    f"instead, and the damaged file is kept as {kept.name}"
                )
            else:
                self._recovered.base = generation
                return

    def _chain(
        self, segments: list[SegmentId], headers: dict[SegmentId, SegmentLink | Damaged | EOFError | None]
    ) -> tuple[list[ChainedSegment], list[SegmentId]]:
        """The segments that follow each other from the snapshot on, and those behind that do not."""
        parts: list[ChainedSegment] = []
        behind: list[SegmentId] = []
        for segment in segments:
            header = headers[segment]
            if isinstance(header, EOFError):
                # It was begun and nothing was ever durable in it. If that is not so, the next link tells.
                path = self._folder / segment.name
                self._warn(f"{path} was begun without a complete header, so nothing in it was durable; it is removed")
                path.unlink()
                continue
            if isinstance(header, Damaged):
                behind.append(segment)
                continue
            if segment.generation == self._recovered.base and (
                header is None or header.segment.generation < self._recovered.base
            ):
                place = -1  # the first after the snapshot
            else:
                chained = [part.segment for part in parts]
                if header is None or header.segment not in chained:
                    behind.append(segment)
                    continue
                place = chained.index(header.segment)
            # Whatever stood between the two was written while the disk failed, and this segment takes its place.
            for superseded in parts[place + 1 :]:
                (self._folder / superseded.segment.name).unlink()
            parts[place + 1 :] = [ChainedSegment(segment, header)]
        return parts, behind

    def _read(self, parts: list[ChainedSegment], behind: list[SegmentId]) -> None:
        """Find how far the chain is good, and cut it there."""
        recovered = self._recovered
        for number, part in enumerate(parts):
            path = self._folder / part.segment.name
            size = path.stat().st_size
            link = parts[number + 1].link if number + 1 < len(parts) else None
            counts = link.end if link else size
            part.end = SEGMENT_HEADER_BYTES
            with path.open("rb") as file:
                for part.end, _ in read_records(file, SEGMENT_HEADER_BYTES, min(counts, size)):
                    recovered.records += 1
                if part.end < counts:
                    file.seek(part.end)
                    tail = file.read(min(counts, size) - part.end)
            recovered.parts.append(part)
            recovered.bytes += part.end - SEGMENT_HEADER_BYTES
            if part.end < counts:
                following = [later.segment for later in parts[number + 1 :]]
                self._cut(part, tail, [*following, *behind], is_last=link is None)
                return
        if behind:
            names = ", ".join(segment.name for segment in behind)
            lost = self._count(behind)
            self._lose(lost)
            self._set_segments_aside(behind)
            self._warn(
                f"the journal in {self._folder} has a gap: {names} cannot be joined to what is before; "
                f"{lost:,} records there are not used and the files are kept with the ending .bad"
            )
        elif recovered.base and not parts:
            self._lose(0)
            self._warn(
                f"{self._folder / SegmentId(recovered.base, 0).name} is missing: what followed the snapshot, if "
                f"anything did, is lost"
            )

    def _cut(self, part: ChainedSegment, tail: bytes, following: list[SegmentId], *, is_last: bool) -> None:
        path = self._folder / part.segment.name
        judged = judge(tail[:TAIL_BYTES_MAX])
        if judged.is_torn and is_last and not following:
            kept = self._keep(path, part.end, tail, must=False)
            self._warn(
                f"the last write to {path} was never finished: its {len(tail):,} bytes from offset {part.end:,} on, "
                f"less than one record, are cut off{kept}; they were never reported durable, so nothing is lost"
            )
            return
        lost = max(1, judged.records + self._count(following))
        kept = self._keep(path, part.end, tail, must=True)
        self._lose(lost)
        self._set_segments_aside(following)
        later = f" and in {len(following)} segments behind" if following else ""
        self._warn(
            f"{path} is damaged at offset {part.end:,}: everything from there on is cut off, {len(tail):,} bytes{later}"
            f"{kept}; at least {lost:,} records that may have been reported durable are lost"
        )

    def _count(self, segments: list[SegmentId]) -> int:
        """How many good records are in them, up to the first bad one of each."""
        count = 0
        for segment in segments:
            path = self._folder / segment.name
            with path.open("rb") as file:
                count += sum(1 for _ in read_records(file, SEGMENT_HEADER_BYTES, path.stat().st_size))
        return count

    def _set_segments_aside(self, segments: list[SegmentId]) -> None:
        # The last one first: if this is interrupted, those that are left still follow the one that is cut.
        for segment in reversed(segments):
            self._set_aside(self._folder / segment.name)

    def _free_name(self, name: str) -> Path:
        path, number = self._folder / f"{name}.bad", 1
        while path.exists():
            number += 1
            path = self._folder / f"{name}-{number}.bad"
        self._kept.add(path)
        old = sorted(set(self._folder.glob("*.bad")) - self._kept, key=lambda p: (p.stat().st_mtime_ns, p.name))
        for surplus in old[: max(0, len(old) + len(self._kept) - BAD_FILES_MAX)]:
            surplus.unlink()
        return path

    def _set_aside(self, path: Path) -> Path:
        kept = self._free_name(path.name)
        path.rename(kept)
        return kept

    def _keep(self, path: Path, offset: int, tail: bytes, *, must: bool) -> str:
        """Copy a tail that is about to be cut off, and tell where it is."""
        if not tail:
            return ""
        kept = self._free_name(f"{path.name}@{offset}")
        try:
            with kept.open("xb") as file:
                file.write(tail)
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            with suppress(OSError):
                kept.unlink()
            if must:
                raise ConfigError(
                    f"{path} is damaged at offset {offset:,} and the {len(tail):,} bytes behind it cannot be kept "
                    f"beside it: {problem.strerror}; nothing was cut: make room on that disk and start again"
                ) from None
            return ""
        return f" and kept in {kept.name}"
