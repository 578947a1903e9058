"""The bytes of messages: msgpack, with event rows as short lists and everything about rules in the canonical encoding.

Both ends know the same event types in the same order, so a row names its type by a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgpack

from protocol import codec, messages, subscriptions, tallies, tally_messages, tree_messages
from protocol.codec import CodecError
from protocol.composites import Composite, CompositeSpec, from_wire, to_wire, wire_specs
from protocol.events import Event, EventType
from protocol.messages import Awakening, Batch, Item, Mark, Message, Notify, Want
from protocol.partial import Contest, PartialRule
from protocol.pattern import Rule
from protocol.tally_messages import Question, TallyAnswer, TallyRequest

_BATCH, _NOTIFY, _WANT, _AWAKENING, _OTHER, _ASK, _TELL = range(7)
_BIG: Final = 1 << 63
_ROWS_MAX: Final = 4096  # encoded rows that are remembered: each goes to several neighbours within a short time

# Pieces of msgpack. Batches are put together from them, so that the bytes of a row serve for every link it goes to.
_NONE, _FALSE, _TRUE, _EMPTY = b"\xc0", b"\xc2", b"\xc3", b"\x90"
_LISTS: Final = tuple(bytes([0x90 + size]) for size in range(16))
_BATCH_HEAD: Final = _LISTS[4] + bytes([_BATCH])
_NOTIFY_HEAD: Final = _LISTS[4] + bytes([_NOTIFY])

codec.register(
    *(getattr(messages, name) for name in messages.CONTROL),
    *(getattr(tree_messages, name) for name in ("CreateTree", "TreeAck", "TreeNack")),
    subscriptions.Subscription,
    tally_messages.Tally,
    PartialRule,
    Contest,
)

Row = tuple[Any, ...]


class Wire:
    """Encodes and decodes messages between nodes that agree on types and rules."""

    def __init__(self, types: Iterable[EventType], rules: Iterable[Rule] = ()) -> None:
        self._types = tuple(sorted(types, key=lambda declared: declared.name))
        self._number = {declared: number for number, declared in enumerate(self._types)}
        self._specs: dict[tuple[str, int], CompositeSpec] = wire_specs(rules)
        packer = msgpack.Packer()  # one for all: making a packer costs more than packing a short message
        self._pack: Callable[[Any], bytes] = packer.pack
        self._list_head: Callable[[int], bytes] = packer.pack_array_header
        self._rows: dict[int, tuple[Row, bytes]] = {}
        """Rows as bytes, by their address, with themselves, so that they keep it."""

    def learn(self, rule: Rule) -> None:
        """Composites of this rule may come from now on."""
        self._specs.update(wire_specs([rule]))

    # -------------------------------------------------------------------------------------------------------- encoding

    def encode(self, message: Message) -> bytes:
        if isinstance(message, Batch):
            items, marks, floor_us = message
            pack = self._pack
            packed_marks = pack([_mark(mark) for mark in marks]) if marks else _EMPTY
            floor = _NONE if floor_us is None else pack(floor_us)
            if not items:
                return b"".join((_BATCH_HEAD, _EMPTY, packed_marks, floor))
            return b"".join((_BATCH_HEAD, self._list(len(items)), *map(self._item, items), packed_marks, floor))
        if isinstance(message, Want):
            return self._pack((_WANT, message.number, message.ts))
        if isinstance(message, Notify):
            where = self._pack(message.tree), self._pack(message.epoch), self._list(len(message.rows))
            return b"".join((_NOTIFY_HEAD, *where, *map(self._row, message.rows)))
        return self._pack(self._plain(message))

    def item_bytes(self, item: Item) -> int:
        """How many of a batch's bytes are this item."""
        return len(self._item(item))

    def _list(self, size: int) -> bytes:
        return _LISTS[size] if size < 16 else self._list_head(size)

    def _plain(self, message: Message) -> list[Any]:
        match message:
            case Awakening(number, serial, least_us, greatest_us, where):
                packed = [[name, codec.encode(conditions)] for name, conditions in where]
                return [_AWAKENING, number, serial, least_us, greatest_us, packed]
            case TallyRequest(number, questions, floor_us):
                return [_ASK, number, [_asked(question) for question in questions], floor_us]
            case TallyAnswer(number, answers):
                return [_TELL, number, [[serial, tallies.to_plain(part)] for serial, part in answers]]
            case _:
                return [_OTHER, codec.encode(message)]

    def _item(self, item: Item) -> bytes:
        identity, row, streams, blocker, _ = item
        if row is None:
            return self._pack((streams, blocker, identity))
        return b"".join((_LISTS[4], self._pack(streams), _TRUE if blocker else _FALSE, _NONE, self._row(row)))

    def _row(self, row: Row) -> bytes:
        known = self._rows.get(id(row))
        if known is None:
            inner = row[3]
            if type(inner) is EventType:
                plain = [self._number[inner], row[0], row[1], row[2], *map(_number, row[4:])]
            else:
                plain = ["", to_wire(inner)]
            if len(self._rows) >= _ROWS_MAX:
                self._rows.clear()
            known = self._rows[id(row)] = row, self._pack(plain)
        return known[1]

    # -------------------------------------------------------------------------------------------------------- decoding

    def decode(self, data: bytes) -> Message:
        """The message that these bytes are, or a CodecError."""
        try:
            plain = msgpack.unpackb(data)
            return self._message(plain)
        except CodecError:
            raise
        except Exception as error:
            raise CodecError(f"not a message: {type(error).__name__}: {error}") from error

    def _message(self, plain: list[Any]) -> Message:
        match plain:
            case [0, items, marks, floor_us]:
                return Batch(tuple(map(self._read_item, items)), tuple(Mark(*mark) for mark in marks), floor_us)
            case [1, tree, epoch, rows]:
                return Notify(tree, epoch, tuple(map(self._read_row, rows)))
            case [2, number, ts]:
                return Want(number, ts)
            case [3, number, serial, least_us, greatest_us, where]:
                known = tuple((name, codec.decode(conditions)) for name, conditions in where)
                return Awakening(number, serial, least_us, greatest_us, known)
            case [4, encoded]:
                return cast(Message, codec.decode(encoded))
            case [5, number, asked, floor_us]:
                return TallyRequest(number, tuple(map(_question, asked)), floor_us)
            case [6, number, answers]:
                return TallyAnswer(number, tuple((serial, tallies.from_plain(part)) for serial, part in answers))
        raise CodecError("a message of an unknown kind; it may come from a newer version")

    def _read_item(self, plain: list[Any]) -> Item:
        streams, blocker, identity, *body = plain
        if not body:
            return Item(tuple(identity) if isinstance(identity, list) else identity, None, tuple(streams), blocker)
        row = self._read_row(body[0])
        inner = row[3]
        identity = inner.id if isinstance(inner, Composite) else (row[1], row[2])
        return Item(identity, row, tuple(streams), blocker)

    def _read_row(self, plain: list[Any]) -> Row:
        if plain[0] == "":
            return from_wire(plain[1], self._specs).row()
        number, ts, node, seq, *values = plain
        return Event.from_row((ts, node, seq, self._types[number], *map(_value, values)))


def _asked(question: Question) -> list[Any]:
    """A range that begins at a time is told by its length."""
    least, before = question.least, question.before
    start = before[0] - least[0] if least[1:] == ("", 0) else least
    return [question.serial, start, *before, *map(_number, question.known)]


def _question(plain: list[Any]) -> Question:
    serial, start, ts, node, seq, *known = plain
    least = (ts - start, "", 0) if isinstance(start, int) else (start[0], start[1], start[2])
    return Question(serial, least, (ts, node, seq), tuple(map(_value, known)))


def _mark(mark: Mark) -> list[Any]:
    if mark.mode:
        return [mark.number, mark.ts, mark.serial, mark.generated, mark.pull, mark.mode]
    if mark.serial or mark.generated:
        return [mark.number, mark.ts, mark.serial, mark.generated]
    return [mark.number, mark.ts]


def _number(value: Any) -> Any:
    return [str(value)] if type(value) is int and not -_BIG <= value < 2 * _BIG else value


def _value(plain: Any) -> Any:
    return int(plain[0]) if isinstance(plain, list) else plain
