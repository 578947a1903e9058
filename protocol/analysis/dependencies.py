"""Dependencies between rules: which rule reads the composite events that another emits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from headwater.protocol.errors import RuleError
from headwater.protocol.pattern import Rule, types_of


class CircularDependency(Exception):
    """Things that need each other, so that none can come first; ``positions`` begins and ends with the same one."""

    def __init__(self, positions: Sequence[int]) -> None:
        super().__init__(positions)
        self.positions = positions


def order_by_need(needs: Sequence[Collection[int]]) -> list[int]:
    """The positions of ``needs``, each after those it needs and otherwise ascending; a ``CircularDependency`` if
    there is no such order."""
    sorter = TopologicalSorter(dict(enumerate(needs)))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = error.args[1][:0:-1]  # from what needs to what is needed, without the repeated one
        first = circle.index(min(circle))
        raise CircularDependency([*circle[first:], *circle[: first + 1]]) from None
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        for position in sorter.get_ready():
            heappush(ready, position)
        position = heappop(ready)
        order.append(position)
        sorter.done(position)
    return order


def in_dependency_order(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules after those whose composites they read, otherwise as given; a RuleError that names a circle."""
    names: set[str] = set()
    producers: dict[str, list[int]] = {}
    for position, rule in enumerate(rules):
        if rule.name in names:
            raise RuleError(f"two rules are named {rule.name!r}; give one of them another name")
        names.add(rule.name)
        producers.setdefault(rule.emits, []).append(position)
    needs = [{producer for name in types_of(rule.pattern) for producer in producers.get(name, ())} for rule in rules]
    try:
        return tuple(rules[position] for position in order_by_need(needs))
    except CircularDependency as error:
        circle = " -> ".join(rules[position].name for position in error.positions)
        raise RuleError(f"rules read each other in a circle: {circle}") from None
