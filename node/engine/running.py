"""All matches of a whole input, in one loop: what programs that use the engine as a library want.

for composite in Engine(rules).run(events):
    print(composite.type, composite.attributes)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.protocol.composites import Composite
from headwater.protocol.errors import EventError
from headwater.protocol.events import Event

if TYPE_CHECKING:
    from headwater.node.engine.engine import Engine

BATCH_EVENTS: Final = 500  # fed at once, between two watermarks


def batch_events(engine: Engine) -> int:
    """How many events to feed at once: one, where the stream waits for what an event needs of remote tables."""
    return 1 if engine.asking is not None and any(rule.pauses for rule in engine.asking.waiting_of) else BATCH_EVENTS


def run(engine: Engine, inputs: Iterable[Event | Mapping[str, Any]], lateness_us: int | None) -> Iterator[Composite]:
    """See ``Engine.run``."""
    events = _events(inputs)
    if lateness_us is None:
        in_order = sorted(events, key=lambda event: event[:2])
        yield from fed(engine, _distinct(_numbered(in_order)))
    else:
        yield from fed(engine, _numbered(events), lateness_us, 1)
    yield from engine.close()


def fed(engine: Engine, events: Iterable[Event], lateness_us: int = 0, size: int | None = None) -> Iterator[Composite]:
    """Feed events in batches; the watermark follows the greatest time, behind it by the lateness.

    Without lateness the events must be in the order of time. The engine is not closed at the end.
    """
    size = size or batch_events(engine)
    batch: list[Event] = []
    newest: float = float("-inf")
    for event in events:
        batch.append(event)
        newest = max(newest, event[0])
        if len(batch) >= size:
            yield from engine.feed(batch)
            yield from engine.advance(newest - lateness_us - 1)
            batch = []
    yield from engine.feed(batch)


def _events(inputs: Iterable[Event | Mapping[str, Any]]) -> Iterator[Event]:
    for number, event in enumerate(inputs, 1):
        if isinstance(event, Event):
            yield event
        elif isinstance(event, Mapping):
            yield _event(event, number)
        else:
            raise EventError(
                f"event {number} is a {type(event).__name__}; give an Event, or a mapping with type, ts and attributes"
            )


def _event(mapping: Mapping[str, Any], number: int) -> Event:
    """An event of a mapping as a line of a trace has it; -1 for a number that is still to be given."""
    for name in ("type", "ts"):
        if name not in mapping:
            raise EventError(f"event {number} has no {name!r}: {dict(mapping)!r:.100}")
    attributes = {name: value for name, value in mapping.items() if name not in ("type", "ts", "node", "seq")}
    return Event(str(mapping["type"]), mapping["ts"], mapping.get("node", "local"), mapping.get("seq", -1), attributes)


def _distinct(events: Iterable[Event]) -> Iterator[Event]:
    """Two events under one identity would be taken for one. (The same event twice is one.)"""
    by_identity: dict[tuple[str, int], Event] = {}
    for event in events:
        other = by_identity.setdefault(event[1:3], event)
        if other != event:
            raise EventError(
                f"two events have the node {event[1]!r} and the seq {event[2]}: {other!r} and {event!r}; give each "
                "event of a node a seq of its own, or give mappings without seq, which are numbered"
            )
        yield event


def _numbered(events: Iterable[Event]) -> Iterator[Event]:
    """Events without a number get the next one of their node, in the order they come."""
    numbers: dict[str, int] = {}
    are_numbered: bool | None = None
    for event in events:
        has_number = event[2] >= 0
        if are_numbered is None:
            are_numbered = has_number
        if has_number != are_numbered:
            raise EventError(f"some events have a seq and others do not; number all of them or none ({event!r:.100})")
        if are_numbered:
            yield event
        else:
            number = numbers[event[1]] = numbers.get(event[1], 0) + 1
            yield Event.from_row((event[0], event[1], number, *event[3:]))
