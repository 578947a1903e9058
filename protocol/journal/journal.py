"""The journal as its owner uses it: append, commit, snapshot.

One thread writes. The event loop itself writes what is small, if the thread is idle and the disk is quick.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, get_args

from headwater.protocol.errors import ConfigError
from headwater.protocol.journal.files import (
    RECORD_BYTES_MAX,
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentId,
    frame,
    read_records,
)
from headwater.protocol.journal.lock import take_lock
from headwater.protocol.journal.recovery import LOSSES_NAME, ChainedSegment, Recovered, recover
from headwater.protocol.journal.writer import SegmentWriter, remove_before, write_snapshot

Durability = Literal["none", "async", "sync"]
Then = Callable[[], None]
_Commit = tuple[list[bytes], int, Then]  # records, their bytes in the file, what to do when they are durable

RETRY_S = 1.0  # how often a disk that is full or failing is tried again
GROUP_BYTES_MAX = 8 << 20  # a group is framed in memory; what is more goes into the next one
AT_ONCE_BYTES_MAX = 64 << 10  # a group up to this size may be written by the loop itself
AT_ONCE_S = 0.002  # a write that took longer holds up the loop too much
SLOW_DISK_S = 1.0  # for so long everything is left to the thread then
PENDING_BYTES_MAX = 64 << 20  # past it the disk is too slow for what comes in: `is_behind`, and the owner must wait


class _Rotate:
    """Asks the writer thread for a new generation and then for its snapshot."""

    def __init__(self, generation: int, data: bytes) -> None:
        self.generation = generation
        self.data = data


class _Stop:
    """Asks the writer thread to end."""


class Journal:
    """Records in the order they were appended, and a snapshot that stands for all records before it.

    `append` and `commit` take effect in order: when the `then` of a commit runs, everything appended before it is
    durable, and so is everything whose `then` ran earlier. Used from one thread. Inside a running event loop a thread
    writes (or the loop itself, see `_written_at_once`), and `then`s run in the loop; outside of one (replay, tools)
    every call is carried out before it returns.
    """

    def __init__(self, folder: Path, durability: Durability, lock: int, recovered: Recovered) -> None:
        """Not to be called: see `open`."""
        self.folder = folder
        self.durability = durability
        self.snapshot: bytes | None = recovered.snapshot  # the owner may set it to None once it has been read
        self.was_cut = recovered.was_cut  # records that may have been reported durable are lost: see `lost_records`
        self.lost_records = recovered.lost_records  # at least so many
        self.bytes_since_snapshot = recovered.bytes if durability != "none" else 0
        self.is_full = False  # what was committed cannot be written; it is kept and tried again every second
        self.on_full: Callable[[str], None] = _ignore  # with a sentence that says why, once
        self.on_recovered: Callable[[], None] = lambda: None
        self.on_warning: Callable[[str], None] = _ignore
        self.on_group: Callable[[int, int, float], None] | None = None  # records, bytes, seconds of each group written
        self.pending_bytes = 0  # committed and not yet durable
        self.is_saving = False  # a snapshot is on its way
        self._lock: int | None = lock
        self._parts: list[ChainedSegment] = recovered.parts
        self._may_read = True
        self._appended: list[bytes] = []
        self._appended_bytes = 0
        self._unfinished = 0  # commits handed to the thread whose `then` has not run
        self._base = recovered.base  # the generation of the newest snapshot that is durable
        self._generation = recovered.generation
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._queue: SimpleQueue[_Commit | _Rotate | _Stop] = SimpleQueue()
        self._closing = threading.Event()
        self._waiting: list[_Commit | _Rotate] = []  # without a loop: what a full disk holds up
        self._saver: threading.Thread | None = None
        self._leave_to_thread_until = 0.0  # by perf_counter
        last = recovered.parts[-1] if recovered.parts else None
        self._writer = SegmentWriter(
            folder,
            last.segment if last else SegmentId(recovered.generation, 0),
            last.link if last else None,
            sync=durability == "sync",
        )

    @classmethod
    def open(
        cls, folder: Path, durability: Durability, *, on_warning: Callable[[str], None] = lambda sentence: None
    ) -> Journal:
        """Find what the folder holds, making it if there is none. A damaged tail is cut off and told to `on_warning`.

        Raises ConfigError, with nothing changed, if another process has the folder or if it holds files that this
        version did not write; and if the disk fails so that what is there cannot be relied upon.
        """
        if durability not in get_args(Durability):
            raise ConfigError(f"durability is {durability!r}; write one of {', '.join(get_args(Durability))}")
        lock = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = take_lock(folder)
            recovered = recover(folder, on_warning)
            journal = cls(folder, durability, lock, recovered)
            if durability == "none":
                if recovered.parts or recovered.snapshot is not None:
                    on_warning(
                        f"the durability is none, but {folder} holds a journal: its contents are taken over once more "
                        f"and its files are removed with the first new record, since they would be out of date"
                    )
            else:
                journal._resume()
        except OSError as problem:
            if lock is not None:
                os.close(lock)
            raise ConfigError(
                f"the journal in {folder} cannot be opened: {problem.strerror} ({problem.filename or folder}); "
                f"check the disk and the permissions of the folder, then start again"
            ) from problem
        except ConfigError:
            if lock is not None:
                os.close(lock)
            raise
        journal.on_warning = on_warning
        return journal

    def _resume(self) -> None:
        """What will be replayed will be acted upon, so it must be as durable as what is written from now on."""
        for part in self._parts[:-1]:
            if self.durability == "sync":
                descriptor = os.open(self.folder / part.segment.name, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)
        if self._parts:
            self._writer.resume(self._parts[-1].end)

    def records(self) -> Iterator[bytes]:
        """Everything after the snapshot, in order. Once, and before the first append."""
        assert self._may_read, "the records can be read once, and before anything is appended"
        self._may_read = False
        for part in self._parts:
            with (self.folder / part.segment.name).open("rb") as file:
                end = SEGMENT_HEADER_BYTES
                for behind, record in read_records(file, SEGMENT_HEADER_BYTES, part.end):
                    end = behind
                    yield record
                if end != part.end:
                    raise ConfigError(
                        f"{self.folder / part.segment.name} was good when it was opened and is damaged at offset "
                        f"{end:,} now; its disk cannot be trusted: check it and start again"
                    )

    # --------------------------------------------------------------------------------------------- append and commit

    @property
    def is_behind(self) -> bool:
        """The disk is full, or too slow for what comes in: nothing more should be accepted."""
        return self.is_full or self.pending_bytes > PENDING_BYTES_MAX

    def append(self, record: bytes) -> None:
        """Into memory; it leaves with the next commit."""
        assert type(record) is bytes, "a record is bytes: what can change later must not wait to be written"
        size = len(record) + RECORD_HEADER_BYTES
        assert size <= RECORD_BYTES_MAX, f"a record of {size:,} bytes: see RECORD_BYTES_MAX"
        self._appended.append(record)
        self._appended_bytes += size

    def commit(self, then: Then) -> None:
        """Once everything appended so far is durable, `then` runs, after those of all earlier commits."""
        records, size = self._appended, self._appended_bytes
        # A new list even if this one is empty: it may wait for the thread while more is appended, and then that would
        # be written with this commit and with its own.
        self._appended, self._appended_bytes = [], 0
        if records:
            if self.durability == "none":
                records, size = [], 0
                if self._thread is None:
                    self._retire()
            else:
                self.pending_bytes += size
                self.bytes_since_snapshot += size
        if self._thread is None:
            self._loop = _running_loop()
            if self.durability == "none" or (not records and not self._waiting):
                if self._loop is None:
                    then()
                else:
                    self._loop.call_soon(then)
                return
            if self._loop is None:
                self._waiting.append((records, size, then))
                self._carry_out()
                return
            self._start_thread()
        elif not self._unfinished and (not records or self._written_at_once(records, size)):
            assert self._loop is not None
            self._loop.call_soon(then)
            return
        self._unfinished += 1
        self._queue.put((records, size, then))

    def set_durability(self, durability: Durability) -> None:
        """From now on keep what is appended like this. Between sync and async it holds from the next snapshot on, which
        the owner should save now; with none nothing more is written, and what is there is out of date from then on."""
        self.durability = durability
        self._writer.set_sync(durability == "sync")

    def _written_at_once(self, records: list[bytes], size: int) -> bool:
        """Write a small group here and now if the thread has nothing to do and the disk is quick.

        A quick disk takes a quarter of a millisecond; handing the group to the thread and hearing from it costs twice
        as much. A disk that was slow once is left to the thread for a while, so that it never holds up the loop for
        long.
        """
        if size > AT_ONCE_BYTES_MAX or self.is_saving or self.is_full:
            return False
        started = time.perf_counter()
        if started < self._leave_to_thread_until:
            return False
        try:
            self._writer.write(frame(records))
        except OSError:
            self._leave_to_thread_until = started + SLOW_DISK_S
            return False  # the thread tries the same again, and again
        seconds = time.perf_counter() - started
        if seconds > AT_ONCE_S:
            self._leave_to_thread_until = started + SLOW_DISK_S
        self.pending_bytes -= size
        if self.on_group is not None:
            self.on_group(len(records), size, seconds)
        return True

    def _retire(self) -> None:
        if self._parts or self._base:
            remove_before(self.folder, self._generation + 1)
            self._parts, self._base = [], 0

    def save_snapshot(self, data: bytes) -> bool:
        """Begin a new generation with a snapshot that stands for everything appended so far.

        What was appended and not committed is written all the same, into the old generation, and its `then`s run as
        ever: so nothing is lost if the snapshot cannot be written (which is told to `on_warning`), and nothing is
        replayed twice if it can. Does nothing, and says False, while an earlier snapshot is on its way.
        """
        if self.durability == "none" or self.is_saving:
            return False
        if self._appended:
            self.commit(lambda: None)
        self.is_saving = True
        self._generation += 1
        self.bytes_since_snapshot = 0
        order = _Rotate(self._generation, data)
        if self._thread is None:
            self._loop = _running_loop()
            if self._loop is None:
                self._waiting.append(order)
                self._carry_out()
                return True
            self._start_thread()
        self._queue.put(order)
        return True

    # ------------------------------------------------------------------------------- outside of a running event loop

    def _carry_out(self) -> None:
        """Without a loop: do what waits. If the disk is full, it waits for the next call."""
        while self._waiting:
            item = self._waiting[0]
            try:
                if isinstance(item, _Rotate):
                    self._writer.rotate(item.generation)
                else:
                    self._write([item])
            except OSError as problem:
                if not self.is_full:
                    self.is_full = True
                    self.on_full(self._sentence(problem))
                return
            del self._waiting[0]
            if self.is_full:
                self.is_full = False
                self.on_recovered()
            if isinstance(item, _Rotate):
                self._saved(self._save(item))
            else:
                self.pending_bytes -= item[1]
                item[2]()

    # --------------------------------------------------------------------------------------------- the writer thread

    def _start_thread(self) -> None:
        for item in self._waiting:
            self._unfinished += not isinstance(item, _Rotate)
            self._queue.put(item)
        self._waiting = []
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """The thread."""
        try:
            self._work()
        except BaseException as problem:  # a mistake in this package: nothing will be written any more, so say it
            self.is_full = True
            self._tell(self._broke, problem)

    def _work(self) -> None:
        """Take what was committed since the last group, write it, tell the loop; asleep when there is nothing."""
        get, is_empty = self._queue.get, self._queue.empty
        item: _Commit | _Rotate | _Stop | None = None
        while True:
            item = item or get()
            if isinstance(item, _Stop):
                return
            if isinstance(item, _Rotate):
                if not self._insist(partial(self._writer.rotate, item.generation)):
                    return
                self._wait_for_saver()
                self._saver = threading.Thread(target=self._save_and_tell, args=(item,), daemon=True)
                self._saver.start()
                item = None
                continue
            group, size = [item], item[1]
            item = None
            while size < GROUP_BYTES_MAX and not is_empty():
                item = get()
                if isinstance(item, _Rotate | _Stop):
                    break
                group.append(item)
                size += item[1]
                item = None
            started = time.perf_counter()
            if size and not self._insist(partial(self._write, group)):
                return  # what is behind a group that was not written must not be written either
            self._tell(self._written, group, size, time.perf_counter() - started)

    def _broke(self, problem: BaseException) -> None:
        assert self._loop is not None
        self._loop.call_exception_handler({"message": "the journal's thread has ended", "exception": problem})
        self.on_full(f"the journal in {self.folder} has stopped for good: {problem!r}; start the process again")

    def _write(self, group: list[_Commit]) -> None:
        self._writer.write(frame([record for records, _, _ in group for record in records]))

    def _insist(self, work: Callable[[], None]) -> bool:
        """In the thread: until it works, or until the journal is closed without its having worked."""
        while True:
            try:
                work()
            except OSError as problem:
                if not self.is_full:
                    self.is_full = True
                    self._tell(self.on_full, self._sentence(problem))
                if self._closing.is_set():
                    return False
                self._closing.wait(RETRY_S)
            else:
                if self.is_full:
                    self.is_full = False
                    self._tell(self.on_recovered)
                return True

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop was closed before the journal: no task is there to be told
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _sentence(self, problem: OSError) -> str:
        return (
            f"the journal in {self.folder} cannot be written: {problem.strerror}; what was accepted is kept in memory "
            f"and nothing more is accepted; make room on that disk: it is tried again every {RETRY_S:g} s"
        )

    def _written(self, group: list[_Commit], size: int, seconds: float) -> None:
        """In the loop: the whole group is durable."""
        self.pending_bytes -= size
        if self.on_group is not None and size:
            self.on_group(sum(len(records) for records, _, _ in group), size, seconds)
        for _, _, then in group:
            self._unfinished -= 1
            try:
                then()
            except Exception as problem:  # one that fails must not keep the others from hearing
                assert self._loop is not None
                self._loop.call_exception_handler(
                    {"message": f"after a commit of the journal in {self.folder}", "exception": problem}
                )

    # ------------------------------------------------------------------------------------------------------ snapshots

    def _save(self, order: _Rotate) -> int | OSError:
        """Write the snapshot; then everything before the snapshot that was the newest until now is of no use. That one
        stays, with all segments since, in case the new one cannot be read one day."""
        try:
            write_snapshot(self.folder, order.generation, order.data)
        except OSError as problem:
            return problem
        with suppress(OSError):  # what cannot be removed now will be with the next snapshot
            (self.folder / LOSSES_NAME).unlink(missing_ok=True)
            remove_before(self.folder, self._base)
        return order.generation

    def _save_and_tell(self, order: _Rotate) -> None:
        """The thread that writes one snapshot, so that commits go on beside it."""
        self._tell(self._saved, self._save(order))

    def _saved(self, outcome: int | OSError) -> None:
        self.is_saving = False
        if isinstance(outcome, OSError):
            self.on_warning(
                f"a snapshot could not be written to {self.folder}: {outcome.strerror}; the one before it and the "
                f"journal since are kept, so nothing is lost, but they need room and time to replay"
            )
        else:
            self._base = outcome

    def _wait_for_saver(self) -> None:
        if self._saver is not None:
            self._saver.join()

    # ---------------------------------------------------------------------------------------------------------- close

    async def close(self) -> None:
        """Write and sync everything appended, run all `then`s, give the folder free. If the disk is full it is tried
        once more; what then cannot be written was never reported durable, and is told to `on_warning`."""
        if self._lock is None:
            return
        if self._appended:
            self.commit(lambda: None)
        if self._thread is not None:
            self._closing.set()
            self._queue.put(_Stop())
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._thread.join)
            await loop.run_in_executor(None, self._wait_for_saver)
            await asyncio.sleep(0)  # what the threads have told the loop is carried out before this goes on
        self._end()

    def close_now(self) -> None:
        """The same, outside of a running event loop."""
        if self._lock is None:
            return
        assert self._thread is None, "a journal used in an event loop is closed with close()"
        if self._appended:
            self.commit(lambda: None)
        self._carry_out()
        self._end()

    def _end(self) -> None:
        if self.pending_bytes:
            self.on_warning(
                f"the journal in {self.folder} was closed with {self.pending_bytes:,} bytes that could not be written; "
                f"they were never reported durable"
            )
        try:
            self._writer.close(sync=self.durability != "none")
        except OSError as problem:
            self.on_warning(f"the journal in {self.folder} could not be synced when it was closed: {problem.strerror}")
        assert self._lock is not None
        os.close(self._lock)
        self._lock = None


def _ignore(sentence: str) -> None:
    pass


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
