"""Samples stretches of time, and estimates the whole trace from them.

Time is cut into stretches of equal length, some of which are drawn without replacement. A combination of events belongs
to the stretch of its first role's event, so every one has the same chance to be counted and estimates are unbiased.
Events beside a drawn stretch are read as far as a combination can reach. Intervals come from how the drawn stretches
differ, and so allow for what comes in bursts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STRETCHES_MAX: Final = 2_000
"""Their sums come to the driver, each as a row."""

DRAWN_LEAST: Final = 20
"""Fewer stretches than this tell too little of how they differ."""

NONE_SEEN: Final = 3.0
"""Where n draws found nothing, up to this many in n may still be there, with a confidence of 95 %."""

_STUDENT_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % confidence interval; both ends are the figure where everything was counted."""

    value: float
    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def scaled(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def exactly(value: float) -> Estimate:
    return Estimate(value, value, value)


@dataclass(frozen=True)
class Stretches:
    """A trace cut into ``number`` stretches; those at the first ``drawn`` places of ``order`` are looked at."""

    first_us: int
    length_us: int
    number: int
    drawn: int
    order: tuple[int, ...]

    @property
    def whole(self) -> bool:
        return self.drawn >= self.number

    @property
    def share(self) -> float:
        return min(1.0, self.drawn / self.number)

    def at(self, share: float) -> Stretches:
        """A smaller or larger part of the same stretches; what a smaller one looks at a larger one does, too."""
        drawn = self.number if share >= 1 else min(self.number, max(DRAWN_LEAST, math.ceil(share * self.number)))
        return Stretches(self.first_us, self.length_us, self.number, drawn, self.order)

    def marked(self, spark: SparkSession, events: DataFrame, reach_us: int) -> DataFrame:
        """The events that matter, with the stretch that each lies in: null where it is only beside a drawn one."""
        from pyspark.sql import functions as F

        stretch = F.expr(f"(ts - {self.first_us}) div {self.length_us}")
        if self.whole:
            return events.withColumn("stretch", F.lit(0).cast("long"))
        assert reach_us <= self.length_us
        chosen = sorted(self.order[: self.drawn])
        near = {at + by for at in chosen for by in (-1, 0, 1)}
        # A stretch beside drawn ones is kept as far as these reach into it.
        rows = [(at, at in chosen, at - 1 in chosen, at + 1 in chosen) for at in sorted(near)]
        kept = spark.createDataFrame(rows, "at long, core boolean, after boolean, before boolean")
        since = F.col("ts") - (F.lit(self.first_us) + F.col("at") * F.lit(self.length_us))
        close = (
            F.col("core")
            | (F.col("after") & (since <= reach_us))
            | (F.col("before") & (since >= self.length_us - reach_us))
        )
        return (
            events.withColumn("at", stretch)
            .join(F.broadcast(kept), "at")
            .where(close)
            .withColumn("stretch", F.when(F.col("core"), F.col("at")))
            .drop("at", "core", "after", "before")
        )

    # What the drawn stretches tell ----------------------------------------------------------------------------------

    def total(self, counts: Mapping[int, float]) -> Estimate:
        """How many there are in the whole trace, by how many were found in each stretch."""
        seen = math.fsum(counts.values())
        if self.whole:
            return exactly(seen)
        per = seen / self.drawn
        if not seen:
            return Estimate(0.0, 0.0, NONE_SEEN * self.number / self.drawn)
        squares = math.fsum((value - per) ** 2 for value in counts.values()) + (self.drawn - len(counts)) * per**2
        half = self._quantile() * self.number * math.sqrt(self._left() * squares / (self.drawn - 1) / self.drawn)
        value = per * self.number
        return Estimate(value, max(seen, value - half), value + half)

    def ratio(self, passed: Mapping[int, float], of: Mapping[int, float]) -> Estimate | None:
        """The share that passed; None where there was nothing to pass."""
        parts, whole = math.fsum(passed.values()), math.fsum(of.values())
        if not whole:
            return None
        if self.whole:
            return exactly(parts / whole)
        value = parts / whole
        if not parts:
            return Estimate(0.0, 0.0, min(1.0, NONE_SEEN / sum(1 for count in of.values() if count)))
        squares = math.fsum((passed.get(at, 0.0) - value * of.get(at, 0.0)) ** 2 for at in {*passed, *of})
        half = self._quantile() * math.sqrt(self._left() * squares * self.drawn / (self.drawn - 1)) / whole
        return Estimate(value, max(0.0, value - half), min(1.0, value + half))

    def _left(self) -> float:
        """What sampling without replacement leaves of the variance."""
        return 1 - self.drawn / self.number

    def _quantile(self) -> float:
        return _STUDENT_95[self.drawn - 2] if self.drawn - 2 < len(_STUDENT_95) else 1.96


def stretches(first_us: int, last_us: int, reach_us: int, seed: int) -> Stretches:
    """A trace in stretches that are no shorter than combinations reach, all of them drawn."""
    span_us = last_us - first_us + 1
    length_us = max(1, reach_us, math.ceil(span_us / STRETCHES_MAX))
    number = math.ceil(span_us / length_us)
    order = list(range(number))
    random.Random(seed).shuffle(order)
    return Stretches(first_us, length_us, number, number, tuple(order))
