"""A node: a deterministic state machine without sockets, clocks, threads or randomness.

    effects = core.handle(input, now_us)

The daemon and the simulator drive the same core. Everything it knows can be printed (``tables``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from node import saving, validation
from node.effects import Born, Effect, Input, Ordered, Received, Send, SourcesEnded, Tell, TimerFired
from node.delivery import Delivered
from node.feeds import Inlet
from node.local_feeds import LocalFeed
from node.outbox import Inbox, Outbox
from node.plan_share import ONE_TREE, PlanShare
from node.review import review
from node.outlets import Outlet
from node.tree_work import TreeWork
from node.trees import Trees
from node.work import FOREVER, Numbers, Work
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
    Settled,
    SettledHere,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
    Want,
)
from protocol.plan_messages import (
    Abort,
    Adopt,
    BeginTree,
    Order,
    PlannedRule,
    Prepare,
    Prepared,
    Share,
    TreeDrained,
    TreeStands,
)
from protocol.tally_messages import Tally, TallyAnswer, TallyRequest
from protocol.tree_messages import CreateTree, DropLink, ForgetTree, InstallTree, StartTree, TreeAck, TreeNack

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
        self.shares: dict[int, PlanShare] = {}
        """What this node knows of the plans that still run."""
        self.local: dict[str, LocalFeed] = {}
        self.works: dict[TreeName, TreeWork] = {}
        self.inlets: dict[int, Inlet] = {}
        self.outlets: dict[tuple[str, int], Outlet] = {}
        self._outboxes = {neighbour: Outbox(neighbour) for neighbour in neighbours}
        self._inboxes = {neighbour: Inbox() for neighbour in neighbours}
        self._timers: dict[str, int] = {}
        self._numbers = Numbers()
        self._horizon_us = 0
        self._standing: set[TreeName] = set()
        self._gone: set[TreeName] = set()
        """Trees that were given up, and streams of theirs: something of them may still be on its way."""
        self._gone_streams: set[tuple[str, int]] = set()
        self._early: list[tuple[str, Message]] = []
        """Messages about a plan that the coordinator has not yet told of."""
        self._held_us: dict[int, float] = {}
        """Changes that are being prepared, each with what was promised: everything later must be kept."""
        self._delivered = Delivered()
        self._broken: dict[str, float] = {}
        """Trees that were given up before they had delivered everything, each with how far they had: until another has
        taken their place, what they may have missed or repeated must be remembered."""
        self._served: set[TreeName] = set()
        """(tree, plan) for every plan that a tree has begun to serve here."""
        self._review_us = -(1 << 62)

    # ---------------------------------------------------------------------------------------------------------- inputs

    def handle(self, received: Input, now_us: int) -> list[Effect]:
        """Take one input; what must be done now, in this order."""
        work = Work(now_us, self._outboxes, self._timers)
        # By type, what comes often first: this runs for every message.
        if isinstance(received, Received):
            self._received(received.neighbour, received.message, work)
        elif isinstance(received, Born):
            self._born(received.source, received.events, work)
        elif isinstance(received, TimerFired):
            self._fired(received.name, work)
        elif isinstance(received, SourcesEnded):
            for feed in self.local.values():
                ended = feed.sources.keys() & set(received.sources)
                if ended:
                    feed.ended |= ended
                    feed.moved(work)
        elif isinstance(received, Ordered):
            self._ordered(received.order, work)
        else:
            assert_never(received)
        if work.queue:
            work.run()
        if work.boxes:
            work.flush()
        return work.effects

    def _born(self, source: int, events: tuple[Event, ...], work: Work) -> None:
        for event in events:
            feed = self.local.get(event[3].name)
            if feed is None:
                work.report("unadvertised_events")
            else:
                feed.born(source, event, work)

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
                feed.moved(work)

    def _received(self, neighbour: str, message: Message, work: Work) -> None:
        if isinstance(message, Batch):  # most messages are batches or wants
            self._batch(neighbour, message, work)
            return
        if isinstance(message, Want):
            if (asked := self._outlet(neighbour, message.number, work)) is not None:
                asked.want(message.ts, work)
            return
        match message:
            case Notify(tree, epoch, rows):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.subscribers.deliver(rows, work)
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
                if message.tree == self.name:  # only its root sees a tree stand
                    self._look_for_standing(work)
            case TreeReady():
                if message.plan in self.shares:
                    self._ready(message, work)
                else:
                    self._early.append((neighbour, message))
            case TreeStart(tree, epoch):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.start(work)
            case TreeOver(tree, epoch):
                if (found := self._work(tree, epoch, work)) is not None:
                    for child in found.children:
                        work.send(child, message)
                    self._forget(tree, epoch)
            case Settled(tree, epoch):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.settled_above(message, work)
            case SettledHere(tree, epoch, ts):
                if (found := self._work(tree, epoch, work)) is not None:
                    found.settled_below(neighbour, ts, work)
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
                    self.shares[found.plan].rules.fetch(found, name, work)
            case RulesFetched(tree, epoch, name, rules):
                if (found := self._work(tree, epoch, work)) is not None:
                    store = self.shares[found.plan].rules
                    if store.fetched(found, neighbour, name, rules, work):
                        self._arrange(found, work)
            case TallyRequest(number) | TallyAnswer(number):
                if not any(found.tallies.received(neighbour, message, work) for found in self.works.values()):
                    self._report_stream(neighbour, number, work)
            case Deploy(tree, epoch, number, stream):
                if (found := self._work(tree, epoch, work)) is not None:
                    if isinstance(stream, Tally):
                        found.tallies.serve(number, stream, work)
                    else:
                        self.outlets[neighbour, number] = found.serve(number, stream, work)
                    self._took_on(found, work)
            case _:
                work.report("unknown_message")

    def _work(self, tree: str, epoch: int, work: Work) -> TreeWork | None:
        found = self.works.get((tree, epoch))
        if found is None:
            work.report("forgotten_tree" if (tree, epoch) in self._gone else "unknown_tree")
        return found

    @staticmethod
    def _send_all(sends: list[tuple[str, Any]], work: Work) -> None:
        work.effects += [Send(neighbour, message) for neighbour, message in sends]

    # ---------------------------------------------------------------------------------------------------------- events

    def _batch(self, neighbour: str, batch: Batch, work: Work) -> None:
        inbox = self._inboxes[neighbour]
        if batch.floor_us is not None:  # first: what comes with it, however old, may be referred to again
            inbox.forget_before(batch.floor_us)
        if batch.items:
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

    def _outlet(self, neighbour: str, number: int, work: Work) -> Outlet | None:
        outlet = self.outlets.get((neighbour, number))
        if outlet is None:
            self._report_stream(neighbour, number, work)
        return outlet

    def _report_stream(self, neighbour: str, number: int, work: Work) -> None:
        work.report("forgotten_stream" if (neighbour, number) in self._gone_streams else "unknown_stream")

    def _inlet(self, neighbour: str, number: int, work: Work) -> Inlet | None:
        inlet = self.inlets.get(number)
        if inlet is None or inlet.child != neighbour:
            self._report_stream(neighbour, number, work)
            return None
        return inlet

    # ----------------------------------------------------------------------------------------------------------- trees

    def _ordered(self, order: Order, work: Work) -> None:
        """Do what the coordinator says."""
        match order:
            case Prepare(change, freeze, hold):
                promised = max((feed.promised_most(work.now_us) for feed in self.local.values()), default=-FOREVER)
                promised = max(promised, self._delivered.latest_us)
                self._held_us[change] = promised
                if hold:
                    self._delivered.hold(promised)
                if freeze:
                    for feed in self.local.values():
                        feed.frozen_us = feed.current(work.now_us)
                delivered = tuple(sorted((found.tree, found.delivered) for found in self.works.values()))
                work.effects.append(Tell(Prepared(change, promised, delivered)))
            case Abort(change):
                self._held_us.pop(change, None)
                self._delivered.release(None, work)
                self._thaw(work)
            case Adopt(share):
                self._adopt(share, work)
            case BeginTree(tree, epoch, plan, from_us, prime_us):
                self._ready(TreeReady(tree, epoch, plan, from_us, prime_us), work)
            case ForgetTree(tree, epoch):
                self.trees.ordered(order)
                if (broken := self.works.get((tree, epoch))) is not None:
                    self._broken[tree] = min(broken.delivered, self._broken.get(tree, FOREVER))
                self._forget(tree, epoch)
            case StartTree() | InstallTree() | DropLink():
                self._send_all(self.trees.ordered(order), work)
                self._look_for_standing(work)
            case _:
                assert_never(order)

    def _adopt(self, share: Share, work: Work) -> None:
        """The next plan: earlier ones end where it begins; its trees follow."""
        self.shares[share.plan] = PlanShare(share)
        self._horizon_us = max(self._horizon_us, share.horizon_us)
        for source in share.sources:
            feed = self.local.setdefault(source.type, LocalFeed(source.type))
            feed.sources[source.number] = source
        self._delivered.release(share.from_us, work)
        if share.from_us is not None:
            self._delivered.watch()
            for found in self.works.values():
                if found.plan < share.plan:
                    found.end(share.from_us, work)
        for plan in [plan for plan in self.shares if plan < share.oldest_plan]:
            del self.shares[plan]
        self._drop_old_sources()
        self._held_us.clear()
        self._thaw(work)
        early, self._early = self._early, []
        for neighbour, message in early:
            self._received(neighbour, message, work)
        work.timer("tick", work.now_us + self._tick_us(), idle=True)

    def _thaw(self, work: Work) -> None:
        for feed in self.local.values():
            feed.frozen_us = None
            feed.moved(work)

    def _look_for_standing(self, work: Work) -> None:
        for name in self.trees.rooted_here():
            if name not in self._standing and self.trees.stands(*name):
                self._standing.add(name)
                work.effects.append(Tell(TreeStands(*name)))

    def _forget(self, tree: str, epoch: int) -> None:
        """Free everything of a tree that is over."""
        found = self.works.pop((tree, epoch), None)
        self._gone.add((tree, epoch))
        if found is None:
            return
        found.leave()
        self._gone_streams |= found.tallies.streams()
        for inlet in found.inlets.values():
            self.inlets.pop(inlet.number, None)
            self._gone_streams.add((inlet.child, inlet.number))
        for number, outlet in found.outlets.items():
            self.outlets.pop((outlet.neighbour, number), None)
            self._gone_streams.add((outlet.neighbour, number))

    def _drop_old_sources(self) -> None:
        known = {source.number for share in self.shares.values() for source in share.share.sources}
        for name, feed in list(self.local.items()):
            for number in [number for number in feed.sources if number not in known]:
                del feed.sources[number]
            if not feed.sources:
                del self.local[name]

    def _ready(self, message: TreeReady, work: Work) -> None:
        """The tree stands: make its tables and tell the children; leaves begin to advertise."""
        tree, epoch = message.tree, message.epoch
        if not self.trees.knows(tree, epoch):
            work.report("unknown_tree")
            return
        share = self.shares[message.plan]
        names = {source.type for source in share.share.sources}
        found = TreeWork(
            tree,
            epoch,
            self.trees.parent(tree, epoch),
            self.trees.children(tree, epoch),
            share.catalog,
            {name: self.local[name] for name in names},
            self._numbers,
            self._delivered,
            plan=message.plan,
            from_us=message.from_us,
            prime_us=message.prime_us,
            pulls=share.strategy.endswith("-pp"),
        )
        self.works[tree, epoch] = found
        self._served.add((tree, message.plan))
        if epoch > 1 or self._gone:
            self._delivered.watch()
        newest = max(self.shares)
        later = self.shares[newest].share.from_us
        if found.plan < newest and later is not None:
            found.end(later, work)
        if share.strategy in ONE_TREE or found.parent is None:
            found.subscribers.set_local(share.share.sinks)
        for child in found.children:
            work.send(child, message)
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
        share = self.shares[found.plan]
        wanted = found.subscribers.wanted_types()
        if share.strategy in ONE_TREE:
            rules: list[PlannedRule] | None = share.rules.in_order()
        else:
            rules = share.rules.needed(found, wanted, share.catalog, work)
        if rules is None:
            return
        for planned in rules:
            evaluate = found.evaluate_centrally if share.strategy == "centr" else found.evaluate
            found.dispatch(evaluate(planned, work), planned.rule)
        for name in wanted:
            if name in share.catalog.types:
                of_type = [s for s in found.subscribers.combined() if s.type == name]
                where = of_type[0].where if len(of_type) == 1 and share.strategy != "centr" else ()
                found.dispatch(found.feed(Filter(name, where), work))
        self._took_on(found, work)
        found.start(work)

    def _took_on(self, found: TreeWork, work: Work) -> None:
        """New streams and tasks are there: remember the inlets, and how far back they may reach."""
        for inlet in found.inlets.values():
            self.inlets[inlet.number] = inlet
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
        for found in list(self.works.values()):
            if found.parent is None:
                found.settle(work)
                self._end_if_drained(found, work)
        self._forget_the_past(work)
        work.timer("tick", work.now_us + self._tick_us(), idle=True)

    def _end_if_drained(self, found: TreeWork, work: Work) -> None:
        if found.is_drained(work.now_us):
            for child in found.children:
                work.send(child, TreeOver(found.tree, found.epoch))
            self._forget(found.tree, found.epoch)
            work.effects.append(Tell(TreeDrained(found.tree, found.epoch)))

    def _forget_the_past(self, work: Work) -> None:
        """Bodies that nobody will refer to, events that nothing that starts later can need, and old deliveries."""
        lateness_us = max((feed.lateness_us() for feed in self.local.values()), default=0)
        floor_us = work.now_us - HISTORY_HORIZONS * (self._horizon_us + self._tick_us()) - lateness_us
        for outbox in self._outboxes.values():
            outbox.forget_before(floor_us)
        oldest = min([*self._needed_by_trees(), *self._held_us.values(), work.now_us - lateness_us])
        oldest -= 2 * self._horizon_us + 1
        for feed in self.local.values():
            feed.forget_before(oldest)
        if self._delivered.watchful:  # trees of two plans may find the same as long as both are there
            oldest = min([oldest, *(found.delivered for found in self.works.values())])
        self._delivered.forget_before(oldest)

    def _needed_by_trees(self) -> Iterator[float]:
        """Ends of composites that some tree has yet to find or to deliver, the trees that are to come included."""
        for found in self.works.values():
            if not found.started and found.from_us is not None:
                yield found.from_us
            if found.until_us is None:
                yield found.delivered
        for tree, delivered in list(self._broken.items()):
            newest = self.shares[max(self.shares)]
            instead = [found for found in self.works.values() if found.tree == tree or newest.strategy in ONE_TREE]
            is_wanted = tree in newest.share.trees or newest.strategy in ONE_TREE
            if not is_wanted or any(found.delivered >= delivered > -FOREVER for found in instead):
                del self._broken[tree]
            else:
                yield delivered
        for plan, share in self.shares.items():
            if share.share.from_us is not None and any((tree, plan) not in self._served for tree in share.share.trees):
                yield share.share.from_us

    # --------------------------------------------------------------------------------------------------------- showing

    def tables(self) -> dict[str, Any]:
        """Everything this node knows, as plain data."""
        return {
            "node": self.name,
            "plans": {plan: share.table() for plan, share in sorted(self.shares.items())},
            "sources": {name: feed.lateness_us() for name, feed in sorted(self.local.items())},
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

    def validate(self, now_us: int) -> list[str]:
        """What contradicts itself or is kept for too long, in sentences; nothing, unless there is a bug."""
        return list(validation.broken(self, now_us))

    def unfinished(self) -> list[str]:
        """What still waits for something, in sentences; nothing when all sources have ended and been heard."""
        return list(validation.unfinished(self))

    def held(self) -> int:
        """How many rows, open matches and remembered identities are kept in all."""
        kept = sum(found.held() for found in self.works.values()) + self._delivered.held()
        kept += sum(len(feed.history) for feed in self.local.values())
        kept += sum(len(outbox.history) for outbox in self._outboxes.values())
        return kept + sum(len(inbox.bodies) for inbox in self._inboxes.values())
