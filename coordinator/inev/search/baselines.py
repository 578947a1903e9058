"""Baselines for plans: everything on one node, and operator placement with push and pull."""

from __future__ import annotations

from dataclasses import replace

from headwater.coordinator.inev.model.problem import Problem, primitive
from headwater.coordinator.inev.model.role_types import born_type
from headwater.coordinator.inev.plan.plans import Placement, Plan, TaskInput, Transfer, plan_from
from headwater.coordinator.inev.search.space import Solution, Space, Stream
from headwater.protocol.strategy import CENTRAL


def central_solution(space: Space, node: int) -> Solution:
    """Everything that a query reads goes to one node, filtered where it is born."""
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
    for type in _born(space.problem):
        for source, rate in space.problem.network.rates[type].items():
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


def _born(problem: Problem) -> list[str]:
    """The types that any query reads, without the conditions of roles."""
    return list(dict.fromkeys(born_type(type) for type in problem.types))


def centralised(problem: Problem) -> Plan:
    """What strategy ``centr`` sends, with the cheapest node as its centre: every event of every type that a query
    reads, whether it meets the conditions of its role or not, by a shortest way, once; and composites to the sinks."""
    space = Space(problem)
    node = best_centre(space)
    plan = plan_from(space, central_solution(space, node), CENTRAL)
    if _born(problem) == list(problem.types):
        return plan
    transfers = []
    for type in _born(problem):
        read = TaskInput(primitive(type), Placement(split_by=type))
        for source, rate in sorted(problem.network.rates[type].items()):
            links = space.topology.reaching(source, space.signature(1 << node))
            if links:
                transfers.append(Transfer(read, source, links, rate, (node,)))
    delivered = [transfer for transfer in plan.transfers if transfer.kind in ("composites", "lookups")]
    return replace(plan, transfers=(*transfers, *delivered), unfiltered=True)


def at_most_centralised(plan: Plan) -> Plan:
    """The plan, or centralised evaluation where that is cheaper: a type that is read with many conditions may cost more
    filtered, once for each of them, than as it is."""
    centre = centralised(plan.problem)
    return replace(centre, planner=plan.planner) if centre.cost < plan.cost * (1 - 1e-9) else plan
