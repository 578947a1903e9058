"""The fallbacks of a plan when rates differ from those it was made for (section 6.6 of the paper).

A task that is split over several nodes gives way to one node; any other task that completes no query is left out, and
its readers read its inputs. Both are decided with the plan, so that no search is needed when it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headwater.coordinator.inev.plan.plans import PlacedTask, Placement, Plan, TaskFallBack, TaskInput
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task, Tasks

CANDIDATES: Final = 8
"""Of the nodes to which the inputs of a task come most cheaply so many are judged by what it sends on, too."""


def with_fall_backs(plan: Plan) -> Plan:
    """The plan with a fallback for every task that can have one."""
    space = Space(plan.problem)
    solution = solution_of(space, plan)
    cost = space.cost(solution)
    fall_backs: list[TaskFallBack] = []
    for task in plan.tasks:
        key = (space.number(task.projection), _place(space, task.placement))
        if key not in solution.tasks or task.pulls:  # a task that asks cannot tell what would come unasked
            continue
        if len(task.nodes) > 1:
            node = best_node(space, solution, key)
            extra = space.cost(gathered(space, solution, {key: node})) - cost
            fall_backs.append(TaskFallBack(task.projection, task.placement, node, extra))
        elif key not in solution.finals:
            extra = space.cost(without(space, solution, key)) - cost
            fall_backs.append(TaskFallBack(task.projection, task.placement, None, extra))
    return replace(plan, fall_backs=tuple(fall_backs))


def solution_of(space: Space, plan: Plan) -> Solution:
    """A plan in the numbers of a space of its problem."""

    def stream(task: PlacedTask, read: TaskInput) -> Stream:
        ask = next((pull.ask for pull in task.pulls if pull.read == read), None)
        if ask is not None:
            return space.pulled(ask)
        sent = 0 if read.sent is None else sum(1 << space.type_number[type] for type in read.sent)
        return Stream(space.number(read.projection), _place(space, read.placement), sent)

    def key(projection: int, placement: Placement) -> Task:
        return projection, _place(space, placement)

    tasks: Tasks = {
        key(space.number(task.projection), task.placement): tuple(stream(task, read) for read in task.inputs)
        for task in plan.tasks
        if not task.projection.primitive
    }
    finals = (plan.finals[query.name] for query in plan.problem.queries)
    return Solution(tasks, tuple(key(space.number(final.projection), final.placement) for final in finals))


def _place(space: Space, placement: Placement) -> int:
    if placement.node is not None:
        return placement.node
    assert placement.split_by is not None
    return space.nodes + space.type_number[placement.split_by]


def best_node(space: Space, solution: Solution, task: Task) -> int:
    """The node at which a task costs least: to bring everything it reads there, and what it finds to who reads that."""
    prices = [0.0] * space.nodes
    for read in solution.tasks[task]:
        for (origin, _), rate in zip(space.at[read.place], space.sent_by(read), strict=True):
            for node, hops in enumerate(space.topology.hops(origin)):
                prices[node] += rate * hops
    near = sorted(range(space.nodes), key=lambda node: (prices[node], node))[:CANDIDATES]
    outputs = [
        (stream, targets)
        for stream, targets in space.targets(solution).items()
        if (stream.projection, stream.place) == task
    ]

    def price(node: int) -> float:
        return prices[node] + sum(space.price(stream._replace(place=node), targets) for stream, targets in outputs)

    return min(near, key=lambda node: (price(node), node))


def without(space: Space, solution: Solution, task: Task) -> Solution:
    """Who reads a task reads its inputs instead."""
    tasks = dict(solution.tasks)
    instead = tasks.pop(task)
    for reader, inputs in tasks.items():
        streams = [
            stream for read in inputs for stream in (instead if (read.projection, read.place) == task else (read,))
        ]
        tasks[reader] = tuple(dict.fromkeys(streams))
    return Solution(space.needed(tasks, solution.finals), solution.finals)


def gathered(space: Space, solution: Solution, homes: Mapping[Task, int]) -> Solution:
    """Tasks move to one node each, and who reads them reads from there."""

    def moved(task: Task) -> Task:
        return task[0], homes.get(task, task[1])

    tasks: Tasks = {}
    for task, inputs in solution.tasks.items():
        reads = tuple(read._replace(place=moved((read.projection, read.place))[1]) for read in inputs)
        tasks.setdefault(moved(task), tuple(dict.fromkeys(reads)))
    finals = tuple(map(moved, solution.finals))
    return Solution(space.needed(tasks, finals), finals)
