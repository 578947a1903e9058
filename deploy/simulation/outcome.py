"""The raw outcome of a simulated run, from which figures are computed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from headwater.node.observe.accounts import KINDS as KINDS
from headwater.node.observe.accounts import Traffic
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event or composite event that reached a sink."""

    sink: int
    """Position of the sink in the network."""
    node: str
    item: Composite | Event
    delivered_us: int


@dataclass(slots=True)
class Outcome:
    """Everything a run did."""

    strategy: str
    born: list[Event] = field(default_factory=list)
    """The global trace: every event that entered the network (late ones are not part of it)."""
    delivered: list[Delivery] = field(default_factory=list)
    traffic: dict[tuple[str, str, str], Traffic] = field(default_factory=dict)
    """By (from, to, kind)."""
    tasks: dict[str, list[str]] = field(default_factory=dict)
    """For every node its tasks in words: partial rules, whole rules, relays."""
    tables: dict[str, Any] = field(default_factory=dict)
    """For every node its tables as they are at the end: advertisements, subscriptions, tasks, routes, histories."""
    counters: Counter[str] = field(default_factory=Counter)
    rule_failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By rule or function: how often it could not be evaluated, and the last sentence about it."""
    planner_failures: list[str] = field(default_factory=list)
    """Where the planner failed, and what was done instead, in sentences."""
    held_from: list[tuple[Any, int]] = field(default_factory=list)
    """Changes that were made while the network ran, each with the event time from which it holds."""
    forgotten: list[tuple[Event, ...]] = field(default_factory=list)
    """For every node that was lost, or lost its memory, while the network ran: the events that were born there before.
    Trees that were built afterwards do not have them."""
    started_us: int = 0
    """Virtual time at which the first event could be born (the trees stand and the rules are deployed)."""
    finished_us: int = 0

    def composites(self, sink: int | None = None) -> list[Composite]:
        """The composite events that reached this sink, or all sinks, in the order in which they were delivered."""
        reached = (delivery.item for delivery in self.delivered if sink is None or delivery.sink == sink)
        return [item for item in reached if isinstance(item, Composite)]
