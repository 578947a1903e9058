"""What plans cost: the same whether it is summed over transfers, over what is printed, or over vertices; and what
centralised evaluation costs is what the strategy of that name sends."""

from __future__ import annotations

import json
import math
import random
from itertools import count
from typing import Any

import pytest

from benchmarks.inev_cases import random_case
from benchmarks.inev_measured import central_plan, measure
from benchmarks.inev_networks import random_network, trace
from headwater.coordinator.inev.model.case_files import case_from
from headwater.coordinator.inev.model.latency import latency
from headwater.coordinator.inev.model.problem import Problem, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.coordinator.inev.plan.description import PlanningOutcome, as_json
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.plan.plans import Plan, plan_from, transmission_cost
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import Clock, Search, inev_plan
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules

TYPES = tuple(EventType(name, {"v": "int", "key": "int"}) for name in "ABCDN")
RULES = (
    "SEQ(A a, B b, C c) WHERE a.v > b.v",
    "AND(A a, B b, D d) WHERE SAME[key]",
    "SEQ(A a, B b) WHERE a.v > 3 AND b.v < 2",
    "SEQ(A x, A y, C c) WHERE x.v > 8 AND y.v < 8 AND x.key = y.key",
    "SEQ(A a, !N n, B b, C c) WHERE a.v > b.v",
    "SEQ(A a, B+ b[], C c) WHERE a.key = c.key",
    "SEQ(B b, C c) WHERE b.v > c.v",
    "AND(C c, D d) WHERE c.v > 5 AND c.key = d.key",
)


def network_problem(seed: int, rules: int | None = None, nodes: int | None = None) -> Problem:
    """Rules with conditions on single roles, negation, repetition and pairs in common, on a random tree with sinks."""
    draw = random.Random(f"costs/{seed}")
    names = tuple(f"n{at}" for at in range(nodes or draw.randint(4, 9)))
    links = [(draw.choice(names[:at]), names[at]) for at in range(1, len(names))]
    chosen = draw.sample(RULES, rules or draw.randint(1, 4))
    texts = [Text(f"R{at}: {body} WITHIN 2 s RETURN Out{at}()", "r.sase", "sase") for at, body in enumerate(chosen)]
    parsed = parse_rules(texts, TYPES).rules
    rates = {
        type.name: {node: draw.choice((0.2, 1.0, 5.0)) for node in draw.sample(names, draw.randint(1, 3))}
        for type in TYPES
    }
    sinks = {rule.emits: tuple(draw.sample(range(len(names)), draw.randint(1, 2))) for rule in parsed}
    return problem_from(parsed, names, event_network(names, links, rates), Statistics(rates), sinks)


def searched(problem: Problem) -> Plan:
    search = Search(problem, Clock(60, count().__next__))
    solution = search.run()
    plan = plan_from(search.space, solution, "inev")
    assert plan.cost == pytest.approx(search.space.cost(solution)), "the search judges plans by what they cost"
    return plan


def told(plan: Plan) -> dict[str, Any]:
    outcome = PlanningOutcome(plan, centralised(plan.problem), 0.0, "estimate", latency(plan), None, 0.0, 1.0, 0.0)
    return dict(json.loads(json.dumps(as_json(outcome, numbers=False))))


