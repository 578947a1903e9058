"""The trees a node takes part in, for the plans it knows: how they begin, are served, end and are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, assert_never

from headwater.node.delivery.subscriptions import Delivered
from headwater.node.effects import Send, Tell
from headwater.node.observe.selectivity import Past
from headwater.node.plans.graph_tasks import GraphWork
from headwater.node.plans.share import PlanShare
from headwater.node.plans.stage_cost import PATIENT, Patience
from headwater.node.plans.tree_protocol import EARLY_MAX, Trees
from headwater.node.plans.tree_tasks import TreeWork
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Inlet
from headwater.node.streams.outlets import Outlet
from headwater.node.streams.sources import LocalFeed
from headwater.protocol.analysis.bounds import horizon_us
from headwater.protocol.errors import RuleError
from headwater.protocol.graphs import plan_of
from headwater.protocol.messages.neighbour import (
    Advertise,
    Deploy,
    FetchRules,
    Filter,
    GraphLaid,
    Message,
    RulesFetched,
    Settled,
    SettledHere,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
)
from headwater.protocol.messages.plans import (
    Abort,
    Adopt,
    BeginTree,
    DeliveredMark,
    DeliveredTo,
    Order,
    PlannedRule,
    PlannedTree,
    Prepare,
    Prepared,
    Share,
    TellDelivered,
    TreeBroken,
    TreeDrained,
    TreeStands,
)
from headwater.protocol.messages.tallies import Tally
from headwater.protocol.messages.trees import (
    CreateTree,
    DropLink,
    ForgetTree,
    InstallTree,
    LinkAgain,
    StartTree,
    TreeAck,
    TreeNack,
    UseLink,
)
from headwater.protocol.streams import whole_streams

TreeName = tuple[str, int]

GONE_MAX = 100_000  # streams of trees that are not here of which a neighbour may have more to say; it may invent them
CUT_OFF_EVENTS_MAX = 1_000_000  # events of a node that no tree reaches: some 200 MB that may all be for nothing


class Forest:
    """All trees of one node, and what it knows of plans."""

    def __init__(
        self, name: str, neighbours: Mapping[str, int], *, values: bool = True, patience: Patience = PATIENT
    ) -> None:
        self.name = name
        self._values = values
        self._patience = patience
        self.trees = Trees(name, neighbours)
        self.shares: dict[int, PlanShare] = {}
        """What this node knows of the plans that still run."""
        self.local: dict[str, LocalFeed] = {}
        self.unheard: dict[int, int] = {}
        """By number of a source that may have told something that this node could not hear, since when."""
        self.works: dict[TreeName, TreeWork] = {}
        self.inlets: dict[int, Inlet] = {}
        self.outlets: dict[tuple[str, int], Outlet] = {}
        self.delivered = Delivered()
        self.horizon_us = 0
        self.lateness_us = 0
        self.past = Past()
        """What was counted in trees that are over."""
        self._numbers = Numbers()
        self._standing: set[TreeName] = set()
        self._gone: set[TreeName] = set()
        """Trees that were given up, and streams of theirs: something of them may still be on its way."""
        self._gone_streams: set[tuple[str, int]] = set()
        self._named: set[TreeName] = set()
        """The builds that the coordinator has told of in plans that still hold."""
        self._early: list[tuple[str, Message]] = []
        """Messages about a plan that the coordinator has not yet told of."""
        self._held_us: dict[int, float] = {}
        """Changes that are being prepared, each with what was promised: everything later must be kept."""
        self._lost_us: float | None = None
        """Since a loss was told of: how far the trees had delivered then. Until they have been replaced, what they may
        have missed or repeated must be remembered."""
        self._awaited: dict[TreeName, float] = {}
        """Trees that are being built or have not yet begun here, each with how far those before it deliver."""
        self._cut_off_us: float | None = None
        """Where trees of the newest plan begin that do not reach every node; None: they all do, or too much is kept
        for those that may take their place."""
        self._torn: dict[TreeName, float] = {}
        """Trees that have lost a link here and were given up, each with how far it had delivered; the coordinator has
        not yet decided what takes their place."""
        self._oldest_plan = 0

    # -------------------------------------------------------------------------------------------------------- messages

    def received(self, neighbour: str, message: Message, work: Work) -> None:
        """A neighbour speaks about trees."""
        match message:
            case CreateTree() | TreeAck() | TreeNack():
                if isinstance(message, CreateTree) and not self._may_build(message.tree, message.epoch):
                    self._keep_early(neighbour, message, work)
                    return
                before = self.trees.unknown
                self._send_all(self.trees.received(neighbour, message), work)
                if self.trees.unknown > before:
                    self._report_tree(message.tree, message.epoch, work)
                if message.tree == self.name:  # only its root sees a tree stand
                    self._look_for_standing(work)
            case LinkAgain(again):
                self.trees.link_again(neighbour, again)
            case TreeReady(tree, epoch):
                comes = (tree, epoch) in self._named and not self.trees.knows(tree, epoch)  # as the coordinator says
                if message.plan <= max(self.shares, default=-1) and not (comes and self._installs(message.plan)):
                    self._ready(message, work)
                else:
                    self._keep_early(neighbour, message, work)
            case GraphLaid(tree, epoch):
                laid = self.works.get((tree, epoch))
                if isinstance(laid, GraphWork):
                    laid.partners_ready.add(neighbour)
                    self._advertise(laid, work)
                elif not self._is_past(tree, epoch):
                    self._keep_early(neighbour, message, work)
            case TreeStart(tree, epoch):
                if (found := self.work(tree, epoch, work)) is not None:
                    found.start(work)
            case TreeOver(tree, epoch):
                if (found := self.work(tree, epoch, work)) is not None:
                    for child in found.children:
                        work.send(child, message)
                    self._forget(tree, epoch)
            case Settled(tree, epoch):
                if (found := self.work(tree, epoch, work)) is not None:
                    found.settled_above(message, work)
            case SettledHere(tree, epoch, ts):
                if (found := self._work_above(neighbour, tree, epoch, work)) is not None:
                    found.settled_below(neighbour, ts, work)
            case Advertise(tree, epoch, types):
                if (found := self._work_above(neighbour, tree, epoch, work)) is not None:
                    found.advertised[neighbour] = frozenset(types)
                    self._advertise(found, work)
            case Subscribe(tree, epoch, subscriptions):
                if (found := self._work_above(neighbour, tree, epoch, work)) is not None:
                    if refused := found.subscribers.set_child(neighbour, subscriptions):
                        work.report("unknown_conditions", refused)
                    found.subscribed.add(neighbour)
                    self._advertise(found, work)
            case FetchRules(tree, epoch, name):
                if (found := self.work(tree, epoch, work)) is not None:
                    self.shares[found.plan].rules.fetch(found, name, work)
            case RulesFetched(tree, epoch, name, rules):
                if (found := self.work(tree, epoch, work)) is not None:
                    store = self.shares[found.plan].rules
                    if store.fetched(found, neighbour, name, rules, work):
                        self._arrange(found, work)
            case Deploy(tree, epoch, number, stream, marks_only):
                if (found := self.work(tree, epoch, work)) is None:
                    if len(self._gone_streams) < GONE_MAX:
                        self._gone_streams.add((neighbour, number))  # more about it may follow
                else:
                    if neighbour != found.parent or not found.can_serve(stream):
                        work.report("unknown_stream")
                        return
                    try:
                        if isinstance(stream, Tally):
                            found.tallies.serve(number, stream, work)
                        else:
                            self.outlets[neighbour, number] = found.serve(number, stream, work, marks_only=marks_only)
                    except RuleError:  # whoever asks for it does not know the types, or is newer
                        work.report("unknown_stream")
                    self._took_on(found)
            case _:
                work.report("unknown_message")

    def _may_build(self, tree: str, epoch: int) -> bool:
        """Whether the coordinator has named this build, or it is known here: nobody else may begin one."""
        name = (tree, epoch)
        return name in self._named or tree == self.name or self.trees.knows(*name) or self.trees.is_forgotten(*name)

    def _is_past(self, tree: str, epoch: int) -> bool:
        """Whether a build is over here, or was before this node knew of any."""
        if (tree, epoch) in self._gone or self.trees.is_forgotten(tree, epoch):
            return True
        return (tree, epoch) not in self._named and any(name == tree and later > epoch for name, later in self._named)

    def _installs(self, plan: int) -> bool:
        """Whether the trees of a plan are put in place by the coordinator, not built."""
        return plan in self.shares and bool(self.shares[plan].share.graphs)

    def _keep_early(self, neighbour: str, message: Message, work: Work) -> None:
        if len(self._early) < EARLY_MAX:
            self._early.append((neighbour, message))
        else:
            work.report("unknown_tree")

    def work(self, tree: str, epoch: int, work: Work) -> TreeWork | None:
        found = self.works.get((tree, epoch))
        if found is None:
            self._report_tree(tree, epoch, work)
        return found

    def _work_above(self, neighbour: str, tree: str, epoch: int, work: Work) -> TreeWork | None:
        """The same for what only a child may say."""
        found = self.work(tree, epoch, work)
        if found is not None and neighbour not in found.children:
            work.report("unknown_child")
            return None
        return found

    def _report_tree(self, tree: str, epoch: int, work: Work) -> None:
        """Something came about a tree that is not here. Of this node's own trees only it can have begun one: if it does
        not remember, it was in an earlier life."""
        known = (tree, epoch) in self._gone or self.trees.is_forgotten(tree, epoch) or tree == self.name
        work.report("forgotten_tree" if known else "unknown_tree")

    @staticmethod
    def _send_all(sends: list[tuple[str, Any]], work: Work) -> None:
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
        known = (neighbour, number) in self._gone_streams
        if number < 0:  # of another plan than the newest it can only be if it was known in an earlier life
            known = known or plan_of(number) != max(self.shares, default=0)
        work.report("forgotten_stream" if known else "unknown_stream")

    # ---------------------------------------------------------------------------------------------------------- orders

    def ordered(self, order: Order, work: Work) -> None:
        """Do what the coordinator says."""
        match order:
            case Prepare(change, freeze, hold):
                promised = max((feed.promised_most(work.now_us) for feed in self.local.values()), default=-FOREVER)
                promised = max(promised, self.delivered.latest_us)
                self._held_us[change] = promised
                if hold:
                    self.delivered.hold(promised)
                if freeze:
                    for feed in self.local.values():
                        feed.frozen_us = feed.current(work.now_us)
                work.effects.append(Tell(Prepared(change, promised)))
            case Abort(change):
                self._held_us.pop(change, None)
                self.delivered.release(None, work)
                self._thaw(work)
            case Adopt(share):
                self._adopt(share, work)
            case BeginTree(tree, epoch, plan, from_us, prime_us):
                self._ready(TreeReady(tree, epoch, plan, from_us, prime_us), work)
            case TellDelivered(loss):
                self._lost_us = min([*self._unfinished(), FOREVER if self._lost_us is None else self._lost_us])
                known = {name: found.delivered for name, found in self.works.items()} | self._torn
                marks = tuple(DeliveredMark(*name, delivered) for name, delivered in sorted(known.items()))
                work.effects.append(Tell(DeliveredTo(loss, marks)))
            case ForgetTree(tree, epoch):
                self._forget(tree, epoch)
            case DropLink() | UseLink():
                before = set(self.trees.broken())
                self._send_all(self.trees.ordered(order), work)
                self._tell_broken(before, work)
                self._look_for_standing(work)
            case StartTree() | InstallTree():
                self._send_all(self.trees.ordered(order), work)
                self._look_for_standing(work)
                if isinstance(order, InstallTree):
                    self._hear_early(work)
            case _:
                assert_never(order)

    def link_reset(self, neighbour: str, work: Work) -> None:
        """The neighbour has lost its memory: trees that it is a part of here are over. The others do not know yet."""
        before = set(self.trees.broken())
        self._send_all(self.trees.link_reset(neighbour), work)
        for name, found in list(self.works.items()):
            if found.uses(neighbour):
                self._forget_work(*name)
                self._torn[name] = found.delivered
                if name not in self.trees.broken():  # streams were shared with it, though the tree goes another way
                    work.effects.append(Tell(TreeBroken(*name)))
        self._early = [(sender, message) for sender, message in self._early if sender != neighbour]
        self._gone_streams = {stream for stream in self._gone_streams if stream[0] != neighbour}
        self._tell_broken(before, work)

    def _tell_broken(self, before: set[TreeName], work: Work) -> None:
        work.effects += [Tell(TreeBroken(*name)) for name in self.trees.broken() if name not in before]

    def _adopt(self, share: Share, work: Work) -> None:
        """The next plan: earlier ones end where it begins; its trees follow."""
        self.shares[share.plan] = PlanShare(share)
        self._named |= {(planned.tree, planned.epoch) for planned in share.trees}
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
            for found in self.works.values():
                if found.plan < share.plan:
                    found.end(share.from_us, work)
        self._awaited = {
            (planned.tree, planned.epoch): _before(planned)
            for planned in share.trees
            if (planned.tree, planned.epoch) not in self.works.keys() | self._gone
        }
        self._cut_off_us = min(map(_before, share.cut_off), default=None)
        self._drop_old_plans()
        self._held_us.clear()
        self._lost_us = None
        self._thaw(work)
        self._hear_early(work)

    def _hear_early(self, work: Work) -> None:
        early, self._early = self._early, []
        for neighbour, message in early:
            self.received(neighbour, message, work)

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
        self.trees.forget(tree, epoch)
        self._forget_work(tree, epoch)
        self._torn.pop((tree, epoch), None)
        self._awaited.pop((tree, epoch), None)
        self._standing.discard((tree, epoch))
        self._drop_old_plans()

    def _forget_work(self, tree: str, epoch: int) -> None:
        found = self.works.pop((tree, epoch), None)
        self._gone.add((tree, epoch))
        if found is None:
            return
        self.past.keep(found)
        found.leave()
        self._gone_streams |= found.tallies.streams()
        for inlet in found.inlets.values():
            self.inlets.pop(inlet.number, None)
            self._gone_streams.add((inlet.child, inlet.number))
        for number, outlet in found.outlets.items():
            self.outlets.pop((outlet.neighbour, number), None)
            self._gone_streams.add((outlet.neighbour, number))

    def _drop_old_plans(self) -> None:
        """Plans that no tree serves any more, and the sources that were part of nothing else. Their events stay for as
        long as a tree may need them: a source may have brought some that are later than its end, before it was told."""
        oldest = min([self._oldest_plan, *(found.plan for found in self.works.values())])
        old = [plan for plan in self.shares if plan < oldest]
        for plan in old:
            del self.shares[plan]
        if old:
            plans = self.shares.values()
            self._named = {(each.tree, each.epoch) for plan in plans for each in plan.share.trees}
        known = {source.number for share in self.shares.values() for source in share.share.sources}
        for name, feed in list(self.local.items()):
            for number in [number for number in feed.sources if number not in known]:
                del feed.sources[number]
            if feed.is_over():
                del self.local[name]

    def _ready(self, message: TreeReady, work: Work) -> None:
        """The tree stands: make its tables and tell the children; leaves begin to advertise."""
        tree, epoch = message.tree, message.epoch
        share = self.shares.get(message.plan)
        if not self.trees.knows(tree, epoch) and share is not None:
            self._report_tree(tree, epoch, work)
            return
        if share is None or self.trees.is_broken(tree, epoch):
            work.report("forgotten_tree")
            return
        names = {source.type for source in share.share.sources}
        for name, feed in self.local.items():  # what is left of sources that have ended
            if all(source.until_us is not None for source in feed.sources.values()):
                names.add(name)
        graph = next((each for each in share.share.graphs if (each.tree, each.epoch) == (tree, epoch)), None)
        found = (TreeWork if graph is None else GraphWork)(
            tree,
            epoch,
            self.trees.parent(tree, epoch),
            self.trees.children(tree, epoch),
            share.catalog,
            {name: self.local[name] for name in names},
            self._numbers,
            self.delivered,
            plan=message.plan,
            from_us=message.from_us,
            prime_us=message.prime_us,
            pulls=share.strategy.pulls,
            values=self._values,
        )
        if isinstance(found, GraphWork):
            assert graph is not None
            found.lay(graph, self._patience)
            self.outlets |= {(outlet.neighbour, number): outlet for number, outlet in found.outlets.items()}
            self._took_on(found)
            found.tell_partners(work)
        self.works[tree, epoch] = found
        self._awaited.pop((tree, epoch), None)
        if epoch > 1 or self._gone:
            self.delivered.watch()
        for plan, later in self.shares.items():  # the next plan may be known before the trees of this one are ready
            if plan > found.plan and later.share.from_us is not None:
                found.end(later.share.from_us, work)
        if share.strategy.one_tree or found.parent is None:
            found.subscribers.set_local(share.share.sinks)
        for child in found.children:
            work.send(child, message)
        self._advertise(found, work)
        if isinstance(found, GraphWork):
            self._hear_early(work)

    def _advertise(self, found: TreeWork, work: Work) -> None:
        """When all children have spoken, tell the parent; the root then arranges the evaluation."""
        if found.told or not found.is_ready():
            return
        found.told = True
        if found.parent is not None:
            work.send(found.parent, Advertise(found.tree, found.epoch, found.advertisement()))
            wanted = () if isinstance(found, GraphWork) else found.subscribers.combined()
            work.send(found.parent, Subscribe(found.tree, found.epoch, wanted))
        else:
            self._arrange(found, work)

    def _arrange(self, found: TreeWork, work: Work) -> None:
        """At the root: have rules evaluated and their composites delivered."""
        if isinstance(found, GraphWork):
            found.start(work)
            return
        share = self.shares[found.plan]
        wanted = found.subscribers.wanted_types()
        if share.strategy.one_tree:
            rules: list[PlannedRule] | None = share.rules.in_order()
        else:
            rules = share.rules.needed(found, wanted, share.catalog, work)
        if rules is None:
            return
        if share.strategy.filters:
            for planned in rules:
                found.hear(planned.rule, work)
        bounds = ((each.rule, each.since_us, each.until_us) for each in rules)
        for stream in whole_streams(bounds, horizon_us, found.from_us):
            evaluate = found.evaluate if share.strategy.filters else found.evaluate_centrally
            found.dispatch(evaluate(stream, work), stream)
        for name in wanted:
            if name in share.catalog.types:
                of_type = [s for s in found.subscribers.combined() if s.type == name]
                where = of_type[0].where if len(of_type) == 1 and share.strategy.filters else ()
                found.dispatch(found.feed(Filter(name, where), work))
        self._took_on(found)
        found.start(work)

    def _took_on(self, found: TreeWork) -> None:
        """New streams are there: remember the inlets."""
        for inlet in found.inlets.values():
            self.inlets[inlet.number] = inlet

    # ---------------------------------------------------------------------------------------------------- housekeeping

    def settle(self, work: Work) -> None:
        """Now and then, for trees that have their root here: tell how far they have come."""
        for found in self.works.values():
            if found.settles:
                found.settle(work)

    def end_drained(self, work: Work) -> None:
        """End the trees of earlier plans that have nothing left to find."""
        for found in list(self.works.values()):
            if found.settles and found.until_us is not None:
                found.settle(work)
                if found.parent is None:
                    self._end_if_drained(found, work)

    def _end_if_drained(self, found: TreeWork, work: Work) -> None:
        if found.is_drained(work.now_us):
            for child in found.children:
                work.send(child, TreeOver(found.tree, found.epoch))
            self._forget(found.tree, found.epoch)
            work.effects.append(Tell(TreeDrained(found.tree, found.epoch)))

    def look(self, work: Work) -> None:
        """Whether stages that are watched cost too much."""
        for found in self.works.values():
            if isinstance(found, GraphWork):
                found.look(work)

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
        return sorted({*self._awaited, *(name for name, found in self.works.items() if not found.started)})

    def _unfinished(self) -> Iterator[float]:
        """How far each tree has delivered; those that are to come, and those that were lost, included.

        What takes the place of one of them begins right after it, and reads events of two horizons before: one for what
        is still decided by later events, one for its parts.
        """
        for found in self.works.values():
            yield found.delivered
        yield from self._torn.values()
        yield from self._awaited.values()
        if self._lost_us is not None:
            yield self._lost_us
        if self._cut_off_us is not None:
            yield self._cut_off_us


def _before(planned: PlannedTree) -> float:
    """Up to where others deliver what a build need not."""
    return -FOREVER if planned.from_us is None else planned.from_us - 1
