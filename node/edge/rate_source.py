"""A source that generates its events live, at a rate, with the current time."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from headwater.node.edge.generated_events import made_up
from headwater.node.edge.interfaces import Arrival, Edge, Intake
from headwater.protocol.edge import RateFeed

BATCH_EVENTS: Final = 500
"""Made up at once at most, if the node could not take any for a while."""
BEHIND_US_MAX: Final = 1_000_000
"""A node that was busy for longer than this does not get everything that would have happened meanwhile."""


class RateSourceAdapter:
    """So many events a second by the clock, for the duration of the feed.

    The position is how often the source has been started and when it ends: after a restart it goes on with other
    random numbers, and ends when it would have ended.
    """

    def __init__(self, number: int, feed: RateFeed, edge: Edge) -> None:
        self._number = number
        self._feed = feed
        self._edge = edge

    async def run(self, intake: Intake, position: Any) -> None:
        now_us = time.time_ns() // 1000
        starts, end_us = 0, None if self._feed.duration_us is None else now_us + self._feed.duration_us
        if position is not None:
            starts, end_us = position[0] + 1, position[1]
        place = [starts, end_us]
        seed = f"{self._feed.seed}/{self._number}" + f"/{starts}" * (starts > 0)
        events = made_up(self._feed, seed, self._number, now_us, float("inf") if end_us is None else end_us)
        batch: list[Arrival] = []
        for ts, _, _, values in events:
            now_us = time.time_ns() // 1000
            if batch and (ts > now_us or len(batch) >= BATCH_EVENTS):
                await self._publish(intake, batch, place)
                batch = []
                now_us = time.time_ns() // 1000
            if ts > now_us:
                await asyncio.sleep((ts - now_us) / 1e6)
            elif ts < now_us - BEHIND_US_MAX:
                self._edge.count("rate_events_skipped")
                continue
            # It happens when it enters: the promise that nothing earlier follows may have passed its planned time.
            batch.append(Arrival(None, None, None, values))
        if batch:
            await self._publish(intake, batch, place)
        if end_us is not None:
            await asyncio.sleep(max(0.0, (end_us - time.time_ns() // 1000) / 1e6))
        intake.ended(self._number)

    async def _publish(self, intake: Intake, batch: list[Arrival], place: list[int | None]) -> None:
        await intake.may_publish()
        intake.publish(self._number, batch, position=place)
        await asyncio.sleep(0)
