"""The search space of the planner: everything a plan refers to, as small numbers, with the cost of moving it.

A *place* is a node's number, or ``nodes + t`` for all sources of the type numbered t. A *stream* is what is found of a
projection at a place: whole matches, or the events of some types in them; or the events of a type that a task asks
for. A *solution* maps tasks, projections at places, to the streams they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from headwater.coordinator.inev.model.lookups import TableLookups
from headwater.coordinator.inev.model.problem import Ask, Problem, Projection, Query, primitive
from headwater.coordinator.inev.model.topology import LARGE_NODES, Signature, bit_positions, distances


class Stream(NamedTuple):
    """``sent``: the bits of the types whose events are sent; 0 for matches as they are; -1 - q for what the sinks of
    query q get, where that is something else. ``asked``: the number of the ask that brings these events of a type; 0
    for what is sent of itself."""

    projection: int
    place: int
    sent: int = 0
    asked: int = 0


Task = tuple[int, int]
"""A projection and a place."""

Tasks = dict[Task, tuple[Stream, ...]]


class Solution(NamedTuple):
    """Which tasks there are, with what they read, and the task that completes each query."""

    tasks: Tasks
    finals: tuple[Task, ...]


class Space:
    """Numbers and prices for one problem. Prices are remembered: a search asks for the same ones again and again.

    ``work_us`` adds up what the search of a plan would take on a usual machine, step by step: a search that must come
    to an end counts this instead of looking at a clock, and ends with the same plan on every machine.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.work_us = 0.0
        network = problem.network
        self.topology = network.topology
        self.nodes = network.topology.nodes
        self.types = problem.types
        self.type_number = {type: at for at, type in enumerate(self.types)}
        self.projections: list[Projection] = [primitive(type) for type in self.types]
        self._numbers = {projection.key: at for at, projection in enumerate(self.projections)}
        self.rates: list[float] = [network.total(type) for type in self.types]
        self.sends_events = problem.costs.sends_events
        self.places = self.nodes + len(self.types)
        self.masks = [1 << node for node in range(self.nodes)]
        """The nodes of each place, as bits."""
        self.at: list[list[tuple[int, float]]] = [[(node, 1.0)] for node in range(self.nodes)]
        """The nodes of each place, with the part of a split projection that each holds."""
        for type in self.types:
            self.masks.append(sum(1 << node for node in network.rates[type]))
            self.at.append([(node, network.share(type, node)) for node in network.sources(type)])
        self._signatures: dict[int, Signature] = {}
        self._trees: set[int] = set()
        """For ``work_us``: the sets of nodes over which trees were looked for, whether or not they were known."""
        self._reach: dict[tuple[int, int], tuple[float, int]] = {}
        self._rows: dict[tuple[int, int], list[float]] = {}
        self._selected: dict[Stream, tuple[float, float]] = {}
        self._sent: dict[Stream, list[float]] = {}
        self._costs: dict[tuple[Stream, int], float] = {}
        self._asks: list[Ask] = []
        self._ask_numbers: dict[Ask, int] = {}
        self._ask_rates: list[tuple[float, float]] = []
        self._ask_rows: dict[int, list[int]] = {}
        self._homes: dict[int, Query | None] = {}
        self.sink_masks = [
            sum(1 << node for node in set(problem.sinks.get(query.name, ()))) for query in problem.queries
        ]

    def worked_s(self) -> float:
        """How long a usual machine works for what was done so far."""
        return self.work_us / 1e6

    def number(self, projection: Projection) -> int:
        """The number of a projection; a new one where it was not met before."""
        number = self._numbers.get(projection.key)
        if number is None:
            number = self._numbers[projection.key] = len(self.projections)
            self.projections.append(projection)
            self.rates.append(self.problem.costs.rate(projection))
        return number

    def flow(self, projection: int, place: int) -> float:
        """What all nodes of a place together send of a projection."""
        if not self.sends_events or projection < len(self.types):
            return self.rates[projection]
        return sum(self._sent_at(Stream(projection, place)))

    def delivery(self, query: int, final: Task) -> Stream:
        """What the sinks of a query get of the task that completes it."""
        return Stream(*final, -1 - query if self.sends_events else 0)

    def sent_by(self, stream: Stream) -> list[float]:
        """What each node of the place of a stream sends of it."""
        if self.sends_events and stream.projection >= len(self.types):
            return self._sent_at(stream)
        if not stream.sent:
            return [self.rates[stream.projection] * part for _, part in self.at[stream.place]]
        rates = self.selected_rates(stream)
        assert rates is not None
        return [rates[0] * part + rates[1] for _, part in self.at[stream.place]]

    def _sent_at(self, stream: Stream) -> list[float]:
        """What each node of the place of a stream sends."""
        rates = self._sent.get(stream)
        if rates is None:
            projection = self.projections[stream.projection]
            types = frozenset(self.types[at] for at in bit_positions(stream.sent)) if stream.sent else None
            split = self.types[stream.place - self.nodes] if stream.place >= self.nodes else None
            carried = self.problem.costs.carried
            rates = self._sent[stream] = [carried(projection, types, split, part) for _, part in self.at[stream.place]]
        return rates

    def source_place(self, type: int) -> int:
        return self.nodes + type

    def raw(self, type: int) -> Stream:
        """The events of a type as they are born."""
        return Stream(type, self.nodes + type)

    def home(self, projection: int) -> Query | None:
        """The first query that a projection is part of."""
        if projection not in self._homes:
            wanted = self.projections[projection]
            self._homes[projection] = next(
                (
                    query
                    for query in self.problem.queries
                    if wanted.types <= set(query.types) and query.projection(wanted.types).key == wanted.key
                ),
                None,
            )
        return self._homes[projection]

    # What is asked for -----------------------------------------------------------------------------------------------

    def pulled(self, ask: Ask) -> Stream:
        """The events of a type that an ask brings."""
        number = self._ask_numbers.get(ask)
        if number is None:
            self._asks.append(ask)
            self._ask_rates.append(self.rates_of(ask))
            number = self._ask_numbers[ask] = len(self._asks)
        type = self.type_number[ask.type]
        return Stream(type, self.nodes + type, asked=number)

    def ask(self, stream: Stream) -> Ask:
        """What brings a stream that is asked for."""
        return self._asks[stream.asked - 1]

    def rates_of(self, ask: Ask) -> tuple[float, float]:
        """How often is asked, and what is answered by all sources."""
        return self.problem.costs.asked(ask), self.problem.costs.answered(ask)

    def asking_links(self, type: int) -> list[int]:
        """For every node: how many links a request for a type crosses from there until all its sources have it."""
        links = self._ask_rows.get(type)
        if links is None:
            if self.problem.costs.asks_by_event:
                links = [0] * self.nodes
                for source, _ in self.at[self.nodes + type]:
                    links = list(map(int.__add__, links, self.topology.hops(source)))
            else:
                sources, reached = self.signature(self.masks[self.nodes + type]), self.topology.reached
                links = [reached(node, sources) for node in range(self.nodes)]
            self._ask_rows[type] = links
        return links

    # Trees ----------------------------------------------------------------------------------------------------------

    def signature(self, mask: int) -> Signature:
        signature = self._signatures.get(mask)
        if signature is None:
            signature = self._signatures[mask] = self.topology.signature(bit_positions(mask))
        return signature

    def reach(self, place: int, targets: int) -> tuple[float, int]:
        """Links of the trees from every node of a place to all targets: by the parts the nodes hold, and summed."""
        reach = self._reach.get((place, targets))
        if reach is None:
            signature, reached = self.signature(targets), self.topology.reached
            by_part, summed = 0.0, 0
            if targets:
                for node, part in self.at[place]:
                    self.work_us += self.topology.work_us(node, signature, self._trees)
                    links = reached(node, signature)
                    by_part += part * links
                    summed += links
            reach = self._reach[place, targets] = by_part, summed
        return reach

    def row(self, place: int, already: int) -> list[float]:
        """For every place: how many more links, by parts, to reach it beside what is reached already."""
        row = self._rows.get((place, already))
        if row is None:
            row = self._rows[place, already] = self._row(place, already)
        return row

    def _row(self, place: int, already: int) -> list[float]:
        if not already:
            to_nodes = [0.0] * self.nodes
            for node, part in self.at[place]:
                far = self.topology.hops(node)
                to_nodes = [summed + part * hops for summed, hops in zip(to_nodes, far, strict=True)]
            return to_nodes + [self.reach(place, mask)[0] for mask in self.masks[self.nodes :]]
        base = self.reach(place, already)[0]
        if self.nodes <= LARGE_NODES:
            return [self.reach(place, already | mask)[0] - base for mask in self.masks]
        # In a large network a node joins the tree that is there: looking for a new tree for each would take too long.
        tree = self.topology.tree(self.signature(already))
        beside = distances(self.topology.neighbours, {*self.topology.nodes_of(tree), *bit_positions(already)})
        extra = [
            0.0 if already | mask == already else self.reach(place, already | mask)[0] - base
            for mask in self.masks[self.nodes :]
        ]
        return [float(far) for far in beside] + extra

    # Prices ---------------------------------------------------------------------------------------------------------

    def selected_rates(self, stream: Stream) -> tuple[float, float] | None:
        """Of a stream with an output selector: the rate split over its nodes, and the one that each node sends whole.

        None if it is not known how many events the matches hold.
        """
        rates = self._selected.get(stream)
        if rates is None:
            split = whole = 0.0
            projection = self.projections[stream.projection]
            for number in bit_positions(stream.sent):
                share = self.problem.costs.selected(self.types[number], projection)
                if share is None:
                    return None
                rate = share * self.rates[number]
                if stream.place < self.nodes or stream.place == self.nodes + number:
                    split += rate
                else:
                    whole += rate
            rates = self._selected[stream] = split, whole
        return rates

    def price(self, stream: Stream, targets: int) -> float:
        """What it costs to have a stream at all targets."""
        price = self._costs.get((stream, targets))
        if price is None:
            if stream.asked:
                price = self._costs[stream, targets] = self._price_of_asking(stream, targets)
                return price
            by_part, summed = self.reach(stream.place, targets)
            if stream.sent < 0:
                query = self.problem.queries[-1 - stream.sent]
                price = self.problem.costs.delivered(query) * by_part
                price += sum(rate * links.bit_count() for _, _, links, rate in self.lookups(query, stream.place))
            elif self.sends_events and stream.projection >= len(self.types):
                price = self._price_of_events(stream, targets)
            elif not stream.sent:
                price = self.rates[stream.projection] * by_part
            else:
                rates = self.selected_rates(stream)
                assert rates is not None
                price = rates[0] * by_part + rates[1] * summed
            self._costs[stream, targets] = price
        return price

    def lookups(self, query: Query, place: int) -> Iterator[tuple[TableLookups, int, int, float]]:
        """What a query asks of remote tables if it is completed at a place: of which, which node, over which links to
        the nearest node that reaches it, and how many questions and answers cross each per unit of time."""
        split = self.types[place - self.nodes] if place >= self.nodes else None
        for lookups in self.problem.lookups.get(query.name, ()):
            for node, part in self.at[place]:
                hops = self.topology.hops(node)
                nearest = min(lookups.at, key=lambda near: (hops[near], near))
                links = self.topology.reaching(node, self.signature(1 << nearest))
                if links:
                    yield lookups, node, links, 2 * lookups.rate(split, part)

    def _price_of_events(self, stream: Stream, targets: int) -> float:
        if not targets:
            return 0.0
        reached, signature = self.topology.reached, self.signature(targets)
        sent = zip(self._sent_at(stream), self.at[stream.place], strict=True)
        return sum(rate * reached(node, signature) for rate, (node, _) in sent)

    def _price_of_asking(self, stream: Stream, targets: int) -> float:
        """Every target asks for itself, and is answered by itself."""
        request_rate, answer_rate = self._ask_rates[stream.asked - 1]
        links, back = self.asking_links(stream.projection), self.row(stream.place, 0)
        return sum(request_rate * links[node] + answer_rate * back[node] for node in bit_positions(targets))

    def local(self, stream: Stream, place: int) -> bool:
        """Whether a task at a place finds the stream there already, each node its own part."""
        return stream.place == place >= self.nodes and not stream.sent

    def targets(self, solution: Solution) -> dict[Stream, int]:
        """For every stream that travels: the nodes it must reach."""
        return self.carried(solution.tasks, solution.finals, self.sink_masks)

    def carried(
        self, tasks: Tasks, finals: Iterable[Task], sinks: Iterable[int], queries: Iterable[int] | None = None
    ) -> dict[Stream, int]:
        """The same for tasks, and for the ones that complete queries (all, or these) with the nodes that want them."""
        carried: dict[Stream, int] = {}
        masks, nodes = self.masks, self.nodes
        for (_, place), inputs in tasks.items():
            mask = masks[place]
            for stream in inputs:
                if stream.place == place and (place < nodes or not stream.sent):
                    continue
                carried[stream] = carried.get(stream, 0) | mask
        for query, final, mask in zip(count() if queries is None else queries, finals, sinks, strict=False):
            if mask:
                stream = self.delivery(query, final)
                carried[stream] = carried.get(stream, 0) | mask
        return carried

    def cost(self, solution: Solution) -> float:
        """The true cost: every stream over one tree from each of its nodes to all its readers."""
        price = self.price
        return sum(price(stream, targets) for stream, targets in self.targets(solution).items())

    def needed(self, tasks: Tasks, finals: Iterable[Task]) -> Tasks:
        """The tasks without which some query could not be completed, inputs before what reads them."""
        needed: Tasks = {}
        waiting = [(final, False) for final in finals]
        while waiting:
            task, ready = waiting.pop()
            if task in needed or task not in tasks:
                continue  # what is not a task is read as it is born
            if ready:
                needed[task] = tasks[task]
                continue
            waiting.append((task, True))
            waiting += [((stream.projection, stream.place), False) for stream in tasks[task]]
        return needed

    def supported(self, tasks: Tasks) -> Tasks:
        """The tasks all of whose inputs are there."""
        supported: Tasks = {}
        for task in sorted(tasks, key=lambda task: len(self.projections[task[0]].types)):
            if all(
                stream.projection < len(self.types) or (stream.projection, stream.place) in supported
                for stream in tasks[task]
            ):
                supported[task] = tasks[task]
        return supported
