"""The records of a node's journal: its inputs, as msgpack lists that begin with their kind and the time.

A journal is a list of these; a machine that is given them in their order becomes what it was.

Journals of earlier versions are read as they are: a kind keeps its place in ``KINDS``, new kinds come after it, and a
new field comes last, with the default that records without it are read with. Anything else takes a new number of the
journal's format (``protocol/formats.py``) and a way to read the one before.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgpack

from headwater.protocol.wire.rule_encoding import CodecError

_BIG: Final = 1 << 63


class Begun(NamedTuple):
    """The process has started (again), and can be reached here; or it has found out whether it runs the functions of
    its network.

    ``functions``: why it does not, in a sentence; empty: it does; None: it does not know of any.
    """

    now_us: int
    address: str
    http: str
    version: str
    functions: str | None = None


class Frames(NamedTuple):
    """Payloads that came over a link; ``last_seq`` numbers the last of them."""

    now_us: int
    peer: str
    last_seq: int
    payloads: list[bytes]


class Publication(NamedTuple):
    """Which publication of a program events came with. The program counts them, from 1 in each of its lives."""

    program: str
    life: str
    number: int


class Births(NamedTuple):
    """Events of a local source as rows ``[ts, node, seq, value, ..]``, already numbered and none of them late.

    ``position`` is where the source goes on after a restart; ``publication`` tells which publication of a program they
    are, so that one that is repeated is recognised.
    """

    now_us: int
    source: int
    rows: list[list[Any]]
    watermark: float | None
    position: Any
    publication: Publication | None = None


class Ended(NamedTuple):
    """Nothing will ever follow from these sources."""

    now_us: int
    sources: list[int]


class Fired(NamedTuple):
    """A timer was due."""

    now_us: int
    timer: str


class Reset(NamedTuple):
    """The two ends of a link cannot go on where they were; the numbering of this life and era begins."""

    now_us: int
    peer: str
    life: str
    era: str


class Met(NamedTuple):
    """The two ends of a link have agreed on a numbering."""

    now_us: int
    peer: str
    life: str
    era: str


class Acknowledged(NamedTuple):
    """The other end has everything up to here."""

    now_us: int
    peer: str
    seq: int


class Confirmed(NamedTuple):
    """Deliveries of a sink up to here have safely left."""

    now_us: int
    sink: int
    number: int


class Requested(NamedTuple):
    """Something a client wants of the coordinator, encoded as the coordinator reads it."""

    now_us: int
    payload: bytes


class Replayed(NamedTuple):
    """Events that a replayer has sent, none of them late or repeated, and up to where the trace has come here.

    ``parts``: by source ``[source, [ts, ..], [seq, ..], [[value, ..], ..]]``, one list of values for each attribute.
    ``last_seq`` is the greatest number that was ever sent, ``watermark`` holds for all sources of the node that are
    replayed.
    """

    now_us: int
    trace: str
    parts: list[list[Any]]
    watermark: int | None
    last_seq: int


class Unheard(NamedTuple):
    """These sources may have told something since then that the node could not hear; they promise nothing more."""

    now_us: int
    since_us: int
    sources: list[int]


class Heard(NamedTuple):
    """Everything that was held for the node by these sources has been taken: they promise by the clock again."""

    now_us: int
    sources: list[int]


class Fetched(NamedTuple):
    """Elements of remote tables have come, encoded (``node.remote.encoding``)."""

    now_us: int
    elements: bytes
    took_us: int = 0


class FetchFailed(NamedTuple):
    """Elements of remote tables could not be had; encoded as elements without a value."""

    now_us: int
    places: bytes


Record = (
    Begun | Frames | Births | Ended | Fired | Reset | Met | Acknowledged | Confirmed | Requested | Replayed | Unheard
    | Heard | Fetched | FetchFailed
)  # fmt: skip

KINDS: Final[tuple[type[Record], ...]] = (
    Begun, Frames, Births, Ended, Fired, Reset, Met, Acknowledged, Confirmed, Requested, Replayed,
    Unheard, Heard, Fetched, FetchFailed,
)  # fmt: skip
"""By the number that stands first in a record."""
_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}

_pack: Final = msgpack.Packer(default=lambda value: _refuse(value)).pack


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} cannot stand in a journal")


def encode(record: Record) -> bytes:
    if type(record) is Births and any(_is_big(value) for row in record.rows for value in row):
        record = record._replace(rows=[[_small(value) for value in row] for row in record.rows])
    packed: bytes = _pack((_NUMBERS[type(record)], *record))
    return packed


def decode(data: bytes) -> Record:
    """The record, or a CodecError: the journal's checksums are right, so this is the work of another version."""
    try:
        number, *fields = msgpack.unpackb(data)
        record: Record = KINDS[number](*fields)
        if type(record) is Births:
            record = record._replace(
                rows=[[_whole(value) for value in row] for row in record.rows],
                publication=None if record.publication is None else Publication(*record.publication),
            )
        return record
    except Exception as error:
        raise CodecError(f"a record of the journal cannot be read ({error}); another version wrote it") from error


def _is_big(value: Any) -> bool:
    return type(value) is int and not -_BIG <= value < 2 * _BIG


def _small(value: Any) -> Any:
    """Integers that msgpack cannot hold become a list of one text."""
    return [str(value)] if _is_big(value) else value


def _whole(value: Any) -> Any:
    return int(value[0]) if type(value) is list else value
