"""A node: a deterministic state machine without sockets, clocks, threads or randomness.

    effects = core.handle(input, now_us)

The daemon and the simulator drive the same core. Everything it knows can be printed (``tables``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from node import saving
from node.catalog import Catalog
from node.effects import (
    AddSink,
    AddSource,
    Born,
    Configure,
    Effect,
    Input,
    Ordered,
    Received,
    Send,
    SourcesEnded,
    StoreRule,
    TimerFired,
    TreeStands,
)
from node.feeds import Inlet, LocalFeed
from node.outbox import Inbox, Outbox
from node.reach import horizon_us
from node.review import review
from node.rule_store import RuleStore
from node.outlets import Outlet
from node.tree_work import TreeWork
from node.trees import Trees
from node.work import Numbers, Work
from protocol.events import Event
from protocol.messages import (
    Advertise,
    Awakening,
    Batch,
    Deploy,
    FetchRules,
    Filter,
    Message,
    Notify,
    ReverseMark,
    RulesFetched,
    SetMode,
    Subscribe,
    TreeReady,
    Undeploy,
    Want,
)
from protocol.subscriptions import Subscription
from protocol.tree_messages import CreateTree, TreeAck, TreeNack

TICKS_PER_HORIZON = 4  # how often a node tells slow marks and forgets what has passed
TICK_IDLE_US = 1_000_000  # of a node that serves no rule with a window
HISTORY_HORIZONS = 3  # bodies are remembered as long as a partial match may still refer to them, and some more

TreeName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What one may turn. None of it changes results."""

    tick_least_us: int = 100_000
    """Housekeeping and slow marks come at most so often."""
    review_us: int = 10_000_000
    """Masters of push-pull are reviewed at most so often."""
    restless: bool = False
    """Masters of push-pull change at every review, to test that nothing is lost or repeated by it."""


