"""Selectivities from what running tasks find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from headwater.coordinator.daemon.replanning import as_measured
from headwater.coordinator.daemon.statistics import NodeStatistics as Whispered
from headwater.coordinator.inev.model.measured_selectivities import (
    MATCHES_LEAST,
    MatchCount,
    unmeasured,
    with_selectivities,
)
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.layout.stages import Stage, at_one_node
from headwater.coordinator.requests import PlanAnew
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.simulator import Simulation
from headwater.node.observe.selectivity import JoinedRoles, joined, selected
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.control import encode_statistics
from headwater.protocol.pattern import Rule
from tests.coordinator.test_layouts import sase
from tests.law.rate_swap import BEFORE, KEYS, TYPES, a_ring, a_swap, known

RATES: dict[str, dict[str, float]] = {"A": {"n1": 2.0, "n2": 2.0}, "B": {"n1": 4.0}, "C": {"n3": 1.0}}
PAIR = sase("Pair: SEQ(A a, B b, C c) WHERE a.v = b.v WITHIN 2 s RETURN R()")
BOTH = sase("Both: SEQ(A a, B b, C c) WHERE a.v = b.v AND b.v < c.v WITHIN 2 s RETURN R()")
FILTERED = sase("Filtered: SEQ(A a, B b) WHERE a.v > 5 AND a.v = b.v WITHIN 2 s RETURN R()")
SAME = sase("Same: SEQ(A a, B b, C c) WHERE SAME[v] WITHIN 2 s RETURN R()")


def seen(per_s: float, seconds: float = 100.0) -> MatchCount:
    return MatchCount(per_s * seconds, per_s, seconds)


def shares(
    rule: Rule,
    matches: Mapping[str, MatchCount],
    given: Mapping[str, float] | None = None,
    filters: Mapping[str, tuple[int, int]] | None = None,
) -> Any:
    """By roles, written as one word."""
    written = {frozenset(roles): share for roles, share in (given or {}).items()}
    counted = {(rule.name, frozenset(roles)): each for roles, each in matches.items()}
    found = with_selectivities([rule], Statistics(RATES, {rule.name: written}), counted, filters or {})
    return {"".join(sorted(roles)): share for roles, share in found.selectivities.get(rule.name, {}).items()}


def test_a_pair_is_as_selective_as_its_matches_are_rare() -> None:
    # Within 2 s there are 4 * 4 * 2 pairs per second in order; one in eight was found.
    assert shares(PAIR, {"ab": seen(4.0)}) == {"ab": pytest.approx(1 / 8)}


def test_what_is_put_together_of_matches_says_as_much() -> None:
    # 4 * 4 * 1 * 2^2 / 2 combinations of three per second.
    assert shares(PAIR, {"abc": seen(1.6)}) == {"ab": pytest.approx(0.05)}


def test_what_a_smaller_stage_has_told_is_not_told_again_by_a_larger_one() -> None:
    found = shares(BOTH, {"ab": seen(3.2), "abc": seen(0.8)})
    assert found == {"ab": pytest.approx(0.1), "bc": pytest.approx(0.25)}


def test_where_several_conditions_are_judged_at_once_all_are_off_by_the_same_factor() -> None:
    found = shares(BOTH, {"abc": seen(32 * 0.1 * 0.4 / 4)}, {"ab": 0.1, "bc": 0.4})
    assert found == {"ab": pytest.approx(0.05), "bc": pytest.approx(0.2)}


def test_equal_values_are_known_by_all_that_must_agree() -> None:
    assert shares(SAME, {"ab": seen(1.6)}) == {"abc": pytest.approx(0.05)}
    assert shares(SAME, {"abc": seen(32 * 0.05 * 0.05)}) == {"abc": pytest.approx(0.05)}


def test_conditions_on_single_events_are_counted_by_their_filters() -> None:
    found = shares(FILTERED, {"ab": seen(0.8)}, filters={"A(v > 5)": (1_000, 250)})
    assert found == {"a": 0.25, "ab": pytest.approx(0.1)}


def test_what_was_never_seen_stays_as_it_was_and_is_said() -> None:
    assert shares(PAIR, {}, {"ab": 0.3}) == {"ab": 0.3}
    assert shares(PAIR, {"abc": MatchCount(1.0, 0.1, 0.1)}, {"ab": 0.3}) == {"ab": 0.3}, (
        "one match is not a measurement"
    )
    (sentence,) = unmeasured([PAIR], Statistics(RATES))
    assert "no selectivity is given for a.v = b.v, so 0.1 is assumed" in sentence
    assert not unmeasured([PAIR], Statistics(RATES, {"Pair": {frozenset("ab"): 0.3}}))


def test_where_matches_were_due_and_none_came_the_condition_is_strict() -> None:
    found = shares(PAIR, {"ab": MatchCount(0.0, 0.0, 100.0)})
    assert found["ab"] == pytest.approx(0.5 / (32 * 100))
    assert MATCHES_LEAST < 32 * 0.1 * 100


def test_rules_that_are_decided_by_more_than_conditions_are_left_alone() -> None:
    for text in (
        "SEQ(A a, !B b, C c) WHERE a.v = c.v WITHIN 2 s RETURN R()",
        "SEQ(A a, B+ b[], C c) WHERE a.v = c.v WITHIN 2 s RETURN R()",
        "SEQ(A a, B b, C c) WHERE a.v = c.v WITHIN 2 s SKIP TILL NEXT MATCH RETURN R()",
        "AND(A a, OR(B b, C c)) WHERE a.v = c.v WITHIN 2 s RETURN R()",
    ):
        assert shares(sase(text), {"abc": seen(1.0)}) == {}


def test_roles_that_are_put_together_twice_say_nothing() -> None:
    matches = {("Pair", frozenset("ab")): seen(4.0)}
    first = Stage(frozenset("ab"), ("n1",), events=frozenset("ab"))
    once, twice = (first, *at_one_node(PAIR, "n3")), (first, first, *at_one_node(PAIR, "n3"))
    given = Statistics({}, {"Pair": {frozenset("ab"): 0.3}})
    assert as_measured(given, RATES, {"Pair": once}, [PAIR], matches, {}).selectivities["Pair"] == {
        frozenset("ab"): pytest.approx(1 / 8)
    }
    assert as_measured(given, RATES, {"Pair": twice}, [PAIR], matches, {}).selectivities["Pair"] == {
        frozenset("ab"): 0.3
    }


# What nodes count ----------------------------------------------------------------------------------------------------


def counted(seconds: float, *changes: tuple[int, PlanAnew], planner: InevPlanner | None = None) -> Counter[JoinedRoles]:
    """Matches of a run at the rates before the swap, over all nodes."""
    case = a_swap(3 * seconds)
    births = [birth for birth in case.births if birth[0] < seconds * 1e6]
    run = Simulation(case.network, "inev", 1, Faults(), lay_out=planner or InevPlanner(known(BEFORE)))
    run.set_up(-10_000_000)
    run.run(births, changes=changes)
    found: Counter[JoinedRoles] = Counter()
    for core in run.nodes.values():
        found.update(joined(core.works.values(), core.forest.past))
    return found


def test_a_running_network_measures_what_was_not_given() -> None:
    (rule,) = a_ring().rules
    found = counted(400.0)
    matches = {(stage.rule, frozenset(stage.roles)): seen(count / 400, 400) for stage, count in found.items()}
    assert min(each.count for each in matches.values()) > 50
    shares = with_selectivities([rule], Statistics(known(BEFORE).rates), matches, {}).selectivities["Trio"]
    assert shares[frozenset("abc")] == pytest.approx(1 / KEYS, rel=0.3)


def test_what_is_found_again_when_a_plan_is_moved_is_counted_once() -> None:
    once = counted(100.0)
    moved = [(at * 10_000_000, PlanAnew(InevPlanner(known(BEFORE)))) for at in range(1, 10)]
    again = counted(100.0, *moved)
    assert once.keys() == again.keys()
    for stage, count in once.items():
        assert count <= again[stage] <= count * 1.2


def test_filters_of_graphs_are_counted() -> None:
    case = a_swap(30.0)
    text = "Hot: SEQ(A a, B b) WHERE a.key > 14 AND a.key = b.key WITHIN 1 s RETURN Trio(key = a.key)"
    rules = parse_rules([Text(text, "hot.sase", "sase")], TYPES).rules
    run = Simulation(replace(case.network, rules=rules), "inev", 1, Faults())
    run.set_up(-10_000_000)
    run.run(case.births)
    sums: Counter[str] = Counter()
    for core in run.nodes.values():
        for predicate, (judged, passed) in selected(core.works.values(), core.forest.past).items():
            if predicate.kind == "filter":
                sums.update({f"{predicate.text} seen": judged, f"{predicate.text} passed": passed})
    of_type = [birth[2] for birth in case.births if birth[2].type == "A"]
    assert sums["A(key > 14) seen"] == len(of_type)
    filters = {"A(key > 14)": (sums["A(key > 14) seen"], sums["A(key > 14) passed"])}
    found = with_selectivities(rules, Statistics(known(BEFORE).rates), {}, filters).selectivities["Hot"]
    keys = [cast(int, event.attributes["key"]) for event in of_type]
    assert found == {frozenset("a"): pytest.approx(sum(key > 14 for key in keys) / len(keys))}


def test_the_coordinator_puts_together_what_nodes_have_found() -> None:
    whispered = Whispered()
    for node, counts in (("n1", (10, 40)), ("n2", (0, 60))):
        for second, count in zip((0, 10), counts, strict=True):
            told = {
                "since_us": 1,
                "joined": [{"rule": "R", "roles": ["b", "a"], "matches": count}, "nonsense", {"rule": 1}],
                "predicates": [{"kind": "filter", "text": "A(v > 5)", "seen": 10, "passed": 4}],
            }
            whispered.heard(node, encode_statistics(told), second * 1_000_000)
    found = whispered.matches(10_000_000)["R", frozenset("ab")]
    assert (found.count, found.per_s, found.seconds) == (90, 9.0, 10.0)
    assert whispered.filters() == {"A(v > 5)": (20, 8)}
