"""Breadth-first search, for everything that starts with a command or runs while a network does.

networkx has the same and more, but importing it takes 0.19 s of processor time, a third of what `headwater --help`
takes as a whole, so only reports, pictures and experiments import it. Tests compare the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


def breadth_first(start: Vertex, around: Callable[[Vertex], Iterable[Vertex]]) -> dict[Vertex, Vertex]:
    """What can be reached from ``start``, nearest first, each with the vertex it is reached from (``start`` itself:
    ``start``). Ties follow the order in which ``around`` gives neighbours."""
    before = {start: start}
    waiting = deque((start,))
    while waiting:
        vertex = waiting.popleft()
        for neighbour in around(vertex):
            if neighbour not in before:
                before[neighbour] = vertex
                waiting.append(neighbour)
    return before


def components(vertices: Sequence[Vertex], around: Callable[[Vertex], Iterable[Vertex]]) -> list[list[Vertex]]:
    """The vertices in groups that hang together, each group and the list in the order of ``vertices``."""
    groups: list[list[Vertex]] = []
    seen: set[Vertex] = set()
    for vertex in vertices:
        if vertex not in seen:
            reached = breadth_first(vertex, around)
            seen |= reached.keys()
            groups.append([vertex for vertex in vertices if vertex in reached])
    return groups
