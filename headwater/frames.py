"""Events that a program already holds: dicts, pandas and Polars frames, Arrow tables.

Each kind of table becomes the same columns of plain values that a Parquet file has. From there on events are read as
``headwater run`` reads a trace: the same inference of types, the same checks of times, the same sentences. pandas,
Polars and pyarrow are never imported here unless the program handed over one of their objects.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice
from typing import Any, Final

from headwater.cells import PLAIN_CLASSES, TimeForm, plain_cell, present, uniform_times, zone_name
from headwater.node.traces.rows import BadRow, Row, Rows, TraceSource
from headwater.node.traces.times import UNIT_NAMES, saying_the_unit
from headwater.protocol.edge import USUAL, Layout
from headwater.protocol.errors import EventError
from headwater.protocol.events import Event

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class EventTable:
    """Events in memory, as columns with rows of values, or as dicts; they can be read more than once."""

    source: TraceSource
    rows: list[Any]
    columns: list[str] | None
    """The names of the columns; None where the rows are dicts."""
    times: TimeForm

    def open(self) -> Rows:
        return _TableRows(self)


class _InMemory(TraceSource):
    """What stands for the file where there is none."""

    __slots__ = ()

    @property
    def is_stream(self) -> bool:
        return False


class _TableRows(Rows):
    unit = "row"

    def __init__(self, table: EventTable) -> None:
        super().__init__(table.source, BytesIO(), None)
        self.flavour = "dict" if table.columns is None else "values"
        self.columns = table.columns
        self.has_timestamps = table.times.stamped
        self.gives_seq = _gives_seq(table)
        self._row = 0
        self.raw = self._counted(table.rows)

    def _counted(self, rows: list[Any]) -> Iterator[Row]:
        for row in rows:
            self._row += 1
            yield row

    @property
    def position(self) -> int:
        return self._row

    def failure(self, error: Exception) -> BadRow | None:
        raise error


def _gives_seq(table: EventTable) -> bool:
    if table.columns is not None:
        return "seq" in table.columns
    return bool(table.rows) and table.rows[0].get("seq") is not None


def in_python(error: EventError) -> EventError:
    """The same sentence with the cure that a program has: an argument, where the command has an option."""
    text = str(error)
    for unit in UNIT_NAMES:
        text = text.replace(saying_the_unit(unit), f"pass time_unit={unit!r}")
    text = text.replace("--time-column NAME", "time_column=").replace("--type-column NAME", "type_column=")
    return EventError(text)


# ------------------------------------------------------------------------------------------------------ kinds of input


def table_of(data: Any, layout: Layout = USUAL) -> EventTable | list[Event] | TraceSource:
    """Whatever a program gives as events: as a table, as the events they are already, or as a file to read."""
    if isinstance(data, str | os.PathLike):
        name = os.fspath(data)
        if name == "-":
            raise EventError("standard input is for the command; give the path of a file")
        return TraceSource.at(str(name), layout=layout)
    columns = _columns_of(data)
    if columns is not None:
        label, names, lists, times = columns(data, layout)
        return _from_columns(label, names, lists, times, layout)
    if isinstance(data, Mapping):
        raise EventError("one mapping is not a list of events; put it into a list, or give a frame of pandas or Polars")
    try:
        items = iter(data)
    except TypeError:
        raise EventError(f"{_described(data)} holds no events; {_ACCEPTED}") from None
    head = list(islice(items, 1))
    if not head:
        return []
    first = head[0]
    if isinstance(first, Event):
        return list(chain([first], items))
    if _is_arrow(first):
        return table_of(_joined_batches([first, *items]), layout)
    return _from_dicts(chain([first], items), layout)


_ACCEPTED: Final = (
    "give an iterable of dicts (or Events), a pandas or Polars frame, an Arrow table, or the path of a trace"
)

Columns = tuple[str, list[str], list[list[Any]], dict[str, TimeForm]]


def _columns_of(data: Any) -> Callable[[Any, Layout], Columns] | None:
    """What takes the columns out of a frame or table; None where ``data`` is neither."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return _pandas_columns
    if polars is not None and isinstance(data, polars.DataFrame | polars.LazyFrame):
        return _polars_columns
    if _is_arrow(data) or hasattr(data, "__arrow_c_stream__"):
        return _arrow_columns
    return None


