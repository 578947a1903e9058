"""The faults of a simulated run: plain data, drawn before the run starts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Final, assert_never

from headwater.deploy.simulation.links import FOREVER, Interval, merged
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Network
from headwater.protocol.text import show_us

OUTAGE_SHARE_MAX: Final = 0.25  # of the run, for one random outage: most of it should still be spent at work
SLOW_US_MAX: Final = 5_000  # per message; a node that is slower for ever would fall behind for ever


@dataclass(frozen=True, slots=True)
class LinkOutage:
    """Nothing crosses the link, in either direction; frames on their way are lost and sent again."""

    one: str
    other: str
    from_us: int
    to_us: int = FOREVER
    """FOREVER: the link is gone for good."""
    given_up: bool = False
    """The coordinator takes it for lost, if it is down for long enough to be noticed, until it is back."""

    def __str__(self) -> str:
        given_up = ", and given up meanwhile" if self.given_up else ""
        return f"the link {self.one}-{self.other} is {_span('down', self)}{given_up}"


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """The node stops and, when the time is over, starts again with what it had on disk."""

    node: str
    from_us: int
    to_us: int = FOREVER
    """FOREVER: the node is gone for good."""
    held: bool = False
    """What its sources publish meanwhile is held for it, as a broker does, and is handed over when it is back."""

    def __str__(self) -> str:
        held = ", and what its sources publish is held for it" if self.held else ""
        return f"the node {self.node} is {_span('down', self)}{held}"


@dataclass(frozen=True, slots=True)
class Amnesia:
    """The node stops and, when the time is over, starts again with nothing: what it had and what was under way from and
    to it is lost."""

    node: str
    from_us: int
    to_us: int
    given_up: bool = False
    """The coordinator takes it for lost, if it is down for long enough to be noticed, until it is back."""

    def __str__(self) -> str:
        given_up = " was given up and" if self.given_up else ""
        return f"the node {self.node} is {_span('down', self)}, and{given_up} has then forgotten everything"


@dataclass(frozen=True, slots=True)
class Partition:
    """The nodes reach each other, but no other node: every link that crosses is down."""

    nodes: frozenset[str]
    from_us: int
    to_us: int = FOREVER

    def __str__(self) -> str:
        are = "is" if len(self.nodes) == 1 else "are"
        return f"{', '.join(sorted(self.nodes))} {are} {_span('cut off', self)}"


@dataclass(frozen=True, slots=True)
class SlowNode:
    """The node takes this long for every message it handles."""

    node: str
    message_us: int

    def __str__(self) -> str:
        return f"the node {self.node} takes {show_us(self.message_us)} for every message"


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """The clock of the node is behind: timestamps of its sources lie this much before virtual time."""

    node: str
    behind_us: int

    def __str__(self) -> str:
        return f"the clock of {self.node} is {show_us(self.behind_us)} behind"


@dataclass(frozen=True, slots=True)
class SlowCoordinator:
    """What nodes and coordinator say to each other takes up to this long, at random, and keeps its order."""

    most_us: int

    def __str__(self) -> str:
        return f"orders and reports take up to {show_us(self.most_us)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Everything that goes wrong in one run. All of it heals, except what lasts FOREVER."""

    link_outages: tuple[LinkOutage, ...] = ()
    node_outages: tuple[NodeOutage, ...] = ()
    partitions: tuple[Partition, ...] = ()
    slow_nodes: tuple[SlowNode, ...] = ()
    clock_skews: tuple[ClockSkew, ...] = ()
    amnesias: tuple[Amnesia, ...] = ()
    slow_coordinators: tuple[SlowCoordinator, ...] = ()

    def cuts(self, node: str, other: str, *, nodes: bool = True) -> tuple[Interval, ...]:
        """When no frame gets from one node to the other or back, as disjoint intervals in order.

        That is when the link is down, when a partition separates the two, and (unless ``nodes`` is false) when one of
        them is down.
        """
        intervals = [(cut.from_us, cut.to_us) for cut in self.link_outages if {cut.one, cut.other} == {node, other}]
        intervals += [
            (cut.from_us, cut.to_us) for cut in self.partitions if (node in cut.nodes) != (other in cut.nodes)
        ]
        if nodes:
            intervals += [*self.downtimes(node), *self.downtimes(other)]
        return merged(intervals)

    def downtimes(self, node: str) -> tuple[Interval, ...]:
        """When the node is down, as disjoint intervals in order; it starts again at the end of each, unless FOREVER."""
        outages = [(cut.from_us, cut.to_us) for cut in self.node_outages if cut.node == node]
        return merged([*outages, *((cut.from_us, cut.to_us) for cut in self.amnesias if cut.node == node)])

    def forgets(self, node: str, downtime: Interval) -> bool:
        """Whether the node has lost its memory when it starts again after one of its downtimes."""
        from_us, to_us = downtime
        return any(amnesia.node == node and from_us <= amnesia.from_us < to_us for amnesia in self.amnesias)

    def holds(self, node: str, downtime: Interval) -> bool:
        """Whether what the sources of the node publish during one of its downtimes is handed over at its end."""
        from_us, to_us = downtime
        inside = [outage for outage in self.node_outages if outage.node == node and from_us <= outage.from_us < to_us]
        return to_us < FOREVER and any(outage.held for outage in inside) and not self.forgets(node, downtime)

    def order_us(self) -> int:
        """How long what the coordinator and nodes say to each other takes at the most."""
        return sum(slow.most_us for slow in self.slow_coordinators)

    def message_us(self, node: str) -> int:
        """How long the node takes for a message."""
        return sum(slow.message_us for slow in self.slow_nodes if slow.node == node)

    def behind_us(self, node: str) -> int:
        """How far the clock of the node is behind virtual time."""
        return sum(skew.behind_us for skew in self.clock_skews if skew.node == node)

    @property
    def healed_us(self) -> int:
        """From when on everything is up that will ever be up; FOREVER if something is gone for good."""
        ends = [outage.to_us for outage in self.link_outages] + [outage.to_us for outage in self.node_outages]
        ends += [amnesia.to_us for amnesia in self.amnesias]
        return max(ends + [partition.to_us for partition in self.partitions], default=0)

    def __bool__(self) -> bool:
        return any(True for _ in self._all())

    def describe(self) -> str:
        """A line for every fault, for a reader who has to understand a run."""
        return "\n".join(map(str, self._all())) or "nothing goes wrong"

    def check(self, network: Network) -> None:
        """ConfigError if a fault is about nothing in the network, ends before it begins, or makes events late."""
        links = {frozenset((link.one, link.other)) for link in network.links}
        for fault in self._all():
            for node in _nodes(fault):
                if node not in network.nodes:
                    raise ConfigError(f"{fault}: there is no node {node!r}; there is: {', '.join(network.nodes)}")
            match fault:
                case LinkOutage():
                    if frozenset((fault.one, fault.other)) not in links:
                        raise ConfigError(f"{fault}: there is no link between {fault.one!r} and {fault.other!r}")
                    _check_span(fault)
                case NodeOutage() | Partition():
                    _check_span(fault)
                case Amnesia():
                    _check_span(fault)
                    if fault.to_us >= FOREVER:
                        raise ConfigError(
                            f"{fault}: a node that never comes back has nothing to forget; write an outage"
                        )
                case SlowNode():
                    _check_length(fault, fault.message_us)
                case SlowCoordinator():
                    _check_length(fault, fault.most_us)
                case ClockSkew():
                    self._check_skew(fault, network)
                case _:
                    assert_never(fault)

    def _check_skew(self, skew: ClockSkew, network: Network) -> None:
        allowed_us = _lateness_us(network, skew.node)
        if not 0 <= self.behind_us(skew.node) <= allowed_us:
            raise ConfigError(
                f"{skew}: its sources allow events to be {show_us(allowed_us)} late, and a clock that is further "
                "behind, or ahead, would make all their events late; give them more lateness"
            )

    def _all(self) -> Iterator[Fault]:
        for kind in fields(self):
            yield from getattr(self, kind.name)


