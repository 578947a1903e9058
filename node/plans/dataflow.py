"""The streams and tasks of one node in one tree or graph: what trees and graphs have in common.

A dataflow begins with the node's own sources and the streams that neighbours send (inlets). Tasks join them; outlets
give streams to neighbours, and dispatchers give what subscribers want to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headwater.node.delivery.subscriptions import Delivered, Dispatcher, Subscribers
from headwater.node.plans.catalog import Catalog
from headwater.node.plans.lifecycle import STARTED, TreeRecord
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Feed, Inlet, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.streams.sources import EpochFeed, LocalFeed
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.task import JoinTask
from headwater.protocol.analysis.conjuncts import tables_in
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.expressions import Expression
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.messages.neighbour import Filter, Part, Stream, TreeStart, Whole
from headwater.protocol.pattern import Rule
from headwater.protocol.subscriptions import Subscription, print_subscription

KINDS: Final[dict[type[Any], str]] = {Filter: "primitive", Part: "match", Whole: "composite"}
"""How the events of a stream are accounted."""


class Dataflow:
    """The node's place in one tree and epoch, and everything that flows there."""

    def __init__(
        self,
        record: TreeRecord,
        parent: str | None,
        children: tuple[str, ...],
        catalog: Catalog,
        local: Mapping[str, LocalFeed],
        numbers: Numbers,
        delivered: Delivered,
        *,
        plan: int = 0,
        from_us: int | None = None,
        prime_us: int | None = None,
    ) -> None:
        """``local``: where events of sources of this plan appear at the node."""
        self.record = record
        self.tree = record.tree
        self.epoch = record.epoch
        self.plan = plan
        self.parent = parent
        self.children = children
        self.from_us = from_us
        self.until_us: int | None = None
        """Where the next plan begins."""
        self.catalog = catalog
        self.numbers = numbers
        self.local = {name: EpochFeed(feed, prime_us) for name, feed in sorted(local.items())}
        self.advertised: dict[str, frozenset[str]] = {}
        """What each child has advertised; a child that is missing has not yet spoken."""
        self.subscribed: set[str] = set()
        """Children that have said what they want."""
        self.subscribers = Subscribers(record.tree, record.epoch, catalog, delivered)
        self.inlets: dict[tuple[str, Stream | int], Inlet] = {}
        self.outlets: dict[int, Outlet] = {}
        self.tasks: list[JoinTask] = []
        self.dispatchers: list[tuple[Feed, int, Dispatcher]] = []
        """Feeds whose events are delivered from here, each with how much longer than its input it may wait."""
        self.settled: float = -FOREVER
        """Up to here everything has been sent towards the sinks, as far as is known here."""
        self.settled_below: dict[str, float] = {}
        """The same as each child has told it."""
        self.delivered: float = -FOREVER if from_us is None else from_us - 1
        """Everything of this tree that ends at or before this, less what its rule may wait for a decision, has reached
        every sink, as far as is known here. What the trees of earlier plans have to deliver they know themselves."""

    # ------------------------------------------------------------------------------------------------------- readiness

    @property
    def started(self) -> bool:
        """Whether sources feed this tree."""
        return self.record.state in STARTED

    def children_ready(self) -> bool:
        """Whether all children have advertised and subscribed."""
        return set(self.children) == self.advertised.keys() and set(self.children) == self.subscribed

    def advertisement(self) -> tuple[str, ...]:
        """The types of all sources here and below."""
        return tuple(sorted(set(self.local).union(*self.advertised.values())))

    # -------------------------------------------------------------------------------------------------- tasks, output

    def task(
        self,
        stream: Stream,
        inputs: Iterable[Feed],
        *,
        subscribe: bool = True,
        judged: tuple[Expression, ...] = (),
    ) -> JoinTask:
        """A new task that joins its inputs; ``subscribe``: they give it what they bring of their own accord;
        ``judged``: conditions that all of it meets."""
        candidates = self.catalog.candidates(stream.partial) if isinstance(stream, Part) else ()
        engine = self.catalog.engine(stream, judged)
        task = JoinTask(self.numbers.next(), stream, engine, tuple(inputs), candidates, needed_us(stream))
        if subscribe:
            for feed in task.inputs:
                feed.consumers.append(task)
        self.tasks.append(task)
        return task

    def filtered(self, feed: Feed, stream: Filter) -> Feed:
        """What of the events of a feed passes the filter, as far as this node judges it. Where it looks something up,
        that is a task: an event waits until the elements are there, and its stream goes on."""
        catalog = self.catalog
        where = catalog.judged_here(stream.where)
        if any(map(tables_in, where)):
            return self.task(stream, (feed,))
        condition = row_condition(where, catalog.type(stream.type), stream.type in catalog.composites)
        return feed if condition is None else Sieve(feed, condition)

    def dispatch(self, feed: Feed, stream: Whole | None = None) -> None:
        """Give what the feed brings to the subscribers below, except where it came from.

        What a rule decides only later, by what follows, belongs to this tree even if it ends before the tree's plan
        begins: the tree before could not decide it.
        """
        origin = feed.child if isinstance(feed, Inlet) and isinstance(feed.stream, Whole) else None
        waits_us = 0 if stream is None else stream.waits_us
        from_us = None if self.from_us is None else self.from_us - waits_us
        dispatcher = Dispatcher(self.subscribers, origin, from_us)
        dispatcher.until_us = self.until_us
        self.dispatchers.append((feed, waits_us, dispatcher))
        feed.consumers.append(dispatcher)

    # ---------------------------------------------------------------------------------------------- beginning and end

    def start(self, work: Work) -> None:
        """Everything is deployed, here and above: sources begin, with what they remember."""
        for child in self.children:
            work.send(child, TreeStart(self.tree, self.epoch))
        for feed in self.local.values():
            feed.start(work)

    def ends_at(self, until_us: int) -> int:
        """Remember where the next plan begins; of several the earliest holds."""
        self.until_us = until_us if self.until_us is None else min(until_us, self.until_us)
        return self.until_us

    def end(self, until_us: int, work: Work) -> None:
        """The next plan begins here: what is later is its own."""
        ends_us = self.subscribers.until_us = self.ends_at(until_us)
        for outlet in self.outlets.values():  # first: what has ended goes back when the plan does
            outlet.ends_us = ends_us
        for feed in self.local.values():
            feed.end(until_us, work)
        for source, waits_us, dispatcher in self.dispatchers:
            dispatcher.until_us = ends_us
            source.want(ends_us - 1 - waits_us, work)

    def sent_us(self, now_us: int) -> float:
        """Up to where this node has sent everything to the sinks; infinite if it delivers nothing.

        What takes this tree's place goes back by as much as its rules wait (see ``dispatch``).
        """
        return min((feed.current(now_us) + waits_us for feed, waits_us, _ in self.dispatchers), default=FOREVER)

    def leave(self) -> None:
        """Let go of the node's own feeds."""
        for feed in self.local.values():
            feed.leave()

    # --------------------------------------------------------------------------------------------------------- showing

    def streams(self) -> set[tuple[str, int]]:
        """Every stream with the neighbour at its other end."""
        taken = {(inlet.child, inlet.number) for inlet in self.inlets.values()}
        return taken | {(outlet.neighbour, number) for number, outlet in self.outlets.items()}

    def held(self) -> int:
        return sum(task.held() for task in self.tasks) + sum(outlet.held() for outlet in self.outlets.values())

    def table(self) -> dict[str, Any]:
        """The node's place, and what is known of neighbours, as plain data."""
        return {
            "tree": self.tree,
            "epoch": self.epoch,
            "parent": self.parent,
            "advertised": {child: sorted(types) for child, types in sorted(self.advertised.items())},
            "subscriptions": self.subscribers.table(),
        }

    def described_outlets(self) -> list[str]:
        """The streams to neighbours in words."""
        return [f"{number} to {outlet.neighbour}" for number, outlet in sorted(self.outlets.items())]


