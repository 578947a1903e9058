"""Everything that is planned for some workloads, as text: the plan, the layout, the graphs of all nodes.

    python -m tests.planners.planned_workloads FIRST LAST [hurried]

``hurried``: all clocks jump whenever they are looked at, as on a machine that has no time for the planner.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from itertools import count
from typing import Any

from headwater.coordinator.inev.plan.description import as_json, in_words
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.layout.graph_building import laid
from headwater.deploy.cli.plan import planned
from tests.planners.workloads import workload

ATTEMPTS = 40
BUDGET_S = 0.05
JUMP_S = 50.0


def as_text(value: Any) -> str:
    """The same text for equal values: what has no order is sorted."""
    if is_dataclass(value) and not isinstance(value, type):
        shown = ", ".join(as_text(getattr(value, each.name)) for each in fields(value) if each.repr)
        return f"{type(value).__name__}({shown})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{as_text(key)}: {as_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(as_text, value))) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(as_text, value)) + ")"
    return repr(value)


def planned_text(seed: int) -> str:
    """What a coordinator plans for a workload, and what the command says."""
    drawn = workload(seed)
    planner = InevPlanner(drawn.statistics, attempts=ATTEMPTS)
    plan = planner.plan(drawn.ground, {})
    layout, routes = planner(drawn.ground, {})
    graphs = laid(drawn.ground, layout, routes, drawn.ground.nodes[0], 1, 1)
    told = [as_text(layout), as_text(graphs)]
    if plan is not None:
        told += map(as_text, (plan.tasks, plan.finals, plan.transfers, plan.fall_backs, plan.vertices))
        terms, pull = drawn.statistics.latency, drawn.statistics.pull
        outcome = planned(plan.problem, "inev", BUDGET_S, terms, seed, pull=pull)
        shown = as_json(outcome, numbers=False)
        del shown["seconds"]
        told.append(as_text(shown))
        told += (line for line in in_words(outcome) if not line.startswith("planned in"))
    return "\n".join((f"seed {seed}", *told))


def _hurry() -> None:
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time"):
        vars(time)[name] = (each * JUMP_S for each in count()).__next__


if __name__ == "__main__":
    if "hurried" in sys.argv:
        _hurry()
    for each in range(int(sys.argv[1]), int(sys.argv[2])):
        print(planned_text(each))
