"""What does not change however often a query is planned: its sets of types, their projections, and how they split."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Final

from headwater.coordinator.inev.model.problem import Ask
from headwater.coordinator.inev.search.pulling import asks
from headwater.coordinator.inev.search.space import Space, Stream, Tasks

PROGRAMME_US: Final = 50.0
STEP_US: Final = 1.1
"""What planning a query once takes, and more for every pair of sets at every node, and for every set at every place."""


class QuerySets:
    """What stays the same however often a query is planned: its sets of types, their rates, how they split."""

    def __init__(self, space: Space, number: int) -> None:
        self.space = space
        self.number = number
        self.query = space.problem.queries[number]
        query = self.query
        self.types = [space.type_number[type] for type in query.types]
        self.whole = (1 << len(self.types)) - 1
        self.splitting = [at for at, type in enumerate(query.types) if type in query.splitting]
        self.places = [*range(space.nodes), *(space.nodes + self.types[at] for at in self.splitting)]
        """Where a stream may be wanted: all nodes, then the sources of each type that may split a placement."""
        self.column = {at: space.nodes + column for column, at in enumerate(self.splitting)}
        self.projection: dict[int, int] = {1 << at: type for at, type in enumerate(self.types)}
        self.sets: list[int] = []
        position = {type: at for at, type in enumerate(query.types)}
        for types in query.subsets():
            mask = sum(1 << position[type] for type in types)
            self.sets.append(mask)
            self.projection[mask] = space.number(query.projection(types))
        self.mask_of = {number: mask for mask, number in self.projection.items()}
        self.left_out: dict[tuple[int, int], tuple[int, ...]] = {}
        self._served: dict[int, int | None] = {}
        self._far: dict[int, list[int]] = {}
        self.work: dict[int, float] = {}
        """For latency: the work that finding each set takes, over all nodes, in hops; nothing where no task asks."""
        self._splits: dict[int, list[tuple[int, int]]] = {}
        self._sharing: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._pulls: dict[int, list[tuple[int, list[float]]]] = {}
        self._masters: dict[int, list[tuple[int, dict[int, list[float]]]]] = {}
        self.base = [self.columns(space.row(place, 0)) for place in self.places]
        """For each place of the query: links to each other place, for a stream that no link carries yet."""
        self.hop = self.base[: space.nodes]
        self.selectors = {
            (mask, at): Stream(self.projection[mask], space.nodes + self.types[at], 1 << self.types[at])
            for mask in self.sets
            if not space.projections[self.projection[mask]].types & query.negated
            for at in self.splitting
            if mask >> at & 1
        }
        """The streams that send, of matches split by a type, only the events of that type."""
        self.selecting = {
            mask: [type for at, type in enumerate(self.types) if mask >> at & 1]
            for mask in self.sets
            if not space.projections[self.projection[mask]].types & query.negated
        }

    @cached_property
    def work_us(self) -> float:
        """What it takes to plan the query once."""
        pairs = sum(len(self.splits(mask)) for mask in self.sets)
        return PROGRAMME_US + STEP_US * (pairs * self.space.nodes + len(self.sets) * len(self.places))

    def columns(self, row: list[float]) -> list[float]:
        nodes = self.space.nodes
        return row[:nodes] + [row[place] for place in self.places[nodes:]]

    def splits(self, mask: int) -> list[tuple[int, int]]:
        """Two sets that have matches of their own and together are this one, without a type in common."""
        splits = self._splits.get(mask)
        if splits is None:
            splits = []
            part = (mask - 1) & mask
            while part > mask ^ part:
                if part in self.projection and mask ^ part in self.projection:
                    splits.append((part, mask ^ part))
                part = (part - 1) & mask
            self._splits[mask] = splits
        return splits

    def splits_sharing(self, mask: int, common: int) -> list[tuple[int, int]]:
        """The same, with types in common that all are among the given ones."""
        splits = self._sharing.get((mask, mask & common))
        if splits is None:
            splits = []
            shared = mask & common
            while shared:
                rest = mask ^ shared
                part = (rest - 1) & rest
                while part > rest ^ part:
                    if part | shared in self.projection and rest ^ part | shared in self.projection:
                        splits.append((part | shared, rest ^ part | shared))
                    part = (part - 1) & rest
                shared = (shared - 1) & mask & common
            self._sharing[mask, mask & common] = splits
        return splits

    def pulls(self, mask: int) -> list[tuple[int, list[float]]]:
        """Sets that lack one type of this one and can ask for it, with what that costs on each node; infinity where it
        is never cheaper than to have everything sent."""
        pulls = self._pulls.get(mask)
        if pulls is None:
            pulls = []
            for at, type in enumerate(self.types):
                before = mask ^ 1 << at
                if mask >> at & 1 and before in self.projection:
                    row = self._asked(before, mask, type)
                    if row is not None:
                        pulls.append((before, row))
            self._pulls[mask] = pulls
        return pulls

    def _asked(self, before: int, mask: int, type: int) -> list[float] | None:
        """What it costs on each node that matches of a set ask for a type."""
        there = (Stream(self.projection[before], 0),)
        rows = [self._ask_row(ask) for ask in asks(self.space, self.query, self.projection[mask], there, type)]
        paying = [row for row in rows if row is not None]
        return list(map(min, *paying)) if len(paying) > 1 else paying[0] if paying else None

    def _ask_row(self, ask: Ask) -> list[float] | None:
        """The cost on each node; infinity where sending everything is never costlier, None if that is everywhere."""
        space = self.space
        request_rate, answer_rate = space.rates_of(ask)
        type = space.type_number[ask.type]
        rate, back, links = space.rates[type], space.row(space.nodes + type, 0), space.asking_links(type)
        if request_rate + answer_rate >= rate:
            return None
        row = [request_rate * links[node] + answer_rate * back[node] for node in range(space.nodes)]
        row = [price if price < rate * back[node] else math.inf for node, price in enumerate(row)]
        return row if min(row) < math.inf else None

    def masters(self, mask: int) -> list[tuple[int, dict[int, list[float]]]]:
        """For a set of which only single types are read: a type whose events can ask, and what it costs on each node
        that they ask for others; all by their bits."""
        masters = self._masters.get(mask)
        if masters is None:
            masters = self._masters[mask] = []
            bits = [(1 << at, type) for at, type in enumerate(self.types) if mask >> at & 1]
            for bit, type in bits if self.space.problem.costs.asks_by_event else ():
                there = (self.space.raw(type),)
                rows = {
                    other: row
                    for other, wanted in bits
                    if other != bit
                    for ask in asks(self.space, self.query, self.projection[mask], there, wanted)
                    if (row := self._ask_row(ask)) is not None
                }
                if rows:
                    masters.append((bit, rows))
        return masters

    def far_sources(self, type: int) -> list[int]:
        """How far each node is from the furthest source of a type."""
        farthest = self._far.get(type)
        if farthest is None:
            hops = [self.space.topology.hops(source) for source, _ in self.space.at[self.space.nodes + type]]
            farthest = self._far[type] = [max(far) for far in zip(*hops, strict=True)]
        return farthest

    def furthest(self, type: int) -> list[int]:
        """How far the furthest source of a type is from any node of each place."""
        far = self.far_sources(type)
        return [max(far[node] for node, _ in self.space.at[place]) for place in self.places]

    def served(self, projection: int) -> int | None:
        """The set of the query's types whose matches are among those of any projection, also of another query."""
        if projection in self.mask_of:
            return self.mask_of[projection]
        if projection not in self._served:
            offered = self.space.projections[projection]
            names = self.query.types
            mask = sum(1 << at for at, type in enumerate(names) if type in offered.types)
            fits = (
                offered.types <= set(names)
                and mask in self.projection
                and self.query.takes(offered, self.space.projections[self.projection[mask]])
            )
            self._served[projection] = mask if fits else None
        return self._served[projection]

    def may_read(self, stream: Stream, tasks: Tasks) -> bool:
        """Whether a stream that serves the query comes from tasks none of which is split by a type that the query must
        see in one place. Projections of its own, and all below them, are split by none."""
        if stream.projection in self.mask_of:
            return True
        waiting, seen = [stream[:2]], set()
        while waiting:
            task = waiting.pop()
            if task in seen or task not in tasks:
                continue
            seen.add(task)
            if task[1] >= self.space.nodes and task[1] not in self.places:
                return False
            waiting += [read[:2] for read in tasks[task]]
        return True
