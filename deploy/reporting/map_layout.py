"""Positions of nodes on a network map: near each other on the page as they are near in the network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

WORK_MAX: Final = 8_000_000  # steps of the inner loop: about three seconds, for networks of any size
ROUNDS_MAX: Final = 300


def laid_out(nodes: Sequence[str], links: Iterable[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """A place in the unit square for every node; the same network is always laid out the same.

    Distances on the page follow the number of links between two nodes (stress majorisation): every node moves to where
    all the others would like to have it, again and again.
    """
    count = len(nodes)
    if count == 1:
        return {nodes[0]: (0.5, 0.5)}
    steps = _steps(nodes, links)
    places = [
        (math.cos(2 * math.pi * number / count), math.sin(2 * math.pi * number / count)) for number in range(count)
    ]
    for _ in range(min(ROUNDS_MAX, max(5, WORK_MAX // (count * count)))):
        for one in range(count):
            x = y = weights = 0.0
            x0, y0 = places[one]
            for other in range(count):
                if one == other:
                    continue
                distance = steps[one][other]
                x1, y1 = places[other]
                apart = math.hypot(x0 - x1, y0 - y1) or 1e-6
                weight = 1 / (distance * distance)
                x += weight * (x1 + distance * (x0 - x1) / apart)
                y += weight * (y1 + distance * (y0 - y1) / apart)
                weights += weight
            places[one] = (x / weights, y / weights)
    return _fitted(nodes, _turned(places))


def _steps(nodes: Sequence[str], links: Iterable[tuple[str, str]]) -> list[list[float]]:
    """The number of links between any two nodes; nodes that do not reach each other are far apart."""
    import networkx

    graph: networkx.Graph[str] = networkx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(links)
    far = math.sqrt(len(nodes)) + 2
    reached = dict(networkx.all_pairs_shortest_path_length(graph))
    return [[float(reached[one].get(other, far)) for other in nodes] for one in nodes]


def _turned(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """With the longer side lying flat, as pages are."""
    count = len(places)
    mx, my = sum(x for x, _ in places) / count, sum(y for _, y in places) / count
    xx = sum((x - mx) ** 2 for x, _ in places)
    yy = sum((y - my) ** 2 for _, y in places)
    xy = sum((x - mx) * (y - my) for x, y in places)
    angle = -0.5 * math.atan2(2 * xy, xx - yy)
    cos, sin = math.cos(angle), math.sin(angle)
    return [((x - mx) * cos - (y - my) * sin, (x - mx) * sin + (y - my) * cos) for x, y in places]


def _fitted(nodes: Sequence[str], places: Sequence[tuple[float, float]]) -> dict[str, tuple[float, float]]:
    low_x, high_x = min(x for x, _ in places), max(x for x, _ in places)
    low_y, high_y = min(y for _, y in places), max(y for _, y in places)
    wide, high = max(high_x - low_x, 1e-9), max(high_y - low_y, 1e-9)
    flat = high < wide * 1e-3
    return {
        node: ((x - low_x) / wide, 0.5 if flat else (y - low_y) / high)
        for node, (x, y) in zip(nodes, places, strict=True)
    }


def aspect(places: Mapping[str, tuple[float, float]]) -> float:
    """Height over width that suits a map: the more nodes, the higher."""
    if len({round(y, 3) for _, y in places.values()}) == 1:
        return 0.2
    return min(1.2, max(0.55, 0.12 * math.sqrt(len(places)) + 0.15))
