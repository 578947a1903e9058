"""The aggregate functions (folds) of rules: count, sum, avg, min and max, exact whatever the order of the values."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from headwater.node.engine.arithmetic import as_float, divide


def total(values: list[Any]) -> Any:
    """The exact sum, rounded once; integers stay integers. No value over nothing, or where it fits no number."""
    if not values:
        return None
    if all(type(value) is int for value in values):
        return sum(values)
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):  # partial sums too large for a float, or infinities that cancel out
        return as_float(sum(map(Fraction, values), Fraction(0))) if all(map(math.isfinite, values)) else None


def mean(values: list[Any]) -> Any:
    return None if not values else divide(total(values), len(values))


def fold_min(values: list[Any]) -> Any:
    return min(values) if values else None


def fold_max(values: list[Any]) -> Any:
    return max(values) if values else None


FOLD_FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": total,
    "avg": mean,
    "min": fold_min,
    "max": fold_max,
}
