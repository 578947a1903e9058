"""The inputs and effects of a node's core: plain values, which a runtime delivers and performs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.node.engine.remote_memory import Key, Place
from headwater.protocol.events import Event
from headwater.protocol.messages.neighbour import Message
from headwater.protocol.messages.plans import Order, ReportToCoordinator
from headwater.protocol.remote import Versions

# ------------------------------------------------------------------------------------------------------------- inputs


class MessageReceived(NamedTuple):  # a tuple, like sends: there is one for every message
    """A message from a neighbour."""

    neighbour: str
    message: Message


@dataclass(frozen=True, slots=True)
class Born:
    """Events of a local source, just arrived. A replayed source also promises that nothing at or before
    ``watermark`` follows.

    An event of a live source is part of the trace only if it is not late; events of a replayed one cannot be late.
    """

    source: int
    events: tuple[Event, ...]
    watermark: float | None = None


@dataclass(frozen=True, slots=True)
class BornTogether:
    """Events of several sources that belong together, in one step: a reader of several of them gets them in order."""

    births: tuple[Born, ...]


@dataclass(frozen=True, slots=True)
class SourcesEnded:
    """These local sources will never send anything any more."""

    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SourcesUnheard:
    """What these live sources have published since then may wait somewhere for this node, which could not hear it.

    Until they are heard again the clock promises nothing more for them than it has promised until then.
    """

    sources: tuple[int, ...]
    since_us: int


@dataclass(frozen=True, slots=True)
class SourcesHeard:
    """Everything that waited for this node has been taken: the clock promises for these sources again."""

    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the core has set is due. A core ignores timers it does not remember."""

    name: str


@dataclass(frozen=True, slots=True)
class OrderReceived:
    """An order of the coordinator."""

    order: Order


@dataclass(frozen=True, slots=True)
class LinkReset:
    """The neighbour has begun a new life without memory: nothing of the old one will be sent or received any more."""

    neighbour: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """Elements of remote tables that the core has asked for: table, key and element, None for a key that the table does
    not have. One that was not asked for, or comes again, changes nothing."""

    elements: tuple[tuple[str, Key, Versions | None], ...]
    took_us: int = 0
    """How long the question took, as far as the runtime knows: decides what is fetched ahead, and never results."""


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """These elements could not be had. The core asks for them again."""

    places: tuple[Place, ...]


Input = (
    MessageReceived
    | Born
    | BornTogether
    | SourcesEnded
    | SourcesUnheard
    | SourcesHeard
    | TimerFired
    | OrderReceived
    | LinkReset
    | Fetched
    | FetchFailed
)

# ------------------------------------------------------------------------------------------------------------- effects


class Send(NamedTuple):
    """A message for a neighbour. Links keep the order of messages and lose none."""

    neighbour: str
    message: Message


class Deliver(NamedTuple):
    """Events or composite events for a local sink, at least one, in this order."""

    sink: int
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call back at this time. ``idle`` timers are housekeeping: nothing waits for them."""

    at_us: int
    name: str
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Something worth counting happened."""

    counter: str
    count: int = 1
    rule: str = ""
    """The rule (or condition) that it concerns, if it does, and what its author should know."""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Tell:
    """Something the coordinator waits for."""

    report: ReportToCoordinator


@dataclass(frozen=True, slots=True)
class Fetch:
    """Elements of remote tables that are needed. The core goes on; they come with ``Fetched``, together or one by one,
    or with ``FetchFailed``."""

    places: tuple[Place, ...]


Effect = Send | Deliver | SetTimer | Report | Tell | Fetch