def _is_arrow(data: Any) -> bool:
    pyarrow = sys.modules.get("pyarrow")
    return pyarrow is not None and isinstance(data, pyarrow.Table | pyarrow.RecordBatch | pyarrow.RecordBatchReader)


def _joined_batches(batches: list[Any]) -> Any:
    import pyarrow

    for number, batch in enumerate(batches, 1):
        if not isinstance(batch, pyarrow.RecordBatch):
            raise EventError(f"item {number} is {_described(batch)}, and the first is an Arrow record batch")
    try:
        return pyarrow.Table.from_batches(batches)
    except pyarrow.ArrowInvalid as error:
        raise EventError(f"the record batches do not fit together: {str(error).splitlines()[0]}") from None


def _pandas_columns(frame: Any, layout: Layout) -> Columns:
    names, lists, times = [], [], {}
    for position, label in enumerate(frame.columns):
        name, series = str(label), frame.iloc[:, position]
        kind = str(series.dtype)
        if kind.startswith("datetime64"):
            counts = series.astype("int64").tolist()
            unit = kind.removeprefix("datetime64[").rstrip("]").partition(",")[0]
            values = _microseconds(counts, unit)
            times[name] = TimeForm(True, zone_name(series.dt.tz))
        elif kind.endswith("[pyarrow]"):
            import pyarrow

            values, form = _arrow_values(pyarrow.chunked_array([pyarrow.array(series)]))
            if form is not None:
                times[name] = form
        else:
            values = series.tolist()
            if (
                kind in ("object", "category") and name != layout.time_column
            ):  # how times are written is still to be seen
                values = [plain_cell(value) for value in values]
        missing = series.isna()
        if missing.any():
            values = [None if lacks else value for value, lacks in zip(values, missing.tolist(), strict=True)]
        names.append(name)
        lists.append(values)
    return "the frame", names, lists, times


def _polars_columns(frame: Any, layout: Layout) -> Columns:
    import polars

    if isinstance(frame, polars.LazyFrame):
        frame = frame.collect()
    lists, times = [], {}
    for series in frame.get_columns():
        kind = series.dtype
        if isinstance(kind, polars.Datetime):
            values = _microseconds(series.to_physical().to_list(), kind.time_unit)
            times[series.name] = TimeForm(True, kind.time_zone)
        elif isinstance(kind, polars.Decimal):
            values = series.cast(polars.Float64).to_list()
        elif isinstance(kind, polars.Categorical | polars.Enum):
            values = series.cast(polars.String).to_list()
        else:
            values = series.to_list()
        lists.append(values)
    return "the frame", list(frame.columns), lists, times


