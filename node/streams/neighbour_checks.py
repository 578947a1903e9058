"""Checks what neighbours say about events: a neighbour that errs or lies is not believed and stops no other.

Rows are compared all over a node: they are in order of (ts, node, seq), which no two events share. If two did, their
values would be compared, and not all values can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from headwater.node.plans.catalog import Catalog
from headwater.node.streams.identity_map import IdentityMap
from headwater.protocol.composites import Composite
from headwater.protocol.events import HEADER_WIDTH, EventType
from headwater.protocol.wire.received_columns import Columns

Row = tuple[Any, ...]

REMEMBERED_MAX: Final = 400_000
"""Events remembered to compare with, as many as bodies of one neighbour; past it the older half is forgotten."""

_ts_of = itemgetter(0)
_inner_of = itemgetter(3)
_NUMBERS: Final[frozenset[type]] = frozenset((int, float, bool, type(None)))
_TEXTS: Final[frozenset[type]] = frozenset((str, type(None)))
_FITTING: Final[Mapping[str, frozenset[type]]] = {
    "int": _NUMBERS,
    "float": _NUMBERS,
    "bool": _NUMBERS,
    "string": _TEXTS,
    "any": _NUMBERS | _TEXTS | {tuple},
}
"""What values of composites may be: expressions turn numbers of one kind into another, but never into text."""


class Shapes:
    """What the events of a stream look like: as they were declared here, whatever the neighbour has declared."""

    def __init__(self, names: frozenset[str], catalog: Catalog) -> None:
        self._primitive = frozenset(catalog.types[name] for name in names if name in catalog.types)
        self._composite = {name: catalog.composites[name] for name in sorted(names & catalog.composites.keys())}

    def foreign(self, rows: Sequence[Row]) -> int:
        """How many of the rows the stream may not carry."""
        if type(rows) is Columns:
            return 0 if rows.event_type in self._primitive else len(rows)
        if len(rows) == 1:  # the usual case where traffic is light
            (row,) = rows
            return 0 if (type(row[3]) is EventType and row[3] in self._primitive) or self._is_own(row) else 1
        inner = list(map(_inner_of, rows))
        if set(map(type, inner)) == {EventType}:
            strange = set(inner) - self._primitive
            return sum(event_type in strange for event_type in inner) if strange else 0
        return sum(not self._is_own(row) for row in rows)

    def _is_own(self, row: Row) -> bool:
        inner = row[3]
        if not isinstance(inner, Composite):
            return inner in self._primitive
        declared = self._composite.get(inner.type)
        if declared is None or inner.spec.type.attributes != declared.attributes:
            return False
        return all(
            type(value) in _FITTING[kind] for value, kind in zip(row[HEADER_WIDTH:], declared.kinds, strict=True)
        )


@lru_cache(maxsize=4096)
def is_exact(event_type: EventType) -> bool:
    """Whether any two rows of the type can be compared, whatever they hold."""
    return not any(event_type.optional) and "any" not in event_type.kinds


def are_exact(rows: Sequence[Row]) -> bool:
    """The same for the types of some rows."""
    if type(rows) is Columns:
        return is_exact(rows.event_type)
    if len(rows) == 1:
        inner = rows[0][3]
        return type(inner) is EventType and is_exact(inner)
    return all(type(inner) is EventType and is_exact(inner) for inner in set(map(_inner_of, rows)))


class Testimony:
    """What was first said, by any neighbour, of events whose accounts cannot always be compared."""

    def __init__(self) -> None:
        self._known: IdentityMap[Row] = IdentityMap(tuple, _ts_of)

    def agrees(self, identity: Any, row: Row) -> bool:
        """Whether no neighbour has said otherwise. The first account counts: which one is true cannot be known."""
        earlier = self._known.get(identity)
        if earlier is None:
            self._known[identity] = row
        return earlier is None or earlier is row or earlier == row

    def notes(self, columns: Columns) -> bool:
        """Whether no neighbour can have said otherwise of any of them; if one may have, each must be checked."""
        return is_exact(columns.event_type) or self._known.add(columns)

    def forget_before(self, ts: int) -> None:
        if len(self._known) > REMEMBERED_MAX:
            ts = max(ts, self._known.middle_us() + 1)
        if self._known:
            self._known.forget_before(ts)

    def held(self) -> int:
        return len(self._known)
