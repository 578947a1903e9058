"""The queries of a report on its records, which Spark or this process answers.

Whatever is worked out of the answers is worked out in one place, for both (``job`` and ``assemble``). Runs are known by
their position; ``runs`` holds the identity of each, as it stands in its records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Protocol

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.report.buckets import Buckets
from headwater.pipeline.report.latencies import RunComparison, RunDeliveries
from headwater.pipeline.report.metrics import Coverage, RunCounts
from headwater.pipeline.report.shape import Shape

Identities = Mapping[int, str]
Span = tuple[int, int]


class DeliveryReader(Protocol):
    """The matches of all runs, each delivery once. What was delivered again after a restart stands in the files twice
    under the same sink and number; the first counts."""

    def between(self, runs: Identities) -> Mapping[int, Span]:
        """By run the times of its first and its last delivery."""

    def summed(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, RunDeliveries]:
        """By run everything about its deliveries that is bounded by rules, sinks and steps of time."""

    def compared(
        self, runs: Identities, shapes: Sequence[Shape], references: Sequence[int | None], sinks: Sequence[int]
    ) -> Sequence[RunComparison]:
        """For every run, what it delivered against its reference; and what centr would have sent back to the sinks.
        ``sinks``: the greatest number of a sink in each run."""

    def lines(self, run: int) -> tuple[int, int]:
        """How many lines of matches of a run are whole, and how many are not. Asked last."""


class RunRecords(Protocol):
    """The records of all runs."""

    def __enter__(self) -> RunRecords: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def coverage(self) -> tuple[Mapping[int, Mapping[str, Sequence[Coverage]]], dict[int, int]]:
        """By run and node what its metrics cover, an entry for each identity that stands in them; and by run how many
        lines of the metrics are no records."""

    def counted(self, runs: Identities) -> Mapping[int, RunCounts]:
        """By run the sum of every counter and the greatest value of every gauge; only of records of the run itself."""

    def born_over_time(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, Mapping[int, float]]:
        """By run and step how many events were born, as the metrics say: spread evenly from the first to the last that
        a record counts."""

    def births(
        self, runs: Identities, buckets: Mapping[int, Buckets]
    ) -> tuple[Mapping[int, Mapping[int, float]], Mapping[int, Collection[str]]]:
        """By run and step how many events were born, as the births themselves say; and of which traces."""

    def deliveries(self, runs: Identities, timed: Collection[int]) -> DeliveryReader | None:
        """What sinks were given; None where no run has records of it. In runs that are ``timed`` a latency is counted
        from when the batch with the latest event became part of the trace."""

    def in_trace(self, trace: PreparedTrace) -> Mapping[tuple[str, str], int]:
        """How many events of each node and type a prepared trace has."""
