"""Reads records with Spark, of any size.

What comes back to the driver is bounded by nodes, links, kinds, types, rules, sinks and a fixed number of time steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.report import latencies as matches
from headwater.pipeline.report import metrics
from headwater.pipeline.report.buckets import Buckets, bucket
from headwater.pipeline.report.inputs import RunFiles, read_lines
from headwater.pipeline.report.latencies import RunComparison, RunDeliveries
from headwater.pipeline.report.metrics import Coverage, RunCounts, mine
from headwater.pipeline.report.reading import Identities, Span
from headwater.pipeline.report.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession


class SparkRecords:
    """Records of matches are read once and kept by Spark, narrow and each delivery once."""

    def __init__(self, spark: SparkSession, run_files: Sequence[RunFiles]) -> None:
        self._spark = spark
        self._runs = len(run_files)
        self._kept: list[DataFrame] = []
        self._lines = {
            kind: read_lines(spark, kind, [(i, files.files[kind]) for i, files in enumerate(run_files)])
            for kind in ("metrics", "births", "matches")
        }
        for kind in ("metrics", "births"):  # small beside the matches, and asked several times
            self._lines[kind] = self._keep(self._lines[kind])

    def __enter__(self) -> SparkRecords:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame | None) -> DataFrame | None:
        if frame is None:
            return None
        self._kept.append(frame.persist())
        return self._kept[-1]

    def coverage(self) -> tuple[Mapping[int, Mapping[str, Sequence[Coverage]]], dict[int, int]]:
        lines = self._lines["metrics"]
        return ({}, {}) if lines is None else metrics.coverage(lines)

    def counted(self, runs: Identities) -> Mapping[int, RunCounts]:
        lines = self._lines["metrics"]
        return {} if lines is None else metrics.counted(lines, runs)

    def born_over_time(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, Mapping[int, float]]:
        lines = self._lines["metrics"]
        return {} if lines is None else metrics.born_over_time(lines, runs, buckets)

    def births(
        self, runs: Identities, buckets: Mapping[int, Buckets]
    ) -> tuple[Mapping[int, Mapping[int, float]], Mapping[int, Collection[str]]]:
        from pyspark.sql import functions as F

        born: dict[int, dict[int, float]] = {}
        traces: dict[int, set[str]] = {}
        lines = self._lines["births"]
        if lines is None:
            return born, traces
        rows = (
            mine(lines, runs)
            .groupBy("i", bucket("time", buckets).alias("bucket"))
            .agg(
                F.sum("events").alias("events"),
                F.collect_set(F.when(F.col("trace") != "", F.col("trace"))).alias("traces"),
            )
            .collect()
        )
        for row in rows:
            born.setdefault(row["i"], {})[row["bucket"]] = float(row["events"])
            traces.setdefault(row["i"], set()).update(row["traces"])
        return born, traces

    def deliveries(self, runs: Identities, timed: Collection[int]) -> SparkDeliveries | None:
        lines, births = self._lines["matches"], self._lines["births"]
        if lines is None:
            return None
        if births is not None:
            births = births.where(births["i"].isin(sorted(timed))) if timed else None
        watched, seen = matches.watched(lines, self._runs)
        kept = self._keep(matches.deliveries(watched, births, runs))
        assert kept is not None
        return SparkDeliveries(kept, seen)

    def in_trace(self, trace: PreparedTrace) -> Mapping[tuple[str, str], int]:
        rows = trace.events(self._spark).groupBy("node", "type").count().collect()
        return {(row["node"], row["type"]): row["count"] for row in rows}


class SparkDeliveries:
    """Every delivery of every run, once."""

    def __init__(self, frame: DataFrame, seen: Observation) -> None:
        self._frame = frame
        self._seen = seen

    def between(self, runs: Identities) -> Mapping[int, Span]:
        return matches.between(self._frame, runs)

    def summed(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, RunDeliveries]:
        return matches.summed(self._frame, runs, buckets)

    def compared(
        self, runs: Identities, shapes: Sequence[Shape], references: Sequence[int | None], sinks: Sequence[int]
    ) -> Sequence[RunComparison]:
        return matches.compared(self._frame, runs, shapes, references, sinks)

    def lines(self, run: int) -> tuple[int, int]:
        counts = self._seen.get
        return counts[f"good_{run}"], counts[f"bad_{run}"]
