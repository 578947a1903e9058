"""The tasks and streams of a node in one graph, as the coordinator has laid it out.

The tree of the same name carries only orders and reports of progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headwater.node.effects import Tell
from headwater.node.plans.dataflow import KINDS, Dataflow, describe, needed_us
from headwater.node.plans.judging import ANY_NODE, Brought, judged_below
from headwater.node.plans.node_plan import PlanShare
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.plans.stage_cost import StagePatience, StageWatch
from headwater.node.pull.masters import PushPull, Slot
from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Feed, Inlet, Merge, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.streams.overlaps import Once
from headwater.node.tasks.aggregates.completion import Completion
from headwater.node.tasks.task import JoinTask
from headwater.protocol.graphs import BornHere, Graph, GraphTask, MadeBy, TakenFrom, Tap
from headwater.protocol.messages.neighbour import GraphLaid, Settled, SettledHere
from headwater.protocol.messages.tallies import Tally, TallyAnswer, TallyRequest
from headwater.protocol.pattern import Chain, Rule, leaves
from headwater.protocol.streams import Filter, Part, Stream, Whole
from headwater.protocol.subscriptions import Subscription


class GraphTasks(PlanTasks):
    """The streams and tasks of one node in one graph and epoch."""

    def __init__(self, flow: Dataflow, graph: Graph, patience: StagePatience, *, values: bool = True) -> None:
        """Make everything that the graph has here. Nothing flows before the start."""
        super().__init__(flow)
        self._values = values
        self._taken: dict[int, Inlet] = {}
        self._made: dict[int, JoinTask] = {}
        self._sieves: dict[Filter, Feed] = {}
        self._overlapping: list[Once] = []
        self._partners_ready: set[str] = set()
        self._given: dict[int, Stream] = {}
        """What goes to neighbours, by its number."""
        for taken in graph.inlets:
            inlet = Inlet(taken.neighbour, taken.number, taken.stream, flow.catalog, pulled=taken.pulled)
            self._taken[taken.number] = flow.inlets[taken.neighbour, taken.number] = inlet
        for planned in graph.tasks:
            task = self._made[planned.number] = self._laid_task(planned)
            if flow.from_us is not None:
                task.counts_from_us = flow.from_us
        for laid in graph.outlets:
            kind = KINDS[type(laid.stream)]
            source = self._feed_of(laid.source)
            outlet = Outlet(laid.neighbour, laid.number, source, kind, flow.catalog, pulled=laid.pulled)
            outlet.silent = True
            flow.outlets[laid.number] = outlet
            self._given[laid.number] = laid.stream
        for delivery in graph.deliveries:
            whole = delivery.stream if isinstance(delivery.stream, Whole) else None
            flow.dispatch(self._feed_of(delivery.source), whole)
        self._watches = [
            StageWatch(
                watch, [self._feed_of(weight.source) for weight in watch.weights], flow.tree, flow.epoch, patience
            )
            for watch in graph.watches
        ]

    def _laid_task(self, planned: GraphTask) -> JoinTask:
        """The task, with the master that the plan has chosen for it: its reviews change nothing about that."""
        inputs = [self._feed_of(tap) for tap in planned.inputs]
        slots: list[Slot] = []
        rule = _as_awakened(planned.stream)
        if planned.master is not None:
            brought = [self._types_of(tap) for tap in planned.inputs]
            slots = [
                Slot(feed, *_served(rule, planned.stream, names)) for feed, names in zip(inputs, brought, strict=True)
            ]
            inputs = list(slots)
        if len(inputs) > 1 and planned.overlaps:
            once = Once(inputs, needed_us(planned.stream))
            self._overlapping.append(once)
            inputs = [once]
        judged = judged_below(
            self.flow.catalog, planned.stream, [self._brought(tap, planned.stream) for tap in planned.inputs]
        )
        task = self.flow.task(planned.stream, inputs, judged=judged)
        task.drives = task.drives or planned.drives
        if planned.master is not None:
            task.push_pull = PushPull(rule, slots, task.horizon_us, None, values=self._values, master=planned.master)
        return task

    def _brought(self, tap: Tap, stream: Whole | Part) -> Brought:
        """What comes from there to the task of a stream."""
        rule = stream.rule if isinstance(stream, Whole) else stream.partial.rule
        roles, _ = _served(rule, stream, self._types_of(tap))
        match tap:
            case BornHere(born):
                return Brought(born, self.flow.catalog.node, roles)
            case TakenFrom(number):
                return Brought(self._taken[number].stream, ANY_NODE, roles)
            case MadeBy():
                return Brought(None, ANY_NODE, roles)

    def _feed_of(self, tap: Tap) -> Feed:
        match tap:
            case TakenFrom(number):
                return self._taken[number]
            case MadeBy(task):
                return self._made[task]
            case BornHere(stream):
                return self._born(stream)

    def _types_of(self, tap: Tap) -> frozenset[str]:
        """The types of the events that come from there."""
        match tap:
            case TakenFrom(number):
                stream: Stream = self._taken[number].stream
            case MadeBy(task):
                stream = self._made[task].stream
            case BornHere(born):
                stream = born
        match stream:
            case Filter(name):
                return frozenset((name,))
            case Whole(rule):
                return frozenset((rule.emits,))
            case Part(partial, _, heard):
                return partial.types - frozenset(heard)

    def _born(self, stream: Filter) -> Feed:
        feed = self._sieves.get(stream)
        if feed is None:
            # Without a local feed the source is gone, and everything that it has brought is too old.
            feed = self.flow.filtered(self.flow.local.get(stream.type) or Merge(()), stream)
            self._sieves[stream] = feed
        return feed

    def filters(self) -> Iterator[tuple[Filter, Sieve | JoinTask]]:
        return ((stream, feed) for stream, feed in self._sieves.items() if isinstance(feed, Sieve | JoinTask))

    def uses(self, neighbour: str) -> bool:
        """Whether anything of the graph, or of its tree, runs over this neighbour."""
        return neighbour == self.parent or neighbour in self.children or neighbour in self._partners()

    def _partners(self) -> set[str]:
        """The neighbours with whom streams are shared."""
        return {neighbour for neighbour, _ in self.flow.streams()}

    def laid(self, work: Work) -> None:
        for neighbour in sorted(self._partners()):
            work.send(neighbour, GraphLaid(self.tree, self.epoch))

    def partner_ready(self, neighbour: str) -> bool:
        self._partners_ready.add(neighbour)
        return True

    def is_ready(self) -> bool:
        """Whether children and partners have reported that they are."""
        return self.flow.children_ready() and self._partners() <= self._partners_ready

    def subscription(self) -> tuple[Subscription, ...]:
        """None: the plan says what goes where."""
        return ()

    def arrange(self, share: PlanShare, work: Work) -> bool:
        """Everything is arranged as soon as it is laid."""
        return True

    def serve(self, number: int, stream: Stream | Tally, work: Work, *, watermarks_only: bool = False) -> bool:
        """Nothing can be asked for in a graph."""
        return False

    def tally(self, neighbour: str, message: TallyRequest | TallyAnswer, work: Work) -> bool:
        return False

    def review(self, work: Work, *, restless: bool) -> None:
        """Masters are planned. What will not be asked for any more is told, so that it need not be kept."""
        for task in self.tasks if self.started else ():
            if task.push_pull is not None:
                task.push_pull.promise_all(work)

    # ---------------------------------------------------------------------------------------------- beginning and end

    def start(self, work: Work) -> None:
        if self.until_us is not None:
            self.flow.end(self.until_us, work)
        self.flow.start(work)
        for outlet in self.outlets.values():  # where nothing can come, that is told at once
            outlet.silent = False
            outlet.watermark_moved(work)

    def end(self, until_us: int, work: Work) -> None:
        if self.started:
            self.flow.end(until_us, work)
        else:  # the neighbours that would be asked may not know the graph yet
            self.flow.ends_at(until_us)

    def is_drained(self, now_us: int) -> bool:
        return self.started and self.until_us is not None and self.delivered >= self.until_us - 1

    # -------------------------------------------------------------------------------------------------------- progress

    @property
    def settles(self) -> bool:
        """Every node knows only of its own deliveries."""
        return True

    def settle(self, work: Work) -> None:
        """At every node: tell the parent how far everything has reached the sinks, here and below."""
        if not self.started:
            return
        flow = self.flow
        below = (flow.settled_below.get(child, -FOREVER) for child in self.children)
        settled = min([flow.sent_us(work.now_us), *below])
        if settled <= flow.settled:
            return
        flow.settled = settled
        if self.parent is not None:
            work.send(self.parent, SettledHere(self.tree, self.epoch, settled))
        else:
            flow.delivered = max(flow.delivered, settled)
            self._tell_children(work)

    def settled_below(self, child: str, ts: float, work: Work) -> None:
        below = self.flow.settled_below
        below[child] = max(ts, below.get(child, -FOREVER))
        self.settle(work)

    def settled_above(self, message: Settled, work: Work) -> None:
        if message.delivered > self.delivered:
            self.flow.delivered = message.delivered
            self._tell_children(work)

    def _tell_children(self, work: Work) -> None:
        for child in self.children:
            work.send(child, Settled(self.tree, self.epoch, self.delivered, self.delivered))

    def look(self, work: Work) -> None:
        """What is to end soon anyway is not judged."""
        if self.until_us is None:
            for watch in self._watches:
                if (costs_more := watch.look(work)) is not None:
                    work.effects.append(Tell(costs_more))

    # --------------------------------------------------------------------------------------------------------- showing

    @property
    def completions(self) -> Sequence[Completion]:
        return ()

    def exact_tasks(self) -> Sequence[JoinTask]:
        return [*self._made.values()]

    def gives(self, number: int, outlet: Outlet, stream: Stream) -> bool:
        return self.outlets.get(number) is outlet and self._given[number] == stream

    def given_stream(self, number: int) -> Stream | None:
        return self._given.get(number)

    def misplaced(self) -> Iterator[str]:
        for (neighbour, number), inlet in self.inlets.items():
            if (inlet.child, inlet.number) != (neighbour, number):
                yield f"stream {inlet.number} of {inlet.child} is kept as {number} of {neighbour}"
        for number, outlet in self.outlets.items():
            if outlet.number != number:
                yield f"stream {outlet.number} to {outlet.neighbour} is kept as {number}"

    def unfinished(self) -> Sequence[str]:
        return ()

    def streams(self) -> set[tuple[str, int]]:
        return self.flow.streams()

    def aggregates_held(self) -> int:
        return 0

    def held(self) -> int:
        return self.flow.held() + sum(feed.held() for feed in self._overlapping)

    def described(self) -> list[str]:
        awakened = ["" if task.push_pull is None else f", awakened by {task.push_pull.master}" for task in self.tasks]
        return [describe(task.stream) + by for task, by in zip(self.tasks, awakened, strict=True)]

    def table(self) -> dict[str, Any]:
        taken = [
            f"{inlet.number} from {inlet.child}: {describe(inlet.stream)}{', pulled' * inlet.pull}"
            for inlet in self._taken.values()
        ]
        return {
            **self.flow.table(),
            "tasks": self.described(),
            "aggregates": [],
            "routes": {"taken": taken, "given": self.flow.described_outlets()},
            "watches": [watch.table() for watch in self._watches],
        }


def _as_awakened(stream: Whole | Part) -> Rule:
    """The rule that says what a master's event tells of others.

    A part that rules share must find what each of them needs, so it may not look at the rest of one of them. What a
    part of a chain must see, to tell of losing candidates, depends on the rest, and none is shared.
    """
    if isinstance(stream, Whole):
        return stream.rule
    rule = stream.partial.rule
    if isinstance(rule.pattern.root, Chain):
        return rule
    return replace(rule, pattern=stream.partial.pattern, attributes=())


def _served(rule: Rule, stream: Whole | Part, names: frozenset[str]) -> tuple[frozenset[str], dict[str, str]]:
    """The roles that events of some types serve in a task, and the types of all roles."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    inside = types.keys() if isinstance(stream, Whole) else set(stream.partial.roles)
    return frozenset(role for role, name in types.items() if role in inside and name in names), types
