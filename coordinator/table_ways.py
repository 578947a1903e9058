"""The ways to remote tables: which neighbour a node asks that does not reach a table itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from heapq import heappop, heappush

from headwater.coordinator.shortest_paths import LinkName
from headwater.protocol.messages.plans import TableWay
from headwater.protocol.network import Network

Distance = tuple[int, int]
"""The delay of a way in microseconds, and its number of links. The second number makes each step cost something, so
that ways never lead in a circle, even where links take no time."""


def table_ways(
    network: Network, nodes: Collection[str], links: Iterable[LinkName]
) -> dict[str, tuple[TableWay, ...]]:
    """For each node the ways to the tables that it does not reach, over nodes and links that are left."""
    delays = _delays(network, nodes, links)
    ways: dict[str, list[TableWay]] = {node: [] for node in nodes}
    for table in network.tables:
        if not table.at:
            continue
        distances = _distances(delays, table.at)
        for node in nodes:
            if node not in table.at:
                ways[node].append(TableWay(table.name, _next(node, delays, distances)))
    return {node: tuple(found) for node, found in ways.items() if found}


def hops_to_tables(network: Network, nodes: Collection[str], links: Iterable[LinkName]) -> dict[str, dict[str, int]]:
    """By table and node, how many links a question crosses on its way to a node that reaches the table."""
    delays = _delays(network, nodes, links)
    return {
        table.name: {node: hops for node, (_, hops) in _distances(delays, table.at or nodes).items()}
        for table in network.tables
    }


def _delays(network: Network, nodes: Collection[str], links: Iterable[LinkName]) -> dict[str, dict[str, int]]:
    left = {frozenset(link) for link in links}
    return {
        node: {
            other: link.delay_us
            for other, link in around.items()
            if other in nodes and other != node and frozenset((node, other)) in left
        }
        for node, around in network.neighbours().items()
        if node in nodes
    }


def _distances(delays: Mapping[str, Mapping[str, int]], targets: Iterable[str]) -> dict[str, Distance]:
    """How far each node is from the nearest of the targets; those that reach none are missing."""
    settled: dict[str, Distance] = {}
    frontier: list[tuple[Distance, str]] = [((0, 0), node) for node in sorted(targets) if node in delays]
    while frontier:
        distance, node = heappop(frontier)
        if node in settled:
            continue
        settled[node] = distance
        for other, delay_us in delays[node].items():
            if other not in settled:
                heappush(frontier, (_further(distance, delay_us), other))
    return settled


def _further(distance: Distance, delay_us: int) -> Distance:
    return distance[0] + delay_us, distance[1] + 1


def _next(node: str, delays: Mapping[str, Mapping[str, int]], distances: Mapping[str, Distance]) -> str:
    offers = [
        (_further(distances[other], delay_us), other) for other, delay_us in delays[node].items() if other in distances
    ]
    return min(offers)[1] if offers else ""
