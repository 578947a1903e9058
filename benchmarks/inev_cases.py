"""Event networks and workloads drawn at random, in the format of the case files.

A ring of nodes some of whose links lead elsewhere, rates from a Zipf distribution, every type at about half of the
nodes, queries of nested AND and SEQ (some with NSEQ), and selectivities of which about half do nothing.
"""

from __future__ import annotations

import random
from typing import Any

from headwater.deploy.experiments.inev.random_networks import query, ring, singles, sources, zipf


def random_case(
    seed: int,
    *,
    nodes: int = 20,
    types: int = 7,
    queries: int = 1,
    longest: int = 6,
    skew: float = 1.3,
    ratio: float = 0.5,
    selectivities: tuple[float, float] = (0.001, 0.01),
    negation: bool = False,
    degree: int = 2,
    exactly: int | None = None,
) -> dict[str, Any]:
    """A case; the same seed and sizes give the same one. ``exactly`` fixes the number of types of every query."""
    draw = random.Random(seed)
    names = [chr(ord("A") + at) for at in range(types)]
    event_types = {
        name: {"local_rate": float(zipf(draw, skew)), "sources": sources(draw, nodes, ratio)} for name in names
    }
    texts: list[str] = []
    while len(texts) < queries:
        length = exactly or draw.randint(min(3, longest), longest)
        text = str(query(draw, draw.sample(names, min(length, types)), negation and draw.random() < 0.5))
        if text not in texts:
            texts.append(text)
    pairs = {
        a + b: 1.0 if draw.random() < 0.5 else draw.uniform(*selectivities)
        for at, a in enumerate(names)
        for b in names[at + 1 :]
    }
    return {
        "format": "inev-case-1",
        "case": f"random_{seed}",
        "nodes": list(range(nodes)),
        "edges": [list(link) for link in ring(draw, nodes, degree)],
        "event_types": event_types,
        "queries": texts,
        "pairwise_selectivities": pairs,
        "single_selectivities": singles(draw, texts, pairs),
    }
