"""The cost of pulling types instead of pushing them, within the dynamic programme for one query."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headwater.coordinator.inev.search.pulling import cheapest
from headwater.coordinator.inev.search.query_sets import QuerySets
from headwater.coordinator.inev.search.space import Stream, Task


class WaysToAsk:
    """Ways to ask, beside what it costs to have sets of types at places (``full``), which may still be filled.

    ``step_price`` is added for every hop there and back. Without ``pull`` there are no ways.
    """

    def __init__(self, sets: QuerySets, full: Mapping[int, list[float]], step_price: float, pull: bool) -> None:
        self.sets = sets
        self.space = sets.space
        self.nodes = sets.space.nodes
        self.full = full
        self.step_price = step_price
        self.pull = pull

    def cheaper(self, mask: int, one: list[float]) -> list[float]:
        """What it costs on each node to find a set, if that is less where the rest of it asks for one of its types."""
        for before, row in self.sets.pulls(mask) if self.pull else ():
            one = list(map(min, one, self._with(before, mask, row)))
        return one

    def before(self, mask: int, node: int, below: float) -> int | None:
        """The rest of a set that most cheaply asks for what it lacks; None if that costs no less than the way known."""
        rows = self.sets.pulls(mask) if self.pull else ()
        cost, before = min(((self._with(before, mask, row)[node], before) for before, row in rows), default=(below, 0))
        return before if cost < below else None

    def supplied(self, right: int, task: Task, there: list[Stream]) -> list[Stream]:
        """What brings a type to a task if what is there asks for it; as it is sent if it cannot."""
        type = self.sets.projection[right]
        pulled = cheapest(self.space, self.sets.query, task, tuple(dict.fromkeys(there)), type)
        return [self.space.raw(type) if pulled is None else pulled]

    def gathered(self, mask: int) -> list[float]:
        """What it costs on each node to have all types of a set there one by one."""
        one = self._summed(mask, {})
        for _, rows in self.sets.masters(mask) if self.pull else ():
            one = list(map(min, one, self._summed(mask, rows)))
        return one

    def one_by_one(self, mask: int, task: Task) -> list[Stream]:
        """The streams that bring all types of a set: sent, or asked for by the master with which that is cheapest."""
        node = task[1]
        types = {1 << at: type for at, type in enumerate(self.sets.types) if mask >> at & 1}
        masters = dict(self.sets.masters(mask)) if self.pull else {}
        options = [(self._summed(mask, rows)[node], bit) for bit, rows in masters.items()]
        cost, master = min(options, default=(math.inf, 0))
        if cost >= self._summed(mask, {})[node]:
            return [self.space.raw(type) for type in types.values()]
        rows = masters[master]
        asked_bits = [bit for bit in rows if self._there_and_back(bit, rows[bit])[node] < self.full[bit][node]]
        inputs = [self.space.raw(type) for bit, type in types.items() if bit not in asked_bits]
        for bit in asked_bits:
            name = self.space.types[types[master]]
            stream = cheapest(self.space, self.sets.query, task, inputs, types[bit], name)
            inputs.append(self.space.raw(types[bit]) if stream is None else stream)
        return inputs

    def _with(self, before: int, mask: int, row: list[float]) -> list[float]:
        """What it costs on each node to have one set there that asks for the one type that it lacks."""
        return list(map(float.__add__, self.full[before][: self.nodes], self._there_and_back(mask ^ before, row)))

    def _there_and_back(self, single: int, row: list[float]) -> list[float]:
        """What asking for a type costs on each node, with the price of its steps."""
        step = 2 * self.step_price
        if not step:
            return row
        far = self.sets.far_sources(self.sets.types[single.bit_length() - 1])
        return [cost + step * hops for cost, hops in zip(row, far, strict=True)]

    def _summed(self, mask: int, asked: Mapping[int, list[float]]) -> list[float]:
        total = [0.0] * self.nodes
        for at in range(len(self.sets.types)):
            if mask >> at & 1:
                row = self.full[1 << at][: self.nodes]
                if 1 << at in asked:
                    row = list(map(min, row, self._there_and_back(1 << at, asked[1 << at])))
                total = list(map(float.__add__, total, row))
        return total
