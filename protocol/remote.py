"""Remote tables: tables outside the stream in which a rule may look values up (``REMOTE.table[key, ..]``).

A table is static, or versioned by event time: an entry with ``valid_from`` answers lookups at that time and later,
until a newer version of the same key replaces it. The engine asks with the ts of the latest event that the arguments
name, so the answer depends on the trace alone and never on when the question is asked. A table that is fresh for some
time is the third kind: what it answers depends on when it is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from headwater.protocol.events import Value, kind_of

RemoteValue = Value | tuple[Value, ...]
"""What a lookup gives: one value, a collection for ``in``, or None where there is none."""


WAIT: Final = "wait"
REJECT: Final = "reject"
ACCEPT: Final = "accept"
ON_FAILURE: Final = (WAIT, REJECT, ACCEPT)


@dataclass(frozen=True, slots=True)
class TableTerms:
    """What a lookup in a table means beyond what its data say."""

    fresh_us: int | None = None
    """How old an element may be when the deciding event arrives; None: elements never change."""
    on_failure: str = WAIT
    """What becomes of a comparison whose element cannot be had: it waits, it is false, or it is true."""
    lineage: bool = False
    """Whether composites say the values that they rest on; where ``fresh_us`` is given, they always do."""
    whole: bool = False
    """Whether an answer holds more keys than were asked for: all that belong to the same whole."""

    @property
    def is_steady(self) -> bool:
        """Whether a lookup gives the same whenever it is made."""
        return self.fresh_us is None and self.on_failure == WAIT


STEADY: Final = TableTerms()


class RemoteEntry(NamedTuple):
    """One row of a table: from ``valid_from`` on (None: always), ``key`` stands for ``value``."""

    key: tuple[Value, ...]
    value: RemoteValue
    valid_from: int | None = None


ALWAYS: Final = (float("-inf"),)
"""The times of a key that has one value for ever."""


class Versions(NamedTuple):
    """All that a table says of one key: from ``times[i]`` on ``values[i]`` holds; before the first it has no value."""

    times: tuple[float, ...]
    values: tuple[RemoteValue, ...]
    fetched_us: int | None = None
    """When it came, where that matters."""

    @classmethod
    def of(cls, values: Iterable[tuple[int | None, RemoteValue]]) -> Versions:
        """From pairs of a time (None: always) and a value; values of the same time form one collection."""
        grouped: dict[float, list[RemoteValue]] = {}
        for valid_from, value in values:
            grouped.setdefault(float("-inf") if valid_from is None else valid_from, []).append(value)
        times = sorted(grouped)
        return cls(tuple(times), tuple(_joined(grouped[since]) for since in times))

    @classmethod
    def always(cls, value: RemoteValue) -> Versions:
        return cls(ALWAYS, (value,))

    def at(self, ts: int) -> RemoteValue:
        """The value that holds at ``ts``, or None."""
        times, values, _ = self
        if times is ALWAYS:
            return values[0]
        index = bisect_right(times, ts)
        return values[index - 1] if index else None


class Failed(Versions):
    """In place of an element that could not be had: what its comparisons give instead."""

    __slots__ = ()

    @property
    def on_failure(self) -> str:
        (instead,) = self.values
        assert isinstance(instead, str)
        return instead

    def at(self, ts: int) -> Any:
        return ACCEPTED if self.values[0] == ACCEPT else None


def failed(on_failure: str, fetched_us: int | None = None) -> Failed:
    return Failed((), (on_failure,), fetched_us)


def saved_versions(times: Any, values: Any, fetched_us: Any = None) -> Versions:
    """What was saved as plain values; one that could not be had has a value and no time."""
    kind = Failed if values and not times else Versions
    return kind(tuple(times), tuple(values), fetched_us)


class _Accepted:
    """In place of a value that could not be had: every comparison with a value is true, also of what is computed from
    it."""

    __slots__ = ()

    def _holds(self, other: object) -> bool:
        return other is not None

    def _itself(self, *_: object) -> _Accepted:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _holds
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _itself
    __truediv__ = __rtruediv__ = __mod__ = __rmod__ = __neg__ = _itself

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "ACCEPTED"


ACCEPTED: Final = _Accepted()


@dataclass(frozen=True, slots=True)
class TableShape:
    """What is known of a table before anything is looked up in it, to check rules against."""

    key_lengths: frozenset[int] = frozenset()
    """How many values a key has; empty: that is not known."""
    kind: str = "any"
    """The kind of all its values, or of the members of collections; "any": that is not known, or differs."""
    collection_at: tuple[Value, ...] | None = None
    """A key that has a collection, if one is known to have."""


class LookupTable(Protocol):
    """What rules look values up in."""

    def lookup(self, arguments: tuple[Value, ...], ts: int) -> RemoteValue:
        """The value for these arguments in the latest version valid at ``ts``, or None."""

    def key_lengths(self) -> set[int]:
        """With how many arguments a lookup can find something; empty where that is not known."""


class RemoteTable:
    """Values by key and event time. Entries with the same key and the same ``valid_from`` form one collection."""

    __slots__ = ("_versions",)

    def __init__(self, entries: Iterable[RemoteEntry | tuple[Any, ...]] = ()) -> None:
        grouped: dict[tuple[Value, ...], list[tuple[int | None, RemoteValue]]] = {}
        for entry in entries:
            key, value, valid_from = RemoteEntry(*entry)
            grouped.setdefault(key, []).append((valid_from, value))
        self._versions = {key: Versions.of(values) for key, values in grouped.items()}

    @classmethod
    def from_mapping(cls, values: Mapping[Any, RemoteValue]) -> RemoteTable:
        """A static table; a key that is not a tuple is the one argument of the lookup."""
        return cls(RemoteEntry(key if isinstance(key, tuple) else (key,), value) for key, value in values.items())

    def lookup(self, arguments: tuple[Value, ...], ts: int) -> RemoteValue:
        """The value for these arguments in the latest version valid at ``ts``, or None."""
        versions = self._versions.get(arguments)
        return None if versions is None else versions.at(ts)

    def versions(self, key: tuple[Value, ...]) -> Versions | None:
        """All that the table says of a key; None if it does not have it."""
        return self._versions.get(key)

    def key_lengths(self) -> set[int]:
        """With how many arguments a lookup can find something."""
        return set(map(len, self._versions))

    def shape(self) -> TableShape:
        kinds: set[str] = set()
        collection_at: tuple[Value, ...] | None = None
        for key, versions in self._versions.items():
            for value in versions.values:
                if isinstance(value, tuple):
                    collection_at = key if collection_at is None else collection_at
                members = value if isinstance(value, tuple) else (value,)
                kinds.update(kind_of(member) for member in members if member is not None)
        kind = kinds.pop() if len(kinds) == 1 else "float" if kinds == {"int", "float"} else "any"
        return TableShape(frozenset(self.key_lengths()), kind, collection_at)

    @property
    def versioned(self) -> bool:
        """Whether some value holds only from a time on."""
        return any(versions.times != ALWAYS for versions in self._versions.values())

    def __len__(self) -> int:
        return len(self._versions)

    def __repr__(self) -> str:
        return f"RemoteTable({len(self)} keys)"


def _joined(values: list[RemoteValue]) -> RemoteValue:
    if len(values) == 1:
        return values[0]
    flat: list[Value] = []
    for value in values:
        if isinstance(value, tuple):
            flat.extend(value)
        else:
            flat.append(value)
    return tuple(flat)
