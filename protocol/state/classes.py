"""How instances of our own classes are saved and restored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final

from headwater.protocol.events import EventType
from headwater.protocol.state.kinds import Parts, StateError, StateKind, TupleKind, check_equal
from headwater.protocol.wire import rule_encoding


@dataclass(frozen=True, slots=True)
class Made:
    """A class whose instances are saved as the parts that a function makes them from again."""

    cls: type
    apart: Callable[[Any], Parts]
    together: Callable[..., Any]
    is_interned: bool = False
    """Whether equal parts are always one and the same instance."""


class _Enum(StateKind):
    is_value = True

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), (value.name,)

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        return self.cls[parts[0]]


class _Frozen(StateKind):
    """A frozen dataclass: it is made with its fields as they were, without its checks."""

    is_value = True

    def __init__(self, name: str, cls: type) -> None:
        super().__init__(name, cls)
        self._names = tuple(field.name for field in fields(cls))
        self._of = attrgetter(*self._names) if len(self._names) > 1 else None
        self._is_rule = rule_encoding.is_of_rules(cls)

    def check(self, names: tuple[str, ...]) -> None:
        check_equal(self.name, self._names, names)

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        if self._of is not None:
            return self._names, self._of(value)
        return self._names, tuple(getattr(value, name) for name in self._names)

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        if len(parts) != len(names):
            raise StateError(f"the saved state is damaged: {self.name!r} with {len(parts)} fields")
        if self._is_rule:
            rule_encoding.check_fields(self.cls, parts)  # code is generated from rules, so they are what they may be
        instance: Any = object.__new__(self.cls)
        for name, part in zip(names, parts, strict=True):
            object.__setattr__(instance, name, part)
        return instance


class _Object(StateKind):
    """An instance of a class of ours, field by field."""

    def __init__(self, name: str, cls: type) -> None:
        super().__init__(name, cls)
        self._slots = _slots_of(cls)
        self._has_dict = any("__dict__" in vars(base) for base in cls.__mro__)
        self._all = tuple(self._slots)
        self._of = attrgetter(*self._all) if len(self._all) > 1 else None
        self._fields = tuple(field.name for field in fields(cls)) if is_dataclass(cls) else None

    def check(self, names: tuple[str, ...]) -> None:
        if self._fields is not None:
            check_equal(self.name, tuple(sorted(self._fields)), tuple(sorted(names)))
        for name in names:
            if name not in self._slots and (not self._has_dict or not _may_be_field(self.cls, name)):
                raise StateError(
                    f"the saved state holds a {self.name!r} with a field {name!r:.80}, which it cannot have"
                )

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        if not self._all:
            inside = value.__dict__
            return tuple(inside), list(inside.values())
        if self._of is not None and not self._has_dict:
            try:
                return self._all, self._of(value)
            except AttributeError:
                pass
        names = [name for name in self._all if hasattr(value, name)]
        parts = [getattr(value, name) for name in names]
        if self._has_dict:
            names += value.__dict__
            parts += value.__dict__.values()
        return tuple(names), parts

    def new(self, names: tuple[str, ...]) -> Any:
        return object.__new__(self.cls)

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        if len(parts) != len(names):
            raise StateError(f"the saved state is damaged: {self.name!r} with {len(parts)} fields")
        if not self._all:
            instance.__dict__.update(zip(names, parts, strict=True))
            return
        for name, part in zip(names, parts, strict=True):
            setter = self._slots.get(name)
            if setter is None:
                instance.__dict__[name] = part
            else:
                setter(instance, part)


class _Stateful(_Object):
    """An instance of a class that says itself what of it is saved, and makes the rest again."""

    makes_parts = True
    settles = True

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        state = value.__getstate__()
        return (tuple(state), list(state.values())) if type(state) is dict else ((), (state,))

    def fill(self, instance: Any, names: tuple[str, ...], parts: list[Any]) -> None:
        if names:
            instance.__setstate__(dict(zip(names, parts, strict=True)))
        else:
            (state,) = parts
            instance.__setstate__(state)


class MadeKind(StateKind):
    is_value = True
    makes_parts = True
    hashes = True

    def __init__(self, name: str, how: Made) -> None:
        super().__init__(name, how.cls)
        self._apart, self._together = how.apart, how.together
        self.is_interned = how.is_interned

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (), self._apart(value)

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        return self._together(*parts)


class Recipe(StateKind):
    """A condition that a function has made of expressions, a type, and whether that is one of composites.

    The expressions are saved in their canonical encoding: all that ask the same in a process share a condition, so
    whose expressions it holds is chance.
    """

    is_value = True
    hashes = True

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        super().__init__(name, None)
        self._make = make

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        where, *rest = value.recipe[1]
        return (), [rule_encoding.encode(where), *rest]

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        where, event_type, is_composite = parts
        if type(event_type) is not EventType or type(is_composite) is not bool:
            raise StateError("the saved state is damaged: a condition on nothing")
        return self._make(rule_encoding.decode(where), event_type, is_composite)


class Name(StateKind):
    """Something that is only referred to."""

    NAME: Final = "named"
    is_value = True

    def __init__(self, reference: str) -> None:
        super().__init__(self.NAME, None)
        self._reference = reference

    def apart(self, value: Any) -> tuple[tuple[str, ...], Parts]:
        return (self._reference,), ()


class Referent(StateKind):
    """The same, when it is read."""

    is_value = True

    def __init__(self, referent: Any) -> None:
        super().__init__(Name.NAME, None)
        self._referent = referent

    def built(self, names: tuple[str, ...], parts: list[Any]) -> Any:
        return self._referent


def kind_of(name: str, cls: type) -> StateKind:
    if issubclass(cls, Enum):
        return _Enum(name, cls)
    if issubclass(cls, tuple):
        return TupleKind(name, cls)
    assert not issubclass(cls, dict | list | set | frozenset | deque | str | int), f"{cls} is more than its fields"
    if is_dataclass(cls) and cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return _Frozen(name, cls)
    # Objects are filled after the values that refer to them are made, so nothing may hash what is in them.
    assert cls.__hash__ is None or cls.__hash__ is object.__hash__, f"{cls} has a hash of its own; freeze it"
    if not is_dataclass(cls) and hasattr(cls, "__setstate__"):
        return _Stateful(name, cls)
    return _Object(name, cls)


def _slots_of(cls: type) -> dict[str, Callable[[Any, Any], None]]:
    setters = {}
    for base in reversed(cls.__mro__):
        own = vars(base).get("__slots__", ())
        for name in (own,) if isinstance(own, str) else own:
            if name not in ("__dict__", "__weakref__"):
                setters[name] = vars(base)[name].__set__
    return setters


def _may_be_field(cls: type | None, name: str) -> bool:
    """Whether an instance can have an attribute of its own of this name, which hides nothing that the class does."""
    if not name.isidentifier() or name.startswith("__"):
        return False
    there = getattr(cls, name, None)
    return not callable(there) and not hasattr(there, "__get__")
