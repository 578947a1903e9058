"""The coordinator without its sockets: which plan holds, from when on, and along which trees.

    orders = coordinator.begin()
    orders = coordinator.request(change)
    orders = coordinator.reported(node, report)

Orders are pairs of a node and what it is told; nothing is sent from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias
from zlib import crc32

from coordinator.trees import TreeKeeper
from protocol.errors import ConfigError
from protocol.events import EventType
from protocol.network import Network, Sink, Source
from protocol.pattern import Rule, types_of, waits_through
from protocol.plan_messages import (
    Abort,
    Adopt,
    BeginTree,
    Order,
    PlannedRule,
    PlannedSink,
    PlannedSource,
    Prepare,
    Prepared,
    ReportToCoordinator,
    Share,
    TreeDrained,
    TreeStands,
)
from protocol.tree_messages import StartTree

Orders: TypeAlias = list[tuple[str, Order]]
Horizon: TypeAlias = Callable[[Rule], int | None]

UNBOUNDED_US = 1 << 60  # the horizon of rules that no window bounds: nothing they read may ever be forgotten


@dataclass(frozen=True, slots=True)
class DeployRule:
    rule: Rule


@dataclass(frozen=True, slots=True)
class UndeployRule:
    name: str


@dataclass(frozen=True, slots=True)
class AddSink:
    sink: Sink


@dataclass(frozen=True, slots=True)
class RemoveSink:
    number: int


@dataclass(frozen=True, slots=True)
class AddSource:
    source: Source


@dataclass(frozen=True, slots=True)
class RemoveSource:
    number: int


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Let go of what has ended and is not needed any more."""


Change: TypeAlias = TidyUp | DeployRule | UndeployRule | AddSink | RemoveSink | AddSource | RemoveSource


