"""What the events tell where the program does not say it: the types of events, and how their times are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headwater.cells import NUMBERS, UTC_STAMPS, TimeForm
from headwater.frames import EventTable, table_of
from headwater.node.traces.reader import survey
from headwater.node.traces.rows import Rows
from headwater.node.traces.types import Survey
from headwater.protocol.edge import Layout
from headwater.protocol.events import Event
from headwater.protocol.languages import RuleTextError
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE


def surveyed_events(events: list[Event]) -> Callable[[], Survey]:
    """What a first look at Event objects tells about their types."""

    def look() -> Survey:
        rows = [{"type": event.type, "ts": event.ts, **event.attributes} for event in events]
        table = table_of(rows, Layout(time_unit="us"))
        return Survey({}) if not isinstance(table, EventTable) else survey(table.open())

    return look


def times_of(rows: Rows) -> TimeForm:
    """How a file writes its times."""
    if rows.has_timestamps or rows.source.layout.time_unit is not None:
        return UTC_STAMPS
    at: Any = "ts" if rows.columns is None else rows.columns.index("ts")
    for row in rows.sample(1):
        cell = row.get(at) if isinstance(row, dict) else row[at] if len(row) > at else None
        if isinstance(cell, str) and not cell.strip().lstrip("+-").isdigit():
            return UTC_STAMPS
    return NUMBERS


def hints_on(error: RuleTextError, shown: str, seen: Survey) -> Iterator[str]:
    """What the events have to do with mistakes in rules that were read with their types."""
    text = str(error)
    if any(diagnostic.code == UNKNOWN_EVENT_TYPE for diagnostic in error.diagnostics):
        yield (
            f"types that are not declared are taken from {shown}; if it just holds none of these, declare them: "
            "types={'Name': {'attribute': 'kind', ..}, ..}"
        )
    for (name, attribute), why in seen.oddities.items():
        if f".{attribute} " in text or f"{name} has no attribute {attribute!r}" in text:
            yield f"in {shown}, {name}.{attribute} {why}"
