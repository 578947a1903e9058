"""Statistics of prepared traces: how events arrive, how selective rules are, and how plans come of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

import headwater.pipeline.statistics.arrivals
from headwater.coordinator.inev.model.rules import Measured
from headwater.deploy.cli.command import main
from headwater.deploy.cli.statistics import statistics
from headwater.deploy.cli.statistics_task import considered, task_of
from headwater.deploy.descriptions.statistics_file import HEAD, check_statistics_target
from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.deploy.network.planning_problem import network_problem, statistics_of
from headwater.deploy.network.sampled_statistics import sampled
from headwater.pipeline.prepare.descriptions import ByValue, Description, Files, KeptAttribute, NumberTime, RawSource
from headwater.pipeline.prepare.prepared_trace import MANIFEST
from headwater.pipeline.prepare.traces import prepare
from headwater.pipeline.statistics import pair_counts
from headwater.pipeline.statistics.arrivals import arrivals, floor_125, window_sizes
from headwater.pipeline.statistics.rules import rule_statistics
from headwater.pipeline.statistics.sampling import stretches
from headwater.pipeline.statistics.selectivities import RuleStatistics, TraceFacts
from headwater.protocol import pattern as pt
from headwater.protocol.analysis.projection import project
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import Event
from headwater.protocol.expressions import Attribute, Same, roles_of
from headwater.protocol.formats import PREPARED_TRACE
from headwater.protocol.languages import Source, parse_rules
from tests.kit.builders import TYPES
from tests.oracle import evaluate

KINDS = {"id": "int", "v": "int", "w": "float", "s": "string"}
SCHEMA = "node string, type string, ts long, seq long, id long, v long, w double, s string"


def parsed(*texts: str) -> list[pt.Rule]:
    return [*parse_rules([Source(text, f"rules{at}", "sase") for at, text in enumerate(texts)], TYPES.values()).rules]


def frame(spark: Any, events: Sequence[Event]) -> Any:
    rows = [
        (each.node, each.type, each.ts, each.seq, *(each.attributes.get(name) for name in KINDS)) for each in events
    ]
    return spark.createDataFrame(rows, SCHEMA)


def facts(events: Sequence[Event]) -> TraceFacts:
    times = [each.ts for each in events]
    return TraceFacts(min(times), max(times), KINDS)


def all_sets(rule: pt.Rule) -> list[frozenset[str]]:
    roles = [leaf.role for leaf in pt.positive_leaves(rule.pattern.root)]
    return [frozenset(some) for size in (2, 3) for some in combinations(roles, size)]


def counted(
    spark: Any, events: Sequence[Event], rules: Sequence[pt.Rule], sample: float | None = None
) -> dict[str, RuleStatistics]:
    wanted = {rule.name: (rule, all_sets(rule)) for rule in rules}
    return rule_statistics(spark, frame(spark, events), facts(events), wanted, sample=sample)


def drawn(seed: int, number: int, span: int) -> list[Event]:
    """Events with many equal times and values, at three nodes."""
    chance = random.Random(seed)
    numbers: dict[str, int] = {}
    events = []
    for ts in sorted(chance.randrange(span) for _ in range(number)):
        node = chance.choice("pqr")
        numbers[node] = numbers.get(node, 0) + 1
        given = {"id": chance.randrange(3), "v": chance.randrange(6), "w": chance.choice([None, 1.0, 1.5]), "s": "x"}
        events.append(Event(TYPES[chance.choice("ABC")], ts, node, numbers[node], given))
    return events


# -- rules -------------------------------------------------------------------------------------------------------------

RULES = """
Ordered: SEQ(A a, B b, C c) WHERE a.id = b.id AND b.v < c.v AND a.v > 1 WITHIN 30 us RETURN Ordered(x = a.id)
Agreeing: AND(A a, B b, C c) WHERE SAME[id] AND a.v <= b.v WITHIN 12 us RETURN Agreeing(x = a.id)
Twins: AND(A one, A two) WHERE one.id = two.id AND one.v > 2 WITHIN 9 us RETURN Twins(x = one.id)
Three: SEQ(A a, AND(B b, C c)) WHERE a.v + b.v > c.v AND a.w = c.w WITHIN 20 us RETURN Three(x = a.id)
Crossed: SEQ(A a, B b) WHERE a.id = b.v WITHIN 15 us RETURN Crossed(x = a.id)
Followed: SEQ(A one, A two) WHERE one.id = two.v WITHIN 15 us RETURN Followed(x = one.id)
Mutual: AND(A one, A two) WHERE one.id = two.v AND one.w = two.w WITHIN 9 us RETURN Mutual(x = one.id)
Double: SEQ(A a, B b) WHERE a.v = b.id AND b.id = a.id WITHIN 30 us RETURN Double(x = a.id)
Beside: AND(A a, B b, C c) WHERE SAME[id] AND a.v = b.id WITHIN 20 us RETURN Beside(x = a.id)
Through: SEQ(A a, B b, C c) WHERE a.v = b.id AND b.id = c.id AND c.id = a.id WITHIN 60 us RETURN Through(x = a.id)
Alone: AND(A one, A two) WHERE one.id = two.v AND two.id = one.id WITHIN 15 us RETURN Alone(x = one.id)
Kinds: AND(A a, B b) WHERE a.w = b.v AND b.v = a.id WITHIN 30 us RETURN Kinds(x = a.id)
"""
CHAIN = """
define Chained(x: int) from C() as c and each B(v > 0) as b within 11 us from c
and each A() as a within 8 us from b where x = a.id
"""


WHOLE = Same(Attribute("", "id"))


def matches(rule: pt.Rule, roles: frozenset[str], events: Sequence[Event]) -> list[dict[str, Any]]:
    """By trying every combination: the events of each role."""
    kept = replace(rule, pattern=project(rule, roles).pattern, attributes=())
    return [dict(match.parts) for match in evaluate([kept], events)]


def unbound(rule: pt.Rule) -> pt.Rule:
    """The rule without what it asks of events together."""
    alone = tuple(each for each in rule.pattern.where if len(roles_of(each)) == 1)
    return replace(rule, pattern=replace(rule.pattern, where=alone))


@pytest.mark.parametrize("pieces_least", [64, 2])
def test_everything_is_as_if_all_combinations_were_listed(
    spark: Any, monkeypatch: pytest.MonkeyPatch, pieces_least: int
) -> None:
    # Time in pieces that are as short as events reach, and as in a long trace.
    monkeypatch.setattr(pair_counts, "PIECES_LEAST", pieces_least)
    events = drawn(3, 90, 150)
    rules = [*parsed(RULES), *parse_rules([Source(CHAIN, "chain", "tesla")], TYPES.values()).rules]
    found = counted(spark, events, rules)
    some = 0
    for rule in rules:
        for roles, projection in found[rule.name].projections.items():
            kept = matches(rule, roles, events)
            assert projection.found == len(kept), (rule.name, roles)
            for role in roles:
                alone = matches(rule, frozenset((role,)), events)
                in_some = {match[role] for match in kept}
                assert projection.singles[role].value == pytest.approx(len(in_some) / len(alone)), (rule.name, roles)
            if len(roles) == 2:
                assert projection.selectivity is not None
                assert projection.selectivity.of == len(matches(unbound(rule), roles, events)), (rule.name, roles)
                assert projection.selectivity.passed == len(kept)
            some += bool(kept)
    assert (
        some == 4 + 4 + 1 + 4 + 1 + 1 + 1 + 1 + 4 + 4 + 1 + 1 + 4
    )  # every projection has matches, and so says something
    shares = {name: each.shares for name, each in found.items()}
    assert shares["Ordered"].keys() == {frozenset("a"), frozenset("ab"), frozenset("bc")}
    assert shares["Chained"].keys() == {frozenset("b")}
    # Of SAME over three roles planners want to know how many of all pairs agree.
    only_same = replace(rules[1], pattern=replace(rules[1].pattern, where=(WHOLE,)))
    agreeing = [len(matches(only_same, frozenset(pair), events)) for pair in combinations("abc", 2)]
    assert shares["Agreeing"][frozenset("abc")].passed == sum(agreeing)
    # A condition on three roles counts among what meets all other conditions between them.
    two = tuple(each for each in rules[3].pattern.where if len(roles_of(each)) < 3)
    beside = replace(rules[3], pattern=replace(rules[3].pattern, where=two))
    three = frozenset("abc")
    whole = len(matches(rules[3], three, events)), len(matches(beside, three, events))
    assert (shares["Three"][three].passed, shares["Three"][three].of) == whole


def test_a_sample_says_how_far_it_can_be_trusted(spark: Any) -> None:
    events = drawn(5, 3_000, 60_000)
    rule = parsed("R: SEQ(A a, B b, C c) WHERE a.id = b.id AND b.v < c.v WITHIN 60 us RETURN R(x = a.id)")
    whole = counted(spark, events, rule)["R"]
    part = counted(spark, events, rule, sample=0.3)["R"]
    assert whole.projections.keys() == part.projections.keys() == set(all_sets(rule[0]))
    for roles, exact in whole.projections.items():
        estimate = part.projections[roles]
        assert exact.per_s.exact
        assert exact.sampled == 1
        assert estimate.sampled == pytest.approx(0.3, abs=0.01)
        assert 0 < estimate.found < exact.found
        assert estimate.per_s.low < exact.per_s.value < estimate.per_s.high
        for role in roles:
            assert estimate.singles[role].low <= exact.singles[role].value <= estimate.singles[role].high
    for roles, share in whole.shares.items():
        guess = part.shares[roles].estimate
        assert guess.low <= share.estimate.value <= guess.high < 1


def test_estimates_of_samples_are_right_on_average() -> None:
    chance = random.Random(4)
    there = {at: chance.choice([0, 0, 0, 1, 2, 9]) for at in range(200)}
    totals, covered = [], 0
    for seed in range(400):
        cut = stretches(0, 199, 1, seed).at(0.25)
        seen = {at: float(there[at]) for at in cut.order[: cut.drawn] if there[at]}
        estimate = cut.total(seen)
        totals.append(estimate.value)
        covered += estimate.low <= sum(there.values()) <= estimate.high
    assert cut.drawn == 50
    assert fmean(totals) == pytest.approx(sum(there.values()), rel=0.02)
    assert 0.9 < covered / 400 < 0.99


def test_what_one_event_of_each_role_does_not_decide_is_left_out_and_said(spark: Any) -> None:
    events = drawn(3, 40, 100)
    rules = parsed(
        "Many: SEQ(A a, B+ b[]) WHERE sum(b[].v) > 3 AND a.id = b.id WITHIN 9 us RETURN Many(x = a.id)",
        "Few: SEQ(A a, B b) WHERE a.v > 100 WITHIN 9 us RETURN Few(x = a.id)",
        "Last: SEQ(A a, B b) WITHIN 9 RETURN Last(x = a.id)",
    )
    found = counted(spark, events, rules)
    assert "sum(b[].v) > 3 is left out" in found["Many"].notes[0]
    assert found["Many"].shares.keys() == {frozenset("ab")}
    assert "no event is a a" in found["Few"].notes[0]
    assert found["Few"].shares[frozenset("a")].told == 0.5 / sum(each.type == "A" for each in events)
    assert "not one of time" in found["Last"].notes[0]


def test_the_sets_of_roles_are_those_that_the_planner_considers() -> None:
    ordered, kept, last = parsed(
        "SEQ(A a, B b, C c, D d) WITHIN 9 us",
        "SEQ(A a, !B b, C c) WITHIN 9 us",
        "SEQ(A a, B b, !C c) WITHIN 9 us",
    )
    assert [len(each) for each in considered(ordered, 3)] == [2] * 6 + [3] * 4
    assert considered(kept, 3) == (frozenset("ac"),)
    assert considered(last, 3) == ()  # it is decided in one piece


# -- arrivals ----------------------------------------------------------------------------------------------------------


def test_gaps_and_counts_of_a_trace_that_was_counted_by_hand(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"p": [0, 10_000, 30_000, 30_000], "q": [5_000, 95_000]}
    rows = [("A", node, ts) for node, at in times.items() for ts in at] + [("B", "q", 99_999)]
    frame = spark.createDataFrame(rows, "type string, node string, ts long")
    found = arrivals(frame, 0, 99_999, len(rows))
    assert found["B", None].events == 1
    assert found["B", None].variation is None
    assert found["A", "p"].gaps == {0: 1, 10_000: 1, 20_000: 1}
    assert found["A", "q"].gaps == {50_000: 1}
    # 0 5 10 30 30 95 ms: gaps of 5, 5, 20, 0 and 65 ms, with a mean of 19 and a deviation of 23.958 ms.
    whole = found["A", None]
    assert whole.gaps == {0: 1, 5_000: 2, 20_000: 1, 50_000: 1}
    assert whole.variation == pytest.approx(23.958 / 19, rel=1e-4)
    assert whole.burstiness == pytest.approx((23.958 - 19) / (23.958 + 19), rel=1e-4)
    assert whole.per_s == pytest.approx(6 / 0.099999)
    # 100 windows of 1 ms: four with one event, one with two. Of 10 ms there would be too few.
    assert window_sizes(99_999) == (1_000,)
    assert list(whole.windows) == [1_000]
    assert astuple(whole.windows[1_000]) == pytest.approx(((8 - 0.36) / 6, 2 / 0.06))
    # The last of them counts only if the trace goes on to its end.
    cut = arrivals(frame.where("ts < 90000"), 0, 95_000, len(rows))["A", None]
    assert list(cut.windows) == [1_000]
    assert astuple(cut.windows[1_000]) == pytest.approx(((7 / 95 - (5 / 95) ** 2) / (5 / 95), 2 * 95 / 5))
    late = arrivals(spark.createDataFrame([("A", "p", 95_900)], frame.schema), 0, 95_900, 1)
    assert late["A", None].windows == {}
    # In slices of time it is the same.
    monkeypatch.setattr(headwater.pipeline.statistics.arrivals, "SLICE_EVENTS", 2)
    sliced = arrivals(frame, 0, 99_999, len(rows))
    assert {place: each.gaps for place, each in sliced.items()} == {place: each.gaps for place, each in found.items()}
    assert sliced["A", None].variation == pytest.approx(whole.variation)


def test_bounds_of_gaps_are_1_2_and_5() -> None:
    assert [floor_125(each) for each in (0, 1, 4, 5, 9, 10, 19, 20, 49, 50, 999, 1_000)] == [
        0, 1, 2, 5, 5, 10, 10, 20, 20, 50, 500, 1_000,
    ]  # fmt: skip


# -- the command, and plans --------------------------------------------------------------------------------------------

NETWORK = """
events: {A: {id: int, v: int}, B: {id: int, v: int}}
nodes: [n1, n2, n3]
links: [{between: [n1, n2]}, {between: [n2, n3]}]
sources:
  - {node: n1, type: A, trace: TRACE}
  - {node: n3, type: B, trace: TRACE}
