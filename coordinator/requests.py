"""Requests to the coordinator, one value for each.

HTTP is parsed into a request, the journal records it, the machine queues it, and the core makes the change.

Most requests are changes, which the core makes as they are. A few stand for several changes, or for one that depends on
what there is when their turn comes (``ReplaceRule``, a ``DeployRules`` that replaces, those of clients). Decisions
about nodes and links hold at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, assert_never

from headwater.coordinator.layout.fallback import StageName
from headwater.coordinator.layout.planner_interface import Planner
from headwater.protocol.edge import Destination, Feed
from headwater.protocol.events import EventType
from headwater.protocol.network import Sink, Source
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import Subscription, print_subscription

# --------------------------------------------------------------------------------------------------------------- rules


@dataclass(frozen=True, slots=True)
class DeployRules:
    rules: tuple[Rule, ...]
    types: tuple[EventType, ...] = ()
    """Event types that the text of the rules declares."""
    replaces: bool = False
    """Whether they take the place of rules of their names that are deployed."""


@dataclass(frozen=True, slots=True)
class UndeployRule:
    name: str


@dataclass(frozen=True, slots=True)
class ReplaceRule:
    """Undeploy a rule and deploy another under its name."""

    rule: Rule
    types: tuple[EventType, ...] = ()


# ------------------------------------------------------------------------------------------- subscriptions and sources


@dataclass(frozen=True, slots=True)
class AddSubscription:
    sink: Sink
    destination: Destination | None = None
    """Where deliveries go; None where there are no nodes to configure, as in a simulation."""
    number: int | None = None
    """The number it has had before; None: the next."""

    @property
    def node(self) -> str:
        return self.sink.node


@dataclass(frozen=True, slots=True)
class EndSubscription:
    number: int


@dataclass(frozen=True, slots=True)
class AddClientSubscription:
    """A program at a node wants this, under its name; asking twice is asking once."""

    node: str
    client: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class EndClientSubscription:
    node: str
    client: str
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class AddSource:
    source: Source
    feed: Feed | None = None
    """Where its events come from; None where there are no nodes to configure, as in a simulation."""
    number: int | None = None
    """The number it has had before; None: the next."""

    @property
    def node(self) -> str:
        return self.source.node


@dataclass(frozen=True, slots=True)
class EndSource:
    number: int


# ---------------------------------------------------------------------------------------------------- where things run


@dataclass(frozen=True, slots=True)
class PlanAnew:
    """Evaluate everything where this planner says, from now on. What is detected and delivered stays the same."""

    planner: Planner


@dataclass(frozen=True, slots=True)
class FallBack:
    """Have a stage evaluated as its fallback says, from now on; everything else stays where it is. Nodes have found
    that the stage costs more than it saves."""

    stages: tuple[StageName, ...]
    """The same stage of several rules, if it is evaluated once for all of them."""
    home: str | None
    """At this node alone; None: not at all, its readers read its inputs."""
    laying: int
    """With which of the layouts that were made from scratch this was decided: none that follows is meant."""
    why: str = ""

    def what(self) -> str:
        """In words."""
        stage = ", ".join(dict.fromkeys(name.what() for name in self.stages))
        return f"leave out {stage}" if self.home is None else f"put {stage} together at {self.home} alone"


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Let go of what has ended and is not needed any more."""


# ---------------------------------------------------------------------------------------------- decisions of operators


@dataclass(frozen=True, slots=True)
class GiveUpNode:
    """The network goes on without the node."""

    node: str


@dataclass(frozen=True, slots=True)
class GiveUpLink:
    """The network goes on without the link."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class TakeNodeBack:
    """A node that was given up takes part again, with an empty memory."""

    node: str


@dataclass(frozen=True, slots=True)
class TakeLinkBack:
    """A link that was given up is used again."""

    one: str
    other: str


Change: TypeAlias = (
    DeployRules | UndeployRule | AddSubscription | EndSubscription | AddSource | EndSource | PlanAnew | FallBack
    | TidyUp
)  # fmt: skip
"""What the core makes: each holds from an event time on."""

Return: TypeAlias = AddSource | AddSubscription
"""What a node that was lost takes up again, under the number it had."""

Decision: TypeAlias = GiveUpNode | GiveUpLink | TakeNodeBack | TakeLinkBack
"""What holds at once."""

Request: TypeAlias = (
    DeployRules | UndeployRule | AddSubscription | EndSubscription | AddSource | EndSource | PlanAnew | FallBack
    | TidyUp | ReplaceRule | AddClientSubscription | EndClientSubscription
    | GiveUpNode | GiveUpLink | TakeNodeBack | TakeLinkBack
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChangeOutcome:
    """The outcome of a change."""

    change: Change
    ticket: int | None
    """As it was given with the change."""
    from_us: int | None = None
    """The event time from which it holds."""
    number: int | None = None
    """Of the source or the subscription that it has added."""
    refused: str | None = None
    """Why it will not be made; None: it holds."""


class Preparation(NamedTuple):
    """What nodes do from when they are asked to prepare a change until it is decided."""

    freeze: bool = False
    """They promise nothing more: events of new sources must not come too late."""
    hold: bool = False
    """They deliver nothing later than what they acknowledge: it may not be wanted any more."""


def preparation(change: Change) -> Preparation:
    match change:
        case AddSource():
            return Preparation(freeze=True)
        case UndeployRule() | EndSubscription() | EndSource():
            return Preparation(hold=True)
        case DeployRules() | AddSubscription() | PlanAnew() | FallBack() | TidyUp():
            return Preparation()
        case _:
            assert_never(change)


def as_return(change: Change) -> Return | None:
    """The change if it brings back what a lost node had; None: it does not."""
    match change:
        case AddSource(number=int()) | AddSubscription(number=int()):
            return change
        case _:
            return None


def describe(request: Request) -> str:  # noqa: C901, PLR0912 (one case for each request)
    """In words, for operators."""
    match request:
        case DeployRules(rules):
            return f"deploy {', '.join(rule.name for rule in rules)}"
        case UndeployRule(name):
            return f"undeploy {name}"
        case ReplaceRule(rule):
            return f"replace {rule.name}"
        case AddSubscription(Sink(node, subscription)):
            return f"subscribe {node} to {print_subscription(subscription)}"
        case EndSubscription(number):
            return f"end subscription {number}"
        case AddClientSubscription(node, client, subscription):
            return f"subscribe {client} at {node} to {print_subscription(subscription)}"
        case EndClientSubscription(node, client, subscription):
            return f"unsubscribe {client} at {node} from {print_subscription(subscription)}"
        case AddSource(source):
            return f"add a source of {source.type} at {source.node}"
        case EndSource(number):
            return f"end source {number}"
        case PlanAnew():
            return "plan anew"
        case FallBack():
            return f"fall back: {request.what()}"
        case TidyUp():
            return "tidy up"
        case GiveUpNode(node):
            return f"give up node {node}"
        case GiveUpLink(one, other):
            return f"give up link {one} - {other}"
        case TakeNodeBack(node):
            return f"take node {node} back"
        case TakeLinkBack(one, other):
            return f"take link {one} - {other} back"
