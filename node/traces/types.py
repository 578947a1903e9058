"""What a first look at a trace tells about the types of its events."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from headwater.node.traces.rows import READ_ERRORS, BadRow, Row, Rows, wrong_width
from headwater.node.traces.times import TS_MIN, time_reader
from headwater.protocol.errors import EventError
from headwater.protocol.events import RESERVED_ATTRIBUTES, EventType, Value

SURVEY_CHUNK: Final = 8192  # rows whose columns are looked at together


@dataclass(slots=True)
class Survey:
    """What a first look at a trace tells: the types with their attributes, how many rows, and whether in order."""

    types: dict[str, EventType]
    in_order: bool = True
    rows: int = 0
    first_bad: str | None = None
    """The first row that could not be read at all, with its place."""
    oddities: dict[tuple[str, str], str] = field(default_factory=dict)
    """Attributes, by (type, name), whose kind may surprise, and why it is what it is."""


_INT = r"[+-]?(?:0|[1-9][0-9]*)"
_FLOAT = r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_BOOL = r"(?:[tT]rue|TRUE|[fF]alse|FALSE)"
_CELL: Final = {kind: re.compile(text) for kind, text in (("int", _INT), ("float", _FLOAT), ("bool", _BOOL))}
_COLUMN: Final = {
    kind: re.compile(f"(?:{text}\x1f)*+")
    for kind, text in (("int", _INT), ("float", _FLOAT), ("bool", _BOOL), ("string", r"[^\x1f]*"))
}
BOOLEANS: Final = {
    "true": True, "True": True, "TRUE": True, "1": True,
    "false": False, "False": False, "FALSE": False, "0": False,
}  # fmt: skip


def kind_of_texts(texts: list[str], kind: str) -> str:
    """The narrowest kind that covers the given non-empty texts and what was covered before (``""``: nothing yet)."""
    if not texts or kind == "string":
        return kind
    joined = "\x1f".join(texts) + "\x1f"
    candidates = {"": ("int", "float", "bool"), "int": ("int", "float"), "float": ("float",), "bool": ("bool",)}[kind]
    for candidate in candidates:
        if _COLUMN[candidate].fullmatch(joined):
            return candidate
    return "string"


def value_of_text(text: str) -> Value:
    """A CSV cell of undeclared kind as the value it looks like."""
    if not text:
        return None
    if _CELL["int"].fullmatch(text):
        return int(text)
    if _CELL["float"].fullmatch(text):
        return float(text)
    return BOOLEANS[text] if _CELL["bool"].fullmatch(text) else text


class _TextColumns:
    """Infers the kinds of CSV columns, type by type and a chunk of rows at a time."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns
        self.kinds: dict[str, list[str]] = {}
        self.lacking: dict[str, list[bool]] = {}
        self.oddities: dict[tuple[str, str], str] = {}

    def add(self, name: str, rows: list[list[str]]) -> None:
        kinds = self.kinds.setdefault(name, [""] * len(self.columns))
        lacking = self.lacking.setdefault(name, [False] * len(self.columns))
        for index, column in enumerate(zip(*rows, strict=True)):
            present = list(filter(None, column))
            if len(present) < len(column):
                lacking[index] = True
            before, kinds[index] = kinds[index], kind_of_texts(present, kinds[index])
            if kinds[index] == "string" and before != "string":
                self._wonder(name, self.columns[index], present, before)

    def _wonder(self, name: str, column: str, texts: list[str], before: str) -> None:
        """Remember the text that keeps a column from being one of numbers."""
        is_number = _CELL["float"].fullmatch
        if before in ("int", "float") or (before == "" and any(map(is_number, texts))):
            text = next(text for text in texts if not is_number(text))
            self.oddities[name, column] = f"is a string because of {text!r}; a cell without a value is empty"

    def types(self) -> dict[str, EventType]:
        return {
            name: EventType(
                name,
                [
                    (column, kind + "?" * lacks)
                    for column, kind, lacks in zip(self.columns, kinds, self.lacking[name], strict=True)
                    if kind and column not in RESERVED_ATTRIBUTES
                ],
            )
            for name, kinds in self.kinds.items()
        }


_CLASS_KINDS: Final = {bool: "bool", int: "int", float: "float", str: "string"}


