"""A map from the identities of events to what is known of them, with runs of events stored as one stretch.

A node remembers the events of every neighbour for some horizons. Where traffic is thick they come in columns, from one
source and numbered in order; such a stretch is remembered as its bytes and the range of its numbers, which takes a
twentieth of the memory and of the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from headwater.protocol.wire.received_columns import Columns

Row = tuple[Any, ...]
T = TypeVar("T")

LANES_MAX: Final = 16
"""Types and streams of one node whose numbers interleave and that are remembered as stretches: each new one is compared
with all of them. Of more than these each event is remembered by itself."""

NEAR_MAX: Final = 64
"""Stretches that a new one is compared with in one list. Numbers that lie between those of more than these are sparse,
and each event is remembered by itself."""

STRETCH_MAX: Final = 10_000
"""Events that are remembered as one: a question about one of them must wait until all are read."""

_first_of = attrgetter("columns.first")


class _Stretch:
    """Columns of which everything at or after a time is known."""

    __slots__ = ("columns", "count", "floor_us")

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.count = len(columns)
        """How many of them are known."""
        self.floor_us: int | None = None
        """None: all of them."""

    def row(self, seq: int) -> Row | None:
        """The event with this number, if it is known."""
        place = self.columns.place(seq)
        if place is None:
            return None
        row = self.columns[place]
        return row if self.floor_us is None or row[0] >= self.floor_us else None

    def holds(self, seq: int) -> bool:
        if self.floor_us is None:
            return self.columns.place(seq) is not None
        return self.row(seq) is not None

    def rows(self) -> Sequence[Row]:
        rows, floor_us = self.columns.rows(), self.floor_us
        return rows if floor_us is None else [row for row in rows if row[0] >= floor_us]

    def forget_before(self, ts: int) -> None:
        if self.columns.greatest_us < ts:
            self.count = 0
        elif self.columns.least_us < ts and (self.floor_us is None or self.floor_us < ts):
            self.floor_us = ts
            self.count = sum(time_us >= ts for time_us in self.columns.times())


class IdentityMap(Generic[T]):
    """Maps the identity of an event to what is known of it: like a dict, but many events can be added at once."""

    def __init__(self, of_row: Callable[[Row], T], ts_of: Callable[[T], int]) -> None:
        """``of_row`` gives what is remembered of an event from its row, ``ts_of`` the time from what is remembered."""
        self._of_row = of_row
        self._ts_of = ts_of
        self._single: dict[Any, T] = {}
        self._lanes: dict[str, list[list[_Stretch]]] = {}
        """By node lists of stretches, in the order of their numbers. No two in one list overlap: where a node tells of
        several types, whose numbers interleave, each has a list of its own."""
        self._in_stretches = 0

    # --------------------------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        return len(self._single) + self._in_stretches

    def __contains__(self, identity: Any) -> bool:
        return identity in self._single or (bool(self._lanes) and self._stretch(identity) is not None)

    def __iter__(self) -> Iterator[Any]:
        yield from self._single
        for stretch in self._all():
            for row in stretch.rows():
                yield row[1], row[2]

    def get(self, identity: Any) -> T | None:
        remembered = self._single.get(identity)
        if remembered is None and self._lanes:
            stretch = self._stretch(identity)
            row = None if stretch is None else stretch.row(identity[1])
            return None if row is None else self._of_row(row)
        return remembered

    def has_none_of(self, identities: Collection[Any]) -> bool:
        """Whether none of these is known."""
        if self._lanes:
            nodes = {identity[0] for identity in identities if type(identity) is tuple}
            if not self._lanes.keys().isdisjoint(nodes) and any(map(self._stretch, identities)):
                return False
        return self._single.keys().isdisjoint(identities)

    def _stretch(self, identity: Any) -> _Stretch | None:
        """The stretch in which the event is known. Composites, whose identity is a text, are in none."""
        if type(identity) is not tuple:
            return None
        node, seq = identity
        for lane in self._lanes.get(node, ()):
            place = bisect_right(lane, seq, key=_first_of)
            if place and lane[place - 1].holds(seq):
                return lane[place - 1]
        return None

    def _all(self) -> Iterator[_Stretch]:
        for lanes in self._lanes.values():
            for lane in lanes:
                yield from lane

    # --------------------------------------------------------------------------------------------------------- writing

    def __setitem__(self, identity: Any, remembered: T) -> None:
        """Remember an event that is in no stretch."""
        self._single[identity] = remembered

    def __delitem__(self, identity: Any) -> None:
        """Forget an event that is in no stretch."""
        del self._single[identity]

    def update(self, more: Mapping[Any, T] | Iterable[tuple[Any, T]]) -> None:
        """Remember events that were not known."""
        self._single.update(more)

    def add(self, columns: Columns) -> bool:
        """Remember them all, if they can be remembered as one and none of them is known; whether that was so."""
        room = self._room(columns)
        if room is None:
            return False
        lane, place = room
        if not lane:
            assert columns.node is not None
            self._lanes.setdefault(columns.node, []).append(lane)
        lane.insert(place, _Stretch(columns.bare()))
        self._in_stretches += len(columns)
        return True

    def has_room_for(self, columns: Columns) -> bool:
        """Whether they could be added."""
        return self._room(columns) is not None

    def _room(self, columns: Columns) -> tuple[list[_Stretch], int] | None:
        """The list to which they can be added, and the place in it; a new one if they fit into none."""
        node, first, last = columns.node, columns.first, columns.last
        if node is None or not columns.is_ordered or len(columns) > STRETCH_MAX:
            return None
        if self._single and not self._single.keys().isdisjoint(columns.identities):
            return None
        lanes = self._lanes.get(node, ())
        numbers: set[int] | None = None
        room: tuple[list[_Stretch], int] | None = None
        for lane in lanes:
            place = len(lane) if lane[-1].columns.first < first else bisect_right(lane, first, key=_first_of)
            near = begin = place - 1 if place and lane[place - 1].columns.last >= first else place
            while near < len(lane) and lane[near].columns.first <= last:
                if numbers is None:
                    numbers = set(columns.seqs())
                if near - begin >= NEAR_MAX or not numbers.isdisjoint(lane[near].columns.seqs()):
                    return None
                near += 1
            if near == begin and room is None:
                room = lane, place
        return room or (([], 0) if len(lanes) < LANES_MAX else None)

    # ------------------------------------------------------------------------------------------------------ forgetting

    def forget_before(self, ts: int) -> bool:
        """Forget events older than this; whether there were any."""
        before = len(self)
        ts_of = self._ts_of
        if self._single:
            self._single = {
                identity: remembered for identity, remembered in self._single.items() if ts_of(remembered) >= ts
            }
        if any(stretch.columns.least_us < ts for stretch in self._all()):
            trimmed = {node: [self._since(lane, ts) for lane in lanes] for node, lanes in self._lanes.items()}
            self._lanes = {node: kept for node, lanes in trimmed.items() if (kept := [lane for lane in lanes if lane])}
            self._in_stretches = sum(stretch.count for stretch in self._all())
        return len(self) < before

    def _since(self, lane: list[_Stretch], ts: int) -> list[_Stretch]:
        """What remains of some stretches. Those of which little is left become single events, for the bytes of all the
        others would stay, too."""
        kept = []
        for stretch in lane:
            stretch.forget_before(ts)
            if stretch.count * 2 > len(stretch.columns):
                kept.append(stretch)
            elif stretch.count:
                self._single.update(((row[1], row[2]), self._of_row(row)) for row in stretch.rows())
        return kept

    def middle_us(self) -> int:
        """A time up to which there is half of everything, or more."""
        times = [(self._ts_of(remembered), 1) for remembered in self._single.values()]
        times += [(stretch.columns.greatest_us, stretch.count) for stretch in self._all()]
        times.sort()
        left = (len(self) + 1) // 2
        for ts, count in times:
            left -= count
            if left <= 0:
                return ts
        raise ValueError("nothing is known")
