"""Composite events: what a rule derives from the events of one match.

Like an event, a composite is a tuple with a face: ``(spec, binding, binding, ..)``, one binding per positive role in
pattern order: a row, a tuple of rows for a repeated role, or None for a role of an OR branch that was not taken; after
them the values of aggregates that its attributes need.
Identity, attributes, start and end are computed when they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple, cast

import msgpack

from headwater.protocol.errors import EventError
from headwater.protocol.events import Event, EventType, Key, Value
from headwater.protocol.pattern import Chain, Disjunction, Leaf, Part, Rule, positive_leaves, repeated_roles

_first, _second, _third = itemgetter(0), itemgetter(1), itemgetter(2)


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
    latest: int | None = None
    """Where in a composite the binding stands that is the latest event of every match, if one always is."""
    places: tuple[tuple[int, int] | None, ...] = ()
    """Of each attribute that is but a value of one event of the match: its binding in a composite, and the column."""


class LookedUp(NamedTuple):
    """A value of a remote table that a match rests on."""

    table: str
    key: tuple[Value, ...]
    value: Any
    fetched_us: int | None = None
    """When it came; None: it was at hand from the start."""
    on_failure: str = ""
    """If it could not be had: what was done instead."""

    def to_json(self) -> dict[str, Any]:
        said = {"table": self.table, "key": list(self.key), "value": self.value, "fetched": self.fetched_us}
        return said | {"on_failure": self.on_failure} if self.on_failure else said


class Composite(tuple[Any, ...]):
    """A composite event. Two finds of the same match are equal and have the same ``id``."""

    __slots__ = ()

    looked_up: tuple[LookedUp, ...] = ()
    """The values of remote tables that it rests on itself, where these are said."""

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
        parts: list[tuple[str, Any]] = []
        for role, repeated, binding in zip(spec.roles, spec.repeated, self[1:], strict=False):
            if repeated and binding is not None:
                parts += [(role, row) for row in binding]
            elif binding is not None:
                parts.append((role, binding))
        return parts

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
        """Orders composites among all events: right after the latest part, wherever the match was found."""
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
        said = {
            "id": self.id,
            "type": self.type,
            "ts": self.ts,
            "start": self.start[0],
            "end": self.end[0],
            "rule": self.rule,
            "attributes": self.attributes,
            "events": parts,
        }
        if remote := self.remote():
            said["remote"] = [value.to_json() for value in remote]
        return said

    def remote(self) -> list[LookedUp]:
        """The values of remote tables that it rests on, with those of the composites among its parts, each once."""
        found = dict.fromkeys(self.looked_up)
        for _, row in self.parts():
            if isinstance(row[3], Composite):
                found |= dict.fromkeys(row[3].remote())
        return list(found)

    def __lt__(self, other: object) -> bool:
        # Rows of composites with the same end meet here; a primitive row with that key comes before them all.
        return isinstance(other, Composite) and self._tail() < other._tail()

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, Composite) or self._tail() > other._tail()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Composite):
            return False
        if self[0] is other[0] and self[0].values is not _carried:
            return tuple.__eq__(self, other)
        # One of them may have come over a link, from an engine of its own, or from a snapshot, and then its parts have
        # no values: what counts is which match it is.
        return (self.rule, self.version) == (other.rule, other.version) and self._tail() == other._tail()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        parts = " ".join(f"{role}:{row[1]}#{row[2]}" for role, row in self.parts())
        return f"{self.type}({inner})@{self.ts} [{parts}]"


class InformedComposite(Composite):
    """A composite event that says which values of remote tables it rests on."""

    looked_up: tuple[LookedUp, ...]


def informed(composite: Composite, looked_up: Iterable[LookedUp]) -> Composite:
    """The composite with these values."""
    values = tuple(looked_up)
    if not values:
        return composite
    says = InformedComposite(composite)
    says.looked_up = values
    return says


def rows_of(composites: Sequence[Composite]) -> list[tuple[Any, ...]]:
    """What ``row`` gives for each of them; of many of one rule in less time."""
    specs = set(map(_first, composites)) if len(composites) > 1 else ()
    spec = next(iter(specs)) if len(specs) == 1 else None
    if spec is None or spec.latest is None:
        return [match.row() for match in composites]
    latest = list(map(itemgetter(spec.latest), composites))
    heads = zip(map(_first, latest), map(_second, latest), map(_third, latest), composites, strict=True)
    if not spec.type.attributes:
        return list(heads)
    values = spec.values
    return [(*head, *values(*head[3][1:])) for head in heads]


def start_of(row: tuple[Any, ...]) -> Key:
    """The start key of the event in a row."""
    inner = row[3]
    return inner.start if isinstance(inner, Composite) else row[:3]


def own_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key that orders the event in a row among all events."""
    inner = row[3]
    return inner.key if isinstance(inner, Composite) else (*row[:3], 0)


# -------------------------------------------------------------------------------------------------------- on the wire


