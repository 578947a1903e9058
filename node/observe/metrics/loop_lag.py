"""The lag of the event loop: a timer records how late it was called."""

from __future__ import annotations

import asyncio
from typing import Final

from headwater.node.observe.metrics.counters import Histogram

LOOK_EVERY_S: Final = 2.0  # rare enough that fifty idle nodes do not feel it


class LoopLag:
    """Notes the lag of the running loop into a histogram until it is stopped."""

    def __init__(self, histogram: Histogram, every_s: float = LOOK_EVERY_S) -> None:
        self._histogram = histogram
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._due_s = 0.0
        self._timer = self._again()

    def _again(self) -> asyncio.TimerHandle:
        self._due_s = self._loop.time() + self._every_s
        return self._loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        self._histogram.observe(int((self._loop.time() - self._due_s) * 1e6))
        self._timer = self._again()

    def stop(self) -> None:
        self._timer.cancel()
