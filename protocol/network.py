"""A network: nodes, links, sources, sinks, rules and the strategy. Plain, frozen data.

How the events of a source come about (a trace, a device, a generator) is not told here: that is deployment.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.protocol.events import EventType
from headwater.protocol.function_files import DescribedFunctions
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import WAIT, TableTerms
from headwater.protocol.strategy import DEFAULT_STRATEGY
from headwater.protocol.subscriptions import Subscription


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two nodes, the same in both directions."""

    one: str
    other: str
    delay_us: int = 0
    bandwidth_bps: int | None = None
    jitter_us: int = 0
    loss: float = 0.0
    """Share of frames that must be sent again."""

    def end(self, node: str) -> str:
        """The other end."""
        return self.other if node == self.one else self.one


@dataclass(frozen=True, slots=True)
class Source:
    """Events of one type enter at a node; none arrives later than ``lateness_us`` after its timestamp.

    A replayed source has a time of its own: the clock promises nothing for it, it tells itself how far it has come.
    """

    node: str
    type: str
    lateness_us: int = 0
    replayed: bool = False


def why_not_in_time(replayed: bool, network_replayed: bool) -> str | None:
    """Why a source cannot be part of a running network whose time is that of its traces (``network_replayed``) or that
    of the clock; None if it can. The two have nothing to do with each other."""
    if replayed == network_replayed:
        return None
    time = "the times of its traces" if network_replayed else "the time of the clock"
    return f"this network runs on {time}, but this source would not; they cannot be mixed"


@dataclass(frozen=True, slots=True)
class Sink:
    """A subscription of a node to certain events."""

    node: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A remote table that rules may look into, as it is described to the nodes that ask it."""

    name: str
    description: str
    """Its provider in words of a network file, in YAML; files have their whole names."""
    at: tuple[str, ...] = ()
    """The nodes that reach it; none: every node does."""
    fresh_us: int | None = None
    on_failure: str = WAIT
    lineage: bool = False
    whole: bool = False
    """The terms of lookups in it: ``TableTerms``."""

    @property
    def terms(self) -> TableTerms:
        return TableTerms(self.fresh_us, self.on_failure, self.lineage, self.whole)


@dataclass(frozen=True, slots=True)
class Network:
    """Everything a run needs beside the events themselves."""

    types: tuple[EventType, ...]
    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    rules: tuple[Rule, ...]
    strategy: str = DEFAULT_STRATEGY
    tables: tuple[DescribedTable, ...] = ()
    remote_strategy: str = ""
    """How rules come by elements of remote tables; empty: as nodes do without being told."""
    functions: DescribedFunctions | None = None
    """The file of Python functions that its rules and subscriptions may call."""
    remote_cache: str = ""
    """What makes room where nodes keep too much of remote tables; empty: as nodes do without being told."""
    remote_priorities: tuple[tuple[str, float], ...] = ()
    """How much the matches of a rule count where nodes decide what to fetch ahead and what to keep."""
    remote_strategies: tuple[tuple[str, str], ...] = ()
    """How single rules come by elements of remote tables, if not as ``remote_strategy`` says."""

    def neighbours(self) -> dict[str, dict[str, Link]]:
        """For every node its neighbours in order of name, each with the link to it."""
        links_of: dict[str, dict[str, Link]] = {node: {} for node in self.nodes}
        for link in self.links:
            links_of[link.one][link.other] = link
            links_of[link.other][link.one] = link
        return {node: dict(sorted(around.items())) for node, around in links_of.items()}
