"""Statistics of arrivals: counts, rates, gaps and burstiness, by type and by type and node.

Two passes over the trace, each with one shuffle: one sorts and looks at the gaps between neighbours, one counts in
windows of time. What comes back grows with types and nodes, not with events.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SECOND_US: Final = 1_000_000
LADDER_US: Final = (
    1_000, 10_000, 100_000, SECOND_US, 10 * SECOND_US, 60 * SECOND_US, 600 * SECOND_US, 3_600 * SECOND_US,
    21_600 * SECOND_US, 86_400 * SECOND_US, 604_800 * SECOND_US,
)  # fmt: skip
"""Windows in which events are counted; each divides the next, so that one count serves all."""

WINDOWS_LEAST: Final = 30
"""Fewer windows than this say little about how counts spread."""

WINDOW_SIZES: Final = 3
"""Of the sizes that fit often enough, so many of the largest are used."""

SLICE_EVENTS: Final = 500_000
"""A slice of time has about so many events: a type that is most of the trace need not be sorted by one task."""

SLICES_MAX: Final = 200
"""The ends of every slice come to the driver, for each type and node."""

Place = tuple[str, str | None]
"""A type, and a node; None stands for all nodes together."""


@dataclass(frozen=True, slots=True)
class CountSpread:
    """Counts in windows of one size: their variance over their mean (1 for Poisson), and the greatest over the mean."""

    dispersion: float
    peak_to_mean: float


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How the events of one type arrive, at one node or at all."""

    events: int
    per_s: float
    variation: float | None = None
    """The coefficient of variation of the gaps (1 for Poisson, 0 for a clock); None with fewer than two gaps."""
    burstiness: float | None = None
    """After Goh and Barabasi: from -1 (a clock) over 0 (Poisson) to 1."""
    gaps: Mapping[int, int] = field(default_factory=dict)
    """How many gaps are this long, in microseconds, and shorter than the next: 0, 1, 2, 5, 10, 20, 50, .."""
    windows: Mapping[int, CountSpread] = field(default_factory=dict)
    """By the length of the windows in microseconds."""


