"""The journal on disks that are full, that fail, and under kill -9."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import headwater.protocol.journal.journal as journal_module
from headwater.protocol.journal import Durability, Journal
from headwater.protocol.journal import writer as writer_module
from headwater.protocol.journal.files import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    segments_in,
    snapshots_in,
    write_all,
)
from tests.journal.test_journal import DURABLE, PROJECT, damaged, found, numbered, only_segment, opened, until, written

# -------------------------------------------------------------------------------------------- full and failing disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as problem:
        pytest.skip(f"cannot mount a small file system here: {problem}")
    if done.returncode:
        pytest.skip(f"cannot mount a small file system here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("durability", DURABLE)
def test_a_full_disk_holds_everything_up_says_so_once_and_goes_on_when_there_is_room(
    small_disk: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.02)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(600_000))
    records = [b"%d:" % i + bytes(5000) for i in range(150)]
    told: list[str] = []
    ran: list[int] = []

    async def run() -> None:
        journal = opened(small_disk / "j", durability)
        journal.on_full = told.append
        journal.on_recovered = lambda: told.append("recovered")
        for number, record in enumerate(records):
            journal.append(record)
            journal.commit(partial(ran.append, number))
            if number % 5 == 0:
                await asyncio.sleep(0.002)
        await until(lambda: journal.is_full)
        await asyncio.sleep(0.3)  # several attempts fail
        assert journal.is_full
        assert journal.is_behind
        assert journal.pending_bytes > 0
        assert len(told) == 1
        assert "No space left on device" in told[0]
        assert ran == list(range(len(ran)))
        assert len(ran) < len(records)
        # Killed now, what is there would be everything that was reported, and a beginning of the rest.
        shutil.copytree(small_disk / "j", small_disk.parent / "copy")
        killed, _ = damaged(small_disk.parent / "copy")
        there = list(killed.records())
        assert not killed.was_cut
        assert there == records[: len(there)]
        assert len(there) >= len(ran)
        killed.close_now()
        filler.unlink()
        await until(lambda: len(ran) == len(records))
        assert not journal.is_full
        assert told[1:] == ["recovered"]
        await journal.close()

    asyncio.run(run())
    assert ran == list(range(len(records)))
    assert found(small_disk / "j") == records


def test_a_snapshot_that_does_not_fit_is_given_up_with_a_warning_and_loses_nothing(small_disk: Path) -> None:
    journal, warnings = damaged(small_disk / "j")
    journal.append(b"a")
    journal.save_snapshot(b"A")
    journal.append(b"b")
    journal.save_snapshot(bytes(2_000_000))
    journal.append(b"c")
    journal.close_now()
    assert len(warnings) == 1
    assert "a snapshot could not be written" in warnings[0]
    journal = opened(small_disk / "j")
    assert (journal.snapshot, list(journal.records())) == (b"A", [b"b", b"c"])
    journal.save_snapshot(b"ABC")
    journal.close_now()
    assert opened(small_disk / "j").snapshot == b"ABC"


def test_a_full_disk_at_the_start_is_no_reason_not_to_start(small_disk: Path) -> None:
    written(small_disk / "j", [b"a"])
    with only_segment(small_disk / "j").open("ab") as file:
        file.write(b"torn")
    with (small_disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    journal, warnings = damaged(small_disk / "j")
    assert list(journal.records()) == [b"a"]
    assert len(warnings) == 1
    ran: list[int] = []
    journal.append(bytes(10_000))
    journal.commit(lambda: ran.append(1))
    assert (journal.is_full, ran) == (True, [])
    (small_disk / "filler").unlink()
    journal.append(b"b")
    journal.commit(lambda: ran.append(2))
    assert (journal.is_full, ran) == (False, [1, 2])
    journal.close_now()
    assert found(small_disk / "j") == [b"a", bytes(10_000), b"b"]


@pytest.fixture
def file_size_limit() -> Iterator[Callable[[int], None]]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("durability", DURABLE)
def test_a_limit_on_the_size_of_files_is_like_a_full_disk(
    tmp_path: Path,
    durability: Durability,
    file_size_limit: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.02)
    told: list[str] = []
    ran: list[bytes] = []
    records = numbered(20)

    async def run() -> None:
        journal = opened(tmp_path, durability)
        journal.on_full = told.append
        journal.append(records[0])
        journal.commit(lambda: ran.append(records[0]))
        await until(lambda: len(ran) == 1)
        file_size_limit(SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES + len(records[0]) + 5)
        for record in records[1:]:
            journal.append(record)
            journal.commit(partial(ran.append, record))
        await until(lambda: journal.is_full)
        assert "File too large" in told[0]
        assert ran == records[: len(ran)]
        file_size_limit(resource.RLIM_INFINITY)
        await until(lambda: len(ran) == 20)
        await journal.close()

    asyncio.run(run())
    assert ran == records
    assert found(tmp_path) == records


@pytest.mark.parametrize("may_truncate", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_after_a_failed_sync_the_group_is_written_to_a_new_segment_and_never_read_twice(
    tmp_path: Path, seed: int, may_truncate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No real disk can be told to fail here, so the call that writes does: after a part, or all, has been written."""
    rng = random.Random(seed)

    def failing(descriptor: int, data: bytes, offset: int) -> None:
        if rng.random() < 0.3:
            write_all(descriptor, data[: rng.choice([0, len(data) // 2, len(data)])], offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        write_all(descriptor, data, offset)

    def no_truncate(descriptor: int, size: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    records, ran = numbered(60, seed), 0
    journal = opened(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(writer_module, "write_all", failing)
        if not may_truncate:
            patched.setattr(os, "ftruncate", no_truncate)
            patched.setattr(Path, "unlink", lambda path, missing_ok=False: no_truncate(0, 0))

        def then() -> None:
            nonlocal ran
            ran += 1

        for record in records:
            journal.append(record)
            journal.commit(then)
    shutil.copytree(tmp_path, tmp_path / "killed")
    killed, _ = damaged(tmp_path / "killed")
    there = list(killed.records())
    assert there == records[: len(there)]
    assert ran <= len(there)
    killed.close_now()
    journal.close_now()
    assert ran == len(records)
    assert len(segments_in(tmp_path)) > 3
    reopened, _ = damaged(tmp_path)  # with a word about segments that were begun in vain and could not be removed
    assert (list(reopened.records()), reopened.was_cut) == (records, False)
    reopened.close_now()
    assert found(tmp_path) == records


def test_closing_on_a_full_disk_says_what_was_not_written_and_writes_nothing_behind_it(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_S", 0.02)
    ran: list[str] = []
    warnings: list[str] = []

    async def run() -> None:
        journal = Journal.open(small_disk / "j", "sync", on_warning=warnings.append)
        journal.append(b"a")
        journal.commit(lambda: ran.append("a"))
        await until(lambda: ran == ["a"])
        journal.append(bytes(2_000_000))
        journal.commit(lambda: ran.append("too large"))
        await until(lambda: journal.is_full)
        journal.append(b"b")
        journal.commit(lambda: ran.append("b"))
        await journal.close()

    asyncio.run(run())
    assert ran == ["a"]
    assert len(warnings) == 1
    assert "never reported durable" in warnings[0]
    assert found(small_disk / "j") == [b"a"]


# ------------------------------------------------------------------------------------------------------------ kill -9

WRITING_CHILD = """
import asyncio, os, pathlib, random, sys
from headwater.protocol.journal import Journal

async def run(folder, durability, seed):
    rng = random.Random(seed)
    journal = Journal.open(pathlib.Path(folder), durability, on_warning=lambda sentence: None)
    assert not journal.was_cut
    count = int(journal.snapshot or b"0") + sum(1 for _ in journal.records())
    while True:
        for _ in range(rng.choice([1, 1, 3, 40])):
            journal.append(b"%d:" % count + bytes([count % 251]) * rng.choice([0, 10, 300, 9000]))
            count += 1
            if rng.random() < 0.6:
                journal.commit(lambda count=count: os.write(1, b"%d\\n" % count))
        if rng.random() < 0.05:
            journal.save_snapshot(b"%d" % count)
        await asyncio.sleep(rng.choice([0, 0, 0.001]))

asyncio.run(run(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.parametrize("durability", DURABLE)
def test_everything_reported_durable_is_there_after_kill_9_in_order_and_once(
    tmp_path: Path, durability: Durability
) -> None:
    rng = random.Random(7)
    generations, torn = set(), 0
    for round_number in range(18):
        command = [sys.executable, "-c", WRITING_CHILD, str(tmp_path), durability, str(round_number)]
        child = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE)
        assert child.stdout is not None
        first = child.stdout.readline()
        assert first, "the child has ended by itself"
        time.sleep(rng.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
        child.wait()
        reported = int((first + rest).splitlines()[-1]) if rest.endswith(b"\n") or not rest else 0
        if rest and not rest.endswith(b"\n"):
            reported = int(rest.splitlines()[-2] if rest.count(b"\n") > 1 else first)
        journal, warnings = damaged(tmp_path, durability)
        assert (journal.was_cut, journal.lost_records) == (False, 0), warnings
        torn += bool(warnings)
        covered = int(journal.snapshot or b"0")
        numbers = [int(record.split(b":")[0]) for record in journal.records()]
        assert numbers == list(range(covered, covered + len(numbers)))
        assert covered + len(numbers) >= reported
        journal.close_now()
        generations.update(snapshots_in(tmp_path))
    assert len(generations) > 5, "the children have taken no snapshots, so the test has shown less than it says"
