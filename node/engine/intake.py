"""How rows reach the stores that read them: one handler per event type, whatever the order of its columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headwater.protocol.errors import EventError
from headwater.protocol.events import Event, EventType, conform

Row = tuple[Any, ...]
Handler = Callable[[Row], None]


def all_of(handlers: Sequence[Handler]) -> Handler:
    """One handler that calls them all."""
    if len(handlers) == 1:
        return handlers[0]
    several = tuple(handlers)

    def handle(row: Row) -> None:
        for handler in several:
            handler(row)

    return handle


def reordering(own: EventType, received: EventType, handler: Handler) -> Handler:
    """Events of an equally named type with other columns are brought into the engine's order, and checked."""
    columns: list[tuple[str, int | None, bool]] = []
    for attribute, kind, optional in zip(own.attributes, own.kinds, own.optional, strict=True):
        place = received.position(attribute)
        if place is None and not optional:
            raise EventError(f"{received!r} lacks the attribute {attribute!r} that the rules know as {own!r}")
        as_it_is = place is None or (
            received.kind(attribute) == kind and (optional or not received.is_optional(attribute))
        )
        columns.append((attribute, place, as_it_is))

    def handle(row: Row) -> None:
        values = []
        for attribute, place, as_it_is in columns:
            value = None if place is None else row[place]
            values.append(value if as_it_is else conform(own, attribute, value))
        handler(Event.from_row((row[0], row[1], row[2], own, *values)))

    return handle


def widening(declared: EventType, width: int, handler: Handler) -> Handler:
    """Rows of composites from outside; rules here that emit the type, too, may have given it further columns."""
    row_width = 4 + len(declared.attributes)
    missing = (None,) * (width - row_width)

    def handle(row: Row) -> None:
        if len(row) != row_width:
            raise EventError(f"a composite row with {len(row) - 4} values, but {declared!r} was declared")
        handler((*row, *missing) if missing else row)

    return handle
