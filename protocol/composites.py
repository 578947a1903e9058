"""Composite events: what a rule derives from the events of one match.

Like an event, a composite is a tuple with a face: ``(spec, binding, binding, ..)``, one binding per positive role in
pattern order: a row, a tuple of rows for a repeated role, or None for a role of an OR branch that was not taken; after
them the values of aggregates that its attributes need.
Identity, attributes, start and end are computed when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast

import msgpack

from protocol.events import Event, EventType, Key, Value


@dataclass(frozen=True, slots=True, eq=False)
class CompositeSpec:
    """What all composites of one rule have in common."""

    rule: str
    version: int
    type: EventType
    roles: tuple[str, ...]
    repeated: tuple[bool, ...]
    values: Callable[..., tuple[Value, ...]]
    """Called with the bindings, gives the attribute values in the order of ``type.attributes``."""
    plain: bool = False
    """Every match binds every role to one event."""


class Composite(tuple[Any, ...]):
    """A composite event. Two finds of the same match are equal and have the same ``id``."""

    __slots__ = ()

    @property
    def spec(self) -> CompositeSpec:
        return cast(CompositeSpec, self[0])

    @property
    def rule(self) -> str:
        return self.spec.rule

    @property
    def version(self) -> int:
        return self.spec.version

    @property
    def type(self) -> str:
        return self.spec.type.name

    def parts(self) -> list[tuple[str, Any]]:
        """``(role, row)`` of every part, a repeated role element by element; row[3] of a composite is a Composite."""
        spec = self[0]
        if spec.plain:
            return list(zip(spec.roles, self[1:], strict=False))
        found: list[tuple[str, Any]] = []
        for role, repeated, binding in zip(spec.roles, spec.repeated, self[1:], strict=False):
            if repeated and binding is not None:
                found += [(role, row) for row in binding]
            elif binding is not None:
                found.append((role, binding))
        return found

    @property
    def events(self) -> list[tuple[str, Event | Composite]]:
        """The parts under their roles."""
        return [(role, row[3] if isinstance(row[3], Composite) else Event.from_row(row)) for role, row in self.parts()]

    @property
    def id(self) -> str:
        """128 bits over rule name, rule version, and role and identity of each part in pattern order."""
        identity = [
            [role, row[3].id if isinstance(row[3], Composite) else [row[1], row[2]]] for role, row in self.parts()
        ]
        packed = cast(bytes, msgpack.packb([self[0].rule, self[0].version, identity]))
        return blake2b(packed, digest_size=16).hexdigest()

    @property
    def start(self) -> Key:
        """Key of the earliest primitive part."""
        return min([start_of(row) for _, row in self.parts()])

    @property
    def end(self) -> Key:
        """Key of the latest primitive part."""
        latest: Key = max([row[:3] for _, row in self.parts()])
        return latest

    @property
    def ts(self) -> int:
        return self.end[0]

    @property
    def key(self) -> tuple[Any, ...]:
        """Orders composites among all events: right after the latest part, whoever found the match."""
        return (*self.end, 1, *self._tail())

    def _tail(self) -> tuple[Any, ...]:
        return self[0].rule, self[0].version, [(role, own_key(row)) for role, row in self.parts()]

    @property
    def attributes(self) -> dict[str, Value]:
        return dict(zip(self.spec.type.attributes, self.spec.values(*self[1:]), strict=True))

    def row(self) -> tuple[Any, ...]:
        """This composite as an input of another rule."""
        return (*self.end, self, *self.spec.values(*self[1:]))

    def to_json(self) -> dict[str, Any]:
        """The documented output form of a composite event."""
        parts = []
        for role, row in self.parts():
            inner = row[3]
            part = {"role": role, "type": inner.type if isinstance(inner, Composite) else inner.name}
            part |= {"ts": row[0], "node": row[1], "seq": row[2]}
            if isinstance(inner, Composite):
                part["id"] = inner.id
            parts.append(part)
        return {
            "id": self.id,
            "type": self.type,
            "ts": self.ts,
            "start": self.start[0],
            "end": self.end[0],
            "rule": self.rule,
            "attributes": self.attributes,
            "events": parts,
        }

    def __lt__(self, other: object) -> bool:
        # Rows of composites with the same end meet here; a primitive row with that key comes before them all.
        return isinstance(other, Composite) and self._tail() < other._tail()

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, Composite) or self._tail() > other._tail()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composite) and tuple.__eq__(self, other)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        parts = " ".join(f"{role}:{row[1]}#{row[2]}" for role, row in self.parts())
        return f"{self.type}({inner})@{self.ts} [{parts}]"


def start_of(row: tuple[Any, ...]) -> Key:
    """The start key of the event in a row."""
    inner = row[3]
    return inner.start if isinstance(inner, Composite) else row[:3]


def own_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key that orders the event in a row among all events."""
    inner = row[3]
    return inner.key if isinstance(inner, Composite) else (*row[:3], 0)
