"""Runs become reports: what was sent, found and took, against what simulations say; and what is wrong with records."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from headwater.coordinator.requests import AddSubscription
from headwater.deploy.cli.command import main
from headwater.deploy.network.file import read_network
from headwater.deploy.reporting.groups import grouped
from headwater.deploy.reporting.inputs import find_runs
from headwater.deploy.reporting.map_labels import LONGEST, NodeCircle, placed, short_names
from headwater.deploy.reporting.map_layout import laid_out
from headwater.deploy.reporting.page import page
from headwater.deploy.reporting.shapes import shape_of
from headwater.deploy.reporting.summary import headline
from headwater.deploy.reporting.terminal import render, to_json
from headwater.deploy.simulation.births import births
from headwater.deploy.simulation.recording import Recorder
from headwater.deploy.simulation.simulator import simulate
from headwater.deploy.simulation.traffic_and_delay import RunFigures, figures, percentile
from headwater.pipeline.prepare.prepared_trace import EVENTS, Manifest, NodeSummary, PreparedTrace, TypeSummary
from headwater.pipeline.report.buckets import BUCKETS_MAX, Buckets
from headwater.pipeline.report.inputs import Recorded, find_files
from headwater.pipeline.report.job import report_tables
from headwater.pipeline.report.metrics import Coverage
from headwater.pipeline.report.run_identity import chosen_run
from headwater.pipeline.report.synthetic import synthetic_run
from headwater.pipeline.report.tables import KINDS, Row, Tables, write_tables
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Sink
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import Subscription
from tests.kit.patience import run_to_its_end, until
from tests.kit.report import tables_of

PROJECT = Path(__file__).resolve().parent.parent.parent

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


def recorded(folder: Path, name: str, *options: str, network: str = NETWORK) -> Path:
    """A simulation by the command, recorded."""
    (folder / "fires.yaml").write_text(network)
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
    return grouped(tables_of(spark, runs))


@pytest.fixture(scope="module")
def simulated(runs: list[Recorded], tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFigures]:
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


def test_links_carry_what_the_simulator_accounted(tables: Tables, simulated: dict[str, RunFigures]) -> None:
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


def test_centralised_is_what_a_simulated_centr_sends(tables: Tables, simulated: dict[str, RunFigures]) -> None:
    sent = simulated["centr"].traffic.events
    assert tables.run("centr")["centralised_events"] == sent
    assert tables.run("st")["centralised_events"] == sent
    assert tables.run("centr")["transmission_ratio"] == 1.0
    assert tables.run("st")["transmission_ratio"] == pytest.approx(simulated["st"].traffic.events / sent)
    assert 0 < tables.run("st")["transmission_ratio"] < 1


def test_latencies_are_those_of_the_simulator(tables: Tables, simulated: dict[str, RunFigures]) -> None:
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


# -- rates, and when a run ends ----------------------------------------------------------------------------------------

PATIENT = NETWORK.replace("within 5 s from Smoke", "within 5 min from Smoke")
"""Nodes that tidy up once in a quarter of the window are long awake after the last event."""


@pytest.fixture(scope="module")
def by_strategy(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """The same events under every strategy."""
    folder = tmp_path_factory.mktemp("by-strategy")
    for strategy in STRATEGIES:
        recorded(folder, strategy, "--strategy", strategy, "--seed", "3", network=PATIENT)
    return find_runs([str(folder / strategy) for strategy in STRATEGIES], folder)[0]


def test_the_same_events_have_the_same_rate_under_every_strategy(by_strategy: list[Recorded]) -> None:
    tables = report_tables(None, by_strategy)
    born = [line["time"] for line in lines_of(by_strategy[0], "births")]
    for run in tables["runs"]:
        assert run["active_s"] == (max(born) - min(born)) / 1e6
        assert run["born_per_s"] == run["born"] / run["active_s"]
        assert run["composites_per_s"] == run["composites"] / run["active_s"]
    assert len({(run["born_per_s"], run["composites_per_s"]) for run in tables["runs"]}) == 1


def test_a_simulated_run_is_recorded_until_it_was_heard_out_and_not_until_nodes_have_tidied_up(
    by_strategy: list[Recorded],
) -> None:
    tables = report_tables(None, by_strategy)
    for run in by_strategy:
        latest = max(line["delivered"] for line in lines_of(run, "matches"))
        latest = max(latest, *(line["time"] for line in lines_of(run, "births")))
        ended = {line["time"] for line in lines_of(run, "metrics")}
        assert latest <= max(ended) < latest + 1_000_000, run.label
        found = tables.run(run.label)
        assert 40 - 2 < found["active_s"] < found["span_s"] < 40 + 2


def test_a_run_that_was_changed_is_recorded_no_longer_than_one_that_was_not(tmp_path: Path) -> None:
    """After a change nodes are left to tidy up sixteen times instead of twice; records end before that."""
    (tmp_path / "fires.yaml").write_text(PATIENT)
    file = read_network(tmp_path / "fires.yaml")
    change = AddSubscription(Sink("p2", Subscription("Fire")))
    for name, changes in (("plain", []), ("changed", [(15_000_000, change)])):
        (tmp_path / name).mkdir()
        born = births(file, seed=3, until_us=file.duration_us)
        recorder = Recorder(tmp_path / name, "fires", "f1re")
        outcome = simulate(file.network, born, seed=3, changes=changes, watcher=recorder)
        assert len(outcome.held_from) == len(changes)
        shape = shape_of(file.network, "fires", "st", run="f1re", simulated=True)
        folders = {node: tmp_path / name / "data" / node / "records" for node in shape.nodes}
        times = [line["time"] for line in lines_of(Recorded(name, shape, folders), "metrics")]
        assert max(times) == outcome.finished_us < 42_000_000


def told_of(folder: Path, *records: tuple[int, tuple[int | None, int | None], int]) -> Recorded:
    """A run of two nodes with nothing but records of births: from when on each covers ten seconds, when the first and
    the last event in it were born, and how many."""
    run = synthetic_run(folder, matches=0, events=0, nodes=2, replayed=False)
    for node, place in run.folders.items():
        for file in place.iterdir():
            file.unlink()
        lines = [
            {
                "v": 1, "run": run.shape.run, "network": "n", "strategy": "st", "node": node, "life": "a",
                "since": start_s * 1_000_000, "time": (start_s + 10) * 1_000_000, "born_from": first, "born_to": last,
                "counters": [{"name": "headwater_events_born_total", "labels": {"type": "A"}, "value": count}],
                "gauges": [],
            }
            for start_s, (first, last), count in records
        ]  # fmt: skip
        (place / "metrics-00001.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return run


def test_a_network_that_was_up_for_long_has_the_rate_of_the_time_in_which_events_came(tmp_path: Path) -> None:
    """Events came for a second and a half, in the second of three records, and again at once in the third."""
    born = ((0, (None, None), 0), (10, (12_000_000, 13_500_000), 900), (20, (20_000_000, 20_000_000), 100))
    tables = report_tables(None, [told_of(tmp_path / "made", *born)])
    found = tables.run("made")
    assert (found["span_s"], found["active_s"], found["born_per_s"]) == (30.0, 8.0, 2_000 / 8)
    steps = list(tables.of("throughput", "made"))
    assert sum(step["born"] for step in steps) == pytest.approx(2_000)
    assert steps[-1]["to_s"] == pytest.approx(8.0, abs=0.1)
    assert steps[-1]["born"] == 200  # of both nodes, at once


def test_events_that_were_all_born_at_once_have_no_rate(tmp_path: Path) -> None:
    tables = report_tables(None, [told_of(tmp_path / "made", (0, (5_000_000, 5_000_000), 7))])
    found = tables.run("made")
    assert (found["born"], found["active_s"], found["born_per_s"]) == (14, 0.0, None)
    assert [step["born"] for step in tables.of("throughput", "made")] == [14]
    assert "14 events were born" in " ".join(headline(tables))


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
    report = tables_of(spark, found)
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
    with pytest.raises(ConfigError, match=r"is not a run: it has neither plan\.json"):
        find_runs([str(tmp_path / "empty")], tmp_path)
    folder = next(iter(runs[0].folders.values())).parent.parent.parent
    with pytest.raises(ConfigError, match="is named twice"):
        find_runs([str(folder), str(folder)], tmp_path)
    nowhere = Recorded("gone", runs[0].shape, {node: tmp_path / node for node in runs[0].shape.nodes})
    with pytest.raises(ConfigError, match="no node has left records"):
        find_files(nowhere)


# -- latency of what was replayed --------------------------------------------------------------------------------------


def test_latency_of_replayed_events_comes_from_their_births(spark: Any, tmp_path: Path) -> None:
    """Against a join by hand; one node's births are gone, so it is not known when its events were born."""
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
    report = tables_of(spark, [run, some])
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