def window_sizes(span_us: int) -> tuple[int, ...]:
    """The sizes of windows in which a trace of this length is counted."""
    return tuple(size for size in LADDER_US if span_us // size >= WINDOWS_LEAST)[-WINDOW_SIZES:]


def floor_125(gap_us: int) -> int:
    """The greatest of 0, 1, 2, 5, 10, 20, 50, .. that a gap is not below."""
    if gap_us <= 0:
        return 0
    power = int(10 ** (len(str(gap_us)) - 1))
    return power * (5 if gap_us >= 5 * power else 2 if gap_us >= 2 * power else 1)


def arrivals(events: DataFrame, first_us: int, last_us: int, many: int) -> dict[Place, Arrivals]:
    """Of all events with ``type``, ``node`` and ``ts``, ``many`` of them, in a trace of that time range."""
    span_us = last_us - first_us
    sizes = window_sizes(span_us)
    slices = max(1, min(SLICES_MAX, math.ceil(many / SLICE_EVENTS)))
    finest = sizes[0] if sizes else max(1, span_us + 1)
    slice_us = max(1, math.ceil((span_us + 1) / slices / finest)) * finest
    counted = _counted(events, first_us, span_us, (*sizes, slice_us), finest)
    gaps = _gaps(events, first_us, slice_us)
    by_place: dict[Place, Arrivals] = {}
    for place, (ends, spreads) in counted.items():
        total = sum(count for count, _, _ in ends)
        between = [after[1] - before[2] for before, after in pairwise(sorted(ends, key=lambda end: end[1]))]
        spread = dict(sorted(spreads.items()))
        variation, burstiness, histogram = _of_gaps(gaps.get(place, []), between)
        per_s = total / (span_us / SECOND_US) if span_us else 0.0
        by_place[place] = Arrivals(total, per_s, variation, burstiness, histogram, spread)
    return by_place


def _spread(total: int, squares: float, most: int, windows: int) -> CountSpread:
    mean = total / windows
    return CountSpread((squares / windows - mean**2) / mean, most / mean)


def _of_gaps(
    rows: Iterable[tuple[int, int, float, float]], between: Iterable[int]
) -> tuple[float | None, float | None, dict[int, int]]:
    """Variation, burstiness and histogram of the gaps within slices and of those between slices."""
    histogram: dict[int, int] = {}
    number, length, squares = 0, 0.0, 0.0
    for floor, count, sums, of_squares in rows:
        histogram[floor] = histogram.get(floor, 0) + count
        number, length, squares = number + count, length + sums, squares + of_squares
    for gap in between:
        histogram[floor_125(gap)] = histogram.get(floor_125(gap), 0) + 1
        seconds = gap / SECOND_US
        number, length, squares = number + 1, length + seconds, squares + seconds**2
    histogram = dict(sorted(histogram.items()))
    if number < 2 or not length:
        return None, None, histogram
    mean = length / number
    deviation = math.sqrt(max(0.0, squares / number - mean**2))
    return deviation / mean, (deviation - mean) / (deviation + mean), histogram


def _counted(
    events: DataFrame, first_us: int, span_us: int, sizes: tuple[int, ...], finest: int
) -> dict[Place, tuple[list[tuple[int, int, int]], dict[int, CountSpread]]]:
    """By place: count, first and last time of each slice (the last of the sizes), and how counts spread in windows of
    every other size: in whole ones, as the end of the trace mostly cuts the last one short."""
    from pyspark.sql import functions as F

    slot = F.expr(f"(ts - {first_us}) div {finest}")
    fine = events.groupBy("type", "node", slot.alias("slot")).agg(
        F.count("*").alias("count"), F.min("ts").alias("first"), F.max("ts").alias("last")
    )
    levels = F.explode(
        F.array(
            *(
                F.struct(F.lit(level).alias("level"), F.expr(f"slot div {size // finest}").alias("at"))
                for level, size in enumerate(sizes)
            )
        )
    )
    slices = len(sizes) - 1
    whole = [(span_us + 1) // size for size in sizes]
    is_whole = F.col("at") < F.array(*map(F.lit, whole))[F.col("level")]
    kept_slice = F.when(F.col("level") == slices, F.col("at"))
    rows = (
        _twice(fine)
        .select("type", "place", "count", "first", "last", levels.alias("of"))
        .select("type", "place", "count", "first", "last", "of.*")
        .groupBy("type", "place", "level", "at")
        .agg(F.sum("count").alias("count"), F.min("first").alias("first"), F.max("last").alias("last"))
        .where((F.col("level") == slices) | is_whole)
        .groupBy("type", "place", "level", kept_slice.alias("slice"))
        .agg(
            F.sum("count").alias("count"),
            F.sum(F.col("count").cast("double") * F.col("count")).alias("squares"),
            F.max("count").alias("most"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
        .collect()
    )
    by_place: dict[Place, tuple[list[tuple[int, int, int]], dict[int, CountSpread]]] = {}
    for row in rows:
        ends, spreads = by_place.setdefault((row["type"], row["place"]), ([], {}))
        if row["level"] == slices:
            ends.append((row["count"], row["first"], row["last"]))
        else:
            level = row["level"]
            spreads[sizes[level]] = _spread(row["count"], row["squares"], row["most"], whole[level])
    return by_place


def _gaps(events: DataFrame, first_us: int, slice_us: int) -> dict[Place, list[tuple[int, int, float, float]]]:
    """By place: for every class of gaps within slices its least, how many there are, their sum and sum of squares."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    sliced = events.select("type", "node", "ts", F.expr(f"(ts - {first_us}) div {slice_us}").alias("slice"))
    # The second window divides what the first has brought together, so the events are shuffled once.
    of_type = Window.partitionBy("type", "slice").orderBy("ts")
    at_node = Window.partitionBy("type", "slice", "node").orderBy("ts")
    seen = sliced.withColumn("of_type", F.col("ts") - F.lag("ts").over(of_type)).withColumn(
        "at_node", F.col("ts") - F.lag("ts").over(at_node)
    )
    both = F.explode(
        F.array(
            F.struct(F.lit(None).cast("string").alias("place"), F.col("of_type").alias("gap")),
            F.struct(F.col("node").alias("place"), F.col("at_node").alias("gap")),
        )
    )
    seconds = F.col("gap") / F.lit(float(SECOND_US))
    rows = (
        seen.select("type", both.alias("of"))
        .select("type", "of.*")
        .where("gap is not null")
        .groupBy("type", "place", _floor_125(F.col("gap")).alias("floor"))
        .agg(F.count("*").alias("count"), F.sum(seconds).alias("sum"), F.sum(seconds * seconds).alias("squares"))
        .collect()
    )
    by_place: dict[Place, list[tuple[int, int, float, float]]] = {}
    for row in rows:
        by_place.setdefault((row["type"], row["place"]), []).append(
            (row["floor"], row["count"], row["sum"], row["squares"])
        )
    return by_place


def _twice(counts: DataFrame) -> DataFrame:
    """Every row for its own node, and once more for all nodes together."""
    from pyspark.sql import functions as F

    return counts.withColumn("place", F.explode(F.array(F.col("node"), F.lit(None).cast("string"))))


def _floor_125(gap: Column) -> Any:
    """`floor_125` as a Spark expression: in whole numbers, so that no rounding moves a gap over a bound."""
    from pyspark.sql import functions as F

    text = gap.cast("string")
    power = F.rpad(F.lit("1"), F.length(text), "0").cast("long")
    lead = F.substring(text, 1, 1).cast("int")
    first = F.when(lead >= 5, 5).when(lead >= 2, 2).otherwise(1)
    return F.when(gap <= 0, F.lit(0).cast("long")).otherwise(power * first)
