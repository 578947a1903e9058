"""The inputs and effects of the coordinator's machine: plain values, which the process journals and performs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.requests import Request
from headwater.protocol.edge import Broker, Destination, Feed
from headwater.protocol.messages.control import Control
from headwater.protocol.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the coordinator is told of its network, once, when it first starts."""

    id: str
    """The name of the network on its links: nodes of another network are refused."""
    network: Network
    feeds: tuple[Feed, ...]
    """Where the events of each source come from, in the order of ``network.sources``."""
    destinations: tuple[Destination, ...]
    """Where the deliveries of each sink go, in the order of ``network.sinks``."""
    durability: str = "sync"
    public_keys: tuple[tuple[str, str], ...] = ()
    """The public key of each node; none where links are not encrypted."""
    lost_after_us: int | None = None
    """A node that was not reachable for so long is given up; None: only an operator gives nodes up."""
    embedded_broker: Broker | None = None
    """The broker that runs beside the network, as feeds and destinations name it. Each start tells where it is."""
    replan_us: int | None = None
    """How often to look whether rates have moved so far that a new plan is due; None: only an operator plans again."""
    falls_back: bool = True
    """Whether stages of a plan that cost more than they save fall back by themselves."""
    statistics: Statistics = field(default_factory=lambda: Statistics({}))
    """What planners know beside the rules."""
    digest: str = ""
    """Of the file this was read from: tells whether it has changed since."""
    run: str = ""
    """Made at the first start; nodes write it into their records, so that those of two runs can be told apart."""


# -------------------------------------------------------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Started:
    """The process has started: what may be elsewhere than before."""

    broker: tuple[str, int] | None = None
    """Host and port of the embedded broker; None: where the network file says."""
    dialled: tuple[tuple[str, str, str], ...] = ()
    """Where a node (first) must dial a neighbour (second), if not where that one says it is."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Payloads of a node's link, the last of them under this number."""

    peer: str
    last_seq: int
    payloads: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class PeerMet:
    """A node has said hello: under which life, and in which era the payloads of the link are numbered."""

    peer: str
    life: str
    era: str


@dataclass(frozen=True, slots=True)
class PeerReset:
    """The two ends of a link cannot go on where they were, as a rule because the node has lost its memory: nothing
    that was sent to it and not confirmed will arrive. It will register."""

    peer: str
    life: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A request has come over HTTP."""

    request: str
    """Names the request, also over restarts: an answer must not reach the client of another request."""
    ask: Request | None
    """None where the key is known."""
    key: str | None = None
    """Given by the client: the same key again is the same request, and is answered as before."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; something is due."""


@dataclass(frozen=True, slots=True)
class Reborn:
    """The coordinator begins a new life: nodes remember more than it does."""


Input = Started | Heard | PeerMet | PeerReset | Asked | Tick | Reborn

# ------------------------------------------------------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Tell:
    """A message for a node; links keep the order and lose none."""

    node: str
    message: Control


@dataclass(frozen=True, slots=True)
class Answered:
    """The outcome of a request, as an HTTP status and a JSON object."""

    request: str
    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator should read in the log."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Outdated:
    """Nodes remember more than this coordinator does: it must begin a new life and learn from them."""

    sentence: str


Effect = Tell | Answered | Note | Outdated
