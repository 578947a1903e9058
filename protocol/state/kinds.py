"""How containers are saved and restored."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final

import msgpack

from headwater.protocol.composites import Composite
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import EventType

Parts = Sequence[Any]


class StateError(HeadwaterError):
    """Saved state that is damaged or of another version: the operator who keeps it must act."""


class StateKind:
    """How instances of one class are written and read."""

    is_value = False
    makes_parts = False
    """Whether ``apart`` gives parts that were not there before."""
    settles = False
    """Whether it can only be filled when everything else is."""
    is_interned = False
    """Whether there is but one of equal ones."""
    hashes = False
    """Whether reading one hashes its parts."""
    keys: slice | None = None
    """Which parts of an object are hashed when it is filled."""

    def __init__(self, name: str, cls: Any) -> None:
        self.name = name
        self.cls = cls
        """None where not the class counts."""

    def check(self, names: tuple[str, ...]) -> None:
        """A StateError if these can be no fields of the class."""
        if names:
            raise StateError(f"the saved state is damaged: {self.name!r} has no fields {', '.join(names)!r:.80}")

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        """The names of the fields, where there are any, and the parts."""
        raise NotImplementedError

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        """The value that these are the parts of."""
        raise NotImplementedError

    def new(self, names: tuple[str, ...]) -> Any:
        """An object still to be filled."""
        raise NotImplementedError

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        raise NotImplementedError


def check_equal(name: str, own: tuple[str, ...], names: tuple[str, ...]) -> None:
    if own != names:
        raise StateError(
            f"the saved state holds a {name!r} with the fields {', '.join(names) or 'none'}, where this version has "
            f"{', '.join(own) or 'none'}"
        )


class TupleKind(StateKind):
    is_value = True

    def __init__(self, name: str, cls: type) -> None:
        super().__init__(name, cls)
        self._names: tuple[str, ...] = getattr(cls, "_fields", ())

    def check(self, names: tuple[str, ...]) -> None:
        check_equal(self.name, self._names, names)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return self._names, value

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        if self._names and len(parts) != len(self._names):
            raise StateError(f"the saved state is damaged: {self.name!r} with {len(parts)} fields")
        return tuple.__new__(self.cls, parts)


class _FrozenSet(StateKind):
    is_value = True
    hashes = True
    makes_parts = True

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), _in_order(value)

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        return frozenset(parts)


class _List(StateKind):
    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), value

    def new(self, names: tuple[str, ...]) -> Any:
        return self.cls()

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        instance.extend(parts)


class _ByteArray(_List):
    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), (bytes(value),)

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        (data,) = parts
        if type(data) is not bytes:
            raise StateError("the saved state is damaged: bytes that are none")
        instance.extend(data)


class _Deque(_List):
    """Its bound, where it has one, stands in the place of a field."""

    def check(self, names: tuple[str, ...]) -> None:
        if len(names) > 1 or not all(name.isascii() and name.isdecimal() and len(name) < 19 for name in names):
            super().check(names)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return () if value.maxlen is None else (str(value.maxlen),), value

    def new(self, names: tuple[str, ...]) -> Any:
        return deque(maxlen=int(names[0]) if names else None)


class _Set(_List):
    keys = slice(None)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), _in_order(value)

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        instance.update(parts)


class _Dict(_List):
    keys = slice(0, None, 2)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), list(chain.from_iterable(value.items()))

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        pairs = iter(parts)
        dict.update(instance, zip(pairs, pairs, strict=True))


class _Counter(_Dict):
    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        pairs = iter(parts)
        for key, count in zip(pairs, pairs, strict=True):  # it would count the pairs
            dict.__setitem__(instance, key, count)


class _OrderedDict(_Dict):
    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        pairs = iter(parts)
        instance.update(zip(pairs, pairs, strict=True))  # it keeps an order of its own


_FACTORIES: Final[Mapping[str, type]] = {"list": list, "dict": dict, "set": set, "int": int, "deque": deque}


class _DefaultDict(_Dict):
    keys = slice(1, None, 2)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        name = next((name for name, factory in _FACTORIES.items() if factory is value.default_factory), None)
        assert name is not None, f"a defaultdict of {value.default_factory} cannot be saved"
        return (), [name, *chain.from_iterable(value.items())]

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        factory, *inside = parts
        instance.default_factory = _FACTORIES[factory]
        super().fill(instance, names, inside)


def builtin_kinds() -> Iterable[StateKind]:
    yield TupleKind("tuple", tuple)
    yield _FrozenSet("frozenset", frozenset)
    yield _List("list", list)
    yield _ByteArray("bytearray", bytearray)
    yield _Deque("deque", deque)
    yield _Set("set", set)
    yield _Dict("dict", dict)
    yield _Counter("Counter", Counter)
    yield _OrderedDict("OrderedDict", OrderedDict)
    yield _DefaultDict("defaultdict", defaultdict)


# ---------------------------------------------------------------------------------------------------------------- sets

_ORDERED: Final = frozenset((int, str, bytes))


def _in_order(unordered: Iterable[Any]) -> list[Any]:
    """The members of a set in an order that is the same in every process."""
    members = list(unordered)
    if len(members) < 2:
        return members
    types = set(map(type, members))
    if len(types) == 1:
        if types <= _ORDERED:
            return sorted(members)
        if types == {tuple} and set(map(type, chain.from_iterable(members))) <= _ORDERED:
            try:
                return sorted(members)
            except TypeError:  # numbers in the place of texts
                pass
    return sorted(members, key=_rank)


def _rank(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, default=_ranked, strict_types=True, unicode_errors="surrogatepass")
    return packed


def _ranked(value: Any) -> Any:
    if type(value) is int:
        return [str(value)]
    if isinstance(value, Enum):
        return [type(value).__name__, value.name]
    if type(value) is EventType:
        return list(value.declaration())
    if isinstance(value, Composite):
        return value.id
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, frozenset):
        return _in_order(value)
    assert is_dataclass(value), f"a set of {type(value).__qualname__} is in no order that could be saved; keep a dict"
    return [type(value).__name__, *(getattr(value, field.name) for field in fields(value))]
