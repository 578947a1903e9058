"""Pulling as a choice for every input: which types could awaken it, and what changes if it is pulled.

A task on one node may leave events at their sources until what it has already asks for them. Under the cost model of
the case files whole matches ask for one type. In running networks the events of one type ask, the task's *master*, for
any number of others. Chains of such tasks on a node ask for one type after the other, with what is left of the master.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.coordinator.inev.model.problem import Ask, Query
from headwater.coordinator.inev.model.topology import bit_positions
from headwater.coordinator.inev.search.space import Solution, Space, Stream, Task


def asks(space: Space, query: Query, of: int, other_inputs: Sequence[Stream], type: int) -> Iterator[Ask]:
    """All ways in which a task that finds a projection may ask for a type, with all else that it reads."""
    whole, name = space.projections[of], space.types[type]
    there = [(stream, _brought(space, stream)) for stream in other_inputs if not stream.asked]
    before = {space.ask(stream).master for stream in other_inputs if stream.asked}
    if any(name in types for _, types in there):
        return
    if not space.problem.costs.asks_by_event:
        rest = whole.types - {name}
        if query.has(rest) and not before and not query.whole:
            yield Ask(name, query.projection(rest), whole, query=query)
        return
    for master in sorted(whole.types - {name}):
        bringing = [stream for stream, types in there if master in types]
        if len(bringing) == 1 and before <= {master} and query.ask_scope(master, name) is not None:
            yield Ask(name, space.projections[bringing[0].projection], whole, master, query=query)


def _brought(space: Space, stream: Stream) -> frozenset[str]:
    """The types whose events a stream brings."""
    if stream.sent > 0:
        return frozenset(space.types[number] for number in bit_positions(stream.sent))
    return space.projections[stream.projection].types


def cheapest(
    space: Space, query: Query, task: Task, other_inputs: Sequence[Stream], type: int, master: str | None = None
) -> Stream | None:
    """The cheapest way for a task on one node to ask for a type, by a given master or by any; None if it cannot, or if
    that never pays."""
    of, node = task
    streams = [
        space.pulled(ask)
        for ask in asks(space, query, of, other_inputs, type)
        if may_pay(space, ask) and master in (None, ask.master)
    ]
    return min(streams, key=lambda stream: (space.price(stream, 1 << node), stream), default=None)


def may_pay(space: Space, ask: Ask) -> bool:
    """Whether asking can cost less than sending everything: a request goes at least as far as an answer."""
    request_rate, answer_rate = space.rates_of(ask)
    return request_rate + answer_rate < space.problem.network.total(ask.type)


# Steps from one solution to another ----------------------------------------------------------------------------------


def pulled_inputs(space: Space, solution: Solution) -> Iterator[Solution]:
    """Inputs that are sent of themselves asked for instead; of one task, or of all on a node that read the same."""
    readers: dict[tuple[Stream, int], dict[Task, tuple[Stream, ...]]] = {}
    for task, inputs in solution.tasks.items():
        query = space.home(task[0])
        if task[1] >= space.nodes or query is None:
            continue
        masters = {space.ask(stream).master for stream in inputs if stream.asked}
        for at, stream in enumerate(inputs):
            if stream.projection >= len(space.types) or stream.asked or space.types[stream.projection] in masters:
                continue
            if space.masks[stream.place] == 1 << task[1]:
                continue
            other_inputs = inputs[:at] + inputs[at + 1 :]
            instead = cheapest(space, query, task, other_inputs, stream.projection)
            if instead is not None:
                readers.setdefault((stream, task[1]), {})[task] = (*other_inputs, instead)
    for tasks in readers.values():
        for task, inputs in tasks.items():
            yield solution._replace(tasks={**solution.tasks, task: inputs})
        if len(tasks) > 1:
            yield solution._replace(tasks={**solution.tasks, **tasks})


def pushed_inputs(space: Space, solution: Solution) -> Iterator[Solution]:
    """Inputs that are asked for sent of themselves instead; by one task, or by all on a node."""
    readers: dict[tuple[int, int], dict[Task, tuple[Stream, ...]]] = {}
    for task, inputs in solution.tasks.items():
        for at, stream in enumerate(inputs):
            if stream.asked:
                pushed = (*inputs[:at], *inputs[at + 1 :], space.raw(stream.projection))
                readers.setdefault((stream.projection, task[1]), {})[task] = pushed
    for tasks in readers.values():
        for task, inputs in tasks.items():
            yield solution._replace(tasks={**solution.tasks, task: inputs})
        if len(tasks) > 1:
            yield solution._replace(tasks={**solution.tasks, **tasks})
