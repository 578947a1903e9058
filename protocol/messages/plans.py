"""Messages about plans: each node's share of a plan, and how one plan follows another.

A *plan* says which sources, sinks and rules there are, each with the event times between which it holds. Plans are
numbered; every tree is built for one plan. A new plan holds from an event time above everything that any source has
promised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headwater.protocol.events import EventType
from headwater.protocol.graphs import Graph
from headwater.protocol.messages.trees import TreeOrder
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import Subscription


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """Events of a type enter at the node, with timestamps between the bounds (None: no bound)."""

    number: int
    type: str
    lateness_us: int
    from_us: int | None = None
    until_us: int | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """A sink at the node wants events that end between the bounds."""

    number: int
    subscription: Subscription
    from_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedRule:
    """A rule: for it there are no events before ``since_us``, and it gives none that end after ``until_us``."""

    rule: Rule
    since_us: int | None = None
    until_us: int | None = None


@dataclass(frozen=True, slots=True)
class PlannedTree:
    """A build of a tree that serves the plan, or an earlier one and still drains; it begins at ``from_us``."""

    tree: str
    epoch: int
    from_us: int | None


@dataclass(frozen=True, slots=True)
class TableWay:
    """Which neighbour a node asks for elements of a remote table."""

    table: str
    neighbour: str
    """The next node on the way to the nearest one that reaches the table; empty: no node that is left does."""
    reached: bool = False
    """The node reaches the table itself: it asks the neighbour only for what that has at hand, before the provider."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one node must know of a plan."""

    plan: int
    strategy: str
    types: tuple[EventType, ...]
    composites: tuple[EventType, ...]
    """Types of the composite events of all rules."""
    horizon_us: int
    """How far before its end the parts of any composite can lie, through all rules it is made by."""
    from_us: int | None
    """The event time at which earlier plans end; None for the first, and for one that only makes up for a loss."""
    trees: tuple[PlannedTree, ...]
    """All builds that the node is part of or will be: what they may need must be kept until they are there."""
    oldest_plan: int = 0
    """No tree serves an earlier plan than this any more."""
    sources: tuple[PlannedSource, ...] = ()
    sinks: tuple[PlannedSink, ...] = ()
    rules: tuple[PlannedRule, ...] = ()
    """The rules that are kept at this node."""
    cut_off: tuple[PlannedTree, ...] = ()
    """Builds that do not reach every node: what takes their place may reach more and begin where they began."""
    graphs: tuple[Graph, ...] = ()
    """For builds that only span the network: how streams flow through the node instead of up and down the tree."""
    lateness_us: int = 0
    """How late an event may be born, at whatever node: so old may be what comes from a neighbour."""
    everywhere: bool = True
    """Whether every node reaches all remote tables. Otherwise the roots of trees, which are nearer to them if any node
    is, evaluate what looks into them themselves."""
    ways: tuple[TableWay, ...] = ()
    """Of the remote tables that the node does not reach itself, or asks a neighbour for first."""
    reached_from: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Remote tables that not every node reaches, each with the nodes that do."""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Acknowledge with what has been promised; from now on keep what a new plan may need."""

    change: int
    freeze: bool
    """Promise nothing more until the change is decided: events of new sources must not come too late."""
    hold: bool
    """Deliver nothing later than what is acknowledged until the change is decided: it may not be wanted any more."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The change does not come about."""

    change: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """This is your share of the next plan. Earlier plans end where it begins."""

    share: Share


@dataclass(frozen=True, slots=True)
class BeginTree:
    """To the root of a tree that stands: serve this plan along it.

    Sinks get what ends at or after ``from_us``; sources begin with what they remember from ``prime_us`` on.
    """

    tree: str
    epoch: int
    plan: int
    from_us: int | None = None
    prime_us: int | None = None


@dataclass(frozen=True, slots=True)
class TellDelivered:
    """Something is lost: answer how far trees have delivered, and keep what is later until the next Adopt."""

    loss: int


Order: TypeAlias = TreeOrder | Prepare | Abort | Adopt | BeginTree | TellDelivered


# ------------------------------------------------------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class TreeStands:
    """The tree that has this node as its root is complete."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """No source here has promised more than ``promised_us``, and nothing later was delivered."""

    change: int
    promised_us: float


@dataclass(frozen=True, slots=True)
class TreeDrained:
    """Everything of a replaced tree has been delivered."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TreeBroken:
    """A build has lost one of its links at this node: it will never stand, or deliver, any more."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DeliveredWatermark:
    """As far as is known here, sinks have everything that the build must give them up to ``delivered_us``.

    Of rules that wait for later events to decide, everything that ends so much earlier as they may wait.
    """

    tree: str
    epoch: int
    delivered_us: float


@dataclass(frozen=True, slots=True)
class DeliveredTo:
    """The answer to TellDelivered; a build that is missing is not known at this node."""

    loss: int
    watermarks: tuple[DeliveredWatermark, ...]


@dataclass(frozen=True, slots=True)
class CostsMore:
    """A stage that is watched under this number in a graph has cost clearly more than its fallback would, for long
    enough: what came by each of its weights in ``over_us``. Told once for each graph."""

    tree: str
    epoch: int
    watch: int
    over_us: int
    counts: tuple[int, ...]


ReportToCoordinator: TypeAlias = TreeStands | Prepared | TreeDrained | TreeBroken | DeliveredTo | CostsMore