def a_trace(folder: Path, counts: dict[tuple[str, str], int]) -> PreparedTrace:
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
    return PreparedTrace(folder, Manifest("made", total, 0, total, "00ff", types, nodes, {}))


def test_centralised_is_counted_over_the_trace_if_it_is_the_one(
    spark: Any, runs: list[Recorded], tmp_path: Path
) -> None:
    trace = a_trace(tmp_path / "trace", {("p3", "Smoke"): 3, ("p5", "Temp"): 10, ("p5", "Other"): 4, ("p9", "Temp"): 1})
    report = tables_of(spark, runs[1:2], trace=trace)
    up = [row for row in report["centralised"] if row["way"] == "up"]
    assert [(row["node"], row["type"], row["events"], row["hops"]) for row in up] == [
        ("p3", "Smoke", 3, 1),
        ("p5", "Temp", 10, 2),
    ]
    (note,) = (row["note"] for row in report["notes"])
    assert note.startswith("the trace has 13 events of this network's sources, and ")
    other = replace(runs[1], shape=replace(runs[1].shape, trace="beef"))
    report = tables_of(spark, [other], trace=trace)
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

    beside = {"a": NodeCircle(100, 100, 10), "b": NodeCircle(130, 100, 10), "c": NodeCircle(160, 100, 10)}
    found = placed(beside, {name: name * 9 for name in beside}, 11, (300, 200))
    assert (found["a"].x, found["a"].y > 110) == (100, True)  # below, as long as there is room
    assert len({(label.x, label.y) for label in found.values()}) == 3
    boxes = [(label.x - 31, label.y - 9, label.x + 31, label.y + 2) for label in found.values()]
    for one, other in combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    assert placed({"a": NodeCircle(5, 5, 4)}, {"a": "far too long for this"}, 11, (20, 20)) == {}


