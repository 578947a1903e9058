"""Pulling as a choice of the planner: priced by hand, never costlier, right, and told."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.inev_cases import random_case
from headwater.coordinator.inev.model.awakenings import asking
from headwater.coordinator.inev.model.case_costs import CaseCosts
from headwater.coordinator.inev.model.case_files import case_from, read_case
from headwater.coordinator.inev.model.latency import LatencyBound, latency
from headwater.coordinator.inev.model.patterns import parse
from headwater.coordinator.inev.model.physical_costs import PhysicalCosts
from headwater.coordinator.inev.model.problem import Ask, EventNetwork, Problem, Query, event_network, primitive
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.coordinator.inev.plan.description import PlanningOutcome, as_json, in_words
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import PUSHED_FIRST, Clock, Search, inev_plan
from headwater.coordinator.inev.search.space import Solution, Space
from headwater.coordinator.layout.planner_interface import Ground
from headwater.deploy.reporting.plan_picture import as_dot, as_svg
from headwater.node.pull.awakening import reach_of
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.analysis.pulling import masters
from headwater.protocol.events import EventType
from headwater.protocol.languages import Language, parse_rules
from headwater.protocol.languages import Source as Text
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.pattern import Rule, leaves

PROJECT = Path(__file__).parent.parent.parent
CASES = Path(__file__).parent / "inev_cases"
BUDGET_S = 2.0
LOOKS = 200
"""How often a search looks at its clock."""

TYPES = tuple(EventType(name, {"v": "int", "k": "int"}) for name in "ABCDN")
LINKS = [("c", "l"), ("c", "r")]


def around(rates: dict[str, dict[str, float]]) -> EventNetwork:
    """A node c in the middle, l and r beside it."""
    return event_network(["c", "l", "r"], LINKS, rates)


def physical(network: EventNetwork, query: Query, sinks: tuple[int, ...] = ()) -> Problem:
    return Problem(network, (query,), PhysicalCosts(network, queries=(query,)), {query.name: sinks})


FREQUENT = {"A": {"c": 0.1}, "B": {"c": 0.1}, "N": {"l": 5.0, "r": 5.0}}
"""What must not occur is frequent, and born on both sides of what it lies between."""

RARE = {"A": {"c": 5.0}, "B": {"c": 5.0}, "N": {"l": 0.1, "r": 0.1}}


def guarded(rates: dict[str, dict[str, float]]) -> Problem:
    return physical(around(rates), Query("q", parse("NSEQ(A, N, B)"), {frozenset("AN"): 0.5}, 1.0), (0,))


def told(plan: Plan) -> PlanningOutcome:
    return PlanningOutcome(plan, centralised(plan.problem), 0.0, "estimate", 0.0, None, 0.0, 1.0, 0.0)


def printed(plan: Plan) -> dict[str, Any]:
    return dict(json.loads(json.dumps(as_json(told(plan), numbers=False))))


def pulls(plan: Plan) -> list[tuple[str, str]]:
    """What is pulled, with who asks for it."""
    return [(pull.ask.type, pull.asked_by) for task in plan.tasks for pull in task.pulls]


# Prices by hand ------------------------------------------------------------------------------------------------------


def test_events_ask_each_source_by_itself_and_each_event_comes_once() -> None:
    """Of A and B a match is rare, so that a tenth of the A ask; each for the N of a second, of which half fit."""
    plan = inev_plan(guarded(FREQUENT), BUDGET_S, pull=True)
    assert faults(plan) == []
    (pulled,) = pulls(plan)
    assert pulled[0] == "N"
    asked = 0.1 * (1 - math.exp(-0.1))
    told_share = 0.5 if pulled[1] == "A" else 1.0
    answered = 10 * (1 - math.exp(-asked * told_share))
    assert pulled[1] == "A", "A tells more than B"
    assert plan.cost == pytest.approx(2 * asked + answered)
    kinds = {each.kind: each for each in plan.transfers}
    assert kinds.keys() == {"requests", "answers"}
    assert [each.targets for each in plan.transfers if each.kind == "requests"] == [(1,), (2,)]
    assert inev_plan(guarded(FREQUENT), BUDGET_S).cost == pytest.approx(10.0), "all N, over one link"


def test_pulling_more_than_halves_the_cost_where_it_pays_and_is_not_chosen_where_it_does_not() -> None:
    assert inev_plan(guarded(FREQUENT), BUDGET_S, pull=True).cost < 0.5 * inev_plan(guarded(FREQUENT), BUDGET_S).cost
    without, with_it = inev_plan(guarded(RARE), BUDGET_S), inev_plan(guarded(RARE), BUDGET_S, pull=True)
    assert with_it.cost == without.cost == pytest.approx(0.2)
    assert pulls(with_it) == []
    assert {each.kind for each in with_it.transfers} == {"events"}


def test_in_case_files_matches_ask_along_a_tree_and_what_fits_comes_back() -> None:
    network = around({"A": {"c": 1.0}, "B": {"c": 1.0}, "N": {"l": 50.0, "r": 50.0}})
    query = Query("q", parse("NSEQ(A, N, B)"), {frozenset("AB"): 0.1})
    matches, guarded_matches = 0.1, 0.2  # the rate of an NSEQ counts the sources of what it negates
    for share, answered in (({}, guarded_matches), ({("N", frozenset("ANB")): 0.03}, 3.0)):
        problem = Problem(network, (query,), CaseCosts(network, share))
        plan = inev_plan(problem, BUDGET_S, pull=True)
        assert faults(plan) == []
        assert pulls(plan) == [("N", "SEQ(A, B)")]
        assert plan.cost == pytest.approx(2 * matches + answered)
        assert push_pull_plan(problem).cost == pytest.approx(plan.cost)
        assert inev_plan(problem, BUDGET_S).cost == pytest.approx(100.0)


def test_a_rule_in_one_piece_lets_one_type_ask_for_all_others() -> None:
    text = "define R() from A() and last B() within 1 s from A and not N() within 2 s from A"
    rates = {"A": {"c": 0.1}, "B": {"l": 5.0, "r": 5.0}, "N": {"l": 3.0, "r": 3.0}}
    problem = problem_of(text, rates)
    assert problem.queries[0].whole
    plan = inev_plan(problem, BUDGET_S, pull=True)
    assert faults(plan) == []
    assert sorted(pulls(plan)) == [("B", "A"), ("N", "A")]
    expected = 0.1 * 4 + 10 * (1 - math.exp(-0.1 * 1)) + 6 * (1 - math.exp(-0.1 * 2))
    assert plan.cost == pytest.approx(expected)
    for other in (push_pull_plan(problem), exact_plan(problem, pull=True)):
        assert faults(other) == []
        assert other.cost == pytest.approx(expected)
    assert inev_plan(problem, BUDGET_S).cost == exact_plan(problem).cost == pytest.approx(16.0)


def test_what_is_pushed_to_the_node_for_another_task_is_not_pulled() -> None:
    network = around({**FREQUENT, "C": {"c": 6.0}})
    guard = Query("guard", parse("NSEQ(A, N, B)"), {}, 1.0)
    repeat = Query("repeat", parse("AND(C, KL(N))"), {}, 1.0)
    queries = (guard, repeat)
    problem = Problem(network, queries, PhysicalCosts(network, queries=queries), {"guard": (0,), "repeat": (0,)})
    plan = inev_plan(problem, BUDGET_S, pull=True)
    assert faults(plan) == []
    assert pulls(plan) == []
    assert [each.source.projection.text for each in plan.transfers] == ["N", "N"]


# What is asked for, drawn at random ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "sides"), [("SEQ(A, B)", 1), ("AND(A, B)", 2)])
def test_the_share_that_is_answered_is_counted_in_a_drawn_trace(text: str, sides: int) -> None:
    rates, window_s, passing, seconds = {"A": 0.3, "B": 2.0}, 2.0, 0.4, 20_000.0
    network = event_network(["x", "y"], [("x", "y")], {type: {"x": rate} for type, rate in rates.items()})
    query = Query("q", parse(text), {frozenset("AB"): passing}, window_s)
    costs = PhysicalCosts(network, queries=(query,))
    draw = random.Random(1)
    times: dict[str, list[float]] = {}
    for type, rate in rates.items():
        now, times[type] = 0.0, []
        while (now := now + draw.expovariate(rate)) < seconds:
            times[type].append(now)
    wanted = 0
    for at in times["B"]:
        asking_from, asking_to = at - window_s, at + (window_s if sides == 2 else 0.0)
        near = bisect_right(times["A"], asking_to) - bisect_left(times["A"], asking_from)
        wanted += any(draw.random() < passing for _ in range(near))
    ask = Ask("B", primitive("A"), query.projection(frozenset("AB")), "A", query=query)
    assert costs.asked(ask) == rates["A"]
    assert costs.answered(ask) == pytest.approx(wanted / seconds, rel=0.03)


def test_only_events_that_come_with_a_projection_ask() -> None:
    network = around(FREQUENT)
    query = Query("q", parse("SEQ(A, B, N)"), {}, 2.0)
    costs = PhysicalCosts(network, queries=(query,))
    pair, whole = query.projection(frozenset("AB")), query.projection(frozenset("ABN"))
    asked = costs.asked(Ask("N", pair, whole, "A", query=query))
    assert asked == pytest.approx(0.1 * (1 - math.exp(-0.1 * 2.0)))


RULES = [
    ("SEQ(A a, B b, C c) WHERE a.v = b.v AND b.k > 3 WITHIN 2 s RETURN R()", 6),
    ("AND(A a, SEQ(B b, C c)) WHERE a.v = c.v WITHIN 2 s RETURN R()", 6),
    ("SEQ(A a, !N n, C c) WHERE a.v = n.v WITHIN 2 s RETURN R()", 4),
    ("SEQ(A a, C c, !N n) WITHIN 2 s RETURN R()", 4),
    ("SEQ(!N n, A a, C c) WITHIN 2 s RETURN R()", 4),
    ("AND(A a, C c, !N n) WITHIN 2 s RETURN R()", 4),
    ("SEQ(A a, B+ b[], C c) WHERE b.v = a.v WITHIN 2 s RETURN R()", 4),
    ("SEQ(A a, B+ b[], C c) WHERE b[i-1].v < b[i].v AND sum(b[].v) > a.v WITHIN 2 s RETURN R()", 4),
    ("SEQ(A a, B b, C c) WHERE SAME[k] WITHIN 2 s RETURN R()", 6),
    ("SEQ(A a, OR(B b, D d), C c) WITHIN 2 s RETURN R()", 6),
    ("AND(SEQ(A a, !N n, B b), D d) WITHIN 2 s RETURN R()", 9),
    ("SEQ(A a, !SEQ(N n, D d), C c) WITHIN 2 s RETURN R()", 2),
    ("SEQ(A a, B b) WITHIN 10 RETURN R()", 0),
    ("SEQ(A a, B b, C c) SKIP TILL NEXT MATCH WITHIN 2 s RETURN R()", 0),
    ("define R() from C() and each B() within 2 s from C and each A() within 1 s from B", 6),
    ("define R() from C() and last B() within 2 s from C and each A() within 1 s from B", 6),
    ("define R() from C(v = $x) and last B(v = $x) within 2 s from C and last A() within 1 s from C", 6),
    ("define R() from C() and each B() within 2 s from C and not N() within 3 s from B", 4),
    ("define R() from C() and each B() within 2 s from C and not N() between B and C", 4),
    ("define R() from C() and each B() within 2 s from C and 3 < Avg(N().v within 4 s from C)", 4),
]


def rule_of(text: str) -> Rule:
    language: Language = "tesla" if text.startswith("define") else "sase"
    (rule,) = parse_rules([Text(text, f"r.{language}", language)], TYPES).rules
    return rule


@pytest.mark.parametrize(("text", "pairs"), RULES)
def test_the_planner_knows_what_nodes_ask_for(text: str, pairs: int) -> None:
    """For every two roles: whether one may ask for the other, for how long, and with how many conditions."""
    rule = rule_of(text)
    found = asking(rule, lambda conditions: 0.5 ** len(conditions))
    assert len(found) == pairs
    roles = [leaf.role for leaf in leaves(rule.pattern.root)]
    may = masters(rule) if rule.pattern.skip == "any" and horizon_us(rule) is not None else ()
    for master in roles:
        for role in roles:
            reach = (
                reach_of(rule, master, frozenset((role,)), values=True) if master in may and role != master else None
            )
            known = found.get((master, role))
            assert (reach is None) == (known is None), (master, role)
            if reach is not None and known is not None:
                assert known.span_s == (reach.greatest_us - reach.least_us) / 1e6
                assert known.share == 0.5 ** sum(len(conditions) for _, conditions in reach.where)


def test_a_type_with_two_roles_neither_asks_nor_is_asked_for() -> None:
    rule = rule_of("SEQ(A a, A b, C c) WHERE a.v < 3 AND b.v > 5 WITHIN 2 s RETURN R()")
    assert asking(rule, lambda conditions: 0.5 ** len(conditions)) == {}


# Never costlier ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["c01", "c13", "c22", "c43"])
def test_with_pulling_plans_are_no_dearer_than_without_and_than_push_pull(name: str) -> None:
    """Clocks that count: what is looked for without pulling is the same in both."""
    problem = read_case(CASES / f"{name}.json").problem
    plans = []
    for attempts, pull in ((LOOKS * PUSHED_FIRST, False), (LOOKS, True)):
        search = Search(problem, Clock(attempts, count().__next__), pull=pull)
        plans.append(plan_from(search.space, search.run(), "inev"))
    without, with_it = plans
    assert faults(with_it) == []
    assert with_it.cost <= without.cost * (1 + 1e-9)
    assert with_it.cost <= push_pull_plan(problem).cost * (1 + 1e-9)
    assert {each.kind for each in without.transfers} == {"events"}
    if name == "c43":
        assert pulls(with_it)
        assert with_it.cost < 0.7 * without.cost


def drawn(seed: int, nodes: int = 8, length: int = 4, queries: int = 2) -> Problem:
    """A network with windows: a negated type in every query."""
    draw = random.Random(seed)
    names = [f"n{at}" for at in range(nodes)]
    links = [(names[draw.randrange(at)], names[at]) for at in range(1, nodes)]
    links.append((names[0], names[-1]))
    types = [chr(65 + at) for at in range(length + 1)]
    rates = {
        type: {
            name: draw.choice((0.001, 0.01, 0.1, 1.0)) * draw.uniform(0.5, 1.5)
            for name in draw.sample(names, draw.randint(1, nodes // 2))
        }
        for type in types
    }
    network = event_network(names, links, rates)
    made = []
    for number in range(queries):
        chosen = draw.sample(types, length)
        text = f"SEQ({', '.join(chosen[:-3])}, NSEQ({', '.join(chosen[-3:])}))"
        pairs = {
            frozenset((one, other)): draw.uniform(0.01, 0.5)
            for at, one in enumerate(chosen)
            for other in chosen[at + 1 :]
            if draw.random() < 0.5
        }
        made.append(Query(f"q{number}", parse(text), pairs, 1.0))
    queries_made = tuple(made)
    costs = PhysicalCosts(network, queries=queries_made)
    return Problem(network, queries_made, costs, {query.name: (draw.randrange(nodes),) for query in made})


def random_problems() -> Iterator[Problem]:
    for seed in range(6):
        yield drawn(seed)
        yield case_from(random_case(seed, nodes=10, types=7, queries=2, longest=5, negation=True), "random").problem


def test_random_plans_with_pulling_are_right_and_never_dearer() -> None:
    saved = 0
    for number, problem in enumerate(random_problems()):
        without = Search(problem, Clock(None), patient=False)
        with_it = Search(problem, Clock(None), patient=False, pull=True)
        pushed, plan = without.space.cost(without.run()), plan_from(with_it.space, with_it.run(), "inev")
        baseline = push_pull_plan(problem)
        assert faults(plan) == [], number
        assert faults(baseline) == [], number
        assert plan.cost == pytest.approx(with_it.space.cost(with_it.best))
        assert plan.cost <= pushed * (1 + 1e-9), number
        assert plan.cost <= baseline.cost * (1 + 1e-9), number
        assert plan.cost <= centralised(problem).cost * (1 + 1e-9), number
        shown = printed(plan)
        cost = math.fsum(len(each["edges"]) * each["rate"] for each in shown["transfers"])
        assert cost == pytest.approx(shown["cost"]) == pytest.approx(plan.cost)
        saved += plan.cost < 0.95 * pushed
    assert saved >= 3, "pulling is worth something in some of them"


def test_the_exact_planner_pulls_if_it_may_and_the_search_comes_close() -> None:
    ratios = []
    for seed in range(5):
        problem = drawn(seed, nodes=4, length=4, queries=1)
        pushed, exact = exact_plan(problem), exact_plan(problem, pull=True)
        search = Search(problem, Clock(None), patient=False, pull=True)
        found = search.space.cost(search.run())
        assert faults(exact) == []
        assert exact.cost <= min(pushed.cost, found, push_pull_plan(problem).cost) * (1 + 1e-9), seed
        ratios.append(found / exact.cost if exact.cost else 1.0)
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 3
    assert max(ratios) < 1.25


def test_asking_takes_the_way_there_and_back_and_obeys_a_latency_bound() -> None:
    problem = guarded(FREQUENT)
    free = inev_plan(problem, BUDGET_S, pull=True)
    assert latency(free, 0.0) == 2
    assert latency(inev_plan(problem, BUDGET_S), 0.0) == 1
    held = inev_plan(problem, BUDGET_S, LatencyBound(1.0, 0.0), pull=True)
    assert pulls(held) == []
    assert latency(held, 0.0) == 1
    assert held.cost == pytest.approx(10.0)


def test_a_budget_also_ends_a_search_that_may_pull() -> None:
    ticks = iter(range(1000))
    problem = read_case(CASES / "c22.json").problem
    search = Search(problem, Clock(3.0, now=lambda: float(next(ticks))), pull=True)
    found = search.space.cost(search.run())
    assert next(ticks) < 30
    assert found <= min(centralised(problem).cost, push_pull_plan(problem).cost)


# Judged, told, drawn, laid out ---------------------------------------------------------------------------------------


def test_what_is_wrong_with_asking_is_said() -> None:
    plan = inev_plan(guarded(FREQUENT), BUDGET_S, pull=True)
    (final,) = plan.finals.values()
    (pull,) = final.pulls

    def sentences(**changed: Any) -> str:
        task = replace(final, **changed)
        tasks = tuple(task if each == final else each for each in plan.tasks)
        return "; ".join(faults(replace(plan, tasks=tasks, finals={"q": task})))

    def by(**changed: Any) -> str:
        return sentences(pulls=(replace(pull, ask=replace(pull.ask, **changed)),))

    assert sentences() == ""
    assert "does not say where it must lie in every match" in by(master="N")
    assert "not everything is there" in by(by=primitive("N"))
    assert "not an event type that it reads" in by(type="A")
    one_way = tuple(each for each in plan.transfers if each.kind != "requests" or each.targets != (2,))
    assert "r does not hear that NSEQ(A, N, B) at c asks for its N" in faults(replace(plan, transfers=one_way))
    space = Space(plan.problem)
    whole = space.number(final.projection)
    raw = [space.raw(space.type_number[type]) for type in "ANB"]
    pulled = space.pulled(pull.ask)
    twice = plan_from(space, Solution({(whole, 0): (*raw, pulled)}, ((whole, 0),)), "by hand")
    assert any("which comes anyway" in fault for fault in faults(twice))
    of_a = space.nodes + space.type_number["A"]
    split = plan_from(space, Solution({(whole, of_a): (raw[0], raw[2], pulled)}, ((whole, of_a),)), "by hand")
    assert any("would have to ask for itself" in fault for fault in faults(split))


def test_a_pull_is_told_in_words_in_json_and_in_drawings() -> None:
    plan = inev_plan(guarded(FREQUENT), BUDGET_S, pull=True)
    words = "\n".join(in_words(told(plan)))
    assert "N stays where it is until each A asks for it (0.009516), then 0.04747 of 10 come" in words
    assert "0.0665 instead of 10 for all of it" in words
    assert "requests for N: 0.01903" in words
    shown = printed(plan)
    assert [each["pulled"] for each in shown["projections"]] == [{}, {"N": "A"}]
    asked = [each for each in shown["transfers"] if each["kind"] == "requests"]
    assert [(each["from"], each["to"], each["asked_by"]) for each in asked] == [("c", ["l"], "A"), ("c", ["r"], "A")]
    assert all(each["for"] == ["NSEQ(A, N, B)"] for each in shown["transfers"])
    assert "NSEQ(A, N, B) pulls N" in as_dot(plan)
    assert "NSEQ(A, N, B) pulls N" in as_svg(plan)


def problem_of(text: str, rates: dict[str, dict[str, float]]) -> Problem:
    rule = rule_of(text)
    return problem_from([rule], ("c", "l", "r"), around(rates), Statistics(rates), {rule.emits: (0,)})


def ground_of(rule: Rule, rates: dict[str, dict[str, float]]) -> Ground:
    sources = {name: tuple(sorted(at)) for name, at in rates.items()}
    return Ground(("c", "l", "r"), tuple(LINKS), sources, (("c", rule.emits),), (PlannedRule(rule, 0, None),))


@pytest.mark.parametrize(
    ("text", "master", "pulled"),
    [
        ("SEQ(A a, !N n, B b) WHERE a.v = n.v WITHIN 1 s RETURN R()", "a", {"n"}),
        ("define R() from A() and last N() within 1 s from A", "A", {"N"}),
    ],
)
def test_layouts_say_who_asks_and_what_waits(text: str, master: str, pulled: set[str]) -> None:
    rule = rule_of(text)
    ground = ground_of(rule, FREQUENT)
    layout, _ = InevPlanner(Statistics(FREQUENT))(ground, {})
    last = layout[rule.name][-1]
    assert (last.nodes, last.master, last.pulled) == (("c",), master, frozenset(pulled))
    assert last.pulled <= last.events
    without, _ = InevPlanner(Statistics(FREQUENT, pull=False))(ground, {})
    assert all((stage.master, stage.pulled) == (None, frozenset()) for stage in without[rule.name])


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater.deploy.cli.command", "plan", *map(str, arguments)],
        capture_output=True, text=True, cwd=PROJECT, check=False,
    )  # fmt: skip


def kinds(*arguments: str | Path) -> set[str]:
    done = command(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    cost = math.fsum(len(each["edges"]) * each["rate"] for each in shown["transfers"])
    assert cost == pytest.approx(shown["cost"])
    return {each["kind"] for each in shown["transfers"]}


NETWORK = """
events: {A: {v: int}, B: {v: int}, N: {v: int}}
nodes: [c, l, r]
links: [{between: [c, l]}, {between: [c, r]}]
sources:
  - {node: c, type: A, rate: 6/min, values: {v: 1}}
  - {node: c, type: B, rate: 6/min, values: {v: 1}}
  - {node: l, type: N, rate: 5/s, values: {v: 1}}
  - {node: r, type: N, rate: 5/s, values: {v: 1}}
sinks: [{node: c, subscribe: Quiet}]
rules:
  - |
    Quiet: SEQ(A a, !N n, B b) WITHIN 1 s RETURN Quiet()
"""


def test_networks_pull_unless_told_not_to_and_case_files_only_if_told(tmp_path: Path) -> None:
    network = tmp_path / "network.yaml"
    network.write_text(NETWORK, encoding="utf-8")
    assert kinds(network) == {"requests", "answers"}
    assert kinds(network, "--no-pull") == {"events"}
    assert "requests" in kinds(CASES / "c43.json", "--pull", "--budget", "1")
    assert kinds(CASES / "c43.json") == {"events"}
    refused = command(network, "--pull", "--planner", "centr")
    assert refused.returncode == 2
    assert "--pull and --no-pull are for the planners inev and exact" in refused.stderr
    network.write_text(NETWORK + "statistics: {pull: off}\n", encoding="utf-8")
    assert kinds(network) == {"events"}
    assert kinds(network, "--pull") == {"requests", "answers"}