sinks: [{node: n2, subscribe: R}]
rules:
  - |
    Both:
    SEQ(A a, B b) WHERE a.v > 4 AND a.id = b.id WITHIN 5 s RETURN R(id = a.id)
strategy: inev
"""


def prepared(spark: Any, folder: Path, rows: Sequence[str], name: str = "trace") -> Path:
    raw = folder / "raw"
    raw.mkdir(exist_ok=True)
    (raw / "rows.csv").write_text("kind,at,place,id,v\n" + "\n".join(rows) + "\n", encoding="utf-8")
    time = NumberTime("at", "us", epoch=False)
    kept = {"id": KeptAttribute("id", "int"), "v": KeptAttribute("v", "int")}
    source = RawSource(Files(("rows.csv",), "csv"), "kind", time, ByValue("place"), kept)
    prepare(spark, Description(name, (source,)), raw, folder / name)
    return folder / name


@pytest.fixture
def network(spark: Any, tmp_path: Path) -> Path:
    """Two A and one B a second for 100 s; one A in four passes, one B in ten has the key of an A."""
    rows = [f"A,{at * 500_000},n1,{at % 10},{8 if at % 4 == 0 else 1}" for at in range(201)]
    rows += [f"B,{at * 1_000_000},n3,{at * 7 % 10},0" for at in range(101)]
    prepared(spark, tmp_path, rows)
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK.replace("TRACE", "trace"))
    return file


def counting(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Spark has one session in a process, so commands run in one of their own."""
    command = [
        sys.executable,
        "-m",
        "headwater.deploy.cli.command",
        "statistics",
        *map(str, words),
        "--master",
        "local[2]",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": "."})


def planned(capsys: pytest.CaptureFixture[str], *words: str | Path) -> Any:
    with pytest.raises(SystemExit) as done:
        main(["plan", *map(str, words), "--json"])
    said = capsys.readouterr()
    assert not done.value.code, said.err
    return json.loads(said.out)


def test_a_trace_becomes_statistics_and_these_a_plan(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = network.parent / "counted.yaml"
    done = counting(network.parent / "trace", "--network", network, "--out", file, "--json")
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load(file.read_text())
    assert json.loads(done.stdout) == written
    manifest = json.loads((network.parent / "trace" / MANIFEST).read_text())
    assert written["trace"]["checksum"] == manifest["checksum"]
    # A with v = 8 occur every 2 s with the keys 0, 4, 8, 2, 6; 3 of the 5 s have a B, one in ten with its key.
    assert written["selectivities"]["Both"]["a"] == {
        "share": pytest.approx(51 / 201, rel=1e-5),
        "passed": 51,
        "of": 201,
    }
    pair = written["projections"]["Both"]["a, b"]
    assert pair["matches"] == written["selectivities"]["Both"]["a, b"]["passed"]
    read = read_network(network, statistics=file)
    found, before = statistics_of(read), sampled(read_network(network))
    for type, node in (("A", "n1"), ("B", "n3")):
        assert found.rates[type][node] == pytest.approx(before.rates[type][node])
    assert found.selectivities["Both"][frozenset("a")] == pytest.approx(0.25, abs=0.01)
    problem = network_problem(read)
    (query,) = problem.queries
    assert problem.costs.rate(query.projection(frozenset(query.types))) == pytest.approx(
        pair["matches"] / 100, rel=1e-4
    )
    assert not problem.warnings
    plan = planned(capsys, network, "--statistics", file)
    assert 0 < plan["cost"] <= plan["centralized_cost"]
    # At n1: every B crosses two links, and every match one on its way to the sink.
    assert plan["centralized_cost"] == pytest.approx((2 * 101 + pair["matches"]) / 100, rel=1e-4)
    # The network file can name it, and what it says itself is right.
    network.write_text(network.read_text() + "statistics: {file: counted.yaml, rates: {A: 20/s}}\n")
    assert statistics_of(read_network(network)).rates["A"] == {"n1": 20.0}
    assert planned(capsys, network)["centralized_cost"] > 2 * plan["centralized_cost"]  # ten times as many matches


STATISTICS = """
trace: {name: t, checksum: abc}
rules:
  Both: {text: "..", digest: RULE}
rates:
  A: {n1: 2/s}
  B: {n3: 60/min}
selectivities:
  Both:
    a: {share: 0.25, passed: 50, of: 200}
    a, b: {share: 0.1, low: 0.05, high: 0.2, passed: 5, of: 50, sampled: 0.1}
projections:
  Both:
    a, b: {per_s: 0.125, low: 0.1, high: 0.2, matches: 12, singles: {a: {share: 0.2, low: 0.1, high: 0.3}, b: 0.1}}
"""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A network that names a file of statistics."""
    (tmp_path / "counted.yaml").write_text(STATISTICS)
    file = tmp_path / "network.yaml"
    text = NETWORK.replace("trace: TRACE", "rate: 7/s").replace("int", "int?")
    file.write_text(text + "duration: 1 min\nstatistics: counted.yaml\n")
    return file


def test_a_file_of_statistics_is_read_where_a_network_names_it(told: Path) -> None:
    found = statistics_of(read_network(told))
    assert found.rates == {"A": {"n1": 2.0}, "B": {"n3": 1.0}}
    assert found.selectivities == {"Both": {frozenset("a"): 0.25, frozenset("ab"): 0.1}}
    pair = Measured(0.125, {"a": 0.2, "b": 0.1}, {"A": 2.0, "B": 1.0})
    assert found.projections == {"Both": {frozenset("ab"): pair}}
    problem = network_problem(read_network(told))
    (query,) = problem.queries
    both = query.projection(frozenset(query.types))
    assert problem.costs.rate(both) == 0.125
    assert problem.costs.selected("B", both) == 0.1


def test_matches_that_were_counted_at_other_rates_are_not_believed(told: Path) -> None:
    told.write_text(
        told.read_text().replace("statistics: counted.yaml", "statistics: {file: counted.yaml, rates: {A: 4/s}}")
    )
    problem = network_problem(read_network(told))
    (query,) = problem.queries
    assert problem.costs.rate(query.projection(frozenset(query.types))) == pytest.approx(4 * 0.25 * 1 * 5 * 0.1)
    assert any("at other rates" in warning for warning in problem.warnings)


def test_what_the_network_file_says_by_type_outweighs_what_was_counted_by_role(told: Path) -> None:
    own = 'statistics: {file: counted.yaml, selectivities: {Both: {"A, B": 0.5}}}'
    told.write_text(told.read_text().replace("statistics: counted.yaml", own))
    found = statistics_of(read_network(told))
    assert found.selectivities == {"Both": {frozenset("a"): 0.25, frozenset("AB"): 0.5}}
    assert found.projections == {}


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("  A: {n1: 2/s}", "  Aa: {n1: 2/s}", "counted.yaml:6:3: the network has no events of type 'Aa'"),
        ("  B: {n3: 60/min}", "  B: {n9: 60/min}", "counted.yaml:7:7: the network has no node 'n9'"),
        ("selectivities:\n  Both", "selectivities:\n  Bot", "counted.yaml:9:3: the network has no rule 'Bot'"),
        ("    a: {share", "    x: {share", "counted.yaml:10:5: rule Both has no role 'x'"),
        ("share: 0.25", "share: 2", "counted.yaml:10:16: '2' is not a selectivity"),
        ("trace: {name: t", "trace: [name: t", "this is not YAML"),
        ("trace:", "trac:", "a statistics file has no key 'trac'"),
        ("per_s: 0.125", "per_s: many", "'many' is not a number of matches per second"),
    ],
)
def test_what_is_wrong_with_a_file_of_statistics_is_said_with_its_line(
    told: Path, line: str, wrong: str, said: str
) -> None:
    file = told.parent / "counted.yaml"
    assert line in STATISTICS
    file.write_text(STATISTICS.replace(line, wrong, 1))
    with pytest.raises(NetworkFileError) as refused:
        read_network(told)
    assert said in str(refused.value)


def test_statistics_of_another_version_of_a_rule_are_warned_of(told: Path) -> None:
    (warning,) = read_network(told).warnings
    assert "another version of rule Both" in str(warning)


def test_a_file_of_statistics_that_is_not_there_is_a_mistake_of_the_network_file(told: Path) -> None:
    (told.parent / "counted.yaml").unlink()
    with pytest.raises(NetworkFileError, match="there is no statistics file"):
        read_network(told)
    assert read_network(told, counted=False).statistics.file is None  # so that it can be written
    with pytest.raises(ConfigError, match="there is no statistics file"):
        read_network(told, statistics=told.parent / "other.yaml")


# -- bad input ---------------------------------------------------------------------------------------------------------


def described(folder: Path, **changed: Any) -> Path:
    """A prepared trace of which only the manifest is looked at."""
    of_type = {"events": 3, "first_us": 0, "last_us": 9, "attributes": {"id": "int", "v": "int"}}
    at_node = {"events": 3, "first_us": 0, "last_us": 9}
    given: Mapping[str, Any] = {
        "name": "t", "events": 6, "first_us": 0, "last_us": 9, "checksum": "0", "format": PREPARED_TRACE,
        "bad_rows": {}, "types": {"A": of_type, "B": of_type}, "nodes": {"n1": at_node, "n3": at_node},
        "kinds": {"id": "int", "v": "int"}, "warnings": [],
    }  # fmt: skip
    manifest = {**given, **changed}
    for node in manifest["nodes"]:
        place = folder / "events" / f"node={node}"
        place.mkdir(parents=True)
        (place / "part.parquet").touch()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


RULE = "Both: SEQ(A a, B b) WHERE a.id = b.id WITHIN 5 s RETURN R(id = a.id)"


@pytest.mark.parametrize(
    ("changed", "rule", "said"),
    [
        ({"events": 0}, RULE, "has no events"),
        ({"last_us": 0}, RULE, "have the same time"),
        ({}, RULE.replace("B b", "C b"), "has events of type"),
        ({}, "event A(id: int) event C(id: int) " + RULE.replace("B b", "C b"), "of which .* has no events"),
        ({}, "event A(id: int) event B(id: int, x: int) " + RULE.replace("b.id", "b.x"), "asks for B.x"),
    ],
)
def test_rules_that_do_not_fit_a_trace_are_refused(
    tmp_path: Path, changed: Mapping[str, Any], rule: str, said: str
) -> None:
    trace = described(tmp_path / "trace", **changed)
    (tmp_path / "rules.sase").write_text(rule)
    with pytest.raises(HeadwaterError, match=said):
        task_of(trace, [tmp_path / "rules.sase"], None, 3)


def test_nodes_that_only_the_network_or_only_the_trace_has_are_named(tmp_path: Path, told: Path) -> None:
    at_node = {"events": 3, "first_us": 0, "last_us": 9}
    trace = described(tmp_path / "trace", nodes={"n1": at_node, "n7": at_node})
    task = task_of(trace, [], told, 3)
    assert any("no events at n3" in each for each in task.warnings)
    assert any("no node n7: 3 events of the trace are not counted" in each for each in task.warnings)
    assert task.sources == frozenset({("A", "n1"), ("B", "n3")})
    assert list(task.rules) == ["Both"]
    with pytest.raises(ConfigError, match="no events of any node"):
        task_of(described(tmp_path / "other", nodes={"n7": at_node}), [], told, 3)


def test_what_is_doubtful_about_a_trace_is_said_of_its_statistics_too(tmp_path: Path) -> None:
    trace = described(tmp_path / "trace", warnings=["a clock may have jumped"])
    assert "a clock may have jumped" in task_of(trace, [], None, 3).warnings


def test_nothing_but_statistics_is_overwritten_by_statistics(tmp_path: Path) -> None:
    trace = described(tmp_path / "trace")
    precious = tmp_path / "network.yaml"
    precious.write_text("nodes: [p1]\n")
    wrong = {precious: "is not a file of statistics", tmp_path: "is a folder", tmp_path / "no" / "x": "no folder"}
    for out, said in wrong.items():
        with pytest.raises(ConfigError, match=said):
            statistics(trace, out=out)
    assert precious.read_text() == "nodes: [p1]\n"
    (tmp_path / "told.yaml").write_text(HEAD)
    check_statistics_target(tmp_path / "told.yaml")


def test_rules_over_what_other_rules_find_are_left_out_and_said(tmp_path: Path) -> None:
    rules = tmp_path / "rules.sase"
    rules.write_text(RULE + "\nTwice: SEQ(R r, A a) WITHIN 5 s RETURN S(id = a.id)\n")
    task = task_of(described(tmp_path / "trace"), [rules], None, 3)
    assert list(task.rules) == ["Both"]
    assert "rule Twice reads R, which rule Both finds" in task.warnings[0]


@pytest.mark.parametrize("sample", ["0", "2", "all"])
def test_a_sample_is_a_share(tmp_path: Path, sample: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["statistics", str(described(tmp_path / "trace")), "--sample", sample])
    assert refused.value.code == 2
    assert "is not a share" in capsys.readouterr().err
