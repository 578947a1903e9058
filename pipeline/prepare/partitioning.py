"""Decides before sorting which task sorts which events of a trace, and where its numbers begin.

Time is cut into slots, short ones near the time that most events are thought to be near and longer ones away from it,
so that a first look at the events, which counts them, need not know how long the trace is. Slots are then put together
to parts with about as many events each. Parts follow each other by node and time; so the counts of the slots say how
many events of a node lie in earlier parts, however the events come to their parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SLOTS_LEAST: Final = 64
SLOTS_PER_PART: Final = 8
LOOKED_AT: Final = 100  # events that tell which time the slots are short around

SLOT: Final = "_slot"
OFFSET: Final = "_offset"
_KEY: Final = "_key"
_POSITION: Final = (1 << 33) - 1  # the bits of monotonically_increasing_id that count rows of one task


@dataclass(frozen=True, slots=True)
class Slots:
    """Time around ``middle_us``, cut into slots; one is no longer than 1 / ``steps`` of its distance from there."""

    middle_us: int
    steps: int

    @classmethod
    def around(cls, times: list[int], parts: int) -> Slots:
        """Fine enough for so many parts, around the times of some events."""
        middle = sorted(times)[len(times) // 2] if times else 0
        return cls(middle, max(SLOTS_LEAST, SLOTS_PER_PART * parts))

    def of(self, ts: Column) -> Column:
        """Grows with the time. Spark takes logarithms alike on every machine."""
        from pyspark.sql import functions as F

        away = ts - F.lit(self.middle_us)
        return (F.signum(away) * F.floor(F.log1p(F.abs(away)) * self.steps)).cast("int")


@dataclass(frozen=True)
class Parts:
    """Events by node and time in ``number`` parts.

    ``table`` says of every node and slot which part it belongs to, and what must be added to the position of an event
    in its sorted part to get its number. Slots are told apart only at nodes that several parts share.
    """

    number: int
    slots: Slots
    table: DataFrame
    shared: frozenset[str]

    def numbered(self, events: DataFrame, *order: str) -> DataFrame:
        """The events in as many partitions as there are parts, each sorted by node, time and ``order``, with ``seq``.

        Events of nodes and times that were not counted are lost: a caller that counts again finds out.
        """
        from pyspark.sql import functions as F

        return (
            events.withColumn(SLOT, _slot(self.slots.of(F.col("ts")), self.shared))
            .join(F.broadcast(self.table), ["node", SLOT])
            .repartition(self.number, _KEY)
            .sortWithinPartitions("node", "ts", *order)
            .withColumn("seq", F.monotonically_increasing_id().bitwiseAND(F.lit(_POSITION)) + F.col(OFFSET))
        )


def parts_of(spark: SparkSession, counts: DataFrame, slots: Slots, by_node: Mapping[str, int], number: int) -> Parts:
    """``counts``: ``events`` by ``node`` and slot (``_slot``), and whatever else. ``by_node``: all events of each."""
    import pyarrow as pa
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    total = sum(by_node.values())
    before: dict[str, int] = {}
    shared = set()
    at = 0
    for node in sorted(by_node, key=str.encode):
        before[node] = at
        if at * number // total != (at + by_node[node] - 1) * number // total:
            shared.add(node)
        at += by_node[node]
    starts = spark.createDataFrame(pa.table({"node": list(before), "_before": list(before.values())}))
    earlier = Window.partitionBy("node").orderBy(SLOT).rowsBetween(Window.unboundedPreceding, -1)
    keys = F.array(*map(F.lit, keys_of_partitions(number)))
    table = (
        counts.groupBy("node", _slot(F.col(SLOT), shared).alias(SLOT))
        .agg(F.sum("events").alias("events"))
        .join(F.broadcast(starts), "node")
        .withColumn("_first", F.col("_before") + F.coalesce(F.sum("events").over(earlier), F.lit(0)))
        .withColumn("_part", F.expr(f"int(_first * {number} div {total})"))
        .withColumn(OFFSET, F.min("_first").over(Window.partitionBy("_part")) - F.col("_before") + 1)
        .select("node", SLOT, keys[F.col("_part")].alias(_KEY), OFFSET)
    )
    return Parts(number, slots, table, frozenset(shared))


def _slot(slot: Column, shared: set[str] | frozenset[str]) -> Column:
    from pyspark.sql import functions as F

    if not shared:
        return F.lit(0)
    return F.when(F.col("node").isin(sorted(shared)), slot).otherwise(F.lit(0))


def keys_of_partitions(number: int) -> list[int]:
    """For each of so many partitions a number that Spark's ``repartition`` puts into it."""
    key_of: dict[int, int] = {}
    key = 0
    while len(key_of) < number:
        key_of.setdefault(_murmur3(key) % number, key)
        key += 1
    return [key_of[partition] for partition in range(number)]


def _murmur3(value: int) -> int:
    """The hash by which Spark partitions an int: Murmur3 of its four bytes with the seed 42, signed."""
    most = 0xFFFFFFFF
    mixed = value * 0xCC9E2D51 & most
    mixed = (mixed << 15 | mixed >> 17) & most
    mixed_hash = 42 ^ (mixed * 0x1B873593 & most)
    mixed_hash = (mixed_hash << 13 | mixed_hash >> 19) & most
    mixed_hash = (mixed_hash * 5 + 0xE6546B64 & most) ^ 4
    mixed_hash = (mixed_hash ^ mixed_hash >> 16) * 0x85EBCA6B & most
    mixed_hash = (mixed_hash ^ mixed_hash >> 13) * 0xC2B2AE35 & most
    mixed_hash ^= mixed_hash >> 16
    return mixed_hash - (1 << 32) if mixed_hash >> 31 else mixed_hash
