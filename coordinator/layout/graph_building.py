"""Turns a layout into the stream graph of every node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headwater.coordinator.layout.planner_interface import Ground, Link, Routes
from headwater.coordinator.layout.stages import Layout, RuleLayout, Stage, divided, heard_types
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.analysis.projection import anonymous, beside_all_of, project
from headwater.protocol.breadth_first import breadth_first
from headwater.protocol.errors import RuleError
from headwater.protocol.graphs import (
    BornHere,
    Graph,
    GraphDelivery,
    GraphInlet,
    GraphOutlet,
    GraphTask,
    MadeBy,
    TakenFrom,
    Tap,
    stream_number,
)
from headwater.protocol.pattern import Rule, leaves
from headwater.protocol.streams import Filter, Part, Stream, Whole, filter_of, whole_streams

FlowName: TypeAlias = tuple[str, str, int, tuple[str, ...]]
"""What kind of flow, of which type or rule, for stages which of them; and the conditions of a filter, or the types that
are left out of a stage. What is pulled flows for one task: it is named by the type, the task, and the conditions."""


class _Flow:
    """A stream that arises at some nodes and is read at others."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.origins: dict[str, Tap] = {}
        self.readers: set[str] = set()
        self.pulled = False
        """Whether it flows only as far as its one reader asks for it."""
        self.numbers: dict[tuple[str, str], int] = {}
        """Under which number a node takes what arises at an origin."""


@dataclass(frozen=True, slots=True)
class _Reads:
    """What a stage reads at one node."""

    pushed: tuple[tuple[FlowName, bool], ...]
    """Flows; (true) of which only what arises at the node."""
    asked: tuple[Filter, ...]
    """Events that wait until the master asks for them; in part they may be born at the node."""
    master: str | None


@dataclass(slots=True)
class _Task:
    """A task at a node, with the flows it reads; (true) of which only what arises at the node."""

    node: str
    number: int
    stream: Whole | Part
    reads: list[tuple[FlowName, bool]]
    master: str | None
    drives: bool


def laid(ground: Ground, layout: Layout, routes: Routes, tree: str, epoch: int, plan: int) -> dict[str, Graph]:
    """The graph of every node. Numbers of streams are different for each ``plan``."""
    return _Draft(ground, layout).graphs(routes, tree, epoch, plan)


def drafted(ground: Ground, layout: Layout) -> Draft:
    """Which streams there are, and who reads them, before they are laid (``graphs``)."""
    return _Draft(ground, layout)


