"""What nodes counted: sums, peaks, gaps and rates over time, from their metrics records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.report.buckets import Buckets, bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BORN: Final = "headwater_events_born_total"
HELD: Final = "headwater_held_rows"
HELD_TOTAL: Final = "held_total"  # made here: all purposes together at one moment

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of one node's time its records cover."""

    run: str
    """The identity that stands in them; empty for what was written before the node was configured."""
    network: str
    strategy: str
    first_us: int
    last_us: int
    records: int
    starts: int
    """How often the node's process restarted between two records."""
    uncovered_us: int
    """The time between the last record of a process and the start of the next one."""
    born_from_us: int | None = None
    born_to_us: int | None = None
    """When the first and the last event were born; None where none was."""


@dataclass(slots=True)
class RunCounts:
    """Everything about one run that nodes have counted; by node."""

    sums: dict[str, dict[tuple[str, Labels], float]] = field(default_factory=lambda: defaultdict(dict))
    peaks: dict[str, dict[tuple[str, Labels], float]] = field(default_factory=lambda: defaultdict(dict))

    def sum(self, node: str, name: str) -> float:
        """A counter of a node over all its labels."""
        return sum(value for (metric, _), value in self.sums.get(node, {}).items() if metric == name)

    def by(self, node: str, name: str) -> dict[Labels, float]:
        """A counter of a node by its labels."""
        return {labels: value for (metric, labels), value in self.sums.get(node, {}).items() if metric == name}

    def peak(self, node: str, name: str) -> dict[Labels, float]:
        return {labels: value for (metric, labels), value in self.peaks.get(node, {}).items() if metric == name}


def label(labels: Labels, name: str) -> str:
    return next((value for key, value in labels if key == name), "")


