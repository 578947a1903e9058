"""What a given selectivity stands for: all that a rule asks of some roles together, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headwater.coordinator.inev.model.physical_costs import PhysicalCosts
from headwater.coordinator.inev.model.problem import Problem, Query, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.deploy.network.file import read_network
from headwater.deploy.network.sampled_statistics import sampled
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules

TYPES = tuple(EventType(name, {"v": "int", "w": "int", "key": "int"}) for name in "ABCN")


def planned_for(*texts: str, shares: dict[str, float] | None = None) -> Problem:
    """The rules, of which the first has these shares; roles or types are joined by commas."""
    rules = parse_rules([Text(text, "r.sase", "sase") for text in texts], TYPES).rules
    rates = {type.name: {"x": 1.0} for type in TYPES}
    network = event_network(["x", "y"], [("x", "y")], rates)
    known = {frozenset(names.split(",")): share for names, share in (shares or {}).items()}
    return problem_from(rules, ("x", "y"), network, Statistics(rates, {rules[0].name: known}), {})


def share_of(query: Query, types: str) -> float:
    return query.projection(frozenset(types)).selectivity


TWICE = "R: SEQ(A a, B b, C c) WHERE a.v > b.v AND a.w < b.w WITHIN 2 s RETURN R()"


@pytest.mark.parametrize("names", ["a,b", "A,B"])
def test_two_conditions_over_the_same_roles_share_one_selectivity(names: str) -> None:
    problem = planned_for(TWICE, shares={names: 0.05})
    assert share_of(problem.queries[0], "AB") == pytest.approx(0.05)
    assert share_of(problem.queries[0], "ABC") == pytest.approx(0.05)
    assert problem.warnings == ()


def test_what_was_not_given_is_assumed_once_and_said_once() -> None:
    problem = planned_for(TWICE)
    assert share_of(problem.queries[0], "AB") == pytest.approx(0.1)
    (warning,) = problem.warnings
    assert "a.v > b.v and a.w < b.w" in warning
    assert '"a, b": ..' in warning


def test_same_and_a_condition_over_two_roles_share_one_selectivity() -> None:
    text = "R: SEQ(A a, B b) WHERE SAME[key] AND a.v > b.v WITHIN 2 s RETURN R()"
    assert share_of(planned_for(text, shares={"a,b": 0.05}).queries[0], "AB") == pytest.approx(0.05)
    assert share_of(planned_for(text).queries[0], "AB") == pytest.approx(0.1)


def test_what_is_given_for_two_of_three_that_agree_includes_that_they_do() -> None:
    text = "R: SEQ(A a, B b, C c) WHERE SAME[key] AND a.v > b.v WITHIN 2 s RETURN R()"
    (query,) = planned_for(text, shares={"a,b,c": 0.2, "a,b": 0.05}).queries
    assert share_of(query, "AB") == pytest.approx(0.05)
    assert share_of(query, "BC") == pytest.approx(0.2)
    assert share_of(query, "ABC") == pytest.approx(0.05 * 0.2), "the third agrees with the first two"
    assert query.alike[frozenset("AB")] == ("", 0.2)
    assert query.apart is not None
    assert dict(query.apart) == pytest.approx({frozenset("AB"): 0.25})


def test_several_same_clauses_share_one_selectivity() -> None:
    text = "R: SEQ(A a, B b, C c) WHERE SAME[key] AND SAME[v] WITHIN 2 s RETURN R()"
    (query,) = planned_for(text, shares={"a,b,c": 0.2}).queries
    assert share_of(query, "ABC") == pytest.approx(0.04)


def test_a_condition_over_all_beside_same_says_that_it_is_assumed() -> None:
    text = "R: SEQ(A a, B b, C c) WHERE SAME[key] AND a.v + b.v > c.v WITHIN 2 s RETURN R()"
    problem = planned_for(text, shares={"a,b,c": 0.2})
    assert share_of(problem.queries[0], "ABC") == pytest.approx(0.04 * 0.1)
    (warning,) = problem.warnings
    assert "a.v + b.v > c.v 0.1 is assumed to pass" in warning


def test_equal_values_and_another_condition_over_the_same_roles_are_one() -> None:
    text = "R: SEQ(A a, B b, C c) WHERE a.key = b.key AND a.v > b.v AND b.w > c.w WITHIN 2 s RETURN R()"
    (query,) = planned_for(text, shares={"a,b": 0.05, "b,c": 0.5}).queries
    assert share_of(query, "ABC") == pytest.approx(0.025)
    assert query.alike[frozenset("AB")][1] == 0.05
    assert query.apart == {frozenset("BC"): 0.5}, "what equal values stand for is not counted again"


def test_a_share_of_single_events_is_not_taken_for_pairs_of_their_type() -> None:
    text = "R: SEQ(A a, A b) WHERE a.v > 1 AND b.v < 1 AND a.w > b.w WITHIN 2 s RETURN R()"
    problem = planned_for(text, shares={"A": 0.3, "a,b": 0.05})
    (query,) = problem.queries
    assert query.projection(frozenset(query.types)).selectivity == pytest.approx(0.05)
    assert all(problem.network.total(label) == pytest.approx(0.3) for label in query.types)


def test_what_forbids_a_match_must_agree_and_meet_its_conditions_once() -> None:
    def blocking(where: str, shares: dict[str, float]) -> float:
        problem = planned_for(f"R: SEQ(A a, !N n, B b) WHERE {where} WITHIN 2 s RETURN R()", shares=shares)
        assert isinstance(problem.costs, PhysicalCosts)
        return problem.costs.blocking.get("N", 1.0)

    assert blocking("n.v > a.v AND n.w > a.w", {"a,n": 0.05}) == pytest.approx(0.05)
    assert blocking("SAME[key]", {"a,b": 0.2}) == pytest.approx(0.2)
    assert blocking("SAME[key] AND n.v > a.v", {"a,b": 0.2, "a,n": 0.05}) == pytest.approx(0.05)


def test_conditions_that_read_alike_and_join_other_types_keep_projections_apart() -> None:
    one = "R: AND(A x, B y, C z) WHERE x.v > y.v WITHIN 2 s RETURN R()"
    other = "S: AND(B x, A y, C z) WHERE x.v > y.v WITHIN 2 s RETURN S()"
    first, second = planned_for(one, other).queries
    pair = frozenset("AB")
    assert first.projection(pair).key != second.projection(pair).key
    assert first.projection(frozenset("AC")).key == second.projection(frozenset("AC")).key


# From a sample ------------------------------------------------------------------------------------------------------

NETWORK = """
events: {{A: {{key: int, v: int, w: int}}, B: {{key: int, v: int, w: int}}, C: {{key: int, v: int, w: int}}}}
nodes: [n1, n2]
links: [{{between: [n1, n2]}}]
sources:
  - {{node: n1, type: A, trace: a.csv}}
  - {{node: n2, type: B, trace: b.csv}}
  - {{node: n2, type: C, trace: c.csv}}
