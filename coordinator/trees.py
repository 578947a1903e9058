"""The coordinator's part in trees: which there are, under which epoch, and whether nodes have built them as computed.

The states of a tree on a node are a table in ``node/plans/lifecycle.py``.

Nothing is sent from here. Methods return orders (``protocol.messages.trees``) with the node each of them is for; the
order of the list matters per node only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from headwater.coordinator.leader import leader
from headwater.coordinator.shortest_paths import LinkName, children_of, shortest_path_tree
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.recovery import Noted, NotedBuild, NotedEpoch, NotedLink, NotedLoss
from headwater.protocol.messages.trees import DropLink, ForgetTree, InstallTree, StartTree, TreeOrder, UseLink
from headwater.protocol.network import Network
from headwater.protocol.strategy import Strategy, strategy_of

Orders: TypeAlias = list[tuple[str, TreeOrder]]


class TreeKeeper:
    """Decides the roots: the leader for strategies with one tree, every node with a sink for the others.

    A leader stays until it is lost or reaches fewer nodes than another could, even if another node has become nearer to
    all: each change costs every node a new tree. A tree that stood and was replaced stays with the nodes until
    ``drained``; a build that never stood is taken back at once.
    """

    def __init__(
        self, network: Network, strategy: str | None = None, used_epochs: Mapping[str, int] | None = None
    ) -> None:
        """``used_epochs``: the last epoch that each tree has had in an earlier life of the coordinator."""
        self.network = network
        self.strategy = network.strategy if strategy is None else strategy
        strategy_of(self.strategy)  # a ConfigError if there is no such strategy
        self._neighbours = network.neighbours()
        self._lost_links: set[LinkName] = set()
        self._lost_nodes: set[str] = set()
        self._times_back: dict[LinkName, int] = {}
        self._used_epochs: dict[str, int] = dict(used_epochs or {})
        self._current: dict[str, int] = {}
        self._begun: set[str] = set()
        self._standing: set[str] = set()
        self._superseded: list[tuple[str, int]] = []
        self._expected: dict[str, dict[str, str | None]] = {}
        for tree in self._wanted_roots():
            self._next_epoch(tree)

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def roots(self) -> tuple[str, ...]:
        """The roots, which are the trees' names, in order."""
        return tuple(sorted(self._current))

    @property
    def leader(self) -> str | None:
        """The root of the only tree, where the strategy has one (and a node is left)."""
        return self.roots[0] if self._traits.one_tree and self.roots else None

    @property
    def used_epochs(self) -> dict[str, int]:
        """The last epoch of every tree there ever was: what a coordinator must remember over a restart."""
        return dict(sorted(self._used_epochs.items()))

    @property
    def superseded(self) -> tuple[tuple[str, int], ...]:
        """Builds (tree, epoch) that were replaced and that nodes still hold until they have drained."""
        return tuple(sorted(self._superseded))

    @property
    def builds(self) -> tuple[tuple[str, int], ...]:
        """All builds (tree, epoch) that serve something: the current ones, and those that still drain."""
        return tuple(sorted([*self._current.items(), *self._superseded]))

    @property
    def current_builds(self) -> list[tuple[str, int]]:
        """The builds (tree, epoch) that stand or are being built, without those that only drain."""
        return sorted(self._current.items())

    def builds_at(self, node: str) -> list[tuple[str, int]]:
        """The builds that a node is part of; those that it is cut off from will never begin there."""
        without = [name for name in self.current_builds if node not in self._expected[name[0]]]
        return [name for name in self.builds if name not in without]

    def partial_builds(self) -> list[tuple[str, int]]:
        """Current builds that do not reach all nodes. How far they deliver does not count: the builds that
        replace them reach the other nodes too, and begin where they began."""
        return [name for name in self.current_builds if self.cut_off(name[0])]

    def links(self) -> list[tuple[str, str]]:
        """The links that are there, with both their ends."""
        pairs = ((link.one, link.other) for link in self.network.links)
        return [(one, other) for one, other in pairs if self._joins(one, other)]

    def epoch(self, tree: str) -> int:
        """The epoch under which a tree is, or is being, built."""
        return self._current[tree]

    def is_current(self, tree: str, epoch: int) -> bool:
        """Whether this is the build of a tree that stands or is being built."""
        return self._current.get(tree) == epoch

    def expected(self, tree: str) -> Mapping[str, str | None]:
        """The parent that every node of the tree should have (the root: None)."""
        return self._expected[tree]

    def cut_off(self, tree: str) -> tuple[str, ...]:
        """Nodes that are not lost themselves but that the root can no longer reach."""
        return tuple(node for node in self._remaining_nodes() if node not in self._expected[tree])

    def is_whole(self) -> bool:
        """Whether every tree reaches all nodes that are left."""
        return not any(self.cut_off(tree) for tree in self._current)

    def stands(self, tree: str) -> bool:
        """Whether a tree stands under its current epoch."""
        return tree in self._standing

    def all_stand(self) -> bool:
        """Whether every tree stands under its current epoch."""
        return self._standing == self._current.keys()

    # -- building -----------------------------------------------------------------------------------------------------

    def begin(self) -> Orders:
        """Have the nodes build every tree that has not been begun."""
        return [self._start(tree) for tree in self.roots if tree not in self._begun]

    def installed(self, tree: str) -> Orders:
        """Have a tree put in place as computed, instead of built; under a new epoch if a build was begun."""
        orders = self._replace(tree) if tree in self._begun else []
        return orders + self.placed(tree)

    def placed(self, tree: str) -> Orders:
        """The orders that put the current epoch of a tree in place as computed."""
        self._begun.add(tree)
        parents, epoch = self._expected[tree], self._current[tree]
        children = children_of(parents)
        # The root comes last, so that it tells that the tree stands after the others were told of it.
        last_root = sorted(parents, key=lambda node: (node == tree, node))
        return [(node, InstallTree(tree, epoch, parents[node], children[node])) for node in last_root]

    def tree_stands(self, tree: str, epoch: int) -> bool:
        """The root tells that its tree stands. False: the news is about a build that was replaced meanwhile."""
        if not self.is_current(tree, epoch):
            return False
        self._standing.add(tree)
        return True

    def tree_broken(self, tree: str, epoch: int) -> Orders:
        """A node tells that a tree lost a link there: it is rebuilt, unless that has been decided already."""
        return self._rebuild([tree]) if self.is_current(tree, epoch) else []

    def drained(self, tree: str, epoch: int) -> Orders:
        """Nothing moves along a replaced build any more: have all nodes forget it."""
        if (tree, epoch) not in self._superseded:
            return []
        self._superseded.remove((tree, epoch))
        return self._forget(tree, epoch)

    def renew(self, network: Network) -> Orders:
        """Another plan: every tree under a new epoch, for the sinks that the network now has."""
        self.network = network
        orders: Orders = []
        wanted = set(self._wanted_roots())
        for tree in [tree for tree in self.roots if tree not in wanted]:
            # No other build of it is started; the one that stands drains.
            self._superseded.append((tree, self._current.pop(tree)))
            del self._expected[tree]
            self._standing.discard(tree)
            self._begun.discard(tree)
        orders += self._rebuild(list(self.roots))
        for tree in sorted(wanted - self._current.keys()):
            self._next_epoch(tree)
            orders.append(self._start(tree))
        return orders

    # -- losses, for good ---------------------------------------------------------------------------------------------

    def lost_link(self, one: str, other: str) -> Orders:
        """A link is lost: both ends drop it, and trees that use it or do not stand yet are rebuilt without it."""
        self.check_link(one, other)
        link = (min(one, other), max(one, other))
        if link in self._lost_links:
            return []
        self._lost_links.add(link)
        if one in self._lost_nodes or other in self._lost_nodes:
            return []  # no tree uses it now, nor when the node is back
        roots_before = self.roots
        orders: Orders = [(one, DropLink(other)), (other, DropLink(one)), *self._replace_leader()]
        concerned = [
            tree
            for tree in self.roots
            if (tree in roots_before and tree not in self._standing)
            or (tree in roots_before and self._traits.planned)  # streams may flow over any link
            or other == self._expected[tree].get(one)
            or one == self._expected[tree].get(other)
        ]
        return orders + self._rebuild(concerned)

    def _replace_leader(self) -> Orders:
        """The network has fallen apart, and the leader is not where most nodes are: another takes its place."""
        old = self.leader
        if old is None or old not in self._begun:
            return []
        reached = shortest_path_tree(self.network, old, self._lost_links, self._lost_nodes)
        better = leader(self.network, self._lost_links, self._lost_nodes)
        if len(shortest_path_tree(self.network, better, self._lost_links, self._lost_nodes)) <= len(reached):
            return []
        orders = self._end(old)
        orders += [order for name in self.superseded if name[0] == old for order in self.drained(*name)]
        self._next_epoch(better)
        return [*orders, self._start(better)]

    def lost_node(self, node: str) -> Orders:
        """A node is lost: its tree ends, a lost leader is replaced, and every other tree it was in is rebuilt."""
        self.check_node(node)
        if node in self._lost_nodes:
            return []
        self._lost_nodes.add(node)
        orders: Orders = [
            (neighbour, DropLink(node))
            for neighbour in self._neighbours[node]
            if neighbour not in self._lost_nodes | {node}
        ]
        if node in self._current:
            orders += self._end(node)
        orders += [order for name in self.superseded if name[0] == node for order in self.drained(*name)]
        concerned = [tree for tree in self.roots if tree not in self._standing or node in self._expected[tree]]
        newcomers = [tree for tree in self._wanted_roots() if tree not in self._current]
        for tree in newcomers:
            self._next_epoch(tree)
        return orders + self._rebuild(concerned) + [self._start(tree) for tree in newcomers]

    def link_back(self, one: str, other: str) -> Orders:
        """A lost link is there again: trees that are built from now on use it. Those that stand stay as they are."""
        self.check_link(one, other)
        link = (min(one, other), max(one, other))
        if link not in self._lost_links:
            return []
        self._lost_links.discard(link)
        if one in self._lost_nodes or other in self._lost_nodes:
            return []
        return [(one, self._again(one, other)), (other, UseLink(one, self._times_back[link]))]

    def node_back(self, node: str) -> Orders:
        """A lost node is there again: trees that are built from now on reach it. What its neighbours must know; what it
        must know itself ``links_of`` tells."""
        self.check_node(node)
        if node not in self._lost_nodes:
            return []
        self._lost_nodes.discard(node)
        around = [other for other in sorted(self._neighbours[node]) if self._joins(node, other)]
        return [(other, self._again(other, node)) for other in around]

    def links_of(self, node: str) -> Orders:
        """What a node that remembers nothing must know: which of its links are lost, or have been."""
        orders: Orders = []
        for other in sorted(self._neighbours[node]):
            times = self._times_back.get((min(node, other), max(node, other)))
            if not self._joins(node, other):
                orders.append((node, DropLink(other)))
            elif times is not None:
                orders.append((node, UseLink(other, times)))
        return orders

    def forgotten(self, tree: str, epoch: int) -> Orders:
        """Have all nodes forget a build that is over: some may not have heard of that."""
        return self._forget(tree, epoch) if (tree, epoch) not in self.builds else []

    def _again(self, one: str, other: str) -> UseLink:
        link = (min(one, other), max(one, other))
        self._times_back[link] = self._times_back.get(link, 0) + 1
        return UseLink(other, self._times_back[link])

    def _joins(self, one: str, other: str) -> bool:
        is_lost = (min(one, other), max(one, other)) in self._lost_links
        return not is_lost and one not in self._lost_nodes and other not in self._lost_nodes

    def check_link(self, one: str, other: str) -> None:
        """ConfigError if the network never had such a link."""
        if other not in self._neighbours.get(one, {}):
            raise ConfigError(f"no link joins {one!r} and {other!r}; name two neighbours")

    def check_node(self, node: str) -> None:
        """ConfigError if the network never had such a node."""
        if node not in self._neighbours:
            raise ConfigError(f"the network has no node {node!r}; name one of {', '.join(sorted(self._neighbours))}")

    # -- memory -------------------------------------------------------------------------------------------------------

    def noted(self) -> Iterator[Noted]:
        """What of this must outlive the coordinator, beside its builds."""
        for tree, epoch in self.used_epochs.items():
            yield NotedEpoch(tree, epoch)
        for link in sorted(self._lost_links | self._times_back.keys()):
            yield NotedLink(*link, link in self._lost_links, self._times_back.get(link, 0))

    def recall(self, pieces: Iterable[Noted], network: Network) -> None:
        """Become what another coordinator has noted. Which of the trees stand is not known, so none does."""
        self.network = network
        self._lost_links, self._times_back, self._used_epochs = set(), {}, {}
        self._lost_nodes = {piece.node for piece in pieces if isinstance(piece, NotedLoss)}
        self._current, self._expected, self._superseded, self._standing = {}, {}, [], set()
        for piece in pieces:
            match piece:
                case NotedEpoch(tree, epoch):
                    self._used_epochs[tree] = epoch
                case NotedLink(one, other, lost, times_back):
                    self.check_link(one, other)
                    if lost:
                        self._lost_links.add((one, other))
                    if times_back:
                        self._times_back[one, other] = times_back
                case NotedBuild(tree, epoch, _, _, True):
                    self._current[tree] = epoch
                case NotedBuild(tree, epoch):
                    self._superseded.append((tree, epoch))
        self._begun = set(self._current)
        for tree in self._current:
            self._expected[tree] = shortest_path_tree(network, tree, self._lost_links, self._lost_nodes)

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
        """What nodes report (``node.plans.tree_protocol.Trees.table``) against the computed trees, in words.

        Nothing is said where all is well. Nodes that are lost or cut off need not report.
        """
        findings: list[str] = []
        rows = {(node, row["tree"], row["epoch"]): row for node, table in tables.items() for row in table}
        for tree in self.roots:
            epoch, parents = self._current[tree], self._expected[tree]
            children = children_of(parents)
            for node in sorted(parents):
                where = f"tree of {tree}, epoch {epoch}: {node}"
                row = rows.get((node, tree, epoch))
                if node not in tables:
                    findings.append(f"{where} has not reported")
                elif row is None:
                    findings.append(f"{where} does not know the tree")
                else:
                    findings += [f"{where} {finding}" for finding in _differences(row, parents[node], children[node])]
        return findings

    # -- small helpers ------------------------------------------------------------------------------------------------

    @property
    def _traits(self) -> Strategy:
        return strategy_of(self.strategy)

    def _remaining_nodes(self) -> list[str]:
        return sorted(node for node in self._neighbours if node not in self._lost_nodes)

    def _wanted_roots(self) -> list[str]:
        if not self._traits.one_tree:
            return sorted({sink.node for sink in self.network.sinks} - self._lost_nodes)
        if self._current or not self._remaining_nodes():
            return list(self._current)
        return [leader(self.network, self._lost_links, self._lost_nodes)]

    def _next_epoch(self, tree: str) -> None:
        self._current[tree] = self._used_epochs[tree] = self._used_epochs.get(tree, 0) + 1
        self._expected[tree] = shortest_path_tree(self.network, tree, self._lost_links, self._lost_nodes)

    def _start(self, tree: str) -> tuple[str, TreeOrder]:
        self._begun.add(tree)
        return tree, StartTree(tree, self._current[tree])

    def _rebuild(self, trees: list[str]) -> Orders:
        orders: Orders = []
        for tree in trees:
            if tree not in self._begun:
                # No node knows of this epoch yet; only the computed tree must follow the network.
                self._expected[tree] = shortest_path_tree(self.network, tree, self._lost_links, self._lost_nodes)
                continue
            orders += self._replace(tree)
            orders.append(self._start(tree))
        return orders

    def _replace(self, tree: str) -> Orders:
        """A new epoch; the build it replaces waits for draining if it stood, and is taken back if it did not."""
        old = (tree, self._current[tree])
        stood = tree in self._standing
        self._standing.discard(tree)
        if stood:
            self._superseded.append(old)
        self._next_epoch(tree)
        return [] if stood else self._forget(*old)

    def _end(self, tree: str) -> Orders:
        """The root is lost: what climbs its tree arrives nowhere, so there is nothing to drain."""
        epoch = self._current.pop(tree)
        del self._expected[tree]
        self._standing.discard(tree)
        begun = tree in self._begun
        self._begun.discard(tree)
        return self._forget(tree, epoch) if begun else []

    def _forget(self, tree: str, epoch: int) -> Orders:
        return [(node, ForgetTree(tree, epoch)) for node in self._remaining_nodes()]


def _differences(row: Mapping[str, Any], parent: str | None, children: tuple[str, ...]) -> list[str]:
    differences: list[str] = []
    if row["state"] == "broken":
        differences.append("lost a link of the tree")
    elif row["state"] == "building":
        differences.append(f"still waits for {', '.join(row['waiting_for'])}")
    if row["parent"] != parent:
        differences.append(f"has parent {row['parent'] or 'none'}, should have {parent or 'none'}")
    reported = set(row["children"])
    if missing := sorted(set(children) - reported):
        differences.append(f"lacks the children {', '.join(missing)}")
    if extra := sorted(reported - set(children)):
        differences.append(f"has the children {', '.join(extra)}, which are not its own")
    return differences
