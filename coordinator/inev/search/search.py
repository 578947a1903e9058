"""The planner: searches plans for whole workloads by their true cost.

Every query is planned by the dynamic programme beside what the others carry; then queries are taken out and planned
again, one after the other and in groups, as long as the whole becomes cheaper. To leave plans that no single query can
improve, the search pretends that types are carried further than they are, and moves work between nodes. The
result is kept only if its true cost is lower and it obeys the latency bound.

Where events may be pulled, all of this is done without at first, then from there on with pulling as one more choice for
every input: so the plan never costs more than the one found first, which pushes everything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from headwater.coordinator.inev.model.latency import LatencyBound, latency, partial_matches
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.model.topology import LARGE_NODES
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.search.baselines import at_most_centralised, central_costs, central_solution
from headwater.coordinator.inev.search.push_pull import push_pull_solution
from headwater.coordinator.inev.search.space import Solution, Stream
from headwater.coordinator.inev.search.workload import Workload

BETTER: Final = 1 - 1e-9
"""A plan must be cheaper by more than rounding to be taken."""

WORTH_POLISHING: Final = 2.0
"""A pretended plan costlier than this times the best one seldom becomes cheaper by planning query after query."""

ASTRAY: Final = 1.03
"""How much costlier than the best plan one may be to be walked on from."""

HOME_AFTER: Final = 25
"""Failures after which the walk goes back to the best plan."""

PATIENCE: Final = 150
"""Random attempts without success after which a workload's plan is taken to be as good as it gets."""

JUDGING_US: Final = 8.0
TIMING_US: Final = 150.0
"""What it takes, for every task of a solution, to find its cost, and to find its latency."""

WORKLOAD_SECONDS: Final = 20.0
"""The search of a workload ends after this time of a usual machine where no budget is given."""

LARGE_SECONDS: Final = 8.0
"""The same in a large network, where a single attempt takes seconds."""

QUERY_SECONDS: Final = ((20 << 7, 0.3), (100 << 8, 3.5))
"""The same for a single query, by the number of nodes times sets of types: most of its plan is found at once."""

PUSHED_FIRST: Final = 0.3
"""The part of the time in which plans are looked for that pull nothing, if that takes so long."""

PULLED_LONGER: Final = 1.25
"""Where no budget is given, how much longer is looked if events may be pulled."""

UNBOUND_FIRST: Final = 0.6
"""The part of the time in which plans are looked for as if there were no latency bound."""

BOUND_LONGER: Final = 1.5
"""Without a budget, how much longer the search goes on if there is a bound, so that plans that obey it cost no more."""

TOO_SLOW: Final = 2.0
"""How much costlier a plan counts that takes twice as long as it may."""

LATENCY_PRICES: Final = (1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 0.3, 1.0, 10.0)
"""Prices of a step, relative to centralised cost per link, with which plans of lower latency are looked for."""


@dataclass
class Clock:
    """What is left to look for better plans: how often it may be looked at, or what ``now`` counts otherwise. Planning
    stops between two attempts, so it may take a little longer than asked.

    No clock tells the time of day: then a busy machine would find other plans than an idle one.
    """

    budget: float | None
    now: Callable[[], float] = field(default_factory=lambda: count().__next__)

    def __post_init__(self) -> None:
        self.start = self.now()

    @property
    def over(self) -> bool:
        return self.budget is not None and self.now() - self.start > self.budget

    def part(self, share: float) -> Clock:
        """A clock for the first part of it."""
        return self if self.budget is None else Clock(self.budget * share, self.now)


def inev_plan(
    problem: Problem,
    budget_s: float | None = None,
    bound: LatencyBound | None = None,
    seed: int = 0,
    pull: bool = False,
) -> Plan:
    """The cheapest plan that the search finds; never costlier than centralised, nor with ``pull`` than push-pull.

    With a bound: the cheapest of those that obey it, and the fastest where none does.
    The same seed and budget find the same plan: the budget is what a usual machine does in so many seconds.
    """
    patient = budget_s is not None or len(problem.queries) > 1
    if budget_s is None:
        budget_s = usual_budget(problem)
        if budget_s >= LARGE_SECONDS:  # a plan for a single query is as good after the usual time
            budget_s *= (PULLED_LONGER if pull else 1.0) * (BOUND_LONGER if bound else 1.0)
    return Search(problem, budget_s, bound, seed, patient, pull).plan()


def usual_budget(problem: Problem) -> float:
    """How long to plan if no budget is given."""
    if problem.network.topology.nodes > LARGE_NODES:
        return LARGE_SECONDS
    if len(problem.queries) == 1:
        work = problem.network.topology.nodes << len(problem.queries[0].types)
        for most, seconds in QUERY_SECONDS:
            if work <= most:
                return seconds
    return WORKLOAD_SECONDS


