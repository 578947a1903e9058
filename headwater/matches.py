"""What a run found, as composite events or as a table of the library that the program works with."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, overload

from headwater.cells import NUMBERS, TimeForm
from headwater.protocol.composites import Composite
from headwater.protocol.errors import ConfigError, EventError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

SHOWN_MAX: Final = 20  # rows of the table that a notebook shows
_FIXED: Final = ("type", "ts", "start", "rule", "id")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Matches(Sequence[Composite]):
    """The composite events that a run found, in the order of event time.

    A sequence: loop over it, index it, take its length, as often as needed. ``to_pandas``, ``to_polars`` and
    ``to_arrow`` give a table with one row for each composite event and the columns

    - ``type``: the type of the composite event,
    - ``ts`` and ``start``: the times of its latest and its earliest event,
    - ``rule``: the rule that found it,
    - one column for each attribute (``attribute.start`` if it is called like another column),
    - ``id``: identifies the match; two runs over the same events give the same ids,
    - with ``events=True`` also ``events``: which events matched, each with role, type, ts, node and seq.

    Times are written as the input wrote them: integers of microseconds, or timestamps in the same zone.
    """

    def __init__(self, composites: Iterable[Composite], times: TimeForm = NUMBERS) -> None:
        self._composites = list(composites)
        self._times = times

    def __len__(self) -> int:
        return len(self._composites)

    @overload
    def __getitem__(self, index: int) -> Composite: ...

    @overload
    def __getitem__(self, index: slice) -> Matches: ...

    def __getitem__(self, index: int | slice) -> Composite | Matches:
        if isinstance(index, slice):
            return Matches(self._composites[index], self._times)
        return self._composites[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matches) and self._composites == other._composites

    __hash__ = None  # type: ignore[assignment]

    def counts(self) -> dict[str, int]:
        """How many composite events there are of each type."""
        return dict(sorted(Counter(composite.type for composite in self._composites).items()))

    def to_dicts(self) -> list[dict[str, Any]]:
        """The documented JSON form of each composite event, as ``headwater run`` prints it; times in microseconds."""
        return [composite.to_json() for composite in self._composites]

    def to_pandas(self, *, events: bool = False) -> pandas.DataFrame:
        """A pandas frame. Needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_pandas() needs pandas: pip install pandas") from None
        series: dict[str, Any] = {}
        for name, kind, values in self._columns(events=events):
            lacks = None in values
            if kind == "time" and self._times.stamped:
                stamps = pandas.Series(values, dtype="int64").astype("datetime64[us]")
                zone = self._times.zone
                series[name] = stamps if zone is None else stamps.dt.tz_localize("UTC").dt.tz_convert(zone)
            elif kind in ("int", "time") and not _fits(values):
                series[name] = pandas.Series(values, dtype="object")
            else:
                dtype = {"int": "Int64" if lacks else "int64", "bool": "boolean" if lacks else "bool"}
                dtype |= {"time": "int64", "float": "float64"}
                series[name] = pandas.Series(values, dtype=dtype.get(kind, "object"))
        return pandas.DataFrame(series)

    def to_polars(self, *, events: bool = False) -> polars.DataFrame:
        """A Polars frame. Needs polars."""
        try:
            import polars
        except ImportError:
            raise ConfigError("to_polars() needs Polars: pip install polars") from None
        kinds: dict[str, Any] = {"int": polars.Int64, "time": polars.Int64, "float": polars.Float64}
        kinds |= {"bool": polars.Boolean, "string": polars.String}
        part = polars.Struct({"role": polars.String, "type": polars.String, "ts": polars.Int64, "node": polars.String,
                              "seq": polars.Int64})  # fmt: skip
        columns = []
        for name, kind, values in self._columns(events=events):
            _refuse_unfit(name, kind, values, "to_polars")
            dtype = polars.List(part) if kind == "events" else kinds.get(kind)
            try:
                column = polars.Series(name, values, dtype=dtype)
            except (TypeError, polars.exceptions.PolarsError):
                raise _mixed(name, "to_polars") from None
            if kind == "time" and self._times.stamped:
                column = column.cast(polars.Datetime("us", self._times.zone))
            columns.append(column)
        return polars.DataFrame(columns)

    def to_arrow(self, *, events: bool = False) -> pyarrow.Table:
        """An Arrow table. Needs pyarrow."""
        try:
            import pyarrow
        except ImportError:
            raise ConfigError("to_arrow() needs pyarrow: pip install pyarrow") from None
        text, number = pyarrow.string(), pyarrow.int64()
        kinds = {"int": number, "time": number, "float": pyarrow.float64(), "bool": pyarrow.bool_(), "string": text}
        part = pyarrow.struct({"role": text, "type": text, "ts": number, "node": text, "seq": number})
        columns = {}
        for name, kind, values in self._columns(events=events):
            _refuse_unfit(name, kind, values, "to_arrow")
            try:
                column = pyarrow.array(values, pyarrow.list_(part) if kind == "events" else kinds.get(kind))
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
                raise _mixed(name, "to_arrow") from None
            if kind == "time" and self._times.stamped:
                column = column.cast(pyarrow.timestamp("us", self._times.zone))
            columns[name] = column
        return pyarrow.table(columns)

    def _columns(self, *, events: bool) -> list[tuple[str, str, list[Any]]]:
        """Name, kind and values of every column: int, float, bool, string, any, time or events."""
        composites = self._composites
        columns: list[tuple[str, str, list[Any]]] = [
            ("type", "string", [composite.type for composite in composites]),
            ("ts", "time", [composite.ts for composite in composites]),
            ("start", "time", [composite.start[0] for composite in composites]),
            ("rule", "string", [composite.rule for composite in composites]),
        ]
        kinds: dict[str, set[str]] = {}
        for spec in dict.fromkeys(composite.spec for composite in composites):
            for name, kind in zip(spec.type.attributes, spec.type.kinds, strict=True):
                kinds.setdefault(name, set()).add(kind)
        rows = [composite.attributes for composite in composites]
        taken = (*_FIXED, "events") if events else _FIXED
        for name, declared in kinds.items():
            values = [row.get(name) for row in rows]
            columns.append((f"attribute.{name}" if name in taken else name, _kind(declared, values), values))
        columns.append(("id", "string", [composite.id for composite in composites]))
        if events:
            columns.append(("events", "events", [_parts(composite) for composite in composites]))
        return columns

    def __repr__(self) -> str:
        if not self._composites:
            return "<Matches: no composite events>"
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts().items())
        number = len(self._composites)
        return f"<Matches: {number:,} composite event{'s' * (number != 1)} ({counts})>"

    def _repr_html_(self) -> str:
        head = f"<p>{html.escape(repr(self)[1:-1])}</p>"
        if not self._composites:
            return head
        columns = self[:SHOWN_MAX]._columns(events=False)[:-1]  # the id tells a reader nothing
        names = "".join(f"<th>{html.escape(name)}</th>" for name, _, _ in columns)
        shown = [[self._shown(kind, value) for value in values] for _, kind, values in columns]
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in zip(*shown, strict=True)
        )
        more = len(self._composites) - SHOWN_MAX
        rest = f"<p>and {more:,} more</p>" if more > 0 else ""
        return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>{rest}"

    def _shown(self, kind: str, value: Any) -> str:
        if value is None:
            return ""
        if kind == "time" and self._times.stamped:
            return (_EPOCH + timedelta(microseconds=value)).isoformat(sep=" ").removesuffix("+00:00")
        return str(value)


