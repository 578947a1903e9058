"""What does a durable record cost: a plain log against embedded stores, beside the bare disk?

    python -m benchmarks.journal [FOLDER] [--seconds S]

Every store takes groups of 1, 16 and 256 records of 200 bytes and 6 kB, a group at a time, and is told to make each
durable before the next; they take turns. The first is the limit: write and fdatasync of the same bytes and nothing
else; the rates of the others are given as a part of it. Then every store is opened again, and the records in it are
counted and compared with what was written. Stores that are not installed are left out, and it is said. FOLDER must be
on the disk that is meant. After that: what a commit costs the event loop, and whether snapshots should be compressed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import platform
import random
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack

from headwater.protocol.journal import Journal

GROUPS = (1, 16, 256)
SIZES = (200, 6_000)
GROUPS_MAX = 4_000
TURN = 10  # groups a store takes before it is another one's turn


class Bare:
    """The limit: the bytes, and fdatasync."""

    sync = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "bare"
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._size = 0

    def write(self, group: list[bytes]) -> None:
        self._size = len(group[0])
        os.write(self._descriptor, b"".join(group))
        if self.sync:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def read(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while record := file.read(self._size):
                yield record


class BareFile(Bare):
    sync = False


class PlainLog:
    """The journal, called without an event loop: what is compared is the storing."""

    def __init__(self, folder: Path, durability: Any = "sync") -> None:
        self._folder = folder
        self._journal = Journal.open(folder, durability, on_warning=print)

    def write(self, group: list[bytes]) -> None:
        done: list[bool] = []
        for record in group:
            self._journal.append(record)
        self._journal.commit(lambda: done.append(True))
        assert done

    def close(self) -> None:
        self._journal.close_now()

    def read(self) -> Iterator[bytes]:
        journal = Journal.open(self._folder, "sync", on_warning=print)
        yield from journal.records()
        journal.close_now()


class UnsyncedLog(PlainLog):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "async")


class Sqlite:
    synchronous = "FULL"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "store.sqlite"
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        self._connection.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, record BLOB)")

    def write(self, group: list[bytes]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO records (record) VALUES (?)", ((record,) for record in group))
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def read(self) -> Iterator[bytes]:
        connection = sqlite3.connect(self._path)
        for (record,) in connection.execute("SELECT record FROM records ORDER BY number"):
            yield record
        connection.close()


class SqliteNormal(Sqlite):
    """Synced at checkpoints only: a power cut may lose the last commits, as with an unsynced log."""

    synchronous = "NORMAL"


class Lmdb:
    def __init__(self, folder: Path) -> None:
        import lmdb

        self._open: Callable[[], Any] = lambda: lmdb.open(str(folder / "store.lmdb"), map_size=8 << 30)
        self._store: Any = self._open()
        self._count = 0

    def write(self, group: list[bytes]) -> None:
        with self._store.begin(write=True) as transaction:
            for record in group:
                transaction.put(self._count.to_bytes(8, "big"), record, append=True)
                self._count += 1

    def close(self) -> None:
        self._store.close()

    def read(self) -> Iterator[bytes]:
        store = self._open()
        with store.begin() as transaction:
            for _, record in transaction.cursor():
                yield bytes(record)
        store.close()


STORES: dict[str, Any] = {
    "bare disk: write, fdatasync": Bare,
    "bare file: write": BareFile,
    "plain log, sync": PlainLog,
    "sqlite3 WAL, FULL": Sqlite,
    "lmdb, sync": Lmdb,
    "plain log, async": UnsyncedLog,
    "sqlite3 WAL, NORMAL": SqliteNormal,
}


SYNCED = ["bare disk: write, fdatasync", "plain log, sync", "sqlite3 WAL, FULL", "lmdb, sync"]
UNSYNCED = ["bare file: write", "plain log, async", "sqlite3 WAL, NORMAL"]


def run_loop(work: Any) -> Any:
    """In the event loop that daemons use, where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run(work)
    import uvloop

    return uvloop.run(work)


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1e3


