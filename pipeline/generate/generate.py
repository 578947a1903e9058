"""Generates traces on Spark: divides cells and chunks over tasks, then goes on as for raw data.

Nothing depends on how many tasks there are or which of them makes what: every draw is a function of the seed, the
stream, the cell and the number of the event in its cell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.generate.model import Choice, Derived, GeneratedStream, Generation, Normal, Uniform, zipf_shares
from headwater.pipeline.prepare.prepared_trace import PreparedTrace, Unfinished, write_manifest
from headwater.pipeline.prepare.raw import PLACE
from headwater.pipeline.prepare.shaping import RAW, REASON, SOURCE, SPARK_KINDS, all_events, checked, nearest
from headwater.pipeline.prepare.traces import Tell, write_events

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.pipeline.generate.arrivals import StreamCell

EVENT_BYTES: Final = 48  # about what an event takes in a task, and then for each attribute:
ATTRIBUTE_BYTES: Final = 16
TASKS_PER_CORE: Final = 4
EVENTS_PER_TASK: Final = 100_000  # at least: a task that makes fewer starts longer than it works
CELLS_PER_TASK: Final = 1_000
ROWS_AT_ONCE: Final = 16_384  # to Spark and from it

CUT: Final = "_cell bigint, _first bigint, _passed double, _count bigint"


def generate(
    spark: SparkSession,
    generation: Generation,
    target: Path,
    *,
    overwrite: bool = False,
    tell: Tell = lambda text: None,
) -> PreparedTrace:
    """Make a prepared trace of events that are made up. ``tell`` hears what is waited for."""
    tell(f"making up about {generation.expected():,} events")
    kinds = generation.kinds()
    with Unfinished(target, overwrite=overwrite) as unfinished:
        size = generation.expected() * (EVENT_BYTES + ATTRIBUTE_BYTES * len(kinds))
        events = generated_events(spark, generation)
        manifest = write_events(spark, generation.name, events, kinds, unfinished.folder, tell, size=size)
        write_manifest(unfinished.folder, manifest)
        unfinished.publish()
    return PreparedTrace(target, manifest)


def generated_events(spark: SparkSession, generation: Generation, tasks: int | None = None) -> DataFrame:
    """All events, as ``prepare.shaping.shaped`` gives those of raw data, in no order; by so many tasks per stream."""
    most = tasks or TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    streams = []
    for number, stream in enumerate(generation.streams):
        events = stream.rate_per_s * generation.duration_us / 1e6
        useful = max(1, round(events / EVENTS_PER_TASK), stream.cells // CELLS_PER_TASK)
        streams.append(_stream(spark, generation, number, tasks or min(most, useful)))
    return all_events(streams)


def _stream(spark: SparkSession, generation: Generation, number: int, tasks: int) -> DataFrame:
    from pyspark.sql import functions as F

    stream = generation.streams[number]
    cells = spark.range(0, stream.cells, 1, min(tasks, stream.cells)).withColumnRenamed("id", "_cell")
    cut = cells.mapInArrow(partial(_cut, generation, number), CUT)
    # A cell can have most of all events; its chunks are many, and spread.
    spread = cut.repartition(tasks, "_cell", "_first")
    rows = spread.mapInArrow(partial(_filled, generation, number), ", ".join(_columns(stream)))
    rows = _placed(rows, generation, stream)
    for name, attribute in stream.attributes.items():
        rows = rows.withColumn(name, _value(rows, generation.seed, number, name, attribute))
    own = stream.kinds()
    return rows.select(
        F.lit(number).alias(SOURCE),
        "type",
        "ts",
        "node",
        *(
            (F.col(f"`{name}`") if name in own else F.lit(None)).cast(SPARK_KINDS[kind]).alias(name)
            for name, kind in generation.kinds().items()
        ),
        F.lit(None).cast("string").alias(REASON),
        F.lit(0).alias(PLACE[0]),
        F.col("_cell").alias(PLACE[1]),
        F.col("_number").alias(PLACE[2]),
        F.lit(None).cast("string").alias(RAW),
    )


# ----------------------------------------------------------------------------------------------- in the tasks, by numpy


def _cell(generation: Generation, number: int, share: float, cell: int) -> StreamCell:
    from headwater.pipeline.generate.arrivals import StreamCell

    stream = generation.streams[number]
    rate_per_us = stream.rate_per_s * share / 1e6
    return StreamCell(generation.seed, number, cell, rate_per_us, generation.duration_us, stream.arrivals)


def _cut(generation: Generation, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Cells to chunks."""
    import pyarrow as pa

    from headwater.pipeline.generate.arrivals import chunks

    shares = generation.streams[number].shares()
    for batch in batches:
        chunk_rows = [
            (cell, chunk.first, chunk.passed, chunk.count)
            for cell in batch.column("_cell").to_pylist()
            for chunk in chunks(_cell(generation, number, shares[cell], cell))
        ]
        for start in range(0, len(chunk_rows), ROWS_AT_ONCE):
            columns = list(zip(*chunk_rows[start : start + ROWS_AT_ONCE], strict=True))
            yield pa.record_batch(
                [pa.array(column, kind) for column, kind in zip(columns, _arrow_cut(), strict=True)],
                names=["_cell", "_first", "_passed", "_count"],
            )


def _arrow_cut() -> list[Any]:
    import pyarrow as pa

    return [pa.int64(), pa.int64(), pa.float64(), pa.int64()]


