"""Replays prepared traces into running nodes: Spark sorts the events by time, and its tasks stream them to the nodes.

Every task feeds some of the nodes, merged by time, and all tasks run at once (a barrier stage) and keep together
(``pipeline.replaying``). Nodes remember the last number that they have; so a stage that Spark tries again, or a replay
that is started again, goes on after it and sends nothing twice.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipeline.prepared import Prepared
from pipeline.replaying.council import Council, Invitation, Progress, Stopped
from pipeline.replaying.feeding import Assignment, Fed, feed
from pipeline.replaying.sender import Place, Refused
from protocol.errors import ConfigError, HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SLICE_EVENTS_PER_NODE: Final = 1_000
"""Slices hold about so many events for each node: enough for messages that are worth it, few enough to wait for."""

SLICES_MAX: Final = 10_000
BUCKETS_MAX: Final = 50_000  # stretches of time whose events are counted, to find slices of equal size
BATCH_ROWS: Final = 10_000  # that Spark gives to a task at once
LISTED_MAX: Final = 12  # of what is missing, in a sentence

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Targets:
    """The nodes of a running network that take replays."""

    network: str
    addresses: Mapping[str, str]
    """By node where it listens: all that have a source that is replayed."""
    sources: frozenset[tuple[str, str]]
    """Node and type of each source that is replayed."""
    attributes: Mapping[str, tuple[str, ...]]
    """What is sent of each type."""
    keys: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay has done since it was started."""

    fed: tuple[Fed, ...]
    """For every node what became of the events that were sent to it."""
    left_out: int
    """Events for which the network has no source."""
    tasks: int

    @property
    def born(self) -> int:
        return sum(each.born for each in self.fed)

    @property
    def repeated(self) -> int:
        return sum(each.repeated for each in self.fed)

    @property
    def late(self) -> int:
        return sum(each.late for each in self.fed)


def replay(
    spark: SparkSession,
    prepared: Prepared,
    targets: Targets,
    *,
    speed: float = 0.0,
    tasks: int | None = None,
    ends: bool = True,
    only_known: bool = False,
    tell: Tell = lambda text: None,
    watch: Callable[[dict[int, Progress]], None] = lambda progress: None,
) -> Outcome:
    """Stream a trace to the nodes, in the order of its time. A ConfigError says what cannot be replayed.

    ``speed``: how many times faster than the times say; 0: as fast as the nodes take it. ``tasks``: how many run at
    once; None: as many as there is room for. ``watch`` hears, from another thread, how far the tasks have come.
    """
    slots = spark.sparkContext.defaultParallelism
    if tasks is not None and not 1 <= tasks <= slots:
        raise ConfigError(f"--tasks {tasks}: all tasks run at once, and there is room for {slots}")
    tell(f"counting {prepared.manifest.events:,} events")
    counts, left_out = _counts(spark, prepared, targets, only_known=only_known)
    groups = grouped(counts, targets.addresses, min(tasks or slots, max(1, len(counts))))
    assignment = Assignment(_bounds(spark, prepared, targets), targets.attributes, speed, ends)
    keys = _keys_of_tasks(spark, len(groups))
    key_of_node = {node: keys[number] for number, group in enumerate(groups) for node in group}
    events = _sorted_by_task(spark, prepared, targets, key_of_node, len(groups))
    tell(f"sorting, then streaming {sum(counts.values()):,} events to {len(key_of_node)} nodes in {len(groups)} tasks")
    local = str(spark.sparkContext.master).startswith("local")
    host = "127.0.0.1" if local else "0.0.0.0"
    reached_at = None if local else spark.conf.get("spark.driver.host")
    with Council(len(groups), host=host, reached_at=reached_at, watch=watch) as council:
        places = [
            Place(
                targets.network,
                {node: targets.addresses[node] for node in group},
                prepared.manifest.checksum,
                targets.keys,
            )
            for group in groups
        ]
        task = _Task(places, dict(zip(keys, range(len(groups)), strict=True)), assignment, council.invitation())
        rows = _run(spark, events, task)
        if council.stopped is not None:
            raise Refused(council.stopped)
    return Outcome(tuple(Fed(*row) for row in rows), left_out, len(groups))


# ----------------------------------------------------------------------------------------------------- what is replayed


def _counts(
    spark: SparkSession, prepared: Prepared, targets: Targets, *, only_known: bool
) -> tuple[dict[str, int], int]:
    """By node how many events are for it, and how many events are for nobody."""
    found = prepared.events(spark).groupBy("node", "type").count().collect()  # at most nodes times types
    counts: dict[str, int] = {}
    unknown: dict[tuple[str, str], int] = {}
    for row in found:
        if (row["node"], row["type"]) in targets.sources:
            counts[row["node"]] = counts.get(row["node"], 0) + row["count"]
        else:
            unknown[row["node"], row["type"]] = row["count"]
    if unknown and not only_known:
        missing = [f"{name} at {node} ({count:,} events)" for (node, name), count in sorted(unknown.items())]
        more = f" and {len(missing) - LISTED_MAX} more" if len(missing) > LISTED_MAX else ""
        raise ConfigError(
            f"the network has no source that is replayed for {', '.join(missing[:LISTED_MAX])}{more}; "
            "add them (replay: any), or leave such events out with --only-known"
        )
    if not counts:
        raise ConfigError("nothing of this trace is for the network; is it the right one?")
    return counts, sum(unknown.values())


