"""Plans: right, priced right, never costlier than centralised, and as cheap as the exact planner finds."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from benchmarks.inev_cases import random_case
from headwater.coordinator.inev.model.case_files import Case, case_from, read_case
from headwater.coordinator.inev.model.latency import LatencyBound, latency
from headwater.coordinator.inev.model.problem import Problem, ProblemError
from headwater.coordinator.inev.plan.description import PlanningOutcome, as_json
from headwater.coordinator.inev.plan.plans import Plan, plan_from, transmission_cost
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.paper import paper_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import Clock, Search, inev_plan
from headwater.coordinator.inev.search.space import Solution, Stream

CASES = Path(__file__).parent / "inev_cases"
BUDGET_S = 3.0


def told(plan: Plan) -> dict[str, Any]:
    """A plan as the command prints it."""
    outcome = PlanningOutcome(plan, centralised(plan.problem), 0.0, "estimate", 0.0, None, 0.0, 1.0, 0.0)
    return dict(json.loads(json.dumps(as_json(outcome, numbers=True))))


# An independent reading of a case file and of a printed plan: shares no code with the planner. -----------------------


def split_top(text: str) -> tuple[str, list[str]]:
    """Operator and parts of a text such as SEQ(A, AND(B, C)); a bare type has none."""
    head, bracket, rest = text.partition("(")
    if not bracket:
        return text, []
    parts, depth, start = [], 0, 0
    inside = rest[:-1]
    for at, letter in enumerate(inside + ","):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(inside[start:at].strip())
            start = at + 1
    return head, parts


def local_rate(text: str, given: dict[str, Any]) -> float:
    head, parts = split_top(text)
    if not parts:
        return float(given["event_types"][head]["local_rate"])
    rates = [local_rate(part, given) for part in parts]
    if head == "NSEQ":
        return rates[0] * rates[2]
    return math.prod(rates) * (len(parts) if head == "AND" else 1)


def types_in(text: str) -> list[str]:
    head, parts = split_top(text)
    return [type for part in parts for type in types_in(part)] if parts else [head]


def total_rate(text: str, given: dict[str, Any]) -> float:
    types = sorted(types_in(text))
    rate = local_rate(text, given)
    for at, one in enumerate(types):
        rate *= len(given["event_types"][one]["sources"])
        for other in types[at + 1 :]:
            rate *= given["pairwise_selectivities"].get(one + other, 1.0)
    return rate


def negated_in(text: str) -> set[str]:
    head, parts = split_top(text)
    found = set().union(*map(negated_in, parts)) if parts else set()
    return found | set(types_in(parts[1])) if head == "NSEQ" else found


def check_printed(printed: dict[str, Any], given: dict[str, Any]) -> None:
    """Recomputes cost, rates and delivery of a printed plan from it and the case file alone."""
    cost = math.fsum(len(each["edges"]) * each["rate"] for each in printed["transfers"])
    assert cost == pytest.approx(printed["cost"], rel=1e-9, abs=1e-12)
    links = {tuple(sorted(edge)) for edge in given["edges"]}
    reached: dict[tuple[str, Any, tuple[str, ...], Any], set[Any]] = {}
    for each in printed["transfers"]:
        assert {tuple(sorted(edge)) for edge in each["edges"]} <= links
        assert len({tuple(sorted(edge)) for edge in each["edges"]}) == len(each["edges"])
        assert each["rate"] == pytest.approx(expected_rate(each, given), rel=1e-9)
        left_out = tuple(each["output_selector_types_not_sent"])
        reached[each["projection"], each["placement"], left_out, each["from"]] = nodes_along(each)
    places = {
        (task["projection"], task["partitioning_type"] or task["nodes"][0]): task for task in printed["projections"]
    }
    finished = {name for task in printed["projections"] for name in task["queries"]}
    assert finished == set(given["queries"])
    for task in printed["projections"]:
        split = task["partitioning_type"]
        for query in given["queries"]:
            if set(task["types"]) <= set(types_in(query)):
                assert split not in negated_in(query)
        if split is not None:
            assert sorted(task["nodes"]) == sorted(given["event_types"][split]["sources"])
            assert split in task["inputs"]
        check_inputs(task, given, reached, places)


def expected_rate(transfer: dict[str, Any], given: dict[str, Any]) -> float:
    projection, placement = transfer["projection"], transfer["placement"]
    split = placement if isinstance(placement, str) else None
    left_out = transfer["output_selector_types_not_sent"]
    if not left_out:
        return total_rate(projection, given) / (len(given["event_types"][split]["sources"]) if split else 1)
    expected = 0.0
    name = "".join(sorted(types_in(projection)))
    for type in set(types_in(projection)) - set(left_out):
        sources = 1 if type == split else len(given["event_types"][type]["sources"])
        share = given["single_selectivities"][f"{type}|{name}"]
        expected += share * given["event_types"][type]["local_rate"] * sources
    return expected


def nodes_along(transfer: dict[str, Any]) -> set[Any]:
    """The nodes that the links of a transfer reach: they hang together and start at its node."""
    inside = {transfer["from"]}
    waiting = deque(transfer["edges"])
    for _ in range(len(waiting) ** 2 + 1):
        if not waiting:
            break
        edge = waiting.popleft()
        if set(edge) & inside:
            inside |= set(edge)
        else:
            waiting.append(edge)
    assert not waiting, "the links of a transfer hang together and start at its node"
    return inside


def check_inputs(task: dict[str, Any], given: dict[str, Any], reached: dict[Any, set[Any]], places: Any) -> None:
    """Every input of a task reaches all of its nodes, and together they are what it is made of."""
    split = task["partitioning_type"]
    covered: set[str] = set()
    for name, placement in zip(task["inputs"], task["input_placements"], strict=True):
        covered |= set(types_in(name))
        sent = task["output_selectors"].get(name)
        left_out = tuple(sorted(set(types_in(name)) - set(sent))) if sent else ()
        assert set(left_out) <= set(task["inputs"]), "what is left out comes as it is born"
        senders = given["event_types"][placement]["sources"] if isinstance(placement, str) else [placement]
        if len(types_in(name)) > 1:
            assert (name, placement) in places
        if placement == split and not left_out:
            continue
        for sender in senders:
            got = reached.get((name, placement, left_out, sender), {sender})
            assert set(task["nodes"]) <= got, f"{name} of {sender} does not reach all of {task['nodes']}"
    assert covered == set(task["types"])


@pytest.mark.parametrize("name", ["c01", "c13", "c22", "c43"])
def test_printed_plans_can_be_recomputed_from_the_output_alone(name: str) -> None:
    given = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    case = read_case(CASES / f"{name}.json")
    plan = inev_plan(case.problem, BUDGET_S)
    assert faults(plan) == []
    check_printed(told(plan), given)
    check_printed(told(centralised(case.problem)), given)
    assert plan.cost <= centralised(case.problem).cost
    assert centralised(case.problem).cost == pytest.approx(given["result"]["centralized_cost"])
    if case.theirs_is_valid:
        assert case.theirs is not None
        assert plan.cost < case.theirs


def test_improvable_cases_are_improved() -> None:
    for name, at_most in (("c01", 0.6), ("c43", 0.75)):
        case = read_case(CASES / f"{name}.json")
        assert case.theirs is not None
        assert inev_plan(case.problem, BUDGET_S).cost <= at_most * case.theirs


def test_a_plan_split_by_a_negated_type_is_not_believed() -> None:
    assert not read_case(CASES / "c13.json").theirs_is_valid
    assert read_case(CASES / "c43.json").theirs_is_valid


SIZES = [
    {"nodes": 10, "types": 6, "queries": 1, "longest": 5},
    {"nodes": 12, "types": 7, "queries": 1, "longest": 6, "negation": True},
    {"nodes": 10, "types": 8, "queries": 4, "longest": 4, "negation": True},
    {"nodes": 10, "types": 7, "queries": 3, "longest": 5, "degree": 4},
    {"nodes": 14, "types": 7, "queries": 2, "longest": 5, "skew": 2.0, "selectivities": (0.05, 0.5)},
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size['queries']}x{size['longest']}")
@pytest.mark.parametrize("seed", range(4))
def test_random_plans_are_right_and_never_dearer_than_centralised(seed: int, size: dict[str, Any]) -> None:
    given = random_case(seed, **size)
    problem = case_from(given, "random").problem
    plan = inev_plan(problem, 1.0)
    assert faults(plan) == []
    check_printed(told(plan), given)
    assert plan.cost <= centralised(problem).cost * (1 + 1e-9)
    assert sum(transmission_cost(vertex, problem) for vertex in plan.vertices) == pytest.approx(plan.cost)
    for other in (paper_plan(problem), push_pull_plan(problem), centralised(problem)):
        assert faults(other) == []
        assert other.cost <= centralised(problem).cost * (1 + 1e-9)
    assert plan.cost <= paper_plan(problem).cost * (1 + 1e-9)


def tiny(seed: int) -> Case:
    two = seed % 2
    given = random_case(
        seed, nodes=4 + seed % 2, types=4, queries=1 + two, longest=3, skew=1.5, selectivities=(0.01, 0.2),
        negation=seed % 3 == 0, degree=2 + 2 * (seed % 5 == 0),
    )  # fmt: skip
    return case_from(given, "tiny")


def test_the_search_is_close_to_the_exact_planner_on_tiny_inputs() -> None:
    ratios = []
    for seed in range(16):
        problem = tiny(seed).problem
        exact, found = exact_plan(problem), inev_plan(problem, BUDGET_S)
        assert faults(exact) == []
        assert exact.cost <= found.cost * (1 + 1e-9), seed
        ratios.append(found.cost / exact.cost if exact.cost else 1.0)
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 13
    assert max(ratios) < 1.25


def test_the_exact_planner_refuses_what_it_cannot_finish() -> None:
    with pytest.raises(ProblemError, match="tries every plan and takes at most 2 queries of 4 types on 8 nodes"):
        exact_plan(case_from(random_case(1, nodes=20), "large").problem)


def test_equal_seeds_give_equal_plans() -> None:
    problem = read_case(CASES / "c22.json").problem
    one, other = (Search(problem, Clock(None), seed=4, patient=False).run() for _ in range(2))
    assert one == other


def test_a_budget_ends_the_search_with_the_best_plan_so_far() -> None:
    ticks = iter(range(1000))
    problem = read_case(CASES / "c22.json").problem
    search = Search(problem, Clock(3.0, now=lambda: float(next(ticks))))
    short = search.space.cost(search.run())
    assert next(ticks) < 20
    assert short <= centralised(problem).cost
    assert inev_plan(problem, BUDGET_S).cost <= short


def test_plans_obey_a_latency_bound() -> None:
    problem = read_case(CASES / "c01.json").problem
    centre = latency(centralised(problem))
    free = inev_plan(problem, BUDGET_S)
    assert latency(free) > centre
    for limit in (centre, (centre + latency(free)) / 2):
        held = inev_plan(problem, BUDGET_S, LatencyBound(limit))
        assert latency(held) <= limit * (1 + 1e-9)
        assert free.cost <= held.cost <= centralised(problem).cost
    assert inev_plan(problem, BUDGET_S, LatencyBound((centre + latency(free)) / 2)).cost < centralised(problem).cost


def test_what_is_wrong_with_a_plan_is_said() -> None:
    problem = read_case(CASES / "c13.json").problem
    search = Search(problem, Clock(None), patient=False)
    space = search.space
    query = problem.queries[0]
    assert "C" in query.negated
    of_c = space.nodes + space.type_number["C"]
    whole = space.number(query.projection(frozenset(query.types)))
    raw = [space.raw(space.type_number[type]) for type in query.types]

    def sentences(*inputs: Stream, place: int) -> list[str]:
        return faults(plan_from(space, Solution({(whole, place): inputs}, ((whole, place),)), "by hand"))

    assert sentences(*raw, place=0) == []
    assert any("which is negated" in sentence for sentence in sentences(*raw, place=of_c))
    assert any("which are not its types" in sentence for sentence in sentences(*raw[:-1], place=0))
    ghost = space.number(query.projection(frozenset("DF")))
    assert any("no task evaluates it" in sentence for sentence in sentences(*raw, Stream(ghost, 3), place=0))


def test_sinks_are_part_of_every_cost() -> None:
    given = random_case(3, nodes=10, types=5, queries=2, longest=3)
    free = case_from(given, "case").problem
    sinks = {query.name: (0, 7) for query in free.queries}
    problem = Problem(free.network, free.queries, free.costs, sinks)
    for planner in (centralised, push_pull_plan, lambda problem: inev_plan(problem, 1.0)):
        plan, without = planner(problem), planner(free)
        assert faults(plan) == []
        assert plan.cost >= without.cost
        for final in plan.finals.values():
            delivered = [each for each in plan.transfers if each.source.projection == final.projection]
            assert {node for each in delivered for node in each.targets} | set(final.nodes) >= {0, 7}
    assert inev_plan(problem, 1.0).cost <= centralised(problem).cost * (1 + 1e-9)