def test_runs_that_did_equally_well_are_named_together() -> None:
    def run(name: str, ratio: float, p99: float) -> Row:
        sizes = {"centr": 1.0, "st": 0.21, "inev": 0.36, "mt": None}
        return {
            "run": name, "transmission_ratio": ratio, "latency_p99_ms": p99, "network": "n", "bytes_ratio": sizes[name]
        }  # fmt: skip

    runs = [run("centr", 1.0, 35.0), run("st", 0.079, 35.0), run("mt", 0.098, 40.0), run("inev", 0.079, 35.0)]
    said = headline(Tables({**{name: [] for name in KINDS}, "runs": runs}))
    assert said[0].startswith("st and inev sent least: 7.9 % of the events")
    assert said[0].endswith(", and 21.0 % and 36.0 % of its bytes, overhead included.")
    assert said[1] == "The others: mt 9.8 %, centr 100 % (100 % of the bytes)."
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


def test_every_strategy_has_the_same_figures_with_and_without_spark(spark: Any, by_strategy: list[Recorded]) -> None:
    tables = tables_of(spark, by_strategy)
    assert [run["strategy"] for run in tables["runs"]] == list(STRATEGIES)
    assert {row["reference"] for row in tables["comparison"]} == {None, "centr"}
    assert all(row["missing"] == row["extra"] == 0 for row in tables["comparison"] if row["reference"])


def test_live_runs_have_the_same_figures_with_and_without_spark(spark: Any, tmp_path: Path) -> None:
    """Their births are in the metrics alone; records of an earlier version do not tell when they were."""
    live = told_of(
        tmp_path / "live",
        (0, (None, None), 0),
        (10, (12_000_000, 17_700_000), 900),
        (30, (31_000_000, 31_000_000), 100),
    )
    earlier = told_of(tmp_path / "earlier", (0, (None, None), 70), (10, (None, None), 0), (20, (None, None), 30))
    for folder in earlier.folders.values():
        file = folder / "metrics-00001.jsonl"
        file.write_text(file.read_text().replace('"born_from": null, "born_to": null, ', ""))
    found = tables_of(spark, [live, earlier])
    assert (found.run("live")["active_s"], found.run("earlier")["active_s"]) == (19.0, 30.0)


def test_lines_that_are_no_records_are_passed_over_and_counted(tmp_path: Path) -> None:
    run = told_of(tmp_path / "made", (0, (1_000_000, 2_000_000), 70))
    file = next(iter(run.folders.values())) / "metrics-00001.jsonl"
    whole = json.loads(file.read_text())
    wrong: list[Any] = [
        7, [], {}, {**whole, "v": 2}, {**whole, "time": None}, {**whole, "time": "now"}, {**whole, "since": 1.5},
        {**whole, "counters": {}}, {**whole, "counters": [7]}, {**whole, "gauges": [{"name": "g", "value": "much"}]},
    ]  # fmt: skip
    text = "\n".join(["", *map(json.dumps, wrong), json.dumps(whole)[:60]])
    file.write_bytes(file.read_bytes() + text.encode() + b'\n\xff\xfe{"v": 1}\n')
    found = report_tables(None, [run]).run("made")
    assert (found["born"], found["lines_bad"]) == (140, len(wrong) + 2)


