"""Events and their types.

An event *is* its row: the tuple ``(ts, node, seq, type, value, value, ..)``. The class around it is only a face with
names, so that the engine's inner loop works on plain tuples and the same object serves the API. Rows of events compare
in the order of the global trace, because ``(ts, node, seq)`` differs between any two events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from headwater.protocol.errors import EventError

type_names = ("int", "float", "string", "bool", "any")

Value = int | float | str | bool | None
Key = tuple[int, str, int]

HEADER_WIDTH: Final = 4
"""Number of columns before the attribute values in a row: ts, node, seq, type."""

RESERVED_ATTRIBUTES: Final = ("type", "ts", "node", "seq")
"""Names every event answers to; a type cannot declare them as attributes of its own."""

KIND_ALIASES: Final[Mapping[str, str]] = {
    "int": "int", "integer": "int", "long": "int",
    "float": "float", "double": "float", "number": "float", "real": "float",
    "string": "string", "str": "string", "text": "string",
    "bool": "bool", "boolean": "bool",
    "any": "any",
}  # fmt: skip
"""How people write the kinds of attribute values, and the one word each of them becomes."""


class EventType:
    """The name of a kind of event and the names, kinds and order of its attributes.

    Equal declarations are one object (types are interned), so a type hashes and compares by identity, which is what a
    dispatch table wants. ``optional`` attributes may be absent: their value is then ``None``.
    """

    __slots__ = ("_positions", "attributes", "kinds", "name", "optional")

    name: str
    attributes: tuple[str, ...]
    kinds: tuple[str, ...]
    optional: tuple[bool, ...]
    _positions: dict[str, int]

    def __new__(
        cls,
        name: str,
        attributes: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    ) -> EventType:
        """``attributes`` maps each name to its kind; a kind that ends in ``?`` may be absent."""
        pairs = tuple(attributes.items()) if isinstance(attributes, Mapping) else tuple(attributes)
        cleaned = []
        for attribute, kind in pairs:
            if attribute in RESERVED_ATTRIBUTES:
                raise EventError(
                    f"event type {name!r} declares {attribute!r}, which every event has already; choose another name"
                )
            word = KIND_ALIASES.get(kind.rstrip("?").strip().lower())
            if word is None:
                raise EventError(
                    f"event type {name!r}: attribute {attribute!r} has the unknown kind {kind!r}; "
                    f"write one of {', '.join(type_names)}"
                )
            cleaned.append((attribute, word, kind.endswith("?")))
        names = tuple(attribute for attribute, _, _ in cleaned)
        if len(set(names)) != len(names):
            raise EventError(f"event type {name!r} declares an attribute twice: {', '.join(names)}")
        token = (name, tuple(cleaned))
        interned = _INTERNED.get(token)
        if interned is not None:
            return interned
        event_type = object.__new__(cls)
        event_type.name = name
        event_type.attributes = names
        event_type.kinds = tuple(word for _, word, _ in cleaned)
        event_type.optional = tuple(may_lack for _, _, may_lack in cleaned)
        event_type._positions = {attribute: HEADER_WIDTH + i for i, attribute in enumerate(names)}
        return _INTERNED.setdefault(token, event_type)

    def declaration(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The plain data this type is made of: ``EventType(*t.declaration()) is t``."""
        pairs = zip(self.attributes, self.kinds, self.optional, strict=True)
        return self.name, tuple((name, kind + "?" * may_lack) for name, kind, may_lack in pairs)

    def position(self, attribute: str) -> int | None:
        """The column of the attribute in a row, or None if the type has no such attribute."""
        return self._positions.get(attribute)

    def kind(self, attribute: str) -> str:
        return self.kinds[self._positions[attribute] - HEADER_WIDTH]

    def is_optional(self, attribute: str) -> bool:
        return self.optional[self._positions[attribute] - HEADER_WIDTH]

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}: {kind}" for name, kind in self.declaration()[1])
        return f"{self.name}({inner})"

    def __reduce__(self) -> tuple[Any, ...]:
        return EventType, self.declaration()

    def __copy__(self) -> EventType:
        return self

    def __deepcopy__(self, memo: object) -> EventType:
        return self

    def __lt__(self, other: object) -> bool:
        # Reached only when a primitive row meets a composite that ends in the same event: the primitive comes first.
        return not isinstance(other, EventType) or self.name < other.name

    def __gt__(self, other: object) -> bool:
        return isinstance(other, EventType) and self.name > other.name


_INTERNED: dict[Any, EventType] = {}

_PYTHON_KINDS: Final[Mapping[type, str]] = {bool: "bool", int: "int", float: "float", str: "string"}


