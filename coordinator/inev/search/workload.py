"""Search steps for a whole workload: plans queries again beside the others, and leaves local optima.

Each step leads from one solution to another and does not judge it: the cost of a solution is the space's true cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from headwater.coordinator.inev.model.patterns import negated
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.search.pulling import pulled_inputs, pushed_inputs
from headwater.coordinator.inev.search.query_costs import Surroundings
from headwater.coordinator.inev.search.query_search import QuerySearch
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task, Tasks

RARE_TYPES: Final = 4
"""Of so many of the rarest types each two are pretended to be everywhere; frequent ones are better left."""

NEAR_NODES: Final = 12
"""Work is moved to this many of the nearest nodes; further away the inputs cost more than a move ever saved."""


class Workload:
    """The queries of a problem, ready to be planned again and again."""

    def __init__(self, problem: Problem) -> None:
        self.space = Space(problem)
        self.queries = [QuerySearch(self.space, at) for at in range(len(problem.queries))]
        self.step_price = 0.0
        self.pull = False
        """Whether events may be asked for instead of being sent."""

    def surroundings(self, solution: Solution, without: Iterable[int]) -> Surroundings:
        """What is left of a solution without some queries."""
        gone = set(without)
        finals = [final for at, final in enumerate(solution.finals) if at not in gone]
        masks = [mask for at, mask in enumerate(self.space.sink_masks) if at not in gone]
        tasks = self.space.needed(solution.tasks, finals)
        left = [at for at in range(len(solution.finals)) if at not in gone]
        carried = self.space.carried(tasks, finals, masks, left)
        for projection, place in tasks:
            carried.setdefault(Stream(projection, place), 0)
        return Surroundings(tasks, carried, self.step_price, self.pull)

    def with_query(self, around: Surroundings, at: int) -> tuple[Tasks, Task]:
        """The tasks around with those of one query added."""
        self.space.work_us += self.queries[at].work_us
        _, tasks, final = self.queries[at].plan(around, self.space.sink_masks[at])
        return {**tasks, **around.tasks}, final

    def tidy(self, tasks: Tasks, finals: Sequence[Task]) -> Solution:
        """A solution without what no query needs."""
        return Solution(self.space.needed(tasks, finals), tuple(finals))

    def replanned(self, solution: Solution, which: Sequence[int], extra: dict[Stream, int] | None = None) -> Solution:
        """Takes queries out and plans them again in this order; as if ``extra`` streams were carried that far."""
        finals = list(solution.finals)
        tasks = solution.tasks
        left = list(which)
        for at in which:
            around = self.surroundings(Solution(tasks, tuple(finals)), left)
            for stream, mask in (extra or {}).items():
                around.carried[stream] = around.carried.get(stream, 0) | mask
            tasks, finals[at] = self.with_query(around, at)
            left.remove(at)
        return self.tidy(tasks, finals)

    def fresh(self, order: Sequence[int]) -> Solution:
        """Plans all queries one after the other, beginning with nothing."""
        nothing = Solution({}, tuple((0, 0) for _ in self.queries))
        return self.replanned(nothing, order)

    def readers(self, type: int) -> list[int]:
        """The queries that name a type."""
        return [at for at, query in enumerate(self.queries) if type in query.types]

    def carried_everywhere(self) -> Iterator[tuple[dict[Stream, int], list[int]]]:
        """Pretences: a type, or two of the rarest, reach all nodes already, and every reader may use that."""
        everywhere = (1 << self.space.nodes) - 1
        for type in self._cheap_first():
            readers = self.readers(type)
            rest = [at for at in range(len(self.queries)) if at not in readers]
            yield {self.space.raw(type): everywhere}, readers
            if rest:
                yield {self.space.raw(type): everywhere}, readers + rest
        for one, other in combinations(self._cheap_first()[:RARE_TYPES], 2):
            both = [at for at in self.readers(one) if at in self.readers(other)]
            yield {self.space.raw(one): everywhere, self.space.raw(other): everywhere}, both

    def carried_to_sources(self) -> Iterator[tuple[dict[Stream, int], list[int]]]:
        """Pretences: a type reaches the sources of another that it is asked for with."""
        for type in self._cheap_first():
            readers = self.readers(type)
            for other in sorted({other for at in readers for other in self.queries[at].types} - {type}):
                both = [at for at in readers if other in self.queries[at].types]
                yield {self.space.raw(type): self.space.masks[self.space.nodes + other]}, both

    def _cheap_first(self) -> list[int]:
        return sorted(range(len(self.space.types)), key=lambda type: self.space.rates[type])

    def shared_within(self, solution: Solution) -> Iterator[Solution]:
        """Each query planned again with one of its tasks missing and all else of it still there.

        So a task may use what another task of the same query needs anyway.
        """
        everything = self.surroundings(solution, ())
        for at in range(len(self.queries)):
            rest = self.surroundings(solution, (at,))
            for task in [task for task in everything.tasks if task not in rest.tasks]:
                kept = self.space.supported({other: read for other, read in everything.tasks.items() if other != task})
                carried = {
                    stream: mask
                    for stream, mask in everything.carried.items()
                    if stream.projection < len(self.space.types) or (stream.projection, stream.place) in kept
                }
                tasks, final = self.with_query(Surroundings(kept, carried, self.step_price, self.pull), at)
                finals = [*solution.finals[:at], final, *solution.finals[at + 1 :]]
                yield self.tidy({**solution.tasks, **tasks}, finals)

    def found_everywhere(self, solution: Solution) -> Iterator[Solution]:
        """Each query planned again as if what one of its tasks finds were carried everywhere.

        So several tasks may filter the same matches by different types, and meet.
        """
        everywhere = (1 << self.space.nodes) - 1
        for at in range(len(self.queries)):
            rest = self.surroundings(solution, (at,))
            for task in [task for task in solution.tasks if task not in rest.tasks and task != solution.finals[at]]:
                below = self.space.needed(solution.tasks, (task,))
                carried = dict(rest.carried)
                for stream, mask in self.space.carried(below, (), ()).items():
                    carried[stream] = carried.get(stream, 0) | mask
                carried[Stream(*task)] = everywhere
                around = Surroundings({**below, **rest.tasks}, carried, self.step_price, self.pull)
                tasks, final = self.with_query(around, at)
                yield self.tidy({**solution.tasks, **tasks}, [*solution.finals[:at], final, *solution.finals[at + 1 :]])

    def selected(self, solution: Solution) -> Iterator[Solution]:
        """Streams sent with another output selector; the types it leaves out come as they are born."""
        types = len(self.space.types)
        ends = {Stream(*final) for final in solution.finals}
        for stream in self.space.targets(solution):
            projection = self.space.projections[stream.projection]
            if stream.projection < types or stream.sent < 0 or stream in ends or negated(projection.pattern):
                continue
            bits = sum(1 << self.space.type_number[type] for type in projection.types)
            readers = [task for task, inputs in solution.tasks.items() if self._travels(stream, task, inputs)]
            if any(read.asked for task in readers for read in solution.tasks[task]):
                continue  # who asks for something asks as often as this stream tells it to
            nodes = self.space.nodes
            # Who keeps its own events of a type never has those of the others: it needs them from the stream.
            needed = sum(1 << type for type in {task[1] - nodes for task in readers if task[1] >= nodes}) & bits
            sent = bits if stream.sent else (bits - 1) & bits
            while sent:
                chosen = Stream(stream.projection, stream.place, 0 if sent == bits else sent)
                rates = self.space.selected_rates(chosen) if chosen.sent else (0.0, 0.0)
                better = rates is not None and sum(rates) < self.space.flow(*stream[:2])
                if chosen != stream and better and not needed & ~sent:
                    tasks = {
                        task: self._selecting(task, inputs, stream, chosen) if task in readers else inputs
                        for task, inputs in solution.tasks.items()
                    }
                    yield self.tidy(tasks, solution.finals)
                sent = (sent - 1) & bits

    def _travels(self, stream: Stream, task: Task, inputs: tuple[Stream, ...]) -> bool:
        """Whether a task reads a stream, and not as its own part of it."""
        return stream in inputs and not self.space.local(stream, task[1])

    def _selecting(self, task: Task, inputs: tuple[Stream, ...], old: Stream, new: Stream) -> tuple[Stream, ...]:
        """The inputs of a task with a stream in another form, and only those types beside it that it then needs."""
        kept = [read for read in inputs if read != old]
        needed = {raw for read in (*kept, new) for raw in self._left_out(read)}
        covered: set[str] = set()
        for read in (*kept, new):
            if read not in self._left_out(old):
                covered |= self.space.projections[read.projection].types
        missing = self.space.projections[task[0]].types - covered
        needed |= {self.space.raw(self.space.type_number[type]) for type in missing}
        own = [read for read in kept if read not in self._left_out(old) or self.space.local(read, task[1])]
        return tuple(dict.fromkeys((*own, new, *sorted(needed))))

    def _left_out(self, stream: Stream) -> tuple[Stream, ...]:
        """The types that a stream with an output selector does not send."""
        if not stream.sent:
            return ()
        types = (self.space.type_number[type] for type in self.space.projections[stream.projection].types)
        return tuple(self.space.raw(type) for type in types if not stream.sent >> type & 1)

    def pulled(self, solution: Solution) -> Iterator[Solution]:
        """Events asked for instead of being sent, and the other way round."""
        if self.pull:
            yield from pushed_inputs(self.space, solution)
            yield from pulled_inputs(self.space, solution)

    def moved(self, solution: Solution) -> Iterator[Solution]:
        """All work of a node on a node nearby; and single tasks on another node that works already."""
        nodes = self.space.nodes
        used = sorted({place for _, place in solution.tasks if place < nodes})
        for old in used:
            far = self.space.topology.hops(old)
            for new in sorted(range(nodes), key=lambda node: (far[node], node))[1 : 1 + NEAR_NODES]:
                yield self._relocated(solution, lambda task, old=old, new=new: new if task[1] == old else task[1])  # type: ignore[misc]
        for task in list(solution.tasks):
            for new in used if task[1] < nodes else ():
                if new != task[1]:
                    yield self._relocated(solution, lambda one, task=task, new=new: new if one == task else one[1])  # type: ignore[misc]

    def _relocated(self, solution: Solution, place: Callable[[Task], int]) -> Solution:
        def moved(stream: Stream) -> Stream:
            task = (stream.projection, stream.place)
            return Stream(stream.projection, place(task), stream.sent) if task in solution.tasks else stream

        tasks: Tasks = {}
        for task, inputs in solution.tasks.items():
            tasks.setdefault((task[0], place(task)), tuple(dict.fromkeys(map(moved, inputs))))
        finals = [(task[0], place(task)) if task in solution.tasks else task for task in solution.finals]
        return self.tidy(tasks, finals)
