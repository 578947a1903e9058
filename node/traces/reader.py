"""Reads traces: the events of CSV, JSON lines and Parquet files and of standard input.

A row (`node.traces.rows`) becomes an event in two ways that agree: by a function generated for its type, which knows
the columns and is as fast as plain Python permits, and, whenever that one objects, by the slow path, which can say what
is wrong with the row.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from headwater.node.traces.cells import NodeNames, seq_of_cell, typed_cell
from headwater.node.traces.converting import RowShape, converter_code
from headwater.node.traces.duplicates import TraceIdentities
from headwater.node.traces.rows import READ_ERRORS, BadRow, Row, Rows, TraceSource, wrong_width
from headwater.node.traces.times import (
    TS_MIN,
    BadTime,
    iso_us,
    likely_unit,
    time_reader,
    wrong_unit,
)
from headwater.node.traces.types import BOOLEANS, Survey, survey, value_of_text
from headwater.protocol.errors import EventError
from headwater.protocol.events import RESERVED_ATTRIBUTES, Event, EventType, Value, conform

__all__ = ["OutOfOrder", "ReadTally", "Survey", "TraceReader", "TraceSource", "survey"]

BATCH_EVENTS: Final = 500
STDIN_SAMPLE_ROWS: Final = 1000  # how much of a stream that cannot be read twice is looked at to infer types
BAD_EXAMPLES_MAX: Final = 5

UNREADABLE: Final = (BadRow, *READ_ERRORS, LookupError, TypeError)

Converter = Callable[[Row, int], Event | None]


class OutOfOrder(Exception):
    """A file that was read as if it were in order of time is not."""


@dataclass(slots=True)
class ReadTally:
    """What happened to the rows of a trace: nothing is dropped without a trace here."""

    read: int = 0
    bad: int = 0
    late: int = 0
    repeated: int = 0
    """Rows with the node and seq of an earlier one."""
    examples: list[str] = field(default_factory=list)
    unnamed: Counter[str] = field(default_factory=Counter)
    ignored: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Attributes that a declared type does not have, by (type, column), with one of their values."""


