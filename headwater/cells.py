"""Cells of a table as plain values, and its times: how they are written, and that all are written in one way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from headwater.protocol.edge import Layout
from headwater.protocol.errors import EventError
from headwater.protocol.events import plain

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
PLAIN_CLASSES: Final = frozenset({bool, int, float, str, type(None)})


@dataclass(frozen=True, slots=True)
class TimeForm:
    """How the input writes its times, so that tables of results can write theirs in the same way."""

    stamped: bool = False
    """Timestamps, not integers of microseconds."""
    zone: str | None = None
    """The zone of timestamps; None for those without one, which count as UTC."""


NUMBERS: Final = TimeForm()
UTC_STAMPS: Final = TimeForm(True, "UTC")


def plain_cell(value: Any) -> Any:
    """A cell as a plain value where it stands for one: scalars of numpy, decimals, moments (as microseconds)."""
    if value.__class__ in PLAIN_CLASSES:
        return value
    if isinstance(value, datetime):
        return moment_us(value)
    if isinstance(value, Decimal):
        return float(value)
    module = type(value).__module__.partition(".")[0]
    if module == "numpy" and type(value).__name__ == "datetime64":
        counted = value.astype("datetime64[us]")
        return None if counted != counted else int(counted.astype("int64"))
    if module == "pandas" and type(value).__name__ == "NAType":
        return None
    return plain(value)


def moment_us(moment: datetime) -> int | None:
    """Microseconds since 1970; without a zone it is UTC. None for the NaT of pandas."""
    if moment != moment:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def uniform_times(cells: list[Any], layout: Layout, label: str) -> tuple[list[Any], TimeForm]:
    """Times as integers or text, as the reader of rows takes them, and how they were written.

    Times of different forms in one input are refused: integers beside datetimes, or datetimes with a zone beside those
    without one, are a mistake more often than not.
    """
    if layout.time_unit is not None:
        return [plain_cell(cell) for cell in cells], UTC_STAMPS
    first: TimeForm | None = None
    for number, cell in enumerate(cells, 1):
        if cell is None or cell.__class__ is int:
            form = NUMBERS
            if cell is None:
                continue
        else:
            form = _form_of(cell)
        if first is None:
            first, shown = form, cell
        elif form != first and (form.stamped, form.zone is None) != (first.stamped, first.zone is None):
            raise EventError(
                f"{label}: row {number} has the time {cell!r}, and an earlier row has {shown!r}; write all times in "
                "one way: integer microseconds, datetimes with a zone, or datetimes without one (which count as UTC)"
            )
        elif form != first:
            first = UTC_STAMPS  # several zones: the results say all of them in one
    return [present(plain_cell(cell)) for cell in cells], first or NUMBERS


def present(cell: Any) -> Any:
    """pandas writes NaN where a cell is empty."""
    return None if cell.__class__ is float and math.isnan(cell) else cell


def _form_of(cell: Any) -> TimeForm:
    if isinstance(cell, datetime):
        return TimeForm(True, None if cell.tzinfo is None else zone_name(cell.tzinfo))
    if isinstance(cell, str) and not cell.strip().lstrip("+-").isdigit():
        return UTC_STAMPS
    return TimeForm(True) if type(cell).__name__ == "datetime64" else NUMBERS


def zone_name(zone: Any) -> str | None:
    """The name of a time zone; a mere offset has none and is said in UTC."""
    if zone is None:
        return None
    return getattr(zone, "key", None) or getattr(zone, "zone", None) or "UTC"
