"""Runs become reports: what was sent, found and took, against what simulations say; and what is wrong with records."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from deploy.command import main
from deploy.network_file import read_network
from deploy.reporting.groups import grouped
from deploy.reporting.inputs import find_runs
from deploy.reporting.labels import LONGEST, Circle, placed, short_names
from deploy.reporting.layout import laid_out
from deploy.reporting.page import page
from deploy.reporting.shapes import shape_of
from deploy.reporting.terminal import render, to_json
from deploy.reporting.words import headline
from deploy.simulation.births import births
from deploy.simulation.figures import Figures, figures, percentile
from deploy.simulation.simulator import simulate
from pipeline.prepared import EVENTS, Manifest, NodeSummary, Prepared, TypeSummary
from pipeline.report.buckets import BUCKETS_MAX, Buckets
from pipeline.report.identity import chosen_run
from pipeline.report.inputs import Recorded, find_files
from pipeline.report.job import report_tables
from pipeline.report.metrics import Coverage
from pipeline.report.synthetic import synthetic_run
from pipeline.report.tables import KINDS, Row, Tables, write_tables
from protocol.errors import ConfigError

PROJECT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120.0

NETWORK = """\
events:
  Smoke: {area: string}
  Temp: {area: string, value: float}
nodes: [p1, p2, p3, p4, p5]
links:
  - {between: [p1, p2], delay: 5ms}
  - {between: [p2, p3], delay: 5ms}
  - {between: [p2, p4], delay: 5ms}
  - {between: [p4, p5], delay: 5ms}
sources:
  - {node: p3, type: Smoke, rate: 1/s, values: {area: {choice: [A1, A2]}}}
  - {node: p5, type: Temp, rate: 5/s, values: {area: {choice: [A1, A2]}, value: {uniform: [30, 50]}}}
  - {node: p4, type: Temp, rate: 1/s, values: {area: {choice: [A1, A2]}, value: {uniform: [30, 50]}}}
sinks:
  - {node: p1, subscribe: Fire}
  - {node: p5, subscribe: Fire}
  - {node: p1, subscribe: "Hot(value > 48)"}
rules:
  - |
    define Fire(area: string, temperature: float)
    from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area, temperature = Temp.value
  - "define Hot(value: float) from Temp(value > 47) where value = Temp.value"
