"""Steiner trees: small trees that span given nodes of a graph with several cycles.

Finding the smallest is hard in general. Here: grow a tree by the nearest missing node, from several starts; then take
inner nodes away, and try others, as long as the tree over what remains is smaller. For few nodes the exact tree is
found instead.

networkx's approximation is the oracle of the tests. It is no substitute: over 8 of 200 nodes it takes 1.7 ms where this
takes 0.5 ms, and its trees are larger (20 links for 19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

Links = frozenset[tuple[int, int]]

EXACT_WORK_MAX: Final = 60_000
"""Three to the power of the number of terminals, times nodes: past it the exact search takes longer than it saves."""

STARTS_MAX: Final = 6
"""Growing from another node seldom gives a smaller tree after this many."""

IMPROVED_NODES_MAX: Final = 80
"""In larger graphs a round of improvement takes longer than planning may."""


def spanning_tree(
    neighbours: Sequence[Sequence[int]], terminals: Sequence[int], hops: Callable[[int], Sequence[int]]
) -> Links:
    """The links of a small tree over the terminals; the same for the same graph and terminals."""
    if len(terminals) < 2:
        return frozenset()
    if len(terminals) == 2:
        return frozenset(_path(neighbours, hops(terminals[1]), terminals[0]))
    inside = sum(1 for near in neighbours if near)
    if 3 ** (len(terminals) - 1) * inside <= EXACT_WORK_MAX:
        return exact_tree(neighbours, terminals, hops)
    if inside > IMPROVED_NODES_MAX:
        return _joined_regions(neighbours, terminals)
    step = max(1, len(terminals) // STARTS_MAX)
    best = min((_grown(neighbours, terminals, start) for start in terminals[::step][:STARTS_MAX]), key=len)
    return _improved(neighbours, terminals, best)


def tree_work_us(inside: int, terminals: int) -> float:
    """About what it takes a usual machine to find such a tree in a graph of so many nodes."""
    if terminals < 3:
        return 20.0
    if 3 ** (terminals - 1) * inside <= EXACT_WORK_MAX:
        return 0.1 * (1 << terminals - 1) * inside**2
    return (1.5 if inside > IMPROVED_NODES_MAX else 20.0) * inside


def _path(neighbours: Sequence[Sequence[int]], far: Sequence[int], start: int) -> list[tuple[int, int]]:
    links = []
    while far[start]:
        step = next(near for near in neighbours[start] if far[near] == far[start] - 1)
        links.append((min(start, step), max(start, step)))
        start = step
    return links


def _joined_regions(neighbours: Sequence[Sequence[int]], terminals: Sequence[int]) -> Links:
    """A tree in one pass over the graph, at most twice as large as the smallest.

    Every node belongs to its nearest terminal; regions that touch are joined where that is shortest, until all hang
    together.
    """
    region = {node: node for node in terminals}
    before: dict[int, int] = {}
    far = dict.fromkeys(terminals, 0)
    level = list(terminals)
    while level:
        following = []
        for node in level:
            for near in neighbours[node]:
                if near not in far:
                    far[near], before[near], region[near] = far[node] + 1, node, region[node]
                    following.append(near)
        level = following
    touching = sorted(
        (far[one] + far[other] + 1, one, other)
        for one in far
        for other in neighbours[one]
        if one < other and region[one] != region[other]
    )
    group = {node: node for node in terminals}

    def find(node: int) -> int:
        while group[node] != node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    links: set[tuple[int, int]] = set()
    for _, one, other in touching:
        left, right = find(region[one]), find(region[other])
        if left == right:
            continue
        group[left] = right
        links.add((one, other))
        for node in (one, other):
            while node in before:
                links.add((min(node, before[node]), max(node, before[node])))
                node = before[node]
    return frozenset(links)


def _grown(neighbours: Sequence[Sequence[int]], terminals: Sequence[int], start: int) -> Links:
    """Adds the nearest missing terminal by a shortest path to the tree, until none is missing."""
    missing = set(terminals) - {start}
    links: set[tuple[int, int]] = set()
    # The search goes on from where it stopped: whenever the tree grows, its new nodes become starts at distance 0.
    far: dict[int, int] = {start: 0}
    before: dict[int, int] = {}
    inside = {start}
    level = [start]
    depth = 0
    while missing:
        reached = None
        following: list[int] = []
        for node in level:
            if far[node] != depth:
                continue
            for near in neighbours[node]:
                if far.get(near, depth + 2) > depth + 1:
                    far[near] = depth + 1
                    before[near] = node
                    following.append(near)
                    if near in missing and reached is None:
                        reached = near
        if reached is None:
            level, depth = following, depth + 1
            continue
        node = reached
        while node not in inside:
            inside.add(node)
            missing.discard(node)
            links.add((min(node, before[node]), max(node, before[node])))
            node = before[node]
        far = dict.fromkeys(inside, 0)
        level, depth = sorted(inside), 0
    return frozenset(links)


def _improved(neighbours: Sequence[Sequence[int]], terminals: Sequence[int], best: Links) -> Links:
    """Tries, for the nodes that are in the tree and need not be, and for those that are not, the other choice."""
    wanted = frozenset(terminals)
    better = True
    while better:
        better = False
        inside = {end for link in best for end in link} or set(terminals)
        for node in [*sorted(inside - wanted), *sorted(_beside(neighbours, inside))]:
            candidate = _over(neighbours, inside ^ {node}, wanted)
            if candidate is not None and len(candidate) < len(best):
                best, better = candidate, True
                break
    return best


def _beside(neighbours: Sequence[Sequence[int]], inside: set[int]) -> set[int]:
    """Nodes outside that touch the tree at two places or more: only these can shorten it."""
    return {
        node
        for node, near in enumerate(neighbours)
        if node not in inside and sum(1 for other in near if other in inside) > 1
    }


def _over(neighbours: Sequence[Sequence[int]], allowed: set[int], wanted: frozenset[int]) -> Links | None:
    """A tree inside the allowed nodes, whose branches all end at wanted nodes; None if they do not hang together."""
    start = min(wanted)
    parent = {start: start}
    level = [start]
    while level:
        following = []
        for node in level:
            for near in neighbours[node]:
                if near in allowed and near not in parent:
                    parent[near] = node
                    following.append(near)
        level = following
    if not wanted <= parent.keys():
        return None
    needed: set[int] = set()
    for node in wanted:
        while node != start and node not in needed:
            needed.add(node)
            node = parent[node]
    return frozenset((min(node, parent[node]), max(node, parent[node])) for node in needed)


def exact_tree(
    neighbours: Sequence[Sequence[int]], terminals: Sequence[int], hops: Callable[[int], Sequence[int]]
) -> Links:
    """The smallest tree, by joining trees over parts of the terminals at every node (Dreyfus and Wagner)."""
    nodes = [node for node, near in enumerate(neighbours) if near]
    root, other_terminals = terminals[0], list(terminals[1:])
    far = {node: hops(node) for node in nodes}
    whole = (1 << len(other_terminals)) - 1
    cost: list[dict[int, int]] = [{} for _ in range(whole + 1)]
    for at, terminal in enumerate(other_terminals):
        cost[1 << at] = {node: far[terminal][node] for node in nodes}
    split: dict[tuple[int, int], tuple[int, int]] = {}
    for group in range(1, whole + 1):
        if group & (group - 1) == 0:
            continue
        meeting: dict[int, tuple[int, int]] = {}
        for node in nodes:
            part, least, chosen = (group - 1) & group, 1 << 60, 0
            while part > group ^ part:
                joined_cost = cost[part][node] + cost[group ^ part][node]
                if joined_cost < least:
                    least, chosen = joined_cost, part
                part = (part - 1) & group
            meeting[node] = (least, chosen)
        for node in nodes:
            least, at = min((meeting[other][0] + far[other][node], other) for other in nodes)
            cost[group][node] = least
            split[group, node] = (at, meeting[at][1])
    links: set[tuple[int, int]] = set()
    waiting = [(whole, root)]
    while waiting:
        group, node = waiting.pop()
        if group & (group - 1) == 0:
            links.update(_path(neighbours, far[other_terminals[group.bit_length() - 1]], node))
            continue
        at, part = split[group, node]
        links.update(_path(neighbours, far[at], node))
        waiting += [(part, at), (group ^ part, at)]
    return frozenset(links)
