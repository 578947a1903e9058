"""The state of one sink of a node, which survives a crash: its numbered deliveries, and which of them are confirmed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from headwater.node.delivery.matches import MatchBatch

Row = tuple[Any, ...]


class SinkState:
    """Deliveries of one sink, numbered from 1 on."""

    def __init__(self) -> None:
        self.count = 0
        self.confirmed = 0
        self.waiting: deque[Row] = deque()
        """What was not confirmed yet, rows or composites; its last one is number ``count``."""

    @property
    def first(self) -> int:
        """The number of the first delivery that waits, or of the next one if none does."""
        return self.count - len(self.waiting) + 1

    def deliver(self, rows: Sequence[Row]) -> None:
        self.waiting.extend(rows.matches if isinstance(rows, MatchBatch) else rows)  # their rows are not made yet
        self.count += len(rows)

    def confirm(self, number: int) -> None:
        number = min(number, self.count)
        self.confirmed = max(self.confirmed, number)
        if number == self.count:
            self.waiting.clear()
        for _ in range(number + 1 - self.first):
            self.waiting.popleft()
