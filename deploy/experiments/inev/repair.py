"""A plan after rates changed: its new cost, which stages became harmful, and what its nodes can repair themselves.

Section 6.6 of the paper: matches of a projection that come more often than what it is made of are not sent, its inputs
are; and a placement on many nodes that no longer pays gives way to one node, chosen when the plan was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.coordinator.inev.plan.fallback import gathered
from headwater.coordinator.inev.plan.plans import merged_locals
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task


@dataclass(frozen=True, slots=True)
class Change:
    """A plan under other rates than it was made for."""

    broken: Solution
    repaired: Solution
    projections: int
    """Projections whose matches travel and were worth sending when the plan was made."""
    harmful: int
    """Of these, the ones that are no longer worth sending."""
    placements: int
    """Placements on many nodes that paid when the plan was made."""
    invalid: int
    """Of these, the ones that no longer pay."""


def changed(before: Space, solution: Solution, now: Space) -> Change:
    """What becomes of a solution of one space if its rates turn into those of another with the same workload."""
    solution = merged_locals(
        before, solution
    )  # as it runs: what is read only where it is found has no place of its own
    broken = translated(before, solution, now)
    names = dict(zip(broken.tasks, solution.tasks, strict=True))
    sent = [task for task in broken.tasks if any(_travels(reader, read, task) for reader, read in _reads(broken))]
    worth = [task for task in sent if worth_sending(before, solution, names[task])]
    harmful = [task for task in worth if not worth_sending(now, broken, task)]
    split = [task for task in broken.tasks if task[1] >= now.nodes and len(broken.tasks[task]) > 1]
    paying = [task for task in split if pays(before, solution, names[task])]
    invalid = [task for task in paying if not pays(now, broken, task)]
    homes = {task: _fall_back(before, solution.tasks[names[task]]) for task in invalid}
    repaired = gathered(now, _forwarding(now, broken, harmful), homes)
    return Change(broken, repaired, len(worth), len(harmful), len(paying), len(invalid))


def translated(before: Space, solution: Solution, now: Space) -> Solution:
    """The same tasks in the numbers of another space."""

    def number(projection: int) -> int:
        return now.number(before.projections[projection])

    tasks = {
        (number(projection), place): tuple(Stream(number(read.projection), read.place, read.sent) for read in inputs)
        for (projection, place), inputs in solution.tasks.items()
    }
    return Solution(tasks, tuple((number(projection), place) for projection, place in solution.finals))


def worth_sending(space: Space, solution: Solution, task: Task) -> bool:
    """Whether matches come less often than what they are made of."""
    return space.rates[task[0]] <= sum(space.rates[read.projection] for read in solution.tasks[task])


def pays(space: Space, solution: Solution, task: Task) -> bool:
    """Equation 1 of the paper: carrying the other inputs to all sources of a type costs less than gathering it."""
    projection, place = task
    delta = space.topology.typical_distance
    links = space.topology.size(space.signature(space.masks[place]))
    carried = sum(space.rates[read.projection] for read in solution.tasks[task] if not space.local(read, place))
    further = 0.0 if task in solution.finals else space.rates[projection] * delta
    return space.rates[place - space.nodes] * delta >= links * carried + further


def _reads(solution: Solution) -> Iterator[tuple[Task, Stream]]:
    return ((reader, read) for reader, inputs in solution.tasks.items() for read in inputs)


def _travels(reader: Task, read: Stream, task: Task) -> bool:
    """Whether whole matches of a task are read from elsewhere; selected events are never more than there are."""
    return (read.projection, read.place) == task and not read.sent and read.place != reader[1]


def _fall_back(space: Space, inputs: tuple[Stream, ...]) -> int:
    return min(range(space.nodes), key=lambda node: sum(space.price(read, 1 << node) for read in inputs))


def _forwarding(space: Space, solution: Solution, harmful: list[Task]) -> Solution:
    """Let every reader of a harmful projection read the inputs of the projection instead."""
    tasks = dict(solution.tasks)
    for task in sorted(harmful, key=lambda task: len(space.projections[task[0]].types)):
        for reader, inputs in tasks.items():
            replaced: list[Stream] = []
            for read in inputs:
                replaced += tasks[task] if _travels(reader, read, task) else (read,)
            tasks[reader] = tuple(dict.fromkeys(replaced))
    return Solution(space.needed(tasks, solution.finals), solution.finals)