def to_wire(composite: Composite) -> list[Any]:
    """Plain data that msgpack can hold: ``[rule, version, type, [value, ..], [part, ..]]``; a composite that says which
    values of remote tables it rests on has a last entry ``[[table, key, value, fetched, on_failure], ..]``.

    A part is ``[role, ts, node, seq, type]``, or ``[role, composite on the wire]``. Of events only what names them
    travels; the attributes of the composite itself go along as values.
    """
    spec = composite.spec
    plain = [
        spec.rule,
        spec.version,
        spec.type.name,
        [_plain(value) for value in spec.values(*composite[1:])],
        [
            [role, to_wire(row[3])] if isinstance(row[3], Composite) else [role, row[0], row[1], row[2], row[3].name]
            for role, row in composite.parts()
        ],
    ]
    if composite.looked_up:
        plain.append([[_plain(field) for field in value] for value in composite.looked_up])
    return plain


def from_wire(data: Any, specs: Mapping[tuple[str, int], CompositeSpec]) -> Composite:
    """The composite that ``to_wire`` gave this data for: the same id, key, start, end, JSON and attributes.

    ``specs`` holds what ``wire_spec`` made, by rule name and version, for the rule and for those of composite parts.
    The rows of primitive parts have no attribute values. Anything else than such data is an EventError.
    """
    try:
        rule, version, type_name, values, parts, *said = data
        spec = specs.get((rule, version))
        if spec is None:
            raise EventError(f"a composite event of rule {rule!r} version {version!r}, which is not known here")
        if spec.type.name != type_name or len(spec.type.attributes) != len(values):
            raise EventError(f"a composite event of rule {rule!r} is not a {spec.type!r}")
        bound: dict[str, list[tuple[Any, ...]]] = {role: [] for role in spec.roles}
        for role, *inner in parts:
            if len(inner) == 1:
                bound[role].append(from_wire(inner[0], specs).row())
            else:
                ts, node, seq, name = inner
                if type(ts) is not int or type(node) is not str or type(seq) is not int or type(name) is not str:
                    raise EventError(f"a composite event of rule {rule!r} has a malformed part {inner!r:.60}")
                bound[role].append((ts, node, seq, EventType(name)))
        bindings: list[Any] = []
        for role, repeated in zip(spec.roles, spec.repeated, strict=True):
            rows = bound[role]
            if len(rows) > 1 and not repeated:
                raise EventError(f"a composite event of rule {rule!r} has {len(rows)} events as {role!r}")
            bindings.append((tuple(rows) if repeated else rows[0]) if rows else None)
        if not parts or (spec.plain and None in bindings):
            raise EventError(f"a composite event of rule {rule!r} lacks parts")
        composite = Composite((spec, *bindings, tuple(_value(value) for value in values)))
        return informed(composite, _looked_up(*said)) if said else composite
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise EventError(f"not a composite event: {error!r}") from error


def _looked_up(said: Any) -> list[LookedUp]:
    found = [LookedUp(*map(_value, fields)) for fields in said]
    for value in found:
        kinds = type(value.table), type(value.key), type(value.on_failure), type(value.fetched_us)
        if kinds[:3] != (str, tuple, str) or kinds[3] not in (int, type(None)):
            raise EventError(f"a composite event rests on a malformed value {value!r:.60}")
    return found


def wire_spec(rule: Rule) -> CompositeSpec:
    """What ``from_wire`` needs to know of a rule whose composites come over a link."""
    root = rule.pattern.root
    event_type = EventType(rule.emits, tuple((output.name, output.kind + "?") for output in rule.attributes))
    roles = tuple(leaf.role for leaf in positive_leaves(root))
    repeats = repeated_roles(root)
    repeated = tuple(role in repeats for role in roles)
    return carrying_spec(rule.name, rule.version, event_type, roles, repeated, not repeats and not _has_choice(root))


def wire_specs(rules: Iterable[Rule]) -> dict[tuple[str, int], CompositeSpec]:
    """``wire_spec`` of each rule by its name and version."""
    return {(rule.name, rule.version): wire_spec(rule) for rule in rules}


@lru_cache(maxsize=4096)
def carrying_spec(
    rule: str, version: int, event_type: EventType, roles: tuple[str, ...], repeated: tuple[bool, ...], plain: bool
) -> CompositeSpec:
    """The spec of composites that carry their attribute values with them, as a tuple after the bindings."""
    return CompositeSpec(rule, version, event_type, roles, repeated, _carried, plain)


def _carried(*bindings: Any) -> tuple[Value, ...]:
    return cast(tuple[Value, ...], bindings[-1])


def _has_choice(part: Part | Chain) -> bool:
    """Whether some role may stay unbound."""
    if isinstance(part, Leaf | Chain):
        return False
    return isinstance(part, Disjunction) or any(map(_has_choice, getattr(part, "parts", ())))


def _plain(value: Any) -> Any:
    """Integers that msgpack cannot hold become text, tuples (of remote tables) lists that say so."""
    if isinstance(value, tuple):
        return ["()", *map(_plain, value)]
    if type(value) is int and not -(1 << 63) <= value < 1 << 64:
        return ["int", str(value)]
    return value


def _value(plain: Any) -> Any:
    if not isinstance(plain, list):
        return plain
    kind, *inside = plain
    if kind == "int":
        return int(inside[0])
    if kind != "()":
        raise ValueError(f"unknown kind of value {kind!r}")
    return tuple(map(_value, inside))