class TraceReader:
    """Events of a trace, in batches with watermarks (`batches`) or sorted and numbered as a whole (`whole`).

    ``types`` are the known types; ``wanted`` names those that rules read: rows of other types are counted, take part in
    numbering and move time, and go no further.
    """

    def __init__(
        self,
        rows: Rows,
        types: Mapping[str, EventType],
        wanted: Iterable[str] | None = None,
        *,
        skip_bad: bool = False,
        inferred: bool = False,
        on_bad: Callable[[str], None] | None = None,
    ) -> None:
        self.rows = rows
        self.types = dict(types)
        self.wanted = frozenset(types if wanted is None else wanted)
        self.skip_bad = skip_bad or on_bad is not None
        self.on_bad = on_bad
        self.inferred = inferred
        self.tally = ReadTally()
        self._nodes = NodeNames()
        self._numbers: dict[str, int] = {}
        self._number = not rows.gives_seq
        self._iso = False
        self._unit = rows.source.layout.time_unit
        self._dated = False
        """Whether times are dates in microseconds, and not numbers from a beginning of their own."""
        self._time_of = time_reader(self._unit, rows.source.layout.time_column)
        self._at = {name: index for index, name in enumerate(rows.columns or ())}
        self._type_at: Any = "type" if rows.columns is None else self._at["type"]
        self._position: int | None = None
        self._converters = _Converters(self)

    def batches(
        self,
        *,
        lateness_us: int = 0,
        late: Callable[[dict[str, Any]], None] | None = None,
        size: int = BATCH_EVENTS,
    ) -> Iterator[tuple[list[Event], int]]:
        """Batches with the watermark that holds after each; a row more than the lateness behind goes to ``late``.

        Without ``late`` the trace is taken to be in order and a row that steps back raises OutOfOrder. Whether a row is
        late depends on the rows before it alone, not on the sizes of batches.
        """
        converters, type_at = self._converters, self._type_at
        pipe = self.rows.pipe
        tally = self.tally
        top, horizon = TS_MIN - 1, TS_MIN - 1
        is_new = TraceIdentities().is_new if self.rows.gives_seq else None
        batch: list[Event] = []
        rows = self._rows()
        row: Row = None
        while True:
            try:
                for row in rows:
                    event = converters[row[type_at]](row, horizon)
                    if event is None:
                        if late is None:
                            raise OutOfOrder
                        late(self._record(row))
                        tally.late += 1
                    elif is_new is not None and not is_new(event[1], event[2]):
                        tally.repeated += 1
                    else:
                        if event[0] > top:
                            top = event[0]
                            horizon = top - lateness_us
                        if event[3] is not None:
                            batch.append(event)
                        else:
                            tally.unnamed[row[type_at]] += 1
                    if len(batch) >= size or (pipe is not None and pipe.drained):
                        tally.read += len(batch)
                        yield batch, horizon - 1
                        batch = []
                break
            except UNREADABLE as error:
                self._unreadable(error, row)
        tally.read += len(batch)
        yield batch, max(horizon - 1, TS_MIN - 1)

    def whole(self) -> list[Event]:
        """All events in the order of time, rows without a seq numbered by (ts, row)."""
        to_number, self._number = self._number, False
        events: list[Event] = []
        converters, type_at = self._converters, self._type_at
        converters.clear()
        is_new = TraceIdentities().is_new if self.rows.gives_seq else None
        rows = self._rows()
        row: Row = None
        while True:
            try:
                for row in rows:
                    event = converters[row[type_at]](row, TS_MIN - 1)
                    assert event is not None
                    if is_new is not None and not is_new(event[1], event[2]):
                        self.tally.repeated += 1
                        continue
                    if event[3] is None:
                        self.tally.unnamed[row[type_at]] += 1
                        if not to_number:
                            continue
                    events.append(event)
                break
            except UNREADABLE as error:
                self._unreadable(error, row)
        events.sort(key=operator.itemgetter(0))
        if to_number:
            numbers: dict[str, int] = {}
            numbered = []
            for event in events:
                node = event[1]
                numbers[node] = seq = numbers.get(node, 0) + 1
                if event[3] is not None:
                    numbered.append(Event.from_row((event[0], node, seq, *event[3:])))
            events = numbered
        self.tally.read += len(events)
        return events

    def _rows(self) -> Iterator[Row]:
        """The raw iterator; before it, where a sample was taken, the rows of the sample with their places.

        An EventError if the times are in another unit.
        """
        self._dated = self.rows.refuse_another_unit()
        replayed, self.rows.replayed = self.rows.replayed, []
        if not replayed:
            return self.rows.raw
        return chain(_Sample(self, replayed), self.rows.raw)

    def _unreadable(self, error: Exception, row: Row) -> None:
        """A row, the last or the one after it, could not be read: say so, or raise."""
        if isinstance(error, BadRow):
            self._bad(error)
        elif isinstance(error, READ_ERRORS):
            bad = self.rows.failure(error)
            if bad is not None:
                self._bad(bad)
        else:
            self._object(row)

    def _bad(self, error: BadRow) -> None:
        place = self.rows.where(self._position)
        if not self.skip_bad:
            raise EventError(f"{place}: {error}") from None
        self.tally.bad += 1
        if self.on_bad is not None:
            self.on_bad(f"{place}: {error}")
        if len(self.tally.examples) < BAD_EXAMPLES_MAX:
            self.tally.examples.append(f"{place}: {error}")

    def _object(self, row: Row) -> None:
        """A row that has no type to convert it by: a blank line, or a bad row."""
        if self.rows.flavour != "text" or row:
            self._bad(self._objection(row))

    def _objection(self, row: Row) -> BadRow:
        if self.rows.flavour == "dict" and not isinstance(row, dict):
            return BadRow(f"the line is not a JSON object but {type(row).__name__}")
        if self.rows.flavour == "text" and len(row) != len(self._at):
            return wrong_width(row, len(self._at))
        name = self._cell(row, "type")
        if name is None or name == "":
            return BadRow("the row has no type")
        return BadRow(f"type {name!r} is not a name")

    def _cell(self, row: Row, name: str) -> Any:
        if self.rows.flavour == "dict":
            return row.get(name)
        index = self._at.get(name)
        return None if index is None else row[index]

    def _slow(self, row: Row, horizon: int, *, number: bool = True) -> Event | None:
        """The event of a row, None if it is before the horizon, or a BadRow that says what is wrong with it."""
        text = self.rows.flavour == "text"
        if text and len(row) != len(self._at):
            raise wrong_width(row, len(self._at))
        name = self._cell(row, "type")
        try:
            ts = self._time_of(self._cell(row, "ts"))
        except BadTime as error:
            raise BadRow(str(error)) from None
        if self._dated and likely_unit(ts) is not None:
            column = self.rows.source.layout.time_column
            raise BadRow(f"{wrong_unit(ts, column)}; the first rows are in microseconds, and all must be")
        if text and self._unit is None and not self._iso and "-" in self._cell(row, "ts")[1:]:
            self._iso = True  # the converters made so far expect integers and would send every row here
            self._converters.clear()
        if ts < horizon:
            return None
        node = self._nodes[self._cell(row, "node")]
        event_type = self.types.get(name) if name in self.wanted else None
        values = [] if event_type is None else self._slow_values(row, event_type)
        seq = self._slow_seq(row, node, number)
        return Event.from_row((ts, node, seq, event_type, *values))

    def _slow_values(self, row: Row, event_type: EventType) -> list[Value]:
        values = []
        for attribute, kind in zip(event_type.attributes, event_type.kinds, strict=True):
            cell = self._cell(row, attribute)
            try:
                if self.rows.flavour == "text":
                    cell = typed_cell(event_type, attribute, kind, cell)
                values.append(conform(event_type, attribute, cell))
            except (EventError, OverflowError) as error:
                raise BadRow(f"{error}{self._advice(event_type, attribute)}") from None
        self._notice(event_type, row)
        return values

    def _slow_seq(self, row: Row, node: str, number: bool) -> int:
        cell = self._cell(row, "seq")
        if self.rows.gives_seq:
            return seq_of_cell(cell)
        if cell is not None:
            raise BadRow("the row gives a seq, but the first row of the trace does not; give it everywhere or nowhere")
        if not (number and self._number):
            return 0
        self._numbers[node] = seq = self._numbers.get(node, 0) + 1
        return seq

    def _advice(self, event_type: EventType, attribute: str) -> str:
        if not self.inferred:
            return ""
        return (
            f" (the kind was inferred from the first {STDIN_SAMPLE_ROWS} rows: declare event {event_type.name}(..) "
            "in the rules to say otherwise)"
        )

    def _notice(self, event_type: EventType, row: Row) -> None:
        """Remember which attributes in the trace are unknown to a declared type, and look out for others only."""
        for column, cell in self._pairs(row):
            if column not in RESERVED_ATTRIBUTES and event_type.position(column) is None:
                self.tally.ignored[event_type.name, column] = cell
                self._converters.pop(event_type.name, None)

    def _pairs(self, row: Row) -> list[tuple[str, Any]]:
        """The columns of a row that hold something."""
        pairs = row.items() if self.rows.flavour == "dict" else zip(self._at, row, strict=True)
        text = self.rows.flavour == "text"
        return [(column, cell) for column, cell in pairs if cell is not None and not (text and cell == "")]

    def _record(self, row: Row) -> dict[str, Any]:
        """A late row as a JSON object; it is not part of the trace and has no number unless it came with one."""
        event = self._slow(row, TS_MIN - 1, number=False)
        assert event is not None
        record = {"type": row[self._type_at], "ts": event.ts, "node": event.node}
        if self.rows.gives_seq:
            record["seq"] = event.seq
        return {**dict(self._pairs(row)), **record, **(event.attributes if event[3] is not None else {})}

    def _compile(self, name: str) -> Converter:
        """The generated twin of _slow: the same outcome for good rows, and _slow itself for all others."""
        event_type = self.types.get(name) if name in self.wanted else None
        noticed: set[str] = set()
        if event_type is not None:
            noticed = {*event_type.attributes, *RESERVED_ATTRIBUTES}
            noticed |= {column for name_, column in self.tally.ignored if name_ == name}
        rows = self.rows
        shape = RowShape(rows.flavour, self._at, self._unit, self._iso, self._dated, rows.gives_seq, self._number)
        scope: dict[str, Any] = {
            "slow": self._slow, "nodes": self._nodes, "numbers": self._numbers, "noticed": noticed,
            "booleans": BOOLEANS, "iso": iso_us, "time_of": self._time_of, "new": tuple.__new__, "Event": Event,
            "event_type": event_type, "value_of_text": value_of_text, "BadRow": BadRow, "BadTime": BadTime,
            "notice": self._notice,
        }  # fmt: skip
        exec(compile(converter_code(shape, event_type, noticed), "<converter of rows>", "exec"), scope)
        convert: Converter = scope["convert"]
        return convert


class _Converters(dict[Any, Converter]):
    """Type name to converter, made when the first row of the type comes."""

    def __init__(self, reader: TraceReader) -> None:
        super().__init__()
        self._reader = reader

    def __missing__(self, name: Any) -> Converter:
        if not isinstance(name, str) or not name:
            raise LookupError(name)
        convert = self._reader._compile(name)
        self[name] = convert
        return convert


class _Sample:
    """Rows of a sample, keeping the reader informed of the place; it goes on after a bad one."""

    def __init__(self, reader: TraceReader, sample: list[tuple[int, Row | BadRow]]) -> None:
        self._reader = reader
        self._sample = iter(sample)

    def __iter__(self) -> _Sample:
        return self

    def __next__(self) -> Row:
        self._reader._position, row = next(self._sample, (None, None))
        if self._reader._position is None:
            raise StopIteration
        if isinstance(row, BadRow):
            raise row
        return row