def _arrow_columns(data: Any, layout: Layout) -> Columns:
    try:
        import pyarrow
    except ImportError:
        raise EventError(f"reading {_described(data)} needs pyarrow: pip install 'headwater[parquet]'") from None
    if isinstance(data, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([data])
    elif isinstance(data, pyarrow.RecordBatchReader):
        table = data.read_all()
    else:
        table = data if isinstance(data, pyarrow.Table) else pyarrow.table(data)
    lists, times = [], {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values, form = _arrow_values(column)
        lists.append(values)
        if form is not None:
            times[name] = form
    return "the table", list(table.column_names), lists, times


def _arrow_values(column: Any) -> tuple[list[Any], TimeForm | None]:
    """A column of Arrow as plain values, and how it writes times if it holds any."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pyarrow.types.is_timestamp(kind):
        return _microseconds(column.cast(pyarrow.int64()).to_pylist(), kind.unit), TimeForm(True, kind.tz)
    if pyarrow.types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    return column.to_pylist(), None


def _microseconds(counts: list[Any], unit: str) -> list[int | None]:
    """Counts of a unit as microseconds, by integer arithmetic; what is finer is cut off, as everywhere."""
    per_second = _PER_SECOND[unit]
    if per_second > 1_000_000:
        divisor = per_second // 1_000_000
        return [None if count is None else count // divisor for count in counts]
    factor = 1_000_000 // per_second
    return [None if count is None else count * factor for count in counts]


def _from_columns(
    label: str, names: list[str], lists: list[list[Any]], times: dict[str, TimeForm], layout: Layout
) -> EventTable:
    shown = ", ".join(names) or "none"
    for wanted, argument in ((layout.type_column, "type_column"), (layout.time_column, "time_column")):
        if wanted not in names:
            raise EventError(
                f"{label} has no column {wanted!r}; the columns are {shown} ({argument}= names another one)"
            )
    form = times.get(layout.time_column)
    if form is not None and layout.time_unit is not None:
        raise EventError(
            f"the column {layout.time_column!r} holds timestamps, which say their unit themselves; leave time_unit= out"
        )
    renamed = [_renamed(layout, name) for name in names]
    for name in renamed:
        if renamed.count(name) > 1:
            raise EventError(f"{label} has two columns called {name!r}; rename one")
    at = renamed.index("ts")
    if form is None:
        lists[at], form = uniform_times(lists[at], layout, label)
    rows = list(zip(*lists, strict=True))
    if "seq" in renamed:
        node = renamed.index("node") if "node" in renamed else None
        seq = renamed.index("seq")
        _refuse_shared((row[node] if node is not None else None, row[seq], row) for row in rows)
    return EventTable(_InMemory(label, "", layout), rows, renamed, form)


def _from_dicts(items: Iterable[Any], layout: Layout) -> EventTable:
    rows: list[dict[str, Any]] = []
    for number, item in enumerate(items, 1):
        if isinstance(item, Event):
            row = {"type": item.type, "ts": item.ts, "node": item.node, "seq": item.seq, **item.attributes}
        elif isinstance(item, Mapping):
            for name in (layout.type_column, layout.time_column):
                if name not in item:
                    raise EventError(f"event {number} has no {name!r}: {dict(item)!r:.100}")
            row = {_renamed(layout, str(name)): value for name, value in item.items()}
            if row.get("seq", 0) is None:
                del row["seq"]
        else:
            raise EventError(
                f"event {number} is a {type(item).__name__}; give an Event, or a mapping with type, ts and attributes"
            )
        rows.append(row)
    cells, form = uniform_times([row["ts"] for row in rows], layout, "the events")
    for row, ts in zip(rows, cells, strict=True):
        for name, value in row.items():
            if value.__class__ not in PLAIN_CLASSES:
                row[name] = plain_cell(value)
        row["ts"] = ts
        if "node" in row:
            row["node"] = present(row["node"])
    if rows and "seq" in rows[0]:
        _refuse_shared((row.get("node"), row.get("seq"), row) for row in rows)
    return EventTable(_InMemory("the events", "", layout), rows, None, form)


def _renamed(layout: Layout, name: str) -> str:
    """A column as the reader calls it. One that is called like another that holds the time or the type gives way."""
    if name == layout.time_column:
        return "ts"
    if name == layout.type_column:
        return "type"
    return f"_{name}" if name in ("ts", "type") else name


def _refuse_shared(identities: Iterable[tuple[Any, Any, Any]]) -> None:
    """Two rows under one identity would be taken for one event. (The same row twice is one.)"""
    first_rows: dict[tuple[Any, Any], Any] = {}
    for node, seq, row in identities:
        try:
            other = first_rows.setdefault((node, seq), row)
        except TypeError:  # no identity at all, which the reader of rows refuses
            continue
        if other is not row and other != row:
            raise EventError(
                f"two events have the node {node if node is not None else 'local'!r} and the seq {seq}: {other!r:.100} "
                f"and {row!r:.100}; give each event of a node a seq of its own, or leave seq out: events are then "
                "numbered"
            )


def _described(data: Any) -> str:
    kind = type(data)
    module = kind.__module__.partition(".")[0]
    name = kind.__name__ if module == "builtins" else f"{module} {kind.__name__}"
    return f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