def coverage(lines: DataFrame) -> tuple[dict[int, dict[str, list[Coverage]]], dict[int, int]]:
    """By run and node what its records cover, an entry for each identity that stands in them; and by run how many
    lines are no records."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.partitionBy("i", "node", "run", "whole").orderBy("time", "since")
    first_born, last_born = _born_between()
    seen = (
        lines.withColumns({"_born_from": first_born, "_born_to": last_born})
        .select("i", "node", "run", "network", "strategy", "time", "since", "whole", "_born_from", "_born_to")
        .withColumn("run", F.coalesce("run", F.lit("")))
        .withColumn("_before", F.when(F.col("whole"), F.lag("time").over(in_order)))
    )
    again = F.col("_before").isNotNull() & (F.col("since") != F.col("_before"))
    covers: dict[int, dict[str, list[Coverage]]] = defaultdict(lambda: defaultdict(list))
    bad: dict[int, int] = defaultdict(int)
    rows = (
        seen.groupBy(
            "i",
            "whole",
            F.when(F.col("whole"), F.col("node")).alias("node"),
            F.when(F.col("whole"), F.col("run")).alias("run"),
        )
        .agg(
            F.max("network").alias("network"),
            F.max("strategy").alias("strategy"),
            F.min("since").alias("first"),
            F.max("time").alias("last"),
            F.count("*").alias("records"),
            F.count(F.when(again, 1)).alias("starts"),
            F.coalesce(F.sum(F.when(again, F.greatest(F.col("since") - F.col("_before"), F.lit(0)))), F.lit(0)).alias(
                "uncovered"
            ),
            F.min("_born_from").alias("born_from"),
            F.max("_born_to").alias("born_to"),
        )
        .orderBy("i", "node", "run")
        .collect()
    )
    for row in rows:
        if not row["whole"]:
            bad[row["i"]] += row["records"]
            continue
        covers[row["i"]][row["node"]].append(
            Coverage(
                row["run"],
                row["network"] or "",
                row["strategy"] or "",
                row["first"],
                row["last"],
                row["records"],
                row["starts"],
                row["uncovered"],
                row["born_from"],
                row["born_to"],
            )
        )
    return covers, bad


def counted(lines: DataFrame, runs: Mapping[int, str]) -> dict[int, RunCounts]:
    """By run the sum of every counter and the greatest value of every gauge; only of records of the run itself.

    Bounded by nodes, links, kinds and types, however long the runs were.
    """
    from pyspark.sql import functions as F

    entry = "STRUCT<grows: BOOLEAN, name: STRING, labels: STRING, value: DOUBLE>"
    grown = F.transform(
        F.coalesce("counters", F.array()),
        lambda metric: F.struct(
            F.lit(True).alias("grows"),
            metric["name"].alias("name"),
            F.to_json(metric["labels"]).alias("labels"),
            metric["value"].alias("value"),
        ).cast(entry),
    )
    gauges = F.coalesce("gauges", F.array())
    stood = F.transform(
        gauges,
        lambda metric: F.struct(
            F.lit(False).alias("grows"),
            metric["name"].alias("name"),
            F.to_json(metric["labels"]).alias("labels"),
            metric["value"].alias("value"),
        ).cast(entry),
    )
    held = F.aggregate(
        F.filter(gauges, lambda gauge: gauge["name"] == HELD),
        F.lit(0.0),
        lambda total, gauge: total + F.coalesce(gauge["value"], F.lit(0.0)),
    )
    total = F.array(
        F.struct(
            F.lit(False).alias("grows"),
            F.lit(HELD_TOTAL).alias("name"),
            F.lit("{}").alias("labels"),
            held.alias("value"),
        ).cast(entry)
    )
    rows = (
        mine(lines, runs)
        .select("i", "node", F.explode(F.concat(grown, stood, total)).alias("each"))
        .groupBy("i", "node", "each.grows", "each.name", "each.labels")
        .agg(F.sum("each.value").alias("sum"), F.max("each.value").alias("peak"))
        .collect()
    )
    counts: dict[int, RunCounts] = defaultdict(RunCounts)
    for row in rows:
        key = (row["name"], tuple(sorted(json.loads(row["labels"] or "{}").items())))
        if row["grows"]:
            counts[row["i"]].sums[row["node"]][key] = row["sum"] or 0
        elif row["peak"] is not None:
            counts[row["i"]].peaks[row["node"]][key] = row["peak"]
    return counts


def born_over_time(
    lines: DataFrame, runs: Mapping[int, str], buckets: Mapping[int, Buckets]
) -> dict[int, dict[int, float]]:
    """By run and bucket how many events were born; what a record counts is spread evenly from the first to the last."""
    from pyspark.sql import functions as F

    first_born, last_born = _born_between()
    first, last = bucket("_first", buckets), bucket("_last", buckets)
    step = _by_run({i: buckets_of_run.step_us for i, buckets_of_run in buckets.items()})
    start = _by_run({i: buckets_of_run.start_us for i, buckets_of_run in buckets.items()})
    spans = (
        mine(lines, runs)
        .select("i", first_born.alias("_first"), last_born.alias("_last"), _born().alias("born"))
        .where((F.col("born") > 0) & (F.col("_last") >= F.col("_first")))
        .withColumn("bucket", F.explode(F.sequence(first, last)))
        .withColumn("_from", start + F.col("bucket") * step)
    )
    covered = F.least(F.col("_last"), F.col("_from") + step) - F.greatest(F.col("_first"), F.col("_from"))
    length = F.col("_last") - F.col("_first")
    share = F.when(length == 0, F.lit(1.0)).otherwise(F.greatest(covered, F.lit(0)) / length)
    rows = spans.groupBy("i", "bucket").agg(F.sum(F.col("born") * share).alias("born")).collect()
    by_bucket: dict[int, dict[int, float]] = defaultdict(dict)
    for row in rows:
        by_bucket[row["i"]][row["bucket"]] = row["born"]
    return by_bucket


def _born() -> Any:
    """How many events a record says were born."""
    from pyspark.sql import functions as F

    return F.aggregate(
        F.filter(F.coalesce("counters", F.array()), lambda counter: counter["name"] == BORN),
        F.lit(0.0),
        lambda total, counter: total + F.coalesce(counter["value"], F.lit(0.0)),
    )


def _born_between() -> tuple[Any, Any]:
    """When the first and the last event of a record were born. Records of earlier versions say only that some were."""
    from pyspark.sql import functions as F

    some = _born() > 0
    return F.coalesce("born_from", F.when(some, F.col("since"))), F.coalesce("born_to", F.when(some, F.col("time")))


def mine(lines: DataFrame, runs: Mapping[int, str]) -> DataFrame:
    """Whole lines of the run itself: what bears its identity, or none because the node was not configured yet."""
    from pyspark.sql import functions as F

    own = F.coalesce(F.col("run"), F.lit(""))
    return lines.where(F.col("whole") & ((own == "") | (own == _by_run(runs))))


def _by_run(values: Mapping[int, Any]) -> Any:
    """A column with the value of each row's run."""
    from pyspark.sql import functions as F

    return F.array(*(F.lit(values.get(i)) for i in range(max(values) + 1)))[F.col("i")]
