"""The current layout of the rules: which stages have fallen back, and what nodes report of the others.

A planner may fail without harm: what was laid out then stays, and new rules are evaluated at one node.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headwater.coordinator.layout.cost_watch import Fallen, Watched, watched_stages
from headwater.coordinator.layout.fallback import all_fallen_back
from headwater.coordinator.layout.graph_building import Draft, drafted
from headwater.coordinator.layout.planner_interface import Ground, Planner, Routes, at_the_middle
from headwater.coordinator.layout.stages import Layout, RuleLayout
from headwater.coordinator.requests import Change, FallBack, PlanAnew
from headwater.protocol.errors import ConfigError
from headwater.protocol.graphs import Graph, Watch
from headwater.protocol.messages.plans import CostsMore
from headwater.protocol.pattern import Rule


@dataclass(frozen=True)
class _Laid:
    """A layout, the one it was made from, and the graphs of all nodes that follow from it."""

    kept: Layout
    layout: Layout
    draft: Draft
    graphs: dict[str, Graph]
    watched: tuple[Watched, ...]
    fallen: dict[Fallen, str]


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
        """The nodes that have reported that a stage costs more than its fallback, by its number."""
        self._stays = False
        """Whether the next graph is that of the layout as it is here, whatever the planner thinks of it."""
        self._former: tuple[Planner, dict[Rule, RuleLayout]] | None = None
        """What was in force before another planner was to start over, until it has."""
        self.failure: str | None = None
        """Why the newest graph is not what the planner has decided, in a sentence; None: it is."""
        self.failures: list[str] = []
        """The same of all graphs since they were last taken."""

    # ---------------------------------------------------------------------------------------------------------- laying

    def laid(self, ground: Ground, tree: str, epoch: int, plan: int) -> dict[str, Graph]:
        """The graph of every node over this ground, as the planner says; if it fails, as it can be without it."""
        kept = self._kept(ground)
        self.failure = None
        try:
            layout, routes = self.lay_out(ground, kept)
            if self._stays:
                layout = {**layout, **kept}
            laid = self._drawn(ground, kept, layout, routes, tree, epoch, plan)
        except Exception as error:
            laid = self._without_planner(ground, tree, epoch, plan)
            self.failure = _failed(error, ground, laid)
            self.failures.append(self.failure)
        self._stays, self._former = False, None
        if not laid.kept:
            self.number += 1
        self.fallen = laid.fallen
        self._laid_out = {planned.rule: laid.layout[planned.rule.name] for planned in ground.rules}
        self._laid_over = ground.nodes, ground.links
        self.as_run = dict(laid.draft.stages)
        self._graph, self._told = (tree, epoch), {}
        self.watched = laid.watched
        return laid.graphs

    def take_failures(self) -> list[str]:
        """Where the planner has failed since this was last asked, in sentences."""
        failures, self.failures = self.failures, []
        return failures

    def _drawn(
        self, ground: Ground, kept: Layout, layout: Layout, routes: Routes, tree: str, epoch: int, plan: int
    ) -> _Laid:
        """A layout with all that follows from it; nothing is changed here yet."""
        fallen = {
            stage: words
            for stage, words in self.fallen.items()
            if stage[0] in kept and layout.get(stage[0]) == kept[stage[0]]
        }
        draft = drafted(ground, layout)
        graphs = draft.graphs(routes, tree, epoch, plan)
        watched = tuple(watched_stages(draft, routes, fallen.keys())) if self._watches else ()
        for number, watched_stage in enumerate(watched):
            for node, weights in watched_stage.weights.items():
                watch = Watch(number, tuple(weight for _, weight in weights))
                graphs[node] = replace(graphs[node], watches=(*graphs[node].watches, watch))
        return _Laid(kept, layout, draft, graphs, watched, fallen)

    def _without_planner(self, ground: Ground, tree: str, epoch: int, plan: int) -> _Laid:
        """What is in force, with the rules that are new at one node; if even that cannot be laid, all of them there."""
        if self._former is not None:
            self.lay_out, self._laid_out = self._former
        kept = self._kept(ground)
        middle, routes = at_the_middle(ground, kept)
        try:
            return self._drawn(ground, kept, {**middle, **kept}, routes, tree, epoch, plan)
        except Exception:
            return self._drawn(ground, {}, middle, routes, tree, epoch, plan)

    def _kept(self, ground: Ground) -> Layout:
        """The layout of the rules that ran before; empty if nodes or links have changed."""
        if (ground.nodes, ground.links) != self._laid_over:
            return {}
        return {
            planned.rule.name: self._laid_out[planned.rule]
            for planned in ground.rules
            if planned.rule in self._laid_out
        }

    def begin_anew(self, lay_out: Planner) -> None:
        """The next graph is what this planner makes of it; if it fails, what was in force stays."""
        if self._former is None:
            self._former = self.lay_out, self._laid_out
        self.lay_out = lay_out
        self._laid_out = {}

    # ---------------------------------------------------------------------------------------------------- falling back

    def judged(self, node: str, report: CostsMore) -> FallBack | None:
        """The change that follows from a node's report: when half of the nodes of a stage have reported that it costs
        too much. None for what is not about the newest graph, or was reported before."""
        if (report.tree, report.epoch) != self._graph or not 0 <= report.watch < len(self.watched):
            return None
        watched = self.watched[report.watch]
        reporters = self._told.setdefault(report.watch, set())
        if node in reporters or not watched.fits(node, report):
            return None
        before = len(reporters)
        reporters.add(node)
        if 2 * before >= len(watched.nodes) or 2 * len(reporters) < len(watched.nodes):
            return None
        return FallBack(watched.stages, watched.home, self.number, watched.sentence(node, report))

    def check(self, change: Change) -> None:
        """ConfigError if a change makes no sense now."""
        match change:
            case FallBack():
                self._check_fall_back(change)

    def apply(self, change: Change) -> None:
        """The next graph is laid out as a change says."""
        match change:
            case PlanAnew(planner):
                self.begin_anew(planner)
            case FallBack():
                self.fall_back(change)

    def _check_fall_back(self, change: FallBack) -> None:
        """ConfigError if the stage is not there any more, or has fallen back already."""
        if change.laying != self.number:
            raise ConfigError("everything was laid out again after a stage was found to cost too much")
        for name in change.stages:
            if (name.rule, name.roles) in self.fallen:
                raise ConfigError(f"{name.what()} has fallen back already")
        if all_fallen_back(self.as_run, change.stages, change.home) is None:
            raise ConfigError(f"{change.stages[0].what()} is not put together any more where it cost too much")

    def fall_back(self, change: FallBack) -> None:
        """The next graph has these stages replaced."""
        replaced = all_fallen_back(self.as_run, change.stages, change.home)
        assert replaced is not None, "a fallback that was checked makes no sense any more"
        for rule in self._laid_out:
            if rule.name in replaced:
                self._laid_out[rule] = replaced[rule.name]
        for name in change.stages:
            self.fallen[name.rule, name.roles] = change.what()
        self._stays = True


def _failed(error: Exception, ground: Ground, laid: _Laid) -> str:
    """What a planner did wrong, and what is done instead, in a sentence."""
    new = [planned.rule.name for planned in ground.wanted_rules() if planned.rule.name not in laid.kept]
    instead = list(_instead(laid, new))
    return f"the planner failed (a bug: {_where(error)}); {' and '.join(instead) or 'nothing was to be laid out'}"


def _instead(laid: _Laid, new: list[str]) -> Iterator[str]:
    if laid.kept:
        yield "what was laid out before stays as it is"
    if new:
        (node,) = laid.layout[new[0]][0].nodes
        yield f"{', '.join(new)} {'is' if len(new) == 1 else 'are'} evaluated at {node} alone"


def _where(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}, line {last.lineno}: {error}"
