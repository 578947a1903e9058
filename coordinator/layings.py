"""How rules are laid out now, what of it has fallen back, and what nodes have told of the rest."""

from __future__ import annotations

from dataclasses import replace

from coordinator.changes import FallBack
from coordinator.fall_backs import all_fallen_back
from coordinator.graphs import Ground, Planner, drafted
from coordinator.layouts import Layout, RuleLayout
from coordinator.watches import Fallen, Watched, watched_stages
from protocol.errors import ConfigError
from protocol.graphs import Graph, Watch
from protocol.pattern import Rule
from protocol.plan_messages import CostsMore


class Layings:
    """Layouts follow each other: made from scratch by a planner, or kept, with more rules or with a stage less."""

    def __init__(self, lay_out: Planner, *, watches: bool) -> None:
        self.lay_out = lay_out
        self.number = 0
        """Of the layout that was last made from scratch."""
        self.fallen: dict[Fallen, str] = {}
        """The stages of it that have fallen back, each with what was done, in words."""
        self.watched: tuple[Watched, ...] = ()
        """What nodes watch in the newest graph."""
        self._watches = watches
        self._laid_out: dict[Rule, RuleLayout] = {}
        self._laid_over: tuple[tuple[str, ...], tuple[tuple[str, str], ...]] = ((), ())
        """How rules are laid out now, and over which nodes and links."""
        self.as_run: dict[str, RuleLayout] = {}
        """The same by the names of rules, as it is run."""
        self._graph: tuple[str, int] = ("", 0)
        """The tree and epoch of the newest graph."""
        self._told: dict[int, set[str]] = {}
        """The nodes that have told that a stage costs more than its fall-back, by its number."""
        self._stays = False
        """Whether the next graph is that of the layout as it is here, whatever the planner thinks of it."""

    # ---------------------------------------------------------------------------------------------------------- laying

    def laid(self, ground: Ground, tree: str, epoch: int, plan: int) -> dict[str, Graph]:
        """The graph of every node over this ground."""
        kept = self._kept(ground)
        layout, routes = self.lay_out(ground, kept)
        if self._stays:
            layout = {**layout, **kept}
            self._stays = False
        if not kept:
            self.number += 1
        self.fallen = {
            stage: what
            for stage, what in self.fallen.items()
            if stage[0] in kept and layout.get(stage[0]) == kept[stage[0]]
        }
        draft = drafted(ground, layout)
        graphs = draft.graphs(routes, tree, epoch, plan)
        self._laid_out = {each.rule: layout[each.rule.name] for each in ground.rules}
        self._laid_over = ground.nodes, ground.links
        self.as_run = dict(draft.stages)
        self._graph, self._told = (tree, epoch), {}
        self.watched = tuple(watched_stages(draft, routes, self.fallen.keys())) if self._watches else ()
        for number, watched in enumerate(self.watched):
            for node, weights in watched.weights.items():
                watch = Watch(number, tuple(weight for _, weight in weights))
                graphs[node] = replace(graphs[node], watches=(*graphs[node].watches, watch))
        return graphs

    def _kept(self, ground: Ground) -> Layout:
        """How rules are laid out that ran before; nothing if nodes or links are not the same."""
        if (ground.nodes, ground.links) != self._laid_over:
            return {}
        return {each.rule.name: self._laid_out[each.rule] for each in ground.rules if each.rule in self._laid_out}

    def begin_anew(self, lay_out: Planner) -> None:
        """The next graph is what this planner makes of it."""
        self.lay_out = lay_out
        self._laid_out = {}

    # ---------------------------------------------------------------------------------------------------- falling back

    def judged(self, node: str, report: CostsMore) -> FallBack | None:
        """The change that follows from a node's report: when half of the nodes of a stage have told that it costs too
        much. None for what is not about the newest graph, or was told before."""
        if (report.tree, report.epoch) != self._graph or not 0 <= report.watch < len(self.watched):
            return None
        watched = self.watched[report.watch]
        told = self._told.setdefault(report.watch, set())
        if node in told or not watched.fits(node, report):
            return None
        before = len(told)
        told.add(node)
        if 2 * before >= len(watched.nodes) or 2 * len(told) < len(watched.nodes):
            return None
        return FallBack(watched.stages, watched.home, self.number, watched.told(node, report))

    def check(self, change: FallBack) -> None:
        """ConfigError if the stage is not there any more, or has fallen back already."""
        if change.laying != self.number:
            raise ConfigError("everything was laid out anew since it was found that a stage costs too much")
        for name in change.stages:
            if (name.rule, name.roles) in self.fallen:
                raise ConfigError(f"{name.what()} has fallen back already")
        if all_fallen_back(self.as_run, change.stages, change.home) is None:
            raise ConfigError(f"{change.stages[0].what()} is not put together any more where it cost too much")

    def fall_back(self, change: FallBack) -> None:
        """The next graph has these stages replaced."""
        replaced = all_fallen_back(self.as_run, change.stages, change.home)
        assert replaced is not None, "a fall-back that was checked makes no sense any more"
        for rule in self._laid_out:
            if rule.name in replaced:
                self._laid_out[rule] = replaced[rule.name]
        for name in change.stages:
            self.fallen[name.rule, name.roles] = change.what()
        self._stays = True