class _Draft:
    def __init__(self, ground: Ground, layout: Layout) -> None:
        self._ground = ground
        self._rules = ground.wanted_rules()
        self._stages = {
            planned.rule.name: divided(planned.rule, layout[planned.rule.name], ground.sources)
            for planned in self._rules
        }
        self._flows: dict[FlowName, _Flow] = {}
        self._tasks: list[_Task] = []
        self._deliveries: list[tuple[str, FlowName]] = []
        self._filters: dict[tuple[str, str], Filter] = {}
        """What of the events of its type a role of a rule needs."""
        self._unfiltered: set[tuple[str, str]] = set()
        """Nodes that get all events of a type."""
        self._pushed: set[tuple[str, Filter]] = set()
        """What of the events of a type comes to a node without being asked for."""
        self._shareable: dict[object, FlowName] = {}
        """Stages that other rules can share, by what they do."""
        self._same: dict[FlowName, FlowName] = {}
        """For stages that are not evaluated by themselves, the ones that find the same."""
        self._bear()
        self._evaluate()
        self._deliver()

    def _bear(self) -> None:
        """Events, of each type what some stage or sink reads: everything, or what passes a filter. A reader that gets
        everything anyway takes what it needs from that."""
        wanted: dict[str, set[Filter]] = {}
        for node, name in self._ground.sinks:
            wanted.setdefault(name, set()).add(Filter(name))
            self._unfiltered.add((node, name))
        for planned in self._rules:
            types = _types(planned.rule)
            for stage in self._stages[planned.rule.name]:
                for role in sorted(stage.events):
                    name = types[role]
                    needed = self._filters[planned.rule.name, role] = _filter(planned.rule, role, name)
                    wanted.setdefault(name, set()).add(needed)
                    if not needed.where and role != stage.split and role not in stage.pulled:
                        self._unfiltered.update((node, name) for node in stage.nodes)
        for planned in self._rules:
            for stage in self._stages[planned.rule.name]:
                for role in stage.events - stage.pulled - {stage.split}:
                    needed = self._filter_for(planned.rule, role, stage)
                    self._pushed.update((node, needed) for node in stage.nodes)
        for name, filters in sorted(wanted.items()):
            for stream in sorted(filters, key=repr) if name in self._ground.sources else ():
                flow = self._flows[_events(stream)] = _Flow(stream)
                flow.origins = {node: BornHere(stream) for node in self._ground.sources[name]}

    def _evaluate(self) -> None:
        bounds = [(planned.rule, planned.since_us, planned.until_us) for planned in self._rules]
        streams = whole_streams(bounds, self._ground.from_us)
        for planned, whole in zip(self._rules, streams, strict=True):
            rule, stages = planned.rule, self._stages[planned.rule.name]
            drives = any(stage.pulled for stage in stages)
            wanted: list[set[tuple[str, ...]]] = [set() for _ in stages]
            for stage in stages:
                for below in stage.stages:
                    wanted[below].add(heard_types(rule, stage, below, stages[below].roles))
            for position, stage in enumerate(stages):
                reads = self._reads(rule, stage, stages)
                if position == len(stages) - 1:
                    self._place(("whole", rule.name, 0, ()), whole, stage, reads, drives)
                    continue
                for heard in sorted(wanted[position]):
                    partial: PartialRule | None = project(rule, stage.roles)
                    assert partial is not None
                    if heard:
                        partial = beside_all_of(partial, heard)
                        assert partial is not None, "a layout leaves out what its reader needs"
                    part = Part(partial, planned.since_us, heard)
                    name = ("stage", rule.name, position, heard)
                    key = self._key(part, stage, reads)
                    if key is not None and self._shareable.setdefault(key, name) != name:
                        self._same[name] = self._shareable[key]
                    else:
                        self._place(name, part, stage, reads, drives)

    def _reads(self, rule: Rule, stage: Stage, stages: RuleLayout) -> dict[str, _Reads]:
        """What a stage reads at each of its nodes."""
        types = _types(rule)
        everywhere = [
            (flow, role == stage.split)
            for role in sorted(stage.events)
            for flow in self._flows_of(types[role], self._filter_for(rule, role, stage))
            if role not in stage.pulled or flow[0] != "events"
        ]
        for position in stage.stages:
            heard = heard_types(rule, stage, position, stages[position].roles)
            below = self._same.get(("stage", rule.name, position, heard), ("stage", rule.name, position, heard))
            everywhere.append((below, stage.split in stages[position].roles))
        filters = {self._filters[rule.name, role] for role in stage.pulled}
        reads: dict[str, _Reads] = {}
        for node in stage.nodes:
            pushed, waits = list(everywhere), []
            for needed in sorted(filters, key=repr):
                flow = self._comes_anyway(needed, node)
                if flow is not None:
                    pushed.append((flow, False))
                elif self._ground.sources[needed.type] == (node,):  # no other node must be asked
                    pushed.append((_events(needed), True))
                else:
                    waits.append(needed)
            reads[node] = _Reads(tuple(dict.fromkeys(pushed)), tuple(waits), stage.master if waits else None)
        return reads

    def _place(
        self, name: FlowName, stream: Whole | Part, stage: Stage, reads: Mapping[str, _Reads], drives: bool
    ) -> None:
        flow = self._flows[name] = _Flow(stream)
        for node in stage.nodes:
            number = len(self._tasks)
            flow.origins[node] = MadeBy(number)
            here = [*reads[node].pushed, *((self._asked(needed, number), False) for needed in reads[node].asked)]
            self._tasks.append(_Task(node, number, stream, here, reads[node].master, drives))
            for read, only_here in here:
                if not only_here:
                    self._flows[read].readers.add(node)

    def _comes_anyway(self, needed: Filter, node: str) -> FlowName | None:
        """The flow that brings events to a node, for another reader, without being asked; None: there is none."""
        if (node, needed.type) in self._unfiltered:
            return _events(Filter(needed.type))
        return _events(needed) if (node, needed) in self._pushed else None

    def _asked(self, needed: Filter, task: int) -> FlowName:
        """The flow of events that a task asks for, which is for it alone."""
        name = ("pulled", needed.type, task, tuple(map(repr, needed.where)))
        flow = self._flows[name] = _Flow(needed)
        flow.origins = {origin: BornHere(needed) for origin in self._ground.sources[needed.type]}
        flow.pulled = True
        return name

    def _key(self, part: Part, stage: Stage, reads: Mapping[str, _Reads]) -> object:
        """What two stages share, also of different rules, exactly when one can do the work of both; None: nothing."""
        pattern = anonymous(part.partial)
        if pattern is None:
            return None
        rule, types = part.partial.rule, _types(part.partial.rule)
        inputs = [
            (frozenset(read.pushed), frozenset(read.asked), None if read.master is None else types[read.master])
            for read in (reads[node] for node in stage.nodes)
        ]
        return pattern, part.since_us, part.heard, stage.nodes, tuple(inputs), horizon_us(rule)

    def _filter_for(self, rule: Rule, role: str, stage: Stage) -> Filter:
        """What a stage reads of the events of a role."""
        needed = self._filters[rule.name, role]
        whole = role != stage.split and all((node, needed.type) in self._unfiltered for node in stage.nodes)
        return Filter(needed.type) if whole else needed

    def _flows_of(self, name: str, needed: Filter | None = None) -> Iterator[FlowName]:
        """The flows that bring events, primitive or composite, of a type: all of them, or what is needed."""
        events = _events(needed or Filter(name))
        if events in self._flows:
            yield events
        for planned in self._rules:
            if planned.rule.emits == name:
                yield "whole", planned.rule.name, 0, ()

    def _deliver(self) -> None:
        for node, name in dict.fromkeys(self._ground.sinks):
            for flow in self._flows_of(name):
                self._flows[flow].readers.add(node)
                self._deliveries.append((node, flow))

    # -------------------------------------------------------------------------------------------------------- flowing

    def graphs(self, routes: Routes, tree: str, epoch: int, plan: int) -> dict[str, Graph]:
        inlets: dict[str, list[GraphInlet]] = {node: [] for node in self._ground.nodes}
        outlets: dict[str, list[GraphOutlet]] = {node: [] for node in self._ground.nodes}
        used = 0
        for flow in self._flows.values():
            for origin, tap in flow.origins.items():
                readers = frozenset(flow.readers - {origin})
                if not readers:
                    continue
                for node, further in _directed(origin, routes(origin, flow.stream, readers)):
                    used += 1
                    number = flow.numbers[origin, further] = stream_number(plan, used)
                    source = tap if node == origin else TakenFrom(flow.numbers[origin, node])
                    outlets[node].append(GraphOutlet(number, further, flow.stream, source, flow.pulled))
                    inlets[further].append(GraphInlet(number, node, flow.stream, flow.pulled))
        tasks: dict[str, list[GraphTask]] = {node: [] for node in self._ground.nodes}
        for task in self._tasks:
            taps = [tap for flow, only_here in task.reads for tap in self._taps(task.node, flow, only_here)]
            overlaps = self._overlap(task)
            tasks[task.node].append(
                GraphTask(task.number, task.stream, tuple(taps), overlaps, task.master, task.drives)
            )
        deliveries: dict[str, list[GraphDelivery]] = {node: [] for node in self._ground.nodes}
        for node, name in self._deliveries:
            stream = self._flows[name].stream
            assert not isinstance(stream, Part)
            deliveries[node] += [GraphDelivery(stream, tap) for tap in self._taps(node, name, False)]
        return {
            node: Graph(
                tree,
                epoch,
                tuple(inlets[node]),
                tuple(tasks[node]),
                tuple(outlets[node]),
                tuple(deliveries[node]),
            )
            for node in self._ground.nodes
        }

    # -------------------------------------------------------------------------------------------------------- comparing

    @property
    def ground(self) -> Ground:
        return self._ground

    @property
    def stages(self) -> Mapping[str, RuleLayout]:
        """By rule: the stages as they are run."""
        return self._stages

    def flows_of(self, rule: str, position: int) -> list[FlowName]:
        """What a stage gives: one flow, or several that leave out different types; or what another rule's stage gives
        in its place."""
        if position == len(self._stages[rule]) - 1:
            return [("whole", rule, 0, ())]
        names = [name for name in (*self._flows, *self._same) if name[:3] == ("stage", rule, position)]
        return sorted(self._same.get(name, name) for name in names)

    def reads_of(self, flow: FlowName) -> list[tuple[FlowName, bool]]:
        """What is read to make a flow; (true) each node reads only what arises there."""
        task = next(iter(self._flows[flow].origins.values()))
        assert isinstance(task, MadeBy)
        return self._tasks[task.task].reads

    def asker(self, flow: FlowName) -> tuple[str, tuple[str, ...]]:
        """Who pulls a flow: the node, the rule and the roles of the task."""
        task = self._tasks[flow[2]]
        if isinstance(task.stream, Whole):
            return task.node, (task.stream.rule.name,)
        return task.node, (task.stream.partial.rule.name, *task.stream.partial.roles)

    def origins_of(self, flow: FlowName) -> list[str]:
        return list(self._flows[flow].origins)

    def tap(self, node: str, name: FlowName, origin: str) -> Tap:
        """Where a node that reads a flow takes what arises at one of its origins; after ``graphs``."""
        flow = self._flows[name]
        return flow.origins[origin] if origin == node else TakenFrom(flow.numbers[origin, node])

    def links(self, routes: Routes) -> dict[FlowName, dict[str, int]]:
        """For every flow, by origin: how many links its events cross."""
        crossed: dict[FlowName, dict[str, int]] = {}
        for name, flow in self._flows.items():
            for origin in flow.origins:
                readers = frozenset(flow.readers - {origin})
                links = len(list(_directed(origin, routes(origin, flow.stream, readers)))) if readers else 0
                crossed.setdefault(name, {})[origin] = links
        return crossed

    def _overlap(self, task: _Task) -> bool:
        """Whether the same event may come in several ways: what is put together at several nodes shares events."""
        seen: set[str] = set()
        for name, _ in task.reads:
            flow = self._flows[name]
            match flow.stream:
                case Part() as part:
                    types = part.partial.types - set(part.heard)
                    if len(flow.origins) > 1 or seen & types:
                        return True
                    seen |= types
                case Filter(type=event_type):
                    if event_type in seen:
                        return True
                    seen.add(event_type)
                case Whole():
                    pass  # composites are no events of a source
        return False

    def _taps(self, node: str, name: FlowName, only_here: bool) -> Iterator[Tap]:
        flow = self._flows[name]
        for origin, tap in flow.origins.items():
            if origin == node:
                yield tap
            elif not only_here:
                yield TakenFrom(flow.numbers[origin, node])


Draft: TypeAlias = _Draft


def _events(stream: Filter) -> FlowName:
    return "events", stream.type, 0, tuple(map(repr, stream.where))


def _types(rule: Rule) -> dict[str, str]:
    return {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}


def _filter(rule: Rule, role: str, name: str) -> Filter:
    """What of the events of its type a role needs."""
    try:
        return filter_of(project(rule, (role,)))
    except RuleError:  # it cannot be divided: the node that evaluates it needs everything
        return Filter(name)


def _directed(origin: str, links: Iterable[Link]) -> Iterator[Link]:
    """The links of a tree, each away from the origin, those nearer to it first."""
    around: dict[str, list[str]] = {}
    for one, other in links:
        around.setdefault(one, []).append(other)
        around.setdefault(other, []).append(one)
    before = breadth_first(origin, lambda node: sorted(set(around.get(node, ()))))
    return ((parent, node) for node, parent in before.items() if node != origin)
