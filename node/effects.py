"""What goes into a node's core and what comes out: plain values, performed by a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.events import Event, EventType
from protocol.messages import Message
from protocol.pattern import Rule
from protocol.subscriptions import Subscription
from protocol.tree_messages import TreeOrder

# ------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Received:
    """A message from a neighbour."""

    neighbour: str
    message: Message


@dataclass(frozen=True, slots=True)
class Born:
    """Events of local sources, just arrived."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class SourcesEnded:
    """The local sources of these types will never send anything any more."""

    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the core has set is due. A core ignores timers it does not remember."""

    name: str


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of the coordinator about trees."""

    order: TreeOrder


@dataclass(frozen=True, slots=True)
class Configure:
    """From the coordinator: the event types of the network, those of its rules' composites, and the strategy."""

    types: tuple[EventType, ...]
    composites: tuple[EventType, ...]
    strategy: str


@dataclass(frozen=True, slots=True)
class AddSource:
    """From the coordinator: events of the type enter here, at most so late."""

    type: str
    lateness_us: int


@dataclass(frozen=True, slots=True)
class AddSink:
    """From the coordinator: a local sink wants to hear of this."""

    sink: int
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class StoreRule:
    """From the coordinator: keep this rule, active from ``since_us`` on, for whoever needs it."""

    rule: Rule
    since_us: int | None = None


Input = Received | Born | SourcesEnded | TimerFired | Ordered | Configure | AddSource | AddSink | StoreRule

# ------------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Send:
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
class TreeStands:
    """To the coordinator: the tree that has this node as its root is complete."""

    tree: str
    epoch: int


Effect = Send | Deliver | SetTimer | Report | TreeStands
