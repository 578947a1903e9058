"""Which stages nodes watch, to see whether one costs more than its fallback would.

The cost of a stage is what crosses links for it: its inputs on their way to it and what it sends on. With the fallback
the same inputs, and perhaps what is made of them, cross other links. A node that evaluates the stage sees all of these
events come and go; so it is told how many links an event of each crosses now, and how many it would cross instead.

Where a stage is split, a node sees what is read everywhere as the others do, but of the rest only its own part. The
others are taken to have what the planner expected them to have beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from headwater.coordinator.layout.fallback import StageName, all_fallen_back, home_of, name_of
from headwater.coordinator.layout.graph_building import Draft, FlowName, drafted
from headwater.coordinator.layout.planner_interface import Routes
from headwater.coordinator.layout.stages import Stage
from headwater.protocol.graphs import Weight
from headwater.protocol.messages.plans import CostsMore

WATCHED_MAX: Final = 100
"""Stages of a network that are watched: for each of them the graph of its fallback is drawn once."""

Key: TypeAlias = tuple[str, str, tuple[str, ...], str, tuple[str, ...]]
"""A flow, however stages are numbered: its kind, its type or rule, roles and place (of stages, and of the stage that
pulls), what it leaves out."""

Links: TypeAlias = Mapping[Key, Mapping[str, int]]

Fallen: TypeAlias = tuple[str, tuple[str, ...]]
"""A stage that has fallen back: a rule and roles."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A stage that nodes watch."""

    stages: tuple[StageName, ...]
    """One, or several of different rules that are evaluated once for all of them."""
    home: str | None
    """The node that it falls back to; None: it would be left out."""
    nodes: tuple[str, ...]
    weights: Mapping[str, tuple[tuple[str, Weight], ...]]
    """By node: what each weight is about, in words, and the weight."""

    def stage(self) -> str:
        """In words."""
        return ", ".join(dict.fromkeys(name.what() for name in self.stages))

    def sentence(self, node: str, report: CostsMore) -> str:
        """What a node has measured and what its stage should save, in words; the counts are as many as the weights."""
        seconds = max(1, report.over_us) / 1e6
        rates: dict[str, float] = {}
        now = instead = 0.0
        for (name, weight), count in zip(self.weights[node], report.counts, strict=True):
            rates[name] = rates.get(name, 0.0) + count / seconds
            now += count / seconds * weight.now
            instead += count / seconds * weight.instead
        seen = ", ".join(f"{name} {rate:.3g}/s" for name, rate in rates.items())
        way = "read its inputs instead" if self.home is None else f"put it together at {self.home} alone"
        return (
            f"{self.stage()} costs more at {', '.join(self.nodes)} than it saves: {node} measured {seen}; {way}: "
            f"{instead:.3g} events times links per second instead of {now:.3g}"
        )

    def fits(self, node: str, report: CostsMore) -> bool:
        """Whether a report can be one about this stage."""
        return node in self.weights and len(report.counts) == len(self.weights[node])


def watched_stages(draft: Draft, routes: Routes, fallen: Collection[Fallen]) -> Iterator[Watched]:
    """The stages of a graph that is laid that have a fallback which their nodes can judge; those that have ``fallen``
    back are not watched again."""
    now = _links(draft, routes, {})
    for members in islice(_evaluated_once(draft), WATCHED_MAX):
        rule, position = members[0]
        has_one, home = home_of(draft.stages[rule], position)
        names = tuple(name_of(name, draft.stages[name][at]) for name, at in members)
        if not has_one or any((name.rule, name.roles) in fallen for name in names):
            continue
        if home is not None and home not in draft.ground.nodes:
            continue
        replaced = all_fallen_back(draft.stages, names, home)
        assert replaced is not None, "a stage is not where it was just found"
        other = drafted(draft.ground, {**draft.stages, **replaced})
        moved = {} if home is None else {(name.rule, name.roles, home): _place(name) for name in names}
        weights = _Comparison(draft, members, home, now, _links(other, routes, moved)).weights()
        if weights is not None:
            yield Watched(names, home, draft.stages[rule][position].nodes, weights)


def _evaluated_once(draft: Draft) -> list[list[tuple[str, int]]]:
    """The stages, by rule and position, those together that are evaluated as one."""
    groups: list[tuple[set[FlowName], list[tuple[str, int]]]] = []
    for rule, stages in draft.stages.items():
        for position in range(len(stages)):
            flows, members = set(draft.flows_of(rule, position)), [(rule, position)]
            for overlapping in [group for group in groups if group[0] & flows]:
                groups.remove(overlapping)
                flows |= overlapping[0]
                members = overlapping[1] + members
            groups.append((flows, members))
    return [members for _, members in groups]


