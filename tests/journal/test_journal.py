"""The journal keeps what it reported durable: through crashes, torn and flipped bytes, full and failing disks."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headwater.protocol.errors import ConfigError
from headwater.protocol.formats import JOURNAL_FILES
from headwater.protocol.journal import Durability, Journal
from headwater.protocol.journal import writer as writer_module
from headwater.protocol.journal.files import (
    RECORD_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    segments_in,
    snapshots_in,
)
from headwater.protocol.journal.recovery import BAD_FILES_MAX

DURABLE: tuple[Durability, ...] = ("async", "sync")
PROJECT = Path(__file__).parent.parent.parent


def nothing() -> None:
    pass


def opened(folder: Path, durability: Durability = "async") -> Journal:
    """A journal that is expected to be in order."""

    def warned(sentence: str) -> None:
        raise AssertionError(sentence)

    return Journal.open(folder, durability, on_warning=warned)


def damaged(folder: Path, durability: Durability = "async") -> tuple[Journal, list[str]]:
    warnings: list[str] = []
    return Journal.open(folder, durability, on_warning=warnings.append), warnings


def written(folder: Path, records: list[bytes], durability: Durability = "async") -> None:
    """Append and commit outside of an event loop."""
    journal = opened(folder, durability)
    for record in records:
        journal.append(record)
        journal.commit(nothing)
    journal.close_now()


def found(folder: Path) -> list[bytes]:
    journal = opened(folder)
    records = list(journal.records())
    journal.close_now()
    return records


def numbered(count: int, seed: int = 1, longest: int = 60) -> list[bytes]:
    rng = random.Random(seed)
    return [b"%d:" % i + rng.randbytes(rng.randrange(longest)) for i in range(count)]


def only_segment(folder: Path) -> Path:
    (segment,) = segments_in(folder)
    return folder / segment.name


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# -------------------------------------------------------------------------------------------------- append and commit


@pytest.mark.parametrize("durability", DURABLE)
def test_what_was_committed_is_read_again_in_order(tmp_path: Path, durability: Durability) -> None:
    records = [*numbered(50), b"", b"x" * 3_000_000, b"last"]
    written(tmp_path / "a" / "b", records, durability)
    written(tmp_path / "a" / "b", [b"and more"], durability)
    assert found(tmp_path / "a" / "b") == [*records, b"and more"]
    assert len(segments_in(tmp_path / "a" / "b")) == 1


@pytest.mark.parametrize("durability", DURABLE)
def test_in_an_event_loop_thens_run_in_order_and_only_after_their_records_are_in_the_file(
    tmp_path: Path, durability: Durability
) -> None:
    records = numbered(300)
    ran: list[int] = []

    def then(number: int) -> None:
        ran.append(number)
        if number % 50 == 0:
            copy = tmp_path / f"copy{number}"
            shutil.copytree(tmp_path / "j", copy)
            copied, _ = damaged(copy)
            assert list(copied.records())[: number + 1] == records[: number + 1]
            copied.close_now()

    async def run() -> None:
        journal = opened(tmp_path / "j", durability)
        for number, record in enumerate(records):
            journal.append(record)
            journal.commit(partial(then, number))
            if number % 7 == 0:
                await asyncio.sleep(0)
            assert number not in ran
        await journal.close()

    asyncio.run(run())
    assert ran == list(range(300))
    assert found(tmp_path / "j") == records


def test_commits_made_while_a_group_is_written_share_the_next_one(tmp_path: Path) -> None:
    groups: list[tuple[int, int]] = []

    async def run() -> None:
        journal = opened(tmp_path, "sync")
        journal.on_group = lambda records, size, seconds: groups.append((records, size))
        for _ in range(1000):
            journal.append(b"12345")
            journal.commit(nothing)
        await journal.close()
        assert journal.pending_bytes == 0

    asyncio.run(run())
    assert sum(records for records, _ in groups) == 1000
    assert sum(size for _, size in groups) == 1000 * (5 + RECORD_HEADER_BYTES)
    assert len(groups) < 500
    assert len(found(tmp_path)) == 1000


def test_a_commit_of_nothing_waits_for_those_before_it(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run() -> None:
        journal = opened(tmp_path, "sync")
        journal.commit(lambda: ran.append("nothing yet"))
        journal.append(b"a")
        journal.commit(lambda: ran.append("a"))
        journal.commit(lambda: ran.append("nothing more"))
        assert ran == []
        await until(lambda: len(ran) == 3)
        journal.commit(lambda: ran.append("at rest"))
        await until(lambda: len(ran) == 4)
        await journal.close()

    asyncio.run(run())
    assert ran == ["nothing yet", "a", "nothing more", "at rest"]


def test_what_is_appended_while_a_commit_of_nothing_waits_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written twice, and so handled twice after a crash: a snapshot commits what was appended itself, and the
    commit that was on its way then has nothing left."""
    may_write = threading.Event()
    write = writer_module.SegmentWriter.write

    def slowly(writer: writer_module.SegmentWriter, data: bytes) -> None:
        may_write.wait()
        write(writer, data)

    monkeypatch.setattr(writer_module.SegmentWriter, "write", slowly)

    async def run() -> None:
        journal = opened(tmp_path, "sync")
        journal.append(b"a")
        journal.commit(nothing)
        journal.commit(nothing)
        journal.append(b"b")
        journal.commit(nothing)
        may_write.set()
        await journal.close()

    asyncio.run(run())
    assert found(tmp_path) == [b"a", b"b"]


