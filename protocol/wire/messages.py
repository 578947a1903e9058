"""The bytes of messages: msgpack, with event rows as lists or columns, and rules in their canonical encoding.

``Wire`` is for ends that know the same event types and rules; ``protocol.wire.link_wire`` is for those that may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, cast, get_args

import msgpack

from headwater.protocol import subscriptions, tallies
from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.composites import CompositeSpec, wire_specs
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Expression
from headwater.protocol.messages import neighbour as messages
from headwater.protocol.messages import tallies as tally_messages
from headwater.protocol.messages import trees as tree_messages
from headwater.protocol.messages.neighbour import Awakening, Batch, Message, Notify, Run, Want, Watermark
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest, number_of, packed_in
from headwater.protocol.messages.tallies import Question, TallyAnswer, TallyRequest
from headwater.protocol.pattern import Rule
from headwater.protocol.tallies import Extreme, Total
from headwater.protocol.wire import rule_encoding
from headwater.protocol.wire.rows import TIME_MAX, RowReader, RowWriter, Schemas, read_value, written_value
from headwater.protocol.wire.rule_encoding import CodecError

_BATCH, _NOTIFY, _WANT, _AWAKENING, _OTHER, _ASK, _TELL, SCHEMAS = range(8)
_ELEMENTS: Final = {ElementRequest: 8, ElementAnswer: 9, ElementRefusal: 10}
_SHIFT_MAX: Final = 1074  # the least float is 2 ** -1074: no sum of floats needs more
PIECEWISE_BYTES: Final = 128  # smaller messages hold few events and are read faster as a whole

# Pieces of msgpack. Batches are put together from them, so that the bytes of a row serve for every link it goes to.
_NONE, _FALSE, _TRUE, _EMPTY = b"\xc0", b"\xc2", b"\xc3", b"\x90"
_LISTS: Final = tuple(bytes([0x90 + size]) for size in range(16))
_BATCH_HEAD: Final = _LISTS[4] + bytes([_BATCH])
_NOTIFY_HEAD: Final = _LISTS[4] + bytes([_NOTIFY])

rule_encoding.register(
    *(getattr(messages, name) for name in messages.CONTROL),
    *(getattr(tree_messages, name) for name in ("CreateTree", "TreeAck", "TreeNack", "LinkAgain")),
    subscriptions.Subscription,
    tally_messages.Tally,
    PartialRule,
    Contest,
)


class Wire:
    """Encodes and decodes messages between nodes that agree on types and rules."""

    def __init__(self, types: Iterable[EventType], rules: Iterable[Rule] = ()) -> None:
        self.types = tuple(sorted(types, key=lambda declared: declared.name))
        self._specs: dict[tuple[str, int], CompositeSpec] = wire_specs(rules)
        self._reader = RowReader(dict(enumerate(self.types)), self._specs)
        self._writer = RowWriter(self.types)
        packer = msgpack.Packer()  # one for all: making a packer costs more than packing a short message
        self._pack: Callable[[Any], bytes] = packer.pack
        self._list_head: Callable[[int], bytes] = packer.pack_array_header

    def learn(self, rule: Rule) -> None:
        """Composites of this rule may come from now on."""
        self._specs.update(wire_specs([rule]))

    # -------------------------------------------------------------------------------------------------------- encoding

    def encode(self, message: Message) -> bytes:
        if isinstance(message, Batch):
            runs, watermarks, floor_us = message
            pack = self._pack
            packed_watermarks = pack([_watermark(watermark) for watermark in watermarks]) if watermarks else _EMPTY
            floor = _NONE if floor_us is None else pack(floor_us)
            if not runs:
                return b"".join((_BATCH_HEAD, _EMPTY, packed_watermarks, floor))
            items = self._items(runs[0]) if len(runs) == 1 else [item for run in runs for item in self._items(run)]
            return b"".join((_BATCH_HEAD, self._list(len(items)), *items, packed_watermarks, floor))
        if isinstance(message, Want):
            return self._pack((_WANT, message.number, message.ts))
        if isinstance(message, Notify):
            rows = self._writer.rows(message.rows)
            where = self._pack(message.tree), self._pack(message.epoch), self._list(len(rows))
            return b"".join((_NOTIFY_HEAD, *where, *rows))
        return self._pack(self._plain(message))

    def encode_noting(self, message: Message) -> tuple[bytes, Schemas]:
        """The bytes, and which schemas a reader of them must know."""
        used: Schemas = {}
        self._writer.used = used
        try:
            return self.encode(message), used
        finally:
            self._writer.used = None

    def run_bytes(self, run: Run) -> int:
        """How many of a batch's bytes are these events."""
        return sum(map(len, self._items(run)))

    def overhead_bytes(self, batch: Batch) -> int:
        """How many of a batch's bytes are no events: watermarks, floor and what holds them together."""
        return len(self.encode(Batch((), batch.watermarks, batch.floor_us)))

    def _list(self, size: int) -> bytes:
        return _LISTS[size] if size < 16 else self._list_head(size)

    def _plain(self, message: Message) -> list[Any]:
        match message:
            case Awakening(number, serial, least_us, greatest_us, where):
                packed = [[name, rule_encoding.encode(conditions)] for name, conditions in where]
                return [_AWAKENING, number, serial, least_us, greatest_us, packed]
            case TallyRequest(number, questions, floor_us):
                return [_ASK, number, [_plain_question(question) for question in questions], floor_us]
            case TallyAnswer(number, answers):
                return [_TELL, number, [[serial, tallies.to_plain(part)] for serial, part in answers]]
            case ElementRequest(places, True):
                return [_ELEMENTS[ElementRequest], places, True]
            case ElementRequest() | ElementAnswer() | ElementRefusal():
                return [_ELEMENTS[type(message)], packed_in(message)]
            case _:
                return [_OTHER, rule_encoding.encode(message)]

    def _items(self, run: Run) -> list[bytes]:
        """``[streams, blocker, identity]`` of events that the neighbour has, ``[streams, blocker, None, rows]``."""
        identities, rows, streams, blocker, _ = run
        if rows is None:
            return [self._pack((streams, blocker, identity)) for identity in identities]
        head = b"".join((_LISTS[4], self._pack(streams), _TRUE if blocker else _FALSE, _NONE))
        if len(rows) == 1:
            return [head + self._writer.row(rows[0])]
        return [head + data for data in self._writer.rows(rows)]

    # -------------------------------------------------------------------------------------------------------- decoding

    def decode(self, data: bytes) -> Message:
        """The message that these bytes are, or a CodecError."""
        return checked(lambda: self._read(data))

    def _read(self, data: bytes) -> Message:
        message = read_piecewise(data, self._reader)
        return message if message is not None else read_plain(msgpack.unpackb(data), self._reader)


