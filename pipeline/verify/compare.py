"""Compares what was expected with what was delivered: missing, extra, duplicate and altered composite events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.expressions.cells import Cell
from headwater.pipeline.expressions.expressions import Name, condition
from headwater.pipeline.verify.emitted import column_type
from headwater.pipeline.verify.expected import PARTS, Expected
from headwater.pipeline.verify.relations import Unverifiable
from headwater.protocol.expressions import Attribute
from headwater.protocol.subscriptions import Subscription

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

KINDS: Final = ("missing", "extra", "duplicate", "altered")
ROUGH: Final = 1e-12
"""Values of functions that Java and Python may round differently are equal within this share."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A sink as its deliveries name it (by number or by node), and what it subscribed to; a node may have several."""

    sink: str
    subscriptions: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """Numbers of composites of one rule."""

    rule: str
    expected: int
    delivered: int
    missing: int
    extra: int
    duplicate: int
    altered: int

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.duplicate or self.altered)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": self.equal}


@dataclass(frozen=True, slots=True)
class Difference:
    """The figures of a rule, and its problems: ``kind``, ``rule``, ``sink``, ``times``, ``parts``, and the attributes
    as ``expected`` and ``delivered`` say (JSON)."""

    figures: RuleFigures
    problems: DataFrame


