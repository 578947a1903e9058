"""The built-in functions of rules on numbers, as Spark columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import (
    LONG_LEAST,
    LONG_MOST,
    NUMBERS,
    WIDE,
    Cell,
    floating,
    integer,
    negative,
    none,
    number,
    refuse_where,
)
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Constant, Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

DIGITS_MOST: Final = 15


def finite(column: Column) -> Column:
    """No value where the result is no finite number."""
    from pyspark.sql import functions as F

    return F.when(~F.isnan(column) & (F.abs(column) != float("inf")), column)


def _abs(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    (x,) = arguments
    if x.kind == "int":
        minus = negative(x)
        wide = x.wide or minus.wide
        a, b = (operand.column.cast(WIDE) if wide else operand.column for operand in (x, minus))
        low = 0 if x.low <= 0 <= x.high else min(abs(x.low), abs(x.high))
        high = max(abs(x.low), abs(x.high))
        value = F.greatest(a, b)
        return integer(value, low, high) if not wide else Cell(value.cast(WIDE), "int", low, max(high, LONG_MOST + 1))
    return Cell(finite(F.abs(x.column)), "float", rough=x.rough)


def _root(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    x = floating(arguments[0])
    return Cell(finite(F.when(x >= 0, F.sqrt(x))), "float", rough=arguments[0].rough)


def _whole(function: Callable[[Column], Column]) -> Callable[[Sequence[Cell]], Cell]:
    def function_of(arguments: Sequence[Cell]) -> Cell:
        from pyspark.sql import functions as F

        (x,) = arguments
        if x.kind == "int":
            return x
        if x.rough:
            raise ConfigError(
                "a whole number from the value of a function that Java may round differently cannot be computed "
                "exactly in Spark; compare the value itself"
            )
        value = finite(x.column)
        far = F.abs(value) >= float(2**63)
        rounded = refuse_where(far, "a float beyond 2**63 cannot be made a whole number in Spark", function(value))
        return integer(rounded, LONG_LEAST, LONG_MOST)

    return function_of


def round_to(arguments: Sequence[Cell], written: Sequence[Expression]) -> Cell:
    from pyspark.sql import functions as F

    digits = written[1] if len(written) > 1 else Constant(0)
    if not (isinstance(digits, Constant) and isinstance(digits.value, int) and 0 <= digits.value <= DIGITS_MOST):
        raise ConfigError(f"round can be computed in Spark only to 0 to {DIGITS_MOST} digits, written as a number")
    x = number(arguments[0])
    if x.kind not in NUMBERS:
        return none()
    if x.rough:
        raise ConfigError("round of a value that Java may compute differently cannot be computed exactly in Spark")
    if x.kind == "int":
        return Cell(floating(x), "float")
    value = finite(x.column)
    if digits.value == 0:
        return Cell(F.rint(value), "float")
    form = "0." + "0" * int(digits.value)
    return Cell(F.call_function("format_number", value, F.lit(form)).cast("double"), "float")


def _rough(function: Callable[..., Column], valid: Callable[..., Column]) -> Callable[[Sequence[Cell]], Cell]:
    """A function whose last digits Java and Python may compute differently."""

    def function_of(cells: Sequence[Cell]) -> Cell:
        from pyspark.sql import functions as F

        arguments = [floating(cell) for cell in cells]
        return Cell(finite(F.when(valid(*arguments), function(*arguments))), "float", rough=True)

    return function_of


def _power(x: Column, y: Column) -> Column:
    from pyspark.sql import functions as F

    return F.pow(x, y)


def _power_valid(x: Column, y: Column) -> Column:
    """math.pow has no value for a negative number to a broken power, and for zero to a negative one."""
    from pyspark.sql import functions as F

    return ~((x < 0) & (y != F.rint(y))) & ~((x == 0) & (y < 0))


def _log(x: Column, base: Column | None = None) -> Column:
    from pyspark.sql import functions as F

    return F.log(x) if base is None else F.log(x) / F.log(base)


def _log_valid(x: Column, base: Column | None = None) -> Column:
    return x > 0 if base is None else (x > 0) & (base > 0) & (base != 1)


def _exp(x: Column) -> Column:
    from pyspark.sql import functions as F

    return F.exp(x)


def _hypot(x1: Column, y1: Column, x2: Column, y2: Column) -> Column:
    from pyspark.sql import functions as F

    return F.hypot(x2 - x1, y2 - y1)


def _anything(*columns: Column) -> Column:
    from pyspark.sql import functions as F

    return F.lit(True)


def _rounded(name: str) -> Callable[[Column], Column]:
    def rounded(column: Column) -> Column:
        from pyspark.sql import functions as F

        return F.floor(column) if name == "floor" else F.ceil(column)

    return rounded


NUMBER_FUNCTIONS: Final[dict[str, Callable[[Sequence[Cell]], Cell]]] = {
    "abs": _abs,
    "sqrt": _root,
    "power": _rough(_power, _power_valid),
    "log": _rough(_log, _log_valid),
    "exp": _rough(_exp, _anything),
    "distance": _rough(_hypot, _anything),
    "floor": _whole(_rounded("floor")),
    "ceil": _whole(_rounded("ceil")),
}
