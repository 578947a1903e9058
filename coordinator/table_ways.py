"""The ways to remote tables: which neighbour a node asks that does not reach a table itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush

import yaml

from headwater.coordinator.shortest_paths import LinkName
from headwater.protocol.analysis.conjuncts import tables_in
from headwater.protocol.analysis.lookups import tables_of
from headwater.protocol.graphs import BornHere, Graph
from headwater.protocol.messages.plans import TableWay
from headwater.protocol.network import Network
from headwater.protocol.pattern import Rule
from headwater.protocol.streams import Part, Whole

Distance = tuple[int, int]
"""The delay of a way in microseconds, and its number of links. The second number makes each step cost something, so
that ways never lead in a circle, even where links take no time."""


def table_ways(
    network: Network,
    nodes: Collection[str],
    links: Iterable[LinkName],
    lookers: Mapping[str, Collection[str]] | None = None,
) -> dict[str, tuple[TableWay, ...]]:
    """For each node which neighbour it asks for elements of which table, over nodes and links that are left.

    ``lookers``: by table the nodes that look into it. Of those that reach it, each asks a neighbour among them first,
    if one is nearer to all of them: it has what others have asked for more often, and no two ask each other.
    """
    delays = _delays(network, nodes, links)
    ways: dict[str, list[TableWay]] = {node: [] for node in nodes}
    for table in network.tables:
        if table.at:
            distances = _distances(delays, table.at)
            for node in nodes:
                if node not in table.at:
                    ways[node].append(TableWay(table.name, _next(node, delays, distances)))
        able = [node for node in (lookers or {}).get(table.name, ()) if node in delays and node in (table.at or nodes)]
        if not _is_file(table.description):
            for node, neighbour in _asked_first(able, delays).items():
                ways[node].append(TableWay(table.name, neighbour, reached=True))
    return {node: tuple(some) for node, some in ways.items() if some}


def lookers_of(
    rules: Iterable[Rule], nodes: Iterable[str], graphs: Collection[Mapping[str, Graph]]
) -> dict[str, set[str]]:
    """By table the nodes that may look into it. In a graph those whose tasks and filters do; in trees all ``nodes``,
    since filters and parts of rules are judged wherever a table is reached."""
    lookers: dict[str, set[str]] = {}
    for graph in graphs:
        for node, part in graph.items():
            for table in _looked_into(part):
                lookers.setdefault(table, set()).add(node)
    if not graphs:
        everywhere = set(nodes)
        lookers = {table: everywhere for rule in rules for table in tables_of(rule)}
    return lookers


def _looked_into(graph: Graph) -> Iterator[str]:
    """The tables that a node of a graph looks into."""
    for task in graph.tasks:
        match task.stream:
            case Whole(rule):
                yield from tables_of(rule)
            case Part(partial):
                for conjunct in partial.pattern.where:
                    yield from tables_in(conjunct)
    taps = [*(tap for task in graph.tasks for tap in task.inputs), *(outlet.source for outlet in graph.outlets)]
    for tap in taps:
        if isinstance(tap, BornHere):
            for conjunct in tap.stream.where:
                yield from tables_in(conjunct)


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


def _asked_first(able: Collection[str], delays: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """For nodes that look into a table and reach it, the neighbour among them that is nearest to all; itself: none."""
    far = {node: _distances(delays, (node,)) for node in able}
    ranks = {node: (sum(far[node][other][1] for other in able if other in far[node]), node) for node in able}
    firsts: dict[str, str] = {}
    for node in able:
        nearer = [ranks[other] for other in delays[node] if other in ranks and ranks[other] < ranks[node]]
        if nearer:
            firsts[node] = min(nearer)[1]
    return firsts


def _is_file(description: str) -> bool:
    """Whether a table lies beside each node that reaches it: asking a neighbour would take longer."""
    entries = yaml.safe_load(description) if description else None
    return isinstance(entries, dict) and not entries.keys().isdisjoint(("file", "sqlite"))