def test_a_then_that_fails_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    ran: list[int] = []
    told: list[str] = []

    def divide(number: int) -> None:
        ran.append(10 // number)

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(str(context["exception"])))
        journal = opened(tmp_path)
        for number in range(3):
            journal.append(b"a")
            journal.commit(partial(divide, number))
        await journal.close()

    asyncio.run(run())
    assert (ran, told) == ([10, 5], ["integer division or modulo by zero"])


def test_nothing_is_written_without_durability_and_thens_run_soon(tmp_path: Path) -> None:
    ran: list[int] = []

    async def run() -> None:
        journal = opened(tmp_path, "none")
        journal.append(b"a")
        journal.commit(lambda: ran.append(1))
        assert ran == []
        assert not journal.save_snapshot(b"s")
        await asyncio.sleep(0)
        assert ran == [1]
        await journal.close()

    asyncio.run(run())
    assert sorted(os.listdir(tmp_path)) == ["journal.lock"]


def test_a_journal_is_taken_over_and_removed_when_durability_is_given_up(tmp_path: Path) -> None:
    written(tmp_path, [b"a", b"b"])
    journal, warnings = damaged(tmp_path, "none")
    assert list(journal.records()) == [b"a", b"b"]
    assert len(warnings) == 1
    assert "durability is none" in warnings[0]
    assert segments_in(tmp_path)
    journal.append(b"c")
    journal.commit(nothing)
    journal.close_now()
    assert found(tmp_path) == []


