"""Evaluates expressions one at a time and shows them as text: slow and obvious, for explanations.

The engine compiles expressions instead; both follow the rules at the top of ``protocol/expressions.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from headwater.protocol.composites import Composite
from headwater.protocol.events import Value
from headwater.protocol.expressions import (
    Attribute,
    Binary,
    Call,
    Constant,
    Expression,
    Fold,
    Items,
    Parameter,
    Remote,
    Same,
    Unary,
    walk,
)
from headwater.protocol.functions import Functions, plain_name
from headwater.protocol.remote import ACCEPTED, LookupTable

Row = tuple[Any, ...]


@dataclass(slots=True)
class Scope:
    """What the names in an expression stand for."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    """The event of each role that has one; for a repeated role the element in turn."""
    previous: Mapping[str, Row] = field(default_factory=dict)
    """For roles of a repetition, the element before the one in turn."""
    elements: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """For repeated roles, all elements."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    functions: Functions = field(default_factory=Functions)
    remote: Mapping[str, LookupTable] = field(default_factory=dict)

    def row(self, role: str, index: str) -> Row | None:
        if index == "i-1":
            return self.previous.get(role)
        if index in ("first", "last"):
            rows = self.elements.get(role)
            return rows[0 if index == "first" else -1] if rows else None
        return self.rows.get(role)


def attribute_of(row: Row, name: str) -> Value:
    """An attribute of the event in a row, also ts, node, seq and type."""
    inner = row[3]
    event_type = inner.spec.type if isinstance(inner, Composite) else inner
    position = event_type.position(name)
    if position is not None:
        value: Value = row[position]
        return value
    if name == "type":
        type_name: str = event_type.name
        return type_name
    header: Mapping[str, Value] = dict(zip(("ts", "node", "seq"), row, strict=False))
    return header.get(name)


def evaluate(expression: Expression, scope: Scope) -> Any:
    """The value of an expression, None where it has none."""
    match expression:
        case Binary():  # by far the most frequent
            return _binary(expression, scope)
        case Constant(value):
            return value
        case Attribute(role, name, index):
            row = scope.row(role, index)
            return None if row is None else attribute_of(row, name)
        case Parameter(name):
            return scope.parameters.get(name)
        case Fold(function, role, attribute):
            return fold(function, scope.elements.get(role, ()), attribute)
        case Call(name, arguments):
            return _call(name, [evaluate(argument, scope) for argument in arguments], scope)
        case Remote():
            return _lookup(expression, scope)
        case Unary(operator, operand):
            value = evaluate(operand, scope)
            if operator == "not":
                return not value
            return -value if _is_number(value) else None
        case Items(items):
            return tuple(evaluate(item, scope) for item in items)
        case Same():
            raise AssertionError("SAME concerns a whole match and is not an expression of its own")
        case _:
            assert_never(expression)


def holds(expression: Expression, scope: Scope) -> bool:
    return evaluate(expression, scope) is True


