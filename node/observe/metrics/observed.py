"""The parts of a node that metrics and statistics are read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time_ns
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from headwater.node.observe.accounts import LinkAccounts
from headwater.node.observe.metrics.counters import NodeCounters
from headwater.node.remote.guard import Figures

if TYPE_CHECKING:
    from headwater.node.core import NodeCore


class HubView(Protocol):
    """What is read of the links."""

    @property
    def counters(self) -> Mapping[str, int]: ...

    def queued(self, peer: str) -> tuple[int, int]: ...

    def is_up(self, peer: str) -> bool: ...

    def is_full(self, peer: str) -> bool: ...


class JournalView(Protocol):
    """What is read of the journal."""

    @property
    def bytes_since_snapshot(self) -> int: ...

    @property
    def is_full(self) -> bool: ...


class DevicesView(Protocol):
    """What is read of the devices of a source."""

    @property
    def type(self) -> str: ...

    @property
    def left_count(self) -> int: ...

    @property
    def present_count(self) -> int: ...

    @property
    def all_left(self) -> bool: ...


class EdgeView(Protocol):
    """What is read of the adapters."""

    @property
    def counters(self) -> Mapping[str, int]: ...

    @property
    def devices(self) -> Mapping[int, DevicesView]: ...


class FetchingView(Protocol):
    """What is read of the providers of remote tables."""

    @property
    def figures(self) -> Mapping[str, Figures]: ...


class EdgeEnd(NamedTuple):
    """The other end of a source or a sink."""

    kind: Literal["source", "sink"]
    number: int
    type: str
    """What the source brings, or the sink wants."""
    end: str
    """Where it is, in words."""
    is_connected: bool | None
    """None: there is nothing to be connected to."""
    waiting: int = 0
    """Deliveries that it has not taken yet."""
    oldest_s: float = 0.0
    """For how long the oldest of them has waited."""
    held_back_s: float = 0.0
    """For how long the watermark of the source stands still because it could not be heard."""


def clock_us() -> int:
    return time_ns() // 1000


@dataclass(slots=True, kw_only=True)
class Observed:
    """A node as it is seen from outside. Parts that are not there yet, because it is not configured, are None."""

    node: str
    life: str = ""
    network: str = ""
    run: str = ""
    """As the coordinator has told it; empty before the node is configured."""
    strategy: str = ""
    counters: NodeCounters = field(default_factory=NodeCounters)
    core: NodeCore | None = None
    accounts: LinkAccounts | None = None
    hub: HubView | None = None
    journal: JournalView | None = None
    edge: EdgeView | None = None
    fetching: FetchingView | None = None
    ends: Sequence[EdgeEnd] = ()
    version: str = ""
    peers: Sequence[str] = ()
    """All ends of links of this node; the coordinator is one of them."""
    now_us: Callable[[], int] = clock_us
    cpu_s: Callable[[], float] | None = None
    """Processor time of the node so far, where it has a process of its own."""