def kind_of(value: Value) -> str:
    """The kind of a value as a type declaration would write it; ``any`` for None."""
    return _PYTHON_KINDS.get(type(value), "any")


def plain(value: Any) -> Any:
    """A scalar of numpy (or a subclass of a plain kind) as the Python value it stands for; anything else as it is."""
    kind = type(value)
    if kind in _PYTHON_KINDS or value is None:
        return value
    if kind.__module__ == "numpy" and callable(getattr(value, "item", None)) and getattr(value, "shape", None) == ():
        scalar = value.item()
        return scalar if type(scalar) in _PYTHON_KINDS and not _loses(value, scalar) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return str(value) if isinstance(value, str) else value


def _loses(value: Any, scalar: Any) -> bool:
    """Whether a number changes on its way to Python; NaN is no number."""
    return bool(scalar == scalar and scalar != value)


def whole(name: str, value: Any) -> int:
    """A time or a number that must be an integer, perhaps one of numpy; an EventError otherwise."""
    if type(value) is int:
        return value
    number = plain(value)
    if type(number) is int:
        return number
    if name == "ts":
        hint = "write integer microseconds, for example round(seconds * 1_000_000)"
        raise EventError(f"ts is {value!r}, a {type(value).__name__}; {hint}")
    raise EventError(f"{name} is {value!r}, a {type(value).__name__}; it must be an integer")


def conform(event_type: EventType, attribute: str, value: Any) -> Value:
    """The value as the type declares it (an int becomes a float where a float is declared), or an EventError."""
    if type(value) not in _PYTHON_KINDS:
        value = plain(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        if event_type.is_optional(attribute):
            return None
        raise EventError(f"{event_type.name} needs a value for {attribute!r}; declare it as optional with '?' if not")
    declared = event_type.kind(attribute)
    actual = kind_of(value)
    if actual == "float" and math.isinf(value):
        raise EventError(f"{event_type.name}.{attribute} is {value!r}, which is not a finite number")
    if actual == "any":
        raise EventError(
            f"{event_type.name}.{attribute} is {type(value).__name__}; values are numbers, strings or booleans"
        )
    if declared in ("any", actual):
        return cast(Value, value)
    if declared == "float" and actual == "int":
        try:
            return float(value)
        except OverflowError:
            raise EventError(f"{event_type.name}.{attribute} is an integer that is too large for a float") from None
    raise EventError(f"{event_type.name}.{attribute} is declared {declared}, but {value!r} is {actual}")


def _text(node: Any) -> str:
    name = plain(node)
    if type(name) is not str:
        raise EventError(f"node is {node!r}, a {type(node).__name__}; it must be a string")
    return name


class Event(tuple[Any, ...]):
    """Something that happened at one instant; ``(node, seq)`` identifies it, ``key`` orders it."""

    __slots__ = ()

    def __new__(
        cls,
        event_type: EventType | str,
        ts: int,
        node: str = "",
        seq: int = 0,
        attributes: Mapping[str, Value] | None = None,
    ) -> Event:
        """Build and check one event. A type given by name takes the attributes' kinds from their values."""
        by_name = attributes or {}
        if isinstance(event_type, str):
            kinds = tuple((name, kind_of(plain(value)) + "?") for name, value in by_name.items())
            event_type = EventType(event_type, kinds)
        for name in by_name:
            if event_type.position(name) is None:
                listing = ", ".join(event_type.attributes) or "no attributes"
                raise EventError(f"{event_type.name} has no attribute {name!r}; it has: {listing}")
        values = [conform(event_type, name, by_name.get(name)) for name in event_type.attributes]
        if type(ts) is not int or type(seq) is not int or type(node) is not str:
            ts, node, seq = whole("ts", ts), _text(node), whole("seq", seq)
        return tuple.__new__(cls, (ts, node, seq, event_type, *values))

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Event:
        """The event whose row this is, unchecked: for readers and codecs that have checked it already."""
        return tuple.__new__(cls, row)

    @property
    def ts(self) -> int:
        return cast(int, self[0])

    @property
    def node(self) -> str:
        return cast(str, self[1])

    @property
    def seq(self) -> int:
        return cast(int, self[2])

    @property
    def event_type(self) -> EventType:
        return cast(EventType, self[3])

    @property
    def type(self) -> str:
        return cast(str, self[3].name)

    @property
    def attributes(self) -> dict[str, Value]:
        return dict(zip(self[3].attributes, self[4:], strict=False))

    @property
    def key(self) -> Key:
        return self[:3]

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"{self.type}({inner})@{self.ts} {self.node}#{self.seq}"

    def __reduce__(self) -> tuple[Any, ...]:
        return Event.from_row, (tuple(self),)
