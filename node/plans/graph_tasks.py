"""What a node does in one graph: streams flow as the coordinator has laid them, from where they arise to all who read
them. The tree of the same name only carries orders, and news of how far everything has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from headwater.node.effects import Tell
from headwater.node.plans.stage_cost import Patience, StageWatch
from headwater.node.plans.tree_tasks import KINDS, TreeWork, describe, needed_us
from headwater.node.pull.masters import PushPull, Slot
from headwater.node.step import FOREVER, Work
from headwater.node.streams.dedup import Once
from headwater.node.streams.feeds import Feed, Inlet, Merge, Sieve
from headwater.node.streams.outlets import Outlet
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.task import JoinTask
from headwater.protocol.graphs import BornHere, Graph, GraphTask, MadeBy, TakenFrom, Tap
from headwater.protocol.messages.neighbour import GraphLaid, Settled, SettledHere
from headwater.protocol.messages.tallies import Tally
from headwater.protocol.pattern import Chain, Rule, leaves
from headwater.protocol.streams import Filter, Part, Stream, Whole


class GraphWork(TreeWork):
    """The streams and tasks of one node in one graph and epoch."""

    def lay(self, graph: Graph, patience: Patience) -> None:
        """Make everything that the graph has here. Nothing flows before the start."""
        self._taken: dict[int, Inlet] = {}
        self._made: dict[int, JoinTask] = {}
        self._sieves: dict[Filter, Feed] = {}
        self._overlapping: list[Once] = []
        self.partners_ready: set[str] = set()
        self.given: dict[int, Stream] = {}
        """What goes to neighbours, by its number."""
        for taken in graph.inlets:
            inlet = Inlet(taken.neighbour, taken.number, taken.stream, self._catalog, pulled=taken.pulled)
            self._taken[taken.number] = self.inlets[taken.neighbour, taken.number] = inlet
        for task in graph.tasks:
            made = self._made[task.number] = self._laid_task(task)
            if self.from_us is not None:
                made.counts_from_us = self.from_us
        for given in graph.outlets:
            kind = KINDS[type(given.stream)]
            source = self._feed_of(given.source)
            outlet = Outlet(given.neighbour, given.number, source, kind, self._catalog, pulled=given.pulled)
            outlet.silent = True
            self.outlets[given.number] = outlet
            self.given[given.number] = given.stream
        for delivery in graph.deliveries:
            whole = delivery.stream if isinstance(delivery.stream, Whole) else None
            self.dispatch(self._feed_of(delivery.source), whole)
        self._watches = [
            StageWatch(watch, [self._feed_of(each.source) for each in watch.weights], self.tree, self.epoch, patience)
            for watch in graph.watches
        ]

    def _laid_task(self, told: GraphTask) -> JoinTask:
        """The task, with the master that the plan has chosen for it: its reviews change nothing about that."""
        inputs = [self._feed_of(tap) for tap in told.inputs]
        slots: list[Slot] = []
        rule = _as_awakened(told.stream)
        if told.master is not None:
            brought = [self._types_of(tap) for tap in told.inputs]
            slots = [
                Slot(feed, *_served(rule, told.stream, names)) for feed, names in zip(inputs, brought, strict=True)
            ]
            inputs = list(slots)
        if len(inputs) > 1 and told.overlaps:
            once = Once(inputs, needed_us(told.stream))
            self._overlapping.append(once)
            inputs = [once]
        task = self._task(told.stream, inputs)
        task.drives = task.drives or told.drives
        if told.master is not None:
            task.push_pull = PushPull(rule, slots, task.horizon_us, None, values=self._values, master=told.master)
        return task

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
        known = self._sieves.get(stream)
        if known is None:
            # Without a local feed the source is gone, and everything that it has brought is too old.
            known = self._local.get(stream.type) or Merge(())
            condition = row_condition(
                stream.where, self._catalog.type(stream.type), stream.type in self._catalog.composites
            )
            if condition is not None:
                known = Sieve(known, condition)
            self._sieves[stream] = known
        return known

    def filters(self) -> Iterator[tuple[Filter, Sieve]]:
        return ((stream, feed) for stream, feed in self._sieves.items() if isinstance(feed, Sieve))

    def uses(self, neighbour: str) -> bool:
        """Whether anything of the graph, or of its tree, runs over this neighbour."""
        return super().uses(neighbour) or neighbour in self._partners()

    def _partners(self) -> set[str]:
        """The neighbours with whom streams are shared."""
        return {inlet.child for inlet in self._taken.values()} | {each.neighbour for each in self.outlets.values()}

    def tell_partners(self, work: Work) -> None:
        for neighbour in sorted(self._partners()):
            work.send(neighbour, GraphLaid(self.tree, self.epoch))

    def is_ready(self) -> bool:
        """Whether children and partners have told that they are."""
        return super().is_ready() and self._partners() <= self.partners_ready

    def review(self, work: Work, *, restless: bool) -> None:
        """Masters are planned. What will not be asked for any more is told, so that it need not be kept."""
        for task in self.tasks if self.started else ():
            if task.push_pull is not None:
                task.push_pull.promise_all(work)

    def can_serve(self, stream: Stream | Tally) -> bool:
        """Nothing can be asked for in a graph."""
        return False

    # ---------------------------------------------------------------------------------------------- beginning and end

    def start(self, work: Work) -> None:
        if self.until_us is not None:
            super().end(self.until_us, work)
        super().start(work)
        for outlet in self.outlets.values():  # where nothing can come, that is told at once
            outlet.silent = False
            outlet.told(work)

    def end(self, until_us: int, work: Work) -> None:
        if self.started:
            super().end(until_us, work)
        else:  # whoever would be asked may not know the graph yet
            self.until_us = until_us if self.until_us is None else min(until_us, self.until_us)

    def is_drained(self, now_us: int) -> bool:
        return self.started and self.until_us is not None and self.delivered >= self.until_us - 1

    @property
    def settles(self) -> bool:
        return True

    def settle(self, work: Work) -> None:
        """At every node: tell the parent how far everything has reached the sinks, here and below."""
        if not self.started:
            return
        here = min((feed.current(work.now_us) + waits for feed, waits, _ in self._dispatchers), default=FOREVER)
        found = min([here, *(self._settled_below.get(child, -FOREVER) for child in self.children)])
        if found <= self.settled:
            return
        self.settled = found
        if self.parent is not None:
            work.send(self.parent, SettledHere(self.tree, self.epoch, found))
        else:
            self.delivered = max(self.delivered, found)
            self._tell_children(work)

    def settled_below(self, child: str, ts: float, work: Work) -> None:
        self._settled_below[child] = max(ts, self._settled_below.get(child, -FOREVER))
        self.settle(work)

    def settled_above(self, message: Settled, work: Work) -> None:
        if message.delivered > self.delivered:
            self.delivered = message.delivered
            self._tell_children(work)

    def _tell_children(self, work: Work) -> None:
        for child in self.children:
            work.send(child, Settled(self.tree, self.epoch, self.delivered, self.delivered))

    def look(self, work: Work) -> None:
        """Tell the coordinator which stages have cost too much. What is to end soon anyway is not judged."""
        if self.until_us is None:
            for watch in self._watches:
                if (found := watch.look(work)) is not None:
                    work.effects.append(Tell(found))

    def held(self) -> int:
        return super().held() + sum(feed.held() for feed in self._overlapping)

    # --------------------------------------------------------------------------------------------------------- showing

    def rules(self) -> set[Rule]:
        streams = [task.stream for task in self.tasks]
        return {stream.rule if isinstance(stream, Whole) else stream.partial.rule for stream in streams}

    def described(self) -> list[str]:
        awakened = ["" if task.push_pull is None else f", awakened by {task.push_pull.master}" for task in self.tasks]
        return [text + by for text, by in zip(super().described(), awakened, strict=True)]

    def table(self) -> dict[str, Any]:
        found = super().table()
        found["routes"] = {
            "taken": [
                f"{each.number} from {each.child}: {describe(each.stream)}{', pulled' * each.pull}"
                for each in self._taken.values()
            ],
            "given": [f"{number} to {outlet.neighbour}" for number, outlet in sorted(self.outlets.items())],
        }
        found["watches"] = [watch.table() for watch in self._watches]
        return found


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