Fault = LinkOutage | NodeOutage | Amnesia | Partition | SlowNode | ClockSkew | SlowCoordinator


def random_faults(
    network: Network, seed: int, span_us: int, *, from_us: int = 0, permanent: bool = False, crashes: bool = True
) -> Faults:
    """Some faults between ``from_us`` and ``from_us + span_us``: often several at once, sometimes none.

    Equal arguments give equal faults. Everything heals before the end of the span, except that with ``permanent`` one
    link or node may be gone for good. Clocks are behind only within the lateness of the sources they concern.
    ``crashes=False`` leaves out node outages, for systems that keep nothing on disk.
    """
    rng = random.Random(f"faults {seed}")
    if span_us < 2 or not network.nodes:
        return Faults()

    def some(most: int) -> range:
        return range(rng.choice((0, 0, *range(1, most + 1))))

    def interval() -> Interval:
        length = max(1, int(span_us * OUTAGE_SHARE_MAX * rng.random() ** 2))  # short ones more often
        start = from_us + rng.randrange(span_us - length)
        return start, start + length

    links = [rng.choice(network.links) for _ in some(3)] if network.links else []
    link_outages = [LinkOutage(link.one, link.other, *interval()) for link in links]
    node_outages = [NodeOutage(rng.choice(network.nodes), *interval()) for _ in some(2)] if crashes else []
    holding = random.Random(f"held {seed}")
    node_outages = [replace(outage, held=holding.random() < 0.6) for outage in node_outages]
    partitions = []
    if len(network.nodes) > 1:
        for _ in some(1):
            cut_off = rng.sample(network.nodes, rng.randint(1, len(network.nodes) - 1))
            partitions.append(Partition(frozenset(cut_off), *interval()))
    slow = [SlowNode(node, rng.randint(1, SLOW_US_MAX)) for node in network.nodes if rng.random() < 0.2]
    skews = []
    for node in network.nodes:
        allowed_us = _lateness_us(network, node)
        if allowed_us > 1 and rng.random() < 0.3:
            skews.append(ClockSkew(node, rng.randrange(1, allowed_us)))
    if permanent and rng.random() < 0.5:
        at_us = from_us + rng.randrange(span_us)
        if network.links and rng.random() < 0.5:
            link = rng.choice(network.links)
            link_outages.append(LinkOutage(link.one, link.other, at_us))
        else:
            node_outages.append(NodeOutage(rng.choice(network.nodes), at_us))
    return Faults(
        link_outages=tuple(link_outages),
        node_outages=tuple(node_outages),
        partitions=tuple(partitions),
        slow_nodes=tuple(slow),
        clock_skews=tuple(skews),
    )


def _lateness_us(network: Network, node: str) -> int:
    """How late the events of every source at the node may be."""
    return min((source.lateness_us for source in network.sources if source.node == node), default=0)


def _nodes(fault: Fault) -> tuple[str, ...]:
    """The nodes that a fault names."""
    match fault:
        case LinkOutage():
            return fault.one, fault.other
        case Partition():
            return tuple(sorted(fault.nodes))
        case NodeOutage() | Amnesia() | SlowNode() | ClockSkew():
            return (fault.node,)
        case SlowCoordinator():
            return ()
        case _:
            assert_never(fault)


def _check_span(fault: LinkOutage | NodeOutage | Amnesia | Partition) -> None:
    if not 0 <= fault.from_us < fault.to_us:
        raise ConfigError(f"{fault}: it must begin at 0 or later, and end after it begins")


def _check_length(fault: Fault, length_us: int) -> None:
    if length_us < 0:
        raise ConfigError(f"{fault}: write 0 or more")


def _span(state: str, outage: Any) -> str:
    if outage.to_us >= FOREVER:
        return f"{state} for good from {show_us(outage.from_us)} on"
    return f"{state} from {show_us(outage.from_us)} to {show_us(outage.to_us)}"
