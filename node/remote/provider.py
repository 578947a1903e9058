"""What a provider of a remote table is: keys in, elements out, in batches. And what can go wrong with one.

An element is everything that the provider says of one key: one value, a collection, or its versions by event time. A
key that the provider does not have has no value, and that is an answer. A provider that does not answer is another
thing, a ``ProviderError``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import Value
from headwater.protocol.remote import RemoteValue, Versions

Key: TypeAlias = tuple[Value, ...]
Elements: TypeAlias = Mapping[Key, Versions]
"""By key what was found; a key without a value is left out."""


class ProviderError(HeadwaterError):
    """A provider has not answered as it should: its operator, or the author of its description, must act."""


class Unreachable(ProviderError):
    """It does not answer: not there, too slow, overloaded. That may pass, so it is asked again.

    ``after_s``: not before so many seconds.
    """

    def __init__(self, message: str, after_s: float = 0.0) -> None:
        super().__init__(message)
        self.after_s = after_s


class Refused(ProviderError):
    """It answers that it will not: wrong credentials, no such table, a query that writes. It would say so again."""


class BadAnswer(ProviderError):
    """It answers something that is no element: garbage, too much of it, or keys that it was not asked for."""


class Provider:
    """Holds a table somewhere else. All methods run in one event loop."""

    shown: str
    """What it is called in sentences and logs; without secrets."""
    key_length: int | None = None
    """How many values a key has; None where any number may be asked for."""
    batch_max: int = 1
    """How many keys one request may ask for."""
    whole: bool = False
    """Whether it answers with all that belongs to the same whole as a key, and not with that key alone."""
    versioned: bool | None = False
    """Whether its elements have versions by event time; None where that is not known, or not yet."""

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        """The elements of these keys, which are at most ``batch_max`` and differ; or a ProviderError."""
        raise NotImplementedError

    async def check(self) -> None:
        """A ProviderError that says what is wrong with it, if anything is; costs one request."""

    async def close(self) -> None:
        """Give back its connections; it may be asked again afterwards."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.shown}>"


def plain_key(arguments: Iterable[Value]) -> Key:
    """Keys compare by value, wherever the table is: 1.0 asks for what 1 asks for."""
    return tuple(
        int(each)
        if isinstance(each, float) and each.is_integer()
        else each  # not for infinities: those are no integers
        for each in arguments
    )


def sendable(keys: Iterable[Key]) -> list[Key]:
    """The keys that can be said to a server at all; it cannot have others, so that these have no value: texts that are
    no UTF-8 or hold a zero byte, and numbers that are not finite."""
    return [key for key in keys if all(map(_sendable, key))]


def _sendable(value: Value) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or ("\0" not in value and not _SURROGATE.search(value))


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def found_of(given: Any, shown: str) -> RemoteValue:
    """What a provider gave, as a value that rules can use; a BadAnswer if it is none."""
    if isinstance(given, list | tuple | set | frozenset):
        items = sorted(given, key=repr) if isinstance(given, set | frozenset) else given
        return tuple(_scalar(item, shown) for item in items)
    return _scalar(given, shown)


def _scalar(given: Any, shown: str) -> Value:
    if given is None or isinstance(given, bool | int | float | str):
        return given
    if isinstance(given, Decimal) and given.is_finite():
        return int(given) if given == given.to_integral_value() else float(given)
    raise BadAnswer(
        f"{shown} answered with a {type(given).__name__}; a value is a number, a string, a boolean, or a list of these"
    )


def size_bytes(versions: Versions) -> int:
    """How large an element is, as far as its values go."""
    return sum(_size(value) for value in versions.values) + 8 * len(versions.times)


def _size(value: RemoteValue) -> int:
    if isinstance(value, tuple):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    return 8


def too_large(shown: str, bytes_max: int) -> BadAnswer:
    return BadAnswer(f"{shown} answered with more than {bytes_max:,} bytes; narrow down what it gives for a key")