class Coordinator:
    """One network. Changes are made one after the other; each holds from an event time above all promises."""

    def __init__(self, network: Network, strategy: str, horizon: Horizon, *, computed_trees: bool = False) -> None:
        """``horizon`` tells how long a rule needs its inputs. ``computed_trees``: have trees put in place as computed
        here, instead of built by the nodes."""
        self._computed_trees = computed_trees
        self.network = network
        self.strategy = strategy
        self._horizon = horizon
        self.trees = TreeKeeper(network, strategy)
        self.plan = 1
        self.sources = {n: (s.node, PlannedSource(n, s.type, s.lateness_us)) for n, s in enumerate(network.sources)}
        self.sinks = {n: (s.node, PlannedSink(n, s.subscription)) for n, s in enumerate(network.sinks)}
        self.rules = {rule.name: PlannedRule(rule) for rule in network.rules}
        self._next_source = len(self.sources)
        self._next_sink = len(self.sinks)
        self.held_from: list[tuple[Change, int]] = []
        """Every change that was made, with the event time from which it holds."""
        self._waiting: list[Change] = []
        self._change: Change | None = None
        self._changes = 0
        self._prepared: dict[str, Prepared] = {}
        self._begin_with: dict[str, tuple[int | None, int | None]] = {}
        self._gone: set[str] = set()
        self._plan_of: dict[tuple[str, int], int] = {}
        """The plan that each build of a tree serves."""

    # ----------------------------------------------------------------------------------------------------------- plans

    def nodes(self) -> list[str]:
        return [node for node in self.network.nodes if node not in self._gone]

    def begin(self) -> Orders:
        """The first plan and its trees."""
        self._note_plans()
        return [*self._adopt(None), *self._built(self.trees.begin())]

    def _built(self, orders: Iterable[tuple[str, Order]]) -> Orders:
        """The orders as they are, or with trees put in place where they would be built."""
        found: Orders = []
        for node, order in orders:
            if self._computed_trees and isinstance(order, StartTree):
                found += self.trees.placed(order.tree)
            else:
                found.append((node, order))
        return found

    def _adopt(self, from_us: int | None) -> Orders:
        return [(node, Adopt(self._share(node, from_us))) for node in self.nodes()]

    def _share(self, node: str, from_us: int | None) -> Share:
        rules = [planned for planned in self.rules.values() if self._home(planned.rule) == node]
        return Share(
            self.plan,
            self.strategy,
            self.network.types,
            tuple(_composite_type(planned.rule) for planned in self.rules.values()),
            self.horizon_us(),
            from_us,
            self.trees.roots,
            self._oldest_plan(),
            tuple(source for at, source in self.sources.values() if at == node),
            tuple(sink for at, sink in self.sinks.values() if at == node),
            tuple(rules),
        )

    def _oldest_plan(self) -> int:
        """The earliest plan that a tree still serves or drains."""
        alive = {(tree, self.trees.epoch(tree)) for tree in self.trees.roots} | set(self.trees.superseded)
        self._plan_of = {name: plan for name, plan in self._plan_of.items() if name in alive}
        return min(self._plan_of.values(), default=self.plan)

    def _home(self, rule: Rule) -> str:
        """Where a rule is kept: at the one root, or spread over the nodes by its name."""
        nodes = sorted(self.nodes())
        return self.trees.leader or nodes[crc32(rule.name.encode()) % len(nodes)]

    def horizon_us(self) -> int:
        """How far before its end the parts of a composite can lie, through all the rules it is made by."""
        rules = [planned.rule for planned in self.rules.values()]
        return max((self._reach(rule, rules, ()) for rule in rules), default=0)

    def _reach(self, rule: Rule, rules: Collection[Rule], above: tuple[str, ...]) -> int:
        own = self._horizon(rule)
        if own is None:
            return UNBOUNDED_US
        read = types_of(rule.pattern)
        below = [self._reach(other, rules, (*above, rule.name)) for other in rules if other.emits in read]
        return min(UNBOUNDED_US, own + max(below, default=0))

    # --------------------------------------------------------------------------------------------------------- changes

    def request(self, change: Change) -> Orders:
        """Make a change, after those that were asked for before it. ConfigError if it makes no sense."""
        self._check(change)
        self._waiting.append(change)
        return self._next_change()

    def _check(self, change: Change) -> None:
        match change:
            case DeployRule(rule):
                known = self.rules.get(rule.name)
                if known is not None and known.until_us is None:
                    raise ConfigError(f"a rule {rule.name!r} is deployed already; undeploy it first")
            case UndeployRule(name):
                if name not in self.rules:
                    raise ConfigError(f"no rule {name!r} is deployed; there are: {', '.join(sorted(self.rules))}")
            case RemoveSink(number):
                if number not in self.sinks:
                    raise ConfigError(f"there is no sink {number}")
            case RemoveSource(number):
                if number not in self.sources:
                    raise ConfigError(f"there is no source {number}")
            case AddSink(Sink(node)) | AddSource(Source(node)):
                if node not in self.nodes():
                    raise ConfigError(f"the network has no node {node!r}; it has: {', '.join(self.nodes())}")

    def _next_change(self) -> Orders:
        if self._change is not None or not self._waiting or not self.trees.all_stand():
            return []
        self._change = self._waiting.pop(0)
        self._changes += 1
        self._prepared = {}
        freeze = isinstance(self._change, AddSource)
        hold = isinstance(self._change, UndeployRule | RemoveSink | RemoveSource)
        return [(node, Prepare(self._changes, freeze, hold)) for node in self.nodes()]

    def abort(self) -> Orders:
        """Give up the change that is being prepared: somebody does not answer."""
        if self._change is None:
            return []
        self._change = None
        return [*((node, Abort(self._changes)) for node in self.nodes()), *self._next_change()]

    def reported(self, node: str, report: ReportToCoordinator) -> Orders:
        """A node has told something."""
        match report:
            case TreeStands(tree, epoch):
                if not self.trees.tree_stands(tree, epoch):
                    return []
                from_us, prime_us = self._begin_with.get(tree, (None, None))
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

    def _commit(self) -> Orders:
        """Everybody has answered: the change holds from above the greatest promise."""
        change = self._change
        assert change is not None
        self._change = None
        promised = max(each.promised_us for each in self._prepared.values())
        from_us = int(promised) + 1 if promised > -UNBOUNDED_US else -UNBOUNDED_US
        prime_us = from_us - 2 * self.horizon_us() - 1
        self._let_go(from_us)
        self._apply(change, from_us)
        self.held_from.append((change, from_us))
        self.plan += 1
        orders = self._rebuild_all(from_us, prime_us)
        return [*self._adopt(from_us), *orders, *self._next_change()]

    def _note_plans(self) -> None:
        for tree in self.trees.roots:
            self._plan_of.setdefault((tree, self.trees.epoch(tree)), self.plan)

    def _rebuild_all(self, from_us: int | None, prime_us: int | None) -> Orders:
        orders = self.trees.renew(replace(self.network, sinks=tuple(_as_sink(*sink) for sink in self.sinks.values())))
        for tree in self.trees.roots:
            self._begin_with[tree] = (from_us, prime_us)
        self._note_plans()
        return self._built(orders)

    def _let_go(self, from_us: int) -> None:
        """Drop what ended so long ago that neither a decision nor a past event of it can still be needed."""
        past = from_us - 2 * self.horizon_us() - 1
        self.rules = {name: each for name, each in self.rules.items() if each.until_us is None or each.until_us > past}
        self.sinks = {n: at for n, at in self.sinks.items() if at[1].until_us is None or at[1].until_us > past}
        self.sources = {n: at for n, at in self.sources.items() if at[1].until_us is None or at[1].until_us > past}

    def _apply(self, change: Change, from_us: int) -> None:
        last = from_us - 1
        rules = [planned.rule for planned in self.rules.values()]
        waiting = {rule.emits for rule in rules if waits_through(rule, rules)}
        match change:
            case DeployRule(rule):
                self.rules[rule.name] = PlannedRule(rule, from_us)
            case UndeployRule(name):
                # The plan before this one finds everything that ends before it, unless what follows decides it.
                if waits_through(self.rules[name].rule, rules):
                    self.rules[name] = replace(self.rules[name], until_us=last)
                else:
                    del self.rules[name]
            case AddSink(sink):
                planned = PlannedSink(self._next_sink, sink.subscription, from_us)
                self.sinks[self._next_sink] = (sink.node, planned)
                self._next_sink += 1
            case RemoveSink(number):
                node, known = self.sinks[number]
                if known.subscription.type in waiting:
                    self.sinks[number] = (node, replace(known, until_us=last))
                else:
                    del self.sinks[number]
            case AddSource(source):
                made = PlannedSource(self._next_source, source.type, source.lateness_us, from_us)
                self.sources[self._next_source] = (source.node, made)
                self._next_source += 1
            case RemoveSource(number):
                node, ended = self.sources[number]
                self.sources[number] = (node, replace(ended, until_us=last))

    # ---------------------------------------------------------------------------------------------------------- losses

    def lost_link(self, one: str, other: str, delivered_us: Callable[[str], float]) -> Orders:
        """A link is lost for good: trees are rebuilt around it. What a broken tree had not delivered is found again.

        ``delivered_us`` of a tree: everything that ends at or before it has reached the sinks of the tree.
        """
        delivered = {tree: delivered_us(tree) for tree in self.trees.roots}
        return self._after_loss(self.trees.lost_link(one, other), delivered)

    def lost_node(self, node: str, delivered_us: Callable[[str], float]) -> Orders:
        """A node is lost for good, and its sources and sinks with it."""
        delivered = {tree: delivered_us(tree) for tree in self.trees.roots}
        self._gone.add(node)
        self.sources = {n: known for n, known in self.sources.items() if known[0] != node}
        self.sinks = {n: known for n, known in self.sinks.items() if known[0] != node}
        return self._after_loss(self.trees.lost_node(node), delivered)

    def _after_loss(self, orders: Iterable[tuple[str, Order]], delivered: Mapping[str, float]) -> Orders:
        found = self._built(orders)
        if self._change is not None:
            # It would replace trees that have not yet found again what the broken ones missed: let it wait for them.
            self._waiting.insert(0, self._change)
            self._change = None
            found += [(node, Abort(self._changes)) for node in self.nodes()]
        self._note_plans()
        broken = {tree for tree, _ in self.trees.superseded}
        for tree, epoch in self.trees.superseded:
            found += self.trees.drained(tree, epoch)  # it cannot drain any more
        for tree in self.trees.roots:
            if tree in broken or tree not in delivered:
                # The tree of a new leader takes the place of that of the lost one.
                known = min(UNBOUNDED_US, delivered.get(tree, min(delivered.values(), default=-UNBOUNDED_US)))
                is_known = known > -UNBOUNDED_US
                self._begin_with[tree] = (
                    (int(known) + 1, int(known) - 2 * self.horizon_us()) if is_known else (None, None)
                )
        # Rules may have been kept at a node that is gone.
        shares: Orders = [(node, Adopt(self._share(node, None))) for node in self.nodes()] if self._gone else []
        return [*shares, *found, *self._next_change()]


def _composite_type(rule: Rule) -> EventType:
    return EventType(rule.emits, tuple((output.name, output.kind + "?") for output in rule.attributes))


def _as_sink(node: str, planned: PlannedSink) -> Sink:
    return Sink(node, planned.subscription)
