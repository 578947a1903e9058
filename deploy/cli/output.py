"""Writes composite events as JSON lines in the documented form, and counts them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from json.encoder import encode_basestring
from math import log10
from operator import attrgetter, itemgetter
from typing import Any, Final

from headwater.protocol.composites import Composite, CompositeSpec

DIGITS_MAX: Final = 60  # of a number in a table or a sentence; longer ones are rounded

_encode: Final = json.JSONEncoder(ensure_ascii=False).encode

_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    str: encode_basestring,
    int: repr,
    float: lambda value: repr(value) if value - value == 0 else _encode(value),
    bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null",
}


class JsonLines:
    """The lines that ``json.dumps(composite.to_json(), ensure_ascii=False)`` would give, several times faster.

    Every part is looked at once, and what all composites of a rule share is encoded once.
    """

    def __init__(self) -> None:
        self._shared: dict[CompositeSpec, tuple[str, str, tuple[str, ...], dict[str, str]]] = {}
        self._names: dict[str, str] = {}

    def line(self, composite: Composite) -> str:
        parts = list(composite.parts())
        if composite.looked_up:
            return _encode(composite.to_json()) + "\n"
        for _, row in parts:
            if isinstance(row[3], Composite):
                return _encode(composite.to_json()) + "\n"
        spec = composite.spec
        opening, middle, attributes, roles = self._shared.get(spec) or self._share(spec)
        times = [row[0] for _, row in parts]
        end = max(times)
        values = ", ".join(
            [
                key + (_SCALARS.get(value.__class__) or _encode)(value)
                for key, value in zip(attributes, spec.values(*composite[1:]), strict=True)
            ]
        )
        name = self._name
        events = ", ".join(
            [
                f'{roles[role]}{name(row[3].name)}, "ts": {row[0]}, "node": {name(row[1])}, "seq": {row[2]}}}'
                for role, row in parts
            ]
        )
        return (
            f'{{"id": "{composite.id}", {opening}{end}, "start": {min(times)}, "end": {end}, '
            f'{middle}{{{values}}}, "events": [{events}]}}\n'
        )

    def _share(self, spec: CompositeSpec) -> tuple[str, str, tuple[str, ...], dict[str, str]]:
        shared = (
            f'"type": {encode_basestring(spec.type.name)}, "ts": ',
            f'"rule": {encode_basestring(spec.rule)}, "attributes": ',
            tuple(f"{encode_basestring(name)}: " for name in spec.type.attributes),
            {role: f'{{"role": {encode_basestring(role)}, "type": ' for role in spec.roles},
        )
        self._shared[spec] = shared
        return shared

    def _name(self, name: str) -> str:
        try:
            return self._names[name]
        except KeyError:
            return self._names.setdefault(name, encode_basestring(name))


def in_key_order(composites: Iterable[Composite]) -> Iterator[Composite]:
    """Sorted by key. Few composites share their end, so only those look at the rest of the key."""
    ends = sorted((composite.end, number, composite) for number, composite in enumerate(composites))
    for _, group in groupby(ends, key=itemgetter(0)):
        same = [composite for _, _, composite in group]
        if len(same) > 1:
            same.sort(key=attrgetter("key"))
        yield from same


def show_count(number: int) -> str:
    """A number for people: repetitions have matches beyond what fits on a line."""
    if number < 10**DIGITS_MAX:
        return f"{number:,}"
    power = int((number.bit_length() - 1) * log10(2))
    power += number >= 10 ** (power + 1)
    return f"about {number * 1000 // 10**power / 1000:.2f}e{power}"


@contextlib.contextmanager
def any_number_of_digits() -> Iterator[None]:
    """Python refuses to write integers of more than 4,300 digits, which a count of choices may have."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)
