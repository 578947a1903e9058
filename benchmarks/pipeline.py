"""How fast ``traces``, ``statistics`` and ``report`` go through ten million events, beside a bare Spark job.

    python -m benchmarks.pipeline [--events 10000000] [--rounds 3] [--memory 4g] [--only traces,report]

The bare job reads the input of the command with its types already known, sorts it by node and time, and writes it as
Parquet partitioned by node: the least that anything on Spark could do with all of it. Both run in the same session, one
after the other, and take turns in being first; ratios are of one round. What each must have gone through is counted
after the clock has stopped, and a wrong count ends the run. CPU seconds are those of Spark's process and of this one,
with compiling and the collection of garbage: on a machine that others use, too, they say more than the clock.

- *traces*: raw files (CSV, and the same as Parquet) to a prepared trace: typed, sorted, numbered, summed and counted.
- *statistics*: a prepared trace to rates, gaps, burstiness, and what a rule of three events asks of it.
- *report*: the records of a run over so many events, with a match for every tenth and for each of them, and the trace,
  to tables and the page. The bare job sorts and writes all records, and does not look at the trace.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.network_kit import a_folder, cpu_s, load
from headwater.deploy.cli.statistics_task import ROLES_MAX, task_of
from headwater.deploy.reporting.groups import grouped
from headwater.deploy.reporting.page import page
from headwater.pipeline.generate.generate import generated_events
from headwater.pipeline.generate.model import Attribute, Choice, GeneratedStream, Generation, Normal, Uniform
from headwater.pipeline.prepare.descriptions import ByValue, Description, Files, KeptAttribute, NumberTime, RawSource
from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.prepare.traces import prepare
from headwater.pipeline.report.inputs import Recorded, schema_of
from headwater.pipeline.report.job import report_tables
from headwater.pipeline.report.synthetic import synthetic_run
from headwater.pipeline.report.tables import write_tables
from headwater.pipeline.spark.session import spark_session
from headwater.pipeline.statistics.arrivals import arrivals
from headwater.pipeline.statistics.rules import rule_statistics
from headwater.pipeline.statistics.selectivities import TraceFacts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = ("traces", "statistics", "report")
LIMIT = 2.0  # times the bare job, for traces and report
EVENTS = 10_000_000
EVENTS_PER_S = 100  # a larger trace is a longer one
RAW_FILES = 16
START_US = 1_700_000_000_000_000
NODES = tuple(f"n{number}" for number in range(1, 11))
KINDS = {"key": "int", "value": "float", "area": "string"}
RAW = "at LONG, kind STRING, place STRING, key LONG, value DOUBLE, area STRING"
RULE = """Rise:
SEQ(A a, B b, C c)
WHERE [key] AND c.value > a.value
WITHIN 10 s
"""
TIMES = {"metrics": "time", "births": "time", "matches": "delivered"}


class Wrong(Exception):
    """Something was lost or made up, so the time it took says nothing."""


@dataclass(frozen=True, slots=True)
class Race:
    """A command and the bare job beside it; each is given a folder to make, and says afterwards what it found."""

    name: str
    events: int
    ours: Callable[[Path], Callable[[], str]]
    bare: Callable[[Path], Callable[[], str]]
    limit: float | None


@dataclass(frozen=True, slots=True)
class Taken:
    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Round:
    ours: Taken
    bare: Taken

    @property
    def ratio(self) -> float:
        return self.ours.seconds / self.bare.seconds

    @property
    def cpu_ratio(self) -> float:
        return self.ours.cpu_s / self.bare.cpu_s


# --------------------------------------------------------------------------------------------------------- what is read


def generation(events: int) -> Generation:
    """Five types at ten nodes, some rarer than others; a key, a measured value and a name."""
    attributes: dict[str, Attribute] = {
        "key": Uniform(0, 999, "int"),
        "value": Normal(20.0, 5.0),
        "area": Choice(tuple(f"area {number}" for number in range(50)), 1.0),
    }
    stream = GeneratedStream(
        types=("A", "B", "C", "D", "E"),
        nodes=NODES,
        rate_per_s=EVENTS_PER_S,
        types_zipf=1.0,
        nodes_zipf=0.5,
        attributes=attributes,
    )
    return Generation("bench", 1, START_US, round(events / EVENTS_PER_S * 1e6), (stream,))


def write_raw(spark: SparkSession, events: int, folder: Path) -> int:
    """The same rows as CSV and as Parquet, in the order of time with all nodes mixed, as a log has them."""
    from pyspark.sql import functions as F

    rows = generated_events(spark, generation(events)).select(
        F.col("ts").alias("at"), F.col("type").alias("kind"), F.col("node").alias("place"), *KINDS
    )
    kept = rows.repartitionByRange(RAW_FILES, "at").sortWithinPartitions("at")
    kept.write.parquet(str(folder / "parquet"))
    written = spark.read.schema(RAW).parquet(str(folder / "parquet"))
    written.write.csv(str(folder / "csv"), header=True)
    return written.count()


def description(form: str) -> Description:
    attributes = {name: KeptAttribute(name, kind) for name, kind in KINDS.items()}
    files = Files((f"*.{form}",), form)
    return Description("bench", (RawSource(files, "kind", NumberTime("at", "us"), ByValue("place"), attributes),))


# ------------------------------------------------------------------------------------------------------------ the races


def races(spark: SparkSession, folder: Path, events: int, parts: Sequence[str]) -> Iterator[Race]:
    """One after the other: what a race needs is made just before it."""
    many = write_raw(spark, events, folder)
    print(f"{many:,} events are made up", flush=True)
    if "traces" in parts:
        for form in ("csv", "parquet"):
            yield _traces(spark, folder / form, form, many)
    trace = prepare(spark, description("parquet"), folder / "parquet", folder / "trace")
    if "statistics" in parts:
        yield _statistics(spark, trace, folder)
    if "report" in parts:
        for every in (10, 1):
            run = synthetic_run(folder / f"run-{every}", matches=many // every, events=many, nodes=len(NODES))
            yield _report(spark, run, trace, many, every)
            shutil.rmtree(folder / f"run-{every}")


def _traces(spark: SparkSession, raw: Path, form: str, many: int) -> Race:
    def ours(out: Path) -> Callable[[], str]:
        trace = prepare(spark, description(form), raw, out)

        def counted() -> str:
            _same("events of the trace", trace.manifest.events, many)
            _same("events in its files", _rows(spark, out / "events"), many)
            return f"events={trace.manifest.events} checksum={trace.manifest.checksum}"

        return counted

    def bare(out: Path) -> Callable[[], str]:
        read = spark.read.schema(RAW)
        rows = read.csv(str(raw), header=True) if form == "csv" else read.parquet(str(raw))
        _sorted_and_written(rows, "place", "at", out)
        return lambda: _same("events of the bare job", _rows(spark, out), many)

    return Race(f"traces, {form}", many, ours, bare, LIMIT)


def _statistics(spark: SparkSession, trace: PreparedTrace, folder: Path) -> Race:
    rule = folder / "rise.sase"
    rule.write_text(RULE, encoding="utf-8")
    manifest = trace.manifest

    def ours(_: Path) -> Callable[[], str]:
        task = task_of(trace.folder, [rule], None, ROLES_MAX)
        rows = trace.events(spark)
        arrived = arrivals(rows, manifest.first_us, manifest.last_us, manifest.events)
        facts = TraceFacts(manifest.first_us, manifest.last_us, manifest.kinds)
        rise = rule_statistics(spark, rows, facts, task.rules)["Rise"]

        def counted() -> str:
            _same(
                "events",
                sum(at_place.events for (_, node), at_place in arrived.items() if node is None),
                manifest.events,
            )
            matches = rise.projections[frozenset("abc")]
            return f"events={manifest.events} matches={matches.found:.0f} sampled={matches.sampled:.3f}"

        return counted

    def bare(out: Path) -> Callable[[], str]:
        _sorted_and_written(trace.events(spark), "node", "ts", out)
        return lambda: _same("events of the bare job", _rows(spark, out), manifest.events)

    return Race("statistics", manifest.events, ours, bare, None)


def _report(spark: SparkSession, run: Recorded, trace: PreparedTrace, many: int, every: int) -> Race:
    lines = {kind: [str(path / f"{kind}-*.jsonl") for path in run.folders.values()] for kind in TIMES}

    def ours(out: Path) -> Callable[[], str]:
        tables = grouped(report_tables(spark, [run], trace=trace))
        write_tables(tables, out / "tables")
        (out / "report.html").write_text(page(tables, {run.label: run.shape}), encoding="utf-8")

        def counted() -> str:
            row = tables.run(run.label)
            _same("events born", row["born"], many)
            _same("composites", row["composites"], many // every)
            _same("latencies", row["latency_known"], many // every)
            return f"events={row['born']} matches={row['composites']} p99={row['latency_p99_ms']:.1f} ms"

        return counted

    def bare(out: Path) -> Callable[[], str]:
        for kind, time_column in TIMES.items():
            present = [path for path in lines[kind] if any(Path(path).parent.glob(Path(path).name))]
            rows = spark.read.schema(schema_of(kind)).json(present)
            _sorted_and_written(rows, "node", time_column, out / kind)
        return lambda: _same("matches of the bare job", _rows(spark, out / "matches"), many // every)

    shown = "a match for each event" if every == 1 else f"a match for {every} events"
    return Race(f"report, {shown}", many, ours, bare, LIMIT)


def _sorted_and_written(rows: DataFrame, node: str, time_column: str, out: Path) -> None:
    rows.orderBy(node, time_column).write.partitionBy(node).parquet(str(out))


def _rows(spark: SparkSession, folder: Path) -> int:
    return spark.read.parquet(str(folder)).count()


def _same(figure: str, number: int, expected: int) -> str:
    if number != expected:
        raise Wrong(f"{figure}: {number:,} instead of {expected:,}")
    return f"rows={number}"


# ------------------------------------------------------------------------------------------------------------ the clock


def run_race(spark: SparkSession, race: Race, folder: Path, rounds: int, tell: Callable[[str], None]) -> list[Round]:
    """All rounds, ours and the bare job in turns; Wrong if either does not find what is there."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc.pid  # the process that this one has started for Spark

    def cpu_now_s() -> float:
        return cpu_s(java) + time.process_time()

    done = []
    for number in range(rounds):
        taken = {}
        for who in ("bare", "ours") if number % 2 == 0 else ("ours", "bare"):
            out = folder / f"{who}-out"
            began, used = time.perf_counter(), cpu_now_s()
            counted = (race.ours if who == "ours" else race.bare)(out)
            taken[who] = Taken(time.perf_counter() - began, cpu_now_s() - used)
            tell(
                f"  {race.name:<30} {who}  {counted()} seconds={taken[who].seconds:.1f} cpu={taken[who].cpu_s:.1f} "
                f"events/s={race.events / taken[who].seconds:,.0f}"
            )
            shutil.rmtree(out, ignore_errors=True)
        done.append(Round(taken["ours"], taken["bare"]))
        tell(
            f"  {race.name:<30} {done[-1].ratio:.2f} times the bare job, {done[-1].cpu_ratio:.2f} times its CPU "
            f"seconds (load {load()})"
        )
    return done


