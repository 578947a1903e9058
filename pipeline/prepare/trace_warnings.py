"""Warnings about a trace that is being prepared: suspicious times, names, texts and nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.prepare.descriptions import UNITS, Description, NumberTime
from headwater.pipeline.prepare.prepared_trace import NodeSummary, TypeSummary
from headwater.pipeline.prepare.shaping import SOURCE
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

DAY_US: Final = 86_400_000_000
YEAR_US: Final = 365 * DAY_US
EARLIEST_US: Final = 15 * YEAR_US  # 1985: times before it and after 2100 are taken for times in another unit
LATEST_US: Final = 131 * YEAR_US
FAR_DAYS: Final = 30  # an empty stretch as long as this, and longer than all the rest, is a clock that jumped
NO_UTF_8: Final = "\ufffd"  # what Spark reads in place of bytes that are none
SKEW_MOST: Final = 0.9  # of all events at one node, above which it is named


def check_times(spans: Sequence[Row], counts: DataFrame, description: Description | None) -> tuple[str, ...]:
    """Raise what cannot be right about the times of the sources; what may be wrong, as sentences."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    for row in sorted(spans, key=lambda row: row[SOURCE]):
        time = description.sources[row[SOURCE]].time if description is not None else None
        if isinstance(time, NumberTime) and time.epoch and row["beyond"]:
            raise ConfigError(f"source {row[SOURCE] + 1}: {_wrong_times(row, time)}")
    if all(row["last"] - row["first"] <= FAR_DAYS * DAY_US for row in spans):
        return ()
    warnings = []
    days = counts.groupBy(SOURCE, "_day").agg(F.sum("events").alias("events"))
    in_order = Window.partitionBy(SOURCE).orderBy("_day")
    gaps = days.select(
        SOURCE,
        "_day",
        F.lag("_day").over(in_order).alias("_before"),
        F.coalesce(F.sum("events").over(in_order.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)).alias(
            "earlier"
        ),
        F.sum("events").over(in_order.rowsBetween(0, Window.unboundedFollowing)).alias("later"),
        F.count("*").over(Window.partitionBy(SOURCE)).alias("_days"),
    )
    far = gaps.where(
        (F.col("_day") - F.col("_before") > FAR_DAYS) & (F.col("_day") - F.col("_before") > 10 * F.col("_days"))
    )
    for row in far.orderBy(SOURCE, "_day").limit(5).collect():
        few, side = (row["earlier"], "before") if row["earlier"] < row["later"] else (row["later"], "from")
        warnings.append(
            f"source {row[SOURCE] + 1}: {few:,} event{'s lie' if few != 1 else ' lies'} {side} "
            f"{moment(row['_day'] * DAY_US)}, with {row['_day'] - row['_before']:,} days of nothing between this and "
            "the rest; a clock may have jumped"
        )
    return tuple(warnings)


def _wrong_times(row: Any, time: NumberTime) -> str:
    """What is wrong with times that lie before 1985 or after 2100, and what to do about it."""
    ends = f"from {moment(row['first'])} to {moment(row['last'])}"
    if row["beyond"] < row["events"]:
        return (
            f"read as {time.unit} since 1970, {row['beyond']:,} of {row['events']:,} times {time.value} lie before "
            f"1985 or after 2100 (they run {ends}): a clock has jumped, or they are in another unit; leave these rows "
            "out with where:, or describe them as another source"
        )
    likely = [
        unit
        for unit, factor in UNITS.items()
        if all(EARLIEST_US <= end * factor // UNITS[time.unit] <= LATEST_US for end in (row["first"], row["last"]))
    ]
    cure = f"they look like {likely[0]}" if likely else "write epoch: no if they do not count from 1970"
    return f"read as {time.unit} since 1970, the times {time.value} run {ends}; {cure}"


def moment(ts: int) -> str:
    try:
        return datetime.fromtimestamp(ts / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return f"the year {1970 + ts // YEAR_US:,}"


def doubts(
    types: Mapping[str, TypeSummary], nodes: Mapping[str, NodeSummary], odd_texts: Mapping[str, int]
) -> Iterator[str]:
    """What may not be meant: types that no rule can name, lost letters, and nearly everything born at one node.

    ``odd_texts``: by attribute the values that hold NO_UTF_8.
    """
    total = sum(summary.events for summary in types.values())
    unnamed = [name for name in types if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if unnamed:
        named = ", ".join(map(repr, unnamed[:5])) + (", .." if len(unnamed) > 5 else "")
        yield f"no rule can name the types {named}; make them of letters, digits and _ in type: of the description"
    if any(NO_UTF_8 in name for name in (*types, *nodes)):
        yield "names of types or nodes have bytes in them that are not UTF-8; write the files in UTF-8"
    for name, odd in odd_texts.items():
        if odd:
            yield (
                f"{plural(odd, 'value')} of {name} {'have' if odd != 1 else 'has'} {NO_UTF_8} in place of "
                "bytes that are not UTF-8; write the files in UTF-8"
            )
    name, most = max(nodes.items(), key=lambda pair: pair[1].events)
    if most.events > SKEW_MOST * total:
        share = "all" if most.events == total else f"{most.events / total:.1%} of the"
        yield f"{share} events are born at {name}; if that is not meant, look at node: in the description"
