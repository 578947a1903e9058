"""The interface to what a node does in one tree or graph, for the forest, the core and observers.

``TreeTasks`` and ``GraphTasks`` implement it. Both are made of a ``Dataflow``; they differ in who decides what flows
(the advertisements and questions of neighbours, or the coordinator's plan), and in how they learn how far everything
has come.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater.node.delivery.subscriptions import Subscribers
from headwater.node.plans.dataflow import Dataflow
from headwater.node.plans.node_plan import PlanShare
from headwater.node.step import Work
from headwater.node.streams.feeds import Inlet, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.tasks.aggregates.completion import Completion
from headwater.node.tasks.task import JoinTask
from headwater.protocol.messages.neighbour import Filter, Settled, Stream
from headwater.protocol.messages.tallies import Tally, TallyAnswer, TallyRequest
from headwater.protocol.subscriptions import Subscription


class PlanTasks(ABC):
    """The tasks of one node in one tree or graph and epoch."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow

    # ------------------------------------------------------------------------------------------- place and dataflow

    @property
    def tree(self) -> str:
        return self.flow.tree

    @property
    def epoch(self) -> int:
        return self.flow.epoch

    @property
    def plan(self) -> int:
        return self.flow.plan

    @property
    def parent(self) -> str | None:
        return self.flow.parent

    @property
    def children(self) -> tuple[str, ...]:
        return self.flow.children

    @property
    def until_us(self) -> int | None:
        """Where the next plan begins."""
        return self.flow.until_us

    @property
    def started(self) -> bool:
        return self.flow.started

    @property
    def delivered(self) -> float:
        """Up to where everything has reached every sink, as far as is known here."""
        return self.flow.delivered

    @property
    def advertised(self) -> dict[str, frozenset[str]]:
        return self.flow.advertised

    @property
    def subscribed(self) -> set[str]:
        return self.flow.subscribed

    @property
    def subscribers(self) -> Subscribers:
        return self.flow.subscribers

    @property
    def inlets(self) -> Mapping[tuple[str, Stream | int], Inlet]:
        return self.flow.inlets

    @property
    def outlets(self) -> Mapping[int, Outlet]:
        return self.flow.outlets

    @property
    def tasks(self) -> Sequence[JoinTask]:
        return self.flow.tasks

    def advertisement(self) -> tuple[str, ...]:
        """The types of all sources here and below."""
        return self.flow.advertisement()

    def leave(self) -> None:
        """Let go of the node's own feeds."""
        self.flow.leave()

    # ------------------------------------------------------------------------------------------------------ setting up

    @abstractmethod
    def laid(self, work: Work) -> None:
        """The tables are there: tell the neighbours that must know it."""

    @abstractmethod
    def partner_ready(self, neighbour: str) -> bool:
        """A neighbour has laid its part of the graph; false where there are no partners."""

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether every neighbour that this node waits for has spoken."""

    @abstractmethod
    def subscription(self) -> tuple[Subscription, ...]:
        """What this node asks its parent for, on behalf of the sinks here and below."""

    @abstractmethod
    def arrange(self, share: PlanShare, work: Work) -> bool:
        """At the root: have the rules evaluated and their composites delivered; false while rules are fetched."""

    @abstractmethod
    def serve(self, number: int, stream: Stream | Tally, work: Work, *, watermarks_only: bool = False) -> bool:
        """The parent asks for a stream, or only for its watermarks; false if it cannot be had here. RuleError if the
        stream cannot be evaluated."""

    @abstractmethod
    def tally(self, neighbour: str, message: TallyRequest | TallyAnswer, work: Work) -> bool:
        """Take a message about an aggregate if it belongs here."""

    # ---------------------------------------------------------------------------------------------- beginning and end

    @abstractmethod
    def start(self, work: Work) -> None:
        """Everything is deployed, here and above: sources begin, with what they remember."""

    @abstractmethod
    def end(self, until_us: int, work: Work) -> None:
        """The next plan begins here: what is later is its own."""

    @abstractmethod
    def is_drained(self, now_us: int) -> bool:
        """At the root, after the end: whether everything that must be found has reached the sinks."""

    @abstractmethod
    def uses(self, neighbour: str) -> bool:
        """Whether anything here runs over this neighbour."""

    # -------------------------------------------------------------------------------------------------------- progress

    @property
    @abstractmethod
    def settles(self) -> bool:
        """Whether it is this node that finds out, now and then, how far everything has come."""

    @abstractmethod
    def settle(self, work: Work) -> None:
        """Now and then: tell how far everything has been sent to the sinks."""

    @abstractmethod
    def settled_above(self, message: Settled, work: Work) -> None:
        """The parent tells how far everything has come."""

    @abstractmethod
    def settled_below(self, child: str, ts: float, work: Work) -> None:
        """A child tells how far everything has come."""

    @abstractmethod
    def review(self, work: Work, *, restless: bool) -> None:
        """Now and then: which streams are worth being pulled. ``restless``: change masters, whatever it costs."""

    @abstractmethod
    def look(self, work: Work) -> None:
        """Tell the coordinator which stages of the plan have cost too much."""

    # --------------------------------------------------------------------------------------------------------- showing

    @property
    @abstractmethod
    def completions(self) -> Sequence[Completion]:
        """Rules whose aggregates are asked for after their matches were found."""

    @abstractmethod
    def exact_tasks(self) -> Sequence[JoinTask]:
        """Tasks that find the matches of their roles and no others."""

    @abstractmethod
    def filters(self) -> Iterator[tuple[Filter, Sieve | JoinTask]]:
        """The conditions that events are judged by here, one by one."""

    @abstractmethod
    def gives(self, number: int, outlet: Outlet, stream: Stream) -> bool:
        """Whether the outlet gives this stream to a neighbour under this number."""

    @abstractmethod
    def given_stream(self, number: int) -> Stream | None:
        """What a plan gives to a neighbour under this number."""

    @abstractmethod
    def misplaced(self) -> Iterator[str]:
        """Streams that are not kept under the neighbour and number that they belong to, in sentences."""

    @abstractmethod
    def unfinished(self) -> Sequence[str]:
        """Which aggregates still wait for something, in sentences."""

    @abstractmethod
    def streams(self) -> set[tuple[str, int]]:
        """Every stream with the neighbour at its other end."""

    @abstractmethod
    def described(self) -> list[str]:
        """The tasks in words."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """Everything as plain data."""

    @abstractmethod
    def aggregates_held(self) -> int:
        """How many rows and questions are kept for aggregates."""

    @abstractmethod
    def held(self) -> int:
        """How many rows, partial matches and identities are kept in all."""
