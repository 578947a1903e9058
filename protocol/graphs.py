"""A stream graph as the coordinator lays it over the network: what one node reads, evaluates, forwards and delivers.

Every stream has one origin, and a tree of links leads from it to all nodes that need it; so a node gets each of them
from one neighbour at most. What a task reads is told in full: nothing is asked for but, of what is pulled, the windows
around a master's events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from headwater.protocol.streams import Filter, Part, Stream, Whole

NUMBERS: Final = 1 << 24
"""Streams of one graph, each counted on every link, at most."""


def stream_number(plan: int, position: int) -> int:
    """The number of a stream on a link: below zero, where nodes give none, and different in each plan."""
    assert 0 <= position < NUMBERS, "a graph has more streams than numbers"
    return -(plan * NUMBERS + position)


def plan_of(number: int) -> int:
    """The plan in which a stream has this number."""
    return -number // NUMBERS


@dataclass(frozen=True, slots=True)
class BornHere:
    """Events of sources of the node itself."""

    stream: Filter


@dataclass(frozen=True, slots=True)
class TakenFrom:
    """What comes from a neighbour."""

    number: int


@dataclass(frozen=True, slots=True)
class MadeBy:
    """What a task of the node finds."""

    task: int


Tap: TypeAlias = BornHere | TakenFrom | MadeBy
"""Where rows come from at a node."""


@dataclass(frozen=True, slots=True)
class GraphInlet:
    """A stream that comes from a neighbour, under a number that no other stream of the node ever has."""

    number: int
    neighbour: str
    stream: Stream
    pulled: bool = False
    """Whether events stay where they are born until a task asks for them. Such a stream is for one task alone, and
    is in this mode all the way and from the beginning."""


@dataclass(frozen=True, slots=True)
class GraphTask:
    """What is evaluated at the node, and over what. Tasks are numbered in an order in which each reads earlier ones."""

    number: int
    stream: Whole | Part
    inputs: tuple[Tap, ...]
    overlaps: bool = False
    """Whether the same event may come by several of the inputs."""
    master: str | None = None
    """The role whose events awaken the inputs that are pulled; None: no input is."""
    drives: bool = False
    """Whether it decides as soon as it can, since others may be awakened by what it finds."""


@dataclass(frozen=True, slots=True)
class GraphOutlet:
    """What goes to a neighbour, who takes it under this number."""

    number: int
    neighbour: str
    stream: Stream
    source: Tap
    pulled: bool = False


@dataclass(frozen=True, slots=True)
class GraphDelivery:
    """What the sinks of the node may want."""

    stream: Filter | Whole
    source: Tap


@dataclass(frozen=True, slots=True)
class Weight:
    """Links that every event of a tap crosses, on average: as things are, and if the stage fell back."""

    source: Tap
    now: float
    instead: float


@dataclass(frozen=True, slots=True)
class Watch:
    """A stage whose node is to tell when it costs more than its fallback would (``CostsMore``). All nodes that
    evaluate the stage watch it under the same number."""

    number: int
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """One node's part of a graph, which is built and given up like the tree that spans it."""

    tree: str
    epoch: int
    inlets: tuple[GraphInlet, ...] = ()
    tasks: tuple[GraphTask, ...] = ()
    outlets: tuple[GraphOutlet, ...] = ()
    deliveries: tuple[GraphDelivery, ...] = ()
    watches: tuple[Watch, ...] = ()