def rule_of(stream: Whole | Part) -> Rule:
    """The rule that a stream of matches belongs to."""
    return stream.rule if isinstance(stream, Whole) else stream.partial.rule


def needed_us(stream: Stream) -> int | None:
    """How long a task needs its inputs. A part may reach further than its rule: what tightens the rule's windows may be
    a condition that only a node above can judge."""
    if isinstance(stream, Filter):
        return 0
    if isinstance(stream, Whole):
        return horizon_us(stream.rule)
    partial = stream.partial
    horizons = [horizon_us(partial.rule), horizon_us(replace(partial.rule, pattern=partial.pattern, attributes=()))]
    bounded = [horizon for horizon in horizons if horizon is not None]
    return max(bounded) if len(bounded) == len(horizons) else None


def describe(stream: Stream) -> str:
    """A stream in words."""
    match stream:
        case Whole(rule):
            return f"rule {rule.name}"
        case Part(partial, _, heard):
            without = f", without the {' and '.join(heard)} that come anyway" if heard else ""
            return f"part of {partial.rule.name}: {partial.label()}{without}"
        case Filter(name, where):
            try:
                return f"filter {print_subscription(Subscription(name, where))}"
            except PrintError:  # conditions of rules that were built in Python may have no text
                return f"filter {name} with {len(where)} condition{'s' * (len(where) != 1)}"
