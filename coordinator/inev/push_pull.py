"""The second baseline: every query on one node, to which rare events are pushed and frequent ones pulled.

Types are gathered one after the other. A pushed type comes whole. A pulled one is asked for with every match of what
is there already, along a tree to its sources, and only the events that fit come back. For every node and query all
orders and choices are weighed (a dynamic programme over the sets of types that are there). Where several queries end
on one node, what is pushed to it crosses the network once; where it is cheaper to push everything to one node, that is
done.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from coordinator.inev.baselines import at_most_centralised, best_centre, central_solution
from coordinator.inev.graph import bit_positions
from coordinator.inev.model import Problem
from coordinator.inev.plans import Input, PlacedTask, Placement, Plan, Transfer, plan_from
from coordinator.inev.query_search import QuerySearch
from coordinator.inev.space import Space, Stream


@dataclass(frozen=True, slots=True)
class Step:
    """A type joins what is there: pushed, or pulled by matches at the rate ``asked``, which bring ``answered``."""

    type: int
    asked: float | None = None
    answered: float = 0.0


def push_pull_plan(problem: Problem) -> Plan:
    space = Space(problem)
    tasks: list[PlacedTask] = []
    finals: dict[str, PlacedTask] = {}
    pushed: dict[int, int] = {}
    pulled: dict[tuple[int, int], tuple[float, float]] = {}
    delivered: dict[Stream, int] = {}
    for at, query in enumerate(problem.queries):
        search = QuerySearch(space, at)
        projection = space.projections[search.projection[search.whole]]
        node, steps = _cheapest(space, search, space.sink_masks[at], pushed)
        for step in steps:
            if step.asked is None:
                pushed[step.type] = pushed.get(step.type, 0) | 1 << node
            else:
                known = pulled.get((step.type, node), (0.0, 0.0))
                pulled[step.type, node] = known[0] + step.asked, known[1] + step.answered
        inputs = tuple(Input(space.projections[type], Placement(split_by=space.types[type])) for type in search.types)
        task = PlacedTask(projection, Placement(node=node), (node,), inputs)
        tasks.append(task)
        finals[query.name] = task
        if space.sink_masks[at]:
            stream = space.delivery(at, (search.projection[search.whole], node))
            delivered[stream] = delivered.get(stream, 0) | space.sink_masks[at]
    transfers: list[Transfer] = []
    for type, mask in pushed.items():
        transfers += _transfers(space, space.raw(type), mask, space.rates[type], "events")
    for (type, node), (asked, answered) in pulled.items():
        sources = space.masks[space.nodes + type]
        asker = Input(space.projections[type], Placement(node=node))
        links = space.topology.spanning([node, *bit_positions(sources)])
        if links:
            transfers.append(Transfer(asker, node, links, asked, tuple(bit_positions(sources)), "requests"))
        transfers += _transfers(space, space.raw(type), 1 << node, min(answered, space.rates[type]), "answers")
    for stream, mask in delivered.items():
        rate = space.rates[stream.projection]
        if stream.sent < 0:
            rate = problem.costs.delivered(problem.queries[-1 - stream.sent])
        transfers += _transfers(space, stream, mask, rate, "composites" if stream.sent else "events")
    found = Plan(problem, "push-pull", tuple(dict.fromkeys(tasks)), finals, tuple(transfers))
    # Queries are placed one after the other, each where it is cheapest by itself: together they may cost more than one
    # node that all events are pushed to.
    gathered = plan_from(space, central_solution(space, best_centre(space)), "push-pull")
    return at_most_centralised(min(found, gathered, key=lambda plan: plan.cost))


def _transfers(space: Space, stream: Stream, mask: int, rate: float, kind: str) -> list[Transfer]:
    place = stream.place
    where = Placement(node=place) if place < space.nodes else Placement(split_by=space.types[place - space.nodes])
    read = Input(space.projections[stream.projection], where)
    query = space.problem.queries[-1 - stream.sent].name if stream.sent < 0 else None
    found = []
    for node, part in space.at[place]:
        links = space.topology.spanning([node, *bit_positions(mask)])
        if links:
            found.append(Transfer(read, node, links, rate * part, tuple(bit_positions(mask)), kind, query))
    return found


def _cheapest(space: Space, query: QuerySearch, sinks: int, pushed: dict[int, int]) -> tuple[int, list[Step]]:
    best: tuple[float, int, list[Step]] = (math.inf, 0, [])
    if query.whole & (query.whole - 1) == 0:
        return best_centre(Space(space.problem.single(query.query.name))), [Step(query.types[0])]
    for node in range(space.nodes):
        cost, steps = _gathered(space, query, node, pushed)
        if sinks:
            cost += space.price(space.delivery(query.number, (query.projection[query.whole], node)), sinks)
        if cost < best[0]:
            best = cost, node, steps
    return best[1], best[2]


def _gathered(space: Space, query: QuerySearch, node: int, pushed: dict[int, int]) -> tuple[float, list[Step]]:
    """The cheapest way to have what the query needs on a node."""
    cost: dict[int, float] = {0: 0.0}
    last: dict[int, tuple[int, Step]] = {}
    for mask in range(1, query.whole + 1):
        for at, type in enumerate(query.types):
            if not mask >> at & 1:
                continue
            before = mask ^ 1 << at
            if before not in cost:
                continue
            stream, carried = space.raw(type), pushed.get(type, 0)
            push = space.price(stream, carried | 1 << node) - (space.price(stream, carried) if carried else 0.0)
            options = [(cost[before] + push, Step(type))]
            pull = _pull(space, query, before, mask, at, node)
            if pull is not None:
                options.append((cost[before] + pull[0], pull[1]))
            for total, step in options:
                if total < cost.get(mask, math.inf):
                    cost[mask], last[mask] = total, (before, step)
    steps = []
    mask = query.whole
    while mask:
        mask, step = last[mask]
        steps.append(step)
    return cost[query.whole], steps[::-1]


def _pull(space: Space, query: QuerySearch, before: int, mask: int, at: int, node: int) -> tuple[float, Step] | None:
    """What pulling a type costs; None where what is there has no matches that could ask."""
    if before not in query.projection or (mask not in query.projection):
        return None
    type = query.types[at]
    asked = space.rates[query.projection[before]]
    share = space.problem.costs.selected(space.types[type], space.projections[query.projection[mask]])
    answered = space.rates[type] * share if share is not None else space.rates[query.projection[mask]]
    answered = min(answered, space.rates[type])
    tree = space.topology.size(space.signature(space.masks[space.nodes + type] | 1 << node))
    back = space.reach(space.nodes + type, 1 << node)[0]
    return asked * tree + answered * back, Step(type, asked, answered)