def _columns(stream: GeneratedStream) -> list[str]:
    """What numpy makes of an event: the normal attributes, and where a vehicle is."""
    from headwater.pipeline.generate.values import normal_attributes

    moving = ["lat", "lon", "speed"] if stream.motion is not None else []
    doubles = [*moving, *(f"`{name}`" for name in normal_attributes(stream.attributes))]
    return ["_cell bigint", "_number bigint", "ts bigint", *(f"{name} double" for name in doubles)]


def _filled(generation: Generation, number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Chunks to events."""
    import numpy as np
    import pyarrow as pa

    from headwater.pipeline.generate.arrivals import Chunk, times_us
    from headwater.pipeline.generate.motion import positions
    from headwater.pipeline.generate.values import NormalValues

    stream = generation.streams[number]
    shares = stream.shares()
    values = NormalValues(generation.seed, number, stream)
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        for chunk_row in batch.to_pylist():
            cell, first, count = chunk_row["_cell"], chunk_row["_first"], chunk_row["_count"]
            times = times_us(_cell(generation, number, shares[cell], cell), Chunk(first, chunk_row["_passed"], count))
            columns = {
                "_cell": np.full(count, cell, dtype=np.int64),
                "_number": np.arange(first, first + count, dtype=np.int64),
                "ts": generation.start_us + np.floor(times).astype(np.int64),
            }
            if stream.motion is not None:
                places = positions(stream.motion, generation.seed, number, cell, times, generation.duration_us)
                columns |= dict(zip(("lat", "lon", "speed"), places, strict=True))
            columns |= values.drawn(cell, first, count)
            waiting.append(pa.RecordBatch.from_pydict(columns))
            if sum(filled.num_rows for filled in waiting) >= ROWS_AT_ONCE:
                yield pa.concat_batches(waiting)
                waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


# ---------------------------------------------------------------------------------------------- by Spark's expressions


def _placed(rows: DataFrame, generation: Generation, stream: GeneratedStream) -> DataFrame:
    """With the type and the node of every event."""
    from pyspark.sql import functions as F

    if stream.motion is None:
        nodes = F.lit(len(stream.nodes))
        return rows.withColumns(
            {
                "type": _listed(stream.types, "string")[F.floor(F.col("_cell") / nodes).cast("int")],
                "node": _listed(stream.nodes, "string")[F.pmod("_cell", nodes).cast("int")],
            }
        )
    places = {name: generation.places[name] for name in stream.nodes}
    return rows.withColumns(
        {
            "type": F.lit(stream.types[0]),
            "node": nearest(F.col("lat"), F.col("lon"), places),
            "vehicle": F.concat(F.lit("v"), (F.col("_cell") + 1).cast("string")),
        }
    )


def _value(rows: DataFrame, seed: int, number: int, name: str, attribute: Any) -> Column:
    from pyspark.sql import functions as F

    match attribute:
        case Normal(kind=kind):
            return F.col(f"`{name}`").cast(SPARK_KINDS[kind])
        case Uniform(low, high, "int"):
            return F.lit(int(low)) + F.floor(_uniform(seed, number, name) * (int(high) - int(low) + 1)).cast("bigint")
        case Uniform(low, high):
            return F.lit(low) + _uniform(seed, number, name) * (high - low)
        case Choice(values, exponent, kind):
            # The alias method: a column of equal width for each value, shared with at most one other.
            kept, other = alias_table(zipf_shares(len(values), exponent))
            at = _uniform(seed, number, name) * len(values)
            column = F.floor(at).cast("int")
            own = at - column < _listed(kept, "double")[column]
            chosen = F.when(own, column).otherwise(_listed(other, "int")[column])
            return _listed(values, "string").cast(f"array<{SPARK_KINDS[kind]}>")[chosen]
        case Derived(value, kind):
            derived = checked(rows, value, f"the attribute {name}", f"stream {number + 1}", "before it there are")
            return derived.cast(SPARK_KINDS[kind])
        case _:
            raise AssertionError(attribute)


def _uniform(seed: int, number: int, name: str) -> Column:
    """As ``chance.uniforms``."""
    from pyspark.sql import functions as F

    from headwater.pipeline.generate.seeded_random import key_of

    key = F.lit(key_of(seed, number, name)).cast("bigint")
    return F.shiftrightunsigned(F.xxhash64(key, "_cell", "_number"), 11) * F.lit(2.0**-53)


def _listed(values: Sequence[object], kind: str) -> Column:
    """A constant list: one literal, however long it is."""
    from pyspark.sql import functions as F

    return F.from_json(F.lit(json.dumps(values)), f"array<{kind}>")


def alias_table(shares: Sequence[float]) -> tuple[list[float], list[int]]:
    """Of each column, how much of its width is its own, and whose the rest is."""
    kept = [share * len(shares) for share in shares]
    other = list(range(len(shares)))
    small = [index for index, weight in enumerate(kept) if weight < 1]
    large = [index for index, weight in enumerate(kept) if weight >= 1]
    while small and large:
        little, much = small.pop(), large[-1]
        other[little] = much
        kept[much] -= 1 - kept[little]
        if kept[much] < 1:
            small.append(large.pop())
    for index in [*small, *large]:  # what is missing there is rounding
        kept[index] = 1.0
    return kept, other
