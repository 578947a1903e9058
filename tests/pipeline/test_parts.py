"""Which task gets which events of a trace is known beforehand, and so are their numbers."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.prepare.partitioning import Slots, keys_of_partitions


@pytest.mark.parametrize("number", [1, 2, 7, 200])
def test_spark_puts_each_key_into_its_partition(spark: Any, number: int) -> None:
    from pyspark.sql import functions as F

    keys = keys_of_partitions(number)
    rows = spark.createDataFrame([(key,) for key in keys], "key int")
    placed = rows.repartition(number, "key").select("key", F.spark_partition_id().alias("at")).collect()
    assert sorted((row["at"], row["key"]) for row in placed) == list(enumerate(keys))


def test_slots_follow_time_and_grow_with_the_distance(spark: Any) -> None:
    from pyspark.sql import functions as F

    middle = 1_700_000_000_000_000
    slots = Slots.around([0, middle, middle + 5], 4)
    assert slots.middle_us == middle
    away = [each * sign for each in (0, 1, 2, 700, 10**6, 3 * 10**9, 10**15) for sign in (1, -1)]
    rows = spark.createDataFrame([(middle + each,) for each in sorted(away)], "ts long")
    found = [row["slot"] for row in rows.select(slots.of(F.col("ts")).alias("slot")).collect()]
    assert found == sorted(found)
    assert len(set(found)) == len(set(away))
    assert max(found) < 40 * slots.steps  # few, however long the trace is
