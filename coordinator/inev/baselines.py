"""What plans are compared with: everything on one node, and operators placed with pushing and pulling."""

from __future__ import annotations

from coordinator.inev.model import Problem
from coordinator.inev.plans import Plan, plan_from
from coordinator.inev.space import Solution, Space, Stream


def central_solution(space: Space, node: int) -> Solution:
    """Every event of every type that a query reads goes to one node."""
    tasks, finals = {}, []
    for query in space.problem.queries:
        projection = space.number(query.projection(frozenset(query.types)))
        inputs = tuple(space.raw(space.type_number[type]) for type in query.types)
        tasks[projection, node] = inputs
        finals.append((projection, node))
    return Solution(tasks, tuple(finals))


def central_costs(space: Space) -> list[float]:
    """The cost of centralised evaluation at each node, delivery to the sinks included."""
    costs = [0.0] * space.nodes
    for type in range(len(space.types)):
        for source, part in space.at[space.nodes + type]:
            rate = part * space.rates[type]
            for node, hops in enumerate(space.topology.hops(source)):
                costs[node] += rate * hops
    delivered: dict[Stream, int] = {}
    for number, (query, sinks) in enumerate(zip(space.problem.queries, space.sink_masks, strict=True)):
        if sinks:
            stream = space.delivery(number, (space.number(query.projection(frozenset(query.types))), 0))
            delivered[stream] = delivered.get(stream, 0) | sinks
    for stream, sinks in delivered.items():
        for node in range(space.nodes):
            costs[node] += space.price(stream._replace(place=node), sinks)
    return costs


def best_centre(space: Space) -> int:
    """The node at which centralised evaluation is cheapest; the first among equals."""
    costs = central_costs(space)
    return min(range(space.nodes), key=lambda node: (costs[node], node))


def centralised(problem: Problem) -> Plan:
    space = Space(problem)
    return plan_from(space, central_solution(space, best_centre(space)), "centr")
