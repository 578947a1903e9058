"""How long deliveries wait until their receivers take them."""

from __future__ import annotations

from collections import deque
from typing import Final

STEP_US_LEAST: Final = 100_000
STEPS: Final = 500
"""A step is at least so long, and at least this part of the time that the oldest has waited: that is how exact ages
are, and some thousand steps last for a year."""


class Waits:
    """Of one sink: when which deliveries began to wait."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int]] = deque()
        """The number of the last delivery of a step, and the time of its first one; earliest first."""

    def came(self, last: int, now_us: int) -> None:
        """Deliveries up to this number wait from now on."""
        steps = self._steps
        if steps and now_us - steps[-1][1] < max(STEP_US_LEAST, (now_us - steps[0][1]) // STEPS):
            steps[-1] = (last, steps[-1][1])  # no delivery becomes younger by it
        else:
            steps.append((last, now_us))

    def left(self, number: int) -> None:
        """Everything up to this number waits no more."""
        while self._steps and self._steps[0][0] <= number:
            self._steps.popleft()

    def oldest_s(self, now_us: int) -> float:
        return max(0.0, (now_us - self._steps[0][1]) / 1e6) if self._steps else 0.0
