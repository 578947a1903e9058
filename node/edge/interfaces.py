"""The interfaces of source and sink adapters: what they are given and what they promise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headwater.node.edge.dead_letters import DeadLetters
from headwater.node.edge.devices import Devices
from headwater.node.edge.presence import Presence
from headwater.node.edge.trace_order import Turns
from headwater.protocol.events import Value


class Arrival(NamedTuple):
    """An event on its way into the network."""

    ts: int | None
    """When it happened; None: it happens now."""
    device: str | None
    """With the counter the identity that the device gave the event. A device that is called like the node itself is the
    trace of a node that numbers its events: the counter is the ``seq``."""
    counter: int | None
    values: tuple[Value, ...]


class Hearing(Protocol):
    """What the adapter of a source reports if the other end holds events while the source cannot be heard."""

    def connected(self, source: int) -> None: ...

    def lost(self, source: int) -> None: ...

    def busy(self, source: int) -> None:
        """For a while there was no moment in which everything that has come was taken."""

    async def gap(self, source: int) -> Any:
        """Returns when the node wants to know whether something is still held of what was published until now."""

    def caught_up(self, gap: Any) -> None:
        """Nothing is held any more."""


class Intake(Protocol):
    """What the daemon gives to source adapters."""

    @property
    def hearing(self) -> Hearing: ...

    def publish(
        self,
        source: int,
        arrivals: Sequence[Arrival],
        *,
        watermark: float | None = None,
        position: Any = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        """Take these. ``watermark``: nothing at or before it will follow (replayed sources). ``position``: where to go
        on after a restart, durable together with the events. ``done`` is called when all of it is durable."""

    def ended(self, source: int) -> None:
        """Nothing will ever follow."""

    def refused(self, source: int, raw: bytes, why: str) -> None:
        """Something that is no event came: it is counted and kept."""

    async def may_publish(self) -> None:
        """Returns when the node can take something."""


class SourceAdapter(Protocol):
    async def run(self, intake: Intake, position: Any) -> None:
        """Bring events in until cancelled, or until there are none left; reconnects by itself."""


class Deliveries(Protocol):
    """What the daemon gives to sink adapters: deliveries, numbered from 1 on, the same ones after a restart."""

    async def next(self) -> list[tuple[int, dict[str, Any]]]:
        """The next ones, at least one."""

    def confirm(self, number: int, *, refused: int = 0) -> None:
        """Everything up to this number has safely left and need never be offered again; so many of them not because
        the receiver has taken them, but because it never will."""


class SinkAdapter(Protocol):
    async def run(self, deliveries: Deliveries, confirmed: int) -> None:
        """Take deliveries out until cancelled. ``confirmed`` is the last number that needs no more care."""


@dataclass(slots=True)
class Edge:
    """What all adapters of a node share."""

    network: str
    node: str
    data: Path
    """The data folder of the node: files with relative names are in it."""
    dead_letters: DeadLetters
    durability: str = "sync"
    reborn: bool = False
    """The node has lost a part of its memory once: it may deliver again what it does not remember."""
    counters: dict[str, int] = field(default_factory=dict)
    """What adapters count, by name: reconnects, devices that left, webhooks that were tried again, .."""
    devices: dict[int, Devices] = field(default_factory=dict)
    """By source, the devices of those that hear of last wills."""
    turns: Turns = field(default_factory=Turns)
    ends: dict[tuple[str, int], Presence] = field(default_factory=dict)
    """By ``source`` or ``sink`` and number, whether the other end is there, where there is one."""

    def present(self, kind: str, number: int, event_type: str, end: str, *, is_there: bool = False) -> Presence:
        """The other end of a source or sink that begins."""
        who = f"{kind} {number} ({event_type})" if event_type else f"{kind} {number}"
        presence = self.ends[kind, number] = Presence(who, end, is_there)
        return presence

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + by


def identity(delivery: dict[str, Any]) -> str:
    """What tells one delivery from another for its receiver: equal for duplicates, and for nothing else."""
    return str(delivery["id"]) if "id" in delivery else f"{delivery['node']}#{delivery['seq']}"
