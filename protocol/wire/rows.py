"""The bytes of event rows: one as a short list, several of one type as columns.

A row is ``[type, ts, node, seq, value, ..]``, with the number of its type; a composite is ``["", composite]``. Columns
are ``[[type], times, node, seqs, values, ..]``: of times and seqs the first, then what each adds to the one before; one
node for all, or a list. Numbers of types and specs of composites are *schemas*: a reader must know them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, repeat
from operator import itemgetter, sub
from typing import Any, Final

import msgpack

from headwater.protocol.composites import Composite, CompositeSpec, from_wire, to_wire
from headwater.protocol.events import EventType
from headwater.protocol.wire.received_columns import LAZY_LEAST, Columns
from headwater.protocol.wire.rule_encoding import CodecError

Row = tuple[Any, ...]
Schemas = dict[Any, Any]
"""Event types by their numbers, specs of composites by (rule, version)."""

ROWS_MAX: Final = 4096  # encoded rows that are remembered: each goes to several neighbours within a short time
TIME_MAX: Final = 1 << 62
"""No time is further from 0, in microseconds, so that windows can be added to it: about 146,000 years."""
_BIG: Final = 1 << 63
_INTEGERS: Final = frozenset((int,))
_STRINGS: Final = frozenset((str,))
_KINDS: Final[Mapping[str, frozenset[type]]] = {
    "int": _INTEGERS,
    "float": frozenset((float, int)),
    "string": _STRINGS,
    "bool": frozenset((bool,)),
    "any": frozenset((int, float, str, bool)),
}
_NOTHING: Final = frozenset((type(None),))
_VALUES: Final = _KINDS["any"] | _NOTHING

_type_of = itemgetter(3)


class RowWriter:
    """Gives the bytes of rows. In ``used``, unless it is None, they note which schemas they need."""

    def __init__(self, types: Sequence[EventType]) -> None:
        self._number = {declared: number for number, declared in enumerate(types)}
        self._pack = msgpack.Packer().pack  # one for all: making a packer costs more than packing a short row
        self._rows: dict[int, tuple[Row, bytes, Schemas]] = {}
        """Rows as bytes, by their address, with themselves, so that they keep it."""
        self.used: Schemas | None = None

    def row(self, row: Row) -> bytes:
        entry = self._rows.get(id(row))
        if entry is None:
            inner = row[3]
            if type(inner) is EventType:
                number = self._number[inner]
                data = self._pack([number, row[0], row[1], row[2], *map(written_value, row[4:])])
                schemas: Schemas = {number: inner}
            else:
                data = self._pack(["", to_wire(inner)])
                schemas = {}
                _note_specs(inner, schemas)
            if len(self._rows) >= ROWS_MAX:
                self._rows.clear()
            entry = self._rows[id(row)] = row, data, schemas
        if self.used is not None:
            self.used.update(entry[2])
        return entry[1]

    def rows(self, rows: Sequence[Row]) -> list[bytes]:
        """Several rows in order, those of one type that follow each other together. Columns that came over a link go on
        as they came, if the number of their type is the same here."""
        if type(rows) is Columns:
            if self._number.get(rows.event_type) == rows.number:
                if self.used is not None:
                    self.used[rows.number] = rows.event_type
                return [rows.data]
            rows = rows.rows()
        if len(rows) == 1:
            return [self.row(rows[0])]
        types = list(map(_type_of, rows))
        first = types[0]
        if type(first) is EventType and types.count(first) == len(types):
            return self._columns(first, rows)
        pieces: list[bytes] = []
        for inner, group in groupby(rows, lambda row: row[3] if type(row[3]) is EventType else None):
            same = list(group)
            pieces += map(self.row, same) if inner is None or len(same) == 1 else self._columns(inner, same)
        return pieces

    def _columns(self, event_type: EventType, rows: Sequence[Row]) -> list[bytes]:
        times, nodes, seqs, _, *values = zip(*rows, strict=True)
        number = self._number[event_type]
        node = nodes[0] if nodes.count(nodes[0]) == len(nodes) else nodes
        try:
            data = self._pack([[number], _steps(times), node, _steps(seqs), *values])
        except OverflowError:  # some integer is beyond 64 bits: it travels as text in a row of its own
            return list(map(self.row, rows))
        if self.used is not None:
            self.used[number] = event_type
        return [data]


class RowReader:
    """Reads what a RowWriter wrote, with these schemas; CodecError, TypeError or ValueError for anything else."""

    def __init__(self, types: Mapping[int, EventType], specs: Mapping[tuple[str, int], CompositeSpec]) -> None:
        self._types = types
        self._specs = specs

    def rows(self, plain: Any, data: bytes | None = None) -> tuple[Sequence[Any], Sequence[Row]]:
        """The identities and the rows that one piece of bytes holds: at least one. If the bytes are given, too, they
        are kept instead of rows where that is worth while."""
        if type(plain) is not list or not plain:
            raise CodecError("an event that is not a list")
        kind = plain[0]
        if type(kind) is int:
            row = self._row(plain)
            return ((row[1], row[2]),), (row,)
        if kind == "":
            _, data = plain
            composite = from_wire(data, self._specs)
            _check_composite(composite)
            return (composite.id,), (composite.row(),)
        (number,) = kind
        return self._columns(number, plain, data)

    def _type(self, number: Any) -> EventType:
        event_type = self._types.get(number) if type(number) is int else None
        if event_type is None:
            raise CodecError(f"an event of type number {number!r:.20}, which was never declared")
        return event_type

    def _row(self, plain: list[Any]) -> Row:
        number, ts, node, seq, *values = plain
        event_type = self._type(number)
        if type(ts) is not int or type(node) is not str or type(seq) is not int or not -TIME_MAX < ts < TIME_MAX:
            raise CodecError(f"{event_type.name}: the time, node or number of an event is malformed")
        kinds = kinds_of(event_type)
        if len(values) != len(kinds):
            raise CodecError(f"an event that is not a {event_type!r}")
        for position, kind in enumerate(kinds):
            value = values[position]
            if type(value) is list:
                values[position] = value = read_value(value)
            if type(value) not in kind:
                raise CodecError(f"an event that is not a {event_type!r}")
        return (ts, node, seq, event_type, *values)

    def _columns(self, number: Any, plain: list[Any], data: bytes | None) -> tuple[Sequence[Any], Sequence[Row]]:
        _, times, node, seqs, *values = plain
        event_type = self._type(number)
        kinds = kinds_of(event_type)
        if type(times) is not list or not times or len(values) != len(kinds):
            raise CodecError(f"events that are not {event_type!r}")
        count = len(times)
        columns = [(times, _INTEGERS), (seqs, _INTEGERS), *zip(values, kinds, strict=True)]
        if type(node) is not str:
            columns.append((node, _STRINGS))
        for column, kind in columns:
            if type(column) is not list or len(column) != count or not kind.issuperset(map(type, column)):
                raise CodecError(f"events that are not {event_type!r}")
        if data is not None and count >= LAZY_LEAST:
            lazy = Columns(event_type, number, data, plain)
            _check_bounds(event_type, lazy.least_us, lazy.greatest_us, lazy.first, lazy.last)
            return lazy.identities, lazy
        times, seqs = list(accumulate(times)), list(accumulate(seqs))
        _check_bounds(event_type, min(times), max(times), min(seqs), max(seqs))
        nodes = [node] * count if type(node) is str else node
        rows = tuple(zip(times, nodes, seqs, repeat(event_type), *values))
        return tuple(zip(nodes, seqs, strict=True)), rows


def _check_bounds(event_type: EventType, least_us: int, greatest_us: int, first: int, last: int) -> None:
    if max(-least_us, greatest_us) >= TIME_MAX or max(-first, last) >= _BIG:
        raise CodecError(f"{event_type.name}: the times or numbers of events are out of range")


@lru_cache(maxsize=4096)
def kinds_of(event_type: EventType) -> tuple[frozenset[type], ...]:
    """Which classes the values of each attribute may have."""
    kinds = zip(event_type.kinds, event_type.optional, strict=True)
    return tuple(_KINDS[kind] | _NOTHING if may_lack else _KINDS[kind] for kind, may_lack in kinds)


def made_of(spec: CompositeSpec) -> tuple[Any, ...]:
    """What the spec of a composite consists of; ``carrying_spec(*made_of(spec))`` reads what it wrote."""
    return spec.rule, spec.version, spec.type, spec.roles, spec.repeated, spec.plain


def _note_specs(composite: Composite, schemas: Schemas) -> None:
    spec = composite.spec
    schemas[spec.rule, spec.version] = spec
    for _, row in composite.parts():
        if isinstance(row[3], Composite):
            _note_specs(row[3], schemas)


def _check_composite(composite: Composite) -> None:
    """Composites hold what expressions can give, and tuples of remote tables."""
    if not all(-TIME_MAX < row[0] < TIME_MAX for _, row in composite.parts()):
        raise CodecError(f"{composite.type}: the time of a part is out of range")
    waiting = [*composite[-1], *(part for value in composite.looked_up for part in (*value.key, value.value))]
    while waiting:
        value = waiting.pop()
        if type(value) is tuple:
            waiting += value
        elif type(value) not in _VALUES:
            raise CodecError(f"{composite.type}: {type(value).__name__} is not a value of an attribute")
    for _, row in composite.parts():
        if isinstance(row[3], Composite):
            _check_composite(row[3])


def _steps(numbers: Sequence[int]) -> list[int]:
    return [numbers[0], *map(sub, numbers[1:], numbers)]


def written_value(value: Any) -> Any:
    """Integers that msgpack cannot hold become text in a list."""
    return [str(value)] if type(value) is int and not -_BIG <= value < 2 * _BIG else value


def read_value(plain: Any) -> Any:
    """The value that was written."""
    if type(plain) is list:
        (digits,) = plain
        if type(digits) is not str:
            raise CodecError("a malformed integer")
        return int(digits)
    if type(plain) not in _VALUES:
        raise CodecError(f"{type(plain).__name__} is not a value of an attribute")
    return plain
