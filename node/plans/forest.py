"""The trees that a node takes part in, for the plans it has: how they begin, are served, end and are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from headwater.node.delivery.subscriptions import Delivered
from headwater.node.effects import Send, Tell
from headwater.node.observe.selectivity import PastCounts
from headwater.node.plans.dataflow import Dataflow
from headwater.node.plans.graph_tasks import GraphTasks
from headwater.node.plans.lifecycle import (
    BEFORE_TASKS,
    OVER,
    STARTED,
    Input,
    State,
    TreeName,
    TreeRecord,
    TreeTable,
)
from headwater.node.plans.node_plan import PlanShare
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.plans.stage_cost import PATIENT, StagePatience
from headwater.node.plans.tree_messages import hear
from headwater.node.plans.tree_protocol import Trees
from headwater.node.plans.tree_tasks import TreeTasks
from headwater.node.remote.memory import Memory
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Inlet
from headwater.node.streams.outlets import Outlet
from headwater.node.streams.sources import LocalFeed
from headwater.protocol.graphs import plan_of
from headwater.protocol.messages.neighbour import (
    Advertise,
    Message,
    Subscribe,
    TreeOver,
    TreeReady,
)
from headwater.protocol.messages.plans import (
    Abort,
    Adopt,
    BeginTree,
    DeliveredTo,
    DeliveredWatermark,
    Order,
    PlannedTree,
    Prepare,
    Prepared,
    Share,
    TellDelivered,
    TreeBroken,
    TreeDrained,
    TreeStands,
)
from headwater.protocol.messages.trees import (
    DropLink,
    ForgetTree,
    InstallTree,
    StartTree,
    UseLink,
)

CUT_OFF_EVENTS_MAX = 1_000_000  # events of a node that no tree reaches: some 200 MB that may all be for nothing


class Forest:
    """All trees of one node, and what it knows of plans."""

    def __init__(
        self,
        name: str,
        neighbours: Mapping[str, int],
        memory: Memory,
        *,
        values: bool = True,
        patience: StagePatience = PATIENT,
    ) -> None:
        """``memory``: what the node has at hand of remote tables."""
        self.name = name
        self._memory = memory
        self._values = values
        self._patience = patience
        self.table = TreeTable()
        """Every tree and graph that this node knows, with its state."""
        self.trees = Trees(name, neighbours, self.table)
        self.shares: dict[int, PlanShare] = {}
        """What this node knows of the plans that still run."""
        self.local: dict[str, LocalFeed] = {}
        self.unheard: dict[int, int] = {}
        """By number of a source that may have told something that this node could not hear, since when."""
        self.works: dict[TreeName, PlanTasks] = {}
        """An index of the table: the trees that have tasks here. Every tick goes over them, and trees that are over
        outnumber them in time."""
        self.inlets: dict[int, Inlet] = {}
        self.outlets: dict[tuple[str, int], Outlet] = {}
        self.delivered = Delivered()
        self.horizon_us = 0
        self.lateness_us = 0
        self.past = PastCounts()
        """What was counted in trees that are over."""
        self._numbers = Numbers()
        self._held_us: dict[int, float] = {}
        """Changes that are being prepared, each with what was promised: everything later must be kept."""
        self._lost_us: float | None = None
        """Since a loss was told of: how far the trees had delivered then. Until they have been replaced, what they may
        have missed or repeated must be remembered."""
        self._cut_off_us: float | None = None
        """Where trees of the newest plan begin that do not reach every node; None: they all do, or too much is kept
        for those that may take their place."""
        self._oldest_plan = 0

    # -------------------------------------------------------------------------------------------------------- messages

    def received(self, neighbour: str, message: Message, work: Work) -> None:
        """A neighbour speaks about trees."""
        hear(self, neighbour, message, work)

    def with_tasks(self, tree: str, epoch: int, work: Work) -> TreeRecord | None:
        """The record of a tree that has tasks here; that it has none is reported."""
        record = self.table.get(tree, epoch)
        if record is None or record.tasks is None:
            self.report_tree(tree, epoch, work)
            return None
        return record

    def tasks_of(self, tree: str, epoch: int, work: Work) -> PlanTasks | None:
        """The same for the tasks."""
        record = self.with_tasks(tree, epoch, work)
        return None if record is None else record.tasks

    def report_tree(self, tree: str, epoch: int, work: Work) -> None:
        """Something came about a tree that is not here. Of this node's own trees only it can have begun one: if it does
        not remember, it was in an earlier life."""
        was_here = self.table.state(tree, epoch) in OVER or self.trees.is_forgotten(tree, epoch) or tree == self.name
        work.report("forgotten_tree" if was_here else "unknown_tree")

    @staticmethod
    def send_all(sends: list[tuple[str, Any]], work: Work) -> None:
        work.effects += [Send(neighbour, message) for neighbour, message in sends]

    def feed_of(self, source: int) -> LocalFeed | None:
        """The local feed that a source belongs to."""
        return next((feed for feed in self.local.values() if source in feed.sources), None)

    def heard(self, sources: Sequence[int], work: Work) -> None:
        """Everything that these sources have told has come."""
        again = {number for number in sources if self.unheard.pop(number, None) is not None}
        for feed in self.local.values():
            if not again.isdisjoint(feed.sources):
                feed.moved(work)

    def report_stream(self, neighbour: str, number: int, work: Work) -> None:
        """Something came for a stream that is not here."""
        was_here = (neighbour, number) in self.table.streams_over
        if number < 0:  # of another plan than the newest it can only be if it was known in an earlier life
            was_here = was_here or plan_of(number) != max(self.shares, default=0)
        work.report("forgotten_stream" if was_here else "unknown_stream")

    # ---------------------------------------------------------------------------------------------------------- orders

    def ordered(self, order: Order, work: Work) -> None:
        """Do what the coordinator says."""
        match order:
            case Prepare():
                self._prepare(order, work)
            case Abort(change):
                self._held_us.pop(change, None)
                self.delivered.release(None, work)
                self._thaw(work)
            case Adopt(share):
                self._adopt(share, work)
            case BeginTree(tree, epoch, plan, from_us, prime_us):
                self.ready(TreeReady(tree, epoch, plan, from_us, prime_us), work)
            case TellDelivered(loss):
                self._tell_delivered(loss, work)
            case ForgetTree(tree, epoch):
                self.forget(tree, epoch)
            case DropLink() | UseLink():
                before = set(self.trees.broken())
                self.send_all(self.trees.ordered(order), work)
                self._tell_broken(before, work)
                self.look_for_standing(work)
            case StartTree():
                self.send_all(self.trees.ordered(order), work)
                self.look_for_standing(work)
            case InstallTree():
                self.send_all(self.trees.ordered(order), work)
                self.look_for_standing(work)
                self._hear_early(work)
            case _:
                assert_never(order)

    def _prepare(self, order: Prepare, work: Work) -> None:
        """Tell what has been promised, and keep everything later until the change is decided."""
        promised = max((feed.promised_most(work.now_us) for feed in self.local.values()), default=-FOREVER)
        promised = max(promised, self.delivered.latest_us)
        self._held_us[order.change] = promised
        if order.hold:
            self.delivered.hold(promised)
        if order.freeze:
            for feed in self.local.values():
                feed.frozen_us = feed.current(work.now_us)
        work.effects.append(Tell(Prepared(order.change, promised)))

    def _tell_delivered(self, loss: int, work: Work) -> None:
        """After a loss: how far the trees have delivered, those included that were lost with it."""
        self._lost_us = min([*self._unfinished(), FOREVER if self._lost_us is None else self._lost_us])
        delivered = {name: tasks.delivered for name, tasks in self.works.items()}
        for record in self.table:
            if record.state == State.LOST and record.reached_us is not None:
                delivered[record.name] = record.reached_us
        watermarks = tuple(DeliveredWatermark(*name, reached) for name, reached in sorted(delivered.items()))
        work.effects.append(Tell(DeliveredTo(loss, watermarks)))

    def link_reset(self, neighbour: str, work: Work) -> None:
        """The neighbour has lost its memory: trees that it is a part of here are over. The others do not know yet."""
        before = set(self.trees.broken())
        self.send_all(self.trees.link_reset(neighbour), work)
        for name, tasks in list(self.works.items()):
            if tasks.uses(neighbour):
                record = self.table.record(*name)
                self._free_tasks(record)
                record.move(Input.RESET)
                record.reached_us = tasks.delivered
                if not self.trees.is_broken(*name):  # streams were shared with it, though the tree goes another way
                    work.effects.append(Tell(TreeBroken(*name)))
        self.table.forget_neighbour(neighbour)
        self._tell_broken(before, work)

    def _tell_broken(self, before: set[TreeName], work: Work) -> None:
        work.effects += [Tell(TreeBroken(*name)) for name in self.trees.broken() if name not in before]

    def _adopt(self, share: Share, work: Work) -> None:
        """The next plan: earlier ones end where it begins; its trees follow."""
        self.shares[share.plan] = PlanShare(self.name, share, self._memory)
        self._oldest_plan = share.oldest_plan
        self.horizon_us = max(self.horizon_us, share.horizon_us)
        self.lateness_us = max(self.lateness_us, share.lateness_us)
        for source in share.sources:
            feed = self.local.setdefault(source.type, LocalFeed(source.type, self.unheard))
            feed.sources[source.number] = source
        self.delivered.release(share.from_us, work)
        if len(self.shares) > 1:
            self.delivered.watch()
        if share.from_us is not None:
            for name, tasks in self.works.items():
                if tasks.plan < share.plan:
                    self._end(self.table.record(*name), share.from_us, work)
        for record in self.table:
            if record.state in BEFORE_TASKS:
                record.reached_us = None
        for planned in share.trees:
            if self.trees.is_forgotten(planned.tree, planned.epoch):
                continue
            record = self.table.record(planned.tree, planned.epoch)
            if record.state == State.UNKNOWN:
                record.move(Input.NAME)
            if record.state in BEFORE_TASKS:
                record.reached_us = _before(planned)
        self._cut_off_us = min(map(_before, share.cut_off), default=None)
        self._drop_old_plans()
        self._held_us.clear()
        self._lost_us = None
        self._thaw(work)
        self._hear_early(work)

    def _hear_early(self, work: Work) -> None:
        for neighbour, message in self.table.take_early():
            self.received(neighbour, message, work)

    def _thaw(self, work: Work) -> None:
        for feed in self.local.values():
            feed.frozen_us = None
            feed.moved(work)

    def look_for_standing(self, work: Work) -> None:
        for name in self.trees.rooted_here():
            record = self.table.record(*name)
            if record.state == State.BUILDING and self.trees.stands(*name):
                record.move(Input.STAND)
                work.effects.append(Tell(TreeStands(*name)))

    def forget(self, tree: str, epoch: int, why: Input = Input.FORGET) -> None:
        """Free everything of a tree that is over."""
        record = self.table.record(tree, epoch)
        self._free_tasks(record)
        record.reached_us = None
        self.trees.forget(tree, epoch, why)
        self._drop_old_plans()

    def _free_tasks(self, record: TreeRecord) -> None:
        tasks, record.tasks = record.tasks, None
        if tasks is None:
            return
        del self.works[record.name]
        self.past.keep(tasks)
        tasks.leave()
        self.table.streams_over |= tasks.streams()
        for inlet in tasks.inlets.values():
            self.inlets.pop(inlet.number, None)
        for number, outlet in tasks.outlets.items():
            self.outlets.pop((outlet.neighbour, number), None)

    def _drop_old_plans(self) -> None:
        """Plans that no tree serves any more, and the sources that were part of nothing else. Their events stay for as
        long as a tree may need them: a source may have brought some that are later than its end, before it was told."""
        oldest = min([self._oldest_plan, *(tasks.plan for tasks in self.works.values())])
        old = [plan for plan in self.shares if plan < oldest]
        for plan in old:
            del self.shares[plan]
        if old:
            named = {(planned.tree, planned.epoch) for plan in self.shares.values() for planned in plan.share.trees}
            for record in list(self.table):
                if record.state == State.NAMED and record.name not in named:
                    self.table.unname(record)
        source_numbers = {source.number for share in self.shares.values() for source in share.share.sources}
        for name, feed in list(self.local.items()):
            for number in [number for number in feed.sources if number not in source_numbers]:
                del feed.sources[number]
            if feed.is_over():
                del self.local[name]

    def ready(self, message: TreeReady, work: Work) -> None:
        """The tree stands: make its tables and tell the children; leaves begin to advertise."""
        tree, epoch = message.tree, message.epoch
        share = self.shares.get(message.plan)
        record = self.table.get(tree, epoch)
        if (record is None or record.build is None) and share is not None:
            self.report_tree(tree, epoch, work)
            return
        if share is None or record is None or self.trees.is_broken(tree, epoch) or record.state == State.LOST:
            work.report("forgotten_tree")
            return
        if not record.accepts(Input.READY):
            work.report("unknown_message")
            return
        record.move(Input.READY)
        record.reached_us = None
        tasks = self._tasks_for(record, share, message)
        self.took_on(tasks)
        tasks.laid(work)
        record.tasks = self.works[tree, epoch] = tasks
        if epoch > 1 or any(other.state in OVER for other in self.table):
            self.delivered.watch()
        for plan, later in self.shares.items():  # the next plan may be known before the trees of this one are ready
            if plan > tasks.plan and later.share.from_us is not None:
                self._end(record, later.share.from_us, work)
        if share.strategy.one_tree or tasks.parent is None:
            tasks.subscribers.set_local(share.share.sinks)
        for child in tasks.children:
            work.send(child, message)
        self.advertise(record, work)
        if isinstance(tasks, GraphTasks):
            self._hear_early(work)

    def _tasks_for(self, record: TreeRecord, share: PlanShare, message: TreeReady) -> PlanTasks:
        """The tasks of this node in a tree that stands, or in a graph if the plan has one for it."""
        tree, epoch = record.name
        names = {source.type for source in share.share.sources}
        for name, feed in self.local.items():  # what is left of sources that have ended
            if all(source.until_us is not None for source in feed.sources.values()):
                names.add(name)
        flow = Dataflow(
            record,
            self.trees.parent(tree, epoch),
            self.trees.children(tree, epoch),
            share.catalog,
            {name: self.local[name] for name in names},
            self._numbers,
            self.delivered,
            plan=message.plan,
            from_us=message.from_us,
            prime_us=message.prime_us,
        )
        graph = next((graph for graph in share.share.graphs if (graph.tree, graph.epoch) == (tree, epoch)), None)
        if graph is None:
            everywhere = share.share.everywhere
            return TreeTasks(flow, pulls=share.strategy.pulls, values=self._values, everywhere=everywhere)
        return GraphTasks(flow, graph, self._patience, values=self._values)

    def advertise(self, record: TreeRecord, work: Work) -> None:
        """When all children have spoken, tell the parent; the root then arranges the evaluation."""
        tasks = record.tasks_here()
        if record.state != State.GATHERING or not tasks.is_ready():
            return
        record.move(Input.ADVERTISE)
        if tasks.parent is not None:
            work.send(tasks.parent, Advertise(tasks.tree, tasks.epoch, tasks.advertisement()))
            work.send(tasks.parent, Subscribe(tasks.tree, tasks.epoch, tasks.subscription()))
        else:
            self.arrange(record, work)

    def start(self, record: TreeRecord, work: Work) -> None:
        """Sources begin. Where the next plan is known to begin is known before, now and then."""
        tasks = record.tasks_here()
        record.move(Input.START)
        tasks.start(work)
        if tasks.until_us is not None:
            record.move(Input.END)

    def _end(self, record: TreeRecord, until_us: int, work: Work) -> None:
        """The next plan begins here: what is later is its own."""
        record.tasks_here().end(until_us, work)
        if record.state in STARTED:
            record.move(Input.END)

    def arrange(self, record: TreeRecord, work: Work) -> None:
        """At the root: have rules evaluated and their composites delivered; then everything can start."""
        tasks = record.tasks_here()
        if tasks.arrange(self.shares[tasks.plan], work):
            self.took_on(tasks)
            self.start(record, work)

    def took_on(self, tasks: PlanTasks) -> None:
        """New streams are there: what comes for them must find them."""
        for inlet in tasks.inlets.values():
            self.inlets[inlet.number] = inlet
        for number, outlet in tasks.outlets.items():
            self.outlets[outlet.neighbour, number] = outlet

    # ---------------------------------------------------------------------------------------------------- housekeeping

    def settle(self, work: Work) -> None:
        """Now and then, for trees that have their root here: tell how far they have come."""
        for tasks in self.works.values():
            if tasks.settles:
                tasks.settle(work)

    def end_drained(self, work: Work) -> None:
        """End the trees of earlier plans that have nothing left to find."""
        for tasks in list(self.works.values()):
            if tasks.settles and tasks.until_us is not None:
                tasks.settle(work)
                if tasks.parent is None:
                    self._end_if_drained(tasks, work)

    def _end_if_drained(self, tasks: PlanTasks, work: Work) -> None:
        if tasks.is_drained(work.now_us):
            for child in tasks.children:
                work.send(child, TreeOver(tasks.tree, tasks.epoch))
            self.forget(tasks.tree, tasks.epoch, Input.DRAIN)
            work.effects.append(Tell(TreeDrained(tasks.tree, tasks.epoch)))

    def look(self, work: Work) -> None:
        """Whether stages that are watched cost too much."""
        for tasks in self.works.values():
            tasks.look(work)

    def forget_the_past(self, promised_us: float) -> None:
        """Events that nothing that starts later can need, and deliveries that nothing can repeat."""
        oldest = min([*self._unfinished(), *self._held_us.values(), promised_us])
        oldest -= 2 * self.horizon_us + 1
        for name, feed in list(self.local.items()):
            feed.forget_before(oldest)
            if feed.is_over():
                del self.local[name]
        self.delivered.forget_before(oldest)
        if self._cut_off_us is not None and sum(len(feed.history) for feed in self.local.values()) > CUT_OFF_EVENTS_MAX:
            self._cut_off_us = None

    def awaited(self) -> list[TreeName]:
        """Builds of trees that the newest plan names and that do not deliver anything here yet."""
        return sorted(
            record.name
            for record in self.table
            if (record.tasks is not None and record.state not in STARTED)
            or (record.state in BEFORE_TASKS and record.reached_us is not None)
        )

    def _unfinished(self) -> Iterator[float]:
        """How far each tree has delivered; those that are to come, and those that were lost, included.

        What takes the place of one of them begins right after it, and reads events of two horizons before: one for what
        is still decided by later events, one for its parts.
        """
        for tasks in self.works.values():
            yield tasks.delivered
        for record in self.table:
            if record.reached_us is not None:
                yield record.reached_us
        if self._lost_us is not None:
            yield self._lost_us
        if self._cut_off_us is not None:
            yield self._cut_off_us


def _before(planned: PlannedTree) -> float:
    """Up to where others deliver what a build need not."""
    return -FOREVER if planned.from_us is None else planned.from_us - 1
