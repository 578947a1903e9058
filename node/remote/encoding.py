"""Elements of remote tables as bytes, for journals and saved states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack

from headwater.protocol.events import Value
from headwater.protocol.remote import Versions, saved_versions

Element = tuple[str, tuple[Value, ...], Versions | None]
"""A table, a key, and what the table has for it; None: nothing."""

_BIG_INT: Final = 1
_VALUE: Final = (str, int, float, type(None))


def encode_plain(value: Any) -> bytes:
    """Lists, tuples and maps of what keys and elements are made of."""
    try:
        packed: bytes = msgpack.packb(value)
    except (OverflowError, UnicodeEncodeError):  # rare: some value must be written in another way
        packed = msgpack.packb(_plain(value), unicode_errors="surrogatepass")
    return packed


def decode_plain(data: bytes) -> Any:
    """What was encoded, with tuples for lists."""
    return msgpack.unpackb(data, use_list=False, strict_map_key=False, ext_hook=_big, unicode_errors="surrogatepass")


def encode_elements(elements: Iterable[Element]) -> bytes:
    return encode_plain(list(elements))


def decode_elements(data: bytes) -> list[Element]:
    """What was encoded; a ValueError if it was not."""
    try:
        entries = decode_plain(data)
        for table, key, _ in entries:
            if type(table) is not str or type(key) is not tuple or not all(isinstance(part, _VALUE) for part in key):
                raise TypeError("a table and a key must stand before an element")
        return [(table, key, None if element is None else saved_versions(*element)) for table, key, element in entries]
    except Exception as error:
        raise ValueError(f"these are no elements of remote tables: {error!r:.100}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(inside) for inside in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(inside) for key, inside in value.items()}
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return msgpack.ExtType(_BIG_INT, f"{value:x}".encode())
    return value


def _big(code: int, data: bytes) -> int:
    if code != _BIG_INT:
        raise ValueError("an unknown kind of value")
    return int(data, 16)
