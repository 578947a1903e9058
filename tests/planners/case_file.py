"""A case file of INEv that is as it must be, for tests that change it."""

from __future__ import annotations

from typing import Any

CASE: dict[str, Any] = {
    "format": "inev-case-1",
    "nodes": [0, 1, 2],
    "edges": [[0, 1], [1, 2]],
    "event_types": {
        "A": {"local_rate": 2.0, "sources": [0, 2]},
        "B": {"local_rate": 5.0, "sources": [1]},
        "C": {"local_rate": 1.0, "sources": [2]},
    },
    "queries": ["SEQ(A, B)"],
    "pairwise_selectivities": {"AB": 0.1},
    "single_selectivities": {"A|AB": 0.5},
}
