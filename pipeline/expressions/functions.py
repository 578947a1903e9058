"""The built-in functions of rules (``protocol.functions``) as Spark columns.

A missing argument gives no value, and so does an argument outside the domain. Functions whose results cannot be made
the same in Java and Python to the last character are refused.
"""

from __future__ import annotations

import re
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
    computed,
    floating,
    integer,
    negative,
    none,
    number,
    refuse_where,
    truth,
)
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Constant, Expression
from headwater.protocol.functions import BUILT_IN

if TYPE_CHECKING:
    from pyspark.sql import Column

WHITESPACE: Final = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())
"""What Python strips from the ends of a text."""
DIGITS_MOST: Final = 15
TEXT_MOST: Final = 2**31 - 1

_DIGITS: Final = "[0-9](?:_?[0-9])*"
_INT: Final = f"^[+-]?{_DIGITS}$"
_FLOAT: Final = rf"^[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?$"
_SAFE_FORM: Final = re.compile(
    r"(?:[^\x00-\x7f]|[A-Za-z0-9 _,:/@#%&=!~\"'<>;-]|\\[^A-Za-z0-9\s]|[.^$|*+?]|\{[0-9]+(?:,[0-9]*)?\}|\((?!\?)|\)"
    r"|\[\^?(?:[A-Za-z0-9 _,:/@#%=!~\"'<>;.*+?$|()-]|\\[^A-Za-z0-9\s])+\])*"
)
"""Regular expressions that mean the same in Java and in Python."""


def called(name: str, arguments: Sequence[Cell], written: Sequence[Expression], *, exact: bool) -> Cell:
    """The value of a call; ``written``: the arguments as expressions."""
    word = name.lower()
    if word not in BUILT_IN:
        raise ConfigError(f"the function {name} is none of the built-in ones, so Spark cannot compute it")
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
        return _round(arguments, written)
    if word == "matches":
        return _matches(arguments, written)
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


def finite(column: Column) -> Column:
    """No value where the result is no finite number."""
    from pyspark.sql import functions as F

    return F.when(~F.isnan(column) & (F.abs(column) != float("inf")), column)


# --- numbers ----------------------------------------------------------------------------------------------------------


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
                "a whole number from the value of a function that Java may round otherwise cannot be computed exactly "
                "in Spark; compare the value itself"
            )
        value = finite(x.column)
        far = F.abs(value) >= float(2**63)
        rounded = refuse_where(far, "a float beyond 2**63 cannot be made a whole number in Spark", function(value))
        return integer(rounded, LONG_LEAST, LONG_MOST)

    return function_of


def _round(arguments: Sequence[Cell], written: Sequence[Expression]) -> Cell:
    from pyspark.sql import functions as F

    digits = written[1] if len(written) > 1 else Constant(0)
    if not (isinstance(digits, Constant) and isinstance(digits.value, int) and 0 <= digits.value <= DIGITS_MOST):
        raise ConfigError(f"round can be computed in Spark only to 0 to {DIGITS_MOST} digits, written as a number")
    x = number(arguments[0])
    if x.kind not in NUMBERS:
        return none()
    if x.rough:
        raise ConfigError("round of a value that Java may compute otherwise cannot be computed exactly in Spark")
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
                f"{name} writes a float, which Java writes otherwise than Python; round it to an int, or leave it out"
            )
    return Cell(F.concat(*(argument.column.cast("string") for argument in arguments)), "string")


def _stripped(column: Column) -> Column:
    from pyspark.sql import functions as F

    return F.btrim(column, F.lit(WHITESPACE))


def _plain_digits(column: Column) -> Column:
    """The text without outer spaces and underscores; digits of other scripts are not judged."""

    text = _stripped(column)
    return refuse_where(
        text.rlike(r"[\p{Nd}&&[^0-9]]"), "a text with digits of other scripts cannot be read as a number in Spark", text
    )


def _to_int(x: Cell) -> Cell:
    from pyspark.sql import functions as F

    if x.kind == "bool":
        return number(x)
    if x.rough:
        raise ConfigError("int of a value that Java may compute otherwise cannot be computed exactly in Spark")
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


# --- texts and times --------------------------------------------------------------------------------------------------


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


def _matches(arguments: Sequence[Cell], written: Sequence[Expression]) -> Cell:
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
    "abs": _abs,
    "sqrt": _root,
    "power": _rough(_power, _power_valid),
    "log": _rough(_log, _log_valid),
    "exp": _rough(_exp, _anything),
    "distance": _rough(_hypot, _anything),
    "lower": _string(_lower),
    "upper": _string(_upper),
    "length": _length,
    "substring": _substring,
    "contains": _test("contains"),
    "startswith": _test("startswith"),
    "endswith": _test("endswith"),
    "trim": _string(_stripped),
    "replace": _string(_replace),
    "hour": _clock(3_600_000_000, 24),
    "minute": _clock(60_000_000, 60),
    "second": _clock(1_000_000, 60),
    "dayofweek": _clock(86_400_000_000, 7, shift=3, least=1),
}


def _rounded(name: str) -> Callable[[Column], Column]:
    def rounded(column: Column) -> Column:
        from pyspark.sql import functions as F

        return F.floor(column) if name == "floor" else F.ceil(column)

    return rounded


_FUNCTIONS["floor"] = _whole(_rounded("floor"))
_FUNCTIONS["ceil"] = _whole(_rounded("ceil"))
