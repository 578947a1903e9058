"""What nodes store for the coordinator, so that a coordinator that has lost its disk can recover from its nodes.

With every plan each node is told what the coordinator has decided so far, piece by piece and only what is new. A node
never looks into it. To a coordinator that it has not met before it tells all of it, and how far it has come itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar, assert_never

from headwater.protocol.edge import Destination, Feed
from headwater.protocol.events import EventType
from headwater.protocol.messages.plans import PlannedRule, PlannedSink, PlannedSource
from headwater.protocol.network import Source
from headwater.protocol.subscriptions import Subscription

PIECES_MAX: Final = 500  # in one message: with rules of 10 kB each it still fits into a frame


@dataclass(frozen=True, slots=True)
class NotedPlan:
    """The numbers that go on. Without this piece the others are not complete."""

    plan: int
    from_us: int | None
    """The event time at which earlier plans end, as nodes were told with this one."""
    next_source: int
    next_sink: int
    operations: int
    changed_us: int
    """From where on the last change holds: none that follows it may hold earlier."""


@dataclass(frozen=True, slots=True)
class NotedNetwork:
    """What a network file must say for this memory to be one of the same network; and which run of it this is."""

    nodes: tuple[str, ...]
    links: tuple[str, ...]
    strategy: str
    replayed: bool
    run: str = ""


@dataclass(frozen=True, slots=True)
class NotedTypes:
    types: tuple[EventType, ...]


@dataclass(frozen=True, slots=True)
class NotedFeed:
    """A source as its node is configured with it, also if it has ended."""

    number: int
    source: Source
    feed: Feed


@dataclass(frozen=True, slots=True)
class NotedDestination:
    """A sink as its node is configured with it, also if it has ended."""

    number: int
    node: str
    subscription: Subscription
    destination: Destination


@dataclass(frozen=True, slots=True)
class NotedSource:
    """A source of the plan; ``ended_with``: of plans before this one, which trees may still serve."""

    node: str
    planned: PlannedSource
    ended_with: int | None = None


@dataclass(frozen=True, slots=True)
class NotedSink:
    node: str
    planned: PlannedSink
    ended_with: int | None = None


@dataclass(frozen=True, slots=True)
class NotedRule:
    name: str
    """Under which the plan has it: one that has ended may have another than its own."""
    planned: PlannedRule
    ended_with: int | None = None


@dataclass(frozen=True, slots=True)
class NotedBuild:
    """A build of a tree, current or draining, which serves this plan from this time on."""

    tree: str
    epoch: int
    plan: int
    from_us: int | None
    current: bool


@dataclass(frozen=True, slots=True)
class NotedEpoch:
    """The last epoch that a tree has had."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class NotedLink:
    """A link that was given up, and how often it has come back."""

    one: str
    other: str
    lost: bool
    times_back: int


@dataclass(frozen=True, slots=True)
class NotedLoss:
    """A node that was given up, and the life it had."""

    node: str
    life: str | None


@dataclass(frozen=True, slots=True)
class NotedReturn:
    """A source or a sink that is to be part of the plan again, under its number, when its node is back or, if it
    ``waits``, as soon as can be."""

    number: int
    source: Source | None
    node: str
    subscription: Subscription | None
    waits: bool


@dataclass(frozen=True, slots=True)
class NotedAnswer:
    """How a request that has a key was answered; the body is JSON."""

    key: str
    status: int
    body: str


Noted: TypeAlias = (
    NotedPlan | NotedNetwork | NotedTypes | NotedFeed | NotedDestination | NotedSource | NotedSink | NotedRule
    | NotedBuild | NotedEpoch | NotedLink | NotedLoss | NotedReturn | NotedAnswer
)  # fmt: skip


def key_of(piece: Noted) -> str:  # noqa: C901, PLR0912 - a table: one line for each kind of piece
    """What a later piece replaces it by."""
    match piece:
        case NotedPlan():
            return "plan"
        case NotedNetwork():
            return "network"
        case NotedTypes():
            return "types"
        case NotedFeed(number):
            return f"feed {number}"
        case NotedDestination(number):
            return f"destination {number}"
        case NotedSource(_, planned, ended_with):
            return f"source {planned.number} {ended_with}"
        case NotedSink(_, planned, ended_with):
            return f"sink {planned.number} {ended_with}"
        case NotedRule(name, planned, ended_with):
            return f"rule {name!r}" if ended_with is None else f"rule {name!r} {ended_with} {planned.until_us}"
        case NotedBuild(tree, epoch):
            return f"build {tree!r} {epoch}"
        case NotedEpoch(tree):
            return f"epoch {tree!r}"
        case NotedLink(one, other):
            return f"link {one!r} {other!r}"
        case NotedLoss(node):
            return f"lost {node!r}"
        case NotedReturn(number, source):
            return f"return {'sink' if source is None else 'source'} {number}"
        case NotedAnswer(key):
            return f"answer {key!r}"
        case _:
            assert_never(piece)


def plan_of(pieces: Iterable[Noted]) -> int:
    """The plan that a memory is of; 0 if it is none, or not complete."""
    return next((piece.plan for piece in pieces if isinstance(piece, NotedPlan)), 0)


@dataclass(frozen=True, slots=True)
class Remember:
    """From the coordinator: keep this."""

    anew: bool
    """Whether everything that was kept before is to be forgotten."""
    pieces: tuple[Noted, ...]
    gone: tuple[str, ...] = ()
    """What need not be kept any more, by ``key_of``."""


@dataclass(frozen=True, slots=True)
class Recall:
    """From a node, before it registers with a coordinator that it has not met before, perhaps in several messages."""

    plan: int
    """The newest plan that it was told its share of; 0: it remembers none."""
    config: int
    """The version of its configuration; 0: it has none."""
    pieces: tuple[Noted, ...]


_Piece = TypeVar("_Piece")


def in_portions(pieces: Sequence[_Piece]) -> Iterator[tuple[_Piece, ...]]:
    """As many at a time as go into one message; one empty portion if there are none."""
    rest = iter(pieces)
    yield tuple(islice(rest, PIECES_MAX))
    while portion := tuple(islice(rest, PIECES_MAX)):
        yield portion
