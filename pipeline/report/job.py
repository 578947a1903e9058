"""The whole analysis of recorded runs, from records to tables; the same on Spark and without it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.report.assemble import assemble
from headwater.pipeline.report.buckets import Buckets
from headwater.pipeline.report.in_process import RecordsInProcess
from headwater.pipeline.report.inputs import Recorded, ReportNote, RunFiles, find_files
from headwater.pipeline.report.latencies import RunComparison, RunDeliveries
from headwater.pipeline.report.measured import MeasuredRun, Spans
from headwater.pipeline.report.metrics import Coverage, RunCounts
from headwater.pipeline.report.on_spark import SparkRecords
from headwater.pipeline.report.reading import RunRecords
from headwater.pipeline.report.run_identity import chosen_run
from headwater.pipeline.report.shape import Shape
from headwater.pipeline.report.tables import Tables, write_tables
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import CENTRAL
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]

RUNS_MAX: Final = 50  # side by side: more columns than a person reads
IN_PROCESS_BYTES_MAX: Final = 64 << 20  # records that one process reads about as fast as Spark starts; more go to Spark


def check_runs(runs: Sequence[Recorded]) -> list[RunFiles]:
    """The files of every run; ConfigErrors before Spark is started."""
    if not runs:
        raise ConfigError("name at least one run: the folder that headwater up or simulate --record has made")
    if len(runs) > RUNS_MAX:
        raise ConfigError(f"{len(runs)} runs are more than a report shows ({RUNS_MAX}); make several reports")
    return [find_files(run) for run in runs]


def report_tables(
    spark: SparkSession | None,
    runs: Sequence[Recorded],
    folder: Path | None = None,
    *,
    trace: PreparedTrace | None = None,
    tell: Tell = lambda text: None,
) -> Tables:
    """All tables of a report on these runs; written to the folder if one is given. Without Spark this process reads all
    records into memory."""
    run_files = check_runs(runs)
    tell(f"reading the metrics of {plural(len(runs), 'run')}")
    with RecordsInProcess(run_files) if spark is None else SparkRecords(spark, run_files) as records:
        tables = _tables(records, run_files, runs, trace, tell)
    if folder is not None:
        write_tables(tables, folder)
    return tables


def _tables(
    records: RunRecords,
    run_files: Sequence[RunFiles],
    runs: Sequence[Recorded],
    trace: PreparedTrace | None,
    tell: Tell,
) -> Tables:
    notes = [note for files in run_files for note in files.notes]
    covers, bad = records.coverage()
    identities: dict[int, str] = {}
    for i, run in enumerate(runs):
        identities[i], more = chosen_run(run, covers.get(i, {}))
        notes += more
    sums = records.counted(identities)
    with_births = {i for i, files in enumerate(run_files) if files.files["births"]}
    if any(files.files["matches"] for files in run_files):
        tell("reading the matches")
    kept = records.deliveries(identities, {i for i in with_births if runs[i].shape.replayed})
    spans = _spans(covers, identities, {} if kept is None else kept.between(identities), len(runs))
    buckets = {i: Buckets.over(*span.busy_us) for i, span in enumerate(spans)}
    born: Mapping[int, Mapping[int, float]] = {}
    if len(with_births) < len(runs):
        born = records.born_over_time(identities, buckets)
    if with_births:
        recorded_births, traces = records.births(identities, buckets)
        born = {i: by_bucket for i, by_bucket in born.items() if i not in with_births} | dict(recorded_births)
        runs = [_of_trace(run, traces.get(i, ()), notes) for i, run in enumerate(runs)]
    delivered: Mapping[int, RunDeliveries] = {}
    comparison: Sequence[RunComparison | None] = [None] * len(runs)
    references = _references([run.shape for run in runs], sums)
    repeated: dict[int, int] = {}
    if kept is not None:
        delivered = kept.summed(identities, buckets)
        tell("comparing what was delivered")
        most = [max(delivered[i].sinks, default=0) if i in delivered else 0 for i in range(len(runs))]
        comparison = kept.compared(identities, [run.shape for run in runs], references, most)
        for i in range(len(runs)):
            whole, cut = kept.lines(i)
            bad[i] = bad.get(i, 0) + cut
            repeated[i] = whole - _distinct(delivered.get(i, RunDeliveries()))
    events = None if trace is None else _counted(records, trace, tell)
    measured = [
        MeasuredRun(
            run=run,
            identity=identities[i],
            spans=spans[i],
            buckets=buckets[i],
            coverage=covers.get(i, {}),
            counted=sums.get(i, RunCounts()),
            born=born.get(i, {}),
            delivered=delivered.get(i, RunDeliveries()),
            compared=comparison[i],
            reference=references[i],
            lines_bad=bad.get(i, 0),
            lines_repeated=repeated.get(i, 0),
            has_births=i in with_births,
        )
        for i, run in enumerate(runs)
    ]
    return assemble(measured, notes, events, None if trace is None else trace.manifest)


def _distinct(delivered: RunDeliveries) -> int:
    """How many deliveries there are, however often each was written."""
    return sum(sink[0] for sink in delivered.sinks.values()) + sum(delivered.strangers.values())


def _counted(records: RunRecords, trace: PreparedTrace, tell: Tell) -> Mapping[tuple[str, str], int]:
    tell(f"counting {trace.manifest.events:,} events of the trace")
    return records.in_trace(trace)


def _spans(
    covers: Mapping[int, Mapping[str, Sequence[Coverage]]],
    identities: Mapping[int, str],
    deliveries: Mapping[int, tuple[int, int]],
    number: int,
) -> list[Spans]:
    """When each run was recorded, when events were born in it, and when anything was born or delivered."""
    all_spans = []
    for i in range(number):
        own_covers = [
            cover for of_node in covers.get(i, {}).values() for cover in of_node if cover.run in ("", identities[i])
        ]
        delivered = deliveries.get(i)
        recorded = (
            (min(cover.first_us for cover in own_covers), max(cover.last_us for cover in own_covers))
            if own_covers
            else delivered
        ) or (0, 1)
        born = [
            (cover.born_from_us, cover.born_to_us)
            for cover in own_covers
            if cover.born_from_us is not None and cover.born_to_us is not None
        ]
        active = (min(first for first, _ in born), max(last for _, last in born)) if born else None
        ends = [span for span in (active, delivered) if span is not None]
        busy = (min(first for first, _ in ends), max(last for _, last in ends)) if ends else recorded
        all_spans.append(Spans(recorded, active, busy))
    return all_spans


def _of_trace(run: Recorded, traces: Collection[str], notes: list[ReportNote]) -> Recorded:
    """The run with the checksum of the trace that its births name."""
    if len(traces) > 1:
        notes.append(
            ReportNote(
                run.label, f"events of {len(traces)} different traces were replayed: {', '.join(sorted(traces))}"
            )
        )
    if len(traces) != 1:
        return run
    return replace(run, shape=replace(run.shape, trace=next(iter(traces))))


def _references(shapes: Sequence[Shape], sums: Mapping[int, RunCounts]) -> list[int | None]:
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
    references: list[int | None] = []
    for i, own in enumerate(inputs):
        alike = [other for other, theirs in enumerate(inputs) if own is not None and theirs == own]
        first = next(
            (candidate for candidate in alike if shapes[candidate].strategy == CENTRAL), alike[0] if alike else i
        )
        references.append(first if first != i else None)
    return references
