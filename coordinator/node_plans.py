"""Computes the share of a plan that each node is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from headwater.coordinator.losses import TreeName
from headwater.coordinator.plan_contents import Contents, composite_type
from headwater.coordinator.trees import TreeKeeper
from headwater.protocol.graphs import Graph
from headwater.protocol.messages.plans import PlannedTree, Share, TableWay
from headwater.protocol.network import Network
from headwater.protocol.pattern import Rule


@dataclass(frozen=True, slots=True)
class Shares:
    """One plan as it stands when nodes are told of it."""

    plan: int
    from_us: int | None
    """The event time at which earlier plans end."""
    oldest_plan: int
    """The earliest plan that a tree still serves or drains."""
    network: Network
    strategy: str
    nodes: Sequence[str]
    """The nodes that take part."""
    contents: Contents
    trees: TreeKeeper
    builds_from_us: Mapping[TreeName, int | None]
    """From where on each build delivers; None: from the beginning."""
    graphs: Mapping[TreeName, Mapping[str, Graph]]
    ways: Mapping[str, tuple[TableWay, ...]]
    """By node, where it asks for elements of remote tables that it does not reach."""

    def of(self, node: str) -> Share:
        """What this node is told."""
        sources, sinks, rules = self.contents.sources.values(), self.contents.sinks.values(), self.contents.rules
        return Share(
            self.plan,
            self.strategy,
            self.network.types,
            tuple(composite_type(planned.rule) for planned in rules.values()),
            self.contents.horizon_us(),
            self.from_us,
            self._planned_trees(self.trees.builds_at(node)),
            self.oldest_plan,
            tuple(source for at, source in sources if at == node),
            tuple(sink for at, sink in sinks if at == node),
            tuple(planned for planned in rules.values() if node in self._homes(planned.rule)),
            self._planned_trees(self.trees.partial_builds()),
            tuple(graphs[node] for graphs in self.graphs.values() if node in graphs),
            max((source.lateness_us for _, source in sources), default=0),
            not any(table.at for table in self.network.tables),
            self.ways.get(node, ()),
            tuple((table.name, table.at) for table in self.network.tables if table.at),
        )

    def _planned_trees(self, builds: Sequence[TreeName]) -> tuple[PlannedTree, ...]:
        return tuple(PlannedTree(*name, self.builds_from_us[name]) for name in builds)

    def _homes(self, rule: Rule) -> set[str]:
        """Where a rule is kept: at the one root, or by its name at one of the nodes that every tree reaches. Where the
        network has fallen apart there is none: each tree then finds the rule at a node of its own part."""
        if self.trees.leader is not None:
            return {self.trees.leader}
        reached = [sorted(self.trees.expected(tree)) for tree in self.trees.roots]
        everywhere = sorted(set(self.nodes).intersection(*reached))
        place = crc32(rule.name.encode())
        return {nodes[place % len(nodes)] for nodes in ([everywhere] if everywhere else reached)}
