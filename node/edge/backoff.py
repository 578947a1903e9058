"""Exponential backoff with jitter: how long to wait before a failed attempt is repeated."""

from __future__ import annotations

import asyncio
import random
from typing import Final

FIRST_S: Final = 0.1
MOST_S: Final = 10.0


class Backoff:
    """Waits that double each time, up to a bound, with some jitter so that many clients do not come back at once."""

    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def reset(self) -> None:
        self._next_s = self._first_s

    def next_s(self) -> float:
        wait_s = self._next_s * random.uniform(0.75, 1.25)
        self._next_s = min(self._next_s * 2, self._most_s)
        return wait_s

    async def wait(self, least_s: float = 0.0) -> None:
        await asyncio.sleep(max(self.next_s(), least_s))
