"""How far behind the clock a node is, and whom it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.node.step import FOREVER

if TYPE_CHECKING:
    from headwater.node.core import NodeCore

SOURCES: Final = "@sources"
"""Among the ends that marks come from: the sources of the node itself. No node is called so."""


@dataclass(slots=True)
class Marks:
    """Event times up to which everything is known; minus infinity before the first is told, infinity at the end."""

    tasks: float = FOREVER
    """The least of all tasks of trees that have started."""
    inputs: dict[str, float] = field(default_factory=dict)
    """By neighbour (or SOURCES), the least of the streams that it pushes."""
    awaited: dict[str, int] = field(default_factory=dict)
    """By neighbour (or SOURCES), how many marks it was asked for and has not told yet."""


def marks_of(core: NodeCore, now_us: int) -> Marks:
    """Where a node stands now. Streams that are pulled are left out: they move only when they are asked."""
    marks = Marks()
    for found in core.works.values():
        if not found.started:
            continue
        reached = [task.mark for task in found.tasks] + [completion.mark for completion in found.completions]
        marks.tasks = min(marks.tasks, *reached, FOREVER)
        for inlet in found.inlets.values():
            if not inlet.pull:
                marks.inputs[inlet.child] = min(marks.inputs.get(inlet.child, FOREVER), inlet.mark)
            marks.awaited[inlet.child] = marks.awaited.get(inlet.child, 0) + len(inlet.asked)
    if core.local:
        marks.inputs[SOURCES] = min(feed.current(now_us) for feed in core.local.values())
        marks.awaited[SOURCES] = sum(len(feed._wanted) for feed in core.local.values())
    return marks


def lag_s(mark: float, now_us: int, since_us: int) -> float:
    """By how much a mark is behind the clock, nothing after the end; before the first mark, for how long it is waited
    for, which is since the process began at the most."""
    if mark == FOREVER:
        return 0.0
    return max(0.0, (now_us - (since_us if mark == -FOREVER else mark)) / 1e6)
