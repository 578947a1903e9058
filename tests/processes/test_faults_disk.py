"""Disks fail under load: they fill up, lose the end of what was written, or give back other bytes than were written."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.protocol.journal.files import frame
from tests.kit.faults import a_load, finish, under_load
from tests.kit.processes import Cluster, until
from tests.law.law import SERVED

# -- a full disk -------------------------------------------------------------------------------------------------------

DISK_BYTES = 6 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own in a folder; the test is skipped where nothing can be mounted."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave not one block of a file system free."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.parametrize(
    ("victim", "killed"),
    [("n3", False), ("n2", False), ("n5", True)],
    ids=["of a source", "of a relay", "of a sink that is killed"],
)
def test_a_disk_is_full_until_room_is_made(victim: str, killed: bool, tmp_path: Path) -> None:
    case = a_load()
    with small_disk(tmp_path / "nodes" / victim), under_load(case, "mt-pp", tmp_path, seconds=4.0) as cluster:
        filler = fill(cluster.data(victim))
        full = "sources wait: the disk is full"
        until(lambda: full in (cluster.ask(victim, "/ready") or {}).get("missing", ()), "the node says so", cluster)
        assert "cannot be written" in cluster.said(victim)
        assert cluster.metric(victim, "headwater_disk_full") == 1
        if killed:
            cluster.kill(victim)
        filler.unlink()
        if killed:
            cluster.restart(victim)
        finish(cluster, case)
        assert cluster.metric(victim, "headwater_disk_full") == 0


def test_a_node_that_is_started_on_a_full_disk_works_when_room_is_made(tmp_path: Path) -> None:
    """It cannot take anything in, but it does not give up."""
    case = a_load()
    with small_disk(tmp_path / "nodes" / "n3"), under_load(case, "st", tmp_path, seconds=4.0) as cluster:
        cluster.kill("n3")
        filler = fill(cluster.data("n3"))
        cluster.restart("n3")
        time.sleep(2.0)
        assert not cluster.dead()
        filler.unlink()
        finish(cluster, case)


# -- what a crash leaves on the disk -----------------------------------------------------------------------------------


def newest_segment(cluster: Cluster, node: str) -> Path:
    return max((cluster.data(node) / "journal").glob("*.log"))


@pytest.mark.parametrize("victim", ["n2", "n3"])
def test_a_torn_tail_costs_nothing(victim: str, tmp_path: Path) -> None:
    """The last write was never finished, so nothing that follows from it has left the node."""
    case = a_load(300)
    torn = frame([bytes(range(256)) * 4])
    with under_load(case, "st", tmp_path) as cluster:
        cluster.kill(victim)
        with newest_segment(cluster, victim).open("ab") as file:
            file.write(torn[: len(torn) // 2])
        cluster.restart(victim)
        finish(cluster, case)
        assert "was never finished" in cluster.said(victim)


# -- damage ------------------------------------------------------------------------------------------------------------


def flip(file: Path, place: int) -> None:
    """Turn one bit over."""
    data = bytearray(file.read_bytes())
    data[place] ^= 0x10
    file.write_bytes(data)


def in_the_middle(file: Path) -> None:
    flip(file, file.stat().st_size // 2)


def near_the_beginning(file: Path) -> None:
    flip(file, 100)


def in_the_last_record(file: Path) -> None:
    flip(file, file.stat().st_size - 3)


@pytest.mark.parametrize(
    ("victim", "damage", "strategy"),
    [
        *(
            (relay, in_the_middle, strategy)
            for relay, strategy in zip(("n1", "n2", "n2", "n2", "n1", "n2"), SERVED, strict=True)
        ),
        ("n2", near_the_beginning, "st"),
        ("n3", in_the_middle, "mt-pp"),
        ("n4", in_the_last_record, "st-pp"),
        ("n5", near_the_beginning, "mt"),
    ],
)
def test_a_node_whose_journal_is_damaged_begins_a_new_life(
    victim: str, damage: Callable[[Path], None], strategy: str, tmp_path: Path
) -> None:
    """What it has forgotten others still have, or its traces tell again: trees are built anew, and nothing is missed or
    repeated."""
    case = a_load(300)
    with under_load(case, strategy, tmp_path) as cluster:
        life = cluster.ask(victim, "/health")["life"]
        cluster.kill(victim)
        damage(newest_segment(cluster, victim))
        cluster.restart(victim)
        finish(cluster, case)
        assert "begins a new life" in cluster.said(victim)
        assert cluster.ask(victim, "/health")["life"] != life


@pytest.mark.parametrize(("victim", "strategy"), [("n1", "st"), ("n3", "mt-pp")])
def test_a_node_whose_journal_is_gone_begins_a_new_life(victim: str, strategy: str, tmp_path: Path) -> None:
    case = a_load(300, seed=18)
    with under_load(case, strategy, tmp_path) as cluster:
        cluster.kill(victim)
        shutil.rmtree(cluster.data(victim) / "journal")
        cluster.restart(victim)
        finish(cluster, case)


def test_a_disk_that_has_not_kept_its_word_is_found_out(tmp_path: Path) -> None:
    """The end of the journal is gone without a trace, and with it what others have been told since."""
    case = a_load(300, seed=15)
    with under_load(case, "st", tmp_path) as cluster:
        cluster.kill("n1")
        segment = newest_segment(cluster, "n1")
        segment.write_bytes(segment.read_bytes()[: segment.stat().st_size * 3 // 4])
        cluster.restart("n1")
        finish(cluster, case)
        assert "no longer remembers" in cluster.said("n2")
