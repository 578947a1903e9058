"""The canonical encoding of rules and patterns: what is sent, hashed and compared between two ends.

msgpack of ``[RULE_ENCODING, value]``; a value class is ``["ClassName", field, ..]``, a tuple ``["()", item, ..]``.
Equal values give equal bytes. Decoding checks shape and names and raises CodecError, never anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from hashlib import blake2b
from types import UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgpack

from headwater.protocol import expressions, pattern
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import EventType
from headwater.protocol.formats import RULE_ENCODING

_TUPLE: Final = "()"
_BIG: Final = "int"
_TYPE: Final = "event type"
_ATOMS: Final = (str, bool, float)  # what stands for itself, beside None and integers

_CLASSES: Final[dict[str, type[Any]]] = {
    cls.__name__: cls
    for module in (expressions, pattern)
    for cls in vars(module).values()
    if isinstance(cls, type) and is_dataclass(cls)
}


def register(*classes: type[Any]) -> None:
    """Let frozen dataclasses of other modules travel, too."""
    _CLASSES.update({cls.__name__: cls for cls in classes})


class CodecError(HeadwaterError):
    """Bytes that are not an encoding this version understands: the sender must act."""


_FIELDS: Final[dict[type[Any], tuple[str, ...]]] = {}
"""The names of the fields of classes that have been met: looking them up is slow."""


_HINTS: Final[dict[type[Any], dict[str, Any]]] = {}


def _field_names(cls: type[Any]) -> tuple[str, ...]:
    names = _FIELDS.get(cls)
    if names is None:
        names = _FIELDS[cls] = tuple(field.name for field in fields(cls))
    return names


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, _ATOMS):
        return value
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 64 else [_BIG, str(value)]
    if isinstance(value, tuple):
        return [_TUPLE, *map(_plain, value)]
    cls = type(value)
    if cls is EventType:
        name, attributes = value.declaration()
        return [_TYPE, name, *[part for pair in attributes for part in pair]]
    return [cls.__name__, *[_plain(getattr(value, name)) for name in _field_names(cls)]]


def _value(plain: Any) -> Any:
    if not isinstance(plain, list):
        if isinstance(plain, bool | int | float | str) or plain is None:
            return plain
        raise CodecError(f"unexpected {type(plain).__name__} in an encoded rule")
    if not plain or not isinstance(plain[0], str):
        raise CodecError("an encoded value without a name")
    name, *inside = plain
    if name == _BIG:
        return _integer(inside)
    if name == _TYPE:
        return _event_type(inside)
    values = tuple(map(_value, inside))
    return values if name == _TUPLE else _part(name, values)


def _integer(inside: list[Any]) -> int:
    if len(inside) != 1 or not isinstance(inside[0], str) or not inside[0].lstrip("-").isdecimal():
        raise CodecError("a malformed integer in an encoded rule")
    return int(inside[0])


def _part(name: str, values: tuple[Any, ...]) -> Any:
    """A part of a rule, made of values that its class allows."""
    cls = _CLASSES.get(name)
    if cls is None:
        raise CodecError(f"unknown part {name!r} in an encoded rule; it may come from a newer version")
    if len(values) < len(fields(cls)) and not is_of_rules(cls):
        values = (*values, *_left_out(cls, len(values)))  # an earlier version wrote it
    check_fields(cls, values)
    return cls(*values)


def _left_out(cls: type[Any], given: int) -> list[Any]:
    """The last fields of a class, as they are when nothing is said of them."""
    defaults = [field.default for field in fields(cls)[given:]]
    if MISSING in defaults:
        raise CodecError(f"{cls.__name__} with {given} fields instead of {len(fields(cls))}")
    return defaults


def is_of_rules(cls: type[Any]) -> bool:
    """Whether rules are made of it: then code is generated from what is in it."""
    return cls.__module__ in (expressions.__name__, pattern.__name__)


def check_fields(cls: type[Any], values: Sequence[Any]) -> None:
    """A CodecError if these cannot be the fields of a class that travels."""
    name = cls.__name__
    hints = _HINTS.get(cls)
    if hints is None:
        hints = _HINTS[cls] = get_type_hints(cls)
    if len(values) != len(hints):
        raise CodecError(f"{name} with {len(values)} fields instead of {len(hints)}")
    for (field, hint), value in zip(hints.items(), values, strict=True):
        if not _fits(value, hint):
            raise CodecError(f"{name}.{field} cannot be {value!r:.60}")


def _event_type(inside: list[Any]) -> EventType:
    if len(inside) % 2 != 1 or not all(isinstance(text, str) for text in inside):
        raise CodecError("a malformed event type")
    name, *pairs = inside
    try:
        return EventType(name, tuple(zip(pairs[::2], pairs[1::2], strict=True)))
    except HeadwaterError as error:
        raise CodecError(str(error)) from error


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what a field is annotated to hold."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, tuple):
            return False
        if kinds[-1] is Ellipsis:
            return all(_fits(item, kinds[0]) for item in value)
        return len(value) == len(kinds) and all(map(_fits, value, kinds))
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    return type(value) is hint or (hint is float and type(value) is int)


def encode(value: Any) -> bytes:
    """The canonical bytes of a rule, a pattern, an expression, or whatever else is registered."""
    return cast(bytes, msgpack.packb([RULE_ENCODING, _plain(value)]))


def decode(data: bytes) -> Any:
    """The value that ``encode`` gave these bytes for."""
    try:
        unpacked = msgpack.unpackb(data)
    except Exception as error:
        raise CodecError(f"not an encoded rule: {error}") from error
    if not isinstance(unpacked, list) or len(unpacked) != 2:
        raise CodecError("not an encoded rule: a version and a value are expected")
    if unpacked[0] != RULE_ENCODING:
        raise CodecError(f"encoded as version {unpacked[0]!r}; this is version {RULE_ENCODING}")
    try:
        return _value(unpacked[1])
    except RecursionError as error:
        raise CodecError("an encoded rule nested too deeply") from error
    except TypeError as error:
        raise CodecError(f"an encoded rule of the wrong shape: {error}") from error


def digest(*values: Any) -> str:
    """A short hash of the canonical encoding, the same on every machine."""
    return blake2b(cast(bytes, msgpack.packb([RULE_ENCODING, _plain(values)])), digest_size=16).hexdigest()
