"""Counters that the process adds to while it works; ``catalogue`` decides as which metrics they are shown.

Nothing here looks at a clock or takes a lock: everything happens in the event loop of the node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_BOUNDS_US: Final = tuple(
    round(ms * 1000) for ms in (1, 2, 3, 5, 10, 15, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
)
COMMIT_BOUNDS_US: Final = tuple(
    round(ms * 1000) for ms in (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1_000, 10_000)
)
SNAPSHOT_BOUNDS_US: Final = tuple(round(ms * 1000) for ms in (1, 5, 10, 50, 100, 500, 1_000, 5_000, 30_000))
LAG_BOUNDS_US: Final = tuple(round(ms * 1000) for ms in (1, 2.5, 5, 10, 25, 50, 100, 250, 1_000, 10_000))


class Histogram:
    """How many durations fell under which bound, and their sum."""

    __slots__ = ("bounds_us", "counts", "sum_us")

    def __init__(self, bounds_us: Sequence[int]) -> None:
        self.bounds_us = tuple(bounds_us)
        self.counts = [0] * (len(self.bounds_us) + 1)
        """The last one counts what is above all bounds."""
        self.sum_us = 0

    def observe(self, us: int) -> None:
        """A duration; one below nothing (clocks differ) counts as none."""
        if us < 0:
            us = 0
        self.counts[bisect_left(self.bounds_us, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        return sum(self.counts)


class SourceCounts:
    """What came from one source. The daemon keeps the object at hand and adds to its numbers."""

    __slots__ = ("born", "born_from_us", "born_to_us", "late", "malformed", "refused", "repeated", "type")

    def __init__(self, event_type: str) -> None:
        self.type = event_type
        self.born = 0
        """Events that became part of the trace."""
        self.born_from_us: int | None = None
        self.born_to_us: int | None = None
        """When the first and the last of them did, of those that no record has told of yet."""
        self.late = 0
        self.malformed = 0
        self.refused = 0
        """Well-formed events that the node did not take: their source does not hold at their time, or has ended."""
        self.repeated = 0
        """Events with an identity that the device has sent before."""

    def bear(self, number: int, now_us: int) -> None:
        """So many events became part of the trace."""
        if not number:
            return
        self.born += number
        self.born_to_us = now_us
        if self.born_from_us is None:
            self.born_from_us = now_us

    def taken(self, offered: int, now_us: int, reports: Sequence[tuple[str, int]] = ()) -> None:
        """So many events were given to the core, which has reported this about some of them (counter and number)."""
        for counter, number in reports:
            if counter == "late_events":
                self.late += number
                offered -= number
            elif counter == "unadvertised_events":
                self.refused += number
                offered -= number
        self.bear(offered, now_us)


class NodeCounters:
    """Everything that a node counts since its process was started."""

    __slots__ = (
        "commits",
        "confirmed",
        "delivered",
        "http",
        "journal_bytes",
        "journal_records",
        "latency",
        "loop_lag",
        "records_dropped",
        "replayed_records",
        "reports",
        "restarts",
        "rule_errors",
        "since_us",
        "snapshot_bytes",
        "snapshots",
        "sources",
    )

    def __init__(self, since_us: int = 0) -> None:
        self.since_us = since_us
        """The time from which on all this was counted."""
        self.sources: dict[int, SourceCounts] = {}
        self.delivered: dict[int, int] = {}
        """By sink, what was found for it."""
        self.confirmed: dict[int, int] = {}
        """By sink, what its receiver has taken."""
        self.latency: dict[int, Histogram] = {}
        """By sink: from the latest part of a match to its delivery."""
        self.reports: dict[str, int] = {}
        """What the core reports (``node.effects.Report``)."""
        self.rule_errors: dict[str, int] = {}
        """By rule, how often it could not be evaluated on the values it met."""
        self.journal_records = 0
        self.journal_bytes = 0
        self.commits = Histogram(COMMIT_BOUNDS_US)
        self.snapshots = Histogram(SNAPSHOT_BOUNDS_US)
        self.snapshot_bytes = 0
        """The size of the newest."""
        self.restarts = 0
        """How often this node has come back with the state of an earlier process."""
        self.replayed_records = 0
        self.loop_lag = Histogram(LAG_BOUNDS_US)
        self.http: dict[int, int] = {}
        """Answers by status."""
        self.records_dropped: dict[str, int] = {}
        """Lines for the record files that could not be written, by kind."""

    def source(self, number: int, event_type: str) -> SourceCounts:
        """The counts of a source, new or known."""
        counts = self.sources.get(number)
        if counts is None or counts.type != event_type:
            counts = self.sources[number] = SourceCounts(event_type)
        return counts

    def take_born_between(self) -> tuple[int | None, int | None]:
        """When the first and the last event were born since this was asked before; None where there was none."""
        between = [
            (counts.born_from_us, counts.born_to_us)
            for counts in self.sources.values()
            if counts.born_from_us is not None and counts.born_to_us is not None
        ]
        for counts in self.sources.values():
            counts.born_from_us = counts.born_to_us = None
        if not between:
            return None, None
        return min(first for first, _ in between), max(last for _, last in between)

    def reported(self, counter: str, number: int) -> None:
        """The core has something to report."""
        self.reports[counter] = self.reports.get(counter, 0) + number

    def rule_failed(self, rule: str, number: int) -> None:
        self.rule_errors[rule] = self.rule_errors.get(rule, 0) + number

    def delivered_to(self, sink: int, latency_us: int | None) -> None:
        """A sink was given something, and has taken it; with a latency if that means something, as it does for live
        sources."""
        self.delivered[sink] = self.delivered.get(sink, 0) + 1
        self.taken_by(sink, 1)
        if latency_us is not None:
            histogram = self.latency.get(sink)
            if histogram is None:
                histogram = self.latency[sink] = Histogram(LATENCY_BOUNDS_US)
            histogram.observe(latency_us)

    def taken_by(self, sink: int, number: int) -> None:
        """The receiver of a sink has taken so many."""
        self.confirmed[sink] = self.confirmed.get(sink, 0) + number

    def delivered_rows(self, sink: int, number: int, latencies_us: Sequence[int]) -> None:
        """A sink was given so many; with the latency of each if that means something."""
        self.delivered[sink] = self.delivered.get(sink, 0) + number
        if latencies_us:
            histogram = self.latency.get(sink)
            if histogram is None:
                histogram = self.latency[sink] = Histogram(LATENCY_BOUNDS_US)
            for latency_us in latencies_us:
                histogram.observe(latency_us)