class Run:
    """One store being measured."""

    def __init__(self, name: str, folder: Path, groups: list[list[bytes]]) -> None:
        self.name = name
        self.times: list[float] = []
        self._groups = groups
        self._store = STORES[name](Path(tempfile.mkdtemp(dir=folder)))

    def write(self) -> None:
        group = self._groups[len(self.times) % len(self._groups)]
        started = time.perf_counter()
        self._store.write(group)
        self.times.append(time.perf_counter() - started)

    def rate(self) -> float:
        return len(self.times) * len(self._groups[0]) / sum(self.times)

    def check(self) -> int:
        """Open it again and compare; how many records are in it."""
        self._store.close()
        count, read = len(self._groups[0]), 0
        for record in self._store.read():
            assert record == self._groups[read // count % len(self._groups)][read % count], f"{self.name}: {read}"
            read += 1
        assert read == len(self.times) * count, f"{self.name}: {len(self.times) * count} written, {read} there"
        return read


def compare(folder: Path, names: list[str], count: int, size: int, seconds: float) -> None:
    """The stores take turns, so that whatever else the machine does falls on all of them alike."""
    rng = random.Random(size * count)
    groups = [[rng.randbytes(size) for _ in range(count)] for _ in range(16)]
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        runs = [Run(name, place, groups) for name in names]
        ends = time.perf_counter() + seconds * len(runs)
        while len(runs[0].times) < GROUPS_MAX and time.perf_counter() < ends:
            for run in runs:
                for _ in range(TURN):
                    run.write()
        for run in runs:
            print(
                f"| {count} x {size:,} B | {run.name} | {run.rate():,.0f} | {run.rate() / runs[0].rate():.2f} | "
                f"{percentile(run.times, 0.5):.3f} | {percentile(run.times, 0.99):.3f} | {run.check():,} |",
                flush=True,
            )
    finally:
        shutil.rmtree(place)


def tables(folder: Path, seconds: float) -> None:
    # Apart from each other: what an unsynced store leaves to be written would be written at the cost of a synced one.
    for names in (SYNCED, UNSYNCED):
        columns = ("records", "store", "records/s", "of the first", "ms per commit p50", "p99", "read back")
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        available = [name for name in names if STORES[name] is not Lmdb or importlib.util.find_spec("lmdb")]
        for size in SIZES:
            for count in GROUPS:
                compare(folder, available, count, size, seconds)
        print()
    if importlib.util.find_spec("lmdb") is None:
        print("lmdb is not installed and was left out\n")


def cost_in_the_loop(folder: Path, durability: Any, seconds: float) -> str:
    """CPU of the thread that runs the event loop, and of the whole process, at 1,000 commits of one record a second,
    with the same loop that commits nothing taken away."""
    record = bytes(200)

    async def run(journal: Journal | None) -> tuple[float, float, int, list[float]]:
        count, delays = 0, []
        started, loop_s, process_s = time.perf_counter(), time.thread_time(), time.process_time()

        def durable(begun: float) -> None:
            delays.append(time.perf_counter() - begun)

        while (now := time.perf_counter()) < started + seconds:
            if journal is not None:
                journal.append(record)
                journal.commit(lambda begun=now: durable(begun))  # type: ignore[misc]
            count += 1
            await asyncio.sleep(max(0.0, started + count / 1000 - time.perf_counter()))
        spent = time.thread_time() - loop_s, time.process_time() - process_s
        if journal is not None:
            await journal.close()
        return *spent, count, delays

    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        idle_loop_s, idle_process_s, idle_count, _ = run_loop(run(None))
        journal = Journal.open(place, durability, on_warning=print)
        loop_s, process_s, count, delays = run_loop(run(journal))
        reopened = Journal.open(place, "sync", on_warning=print)
        read = sum(1 for _ in reopened.records())
        reopened.close_now()
    finally:
        shutil.rmtree(place)
    in_loop = (loop_s / count - idle_loop_s / idle_count) * 1e6
    in_all = (process_s / count - idle_process_s / idle_count) * 1e6
    return (
        f"{durability}: {in_loop:.0f} us of the loop's CPU per commit, {in_all:.0f} us with the thread that writes; "
        f"from commit to `then` p50 {percentile(delays, 0.5):.2f} ms, p99 {percentile(delays, 0.99):.2f} ms; "
        f"{count:,} commits made, {len(delays):,} told, {read:,} records read back"
    )


def many_at_once(folder: Path, durability: Any, count: int = 50_000) -> str:
    """Records/s through the event loop if each is committed by itself without waiting: how well groups form."""
    groups: list[int] = []

    async def run() -> float:
        journal = Journal.open(place, durability, on_warning=print)
        journal.on_group = lambda records, size, seconds: groups.append(records)
        record = bytes(200)
        started = time.perf_counter()
        for number in range(count):
            journal.append(record)
            journal.commit(durable)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await journal.close()
        return time.perf_counter() - started

    ran = 0

    def durable() -> None:
        nonlocal ran
        ran += 1

    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        spent = run_loop(run())
    finally:
        shutil.rmtree(place)
    return f"{durability}: {count / spent:,.0f} commits/s in {len(groups):,} groups; {ran:,} told"


def compression(folder: Path) -> str:
    """Would zlib pay for snapshots? Rows like those of a node's buffers, packed."""
    rng = random.Random(1)
    rows = [
        (i * 1000, f"node{i % 20}", i, i % 7, round(rng.gauss(20, 5), 1), rng.randrange(100)) for i in range(400_000)
    ]
    data = msgpack.packb(rows)
    started = time.perf_counter()
    packed = zlib.compress(data, 1)
    packing_s = time.perf_counter() - started
    times = []
    for content in (data, packed):
        place = Path(tempfile.mkdtemp(dir=folder))
        journal = Journal.open(place, "sync", on_warning=print)
        started = time.perf_counter()
        journal.save_snapshot(content)
        times.append(time.perf_counter() - started)
        journal.close_now()
        reopened = Journal.open(place, "sync", on_warning=print)
        assert reopened.snapshot == content
        reopened.close_now()
        shutil.rmtree(place)
    return (
        f"{len(data) / 1e6:.1f} MB saved as they are in {times[0]:.2f} s; zlib at level 1 makes them "
        f"{len(packed) / 1e6:.1f} MB in {packing_s:.2f} s and {times[1]:.2f} s to save: "
        f"{times[0] / (packing_s + times[1]):.2f} x as fast; both read back equal"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.journal", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each store writes, for each row")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.gettempdir())
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {options.seconds:g} s for each row\n")
    tables(folder, options.seconds)
    for durability in ("async", "sync"):
        cost = cost_in_the_loop(folder, durability, options.seconds)
        print(f"- *a commit in the event loop*, {cost}", flush=True)
        print(f"- *commits without waiting*, {many_at_once(folder, durability)}", flush=True)
    print(f"- *snapshots*: {compression(folder)}")


if __name__ == "__main__":
    main()