def fold(function: str, rows: Sequence[Row], attribute: str | None) -> Value:
    """count, sum, avg, min or max over events, without those that lack the attribute."""
    if attribute is None:
        return len(rows)
    values = [value for value in (attribute_of(row, attribute) for row in rows) if value is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    try:
        if function == "min":
            return min(values)
        if function == "max":
            return max(values)
        if all(isinstance(value, int) for value in values):
            total: int | float = sum(values)  # type: ignore[arg-type]
        else:
            total = math.fsum(values)  # type: ignore[arg-type]
        return total if function == "sum" else total / len(values)
    except (TypeError, OverflowError):
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _binary(expression: Binary, scope: Scope) -> Any:
    left = evaluate(expression.left, scope)
    match expression.operator:
        case "and":
            return bool(left) and bool(evaluate(expression.right, scope))
        case "or":
            return bool(left) or bool(evaluate(expression.right, scope))
        case operator:
            return _applied(operator, left, evaluate(expression.right, scope))


def _applied(operator: str, left: Any, right: Any) -> Any:
    if operator in ("in", "not in"):
        if left is None or right is None:
            return False
        members = right if isinstance(right, tuple) else (right,)
        if _accepted((left, *members)):
            return True
        return (left in members) == (operator == "in")
    if operator in ("=", "!=", "<", "<=", ">", ">="):
        return _compare(operator, left, right)
    if left is None or right is None:
        return None
    try:
        match operator:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right if right else None
            case _:
                return left % right if right else None
    except (TypeError, ArithmeticError):
        return None


def _compare(operator: str, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return False
    try:
        match operator:
            case "=":
                return bool(left == right)
            case "!=":
                return bool(left != right)
            case "<":
                return bool(left < right)
            case "<=":
                return bool(left <= right)
            case ">":
                return bool(left > right)
            case _:
                return bool(left >= right)
    except TypeError:
        return False


def _call(name: str, arguments: list[Any], scope: Scope) -> Any:
    function = scope.functions.get(name)
    if function is None or (not function.accepts_missing and any(argument is None for argument in arguments)):
        return None
    return ACCEPTED if _accepted(arguments) else function.call(*arguments)


def _accepted(values: Iterable[Any]) -> bool:
    """Whether one of them could not be had, so that comparisons with it are true."""
    return any(value is ACCEPTED for value in values)


def _lookup(expression: Remote, scope: Scope) -> Any:
    table = scope.remote.get(expression.table)
    arguments = tuple(evaluate(argument, scope) for argument in expression.arguments)
    if table is None or any(argument is None for argument in arguments):
        return None
    if _accepted(arguments):
        return ACCEPTED
    times = [
        row[0]
        for part in walk(expression)
        if isinstance(part, Attribute) and (row := scope.row(part.role, part.index)) is not None
    ]
    times += [
        row[0] for part in walk(expression) if isinstance(part, Fold) for row in scope.elements.get(part.role, ())
    ]
    return table.lookup(arguments, max(times, default=0))


# --- as text ----------------------------------------------------------------------------------------------------------

_STRENGTH: Final = {"or": 1, "and": 2, "not": 3, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_COMPARISON_STRENGTH: Final = 4
ITEMS_SHOWN_MAX: Final = 10  # a remote table may give thousands for one key


def show(expression: Expression) -> str:
    """The expression as a reader of rules would write it."""
    return _show(expression)[0]


def show_value(value: Any) -> str:
    match value:
        case None:
            return "no value"
        case _ if value is ACCEPTED:
            return "what could not be had"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'"
        case tuple():
            more = [f".. {len(value) - ITEMS_SHOWN_MAX:,} more"] if len(value) > ITEMS_SHOWN_MAX else []
            return "(" + ", ".join([*map(show_value, value[:ITEMS_SHOWN_MAX]), *more]) + ")"
        case _:
            return repr(value)


def _show(expression: Expression) -> tuple[str, int]:
    """The text and how strongly it binds."""
    match expression:
        case Constant(value):
            return show_value(value), 9
        case Attribute(role, name, index):
            return (f"{role}[{index}].{name}" if index else f"{role}.{name}" if role else name), 9
        case Parameter(name):
            return f"${name}", 9
        case Fold(function, role, name):
            return f"{function}({role}[]{'.' + name if name else ''})", 9
        case Call(name, arguments):
            return f"{plain_name(name)}({', '.join(map(show, arguments))})", 9
        case Remote(table, arguments):
            return f"REMOTE.{table}[{', '.join(map(show, arguments))}]", 9
        case Items(items):
            return f"({', '.join(map(show, items))})", 9
        case Same(key):
            return f"SAME[{show(key)}]", 9
        case Unary(operator, operand):
            strength = _STRENGTH["not"] if operator == "not" else 8
            inner = _bracketed(operand, strength)
            return (f"not {inner}" if operator == "not" else f"-{inner}"), strength
        case Binary(operator, left, right):
            strength = _STRENGTH.get(operator, _COMPARISON_STRENGTH)
            weakest_right = strength if operator in ("and", "or", "+", "*") else strength + 1
            return f"{_bracketed(left, strength)} {operator} {_bracketed(right, weakest_right)}", strength
        case _:
            assert_never(expression)


def _bracketed(expression: Expression, weakest: int) -> str:
    text, strength = _show(expression)
    return text if strength >= weakest else f"({text})"
