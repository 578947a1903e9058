"""Finds the cheapest plan of tiny inputs by trying every placement of every projection with every output selector.

It is the measure of the other planners, and its cost is the only one that is called a bound. It knows the same plans
as they do: placements on one node or on all sources of a type, inputs that are types, projections or selected events
of projections, and smallest trees; and inputs that are asked for, if pulling is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.coordinator.inev.model.problem import Problem, ProblemError
from headwater.coordinator.inev.model.topology import bit_positions
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.search.baselines import at_most_centralised
from headwater.coordinator.inev.search.pulling import asks
from headwater.coordinator.inev.search.query_search import QuerySearch
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.coordinator.inev.search.space import Solution, Stream, Task, Tasks

TYPES_MAX: Final = 4
QUERIES_MAX: Final = 2
NODES_MAX: Final = 8
"""Past these sizes the number of plans is beyond what can be tried."""

JOINING_US: Final = 5.0
"""What it takes to put two ways together."""


def exact_plan(problem: Problem, budget_s: float | None = None, pull: bool = False) -> Plan:
    """A plan than which none is cheaper; ProblemError if the input is too large, or the budget does not suffice.

    Without ``pull`` the bound is one for plans that push everything.
    """
    widest = max(len(query.types) for query in problem.queries)
    if widest > TYPES_MAX or len(problem.queries) > QUERIES_MAX or problem.network.topology.nodes > NODES_MAX:
        raise ProblemError(
            f"the exact planner tries every plan and takes at most {QUERIES_MAX} queries of {TYPES_MAX} types on "
            f"{NODES_MAX} nodes; this is {len(problem.queries)} of up to {widest} types on "
            f"{problem.network.topology.nodes} nodes: use --planner inev"
        )
    search = Search(problem, budget_s, patient=False, pull=pull)
    enumeration = _Enumeration(search, Clock(budget_s, search.space.worked_s))
    return at_most_centralised(plan_from(search.space, enumeration.best_of_all(), "exact"))


@dataclass(frozen=True, slots=True)
class PartialSolution:
    """A part of a solution, one way to have something somewhere: how far each stream is carried for it, by which tasks,
    at what cost."""

    carried: Mapping[Stream, int]
    tasks: Tasks
    cost: float

    def dominates(self, other: PartialSolution) -> bool:
        """Whether it carries nothing that the other does not carry at least as far: then it is never the worse one."""
        return all(mask & ~other.carried.get(stream, 0) == 0 for stream, mask in self.carried.items())


class _Enumeration:
    """All ways to evaluate each set of types at each place, small sets first.

    A way is dropped if it alone costs as much as the best plan known, or if another carries less. Both are sound: more
    tasks and readers never make a plan cheaper, for the smallest tree over more nodes has no fewer links.
    """

    def __init__(self, search: Search, clock: Clock) -> None:
        self.space = search.space
        self.queries = search.workload.queries
        self.pull = search.pull
        self.clock = clock
        self.best = search.run()
        self.cost = search.space.cost(self.best)
        self._evaluations: dict[Task, list[PartialSolution]] = {}
        self._brought: dict[tuple[int, int], list[PartialSolution]] = {}

    def best_of_all(self) -> Solution:
        self._combine(0, PartialSolution({}, {}, 0.0), ())
        return self.best

    def _combine(self, at: int, way: PartialSolution, finals: tuple[Task, ...]) -> None:
        """Joins the ways of one query after the other to whole plans."""
        if at == len(self.queries):
            if way.cost < self.cost * (1 - 1e-12):
                self.best, self.cost = Solution(self.space.needed(way.tasks, finals), finals), way.cost
            return
        query = self.queries[at]
        projection = query.projection[query.whole]
        sinks = self.space.sink_masks[at]
        ends = []
        alone = query.whole & (query.whole - 1) == 0 and not query.splitting
        for place in range(self.space.nodes) if alone else self._places(query, query.whole):
            raw = self.space.raw(projection)
            gathered = [self._alone({raw: 1 << place}, {(projection, place): (raw,)})] if alone else None
            for end in gathered or self._evaluated(query, query.whole, place):
                delivered = self._joined(
                    end, self._alone({self.space.delivery(at, (projection, place)): sinks} if sinks else {})
                )
                if delivered is not None:
                    ends.append((delivered.cost, place, delivered))
        for cost, place, end in sorted(ends, key=lambda end: end[:2]):
            if cost >= self.cost:
                break
            joint = self._joined(way, end)
            if joint is not None:
                self._combine(at + 1, joint, (*finals, (projection, place)))

    def _places(self, query: QuerySearch, mask: int) -> list[int]:
        """Where a set of types can be evaluated: events of one type only where they are born."""
        if mask & (mask - 1) == 0:
            return [self.space.nodes + query.projection[mask]]
        return [*range(self.space.nodes), *(query.places[query.column[at]] for at in query.splitting if mask >> at & 1)]

    def _alone(self, carried: Mapping[Stream, int], tasks: Tasks | None = None) -> PartialSolution:
        return PartialSolution(
            carried, tasks or {}, sum(self.space.price(stream, targets) for stream, targets in carried.items())
        )

    def _joined(self, one: PartialSolution, other: PartialSolution) -> PartialSolution | None:
        """Both at once; None if that costs as much as the best plan known."""
        self.space.work_us += JOINING_US
        carried = dict(one.carried)
        for stream, mask in other.carried.items():
            carried[stream] = carried.get(stream, 0) | mask
        cost = sum(self.space.price(stream, targets) for stream, targets in carried.items())
        return PartialSolution(carried, {**other.tasks, **one.tasks}, cost) if cost < self.cost else None

    def _evaluated(self, query: QuerySearch, whole: int, place: int) -> list[PartialSolution]:
        """All ways to find the matches of a set at a place."""
        task = (query.projection[whole], place)
        if whole & (whole - 1) == 0:
            return [PartialSolution({}, {}, 0.0)]
        if task not in self._evaluations:
            begin: tuple[Stream, ...] = ()
            covered = 0
            if place >= self.space.nodes:
                type = place - self.space.nodes
                begin, covered = (self.space.raw(type),), 1 << query.types.index(type)
            ways: list[PartialSolution] = []
            self._cover(query, task, whole, covered, begin, PartialSolution({}, {}, 0.0), ways)
            if self.pull and place < self.space.nodes:
                ways += self._asking(query, task, whole)
            self._evaluations[task] = undominated(ways)
        return self._evaluations[task]

    def _cover(
        self, query: QuerySearch, task: Task, whole: int, covered: int, inputs: tuple[Stream, ...],
        way: PartialSolution, ways: list[PartialSolution],
    ) -> None:  # fmt: skip
        """Adds inputs until all types are there."""
        self._check_time()
        if covered == whole:
            ways.append(PartialSolution(way.carried, {**way.tasks, task: inputs}, way.cost))
            return
        missing = whole & ~covered
        lowest = missing & -missing
        for mask in query.projection:
            if mask & lowest and mask & whole == mask != whole:
                for streams, brought in self._bring(query, mask, task[1]):
                    joint = self._joined(way, brought)
                    if joint is not None:
                        more = (*inputs, *(stream for stream in streams if stream not in inputs))
                        self._cover(query, task, whole, covered | mask, more, joint, ways)

    def _check_time(self) -> None:
        if self.clock.over:
            raise ProblemError(
                "the exact planner has not tried every plan within its budget; give it a larger --budget or use "
                "--planner inev"
            )

    def _asking(self, query: QuerySearch, task: Task, whole: int) -> Iterator[PartialSolution]:
        """All ways in which what is at a node asks for one more type; or, where nothing is put together before all is
        there, one type for any others."""
        if not query.splits(whole):
            for bit, _ in query.masters(whole):
                yield from self._asking_all(query, task, whole, bit)
            return
        for at, type in enumerate(query.types):
            before = whole ^ 1 << at
            if not whole >> at & 1 or before not in query.projection:
                continue
            self._check_time()
            for streams, brought in self._bring(query, before, task[1]):
                for ask in asks(self.space, query.query, task[0], streams, type):
                    stream = self.space.pulled(ask)
                    joint = self._joined(brought, self._alone({stream: 1 << task[1]}))
                    if joint is not None:
                        yield PartialSolution(joint.carried, {**joint.tasks, task: (*streams, stream)}, joint.cost)

    def _asking_all(self, query: QuerySearch, task: Task, whole: int, master: int) -> Iterator[PartialSolution]:
        """All ways in which events of one type, by its bit, ask for any of the others."""
        types = {1 << at: type for at, type in enumerate(query.types) if whole >> at & 1}
        asked_bits = whole & ~master
        while asked_bits:
            inputs = [self.space.raw(type) for bit, type in types.items() if not bit & asked_bits]
            for bit, type in types.items():
                for ask in asks(self.space, query.query, task[0], inputs, type) if bit & asked_bits else ():
                    if ask.master == self.space.types[types[master]]:
                        inputs.append(self.space.pulled(ask))
            way = self._alone(dict.fromkeys(inputs, 1 << task[1]), {task: tuple(inputs)})
            if len(inputs) == len(types) and way.cost < self.cost:
                yield way
            asked_bits = (asked_bits - 1) & whole & ~master

    def _bring(self, query: QuerySearch, mask: int, to: int) -> list[tuple[list[Stream], PartialSolution]]:
        """All ways to have all matches of a set at a place, with the streams that bring them."""
        targets = self.space.masks[to]
        ways = []
        for place in self._places(query, mask):
            for streams in self._forms(query, Stream(query.projection[mask], place)):
                if to >= self.space.nodes and self.space.raw(to - self.space.nodes) in streams[1:]:
                    continue  # who keeps its own events of a type never has those of the others
                carried = {stream: targets for stream in streams if stream.place != to or to >= self.space.nodes}
                delivery = self._alone(carried)
                for way in self._evaluated(query, mask, place) if delivery.cost < self.cost else ():
                    joint = self._joined(way, delivery)
                    if joint is not None:
                        ways.append((streams, joint))
        return ways

    def _forms(self, query: QuerySearch, whole: Stream) -> Iterator[list[Stream]]:
        """A stream as it is, and with every output selector, together with the types that each leaves out."""
        yield [whole]
        projection = self.space.projections[whole.projection]
        if len(projection.types) < 2 or projection.types & query.query.negated:
            return
        bits = sum(1 << self.space.type_number[type] for type in projection.types)
        sent = (bits - 1) & bits
        while sent:
            stream = Stream(whole.projection, whole.place, sent)
            if self.space.selected_rates(stream) is not None:
                yield [stream, *(self.space.raw(type) for type in bit_positions(bits & ~sent))]
            sent = (sent - 1) & bits


def undominated(ways: list[PartialSolution]) -> list[PartialSolution]:
    """The ways that are not made superfluous by another."""
    kept: list[PartialSolution] = []
    for way in sorted(ways, key=lambda way: (way.cost, len(way.carried))):
        if not any(other.dominates(way) for other in kept):
            kept.append(way)
    return kept
