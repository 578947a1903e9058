"""A story of a network as plain data: what is there, what is published, what goes wrong and what is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headwater.coordinator.requests import (
    Change,
)
from headwater.deploy.simulation.faults import (
    Amnesia,
    ClockSkew,
    Fault,
    Faults,
    LinkOutage,
    NodeOutage,
    Partition,
    SlowCoordinator,
    SlowNode,
)
from headwater.protocol.events import Event, EventType
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule


@dataclass
class Story:
    """A network, what is published in it, what goes wrong and what is changed, in the order of time."""

    strategies: tuple[str, ...] = ("st",)
    types: dict[str, EventType] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    """Those that come later behind those that are there from the beginning, as they are numbered."""
    sources_at_first: int = 0
    sinks: list[Sink] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    births: list[tuple[int, int, Event]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    changes: list[tuple[int, Change]] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)

    def network(self, strategy: str) -> Network:
        links, sources = tuple(self.links), tuple(self.sources[: self.sources_at_first])
        ends = [end for link in links for end in (link.one, link.other)]
        nodes = sorted({*ends, *(source.node for source in self.sources), *(sink.node for sink in self.sinks)})
        types, rules = tuple(self.types.values()), tuple(self.rules)
        return Network(types, tuple(nodes), links, sources, tuple(self.sinks), rules, strategy)

    def all_faults(self) -> Faults:
        def of(*kinds: type) -> tuple[Any, ...]:
            return tuple(fault for fault in self.faults if isinstance(fault, kinds))

        return Faults(
            link_outages=of(LinkOutage),
            node_outages=of(NodeOutage),
            partitions=of(Partition),
            slow_nodes=of(SlowNode),
            clock_skews=of(ClockSkew),
            amnesias=of(Amnesia),
            slow_coordinators=of(SlowCoordinator),
        )
