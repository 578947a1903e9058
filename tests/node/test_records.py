"""What a node writes down of itself: files that are bounded, and records of matches, births and metrics."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.simulation.simulator import Simulation
from headwater.node.observe.metrics import records as records_module
from headwater.node.observe.metrics.observed import Observed
from headwater.node.observe.metrics.record_files import RecordFiles
from headwater.node.observe.metrics.records import MetricRecords
from headwater.protocol.composites import Composite
from tests.kit.patience import soon
from tests.node.test_metrics import DOC

# -- records -----------------------------------------------------------------------------------------------------------


def lines_of(files: list[Path]) -> Iterator[Any]:
    for file in files:
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def test_record_files_are_bounded_in_size_and_number(tmp_path: Path) -> None:
    files = RecordFiles(tmp_path / "records", "metrics", file_bytes_max=100, files_max=3)
    for number in range(60):
        files.write([json.dumps({"number": number}).encode()])
    names = [path.name for path in files.paths()]
    assert len(names) == 3
    assert names == sorted(names)
    assert all(path.stat().st_size <= 100 for path in files.paths())
    kept = [record["number"] for record in lines_of(files.paths())]
    assert kept == list(range(60 - len(kept), 60))


def test_record_files_go_on_after_a_crash_without_the_line_that_was_cut(tmp_path: Path) -> None:
    RecordFiles(tmp_path, "matches").write([b'{"n": 1}', b'{"n": 2}'])
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes() + b'{"n": 3')
    files = RecordFiles(tmp_path, "matches")
    files.write([b'{"n": 4}'])
    assert [record["n"] for record in lines_of(files.paths())] == [1, 2, 4]


def a_match(simulation: Simulation) -> Composite:
    item = simulation.outcome.delivered[0].item
    assert isinstance(item, Composite)
    return item


def test_records_hold_matches_and_what_was_counted_in_between(
    observed: Observed, simulation: Simulation, tmp_path: Path
) -> None:
    match = a_match(simulation)

    async def run() -> None:
        records = MetricRecords(tmp_path, observed, metrics_every_s=3600, flush_every_s=0.01)
        records.start()
        observed.counters.source(0, "A").bear(1, 9_000)
        observed.counters.source(3, "A").bear(2, 9_500)
        observed.counters.source(3, "A").bear(0, 9_900)
        records.delivered(0, 1, match, match.ts + 2_000, live=True)
        records.delivered(0, 2, match, match.ts + 3_000, live=False)
        records.born(7_000, 3, (4, 6), (5_000, 6_000), "0a1b")
        await soon(lambda: len(list(lines_of(sorted(tmp_path.glob("matches-*"))))) == 2)
        await records.close()

    asyncio.run(run())
    first, second = lines_of(sorted(tmp_path.glob("matches-*")))
    assert first == {
        "v": 1, "run": "r1", "node": "n2", "sink": 0, "number": 1, "id": match.id, "rule": "pair",
        "version": match.version, "type": "X", "ts": match.ts, "end_node": match.end[1], "end_seq": match.end[2],
        "delivered": match.ts + 2_000, "latency_us": 2_000,
    }  # fmt: skip
    assert (second["number"], second["latency_us"]) == (2, None)
    (metrics_record,) = lines_of(sorted(tmp_path.glob("metrics-*")))
    assert {name: metrics_record[name] for name in ("run", "network", "strategy")} == {
        "run": "r1", "network": "test", "strategy": "st",
    }  # fmt: skip
    assert (metrics_record["born_from"], metrics_record["born_to"]) == (9_000, 9_500)
    assert metrics_record["counters"] == [{"name": "headwater_events_born_total", "labels": {"type": "A"}, "value": 3}]
    gauges = {(each["name"], *each["labels"].values()): each["value"] for each in metrics_record["gauges"]}
    assert gauges["headwater_link_up", "n9"] == 0
    section = DOC.read_text().split("## Records")[1]
    in_doc = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE))))
    (births,) = lines_of(sorted(tmp_path.glob("births-*")))
    assert births == {
        "v": 1, "run": "r1", "node": "n2", "time": 7_000, "first_seq": 4, "last_seq": 6, "first_ts": 5_000,
        "last_ts": 6_000, "events": 3, "trace": "0a1b",
    }  # fmt: skip
    assert in_doc == first.keys() | metrics_record.keys() | births.keys()


def test_metrics_are_recorded_again_and_again(observed: Observed, tmp_path: Path) -> None:
    async def run() -> None:
        records = MetricRecords(tmp_path, observed, metrics_every_s=0.02, flush_every_s=0.01)
        records.start()
        await soon(lambda: len(list(lines_of(sorted(tmp_path.glob("metrics-*"))))) > 2)
        await records.close()

    asyncio.run(run())
    found = list(lines_of(sorted(tmp_path.glob("metrics-*"))))
    assert len(found) > 2
    assert all(record["counters"] == [] for record in found)
    assert all(record["born_from"] is record["born_to"] is None for record in found)


def test_records_that_cannot_be_written_are_counted_and_let_go(
    observed: Observed, simulation: Simulation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way of a folder")
    monkeypatch.setattr(records_module, "PENDING_MAX", 5)
    match = a_match(simulation)

    async def run() -> None:
        records = MetricRecords(tmp_path / "file", observed, metrics_every_s=3600)
        records.start()
        for number in range(8):
            records.delivered(0, number, match, match.ts, live=True)
        await records.close()

    observed.counters.records_dropped.clear()
    asyncio.run(run())
    assert observed.counters.records_dropped == {"matches": 8, "metrics": 1}
