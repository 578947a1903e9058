"""The outbox for one neighbour: collects the events of one call into one batch, and tracks which bodies it has.

The body of an event crosses a link once. For a further stream, or when a blocker turns out to be a real part, only its
identity follows. Both ends keep what they have sent or received until the sender moves the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, TypeGuard

from headwater.node.step import Work
from headwater.node.streams.identity_map import IdentityMap
from headwater.node.streams.neighbour_checks import Testimony, are_exact, is_exact
from headwater.protocol.composites import Composite
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import Batch, Run, Watermark
from headwater.protocol.wire.received_columns import Columns

Row = tuple[Any, ...]

HISTORY_MAX: Final = 400_000
"""Bodies that are remembered to be with a neighbour, at most some 100 MB at both ends: about a second of the busiest
link. Past it the older half is forgotten; should one of these be needed once more, its body crosses again."""

FEW: Final = 16  # events in a batch up to which it is quicker to look at each than to put them into tables
REFERENCE: Final = "reference"
"""Why an identity is sent: the body has been sent before."""

_ts_of = itemgetter(0)
_name_of = itemgetter(1, 2)
_inner_of = itemgetter(3)


def identity_of(row: Row) -> Any:
    """What tells an event from all others: (node, seq), or the id of a composite."""
    inner = row[3]
    return (row[1], row[2]) if type(inner) is EventType else inner.id


def identities_of(rows: Sequence[Row]) -> list[Any]:
    """The identity of each row."""
    if type(rows) is Columns:
        return list(rows.identities)
    if len(rows) > 1 and set(map(type, map(_inner_of, rows))) == {EventType}:
        return list(map(_name_of, rows))
    return list(map(identity_of, rows))


def type_of(row: Row) -> str:
    """The name of the type of the event in a row."""
    inner = row[3]
    name: str = inner.type if isinstance(inner, Composite) else inner.name
    return name


def by_type(rows: Sequence[Row]) -> list[tuple[str, Sequence[Row]]]:
    """The rows with the names of their types, those of one type that follow each other together."""
    if type(rows) is Columns:
        return [(rows.event_type.name, rows)]
    if len(rows) > 1:
        inner = list(map(_inner_of, rows))
        kinds = set(map(type, inner))
        # What tells types apart is the type itself, or what all composites of a rule have in common.
        if len(set(inner if kinds == {EventType} else map(_ts_of, inner)) if len(kinds) == 1 else kinds) > 1:
            return [(name, list(group)) for name, group in groupby(rows, type_of)]
    return [(type_of(rows[0]), rows)] if rows else []


class Outbox:
    """Events and watermarks for one neighbour."""

    def __init__(self, neighbour: str) -> None:
        self.neighbour = neighbour
        self._taken: list[tuple[Sequence[Row], int, str]] = []
        self._blockers: list[tuple[Sequence[Row], int, str]] = []
        """What was added since the last batch: rows, their stream, and why they are sent."""
        self._watermarks: dict[int, Watermark] = {}
        self.history: IdentityMap[int] = IdentityMap(_ts_of, int)
        """The ts of every body the neighbour has."""
        self._floor_us: int | None = None

    def add(self, rows: Sequence[Row], stream: int, kind: str) -> None:
        """Real events for a stream; ``kind`` says in the accounts why they are sent. The rows may not change after."""
        if rows:
            self._taken.append((rows, stream, kind))

    def add_blockers(self, rows: Sequence[Row], stream: int) -> None:
        if rows:
            self._blockers.append((rows, stream, "blocker"))

    def add_watermark(self, watermark: Watermark) -> None:
        self._watermarks[watermark.number] = watermark

    def flush(self, work: Work) -> None:
        """Everything collected goes out as one batch."""
        runs: list[Run] = []
        if self._blockers:
            self._take(self._blockers, True, runs)
            self._blockers = []
        if self._taken:
            self._take(self._taken, False, runs)
            self._taken = []
        watermarks: tuple[Watermark, ...] = ()
        if self._watermarks:
            watermarks = tuple(self._watermarks.values())
            self._watermarks = {}
        if runs or watermarks:
            floor, self._floor_us = self._floor_us, None
            work.send(self.neighbour, Batch(tuple(runs), watermarks, floor))
            if len(self.history) > HISTORY_MAX:
                self.forget_before(self.history.middle_us() + 1)

    def _take(self, taken: list[tuple[Sequence[Row], int, str]], blocker: bool, runs: list[Run]) -> None:
        """Each event once, for all its streams, in the order in which they came."""
        if len(taken) == 1 and len(taken[0][0]) == 1:  # the usual case where traffic is light
            ((row,), stream, kind) = taken[0]
            identity = identity_of(row)
            if identity in self.history:
                runs.append(Run((identity,), None, (stream,), blocker, REFERENCE))
            else:
                self.history[identity] = row[0]
                runs.append(Run((identity,), (row,), (stream,), blocker, kind))
            return
        if _are_apart(taken):  # the usual case where events only pass through
            for rows, stream, kind in taken:
                if self.history.add(rows):
                    runs.append(Run(rows.identities, rows, (stream,), blocker, kind))
                else:
                    self._take_rows([(rows, stream, kind)], blocker, runs)
            return
        self._take_rows(taken, blocker, runs)

    def _take_rows(self, taken: list[tuple[Sequence[Row], int, str]], blocker: bool, runs: list[Run]) -> None:
        if sum([len(rows) for rows, _, _ in taken]) < FEW:
            self._take_each(taken, blocker, runs)
            return
        batches = [dict(zip(identities_of(rows), rows, strict=True)) for rows, _, _ in taken]
        history = self.history
        if len(batches) > 1 and not _are_disjoint(batches):
            self._take_each(taken, blocker, runs)
            return
        for by_identity, (rows, stream, kind) in zip(batches, taken, strict=True):
            if not history.has_none_of(by_identity):
                self._take_each([(rows, stream, kind)], blocker, runs)
            elif by_identity:
                whole = type(rows) is Columns and len(rows) == len(by_identity)
                bodies = rows if whole else tuple(by_identity.values())
                history.update(zip(by_identity, map(_ts_of, bodies), strict=True))
                runs.append(Run(tuple(by_identity), bodies, (stream,), blocker, kind))

    def _take_each(self, taken: list[tuple[Sequence[Row], int, str]], blocker: bool, runs: list[Run]) -> None:
        """The same one by one, for a few, or if some of them go on several streams or have been sent before."""
        where: dict[Any, tuple[Row, tuple[int, ...], str]] = {}
        for rows, stream, kind in taken:
            for row in rows:
                identity = identity_of(row)
                earlier = where.get(identity)
                if earlier is None:
                    where[identity] = (row, (stream,), kind)
                elif stream not in earlier[1]:
                    where[identity] = (row, (*earlier[1], stream), earlier[2])
        history = self.history
        alike: tuple[tuple[int, ...], str] | None = None
        names: list[Any] = []
        bodies: list[Row] = []
        for identity, (row, streams, kind) in where.items():
            if identity in history:
                kind = REFERENCE
            else:
                history[identity] = row[0]
            if alike != (streams, kind):
                if alike is not None:
                    runs.append(_run(names, bodies, alike, blocker))
                alike, names, bodies = (streams, kind), [], []
            names.append(identity)
            bodies.append(row)
        if alike is not None:
            runs.append(_run(names, bodies, alike, blocker))

    def forget_before(self, ts: int) -> None:
        """Bodies older than this will not be referred to; the neighbour hears of it with the next batch."""
        if self.history.forget_before(ts):
            self._floor_us = ts


class Inbox:
    """Bodies that came from one neighbour and may be referred to again."""

    def __init__(self, testimony: Testimony) -> None:
        self.bodies: IdentityMap[Row] = IdentityMap(tuple, _ts_of)
        self._testimony = testimony

    def rows(self, run: Run) -> Sequence[Row]:
        """The rows of a run; fewer than it names if it refers to bodies that never came, or if bodies contradict what
        was told before of the same events."""
        bodies, identities, rows = self.bodies, run.identities, run.rows
        if rows is None:
            return [row for row in map(bodies.get, identities) if row is not None]
        if type(rows) is Columns and bodies.has_room_for(rows) and self._testimony.notes(rows):
            bodies.add(rows)
            return rows
        if len(rows) == 1:  # the usual case where traffic is light
            return rows if self._takes(identities[0], rows[0]) else ()
        if rows:
            by_identity = dict(zip(identities, rows, strict=True))
            if len(by_identity) == len(rows) and bodies.has_none_of(by_identity) and are_exact(rows):
                bodies.update(by_identity)
                return rows
        taken = [row for identity, row in zip(identities, rows, strict=True) if self._takes(identity, row)]
        return rows if len(taken) == len(rows) else taken

    def _takes(self, identity: Any, row: Row) -> bool:
        inner = row[3]
        earlier = self.bodies.get(identity)
        if earlier is None:
            self.bodies[identity] = row
        elif earlier is not row and earlier != row:
            return False
        if (type(inner) is EventType and is_exact(inner)) or self._testimony.agrees(identity, row):
            return True
        del self.bodies[identity]
        return False

    def forget_before(self, ts: int) -> None:
        self.bodies.forget_before(ts)


def holds_composites(rows: Sequence[Row]) -> bool:
    """Whether the first of these is a composite event."""
    return type(rows) is not Columns and isinstance(rows[0][3], Composite)


def _run(names: list[Any], bodies: list[Row], alike: tuple[tuple[int, ...], str], blocker: bool) -> Run:
    streams, kind = alike
    return Run(tuple(names), None if kind == REFERENCE else tuple(bodies), streams, blocker, kind)


def _are_apart(taken: Sequence[tuple[Sequence[Row], int, str]]) -> TypeGuard[list[tuple[Columns, int, str]]]:
    """Whether all of them came in columns, and no event can be in two of them."""
    if not all(type(rows) is Columns for rows, _, _ in taken):
        return False
    return len(taken) == 1 or _are_disjoint([dict.fromkeys(identities_of(rows)) for rows, _, _ in taken])


def _are_disjoint(sets: Sequence[dict[Any, Any]]) -> bool:
    """Whether no two of them have an identity in common."""
    together: set[Any] = set()
    for identities in sets:
        together.update(identities)
    return len(together) == sum(map(len, sets))
