"""Spark columns that carry the kind of their values: what ``pipeline.expressions.expressions`` computes with.

Numbers mean what they mean to the engine: integers have no bound, comparisons of an integer with a float are exact, and
floats follow IEEE 754. An integer column is a long where its range shows that it fits, and a decimal otherwise; where a
value leaves even that, or could be rounded differently than in the engine, the job ends with a sentence instead
of a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Value

if TYPE_CHECKING:
    from pyspark.sql import Column

LONG_LEAST: Final = -(2**63)
LONG_MOST: Final = 2**63 - 1
INT_BOUND: Final = 2**126
"""Integers are computed up to here: what fits a decimal of 38 digits, and splits into two longs."""
EXACT_FLOAT: Final = 2**53
"""Integers up to here are floats without rounding."""
NEAR: Final = 1e-13
"""Values of functions that Java may round differently than Python are told apart from others only beyond this share."""
WIDE: Final = "decimal(38,0)"
NUMBERS: Final = ("int", "float")


@dataclass(frozen=True, slots=True)
class Cell:
    """A column, and what is known of its values. The column is null where there is no value.

    ``kind`` is int, float, string, bool, or "none" where there never is a value. Of an int, ``low`` and ``high`` bound
    the values. ``nan``: a float may be no number. ``rough``: a float may differ in its last digits from the engine's.
    """

    column: Column
    kind: str
    low: int = LONG_LEAST
    high: int = LONG_MOST
    nan: bool = False
    rough: bool = False

    @property
    def wide(self) -> bool:
        """Whether the column is a decimal, because a long may not hold its values."""
        return self.low < LONG_LEAST or self.high > LONG_MOST


def attribute(column: Column, kind: str, low: int = LONG_LEAST, high: int = LONG_MOST) -> Cell:
    """The cell of an attribute as it stands in a trace: a float that is no number is no value."""
    from pyspark.sql import functions as F

    if kind == "float":
        column = F.when(~F.isnan(column), column)
    return Cell(column, kind, low, high)


def none() -> Cell:
    from pyspark.sql import functions as F

    return Cell(F.lit(None).cast("boolean"), "none")


def constant(value: Value) -> Cell:
    from pyspark.sql import functions as F

    match value:
        case None:
            return none()
        case bool():
            return Cell(F.lit(value), "bool")
        case int():
            if abs(value) >= INT_BOUND:
                raise ConfigError(f"the number {value} is too large to compute with in Spark; write a smaller one")
            fits = LONG_LEAST <= value <= LONG_MOST
            return Cell(
                F.lit(value).cast("bigint") if fits else F.lit(str(value)).cast(WIDE), "int", low=value, high=value
            )
        case float():
            return Cell(F.lit(value), "float")
        case _:
            return Cell(F.lit(value), "string")


def refuse_where(bad: Column, reason: str, value: Column) -> Column:
    """The value; a job that comes upon a row where ``bad`` holds ends with the reason."""
    from pyspark.sql import functions as F

    return F.when(bad, F.raise_error(F.lit(reason))).otherwise(value)


def truth(cell: Cell) -> Column:
    """Whether Python would call the value true; never null."""
    from pyspark.sql import functions as F

    match cell.kind:
        case "none":
            return F.lit(False)
        case "bool":
            held = cell.column
        case "string":
            held = cell.column != ""
        case _:
            held = cell.column != 0
    return F.coalesce(held, F.lit(False))


def number(cell: Cell) -> Cell:
    """True and false count as 1 and 0."""
    return Cell(cell.column.cast("bigint"), "int", 0, 1) if cell.kind == "bool" else cell


def floating(cell: Cell) -> Column:
    """A number as a float, rounded as Python rounds."""
    return cell.column.cast("double") if cell.kind == "int" else cell.column


def integer(column: Column, low: int, high: int) -> Cell:
    """An int whose column has the type that its range asks for."""
    wide = low < LONG_LEAST or high > LONG_MOST
    return Cell(column.cast(WIDE) if wide else column.cast("bigint"), "int", low, high)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def negative(cell: Cell) -> Cell:
    from pyspark.sql import functions as F

    if cell.kind == "int":
        wide = -cell.low > LONG_MOST
        return integer(-(cell.column.cast(WIDE) if wide else cell.column), -cell.high, -cell.low)
    if cell.kind == "float":
        return Cell(F.negative(cell.column), "float", nan=cell.nan, rough=cell.rough)
    return none()


def computed(operator: str, left: Cell, right: Cell, *, exact: bool) -> Cell:
    """``+ - * / %`` as Python computes them; no value where Python has none."""
    from pyspark.sql import functions as F

    if "none" in (left.kind, right.kind):
        return none()
    if "string" in (left.kind, right.kind):
        if operator == "+" and left.kind == right.kind:
            return Cell(F.concat(left.column, right.column), "string")
        if operator in ("*", "%"):
            raise ConfigError(f"Spark cannot compute {left.kind} {operator} {right.kind}; use numbers")
        return none()
    left, right = number(left), number(right)
    if operator == "/":
        return _divided(left, right)
    if left.kind == right.kind == "int":
        return _remainder_of_ints(left, right) if operator == "%" else _whole(operator, left, right)
    rough = left.rough or right.rough
    if rough and exact and operator != "*":
        raise ConfigError(
            f"'{operator}' on the value of a function that Java may round differently (power, log, exp, distance) "
            "cannot be computed exactly in Spark; compare the value itself"
        )
    a, b = floating(left), floating(right)
    match operator:
        case "+":
            return Cell(a + b, "float", nan=True, rough=rough)
        case "-":
            return Cell(a - b, "float", nan=True, rough=rough)
        case "*":
            return Cell(a * b, "float", nan=True, rough=rough)
        case _:
            rest = a % b
            zero = F.when(b < 0, F.lit(-0.0)).otherwise(F.lit(0.0))
            turned = (rest < 0) != (b < 0)
            mended = F.when(F.isnan(rest), rest).when(rest == 0, zero).when(turned, rest + b).otherwise(rest)
            return Cell(F.when(b != 0, mended), "float", nan=True, rough=rough)


def _whole(operator: str, left: Cell, right: Cell) -> Cell:
    from pyspark.sql import functions as F

    match operator:
        case "+":
            low, high = left.low + right.low, left.high + right.high
        case "-":
            low, high = left.low - right.high, left.high - right.low
        case _:
            corners = [x * y for x in (left.low, left.high) for y in (right.low, right.high)]
            low, high = min(corners), max(corners)
    fits = low >= LONG_LEAST and high <= LONG_MOST and not left.wide and not right.wide
    a, b = (operand.column if fits else operand.column.cast(WIDE) for operand in (left, right))
    value = {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b}[operator]()
    if fits:
        return Cell(value, "int", low, high)
    value = value.cast(WIDE)
    if low <= -INT_BOUND or high >= INT_BOUND:
        bound = F.lit(str(INT_BOUND)).cast(WIDE)
        lost = a.isNotNull() & b.isNotNull() & (value.isNull() | (F.abs(value) >= bound))
        value = refuse_where(
            lost, f"'{operator}' gives a whole number beyond 2**126, which Spark cannot compute with", value
        )
        low, high = max(low, -INT_BOUND), min(high, INT_BOUND)
    return integer(value, low, high)


def _divided(left: Cell, right: Cell) -> Cell:
    from pyspark.sql import functions as F

    a, b = floating(left), floating(right)
    value = F.when(b != 0, a / b)
    both = left.kind == right.kind == "int"
    if both:
        large = [operand for operand in (left, right) if operand.low < -EXACT_FLOAT or operand.high > EXACT_FLOAT]
        if large:
            bad = reduce(lambda x, y: x | y, [F.abs(floating(operand)) > EXACT_FLOAT for operand in large])
            value = refuse_where(
                bad & (b != 0), "'/' of whole numbers beyond 2**53 cannot be rounded exactly in Spark", value
            )
    return Cell(value, "float", nan=not both, rough=left.rough or right.rough)


def _remainder_of_ints(left: Cell, right: Cell) -> Cell:
    from pyspark.sql import functions as F

    wide = left.wide or right.wide
    a, b = (operand.column.cast(WIDE) if wide else operand.column for operand in (left, right))
    rest = a % b
    value = F.when(b != 0, F.when((rest != 0) & ((rest < 0) != (b < 0)), rest + b).otherwise(rest))
    return integer(value, min(0, right.low), max(0, right.high))


# --- comparison -------------------------------------------------------------------------------------------------------


def compared(operator: str, left: Cell, right: Cell, *, exact: bool) -> Column:
    """``= != < <= > >=`` as Python compares; false where a value is missing, so never null."""
    from pyspark.sql import functions as F

    return F.coalesce(comparison(operator, left, right, exact=exact), F.lit(False))


def comparison(operator: str, left: Cell, right: Cell, *, exact: bool) -> Column:
    """The same, but null where a value is missing: what the optimizer of joins can read."""
    from pyspark.sql import functions as F

    if "none" in (left.kind, right.kind):
        return F.lit(False)
    if left.kind != right.kind:
        if "string" in (left.kind, right.kind):
            return left.column.isNotNull() & right.column.isNotNull() & F.lit(operator == "!=")
        left, right = number(left), number(right)
    if left.kind == right.kind == "int" and left.wide != right.wide:
        left, right = (integer(operand.column.cast(WIDE), -INT_BOUND, INT_BOUND) for operand in (left, right))
    if left.kind == right.kind:
        if left.kind == "float":
            return _compared_floats(operator, left, right, exact=exact)
        return _plain(operator, left.column, right.column)
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
    if left.kind == "float":
        return comparison(turned, right, left, exact=exact)
    if left.low >= -EXACT_FLOAT and left.high <= EXACT_FLOAT:
        whole = Cell(floating(left), "float")
        return _compared_floats(operator, whole, right, exact=exact)
    if right.rough and exact:
        return _compared_floats(operator, Cell(floating(left), "float"), right, exact=exact)
    return _int_with_float(operator, left, right)


def _plain(operator: str, a: Column, b: Column) -> Column:
    match operator:
        case "=":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case _:
            return a >= b


def _compared_floats(operator: str, left: Cell, right: Cell, *, exact: bool) -> Column:
    from pyspark.sql import functions as F

    a, b = left.column, right.column
    held = _plain(operator, a, b)
    if left.nan or right.nan:
        # Spark calls all that is no number equal to itself and greater than any number.
        held = F.when(F.isnan(a) | F.isnan(b), a.isNotNull() & b.isNotNull() & F.lit(operator == "!=")).otherwise(held)
    if exact and (left.rough or right.rough):
        near = F.abs(a - b) < F.greatest(F.abs(a), F.abs(b)) * NEAR
        held = refuse_where(
            near,
            f"'{operator}' compares values that differ only in digits that Java may round differently from the engine "
            "(power, log, exp, distance); a limit that no value comes so close to can be judged",
            held,
        )
    return held


def _int_with_float(operator: str, left: Cell, right: Cell) -> Column:
    """Exact though an int may have more digits than a float: it is compared with the whole numbers beside the float."""
    from pyspark.sql import functions as F

    a, b = left.column.cast(WIDE), right.column
    below, above = _exactly(F.floor(b), b), _exactly(F.ceil(b), b)
    is_whole = b == F.rint(b)
    match operator:
        case "=":
            held = is_whole & (a == below)
        case "!=":
            held = ~is_whole | (a != below)
        case "<":
            held = a < above
        case "<=":
            held = a <= below
        case ">":
            held = a > below
        case _:
            held = a >= above
    beyond = F.abs(b) >= float(INT_BOUND)
    far = F.lit(True) if operator == "!=" else F.lit(False) if operator == "=" else (b > 0) == F.lit(operator in "<=")
    held = F.when(beyond, a.isNotNull() & far).otherwise(held)
    if right.nan:
        held = F.when(F.isnan(b), a.isNotNull() & F.lit(operator == "!=")).otherwise(held)
    return F.when(a.isNotNull() & b.isNotNull(), held)


def _exactly(rounded: Column, value: Column) -> Column:
    """The whole number beside a float as a decimal; beyond a long, every float is whole, and is taken in two halves."""
    from pyspark.sql import functions as F

    unit = float(2**63)
    upper = F.floor(value / unit).cast("bigint")
    lower = (value - upper.cast("double") * unit).cast("bigint")
    far = (upper.cast(WIDE) * F.lit(str(2**63)).cast(WIDE)).cast(WIDE) + lower.cast(WIDE)
    return F.when(F.abs(value) < unit, rounded.cast("bigint").cast(WIDE)).otherwise(far.cast(WIDE))
