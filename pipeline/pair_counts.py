"""How many events of one role lie around each event of another, in time and with equal values, without a join.

The events of both roles are sorted together in short pieces of time, by value where values must be equal; a running
count then says how many lie before the beginning and before the end of what an event reaches. So the work grows with
the events, however many pairs there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.cells import Cell
from pipeline.combinations import Equality
from pipeline.role_frames import RoleFrames, sides, whole_div

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

    before = (
        Window.partitionBy("ask", "piece", "key")
        .orderBy("at", "tie", "tie_node", "tie_seq", "side")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    counted = (
        _rows(frames, asks, first_us)
        .withColumn("seen", F.sum("event").over(before))
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


def _rows(frames: RoleFrames, asks: Sequence[PairAsk], first_us: int) -> DataFrame:
    """For every ask the other role's events, and for every anchor the places up to which they are counted; all of them
    in one pass over the events."""
    from pyspark.sql import functions as F

    roles = {
        role: f"is{at}" for at, role in enumerate(dict.fromkeys(r for ask in asks for r in (ask.anchor, ask.other)))
    }
    known: dict[str, Column] = {name: frames.is_role(role) for role, name in roles.items()}
    places: list[Column] = []
    for number, ask in enumerate(asks):
        of_other, of_anchor = _keys(frames, ask)
        known[f"other{number}"], known[f"anchor{number}"] = _text(of_other), _text(of_anchor)
        places += _places(frames, ask, number, roles, first_us)
    return (
        frames.events.select("*", *(column.alias(name) for name, column in known.items()))
        .select(F.explode(F.array(*places)).alias("of"))
        .where("of is not null")
        .select("of.*")
    )


def _places(frames: RoleFrames, ask: PairAsk, number: int, roles: Mapping[str, str], first_us: int) -> Iterator[Column]:
    """What an event is to an ask: one that is counted, or one around which is counted; null where it is neither."""
    from pyspark.sql import functions as F

    asked = frames.asked
    low, high = -asked.apart[ask.anchor, ask.other], asked.apart[ask.other, ask.anchor]
    width = max(1, high - low + 1)
    since = first_us - asked.reach_us  # no bound lies before this, so pieces are numbered from zero

    def piece(at: Column) -> Column:
        return whole_div(at - F.lit(since), width)

    def place(
        key: str, within: Column, at: Column, tie: int, side: int, weight: int, extra: Column | None = None
    ) -> Column:
        """Ties: 0 before all events of the time, 2 after them, 1 at the event of this key, after it if ``side`` > 1."""
        exact = tie == 1
        return F.struct(
            F.lit(number).alias("ask"),
            piece(within).alias("piece"),
            F.col(key).alias("key"),
            F.col("node"),
            F.col("seq"),
            F.col("stretch"),
            at.alias("at"),
            F.lit(tie).alias("tie"),
            (F.col("node") if exact else F.lit("")).alias("tie_node"),
            (F.col("seq") if exact else F.lit(0).cast("long")).alias("tie_seq"),
            F.lit(side).alias("side"),
            F.lit(int(weight == 0)).alias("event"),
            F.lit(weight).alias("weight"),
            (F.lit(0) if extra is None else extra).alias("extra"),
        )

    after_it = (ask.anchor, ask.other) in asked.precedes
    before_it = (ask.other, ask.anchor) in asked.precedes
    ts = F.col("ts")
    start, end = ts + F.lit(low), ts + F.lit(high)
    counted, key = f"other{number}", f"anchor{number}"
    yield F.when(F.col(roles[ask.other]) & F.col(counted).isNotNull(), place(counted, ts, ts, 1, 1, 0))
    extra = None
    if asked.types[ask.anchor] == asked.types[ask.other] and not after_it and not before_it:
        # An event is not together with itself, though it lies in its own reach.
        itself = F.col(roles[ask.other]) & (F.col(counted) == F.col(key))
        extra = F.when(F.coalesce(itself, F.lit(False)), F.lit(-1)).otherwise(F.lit(0))
    asking = F.col(roles[ask.anchor]) & F.col("stretch").isNotNull() & F.col(key).isNotNull()
    upper = place(key, end, end, 1, 0, 1, extra) if before_it else place(key, end, end, 2, 0, 1, extra)
    lower = place(key, start, start, 1, 2, -1) if after_it else place(key, start, start, 0, 0, -1)
    yield F.when(asking, upper)
    yield F.when(asking, lower)
    # Where the reach goes over into the next piece, all that follows in the first one counts, too.
    yield F.when(asking & (piece(end) > piece(start)), place(key, start, F.lit(_LAST), 2, 0, 1))


def _keys(frames: RoleFrames, ask: PairAsk) -> tuple[list[Cell], list[Cell]]:
    """What must be equal, of the other role and of the anchor."""
    of_other, of_anchor = [], []
    for equality in ask.equal:
        mine, others = sides(equality, ask.anchor)
        of_anchor.append(frames.key(mine, ask.anchor))
        of_other.append(frames.key(others, ask.other))
    return of_other, of_anchor


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