strategy: st
duration: 40s
"""


def recorded(folder: Path, name: str, *options: str) -> Path:
    """A simulation by the command, recorded."""
    (folder / "fires.yaml").write_text(NETWORK)
    with pytest.raises(SystemExit) as left:
        main(["simulate", str(folder / "fires.yaml"), "--record", str(folder / name), "--quiet", *options])
    assert left.value.code == 0
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """centr and st over the same events, and st over others."""
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder, "centr", "--strategy", "centr", "--seed", "1")
    recorded(folder, "st", "--strategy", "st", "--seed", "1")
    recorded(folder, "st2", "--strategy", "st", "--seed", "2")
    found, said = find_runs([str(folder / name) for name in ("centr", "st", "st2")], folder)
    assert not said
    return found


@pytest.fixture(scope="module")
def tables(spark: Any, runs: list[Recorded]) -> Tables:
    return grouped(report_tables(spark, runs))


@pytest.fixture(scope="module")
def simulated(runs: list[Recorded], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figures]:
    """What the simulator itself says of the same runs."""
    file = tmp_path_factory.mktemp("same") / "fires.yaml"
    file.write_text(NETWORK)
    read = read_network(file)
    found = {}
    for name, strategy, seed in (("centr", "centr", 1), ("st", "st", 1), ("st2", "st", 2)):
        born = births(read, seed=seed, until_us=read.duration_us)
        found[name] = figures(simulate(read.network, born, strategy=strategy, seed=seed))
    return found


# -- what is reported --------------------------------------------------------------------------------------------------


def test_links_carry_what_the_simulator_accounted(tables: Tables, simulated: dict[str, Figures]) -> None:
    for name, figure in simulated.items():
        by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        by_link: dict[tuple[str, ...], int] = defaultdict(int)
        for row in tables.of("links", name):
            for place, column in enumerate(("events", "messages", "bytes")):
                by_kind[row["kind"]][place] += row[column]
            if not row["overhead"]:
                by_link[tuple(sorted((row["from"], row["to"])))] += row["bytes"]
        expected = {kind: [sent.events, sent.messages, sent.bytes] for kind, sent in figure.by_kind.items()}
        assert by_kind == {kind: sent for kind, sent in expected.items() if any(sent)}
        assert {link: size for link, size in by_link.items() if size} == {
            link: sent.bytes for link, sent in figure.by_link.items() if sent.bytes
        }


def test_events_by_type_are_the_bodies_that_crossed(tables: Tables) -> None:
    for name in ("centr", "st"):
        typed: dict[tuple[str, str, str], int] = defaultdict(int)
        for row in tables.of("link_types", name):
            typed[row["from"], row["to"], row["kind"]] += row["events"]
        sent = {(row["from"], row["to"], row["kind"]): row["events"] for row in tables.of("links", name)}
        assert typed
        assert typed == {place: sent[place] for place in typed}
    assert {row["type"] for row in tables.of("link_types", "centr")} == {"Smoke", "Temp", "Fire", "Hot"}


def test_centralised_is_what_a_simulated_centr_sends(tables: Tables, simulated: dict[str, Figures]) -> None:
    sent = simulated["centr"].traffic.events
    assert tables.run("centr")["centralised_events"] == sent
    assert tables.run("st")["centralised_events"] == sent
    assert tables.run("centr")["transmission_ratio"] == 1.0
    assert tables.run("st")["transmission_ratio"] == pytest.approx(simulated["st"].traffic.events / sent)
    assert 0 < tables.run("st")["transmission_ratio"] < 1


def test_latencies_are_those_of_the_simulator(tables: Tables, simulated: dict[str, Figures]) -> None:
    for name, figure in simulated.items():
        run = tables.run(name)
        assert run["composites"] == figure.composites
        for share in (50, 95, 99):
            assert run[f"latency_p{share}_ms"] * 1000 == figure.delay_us[share]
        by_rule = [row for row in tables.of("latency", name) if row["rule"]]
        assert {row["rule"] for row in by_rule} == {"Fire", "Hot"}
        assert sum(row["composites"] for row in by_rule) == figure.composites
        cdf = [row for row in tables.of("latency_cdf", name) if row["rule"] == "Fire"]
        assert [row["latency_ms"] for row in cdf] == sorted(row["latency_ms"] for row in cdf)


def test_throughput_and_load_add_up(tables: Tables) -> None:
    for name in ("centr", "st", "st2"):
        run, steps = tables.run(name), list(tables.of("throughput", name))
        assert sum(step["born"] for step in steps) == pytest.approx(run["born"])
        assert sum(step["composites"] for step in steps) == run["composites"]
        assert len(steps) <= BUCKETS_MAX
        nodes = list(tables.of("nodes", name))
        assert (
            sum(node["events_in"] for node in nodes) == sum(node["events_out"] for node in nodes) == run["events_sent"]
        )
        assert sum(node["delivered"] for node in nodes) == run["composites"]
        assert max(node["held_peak"] for node in nodes) == run["held_peak"] > 0
        assert {row["buffer"] for row in tables.of("buffers", name)} == {"held rows"}


def test_runs_over_the_same_events_are_compared_and_seeds_are_grouped(tables: Tables) -> None:
    centr, st, other = (next(tables.of("comparison", name)) for name in ("centr", "st", "st2"))
    assert (centr["reference"], other["reference"]) == (None, None)
    assert (st["reference"], st["missing"], st["extra"], st["delivered_again"]) == ("centr", 0, 0, 0)
    assert st["same"] == st["composites"] == centr["composites"] > 0
    ratios = {row["measure"]: row for row in tables["groups"] if row["strategy"] == "st"}
    values = [tables.run(name)["transmission_ratio"] for name in ("st", "st2")]
    assert ratios["transmission_ratio"]["mean"] == pytest.approx(sum(values) / 2)
    assert ratios["transmission_ratio"]["half_width_95"] > 0
    assert not [row for row in tables["groups"] if row["strategy"] == "centr"]
    assert not tables["notes"]
    shown = render(tables)
    assert "as centr" in shown
    assert "centr and st delivered the same" in shown


# -- what is wrong with records ----------------------------------------------------------------------------------------


def test_damaged_and_mixed_records_are_found_and_named(spark: Any, runs: list[Recorded], tmp_path: Path) -> None:
    """Of one recording: a node is gone, a file was rotated away, a line is cut, others are of another run or version,
    some stand there twice, a delivery is missing, and one is false."""
    whole = next(run for run in runs if run.label == "st")
    data = next(iter(whole.folders.values())).parent.parent
    folder = tmp_path / "hurt"
    shutil.copytree(data.parent, folder)
    shutil.rmtree(folder / "data" / "p4")
    metrics = folder / "data" / "p3" / "records" / "metrics-00001.jsonl"
    metrics.rename(metrics.with_name("metrics-00003.jsonl"))
    own = folder / "data" / "p1" / "records" / "matches-00001.jsonl"
    lines = own.read_text().splitlines()
    first = json.loads(lines[0])
    strange = [json.dumps(first | {"run": "feedfeedfeedfeed", "number": 7000 + number}) for number in range(3)]
    newer = json.dumps(first | {"v": 2})
    false = json.dumps(first | {"id": "0" * 32, "number": json.loads(lines[1])["number"]})
    with own.open("w") as file:
        file.write("\n".join([lines[0], lines[0], *lines[2:], lines[2], false, *strange, newer, lines[-1][:40]]))
    found, _ = find_runs([str(data.parent), str(folder)], tmp_path)
    report = report_tables(spark, found)
    notes = " ".join(row["note"] for row in report.of("notes", "hurt"))
    assert "no records of p4" in notes
    assert "rotated away: p3 (2)" in notes
    assert "3 matches of another run (feedfeedfeedfeed) are mixed in at p1" in notes
    assert "2 lines are cut or of another version" in notes
    assert not list(report.of("notes", "st"))
    hurt, sound = report.run("hurt"), report.run("st")
    assert (hurt["lines_bad"], hurt["lines_repeated"]) == (2, 2)
    assert hurt["composites"] == sound["composites"]  # one is missing, one is false
    verdict = next(report.of("comparison", "hurt"))
    assert (verdict["reference"], verdict["missing"], verdict["extra"]) == ("st", 1, 1)
    assert "did NOT deliver the same" in " ".join(headline(report))


def a_cover(run: str) -> list[Coverage]:
    return [Coverage(run, "fires", "st", 0, 10, 1, 0, 0)]


def test_metrics_of_two_runs_are_told_apart_or_refused(runs: list[Recorded]) -> None:
    run = runs[1]
    ours = run.shape.run
    assert chosen_run(run, {"p1": a_cover(ours), "p2": a_cover("")}) == (ours, [])
    chosen, (note,) = chosen_run(run, {"p1": a_cover(ours) + a_cover("beef"), "p2": a_cover(ours)})
    assert chosen == ours
    assert "another run (beef) are mixed in at p1" in note.text
    chosen, (note,) = chosen_run(run, {"p1": a_cover("beef")})
    assert chosen == "beef"
    with pytest.raises(ConfigError, match=r"2 different runs \(beef: p1; cafe: p2\)"):
        chosen_run(run, {"p1": a_cover("beef"), "p2": a_cover("cafe")})


def test_folders_that_are_no_runs_are_refused_before_anything_is_done(runs: list[Recorded], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no run 'fires'; .* holds no run"):
        find_runs(["fires"], tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"is no run: it has neither plan\.json"):
        find_runs([str(tmp_path / "empty")], tmp_path)
    folder = next(iter(runs[0].folders.values())).parent.parent.parent
    with pytest.raises(ConfigError, match="is named twice"):
        find_runs([str(folder), str(folder)], tmp_path)
    nowhere = Recorded("gone", runs[0].shape, {node: tmp_path / node for node in runs[0].shape.nodes})
    with pytest.raises(ConfigError, match="no node has left records"):
        find_files(nowhere)


# -- latency of what was replayed --------------------------------------------------------------------------------------


def test_latency_of_replayed_events_comes_from_their_births(spark: Any, tmp_path: Path) -> None:
    """Against a join by hand; one node's births are gone, so nobody knows when its events were born."""
    run = synthetic_run(tmp_path / "made", matches=400, events=20_000, nodes=4, rules=2)
    shutil.copytree(tmp_path / "made", tmp_path / "some")
    (tmp_path / "some" / "data" / "n2" / "records" / "births-00001.jsonl").unlink()
    (some,), _ = find_runs([str(tmp_path / "some")], tmp_path)
    lines = list(lines_of(run, "births"))
    expected: dict[str, list[int]] = {"made": [], "some": []}
    for match in lines_of(run, "matches"):
        (born,) = [
            line["time"]
            for line in lines
            if line["node"] == match["end_node"] and line["first_seq"] <= match["end_seq"] <= line["last_seq"]
        ]
        expected["made"].append(match["delivered"] - born)
        if match["end_node"] != "n2":
            expected["some"].append(match["delivered"] - born)
    report = report_tables(spark, [run, some])
    for name, latencies in expected.items():
        latencies.sort()
        found = report.run(name)
        assert (found["latency_known"], found["latency_unknown"]) == (len(latencies), 400 - len(latencies))
        for share in (50, 90, 95, 99):
            assert found[f"latency_p{share}_ms"] * 1000 == percentile(latencies, share)
        assert found["latency_max_ms"] * 1000 == latencies[-1]
    assert 0 < len(expected["some"]) < 400
    (note,) = (row["note"] for row in report.of("notes", "some"))
    assert "composites is not known: the batch that their latest event came with is in no record" in note


