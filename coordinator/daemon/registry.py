"""The registry of nodes, with the configuration that each of them must have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from headwater.coordinator.daemon.inputs import Setup
from headwater.protocol.edge import Broker, Destination, Feed, MqttFeed, MqttTo
from headwater.protocol.events import EventType
from headwater.protocol.messages.control import NodeConfig, PeerConfig, Register, SinkConfig, SourceConfig
from headwater.protocol.messages.recovery import Noted, NotedDestination, NotedFeed, NotedNetwork, NotedTypes
from headwater.protocol.network import Sink, Source

_End = TypeVar("_End", bound=Feed | Destination)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node has reported about itself, and when it first did so in this life."""

    life: str
    address: str
    http: str
    version: str
    since_us: int
    functions: str | None = None
    """Why it does not run the functions of the network; empty: it does; None: it has not said."""


@dataclass(slots=True)
class KeptSource:
    node: str
    config: SourceConfig


@dataclass(slots=True)
class KeptSink:
    node: str
    config: SinkConfig


class Registry:
    """Nodes and their configurations. A configuration is sent when it differs from the one sent before."""

    def __init__(self, setup: Setup) -> None:
        self._id = setup.id
        self._durability = setup.durability
        self._strategy = setup.network.strategy
        self.run = setup.run
        self._neighbours = setup.network.neighbours()
        self._keys = dict(setup.public_keys)
        self._embedded = setup.embedded_broker
        self._broker = setup.embedded_broker
        self._dialled: dict[tuple[str, str], str] = {}
        self.replayed = any(source.replayed for source in setup.network.sources)
        """Whether events keep the times of traces. Nodes take it as their idea of time, so it stays for good."""
        self.types: dict[str, EventType] = {event_type.name: event_type for event_type in setup.network.types}
        self.nodes: dict[str, Registration] = {}
        self.sources: dict[int, KeptSource] = {}
        """Sources that a node must know, those that have ended and still drain included."""
        self.sinks: dict[int, KeptSink] = {}
        self.sent: dict[str, NodeConfig] = {}
        """The configuration that each node was last sent."""
        self._tables = setup.network.tables
        self._remote_strategy = setup.network.remote_strategy
        self._functions = setup.network.functions
        self._remote_cache = setup.network.remote_cache
        self._remote_priorities = setup.network.remote_priorities
        self._remote_strategies = setup.network.remote_strategies
        self.unlinked: tuple[str, ...] = ()
        """Nodes that begin a life and are told of no plan before they have said that they run its functions."""
        self._versions: dict[str, int] = {}
        self._awaited: set[str] = set()
        """Nodes that are told nothing before they have registered again."""
        for number, (source, feed) in enumerate(zip(setup.network.sources, setup.feeds, strict=True)):
            self.add_source(number, source, feed)
        for number, (sink, destination) in enumerate(zip(setup.network.sinks, setup.destinations, strict=True)):
            self.add_sink(number, sink, destination)

    def started(self, broker: tuple[str, int] | None, dialled: Iterable[tuple[str, str, str]]) -> None:
        """Where things are since the coordinator was last started."""
        if self._embedded is not None:
            host, port = broker or (self._embedded.host, self._embedded.port)
            self._broker = replace(self._embedded, host=host, port=port)
        self._dialled = {(node, peer): address for node, peer, address in dialled}

    def declare(self, types: Iterable[EventType]) -> None:
        """Event types that the text of a rule declares; those that are known stay as they are."""
        for declared in types:
            self.types.setdefault(declared.name, declared)

    def register(self, message: Register, now_us: int) -> bool:
        """Note what a node tells of itself. True: it has another life than before, and so another memory."""
        registration = self.nodes.get(message.name)
        is_new_life = registration is not None and registration.life != message.life
        since_us = now_us if registration is None or is_new_life else registration.since_us
        self.nodes[message.name] = Registration(
            message.life, message.address, message.http, message.version, since_us, message.functions
        )
        self._awaited.discard(message.name)
        if is_new_life:
            self.forget_sent(message.name)
        return is_new_life

    def await_again(self, node: str) -> None:
        """What was on its way to the node is lost: it will register and tell what it remembers."""
        self.forget_sent(node)
        self._awaited.add(node)

    def forget_sent(self, node: str) -> None:
        """The node remembers nothing of its configuration."""
        self.sent.pop(node, None)

    def has_version(self, node: str, version: int) -> None:
        """The node has been configured so often, perhaps by another coordinator; it ignores what is not later."""
        self._versions[node] = max(version, self._versions.get(node, 0))

    def noted(self) -> Iterator[Noted]:
        """What of this must outlive the coordinator."""
        for number, source in self.sources.items():
            yield NotedFeed(number, source.config.source, source.config.feed)
        for number, sink in self.sinks.items():
            yield NotedDestination(number, sink.node, sink.config.subscription, sink.config.destination)

    def recall(self, pieces: Iterable[Noted]) -> None:
        """Have the sources and sinks that another coordinator has noted, and none else."""
        self.sources, self.sinks = {}, {}
        for piece in pieces:
            match piece:
                case NotedNetwork(run=run):
                    self.run = run
                case NotedTypes(types):
                    self.types = {event_type.name: event_type for event_type in types}
                case NotedFeed(number, source, feed):
                    self.add_source(number, source, feed)
                case NotedDestination(number, node, subscription, destination):
                    self.add_sink(number, Sink(node, subscription), destination)

    def broker(self) -> Broker | None:
        """The MQTT broker of the network: the embedded one, or the first that a source or a sink names."""
        ends: list[Feed | Destination] = [
            *(kept.config.feed for _, kept in sorted(self.sources.items())),
            *(kept.config.destination for _, kept in sorted(self.sinks.items())),
        ]
        named = (end.broker for end in ends if isinstance(end, MqttFeed | MqttTo))
        return self._embedded or next(named, None)

    def add_source(self, number: int, source: Source, feed: Feed) -> None:
        self.sources[number] = KeptSource(source.node, SourceConfig(number, source, feed))

    def add_sink(self, number: int, sink: Sink, destination: Destination) -> None:
        self.sinks[number] = KeptSink(sink.node, SinkConfig(number, sink.subscription, destination))

    def drop_ended(self, sources: Collection[int], sinks: Collection[int], lost: Collection[str]) -> None:
        """Nothing of an older plan is under way: only these sources and sinks are left, and those of lost nodes, which
        may come back."""
        self.sources = {n: kept for n, kept in self.sources.items() if n in sources or kept.node in lost}
        self.sinks = {n: kept for n, kept in self.sinks.items() if n in sinks or kept.node in lost}

    def changed(self, lost: Collection[str]) -> Iterator[tuple[str, NodeConfig]]:
        """New configurations for the registered nodes that need one; they count as sent."""
        for node in sorted(self.nodes):
            if node in lost or node in self._awaited:
                continue
            config = self._config(node, lost)
            before = self.sent.get(node)
            if before is not None and replace(config, version=before.version) == before:
                continue
            version = self._versions[node] = self._versions.get(node, 0) + 1
            self.sent[node] = replace(config, version=version)
            yield node, self.sent[node]

    def _config(self, node: str, lost: Collection[str]) -> NodeConfig:
        return NodeConfig(
            0,
            self._id,
            node,
            tuple(self.types.values()),
            tuple(self._peer(node, peer) for peer in self._neighbours[node] if peer not in lost),
            tuple(
                replace(kept.config, feed=self._placed(kept.config.feed))
                for _, kept in sorted(self.sources.items())
                if kept.node == node
            ),
            tuple(
                replace(kept.config, destination=self._placed(kept.config.destination))
                for _, kept in sorted(self.sinks.items())
                if kept.node == node
            ),
            self._durability,
            self._strategy,
            self.replayed,
            self.run,
            tuple(
                table if not table.at or node in table.at else replace(table, description="") for table in self._tables
            ),
            self._remote_strategy,
            self._functions,
            self._remote_cache,
            self._remote_priorities,
            self._remote_strategies,
        )

    def _placed(self, end: _End) -> _End:
        """The feed or destination with the broker where it is now."""
        if self._broker is not None and isinstance(end, MqttFeed | MqttTo) and end.broker == self._embedded:
            return replace(end, broker=self._broker)
        return end

    def _peer(self, node: str, peer: str) -> PeerConfig:
        link = self._neighbours[node][peer]
        dials = node < peer  # one of the two must, and both ends must agree on who
        registration = self.nodes.get(peer)
        address = self._dialled.get((node, peer)) or (registration.address if registration is not None else None)
        return PeerConfig(
            peer, address if dials else None, self._keys.get(peer), dials, link.delay_us, link.bandwidth_bps
        )
