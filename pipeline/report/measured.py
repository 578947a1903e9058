"""One recorded run, summed up: what the tables of a report are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.pipeline.report.buckets import Buckets
from headwater.pipeline.report.inputs import Recorded
from headwater.pipeline.report.latencies import RunComparison, RunDeliveries
from headwater.pipeline.report.metrics import Coverage, RunCounts


@dataclass(frozen=True, slots=True)
class Spans:
    """From when to when, in microseconds."""

    recorded_us: tuple[int, int]
    """Its metrics cover; where there are none, its deliveries."""
    active_us: tuple[int, int] | None
    """From the first to the last event that was born: what rates are over, so that the same events have the same rate
    however long the network went on. None where none was."""
    busy_us: tuple[int, int]
    """From the first to the last event that was born or delivered: what is drawn over time."""

    @property
    def active_s(self) -> float | None:
        return None if self.active_us is None else (self.active_us[1] - self.active_us[0]) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One run, summed up."""

    run: Recorded
    identity: str
    spans: Spans
    buckets: Buckets
    coverage: Mapping[str, Sequence[Coverage]]
    counted: RunCounts
    born: Mapping[int, float]
    delivered: RunDeliveries
    compared: RunComparison | None
    reference: int | None
    lines_bad: int
    lines_repeated: int
    has_births: bool
