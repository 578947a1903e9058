"""Counts, without a join, the events of one role around each event of another, in time and with equal values.

All events that may count for each other stand together, sorted by time; running counts of each role's events then say
how many there are up to the beginning and up to the end of what an event reaches. So the work grows with the events,
however many pairs there are, and events are sorted once for every set of values that must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.statistics.combinations import Equality, of_role
from headwater.pipeline.statistics.role_frames import RoleFrames, sides, whole_div
from headwater.protocol.expressions import Expression

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

AT_ONCE: Final = 24
"""So many counts are made in one job: more would make its plan too large."""

PIECE: Final = 16
"""Time is cut into pieces this many times as long as events reach, if there are then enough of them: what lies beside
a piece within reach is looked at in it, too."""

PIECES_LEAST: Final = 64


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


Values = tuple[Expression, ...]
"""What must be equal, as it stands for an event of any role."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """Events that are sorted together, by the values that must be equal.

    Where these are the same for both roles, the lane serves all pairs of roles; otherwise one pair, whose roles
    ``sides`` names, with the values of each.
    """

    left: Values
    right: Values
    sides: tuple[str, str] | None = None


def count_pairs(frames: RoleFrames, asks: Sequence[PairAsk], first_us: int, last_us: int) -> dict[PairAsk, PairCount]:
    """All of them, some at a time."""
    lanes: dict[_Lane, list[PairAsk]] = {}
    for ask in dict.fromkeys(asks):
        lanes.setdefault(_lane(ask), []).append(ask)
    in_lanes = [(lane, ask) for lane, inside in lanes.items() for ask in inside]
    counts: dict[PairAsk, PairCount] = {}
    for start in range(0, len(in_lanes), AT_ONCE):
        counts.update(_Counts(frames, in_lanes[start : start + AT_ONCE], first_us, last_us).counted())
    return counts


def _lane(ask: PairAsk) -> _Lane:
    one, other = sorted((ask.anchor, ask.other))
    left, right = (tuple(of_role(sides(equality, role)[0], "") for equality in ask.equal) for role in (one, other))
    return _Lane(left, right) if left == right else _Lane(left, right, (one, other))


class _Counts:
    """Some counts that are made in one job."""

    def __init__(self, frames: RoleFrames, asks: Sequence[tuple[_Lane, PairAsk]], first_us: int, last_us: int) -> None:
        self.frames = frames
        self.asks = asks
        self.lanes: dict[_Lane, set[str]] = {}
        """And the roles that are asked for in each."""
        for lane, ask in asks:
            self.lanes.setdefault(lane, set()).update((ask.anchor, ask.other))
        roles = dict.fromkeys(role for _, ask in asks for role in (ask.anchor, ask.other))
        self.bits = {role: 1 << at for at, role in enumerate(roles)}
        self.first_us = first_us
        self.reach_us = frames.constraints.reach_us
        enough_us = (last_us - first_us) // PIECES_LEAST
        self.piece_us = max(self.reach_us + 1, min(PIECE * (self.reach_us + 1), enough_us))

    def counted(self) -> dict[PairAsk, PairCount]:
        from pyspark.sql import functions as F

        counted = self._counted(self._rows())
        numbers = {lane: number for number, lane in enumerate(self.lanes)}
        totals = []
        for at, (lane, ask) in enumerate(self.asks):
            asking = (F.col("lane") == numbers[lane]) & self._is("asking", ask.anchor)
            pairs = F.when(asking, self._pairs(ask))
            totals += [F.sum(pairs).alias(f"pairs{at}"), F.count(F.when(pairs > 0, 1)).alias(f"anchors{at}")]
        rows = counted.where("asking != 0").groupBy("stretch").agg(*totals).collect()
        return {
            ask: PairCount(
                *(
                    {row["stretch"]: float(row[f"{count}{at}"]) for row in rows if row[f"pairs{at}"] is not None}
                    for count in ("pairs", "anchors")
                )
            )
            for at, (_, ask) in enumerate(self.asks)
        }

    # Events in lanes ------------------------------------------------------------------------------------------------

    def _rows(self) -> DataFrame:
        """Every event in each lane and piece of time where it counts, or where is asked what counts around it.

        Roles are bits. ``is``: those that it counts as; ``also``: these, and those that the same event counts as with
        equal values in another row of the lane; ``asking``: those around which is counted, once for each event.
        """
        from pyspark.sql import functions as F

        texts = dict.fromkeys(values for lane in self.lanes for values in (lane.left, lane.right))
        keys = {values: f"key{at}" for at, values in enumerate(texts)}
        since = F.col("ts") - F.lit(self.first_us)
        own, into = whole_div(since, self.piece_us), since % self.piece_us
        pieces = F.array(
            own,
            F.when(into <= self.reach_us, own - 1),
            F.when(into >= self.piece_us - self.reach_us, own + 1),
        )
        asking = F.when((F.col("piece") == own) & F.col("stretch").isNotNull(), F.col("is")).otherwise(_bits(0))
        return (
            self.frames.events.select(
                "ts",
                "node",
                "seq",
                "stretch",
                *(self._text(values).alias(name) for values, name in keys.items()),
                self._roles().alias("roles"),
            )
            .where("roles != 0")
            .select("ts", "node", "seq", "stretch", F.explode(F.array(*self._places(keys))).alias("place"))
            .where("place is not null")
            .select("ts", "node", "seq", "stretch", "place.*", F.explode(pieces).alias("piece"))
            .where("piece is not null")
            .withColumn("asking", asking)
        )

    def _places(self, keys: Mapping[Values, str]) -> Iterator[Column]:
        """What an event is in each lane; null where it is nothing."""
        from pyspark.sql import functions as F

        for number, (lane, lane_roles) in enumerate(self.lanes.items()):
            left, right = F.col(keys[lane.left]), F.col(keys[lane.right])
            if lane.sides is None:
                roles = self._some(lane_roles)
                yield _place(number, left, roles, roles)
                continue
            one, other = (self._some((role,)) for role in lane.sides)
            both = F.when(left == right, one.bitwiseOR(other))
            yield _place(number, left, one, F.coalesce(both, one))
            yield _place(number, right, other, F.coalesce(both, other))

    def _roles(self) -> Column:
        from pyspark.sql import functions as F

        role_bits: list[Column] = [
            F.when(self.frames.is_role(role), _bits(bit)).otherwise(_bits(0)) for role, bit in self.bits.items()
        ]
        return reduce(lambda one, other: one.bitwiseOR(other), role_bits)

    def _some(self, roles: Iterable[str]) -> Column:
        from pyspark.sql import functions as F

        return F.col("roles").bitwiseAND(_bits(sum(self.bits[role] for role in roles)))

    def _is(self, column: str, role: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(column).bitwiseAND(_bits(self.bits[role])) != 0

    def _text(self, values: Values) -> Column:
        """Values as one text that is equal just where all of them are; null where one is missing."""
        from pyspark.sql import functions as F

        texts = []
        for value in values:
            cell = self.frames.key(value, "")
            column = cell.column + F.lit(0.0) if cell.kind == "float" else cell.column  # -0.0 equals 0.0
            text = column.cast("string")
            texts.append(F.concat(F.length(text).cast("string"), F.lit(":"), text) if len(values) > 1 else text)
        return F.concat(*texts) if texts else F.lit("")

    # Counts ---------------------------------------------------------------------------------------------------------

    def _counted(self, rows: DataFrame) -> DataFrame:
        """With the events of each role up to the same event, and up to all times that are asked for."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        together = Window.partitionBy("lane", "piece", "key")
        in_order = together.orderBy("ts", "node", "seq").rangeBetween(Window.unboundedPreceding, Window.currentRow)
        by_time = together.orderBy("ts")
        exact, timed = set(), set()
        for _, ask in self.asks:
            for bound in self._bounds(ask):
                if bound is None:
                    exact.add(ask.other)
                else:
                    timed.add((ask.other, bound))

        def number_of(role: str) -> Column:
            return F.count(F.when(self._is("is", role), 1))

        # The stricter order comes first, and serves the other one, too.
        if exact:
            upto = {_upto(role): number_of(role).over(in_order) for role in self.bits if role in exact}
            rows = rows.withColumns(upto)
        if timed:
            rows = rows.withColumns(
                {
                    _upto(role, bound): number_of(role).over(by_time.rangeBetween(Window.unboundedPreceding, bound))
                    for role, bound in sorted(timed)
                }
            )
        return rows

    def _bounds(self, ask: PairAsk) -> tuple[int | None, int | None]:
        """Which of the other's events are too early, and which are early enough: those up to how long after the event.

        None: those up to the event itself, which is one of them if it is of both roles.
        """
        constraints = self.frames.constraints
        low, high = -constraints.apart[ask.anchor, ask.other], constraints.apart[ask.other, ask.anchor]
        before = None if (ask.anchor, ask.other) in constraints.precedes else low - 1
        return before, None if (ask.other, ask.anchor) in constraints.precedes else high

    def _pairs(self, ask: PairAsk) -> Column:
        from pyspark.sql import functions as F

        too_early, early_enough = (F.col(_upto(ask.other, bound)) for bound in self._bounds(ask))
        if (ask.anchor, ask.other) in self.frames.constraints.precedes:
            return early_enough - too_early
        # An event is not together with itself, though it lies in its own reach.
        return early_enough - too_early - self._is("also", ask.other).cast("int")


def _upto(role: str, bound: int | None = None) -> str:
    return f"{role} up to {'itself' if bound is None else bound}"


def _bits(value: int) -> Column:
    from pyspark.sql import functions as F

    return F.lit(value).cast("long")


def _place(lane: int, key: Column, roles: Column, also: Column) -> Column:
    from pyspark.sql import functions as F

    place = F.struct(F.lit(lane).alias("lane"), key.alias("key"), roles.alias("is"), also.alias("also"))
    return F.when(key.isNotNull() & (roles != 0), place)
