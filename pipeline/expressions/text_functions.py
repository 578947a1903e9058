"""The built-in functions of rules on texts, as Spark columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import Cell, computed, integer, none, refuse_where
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Constant, Expression

if TYPE_CHECKING:
    from pyspark.sql import Column

WHITESPACE: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What Python strips from the ends of a text."""
TEXT_MOST: Final = 2**31 - 1

_SAFE_FORM: Final = re.compile(
    r"(?:[^\x00-\x7f]|[A-Za-z0-9 _,:/@#%&=!~\"'<>;-]|\\[^A-Za-z0-9\s]|[.^$|*+?]|\{[0-9]+(?:,[0-9]*)?\}|\((?!\?)|\)"
    r"|\[\^?(?:[A-Za-z0-9 _,:/@#%=!~\"'<>;.*+?$|()-]|\\[^A-Za-z0-9\s])+\])*"
)
"""Regular expressions that mean the same in Java and in Python."""


def stripped(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.btrim(column, F.lit(WHITESPACE))


def _string(function: Callable[..., Column]) -> Callable[[Sequence[Cell]], Cell]:
    return lambda arguments: Cell(function(*(argument.column for argument in arguments)), "string")


def _test(name: str) -> Callable[[Sequence[Cell]], Cell]:
    def function_of(arguments: Sequence[Cell]) -> Cell:
        from pyspark.sql import functions as F

        return Cell(F.call_function(name, *(argument.column for argument in arguments)), "bool")

    return function_of


def _length(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    return integer(F.char_length(arguments[0].column), 0, TEXT_MOST)


def _lower(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.lower(text)


def _upper(text: Column) -> Column:
    from pyspark.sql import functions as F

    return F.upper(text)


def _replace(text: Column, old: Column, new: Column) -> Column:
    from pyspark.sql import functions as F

    return refuse_where(
        old == "", "replace of nothing by something cannot be computed in Spark", F.replace(text, old, new)
    )


def _substring(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    text, start, *length = arguments
    one = Cell(F.lit(1).cast("bigint"), "int", 1, 1)
    from_zero = computed("-", start, one, exact=True)
    first = _clamped(from_zero.column)
    if length:
        end = F.greatest(first, _clamped(computed("+", from_zero, length[0], exact=True).column))
    else:
        end = F.lit(TEXT_MOST).cast("bigint")
    count = F.least(end - first, F.lit(TEXT_MOST))
    position = F.least(first + 1, F.lit(TEXT_MOST))
    all_present = reduce(lambda a, b: a & b, [argument.column.isNotNull() for argument in arguments])
    return Cell(F.when(all_present, F.substring(text.column, position.cast("int"), count.cast("int"))), "string")


def _clamped(column: Column) -> Column:
    """A whole number, moved to the nearest position that a text can have; null stays null."""
    from pyspark.sql import functions as F

    bounded = F.when(column > TEXT_MOST, F.lit(TEXT_MOST)).when(column < 0, F.lit(0)).otherwise(column)
    return bounded.cast("bigint")


def matches_form(arguments: Sequence[Cell], written: Sequence[Expression]) -> Cell:
    text, form = arguments[0], written[1]
    if text.kind != "string" or arguments[1].kind != "string":
        return none()
    if not (isinstance(form, Constant) and isinstance(form.value, str) and _SAFE_FORM.fullmatch(form.value)):
        raise ConfigError(
            "matches can be computed in Spark only with a form of letters, digits, classes in [] and . ^ $ | * + ? "
            "written in the rule, which means the same in Java and Python"
        )
    # With the flag d only a line feed ends a line, as in Python.
    return Cell(text.column.rlike("(?d)" + form.value), "bool")


TEXT_FUNCTIONS: Final[dict[str, Callable[[Sequence[Cell]], Cell]]] = {
    "lower": _string(_lower),
    "upper": _string(_upper),
    "length": _length,
    "substring": _substring,
    "contains": _test("contains"),
    "startswith": _test("startswith"),
    "endswith": _test("endswith"),
    "trim": _string(stripped),
    "replace": _string(_replace),
}
