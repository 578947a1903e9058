"""Expressions of rules as Spark columns, with exactly the meaning that the engine gives them.

Where a value is missing a column is null; conditions are two-valued and never null. What Spark cannot compute with the
same result (lookups in remote tables, functions that users registered, texts of floats) is refused with a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from headwater.pipeline.expressions.cells import Cell, compared, comparison, computed, constant, negative, none, truth
from headwater.pipeline.expressions.functions import called
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import (
    COMPARISONS,
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
)

if TYPE_CHECKING:
    from pyspark.sql import Column

Name = Attribute | Parameter | Fold
Lookup = Callable[[Name], Cell | None]
"""The cell that a name stands for (see ``pipeline.expressions.cells.attribute``); None where it never has a value."""


def column(expression: Expression, lookup: Lookup, *, exact: bool = True) -> Column:
    """The value of an expression, null where it has none."""
    return cell(expression, lookup, exact=exact).column


def condition(expression: Expression, lookup: Lookup, *, exact: bool = True) -> Column:
    """Whether a conjunct holds; never null.

    Functions that Java may round differently than Python (power, log, exp, distance) are judged only where their last
    digits do not matter; where they would, the job ends with a sentence. With ``exact=False`` it takes what Java says.
    """
    from pyspark.sql import functions as F

    truth_cell = cell(expression, lookup, exact=exact)
    return truth(truth_cell) if truth_cell.kind == "bool" else F.lit(False)


def equality(expression: Expression, lookup: Lookup) -> Column | None:
    """``left = right`` as a column that joins can use, or None; null instead of false where a value is missing."""
    if not (isinstance(expression, Binary) and expression.operator == "="):
        return None
    left, right = cell(expression.left, lookup), cell(expression.right, lookup)
    if left.rough or right.rough or left.nan or right.nan or left.kind != right.kind or left.wide or right.wide:
        return None
    return comparison("=", left, right, exact=True)


def cell(expression: Expression, lookup: Lookup, *, exact: bool = True) -> Cell:
    """The value of an expression with its kind."""

    def inner(part: Expression) -> Cell:
        return cell(part, lookup, exact=exact)

    match expression:
        case Constant(value):
            return constant(value)
        case Attribute() | Parameter() | Fold():
            return lookup(expression) or none()
        case Call(name, arguments):
            return called(name, [inner(argument) for argument in arguments], arguments, exact=exact)
        case Unary(operator, operand):
            return Cell(~truth(inner(operand)), "bool") if operator == "not" else negative(inner(operand))
        case Binary():
            return _binary(expression, lookup, exact)
        case Remote(table, _):
            raise ConfigError(
                f"the lookup REMOTE.{table}[..] asks a table outside the trace, which Spark cannot do; leave it out"
            )
        case Items() | Same():
            raise AssertionError(f"{expression!r} is not a value of its own")


def _binary(expression: Binary, lookup: Lookup, exact: bool) -> Cell:
    operator = expression.operator
    left = cell(expression.left, lookup, exact=exact)
    if operator in ("in", "not in"):
        return Cell(_member(left, expression.right, operator == "in", lookup, exact), "bool")
    right = cell(expression.right, lookup, exact=exact)
    if operator == "and":
        return Cell(truth(left) & truth(right), "bool")
    if operator == "or":
        return Cell(truth(left) | truth(right), "bool")
    if operator in COMPARISONS:
        return Cell(compared(operator, left, right, exact=exact), "bool")
    return computed(operator, left, right, exact=exact)


def _member(wanted: Cell, right: Expression, positive: bool, lookup: Lookup, exact: bool) -> Column:
    from pyspark.sql import functions as F

    if wanted.kind == "none":
        return F.lit(False)
    members = right.items if isinstance(right, Items) else (right,)
    cells = [cell(member, lookup, exact=exact) for member in members]
    is_member = reduce(
        lambda a, b: a | b, [compared("=", wanted, member, exact=exact) for member in cells], F.lit(False)
    )
    is_known = wanted.column.isNotNull()
    if not isinstance(right, Items):  # a single value on the right, which may be missing
        is_known = is_known & cells[0].column.isNotNull()
    return is_known & (is_member if positive else ~is_member)
