"""Replays prepared traces into running nodes: Spark tasks stream the events of each node to it.

A prepared trace holds the events of each node in order, so nothing is sorted or moved: every task reads the files of
some of the nodes, merges them by time and feeds the nodes. All tasks run at once (a barrier stage) and keep together
(``pipeline.replay``). Nodes remember the last number that they have; so a stage that Spark tries again, or a replay
that is started again, goes on after it and sends nothing twice.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.replay.lockstep import Council, Invitation, Stopped, TaskProgress
from headwater.pipeline.replay.replay_task import Fed, FeedingOptions, feed
from headwater.pipeline.replay.rows import READ_ROWS
from headwater.pipeline.replay.sender import NodeGroup, ReplayRefused
from headwater.protocol.errors import ConfigError, HeadwaterError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SLICE_EVENTS_PER_NODE: Final = 1_000
"""Slices hold about so many events for each node: enough for messages that are worth it, few enough to wait for."""

SLICES_MAX: Final = 10_000
BUCKETS_MAX: Final = 50_000  # stretches of time whose events are counted, to find slices of equal size
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
    reached: Mapping[str, int] = field(default_factory=dict)
    """By node the last number of the trace that it has already."""


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What a replay has done since it was started."""

    fed: tuple[Fed, ...]
    """For every node the outcome of the events that were sent to it since tasks last began."""
    before: int
    """Events that nodes had already."""
    sent: int
    """Events that nodes have got, each counted once."""
    left_out: int
    """Events for which the network has no source."""
    tasks: int

    @property
    def born(self) -> int:
        return self.sent - self.late

    @property
    def repeated(self) -> int:
        return sum(fed.repeated for fed in self.fed)

    @property
    def late(self) -> int:
        return sum(fed.late for fed in self.fed)


def replay(
    spark: SparkSession,
    prepared: PreparedTrace,
    targets: Targets,
    *,
    speed: float = 0.0,
    tasks: int | None = None,
    ends: bool = True,
    only_known: bool = False,
    tell: Tell = lambda text: None,
    watch: Callable[[dict[int, TaskProgress]], None] = lambda progress: None,
) -> ReplayOutcome:
    """Stream a trace to the nodes, in the order of its time. A ConfigError says what cannot be replayed.

    ``speed``: how many times faster than the times say; 0: as fast as the nodes take it. ``tasks``: how many run at
    once; None: as many as there is room for. ``watch`` hears, from another thread, how far the tasks have come.
    """
    tell(f"counting {prepared.manifest.events:,} events")
    counts, before, left_out = _counts(spark, prepared, targets, only_known=only_known)
    slots = _slots(spark)
    if tasks is not None and not 1 <= tasks <= slots:
        raise ConfigError(f"--tasks {tasks}: all tasks run at once, and there is room for {slots}")
    groups = grouped(counts, targets.addresses, min(tasks or slots, max(1, len(counts))))
    bounds = _bounds(spark, prepared, targets)
    options = FeedingOptions(bounds, targets.attributes, speed, targets.sources, ends)
    tell(f"streaming {sum(counts.values()):,} events to {len(targets.addresses)} nodes, in {len(groups)} tasks")
    local = str(spark.sparkContext.master).startswith("local")
    host = "127.0.0.1" if local else "0.0.0.0"
    reached_at = None if local else spark.conf.get("spark.driver.host")
    checksum, addresses = prepared.manifest.checksum, targets.addresses
    node_groups = [
        NodeGroup(targets.network, {node: addresses[node] for node in group}, checksum, targets.keys)
        for group in groups
    ]
    with Council(len(groups), host=host, reached_at=reached_at, watch=watch) as council:
        # Tasks may run in another folder than this.
        here = replace(prepared, folder=prepared.folder.absolute())
        rows = _run(spark, _Task(here, node_groups, options, council.invitation()))
        if council.stopped is not None:
            raise ReplayRefused(council.stopped)
    return ReplayOutcome(tuple(Fed(*row) for row in rows), before, sum(counts.values()) - before, left_out, len(groups))


# ----------------------------------------------------------------------------------------------------- what is replayed


