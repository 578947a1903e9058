"""Finds the cheapest way to evaluate one query beside what the network already carries.

``QueryCosts`` prices every set of the query's types at every place. This module follows the cheapest way back, from the
task that completes the query to everything that this task needs.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.coordinator.inev.search.query_costs import QueryCosts, Surroundings
from headwater.coordinator.inev.search.query_sets import QuerySets
from headwater.coordinator.inev.search.space import Stream, Task, Tasks


class QuerySearch(QuerySets):
    """A query that can be planned again and again, beside whatever is there."""

    def plan(self, around: Surroundings, sinks: int) -> tuple[float, Tasks, Task]:
        """The cheapest plan as this search prices it: its price, its tasks, and the one that completes the query."""
        return _CheapestPlan(self, around).solve(sinks)


class _CheapestPlan(QueryCosts):
    """Writes down the tasks that the costs come from."""

    def __init__(self, search: QuerySets, around: Surroundings) -> None:
        super().__init__(search, around)
        self.tasks: Tasks = {}

    def solve(self, sinks: int) -> tuple[float, Tasks, Task]:
        search = self.search
        mask = search.whole
        projection = search.projection[mask]
        if mask & (mask - 1) == 0:
            return self._finish_one_type(projection, sinks)
        choices: list[tuple[float, int]] = []
        for node, cost in enumerate(self.one[mask]):
            choices.append((cost + self._delivery(projection, node, sinks), node))
        for at, cost in self.many[mask].items():
            place = search.places[search.column[at]]
            choices.append((cost + self._delivery(projection, place, sinks), place))
        cost, place = min(choices)
        self._task(mask, place)
        return cost, self.tasks, (projection, place)

    def _finish_one_type(self, type: int, sinks: int) -> tuple[float, Tasks, Task]:
        """A query of one type is complete where its events are born; repetitions need all of them on one node."""
        if self.search.splitting:
            place = self.nodes + type
            return self._delivery(type, place, sinks), {}, (type, place)
        row = self.full[1]
        cost, node = min((row[node] + self._delivery(type, node, sinks), node) for node in range(self.nodes))
        return cost, {(type, node): (self.space.raw(type),)}, (type, node)

    def _delivery(self, projection: int, place: int, sinks: int) -> float:
        if not sinks:
            return 0.0
        stream = self.space.delivery(self.search.number, (projection, place))
        carried = self.around.carried.get(stream, 0)
        return self.space.price(stream, carried | sinks) - (self.space.price(stream, carried) if carried else 0.0)

    def _task(self, mask: int, place: int) -> None:
        """Writes down the task that finds a set at a place, and all it needs."""
        task = (self.search.projection[mask], place)
        if task in self.tasks:
            return
        if task in self.around.tasks:
            self._adopt(task)
            return
        pairs = [*self.search.splits(mask), *self._overlapping(mask)]
        inputs: list[Stream] = []
        if not pairs:
            inputs += self.asking.one_by_one(mask, task)
        elif place < self.nodes:
            left, right = min(pairs, key=lambda pair: self.full[pair[0]][place] + self.full[pair[1]][place])
            before = self.asking.before(mask, place, self.full[left][place] + self.full[right][place])
            inputs += self._supply(left if before is None else before, place)
            inputs += (
                self._supply(right, place) if before is None else self.asking.supplied(mask ^ before, task, inputs)
            )
        else:
            at = next(at for at in self.search.splitting if self.search.places[self.search.column[at]] == place)
            local, other, also_local = self._best_split(pairs, at)
            inputs += self._supply_local(local, at, place)
            inputs += (
                self._supply_local(other, at, place) if also_local else self._supply(other, self.search.column[at])
            )
        self.tasks[task] = tuple(dict.fromkeys(inputs))

    def _adopt(self, task: Task) -> None:
        """Takes over a task that exists, with all that it reads."""
        waiting = [task]
        while waiting:
            one = waiting.pop()
            if one in self.tasks:
                continue
            self.tasks[one] = self.around.tasks[one]
            waiting += [
                (stream.projection, stream.place)
                for stream in self.around.tasks[one]
                if (stream.projection, stream.place) in self.around.tasks
            ]

    def _best_split(self, pairs: list[tuple[int, int]], at: int) -> tuple[int, int, bool]:
        column = self.search.column[at]
        options: list[tuple[float, int, int, bool]] = []
        for left, right in pairs:
            for local, other in ((left, right), (right, left)):
                if local >> at & 1 and at in self.many[local]:
                    here = self.many[local][at]
                    options.append((here + self.full[other][column], local, other, False))
                    if other >> at & 1 and at in self.many[other]:
                        options.append((here + self.many[other][at], local, other, True))
        _, local, other, also_local = min(options)
        return local, other, also_local

    def _supply_local(self, mask: int, at: int, place: int) -> list[Stream]:
        if mask & (mask - 1):
            self._task(mask, place)
        return [Stream(self.search.projection[mask], place)]

    def _supply(self, mask: int, column: int) -> list[Stream]:
        """The streams that bring all matches of a set to a place; writes down the tasks that produce them."""
        search, space = self.search, self.space
        projection = search.projection[mask]
        if mask & (mask - 1) == 0:
            return [space.raw(projection)]
        step = self.around.step_price
        rate = space.flow(projection, 0) + step
        options: list[tuple[float, int, Callable[[], list[Stream]]]] = []

        def whole(place: int) -> list[Stream]:
            self._task(mask, place)
            return [Stream(projection, place)]

        def carried(stream: Stream) -> list[Stream]:
            if (stream.projection, stream.place) in self.around.tasks:
                self._adopt((stream.projection, stream.place))
            return [stream, *(space.raw(search.projection[single]) for single in self._left_out(mask, stream))]

        def chosen(stream: Stream) -> list[Stream]:
            self._task(mask, stream.place)
            return [stream, *(space.raw(search.projection[single]) for single in self._left_out(mask, stream))]

        cost, node = min((cost + rate * search.hop[node][column], node) for node, cost in enumerate(self.one[mask]))
        options.append((cost, 0, lambda: whole(node)))
        for at, cost in self.many[mask].items():
            place = search.places[search.column[at]]
            links = search.base[search.column[at]][column]
            split_rate = space.flow(projection, place) + step
            options.append((cost + split_rate * links, 1, lambda place=place: whole(place)))  # type: ignore[misc]
            stream = search.selectors.get((mask, at))
            rates = space.selected_rates(stream) if stream is not None else None
            if stream is not None and rates is not None:
                rest = self._rest(mask, stream)[column]
                options.append((cost + rates[0] * links + rest, 3, lambda stream=stream: chosen(stream)))  # type: ignore[misc]
        for cost, links_to, stream, sent_rate in self._selectors_of_one(mask, rate):
            rest = self._rest(mask, stream)[column]
            option_cost = cost + sent_rate * links_to[column] + rest
            options.append((option_cost, 4, lambda stream=stream: chosen(stream)))  # type: ignore[misc]
        for stream, extension in self.offers.get(mask, ()):
            rest = self._rest(mask, stream)[column]
            options.append((extension[column] + rest, 2, lambda stream=stream: carried(stream)))  # type: ignore[misc]
        return min(options, key=lambda option: option[:2])[2]()
