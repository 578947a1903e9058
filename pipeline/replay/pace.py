"""The pace of a replay: when events are due, at a multiple of their original speed."""

from __future__ import annotations

import asyncio


class Pace:
    """When events are due, by the clock of the event loop."""

    def __init__(self, speed: float, zero_us: int) -> None:
        self.speed = speed
        self._zero_us = zero_us
        self._zero_s = asyncio.get_running_loop().time()

    def due_us(self) -> int:
        passed_s = asyncio.get_running_loop().time() - self._zero_s
        return self._zero_us + int(passed_s * 1e6 * self.speed)

    def lag_s(self, ts: int) -> float:
        """How long ago an event of this time was due."""
        due_s = self._zero_s + (ts - self._zero_us) / 1e6 / self.speed
        return max(0.0, asyncio.get_running_loop().time() - due_s)