class NodeCore:
    """The whole of one node."""

    def __init__(self, name: str, neighbours: Mapping[str, int], settings: NodeSettings | None = None) -> None:
        """``neighbours`` with the configured delay of the link to each, in microseconds."""
        self.name = name
        self.settings = settings or NodeSettings()
        self.trees = Trees(name, neighbours)
        self.catalog = Catalog()
        self.strategy = ""
        self.local: dict[str, LocalFeed] = {}
        self.sinks: dict[int, Subscription] = {}
        self.rules = RuleStore()
        self.works: dict[TreeName, TreeWork] = {}
        self.inlets: dict[int, Inlet] = {}
        self.outlets: dict[tuple[str, int], Outlet] = {}
        self._outboxes = {neighbour: Outbox(neighbour) for neighbour in neighbours}
        self._inboxes = {neighbour: Inbox() for neighbour in neighbours}
        self._timers: dict[str, int] = {}
        self._numbers = Numbers()
        self._horizon_us = 0
        self._standing: set[TreeName] = set()
        self._review_us = -(1 << 62)

    # ---------------------------------------------------------------------------------------------------------- inputs

    def handle(self, received: Input, now_us: int) -> list[Effect]:
        """Take one input; what must be done now, in this order."""
        work = Work(now_us, self._outboxes, self._timers)
        match received:
            case Received(neighbour, message):
                self._received(neighbour, message, work)
            case Born(events):
                self._born(events, work)
            case TimerFired(name):
                self._fired(name, work)
            case SourcesEnded(types):
                for name in types:
                    self.local[name].ended = True
                    self.local[name].tell(work)
            case Ordered(order):
                self._send_all(self.trees.ordered(order), work)
                self._look_for_standing(work)
            case Configure(types, composites, strategy):
                self.catalog = Catalog(types, composites)
                self.strategy = strategy
            case AddSource(name, lateness_us):
                known = self.local.get(name)
                if known is None:
                    self.local[name] = LocalFeed(name, lateness_us)
                else:
                    known.lateness_us = max(known.lateness_us, lateness_us)
            case AddSink(sink, subscription):
                self.sinks[sink] = subscription
            case StoreRule(rule, since_us):
                self.rules.store(rule, since_us)
            case _:
                assert_never(received)
        work.run()
        for outbox in self._outboxes.values():
            outbox.flush(work)
        return work.effects

    def _born(self, events: tuple[Event, ...], work: Work) -> None:
        for event in events:
            feed = self.local.get(event[3].name)
            if feed is None:
                work.report("unknown_source")
            elif event[0] <= feed.current(work.now_us):
                work.report("late_events")
            else:
                feed.pass_on((event,), work)

    def _fired(self, name: str, work: Work) -> None:
        due = self._timers.get(name)
        if due is None or due > work.now_us:
            return
        del self._timers[name]
        if name == "tick":
            self._tick(work)
        elif name.startswith("local "):
            feed = self.local.get(name.removeprefix("local "))
            if feed is not None:
                feed.timer_fired(work)

    def _received(self, neighbour: str, message: Message, work: Work) -> None:
        match message:
            case Batch():
                self._batch(neighbour, message, work)
            case Notify(tree, epoch, rows):
                found = self.works.get((tree, epoch))
                if found is None:
                    work.report("unknown_tree")
                else:
                    found.subscribers.deliver(rows, work)
            case Want(number, ts):
                if (outlet := self._outlet(neighbour, number, work)) is not None:
                    outlet.want(ts, work)
            case Awakening(number):
                if (outlet := self._outlet(neighbour, number, work)) is not None:
                    outlet.awaken(message, work)
            case ReverseMark(number, ts):
                if (outlet := self._outlet(neighbour, number, work)) is not None:
                    outlet.free_before(ts, work)
            case SetMode(number, pull, serial):
                if (outlet := self._outlet(neighbour, number, work)) is not None:
                    outlet.set_mode(pull, serial, work)
            case CreateTree() | TreeAck() | TreeNack():
                self._send_all(self.trees.received(neighbour, message), work)
                self._look_for_standing(work)
            case TreeReady(tree, epoch, from_us, prime_us):
                self._ready(tree, epoch, from_us, prime_us, work)
            case Advertise(tree, epoch, types):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.advertised[neighbour] = frozenset(types)
                    self._advertise(found, work)
            case Subscribe(tree, epoch, subscriptions):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.subscribers.set_child(neighbour, subscriptions)
                    found.subscribed.add(neighbour)
                    self._advertise(found, work)
            case FetchRules(tree, epoch, name):
                if (found := self._work(tree, epoch, work)) is not None:
                    self.rules.fetch(found, name, work)
            case RulesFetched(tree, epoch, name, rules):
                if (found := self._work(tree, epoch, work)) is not None and self.rules.fetched(
                    found, neighbour, name, rules, work
                ):
                    self._arrange(found, work)
            case Deploy(tree, epoch, number, stream):
                if (found := self._work(tree, epoch, work)) is not None:
                    self.outlets[neighbour, number] = found.serve(number, stream, work)
                    self._took_on(found, work)
            case Undeploy():
                work.report("unknown_stream")
            case _:
                work.report("unknown_message")

    def _work(self, tree: str, epoch: int, work: Work) -> TreeWork | None:
        found = self.works.get((tree, epoch))
        if found is None:
            work.report("unknown_tree")
        return found

    @staticmethod
    def _send_all(sends: list[tuple[str, Any]], work: Work) -> None:
        work.effects += [Send(neighbour, message) for neighbour, message in sends]

    # ---------------------------------------------------------------------------------------------------------- events

    def _batch(self, neighbour: str, batch: Batch, work: Work) -> None:
        inbox = self._inboxes[neighbour]
        real: dict[int, list[Any]] = {}
        blockers: dict[int, list[Any]] = {}
        for item in batch.items:
            row = inbox.row(item)
            if row is None:
                work.report("unknown_body")
                continue
            found = blockers if item.blocker else real
            for number in item.streams:
                known = found.get(number)
                if known is None:
                    found[number] = [row]
                else:
                    known.append(row)
        for number, rows in blockers.items():
            inlet = self._inlet(neighbour, number, work)
            if inlet is not None:
                inlet.pass_blockers(rows, work)
        for number, rows in real.items():
            inlet = self._inlet(neighbour, number, work)
            if inlet is not None:
                inlet.pass_on(rows, work)
        for mark in batch.marks:
            inlet = self._inlet(neighbour, mark.number, work)
            if inlet is not None:
                inlet.marked(mark, work)
        if batch.floor_us is not None:
            inbox.forget_before(batch.floor_us)

    def _outlet(self, neighbour: str, number: int, work: Work) -> Outlet | None:
        outlet = self.outlets.get((neighbour, number))
        if outlet is None:
            work.report("unknown_stream")
        return outlet

    def _inlet(self, neighbour: str, number: int, work: Work) -> Inlet | None:
        inlet = self.inlets.get(number)
        if inlet is None or inlet.child != neighbour:
            work.report("unknown_stream")
            return None
        return inlet

    # ----------------------------------------------------------------------------------------------------------- trees

    def _look_for_standing(self, work: Work) -> None:
        for row in self.trees.table():
            name = (row["tree"], row["epoch"])
            if name not in self._standing and self.trees.stands(*name):
                self._standing.add(name)
                work.effects.append(TreeStands(*name))
                self._ready(*name, None, None, work)

    def _ready(self, tree: str, epoch: int, from_us: int | None, prime_us: int | None, work: Work) -> None:
        """The tree stands: make its tables and tell the children; leaves begin to advertise."""
        if not self.trees.knows(tree, epoch):
            work.report("unknown_tree")
            return
        children = self.trees.children(tree, epoch)
        found = TreeWork(
            tree,
            epoch,
            self.trees.parent(tree, epoch),
            children,
            self.catalog,
            self.local,
            self._numbers,
            from_us,
            prime_us,
            pulls=self.strategy.endswith("-pp"),
        )
        self.works[tree, epoch] = found
        if self.strategy in ("centr", "st", "st-pp") or found.parent is None:
            found.subscribers.set_local(self.sinks)
        for child in children:
            work.send(child, TreeReady(tree, epoch, from_us, prime_us))
        self._advertise(found, work)

    def _advertise(self, found: TreeWork, work: Work) -> None:
        """When all children have spoken, tell the parent; the root then arranges the evaluation."""
        if set(found.children) != found.advertised.keys() or set(found.children) != found.subscribed:
            return
        if found.parent is not None:
            work.send(found.parent, Advertise(found.tree, found.epoch, found.advertisement()))
            work.send(found.parent, Subscribe(found.tree, found.epoch, found.subscribers.combined()))
        else:
            self._arrange(found, work)

    def _arrange(self, found: TreeWork, work: Work) -> None:
        """At the root: have rules evaluated and their composites delivered."""
        wanted = found.subscribers.wanted_types()
        if self.strategy in ("mt", "mt-pp"):
            rules = self.rules.needed(found, wanted, self.catalog, work)
            if rules is None:
                return
        else:
            rules = self.rules.in_order()
        for rule, since_us in rules:
            if self.strategy == "centr":
                feed = found.evaluate_centrally(rule, since_us, work)
            else:
                feed = found.evaluate(rule, since_us, work)
            found.dispatch(feed)
        for name in wanted:
            if name in self.catalog.types:
                of_type = [s for s in found.subscribers.combined() if s.type == name]
                where = of_type[0].where if len(of_type) == 1 and self.strategy != "centr" else ()
                found.dispatch(found.feed(Filter(name, where), work))
        self._took_on(found, work)

    def _took_on(self, found: TreeWork, work: Work) -> None:
        """New streams and tasks are there: remember the inlets, and how far back they may reach."""
        for inlet in found.inlets.values():
            self.inlets[inlet.number] = inlet
        for rule in found.rules():
            self._horizon_us = max(self._horizon_us, horizon_us(rule) or 0)
        work.timer("tick", work.now_us + self._tick_us(), idle=True)

    # ---------------------------------------------------------------------------------------------------- housekeeping

    def _tick_us(self) -> int:
        return (
            max(self.settings.tick_least_us, self._horizon_us // TICKS_PER_HORIZON) if self._horizon_us else TICK_IDLE_US
        )

    def _tick(self, work: Work) -> None:
        """Tell slow marks, so that those above can free what has passed, and forget old bodies."""
        for found in self.works.values():
            for task in found.tasks:
                work.touch(task)
        work.run()
        for outlet in self.outlets.values():
            outlet.tell_slowly(work)
        if work.now_us >= self._review_us:
            self._review_us = work.now_us + self.settings.review_us
            for found in self.works.values():
                review(found.tasks, work, restless=self.settings.restless)
        lateness_us = max((feed.lateness_us for feed in self.local.values()), default=0)
        floor_us = work.now_us - HISTORY_HORIZONS * (self._horizon_us + self._tick_us()) - lateness_us
        for outbox in self._outboxes.values():
            outbox.forget_before(floor_us)
        work.timer("tick", work.now_us + self._tick_us(), idle=True)

    # --------------------------------------------------------------------------------------------------------- showing

    def tables(self) -> dict[str, Any]:
        """Everything this node knows, as plain data."""
        return {
            "node": self.name,
            "strategy": self.strategy,
            "sources": {name: feed.lateness_us for name, feed in sorted(self.local.items())},
            "sinks": sorted(self.sinks),
            "rules": self.rules.table(),
            "trees": self.trees.table(),
            "work": [found.table() for _, found in sorted(self.works.items())],
            "history": {name: len(outbox.history) for name, outbox in sorted(self._outboxes.items())},
            "horizon_us": self._horizon_us,
        }

    def save(self) -> bytes:
        """The whole state of the node."""
        return saving.save(self)

    @staticmethod
    def restored(data: bytes) -> NodeCore:
        """The node as it was saved."""
        core = saving.restore(data)
        if not isinstance(core, NodeCore):
            raise saving.StateError("this is no saved node")
        return core

    def held(self) -> int:
        """How many rows, open matches and remembered identities are kept in all."""
        kept = sum(found.held() for found in self.works.values())
        kept += sum(len(outbox.history) for outbox in self._outboxes.values())
        return kept + sum(len(inbox.bodies) for inbox in self._inboxes.values())
