"""What a node has for one neighbour: events collected during one call, sent as one batch; and who knows which body.

The body of an event crosses a link once. For a further stream, or when a blocker turns out to be a real part, only its
identity follows. Both ends keep what they have sent or received until the sender moves the floor.
"""

from __future__ import annotations

from typing import Any

from node.work import Work
from protocol.composites import Composite
from protocol.events import EventType
from protocol.messages import Batch, Item, Mark

Row = tuple[Any, ...]


def identity_of(row: Row) -> Any:
    """What tells an event from all others: (node, seq), or the id of a composite."""
    inner = row[3]
    return (row[1], row[2]) if type(inner) is EventType else inner.id


def type_of(row: Row) -> str:
    """The name of the type of the event in a row."""
    inner = row[3]
    name: str = inner.type if isinstance(inner, Composite) else inner.name
    return name


class Outbox:
    """Events and marks for one neighbour."""

    def __init__(self, neighbour: str) -> None:
        self.neighbour = neighbour
        self._items: dict[Any, tuple[Row, list[int], str]] = {}
        self._blockers: dict[Any, tuple[Row, list[int], str]] = {}
        self._marks: dict[int, Mark] = {}
        self.history: dict[Any, int] = {}
        """Identity and ts of every body the neighbour has."""
        self._floor_us: int | None = None

    def add(self, row: Row, stream: int, kind: str) -> None:
        """A real event for a stream; ``kind`` says in the accounts why it is sent."""
        identity = identity_of(row)
        found = self._items.get(identity)
        if found is None:
            self._items[identity] = (row, [stream], kind)
        elif stream not in found[1]:
            found[1].append(stream)

    def add_blocker(self, row: Row, stream: int) -> None:
        identity = identity_of(row)
        found = self._blockers.get(identity)
        if found is None:
            self._blockers[identity] = (row, [stream], "blocker")
        elif stream not in found[1]:
            found[1].append(stream)

    def mark(self, mark: Mark) -> None:
        self._marks[mark.number] = mark

    def flush(self, work: Work) -> None:
        """Everything collected goes out as one batch."""
        items: list[Item] = []
        if self._blockers:
            self._take(self._blockers, True, items)
            self._blockers = {}
        if self._items:
            self._take(self._items, False, items)
            self._items = {}
        marks: tuple[Mark, ...] = ()
        if self._marks:
            marks = tuple(self._marks.values())
            self._marks = {}
        if items or marks:
            floor, self._floor_us = self._floor_us, None
            work.send(self.neighbour, Batch(tuple(items), marks, floor))

    def _take(self, found: dict[Any, tuple[Row, list[int], str]], blocker: bool, items: list[Item]) -> None:
        history = self.history
        for identity, (row, streams, kind) in found.items():
            if identity in history:
                items.append(Item(identity, None, tuple(streams), blocker, "reference"))
            else:
                history[identity] = row[0]
                items.append(Item(identity, row, tuple(streams), blocker, kind))

    def forget_before(self, ts: int) -> None:
        """Bodies older than this will not be referred to; the neighbour hears of it with the next batch."""
        old = [identity for identity, sent in self.history.items() if sent < ts]
        for identity in old:
            del self.history[identity]
        if old:
            self._floor_us = ts


class Inbox:
    """Bodies that came from one neighbour and may be referred to again."""

    def __init__(self) -> None:
        self.bodies: dict[Any, Row] = {}

    def row(self, item: Item) -> Row | None:
        """The row of an item; None for a reference to a body that never came."""
        if item.row is None:
            return self.bodies.get(item.identity)
        self.bodies[item.identity] = item.row
        return item.row

    def forget_before(self, ts: int) -> None:
        self.bodies = {identity: row for identity, row in self.bodies.items() if row[0] >= ts}


def is_composite(row: Row) -> bool:
    return isinstance(row[3], Composite)
