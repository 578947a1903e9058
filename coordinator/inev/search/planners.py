"""The planners that can be asked for a plan of a whole problem, one row each: a new planner is a new row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headwater.coordinator.inev.model.latency import LatencyBound
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.plans import Plan
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import inev_plan
from headwater.protocol.strategy import CENTRAL


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a planner is given; each uses what it can."""

    problem: Problem
    budget_s: float | None = None
    bound: LatencyBound | None = None
    seed: int = 0
    pull: bool = False


@dataclass(frozen=True, slots=True)
class ProblemPlanner:
    """How a planner is called, and what it is able to do."""

    name: str
    plan: Callable[[PlanRequest], Plan]
    may_pull: bool = False
    """It can be told whether to pull; the others always pull, or never."""
    falls_back: bool = False
    """Stages of its plans have a fall-back for rates that are not as expected."""
    obeys_bounds: bool = False
    """It looks for plans within a latency bound."""
    is_exact: bool = False
    """No plan is cheaper than its own."""


def _inev(asked: PlanRequest) -> Plan:
    return inev_plan(asked.problem, asked.budget_s, asked.bound, asked.seed, asked.pull)


def _exact(asked: PlanRequest) -> Plan:
    return exact_plan(asked.problem, asked.budget_s, asked.pull)


ALL: Final = (
    ProblemPlanner("inev", _inev, may_pull=True, falls_back=True, obeys_bounds=True),
    ProblemPlanner("exact", _exact, may_pull=True, falls_back=True, is_exact=True),
    ProblemPlanner(CENTRAL, lambda asked: centralised(asked.problem)),
    ProblemPlanner("push-pull", lambda asked: push_pull_plan(asked.problem)),
)
"""In the order in which they are shown."""

DEFAULT: Final = ALL[0]
PLANNERS: Final = {planner.name: planner for planner in ALL}