def lines_of(run: Recorded, kind: str) -> Iterator[dict[str, Any]]:
    for folder in run.folders.values():
        for file in sorted(folder.glob(f"{kind}-*.jsonl")):
            yield from map(json.loads, file.read_text().splitlines())


def a_trace(folder: Path, counts: dict[tuple[str, str], int]) -> Prepared:
    """A prepared trace with so many events of each node and type."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for node in {node for node, _ in counts}:
        kinds = [kind for (where, kind), count in counts.items() if where == node for _ in range(count)]
        rows = {"type": kinds, "ts": list(range(len(kinds))), "seq": list(range(1, len(kinds) + 1))}
        (folder / EVENTS / f"node={node}").mkdir(parents=True)
        pq.write_table(pa.table(rows), folder / EVENTS / f"node={node}" / "part.parquet")
    total = sum(counts.values())
    types = {kind: TypeSummary(1, 0, total, {}) for _, kind in counts}
    nodes = {node: NodeSummary(1, 0, total) for node, _ in counts}
    return Prepared(folder, Manifest("made", total, 0, total, "00ff", types, nodes, {}))


def test_centralised_is_counted_over_the_trace_if_it_is_the_one(
    spark: Any, runs: list[Recorded], tmp_path: Path
) -> None:
    trace = a_trace(tmp_path / "trace", {("p3", "Smoke"): 3, ("p5", "Temp"): 10, ("p5", "Other"): 4, ("p9", "Temp"): 1})
    report = report_tables(spark, runs[1:2], trace=trace)
    up = [row for row in report["centralised"] if row["way"] == "up"]
    assert [(row["node"], row["type"], row["events"], row["hops"]) for row in up] == [
        ("p3", "Smoke", 3, 1),
        ("p5", "Temp", 10, 2),
    ]
    (note,) = (row["note"] for row in report["notes"])
    assert note.startswith("the trace has 13 events of this network's sources, and ")
    other = replace(runs[1], shape=replace(runs[1].shape, trace="beef"))
    report = report_tables(spark, [other], trace=trace)
    (note,) = (row["note"] for row in report["notes"])
    assert "the trace made (00ff) is not the one that was replayed (beef)" in note
    assert report.run("st")["centralised_events"] > 23


# -- the page and the tables -------------------------------------------------------------------------------------------


class Read(HTMLParser):
    """Elements of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_from_anywhere(tables: Tables, runs: list[Recorded]) -> None:
    text = page(tables, {run.label: run.shape for run in runs})
    read = Read(text)
    assert not read.open
    assert not [found for found in read.elements if {"src", "href", "srcset", "data", "poster"} & found[1].keys()]
    assert not {"link", "img", "iframe", "object", "embed"} & {name for name, _ in read.elements}
    assert not re.search(r"https?:|url\(|@import|fetch\(|import\(|XMLHttp", text)


