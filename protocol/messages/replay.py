"""Messages between a replayer and a node, as msgpack lists over a link like that of a client program.

    replayer: ["replay-from", trace]
    node:     ["replay-at", last seq, ended, why not or None]
    replayer: ["replay", number, [part, ..], watermark]
    node:     ["replayed", number, born, repeated, late, why not or None]
    replayer: ["replay-end", number]
    node:     ["replayed", number, 0, 0, 0, why not or None]

``trace`` is the checksum of the prepared trace. A part holds the events of one type, by columns: ``[type, [ts, ..],
[seq, ..], {attribute: [value, ..]}]``. A message holds everything of the node from one number to another, whatever the
type, and each goes on where the one before has ended. ``watermark`` promises for all sources of the node that are
replayed that nothing at or before it follows. An answer comes when everything that came with the message is durable; so
one without an answer is sent again after the link has started over, and the node knows events that it has by their seq.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgpack

REPLAYER: Final = "replay"
"""The name under which a replayer connects, as the program that it is for a node."""

UNDER_WAY_MAX: Final = 8
"""Messages to one node that may wait for their answers: enough to hide the way and the disk, and few to hold."""

EVENTS_MAX: Final = 5_000
"""In one message: a few milliseconds of work for a node between two looks at everything else."""

BYTES_MAX: Final = 1 << 20
"""Of one message: well below the largest frame of a link."""


class TracePart(NamedTuple):
    """Events of one type at one node, by columns and in the order of the trace."""

    type: str
    ts: list[int]
    seq: list[int]
    columns: dict[str, list[Any]]

    def cut(self, start: int, end: int) -> TracePart:
        columns = {name: values[start:end] for name, values in self.columns.items()}
        return TracePart(self.type, self.ts[start:end], self.seq[start:end], columns)


class At(NamedTuple):
    """How far a node has come: the last number of the trace that it has, and whether it was told of the end."""

    last_seq: int
    ended: bool


class Taken(NamedTuple):
    """The outcome of the events of a message."""

    born: int
    repeated: int
    late: int


def replay_from(trace: str) -> bytes:
    packed: bytes = msgpack.packb(["replay-from", trace])
    return packed


def replay(number: int, parts: list[TracePart], watermark: int | None) -> bytes:
    packed: bytes = msgpack.packb(["replay", number, parts, watermark])
    return packed


def replay_end(number: int) -> bytes:
    packed: bytes = msgpack.packb(["replay-end", number])
    return packed
