"""Random layouts: any stages at any nodes, split by any role, along any trees, anything pulled by anything. Most are
foolish; all must keep the law."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from headwater.coordinator.core import Coordinator
from headwater.coordinator.daemon.snapshot import vocabulary
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.layout.fallback import home_of, name_of
from headwater.coordinator.layout.planner_interface import Ground, Link, Planner, Routes, shortest_routes
from headwater.coordinator.layout.stages import Home, Layout, RuleLayout, Stage, at_one_node
from headwater.coordinator.requests import FallBack
from headwater.deploy.simulation.outages import Decide
from headwater.node.plans.stage_cost import StagePatience
from headwater.protocol.analysis.pulling import awakening_roles
from headwater.protocol.network import Network
from headwater.protocol.pattern import Chain, Rule, leaves
from headwater.protocol.streams import Stream
from tests.law.networks import NetworkCase


def impatient(births: Sequence[tuple[int, int, object]]) -> StagePatience:
    """Of nodes that have stages fall back in short runs."""
    return StagePatience(turn_us=max(1, (births[-1][0] - births[0][0]) // 20) if births else 1, turns=1, events_least=1)


class RandomPlanner:
    """The same ground gets the same layout, whenever it is asked for; and so do equal patterns."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        chosen = f"{self._seed} {ground.nodes} {ground.links} {len(ground.rules)}"
        layout = {
            each.rule.name: _rule_layout(each.rule, ground, random.Random(f"{chosen} {each.rule.pattern}"))
            for each in ground.rules
        }
        chance = random.Random(chosen)
        if chance.random() < 0.5:
            layout |= kept
        return layout, _RandomRoutes(ground, chance.random())


def random_planner(seed: int) -> Planner:
    """Every third seed gets the real planner, with rates that were not measured."""
    return RandomPlanner(seed) if seed % 3 else InevPlanner(Statistics(_RandomRates(seed)), attempts=100)


def twinned(case: NetworkCase) -> NetworkCase:
    """The case with every rule twice, under two names, and a sink that wants to hear of both."""
    network = case.network
    found = {rule.emits for rule in network.rules}
    rules = [
        each
        for rule in network.rules
        for each in (rule, replace(rule, name=f"{rule.name}Twin", emits=f"{rule.emits}Twin"))
    ]
    twins = [
        replace(sink, subscription=replace(sink.subscription, type=f"{sink.subscription.type}Twin"))
        for sink in network.sinks
        if sink.subscription.type in found
    ]
    return replace(case, network=replace(network, rules=tuple(rules), sinks=(*network.sinks, *twins)))


def strike(seed: int) -> Decide:
    """Some stage of whatever runs then falls back, whether or not that pays."""

    def choose(coordinator: Coordinator) -> FallBack | None:
        chance = random.Random(f"strike {seed}")
        layings = coordinator.layings
        found = [
            (name_of(rule, stages[position]), home_of(stages, position)[1])
            for rule, stages in sorted(layings.as_run.items())
            for position in range(len(stages))
            if home_of(stages, position)[0]
        ]
        found = [(name, home) for name, home in found if (name.rule, name.roles) not in layings.fallen]
        if not found:
            return None
        name, home = chance.choice(found)
        return FallBack((name,), home, layings.number)

    return Decide(choose)


def strikes(seed: int, births: Sequence[tuple[int, int, object]]) -> list[tuple[int, Decide]]:
    """In every other run stages fall back, at any time."""
    chance = random.Random(f"strikes {seed}")
    if not births or seed % 2:
        return []
    return [(chance.randint(births[0][0], births[-1][0]), strike(chance.randrange(10**6))) for _ in range(3)]


def can_fall_back(network: Network, planner: Planner) -> bool:
    """Whether anything has a fall-back in the layout that a network begins with."""
    coordinator = Coordinator(network, "inev", lay_out=planner)
    coordinator.begin()
    layouts = coordinator.layings.as_run.values()
    return any(home_of(stages, position)[0] for stages in layouts for position in range(len(stages)))


