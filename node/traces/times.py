"""Parses times as traces and devices write them, in any unit, to microseconds since 1970.

Numbers become microseconds by their decimal text and never through floats. What is finer is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from headwater.protocol.edge import TimeUnit
from headwater.protocol.errors import EventError

TS_MIN, TS_MAX = -(2**63), 2**63 - 1
UNIT_NAMES: Final[Mapping[str, str]] = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "iso": "ISO 8601",
}  # fmt: skip
DIGITS: Final[Mapping[str, int]] = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""How many decimal digits a number of this unit is moved to become microseconds."""

TEXT_CHARACTERS_MAX: Final = 100  # of a number; Python refuses to read integers of thousands of digits

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_2000_S, _2100_S = 946_684_800, 4_102_444_800
_DATES: Final = {unit: (_2000_S * 10 ** (6 - DIGITS[unit]), _2100_S * 10 ** (6 - DIGITS[unit])) for unit in DIGITS}
"""By unit, the numbers that are dates from 2000 to 2100. No number is one in two units."""
DATE_MIN, DATE_MAX = _DATES["us"]
_PLAIN: Final = re.compile(r"([+-]?[0-9]*)(?:\.([0-9]*))?")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


QUOTES: Final = "'\""


class BadTime(EventError):
    """Something that is no time; the sentence says why."""


def iso_us(text: str) -> int:
    """An ISO 8601 time as microseconds since 1970; without a zone it is UTC. ValueError if it is no such time."""
    moment = datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def parse_ts(cell: Any, name: str = "ts") -> int:
    """Integer microseconds, or ISO 8601."""
    if isinstance(cell, str):
        text = cell.strip()
        if not text:
            raise BadTime(f"the row has no {name}")
        try:
            ts = int(text)
        except ValueError:
            try:
                ts = iso_us(text)
            except (ValueError, OverflowError):
                raise _no_time(cell, name) from None
    elif cell is None:
        raise BadTime(f"the row has no {name}")
    elif isinstance(cell, int) and not isinstance(cell, bool):
        ts = cell
    else:
        raise _no_time(cell, name)
    return _bounded(ts, cell, name)


def time_reader(unit: TimeUnit | None, name: str = "ts") -> Callable[[Any], int]:
    """A function that gives the microseconds of a cell, or a BadTime that calls it by ``name``.

    Without a unit integers are microseconds and everything else is ISO 8601; with one, every cell is of this unit.
    """
    if unit is None:
        return lambda cell: parse_ts(cell, name)
    if unit == "iso":
        return lambda cell: _iso(cell, name)
    digits = DIGITS[unit]
    return lambda cell: _number(cell, unit, digits, name)


def _iso(cell: Any, name: str) -> int:
    if cell is None or cell == "":
        raise BadTime(f"the row has no {name}")
    try:
        # A number alone would be read as a date: 20260301.
        if not isinstance(cell, str) or _DECIMAL.fullmatch(cell.strip()):
            raise ValueError
        return iso_us(cell)
    except (ValueError, OverflowError):
        raise BadTime(f"{name} {_shown(cell)} is not an ISO 8601 time") from None


def _number(cell: Any, unit: str, digits: int, name: str) -> int:
    kind = cell.__class__
    if kind is int:
        ts = _moved(cell, digits)
    elif cell is None or cell == "":
        raise BadTime(f"the row has no {name}")
    elif kind is float or kind is str:
        ts = _of_text(repr(cell) if kind is float else cell.strip(), digits, cell, unit, name)
    else:
        raise _not_of_unit(cell, unit, name)
    return _bounded(ts, cell, name)


def _moved(number: int, digits: int) -> int:
    factor: int = 10 ** abs(digits)
    return number * factor if digits >= 0 else number // factor


def _of_text(text: str, digits: int, cell: Any, unit: str, name: str) -> int:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise _not_of_unit(cell, unit, name)
    match = _PLAIN.fullmatch(text)
    if match is None or not (match[1].lstrip("+-") or match[2]):
        if not _DECIMAL.fullmatch(text):
            raise _not_of_unit(cell, unit, name)
        return int(Decimal(text).scaleb(digits))
    if digits <= 0:
        return _moved(int(match[1] if match[1].lstrip("+-") else match[1] + "0"), digits)
    return int(match[1] + (match[2] or "")[:digits].ljust(digits, "0"))


