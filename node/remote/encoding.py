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


def encode_elements(elements: Iterable[Element]) -> bytes:
    packed: bytes = msgpack.packb([_plain(element) for element in elements])
    return packed


def decode_elements(data: bytes) -> list[Element]:
    """What was encoded; a ValueError if it was not."""
    try:
        entries = msgpack.unpackb(data, use_list=False, ext_hook=_big)
        return [(table, key, None if element is None else saved_versions(*element)) for table, key, element in entries]
    except Exception as error:
        raise ValueError(f"these are no elements of remote tables: {error!r:.100}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Versions) and value.fetched_us is None:
        value = value[:2]
    if isinstance(value, tuple):
        return [_plain(inside) for inside in value]
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return msgpack.ExtType(_BIG_INT, f"{value:x}".encode())
    return value


def _big(code: int, data: bytes) -> int:
    if code != _BIG_INT:
        raise ValueError("an unknown kind of value")
    return int(data, 16)