def check(plan: Plan) -> None:
    """A plan is right, what is printed of it sums to its cost, and so do its vertices if no task pulls."""
    assert faults(plan) == []
    printed = told(plan)
    summed = math.fsum(len(each["edges"]) * each["rate"] for each in printed["transfers"])
    assert summed == pytest.approx(printed["cost"], rel=1e-9, abs=1e-12)
    assert printed["cost"] == plan.cost
    ends = {final.projection.text for final in plan.finals.values()}
    for each in printed["transfers"]:
        assert each["for"] or each["kind"] in ("composites", "requests") or each["projection"] in ends
    if not plan.unfiltered and all(each.kind in ("events", "composites") for each in plan.transfers):
        over_vertices = math.fsum(transmission_cost(vertex, plan.problem) for vertex in plan.vertices)
        assert over_vertices == pytest.approx(plan.cost, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_networks_cost_what_they_print(seed: int) -> None:
    problem = network_problem(seed)
    centre = centralised(problem)
    plan = searched(problem)
    for each in (plan, plan.refined(200), inev_plan(problem, 0.05), push_pull_plan(problem), centre):
        check(each)
    assert inev_plan(problem, 0.05).cost <= centre.cost * (1 + 1e-9)
    assert push_pull_plan(problem).cost <= centre.cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_exact_plans_of_networks_cost_what_they_print(seed: int) -> None:
    problem = network_problem(seed, rules=1, nodes=4)
    exact = exact_plan(problem)
    check(exact)
    assert exact.cost <= inev_plan(problem, 0.1).cost * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_plans_of_cases_cost_what_they_print(seed: int) -> None:
    given = random_case(seed, nodes=8, types=6, queries=1 + seed % 3, longest=4, negation=seed % 2 == 0)
    free = case_from(given, "case").problem
    sinks = {query.name: (0, 5) for query in free.queries}
    for problem in (free, Problem(free.network, free.queries, free.costs, sinks)):
        for plan in (searched(problem), push_pull_plan(problem), centralised(problem)):
            check(plan)
    if len(free.queries) < 3:
        tiny = case_from(random_case(seed, nodes=5, types=4, queries=1, longest=3), "tiny").problem
        check(exact_plan(tiny))


def test_events_of_a_single_type_are_counted_once() -> None:
    """One query is complete where its events are born; another needs the same events elsewhere."""
    line = {
        "format": "inev-case-1",
        "nodes": [0, 1, 2],
        "edges": [[0, 1], [1, 2]],
        "event_types": {"A": {"local_rate": 2.0, "sources": [0]}, "B": {"local_rate": 5.0, "sources": [2]}},
        "queries": ["A", "SEQ(A, B)"],
        "pairwise_selectivities": {},
    }
    plan = searched(case_from(line, "line").problem)
    assert plan.cost == 4.0
    check(plan)


# Centralised --------------------------------------------------------------------------------------------------------


def filtered_problem() -> Problem:
    """Temperatures of which one rule wants the hot ones, another the cold ones and all."""
    rules = parse_rules(
        [
            Text("R: SEQ(A x, B b) WHERE x.v > 8 WITHIN 2 s RETURN R()", "r.sase", "sase"),
            Text(
                "S: SEQ(A x, A y, B b) WHERE x.v < 8 AND y.v > 2 AND x.key = b.key WITHIN 2 s RETURN S()",
                "s.sase",
                "sase",
            ),
        ],
        TYPES,
    ).rules
    rates = {"A": {"x": 10.0, "y": 4.0}, "B": {"z": 1.0}}
    network = event_network(("x", "y", "z"), [("x", "y"), ("y", "z")], rates)
    shares = {"R": {frozenset("x"): 0.1}, "S": {frozenset("x"): 0.9, frozenset("y"): 0.8, frozenset("xb"): 0.0001}}
    return problem_from(rules, ("x", "y", "z"), network, Statistics(rates, shares), {"S": (2,)})


def test_centralised_evaluation_has_every_event_sent_once_whatever_is_asked_of_it() -> None:
    problem = filtered_problem()
    centre = centralised(problem)
    check(centre)
    assert [task.nodes for task in centre.tasks] == [(0,), (0,)], "most events are born there"
    events = {(each.source.projection.text, each.node): each.cost for each in centre.transfers if each.kind == "events"}
    assert events == {("A", 1): 4.0, ("B", 2): 2.0}
    composites = [each for each in centre.transfers if each.kind == "composites"]
    assert [(each.query, each.links.bit_count()) for each in composites] == [("S", 2)]
    assert all(set(each["for"]) == {task.projection.text for task in centre.tasks} for each in told(centre)["transfers"]
               if each["kind"] == "events")  # fmt: skip


def test_no_plan_is_dearer_than_centralised_where_filters_overlap() -> None:
    """Of A one rule wants a tenth, the other nine tenths and eight: filtered for each role, more than all there are."""
    problem = filtered_problem()
    centre = centralised(problem).cost
    for plan in (inev_plan(problem, 0.2), push_pull_plan(problem)):
        check(plan)
        assert plan.cost <= centre * (1 + 1e-9)


@pytest.mark.parametrize("seed", [3, 13])
def test_what_the_strategy_centr_sends_is_what_the_model_says(seed: int) -> None:
    """For rules with filters, over the same centre: events and composites per second times links."""
    made = random_network(seed)
    plan = InevPlanner(made.statistics).plan(made.ground(), {})
    assert plan is not None
    assert any("[" in type for type in plan.problem.types), "a rule that filters"
    modelled = central_plan(plan, made).cost
    seconds, found = 100.0, []
    for number in range(3):
        found.append(sum(measure(made, "centr", trace(made, seconds, number), seconds).sent.values()))
    assert sum(found) / len(found) == pytest.approx(modelled, rel=0.12)
    assert centralised(plan.problem).cost <= modelled * (1 + 1e-9), "at the cheapest node instead of the leader"
