"""The coordinator without its sockets: which plan holds, from when on, and along which trees.

    orders = coordinator.begin()
    orders = coordinator.request(change)
    orders = coordinator.reported(node, report)
    outcomes = coordinator.take_outcomes()

Orders are pairs of a node and what it is told; nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias, assert_never

from headwater.coordinator.layout.current_layout import Layings
from headwater.coordinator.layout.planner_interface import Ground, Planner, at_the_middle
from headwater.coordinator.losses import (
    BrokenTree,
    DeliveryQuestion,
    Fact,
    LinkBack,
    LostLink,
    LostNode,
    NodeBack,
    Rejoined,
    Relinked,
    renews_all,
)
from headwater.coordinator.node_plans import Shares
from headwater.coordinator.plan_contents import UNBOUNDED_US as UNBOUNDED_US
from headwater.coordinator.plan_contents import Contents
from headwater.coordinator.requests import (
    Change,
    ChangeOutcome,
    FallBack,
    Return,
    as_return,
    preparation,
)
from headwater.coordinator.table_ways import lookers_of, table_ways
from headwater.coordinator.trees import TreeKeeper
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.graphs import Graph
from headwater.protocol.messages.plans import (
    Abort,
    Adopt,
    BeginTree,
    CostsMore,
    DeliveredTo,
    Order,
    PlannedRule,
    PlannedSink,
    PlannedSource,
    Prepare,
    Prepared,
    ReportToCoordinator,
    TellDelivered,
    TreeBroken,
    TreeDrained,
    TreeStands,
)
from headwater.protocol.messages.trees import ForgetTree, StartTree
from headwater.protocol.network import Network
from headwater.protocol.strategy import strategy_of

Orders: TypeAlias = list[tuple[str, Order]]


class Coordinator:
    """One network. Changes are made one after the other; each holds from an event time above all promises."""

    def __init__(
        self,
        network: Network,
        strategy: str,
        *,
        computed_trees: bool = False,
        lay_out: Planner = at_the_middle,
        falls_back: bool = True,
    ) -> None:
        """``computed_trees``: have trees put in place as computed here, instead of built by the nodes. ``lay_out``
        decides for a planned strategy what is evaluated where; with ``falls_back`` nodes watch whether that pays, and
        what does not falls back."""
        # A graph needs every node that it was laid over.
        self._computed_trees = computed_trees or strategy_of(strategy).planned
        self.network = network
        self.strategy = strategy
        self.contents = Contents(network)
        self.trees = TreeKeeper(network, strategy)
        self.plan = 1
        self.plan_from_us: int | None = None
        """The event time at which earlier plans end, as nodes were told with this one."""
        self._outcomes: list[ChangeOutcome] = []
        """Of the changes that were made or given up since this was last asked for."""
        self.changed_us = -UNBOUNDED_US
        """From where on the last change holds: none that follows it may hold earlier."""
        self.layings = Layings(lay_out, watches=falls_back)
        """How rules are laid out now."""
        self._graphs: dict[tuple[str, int], dict[str, Graph]] = {}
        """Of the builds of the newest plan, where streams flow in graphs."""
        self._waiting: list[tuple[Change, int | None]] = []
        """Changes in their order, each with its ticket."""
        self._change: Change | None = None
        """The change that nodes are preparing."""
        self._ticket: int | None = None
        """Of that change."""
        self._changes = 0
        self._prepared: dict[str, Prepared] = {}
        self._begun = False
        self._question = DeliveryQuestion()
        self._gone: set[str] = set()
        self._left: dict[str, list[Return]] = {}
        """What each lost node takes up again if it comes back."""
        self._plan_of: dict[tuple[str, int], int] = {}
        """The plan that each build of a tree serves."""
        self._from_us: dict[tuple[str, int], int | None] = {}
        """From where on each build delivers; None: from the beginning."""

    # ----------------------------------------------------------------------------------------------------------- plans

    @property
    def sources(self) -> dict[int, tuple[str, PlannedSource]]:
        """The sources of the plan by their numbers, each with its node."""
        return self.contents.sources

    @property
    def sinks(self) -> dict[int, tuple[str, PlannedSink]]:
        """The sinks of the plan by their numbers, each with its node."""
        return self.contents.sinks

    @property
    def rules(self) -> dict[str, PlannedRule]:
        """The rules of the plan by their names. A rule that has ended may stand under another name."""
        return self.contents.rules

    def horizon_us(self) -> int:
        """How far before its end the parts of a composite can lie, through all the rules it is made by."""
        return self.contents.horizon_us()

    def nodes(self) -> list[str]:
        return [node for node in self.network.nodes if node not in self._gone]

    def begin(self) -> Orders:
        """The first plan and its trees."""
        self._begun = True
        lost: Orders = [order for node in self.nodes() for order in self.trees.links_of(node)]
        orders = self.trees.begin()
        self._note_builds({})
        return [*lost, *self._adopt(None), *self._built(orders)]

    def _built(self, orders: Iterable[tuple[str, Order]]) -> Orders:
        """The orders; where trees are computed, the start of a tree is replaced by orders that put it in place."""
        placed_orders: Orders = []
        for node, order in orders:
            match order:
                case StartTree(tree) if self._computed_trees:
                    placed_orders += self.trees.placed(tree)
                case _:
                    placed_orders.append((node, order))
        return placed_orders

    def _adopt(self, from_us: int | None) -> Orders:
        self.plan_from_us = from_us
        return self._adopting(self.nodes())

    def _adopting(self, nodes: Iterable[str]) -> Orders:
        """Tell nodes their shares of the plan."""
        rules = [planned.rule for planned in self.contents.rules.values()]
        below = strategy_of(self.strategy).filters
        lookers = lookers_of(rules, self.nodes() if below else self.trees.roots, self._graphs.values())
        shares = Shares(
            self.plan,
            self.plan_from_us,
            self._oldest_plan(),
            self.network,
            self.strategy,
            self.nodes(),
            self.contents,
            self.trees,
            self._from_us,
            self._graphs,
            table_ways(self.network, self.nodes(), self.trees.links(), lookers),
        )
        return [(node, Adopt(shares.of(node))) for node in nodes]

    def _oldest_plan(self) -> int:
        """The earliest plan that a tree still serves or drains."""
        return min((self._plan_of[name] for name in self.trees.builds), default=self.plan)

    def _note_builds(self, from_us: Mapping[str, int | None]) -> None:
        """Builds that are new serve the plan, each from its time on; those that are over are forgotten."""
        for name in self.trees.builds:
            self._plan_of.setdefault(name, self.plan)
            self._from_us.setdefault(name, from_us.get(name[0]))
        if strategy_of(self.strategy).planned:
            self._lay_graphs()
        self._plan_of = {name: self._plan_of[name] for name in self.trees.builds}
        self._from_us = {name: self._from_us[name] for name in self.trees.builds}
        self.contents.forget_before(self._oldest_plan())

    def _lay_graphs(self) -> None:
        """Graphs for builds that are new. Nodes have been told of the others."""
        current = self.trees.current_builds
        self._graphs = {name: graphs for name, graphs in self._graphs.items() if name in current}
        for tree, epoch in [name for name in current if name not in self._graphs]:
            ground = self._ground(tree, self._from_us[tree, epoch])
            self._graphs[tree, epoch] = self.layings.laid(ground, tree, epoch, self.plan)

    def _ground(self, tree: str, from_us: int | None) -> Ground:
        nodes = [node for node in self.network.nodes if node in self.trees.expected(tree)]
        links = [link for link in self.trees.links() if link[0] in nodes and link[1] in nodes]
        return self.contents.ground(nodes, links, from_us, self.network.tables)

    # --------------------------------------------------------------------------------------------------------- changes

    def request(self, change: Change, ticket: int | None = None) -> Orders:
        """Make a change, after those that were asked for before it. ConfigError if it makes no sense. Its outcome comes
        with the ticket, if it has one."""
        self._check(change)
        self._waiting.append((change, ticket))
        return self._next_change()

    def take_outcomes(self) -> list[ChangeOutcome]:
        """The outcome of changes since this was last asked."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    @property
    def held_from(self) -> list[tuple[Change, int]]:
        """Of the outcomes that were not taken: the changes that hold, with the event times from which they do."""
        return [(outcome.change, outcome.from_us) for outcome in self._outcomes if outcome.from_us is not None]

    @property
    def given_up(self) -> list[tuple[Change, str]]:
        """Of the outcomes that were not taken: the changes that will not be made, each with why."""
        return [(outcome.change, outcome.refused) for outcome in self._outcomes if outcome.refused is not None]

    def declare(self, types: Iterable[EventType]) -> None:
        """Nodes are told of these event types with the next plan."""
        declared_types = {event_type.name: event_type for event_type in self.network.types}
        for declared in types:
            declared_types.setdefault(declared.name, declared)
        self.network = replace(self.network, types=tuple(declared_types.values()))

    def _check(self, change: Change) -> None:
        self.contents.check(change, self.nodes())
        self.layings.check(change)

    def _next_change(self) -> Orders:
        while self._change is None and self._waiting and not self._question.is_open and self.trees.all_stand():
            change, ticket = self._waiting.pop(0)
            try:
                self._check(change)  # others were made since it was asked for
            except ConfigError as error:
                self._outcomes.append(ChangeOutcome(change, ticket, refused=str(error)))
            else:
                return self._prepare(change, ticket)
        return []

    def _prepare(self, change: Change, ticket: int | None) -> Orders:
        self._change, self._ticket = change, ticket
        self._changes += 1
        self._prepared = {}
        freeze, hold = preparation(change)
        return [(node, Prepare(self._changes, freeze, hold)) for node in self.nodes()]

    def abort(self) -> Orders:
        """Give up the change that is being prepared, or that waits until it can be: a node does not answer.

        A change that was made stays, and so does what follows from a loss.
        """
        change, ticket, orders = self._change, self._ticket, self._stop_preparing()
        if change is None and self._waiting:
            change, ticket = self._waiting.pop(0)
        if change is not None:
            self._outcomes.append(ChangeOutcome(change, ticket, refused="not every node has answered in time"))
        return [*orders, *self._next_change()]

    def _stop_preparing(self) -> Orders:
        if self._change is None:
            return []
        self._change = None
        return [(node, Abort(self._changes)) for node in self.nodes()]

    def _put_off(self) -> Orders:
        """The change that is being prepared would replace trees that have not yet found again what broken ones missed:
        it waits for them."""
        if self._change is not None:
            self._waiting.insert(0, (self._change, self._ticket))
        return self._stop_preparing()

    def is_idle(self) -> bool:
        """Whether a change that is asked for now would be prepared at once."""
        return self._change is None and not self._waiting and not self._question.is_open and self.trees.all_stand()

    def unprepared(self) -> list[str]:
        """Nodes that have not yet answered to the change that is being prepared."""
        return [node for node in self.nodes() if node not in self._prepared] if self._change is not None else []

    def reported(self, node: str, report: ReportToCoordinator) -> Orders:
        """A node has reported; the orders that follow."""
        match report:
            case TreeStands(tree, epoch):
                if not self.trees.tree_stands(tree, epoch):
                    return []
                from_us = self._from_us[tree, epoch]
                prime_us = None if from_us is None else from_us - 2 * self.horizon_us() - 1
                orders: Orders = [(tree, BeginTree(tree, epoch, self._plan_of[tree, epoch], from_us, prime_us))]
                return orders + self._next_change()
            case Prepared(change):
                if change != self._changes or self._change is None:
                    return []
                self._prepared[node] = report
                return self._commit() if self._prepared.keys() >= set(self.nodes()) else []
            case TreeDrained(tree, epoch):
                self.trees.drained(tree, epoch)  # the root tells the others, along the tree, after the last event
                return []
            case TreeBroken(tree, epoch):
                if (tree, epoch) in self.trees.builds:
                    return self._happened(BrokenTree(tree, epoch))
                if epoch > self.trees.used_epochs.get(tree, 0):
                    return []  # no such build was ever begun: forgetting it would forbid those that will be
                return list(self.trees.forgotten(tree, epoch))  # that it is over did not get past the break
            case DeliveredTo():
                self._question.answered(node, report)
                return self._recover_if_told()
            case CostsMore():
                fall_back = self.judged(node, report)
                return [] if fall_back is None else self.request(fall_back)
            case _:
                assert_never(report)

    def judged(self, node: str, report: CostsMore) -> FallBack | None:
        """The change that follows from a node's report that a stage costs too much; None: none, or none yet."""
        return self.layings.judged(node, report)

    def _commit(self) -> Orders:
        """All nodes have answered: the change holds from above the greatest promise."""
        change = self._change
        assert change is not None
        self._change = None
        promised = max(prepared.promised_us for prepared in self._prepared.values())
        from_us = int(promised) + 1 if promised > -UNBOUNDED_US else -UNBOUNDED_US
        # A source that has ended promises nothing any more, and the greatest promise may have been its own.
        self.changed_us = from_us = max(from_us, self.changed_us)
        self.plan += 1
        self.contents.let_go(from_us, self.plan)
        number = self.contents.apply(change, from_us, self.plan)
        self.layings.apply(change)
        self._outcomes.append(ChangeOutcome(change, self._ticket, from_us, number))
        orders = self.trees.renew(self._network_now())
        self._note_builds(dict.fromkeys(self.trees.roots, from_us))
        return [*self._adopt(from_us), *self._built(orders), *self._next_change()]

    def _network_now(self) -> Network:
        return replace(self.network, sinks=self.contents.as_sinks())

    # ---------------------------------------------------------------------------------------------------------- losses

    def lost_link(self, one: str, other: str) -> Orders:
        """A link is lost for good: trees are rebuilt around it. What a broken tree had not delivered is found again."""
        self.trees.check_link(one, other)
        return self._happened(LostLink(one, other))

    def lost_node(self, node: str) -> Orders:
        """A node is lost for good, and its sources and sinks with it; its answers are not waited for any more."""
        self.trees.check_node(node)
        if node in self._gone:
            return []
        self._lose(node)
        return self._happened(LostNode(node))

    def _lose(self, node: str) -> None:
        self._gone.add(node)
        self._left[node] = self.contents.lose(node)

    def rejoined(self, node: str) -> Orders:
        """A node is here with an empty memory: all trees are rebuilt, and it gets its share of the plan."""
        self.trees.check_node(node)
        if node in self._gone:
            raise ConfigError(f"{node!r} was given up as lost; say that it is back before it takes part again")
        return self._happened(Rejoined(node)) if self._begun else []

    def relinked(self, plans: Mapping[str, int], lost: Iterable[LostNode | LostLink] = ()) -> Orders:
        """What was on its way between the coordinator and these nodes is lost, in both directions. For each the newest
        plan that it knows (0: it remembers nothing), and what was given up meanwhile.

        A plan that has come to some nodes comes to all: the others hear of it now. Then all trees are rebuilt.
        """
        self._begun = True
        behind = [node for node, plan in plans.items() if 0 < plan < self.plan]
        orders = self._adopting(behind)
        facts: list[Fact] = [Relinked(node) if plan else Rejoined(node) for node, plan in plans.items()]
        was_open = self._question.is_open
        for fact in [*lost, *facts]:
            match fact:
                case LostNode(node) if node not in self._gone:
                    self._lose(node)
            self._question.add(fact)
        if not was_open:
            orders += self._put_off()
        loss = TellDelivered(self._question.number)
        orders += [(node, loss) for node in self._question.unanswered(self.nodes()) if not was_open or node in plans]
        return orders + self._recover_if_told()

    def link_back(self, one: str, other: str) -> Orders:
        """A lost link is there again: trees that are built from now on use it; nothing is rebuilt for it, unless nodes
        were cut off."""
        self.trees.check_link(one, other)
        if self._question.is_open or (self._begun and not self.trees.is_whole()):
            return self._happened(LinkBack(one, other))
        return list(self.trees.link_back(one, other))

    def node_back(self, node: str) -> Orders:
        """A lost node is here again, with an empty memory: it takes part, and its sources and sinks hold from then on
        as if they were new, under the numbers they had."""
        self.trees.check_node(node)
        return self._happened(NodeBack(node)) if node in self._gone else []

    def unanswered(self) -> list[str]:
        """Nodes whose answer to how far trees have delivered is awaited before a loss is dealt with."""
        return self._question.unanswered(self.nodes())

    def _happened(self, fact: Fact) -> Orders:
        """Ask all nodes how far trees have delivered; what follows is decided when all have answered."""
        if not self._begun:
            self._let_happen(fact)
            return []
        orders: Orders = []
        if self._question.add(fact):
            orders += self._put_off()
            loss = TellDelivered(self._question.number)
            orders += [(node, loss) for node in self._question.unanswered(self.nodes())]
        return orders + self._recover_if_told()

    def _recover_if_told(self) -> Orders:
        """All nodes have answered: rebuild what is broken, from where the broken trees have delivered."""
        if not self._question.is_open or self._question.unanswered(self.nodes()):
            return []
        over: Orders = []
        if self._question.lost_news:
            for name in [name for name in self.trees.superseded if self._question.is_over(*name)]:
                over += self.trees.drained(*name)
        delivered = self._question.delivered(self.trees.builds, self._from_us, self.trees.partial_builds())
        facts = self._question.taken()
        is_whole = self.trees.is_whole()
        everything = bool(self.trees.superseded) or any(renews_all(fact, is_whole=is_whole) for fact in facts)
        self.contents.forget_before(self._oldest_plan())
        self.contents.take_back(self.nodes())
        orders = [*over, *(order for fact in facts for order in self._let_happen(fact))]
        if everything:
            orders += self.trees.renew(self._network_now())
        for name in self.trees.superseded:
            orders += self.trees.drained(*name)  # it cannot drain any more
        self.plan += 1
        # The tree of a new leader takes the place of that of the lost one.
        least = min(delivered.values(), default=-float("inf"))
        self._note_builds({tree: _after(delivered.get(tree, least)) for tree in self.trees.roots})
        wanted = [(node, order) for node, order in orders if node not in self._gone and self._still_holds(order)]
        wanted.sort(key=_comes_late)
        return [*self._adopt(None), *self._built(wanted), *self._next_change()]

    def _still_holds(self, order: Order) -> bool:
        """Whether an order is not to start a build that another has replaced meanwhile."""
        match order:
            case StartTree(tree, epoch):
                return self.trees.is_current(tree, epoch)
            case _:
                return True

    def _let_happen(self, fact: Fact) -> Orders:
        match fact:
            case LostLink(one, other):
                return list(self.trees.lost_link(one, other))
            case LostNode(node):
                return list(self.trees.lost_node(node))
            case Rejoined(node) | Relinked(node):
                return list(self.trees.links_of(node)) if node not in self._gone else []
            case NodeBack(node):
                self._gone.discard(node)
                self._waiting += [(back, None) for back in self._left.pop(node, [])]
                return [*self.trees.node_back(node), *self.trees.links_of(node)]
            case LinkBack(one, other):
                return list(self.trees.link_back(one, other))
            case BrokenTree(tree, epoch):
                return [*self.trees.tree_broken(tree, epoch), *self.trees.forgotten(tree, epoch)]
            case _:
                assert_never(fact)

    # ---------------------------------------------------------------------------------------------------------- memory

    def served(self) -> list[tuple[tuple[str, int], int, int | None]]:
        """The builds of trees that there are, each with the plan that it serves and from when on."""
        return [(name, self._plan_of[name], self._from_us[name]) for name in self.trees.builds]

    def returning(self) -> list[tuple[Return, bool]]:
        """What lost nodes take up again if they come back, and (true) what those that are back have yet to."""
        requested = [*(change for change, _ in self._waiting), *([self._change] if self._change is not None else [])]
        again = [(back, True) for change in requested if (back := as_return(change)) is not None]
        return [*again, *((back, False) for left in self._left.values() for back in left)]

    def hear_of_plans(self, plans: Iterable[int]) -> None:
        """Nodes know these plans of an earlier coordinator: none that follows has a number of theirs."""
        self.plan = max(self.plan, *plans)

    def recall_builds(self, builds: Iterable[tuple[tuple[str, int], int, int | None]]) -> None:
        """Take over what ``served`` returned for an earlier coordinator."""
        for name, plan, from_us in builds:
            self._plan_of[name], self._from_us[name] = plan, from_us

    def recall_losses(self, nodes: Iterable[str]) -> None:
        """An earlier coordinator has given up these nodes."""
        for node in nodes:
            self._gone.add(node)
            self._left.setdefault(node, [])

    def returns(self, back: Return, *, waits: bool) -> None:
        """Take over what ``returning`` returned for an earlier coordinator."""
        if waits:
            self._waiting.append((back, None))
        else:
            self._left.setdefault(back.node, []).append(back)


def _comes_late(addressed: tuple[str, Order]) -> bool:
    """Builds are forgotten before others are started, so that no node reports them as broken."""
    match addressed:
        case (_, ForgetTree()):
            return False
        case _:
            return True


def _after(delivered_us: float) -> int | None:
    """Where a tree begins that goes on after what was delivered; None: at the beginning."""
    return int(min(UNBOUNDED_US, delivered_us)) + 1 if delivered_us > -UNBOUNDED_US else None
