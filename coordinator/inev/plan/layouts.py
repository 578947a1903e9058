"""Turns plans into layouts that a network can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from headwater.coordinator.inev.model.problem import Problem, Projection, event_network
from headwater.coordinator.inev.model.rules import Statistics, labels_of, problem_from
from headwater.coordinator.inev.model.topology import Topology
from headwater.coordinator.inev.plan.fallback import with_fall_backs
from headwater.coordinator.inev.plan.plans import PlacedTask, Placement, Plan, TaskInput
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.coordinator.layout.planner_interface import Ground, Link, Routes, at_the_middle
from headwater.coordinator.layout.stages import Home, Layout, RuleLayout, Stage
from headwater.protocol.errors import ConfigError
from headwater.protocol.pattern import Rule, types_of
from headwater.protocol.streams import Stream

ATTEMPTS = 2000
"""How often the search looks at its clock, which counts instead of telling the time: the same network must get the same
plan whenever it is asked for, for instance when a coordinator repeats what it did before a crash."""

UNKNOWN_PER_S = 1.0
"""The rate of a source for which none is given."""


class InevPlanner:
    """Lays rules out so that as little as possible crosses the network."""

    def __init__(self, statistics: Statistics, attempts: int = ATTEMPTS) -> None:
        """``statistics`` may give a rate for all sources of a type under the name ""."""
        self.statistics = statistics
        self._attempts = attempts

    def __call__(self, ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
        """Rules that are laid out stay where they are; others join them."""
        layout = {**at_the_middle(ground, kept)[0], **kept}
        plan = self.plan(ground, kept)
        if plan is not None:
            names = {query.name for query in plan.problem.queries}
            for planned in ground.wanted_rules():
                if planned.rule.name in names and planned.rule.name not in kept:
                    layout[planned.rule.name] = _rule_layout(planned.rule, plan)
        return layout, SteinerRoutes(ground)

    def plan(self, ground: Ground, kept: Layout) -> Plan | None:
        """What is planned for the rules that can be; the others are evaluated in the middle of the network."""
        rules = [planned.rule for planned in ground.wanted_rules() if planned.rule.name not in kept]
        rules = [rule for rule in rules if types_of(rule.pattern) <= ground.sources.keys()]
        while rules:
            try:
                problem = self._problem(rules, ground)
            except ConfigError:
                rules = [rule for rule in rules if self._can_be_planned(rule, ground)][: len(rules) - 1]
                continue
            clock = Clock(self._attempts)
            bound = self.statistics.latency.bound_for(problem)
            search = Search(problem, clock, bound, patient=len(problem.queries) > 1, pull=self.statistics.pull)
            return with_fall_backs(search.plan())
        return None

    def _can_be_planned(self, rule: Rule, ground: Ground) -> bool:
        try:
            self._problem([rule], ground)
        except ConfigError:
            return False
        return True

    def _problem(self, rules: list[Rule], ground: Ground) -> Problem:
        read = set[str]().union(*(types_of(rule.pattern) for rule in rules))
        rates = {name: self._rates(name, nodes) for name, nodes in ground.sources.items() if name in read}
        network = event_network(ground.nodes, ground.links, rates)
        number = {name: position for position, name in enumerate(ground.nodes)}
        sinks: dict[str, tuple[int, ...]] = {}
        for node, name in ground.sinks:
            sinks[name] = tuple(sorted({*sinks.get(name, ()), number[node]}))
        statistics = replace(self.statistics, rates=rates)
        return problem_from(rules, ground.nodes, network, statistics, sinks, ground.tables)

    def _rates(self, name: str, nodes: Iterable[str]) -> Mapping[str, float]:
        rates = self.statistics.rates.get(name, {})
        return {node: rates.get(node, rates.get("", UNKNOWN_PER_S)) for node in nodes}


class SteinerRoutes:
    """Along small trees over the origin and all readers."""

    def __init__(self, ground: Ground) -> None:
        self._names = ground.nodes
        self._numbers = {name: position for position, name in enumerate(ground.nodes)}
        self._topology = Topology(len(ground.nodes), [(self._numbers[a], self._numbers[b]) for a, b in ground.links])

    def __call__(self, origin: str, stream: Stream, readers: frozenset[str]) -> Iterable[Link]:
        bits = self._topology.spanning([self._numbers[node] for node in (origin, *sorted(readers))])
        return [(self._names[one], self._names[other]) for one, other in self._topology.link_names(bits)]


def _rule_layout(rule: Rule, plan: Plan) -> RuleLayout:
    """The stages of one rule: the tasks that its final one reads, directly or through others."""
    roles_of: dict[str, set[str]] = {}
    for role, label in labels_of(rule).items():
        roles_of.setdefault(label, set()).add(role)
    tasks = {(task.projection, task.placement): task for task in plan.tasks}
    network, names = plan.problem.network, plan.problem.network.names
    nodes_alone = {(fall_back.projection, fall_back.placement): fall_back.node for fall_back in plan.fall_backs}
    stages: list[Stage] = []
    position_of: dict[tuple[Projection, Placement], int] = {}

    def roles(types: Iterable[str]) -> frozenset[str]:
        return frozenset[str]().union(*(roles_of.get(label, set()) for label in types))

    def placed(task: PlacedTask, all_roles: frozenset[str] | None = None) -> int:
        key = (task.projection, task.placement)
        if key not in position_of:
            inside: list[int] = []
            events: set[str] = set()
            left_out: set[tuple[int, str]] = set()
            for read in task.inputs:
                below = _task_of(read, tasks)
                if below is None:
                    events |= roles(read.projection.types)
                else:
                    inside.append(placed(below))
                    left_out |= {(inside[-1], role) for role in roles(read.left_out)}
            wanted = roles(task.projection.types) if all_roles is None else all_roles
            split = next(iter(roles([task.placement.split_by])), None) if task.placement.split_by else None
            nodes = tuple(names[node] for node in task.nodes)
            below_it = tuple(dict.fromkeys(inside))
            alone, label = nodes_alone.get(key), task.placement.split_by
            home = None
            if alone is not None and label is not None:
                home = Home(names[alone], tuple((names[node], network.share(label, node)) for node in task.nodes))
            asking = _asking(task, roles)
            stages.append(Stage(wanted, nodes, split, below_it, frozenset(events), frozenset(left_out), *asking, home))
            position_of[key] = len(stages) - 1
        return position_of[key]

    placed(plan.finals[rule.name], frozenset(labels_of(rule)))
    return tuple(stages)


def _asking(task: PlacedTask, roles: Callable[[Iterable[str]], frozenset[str]]) -> tuple[str | None, frozenset[str]]:
    """The role whose events ask, and those whose events are asked for."""
    masters = {pull.ask.master for pull in task.pulls}
    if len(masters) != 1 or None in masters:
        return None, frozenset()
    master = roles(master for master in masters if master is not None)
    pulled = roles(pull.ask.type for pull in task.pulls)
    return (next(iter(master)), pulled) if len(master) == 1 else (None, frozenset())


def _task_of(read: TaskInput, tasks: Mapping[tuple[Projection, Placement], PlacedTask]) -> PlacedTask | None:
    """The task that gives what is read; None for events as they are."""
    return None if read.projection.primitive else tasks[read.projection, read.placement]
