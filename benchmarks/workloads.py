"""The workloads the engine is measured on, with the number of matches that every engine must find.

W1  keyed sequence     SEQ(A a, B b, C c) WHERE a.id = b.id = c.id WITHIN 10 s
W2  ordered sequence   SEQ(A a, B b, C c) WHERE a.v < b.v < c.v (v in 0..999) WITHIN 200 ms
W3  keyed negation     SEQ(A a, !B b, C c), same id, WITHIN 10 s
W4  100 rules          rule i: C_i() and last B_i() within 60 s from C_i and last A_i() within 60 s from B_i
W5  keyed repetition   SEQ(A a, B+ b[], C c), same id, WITHIN 2 s

One event every 0.1 ms for W1, W3, W5 (types A..J, 1,000 ids), every 1 ms for W2 (types A..J) and W4 (120 types, drawn
with a Zipf-like skew).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules
from headwater.protocol.pattern import types_of

KEYED_TYPES = {name: EventType(name, {"id": "int", "v": "int"}) for name in "ABCDEFGHIJ"}
SKEWED_TYPES = {f"T{k}": EventType(f"T{k}", {"id": "int", "v": "int"}) for k in range(120)}


@dataclass(frozen=True)
class Workload:
    name: str
    about: str
    events: int
    matches: int
    language: Literal["tesla", "sase"]
    text: str
    best_other: str
    reach_per_s: int

    def types(self) -> dict[str, EventType]:
        return SKEWED_TYPES if self.name == "W4" else KEYED_TYPES

    def named(self) -> frozenset[str]:
        """The types that the rules read; events of others only pass by."""
        return frozenset().union(*(types_of(rule.pattern) for rule in self.rules().rules))

    def rules(self) -> RuleSet:
        source = Source(self.text, f"{self.name}.{self.language}", self.language)
        return parse_rules([source], self.types().values())

    def rows(self, count: int | None = None, seed: int = 7) -> Iterator[tuple[str, int, int, int]]:
        """(type, ts in milliseconds, id, v)"""
        n = self.events if count is None else count
        r = random.Random(f"{self.name}-{seed}")
        if self.name == "W4":
            kinds = list(SKEWED_TYPES)
            picks = r.choices(kinds, [1 / (k + 1) ** 0.8 for k in range(120)], k=n)
            for i in range(n):
                yield picks[i], i, r.randrange(1000), r.randrange(1000)
            return
        step = 1.0 if self.name == "W2" else 0.1
        for i in range(n):
            yield r.choice("ABCDEFGHIJ"), int(i * step), r.randrange(1000), r.randrange(1000)

    def trace(self, count: int | None = None) -> list[Event]:
        types = self.types()
        make = Event.from_row
        return [make((ms * 1000, "n", i, types[kind], key, v)) for i, (kind, ms, key, v) in enumerate(self.rows(count))]


def _hundred_rules(seed: int = 4) -> str:
    r = random.Random(seed)
    rules = []
    for number in range(100):
        a, b, c = r.sample(list(SKEWED_TYPES), 3)
        rules.append(
            f"R{number}: define W4_{number}() from {c}() and last {b}() within 60 s from {c} "
            f"and last {a}() within 60 s from {b}"
        )
    return "\n".join(rules)


WORKLOADS = (
    Workload(
        "W1", "keyed sequence", 130_000, 322_691, "sase",
        "SEQ(A a, B b, C c) WHERE a.id = b.id = c.id WITHIN 10 s", "Flink CEP 13.4k", 150_000,
    ),
    Workload(
        "W2", "ordered sequence", 300_000, 988_772, "sase",
        "SEQ(A a, B b, C c) WHERE a.v < b.v < c.v WITHIN 200 ms", "T-Rex 274k", 280_000,
    ),
    Workload(
        "W3", "keyed negation", 300_000, 29_533, "sase",
        "SEQ(A a, !B b, C c) WHERE SAME[id] WITHIN 10 s", "Flink CEP 198k", 500_000,
    ),
    Workload("W4", "100 rules with last", 300_000, 275_978, "tesla", _hundred_rules(), "T-Rex 395k", 400_000),
    Workload(
        "W5", "keyed repetition", 300_000, 125_232, "sase",
        "SEQ(A a, B+ b[], C c) WHERE SAME[id] WITHIN 2 s", "Flink CEP 57k", 500_000,
    ),
)  # fmt: skip
