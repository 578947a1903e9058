"""How many events of one role lie around each event of another, in time and with equal values, without a join.

The events of both roles are sorted together in short pieces of time, by value where values must be equal; a running
count then says how many lie before the beginning and before the end of what an event reaches. So the work grows with
the events, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

from pipeline.cells import Cell
from pipeline.combinations import Equality
from pipeline.role_frames import RoleFrames, sides, whole_div
from protocol.expressions import Expression, rewritten

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT_ONCE: Final = 12
"""So many counts are made in one job: more would make its plan too large."""

_LAST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class PairAsk:
    """For each event of the anchor: how many events of the other role it can be together with."""

    anchor: str
    other: str
    equal: tuple[Equality, ...] = ()


@dataclass(frozen=True, slots=True)
class PairCount:
    """By stretch of the anchor: the pairs, and the anchors that have at least one."""

    pairs: Mapping[int, float]
    anchors: Mapping[int, float]

    @property
    def total(self) -> float:
        return sum(self.pairs.values())


def count_pairs(frames: RoleFrames, asks: Sequence[PairAsk], first_us: int) -> dict[PairAsk, PairCount]:
    """All of them, some at a time."""
    found: dict[PairAsk, PairCount] = {}
    distinct = list(dict.fromkeys(asks))
    for start in range(0, len(distinct), AT_ONCE):
        found.update(_counted(frames, distinct[start : start + AT_ONCE], first_us))
    return found


def _counted(frames: RoleFrames, asks: Sequence[PairAsk], first_us: int) -> dict[PairAsk, PairCount]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = reduce(
        lambda one, other: one.unionByName(other), [_rows(frames, ask, at, first_us) for at, ask in enumerate(asks)]
    )
    before = (
        Window.partitionBy("ask", "piece", "key")
        .orderBy("at", "tie", "tie_node", "tie_seq", "side")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    counted = (
        rows.withColumn("seen", F.sum("event").over(before))
        .where("event = 0")
        .groupBy("ask", "node", "seq", "stretch")
        .agg(F.sum(F.col("weight") * F.col("seen") + F.col("extra")).alias("pairs"))
        .groupBy("ask", "stretch")
        .agg(F.sum("pairs").alias("pairs"), F.count_if(F.col("pairs") > 0).alias("anchors"))
        .collect()
    )
    pairs: list[dict[int, float]] = [{} for _ in asks]
    anchors: list[dict[int, float]] = [{} for _ in asks]
    for row in counted:
        pairs[row["ask"]][row["stretch"]] = float(row["pairs"])
        anchors[row["ask"]][row["stretch"]] = float(row["anchors"])
    return {ask: PairCount(pairs[at], anchors[at]) for at, ask in enumerate(asks)}


def _rows(frames: RoleFrames, ask: PairAsk, number: int, first_us: int) -> DataFrame:
    """The other role's events, and for every anchor the places up to which they are counted."""
    from pyspark.sql import functions as F

    asked = frames.asked
    low, high = -asked.apart[ask.anchor, ask.other], asked.apart[ask.other, ask.anchor]
    width = max(1, high - low + 1)
    since = first_us - asked.reach_us  # no bound lies before this, so pieces are numbered from zero

    def piece(at: Column) -> Column:
        return whole_div(at - F.lit(since), width)

    def row(at: Column, tie: int, exact: bool, side: int, event: int, weight: int, extra: Column) -> list[Column]:
        return [
            at.alias("at"),
            F.lit(tie).alias("tie"),
            (F.col("node") if exact else F.lit("")).alias("tie_node"),
            (F.col("seq") if exact else F.lit(0).cast("long")).alias("tie_seq"),
            F.lit(side).alias("side"),
            F.lit(event).alias("event"),
            F.lit(weight).alias("weight"),
            extra.alias("extra"),
        ]

    none = F.lit(0)
    of_other, of_anchor = _keys(frames, ask)
    events = frames.of(ask.other, "", [each for each, _ in of_other])
    other_key = _text([key for _, key in of_other])
    described = events.where(other_key.isNotNull()).select(
        F.lit(number).alias("ask"),
        piece(F.col("ts")).alias("piece"),
        other_key.alias("key"),
        "node",
        "seq",
        "stretch",
        *row(F.col("ts"), 1, True, 1, 1, 0, none),
    )
    after_it = (ask.anchor, ask.other) in asked.precedes
    before_it = (ask.other, ask.anchor) in asked.precedes
    start, end = F.col("ts") + F.lit(low), F.col("ts") + F.lit(high)
    extra = none
    named = [each for each, _ in of_anchor]
    if asked.types[ask.anchor] == asked.types[ask.other] and not after_it and not before_it:
        # An event is not together with itself, though it lies in its own reach.
        both = [*asked.own(ask.other), *(each for each, _ in of_other)]
        named += [_moved(each, ask.other, ask.anchor) for each in both]
        own = [_moved(each, ask.other, ask.anchor) for each in asked.own(ask.other)]
        itself = frames.holds(own, {ask.anchor: ""})
        for equality in ask.equal:
            mine, others = sides(equality, ask.anchor)
            mirrored = frames.key(_moved(others, ask.other, ask.anchor), ask.anchor).column
            itself = itself & F.coalesce(frames.key(mine, ask.anchor).column == mirrored, F.lit(False))
        extra = F.when(itself, F.lit(-1)).otherwise(F.lit(0))
    anchor_key = _text([key for _, key in of_anchor])
    upper = row(end, 1, True, 0, 0, 1, extra) if before_it else row(end, 2, False, 0, 0, 1, extra)
    lower = row(start, 1, True, 2, 0, -1, none) if after_it else row(start, 0, False, 0, 0, -1, none)
    rest = row(F.lit(_LAST), 2, False, 0, 0, 1, none)
    places = F.array(
        F.struct(piece(end).alias("piece"), *upper),
        F.struct(piece(start).alias("piece"), *lower),
        # Where the reach goes over into the next piece, all that follows in the first one counts, too.
        F.when(piece(end) > piece(start), F.struct(piece(start).alias("piece"), *rest)),
    )
    asking = (
        frames.of(ask.anchor, "", named)
        .where(F.col("stretch").isNotNull() & anchor_key.isNotNull())
        .select(
            F.lit(number).alias("ask"), anchor_key.alias("key"), "node", "seq", "stretch", F.explode(places).alias("of")
        )
        .where("of is not null")
        .select("ask", "of.piece", "key", "node", "seq", "stretch", *(f"of.{name}" for name in _ROW))
    )
    return described.unionByName(asking)


_ROW: Final = ("at", "tie", "tie_node", "tie_seq", "side", "event", "weight", "extra")


def _keys(frames: RoleFrames, ask: PairAsk) -> tuple[list[tuple[Expression, Cell]], list[tuple[Expression, Cell]]]:
    """What must be equal, of the other role and of the anchor."""
    of_other, of_anchor = [], []
    for equality in ask.equal:
        mine, others = sides(equality, ask.anchor)
        of_anchor.append((mine, frames.key(mine, ask.anchor)))
        of_other.append((others, frames.key(others, ask.other)))
    return of_other, of_anchor


def _moved(expression: Expression, role: str, to: str) -> Expression:
    return rewritten(expression, lambda part: replace(part, role=to) if part.role == role else part)


def _text(keys: Sequence[Cell]) -> Column:
    """Values as one text that is equal just where all of them are; null where one is missing."""
    from pyspark.sql import functions as F

    if not keys:
        return F.lit("")
    texts = []
    for key in keys:
        column = key.column + F.lit(0.0) if key.kind == "float" else key.column  # -0.0 equals 0.0
        text = column.cast("string")
        texts.append(F.concat(F.length(text).cast("string"), F.lit(":"), text) if len(keys) > 1 else text)
    return F.concat(*texts)
