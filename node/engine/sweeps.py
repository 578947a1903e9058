"""When a store looks next for what it can drop.

It is part of a snapshot: what a store holds decides what its node asks for, so an engine that is restored must drop
things when the one that was saved would have.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Sweeps(NamedTuple):
    """The state of a store's sweeps."""

    schedule: list[tuple[float, int]]
    """A heap: by buffer, the watermark at which it is looked at next."""
    asleep: dict[str, list[int]]
    """By type the buffers that are not looked at until an event of the type comes."""
    numbered: int
    """The number of the event at which buffers are looked at next, under a count window."""
    swept_number: int
    machines_due: float


def sweeps_of(plain: Any) -> Sweeps | None:
    """What was saved; None: by a version that did not save it."""
    if plain is None:
        return None
    schedule, asleep, numbered, swept_number, machines_due = plain
    by_type = {str(name): [int(position) for position in positions] for name, positions in asleep}
    in_order = [(float(due), int(position)) for due, position in schedule]
    return Sweeps(in_order, by_type, int(numbered), int(swept_number), float(machines_due))