def _counts(
    spark: SparkSession, prepared: PreparedTrace, targets: Targets, *, only_known: bool
) -> tuple[dict[str, int], int, int]:
    """By node how many events are for it; how many of all these nodes have already; and how many are for no node."""
    from pyspark.sql import functions as F

    begun = {node: seq for node, seq in targets.reached.items() if seq}
    limits = F.create_map(*(F.lit(literal) for pair in begun.items() for literal in pair)) if begun else None
    had = F.lit(False) if limits is None else F.coalesce(F.col("seq") <= limits[F.col("node")], F.lit(False))
    rows = (  # at most nodes times types
        prepared.events(spark)
        .groupBy("node", "type")
        .agg(F.count("*").alias("count"), F.count_if(had).alias("before"))
        .collect()
    )
    counts: dict[str, int] = {}
    before = 0
    unknown: dict[tuple[str, str], int] = {}
    for row in rows:
        if (row["node"], row["type"]) in targets.sources:
            counts[row["node"]] = counts.get(row["node"], 0) + row["count"]
            before += row["before"]
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
    return counts, before, sum(unknown.values())


def _slots(spark: SparkSession) -> int:
    """How many tasks can run at once. A cluster has room only when its executors are there, as after a first job."""
    context = spark.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))


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


def _bounds(spark: SparkSession, prepared: PreparedTrace, targets: Targets) -> tuple[int, ...]:
    """Ends of slices of time that hold about as many events each. Times are counted in buckets, so a moment at which
    very much happens is a slice of its own, however large."""
    from pyspark.sql import functions as F

    manifest = prepared.manifest
    wanted = max(1, min(SLICES_MAX, manifest.events // (SLICE_EVENTS_PER_NODE * len(targets.addresses))))
    width = max(1, (manifest.last_us - manifest.first_us) // BUCKETS_MAX + 1)
    bucket = F.floor((F.col("ts") - manifest.first_us) / width).alias("bucket")
    rows = prepared.events(spark).groupBy(bucket).count().orderBy("bucket").collect()  # at most BUCKETS_MAX
    bounds: list[int] = []
    held, per_slice = 0, manifest.events / wanted
    for row in rows:
        held += row["count"]
        if held >= per_slice:
            bounds.append(min(manifest.last_us, manifest.first_us + (row["bucket"] + 1) * width - 1))
            held = 0
    if not bounds or bounds[-1] < manifest.last_us:
        bounds.append(manifest.last_us)
    return tuple(bounds)


# ------------------------------------------------------------------------------------------------------------- on Spark


@dataclass(frozen=True, slots=True)
class _Task:
    """What runs in the tasks of Spark."""

    prepared: PreparedTrace
    node_groups: Sequence[NodeGroup]
    options: FeedingOptions
    invitation: Invitation

    def __call__(self, number: int, nothing: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        group = self.node_groups[number]
        events = {node: _events_of(self.prepared, node, self.options) for node in group.addresses}
        try:
            for fed in asyncio.run(feed(group, self.options, events, self.invitation, number)):
                yield tuple(fed)
        except (ReplayRefused, Stopped, ConfigError):
            pass  # the driver has heard of it; to try again would not help


def _events_of(prepared: PreparedTrace, node: str, options: FeedingOptions) -> Iterator[pa.RecordBatch]:
    """The events of a node in the order of the trace, from its files, which hold them in this order."""
    import pyarrow.parquet as pq

    wanted = {name for source_node, name in options.streams if source_node == node}
    attributes = {attribute for name in wanted for attribute in options.attributes[name]}
    for path in prepared.files_of(node):
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(READ_ROWS, columns=["type", "ts", "seq", *sorted(attributes)])


def _run(spark: SparkSession, task: _Task) -> list[Any]:
    """One task for each group of nodes, all at once. Spark tries all of them again if one fails."""
    tasks = len(task.node_groups)
    numbers = spark.sparkContext.parallelize(range(tasks), tasks)
    # Spark tries a stage with a barrier again only if it ends in a shuffle.
    fed = numbers.barrier().mapPartitionsWithIndex(task).map(lambda fed: (0, fed)).partitionBy(1).values()
    try:
        return list(fed.collect())  # one row for each node
    except HeadwaterError:
        raise
    except Exception as error:
        raise ReplayFailed(_why(error)) from error


class ReplayFailed(HeadwaterError):
    """Spark has given a replay up. Started again, it goes on after what nodes have."""


def _why(error: Exception) -> str:
    """The last sentence that speaks of what happened, in all that Spark says."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if "Error:" in line and ("pipeline." in line or "protocol." in line)]
    said = (ours or [line for line in lines if line])[-1 if ours else 0]
    return said.partition("Error: ")[2] or said