# ----------------------------------------------------------------------------------------------------- reading messages

_MESSAGES: Final = get_args(Message)
_EXPRESSIONS: Final = get_args(Expression)
_INTEGERS: Final = {int}


def checked(read: Callable[[], Message]) -> Message:
    try:
        return read()
    except CodecError:
        raise
    except HeadwaterError as error:
        raise CodecError(f"not a message: {error}") from error
    except Exception as error:
        raise CodecError(f"not a message: {type(error).__name__}: {error}") from error


def read_piecewise(data: bytes, reader: RowReader) -> Message | None:
    """A large batch or notification, read piece by piece, so that the bytes of each piece are known and can be passed
    on. None: it is something else, or begins as none of ours would begin, and is to be read as a whole."""
    if len(data) < PIECEWISE_BYTES or not data.startswith((_BATCH_HEAD, _NOTIFY_HEAD)):
        return None
    pieces = msgpack.Unpacker(max_buffer_size=len(data), read_size=len(data))
    pieces.feed(data)
    unpack, tell, list_size = pieces.unpack, pieces.tell, pieces.read_array_header

    def rows() -> tuple[Sequence[Any], Sequence[Any]]:
        start = tell()
        plain = unpack()
        return reader.rows(plain, data[start : tell()])

    list_size()
    message: Message
    if unpack() == _BATCH:
        runs = []
        for _ in range(list_size()):
            size = list_size()
            if size == 4:
                streams, blocker = _streams(unpack(), unpack())
                unpack()
                runs.append(Run(*rows(), streams, blocker))
            else:
                runs.append(_run([unpack() for _ in range(size)], reader))
        message = _batch(runs, unpack(), unpack())
    else:
        tree, epoch = unpack(), unpack()
        message = _notify(tree, epoch, [rows()[1] for _ in range(list_size())])
    if tell() != len(data):
        raise CodecError("something follows after a message")
    return message


def _batch(runs: list[Run], watermarks: Any, floor_us: Any) -> Batch:
    if type(watermarks) is not list:
        raise CodecError("a batch without watermarks")
    if floor_us is not None:
        _ts(floor_us)
    return Batch(tuple(runs), tuple([_read_watermark(watermark) for watermark in watermarks]), floor_us)


def _notify(tree: Any, epoch: Any, groups: list[Sequence[Any]]) -> Notify:
    if type(tree) is not str or not groups:
        raise CodecError("events for a tree without a name, or no events")
    rows = groups[0] if len(groups) == 1 else tuple(chain.from_iterable(groups))
    return Notify(tree, _integer(epoch), rows)


