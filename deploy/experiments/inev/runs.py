"""One run of the experiment: draws a problem, plans it, and evaluates the plan."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from headwater.coordinator.inev.model.case_costs import estimate
from headwater.coordinator.inev.model.latency import LatencyBound, latency
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.paper import paper_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.coordinator.inev.search.space import Solution, Space
from headwater.deploy.experiments.inev.generator import build, draw_case, with_rates
from headwater.deploy.experiments.inev.repair import changed
from headwater.deploy.experiments.inev.scenario import PlanScenario
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.results import KEY_COLUMNS

COLUMNS: Final = (
    *KEY_COLUMNS,
    "ratio",
    "cost",
    "centralised",
    "estimate_ratio",
    "over_exact",
    "seconds",
    "projections",
    "split",
    "latency_ratio",
    "isolated_ratio",
    "spread",
    "broken",
    "repaired",
    "replanned",
    "invalid_projections",
    "invalid_placements",
    "measured_ratio",
    "delay_ms",
    "delay_ratio",
    "load_ratio",
    "delivered",
    "delivered_centr",
    "wall_s",
)

Figures = dict[str, float | None]

RATE_LEAST: Final = 0.01  # of the planned rate: what varies never falls silent


def run_job(job: Job, progress: Callable[[float], None]) -> Figures:
    """What a run gives, by column; None for what it does not measure."""
    began = time.perf_counter()
    figures: Figures = dict.fromkeys(COLUMNS[len(KEY_COLUMNS) :])
    if isinstance(job.scenario, PlanScenario):
        figures |= KINDS[job.scenario.kind](job.scenario, job.seed)
    else:
        figures |= job.scenario.measured(job.seed, progress)
    figures["wall_s"] = time.perf_counter() - began
    assert set(figures) == set(COLUMNS) - set(KEY_COLUMNS)
    return figures


def searched(problem: Problem, scenario: PlanScenario, bound: LatencyBound | None = None) -> tuple[Search, Solution]:
    """The planner, stopped after a number of attempts instead of a time, so that runs can be repeated anywhere."""
    clock = Clock(scenario.attempts)
    search = Search(problem, clock, bound, patient=len(problem.queries) > 1)
    return search, search.run()


def planned(problem: Problem, scenario: PlanScenario, bound: LatencyBound | None = None) -> Plan:
    if scenario.planner == "paper":
        plan = paper_plan(problem)
    elif scenario.planner == "push-pull":
        plan = push_pull_plan(problem)
    else:
        search, solution = searched(problem, scenario, bound)
        plan = plan_from(search.space, solution, "inev")
    wrong = faults(plan)
    assert not wrong, wrong
    return plan


def _judged(plan: Plan, seconds: float) -> Figures:
    problem = plan.problem
    centre = centralised(problem).cost
    return {
        "ratio": plan.cost / centre,
        "cost": plan.cost,
        "centralised": centre,
        "estimate_ratio": estimate(problem) / centre,
        "seconds": seconds,
        "projections": sum(len(query.subsets()) for query in problem.queries),
        "split": sum(task.placement.split_by is not None and len(task.inputs) > 1 for task in plan.tasks),
    }


def _timed_plan(scenario: PlanScenario, seed: int, bound: LatencyBound | None = None) -> tuple[Plan, Figures]:
    problem = build(scenario, seed)
    began = time.perf_counter()
    plan = planned(problem, scenario, bound)
    return plan, _judged(plan, time.perf_counter() - began)


def _plan(scenario: PlanScenario, seed: int) -> Figures:
    return _timed_plan(scenario, seed)[1]


def _bound(scenario: PlanScenario, seed: int) -> Figures:
    """Against the cheapest plan that there is."""
    plan, figures = _timed_plan(scenario, seed)
    least = exact_plan(plan.problem).cost
    return figures | {"over_exact": plan.cost / least if least else 1.0}


def _sharing(scenario: PlanScenario, seed: int) -> Figures:
    """Against plans that were made for each query as if it were alone, and run side by side."""
    plan, figures = _timed_plan(scenario, seed)
    problem = plan.problem
    alone = sum(planned(problem.single(query.name), scenario).cost for query in problem.queries)
    return figures | {"isolated_ratio": plan.cost / alone if alone else 1.0}


def _orders(scenario: PlanScenario, seed: int) -> Figures:
    """How far the results of the same workload spread if its queries come in other orders."""
    problem = build(scenario, seed)
    centre = centralised(problem).cost
    ratios = []
    for number in range(scenario.orders):
        queries = list(problem.queries)
        Random(f"{seed}/order/{number}").shuffle(queries)
        ratios.append(planned(Problem(problem.network, tuple(queries), problem.costs), scenario).cost / centre)
    return {"ratio": statistics.fmean(ratios), "centralised": centre, "spread": statistics.pstdev(ratios)}


def _swaps(scenario: PlanScenario, seed: int) -> Figures:
    case = draw_case(scenario, seed)
    rates = {name: float(event_type["local_rate"]) for name, event_type in case["event_types"].items()}
    new = swapped(rates, scenario.swapped)
    at = {
        name: {str(node): new[name] for node in event_type["sources"]}
        for name, event_type in case["event_types"].items()
    }
    return _under_other_rates(scenario, seed, with_rates(case, at))


def swapped(rates: Mapping[str, float], share: float) -> dict[str, float]:
    """Rates exchanged in pairs, from the middle of their order outwards, until this share of the types has another."""
    order = sorted(rates, key=lambda name: (rates[name], name))
    new = dict(rates)
    pairs = len(order) // 2
    for step in range(min(pairs, round(share * len(order) / 2))):
        low, high = order[pairs - 1 - step], order[len(order) - pairs + step]
        new[low], new[high] = rates[high], rates[low]
    return new


def _variance(scenario: PlanScenario, seed: int) -> Figures:
    case = draw_case(scenario, seed)
    at: dict[str, dict[str, float]] = {}
    for name, event_type in case["event_types"].items():
        planned_rate = float(event_type["local_rate"])
        draw = Random(f"{seed}/variance/{name}")
        at[name] = {
            str(node): planned_rate * max(RATE_LEAST, 1 + scenario.variance * draw.gauss(0, 1))
            for node in event_type["sources"]
        }
    return _under_other_rates(scenario, seed, with_rates(case, at))


def _under_other_rates(scenario: PlanScenario, seed: int, now: Problem) -> Figures:
    search, solution = searched(build(scenario, seed), scenario)
    space = Space(now)
    change = changed(search.space, solution, space)
    centre = centralised(now).cost
    again = planned(now, scenario)
    return _judged(plan_from(search.space, solution, "inev"), 0.0) | {
        "seconds": None,
        "broken": space.cost(change.broken) / centre,
        "repaired": space.cost(change.repaired) / centre,
        "replanned": again.cost / centre,
        "invalid_projections": change.harmful / change.projections if change.projections else 0.0,
        "invalid_placements": change.invalid / change.placements if change.placements else 0.0,
    }


def _latency(scenario: PlanScenario, seed: int) -> Figures:
    problem = build(scenario, seed)
    centre = latency(centralised(problem), scenario.latency_factor)
    bound = LatencyBound(centre, scenario.latency_factor) if scenario.bounded else None
    plan, figures = _timed_plan(scenario, seed, bound)
    return figures | {"latency_ratio": latency(plan, scenario.latency_factor) / centre}


KINDS: Final[Mapping[str, Callable[[PlanScenario, int], Figures]]] = {
    "plan": _plan,
    "bound": _bound,
    "sharing": _sharing,
    "orders": _orders,
    "swaps": _swaps,
    "variance": _variance,
    "latency": _latency,
}


def seconds_of(job: Job) -> float:
    """About how long a run takes on one core."""
    scenario = job.scenario
    if not isinstance(scenario, PlanScenario):
        return float(scenario.seconds())
    types = scenario.length or 5
    once = 0.004 * 2**types * scenario.nodes / 20
    if scenario.queries > 1:
        once = scenario.queries * scenario.attempts * 0.0004 * scenario.nodes / 20
    if scenario.planner != "inev":
        once *= 0.2
    times = {"orders": scenario.orders, "swaps": 2, "variance": 2, "sharing": 2, "latency": 1 + 3 * scenario.bounded}
    return float(0.05 + once * times.get(scenario.kind, 1))