def test_the_thread_sleeps_while_nothing_is_committed(tmp_path: Path) -> None:
    def wakeups(thread: threading.Thread) -> int:
        lines = Path(f"/proc/self/task/{thread.native_id}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    async def run() -> None:
        journal = opened(tmp_path)
        ran: list[int] = []
        journal.append(b"a")
        journal.commit(lambda: ran.append(1))
        await until(lambda: bool(ran))
        (thread,) = (t for t in threading.enumerate() if t.name == "journal")
        before = -1
        while before != (before := wakeups(thread)):  # on a busy machine it may take a while to fall asleep
            await asyncio.sleep(0.5)
        await journal.close()
        assert not thread.is_alive()

    asyncio.run(run())


# ---------------------------------------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize("durability", DURABLE)
def test_a_snapshot_stands_for_everything_before_it_also_for_what_was_not_yet_committed(
    tmp_path: Path, durability: Durability
) -> None:
    ran: list[str] = []

    async def run() -> None:
        journal = opened(tmp_path, durability)
        for name in "abc":
            journal.append(name.encode())
            journal.commit(partial(ran.append, name))
        journal.append(b"d")
        assert journal.save_snapshot(b"abcd")
        assert not journal.save_snapshot(b"too soon")
        assert journal.bytes_since_snapshot == 0
        journal.append(b"e")
        journal.commit(lambda: ran.append("e"))
        assert journal.bytes_since_snapshot == RECORD_HEADER_BYTES + 1
        await until(lambda: not journal.is_saving)
        await journal.close()

    asyncio.run(run())
    assert ran == ["a", "b", "c", "e"]
    journal = opened(tmp_path)
    assert (journal.snapshot, list(journal.records())) == (b"abcd", [b"e"])
    assert journal.bytes_since_snapshot == RECORD_HEADER_BYTES + 1
    journal.close_now()


def test_one_generation_more_than_needed_is_kept_and_no_older_one(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(6):
        journal.append(b"%d" % number)
        journal.save_snapshot(b"snapshot %d" % number)
    journal.append(b"behind")
    journal.close_now()
    assert snapshots_in(tmp_path) == [5, 6]
    assert [segment.generation for segment in segments_in(tmp_path)] == [5, 6]


def test_a_damaged_snapshot_is_replaced_by_the_one_before_it_and_the_records_since(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    for number in range(4):
        journal.append(b"%d" % number)
        journal.save_snapshot(b"snapshot %d" % number)
    journal.append(b"behind")
    journal.close_now()
    newest = tmp_path / "snapshot-00000004.bin"
    for damage in (lambda data: data[:-1], lambda data: data[:10], lambda data: data[:-3] + b"xyz", lambda data: b""):
        shutil.copytree(tmp_path, tmp_path / "copy")
        newest_copy = tmp_path / "copy" / newest.name
        newest_copy.write_bytes(damage(newest_copy.read_bytes()))
        journal, warnings = damaged(tmp_path / "copy")
        assert (journal.snapshot, list(journal.records())) == (b"snapshot 2", [b"3", b"behind"])
        assert (journal.was_cut, len(warnings)) == (False, 1)
        assert "snapshot-00000004.bin is damaged" in warnings[0]
        journal.append(b"on")
        assert journal.save_snapshot(b"new")
        journal.close_now()
        journal = opened(tmp_path / "copy")
        assert (journal.snapshot, list(journal.records())) == (b"new", [])
        journal.close_now()
        shutil.rmtree(tmp_path / "copy")


def test_a_crash_between_the_new_segment_and_its_snapshot_loses_nothing(tmp_path: Path) -> None:
    journal = opened(tmp_path)
    journal.append(b"a")
    journal.save_snapshot(b"A")
    journal.append(b"b")
    journal.save_snapshot(b"AB")
    journal.append(b"c")
    journal.close_now()
    (tmp_path / "snapshot-00000002.bin").rename(tmp_path / "snapshot-00000002.tmp")
    journal = opened(tmp_path)
    assert (journal.snapshot, list(journal.records())) == (b"A", [b"b", b"c"])
    journal.close_now()
    assert not list(tmp_path.glob("*.tmp"))


# --------------------------------------------------------------------------------------------- torn and flipped bytes


def ends_of(records: list[bytes]) -> list[int]:
    """Where each record ends in a segment that holds them all; the header's end first."""
    ends = [SEGMENT_HEADER_BYTES]
    for record in records:
        ends.append(ends[-1] + RECORD_HEADER_BYTES + len(record))
    return ends


@pytest.mark.parametrize("seed", [1, 2])
def test_a_file_cut_anywhere_gives_all_records_before_the_cut_and_says_that_nothing_durable_is_lost(
    tmp_path: Path, seed: int
) -> None:
    records = numbered(12, seed)
    written(tmp_path / "whole", records)
    ends = ends_of(records)
    name = only_segment(tmp_path / "whole").name
    for size in range(ends[-1] + 1):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        os.truncate(copy / name, size)
        journal, warnings = damaged(copy)
        expected = sum(1 for end in ends[1:] if end <= size)
        assert list(journal.records()) == records[:expected], size
        assert (journal.was_cut, journal.lost_records) == (False, 0), size
        assert bool(warnings) == (size not in ends), size
        journal.append(b"goes on")
        journal.close_now()
        assert found(copy) == [*records[:expected], b"goes on"]
        shutil.rmtree(copy)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_flipped_bit_anywhere_gives_all_records_before_it_and_says_how_many_are_lost(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    records = numbered(10, seed)
    written(tmp_path / "whole", records)
    ends = ends_of(records)
    name = only_segment(tmp_path / "whole").name
    content = (tmp_path / "whole" / name).read_bytes()
    for offset in range(SEGMENT_HEADER_BYTES, len(content)):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        flipped = bytearray(content)
        flipped[offset] ^= 1 << rng.randrange(8)
        (copy / name).write_bytes(flipped)
        journal, warnings = damaged(copy)
        good = sum(1 for end in ends[1:] if end <= offset)
        assert list(journal.records()) == records[:good], offset
        assert (journal.was_cut, journal.lost_records) == (True, len(records) - good), offset
        assert len(warnings) == 1
        assert f"{name} is damaged at offset {ends[good]:,}" in warnings[0]
        assert f"{len(content) - ends[good]:,} bytes" in warnings[0]
        (bad,) = copy.glob("*.bad")
        assert bad.read_bytes() == bytes(flipped[ends[good] :])
        journal.close_now()
        shutil.rmtree(copy)


def test_a_flipped_bit_in_a_header_is_refused_or_loses_the_segment_but_never_reads_wrongly(tmp_path: Path) -> None:
    records = numbered(5)
    written(tmp_path / "whole", records)
    name = only_segment(tmp_path / "whole").name
    refused = 0
    for offset in range(SEGMENT_HEADER_BYTES):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "whole", copy)
        flipped = bytearray((copy / name).read_bytes())
        flipped[offset] ^= 1
        (copy / name).write_bytes(flipped)
        try:
            journal, warnings = damaged(copy)
        except ConfigError:
            refused += 1
            assert (copy / name).read_bytes() == flipped
        else:
            assert (list(journal.records()), journal.was_cut, journal.lost_records) == ([], True, 5)
            assert "kept with the ending .bad" in warnings[0]
            journal.append(b"anew")
            journal.close_now()
            reopened, _ = damaged(copy)  # the loss is told again, see below
            assert list(reopened.records()) == [b"anew"]
            reopened.close_now()
        shutil.rmtree(copy)
    assert refused == 10  # the magic and the version


def test_zeros_behind_the_last_record_are_a_write_that_was_never_finished(tmp_path: Path) -> None:
    written(tmp_path, [b"a", b"b"])
    with only_segment(tmp_path).open("ab") as file:
        file.write(bytes(4096))
    journal, warnings = damaged(tmp_path)
    assert (list(journal.records()), journal.was_cut, len(warnings)) == ([b"a", b"b"], False, 1)
    journal.close_now()


def test_a_loss_is_told_at_every_start_until_a_snapshot_was_taken(tmp_path: Path) -> None:
    written(tmp_path, [b"a", b"b", b"c"])
    segment = only_segment(tmp_path)
    content = bytearray(segment.read_bytes())
    content[SEGMENT_HEADER_BYTES + RECORD_HEADER_BYTES] ^= 1
    segment.write_bytes(content)
    for _ in range(3):
        journal, warnings = damaged(tmp_path)
        assert (journal.was_cut, journal.lost_records, len(warnings)) == (True, 3, 1)
        journal.append(b"more")
        journal.close_now()
    journal, _ = damaged(tmp_path)
    journal.save_snapshot(b"dealt with")
    journal.close_now()
    journal = opened(tmp_path)
    assert (journal.was_cut, journal.lost_records) == (False, 0)
    journal.close_now()


def test_only_the_last_few_cut_tails_are_kept(tmp_path: Path) -> None:
    written(tmp_path, [b"a"])
    for number in range(BAD_FILES_MAX * 2):
        with only_segment(tmp_path).open("ab") as file:
            file.write(b"torn %d" % number)
        journal, _ = damaged(tmp_path)
        journal.close_now()
    kept = sorted(path.read_bytes() for path in tmp_path.glob("*.bad"))
    assert kept == sorted(b"torn %d" % number for number in range(BAD_FILES_MAX, BAD_FILES_MAX * 2))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_damaged_what_is_read_is_the_beginning_of_what_was_written(tmp_path: Path, seed: int) -> None:
    """Several generations, with segments begun anew after errors, then one file cut or flipped at one place."""
    rng = random.Random(seed)
    history: list[bytes] = []
    journal = opened(tmp_path)
    for _ in range(rng.randrange(20, 80)):
        history.append(b"%d:" % len(history) + rng.randbytes(rng.randrange(30)))
        journal.append(history[-1])
        if rng.random() < 0.7:
            journal.commit(nothing)
        if rng.random() < 0.08:
            journal.save_snapshot(b"%d" % len(history))
        if rng.random() < 0.05:
            journal.close_now()
            journal = opened(tmp_path)
            list(journal.records())
    journal.close_now()

    files = sorted([*tmp_path.glob("*.log"), *tmp_path.glob("*.bin")])
    hurt, last = rng.choice(files), tmp_path / segments_in(tmp_path)[-1].name
    content = bytearray(hurt.read_bytes())
    place = rng.randrange(len(content))
    if rng.random() < 0.5:
        content[place] ^= 1 << rng.randrange(8)
    else:
        del content[place:]
    hurt.write_bytes(content)

    try:
        journal, warnings = damaged(tmp_path)
    except ConfigError:
        assert place < 10, "only a magic or a version that is not ours is refused"
        return
    covered = int(journal.snapshot) if journal.snapshot is not None else 0
    state = history[:covered] + list(journal.records())
    assert state == history[: len(state)]
    if hurt.suffix == ".bin":
        assert state == history, "a damaged snapshot loses nothing, because the generation before it is still there"
    if len(state) < len(history) and not (hurt == last and place == len(content)):
        assert warnings  # a last segment cut exactly between two records looks like one that was never longer
    journal.append(b"goes on")
    journal.close_now()
    journal, _ = damaged(tmp_path)
    covered = int(journal.snapshot) if journal.snapshot is not None else 0
    assert history[:covered] + list(journal.records()) == [*state, b"goes on"]
    journal.close_now()


# ------------------------------------------------------------------------------------------------------- what is ours


def test_files_of_strangers_and_of_other_versions_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    written(tmp_path, [b"a"])
    segment = only_segment(tmp_path)
    content = segment.read_bytes()
    newer = content[:8] + (JOURNAL_FILES + 1).to_bytes(2, "little") + content[10:]
    for name, stranger, words in (
        (segment.name, newer, f"version {JOURNAL_FILES + 1}"),
        (segment.name, b"my diary, which is precious\n" * 9, "not written by Headwater"),
        (segment.name, b"short", "not written by Headwater"),
        ("snapshot-00000001.bin", b"\x89PNG\r\n\x1a\n" + bytes(99), "not written by Headwater"),
        ("snapshot-00000001.bin", b"\x89HWsnap\n\x63\x00" + bytes(99), "version 99"),
    ):
        (tmp_path / name).write_bytes(stranger)
        with pytest.raises(ConfigError, match=words):
            opened(tmp_path)
        assert (tmp_path / name).read_bytes() == stranger
        (tmp_path / name).unlink()
    segment.write_bytes(content)
    assert found(tmp_path) == [b"a"]


def test_two_processes_never_have_one_folder_and_the_second_is_told_who_has_it(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from headwater.protocol.journal import Journal; "
        "Journal.open(pathlib.Path(sys.argv[1]), 'sync', on_warning=print)"
    )
    journal = opened(tmp_path)
    command = [sys.executable, "-c", script, str(tmp_path)]
    other = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert other.returncode != 0
    assert f"is in use by process {os.getpid()}" in other.stderr
    with pytest.raises(ConfigError, match=f"in use by process {os.getpid()}"):
        opened(tmp_path)
    journal.close_now()
    opened(tmp_path).close_now()


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write one of none, async, sync"):
        opened(tmp_path, "maybe")  # type: ignore[arg-type]
