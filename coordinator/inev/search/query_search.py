"""The cheapest way to evaluate one query beside what the network already carries.

A dynamic programme over the sets of the query's types and the places where their matches can be: for each set, what it
costs to find its matches on one node or split over the sources of a type, and to have all of them at any place. Sets
grow by joining two smaller ones; or by a type that the matches of the others ask for. Trees and distances are those of
the network; streams and tasks that exist already cost only what they must be extended by.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headwater.coordinator.inev.search.query_asks import Asking
from headwater.coordinator.inev.search.query_sets import QuerySets
from headwater.coordinator.inev.search.space import Stream, Task, Tasks

INFINITE = math.inf


@dataclass(slots=True)
class Surroundings:
    """What is there without the query: tasks, and how far each stream is carried.

    ``tasks`` holds what each task reads. ``step_price`` is added for every task and hop, to find faster plans.
    ``pull``: events may be asked for.
    """

    tasks: Tasks = field(default_factory=dict)
    carried: dict[Stream, int] = field(default_factory=dict)
    step_price: float = 0.0
    pull: bool = False


class QuerySearch(QuerySets):
    """A query that can be planned again and again, beside whatever is there."""

    def plan(self, around: Surroundings, sinks: int) -> tuple[float, Tasks, Task]:
        """The cheapest plan as this search prices it: its price, its tasks, and the one that completes the query."""
        return _Programme(self, around).solve(sinks)


class _Programme:
    """One run of the dynamic programme."""

    def __init__(self, search: QuerySearch, around: Surroundings) -> None:
        self.search = search
        self.space = search.space
        self.around = around
        self.nodes = search.space.nodes
        self.full: dict[int, list[float]] = {}
        """All matches of a set at a place."""
        self.one: dict[int, list[float]] = {}
        """Matches of a set found on one node."""
        self.many: dict[int, dict[int, float]] = {}
        """Matches of a set found at the sources of one of its types, each node with its own events of it."""
        self.asking = Asking(search, self.full, around.step_price, around.pull)
        self.least: dict[int, float] = {}
        """The cheapest node's part of ``full``."""
        self.offers: dict[int, list[tuple[Stream, list[float]]]] = {}
        for stream, carried in around.carried.items():
            mask = search.served(stream.projection) if stream.sent >= 0 else None
            if mask is not None and mask & (mask - 1) and search.may_read(stream, around.tasks):
                self.offers.setdefault(mask, []).append((stream, self._extension(stream, carried)))
        self.common = sum(1 << at for at, type in enumerate(search.types) if around.carried.get(search.space.raw(type)))
        """The types that are carried already, so that several inputs may well have them."""
        self._rests: dict[tuple[int, ...], list[float]] = {}
        self.there: dict[int, list[int]] = {}
        for projection, place in around.tasks:
            mask = search.mask_of.get(projection)
            if mask is not None and mask & (mask - 1):
                self.there.setdefault(mask, []).append(place)

    def _extension(self, stream: Stream, carried: int) -> list[float]:
        """What it costs to carry a stream on to each place of the query."""
        space = self.space
        if not stream.sent and (not space.sends_events or stream.projection < len(space.types)):
            rate = space.rates[stream.projection]
            return [rate * links for links in self.search._columns(space.row(stream.place, carried))]
        base = space.price(stream, carried)
        return [space.price(stream, carried | space.masks[place]) - base for place in self.search.places]

    # Forward --------------------------------------------------------------------------------------------------------

    def solve(self, sinks: int) -> tuple[float, Tasks, Task]:
        search, space = self.search, self.space
        for at, type in enumerate(search.types):
            stream = space.raw(type)
            row = self._extension(stream, self.around.carried.get(stream, 0))
            if self.around.step_price:
                far = search.furthest(type)
                row = [cost + self.around.step_price * hops for cost, hops in zip(row, far, strict=True)]
            self.full[1 << at] = row
            self.least[1 << at] = min(row)
            self.many[1 << at] = {at: 0.0}
        for mask in search.sets:
            self._find(mask)
            if mask != search.whole:
                self._carry(mask)
        return self._finish(sinks)

    def _find(self, mask: int) -> None:
        """The cheapest ways to find the matches of a set; a task that is there already costs nothing."""
        search = self.search
        pairs = [*search.splits(mask), *self._overlapping(mask)]
        one = self._found_on_one_node(mask, pairs)
        many: dict[int, float] = {}
        for at in search.splitting:
            if mask >> at & 1 and (cost := self._found_at_sources(mask, at, pairs)) < INFINITE:
                many[at] = cost
        for place in self.there.get(mask, ()):
            if place < self.nodes:
                one[place] = 0.0
            else:
                many |= {at: 0.0 for at in search.splitting if search.places[search.column[at]] == place}
        self.one[mask], self.many[mask] = one, many

    def _found_on_one_node(self, mask: int, pairs: list[tuple[int, int]]) -> list[float]:
        """For each node the cheapest way to find the matches of a set there."""
        nodes, full, least = self.nodes, self.full, self.least
        costs = [INFINITE] * nodes
        dearest = INFINITE
        for left, right in pairs:
            if least[left] + least[right] >= dearest:
                continue
            sums = list(map(float.__add__, full[left][:nodes], full[right][:nodes]))
            costs = sums if dearest == INFINITE else list(map(min, costs, sums))
            dearest = max(costs)
        if not pairs:
            costs = self.asking.gathered(mask)
        costs = self.asking.cheaper(mask, costs)
        step = self.around.step_price
        if step:
            work = self.search.work.get(mask, 0.0)
            costs = [cost + step * (1 + work) for cost in costs]
        return costs

    def _found_at_sources(self, mask: int, at: int, pairs: list[tuple[int, int]]) -> float:
        """The cheapest way to find the matches of a set at the sources of one of its types: one side of a pair is found
        there, and the other is brought to all of them, or found there, too."""
        search, many, full = self.search, self.many, self.full
        column, bit, least = search.column[at], 1 << at, INFINITE
        for left, right in pairs:
            # Comparisons instead of min(): this is the innermost loop of planning.
            if left & bit:
                cost = many[left].get(at, INFINITE) + full[right][column]
                if cost < least:
                    least = cost
            if right & bit:
                cost = many[right].get(at, INFINITE) + full[left][column]
                if cost < least:
                    least = cost
                if left & bit:
                    cost = many[right].get(at, INFINITE) + many[left].get(at, INFINITE)
                    if cost < least:
                        least = cost
        if least == INFINITE:
            return INFINITE
        work = search.work.get(mask, 0.0) / len(self.space.at[search.places[column]])
        return least + self.around.step_price * (1 + work)

    def _overlapping(self, mask: int) -> list[tuple[int, int]]:
        """Pairs with types in common: types that are carried already, or one of the two is found or carried already."""
        known = [part for part in {*self.offers, *self.there} if part & mask == part != mask]
        found = []
        for part in known:
            rest = mask ^ part
            extra = part
            while extra:
                other = rest | extra
                if other != mask and other in self.search.projection:
                    found.append((part, other))
                extra = (extra - 1) & part
            side = (rest - 1) & rest
            while side > rest ^ side:
                one, other = side | part, rest ^ side | part
                if one in self.search.projection and other in self.search.projection:
                    found.append((one, other))
                side = (side - 1) & rest
        return found + self.search.splits_sharing(mask, self.common) if self.common else found

    def _carry(self, mask: int) -> None:
        """What it costs to have all matches of a set at each place."""
        search, nodes = self.search, self.nodes
        space, step, number = self.space, self.around.step_price, search.projection[mask]
        rate = space.flow(number, 0) + step
        one = self.one[mask]
        row = spread(one, self.space.topology.neighbours, rate)
        cheapest = sorted(zip(one, range(nodes), strict=True))
        for column in range(nodes, len(search.places)):
            least = INFINITE
            for cost, node in cheapest:
                if cost >= least:
                    break
                least = min(least, cost + rate * search.hop[node][column])
            row.append(least)
        dearest = max(row)
        many = self.many[mask]
        for at, cost in many.items():
            if cost < dearest:
                links_to = search.base[search.column[at]]
                split_rate = space.flow(number, search.places[search.column[at]]) + step
                row = [
                    known if known < (new := cost + split_rate * links) else new
                    for known, links in zip(row, links_to, strict=True)
                ]
                dearest = max(row)
        for stream, extension in self.offers.get(mask, ()):
            sums = extension if not stream.sent else list(map(float.__add__, extension, self._rest(mask, stream)))
            row = list(map(min, row, sums))
        for at, cost in many.items():
            chosen = search.selectors.get((mask, at))
            rates = self.space.selected_rates(chosen) if chosen is not None and cost < dearest else None
            if chosen is not None and rates is not None and rates[0] < rate:
                row = self._with_selector(row, mask, chosen, cost, rates[0], search.base[search.column[at]])
        if min(one) < dearest:
            for cost, links_to, stream, sent_rate in self._selectors_of_one(mask, rate):
                row = self._with_selector(row, mask, stream, cost, sent_rate, links_to)
        self.full[mask] = row
        self.least[mask] = min(row[:nodes])

    def _with_selector(
        self, row: list[float], mask: int, stream: Stream, cost: float, rate: float, links_to: list[float]
    ) -> list[float]:
        """What a place costs at most with a stream of selected events, and all that it leaves out."""
        rest = self._rest(mask, stream)
        return [
            known if known < (new := cost + rate * links + other) else new
            for known, links, other in zip(row, links_to, rest, strict=True)
        ]

    def _selectors_of_one(self, mask: int, rate: float) -> Iterator[tuple[float, list[float], Stream, float]]:
        """Streams that send the events of one type, from the node where a set is found most cheaply."""
        one = self.one[mask]
        cost = min(one)
        if cost == INFINITE:
            return
        node = one.index(cost)
        for number in self.search.selecting.get(mask, ()):
            stream = Stream(self.search.projection[mask], node, 1 << number)
            rates = self.space.selected_rates(stream)
            if rates is not None and rates[0] < rate:
                yield cost, self.search.hop[node], stream, rates[0]

    def _rest(self, mask: int, stream: Stream) -> list[float]:
        """What it costs to have, at each place, the events that an output selector does not send. The sources of a type
        that is left out keep their own events of it, and never have those of the others."""
        left_out = self._left_out(mask, stream)
        rest = self._rests.get(left_out)
        if rest is None:
            rest = [0.0] * len(self.search.places)
            for single in left_out:
                rest = list(map(float.__add__, rest, self.full[single]))
            for at, column in self.search.column.items():
                if 1 << at in left_out:
                    rest[column] = INFINITE
            self._rests[left_out] = rest
        return rest

    def _left_out(self, mask: int, stream: Stream) -> tuple[int, ...]:
        """The types of a set that an output selector does not send, and that must come from elsewhere."""
        if not stream.sent:
            return ()
        known = self.search.left_out.get((mask, stream.sent))
        if known is None:
            types = self.search.types
            known = tuple(1 << at for at in range(len(types)) if mask >> at & 1 and not stream.sent >> types[at] & 1)
            self.search.left_out[mask, stream.sent] = known
        return known

    # Backward -------------------------------------------------------------------------------------------------------

    def _finish(self, sinks: int) -> tuple[float, Tasks, Task]:
        search = self.search
        self.tasks: Tasks = {}
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
            found = cost + sent_rate * links_to[column] + rest
            options.append((found, 4, lambda stream=stream: chosen(stream)))  # type: ignore[misc]
        for stream, extension in self.offers.get(mask, ()):
            rest = self._rest(mask, stream)[column]
            options.append((extension[column] + rest, 2, lambda stream=stream: carried(stream)))  # type: ignore[misc]
        return min(options, key=lambda option: option[:2])[2]()


def spread(costs: list[float], neighbours: list[list[int]], rate: float) -> list[float]:
    """For each node the least of all costs plus the rate for every hop from where it is paid."""
    best = list(costs)
    heap = [(cost, node) for node, cost in enumerate(costs) if cost < INFINITE]
    heapq.heapify(heap)
    while heap:
        cost, node = heapq.heappop(heap)
        if cost > best[node]:
            continue
        onward = cost + rate
        for near in neighbours[node]:
            if onward < best[near]:
                best[near] = onward
                heapq.heappush(heap, (onward, near))
    return best
