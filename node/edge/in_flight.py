"""Deliveries in flight to a receiver that confirms each of them, in any order."""

from __future__ import annotations

from collections import deque


class ConfirmWindow:
    """Which deliveries are answered: all up to a number can be confirmed when none before it is open."""

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._answered: set[int] = set()

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, number: int) -> None:
        self._open.append(number)

    def answered(self, number: int) -> int | None:
        """The number up to which everything is answered now, if that has moved."""
        self._answered.add(number)
        last = None
        while self._open and self._open[0] in self._answered:
            last = self._open.popleft()
            self._answered.discard(last)
        return last
