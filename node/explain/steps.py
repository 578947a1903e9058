"""What explanations of chains and trees share: events by type, and the report of each step of the walk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headwater.node.explain.expressions import Row, Scope, show_value
from headwater.protocol.composites import Composite, own_key, start_of
from headwater.protocol.events import Key
from headwater.protocol.functions import Functions
from headwater.protocol.pattern import Leaf
from headwater.protocol.remote import LookupTable
from headwater.protocol.text import show_ts

PARTIAL_MATCHES_MAX: Final = 20_000  # kept after one step; more are counted, but not followed
LOOKS_MAX: Final = 150_000  # events compared with partial matches for one rule: two or three seconds

LOOKED_UP_MAX: Final = 10_000  # different values that turned something away; what comes after them is counted together
OUTSIDE_MAX: Final = 20  # events before and after a window that are looked at for a near miss

T = TypeVar("T")


class LookedUp(NamedTuple):
    """A lookup in a remote table, and what came of it."""

    table: str
    key: tuple[Any, ...]
    value: Any

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "key": list(self.key), "value": self.value}

    def __str__(self) -> str:
        return f"REMOTE.{self.table}[{', '.join(map(show_value, self.key))}] = {show_value(self.value)}"


@dataclass(slots=True)
class StepReport:
    """One step of the pattern.

    The first step goes through events, the others through the partial matches that the step before has left. Where
    ``partial``, they did not go through all of them, and every number is what there is at least.
    """

    text: str
    type: str
    events: int
    before: int = 0
    before_partial: bool = False
    looked_at: int = 0
    """How many of ``before`` (in the first step of ``events``) were looked at."""
    tried: int = 0
    turned_away: Counter[str] = field(default_factory=Counter)
    looked_up: dict[str, Counter[tuple[LookedUp, ...]]] = field(default_factory=dict)
    """By a condition that looks something up: what it had looked up when it turned something away, and how often."""
    kept: int = 0
    undecided: int = 0
    """Partial matches with too many choices of elements to try."""
    cut: bool = False
    """Not everything was looked at."""

    @property
    def partial(self) -> bool:
        return self.cut or self.before_partial or bool(self.undecided)

    def turn_away(self, reason: str, looked_up: tuple[LookedUp, ...] = ()) -> None:
        """An event or a partial match does not fit; ``looked_up``: what the condition that says so has looked up."""
        self.turned_away[reason] += 1
        if looked_up:
            values = self.looked_up.setdefault(reason, Counter())
            if looked_up not in values and len(values) >= LOOKED_UP_MAX:
                looked_up = ()
            values[looked_up] += 1

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.text,
            "type": self.type,
            "events": self.events,
            "partial_matches_before": self.before,
            "looked_at": self.looked_at,
            "tried": self.tried,
            "turned_away": dict(self.turned_away),
            "looked_up": [
                {
                    "condition": condition.strip("`"),
                    "turned_away": number,
                    "lookups": [each.to_json() for each in looked_up],
                }
                for condition, values in self.looked_up.items()
                for looked_up, number in values.most_common()
            ],
            "partial_matches_after": self.kept,
            "undecided": self.undecided,
            "partial": self.partial,
        }


class OutOfLooks(Exception):
    """A step has used up its share; what it was looking at is left unfinished."""


class Budget:
    """How often a walk may still look at an event: each step gets an equal share of what those before have left."""

    def __init__(self, looks: int, steps: int) -> None:
        self.left = looks
        self._steps = steps
        self._reserved = 0

    def next_step(self) -> None:
        self._reserved = self.left - self.left // max(1, self._steps)
        self._steps -= 1

    def spend(self, looks: int = 1) -> None:
        if self.left - looks < self._reserved:
            raise OutOfLooks
        self.left -= looks


@dataclass(slots=True)
class BranchReport:
    """A chain, or an operator tree with one choice for each of its ORs."""

    roles: tuple[str, ...]
    steps: list[StepReport]


class RowsOfType:
    """The events of one type in key order."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = sorted(rows, key=own_key)
        self.ends: list[Key] = [row[:3] for row in self.rows]

    def before(self, end: Key) -> int:
        """How many end before this key."""
        return bisect_left(self.ends, end)

    def up_to(self, end: Key) -> int:
        return bisect_right(self.ends, end)

    def before_ts(self, ts: float) -> int:
        return bisect_left(self.ends, ts, key=lambda end: end[0])

    def up_to_ts(self, ts: float) -> int:
        return bisect_right(self.ends, ts, key=lambda end: end[0])


class World:
    def __init__(
        self, rows: list[Row], functions: Functions, remote: Mapping[str, LookupTable], budget: Budget | None = None
    ) -> None:
        self.budget = budget or Budget(LOOKS_MAX, 1)
        by_type: dict[str, list[Row]] = {}
        for row in rows:
            by_type.setdefault(type_name(row), []).append(row)
        self._by_type = {name: RowsOfType(rows_of_type) for name, rows_of_type in by_type.items()}
        self.functions = functions
        self.remote = remote
        # Count windows number the events of the pattern's own types.
        self.numbers = {identity(row): number for number, row in enumerate(sorted(rows, key=own_key))}

    def of(self, type_name: str) -> RowsOfType:
        return self._by_type.get(type_name) or RowsOfType([])

    def scope(self, rows: Mapping[str, Row], **more: Any) -> Scope:
        return Scope(rows, functions=self.functions, remote=self.remote, **more)


def type_name(row: Row) -> str:
    inner = row[3]
    name: str = inner.type if isinstance(inner, Composite) else inner.name
    return name


def identity(row: Row) -> Any:
    inner = row[3]
    return inner.id if isinstance(inner, Composite) else row[1:3]


def show_event(row: Row) -> str:
    """``Smoke p2#3 ts=5000000``; a composite event is shown by its type and times."""
    if isinstance(row[3], Composite):
        return f"{type_name(row)} from ts={show_ts(start_of(row)[0])} to ts={show_ts(row[0])}"
    return f"{type_name(row)} {row[1]}#{row[2]} ts={show_ts(row[0])}"


def around(typed: RowsOfType, low: int, high: int) -> list[Row]:
    """Events just outside the index range [low, high)."""
    return typed.rows[max(0, low - OUTSIDE_MAX) : low] + typed.rows[high : high + OUTSIDE_MAX]


def named(leaf: Leaf) -> str:
    return leaf.type if leaf.role == leaf.type else f"{leaf.type} as {leaf.role}"


@dataclass(slots=True)
class Opens(Generic[T]):
    """The partial matches that a step leaves: all are counted, the first of them are followed."""

    followed: list[T] = field(default_factory=list)
    number: int = 0
    partial: bool = False

    def add(self, matches: Sequence[T]) -> None:
        self.number += len(matches)
        self.followed.extend(matches[: PARTIAL_MATCHES_MAX - len(self.followed)])


def go_through(report: StepReport, opens: Opens[T], budget: Budget, look: Callable[[T], Sequence[T]]) -> Opens[T]:
    """One step: what becomes of each partial match, as far as the step's share of looks goes."""
    report.before, report.before_partial = opens.number, opens.partial
    budget.next_step()
    kept: Opens[T] = Opens()
    for match in opens.followed:
        try:
            kept.add(look(match))
        except OutOfLooks:
            break
        report.looked_at += 1
    report.cut = report.looked_at < opens.number
    return finished(report, kept)


def finished(report: StepReport, kept: Opens[T]) -> Opens[T]:
    report.turned_away = +report.turned_away
    report.kept, kept.partial = kept.number, report.partial
    return kept
