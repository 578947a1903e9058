"""Arithmetic and comparisons of generated code: whatever has no value leaves the result without one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from headwater.protocol.remote import ACCEPTED


def add(left: Any, right: Any) -> Any:
    return None if left is None or right is None else left + right


def subtract(left: Any, right: Any) -> Any:
    return None if left is None or right is None else left - right


def multiply(left: Any, right: Any) -> Any:
    return None if left is None or right is None else left * right


def divide(left: Any, right: Any) -> Any:
    if left is None or right is None or right == 0:
        return right if right is ACCEPTED else None
    try:
        return left / right
    except OverflowError:
        return None


def modulo(left: Any, right: Any) -> Any:
    if left is None or right is None or right == 0:
        return right if right is ACCEPTED else None
    return left % right


def negate(operand: Any) -> Any:
    return None if operand is None else -operand


def less(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left < right


def less_equal(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left <= right


def greater(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left > right


def greater_equal(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left >= right


def equal(left: Any, right: Any) -> bool:
    return left is not None and left == right


def unequal(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left != right


def contained(item: Any, collection: Any) -> bool:
    """``item in collection`` where either may be missing and a single value is a collection of one."""
    if item is None or collection is None:
        return False
    return item in collection if isinstance(collection, tuple) else item == collection


def not_contained(item: Any, collection: Any) -> bool:
    if item is None or collection is None:
        return False
    return item not in collection if isinstance(collection, tuple) else item != collection


def as_float(exact: Fraction) -> float | None:
    """The nearest float; no value where it fits none."""
    try:
        return float(exact)
    except OverflowError:
        return None


def as_declared(value: Any) -> Any:
    """A value for an attribute of kind float: integers become floats, and what is not finite is no value."""
    if type(value) is int:
        return as_float(Fraction(value))
    return finite(value)


def finite(value: Any) -> Any:
    return None if type(value) is float and not math.isfinite(value) else value


FUNCTIONS = (
    add,
    subtract,
    multiply,
    divide,
    modulo,
    negate,
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    unequal,
    contained,
    not_contained,
    finite,
    as_declared,
)
"""What generated code calls by these names."""
