"""The interface of planners: they are given the network and the rules, and return a layout and routes for streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headwater.coordinator.layout.stages import Layout, at_one_node
from headwater.protocol.analysis.dependencies import in_dependency_order
from headwater.protocol.analysis.lookups import reaching, tables_of
from headwater.protocol.breadth_first import breadth_first
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.network import DescribedTable
from headwater.protocol.pattern import Rule, types_of
from headwater.protocol.streams import Filter, Stream

Link: TypeAlias = tuple[str, str]
Routes: TypeAlias = Callable[[str, Stream, frozenset[str]], Iterable[Link]]
"""The links of a tree that joins an origin of a stream with all its readers."""


@dataclass(frozen=True)
class Ground:
    """What a graph is laid over: the nodes and links that are there, and what is to be detected and delivered."""

    nodes: tuple[str, ...]
    links: tuple[Link, ...]
    sources: Mapping[str, tuple[str, ...]]
    """By type, the nodes at which its events are born."""
    sinks: tuple[tuple[str, str], ...]
    """Nodes with the types that a sink there wants."""
    rules: tuple[PlannedRule, ...]
    from_us: int | None = None
    """Where the plan begins; None: with the first event."""
    tables: tuple[DescribedTable, ...] = ()
    """Remote tables, which perhaps not every node reaches."""

    def wanted_rules(self) -> list[PlannedRule]:
        """The rules whose composites reach a sink, directly or through others, after those that they read."""
        wanted = {name for _, name in self.sinks}
        planned_by_rule: dict[Rule, PlannedRule] = {}
        while more := [
            planned for planned in self.rules if planned.rule.emits in wanted and planned.rule not in planned_by_rule
        ]:
            for planned in more:
                planned_by_rule[planned.rule] = planned
                wanted |= types_of(planned.rule.pattern)
        return [
            planned_by_rule[rule] for rule in in_dependency_order(sorted(planned_by_rule, key=lambda rule: rule.name))
        ]


def shortest_routes(ground: Ground) -> Routes:
    """Along a tree of shortest paths from the origin."""
    around: dict[str, list[str]] = {node: [] for node in ground.nodes}
    for one, other in ground.links:
        around[one].append(other)
        around[other].append(one)
    trees: dict[str, dict[str, str]] = {}

    def tree(origin: str) -> dict[str, str]:
        if origin not in trees:
            trees[origin] = breadth_first(origin, lambda node: sorted(around[node]))
        return trees[origin]

    def routes(origin: str, stream: Stream, readers: frozenset[str]) -> Iterable[Link]:
        links: set[Link] = set()
        for node in readers:
            while node != origin:
                links.add((tree(origin)[node], node))
                node = tree(origin)[node]
        return links

    return routes


Planner: TypeAlias = Callable[[Ground, Layout], tuple[Layout, Routes]]
"""Decides what is evaluated where, and along which links streams flow. It is told how rules are laid out that ran
before, on the same nodes: they may stay as they are."""


def at_the_middle(ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
    """Each rule at the node that is nearest to all others by links, of those that reach its remote tables if any do."""
    able_of = {planned.rule: reaching(ground.nodes, ground.tables, tables_of(planned.rule)) for planned in ground.rules}
    middle_of = {able: _middle(ground, able or ground.nodes) for able in set(able_of.values())}
    return {rule.name: at_one_node(rule, middle_of[able]) for rule, able in able_of.items()}, shortest_routes(ground)


def _middle(ground: Ground, among: Iterable[str]) -> str:
    """Of these nodes the one that is nearest to all others."""
    routes = shortest_routes(ground)

    def distance(node: str) -> int:
        return sum(len(set(routes(node, Filter(""), frozenset((other,))))) for other in ground.nodes)

    return min(among, key=lambda node: (distance(node), node))
