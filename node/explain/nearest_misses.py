"""Nearest misses: partial matches that no event continues, ranked by how little is missing, and why."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from headwater.node.engine.runtime import given
from headwater.node.explain.expressions import Row, Scope, evaluate, show, show_value
from headwater.node.explain.steps import LookedUp, show_event
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Parameter, Remote, Same, walk


@dataclass(frozen=True, slots=True)
class Miss:
    """A partial match that found no continuation: its events, how many steps it survived and what ended it."""

    steps: int
    events: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"{', '.join(self.events)}: {self.reason}" if self.events else self.reason


def facts(expression: Expression, scope: Scope) -> str:
    """The values that an expression compares: `` (Temp.value = 44.2)``."""
    seen = dict.fromkeys(part for part in walk(expression) if isinstance(part, Attribute | Fold | Parameter | Remote))
    if isinstance(expression, Same):
        return ""
    shown = ", ".join(f"{show(part)} = {show_value(evaluate(part, scope))}" for part in seen)
    return f" ({shown})" if shown else ""


def lookups_in(expression: Expression, scope: Scope) -> tuple[LookedUp, ...]:
    """What an expression looks up, each with what came of it."""
    remote = dict.fromkeys(part for part in walk(expression) if isinstance(part, Remote))
    return tuple(
        LookedUp(
            part.table,
            tuple(given(evaluate(argument, scope)) for argument in part.arguments),
            given(evaluate(part, scope)),
        )
        for part in remote
    )


def distance(expression: Expression, scope: Scope) -> float:
    """How far a comparison of numbers is from holding; 0 where that cannot be said."""
    if isinstance(expression, Binary) and expression.operator in ("=", "<", "<=", ">", ">="):
        left, right = evaluate(expression.left, scope), evaluate(expression.right, scope)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return abs(left - right)
    return 0.0


class Misses:
    """The nearest misses: most steps survived, then least to forgive, then the smallest distance."""

    def __init__(self, near: int) -> None:
        self._near = near
        self._heap: list[tuple[tuple[int, int, float], int, Miss]] = []
        self._order = count(0, -1)

    def offer(self, steps: int, cost: int, distance: float, make: Callable[[], Miss]) -> None:
        if self._near <= 0:
            return
        rank = (steps, -cost, -distance)
        if len(self._heap) < self._near:
            heapq.heappush(self._heap, (rank, next(self._order), make()))
        elif rank > self._heap[0][0]:
            heapq.heapreplace(self._heap, (rank, next(self._order), make()))

    def best(self) -> list[Miss]:
        return [miss for _, _, miss in sorted(self._heap, reverse=True)]


class Objection:
    """Why an event does not continue a partial match. ``counted`` is the first reason, ``story`` tells them all.

    ``cost`` says how far it is from fitting: another key (an equality that fails) weighs more than a value, a window or
    an order that is missed. Nearly all objections are only counted, so the story is told on request.
    """

    __slots__ = ("_reasons", "_rows", "cost", "counted", "distance")

    def __init__(self, rows: Sequence[Row]) -> None:
        self.counted = ""
        self.cost = 0
        self.distance = 0.0
        self._rows = rows
        self._reasons: list[str | tuple[Expression, Scope]] = []

    def __bool__(self) -> bool:
        return bool(self.counted)

    def place(self, counted: str, reason: str, excess: float) -> None:
        """It lies in the wrong place: order, window, taken already."""
        self._add(counted, reason, 1, excess)

    def condition(self, conjunct: Expression, scope: Scope) -> None:
        equality = isinstance(conjunct, Binary) and conjunct.operator == "="
        self._add(quoted(conjunct), (conjunct, scope), 2 if equality else 1, distance(conjunct, scope))

    def disagreement(self, counted: str, reason: str) -> None:
        self._add(counted, reason, 2, 0.0)

    @classmethod
    def about_all(cls, counted: str, reason: str, cost: int, excess: float) -> Objection:
        """An objection to a partial match as a whole."""
        objection = cls(())
        objection._add(counted, reason, cost, excess)
        return objection

    def _add(self, counted: str, reason: str | tuple[Expression, Scope], cost: int, excess: float) -> None:
        self.counted = self.counted or counted
        self.cost += cost
        self.distance += excess
        self._reasons.append(reason)

    def looked_up(self) -> tuple[LookedUp, ...]:
        """What the condition that is counted has looked up in remote tables."""
        first = self._reasons[0]
        return () if isinstance(first, str) else lookups_in(*first)

    @property
    def story(self) -> str:
        reasons = [
            reason if isinstance(reason, str) else f"fails {quoted(reason[0])}{facts(*reason)}"
            for reason in self._reasons
        ]
        return " ".join([", ".join(show_event(row) for row in self._rows), " and ".join(reasons)]).strip()


@lru_cache(maxsize=1024)
def quoted(conjunct: Expression) -> str:
    return f"`{show(conjunct)}`"


@dataclass(slots=True)
class Nearest:
    """The objection to the event that came nearest to continuing a partial match."""

    objection: Objection | None = None

    def consider(self, objection: Objection) -> None:
        best = self.objection
        if best is None or (objection.cost, objection.distance) < (best.cost, best.distance):
            self.objection = objection
