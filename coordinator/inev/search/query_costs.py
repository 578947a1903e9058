"""The cost of finding the matches of a query's sets of types, and of having them at each place.

A dynamic programme over the sets of the query's types and the places where their matches can be: for each set, what it
costs to find its matches on one node or split over the sources of a type, and to have all of them at any place. Sets
grow by joining two smaller ones; or by a type that the matches of the others ask for. Trees and distances are those of
the network; streams and tasks that exist already cost only what they must be extended by.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.coordinator.inev.search.query_pulls import WaysToAsk
from headwater.coordinator.inev.search.query_sets import QuerySets
from headwater.coordinator.inev.search.space import Stream, Tasks

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


class QueryCosts:
    """The costs of one query beside what is there."""

    def __init__(self, search: QuerySets, around: Surroundings) -> None:
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
        self.asking = WaysToAsk(search, self.full, around.step_price, around.pull)
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
        self._fill()

    def _extension(self, stream: Stream, carried: int) -> list[float]:
        """What it costs to carry a stream on to each place of the query."""
        space = self.space
        if not stream.sent and (not space.sends_events or stream.projection < len(space.types)):
            rate = space.rates[stream.projection]
            return [rate * links for links in self.search.columns(space.row(stream.place, carried))]
        base = space.price(stream, carried)
        return [space.price(stream, carried | space.masks[place]) - base for place in self.search.places]

    def _fill(self) -> None:
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
        parts = [part for part in {*self.offers, *self.there} if part & mask == part != mask]
        overlaps = []
        for part in parts:
            rest = mask ^ part
            extra = part
            while extra:
                other = rest | extra
                if other != mask and other in self.search.projection:
                    overlaps.append((part, other))
                extra = (extra - 1) & part
            side = (rest - 1) & rest
            while side > rest ^ side:
                one, other = side | part, rest ^ side | part
                if one in self.search.projection and other in self.search.projection:
                    overlaps.append((one, other))
                side = (side - 1) & rest
        return overlaps + self.search.splits_sharing(mask, self.common) if self.common else overlaps

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
                    before if before < (new := cost + split_rate * links) else new
                    for before, links in zip(row, links_to, strict=True)
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
            before if before < (new := cost + rate * links + other) else new
            for before, links, other in zip(row, links_to, rest, strict=True)
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
        left_out = self.search.left_out.get((mask, stream.sent))
        if left_out is None:
            types = self.search.types
            left_out = tuple(1 << at for at in range(len(types)) if mask >> at & 1 and not stream.sent >> types[at] & 1)
            self.search.left_out[mask, stream.sent] = left_out
        return left_out


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
