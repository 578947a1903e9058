"""Checks that a plan is well formed, whichever planner made it, and says in sentences what is wrong.

A combination is well-formed if every projection is made of inputs that together have its types and nothing else, if
negated types come with all they lie between, and if no placement is split by a type of which every node must see all.
Forwarding is well-formed (definition 2) if what a vertex reads reaches its node, and if the types that an output
selector leaves out reach it from elsewhere. An input may be asked for if the task is on one node, if who asks is there
without asking, is part of every match and says where the others lie, and if the requests reach all sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.coordinator.inev.model.latency import hops_within
from headwater.coordinator.inev.model.problem import Problem, Query
from headwater.coordinator.inev.plan.plans import PlacedTask, Plan, TaskInput, Vertex


def faults(plan: Plan) -> list[str]:
    """All that is wrong with a plan; nothing if it finds exactly the matches of its queries."""
    # What reads something that no task evaluates has no graph in which forwarding could be judged.
    return list(combination_faults(plan)) or [
        *forwarding_faults(plan.vertices, plan.problem),
        *(fault for task in plan.tasks for fault in request_faults(plan, task)),
    ]


def combination_faults(plan: Plan) -> Iterator[str]:
    problem = plan.problem
    for query in problem.queries:
        final = plan.finals.get(query.name)
        if final is None or final not in plan.tasks:
            yield f"query {query.name} is completed nowhere"
            continue
        if final.projection.types != frozenset(query.types):
            yield f"query {query.name} is completed by {final.projection.text}, which has other types"
        yield from _task_faults(plan, final, query, set())


def _task_faults(plan: Plan, task: PlacedTask, query: Query, seen: set[PlacedTask]) -> Iterator[str]:
    if task in seen:
        return
    seen.add(task)
    name = task.projection.text
    wanted = query.projection(task.projection.types) if task.projection.types <= set(query.types) else None
    if wanted is None or not query.takes(task.projection, wanted):
        yield f"{name} misses matches that query {query.name} needs"
        return
    if not query.closed(task.projection.types):
        yield f"{name} has a negated type without all that it lies between"
    if not task.inputs:
        yield f"{name} is made of nothing"
    covered = frozenset().union(*(read.projection.types for read in task.inputs))
    if covered != task.projection.types:
        yield f"{name} is made of {', '.join(sorted(covered))}, which are not its types"
    split = task.placement.split_by
    if split is not None:
        yield from _split_faults(task, split, query)
    yield from _pull_faults(task, query, plan.problem)
    for read in task.inputs:
        if read.projection.types == task.projection.types and len(task.projection.types) > 1:
            yield f"{name} reads {read.projection.text}, which is no smaller"
        yield from _selector_faults(task, read, query)
        below = next((other for other in plan.tasks if _produces(other, read)), None)
        if read.projection.primitive:
            continue
        if below is None:
            yield f"{name} reads {read.projection.text} from a place where no task evaluates it"
        else:
            yield from _task_faults(plan, below, query, seen)


def _pull_faults(task: PlacedTask, query: Query, problem: Problem) -> Iterator[str]:
    name = task.projection.text
    if task.pulls and task.placement.node is None:
        yield f"{name} is split over nodes, each of which would have to ask for itself"
    if len({pull.ask.master for pull in task.pulls}) > 1 or (len(task.pulls) > 1 and not problem.costs.asks_by_event):
        yield f"{name} asks for its inputs in different ways; one task has one that asks"
    sent = frozenset[str]().union(
        *(read.sent or read.projection.types for read in task.inputs if read not in task.pulled)
    )
    for pull in task.pulls:
        ask, pulled = pull.ask, pull.read.projection.text
        if not pull.read.projection.primitive or pull.read not in task.inputs or ask.type != pulled:
            yield f"{name} asks for {pulled}, which is not an event type that it reads"
        if ask.type in sent or task.inputs.count(pull.read) > 1:
            yield f"{name} asks for {pulled}, which comes anyway"
        if not ask.by.types <= sent:
            yield f"{name} asks for {pulled} by {pull.asked_by}, of which not everything is there"
        if problem.costs.asks_by_event and (
            ask.master is None or ask.master not in ask.by.types or query.ask_scope(ask.master, pulled) is None
        ):
            yield f"{name} asks for {pulled} by {pull.asked_by}, which does not say where it must lie in every match"


def request_faults(plan: Plan, task: PlacedTask) -> Iterator[str]:
    """Whether every source of what a task asks for hears of it."""
    network = plan.problem.network
    for pull in task.pulls:
        for node in task.nodes:
            heard = {node}
            for transfer in plan.transfers:
                if transfer.kind == "requests" and transfer.ask == pull.ask and transfer.node == node:
                    heard |= network.topology.nodes_of(transfer.links)
            for source in network.sources(pull.ask.type):
                if source not in heard:
                    yield (
                        f"{network.names[source]} does not hear that {task.projection.text} at {network.names[node]} "
                        f"asks for its {pull.ask.type}"
                    )


def _produces(task: PlacedTask, read: TaskInput) -> bool:
    return task.projection == read.projection and task.placement == read.placement


def _split_faults(task: PlacedTask, split: str, query: Query) -> Iterator[str]:
    name = task.projection.text
    if split not in task.projection.types:
        yield f"{name} is split by {split}, which is not one of its types"
    if split in query.negated:
        yield f"{name} is split by {split}, which is negated: no node would see all that must not occur"
    elif split not in query.splitting:
        yield f"{name} is split by {split}, of which query {query.name} must see all in one place"
    if not any(read.placement == task.placement and read.sent is None for read in task.inputs):
        yield f"{name} is split by {split} but reads no input that is"


def _selector_faults(task: PlacedTask, read: TaskInput, query: Query) -> Iterator[str]:
    if read.sent is None:
        return
    if not read.sent or not read.sent < read.projection.types:
        yield f"{read.projection.text} sends {', '.join(sorted(read.sent)) or 'nothing'}, which is not a part of it"
    if read.projection.types & query.negated:
        yield f"{read.projection.text} decides a negation, so that bare events of it say too little"
    raw = {other.projection.key for other in task.inputs if other.projection.primitive}
    missing = read.left_out - raw
    if missing:
        yield f"{task.projection.text} gets no {', '.join(sorted(missing))}, which {read.projection.text} does not send"


def forwarding_faults(vertices: Sequence[Vertex], problem: Problem) -> Iterator[str]:
    """Definition 2, over the types of what is read that its output selector leaves out."""
    reached = [{vertex.node} | problem.network.topology.nodes_of(vertex.links) for vertex in vertices]
    names = problem.network.names
    born: dict[str, list[int]] = {}
    for number, vertex in enumerate(vertices):
        if vertex.projection.primitive and not vertex.parts:
            born.setdefault(vertex.projection.key, []).append(number)
    for number, vertex in enumerate(vertices):
        if vertex.links and len(hops_within(problem, vertex)) != len(reached[number]):
            yield f"the links of {vertex.projection.text} at {names[vertex.node]} do not start there or fall apart"
        for part in vertex.parts:
            below = vertices[part]
            where = f"{below.projection.text} of {names[below.node]}"
            if vertex.node not in reached[part]:
                yield f"{where} does not reach {names[vertex.node]}, where {vertex.projection.text} needs it"
            if not below.sent:
                continue
            for type in sorted(below.projection.types - below.sent):
                for source in born.get(type, ()):
                    if vertex.node not in reached[source]:
                        yield (
                            f"{type} of {names[vertices[source].node]} does not reach {names[vertex.node]}, where "
                            f"{vertex.projection.text} needs it because {where} does not send it"
                        )
        assert number not in vertex.parts
