"""Messages about aggregates in the network: a child is told once what to aggregate, then only for which events.

The events stay where they enter. A node asks its children, adds what it has itself, and answers with one tally.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.protocol.events import Key, Value
from headwater.protocol.expressions import Expression
from headwater.protocol.tallies import Part

KNOWN = "$known"
"""The role of what the asker knows, in a Tally's conditions: its attributes are numbered."""


@dataclass(frozen=True, slots=True)
class Tally:
    """A stream of answers to questions that are all alike: a function of an attribute over events of one type.

    ``where`` are conjuncts over the event alone (role SUBJECT); ``looks`` compare it (SUBJECT) with values that come
    with each question (KNOWN, whose attributes are called "0", "1", ..).
    """

    type: str
    function: str
    attribute: str | None
    where: tuple[Expression, ...] = ()
    looks: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """For all events with a key from ``least`` on and before ``before``; ``serial`` names it in the answer."""

    serial: int
    least: Key
    before: Key
    known: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class TallyRequest:
    """To a child: answer these as soon as all events in question are there.

    ``floor_us``: no later question is about anything before this. None: as before.
    """

    number: int
    questions: tuple[Question, ...]
    floor_us: float | None = None


@dataclass(frozen=True, slots=True)
class TallyAnswer:
    """To the parent: what is known here and below, by the serial of the question."""

    number: int
    answers: tuple[tuple[int, Part], ...]