def test_figures_on_the_page_are_those_of_the_tables(tables: Tables, runs: list[Recorded], tmp_path: Path) -> None:
    write_tables(tables, tmp_path / "tables")
    written = {
        name: list(csv.DictReader((tmp_path / "tables" / f"{name}.csv").open(encoding="utf-8"))) for name in KINDS
    }
    read = Read(page(tables, {run.label: run.shape for run in runs}))
    seen: dict[str, int] = defaultdict(int)
    for _, found in read.elements:
        name = found.get("data-table", "")
        if name == "groups":
            rows = [row for row in written[name] if row["strategy"] == found["data-strategy"]]
            (value,) = (row["mean"] for row in rows if row["measure"] == found["data-measure"])
        elif name:
            keys = {key: found[f"data-{key}"] for key in ("run", "node", "rule") if f"data-{key}" in found}
            (value,) = (
                row[found["data-column"]] for row in written[name] if all(row[key] == keys[key] for key in keys)
            )
        else:
            continue
        seen[name] += 1
        given = found.get("data-value", "")
        assert given == value or float(given) == pytest.approx(float(value), abs=0.006), found
    assert seen.keys() == {"runs", "comparison", "groups", "latency", "nodes"}
    pieces = [found for _, found in read.elements if "data-kind" in found]
    for piece in pieces:
        rows = [
            row for row in written["links"] if row["run"] == piece["data-run"] and row["kind"] == piece["data-kind"]
        ]
        assert int(piece["data-value"]) == sum(int(row[piece["data-column"]]) for row in rows)
    assert {piece["data-run"] for piece in pieces} == {"centr", "st", "st2"}
    cells = [found for _, found in read.elements if found.get("data-what") == "type"]
    for cell in cells:
        one, other = cell["data-link"].split(" → ")
        rows = [
            row
            for row in written["link_types"]
            if (row["run"], row["from"], row["to"], row["type"]) == (cell["data-run"], one, other, cell["data-column"])
        ]
        assert int(cell["data-value"]) == sum(int(row["events"]) for row in rows)
    lines = [found for name, found in read.elements if name == "line" and "data-one" in found]
    assert len(lines) == 3 * len(runs[0].shape.links)
    assert {found["data-node"] for name, found in read.elements if name == "g"} == set(runs[0].shape.nodes)


