"""Plans: what is evaluated where, what crosses which links, and what that costs.

A plan is also an INEv graph: its vertices are projections on nodes, each with the links along which its matches are
forwarded and the types it sends. Costs, latency and well-formedness are stated over vertices, so that they can be
computed for any plan, of any planner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from headwater.coordinator.inev.model.problem import Ask, Problem, Projection, primitive
from headwater.coordinator.inev.model.role_types import born_type
from headwater.coordinator.inev.model.topology import bit_positions
from headwater.coordinator.inev.search.space import Solution, Space, Stream

DRAWS: Final = 4000
"""Where rates are drawn at random, so many draws take about a second; they are divided among all that is sent."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One node, or all sources of a type, each of which evaluates with its own events of that type."""

    node: int | None = None
    split_by: str | None = None


@dataclass(frozen=True, slots=True)
class TaskInput:
    """What a task reads: a projection as found at its placement; ``sent`` are the types an output selector leaves."""

    projection: Projection
    placement: Placement
    sent: frozenset[str] | None = None

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset() if self.sent is None else self.projection.types - self.sent


@dataclass(frozen=True, slots=True)
class Pull:
    """An input that stays at its sources until a task asks for it."""

    read: TaskInput
    ask: Ask

    @property
    def asked_by(self) -> str:
        """Whose events, or whose matches, ask."""
        return self.ask.master or self.ask.by.text


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """A projection, where it is evaluated, and from what; ``pulls`` are the inputs that it asks for."""

    projection: Projection
    placement: Placement
    nodes: tuple[int, ...]
    inputs: tuple[TaskInput, ...]
    pulls: tuple[Pull, ...] = ()

    @property
    def pulled(self) -> frozenset[TaskInput]:
        return frozenset(pull.read for pull in self.pulls)