def read_plain(plain: Any, reader: RowReader) -> Message:
    if type(plain) is list and len(plain) == 4 and plain[0] == _BATCH:  # most are batches
        _, items, watermarks, floor_us = plain
        if type(items) is not list:
            raise CodecError("a batch without events")
        return _batch([_run(item, reader) for item in items], watermarks, floor_us)
    match plain:
        case [1, tree, epoch, list(groups)]:
            return _notify(tree, epoch, [reader.rows(group)[1] for group in groups])
        case [2, number, ts]:
            return Want(_integer(number), _time(ts))
        case [3, number, serial, least_us, greatest_us, list(where)]:
            bounds = _ts(least_us), _ts(greatest_us)
            return Awakening(_integer(number), _integer(serial), *bounds, tuple(map(_conditions, where)))
        case [4, bytes(encoded)]:
            message = rule_encoding.decode(encoded)
            if not isinstance(message, _MESSAGES):
                raise CodecError(f"{type(message).__name__} is not a message between neighbours")
            return cast(Message, message)
        case [5, number, list(questions), floor_us]:
            floor = None if floor_us is None else _time(floor_us)
            return TallyRequest(_integer(number), tuple(map(_question, questions)), floor)
        case [6, number, list(answers)]:
            return TallyAnswer(_integer(number), tuple([(_integer(serial), _part(part)) for serial, part in answers]))
        case [8 | 9 | 10 as kind, bytes(packed)]:
            return _of_elements(kind, packed)
        case [8, bytes(packed), True]:
            number_of(request := ElementRequest(packed, at_hand=True))
            return request
    raise CodecError("a message of an unknown kind; it may come from a newer version")


def _of_elements(kind: int, packed: bytes) -> Message:
    message = (ElementRequest, ElementAnswer, ElementRefusal)[kind - _ELEMENTS[ElementRequest]](packed)
    number_of(message)  # a ValueError if it is no list
    return message


def _run(plain: Any, reader: RowReader) -> Run:
    streams, blocker, identity, *body = plain
    streams, blocker = _streams(streams, blocker)
    if not body:
        return Run((_identity(identity),), None, streams, blocker)
    (data,) = body
    return Run(*reader.rows(data), streams, blocker)


def _streams(streams: Any, blocker: Any) -> tuple[tuple[int, ...], bool]:
    if type(streams) is not list or set(map(type, streams)) != _INTEGERS or type(blocker) is not bool:
        raise CodecError("events for streams that are not numbers")
    return tuple(streams), blocker


def _identity(plain: Any) -> Any:
    match plain:
        case str():
            return plain
        case [str(node), int(seq)]:
            return node, seq
    raise CodecError("a malformed identity of an event")


def _integer(plain: Any) -> int:
    if type(plain) is not int:
        raise CodecError(f"{type(plain).__name__} where a number is expected")
    return plain


def _ts(plain: Any) -> int:
    if not -TIME_MAX < _integer(plain) < TIME_MAX:
        raise CodecError("a time beyond all bounds")
    return cast(int, plain)


def _count(plain: Any) -> int:
    if _integer(plain) < 0:
        raise CodecError("a negative count")
    return cast(int, plain)


def _time(plain: Any) -> float:
    if type(plain) is int and -TIME_MAX < plain < TIME_MAX:
        return plain
    if type(plain) is not float or plain != plain:
        raise CodecError(f"{plain!r:.20} where a time is expected")
    return plain


def _watermark(watermark: Watermark) -> list[Any]:
    if watermark.mode:
        return [watermark.number, watermark.ts, watermark.serial, watermark.generated, watermark.pull, watermark.mode]
    if watermark.serial or watermark.generated:
        return [watermark.number, watermark.ts, watermark.serial, watermark.generated]
    return [watermark.number, watermark.ts]


def _read_watermark(plain: Any) -> Watermark:
    if type(plain) is not list:
        raise CodecError("a watermark that is not a list")
    number, ts, *more = plain
    watermark = Watermark(_integer(number), _time(ts), *more)
    if more:
        _count(watermark.serial), _count(watermark.generated), _count(watermark.mode)
        if type(watermark.pull) is not bool:
            raise CodecError("a malformed mode in a watermark")
    return watermark


def _conditions(plain: Any) -> tuple[str, tuple[Expression, ...]]:
    name, encoded = plain
    conditions = rule_encoding.decode(encoded)
    if (
        type(name) is not str
        or type(conditions) is not tuple
        or not all(isinstance(condition, _EXPRESSIONS) for condition in conditions)
    ):
        raise CodecError("malformed conditions of an awakening")
    return name, conditions


def _plain_question(question: Question) -> list[Any]:
    """A range that begins at a time is told by its length."""
    least, before = question.least, question.before
    start = before[0] - least[0] if least[1:] == ("", 0) else least
    return [question.serial, start, *before, *map(written_value, question.known)]


def _question(plain: Any) -> Question:
    serial, start, ts, node, seq, *values = plain
    before = _key(ts, node, seq)
    least = (_ts(ts - start), "", 0) if type(start) is int else _key(*start)
    return Question(_integer(serial), least, before, tuple(map(read_value, values)))


def _key(ts: Any, node: Any, seq: Any) -> tuple[int, str, int]:
    if type(node) is not str:
        raise CodecError("a malformed key of an event")
    return _ts(ts), node, _integer(seq)


def _part(plain: Any) -> tallies.Part:
    part = tallies.from_plain(plain)
    match part:
        case Total():
            least = min(part.count, part.reals, part.shift, part.above, part.below)
            if least < 0 or part.shift > _SHIFT_MAX:
                raise CodecError("a sum that nothing can add up to")
        case Extreme():
            read_value(part.value)
            if part.value is None:
                raise CodecError("an extreme of nothing")
        case None:
            pass
        case _:
            _count(part)
    return part