def summary(race: Race, rounds: Sequence[Round]) -> list[str]:
    """A line of the table."""
    ours, bare = (statistics.median(getattr(round_, who).seconds for round_ in rounds) for who in ("ours", "bare"))
    ratios, of_cpu = [round_.ratio for round_ in rounds], [round_.cpu_ratio for round_ in rounds]
    return [
        race.name,
        f"{race.events / ours:,.0f}",
        f"{race.events / bare:,.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{statistics.median(of_cpu):.2f} ({min(of_cpu):.2f} to {max(of_cpu):.2f})",
        "" if race.limit is None else f"{race.limit:.0f}",
        "" if race.limit is None else "yes" if statistics.median(ratios) <= race.limit else "NO",
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="traces, statistics and report beside a bare Spark read-sort-write")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="4g", help="of Spark's one process")
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    options = parser.parse_args(arguments)
    parts = [part for part in options.only.split(",") if part] or list(PARTS)
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(PARTS)}")

    def tell(text: str) -> None:
        print(text, flush=True)

    tell(f"{os.cpu_count()} cores, Spark with {options.memory}, about {options.events:,} events, load {load()}")
    rows = [["what", "events/s", "bare, events/s", "times bare", "times bare, CPU", "limit", "reached"]]
    with spark_session("benchmark", None, {"spark.driver.memory": options.memory}) as spark, a_folder() as folder:
        try:
            for race in races(spark, folder, options.events, parts):
                rows.append(summary(race, run_race(spark, race, folder, options.rounds, tell)))
        except Wrong as wrong:
            print(wrong, file=sys.stderr)
            return 1
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        tell("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