def grouped(counts: Mapping[str, int], nodes: Sequence[str] | Mapping[str, Any], tasks: int) -> list[list[str]]:
    """The nodes in so many groups, each with about as many events: the largest first, each to the least group. Nodes
    without events come last, and no group has only such."""
    loads = [(0, number) for number in range(tasks)]
    groups: list[list[str]] = [[] for _ in loads]
    for node in sorted(nodes, key=lambda node: (-counts.get(node, 0), node.encode())):
        load, number = heapq.heappop(loads)
        groups[number].append(node)
        heapq.heappush(loads, (load + counts.get(node, 0), number))
    return groups


def _bounds(spark: SparkSession, prepared: Prepared, targets: Targets) -> tuple[int, ...]:
    """Ends of slices of time that hold about as many events each. Times are counted in buckets, so a moment at which
    very much happens is a slice of its own, however large."""
    from pyspark.sql import functions as F

    manifest = prepared.manifest
    wanted = max(1, min(SLICES_MAX, manifest.events // (SLICE_EVENTS_PER_NODE * len(targets.addresses))))
    width = max(1, (manifest.last_us - manifest.first_us) // BUCKETS_MAX + 1)
    bucket = F.floor((F.col("ts") - manifest.first_us) / width).alias("bucket")
    found = prepared.events(spark).groupBy(bucket).count().orderBy("bucket").collect()  # at most BUCKETS_MAX
    bounds: list[int] = []
    held, each = 0, manifest.events / wanted
    for row in found:
        held += row["count"]
        if held >= each:
            bounds.append(min(manifest.last_us, manifest.first_us + (row["bucket"] + 1) * width - 1))
            held = 0
    if not bounds or bounds[-1] < manifest.last_us:
        bounds.append(manifest.last_us)
    return tuple(bounds)


# ------------------------------------------------------------------------------------------------------------- on Spark


def _keys_of_tasks(spark: SparkSession, tasks: int) -> list[int]:
    """For every task a number that Spark's partitioning by hash sends to a partition of its own."""
    from pyspark.sql import functions as F

    number = F.col("id").cast("int")
    rows = (
        spark.range(64 * tasks)
        .select(number.alias("key"), F.pmod(F.hash(number), F.lit(tasks)).alias("part"))
        .groupBy("part")
        .agg(F.min("key").alias("key"))
        .orderBy("part")
        .collect()
    )
    assert len(rows) == tasks, "64 numbers for each partition leave none out"
    return [row["key"] for row in rows]


def _sorted_by_task(
    spark: SparkSession, prepared: Prepared, targets: Targets, key_of_node: Mapping[str, int], tasks: int
) -> DataFrame:
    """The events for which there is a source; those of a task in one partition, by (ts, node, seq)."""
    from pyspark.sql import functions as F

    pairs = [(node, name, key_of_node[node]) for node, name in sorted(targets.sources) if node in key_of_node]
    known = spark.createDataFrame(pairs, "node string, type string, _task int")
    wanted = sorted({each for attributes in targets.attributes.values() for each in attributes})
    columns = [F.col(name) for name in ("node", "type", "ts", "seq")] + [F.col(f"`{name}`") for name in wanted]
    return (
        prepared.events(spark)
        .join(F.broadcast(known), ["node", "type"])
        .select("_task", *columns)
        .repartition(tasks, "_task")
        .sortWithinPartitions("ts", "node", "seq")
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """What runs in the tasks of Spark."""

    places: Sequence[Place]
    number_of_key: Mapping[int, int]
    assignment: Assignment
    invitation: Invitation

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        first = next(batches, None)
        assert first is not None, "every task has events"
        number = self.number_of_key[first.column("_task")[0].as_py()]

        def all_batches() -> Iterator[pa.RecordBatch]:
            yield first
            yield from batches

        try:
            fed = asyncio.run(feed(self.places[number], self.assignment, all_batches(), self.invitation, number))
        except (Refused, Stopped):
            fed = []  # the driver has heard of it; to try again would help nobody
        rows = [each._asdict() for each in fed]
        yield pa.RecordBatch.from_pylist(rows, _result_schema())


def _result_schema() -> pa.Schema:
    import pyarrow as pa

    numbers = [(name, pa.int64()) for name in ("born", "repeated", "late")]
    return pa.schema([("node", pa.string()), *numbers, ("lag_max_s", pa.float64()), ("lag_mean_s", pa.float64())])


RESULT: Final = "node string, born long, repeated long, late long, lag_max_s double, lag_mean_s double"


def _run(spark: SparkSession, events: DataFrame, task: _Task) -> list[Any]:
    rows_before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
    try:
        return list(events.mapInArrow(task, RESULT, barrier=True).collect())  # one row for each node
    except HeadwaterError:
        raise
    except Exception as error:
        raise ReplayFailed(_why(error)) from error
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_before))


class ReplayFailed(HeadwaterError):
    """Spark has given a replay up. Started again, it goes on after what nodes have."""


def _why(error: Exception) -> str:
    """The last sentence that speaks of what happened, in all that Spark says."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if "Error:" in line and ("pipeline." in line or "protocol." in line)]
    said = (ours or [line for line in lines if line])[-1 if ours else 0]
    return said.partition("Error: ")[2] or said