def _kind(declared: set[str], values: list[Any]) -> str:
    """The one kind of a column; of attributes without a declared kind what their values say."""
    if declared == {"int", "float"}:
        return "float"
    kind = declared.pop() if len(declared) == 1 else "any"
    if kind != "any":
        return kind
    classes = {type(value) for value in values if value is not None}
    if classes == {int, float}:
        return "float"
    names: dict[type, str] = {int: "int", float: "float", bool: "bool", str: "string"}
    return names.get(classes.pop(), "any") if len(classes) == 1 else "any"


def _parts(composite: Composite) -> list[dict[str, Any]]:
    kept = ("role", "type", "ts", "node", "seq")
    return [{name: part[name] for name in kept} for part in composite.to_json()["events"]]


def _fits(values: list[Any]) -> bool:
    return all(value is None or -(1 << 63) <= value < 1 << 63 for value in values)


def _refuse_unfit(name: str, kind: str, values: list[Any], method: str) -> None:
    if kind == "int" and not _fits(values):
        raise EventError(f"{method}(): {name!r} holds an integer of more than 64 bits; to_dicts() keeps it exact")


def _mixed(name: str, method: str) -> EventError:
    return EventError(
        f"{method}(): {name!r} holds values of different kinds, which one column cannot; to_dicts() and to_pandas() can"
    )
