"""Merges overlapping streams into one in which every event comes once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Feed, Merge
from headwater.node.streams.outbox import identity_of

Row = tuple[Any, ...]


class Once(Merge):
    """Several feeds that may bring the same events as one that brings each of them once."""

    def __init__(self, inputs: Sequence[Feed], horizon_us: int | None) -> None:
        """``horizon_us``: for so long after the watermark an event may come again; None: for ever."""
        super().__init__(inputs)
        self._horizon_us = horizon_us
        self._known: dict[Any, tuple[int, bool]] = {}
        """Of each event its time, and whether it was real."""
        self._free_after: float = -FOREVER

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        fresh = []
        for row in rows:
            identity = identity_of(row)
            seen = self._known.get(identity)
            if seen is None or not seen[1]:
                self._known[identity] = (row[0], True)
                fresh.append(row)
        if fresh:
            self.pass_on(fresh, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        fresh = []
        for row in rows:
            if self._known.setdefault(identity_of(row), (row[0], False))[1] is False:
                fresh.append(row)
        if fresh:
            self.pass_blockers(fresh, work)

    def watermark_moved(self, work: Work) -> None:
        if self._horizon_us is not None:
            watermark = self.current(work.now_us)
            if watermark > self._free_after or watermark == FOREVER:
                self._free_after = watermark + self._horizon_us / 4
                oldest = watermark - 3 * self._horizon_us
                self._known = {name: seen for name, seen in self._known.items() if seen[0] >= oldest}
        self.tell(work)

    def held(self) -> int:
        return len(self._known)
