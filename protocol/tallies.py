"""Tallies: partial aggregates over some events, which can be merged with those over others exactly.

However a range of events is divided among nodes, and in whatever order their tallies are merged, the value is the one
that a single engine computes over all of them in trace order: sums are exact until they are rounded once, and of equal
values that look different (0.0 and -0.0, 1 and 1.0) the first in the trace is the least and the greatest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Any, Final

from headwater.protocol.errors import RuleError
from headwater.protocol.events import Key, Value

Row = tuple[Any, ...]

_BIG: Final = 1 << 63
_EXACT: Final = 1 << 53  # up to here every integer is a float


@dataclass(frozen=True, slots=True)
class Total:
    """The exact sum of some numbers, and how many they are."""

    count: int = 0
    whole: int = 0
    """The sum of the integers among them."""
    lost: int = 0
    """How much greater that is than the sum of the integers as floats, which is what a mixed sum is made of."""
    reals: int = 0
    """How many are no integers."""
    numerator: int = 0
    """The sum of the finite ones of these is ``numerator / 2 ** shift``, in lowest terms."""
    shift: int = 0
    above: int = 0
    """How many are infinite."""
    below: int = 0
    """How many are minus infinity."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest value; with the key of its event where equal values may look different."""

    value: Value
    key: Key | None = None


Part = int | Total | Extreme | None
"""A count, a sum (also for avg), a least or greatest value, or None for the extreme of nothing."""


def nothing(function: str) -> Part:
    """What an aggregate over no events begins with."""
    return 0 if function == "count" else None if function in ("min", "max") else Total()


def tally(function: str, rows: Sequence[Row], column: int | None, *, twins: bool = True) -> Part:
    """What is to be known of these rows, which are in trace order. ``column`` is where the attribute stands; rows
    without a value do not count. ``twins``: equal values of this attribute may look different."""
    if column is None:
        return len(rows)
    if function == "count":
        return sum(1 for row in rows if row[column] is not None)
    try:
        if function in ("min", "max"):
            return _extreme(function, rows, column, twins)
        return total([row[column] for row in rows if row[column] is not None])
    except TypeError as error:
        raise RuleError(f"{function} over values that cannot be {_done(function)}: {error}") from error


def merged(function: str, one: Part, other: Part) -> Part:
    """What is to be known of two disjoint sets of events together."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, Total) and isinstance(other, Total):
        return _sum(one, other)
    if one is None or other is None:
        return other if one is None else one
    assert isinstance(one, Extreme), f"{one} is not a tally of {function}"
    assert isinstance(other, Extreme), f"{other} is not a tally of {function}"
    try:
        if one.value == other.value:
            return other if one.key is not None and other.key is not None and other.key < one.key else one
        less: bool = other.value < one.value  # type: ignore[operator]
    except TypeError as error:
        raise RuleError(f"{function} over values that cannot be {_done(function)}: {error}") from error
    return other if less == (function == "min") else one


def value(function: str, part: Part) -> Value:
    """The value of the aggregate, rounded now if ever; None if there is none."""
    match part:
        case Extreme():
            return part.value
        case Total():
            exact = _rounded(part)
            if function == "sum" or exact is None:
                return exact
            try:
                return exact / part.count
            except OverflowError:  # an integer beyond all floats
                return None
        case _:
            return part


def total(values: Iterable[int | float]) -> Total:
    """The exact sum of numbers."""
    count = whole = lost = reals = above = below = 0
    by_denominator: dict[int, int] = {}
    for number in values:
        count += 1
        if type(number) is int:
            whole += number
            if abs(number) > _EXACT:
                lost += number - _as_float(number)
            continue
        reals += 1
        if isinf(number):
            above, below = above + (number > 0), below + (number < 0)
            continue
        numerator, denominator = number.as_integer_ratio()
        by_denominator[denominator] = by_denominator.get(denominator, 0) + numerator
    greatest = max(by_denominator, default=1)
    numerator = sum(part * (greatest // denominator) for denominator, part in by_denominator.items())
    return Total(count, whole, lost, reals, *_lowest(numerator, greatest.bit_length() - 1), above, below)


def _sum(one: Total, other: Total) -> Total:
    shift = max(one.shift, other.shift)
    numerator = (one.numerator << shift - one.shift) + (other.numerator << shift - other.shift)
    return Total(
        one.count + other.count,
        one.whole + other.whole,
        one.lost + other.lost,
        one.reals + other.reals,
        *_lowest(numerator, shift),
        one.above + other.above,
        one.below + other.below,
    )


def _lowest(numerator: int, shift: int) -> tuple[int, int]:
    if not numerator:
        return 0, 0
    spare = min(shift, (numerator & -numerator).bit_length() - 1)
    return numerator >> spare, shift - spare


def _as_float(number: int) -> int:
    """The integer that the nearest float is; the number itself beyond all floats."""
    try:
        return int(float(number))
    except OverflowError:
        return number


def _rounded(exact: Total) -> int | float | None:
    if not exact.count:
        return None
    if not exact.reals:
        return exact.whole
    if exact.above or exact.below:
        return None if exact.above and exact.below else inf if exact.above else -inf
    try:
        return (exact.numerator + (exact.whole - exact.lost << exact.shift)) / (1 << exact.shift)
    except OverflowError:
        return None


def _extreme(function: str, rows: Sequence[Row], column: int, twins: bool) -> Extreme | None:
    present = [row for row in rows if row[column] is not None]
    if not present:
        return None
    # min and max give the first of equal ones.
    chosen = (min if function == "min" else max)(present, key=lambda row: row[column])
    return Extreme(chosen[column], chosen[:3] if twins else None)


def _done(function: str) -> str:
    return "compared" if function in ("min", "max") else "added"


# -------------------------------------------------------------------------------------------------------- on the wire

_TOTAL, _EXTREME = range(2)


def to_plain(part: Part) -> Any:
    """Plain data that msgpack can hold; what is zero at the end is left out."""
    match part:
        case Extreme(extreme, key):
            return [_EXTREME, _number(extreme), *(key or ())]
        case Total():
            fields = [part.count, part.whole, part.lost, part.reals, part.numerator, part.shift, part.above, part.below]
            while fields and not fields[-1]:
                fields.pop()
            return [_TOTAL, *map(_number, fields)]
        case _:
            return part


def from_plain(plain: Any) -> Part:
    """The part that ``to_plain`` gave this for; ValueError or TypeError for anything else."""
    if plain is None or type(plain) is int:
        return plain
    match plain:
        case [0, *fields] if all(type(_read_number(field)) is int for field in fields):
            return Total(*map(_read_number, fields))
        case [1, extreme]:
            return Extreme(_read_number(extreme))
        case [1, extreme, int(ts), str(node), int(seq)]:
            return Extreme(_read_number(extreme), (ts, node, seq))
    raise ValueError("a tally of unknown form")


def _number(number: Any) -> Any:
    return [format(number, "x")] if type(number) is int and not -_BIG <= number < 2 * _BIG else number


def _read_number(plain: Any) -> Any:
    return int(plain[0], 16) if isinstance(plain, list) else plain
