"""The planner: plans for whole workloads, by true cost.

Every query is planned by the dynamic programme beside what the others carry; then queries are taken out and planned
again, one after the other and in groups, as long as the whole becomes cheaper. To leave plans that no single query can
improve, the search pretends: that a type were carried to some place already, that one were dear, that work moved from
one node to another. What comes of it is kept only if its true cost is lower.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from coordinator.inev.model import Problem
from coordinator.inev.query_search import QuerySearch, Surroundings
from coordinator.inev.space import Solution, Space, Stream, Task, Tasks

BETTER = 1 - 1e-9
"""A plan must be cheaper by more than rounding to be taken."""


@dataclass
class Clock:
    """Time left. Planning stops between two attempts, so it may take a little longer than asked."""

    budget_s: float | None
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.start = self.now()

    @property
    def over(self) -> bool:
        return self.budget_s is not None and self.now() - self.start > self.budget_s


class WorkloadSearch:
    """A solution and the ways to make it cheaper."""

    def __init__(self, problem: Problem, clock: Clock, seed: int = 0) -> None:
        self.space = Space(problem)
        self.queries = [QuerySearch(self.space, at) for at in range(len(problem.queries))]
        self.clock = clock
        self.random = random.Random(seed)

    # Steps ----------------------------------------------------------------------------------------------------------

    def surroundings(self, solution: Solution, without: Iterable[int]) -> Surroundings:
        """What is left of a solution without some queries."""
        gone = set(without)
        finals = [final for at, final in enumerate(solution.finals) if at not in gone]
        tasks = self.space.needed(solution.tasks, (final for final in finals if final[0] >= len(self.space.types)))
        masks = [mask for at, mask in enumerate(self.space.sink_masks) if at not in gone]
        carried: dict[Stream, int] = {}
        nodes = self.space.nodes
        for (_, place), inputs in tasks.items():
            for stream in inputs:
                if stream.place == place and (place < nodes or not stream.sent):
                    continue
                carried[stream] = carried.get(stream, 0) | self.space.masks[place]
        for (projection, place), mask in zip(finals, masks, strict=True):
            if mask:
                stream = Stream(projection, place)
                carried[stream] = carried.get(stream, 0) | mask
        for projection, place in tasks:
            carried.setdefault(Stream(projection, place), 0)
        return Surroundings(tasks, carried)

    def with_query(self, around: Surroundings, at: int) -> tuple[Tasks, Task]:
        """The tasks around with those of one query added."""
        _, tasks, final = self.queries[at].plan(around, self.space.sink_masks[at])
        return {**tasks, **around.tasks}, final

    def replan(self, solution: Solution, which: list[int]) -> Solution:
        """Takes queries out and plans them again in this order."""
        finals: list[Task | None] = list(solution.finals)
        for at in which:
            finals[at] = None
        left = list(which)
        tasks = solution.tasks
        for at in which:
            around = self.surroundings(Solution(tasks, tuple(final or (0, 0) for final in finals)), left)
            tasks, finals[at] = self.with_query(around, at)
            left.remove(at)
        return self.tidy(tasks, [final for final in finals if final is not None])

    def tidy(self, tasks: Tasks, finals: Iterable[Task]) -> Solution:
        finals = tuple(finals)
        return Solution(
            self.space.needed(tasks, (final for final in finals if final[0] >= len(self.space.types))), finals
        )

    def start(self, order: list[int]) -> Solution:
        """Plans the queries one after the other."""
        finals: dict[int, Task] = {}
        tasks: Tasks = {}
        for at in order:
            done = [other for other in order if other in finals]
            solution = Solution(tasks, tuple(finals.get(other, (0, 0)) for other in range(len(self.queries))))
            missing = [other for other in range(len(self.queries)) if other not in done]
            tasks, finals[at] = self.with_query(self.surroundings(solution, missing), at)
        return self.tidy(tasks, [finals[at] for at in range(len(self.queries))])

    def descend(self, solution: Solution, cost: float, first: Iterable[int] = ()) -> tuple[Solution, float]:
        """Plans one query after the other again until none becomes cheaper."""
        unchanged, queue = 0, [*first, *(at for at in range(len(self.queries)) if at not in set(first))]
        while unchanged < len(queue) and not self.clock.over:
            at = queue.pop(0)
            queue.append(at)
            candidate = self.replan(solution, [at])
            found = self.space.cost(candidate)
            if found < cost * BETTER:
                solution, cost, unchanged = candidate, found, 0
            else:
                unchanged += 1
        return solution, cost

    # Pretences ------------------------------------------------------------------------------------------------------

    def pretended(self, solution: Solution, extra: dict[Stream, int], which: list[int]) -> Solution:
        """Plans queries as if streams were carried further than they are."""
        finals = list(solution.finals)
        tasks = solution.tasks
        left = list(which)
        for at in which:
            around = self.surroundings(Solution(tasks, tuple(finals)), left)
            for stream, mask in extra.items():
                around.carried[stream] = around.carried.get(stream, 0) | mask
            tasks, finals[at] = self.with_query(around, at)
            left.remove(at)
        return self.tidy(tasks, finals)

    def readers(self, type: int) -> list[int]:
        return [at for at, query in enumerate(self.queries) if type in query.types]

    def carried_types(self) -> Iterator[tuple[dict[Stream, int], list[int]]]:
        """Each type carried to the sources of another, or to all sources of what it is asked for with."""
        for type in range(len(self.space.types)):
            readers = self.readers(type)
            others = sorted({other for at in readers for other in self.queries[at].types} - {type})
            for other in others:
                mask = self.space.masks[self.space.nodes + other]
                yield {self.space.raw(type): mask}, [at for at in readers if other in self.queries[at].types]
            if len(readers) > 1:
                everywhere = (1 << self.space.nodes) - 1
                yield {self.space.raw(type): everywhere}, readers

    def own_streams(self, solution: Solution) -> Iterator[tuple[Surroundings, int]]:
        """Each query without one of its tasks, all else of it still there: finds what two of its tasks could share."""
        for at in range(len(self.queries)):
            rest = self.surroundings(solution, [at])
            everything = self.surroundings(solution, [])
            own = [task for task in everything.tasks if task not in rest.tasks]
            for task in own:
                tasks = {other: inputs for other, inputs in everything.tasks.items() if other != task}
                kept = self.space.supported(tasks)
                carried = {
                    stream: mask
                    for stream, mask in everything.carried.items()
                    if stream.projection < len(self.space.types) or (stream.projection, stream.place) in kept
                }
                yield Surroundings(kept, carried), at

    def share_within(self, solution: Solution, cost: float) -> tuple[Solution, float]:
        better = True
        while better and not self.clock.over:
            better = False
            for around, at in self.own_streams(solution):
                tasks, final = self.with_query(around, at)
                finals = list(solution.finals)
                finals[at] = final
                merged = {**solution.tasks, **tasks}
                merged.update(around.tasks)
                candidate = self.tidy(merged, finals)
                found = self.space.cost(candidate)
                if found < cost * BETTER:
                    solution, cost, better = candidate, found, True
                    break
                if self.clock.over:
                    break
        return solution, cost

    def moved(self, solution: Solution) -> Iterator[Solution]:
        """All work of one node on another, and single tasks elsewhere."""
        nodes = self.space.nodes
        used = sorted({place for _, place in solution.tasks if place < nodes})
        for old in used:
            near = sorted(range(nodes), key=lambda node: self.space.topology.hops(old)[node])[1:13]
            for new in near:
                yield self._relocated(solution, lambda task, old=old, new=new: new if task[1] == old else task[1])
        for task in list(solution.tasks):
            if task[1] < nodes:
                for new in used:
                    if new != task[1]:
                        yield self._relocated(
                            solution, lambda other, task=task, new=new: new if other == task else other[1]
                        )

    def _relocated(self, solution: Solution, place: Callable[[Task], int]) -> Solution:
        types = len(self.space.types)

        def stream_at(stream: Stream) -> Stream:
            if stream.projection < types:
                return stream
            return Stream(stream.projection, place((stream.projection, stream.place)), stream.sent)

        tasks: Tasks = {}
        for task, inputs in solution.tasks.items():
            tasks.setdefault((task[0], place(task)), tuple(dict.fromkeys(map(stream_at, inputs))))
        finals = [(task[0], place(task)) if task[0] >= types else task for task in solution.finals]
        return self.tidy(tasks, finals)

    def move(self, solution: Solution, cost: float) -> tuple[Solution, float]:
        better = True
        while better and not self.clock.over:
            better = False
            for candidate in self.moved(solution):
                found = self.space.cost(candidate)
                if found < cost * BETTER:
                    solution, cost, better = candidate, found, True
                    break
        return solution, cost
