"""``headwater plan`` with what cannot be planned, or only just: handled, or refused with what to change.

Everything goes through the command, for case files and for network files: wrong input ends with 2 and a sentence,
never with a traceback.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cli.command import main
from tests.planners.case_file import CASE

PLANNERS = ("inev", "exact", "centr", "push-pull")


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """How the command ends, what it prints and what it says beside that."""
    with pytest.raises(SystemExit) as done:
        main(["plan", *map(str, arguments)])
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert "internal error" not in printed.err
    return int(done.value.code or 0), printed.out, printed.err


def refused(capsys: pytest.CaptureFixture[str], file: Path) -> str:
    code, out, err = command(capsys, file)
    assert (code, out) == (2, "")
    return err


def planned(capsys: pytest.CaptureFixture[str], file: Path, planner: str = "inev") -> dict[str, Any]:
    code, out, err = command(capsys, file, "--planner", planner, "--json")
    assert code == 0, err
    return dict(json.loads(out))


# Case files ---------------------------------------------------------------------------------------------------------


def case(folder: Path, **changes: Any) -> Path:
    file = folder / "case.json"
    file.write_text(json.dumps({**copy.deepcopy(CASE), **changes}), encoding="utf-8")
    return file


def a(rate: Any, sources: list[int] | None = None) -> dict[str, Any]:
    """The event types, with another rate of A, or other sources."""
    return {**CASE["event_types"], "A": {"local_rate": rate, "sources": [0] if sources is None else sources}}


@pytest.mark.parametrize(
    ("changes", "wrong", "cure"),
    [
        ({"edges": [[0, 1]]}, "falls into 2 parts", "add links until every node can be reached"),
        ({"event_types": a(2.0, [])}, "event type A has no source", "name a node that produces it"),
        ({"queries": ["SEQ(A, X)"]}, "reads X, which no node produces", "name a source with its rate"),
        ({"event_types": a(0)}, "its rate is 0", "take the source out if it is silent"),
        ({"event_types": a(-2.0)}, "cannot be negative (-2)", "write how often it occurs"),
        ({"event_types": a(math.inf)}, "its rate is infinite", "write the rate that was measured"),
        ({"event_types": a(1e308)}, "a rate of 1e+308 is beyond", "write one of at most 1e+12"),
        ({"event_types": a(math.nan)}, "is not a number", "write how often it occurs"),
        ({"pairwise_selectivities": {"AB": 0}}, "0 is not a selectivity", "above 0 and at most 1"),
        ({"pairwise_selectivities": {"AB": 1.5}}, "1.5 is not a selectivity", "above 0 and at most 1"),
        ({"pairwise_selectivities": {"AB": -0.5}}, "-0.5 is not a selectivity", "above 0 and at most 1"),
        ({"pairwise_selectivities": {"AB": math.nan}}, "nan is not a selectivity", "above 0 and at most 1"),
        ({"single_selectivities": {"A|AB": 0}}, "0 is not a selectivity", "above 0 and at most 1"),
        ({"single_selectivities": {"A|AB": 7}}, "7 is not a selectivity", "above 0 and at most 1"),
        ({"single_selectivities": {"X|AX": 0.5}}, "does not name one of several event types", "write A|ABC"),
        ({"single_selectivities": {"C|AB": 0.5}}, "does not name one of several event types", "write A|ABC"),
        ({"single_selectivities": [1]}, "is not an object", "or leave it out"),
        ({"queries": ["SEQ(A, B, A)"]}, "names A twice", "give the second one a type of its own"),
        ({"queries": ["SEQ(A, OR(B, A))"]}, "names A twice", "or leave this query to centr"),
        ({"queries": ["SEQ(A, KL(KL(B)))"]}, "a repetition inside another", "write one KL"),
        ({"queries": ["KL(SEQ(A, B))"]}, "KL repeats one event type", "leave this query to centr"),
        ({"queries": ["NSEQ(A, OR(B, C), C)"]}, "an OR under negation", "one event type of its own"),
        ({"queries": ["NSEQ(A, KL(B), C)"]}, "neither negation nor repetition", "simplify"),
        ({"queries": ["SEQ()"]}, "a type or an operator must stand where ')' does", ""),
        ({"queries": []}, "there is no query to plan for", "write at least one"),
    ],
)
def test_cases_that_cannot_be_planned_are_refused_with_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], wrong: str, cure: str
) -> None:
    said = refused(capsys, case(tmp_path, **changes))
    assert wrong in said
    assert cure in said
    assert "case.json" in said


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(
    ("queries", "names"),
    [
        (["A"], ["A"]),
        (["SEQ(A)"], ["SEQ(A)"]),
        (["KL(A)"], ["KL(A)"]),
        (["A", "SEQ(A, B)"], ["A", "SEQ(A, B)"]),
        (["SEQ(A, OR(B, C))"], ["SEQ(A, OR(B, C)) (1)", "SEQ(A, OR(B, C)) (2)"]),
        (["OR(KL(A), B)"], ["OR(KL(A), B) (1)", "OR(KL(A), B) (2)"]),
        (["SEQ(A, KL(B))"], ["SEQ(A, KL(B))"]),
        (["SEQ(A, B)", "SEQ(A, B)"], ["SEQ(A, B)"]),
    ],
)
def test_cases_that_are_out_of_the_ordinary_are_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], planner: str, queries: list[str], names: list[str]
) -> None:
    found = planned(capsys, case(tmp_path, queries=queries), planner)
    assert found["queries"] == names
    assert {name for task in found["projections"] for name in task["queries"]} == set(names)
    assert found["cost"] <= found["centralized_cost"] * (1 + 1e-9)


def test_a_case_of_one_node_costs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    types = {name: {"local_rate": 2.0, "sources": [0]} for name in "AB"}
    for planner in PLANNERS:
        found = planned(capsys, case(tmp_path, nodes=[0], edges=[], event_types=types), planner)
        assert (found["cost"], found["ratio"], found["transfers"]) == (0, 1, [])


# Network files ------------------------------------------------------------------------------------------------------

LINKS = "[{between: [a, b]}, {between: [b, c]}, {between: [c, d]}]"
RAIN = "  - {node: d, type: Rain, rate: 1/min, values: {area: x}}"
FIRE = "SEQ(Smoke s, Temp t, Rain r) WHERE s.area = t.area AND t.value > 45"


def network(
    folder: Path, rule: str = FIRE, *, links: str = LINKS, rate: str = "2/s", rain: str = RAIN, statistics: str = "{}"
) -> Path:
    file = folder / "network.yaml"
    file.write_text(
        f"""
