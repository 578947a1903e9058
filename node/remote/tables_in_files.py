"""REMOTE tables from files with the columns ``key`` (or ``key1``, ``key2``, ..), ``value`` and, optionally, ``ts``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from headwater.node.traces.rows import READ_ERRORS, BadRow, Row, Rows, TraceSource
from headwater.node.traces.times import in_another_unit, likely_unit, parse_ts, saying_the_unit, time_reader, wrong_unit
from headwater.node.traces.types import BOOLEANS, kind_of_texts
from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import EventError
from headwater.protocol.events import Value
from headwater.protocol.remote import RemoteEntry, RemoteTable, RemoteValue

_KEY: Final = re.compile(r"key([1-9][0-9]*)?")
_TEXT_VALUES: Final[dict[str, Callable[[str], Value]]] = {
    "int": int,
    "float": float,
    "bool": BOOLEANS.__getitem__,
    "string": str,
}


def load_remote_table(file: str, unit: TimeUnit | None = None) -> RemoteTable:
    source = TraceSource.at(file, required=("value",))
    rows = source.open()
    of_number = time_reader(None if unit == "iso" else unit)
    try:
        placed = _all_rows(rows)
        dicts = _typed_columns(rows, placed) if rows.flavour == "text" else _dicts(rows, placed)
        keys: list[str] | None = None
        entries = []
        times: list[Any] = []
        for position, row in dicts:
            try:
                keys = keys or _key_columns(row if rows.columns is None else rows.columns)
                entries.append(_entry(row, keys, of_number))
            except EventError as error:
                raise EventError(f"{rows.where(position)}: {error}") from None
            times.append(row.get("ts"))
        if unit is None and not rows.has_timestamps and (odd_time := in_another_unit(times)) is not None:
            cure = f"{saying_the_unit(str(likely_unit(odd_time)))}, or us if microseconds are meant"
            raise EventError(f"{source.shown}: {wrong_unit(odd_time)}; {cure}")
        return RemoteTable(entries)
    finally:
        rows.close()


def _all_rows(rows: Rows) -> list[tuple[int, Row]]:
    placed: list[tuple[int, Row]] = []
    for position, row in rows.replayed:
        if isinstance(row, BadRow):
            raise EventError(f"{rows.where(position)}: {row}")
        placed.append((position, row))
    while True:
        try:
            for row in rows.raw:
                placed.append((rows.position, row))
            return placed
        except READ_ERRORS as error:
            bad = rows.failure(error)
            if bad is not None:
                raise EventError(f"{rows.where()}: {bad}") from None


def _typed_columns(rows: Rows, placed: list[tuple[int, list[str]]]) -> Iterable[tuple[int, dict[str, Any]]]:
    columns = rows.columns or []
    placed = [(position, row) for position, row in placed if row]
    for position, row in placed:
        if len(row) != len(columns):
            raise EventError(f"{rows.where(position)}: the row has {len(row)} columns, the header has {len(columns)}")
    convert = []
    for index in range(len(columns)):
        kind = kind_of_texts([row[index] for _, row in placed if row[index]], "") or "string"
        convert.append(_TEXT_VALUES[kind])
    for position, row in placed:
        yield (
            position,
            {
                name: to_value(cell) if cell else None
                for name, to_value, cell in zip(columns, convert, row, strict=True)
            },
        )


def _dicts(rows: Rows, placed: list[tuple[int, Row]]) -> Iterable[tuple[int, dict[str, Any]]]:
    for position, row in placed:
        if rows.columns is not None:
            yield position, dict(zip(rows.columns, row, strict=True))
        elif isinstance(row, dict):
            yield position, row
        else:
            raise EventError(f"{rows.where(position)}: the line is not a JSON object but {type(row).__name__}")


def _key_columns(names: Iterable[str]) -> list[str]:
    columns = sorted((name for name in names if _KEY.fullmatch(name)), key=lambda name: int(name[3:] or 0))
    if not columns:
        raise EventError("there is no column 'key' (or 'key1', 'key2', ..)")
    return columns


def _entry(row: dict[str, Any], keys: list[str], of_number: Callable[[Any], int]) -> RemoteEntry:
    if "value" not in row:
        raise EventError("the row has no 'value'")
    key = []
    for name in keys:
        part = row.get(name)
        if part is None or isinstance(part, list | dict):
            raise EventError(f"the row has no {name!r}" if part is None else f"{name!r} is not one value")
        key.append(part)
    since = row.get("ts")
    valid_from = None if since is None else parse_ts(since) if isinstance(since, str) else of_number(since)
    return RemoteEntry(tuple(key), _value(row["value"]), valid_from)


def _value(cell: Any) -> RemoteValue:
    if isinstance(cell, list):
        return tuple(_scalar(item) for item in cell)
    return _scalar(cell)


def _scalar(cell: Any) -> Value:
    if cell is None or isinstance(cell, bool | int | float | str):
        return cell
    raise EventError("'value' is neither a number, a string, a boolean nor a list of these")
