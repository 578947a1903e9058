"""Lookups in remote tables that not every node reaches are part of what a plan costs."""

from __future__ import annotations

import pytest

from headwater.coordinator.inev.model.lookups import HITS
from headwater.coordinator.inev.model.problem import Problem, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.coordinator.inev.plan.plans import Plan
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.planners import PLANNERS, PlanRequest
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.network import DescribedTable

TYPES = [EventType("T", [("card", "int"), ("org", "int")]), EventType("L", [("card", "int"), ("limit", "int")])]
RULE = """Raised: SEQ(T t, L l) WHERE t.card = l.card AND l.limit > REMOTE.limits[t.org]
WITHIN 10 s RETURN Raised(card = t.card)"""
NODES = ("p1", "p2", "p3", "p4")
LINKS = (("p1", "p2"), ("p2", "p3"), ("p3", "p4"))
WINDOW_S = 10.0


def problem(t: float, l: float, *at: str, keys: float | None = None) -> Problem:  # noqa: E741
    """T at p1 and L at p2, at these rates; a sink at p1."""
    rates = {"T": {"p1": t}, "L": {"p2": l}}
    network = event_network(NODES, LINKS, rates)
    selectivities = {"Raised": {frozenset(("t", "l")): 1e-6}}
    statistics = Statistics(rates, selectivities, keys=() if keys is None else (("limits", keys),))
    rules = parse_rules([Source(RULE, "raised", "sase")], TYPES).rules
    return problem_from(rules, NODES, network, statistics, {"Raised": (0,)}, (DescribedTable("limits", "", at),))


def planned(stated: Problem, planner: str = "inev") -> Plan:
    plan = PLANNERS[planner].plan(PlanRequest(stated, 1.0, None, 0, False))
    assert not faults(plan)
    return plan


def where(plan: Plan) -> list[str]:
    return [NODES[node] for node in plan.finals["Raised"].nodes]


def lookups(plan: Plan) -> float:
    return sum(transfer.cost for transfer in plan.transfers if transfer.kind == "lookups")


def test_questions_and_answers_cross_the_links_to_the_nearest_node_that_reaches_the_table() -> None:
    plan = planned(problem(10.0, 100.0, "p3", "p4"))
    assert where(plan) == ["p2"]
    assert lookups(plan) == pytest.approx(10.0 * (1 - HITS) * 2 * 1)
    assert plan.cost == pytest.approx(10.0 + lookups(plan) + delivered(plan))


def delivered(plan: Plan) -> float:
    return sum(transfer.cost for transfer in plan.transfers if transfer.kind == "composites")


def test_a_table_that_every_node_reaches_costs_nothing() -> None:
    assert lookups(planned(problem(10.0, 100.0))) == 0.0


def test_a_rule_is_completed_near_the_table_where_lookups_are_many_and_near_the_events_where_they_are_few() -> None:
    many = planned(problem(1000.0, 1.0, "p4", keys=1e9))  # 6000 for lookups from p1, 3000 for T to p4
    few = planned(problem(1000.0, 1.0, "p4", keys=10))
    assert (where(many), where(few)) == (["p4"], ["p1"])
    assert lookups(many) == 0.0
    assert lookups(few) == pytest.approx(10 / WINDOW_S * 2 * 3)


def test_memory_asks_for_each_key_once_in_a_window_and_never_more_often_than_it_is_looked_up() -> None:
    asked = {keys: lookups(planned(problem(10.0, 100.0, "p3", keys=keys))) for keys in (1.0, 50.0, 1e6)}
    assert asked == {1.0: pytest.approx(0.1 * 2), 50.0: pytest.approx(5.0 * 2), 1e6: pytest.approx(10.0 * 2)}


def test_the_exact_planner_and_centralised_evaluation_pay_for_lookups_too() -> None:
    for stated in (problem(1000.0, 1100.0, "p4", keys=1e9), problem(10.0, 100.0, "p4"), problem(30.0, 2.0, "p3", "p1")):
        plan, exact, centre = planned(stated), planned(stated, "exact"), centralised(stated)
        assert exact.cost <= plan.cost * (1 + 1e-9) <= centre.cost * (1 + 2e-9)
        assert plan.cost == pytest.approx(exact.cost)
    assert lookups(centralised(problem(10.0, 100.0, "p3"))) == pytest.approx(10.0 * (1 - HITS) * 2)


def test_keys_of_a_table_that_there_is_not_are_named() -> None:
    rates = {"T": {"p1": 1.0}, "L": {"p2": 1.0}}
    rules = parse_rules([Source(RULE, "raised", "sase")], TYPES).rules
    stated = problem_from(
        rules,
        NODES,
        event_network(NODES, LINKS, rates),
        Statistics(rates, keys=(("limit", 3.0),)),
        {},
        (DescribedTable("limits", "", ("p1",)),),
    )
    assert any(
        "there is no remote table limit, so the number of its keys is not used" in text for text in stated.warnings
    )
