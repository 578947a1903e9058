"""The least of numbers that come and go."""

from __future__ import annotations

import heapq

FOREVER = float("inf")


class Least:
    """Each number has a serial number, under which it is removed."""

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._numbers: dict[int, float] = {}

    def add(self, number: float, serial: int) -> None:
        self._numbers[serial] = number
        heapq.heappush(self._heap, (number, serial))

    def remove(self, serial: int) -> None:
        del self._numbers[serial]

    def least(self) -> float:
        heap, numbers = self._heap, self._numbers
        while heap and numbers.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else FOREVER