def _not_of_unit(cell: Any, unit: str, name: str) -> BadTime:
    return BadTime(f"{name} {_shown(cell)} is not a number of {UNIT_NAMES[unit]}")


def _bounded(ts: int, cell: Any, name: str) -> int:
    if not TS_MIN <= ts <= TS_MAX:
        raise BadTime(f"{name} {_shown(cell).strip(QUOTES)} does not fit into 64 bits")
    return ts


def _no_time(cell: Any, name: str) -> BadTime:
    decimal = isinstance(cell, float) or (isinstance(cell, str) and _DECIMAL.fullmatch(cell.strip()))
    hint = f"; {saying_the_unit('s')} if it counts seconds" if decimal else ""
    return BadTime(f"{name} {_shown(cell)} is neither an integer of microseconds nor an ISO 8601 time{hint}")


def _shown(cell: Any) -> str:
    try:
        shown = repr(cell)
    except ValueError:  # an integer of thousands of digits
        return "of thousands of digits"
    return shown if len(shown) <= 60 else shown[:57] + "..."


# ------------------------------------------------------------------------------------------------------- the wrong unit


def likely_unit(ts: int) -> str | None:
    """The unit in which this number is a date from 2000 to 2100, if that is not microseconds."""
    return next((unit for unit in ("s", "ms", "ns") if _DATES[unit][0] <= ts <= _DATES[unit][1]), None)


def in_another_unit(cells: Iterable[Any]) -> int | None:
    """The first of the integers that is in another unit than microseconds, by all appearances; None if none is.

    That is so if every integer is a date from 2000 to 2100 in some unit, and not all are in microseconds. Numbers that
    count from a beginning of their own (1, 2, 3, ..) are among those that are no date in any unit.
    """
    first: int | None = None
    for cell in cells:
        try:
            ts = int(cell) if isinstance(cell, str) else cell
        except ValueError:
            continue
        if ts.__class__ is not int or DATE_MIN <= ts <= DATE_MAX:
            continue
        if likely_unit(ts) is None:
            return None
        first = ts if first is None else first
    return first


def are_dates(cells: Iterable[Any]) -> bool:
    """Whether there are integers among the cells, and all of them are dates in microseconds."""
    has_integers = False
    for cell in cells:
        try:
            ts = int(cell) if isinstance(cell, str) else cell
        except ValueError:
            continue
        if ts.__class__ is int:
            if not DATE_MIN <= ts <= DATE_MAX:
                return False
            has_integers = True
    return has_integers


def wrong_unit(ts: int, name: str = "ts") -> str:
    """A sentence about a number that `in_another_unit` or `likely_unit` found: what it seems to be."""
    unit = likely_unit(ts)
    assert unit is not None
    seems = (_EPOCH + _moved(ts, DIGITS[unit]) * _MICROSECOND).strftime("%Y-%m-%d %H:%M")
    if ts > DATE_MAX:
        taken = "lies thousands of years ahead"
    else:
        taken = f"lies in {(_EPOCH + ts * _MICROSECOND).strftime('%B %Y')}"
    return f"{name} {ts}, taken as microseconds, {taken}; as {UNIT_NAMES[unit]} it is {seems}"


def saying_the_unit(unit: str) -> str:
    """How a user says in which unit times are."""
    return f"write --time-unit {unit} (in a network file time: {{unit: {unit}}})"


def wrong_for_the_clock(ts: int, now_us: int) -> str | None:
    """A sentence about the time of something that happens now, if it is right in another unit only."""
    if DATE_MIN <= ts <= DATE_MAX or not DATE_MIN <= now_us <= DATE_MAX:
        return None
    unit = likely_unit(ts)
    if unit is None:
        return None
    cure = f"say it in microseconds, or its unit in the source: time: {{from: .., unit: {unit}}}"
    return f"{wrong_unit(ts, 'its time')}; {cure}"