class Search:
    """The best solution so far, and the attempts to find a better one."""

    def __init__(
        self, problem: Problem, clock: Clock | float | None, bound: LatencyBound | None = None, seed: int = 0,
        patient: bool = True, pull: bool = False,
    ) -> None:  # fmt: skip
        """``clock``: instead of one, the seconds of work of a usual machine; None: until nothing better is found."""
        self.patient = patient
        self.pull = pull
        self.workload = Workload(problem)
        self.space = self.workload.space
        self.clock = clock if isinstance(clock, Clock) else Clock(clock, self.space.worked_s)
        self.bound = bound
        self.random = random.Random(seed)
        self.fastest: tuple[float, Solution] | None = None
        """Of all that was timed, for where nothing obeys the bound."""
        if bound is not None:
            for query in self.workload.queries:
                query.work = {
                    mask: bound.factor * partial_matches(self.space.projections[query.projection[mask]], problem)
                    for mask in query.sets
                }

    def value(self, solution: Solution, below: float = math.inf) -> float:
        """The true cost; more than that for what is slower than the bound, so that the search may pass through it but
        is drawn away. What costs more than ``below`` is not timed."""
        cost = self.space.cost(solution)
        self.space.work_us += JUDGING_US * (1 + len(solution.tasks))
        if self.bound is not None and cost < below:
            took = self._took(solution)
            if not self.bound.obeyed(took):
                return cost * (1 + TOO_SLOW * (took - self.bound.at_most) / max(1.0, self.bound.at_most))
        return cost

    def _took(self, solution: Solution) -> float:
        assert self.bound is not None
        self.space.work_us += TIMING_US * (1 + len(solution.tasks))
        took = latency(plan_from(self.space, solution, "inev"), self.bound.factor)
        if self.fastest is None or took < self.fastest[0]:
            self.fastest = took, solution
        return took

    def _obeys(self, solution: Solution) -> bool:
        return self.bound is None or self.bound.obeyed(self._took(solution))

    def plan(self) -> Plan:
        """What ``run`` finds, or centralised evaluation where that is cheaper and fast enough."""
        plan = plan_from(self.space, self.run(), "inev")
        cheaper = at_most_centralised(plan)
        return cheaper if self.bound is None or self.bound.obeyed(latency(cheaper, self.bound.factor)) else plan

    def run(self) -> Solution:
        self.best, centre = self._centre()
        self.cost = centre
        bound, clock = self.bound, self.clock
        if bound is not None:
            # Where the cheapest plan obeys the bound anyway, nothing is lost by it.
            hurried = clock.part(UNBOUND_FIRST)
            self.bound, self.clock = None, hurried
            first = self.best
            self._look()
            free, cost = self.best, self.cost
            self.bound, self.clock, self.best, self.cost = bound, clock, first, centre
            if not self._obeys(first):
                self.cost = math.inf
            if self.offer(free, cost):
                if hurried.over:  # there was more to find, and the rest of the time to find it in
                    self._look()
                return self.best
            helpful = 0.0
            for price in LATENCY_PRICES:
                before = self.cost
                self.workload.step_price = price * centre / max(1, len(self.space.topology.links))
                self._starts()
                if self.cost < before:
                    helpful = self.workload.step_price
                if clock.over:
                    break
            self.workload.step_price = helpful
        self._look()
        if self.cost == math.inf and self.fastest is not None:
            return self.fastest[1]
        return self.best

    def _look(self) -> None:
        """All attempts, until they find nothing better or the time is over; if events may be pulled, first without."""
        if self.pull:
            whole, self.clock = self.clock, self.clock.part(PUSHED_FIRST)
            self.workload.pull = False
            self._attempts()
            self.clock, self.workload.pull = whole, True
            pushed = self.best, self.cost
            baseline = push_pull_solution(self.space, self.workload.queries)
            self.offer(baseline, self.value(baseline, self.cost))
            self.offer(*self.descended(*pushed))
        self._attempts()

    def _attempts(self) -> None:
        self._starts()
        self._pretend(self.workload.carried_everywhere())
        self._polish_best()
        if self.patient:
            # A single query leaves little to find; it is looked for only where the caller gives time for it.
            self._pretend(self.workload.carried_to_sources())
            self._wander()

    def _centre(self) -> tuple[Solution, float]:
        """Everything on the best node that is fast enough, or else on the best of all; and what that costs."""
        costs = central_costs(self.space)
        nodes = sorted(range(self.space.nodes), key=lambda node: (costs[node], node))
        for node in nodes if self.bound is not None else ():
            solution = central_solution(self.space, node)
            if self._obeys(solution):
                return solution, self.space.cost(solution)
            if self.clock.over:
                break
        solution = central_solution(self.space, nodes[0])
        return solution, self.space.cost(solution)

    def _starts(self) -> None:
        count = len(self.workload.queries)
        rate = [sum(self.space.rates[type] for type in query.types) for query in self.workload.queries]
        orders = [
            list(range(count)),
            sorted(range(count), key=lambda at: -rate[at]),
            sorted(range(count), key=lambda at: rate[at]),
        ]
        for at, order in enumerate(orders):
            if order in orders[:at] or (at and self.clock.over):
                continue
            solution = self.workload.fresh(order)
            self.offer(*self.descended(solution, self.value(solution)))

    def offer(self, solution: Solution, cost: float) -> bool:
        """Keeps a solution if it is the best so far of those that obey the bound."""
        if cost < self.cost * BETTER and self._obeys(solution):
            self.best, self.cost = solution, cost
            return True
        return False

    # Improving ------------------------------------------------------------------------------------------------------

    def descended(self, solution: Solution, cost: float, first: Iterable[int] = ()) -> tuple[Solution, float]:
        """Plans one query after the other again until none makes the whole cheaper."""
        begin = list(dict.fromkeys(first))
        queue = [*begin, *(at for at in range(len(self.workload.queries)) if at not in begin)]
        unchanged = 0
        while unchanged < len(queue) > 1 and not self.clock.over:
            at = queue.pop(0)
            queue.append(at)
            candidate = self.workload.replanned(solution, [at])
            new_cost = self.value(candidate, cost)
            if new_cost < cost * BETTER:
                solution, cost, unchanged = candidate, new_cost, 0
            else:
                unchanged += 1
        return solution, cost

    def polished(self, solution: Solution, cost: float) -> tuple[Solution, float]:
        """Lets tasks share what others need anyway, and moves work, as long as either helps."""
        better = True
        while better and not self.clock.over:
            better = False
            work = self.workload
            for steps in (work.pulled, work.selected, work.moved, work.shared_within, work.found_everywhere):
                for candidate in steps(solution):
                    new_cost = self.value(candidate, cost)
                    if new_cost < cost * BETTER:
                        solution, cost, better = candidate, new_cost, True
                        break
                    if self.clock.over:
                        break
        return solution, cost

    def _polish_best(self) -> None:
        self.offer(*self.polished(self.best, self.cost))

    def _pretend(self, pretences: Iterator[tuple[dict[Stream, int], list[int]]]) -> None:
        for extra, readers in pretences:
            if self.clock.over:
                return
            self.attempt(extra, readers)

    def attempt(self, extra: dict[Stream, int], which: list[int]) -> bool:
        """Plans queries under a pretence, and the whole again without it; whether that gave the best plan so far."""
        return bool(which) and self.offer(*self.tried(self.best, extra, which))

    def tried(self, base: Solution, extra: dict[Stream, int], which: list[int]) -> tuple[Solution, float]:
        """The result of planning queries of a solution under a pretence, and the whole again without it."""
        candidate = self.workload.replanned(base, which, extra)
        cost = self.value(candidate, self.cost * WORTH_POLISHING)
        if cost < self.cost * WORTH_POLISHING:
            candidate, cost = self.descended(candidate, cost, which)
        if cost < self.cost * BETTER:
            candidate, cost = self.polished(candidate, cost)
        return candidate, cost

    def _wander(self) -> None:
        """Random pretences, for random groups of queries, also from plans that are a little costlier than the best."""
        failures, choose = 0, self.random
        here, here_cost = self.best, self.cost
        types = range(len(self.space.types))
        while failures < PATIENCE and not self.clock.over:
            extra: dict[Stream, int] = {}
            for type in choose.sample(types, min(len(types), choose.choice((1, 1, 2, 3)))):
                if choose.random() < 0.2:
                    mask = (1 << self.space.nodes) - 1
                elif choose.random() < 0.3:
                    mask = 1 << choose.randrange(self.space.nodes)
                else:
                    mask = self.space.masks[self.space.nodes + choose.choice(types)]
                extra[self.space.raw(type)] = mask
            named = {stream.projection for stream in extra}
            which = [at for at, query in enumerate(self.workload.queries) if named & set(query.types)]
            dice = choose.random()
            if dice < 0.2:
                which = list(range(len(self.workload.queries)))
            elif dice < 0.6:
                which = choose.sample(which, min(len(which), choose.choice((1, 2, 3))))
            choose.shuffle(which)
            candidate, cost = self.tried(here, extra, which)
            if self.offer(candidate, cost):
                here, here_cost, failures = candidate, cost, 0
                continue
            failures += 1
            if failures % HOME_AFTER == 0:
                here, here_cost = self.best, self.cost
            elif cost < here_cost or (cost < self.cost * ASTRAY and choose.random() < 0.3):
                here, here_cost = candidate, cost
