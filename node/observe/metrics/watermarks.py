"""How far a node is behind the clock, and which source or neighbour it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.node.step import FOREVER

if TYPE_CHECKING:
    from headwater.node.core import NodeCore

SOURCES: Final = "@sources"
"""Among the ends that watermarks come from: the sources of the node itself. No node is called so."""


@dataclass(slots=True)
class Watermarks:
    """Event times up to which everything is known; minus infinity before the first is told, infinity at the end."""

    tasks: float = FOREVER
    """The least of all tasks of trees that have started."""
    inputs: dict[str, float] = field(default_factory=dict)
    """By neighbour (or SOURCES), the least of the streams that it pushes."""
    awaited: dict[str, int] = field(default_factory=dict)
    """By neighbour (or SOURCES), how many watermarks it was asked for and has not told yet."""


def watermarks_of(core: NodeCore, now_us: int) -> Watermarks:
    """Where a node stands now. Streams that are pulled are left out: they move only when they are asked."""
    watermarks = Watermarks()
    for tasks in core.works.values():
        if not tasks.started:
            continue
        reached = [task.watermark for task in tasks.tasks] + [completion.watermark for completion in tasks.completions]
        watermarks.tasks = min(watermarks.tasks, *reached, FOREVER)
        for inlet in tasks.inlets.values():
            if not inlet.pull:
                watermarks.inputs[inlet.child] = min(watermarks.inputs.get(inlet.child, FOREVER), inlet.watermark)
            watermarks.awaited[inlet.child] = watermarks.awaited.get(inlet.child, 0) + len(inlet.asked)
    if core.local:
        watermarks.inputs[SOURCES] = min(feed.current(now_us) for feed in core.local.values())
        watermarks.awaited[SOURCES] = sum(feed.awaited for feed in core.local.values())
    return watermarks


def lag_s(watermark: float, now_us: int, since_us: int) -> float:
    """By how much a watermark is behind the clock; 0 after the end. Before the first watermark: how long the node has
    waited for it, at most since the process began."""
    if watermark == FOREVER:
        return 0.0
    return max(0.0, (now_us - (since_us if watermark == -FOREVER else watermark)) / 1e6)