class _ValueColumns:
    """Infers the kinds of attributes from typed values (JSON lines, Parquet)."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.seen: dict[str, dict[str, Counter[type]]] = {}

    def add(self, name: str, pairs: Iterable[tuple[str, Value]]) -> None:
        self.rows[name] += 1
        seen = self.seen.setdefault(name, {})
        for attribute, value in pairs:
            if value is not None and value == value:
                try:
                    seen[attribute][value.__class__] += 1
                except KeyError:
                    seen[attribute] = Counter({value.__class__: 1})

    def types(self) -> dict[str, EventType]:
        types = {}
        for name, seen in self.seen.items():
            attributes = []
            for attribute, classes in seen.items():
                if attribute in RESERVED_ATTRIBUTES:
                    continue
                kinds = {_CLASS_KINDS[cls] for cls in classes if cls in _CLASS_KINDS}
                if not kinds:
                    continue
                kind = kinds.pop() if len(kinds) == 1 else "float" if kinds == {"int", "float"} else "any"
                attributes.append((attribute, kind + "?" * (sum(classes.values()) < self.rows[name])))
            types[name] = EventType(name, attributes)
        return types

    @property
    def oddities(self) -> dict[tuple[str, str], str]:
        return {
            (name, attribute): f"holds a {cls.__name__}; attributes hold numbers, strings and booleans"
            for name, seen in self.seen.items()
            for attribute, classes in seen.items()
            for cls in classes
            if cls not in _CLASS_KINDS
        }


def survey(
    rows: Rows, sample_rows: int | None = None, watch: Callable[[int, float | None], None] | None = None
) -> Survey:
    """Look at all rows, or at the first ``sample_rows`` of a stream (whose rows are then still to be read).

    Rows that are no events are passed over here: reading them properly reports them. ``watch`` is told now and then how
    many rows have been seen, and the share of the file.
    """
    rows.refuse_another_unit()
    surveyor = _Surveyor(rows, watch)
    if sample_rows is None:
        surveyor.look_at_all()
    else:
        surveyor.look_at_sample(sample_rows)
    surveyed = surveyor.survey()
    if sample_rows is not None:
        # What was in every row of the sample may be absent later.
        surveyed.types = {
            name: EventType(
                name, [(attribute, kind.rstrip("?") + "?") for attribute, kind in event_type.declaration()[1]]
            )
            for name, event_type in surveyed.types.items()
        }
    return surveyed


class _Surveyor:
    """Looks at rows, a chunk at a time."""

    def __init__(self, rows: Rows, watch: Callable[[int, float | None], None] | None) -> None:
        self._rows = rows
        self._watch = watch
        self._survey = Survey({})
        self._top = TS_MIN
        self._time_of = time_reader(rows.source.layout.time_unit)
        self._is_plain = rows.source.layout.time_unit in (None, "us")
        self._columns = rows.columns or []
        self._texts = _TextColumns(self._columns)
        self._values = _ValueColumns()
        self._type_at: Any = "type" if rows.columns is None else rows.columns.index("type")
        self._ts_at: Any = "ts" if rows.columns is None else rows.columns.index("ts")

    def survey(self) -> Survey:
        """What was found."""
        columns = self._texts if self._rows.flavour == "text" else self._values
        self._survey.oddities, self._survey.types = columns.oddities, columns.types()
        return self._survey

    def look_at_sample(self, most: int) -> None:
        rows = self._rows
        rows.sample(most)
        good = [at for at, row in rows.replayed if not isinstance(row, BadRow)][:most]
        last = good[-1] if good else inf
        self._digest([row for at, row in rows.replayed if at <= last and self._is_usable(row, at)])

    def look_at_all(self) -> None:
        rows = self._rows
        chunk = [row for at, row in rows.replayed if self._is_usable(row, at)]
        while True:
            try:
                for row in rows.raw:
                    if self._is_usable(row):
                        chunk.append(row)
                        if len(chunk) >= SURVEY_CHUNK:
                            self._digest(chunk)
                            chunk.clear()
                break
            except READ_ERRORS as error:
                bad = rows.failure(error)
                if bad is not None and self._survey.first_bad is None:
                    self._survey.first_bad = f"{rows.where()}: {bad}"
        self._digest(chunk)

    def _is_usable(self, row: Row, at: int | None = None) -> bool:
        rows, surveyed = self._rows, self._survey
        if isinstance(row, BadRow):
            surveyed.first_bad = surveyed.first_bad or f"{rows.where(at)}: {row}"
            return False
        if rows.flavour == "dict":
            return isinstance(row, dict) and "type" in row and "ts" in row
        width = len(self._columns)
        if len(row) != width and row and surveyed.first_bad is None:
            surveyed.first_bad = f"{rows.where(at)}: {wrong_width(row, width)}"
        return len(row) == width

    def _digest(self, chunk: list[Row]) -> None:
        rows, surveyed = self._rows, self._survey
        surveyed.rows += len(chunk)
        if self._watch is not None:
            self._watch(surveyed.rows, rows.done_share())
        times = _times([row[self._ts_at] for row in chunk], self._time_of, is_plain=self._is_plain)
        if surveyed.in_order and times:
            surveyed.in_order = times[0] >= self._top and all(map(operator.le, times, times[1:]))
            self._top = max(self._top, times[-1])
        if rows.flavour == "text":
            by_type: dict[str, list[list[str]]] = {}
            for row in chunk:
                by_type.setdefault(row[self._type_at], []).append(row)
            for name, rows_of_type in by_type.items():
                if name:
                    self._texts.add(name, rows_of_type)
            return
        for row in chunk:
            name = row[self._type_at]
            if isinstance(name, str) and name:
                self._values.add(name, row.items() if rows.flavour == "dict" else zip(self._columns, row, strict=True))


def _times(cells: list[Any], time_of: Callable[[Any], int], *, is_plain: bool) -> list[int]:
    """The times of those cells that hold one; ``is_plain``: integers are microseconds."""
    try:
        if is_plain:
            return list(map(int, cells))
    except (ValueError, TypeError, OverflowError):
        pass
    times = []
    for cell in cells:
        try:
            times.append(time_of(cell))
        except EventError:
            continue
    return times
