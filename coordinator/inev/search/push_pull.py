"""The push-pull baseline: every query on one node, to which rare events are pushed and frequent ones pulled.

Types are gathered one after the other. A pushed type comes whole. A pulled one is asked for by what is there already,
and only the events that fit come back (``pulling``). For every node and query all orders and choices are weighed (a
dynamic programme over the sets of types that are there). Where several queries end on one node, what is pushed to it
crosses the network once; where it is cheaper to push everything to one node, that is done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.search.baselines import at_most_centralised, best_centre, central_solution
from headwater.coordinator.inev.search.pulling import cheapest, pushed_inputs
from headwater.coordinator.inev.search.query_search import QuerySearch
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task, Tasks


@dataclass(frozen=True, slots=True)
class Step:
    """A type, by its position in the query, joins what is there: pushed, or asked for by all of that, or, where nothing
    is put together before all is there, by one type of it."""

    at: int
    pulled: bool = False
    master: str | None = None


def push_pull_plan(problem: Problem) -> Plan:
    space = Space(problem)
    queries = [QuerySearch(space, at) for at in range(len(problem.queries))]
    # Queries are placed one after the other, each where it is cheapest by itself: together they may cost more than one
    # node that all events are pushed to.
    gathered = central_solution(space, best_centre(space))
    solution = min(push_pull_solution(space, queries), gathered, key=space.cost)
    return at_most_centralised(plan_from(space, solution, "push-pull"))


def push_pull_solution(space: Space, queries: list[QuerySearch]) -> Solution:
    tasks: Tasks = {}
    finals: list[Task] = []
    pushed: dict[int, int] = {}
    for query in queries:
        node, steps = _cheapest(space, query, space.sink_masks[query.number], pushed)
        for step in steps:
            if not step.pulled:
                type = query.types[step.at]
                pushed[type] = pushed.get(type, 0) | 1 << node
        finals.append((query.projection[query.whole], node))
        tasks = {**_tasks(space, query, node, steps), **tasks}
    solution = Solution(space.needed(tasks, finals), tuple(finals))
    # Queries on one node that each ask for a part of a type may better have all of it.
    while True:
        better = min(pushed_inputs(space, solution), key=space.cost, default=solution)
        if space.cost(better) >= space.cost(solution):
            return solution
        solution = better


def _tasks(space: Space, query: QuerySearch, node: int, steps: list[Step]) -> Tasks:
    """One task for everything until something is asked for, then another that asks, and so on, all on the node."""
    tasks: Tasks = {}
    there: list[Stream] = []
    mask = 0

    def put_together() -> None:
        nonlocal there
        projection = query.projection[mask]
        if mask & (mask - 1) and there != [Stream(projection, node)]:
            tasks[projection, node] = tuple(there)
            there = [Stream(projection, node)]

    for step in steps:
        type = query.types[step.at]
        pulled = None
        if step.pulled:
            after = query.whole
            if step.master is None:
                put_together()
                after = mask | 1 << step.at
            pulled = cheapest(space, query.query, (query.projection[after], node), there, type, step.master)
        mask |= 1 << step.at
        there.append(space.raw(type) if pulled is None else pulled)
        if pulled is not None and step.master is None:
            put_together()
    if mask & (mask - 1):
        put_together()
    else:
        tasks[query.projection[mask], node] = tuple(there)
    return tasks


def _cheapest(space: Space, query: QuerySearch, sinks: int, pushed: dict[int, int]) -> tuple[int, list[Step]]:
    best: tuple[float, int, list[Step]] = (math.inf, 0, [])
    if query.whole & (query.whole - 1) == 0:
        return best_centre(Space(space.problem.single(query.query.name))), [Step(0)]
    for node in range(space.nodes):
        cost, steps = _gathered(space, query, node, pushed)
        if sinks:
            cost += space.price(space.delivery(query.number, (query.projection[query.whole], node)), sinks)
        if cost < best[0]:
            best = cost, node, steps
    return best[1], best[2]


def _gathered(space: Space, query: QuerySearch, node: int, pushed: dict[int, int]) -> tuple[float, list[Step]]:
    """The cheapest way to have what the query needs on a node."""
    push = []
    for type in query.types:
        stream, carried = space.raw(type), pushed.get(type, 0)
        push.append(space.price(stream, carried | 1 << node) - (space.price(stream, carried) if carried else 0.0))
    cost: dict[int, float] = {0: 0.0}
    last: dict[int, tuple[int, Step]] = {}
    for mask in range(1, query.whole + 1):
        pull_prices = {before: row[node] for before, row in query.pulls(mask)} if mask in query.projection else {}
        for at in range(len(query.types)):
            if not mask >> at & 1:
                continue
            before = mask ^ 1 << at
            for total, step in (
                (cost[before] + push[at], Step(at)),
                (cost[before] + pull_prices.get(before, math.inf), Step(at, pulled=True)),
            ):
                if total < cost.get(mask, math.inf):
                    cost[mask], last[mask] = total, (before, step)
    steps = []
    mask = query.whole
    while mask:
        mask, step = last[mask]
        steps.append(step)
    best = cost[query.whole], steps[::-1]
    for bit, rows in query.masters(query.whole) if not query.splits(query.whole) else ():
        pull_prices = {
            at: row[node] for at in range(len(query.types)) if (row := rows.get(1 << at)) and row[node] < push[at]
        }
        total = sum(pull_prices.get(at, price) for at, price in enumerate(push))
        if total < best[0]:
            name = query.query.types[bit.bit_length() - 1]
            first = [Step(at) for at in range(len(push)) if at not in pull_prices]
            best = total, [*first, *(Step(at, pulled=True, master=name) for at in pull_prices)]
    return best
