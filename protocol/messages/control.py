"""Messages between the coordinator and the nodes, and their bytes.

A node registers, is configured, gets orders and tells reports; everything is a msgpack list that begins with its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack

from headwater.protocol import graphs
from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.edge import Destination, Feed
from headwater.protocol.events import EventType
from headwater.protocol.function_files import DescribedFunctions, FunctionSignature
from headwater.protocol.messages import plans as plan_messages
from headwater.protocol.messages import recovery as memory
from headwater.protocol.messages import trees as tree_messages
from headwater.protocol.messages.plans import Order, ReportToCoordinator
from headwater.protocol.messages.recovery import Recall, Remember
from headwater.protocol.network import DescribedTable, Source
from headwater.protocol.streams import Filter, Part, Whole
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.wire import rule_encoding
from headwater.protocol.wire.rule_encoding import CodecError

COORDINATOR: Final = "@coordinator"
"""The name under which nodes know the coordinator; no node can have it."""

CLIENT: Final = "@client/"
"""What the names of client programs begin with on their links."""


@dataclass(frozen=True, slots=True)
class PeerConfig:
    """A neighbour of a node and the link to it."""

    name: str
    address: str | None
    """Where it listens; None while that is not known."""
    public_key: str | None
    dials: bool
    """Whether the configured node dials, and the neighbour listens, or the other way round."""
    delay_us: int = 0
    bandwidth_bps: int | None = None


@dataclass(frozen=True, slots=True)
class SourceConfig:
    number: int
    source: Source
    feed: Feed


@dataclass(frozen=True, slots=True)
class SinkConfig:
    number: int
    subscription: Subscription
    destination: Destination


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything a node must know beside its orders. A later version replaces an earlier one."""

    version: int
    network: str
    node: str
    types: tuple[EventType, ...]
    peers: tuple[PeerConfig, ...]
    sources: tuple[SourceConfig, ...]
    sinks: tuple[SinkConfig, ...]
    durability: str
    strategy: str
    replayed: bool = False
    """Whether events keep the times of traces, which have nothing to do with the clock."""
    run: str = ""
    """Tells this network, from its first start on, from all others, also from those of the same name."""
    tables: tuple[DescribedTable, ...] = ()
    """The remote tables; those that the node does not reach without their descriptions."""
    remote_strategy: str = ""
    """How its rules come by elements of these; empty: as without being told."""
    functions: DescribedFunctions | None = None
    """The file of Python functions that rules may call."""
    remote_cache: str = ""
    remote_priorities: tuple[tuple[str, float], ...] = ()
    remote_strategies: tuple[tuple[str, str], ...] = ()
    """What nodes keep of remote tables, for which rules first, and what holds for single rules: see ``Network``."""


@dataclass(frozen=True, slots=True)
class Register:
    """From a node, whenever it has connected: who it is and where it can be reached."""

    name: str
    life: str
    address: str
    http: str
    version: str
    functions: str | None = None
    """Why it does not run the functions of the network, in a sentence; empty: it does. None: it has not been told of
    them, or does not know yet."""


@dataclass(frozen=True, slots=True)
class Configure:
    config: NodeConfig


@dataclass(frozen=True, slots=True)
class Ordered:
    order: Order


@dataclass(frozen=True, slots=True)
class Reported:
    report: ReportToCoordinator


@dataclass(frozen=True, slots=True)
class SubscribeClient:
    """From a node: a program there wants this; it is known by its name."""

    request: int
    client: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class UnsubscribeClient:
    request: int
    client: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Answer:
    """To a node: the outcome of a request."""

    request: int
    refused: str | None
    """Why it cannot be; None: it is done."""


Control = Register | Configure | Ordered | Reported | SubscribeClient | UnsubscribeClient | Answer | Remember | Recall

rule_encoding.register(
    Source, DescribedTable, DescribedFunctions, FunctionSignature, Subscription, PeerConfig, SourceConfig, SinkConfig,
    NodeConfig,
    Register, Configure, Ordered, Reported, SubscribeClient, UnsubscribeClient, Answer, Remember, Recall,
    *(getattr(memory, name) for name in (
        "NotedPlan", "NotedNetwork", "NotedTypes", "NotedFeed", "NotedDestination", "NotedSource", "NotedSink",
        "NotedRule", "NotedBuild", "NotedEpoch", "NotedLink", "NotedLoss", "NotedReturn", "NotedAnswer",
    )),
    *(getattr(plan_messages, name) for name in (
        "PlannedSource", "PlannedSink", "PlannedRule", "TableWay", "Share", "Prepare", "Abort", "Adopt", "BeginTree",
        "TreeStands", "Prepared", "TreeDrained", "TreeBroken", "DeliveredWatermark", "DeliveredTo", "PlannedTree",
        "TellDelivered", "CostsMore",
    )),
    *(getattr(graphs, name) for name in (
        "Graph", "GraphInlet", "GraphTask", "GraphOutlet", "GraphDelivery", "BornHere", "TakenFrom", "MadeBy",
        "Watch", "Weight",
    )),
    Filter, Whole, Part, PartialRule, Contest,
    *(getattr(tree_messages, name) for name in ("StartTree", "InstallTree", "ForgetTree", "DropLink", "UseLink")),
)  # fmt: skip


def encode(message: Control) -> bytes:
    return rule_encoding.encode(message)


def decode(data: bytes) -> Control:
    """The message, or a CodecError."""
    message = rule_encoding.decode(data)
    if not isinstance(message, Control):
        raise CodecError(f"{type(message).__name__} is not a message between a node and a coordinator")
    return message


def encode_statistics(statistics: dict[str, Any]) -> bytes:
    """What a node whispers now and then; nothing relies on it."""
    packed: bytes = msgpack.packb(statistics)
    return packed


def decode_statistics(data: bytes) -> dict[str, Any]:
    try:
        statistics = msgpack.unpackb(data)
    except Exception as error:
        raise CodecError(f"not statistics: {error}") from error
    if not isinstance(statistics, dict):
        raise CodecError("not statistics: a mapping is expected")
    return statistics