@dataclass(frozen=True, slots=True)
class TaskFallBack:
    """What takes the place of a task that turns out to cost more than it saves: a node alone, or (None) nothing, and
    its readers read its inputs. ``extra`` is what the plan then costs more, at the rates that it was made for."""

    projection: Projection
    placement: Placement
    node: int | None
    extra: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one node sends of one projection, over which links, at which rate; ``targets`` are the nodes that use it.

    ``kind``: "events" that are sent of themselves; "composites" of the query named, for its sinks, where these are
    something else; and for what is pulled "requests", of which ``source`` names what is asked for and the node that
    does, and "answers"; both with their ``ask``. "lookups" are questions to a node that reaches the remote ``table``,
    and their answers.
    """

    source: TaskInput
    node: int
    links: int
    rate: float
    targets: tuple[int, ...]
    kind: str = "events"
    query: str | None = None
    ask: Ask | None = None
    table: str | None = None

    @property
    def cost(self) -> float:
        return self.links.bit_count() * self.rate


@dataclass(frozen=True, slots=True)
class Vertex:
    """A vertex of an INEv graph. ``sent`` is None for whole matches, empty for what never leaves its node.

    ``parts`` are the vertices it reads, by their position in the graph; ``of`` counts the vertices of its projection
    among which the matches are divided, ``share`` is this one's part of them. ``asked`` are those of ``parts`` that it
    asks for. ``delivers`` names the query whose composites it sends to the sinks, where these are something else than
    matches.
    """

    projection: Projection
    node: int
    links: int
    sent: frozenset[str] | None
    parts: tuple[int, ...] = ()
    split_by: str | None = None
    share: float = 1.0
    of: int = 1
    asked: tuple[int, ...] = ()
    delivers: str | None = None


@dataclass(frozen=True)
class Plan:
    """The tasks, inputs before what reads them; the task that completes each query; and all that travels."""

    problem: Problem
    planner: str
    tasks: tuple[PlacedTask, ...]
    finals: Mapping[str, PlacedTask]
    transfers: tuple[Transfer, ...]
    fall_backs: tuple[TaskFallBack, ...] = ()
    unfiltered: bool = False
    """Whether events travel as they are born, once for all roles of their type, rather than filtered for each role."""

    @cached_property
    def cost(self) -> float:
        """Rate times links, summed over everything that travels."""
        return math.fsum(transfer.cost for transfer in self.transfers)

    def refined(self, draws: int = DRAWS) -> Plan:
        """The same plan with rates as precise as the cost model can tell them with so many draws."""
        sent_streams = {
            (transfer.source.projection, transfer.source.sent)
            for transfer in self.transfers
            if transfer.kind == "events"
        }
        questions = sum(len(projection.types if sent is None else sent) for projection, sent in sent_streams)
        problem = replace(self.problem, costs=self.problem.costs.refined(draws // max(1, questions)))
        if problem.costs is self.problem.costs:
            return self
        transfers = []
        for transfer in self.transfers:
            rate = transfer.rate
            if transfer.kind == "events":
                rate = sent_rate(problem, transfer.source, transfer.node)
            elif transfer.ask is not None:
                rate = asking_rate(problem, transfer.ask, transfer.kind, transfer.node)
            transfers.append(replace(transfer, rate=rate))
        return replace(self, problem=problem, transfers=tuple(transfers))

    @cached_property
    def vertices(self) -> tuple[Vertex, ...]:
        """The plan as an INEv graph: a vertex for every type at every source, and for every task at every node."""
        network = self.problem.network
        links: dict[tuple[TaskInput, int], int] = {}
        for transfer in self.transfers:
            if transfer.kind not in ("requests", "composites", "lookups"):
                key = (transfer.source, transfer.node)
                links[key] = links.get(key, 0) | transfer.links
        readers = dict.fromkeys(read for task in self.tasks for read in task.inputs)
        vertices: list[Vertex] = []
        position: dict[tuple[TaskInput, int], int] = {}
        vertex_of: dict[tuple[Projection, Placement, int], Vertex] = {}
        for type in self.problem.types:
            source = TaskInput(primitive(type), Placement(split_by=type))
            for node in network.sources(type):
                link_bits = links.get((as_born(source) if self.unfiltered else source, node), 0)
                position[source, node] = len(vertices)
                vertices.append(
                    Vertex(
                        source.projection, node, link_bits, None if link_bits else frozenset(), split_by=type,
                        share=network.share(type, node), of=len(network.rates[type]),
                    )
                )  # fmt: skip
        for task in self.tasks:
            whole = TaskInput(task.projection, task.placement)
            sent_as = [
                read for read in readers if read.projection == task.projection and read.placement == task.placement
            ]
            if not sent_as or (whole not in sent_as and any((whole, node) in links for node in task.nodes)):
                sent_as.append(whole)
            for node in task.nodes:
                parts = tuple(
                    position[read, source]
                    for read in task.inputs
                    for source in self.nodes_of(read.placement)
                    if source == node or not self._kept_local(read, task)
                )
                asked = tuple(
                    position[pull.read, source] for pull in task.pulls for source in self.nodes_of(pull.read.placement)
                )
                for read in sent_as:
                    # What is complete where it is born travels as the events of its type, if at all.
                    link_bits = 0 if (read, node) in position else links.get((read, node), 0)
                    position[read, node] = len(vertices)
                    split = task.placement.split_by
                    share = network.share(split, node) if split is not None else 1.0
                    sent = read.sent if link_bits or read.sent is not None else frozenset()
                    vertex = Vertex(task.projection, node, link_bits, sent, parts, split, share, len(task.nodes), asked)
                    vertex_of[task.projection, task.placement, node] = vertex
                    vertices.append(vertex)
        for transfer in self.transfers:
            if transfer.kind == "composites":
                # What completes a query may be read by others in part only: then no vertex sends all of its matches.
                final = vertex_of[transfer.source.projection, transfer.source.placement, transfer.node]
                vertices.append(replace(final, links=transfer.links, sent=None, delivers=transfer.query))
        return tuple(vertices)

    def _kept_local(self, read: TaskInput, task: PlacedTask) -> bool:
        """Whether every node of a task reads only its own part of an input."""
        return task.placement.split_by is not None and read.placement == task.placement and read.sent is None

    def nodes_of(self, placement: Placement) -> tuple[int, ...]:
        if placement.node is not None:
            return (placement.node,)
        assert placement.split_by is not None
        return self.problem.network.sources(placement.split_by)


def sent_rate(problem: Problem, source: TaskInput, node: int) -> float:
    """What a node sends of a projection."""
    split = source.placement.split_by
    part = problem.network.share(split, node) if split is not None else 1.0
    if source.projection.primitive:
        return problem.network.total(source.projection.key) * part
    return problem.costs.carried(source.projection, source.sent, split, part)


def asking_rate(problem: Problem, ask: Ask, kind: str, node: int) -> float:
    """How often a node asks each source, or all of them together; or what a source answers."""
    if kind == "requests":
        return problem.costs.asked(ask)
    return problem.costs.answered(ask) * problem.network.share(ask.type, node)


def as_born(read: TaskInput) -> TaskInput:
    """The events of a type of which only those are read that meet the conditions of their role: all of them."""
    type = born_type(read.projection.key)
    return TaskInput(primitive(type), Placement(split_by=type))


def transmission_cost(vertex: Vertex, problem: Problem) -> float:
    """What a vertex of an INEv graph costs: its links times the rate at which it sends, if it sends unasked.

    Whole matches: its part of the projection's rate. With an output selector: the events of the selected types that are
    in matches; of the type by which the projection is split only those born here. Over all vertices of a plan in which
    nothing is pulled, and all is filtered where it is born, this sums to what the plan costs.
    """
    links = vertex.links.bit_count()
    if not links:
        return 0.0
    if vertex.delivers is not None:
        query = next(query for query in problem.queries if query.name == vertex.delivers)
        return links * problem.costs.delivered(query) * vertex.share
    if vertex.projection.primitive:
        return links * problem.network.total(vertex.projection.key) * vertex.share
    return links * problem.costs.carried(vertex.projection, vertex.sent, vertex.split_by, vertex.share)


def plan_from(space: Space, solution: Solution, planner: str) -> Plan:
    """A solution spelled out: projections split by a type read that type's events themselves, and trees get links."""
    solution = merged_locals(space, solution)
    problem, network = space.problem, space.problem.network

    def placement(place: int) -> Placement:
        return Placement(node=place) if place < space.nodes else Placement(split_by=space.types[place - space.nodes])

    def read(stream: Stream) -> TaskInput:
        sent = frozenset(space.types[number] for number in bit_positions(stream.sent)) if stream.sent > 0 else None
        return TaskInput(space.projections[stream.projection], placement(stream.place), sent)

    tasks: dict[tuple[int, int], PlacedTask] = {}
    for task, inputs in solution.tasks.items():
        projection, place = task
        nodes = tuple(node for node, _ in space.at[place])
        pulls = tuple(Pull(read(stream), space.ask(stream)) for stream in inputs if stream.asked)
        tasks[task] = PlacedTask(
            space.projections[projection], placement(place), nodes, tuple(read(stream) for stream in inputs), pulls
        )
    finals = {}
    for query, final in zip(problem.queries, solution.finals, strict=True):
        if final not in tasks:
            raw = read(Stream(*final))
            tasks[final] = PlacedTask(raw.projection, raw.placement, network.sources(raw.projection.key), (raw,))
        finals[query.name] = tasks[final]
    transfers: list[Transfer] = []
    for stream, targets in sorted(space.targets(solution).items()):
        source = read(stream)
        if stream.asked:
            for node in bit_positions(targets):
                transfers += _asking(space, stream, source, node)
            continue
        delivered = problem.queries[-1 - stream.sent] if stream.sent < 0 else None
        composites = problem.costs.delivered(delivered) if delivered is not None else 0.0
        for node, part in space.at[stream.place]:
            links = space.topology.reaching(node, space.signature(targets))
            if links:
                reached = tuple(bit_positions(targets))
                transfers.append(
                    Transfer(source, node, links, sent_rate(problem, source, node), reached)
                    if delivered is None
                    else Transfer(source, node, links, composites * part, reached, "composites", delivered.name)
                )
        if delivered is not None:
            transfers += [
                Transfer(source, node, links, rate, lookups.at, "lookups", delivered.name, table=lookups.table)
                for lookups, node, links, rate in space.lookups(delivered, stream.place)
            ]
    return Plan(problem, planner, tuple(tasks.values()), finals, tuple(transfers))


