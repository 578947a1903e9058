"""One end of a link whose ends may know different event types and rules: what is needed to read a message travels with
the first message that needs it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, cast

import msgpack

from headwater.protocol.composites import CompositeSpec, carrying_spec
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import Message
from headwater.protocol.wire.messages import SCHEMAS, Wire, checked, read_piecewise, read_plain
from headwater.protocol.wire.rows import RowReader, Schemas, made_of
from headwater.protocol.wire.rule_encoding import CodecError

SCHEMAS_MAX: Final = 10_000  # of one link: far more types and rules than any network has, far less than hurts

SCHEMAS_HEAD: Final = bytes([0x93, SCHEMAS])
"""The beginning of a list of three in msgpack: this, the schemas, and the message that needs them."""


class LinkWire:
    """One end of a link. It tells the other end once what its messages are made of, and remembers what it was told.

    Messages must be decoded in the order in which they were encoded, and none may be lost. Ends that were saved go on
    where they were.
    """

    def __init__(self, types: Iterable[EventType]) -> None:
        """``types``: what this node knows of event types; all that it sends are among them."""
        self._types = tuple(sorted(types, key=lambda declared: declared.name))
        self._begin({}, {}, {})

    def _begin(
        self, announced: Schemas, types: dict[int, EventType], specs: dict[tuple[str, int], CompositeSpec]
    ) -> None:
        self._wire = _shared_wire(self._types)
        self._named = {declared.name: declared for declared in self._types}
        self._announced = announced
        """Types by number and parts of specs by (rule, version), as the other end knows them from us."""
        self._heard_types = types
        self._heard_specs = specs
        self._reader = RowReader(types, specs)

    def reset(self) -> None:
        """The other end remembers nothing of us, and we shall hear nothing any more of what it has said."""
        self._begin({}, {}, {})

    def retyped(self, types: Iterable[EventType]) -> None:
        """The node knows other types from now on; what was said so far holds."""
        self._types = tuple(sorted(types, key=lambda declared: declared.name))
        self._begin(self._announced, self._heard_types, self._heard_specs)

    @property
    def wire(self) -> Wire:
        """What encodes for all links of this process with the same types, for accounts."""
        return self._wire

    def encode(self, message: Message) -> bytes:
        data, used = self._wire.encode_noting(message)
        if not used:
            return data
        announced, fresh = self._announced, []
        for key, schema in used.items():
            content: Any = schema if isinstance(schema, EventType) else made_of(schema)
            if announced.get(key) != content:
                announced[key] = content
                fresh.append(_type_schema(key, content) if content is schema else _spec_schema(*content))
        return b"".join((SCHEMAS_HEAD, cast(bytes, msgpack.packb(fresh)), data)) if fresh else data

    def decode(self, data: bytes) -> Message:
        """The message that these bytes are, or a CodecError. Schemas that came with it are known from then on."""
        return checked(lambda: self._read(data))

    def _read(self, data: bytes) -> Message:
        message = read_piecewise(data, self._reader)
        if message is not None:
            return message
        plain = msgpack.unpackb(data)
        match plain:
            case [7, list(schemas), inside]:
                for schema in schemas:
                    self._learn(schema)
                plain = inside
        return read_plain(plain, self._reader)

    def _learn(self, schema: Any) -> None:
        if len(self._heard_types) + len(self._heard_specs) >= SCHEMAS_MAX:
            raise CodecError(f"more than {SCHEMAS_MAX} event types and rules were declared on one link")
        match schema:
            case [int(number), str(name), list(attributes)]:
                event_type = _read_type(name, attributes)
                own_type = self._named.get(name, event_type)
                if own_type is not event_type:
                    raise CodecError(
                        f"events {event_type!r}, which are {own_type!r} here; give all nodes the same network file"
                    )
                self._heard_types[number] = event_type
            case [str(rule), int(version), str(name), list(attributes), list(roles), list(repeated), bool(is_plain)]:
                shape = [*map(type, roles), *map(type, repeated)]
                if len(roles) != len(repeated) or shape != [*[str] * len(roles), *[bool] * len(roles)]:
                    raise CodecError(f"a malformed composite of rule {rule!r:.60}")
                made_from = _read_type(name, attributes), tuple(roles), tuple(repeated), is_plain
                self._heard_specs[rule, version] = carrying_spec(rule, version, *made_from)
            case _:
                raise CodecError("a malformed declaration of an event type or a composite")

    def __getstate__(self) -> Any:
        return self._types, self._announced, self._heard_types, [made_of(spec) for spec in self._heard_specs.values()]

    def __setstate__(self, state: Any) -> None:
        self._types, announced, types, specs = state
        self._begin(announced, types, {(parts[0], parts[1]): carrying_spec(*parts) for parts in specs})


@lru_cache(maxsize=16)
def _shared_wire(types: tuple[EventType, ...]) -> Wire:
    """One for all links, so that a row that goes over several of them is encoded once."""
    return Wire(types)


def _type_schema(number: int, event_type: EventType) -> list[Any]:
    return [number, *event_type.declaration()]


def _spec_schema(rule: str, version: int, event_type: EventType, roles: Any, repeated: Any, plain: bool) -> list[Any]:
    return [rule, version, *event_type.declaration(), roles, repeated, plain]


def _read_type(name: str, attributes: list[Any]) -> EventType:
    pairs = [(attribute, kind) for attribute, kind in attributes]
    if not all(type(text) is str for pair in pairs for text in pair):
        raise CodecError(f"a malformed event type {name!r:.60}")
    return EventType(name, pairs)
