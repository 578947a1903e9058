"""Events of one type as they came over a link: still as bytes, decoded only as far as most nodes need.

A node that passes events on needs neither their rows nor their values. It must know which events they are, to send each
once; how old they are, to forget them in time; and that they are well-formed, so that no node behind it is told what it
cannot read. The rest is made when it is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any, Final, overload

import msgpack

from headwater.protocol.events import EventType

Row = tuple[Any, ...]

LAZY_LEAST: Final = 16
"""Events that come together from which on they are kept as columns; of fewer it is quicker to make the rows at once."""


class Columns(Sequence[Row]):
    """The rows of events of one type, at least one, in the order in which they were sent. It never changes.

    ``data`` are the bytes of ``[[number], times, node, seqs, values, ..]``: of times and seqs the first, then what each
    adds to the one before. The maker of one has checked what the bytes hold, but for how large times and seqs are.
    """

    __slots__ = (
        "_bare",
        "_count",
        "_plain",
        "_rows",
        "_seqs",
        "data",
        "event_type",
        "first",
        "greatest_us",
        "is_ordered",
        "last",
        "least_us",
        "node",
        "number",
    )

    def __init__(self, event_type: EventType, number: int, data: bytes, plain: list[Any]) -> None:
        """``number`` stands for the type in the bytes; ``plain`` is what the bytes hold."""
        _, times, node, seqs, *_ = plain
        self.event_type = event_type
        self.number = number
        self.data = data
        self._plain: list[Any] | None = plain
        self._rows: tuple[Row, ...] | None = None
        self._bare: Columns | None = None
        self._count = count = len(times)
        self.least_us: int
        self.greatest_us: int
        """The times of the earliest and the latest."""
        if min(times) >= 0:
            self.least_us, self.greatest_us = times[0], sum(times)
        else:
            moments = list(accumulate(times))
            self.least_us, self.greatest_us = min(moments), max(moments)
        self.node: str | None = node if type(node) is str else None
        """Where they were all born; None: at several nodes."""
        self._seqs: list[int] | None = None
        """None if they follow each other without gaps."""
        self.first: int = seqs[0]
        self.last: int
        """Their least and their greatest number."""
        self.is_ordered = True
        """Whether each has a greater number than the one before."""
        if seqs.count(1) - (self.first == 1) == count - 1:
            self.last = self.first + count - 1
        else:
            self._seqs = list(accumulate(seqs))
            self.first, self.last = min(self._seqs), max(self._seqs)
            self.is_ordered = count == 1 or min(seqs[1:]) > 0

    def rows(self) -> tuple[Row, ...]:
        """All of them; made once."""
        if self._rows is None:
            plain = self._plain if self._plain is not None else msgpack.unpackb(self.data)
            _, times, node, seqs, *values = plain
            nodes = repeat(node) if type(node) is str else node
            kind = repeat(self.event_type)
            self._rows = tuple(zip(accumulate(times), nodes, accumulate(seqs), kind, *values))  # noqa: B905
            self._plain = None
        return self._rows

    @property
    def identities(self) -> ColumnIdentities:
        """(node, seq) of each."""
        return ColumnIdentities(self)

    def times(self) -> list[int]:
        plain = self._plain if self._plain is not None else msgpack.unpackb(self.data)
        return list(accumulate(plain[1]))

    def seqs(self) -> Sequence[int]:
        return range(self.first, self.last + 1) if self._seqs is None else self._seqs

    def place(self, seq: int) -> int | None:
        """Where the event with this number is, if they are ordered; None if it is not among them."""
        if not self.first <= seq <= self.last:
            return None
        if self._seqs is None:
            return seq - self.first
        place = bisect_left(self._seqs, seq)
        return place if self._seqs[place] == seq else None

    def bare(self) -> Columns:
        """The same to be remembered: without anything that was made from the bytes and is not always needed."""
        if self._bare is None:
            bare: Columns = object.__new__(Columns)
            bare.event_type, bare.number, bare.data = self.event_type, self.number, self.data
            bare._count, bare.node = self._count, self.node
            bare.least_us, bare.greatest_us = self.least_us, self.greatest_us
            bare.first, bare.last, bare.is_ordered = self.first, self.last, self.is_ordered
            bare._plain, bare._rows, bare._seqs, bare._bare = None, None, self._seqs, None
            self._bare = bare
        return self._bare

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Sequence[Row]:
        return self.rows()[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.rows() == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Columns({self.rows()!r})"

    def __reduce__(self) -> Any:
        return _restored, (self.event_type, self.number, self.data)


class ColumnIdentities(Sequence[tuple[str, int]]):
    """Which events columns hold."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        columns = self._columns
        if columns.node is not None:
            return zip(repeat(columns.node), columns.seqs(), strict=False)
        return ((row[1], row[2]) for row in columns.rows())

    @overload
    def __getitem__(self, place: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[str, int]]: ...
    def __getitem__(self, place: int | slice) -> tuple[str, int] | Sequence[tuple[str, int]]:
        return tuple(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Identities({tuple(self)!r})"


def _restored(event_type: EventType, number: int, data: bytes) -> Columns:
    return Columns(event_type, number, data, msgpack.unpackb(data)).bare()
