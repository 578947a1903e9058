"""Time that passes only when nothing else can happen, for code that takes its clock and its sleep as arguments."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

SETTLED = 50
"""Turns of the loop after which whatever could go on without time has done so."""


class VirtualTime:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (self.now_s + seconds, len(self.slept), done))
        await done

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives, however long it sleeps."""
        return asyncio.run(self._driven(work))

    async def _driven(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        while True:
            for _ in range(SETTLED):
                await asyncio.sleep(0)
            if task.done():
                return task.result()
            while self._waiting and self._waiting[0][2].done():
                heapq.heappop(self._waiting)
            assert self._waiting, "nothing will ever happen"
            self.now_s, _, due = heapq.heappop(self._waiting)
            due.set_result(None)
