"""Text for people: lists, plurals, the closest name, and times and sizes in the unit that reads best."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

NAMES_COMPARED_MAX: Final = 1_000
"""Among more names than this none is looked for that comes close: a text full of mistakes would take minutes."""

NOTHING: Final = "\N{EN DASH}"
"""Stands where there is no figure."""

DATES_FROM_US, DATES_UNTIL_US = 10**14, 10**17  # March 1973 to the year 5138

UNITS_US: Final = (
    ("d", 86_400_000_000), ("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1),
)  # fmt: skip
"""The units of time that rules, files and messages use, longest first."""


# -- names ----------------------------------------------------------------------------------------------------------


def closest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that looks most like a name, whatever its case, if any comes close."""
    by_folded = {candidate.lower(): candidate for candidate in choices}
    if len(by_folded) > NAMES_COMPARED_MAX:
        return None
    matches = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def listed(names: Iterable[str], most: int = 8) -> str:
    """``a, b, c``, cut short where there are too many to help."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def joined(names: Sequence[str]) -> str:
    """``a, b and c``, as a sentence has it."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def suggestion(name: str, choices: Iterable[str], whose: str) -> str:
    """``did you mean 'x'?`` where a choice comes close, else the choices there are."""
    choices = list(choices)
    near = closest(name, choices)
    if near is not None:
        return f"did you mean {near!r}?"
    return f"{whose}: {listed(choices)}" if choices else ""


# -- numbers --------------------------------------------------------------------------------------------------------


def plural(number: int, noun: str) -> str:
    """``1 row``, ``1,200 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def count(number: float | None) -> str:
    """A whole number, with commas; a dash where there is none."""
    return NOTHING if number is None else f"{round(number):,}"


def share(ratio: float | None) -> str:
    """A ratio in percent, with as many digits as it takes to see something."""
    if ratio is None:
        return NOTHING
    percent = 100 * ratio
    if percent >= 99.5 or percent == 0:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"


def size(value: float | None) -> str:
    """A number of bytes."""
    if value is None:
        return NOTHING
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:,.0f} B"


def rate(value: float | None) -> str:
    """So many in a second."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"


# -- times ----------------------------------------------------------------------------------------------------------


def milliseconds(value: float | None) -> str:
    """A measured time that is given in milliseconds, rounded to what a reader compares."""
    if value is None:
        return NOTHING
    if value >= 120_000:
        return f"{value / 60_000:,.1f} min"
    if value >= 10_000:
        return f"{value / 1000:,.1f} s"
    if value >= 1000:
        return f"{value / 1000:,.2f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.3g} ms"


def seconds(value: float | None) -> str:
    """A measured time that is given in seconds, rounded likewise."""
    if value is None:
        return NOTHING
    if value < 120:
        return milliseconds(1000 * value)
    return f"{value / 3600:,.1f} h" if value >= 7200 else f"{value / 60:,.1f} min"


def show_us(duration_us: float) -> str:
    """A duration that a rule or a file states, in the longest unit that it fills."""
    for unit, length in UNITS_US[:-1]:
        if duration_us >= length:
            return f"{duration_us / length:.6g} {unit}"
    return f"{duration_us:g} us"


def whole_us(duration_us: int) -> str:
    """The same duration exactly: in the longest unit in which it is a whole number."""
    for unit, length in UNITS_US:
        if duration_us and duration_us % length == 0:
            return f"{duration_us // length} {unit}"
    return "0"


def show_ts(ts: int) -> str:
    """A timestamp in microseconds as it is, or as a date where it can only be one (1973 and later)."""
    if not DATES_FROM_US <= ts < DATES_UNTIL_US:
        return str(ts)
    moment = datetime(1970, 1, 1) + timedelta(microseconds=ts)
    return f"{moment.isoformat()}Z"
