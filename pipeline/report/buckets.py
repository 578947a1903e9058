"""Buckets of time, so that a run of any length is drawn with a bounded number of points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

BUCKETS_MAX: Final = 120  # of each run: more points than a person can tell apart
STEPS_US: Final = tuple(
    round(seconds * 1_000_000)
    for seconds in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900)
)
"""Lengths of a step that people like to read; beyond them a step is a multiple of an hour."""

HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Buckets:
    """From ``start_us`` on, ``number`` steps of ``step_us``."""

    start_us: int
    step_us: int
    number: int

    @classmethod
    def over(cls, start_us: int, end_us: int) -> Buckets:
        """Steps that cover a time, at most BUCKETS_MAX of them."""
        length = max(1, end_us - start_us)
        hours = -(-length // (BUCKETS_MAX * HOUR_US)) * HOUR_US
        step = next((step_us for step_us in STEPS_US if length <= step_us * BUCKETS_MAX), hours)
        return cls(start_us, step, -(-length // step))

    def at(self, us: int) -> int:
        """Into which step a time falls; what lies outside counts as the first or the last."""
        return max(0, min((us - self.start_us) // self.step_us, self.number - 1))


def bucket(column: str, buckets: Mapping[int, Buckets]) -> Column:
    """As ``Buckets.at`` on Spark: into which step of its run (column ``i``) a time falls."""
    from pyspark.sql import functions as F

    most = range(max(buckets) + 1)
    none = Buckets(0, 1, 1)
    start = F.array(*(F.lit(buckets.get(i, none).start_us) for i in most))[F.col("i")]
    step = F.array(*(F.lit(buckets.get(i, none).step_us) for i in most))[F.col("i")]
    last = F.array(*(F.lit(buckets.get(i, none).number - 1) for i in most))[F.col("i")]
    bucket_number = F.floor((F.col(column) - start) / step)
    return F.greatest(F.lit(0), F.least(bucket_number, last)).cast("int")
