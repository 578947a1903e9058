"""Makes the traces of one node take turns, so that their events enter in the order of the global trace.

The node numbers the events of all its sources together as they come in. Traces that are replayed side by side must
therefore publish in the order (ts, position of the source, row), whatever the order in which their tasks run.
"""

from __future__ import annotations

import asyncio
from math import inf

Turn = tuple[float, int]
"""The time of a row and the position of its source."""
LAST: Turn = (inf, 1 << 62)


class Turns:
    """Which source is next. One that has not looked at its trace yet comes before all others."""

    def __init__(self) -> None:
        # By adapter and not by source: one that is stopped may leave after another one has taken its place.
        self._next: dict[object, Turn] = {}
        self._waiting: dict[object, asyncio.Future[None]] = {}
        self.started: tuple[float, float] | None = None
        """When the replay began by the clock of the event loop, and which time of the traces it was then."""

    def join(self, adapter: object, source: int) -> None:
        self._next[adapter] = (-inf, source)

    def leave(self, adapter: object) -> None:
        """This one has nothing more, or has stopped."""
        self._next.pop(adapter, None)
        self._waiting.pop(adapter, None)
        self._wake()

    async def mine(self, adapter: object, source: int, ts: int) -> Turn:
        """Returns when the row at ``ts`` is the next of all. So are its rows before the turn that is returned."""
        self._next[adapter] = turn = (ts, source)
        self._wake()
        while True:
            other = min((next_turn for name, next_turn in self._next.items() if name is not adapter), default=LAST)
            if turn < other:
                return other
            self._waiting[adapter] = asyncio.get_running_loop().create_future()
            await self._waiting[adapter]

    def _wake(self) -> None:
        if self._next:
            first = min(self._next, key=self._next.__getitem__)
            waiting = self._waiting.pop(first, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(None)
