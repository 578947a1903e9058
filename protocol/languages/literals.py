"""Numbers, durations and strings as text, in both directions."""

from __future__ import annotations

import math
import re
from decimal import Decimal, DecimalException
from typing import Final

from headwater.protocol.events import Value

UNITS_US: Final = {
    "us": 1, "µs": 1, "μs": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "min": 60_000_000, "min.": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": 3_600_000_000, "hour": 3_600_000_000, "hours": 3_600_000_000,
    "d": 86_400_000_000, "day": 86_400_000_000, "days": 86_400_000_000,
}  # fmt: skip
"""Every way to write a unit of time, in microseconds."""

INTEGER_MAX: Final = 2**63 - 1
"""Integers travel in 64 bits."""

_NUMBER_DIGITS_MAX = 60
_SUFFIXES = {"k": 1_000, "K": 1_000, "M": 1_000_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([^\W\d_]+\.?)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "'": "'", '"': '"', "/": "/"}
_ESCAPED = {value: "\\" + letter for letter, value in _ESCAPES.items() if letter not in ('"', "/")}


class LiteralError(ValueError):
    """A number that cannot be meant; the text says why."""


def parse_number(text: str) -> int | float:
    """``10``, ``2.5``, ``1e3``, ``10k``, ``2M``: an int where the value is written without a fraction or exponent."""
    if len(text) > _NUMBER_DIGITS_MAX:
        raise LiteralError(f"a number of {len(text)} characters is too long")
    factor = _SUFFIXES.get(text[-1])
    try:
        exact = Decimal(text[:-1] if factor else text) * (factor or 1)
    except DecimalException:
        raise LiteralError(f"{text} is too large for a number") from None
    whole = "e" not in text.lower() and ("." not in text or (factor is not None and exact == exact.to_integral_value()))
    if whole:
        if exact > INTEGER_MAX:
            raise LiteralError(f"{text} does not fit into 64 bits")
        return int(exact)
    number = float(exact)
    if math.isinf(number):
        raise LiteralError(f"{text} is too large for a number")
    return number


def parse_duration(text: str) -> int:
    """``5 min``, ``1h 30min``, ``0.5 s`` as microseconds."""
    total = Decimal(0)
    for amount, unit in _DURATION_PART.findall(text):
        if len(amount) > _NUMBER_DIGITS_MAX:
            raise LiteralError(f"a number of {len(amount)} characters is too long")
        total += Decimal(amount) * UNITS_US[unit.lower()]
    if total != total.to_integral_value():
        raise LiteralError(f"{text.strip()} is not a whole number of microseconds")
    if total > INTEGER_MAX:
        raise LiteralError(f"{text.strip()} is too long")
    return int(total)


def parse_string(text: str) -> str:
    """What stands between the quotes. A backslash before any other character than those it escapes stays itself."""
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[0]), text[1:-1])


def print_string(value: str) -> str:
    return "'" + "".join(_ESCAPED.get(character, character) for character in value) + "'"


def print_duration(length_us: int) -> str:
    """The largest unit that divides it: ``5 min``, ``90 s``."""
    for unit in ("d", "h", "min", "s", "ms"):
        if length_us and length_us % UNITS_US[unit] == 0:
            return f"{length_us // UNITS_US[unit]} {unit}"
    return f"{length_us} us"


def print_value(value: Value) -> str:
    """A constant as text; ValueError for infinities and what is no number."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return print_string(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} cannot be written")
    return repr(value)
