"""Compares composite events with repetitions: judges each delivered one, and compares the numbers.

What a rule should find is a number of composites for each choice of its other parts and of the first and the last
element. A delivered one is right if its inner elements are candidates there, in order, and meet the conjuncts that look
at all elements. If all that were delivered are right, and different, and there are as many as there should be, they are
the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headwater.pipeline.expressions.cells import WIDE
from headwater.pipeline.verify.compare import (
    KINDS,
    Difference,
    RuleFigures,
    Wanted,
    deliveries,
    for_sinks,
    problems_of,
    said_of,
    same,
)
from headwater.pipeline.verify.expected import PARTS, CountedBranch, Expected
from headwater.pipeline.verify.repetitions import WAYS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def counted_with(wanted: Expected, composites: DataFrame, sinks: Sequence[Wanted] | None) -> Difference:
    """As `compare.compared_with`, for rules with repeated parts."""
    from pyspark.sql import functions as F

    rule = wanted.rule
    mine = said_of(composites.filter(F.col("rule") == rule.name), wanted)
    has = deliveries(mine, by_sink=sinks is not None)
    if sinks is None:
        has = has.withColumn("sink", F.lit(""))
    has = has.withColumn("lines", F.col("got") + F.col("repeated")).withColumn("ends", _ends(wanted.repeated))
    should = for_sinks(wanted, sinks).withColumn("sink", F.coalesce("sink", F.lit("")))
    should = should.select(F.col(PARTS).alias("ends"), "sink", "wanted", WAYS).persist()
    right = reduce(lambda a, b: a.unionByName(b), [_judged(branch, has, wanted) for branch in wanted.counted])
    judged = (
        has.join(right, [PARTS, "sink"], "left")
        .join(should, ["ends", "sink"], "left")
        .withColumn("due", F.when(F.col("right"), F.coalesce("wanted", F.lit(0))).otherwise(0))
        .withColumns(
            {
                "n_missing": F.lit(0),
                "n_extra": F.when(F.coalesce("due", F.lit(0)) == 0, F.col("lines")).otherwise(0),
                "n_duplicate": F.when(F.col("due") > 0, F.greatest(F.col("lines") - F.col("due"), F.lit(0))).otherwise(
                    0
                ),
                "n_altered": F.when((F.col("due") > 0) & ~F.col("same"), 1).otherwise(0),
                "arrived": F.least(F.col("lines"), F.coalesce("due", F.lit(0))),
            }
        )
        .persist()
    )
    arrived = judged.groupBy("ends", "sink").agg(F.sum("arrived").alias("arrived"))
    left = (
        should.join(arrived, ["ends", "sink"], "left")
        .withColumn("all", (F.col(WAYS) * F.col("wanted")).cast(WIDE))
        .withColumn("n_missing", (F.col("all") - F.coalesce("arrived", F.lit(0))).cast(WIDE))
    )
    numbers = {
        **_sums(left, expected="all", missing="n_missing"),
        **_sums(judged, delivered="lines", extra="n_extra", duplicate="n_duplicate", altered="n_altered"),
    }
    nothing = F.lit(None).cast("string")
    shown = F.when(F.col("sink") != "", F.col("sink"))
    lacking = left.select(
        F.col("ends").alias(PARTS),
        "sink",
        "n_missing",
        *(F.lit(0).alias(f"n_{kind}") for kind in KINDS if kind != "missing"),
        F.lit(None).cast(judged.schema["found"].dataType).alias("found"),
    )
    both = lacking.unionByName(judged.select(PARTS, "sink", *(f"n_{kind}" for kind in KINDS), "found"))
    problems = problems_of(both.withColumn("sink", shown), rule.name, nothing).persist()
    problems.count()
    for frame in (should, judged):
        frame.unpersist()
    return Difference(RuleFigures(rule.name, **numbers), problems)


def _sums(frame: DataFrame, **columns: str) -> dict[str, int]:
    from pyspark.sql import functions as F

    row = frame.agg(*(F.sum(column).alias(name) for name, column in columns.items())).first()
    assert row is not None
    return {name: int(row[name] or 0) for name in columns}


def _ends(repeated: Sequence[str]) -> Column:
    """The parts of a delivered composite without what lies between the first and the last element of repetitions."""
    from pyspark.sql import functions as F

    def kept(part: Column, at: Column) -> Column:
        before = F.exists(F.slice(F.col(PARTS), F.lit(1), at), lambda other: other["role"] == part["role"])
        after = F.exists(F.slice(F.col(PARTS), at + 2, F.size(PARTS)), lambda other: other["role"] == part["role"])
        return ~(part["role"].isin(*repeated) & before & after)

    return F.filter(PARTS, kept)


def _judged(branch: CountedBranch, has: DataFrame, wanted: Expected) -> DataFrame:
    """The delivered composites that this branch allows, and whether they say of themselves what they should."""
    from pyspark.sql import functions as F

    here = branch.frame.withColumnRenamed(PARTS, "ends").drop(*(f"v{number}" for number in range(len(wanted.values))))
    joined = has.join(here, "ends")
    chosen = {}
    fits = F.lit(True)
    for number, role in enumerate(wanted.repeated):
        chosen_parts = F.col(f"chosen_{number}")
        joined = joined.withColumn(f"chosen_{number}", _chosen(branch, role))
        listed = F.zip_with(chosen_parts, _inner(role), lambda one, part: _is(one, part))
        fits = fits & F.forall(listed, lambda fits_part: F.coalesce(fits_part, F.lit(False)))
        chosen[role] = chosen_parts
    elements = branch.elements(chosen)
    judged = joined.filter(fits).filter(branch.holds(elements))
    valued = judged.select("*", *branch.values(elements))
    alike = F.forall("found", lambda one: same(one, wanted))
    return valued.select(PARTS, "sink", F.lit(True).alias("right"), alike.alias("same"))


def _chosen(branch: CountedBranch, role: str) -> Column:
    """The candidates that are among the delivered inner elements."""
    from pyspark.sql import functions as F

    return F.filter(branch.candidates(role), lambda one: F.exists(_inner(role), lambda part: _is(one, part)))


def _inner(role: str) -> Column:
    """The delivered elements of a role between the first and the last."""
    from pyspark.sql import functions as F

    mine = F.filter(PARTS, lambda part: part["role"] == role)
    return F.slice(mine, F.lit(2), F.greatest(F.size(mine) - 2, F.lit(0)))


def _is(element: Column, part: Column) -> Column:
    return (element["seq"] == part["seq"]) & (element["node"] == part["node"]) & (element["#id"] == part["id"])
