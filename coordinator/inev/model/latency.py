"""How long matches take (section 5.4): work at the nodes, weighted by a factor, and hops between them.

The work of a vertex is the number of partial matches it creates per unit of time, taken as the summed rates of the
proper prefixes of its projection in the order of its pattern, divided among the nodes of its placement. What is asked
for takes the way to its furthest source and back, once all else is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.coordinator.inev.model.patterns import leaves, negated
from headwater.coordinator.inev.model.problem import Problem, Projection
from headwater.coordinator.inev.model.topology import bit_positions
from headwater.coordinator.inev.plan.plans import Plan, Vertex


@dataclass(frozen=True, slots=True)
class LatencyBound:
    """Plans slower than ``at_most`` are refused; ``factor`` weighs work at nodes against hops."""

    at_most: float
    factor: float = 1.0

    def obeyed(self, took: float) -> bool:
        return took <= self.at_most * (1 + 1e-12)


def partial_matches(projection: Projection, problem: Problem) -> float:
    """The rate at which partial matches of a projection come into being, over all its nodes."""
    query = next(
        query
        for query in problem.queries
        if projection.types <= set(query.types) and query.projection(projection.types).key == projection.key
    )
    skipped = negated(projection.pattern)
    order = [type for type in leaves(projection.pattern) if type not in skipped]
    total = 0.0
    for length in range(1, len(order)):
        if length == 1:
            total += problem.network.total(order[0])
        else:
            total += problem.costs.rate(query.projection(frozenset(order[:length])))
    return total


def hops_within(problem: Problem, vertex: Vertex) -> dict[int, int]:
    """For every node that a vertex reaches: how many of its links lie between."""
    far, level = {vertex.node: 0}, [vertex.node]
    near: dict[int, list[int]] = {}
    for number in bit_positions(vertex.links):
        one, other = problem.network.topology.links[number]
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    while level:
        following = []
        for node in level:
            for other in near.get(node, ()):
                if other not in far:
                    far[other] = far[node] + 1
                    following.append(other)
        level = following
    return far


def latencies(vertices: Sequence[Vertex], problem: Problem, factor: float) -> list[float]:
    """The latency of every vertex; inputs must stand before what reads them."""
    work: dict[str, float] = {}
    by_vertex: list[float] = []
    far = [hops_within(problem, vertex) for vertex in vertices]
    for vertex in vertices:
        if not vertex.parts:
            by_vertex.append(0.0)
            continue
        key = vertex.projection.key
        if key not in work:
            work[key] = partial_matches(vertex.projection, problem)
        hops = max((far[part][vertex.node] for part in vertex.parts if part not in vertex.asked), default=0)
        hops += 2 * max((far[part][vertex.node] for part in vertex.asked), default=0)
        by_vertex.append(factor * work[key] / vertex.of + hops + max(by_vertex[part] for part in vertex.parts))
    return by_vertex


def latency(plan: Plan, factor: float = 1.0) -> float:
    """The greatest latency of any query, delivery to its sinks included: what the plan as a whole is judged by."""
    problem, vertices = plan.problem, plan.vertices
    by_vertex = latencies(vertices, problem, factor)
    delivered = {
        (transfer.query, transfer.node): transfer.links for transfer in plan.transfers if transfer.kind == "composites"
    }
    greatest = 0.0
    for name, task in plan.finals.items():
        sinks = problem.sinks.get(name, ())
        for vertex, value in zip(vertices, by_vertex, strict=True):
            if vertex.projection.key != task.projection.key or vertex.node not in task.nodes:
                continue
            # Composites have links of their own where they are something else than the matches that others read.
            links = delivered.get((name, vertex.node), vertex.links)
            far = hops_within(problem, replace(vertex, links=links)) if sinks else {}
            greatest = max(greatest, value + max((far.get(sink, 0) for sink in sinks), default=0))
    return greatest
