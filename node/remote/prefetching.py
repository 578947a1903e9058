"""Prefetching: which elements of remote tables are fetched before anything needs them, and when.

A *class* is a lookup of a rule together with the roles that are bound when its key is known: one more event of the
last of these roles (or one more run, under skip-till-next) is one more partial match of the class that needs the key.
Counts are kept over a sliding window of the rule's length, as a current and a previous part that fades.
docs/decisions/remote-utility.md says how this follows sections 4 and 5.1 of the EIRES paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final, NamedTuple, Protocol

from headwater.node.engine.remote_memory import Key, Place

REFRESH_EVERY: Final = 64  # partial matches of a class after which its slow figures are computed again
FAILURES_MAX: Final = 32  # fetches ahead that came too late, or for nothing, before a class is thought unsuitable
LIKELY_MAX: Final = 8  # keys that are fetched at once because they were frequent
LATEST_SHARE: Final = 0.1  # how much the latest figure counts in an average
KEYS_MAX: Final = 10_000  # counted by a class in a window, about 1 MB; with more, the rarer half is counted anew

_SAVED: Final = (
    "seeks", "fan_out", "_fade", "_begun", "_until_refresh", "_passed", "_seeks_before", "_hits", "_late", "_unused",
    "_failed", "_changed",
)  # fmt: skip
"""What is saved of a class beside its counts."""


class Identity(NamedTuple):
    """What tells a class from others: the lookup of a rule, by a name among those of the rule, and its window."""

    rule: str
    name: str
    table: str
    horizon: int
    """The window's length in event time, or in partial matches if ``numbered``."""
    numbered: bool
    early: bool
    """Whether time passes between knowing the key and needing its element."""


class KeyClass:
    """The partial matches of one class over the last window, by the key that they need."""

    __slots__ = (
        "_before",
        "_begun",
        "_changed",
        "_counts",
        "_fade",
        "_failed",
        "_hits",
        "_late",
        "_memory",
        "_numbered",
        "_passed",
        "_seeks_before",
        "_until_refresh",
        "_unused",
        "early",
        "fan_out",
        "horizon",
        "identity",
        "prefetches",
        "priority",
        "seeks",
        "table",
    )  # fmt: skip

    def __init__(self, memory: Foresight, identity: Identity, *, prefetches: bool, priority: float = 1.0) -> None:
        """``prefetches``: whether the rule's policy fetches anything before it is needed; ``priority``: how much its
        partial matches count beside those of other rules."""
        self._memory = memory
        self.identity = identity
        self.table = identity.table
        self.horizon = max(1, identity.horizon)
        self._numbered = identity.numbered
        self.early = identity.early
        self.prefetches = prefetches
        self.priority = priority
        self.seeks = 0
        """How often generated code has looked its keys up."""
        self.fan_out = 1.0
        """How many lookups a partial match of the class leads to."""
        self._counts: dict[Key, int] = {}
        self._before: dict[Key, int] = {}
        self._fade = 0.0
        """How much of the previous part still lies in the window."""
        self._begun: float | None = None
        self._until_refresh = REFRESH_EVERY
        self._passed = self._seeks_before = 0
        self._hits = self._late = self._unused = 0
        self._failed = False
        self._changed: float = 0.0

    # ---------------------------------------------------------------------------------------------------------- counts

    def add(self, key: Key, ts: float) -> None:
        """One more partial match needs the key."""
        counts = self._counts
        counts[key] = counts.get(key, 0) + 1
        self._until_refresh -= 1
        if self._until_refresh <= 0:
            self._refresh(ts)
        if self.prefetches and self.early and self.suits(ts):
            self._memory.fetch_ahead((self.table, key), self)

    def of_key(self, key: Key) -> float:
        """How many partial matches of the last window need the key."""
        return self._counts.get(key, 0) + self._before.get(key, 0) * self._fade

    def _refresh(self, ts: float) -> None:
        self._until_refresh = REFRESH_EVERY
        self._passed += REFRESH_EVERY
        at = self._passed if self._numbered else ts
        if self._begun is None:
            self._begun = at
        windows = (at - self._begun) / self.horizon
        if windows >= 1:
            self._before = self._counts if windows < 2 else {}
            self._counts = {}
            self._begun, windows = at, 0.0
        elif len(self._counts) > KEYS_MAX:
            frequent = nlargest(max(1, KEYS_MAX // 2), self._counts.items(), key=lambda entry: entry[1])
            self._counts = dict(frequent)
        self._fade = 1 - max(0.0, windows)
        if self.seeks:
            recent = (self.seeks - self._seeks_before) / REFRESH_EVERY
            self.fan_out += LATEST_SHARE * (recent - self.fan_out)
            self._seeks_before = self.seeks
        if self.prefetches and not self.early:
            self._fetch_likely()

    def _fetch_likely(self) -> None:
        """The key is known only with the event that needs it: fetch what was needed often, if it may be needed again
        before it could come."""
        soon = self._memory.latency_us(self.table)
        likely = nlargest(LIKELY_MAX, self._counts.items(), key=lambda entry: entry[1])
        for key, count in likely:
            if count > 1 and self.horizon / count > soon:
                self._memory.fetch_ahead((self.table, key), self)

    # ---------------------------------------------------------------------------------------------------------- timing

    def suits(self, ts: float) -> bool:
        """Whether what was fetched when partial matches of this class appeared has mostly been used."""
        if self._failed:
            self._failed, self._changed = False, ts
        if self._unused <= FAILURES_MAX or self._unused <= self._hits:
            return True
        if ts - self._changed > self.horizon:
            self.forget()
            return True
        return False

    def too_late(self) -> bool:
        """Whether its elements mostly come after they are needed."""
        return self._late > FAILURES_MAX and self._late > self._hits

    def was_used(self) -> None:
        self._hits += 1

    def came_late(self) -> None:
        self._late += 1

    def was_unused(self) -> None:
        self._unused += 1
        self._failed = True

    def forget(self) -> None:
        """The history is too old to say anything."""
        self._hits = self._late = self._unused = 0

    # ---------------------------------------------------------------------------------------------------------- saving

    def saved(self) -> list[Any]:
        """Everything as plain values."""
        figures = [getattr(self, name) for name in _SAVED]
        return [self.identity, figures, list(self._counts.items()), list(self._before.items())]

    def restore(self, figures: Sequence[Any], counts: Sequence[Any], before: Sequence[Any]) -> None:
        """Continue with what was saved."""
        for name, figure in zip(_SAVED, figures, strict=True):
            setattr(self, name, figure)
        self._counts, self._before = dict(counts), dict(before)


class Retired:
    """In place of a class whose rule is gone."""

    def was_used(self) -> None: ...

    def was_unused(self) -> None: ...

    def came_late(self) -> None: ...


RETIRED: Final = Retired()


class Foresight(Protocol):
    """What the classes need of the memory that they are kept for."""

    def fetch_ahead(self, place: Place, by: KeyClass) -> None: ...

    def latency_us(self, table: str) -> float: ...
