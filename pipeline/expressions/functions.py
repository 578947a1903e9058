"""The built-in functions of rules (``protocol.functions``) as Spark columns.

A missing argument gives no value, and so does an argument outside the domain. Functions whose results cannot be made
the same in Java and Python to the last character are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import (
    EXACT_FLOAT,
    LONG_LEAST,
    LONG_MOST,
    NUMBERS,
    WIDE,
    Cell,
    compared,
    floating,
    integer,
    none,
    number,
    refuse_where,
    truth,
)
from headwater.pipeline.expressions.number_functions import NUMBER_FUNCTIONS, finite, round_to
from headwater.pipeline.expressions.text_functions import TEXT_FUNCTIONS, matches_form, stripped
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Expression
from headwater.protocol.functions import BUILT_IN, plain_name

if TYPE_CHECKING:
    from pyspark.sql import Column

_DIGITS: Final = "[0-9](?:_?[0-9])*"
_INT: Final = f"^[+-]?{_DIGITS}$"
_FLOAT: Final = rf"^[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?$"


def called(name: str, arguments: Sequence[Cell], written: Sequence[Expression], *, exact: bool) -> Cell:
    """The value of a call; ``written``: the arguments as expressions."""
    word = name.lower()
    if word not in BUILT_IN:
        raise ConfigError(f"the function {plain_name(name)} is none of the built-in ones, so Spark cannot compute it")
    if word == "coalesce":
        return _coalesce(arguments)
    if word == "if":
        return _if(arguments)
    if any(argument.kind == "none" for argument in arguments):
        return none()
    if word in ("least", "greatest"):
        return _extreme("<" if word == "least" else ">", arguments, exact)
    if word in ("concat", "string"):
        return _text(name, arguments)
    if word in ("int", "float"):
        return (_to_int if word == "int" else _to_float)(arguments[0])
    if word == "round":
        return round_to(arguments, written)
    if word == "matches":
        return matches_form(arguments, written)
    return _of_kinds(name, arguments)


def _of_kinds(name: str, arguments: Sequence[Cell]) -> Cell:
    """The value of a function whose arguments must be of the kinds that it declares."""
    word = name.lower()
    wanted = BUILT_IN[word].parameters or ()
    for argument, kind in zip(arguments, wanted, strict=False):
        fits = argument.kind == kind or (kind == "float" and argument.kind in ("int", "bool"))
        if not fits and (kind == "string" or argument.kind == "string"):
            return none()
        if not fits:
            raise ConfigError(f"{name} of {argument.kind} cannot be computed in Spark; it needs {kind}")
    return _FUNCTIONS[word]([number(argument) if argument.kind == "bool" else argument for argument in arguments])


def _extreme(operator: str, arguments: Sequence[Cell], exact: bool) -> Cell:
    from pyspark.sql import functions as F

    kinds = {argument.kind for argument in arguments}
    if "string" in kinds and len(kinds) > 1:
        return none()
    arguments = _alike(arguments)
    best = arguments[0]
    for argument in arguments[1:]:
        better = compared(operator, argument, best, exact=exact)
        best = Cell(
            F.when(better, argument.column).otherwise(best.column),
            best.kind,
            min(best.low, argument.low),
            max(best.high, argument.high),
            best.nan or argument.nan,
            best.rough or argument.rough,
        )
    all_present = reduce(lambda a, b: a & b, [argument.column.isNotNull() for argument in arguments])
    value = F.when(all_present, best.column)
    return Cell(finite(value) if best.kind == "float" else value, best.kind, best.low, best.high, rough=best.rough)


def _alike(arguments: Sequence[Cell]) -> list[Cell]:
    """Cells of one kind: ints beside floats become floats, where that loses nothing."""
    from pyspark.sql import functions as F

    kinds = {argument.kind for argument in arguments} - {"none"}
    if len(kinds) <= 1:
        wide = any(argument.wide for argument in arguments)
        if kinds == {"int"} and wide:
            low, high = min(argument.low for argument in arguments), max(argument.high for argument in arguments)
            return [Cell(argument.column.cast(WIDE), argument.kind, low, high) for argument in arguments]
        return list(arguments)
    if not kinds <= set(NUMBERS):
        raise ConfigError(f"values of the kinds {' and '.join(sorted(kinds))} have no common column in Spark")
    alike = []
    for argument in arguments:
        if argument.kind == "int":
            value = floating(argument)
            if argument.low < -EXACT_FLOAT or argument.high > EXACT_FLOAT:
                value = refuse_where(
                    F.abs(value) > EXACT_FLOAT, "a whole number beyond 2**53 beside floats would be rounded", value
                )
            alike.append(Cell(value, "float"))
        else:
            alike.append(argument)
    return alike


def _coalesce(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    present = _alike([argument for argument in arguments if argument.kind != "none"])
    if not present:
        return none()
    return _united(F.coalesce(*(argument.column for argument in present)), present)


def _if(arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    test, *rest = arguments
    present = _alike([argument for argument in rest if argument.kind != "none"])
    if not present:
        return none()
    left = iter(present)
    yes, no = (next(left).column if argument.kind != "none" else F.lit(None) for argument in rest)
    return _united(F.when(truth(test), yes).otherwise(no), present)


def _united(column: Column, cells: Sequence[Cell]) -> Cell:
    low, high = min(cell.low for cell in cells), max(cell.high for cell in cells)
    return Cell(column, cells[0].kind, low, high, any(c.nan for c in cells), any(c.rough for c in cells))


# --- kinds ------------------------------------------------------------------------------------------------------------


def _text(name: str, arguments: Sequence[Cell]) -> Cell:
    from pyspark.sql import functions as F

    for argument in arguments:
        if argument.kind == "float":
            raise ConfigError(
                f"{name} writes a float, which Java writes differently from Python; round it to an int, or leave it out"
            )
    return Cell(F.concat(*(argument.column.cast("string") for argument in arguments)), "string")


def _plain_digits(column: Column) -> Column:
    """The text without outer spaces and underscores; digits of other scripts are not judged."""

    text = stripped(column)
    return refuse_where(
        text.rlike(r"[\p{Nd}&&[^0-9]]"), "a text with digits of other scripts cannot be read as a number in Spark", text
    )


def _to_int(x: Cell) -> Cell:
    from pyspark.sql import functions as F

    if x.kind == "bool":
        return number(x)
    if x.rough:
        raise ConfigError("int of a value that Java may compute differently cannot be computed exactly in Spark")
    if x.kind == "string":
        text = _plain_digits(x.column)
        digits = F.regexp_replace(text, "_", "")
        return Cell(F.when(text.rlike(_INT), digits.try_cast("bigint")), "int")
    if x.kind == "int":
        inside = x.column.between(F.lit(str(LONG_LEAST)).cast(WIDE), F.lit(str(LONG_MOST)).cast(WIDE))
        return Cell(F.when(inside, x.column).cast("bigint"), "int") if x.wide else x
    value = finite(x.column)
    inside = (value >= float(LONG_LEAST)) & (value < float(2**63))
    return Cell(F.when(inside, value.cast("bigint")), "int")


def _to_float(x: Cell) -> Cell:
    from pyspark.sql import functions as F

    if x.kind != "string":
        return Cell(finite(floating(number(x))), "float", rough=x.rough)
    text = _plain_digits(x.column)
    digits = F.regexp_replace(text, "_", "")
    return Cell(finite(F.when(text.rlike(_FLOAT), digits.try_cast("double"))), "float")


# --- times ------------------------------------------------------------------------------------------------------------


def _clock(unit_us: int, count: int, shift: int = 0, least: int = 0) -> Callable[[Sequence[Cell]], Cell]:
    """Which of ``count`` units of time a timestamp lies in."""

    def function_of(arguments: Sequence[Cell]) -> Cell:
        from pyspark.sql import functions as F

        if arguments[0].wide:
            raise ConfigError("the time of a number that may not fit 64 bits cannot be computed in Spark")
        inside = F.pmod(arguments[0].column, F.lit(unit_us * count).cast("bigint"))
        number_of = F.call_function("div", inside, F.lit(unit_us).cast("bigint"))
        return integer((number_of + shift) % count + least, least, count - 1 + least)

    return function_of


_FUNCTIONS: Final[dict[str, Callable[[Sequence[Cell]], Cell]]] = {
    **NUMBER_FUNCTIONS,
    **TEXT_FUNCTIONS,
    "hour": _clock(3_600_000_000, 24),
    "minute": _clock(60_000_000, 60),
    "second": _clock(1_000_000, 60),
    "dayofweek": _clock(86_400_000_000, 7, shift=3, least=1),
}
