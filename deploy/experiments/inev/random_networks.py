"""Draws random event networks and workloads: rates, sources, links, queries, selectivities."""

from __future__ import annotations

import random

from headwater.coordinator.inev.model.patterns import Kind, Operator, Pattern, leaves, parse, subsets

RATE_MAX = 5_000_000  # where rates get absurd


def zipf(draw: random.Random, skew: float) -> int:
    """A rate of at least 1, seldom large: the inverse of the distribution's tail."""
    if skew <= 1:
        return 1
    # In two steps: the power alone would leave the range of floating point numbers.
    drawn = draw.random() or 1e-300
    return RATE_MAX if drawn ** (1 / (skew - 1)) < 1 / RATE_MAX else min(int(drawn ** (-1 / (skew - 1))), RATE_MAX)


def sources(draw: random.Random, nodes: int, ratio: float) -> list[int]:
    return [node for node in range(nodes) if draw.random() < ratio] or [draw.randrange(nodes)]


def ring(draw: random.Random, nodes: int, degree: int) -> list[tuple[int, int]]:
    """A ring in which each link leads elsewhere with a probability of one half, and which still hangs together."""
    while True:
        links: set[tuple[int, int]] = set()
        for step in range(1, max(1, degree // 2) + 1):
            for node in range(nodes):
                other = (node + step) % nodes
                if draw.random() < 0.5:
                    other = draw.choice([to for to in range(nodes) if to != node])
                if other != node:
                    links.add((min(node, other), max(node, other)))
        if hangs_together(nodes, links):
            return sorted(links)


def hangs_together(nodes: int, links: set[tuple[int, int]]) -> bool:
    group = list(range(nodes))

    def find(node: int) -> int:
        while group[node] != node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    for first, other in links:
        group[find(first)] = find(other)
    return len({find(node) for node in range(nodes)}) == 1


def query(draw: random.Random, types: list[str], negation: bool) -> Pattern:
    if negation and len(types) > 3:
        first = Operator("NSEQ", (types[0], types[1], types[2]))
        return Operator(draw.choice(("AND", "SEQ")), (first, nested(draw, types[3:])))
    return nested(draw, types)


def nested(draw: random.Random, types: list[str]) -> Pattern:
    if len(types) == 1:
        return types[0]
    kind: Kind = draw.choice(("AND", "SEQ"))
    flat = draw.randint(1, len(types))
    if len(types) - flat < 2:
        return Operator(kind, tuple(types))
    return Operator(kind, (*types[:flat], nested(draw, types[flat:])))


def singles(draw: random.Random, texts: list[str], pairs: dict[str, float]) -> dict[str, float]:
    """Shares of events in matches: somewhere between what the pairs of a projection let through and all."""
    shares: dict[str, float] = {}
    for text in texts:
        pattern = parse(text)
        assert len(set(leaves(pattern))) > 1
        for types in subsets(pattern):
            name = "".join(sorted(types))
            through = 1.0
            for pair, value in pairs.items():
                if set(pair) <= types:
                    through *= value
            for type in sorted(types):
                shares.setdefault(
                    f"{type}|{name}", draw.uniform(through, 1.0) if draw.random() < 0.5 else max(through, 1e-12) ** 0.5
                )
    return shares
