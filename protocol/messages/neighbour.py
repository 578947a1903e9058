"""Messages between neighbours. Frozen values; ``protocol.wire.messages`` gives their bytes.

In a tree the parent asks its children for streams (``protocol.streams``) and numbers them. In a graph the coordinator
has numbered them all, with numbers below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.protocol.expressions import Expression
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest
from headwater.protocol.messages.tallies import Tally, TallyAnswer, TallyRequest
from headwater.protocol.messages.trees import CreateTree, LinkAgain, TreeAck, TreeNack
from headwater.protocol.streams import Filter as Filter
from headwater.protocol.streams import Part as Part
from headwater.protocol.streams import Stream as Stream
from headwater.protocol.streams import Whole as Whole
from headwater.protocol.subscriptions import Subscription

Row = tuple[Any, ...]

Conditions = tuple[tuple[str, tuple[Expression, ...]], ...]
"""By event type, conjuncts over one event alone."""


@dataclass(frozen=True, slots=True)
class TreeReady:
    """From the root downwards: the tree stands; advertise and subscribe along it.

    It serves a plan. Sinks get what ends at or after ``from_us``; sources begin with what they remember of events at or
    after ``prime_us``. None: from the beginning.
    """

    tree: str
    epoch: int
    plan: int
    from_us: int | None = None
    prime_us: int | None = None


@dataclass(frozen=True, slots=True)
class GraphLaid:
    """To every neighbour with whom streams of a graph are shared: they are in place here. A node that has heard this
    from all of them knows that nothing it sends is for an earlier life of theirs."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TreeStart:
    """From the root downwards: everything is deployed; sources begin."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TreeOver:
    """From the root downwards: everything has been delivered; forget the tree."""

    tree: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """From the root downwards: everything that ends at or before ``ts`` has been sent to the sinks, and everything at
    or before ``delivered`` has reached them. A node answers when all below it have."""

    tree: str
    epoch: int
    ts: float | int
    delivered: float | int


@dataclass(frozen=True, slots=True)
class SettledHere:
    """To the parent: ``Settled`` with this ts has passed the sender and all below it."""

    tree: str
    epoch: int
    ts: float | int


@dataclass(frozen=True, slots=True)
class Advertise:
    """To the parent: all event types that sources in the sender's subtree produce."""

    tree: str
    epoch: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """To the parent: what sinks in the sender's subtree want, without what is covered by something wider."""

    tree: str
    epoch: int
    subscriptions: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class FetchRules:
    """Down a tree, to the nodes that store rules that emit this type."""

    tree: str
    epoch: int
    type: str


@dataclass(frozen=True, slots=True)
class RulesFetched:
    """Up a tree: the rules in the sender's subtree that emit the type."""

    tree: str
    epoch: int
    type: str
    rules: tuple[PlannedRule, ...]


@dataclass(frozen=True, slots=True)
class Deploy:
    """To a child: send me this, under this number."""

    tree: str
    epoch: int
    number: int
    stream: Stream | Tally
    watermarks_only: bool = False
    """Only nodes below the child want the events, and have them. How far the stream has come must be known."""


@dataclass(frozen=True, slots=True)
class Want:
    """To a child: tell me as soon as nothing at or before ``ts`` will follow on the stream."""

    number: int
    ts: float


@dataclass(frozen=True, slots=True)
class Awakening:
    """To a child that holds a pull stream: send what lies in the window, now and as it comes.

    ``where`` are conjuncts over the event alone (role SUBJECT), made of values that are known to the asker, by type;
    what fails them is not sent. ``serial`` counts the awakenings of the stream.
    """

    number: int
    serial: int
    least_us: int
    greatest_us: int
    where: Conditions = ()


@dataclass(frozen=True, slots=True)
class ReverseMark:
    """To a child that holds a pull stream: nothing before ``ts`` will be asked for any more."""

    number: int
    ts: float | int


@dataclass(frozen=True, slots=True)
class SetMode:
    """To a child: from now on push the stream, or keep it until it is asked for. A Watermark says when it holds."""

    number: int
    pull: bool
    serial: int


class Run(NamedTuple):  # tuples, like watermarks and batches: they are made for every hop of every event
    """Events on their way to the parent, one or more, all for these streams. ``rows`` is None if only their identities
    follow: the parent has the bodies.

    A blocker takes part in selections and makes them fail; it never matches. The same event may follow as a real one.
    """

    identities: Sequence[Any]
    """(node, seq) of an event, the id of a composite."""
    rows: Sequence[Row] | None
    """A tuple, or the columns in which they came."""
    streams: tuple[int, ...]
    blocker: bool = False
    kind: str = ""
    """Why they are sent, for the accounts of the sender; it does not travel."""


class Watermark(NamedTuple):
    """Nothing at or before ``ts`` will follow on the stream (of a pull stream: nothing that was asked for in the first
    ``serial`` awakenings). ``generated`` counts what the stream has produced so far, sent or kept; ``pull`` is the mode
    that holds from here on, as the SetMode with the serial ``mode`` has asked for."""

    number: int
    ts: float
    serial: int = 0
    generated: int = 0
    pull: bool = False
    mode: int = 0


class Batch(NamedTuple):
    """Events, then watermarks. Bodies older than ``floor_us`` will not be referred to any more."""

    runs: tuple[Run, ...]
    watermarks: tuple[Watermark, ...]
    floor_us: int | None = None


@dataclass(frozen=True, slots=True)
class Notify:
    """Down a tree: an event or a composite event for the subscribers below."""

    tree: str
    epoch: int
    rows: Sequence[Row]
    """A tuple, or the columns in which they came."""


Message = (
    CreateTree | TreeAck | TreeNack | TreeReady | GraphLaid | TreeStart | TreeOver | Settled | SettledHere
    | Advertise | Subscribe | FetchRules | RulesFetched | Deploy | Want | Awakening | ReverseMark | SetMode
    | Batch | Notify | TallyRequest | TallyAnswer | LinkAgain
    | ElementRequest | ElementAnswer | ElementRefusal
)  # fmt: skip

CONTROL = (
    "Filter", "Whole", "Part", "TreeReady", "GraphLaid", "TreeStart", "TreeOver", "Settled", "SettledHere",
    "Advertise", "Subscribe", "FetchRules", "PlannedRule", "RulesFetched", "Deploy", "ReverseMark", "SetMode",
)  # fmt: skip
"""Names of what travels in the canonical encoding."""
