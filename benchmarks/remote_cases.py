"""Queries and data sets of the EIRES paper for ``benchmarks/remote.py``.

Listing 2 and table 2 say what is asked and how attributes are distributed; they do not say how many events a window
holds, nor what the remote elements are. Windows here hold so many events that one core can follow. Keys are v1 and v2,
of 100,000 values; what is compared is taken modulo 4 (Q1) or 8 (Q2), because equalities between 100,000 equally likely
values would leave no match in such windows. As in the paper the cache holds a tenth of the keys.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable

LATENCIES_US = {"short": (10.0, 100.0), "long": (1000.0, 10_000.0)}
IDS = 100
VALUES = 100_000
ZIPF_EXPONENT = 1.01
ATTRIBUTES = {"id": "int", "v1": "int", "v2": "int", "c1": "int", "c2": "int"}
TYPES = {name: EventType(name, ATTRIBUTES) for name in "ABCD"}

QUERIES = {
    "Q1": """Q1: SEQ(A a, B b, C c, D d, B e, C f, A g, D h)
WHERE SAME[id] AND a.c1 = REMOTE[d.v1] AND a.c2 = h.c2 AND b.c1 = REMOTE[h.v1]""",
    "Q2": """Q2: SEQ(A a, (SEQ(B b, C d, D f) OR SEQ(C c, B e)))
WHERE a.c1 = b.c1 AND a.c2 = e.c1 AND d.c1 = REMOTE[a.v1] AND c.c2 = REMOTE[a.v2]""",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One query on one data set."""

    query: str
    data: str
    selection: str
    """``any`` event that fits, or the ``next``."""
    events: int
    window_events: int
    spacing_us: float = 1000.0
    """Between two events."""

    @property
    def name(self) -> str:
        return f"{self.query} {self.data} {self.selection}"

    @property
    def window_us(self) -> int:
        return int(self.window_events * self.spacing_us)

    @property
    def classes(self) -> int:
        """What is compared has so many values."""
        return 4 if self.query == "Q1" else 8

    @property
    def cached(self) -> int:
        return VALUES // 10

    def shortened(self) -> Case:
        return replace(self, events=max(self.events // 3, 2 * self.window_events))

    def rules(self) -> RuleSet:
        skip = "SKIP TILL NEXT MATCH" if self.selection == "next" else ""
        text = f"{QUERIES[self.query]}\nWITHIN {self.window_us} us {skip}"
        return parse_rules([Source(text, f"{self.query}.sase", "sase")], TYPES.values())

    def trace(self) -> list[Event]:
        rng = random.Random(f"{self.query} {self.data}")
        draw = self._drawing(rng)
        rows = []
        for i in range(self.events):
            v1, v2 = draw(), draw()
            kind = TYPES[rng.choice("ABCD")]
            ts = int((i + 1) * self.spacing_us)
            rows.append(
                Event.from_row((ts, "n", i, kind, rng.randint(1, IDS), v1, v2, v1 % self.classes, v2 % self.classes))
            )
        return rows

    def _drawing(self, rng: random.Random) -> Callable[[], int]:
        if self.data == "DS1":
            return lambda: rng.randint(1, VALUES)
        weights = list(accumulate(value**-ZIPF_EXPONENT for value in range(1, VALUES + 1)))
        return lambda: 1 + bisect_left(weights, rng.random() * weights[-1])

    def value_of(self, key: int) -> int:
        """What the table has for a key."""
        return key * 2654435761 % 2**32 // 1000 % self.classes

    def table(self) -> Any:
        return RemoteTable.from_mapping({key: self.value_of(key) for key in range(1, VALUES + 1)})


CASES = (
    Case("Q1", "DS1", "any", 20_000, 2_200),
    Case("Q1", "DS1", "next", 30_000, 10_000),
    Case("Q1", "DS2", "any", 20_000, 2_200),
    Case("Q1", "DS2", "next", 30_000, 10_000),
    Case("Q2", "DS1", "any", 12_000, 60),
    Case("Q2", "DS1", "next", 12_000, 400),
    Case("Q2", "DS2", "any", 12_000, 60),
    Case("Q2", "DS2", "next", 12_000, 400),
)