def _place(name: StageName) -> str:
    return name.node if name.node is not None else f"by {name.split}"


def _key(draft: Draft, flow: FlowName, moved: Mapping[tuple[str, tuple[str, ...], str], str]) -> Key:
    kind, rule, position, without = flow
    if kind == "pulled":  # the events of a type, for one task alone
        node, asks = draft.asker(flow)
        return kind, rule, asks, node, without
    if kind != "stage":
        return kind, rule, (), "", without
    name = name_of(rule, draft.stages[rule][position])
    place = _place(name)
    return kind, rule, name.roles, moved.get((rule, name.roles, place), place), without


def _links(draft: Draft, routes: Routes, moved: Mapping[tuple[str, tuple[str, ...], str], str]) -> Links:
    """By flow and origin, how many links are crossed. Stages that have ``moved`` are known by where they were."""
    return {_key(draft, flow, moved): crossed for flow, crossed in draft.links(routes).items()}


class _Comparison:
    """One stage, as it is and with its fallback."""

    def __init__(
        self, draft: Draft, members: list[tuple[str, int]], home: str | None, now: Links, instead: Links
    ) -> None:
        rule, position = members[0]
        self._draft = draft
        self._stage: Stage = draft.stages[rule][position]
        self._home = home
        self._now = now
        self._instead = instead
        self._outputs = sorted({flow for name, at in members for flow in draft.flows_of(name, at)})
        reads = [read for flow in self._outputs for read in draft.reads_of(flow)]
        self._reads = list(dict.fromkeys(reads))
        expected_shares = dict(self._stage.home.shares) if home is not None and self._stage.home is not None else {}
        least = min((share for share in expected_shares.values() if share > 0), default=1.0)
        shares = {node: expected_shares.get(node, 0.0) or least for node in self._stage.nodes}
        self._shares = {node: share / sum(shares.values()) for node, share in shares.items()}

    def weights(self) -> dict[str, tuple[tuple[str, Weight], ...]] | None:
        """By node what to compare; None if there is nothing to, or if it takes more than the nodes of the stage see."""
        seen = {_key(self._draft, flow, {}): flow for flow in (*self._outputs, *(flow for flow, _ in self._reads))}
        also: dict[Key, list[Key]] = {}
        for key, crossed in self._instead.items():
            if key in seen:
                continue
            before = self._now.get(key, {})
            if any(links > before.get(origin, 0) for origin, links in crossed.items()):
                like = next((seen_key for seen_key in seen if seen_key[:4] == key[:4]), None)
                if like is None:
                    return None
                also.setdefault(like, []).append(key)
        by_node = {node: tuple(self._at(node, also)) for node in self._stage.nodes}
        can_tell = all(any(weight.now > weight.instead for _, weight in weights) for weights in by_node.values())
        return by_node if can_tell else None

    def _at(self, node: str, also: Mapping[Key, list[Key]]) -> Iterator[tuple[str, Weight]]:
        share = self._shares[node]
        for flow, only_here in [*self._reads, *((flow, True) for flow in self._outputs)]:
            key = _key(self._draft, flow, {})
            keys = [key, *also.get(key, ())]
            origins = self._draft.origins_of(flow)
            name = self._shown(flow)
            if not only_here or len(self._stage.nodes) == 1:
                for origin in origins:
                    now = self._now[key].get(origin, 0)
                    instead = sum(
                        self._crossed(flow_key, origin) - self._extra(flow_key, key, origin) for flow_key in keys
                    )
                    if now or instead:
                        yield name, Weight(self._draft.tap(node, flow, origin), float(now), float(instead))
                continue
            parts = [(self._shares.get(origin, 0.0), origin) for origin in origins]
            now_all = sum(part * self._now[key].get(origin, 0) for part, origin in parts)
            if flow in self._outputs and self._home is not None:
                instead_all: float = sum(self._crossed(flow_key, self._home) for flow_key in keys)
            else:
                instead_all = sum(part * self._crossed(flow_key, origin) for part, origin in parts for flow_key in keys)
            if now_all or instead_all:
                yield name, Weight(self._draft.tap(node, flow, node), now_all / share, instead_all / share)

    def _crossed(self, key: Key, origin: str) -> int:
        return self._instead.get(key, {}).get(origin, 0)

    def _extra(self, key: Key, seen: Key, origin: str) -> int:
        """What a flow that stands in for another crosses anyway."""
        return 0 if key == seen else self._now.get(key, {}).get(origin, 0)

    def _shown(self, flow: FlowName) -> str:
        kind, name, position, _ = flow
        if kind == "events":
            return name
        shown = name if kind == "whole" else " and ".join(sorted(self._draft.stages[name][position].roles))
        return f"{shown} found" if flow in self._outputs else f"{shown} of {name}"