sinks: [{{node: n2, subscribe: R}}]
rules: ["R: SEQ(A a, B b, C c) WHERE {where} WITHIN 5 s RETURN R()"]
"""


def counted(folder: Path, where: str) -> dict[str, float]:
    """Shares by roles, of traces with five keys, values from 0 to 9 in v and the same again in w."""
    draw = random.Random(5)
    for name in "abc":
        rows = []
        for at in range(400):
            value = draw.randrange(10)
            rows.append(f"{name.upper()},{at * 250_000},{draw.randrange(5)},{value},{value}")
        (folder / f"{name}.csv").write_text("type,ts,key,v,w\n" + "\n".join(rows) + "\n")
    file = folder / "network.yaml"
    file.write_text(NETWORK.format(where=where))
    (shares,) = sampled(read_network(file)).selectivities.values()
    return {"".join(sorted(roles)): share for roles, share in shares.items()}


def test_a_sample_counts_what_conditions_over_the_same_roles_let_through_together(tmp_path: Path) -> None:
    found = counted(tmp_path, "a.v < b.v AND a.w < b.w AND a.v > 3 AND a.w > 3")
    assert found["ab"] == pytest.approx(0.45, abs=0.05), "the second condition adds nothing"
    assert found["a"] == pytest.approx(0.6, abs=0.05)


def test_a_sample_counts_agreement_in_pairs_and_with_conditions(tmp_path: Path) -> None:
    found = counted(tmp_path, "SAME[key] AND a.v < b.v AND a.v + b.v > c.v")
    assert found["abc"] == pytest.approx(0.2, abs=0.04)
    assert found["ab"] == pytest.approx(0.09, abs=0.03)
