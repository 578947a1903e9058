"""Exact sums of floats, rounded once as ``math.fsum`` rounds them, in Spark's own expressions.

Spark adds floats in whatever order they come and rounds at each. So they are collected and added here with Shewchuk's
partial sums: numbers whose digits do not overlap and that together are the exact sum so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def exact_sum(values: Column) -> Column:
    """The sum of a list of floats; no value for an empty list, or where the sum is beyond every float."""
    from pyspark.sql import functions as F

    nothing = F.array().cast("array<double>")
    partials = F.aggregate(values, nothing, _with)
    infinite = F.exists(values, lambda x: F.abs(x) == float("inf"))
    of_infinite = F.aggregate(values, F.lit(0.0), lambda total, x: total + x)
    total = F.when(infinite, F.when(~F.isnan(of_infinite), of_infinite)).otherwise(_rounded(partials))
    return F.when(F.size(values) > 0, total)


def _with(partials: Column, value: Column) -> Column:
    """The partial sums with one more number added to them, losing nothing."""
    from pyspark.sql import functions as F

    def add(state: Column, partial: Column) -> Column:
        larger = F.when(F.abs(state["sum"]) < F.abs(partial), partial).otherwise(state["sum"])
        smaller = F.when(F.abs(state["sum"]) < F.abs(partial), state["sum"]).otherwise(partial)
        both = larger + smaller
        rest = smaller - (both - larger)
        kept = F.when(rest != 0, F.concat(state["kept"], F.array(rest))).otherwise(state["kept"])
        return F.struct(both.alias("sum"), kept.alias("kept"))

    start = F.struct(value.alias("sum"), F.array().cast("array<double>").alias("kept"))
    return F.aggregate(partials, start, add, lambda state: F.concat(state["kept"], F.array(state["sum"])))


def _rounded(partials: Column) -> Column:
    """Partial sums, the least first, added from the greatest down until nothing more can change the result.

    Where the rest is exactly half of the last digit, the next partial sum decides to which side it is rounded.
    """
    from pyspark.sql import functions as F

    def add(state: Column, partial: Column) -> Column:
        both = state["sum"] + partial
        rest = partial - (both - state["sum"])
        twice = state["rest"] * 2
        further = state["sum"] + twice
        same_side = (state["rest"] < 0) == (partial < 0)
        turned = F.when(same_side & (twice == further - state["sum"]), further).otherwise(state["sum"])
        return (
            F.when(state["done"], state)
            .when(state["rest"] != 0, _state(turned, state["rest"], F.lit(True)))
            .otherwise(_state(both, rest, F.lit(False)))
        )

    start = _state(F.lit(0.0), F.lit(0.0), F.lit(False))
    total = F.aggregate(F.reverse(partials), start, add, lambda state: state["sum"])
    return F.when(~F.isnan(total) & (F.abs(total) != float("inf")), total)


def _state(total: Column, rest: Column, done: Column) -> Column:
    from pyspark.sql import functions as F

    return F.struct(total.alias("sum"), rest.alias("rest"), done.alias("done"))
