"""Prepares traces: turns rows into events, sorts them in the order of the global trace, numbers and writes them.

The rows are read once to count them, which also says how they spread over nodes and time, and once more to sort,
number and write them; nothing is kept in between. No node has to fit into one task: events are divided by node *and*
time, and the numbers of a node go on from one task to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.prepare.descriptions import Description
from headwater.pipeline.prepare.partitioning import LOOKED_AT, SLOT, Parts, Slots, parts_of
from headwater.pipeline.prepare.prepared_trace import (
    BAD_ROWS,
    EVENTS,
    Manifest,
    NodeSummary,
    PreparedTrace,
    TypeSummary,
    Unfinished,
    event_hash,
    shown_sum,
    write_manifest,
)
from headwater.pipeline.prepare.raw import PLACE, RawFiles, found_files, in_order_of_files, read_raw
from headwater.pipeline.prepare.shaping import RAW, REASON, SOURCE, all_events, check_names, shaped
from headwater.pipeline.prepare.trace_warnings import DAY_US, EARLIEST_US, LATEST_US, NO_UTF_8, check_times, doubts
from headwater.pipeline.spark.paths import to_write
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

BYTES_PER_TASK: Final = 128 << 20
TASKS_MAX: Final = 2000
BAD_ROWS_PER_FILE: Final = 1_000_000
REASONS_MAX: Final = 20  # kinds of bad rows that a manifest lists; values in them are left out

Tell = Callable[[str], None]


def prepare(
    spark: SparkSession,
    description: Description,
    folder: Path,
    target: Path,
    *,
    overwrite: bool = False,
    tell: Tell = lambda text: None,
) -> PreparedTrace:
    """Make a prepared trace of the raw files in a folder. ``tell`` hears what is waited for."""
    raw_files = check_input(description, folder)
    size = sum(files.size for files in raw_files)
    with Unfinished(target, overwrite=overwrite) as unfinished:
        kinds = description.kinds()
        read = [
            read_raw(spark, source.files, files) for source, files in zip(description.sources, raw_files, strict=True)
        ]
        events = all_events(
            [
                shaped(rows, source, number, kinds)
                for number, (rows, source) in enumerate(zip(read, description.sources, strict=True))
            ]
        )
        manifest = write_events(
            spark,
            description.name,
            events,
            kinds,
            unfinished.folder,
            tell,
            description,
            size,
            partial(in_order_of_files, read=read),
        )
        write_manifest(unfinished.folder, manifest)
        unfinished.publish()
    return PreparedTrace(target, manifest)


def check_input(description: Description, folder: Path) -> list[RawFiles]:
    """The raw files of each source; a ConfigError if some are missing or the description cannot be used with them."""
    check_names(description)
    return [found_files(source.files, folder) for source in description.sources]


def write_events(
    spark: SparkSession,
    name: str,
    events: DataFrame,
    kinds: Mapping[str, str],
    folder: Path,
    tell: Tell,
    description: Description | None = None,
    size: int = 0,
    in_order: Callable[[DataFrame], DataFrame] = lambda events: events,
) -> Manifest:
    """Sort, number and write events (``shaped``) into the folder; what a manifest says of them.

    ``size``: about how many bytes they take, by which the tasks are counted. ``in_order`` gives them places that can be
    compared.
    """
    from pyspark.sql import functions as F

    tasks = _tasks(spark, size)
    tell("reading and counting")
    seen = events.where("ts is not null").select("ts").limit(LOOKED_AT).collect()
    slots = Slots.around([row["ts"] for row in seen], tasks)
    counts = _counted(events, kinds, slots).persist()
    try:
        totals = _totals(counts, kinds)
        bad = _bad_rows(totals.of_bad_rows)
        if not totals.of_sources:
            reasons = "; ".join(f"{reason}: {number:,}" for reason, number in bad.items()) or "there are no rows"
            raise ConfigError(f"{name}: no row became an event ({reasons})")
        counts_of_events = counts.where(F.col(REASON).isNull())
        warnings = check_times(totals.of_sources, counts_of_events, description)
        total = sum(row["events"] for row in totals.of_sources)
        by_node = {node: summary.events for node, summary in totals.nodes.items()}
        parts = parts_of(spark, counts_of_events, slots, by_node, tasks)
        tell(f"sorting and writing {total:,} events, in {tasks} parts")
        # Where no row is bad, none is judged a second time; what is read otherwise then is found out by counting.
        good_events = events.where(F.col(REASON).isNull()) if bad else events
        written = _write(in_order(good_events.drop(REASON, RAW)), parts, kinds, folder)
        counted = shown_sum(sum(row["sum"] for row in totals.of_sources))
        if (written["events"], shown_sum(written["content"])) != (total, counted):
            raise ConfigError(
                f"{name}: {total:,} events were counted, and {written['events']:,} others were there to be written; "
                "do not change the files meanwhile, and use no expression that differs from time to time, as rand()"
            )
        lost = sum(row["events"] for row in totals.of_bad_rows)
        if lost:
            tell(f"writing {plural(lost, 'bad row')}")
            _write_bad_rows(in_order(events.where(F.col(REASON).isNotNull())), lost, folder)
        return _manifest(name, totals, kinds, bad, warnings, shown_sum(written["sum"]))
    finally:
        counts.unpersist()


def _tasks(spark: SparkSession, size: int) -> int:
    """As many for each core, so that none waits for the last one."""
    cores = spark.sparkContext.defaultParallelism
    return cores * max(1, min(TASKS_MAX // cores, -(-size // (BYTES_PER_TASK * cores))))


@dataclass(frozen=True, slots=True)
class _Totals:
    """Sums over the counts: of each source and reason for its bad rows, and of events by source, node and type."""

    of_bad_rows: list[Row]
    of_sources: list[Row]
    nodes: dict[str, NodeSummary]
    types: dict[str, TypeSummary]
    odd_texts: dict[str, int]
    """By attribute the values that hold what was put in place of bytes that are not UTF-8."""


def _totals(counts: DataFrame, kinds: Mapping[str, str]) -> _Totals:
    """All in one job, which also makes the counts."""
    from pyspark.sql import functions as F

    sets = [[REASON, SOURCE], ["node"], ["type"]]
    grouped = counts.groupingSets(sets, REASON, SOURCE, "node", "type").agg(
        *(F.grouping(column).alias(f"_not_by_{column}") for column in (SOURCE, "node", "type")),
        *_span(),
        F.sum("_sum").alias("sum"),
        *(F.sum(f"_lacks_{name}").alias(f"_lacks_{name}") for name in kinds),
        *(F.sum(f"_odd_{name}").alias(f"_odd_{name}") for name in _texts(kinds)),
    )
    by: dict[str, list[Row]] = {SOURCE: [], "node": [], "type": []}
    for row in grouped.collect():
        of = next(column for column in by if not row[f"_not_by_{column}"])
        if row[of] is not None:  # bad rows are counted without their node and type
            by[of].append(row)
    nodes = {row["node"]: NodeSummary(row["events"], row["first"], row["last"]) for row in by["node"]}
    types = {
        row["type"]: TypeSummary(row["events"], row["first"], row["last"], _attributes(row, kinds))
        for row in by["type"]
    }
    return _Totals(
        [row for row in by[SOURCE] if row[REASON] is not None],
        [row for row in by[SOURCE] if row[REASON] is None],
        {name: nodes[name] for name in sorted(nodes, key=str.encode)},
        {name: types[name] for name in sorted(types, key=str.encode)},
        {name: sum(row[f"_odd_{name}"] for row in by["type"]) for name in _texts(kinds)},
    )


def _texts(kinds: Mapping[str, str]) -> list[str]:
    return [name for name, kind in kinds.items() if kind == "string"]


def _span() -> list[Column]:
    from pyspark.sql import functions as F

    beyond = (F.col("first") < EARLIEST_US) | (F.col("last") > LATEST_US)
    return [
        F.sum("events").alias("events"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum(F.when(beyond, F.col("events")).otherwise(0)).alias("beyond"),
    ]


def _content() -> Column:
    """Summed up, it tells whether the same events are read again."""
    from pyspark.sql import functions as F

    return F.xxhash64(SOURCE, "node", "type", "ts")


def _counted(events: DataFrame, kinds: Mapping[str, str], slots: Slots) -> DataFrame:
    """All that is ever asked about how many there are; of bad rows only why they are."""
    from pyspark.sql import functions as F

    is_good = F.col(REASON).isNull()
    # What a reason names after the colon is a value.
    reason = F.regexp_replace(REASON, r"(?s):.*$", "")
    node, type_, ts = (F.when(is_good, F.col(column)).alias(column) for column in ("node", "type", "ts"))
    rows = events.select(SOURCE, reason.alias(REASON), node, type_, ts, *(F.col(f"`{name}`") for name in kinds))
    lacking = [F.count(F.when(F.col(f"`{name}`").isNull(), 1)).alias(f"_lacks_{name}") for name in kinds]
    day = F.floor(F.col("ts") / DAY_US)
    return rows.groupBy(REASON, SOURCE, "node", "type", slots.of(F.col("ts")).alias(SLOT), day.alias("_day")).agg(
        F.count("*").alias("events"),
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
        F.sum(_content()).alias("_sum"),
        *lacking,
        *(F.count(F.when(F.col(f"`{name}`").contains(NO_UTF_8), 1)).alias(f"_odd_{name}") for name in _texts(kinds)),
    )


def _write(events: DataFrame, parts: Parts, kinds: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Sort, number and write the events; how many there were, and sums over them, which are taken on the way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    observed = Observation()
    (
        parts.numbered(events, SOURCE, *PLACE)
        # An observation takes its expressions apart row by row, with no code made for them: it is given numbers only.
        .withColumns({"_content": _content(), "_hash": event_hash(kinds)})
        .observe(
            observed,
            F.count("*").alias("events"),
            F.sum("_content").alias("content"),
            F.sum("_hash").alias("sum"),
        )
        .select("type", "ts", "seq", *(F.col(f"`{name}`") for name in kinds), "node")
        .write.partitionBy("node")
        .parquet(to_write(folder / EVENTS))
    )
    return observed.get


def _write_bad_rows(events: DataFrame, many: int, folder: Path) -> None:
    """The files are read once more: most data sets have no bad rows, and those of others are few."""
    from pyspark.sql import functions as F

    (
        events.select(
            (F.col(SOURCE) + 1).alias("source"), F.col(REASON).alias("reason"), F.col(RAW).alias("row"), *PLACE
        )
        .repartition(-(-many // BAD_ROWS_PER_FILE), "source", *PLACE)
        .sortWithinPartitions("source", *PLACE)
        .drop(*PLACE)
        .write.parquet(to_write(folder / BAD_ROWS))
    )


def _bad_rows(rows: Iterable[Row]) -> dict[str, int]:
    """How many rows are bad for which reason; the most frequent ones first."""
    reasons: Counter[str] = Counter()
    for row in rows:
        reasons[row[REASON]] += row["events"]
    return dict(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))[:REASONS_MAX])


def _manifest(
    name: str, totals: _Totals, kinds: Mapping[str, str], bad: dict[str, int], warnings: tuple[str, ...], seen: str
) -> Manifest:
    types = totals.types
    total = sum(summary.events for summary in types.values())
    return Manifest(
        name,
        total,
        min(summary.first_us for summary in types.values()),
        max(summary.last_us for summary in types.values()),
        seen,
        types,
        totals.nodes,
        dict(kinds),
        bad,
        (*warnings, *doubts(types, totals.nodes, totals.odd_texts)),
    )


def _attributes(row: Any, kinds: Mapping[str, str]) -> dict[str, str]:
    """What a type has: all that some event of it has."""
    lacks = {name: row[f"_lacks_{name}"] for name in kinds}
    return {name: kind + "?" * bool(lacks[name]) for name, kind in kinds.items() if lacks[name] < row["events"]}
