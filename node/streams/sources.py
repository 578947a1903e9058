"""Sources at this node: their watermarks, which the clock or a trace promises, and their events, remembered for as long
as a later task may need them."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Feed
from headwater.protocol.messages.plans import PlannedSource

Row = tuple[Any, ...]


class LocalFeed(Feed):
    """The events of one type that are born at this node, from all its sources of that type.

    No event arrives later than its source's lateness after its timestamp; one that does is late and no part of the
    trace. That is decided by the clock alone, whatever was asked for, but for the time in which the node could
    not hear the source: the clock stands still for a source that is unheard.
    """

    def __init__(self, event_type: str, unheard: Mapping[int, int] | None = None) -> None:
        """``unheard``: since when a source, by its number, cannot be heard; the node keeps this mapping."""
        super().__init__()
        self.type = event_type
        self.sources: dict[int, PlannedSource] = {}
        self.ended: set[int] = set()
        self.unheard: Mapping[int, int] = {} if unheard is None else unheard
        self.told_us: dict[int, float] = {}
        """How far each replayed source says that it has come."""
        self.frozen_us: float | None = None
        """While a change is prepared: nothing beyond this is promised."""
        self.history: list[Row] = []
        self._wanted: list[float] = []
        """A heap of the watermarks that consumers wait for."""

    def promised(self, now_us: int) -> float:
        """The least that all sources have promised by the clock; no event at or before it is still accepted."""
        least = FOREVER
        for number, source in self.sources.items():
            if number not in self.ended:
                promised = self._promised(source, now_us)
                if promised < least:
                    least = promised
        return least

    def _promised(self, source: PlannedSource, now_us: int) -> float:
        passed = self._passed(source, now_us)
        if source.until_us is not None and passed >= source.until_us:
            return FOREVER
        return passed if source.from_us is None else max(passed, source.from_us - 1)

    def _passed(self, source: PlannedSource, now_us: int) -> float:
        """What the clock has promised for a source, or a replayed one has told."""
        if source.replayed:
            return self.told_us.get(source.number, -FOREVER)
        # An operator who ends a source does not want to wait for what may be held of it.
        clock_us = now_us if source.until_us is not None else self.unheard.get(source.number, now_us)
        # Of a live source another event may still be born in this very microsecond.
        return clock_us - source.lateness_us - 1

    def promised_most(self, now_us: int) -> float:
        """The most that any source has promised: what begins later than this can be told to all of them in time."""
        return max(
            (self._passed(source, now_us) for number, source in self.sources.items() if number not in self.ended),
            default=-FOREVER,
        )

    def least(self, now_us: int) -> float:
        """The least time of which a source may still tell, by the clock or by what replayed sources have told."""
        return min(
            (
                self._passed(source, now_us) + (not source.replayed)
                for number, source in self.sources.items()
                if number not in self.ended
            ),
            default=now_us,
        )

    def lateness_us(self) -> int:
        return max((source.lateness_us for source in self.sources.values()), default=0)

    def current(self, now_us: int) -> float:
        watermark = self.promised(now_us)
        return watermark if self.frozen_us is None else min(watermark, self.frozen_us)

    def is_late(self, source: int, ts: int, now_us: int) -> bool:
        """Whether an event with this time would come after its source has promised that none would."""
        planned = self.sources.get(source)
        return planned is not None and ts <= self._promised(planned, now_us)

    def born(self, source: int, rows: Sequence[Row], work: Work) -> None:
        """Events of a source; they are passed on unless they are late or their source does not hold at their time."""
        planned = self.sources.get(source)
        if planned is None or source in self.ended:
            work.report("unadvertised_events", len(rows))
            return
        promised = self._promised(planned, work.now_us)
        taken = []
        for row in rows:
            if row[3].name != self.type or not _holds(planned, row[0]):
                work.report("unadvertised_events")
            elif row[0] <= promised:
                work.report("late_events")
            else:
                taken.append(row)
        if taken:
            self.remember(taken)
            self.pass_on(taken, work)

    def remember(self, rows: Sequence[Row]) -> None:
        """Keep events for whatever starts later."""
        history = self.history
        for row in rows:
            if not history or row > history[-1]:
                history.append(row)
            else:
                insort(history, row)

    def advanced(self, source: int, watermark: float, work: Work) -> None:
        """A replayed source has come this far."""
        if watermark > self.told_us.get(source, -FOREVER):
            self.told_us[source] = watermark
            self.moved(work)

    def want(self, ts: float, work: Work) -> None:
        if ts < FOREVER and self.current(work.now_us) < ts and ts not in self._wanted:
            heapq.heappush(self._wanted, ts)
            self._wait(work)

    @property
    def awaited(self) -> int:
        """How many watermarks consumers wait for."""
        return len(self._wanted)

    def _wait(self, work: Work) -> None:
        live = any(not source.replayed for number, source in self.sources.items() if number not in self.ended)
        if self._wanted and live:
            due = int(self._wanted[0]) + self.lateness_us() + 1
            if due > work.now_us:  # otherwise the feed is frozen or unheard, and is told when that is over
                work.timer(f"local {self.type}", due)

    def moved(self, work: Work) -> None:
        """The clock, or a change, has brought the watermark forward."""
        watermark = self.current(work.now_us)
        while self._wanted and self._wanted[0] <= watermark:
            heapq.heappop(self._wanted)
        self.tell(work)
        self._wait(work)

    def since(self, ts: int | None) -> list[Row]:
        """What is remembered of events at or after a time."""
        return list(self.history) if ts is None else self.history[bisect_left(self.history, (ts,)) :]

    def is_over(self) -> bool:
        """Nothing will come any more, nothing is remembered, and no consumer reads it."""
        return not self.sources and not self.history and not self.consumers

    def forget_before(self, ts: float) -> None:
        if self.history and self.history[0][0] < ts:
            del self.history[: bisect_left(self.history, (ts,))]


def _holds(source: PlannedSource, ts: int) -> bool:
    return (source.from_us is None or ts >= source.from_us) and (source.until_us is None or ts <= source.until_us)


class EpochFeed(Feed):
    """Local events as one tree sees them: from where it looks back to when it starts, up to where its plan ends.

    What is older, though it may come later than the tree has started, belongs to nothing that the tree must find.
    """

    def __init__(self, source: LocalFeed, prime_us: int | None) -> None:
        super().__init__()
        self.source = source
        self._prime_us = prime_us
        self._until_us: int | None = None
        self._started = False
        source.consumers.append(self)

    def start(self, work: Work) -> None:
        """Everything that reads it is in place: begin with the past."""
        if not self._started:
            self._started = True
            remembered = [row for row in self.source.since(self._prime_us) if self._sees(row)]
            if remembered:
                self.pass_on(remembered, work)
            self.tell(work)

    def end(self, until_us: int, work: Work) -> None:
        """The plan ends here: later events do not exist for it."""
        self._until_us = until_us if self._until_us is None else min(self._until_us, until_us)
        self.tell(work)

    def leave(self) -> None:
        self.source.consumers.remove(self)

    def _sees(self, row: Row) -> bool:
        if self._until_us is not None and row[0] >= self._until_us:
            return False
        return self._prime_us is None or row[0] >= self._prime_us

    def current(self, now_us: int) -> float:
        if not self._started:
            return -FOREVER
        watermark = self.source.current(now_us)
        return watermark if self._until_us is None else min(watermark, self._until_us - 1)

    def want(self, ts: float, work: Work) -> None:
        if self._until_us is None or ts < self._until_us:
            self.source.want(ts, work)

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        if not self.consumers:
            return  # this tree does not need the type
        if not self._started:
            return
        if self._until_us is not None or self._prime_us is not None:
            if self._prime_us is not None and self.source.promised(work.now_us) >= self._prime_us:
                self._prime_us = None  # nothing older can come any more
            rows = [row for row in rows if self._sees(row)]
        if rows:
            self.pass_on(rows, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("sources send no blockers")

    def watermark_moved(self, work: Work) -> None:
        if self._started:
            self.tell(work)