def test_bytes_are_compared_with_centr_overhead_included(by_strategy: list[Recorded]) -> None:
    tables = report_tables(None, by_strategy)
    centr = tables.run("centr")
    total = centr["bytes_sent"] + centr["overhead_bytes"]
    for run in tables["runs"]:
        assert run["centralised_bytes"] == total
        assert run["bytes_ratio"] == (run["bytes_sent"] + run["overhead_bytes"]) / total
        alone = report_tables(None, [each for each in by_strategy if each.label == run["run"]])
        assert alone.run(run["run"])["bytes_ratio"] == run["bytes_ratio"]  # the recording knows what centr took
    assert centr["bytes_ratio"] == 1.0


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
        done = run_to_its_end(
            [sys.executable, "-m", "headwater.deploy.cli.command", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            text=True,
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
    expected = 5 * 8 + 4  # of ten seconds four are hot, and what they are holds for five; the last ten are cut
    until(lambda: sink.exists() and len(sink.read_text().splitlines()) >= expected, "everything has arrived")
    assert command("down", "--name", "traced")[0] == 0
    (run,), said = find_runs(["traced"], tmp_path / ".headwater")
    assert not said
    assert (run.shape.strategy, run.shape.replayed, len(run.shape.run)) == ("st", True, 16)
    report = tables_of(spark, [run])
    found = report.run("traced")
    assert found["run_id"] == run.shape.run
    assert (found["born"], found["composites"]) == (120, expected)
    assert found["centralised_events"] == 60 + expected  # p2 leads: Temp comes from p3, composites go to p1
    assert (found["latency_known"], found["latency_unknown"]) == (expected, 0)
    assert found["latency_p50_ms"] > 0
    assert found["cpu_s"] > 0
    assert not report["notes"]


def test_the_command_publishes_a_report_when_it_is_complete(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    synthetic_run(tmp_path / "made", matches=50, nodes=3)
    code, out, err = command("report", "made", "--out", "spark", "--json", "--master", "local[1]")
    assert code == 0, err
    assert err.splitlines()[0] == "starting Spark"
    code, small, err = command("report", "made", "--out", "found", "--json")
    assert code == 0, err
    assert "Spark" not in err
    assert json.loads(small) == json.loads(out)
    pages = [(tmp_path / folder / "report.html").read_text() for folder in ("found", "spark")]
    assert pages[0] == pages[1]
    (run,) = json.loads(out)["runs"]
    assert (run["run"], run["composites"], run["latency_known"]) == ("made", 50, 50)
    assert sorted(each.name for each in (tmp_path / "found").iterdir()) == ["report.html", "tables"]
    assert {each.stem for each in (tmp_path / "found" / "tables").iterdir()} == set(KINDS)
    code, _, err = command("report", "made", "--out", "found")
    assert (code, "found exists already" in err) == (2, True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, err = command("report", "made", "--out", "mine", "--overwrite")
    assert (code, "mine is not a report, so it is not overwritten" in err) == (2, True)


def test_what_reads_the_records_is_chosen_by_their_size_or_by_who_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synthetic_run(tmp_path / "made", matches=50, nodes=3)

    def report(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            main(["report", str(tmp_path / "made"), "--out", str(tmp_path / "found"), "--overwrite", *options])
        assert isinstance(left.value.code, int)
        return left.value.code, capsys.readouterr().err

    assert "there is no 'duckdb'; there is: auto, arrow, spark" in report("--engine", "duckdb")[1]
    code, said = report("--engine", "arrow", "--master", "local[1]")
    assert (code, "--master names a Spark that --engine arrow does not use" in said) == (2, True)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    assert report()[0] == 0
    code, said = report("--engine", "spark")
    assert (code, "pip install 'headwater[spark]'" in said) == (2, True)
    monkeypatch.setattr("headwater.deploy.cli.report.IN_PROCESS_BYTES_MAX", 100)
    code, said = report()
    assert (code, "MB of records are for Spark; --engine arrow reads them without it" in said) == (2, True)
    assert report("--engine", "arrow")[0] == 0
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, said = report("--engine", "arrow")
    assert (code, "pip install 'headwater[report]'" in said) == (2, True)


def test_the_leader_and_the_ways_to_it_are_those_of_st(tmp_path: Path) -> None:
    (tmp_path / "fires.yaml").write_text(NETWORK)
    shape = shape_of(read_network(tmp_path / "fires.yaml").network, "fires", "st")
    assert (shape.leader, shape.types) == ("p2", ("Smoke", "Temp"))
    assert {node: shape.hops(node) for node in shape.nodes} == {"p1": 1, "p2": 0, "p3": 1, "p4": 1, "p5": 2}
    assert shape.way("p5") == [("p5", "p4"), ("p4", "p2")]
