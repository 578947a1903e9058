"""What goes into a node's core and what comes out: plain values, performed by a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from protocol.events import Event
from protocol.messages import Message
from protocol.plan_messages import Order, ReportToCoordinator

# ------------------------------------------------------------------------------------------------------------- inputs


class Received(NamedTuple):  # a tuple, like sends: there is one for every message
    """A message from a neighbour."""

    neighbour: str
    message: Message


@dataclass(frozen=True, slots=True)
class Born:
    """Events of a local source, just arrived."""

    source: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class SourcesEnded:
    """These local sources will never send anything any more."""

    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the core has set is due. A core ignores timers it does not remember."""

    name: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of the coordinator."""

    order: Order


Input = Received | Born | SourcesEnded | TimerFired | Ordered

# ------------------------------------------------------------------------------------------------------------- effects


class Send(NamedTuple):
    """A message for a neighbour. Links keep the order of messages and lose none."""

    neighbour: str
    message: Message


@dataclass(frozen=True, slots=True)
class Deliver:
    """An event or a composite event for a local sink."""

    sink: int
    row: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call back at this time. ``idle`` timers are housekeeping: nobody waits for them."""

    at_us: int
    name: str
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Something worth counting happened."""

    counter: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Tell:
    """Something the coordinator waits for."""

    report: ReportToCoordinator


Effect = Send | Deliver | SetTimer | Report | Tell
