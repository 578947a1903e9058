"""What an engine expects of the remote tables that it looks into: which elements are at hand, and what is to be done
where one is missing. ``node.remote.memory`` provides it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from headwater.protocol.events import Value
from headwater.protocol.remote import Versions

Key = tuple[Value, ...]
Place = tuple[str, Key]
"""A table and a key."""


class Sign:
    """A value that stands for none, and is compared by identity."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


MISSING: Final = Sign("MISSING")
"""In place of an element: it is not at hand."""


class AskedMarker:
    """In place of a table: its elements are asked for, and may come later."""

    asked = True

    def __init__(self, *, accepts: bool = False) -> None:
        self.accepts = accepts
        """Whether comparisons with elements that cannot be had are true: no index finds what they hold for."""

    def key_lengths(self) -> set[int]:
        return set()


ASKED: Final = AskedMarker()
ASKED_ACCEPTING: Final = AskedMarker(accepts=True)


@dataclass(frozen=True, slots=True)
class Waiting:
    """How evaluations of a rule behave where an element is missing; rows of ``node.remote.policies``."""

    pauses: bool = False
    """The engine takes no further input until the element is there."""
    one_by_one: bool = False
    """An evaluation ends at the first missing element, instead of noting all that it finds missing."""
    postpones: bool = True
    """Plain conditions are judged on complete matches where their elements are missing."""
    only_last: bool = False
    """Plain conditions are judged on complete matches only."""
    lookahead: int | None = None
    """Elements are fetched when a run is so many stages before the one that needs them; None: where they come in
    time."""
    stages_in_doubt: int | None = None
    """A run passes so many stages before it waits for the element that it is in doubt about; None: where that pays."""


class Counted(Protocol):
    """Partial matches that have bound the key of a lookup, by key."""

    horizon: int
    seeks: int
    """How often the lookup was made."""

    def add(self, key: Key, ts: float) -> None:
        """One more of them: its element may be fetched already."""
        ...

    def too_late(self) -> bool:
        """Whether elements that were fetched for them mostly came after they were needed."""
        ...

    def forget(self) -> None:
        """Whether they came in time has to be seen again."""
        ...


class RemoteMemory(Protocol):
    """What is at hand of remote tables."""

    def finder(self, table: str) -> Callable[[Key], Versions | Sign | None]:
        """What gives the element of a key, None if the table does not have it, or MISSING."""
        ...

    def want(self, table: str, key: Key) -> None:
        """The element is needed: have it fetched, unless it is under way."""
        ...

    def waiting(self, rule: str) -> Waiting:
        """How evaluations of a rule behave where an element is missing."""
        ...

    def key_class(
        self, rule: str, name: str, table: str, horizon: int, *, numbered: bool, early: bool
    ) -> Counted | None:
        """What counts the partial matches that have bound the key of a lookup of the rule; None if nothing does.

        ``name`` tells the lookups of a rule apart. ``horizon``: the length of the rule's window, in event time or (if
        ``numbered``) in events. ``early``: whether time may pass before the element is needed.
        """
        ...

    def latency_us(self, table: str) -> float:
        """How long elements of the table take to come."""
        ...

    def is_steady(self, table: str) -> bool:
        """Whether a lookup in the table gives the same whenever it is made."""
        ...

    def records(self, table: str) -> bool:
        """Whether composites say what was looked up in the table."""
        ...