def _asking(space: Space, stream: Stream, answered: TaskInput, node: int) -> Iterator[Transfer]:
    """What travels because a node asks for events of a type."""
    problem, topology, ask = space.problem, space.topology, space.ask(stream)
    sources = problem.network.sources(ask.type)
    request = TaskInput(answered.projection, Placement(node=node))
    request_rate = asking_rate(problem, ask, "requests", node)
    back = {source: topology.reaching(source, space.signature(1 << node)) for source in sources}
    ways: list[tuple[tuple[int, ...], int]] = [((source,), back[source]) for source in sources]
    if not problem.costs.asks_by_event:
        ways = [(sources, topology.reaching(node, space.signature(space.masks[stream.place])))]
    for targets, links in ways:
        if links:
            yield Transfer(request, node, links, request_rate, targets, "requests", ask=ask)
    for source, links in back.items():
        if links:
            rate = asking_rate(problem, ask, "answers", source)
            yield Transfer(answered, source, links, rate, (node,), "answers", ask=ask)


def merged_locals(space: Space, solution: Solution) -> Solution:
    """Tasks split by the same type and read only where they are become part of what reads them.

    So a task on many nodes reads, of what is split, nothing but the events of the type itself.
    """
    tasks = dict(solution.tasks)
    for task in sorted(tasks, key=lambda task: len(space.projections[task[0]].types)):
        inputs: list[Stream] = []
        for stream in tasks[task]:
            if space.local(stream, task[1]) and stream.projection >= len(space.types):
                inputs += tasks[stream.projection, stream.place]
            else:
                inputs.append(stream)
        tasks[task] = tuple(dict.fromkeys(inputs))
    return Solution(space.needed(tasks, solution.finals), solution.finals)
