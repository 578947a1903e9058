"""Random connected networks of a given size, in which near nodes are linked more often than distant ones."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Final

from headwater.protocol.network import Link

REACH: Final = 0.2
"""How fast the chance of a link falls with distance, as a share of the greatest possible one (Waxman's beta; the usual
value of generators of internet-like topologies)."""

DELAY_LEAST_US: Final = 100  # even neighbours in one room are not reached in no time

Place = tuple[float, float]


def waxman_links(nodes: Sequence[str], count: int, mean_delay_us: int, random: Random) -> tuple[Link, ...]:
    """``count`` links that connect all nodes, drawn by distance over random places in a square.

    Delays are proportional to distance and scaled to the mean. ``count`` must lie between a tree's links and all pairs.
    """
    assert len(nodes) - 1 <= count <= len(nodes) * (len(nodes) - 1) // 2
    places = {node: (random.random(), random.random()) for node in nodes}
    pairs: list[tuple[str, str]] = []
    joined: list[str] = []
    for node in random.sample(nodes, len(nodes)):
        # Each node joins one that is there already: the network is connected from the first link on.
        if joined:
            weights = [_attraction(places[node], places[other]) for other in joined]
            pairs.append(_ordered(node, random.choices(joined, weights)[0]))
        joined.append(node)
    linked = set(pairs)
    free = [pair for pair in (_ordered(*two) for two in combinations(nodes, 2)) if pair not in linked]
    pairs += _weighted_sample(free, count - len(pairs), places, random)
    distances = [math.dist(places[one], places[other]) for one, other in pairs]
    scale = mean_delay_us * len(pairs) / sum(distances)
    links = [
        Link(one, other, delay_us=max(DELAY_LEAST_US, round(distance * scale)))
        for (one, other), distance in zip(pairs, distances, strict=True)
    ]
    return tuple(sorted(links, key=lambda link: (link.one, link.other)))


def nearest(nodes: Sequence[str], links: Sequence[Link], start: str, count: int) -> list[str]:
    """The ``count`` nodes that are reached first from ``start``, itself included; ties go to the smaller name."""
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_weighted_edges_from((link.one, link.other, link.delay_us) for link in links)
    far = networkx.single_source_dijkstra_path_length(graph, start)
    return sorted(far, key=lambda node: (far[node], node))[:count]


def _attraction(one: Place, other: Place) -> float:
    return math.exp(-math.dist(one, other) / (REACH * math.sqrt(2)))


def _ordered(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _weighted_sample(
    pairs: Sequence[tuple[str, str]], count: int, places: Mapping[str, Place], random: Random
) -> list[tuple[str, str]]:
    # Drawing without replacement: each pair waits for an exponential time, shorter the stronger its attraction.
    waits = [(random.expovariate(_attraction(places[one], places[other])), one, other) for one, other in pairs]
    return [(one, other) for _, one, other in heapq.nsmallest(count, waits)]
