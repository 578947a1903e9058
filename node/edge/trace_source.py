"""A source that replays the rows of a trace file with their own times."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator
from typing import Any, Final

from headwater.node.edge.backoff import Backoff
from headwater.node.edge.interfaces import Arrival, Edge, Intake
from headwater.node.edge.trace_order import Turn
from headwater.node.traces.source_rows import events_of_source, look
from headwater.protocol.edge import TraceFeed
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import HEADER_WIDTH, Event, EventType

BATCH_ROWS: Final = 500
"""Rows published at once at most: about a millisecond of work between two looks at everything else."""

log = logging.getLogger("headwater.edge")


class TraceSourceAdapter:
    """Publishes the rows of its type and node in order of time, paced by the speed, each once over restarts.

    The position is the number of rows published so far.
    """

    def __init__(self, number: int, feed: TraceFeed, event_type: EventType, edge: Edge) -> None:
        self._number = number
        self._feed = feed
        self._type = event_type
        self._edge = edge
        self._bad: list[str] = []
        """What was wrong with rows that were read since the last report."""
        edge.turns.join(self, number)

    async def run(self, intake: Intake, position: Any) -> None:
        published = position if isinstance(position, int) else 0
        backoff = Backoff()
        try:
            while True:
                try:
                    in_order, gives_seq = await asyncio.to_thread(look, self._feed.path, self._feed.layout)
                    rows = self._rows(in_order, published)
                    # A file that is not in order is sorted in memory before its first row is there.
                    first = await asyncio.to_thread(next, rows, None)
                    break
                except (HeadwaterError, OSError) as error:
                    log.warning("the trace of source %d cannot be read: %s", self._number, error)
                    self._edge.turns.leave(self)
                    await backoff.wait()
            if published:
                self._bad.clear()  # these stand before the rows that were published, and were reported then
            if first is not None:
                await self._replay(intake, itertools.chain([first], rows), published, gives_seq)
            self._tell_bad(intake)
            intake.ended(self._number)
        finally:
            self._edge.turns.leave(self)

    def _rows(self, in_order: bool, published: int) -> Iterator[Event]:
        """The rows that have not been published yet."""
        self._bad.clear()
        feed = self._feed
        events = events_of_source(
            feed.path, self._edge.node, self._type, in_order=in_order, layout=feed.layout, on_bad=self._bad.append
        )
        return itertools.islice(events, published, None)

    def _tell_bad(self, intake: Intake) -> None:
        for sentence in self._bad:
            intake.refused(self._number, b"", sentence)
        self._bad.clear()

    async def _replay(self, intake: Intake, rows: Iterator[Event], published: int, gives_seq: bool) -> None:
        row = next(rows, None)
        while row is not None:
            until = await self._edge.turns.mine(self, self._number, row[0])
            await self._pace(row[0])
            await intake.may_publish()
            batch, row = self._batch(row, rows, until, gives_seq)
            published += len(batch)
            # After the last row its own time is safe, too: nothing follows at all.
            watermark = row[0] - 1 if row is not None else batch[-1].ts
            intake.publish(self._number, batch, watermark=watermark, position=published)
            self._tell_bad(intake)
            await asyncio.sleep(0)

    def _batch(
        self, row: Event, rows: Iterator[Event], until: Turn, gives_seq: bool
    ) -> tuple[list[Arrival], Event | None]:
        """The rows that are due and come before the turn of another source, and the one after them."""
        due = self._due()
        node = self._edge.node
        batch: list[Arrival] = []
        following: Event | None = row
        while following is not None and len(batch) < BATCH_ROWS:
            ts = following[0]
            if batch and ((ts, self._number) > until or ts > due):
                break
            values = following[HEADER_WIDTH:]
            batch.append(Arrival(ts, node, following[2], values) if gives_seq else Arrival(ts, None, None, values))
            following = next(rows, None)
        return batch, following

    async def _pace(self, ts: int) -> None:
        """Wait until it is time for a row at ``ts``."""
        turns = self._edge.turns
        now = asyncio.get_running_loop().time()
        if turns.started is None:
            turns.started = now, ts
        if self._feed.speed:
            began, from_ts = turns.started
            await asyncio.sleep(began + (ts - from_ts) / 1e6 / self._feed.speed - now)

    def _due(self) -> float:
        """Rows up to this time may be published now."""
        started = self._edge.turns.started
        if not self._feed.speed or started is None:
            return float("inf")
        return started[1] + (asyncio.get_running_loop().time() - started[0]) * 1e6 * self._feed.speed
