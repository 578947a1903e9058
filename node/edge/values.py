"""Converts what devices send to the values that a type declares, exactly in kind, or refuses it."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from headwater.protocol.edge import Mapped
from headwater.protocol.events import EventType, Value, conform
from headwater.protocol.payload_maps import FALSE, NUMBER, TRUE, conversion

TEXT_BYTES_MAX: Final = 64 << 10  # of one string value
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
NUMBER_CHARACTERS_MAX: Final = 1000  # of a number as a text: more than any float has
SHOWN_CHARACTERS: Final = 60
FLOAT_MOST: Final = Fraction(2) ** 1024 - Fraction(2) ** 970  # what is greater is no float

Convert = Callable[[Any], Value]


class Refusal(Exception):
    """Why something is no event."""


def strict(event_type: EventType, name: str) -> Convert:
    """Values as programs give them: they have the declared kind, or are a whole number where a float is declared."""
    attribute = f"{event_type.name}.{name}"

    def convert(value: Any) -> Value:
        return conform(event_type, name, _plain(attribute, value))

    return convert


def lenient(event_type: EventType, name: str, entry: Mapped | None = None) -> Convert:
    """Values as devices give them: texts of numbers, whole floats, ON and OFF are taken where they are exactly of the
    declared kind. With an entry of a map numbers are converted by it first."""
    attribute, kind = f"{event_type.name}.{name}", event_type.kind(name)
    by = None if entry is None else conversion(entry)
    quick = None if by is not None else _QUICK.get(kind)

    def convert(value: Any) -> Value:
        if quick is not None and quick(value):
            return value  # type: ignore[no-any-return]
        plain = _plain(attribute, value)
        if plain is None:
            return conform(event_type, name, None)
        if by is not None:
            plain = _converted(attribute, plain, by, kind)
        elif kind == "float":
            if plain.__class__ is str:
                plain = _rounded(attribute, _exact(attribute, plain, kind))
        elif kind == "int":
            if plain.__class__ is str or plain.__class__ is float:
                plain = _whole(attribute, _exact(attribute, plain, kind))
        elif kind == "bool" and plain.__class__ is not bool:
            plain = _truth(attribute, plain)
        return conform(event_type, name, plain)

    return convert


_QUICK: Final[dict[str, Callable[[Any], bool]]] = {
    "float": lambda value: value.__class__ is float and value - value == 0,
    "int": lambda value: value.__class__ is int and INT_MIN <= value <= INT_MAX,
    "bool": lambda value: value.__class__ is bool,
    "string": lambda value: value.__class__ is str and len(value) <= TEXT_BYTES_MAX and value.isascii(),
}
"""What needs no further look: by far the most values."""


def _plain(attribute: str, value: Any) -> Any:
    """A value that can travel."""
    kind = type(value)
    if kind is float:
        if value - value != 0:
            raise Refusal(f"{attribute} is {value}, which is not a finite number")
    elif kind is int:
        if not INT_MIN <= value <= INT_MAX:
            raise Refusal(f"{attribute} does not fit into 64 bits")
    elif kind is str:
        if len(value) > TEXT_BYTES_MAX:
            raise Refusal(f"{attribute} has {len(value)} characters; {TEXT_BYTES_MAX} are the most")
        if not is_unicode(value):
            raise Refusal(f"{attribute} is not a Unicode text")
    elif value is not None and kind is not bool:
        raise Refusal(f"{attribute} is {shown(value)}; values are numbers, strings or booleans")
    return value


def _exact(attribute: str, value: Any, kind: str) -> Fraction:
    """The number that a value is, by its decimal text."""
    if value.__class__ is int:
        return Fraction(value)
    text = repr(value) if value.__class__ is float else value.strip() if value.__class__ is str else ""
    if len(text) > NUMBER_CHARACTERS_MAX or not NUMBER.fullmatch(text):
        raise Refusal(f"{attribute} is declared {kind}, but {shown(value)} is not a number")
    return Fraction(Decimal(text))


def _converted(attribute: str, value: Any, by: tuple[Fraction, Fraction], kind: str) -> Value:
    number = _exact(attribute, value, "a number" if kind == "any" else kind) * by[0] + by[1]
    return _whole(attribute, number) if kind == "int" else _rounded(attribute, number)


def _whole(attribute: str, number: Fraction) -> int:
    if not INT_MIN <= number <= INT_MAX:
        raise Refusal(f"{attribute} does not fit into 64 bits")
    if number.denominator != 1:
        raise Refusal(f"{attribute} is declared int, but {float(number)!r} is not whole; declare it float")
    return number.numerator


def _rounded(attribute: str, number: Fraction) -> float:
    if abs(number) > FLOAT_MOST:
        raise Refusal(f"{attribute} is too large for a float")
    return float(number)


def _truth(attribute: str, value: Any) -> bool:
    word = value.strip().lower() if value.__class__ is str else str(value) if value.__class__ is int else ""
    if word in TRUE:
        return True
    if word in FALSE:
        return False
    raise Refusal(
        f"{attribute} is declared bool, but {shown(value)} is neither true nor false (ON, OFF, yes, no, 1, 0)"
    )


def is_unicode(text: str) -> bool:
    """Whether a text can travel: JSON can write half of a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(value: Any) -> str:
    if value is None:
        return "absent"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or a structure of thousands of levels
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 2] + ".."
