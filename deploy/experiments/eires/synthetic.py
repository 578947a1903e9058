"""Queries and data sets of the EIRES paper: listing 2 and table 2.

These say what is asked and how attributes are distributed; they do not say how many events a window holds, nor what the
remote elements are. Windows here hold so many events that one core can follow. Keys are v1 and v2; what is compared is
taken modulo 4 (Q1) or 8 (Q2), because equalities between 100,000 equally likely values would leave no match in such
windows.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final

from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable, RemoteValue

TABLE: Final = "remote"
VALUES: Final = 100_000
ZIPF_EXPONENT: Final = 1.01
ATTRIBUTES: Final = {"id": "int", "v1": "int", "v2": "int", "c1": "int", "c2": "int"}
TYPES: Final = {name: EventType(name, ATTRIBUTES) for name in "ABCD"}

QUERIES: Final[Mapping[str, str]] = {
    "Q1": """Q1: SEQ(A a, B b, C c, D d, B e, C f, A g, D h)
WHERE SAME[id] AND a.c1 = REMOTE[d.v1] AND a.c2 = h.c2 AND b.c1 = REMOTE[h.v1]""",
    "Q2": """Q2: SEQ(A a, (SEQ(B b, C d, D f) OR SEQ(C c, B e)))
WHERE a.c1 = b.c1 AND a.c2 = e.c1 AND d.c1 = REMOTE[a.v1] AND c.c2 = REMOTE[a.v2]""",
    "Q1 late": """Q1: SEQ(A a, B b, C c, D d, B e, C f, A g, D h)
WHERE SAME[id] AND a.c2 = d.c2 AND h.c1 = REMOTE[a.v1]""",
    "Q1 early": """Q1: SEQ(A a, B b, C c, D d, B e, C f, A g, D h)
WHERE SAME[id] AND a.c1 = REMOTE[a.v1] AND a.c2 = h.c2""",
}
"""The last two are Q1 with its lookup moved: the key known at the first event and its element needed at the last one,
and an element needed at the first event."""


@dataclass(frozen=True, slots=True)
class Synthetic:
    """One query on one data set."""

    query: str
    data: str
    """``DS1``: values are equally likely; ``DS2``: they follow Zipf's law."""
    selection: str
    """``any`` event that fits, or the ``next``."""
    events: int
    window_events: int
    spacing_us: float = 1000.0
    """Between two events."""
    values: int = VALUES
    """Of v1 and v2, by which elements are looked up."""
    ids: int = 100

    @property
    def name(self) -> str:
        return f"{self.query} {self.data} {self.selection}"

    @property
    def window_us(self) -> int:
        return int(self.window_events * self.spacing_us)

    @property
    def classes(self) -> int:
        """What is compared has so many values."""
        return 8 if self.query == "Q2" else 4

    @property
    def keys(self) -> int:
        """How many elements there are."""
        return self.values

    @property
    def time_us(self) -> float:
        """How long the stream lasts."""
        return self.events * self.spacing_us

    def shortened(self, share: float = 1 / 3) -> Synthetic:
        return replace(self, events=max(int(self.events * share), 2 * self.window_events))

    def rules(self) -> RuleSet:
        skip = "SKIP TILL NEXT MATCH" if self.selection == "next" else ""
        text = f"{QUERIES[self.query]}\nWITHIN {self.window_us} us {skip}"
        return parse_rules([Source(text, f"{self.query}.sase", "sase")], TYPES.values())

    def trace(self, seed: int = 1) -> list[Event]:
        rng = random.Random(f"{seed} {self.query} {self.data}")
        draw = self._drawing(rng)
        rows = []
        for i in range(self.events):
            v1, v2 = draw(), draw()
            kind = TYPES[rng.choice("ABCD")]
            ts = int((i + 1) * self.spacing_us)
            identity = rng.randint(1, self.ids)
            rows.append(Event.from_row((ts, "n", i, kind, identity, v1, v2, v1 % self.classes, v2 % self.classes)))
        return rows

    def _drawing(self, rng: random.Random) -> Callable[[], int]:
        if self.data == "DS1":
            return lambda: rng.randint(1, self.values)
        weights = list(accumulate(value**-ZIPF_EXPONENT for value in range(1, self.values + 1)))
        return lambda: 1 + bisect_left(weights, rng.random() * weights[-1])

    def value(self, table: str, key: tuple[Any, ...]) -> RemoteValue:
        """What the table has for a key."""
        (number,) = key
        return int(number * 2654435761 % 2**32 // 1000 % self.classes)

    def tables(self) -> dict[str, RemoteTable]:
        elements = {number: self.value(TABLE, (number,)) for number in range(1, self.values + 1)}
        return {TABLE: RemoteTable.from_mapping(elements)}
