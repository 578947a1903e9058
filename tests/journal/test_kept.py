"""Folders of earlier versions: those that can be read are, and of the others a sentence says how to go on."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import struct
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from headwater.coordinator.daemon.folder import DataFolder, read_setup
from headwater.coordinator.daemon.snapshot import StateError, machine_format
from headwater.node.daemon.daemon import DaemonSettings
from headwater.node.daemon.journal_records import KINDS
from headwater.node.daemon.process import recovered
from headwater.node.snapshot import state_format
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.errors import ConfigError
from headwater.protocol.journal import Journal
from tests.journal.record_kept import COMMAND, HERE, NODES, PATIENCE_S, ROLES, started, until
from tests.journal.shapes import HEADER_BYTES, SHAPES, saved_shapes

READABLE = sorted(path.name for path in HERE.glob("format-*"))


def refused(*arguments: str) -> str:
    """What a command says that is told to go on in a folder it cannot read."""
    ended = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "Traceback" not in ended.stderr
    return " ".join(ended.stderr.split())


@pytest.fixture
def pickled(tmp_path: Path) -> Path:
    """What a version left that pickled its state."""
    shutil.copytree(HERE / "pickled", tmp_path, dirs_exist_ok=True)
    return tmp_path


def settings(name: str, data: Path) -> DaemonSettings:
    return DaemonSettings(name=name, data=data, coordinator="tcp://127.0.0.1:9", network="headwater")


@pytest.mark.parametrize("node", NODES)
def test_a_node_says_how_to_go_on_from_a_pickled_snapshot(node: str, pickled: Path) -> None:
    journal = pickled / node / "journal"
    said = refused("node", node, "--coordinator", "tcp://127.0.0.1:9", "--data", str(pickled / node))
    assert f"the snapshot in {journal} cannot be used: it was saved by a version of Headwater from before" in said
    assert f"To go on, move {journal} away and start the node again" in said
    before = (pickled / node / "life").read_text(encoding="utf-8")
    journal.rename(pickled / "away")
    opened, machine, replayed = recovered(settings(node, pickled / node), None)
    opened.close_now()
    assert (machine.name, machine.core, replayed) == (node, None, 0)
    assert machine.life != before.strip()


def test_a_coordinator_says_how_to_go_on_from_pickled_state(pickled: Path) -> None:
    data = pickled / "coordinator"
    command = ("coordinator", str(HERE / "network.yaml"), "--data", str(data))
    said = refused(*command)
    assert f"{data / 'network'} cannot be used: it was saved by a version of Headwater from before" in said
    assert "To go on, move 'network' and 'journal' out of the data folder and start the coordinator again" in said
    (data / "network").rename(pickled / "network")
    said = refused(*command)
    assert f"{data / 'journal'} cannot be used: it was saved by a version of Headwater from before" in said
    assert "To go on, move 'network' and 'journal' out of the data folder" in said
    before = (data / "life").read_text(encoding="utf-8")
    (data / "journal").rename(pickled / "journal")
    with a_network(pickled / "anew", data):
        assert (data / "life").read_text(encoding="utf-8") != before


def test_no_pickle_in_a_folder_is_ever_loaded(tmp_path: Path, pickled: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "exploded"),)

    (pickled / "coordinator" / "network").write_bytes(pickle.dumps(Bomb(), 5))
    with pytest.raises(StateError, match="can run code"):
        read_setup(pickled / "coordinator")
    assert not (tmp_path / "exploded").exists()


@contextmanager
def a_network(folder: Path, coordinator: Path | None = None) -> Iterator[str]:
    """The kept network, running with the data in the folder; where its coordinator answers."""
    if coordinator is not None:
        folder.mkdir()
        (folder / "coordinator").symlink_to(coordinator)
    running = started(folder, COMMAND)
    try:
        yield json.loads((folder / "coordinator" / "endpoints.json").read_text(encoding="utf-8"))["http"]
    finally:
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
        for process in running:
            assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("name", READABLE)
def test_nodes_read_what_was_kept(name: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
    for node in NODES:
        before = (tmp_path / node / "life").read_text(encoding="utf-8").strip()
        journal, machine, replayed = recovered(settings(node, tmp_path / node), None)
        journal.close_now()
        assert (machine.name, machine.life) == (node, before)
        assert replayed > 0
        assert machine.core is not None
        assert machine.core.works
        assert machine.core.held() > 0
        assert not machine.core.validate(machine.now_us)
        with pytest.raises(ConfigError, match="is the data folder of node"):
            recovered(settings("another", tmp_path / node), None)


@pytest.mark.parametrize("name", READABLE)
def test_a_network_goes_on_from_what_was_kept(name: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / name, tmp_path, dirs_exist_ok=True)
    lives = {role: (tmp_path / role / "life").read_text(encoding="utf-8") for role in ROLES}
    setup = DataFolder(tmp_path / "coordinator").setup()
    assert setup is not None
    assert setup.network.nodes == NODES
    sink = tmp_path / "far" / "sink-0.jsonl"
    with a_network(tmp_path) as http:
        until(lambda: sink.exists() and "Fire" in sink.read_text(encoding="utf-8"))
        with urllib.request.urlopen(f"{http}/rules") as answer:
            assert [rule["name"] for rule in json.load(answer)["rules"]] == ["Fire"]
    assert {role: (tmp_path / role / "life").read_text(encoding="utf-8") for role in ROLES} == lives


def test_classes_are_saved_as_their_format_says() -> None:
    """A developer who changes the fields of a saved class must raise the number of the format, add an upgrade from the
    one before (``headwater.protocol.state``), and then run ``python -m tests.journal.record_kept``."""
    kept = json.loads(SHAPES.read_text(encoding="utf-8"))
    for kind, found in saved_shapes().items():
        assert found["number"] == kept[kind]["number"], f"record the shapes of format {found['number']} of {kind}s"
        for name, shapes in found["shapes"].items():
            for fields in shapes:
                assert fields in kept[kind]["shapes"].get(name, []), (
                    f"{kind}s save {name} with the fields {fields}, which format {found['number']} does not have"
                )


RECORDS = (
    "now_us address http version",
    "now_us peer last_seq payloads",
    "now_us source rows watermark position publication",
    "now_us sources",
    "now_us timer",
    "now_us peer life era",
    "now_us peer life era",
    "now_us peer seq",
    "now_us sink number",
    "now_us payload",
    "now_us trace parts watermark last_seq",
    "now_us since_us sources",
    "now_us sources",
    "now_us elements",
    "now_us places",
)
"""The fields of the records in journals, by the number of their kind. Add to it, and change nothing."""


def test_records_of_earlier_journals_are_read_as_they_are() -> None:
    assert len(KINDS) == len(RECORDS), "write the fields of the new kind below the others"
    for kind, written in zip(KINDS, RECORDS, strict=True):
        fields = tuple(written.split())
        assert kind._fields[: len(fields)] == fields
        assert {*kind._fields[len(fields) :]} <= kind._field_defaults.keys(), "records without it must be readable"


@pytest.mark.parametrize("role", ["near", "coordinator"])
def test_damage_to_what_was_kept_gives_a_sentence_and_nothing_else(role: str, tmp_path: Path) -> None:
    """Bytes changed at random behind a checksum that is right: what is read is a state, or a StateError is raised."""
    shutil.copytree(HERE / READABLE[-1] / role, tmp_path, dirs_exist_ok=True)
    journal = Journal.open(tmp_path / "journal", "sync", on_warning=print)
    journal.close_now()
    assert journal.snapshot is not None
    form, named = (state_format(), {}) if role == "near" else (machine_format(), {"horizon": horizon_us})
    data = journal.snapshot
    if role == "coordinator":
        data = form.read(data, named)[0]  # the machine in it
    tables = data[HEADER_BYTES:]
    chance = random.Random(role)
    outcomes = Counter[bool]()
    for _ in range(600):
        changed = bytearray(tables)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(changed))
            if chance.random() < 0.5:
                changed[place] ^= 1 << chance.randrange(8)
            else:
                changed[place : place + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        header = data[: HEADER_BYTES - 4] + struct.pack("<I", crc32(changed))
        try:
            form.read(header + bytes(changed), named)
            outcomes[True] += 1
        except StateError:
            outcomes[False] += 1
    assert outcomes[True] > 10
    assert outcomes[False] > 100
