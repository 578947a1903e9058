"""Distances in a network, the node that is nearest to all others, and shortest-path trees.

The cost of a path is no sum (``protocol.messages.trees.extended``), so networkx's Dijkstra cannot build these trees. It
finds the distances between 200 nodes in 44 ms (here: 57 ms), but importing it takes 190 ms, which every start of a
coordinator and every simulation would pay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heappop, heappush

from headwater.protocol.analysis.lookups import reaching
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.trees import ROOT_COST, Cost, extended
from headwater.protocol.network import Network

LinkName = tuple[str, str]
"""The two ends of a link, in any order."""


def remaining_delays(
    network: Network, without_links: Collection[LinkName] = (), without_nodes: Collection[str] = ()
) -> dict[str, dict[str, int]]:
    """For every node that is left the delay in microseconds of the link to each neighbour that is left."""
    lost_nodes, lost_links = set(without_nodes), {frozenset(link) for link in without_links}
    return {
        node: {
            neighbour: link.delay_us
            for neighbour, link in around.items()
            if neighbour != node and neighbour not in lost_nodes and frozenset((node, neighbour)) not in lost_links
        }
        for node, around in network.neighbours().items()
        if node not in lost_nodes
    }


def _costs(delays: Mapping[str, Mapping[str, int]], root: str) -> dict[str, Cost]:
    settled: dict[str, Cost] = {}
    frontier: list[tuple[Cost, str]] = [(ROOT_COST, root)]
    while frontier:
        cost, node = heappop(frontier)
        if node in settled:
            continue
        settled[node] = cost
        for neighbour, delay_us in delays[node].items():
            if neighbour not in settled:
                heappush(frontier, (extended(cost, delay_us), neighbour))
    return settled


def distances(
    network: Network, without_links: Collection[LinkName] = (), without_nodes: Collection[str] = ()
) -> dict[str, dict[str, int]]:
    """The least delay in microseconds from every node to every node it can reach, itself included."""
    delays = remaining_delays(network, without_links, without_nodes)
    return {node: {other: cost[0] for other, cost in sorted(_costs(delays, node).items())} for node in sorted(delays)}


def leader(network: Network, without_links: Collection[LinkName] = (), without_nodes: Collection[str] = ()) -> str:
    """The node with the least total delay to all others; of equal ones the smaller name. Where some nodes reach all
    remote tables and others do not, it is one of those.

    Where the network has fallen apart, those that reach most nodes come first.
    """
    reach = distances(network, without_links, without_nodes)
    if not reach:
        raise ConfigError("no node is left that could lead; bring a node back or add one to the network")
    able = reaching(reach, network.tables) or tuple(reach)
    return min(able, key=lambda node: (-len(reach[node]), sum(reach[node].values()), node))


def shortest_path_tree(
    network: Network, root: str, without_links: Collection[LinkName] = (), without_nodes: Collection[str] = ()
) -> dict[str, str | None]:
    """The parent of every node that the root reaches (of the root: None), in order of name.

    This is the tree that nodes build among themselves: each takes the parent over which its way to the root costs least
    (``protocol.messages.trees.Cost``), of equal ones that with the smaller name.
    """
    delays = remaining_delays(network, without_links, without_nodes)
    if root not in delays:
        raise ConfigError(f"{root!r} cannot be the root of a tree: the network has no such node (any more)")
    costs = _costs(delays, root)
    parents: dict[str, str | None] = {}
    for node in sorted(costs):
        offers = ((extended(costs[other], delay_us), other) for other, delay_us in delays[node].items())
        parents[node] = None if node == root else min(offers)[1]
    return parents


def children_of(parents: Mapping[str, str | None]) -> dict[str, tuple[str, ...]]:
    """The children of every node of a tree, in order of name."""
    children: dict[str, list[str]] = {node: [] for node in parents}
    for node in sorted(parents):
        parent = parents[node]
        if parent is not None:
            children[parent].append(node)
    return {node: tuple(below) for node, below in children.items()}
