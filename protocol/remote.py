"""Remote tables: tables outside the stream in which a rule may look values up (``REMOTE.table[key, ..]``).

A table is static, or versioned by event time: an entry with ``valid_from`` answers lookups at that time and later,
until a newer version of the same key replaces it. The engine asks with the ts of the latest event that the arguments
name, so the answer depends on the trace alone and never on when the question is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from headwater.protocol.events import Value

RemoteValue = Value | tuple[Value, ...]
"""What a lookup gives: one value, a collection for ``in``, or None where there is none."""


class RemoteEntry(NamedTuple):
    """One row of a table: from ``valid_from`` on (None: always), ``key`` stands for ``value``."""

    key: tuple[Value, ...]
    value: RemoteValue
    valid_from: int | None = None


class Versions(NamedTuple):
    """All that a table says of one key: from ``times[i]`` on ``values[i]`` holds; before the first it has no value."""

    times: tuple[float, ...]
    values: tuple[RemoteValue, ...]

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
        return cls((float("-inf"),), (value,))

    def at(self, ts: int) -> RemoteValue:
        """The value that holds at ``ts``, or None."""
        index = bisect_right(self.times, ts)
        return self.values[index - 1] if index else None


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