def test_tables_are_the_same_as_parquet_and_as_csv(tables: Tables, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_tables(tables, tmp_path / "tables")
    for name, columns in KINDS.items():
        rows = pq.read_table(tmp_path / "tables" / f"{name}.parquet").to_pylist()
        assert rows == [{column: row.get(column) for column in columns} for row in tables[name]]
        with (tmp_path / "tables" / f"{name}.csv").open(encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(rows)
    assert json.loads(json.dumps(to_json(tables)))["runs"] == list(tables["runs"])


def test_maps_are_laid_out_without_two_nodes_in_one_place() -> None:
    for count in (1, 2, 3, 30):
        names = [f"n{number}" for number in range(count)]
        places = laid_out(names, pairwise(names))
        assert places == laid_out(names, pairwise(names))
        assert len({(round(x, 3), round(y, 3)) for x, y in places.values()}) == count
        assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in places.values())
    apart = laid_out(["a", "b", "c", "d"], [("a", "b"), ("c", "d")])
    assert len(set(apart.values())) == 4


def test_names_on_a_map_are_short_and_stand_where_nothing_else_is() -> None:
    long = [f"substation-north-{number:02d}.region-1.example" for number in range(9)]
    assert list(short_names(long).values()) == [f"{number:02d}" for number in range(9)]
    assert short_names(["p1", "p2"]) == {"p1": "p1", "p2": "p2"}
    (cut, _) = short_names(["a" * 30 + "1", "b" * 30]).values()
    assert len(cut) <= LONGEST
    assert (cut[:3], cut[-3:]) == ("aaa", "aa1")

    beside = {"a": Circle(100, 100, 10), "b": Circle(130, 100, 10), "c": Circle(160, 100, 10)}
    found = placed(beside, {name: name * 9 for name in beside}, 11, (300, 200))
    assert (found["a"].x, found["a"].y > 110) == (100, True)  # below, as long as there is room
    assert len({(label.x, label.y) for label in found.values()}) == 3
    boxes = [(label.x - 31, label.y - 9, label.x + 31, label.y + 2) for label in found.values()]
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert placed({"a": Circle(5, 5, 4)}, {"a": "far too long for this"}, 11, (20, 20)) == {}


def test_runs_that_did_equally_well_are_named_together() -> None:
    def run(name: str, ratio: float, p99: float) -> Row:
        return {"run": name, "transmission_ratio": ratio, "latency_p99_ms": p99, "network": "n"}

    runs = [run("centr", 1.0, 35.0), run("st", 0.079, 35.0), run("mt", 0.098, 40.0), run("inev", 0.079, 35.0)]
    said = headline(Tables({**{name: [] for name in KINDS}, "runs": runs}))
    assert said[0].startswith("st and inev sent least: 7.9 % of the events")
    assert said[1] == "The others: mt 9.8 %, centr 100 %."
    assert said[2] == "centr, st and inev were fastest: 99 % of the composites arrived within 35 ms; mt took 40 ms."
    means = [
        {"network": "n", "strategy": name, "measure": "transmission_ratio", "mean": mean}
        for name, mean in (("centr", 1.0), ("st", 0.07))
    ]
    said = headline(Tables({**{name: [] for name in KINDS}, "runs": runs, "groups": means}))
    assert said[0].startswith("st sent least: on average over all runs, 7.0 %")


def test_time_is_cut_into_a_bounded_number_of_steps() -> None:
    for length in (1, 999, 1_000_000, 86_400_000_000, 10**15):
        found = Buckets.over(5, 5 + length)
        assert 1 <= found.number <= BUCKETS_MAX
        assert found.step_us * found.number >= length


# -- a network of processes, and the command ---------------------------------------------------------------------------

TRACED = """\
events: {Smoke: {area: string}, Temp: {area: string, value: float}}
nodes: [p1, p2, p3]
links: [{between: [p1, p2], delay: 1ms}, {between: [p2, p3], delay: 1ms}]
sources:
  - {node: p2, type: Smoke, trace: rows.csv}
  - {node: p3, type: Temp, trace: rows.csv}
sinks: [{node: p1, subscribe: Fire, to: {file: fires.jsonl}}]
rules:
  - |
    define Fire(area: string) from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 s from Smoke
    where area = Smoke.area
"""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., tuple[int, str, str]]]:
    def call(*words: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "deploy.command", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    yield call
    call("down", "--name", "traced")


def test_a_network_that_replays_traces_is_reported_on(
    spark: Any, command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    rows = ["type,ts,area,value"]
    for second in range(60):
        rows += [f"Temp,{second * 1_000_000},A1,{40 + second % 10}", f"Smoke,{second * 1_000_000 + 500},A1,"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "traced.yaml").write_text(TRACED)
    code, _, err = command("up", "traced.yaml")
    assert code == 0, err
    sink = tmp_path / ".headwater" / "traced" / "data" / "p1" / "fires.jsonl"
    until = time.monotonic() + PATIENCE_S
    expected = 5 * 8 + 4  # of ten seconds four are hot, and what they are holds for five; the last ten are cut
    while time.monotonic() < until and (not sink.exists() or len(sink.read_text().splitlines()) < expected):
        time.sleep(0.1)
    assert command("down", "--name", "traced")[0] == 0
    (run,), said = find_runs(["traced"], tmp_path / ".headwater")
    assert not said
    assert (run.shape.strategy, run.shape.replayed, len(run.shape.run)) == ("st", True, 16)
    report = report_tables(spark, [run])
    found = report.run("traced")
    assert found["run_id"] == run.shape.run
    assert (found["born"], found["composites"]) == (120, expected)
    assert found["centralised_events"] == 60 + expected  # p2 leads: Temp comes from p3, composites go to p1
    assert (found["latency_known"], found["latency_unknown"]) == (expected, 0)
    assert 0 < found["latency_p50_ms"] < 1000 * PATIENCE_S
    assert found["cpu_s"] > 0
    assert not report["notes"]


def test_the_command_publishes_a_report_when_it_is_complete(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    synthetic_run(tmp_path / "made", matches=50, nodes=3)
    code, out, err = command("report", "made", "--out", "found", "--json", "--master", "local[1]")
    assert code == 0, err
    assert err.splitlines()[0] == "starting Spark"
    (run,) = json.loads(out)["runs"]
    assert (run["run"], run["composites"], run["latency_known"]) == ("made", 50, 50)
    assert sorted(each.name for each in (tmp_path / "found").iterdir()) == ["report.html", "tables"]
    assert {each.stem for each in (tmp_path / "found" / "tables").iterdir()} == set(KINDS)
    code, _, err = command("report", "made", "--out", "found")
    assert (code, "found exists already" in err) == (2, True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, err = command("report", "made", "--out", "mine", "--overwrite")
    assert (code, "mine is no report, so it is not overwritten" in err) == (2, True)


def test_the_leader_and_the_ways_to_it_are_those_of_st(tmp_path: Path) -> None:
    (tmp_path / "fires.yaml").write_text(NETWORK)
    shape = shape_of(read_network(tmp_path / "fires.yaml").network, "fires", "st")
    assert (shape.leader, shape.types) == ("p2", ("Smoke", "Temp"))
    assert {node: shape.hops(node) for node in shape.nodes} == {"p1": 1, "p2": 0, "p3": 1, "p4": 1, "p5": 2}
    assert shape.way("p5") == [("p5", "p4"), ("p4", "p2")]