class _RandomRates(dict[str, dict[str, float]]):
    """Some rate for all sources of any type."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def get(self, name: str, default: Any = None) -> dict[str, float]:
        return {"": random.Random(f"{self._seed} {name}").choice((0.1, 1.0, 10.0, 100.0))}


def _rule_layout(rule: Rule, ground: Ground, chance: random.Random) -> RuleLayout:
    roles = [leaf.role for leaf in leaves(rule.pattern.root)]
    stages: list[Stage] = []

    def place(wanted: frozenset[str], depth: int) -> int:
        """A stage for these roles; its position."""
        inside: list[int] = []
        left = set(wanted)
        left_out: set[tuple[int, str]] = set()
        while depth and len(left) > 1 and chance.random() < 0.8:
            some = frozenset(chance.sample(sorted(left), chance.randint(2, len(left))))
            if some == wanted:
                continue
            inside.append(place(some, depth - 1))
            left -= some
            if chance.random() < 0.5:  # roles may come in two ways, or the stage does not send them
                both = chance.sample(sorted(some), chance.randint(1, len(some) - 1))
                left.update(both)
                unsent = 1.0 if isinstance(rule.pattern.root, Chain) else 0.7  # chains take nothing in two ways
                left_out |= {(inside[-1], role) for role in both if chance.random() < unsent}
        split = chance.choice(sorted(wanted)) if chance.random() < 0.5 else None
        home = None
        if split is not None:
            left.add(split)
            home = Home(chance.choice(ground.nodes))
        at = (chance.choice(ground.nodes),)
        stages.append(Stage(wanted, at, split, tuple(inside), frozenset(left), frozenset(left_out), home=home))
        return len(stages) - 1

    place(frozenset(roles), chance.choice((0, 1, 1, 2, 3)))
    return tuple(_awakened(stage, rule, chance) for stage in stages)


def _awakened(stage: Stage, rule: Rule, chance: random.Random) -> Stage:
    """The stage with any master and anything pulled; more often than by mere chance what may be."""
    if chance.random() < 0.2:
        return stage
    roles = [leaf.role for leaf in leaves(rule.pattern.root)]
    able = [role for role in awakening_roles(rule) if role in stage.roles]
    master = chance.choice(able if able and chance.random() < 0.8 else roles)
    share = chance.choice((0.5, 1.0, 1.0))
    return replace(stage, master=master, pulled=frozenset(role for role in roles if chance.random() < share))


class _RandomRoutes:
    """Along a random spanning tree, another for every origin."""

    def __init__(self, ground: Ground, seed: float) -> None:
        self._ground = ground
        self._seed = seed

    def __call__(self, origin: str, stream: Stream, readers: frozenset[str]) -> Iterable[Link]:
        chance = random.Random(f"{self._seed} {origin} {sorted(readers)}")
        links = list(self._ground.links)
        chance.shuffle(links)
        before: dict[str, str] = {origin: origin}
        while len(before) < len(self._ground.nodes):
            for one, other in links:
                if (one in before) != (other in before):
                    new, known = (other, one) if one in before else (one, other)
                    before[new] = known
        used: set[Link] = set()
        for node in readers:
            while node != origin:
                used.add((before[node], node))
                node = before[node]
        return used


class FixedPlanner(InevPlanner):
    """The same layout whatever is known of rates, along shortest paths."""

    layout: ClassVar[Layout] = {}

    def __call__(self, ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        return self.layout, shortest_routes(ground)


def asking(rule: Rule, node: str, master: str, *pulled: str) -> tuple[Stage, ...]:
    """Everything at one node, with some roles pulled."""
    (stage,) = at_one_node(rule, node)
    return (replace(stage, master=master, pulled=frozenset(pulled)),)


def fixed(layout: Layout) -> Planner:
    """A planner that knows only this layout."""

    def lay_out(ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        return layout, shortest_routes(ground)

    return lay_out


for _planner in (FixedPlanner, RandomPlanner):
    vocabulary().allow(_planner.__name__, _planner)  # what coordinators of these tests may save