events: {{Smoke: {{area: string}}, Temp: {{area: string, value: float}}, Rain: {{area: string}}}}
nodes: [a, b, c, d]
links: {links}
sources:
  - {{node: a, type: Smoke, rate: {rate}, values: {{area: x}}}}
  - {{node: b, type: Temp, rate: 50/s, values: {{area: x, value: 20}}}}
  - {{node: c, type: Temp, rate: 30/s, values: {{area: x, value: 20}}}}
{rain}
sinks: [{{node: d, subscribe: Fire}}]
rules:
  - |
    Fire: {rule} WITHIN 10 s RETURN Fire()
statistics: {statistics}
""",
        encoding="utf-8",
    )
    return file


@pytest.mark.parametrize(
    ("changes", "wrong", "cure"),
    [
        ({"links": "[{between: [a, b]}, {between: [c, d]}]"}, "falls into 2 parts: a, b | c, d", "link them"),
        ({"rain": ""}, "reads Rain, of which no source has a rate", "add a source with a rate"),
        ({"rate": "0/s"}, "a rate is more than nothing", "leave the source out"),
        ({"rate": "-2/s"}, "rate cannot be negative", "leave the sign out"),
        ({"rate": "inf/s"}, "'inf/s' is not a rate", "write events per unit of time"),
        ({"rate": "1e300/s"}, "is out of bounds", "up to a million a second"),
        ({"statistics": "{rates: {Smoke: 0/s}}"}, "a rate is more than nothing", "leave the source out"),
        ({"statistics": "{rates: {Smoke: {a: -1/s}}}"}, "cannot be negative", "leave the sign out"),
        ({"statistics": "{rates: {Smoke: inf/s}}"}, "'inf/s' is not a rate", "write events per unit of time"),
        ({"statistics": '{selectivities: {Fire: {"s, t": 0}}}'}, "'0' is not a selectivity", "above 0 and at most 1"),
        ({"statistics": '{selectivities: {Fire: {"s, t": 1.5}}}'}, "'1.5' is not a selectivity", "above 0 and at most"),
        ({"statistics": '{selectivities: {Fire: {"s, t": nan}}}'}, "'nan' is not a selectivity", "above 0 and at most"),
        ({"rule": "SEQ(Temp t, Temp u)"}, "names Temp twice", "or leave this query to centr"),
        ({"rule": "SEQ(Smoke s, KL(KL(Temp)))"}, "KL repeats a single event", "write KL(B) or B+ b[]"),
        ({"rule": "SEQ(Smoke s, (Temp+ t[], Rain r)+)"}, "only plain events can be repeated", "a group such as"),
        ({"rule": "SEQ(Smoke s, !OR(Temp t, Rain r), Smoke u)"}, "an OR under negation", "leave this query to centr"),
    ],
)
def test_networks_that_cannot_be_planned_are_refused_with_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], wrong: str, cure: str
) -> None:
    said = refused(capsys, network(tmp_path, **changes))
    assert wrong in said
    assert cure in said


@pytest.mark.parametrize(
    ("rule", "queries"),
    [
        ("Smoke s", 1),
        ("Temp t WHERE t.value > 45", 1),
        ("Temp+ t[]", 1),
        ("SEQ(Temp t, Temp u) WHERE t.value > 45 AND u.value < 3", 1),
        ("SEQ(Smoke s, OR(Temp t, Rain r))", 2),
        ("OR(Smoke s, AND(Temp t, Rain r))", 2),
        ("SEQ(Smoke s, (Temp t, Rain r)+)", 1),
        ("SEQ(Smoke s, KL(Temp))", 1),
        ("AND(Smoke s, !Temp t)", 1),
        ("SEQ(!Smoke s, Temp t)", 1),
    ],
)
def test_rules_that_are_out_of_the_ordinary_are_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rule: str, queries: int
) -> None:
    file = network(tmp_path, rule)
    for planner in PLANNERS:
        found = planned(capsys, file, planner)
        assert len(found["queries"]) == queries
        assert found["cost"] <= found["centralized_cost"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("statistics", "sentence"),
    [
        ("{rates: {Fog: 1/s}}", "the rate of Fog is not used: Fog has no source; add one"),
        ("{rates: {Smoke: {b: 1/s}}}", "the rate of Smoke at b is not used: Smoke has no source at b"),
        ('{selectivities: {Fira: {"s, t": 0.5}}}', "there is no rule Fira, so its selectivities are not used"),
        ('{selectivities: {Fire: {"s, x": 0.5}}}', "the selectivity given for s, x is not used"),
        ('{selectivities: {Fire: {"r, s": 0.5}}}', "the selectivity given for r, s is not used"),
    ],
)
def test_statistics_that_belong_to_nothing_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], statistics: str, sentence: str
) -> None:
    code, _, said = command(capsys, network(tmp_path, statistics=statistics))
    assert code == 0
    assert sentence in said
