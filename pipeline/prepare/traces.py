"""Raw data to prepared traces: shape rows into events, sort them as the global trace would, number them, write them.

The rows are read once to count them, which also says how they spread over nodes and time, and once more to sort,
number and write them; nothing is kept in between. No node has to fit into one task: events are divided by node *and*
time, and the numbers of a node go on from one task to the next.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.prepare.descriptions import UNITS, Description, NumberTime
from headwater.pipeline.prepare.parts import LOOKED_AT, SLOT, Parts, Slots, parts_of
from headwater.pipeline.prepare.prepared import (
    BAD_ROWS,
    EVENTS,
    Manifest,
    NodeSummary,
    Prepared,
    TypeSummary,
    Unfinished,
    event_hash,
    shown_sum,
    write_manifest,
)
from headwater.pipeline.prepare.raw import PLACE, RawFiles, found_files, in_order_of_files, read_raw
from headwater.pipeline.prepare.shaping import RAW, REASON, SOURCE, all_events, check_names, shaped
from headwater.pipeline.spark.paths import to_write
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

BYTES_PER_TASK: Final = 128 << 20
TASKS_MAX: Final = 2000
DAY_US: Final = 86_400_000_000
BAD_ROWS_PER_FILE: Final = 1_000_000
REASONS_MAX: Final = 20  # kinds of bad rows that a manifest lists; values in them are left out
YEAR_US: Final = 365 * DAY_US
EARLIEST_US: Final = 15 * YEAR_US  # 1985: times before it and after 2100 are taken for times in another unit
LATEST_US: Final = 131 * YEAR_US
FAR_DAYS: Final = 30  # an empty stretch as long as this, and longer than all the rest, is a clock that jumped

NO_UTF_8: Final = "\ufffd"  # what Spark reads in place of bytes that are none
SKEW_MOST: Final = 0.9  # of all events at one node, above which it is named

Tell = Callable[[str], None]


def prepare(
    spark: SparkSession,
    description: Description,
    folder: Path,
    target: Path,
    *,
    overwrite: bool = False,
    tell: Tell = lambda text: None,
) -> Prepared:
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
    return Prepared(target, manifest)


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
        warnings = _check_times(totals.of_sources, counts_of_events, description)
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


# ----------------------------------------------------------------------------------------------------- what looks wrong


def _check_times(spans: Sequence[Row], counts: DataFrame, description: Description | None) -> tuple[str, ...]:
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
        (*warnings, *_doubts(totals, total)),
    )


def _doubts(totals: _Totals, total: int) -> Iterator[str]:
    """What may not be meant: types that no rule can name, lost letters, and nearly everything born at one node."""
    types, nodes = totals.types, totals.nodes
    unnamed = [name for name in types if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if unnamed:
        named = ", ".join(map(repr, unnamed[:5])) + (", .." if len(unnamed) > 5 else "")
        yield f"no rule can name the types {named}; make them of letters, digits and _ in type: of the description"
    if any(NO_UTF_8 in name for name in (*types, *nodes)):
        yield "names of types or nodes have bytes in them that are not UTF-8; write the files in UTF-8"
    for name, odd in totals.odd_texts.items():
        if odd:
            yield (
                f"{plural(odd, 'value')} of {name} {'have' if odd != 1 else 'has'} {NO_UTF_8} in place of "
                "bytes that are not UTF-8; write the files in UTF-8"
            )
    name, most = max(nodes.items(), key=lambda pair: pair[1].events)
    if most.events > SKEW_MOST * total:
        share = "all" if most.events == total else f"{most.events / total:.1%} of the"
        yield f"{share} events are born at {name}; if that is not meant, look at node: in the description"


def _attributes(row: Any, kinds: Mapping[str, str]) -> dict[str, str]:
    """What a type has: all that some event of it has."""
    lacks = {name: row[f"_lacks_{name}"] for name in kinds}
    return {name: kind + "?" * bool(lacks[name]) for name, kind in kinds.items() if lacks[name] < row["events"]}