def compared_with(wanted: Expected, composites: DataFrame, sinks: Sequence[Wanted] | None) -> Difference:
    """One rule's composites, each sink's on its own where sinks are known. Computes everything once.

    Of rules with repeated parts see `counted.counted_with`.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    rule = wanted.rule
    mine = composites.filter(F.col("rule") == rule.name)
    should = for_sinks(wanted, sinks)
    has = deliveries(said_of(mine, wanted), by_sink=sinks is not None)
    keys = [PARTS, "sink"] if sinks is not None else [PARTS]
    if sinks is None:
        should = should.drop("sink")
    joined = should.join(has, keys, "full_outer")
    if sinks is None:
        joined = joined.withColumn("sink", F.lit(None).cast("string"))
    due, got, repeated = (F.coalesce(F.col(name), F.lit(0)) for name in ("wanted", "got", "repeated"))
    altered = (due > 0) & F.coalesce(F.exists("found", lambda one: ~same(one, wanted)), F.lit(False))
    numbers = {
        "missing": F.greatest(due - got, F.lit(0)),
        "extra": F.when(due == 0, got + repeated).otherwise(0),
        "duplicate": F.when(due == 0, 0).otherwise(F.greatest(got - due, F.lit(0)) + repeated),
        "altered": altered.cast("int"),
    }
    seen = Observation()
    judged = joined.withColumns({f"n_{kind}": number for kind, number in numbers.items()}).observe(
        seen,
        F.sum(due).alias("expected"),
        F.sum(got + repeated).alias("delivered"),
        *(F.sum(f"n_{kind}").alias(kind) for kind in KINDS),
    )
    values = [F.col(f"v{number}").alias(attribute.name) for number, attribute in enumerate(rule.attributes)]
    expected_values = F.when(due > 0, F.to_json(F.struct(*values))) if values else F.lit(None).cast("string")
    problems = problems_of(judged, rule.name, expected_values).persist()
    problems.count()
    return Difference(RuleFigures(rule.name, **{name: int(value or 0) for name, value in seen.get.items()}), problems)


def problems_of(judged: DataFrame, rule: str, expected_values: Column) -> DataFrame:
    """A row for each problem, from columns ``n_missing``, ..; ``expected_values``: the attributes as
    they should be."""
    from pyspark.sql import functions as F

    kinds = [
        F.struct(F.lit(kind).alias("kind"), F.col(f"n_{kind}").cast("decimal(38,0)").alias("times")) for kind in KINDS
    ]
    exploded = F.explode(F.filter(F.array(*kinds), lambda one: one["times"] > 0))
    return (
        judged.filter(reduce(lambda a, b: a | b, [F.col(f"n_{kind}") > 0 for kind in KINDS]))
        .select(
            exploded.alias("one"),
            F.lit(rule).alias("rule"),
            "sink",
            PARTS,
            expected_values.alias("expected"),
            F.element_at("found", 1)["text"].alias("delivered"),
        )
        .select("one.kind", "rule", "sink", "one.times", PARTS, "expected", "delivered")
    )


def for_sinks(wanted: Expected, sinks: Sequence[Wanted] | None) -> DataFrame:
    """Which composite should come to which sink, and how often: a node may have several sinks."""
    from pyspark.sql import functions as F

    rule = wanted.rule
    if sinks is None:
        return wanted.frame.select("*", F.lit(None).cast("string").alias("sink"), F.lit(1).alias("wanted"))
    numbers = {attribute.name: number for number, attribute in enumerate(rule.attributes)}

    def lookup(name: Name) -> Cell | None:
        assert isinstance(name, Attribute)
        if name.name == "type":
            return Cell(F.lit(rule.emits), "string")
        if name.name in ("ts", "node", "seq"):
            return Cell(F.col(f"end_{name.name}"), "string" if name.name == "node" else "int")
        number = numbers.get(name.name)
        if number is None:
            return None
        if name.name in wanted.late:
            raise Unverifiable(
                f"rule {rule.name}: a sink asks for some values of {name.name}, which depends on the elements of a "
                "repetition, and these are counted, not listed"
            )
        value = wanted.values[number]
        return Cell(F.col(f"v{number}"), value.kind, value.low, value.high, value.nan, value.rough)

    counts = []
    for sink in sinks:
        times = [
            reduce(lambda a, b: a & b, [condition(one, lookup) for one in subscription.where], F.lit(True)).cast("int")
            for subscription in sink.subscriptions
            if subscription.type == rule.emits
        ]
        if times:
            number_of = reduce(lambda a, b: a + b, times)
            counts.append(F.struct(F.lit(sink.sink).alias("sink"), number_of.alias("wanted")))
    if not counts:
        return wanted.frame.select("*", F.lit("").alias("sink"), F.lit(0).alias("wanted")).filter("false")
    by_sink = wanted.frame.select("*", F.explode(F.array(*counts)).alias("_sink"))
    return by_sink.select("*", "_sink.sink", "_sink.wanted").drop("_sink").filter("wanted > 0")


def said_of(mine: DataFrame, wanted: Expected) -> DataFrame:
    """``parts``, ``sink``, and what each delivered composite ``said`` of itself, with its attributes read as they
    should be."""
    from pyspark.sql import functions as F

    rule = wanted.rule
    fields = [
        f"`{attribute.name}` {'string' if value.kind == 'none' else column_type(value)}"
        for attribute, value in zip(rule.attributes, wanted.values, strict=True)
    ]
    parsed = F.from_json("attributes", ", ".join(fields)) if fields else F.lit(None)
    said = [parsed[attribute.name].alias(f"d{number}") for number, attribute in enumerate(rule.attributes)]
    return mine.select(
        PARTS,
        "sink",
        F.struct("type", "ts", "start", "end", *said, F.col("attributes").alias("text")).alias("said"),
    )


def deliveries(said: DataFrame, *, by_sink: bool) -> DataFrame:
    """How often each composite was delivered, and all that was said of it.

    Where nothing is known of sinks, the same composite may come once to each: more than that is ``repeated``.
    """
    from pyspark.sql import functions as F

    per_sink = said.groupBy(PARTS, "sink").agg(F.count("*").alias("lines"), F.collect_set("said").alias("found"))
    if by_sink:
        return per_sink.select(PARTS, "sink", F.col("lines").alias("got"), F.lit(0).alias("repeated"), "found")
    return per_sink.groupBy(PARTS).agg(
        F.lit(1).alias("got"),
        F.sum(F.col("lines") - 1).alias("repeated"),
        F.array_distinct(F.flatten(F.collect_list("found"))).alias("found"),
    )


def same(one: Column, wanted: Expected) -> Column:
    """Whether a delivered composite says of itself what it should."""
    from pyspark.sql import functions as F

    same = [
        one["type"] == wanted.rule.emits,
        one["ts"] == F.col("end_ts"),
        one["start"] == F.col("start_ts"),
        one["end"] == F.col("end_ts"),
    ]
    for number, value in enumerate(wanted.values):
        delivered, due = one[f"d{number}"], F.col(f"v{number}")
        if value.kind == "none":
            same.append(delivered.isNull())
        elif value.rough:
            near = F.abs(delivered - due) <= F.greatest(F.abs(delivered), F.abs(due)) * ROUGH
            same.append(delivered.eqNullSafe(due) | F.coalesce(near, F.lit(False)))
        else:
            same.append(delivered.eqNullSafe(due))
    return F.coalesce(reduce(lambda a, b: a & b, same), F.lit(False))
