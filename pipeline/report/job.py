"""The whole analysis of recorded runs on Spark: records in, tables out.

Records of matches are read once and kept by Spark, narrow and each delivery once; everything that comes back to the
driver is bounded by nodes, links, kinds, types, rules, sinks and a fixed number of steps of time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.prepared import Prepared
from pipeline.report.assemble import Measured, assemble
from pipeline.report.buckets import Buckets, bucket
from pipeline.report.identity import chosen_run
from pipeline.report.inputs import Found, Note, Recorded, find_files, read_lines
from pipeline.report.matches import Compared, Delivered, compared, deliveries, summed, watched
from pipeline.report.metrics import Counted, born_over_time, counted, coverage, mine
from pipeline.report.shape import Shape
from pipeline.report.tables import Tables, write_tables
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]

RUNS_MAX: Final = 50  # side by side: more columns than anybody reads


def check_runs(runs: Sequence[Recorded]) -> list[Found]:
    """The files of every run; ConfigErrors before Spark is started."""
    if not runs:
        raise ConfigError("name at least one run: the folder that headwater up or simulate --record has made")
    if len(runs) > RUNS_MAX:
        raise ConfigError(f"{len(runs)} runs are more than a report shows ({RUNS_MAX}); make several reports")
    return [find_files(run) for run in runs]


def report_tables(
    spark: SparkSession,
    runs: Sequence[Recorded],
    folder: Path | None = None,
    *,
    trace: Prepared | None = None,
    tell: Tell = lambda text: None,
) -> Tables:
    """All tables of a report on these runs; written to the folder if one is given."""
    found = check_runs(runs)
    notes = [note for each in found for note in each.notes]
    tell(f"reading the metrics of {len(runs)} run{'s' * (len(runs) != 1)}")
    metrics = read_lines(spark, "metrics", [(i, each.files["metrics"]) for i, each in enumerate(found)])
    births = read_lines(spark, "births", [(i, each.files["births"]) for i, each in enumerate(found)])
    matches = read_lines(spark, "matches", [(i, each.files["matches"]) for i, each in enumerate(found)])
    if metrics is not None:
        metrics = metrics.persist()
    covers, bad = ({}, {}) if metrics is None else coverage(metrics)
    identities: dict[int, str] = {}
    for i, run in enumerate(runs):
        identities[i], more = chosen_run(run, covers.get(i, {}))
        notes += more
    sums: Mapping[int, Counted] = {} if metrics is None else counted(metrics, identities)
    spans = _spans(runs, covers, identities, matches)
    buckets = {i: Buckets.over(*spans[i]) for i in range(len(runs))}
    born: dict[int, dict[int, float]] = {}
    with_births = {i for i, each in enumerate(found) if each.files["births"]}
    if metrics is not None:
        if len(with_births) < len(runs):
            born = born_over_time(metrics, identities, buckets)
        metrics.unpersist()
    if births is not None:
        births = births.persist()  # small beside the events, and asked three times
        told, traces = _born(births, identities, buckets)
        born = {i: each for i, each in born.items() if i not in with_births} | told
        runs = [_of_trace(run, traces.get(i, ()), notes) for i, run in enumerate(runs)]
    delivered: Mapping[int, Delivered] = {}
    comparison: Sequence[Compared | None] = [None] * len(runs)
    references = _references([run.shape for run in runs], sums)
    repeated: dict[int, int] = {}
    if matches is not None:
        tell("reading the matches")
        replayed = [i for i in sorted(with_births) if runs[i].shape.replayed]
        timed = births.where(births["i"].isin(replayed)) if births is not None and replayed else None
        lines, seen = watched(matches, len(runs))
        kept = deliveries(lines, timed, identities).persist()
        try:
            delivered = summed(kept, identities, buckets)
            tell("comparing what was delivered")
            most = [max(delivered[i].sinks, default=0) if i in delivered else 0 for i in range(len(runs))]
            comparison = compared(kept, identities, [run.shape for run in runs], references, most)
        finally:
            kept.unpersist()
        counts = seen.get
        for i in range(len(runs)):
            bad[i] = bad.get(i, 0) + counts[f"bad_{i}"]
            once = sum(sink[0] for sink in delivered[i].sinks.values()) + sum(delivered[i].strangers.values())
            repeated[i] = counts[f"good_{i}"] - once
    if births is not None:
        births.unpersist()
    events: dict[tuple[str, str], int] | None = None
    if trace is not None:
        tell(f"counting {trace.manifest.events:,} events of the trace")
        rows = trace.events(spark).groupBy("node", "type").count().collect()
        events = {(row["node"], row["type"]): row["count"] for row in rows}
    measured = [
        Measured(
            run=run,
            identity=identities[i],
            span_us=spans[i],
            buckets=buckets[i],
            coverage=covers.get(i, {}),
            counted=sums.get(i, Counted()),
            born=born.get(i, {}),
            delivered=delivered.get(i, Delivered()),
            compared=comparison[i],
            reference=references[i],
            lines_bad=bad.get(i, 0),
            lines_repeated=repeated.get(i, 0),
            has_births=bool(found[i].files["births"]),
        )
        for i, run in enumerate(runs)
    ]
    tables = assemble(measured, notes, events, None if trace is None else trace.manifest)
    if folder is not None:
        write_tables(tables, folder)
    return tables


def _spans(
    runs: Sequence[Recorded],
    covers: Mapping[int, Mapping[str, Sequence[object]]],
    identities: Mapping[int, str],
    matches: DataFrame | None,
) -> list[tuple[int, int]]:
    """From when to when each run was recorded: as its metrics say, or as its deliveries do where there are none."""
    from pyspark.sql import functions as F

    from pipeline.report.metrics import Coverage

    spans: dict[int, tuple[int, int]] = {}
    for i in range(len(runs)):
        known = [
            cover
            for each in covers.get(i, {}).values()
            for cover in each
            if isinstance(cover, Coverage) and cover.run in ("", identities[i])
        ]
        if known:
            spans[i] = (min(cover.first_us for cover in known), max(cover.last_us for cover in known))
    if len(spans) < len(runs) and matches is not None:
        rows = (
            mine(matches, identities)
            .groupBy("i")
            .agg(F.min("delivered").alias("a"), F.max("delivered").alias("b"))
            .collect()
        )
        for row in rows:
            spans.setdefault(row["i"], (row["a"], row["b"]))
    return [spans.get(i, (0, 1)) for i in range(len(runs))]


def _born(
    births: DataFrame, identities: Mapping[int, str], buckets: Mapping[int, Buckets]
) -> tuple[dict[int, dict[int, float]], dict[int, set[str]]]:
    """By run and step of time how many events were born, as the births themselves say; and of which traces."""
    from pyspark.sql import functions as F

    found: dict[int, dict[int, float]] = {}
    traces: dict[int, set[str]] = {}
    trace = F.when(F.col("trace") != "", F.col("trace"))
    rows = (
        mine(births, identities)
        .groupBy("i", bucket("time", buckets).alias("bucket"))
        .agg(F.sum("events").alias("events"), F.min(trace).alias("one"), F.max(trace).alias("other"))
        .collect()
    )
    for row in rows:
        found.setdefault(row["i"], {})[row["bucket"]] = float(row["events"])
        traces.setdefault(row["i"], set()).update(each for each in (row["one"], row["other"]) if each is not None)
    return found, traces


def _of_trace(run: Recorded, traces: Collection[str], notes: list[Note]) -> Recorded:
    """The run with the checksum of the trace that its births speak of."""
    if len(traces) > 1:
        notes.append(
            Note(run.label, f"events of {len(traces)} different traces were replayed: {', '.join(sorted(traces))}")
        )
    if len(traces) != 1:
        return run
    return replace(run, shape=replace(run.shape, trace=next(iter(traces))))


def _references(shapes: Sequence[Shape], sums: Mapping[int, Counted]) -> list[int | None]:
    """For each run the one that it is compared with: centr over the same events, or else the first of them.

    Runs have the same events if they say so, or if they replay traces and as many events of each type were born at each
    node. Runs of live sources have nothing in common.
    """
    inputs = []
    for i, shape in enumerate(shapes):
        named = shape.input
        if not named and shape.replayed and i in sums:
            named = str(
                sorted((node, sorted(sums[i].by(node, "headwater_events_born_total").items())) for node in shape.nodes)
            )
        inputs.append((shape.nodes, shape.sinks, shape.rules, named) if named else None)
    found: list[int | None] = []
    for i, own in enumerate(inputs):
        alike = [other for other, theirs in enumerate(inputs) if own is not None and theirs == own]
        first = next((each for each in alike if shapes[each].strategy == "centr"), alike[0] if alike else i)
        found.append(first if first != i else None)
    return found
