"""Finds and counts matches of some roles of a rule, by joins within pieces of time.

Roles are joined one after the other, each by a piece of time as long as two of them may be apart and by whatever must
be equal. Where very many candidates are expected, the events of one side are dealt out over several tasks, so that a
value that most events share does not end up in a single one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.expressions import cell
from headwater.pipeline.statistics.combinations import Equality, RoleConstraints, of_role
from headwater.pipeline.statistics.role_frames import RoleFrames, differ, precedes, sides, whole_div
from headwater.protocol.expressions import Binary, Expression, roles_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK_CANDIDATES: Final = 5_000_000
"""About so many candidates one task may look at; beyond, they are dealt out over more."""

DEALT_MAX: Final = 32
"""Over more tasks than this nothing is dealt out: one side is repeated for each of them."""


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """By stretch: matches (of the first role's event), those that also meet the last conditions, and by role the events
    that are in some match."""

    matches: Mapping[int, float]
    passed: Mapping[int, float]
    events: Mapping[str, Mapping[int, float]]


def join_order(constraints: RoleConstraints, roles: frozenset[str], sizes: Mapping[str, float]) -> tuple[str, ...]:
    """The rarest role first, then whatever is bound to those before by equal values, rare ones first."""
    left = set(roles)
    done: list[str] = []
    while left:
        linked = {role for role in left if done and _linked(constraints, role, done)}
        chosen = min(linked or left, key=lambda role: (sizes.get(role, 0.0), constraints.number[role]))
        done.append(chosen)
        left.remove(chosen)
    return tuple(done)


def _linked(constraints: RoleConstraints, role: str, done: Sequence[str]) -> bool:
    if constraints.same:
        return True
    return any(
        role in (equality.one, equality.other) and {equality.one, equality.other} <= {role, *done}
        for _, equality in constraints.equalities(frozenset((role, *done)))
    )


def nearest(constraints: RoleConstraints, role: str, done: Sequence[str]) -> str:
    """Of some roles, the one that bounds another most closely."""
    return min(
        done,
        key=lambda other: (constraints.apart[other, role] + constraints.apart[role, other], constraints.number[other]),
    )


def links(frames: RoleFrames, role: str, done: Sequence[str]) -> list[Equality]:
    """The equalities by which a role is joined to those before."""
    constraints = frames.constraints
    equalities = [
        Equality(done[0], of_role(same.key, done[0]), role, of_role(same.key, role)) for same in constraints.same
    ]
    for condition in constraints.among(frozenset((role, *done))):
        if role in roles_of(condition) and isinstance(condition, Binary) and condition.operator == "=":
            left, right = roles_of(condition.left), roles_of(condition.right)
            if len(left) == len(right) == 1 and left != right:
                equalities.append(Equality(next(iter(left)), condition.left, next(iter(right)), condition.right))
    return [equality for equality in equalities if frames.joins(equality)]


def matches(
    frames: RoleFrames,
    roles: frozenset[str],
    order: Sequence[str],
    first_us: int,
    candidates: float,
    last: Sequence[Expression] = (),
) -> JoinCounts:
    """Counts the matches of some roles. ``last``: conditions that do not decide what a match is, but are counted."""
    from pyspark.sql import functions as F

    constraints = frames.constraints
    ordered = constraints.in_order(roles)
    prefix = {role: f"r{at}_" for at, role in enumerate(ordered)}
    conditions = [condition for condition in constraints.among(roles) if condition not in last]
    keys = [of_role(same.key, role) for same in constraints.same for role in ordered]
    named = [*conditions, *last, *keys]
    dealt = max(1, min(DEALT_MAX, math.ceil(candidates / TASK_CANDIDATES)))
    joined = frames.of(order[0], prefix[order[0]], named)
    for at, role in enumerate(order[1:], 1):
        joined = _joined(frames, joined, order[:at], role, prefix, named, conditions, first_us, dealt)
    passed = frames.holds(last, prefix).cast("int") if last else F.lit(1)
    parts = F.array(
        *(
            F.struct(
                F.lit(number).alias("role"),
                F.col(f"{prefix[role]}node").alias("node"),
                F.col(f"{prefix[role]}seq").alias("seq"),
                F.col(f"{prefix[role]}stretch").alias("stretch"),
            )
            for number, role in enumerate(ordered)
        )
    )
    rows = (
        joined.select(passed.alias("passed"), F.explode(parts).alias("part"))
        .select("passed", "part.*")
        .where("stretch is not null")
        .groupBy("role", "node", "seq", "stretch")
        .agg(F.count("*").alias("matches"), F.sum("passed").alias("passed"))
        .groupBy("role", "stretch")
        .agg(
            F.sum("matches").alias("matches"),
            F.sum("passed").alias("passed"),
            F.count_if(F.col("passed") > 0).alias("events"),
        )
        .collect()
    )
    events: dict[str, dict[int, float]] = {role: {} for role in ordered}
    for row in rows:
        events[ordered[row["role"]]][row["stretch"]] = float(row["events"])
    firsts = [row for row in rows if row["role"] == 0]
    return JoinCounts(
        {row["stretch"]: float(row["matches"]) for row in firsts},
        {row["stretch"]: float(row["passed"]) for row in firsts},
        events,
    )


def _joined(
    frames: RoleFrames,
    joined: DataFrame,
    done: Sequence[str],
    role: str,
    prefix: Mapping[str, str],
    named: Sequence[Expression],
    conditions: Sequence[Expression],
    first_us: int,
    dealt: int,
) -> DataFrame:
    from pyspark.sql import functions as F

    constraints, mine = frames.constraints, prefix[role]
    by = nearest(constraints, role, done)
    low, high = -constraints.apart[by, role], constraints.apart[role, by]
    width, since = max(1, high - low + 1), first_us - constraints.reach_us
    equal = links(frames, role, done)
    lookup = frames.lookup(prefix)
    right = frames.of(role, mine, named).withColumn("piece", whole_div(F.col(f"{mine}ts") - F.lit(since), width))
    start, end = (F.col(f"{prefix[by]}ts") + F.lit(bound) - F.lit(since) for bound in (low, high))
    left = joined.withColumn("piece", F.explode(F.sequence(whole_div(start, width), whole_div(end, width))))
    on = ["piece"]
    for number, equality in enumerate(equal):
        own, other_side = sides(equality, role)
        name = f"key{number}"
        right = right.withColumn(name, cell(own, lookup).column)
        left = left.withColumn(name, cell(other_side, lookup).column)
        on.append(name)
    if dealt > 1:
        identities = [f"{prefix[earlier]}{name}" for earlier in done for name in ("node", "seq")]
        spread = F.pmod(F.xxhash64(*identities), F.lit(dealt)).cast("int")
        left = left.withColumn("deal", spread)
        right = right.withColumn("deal", F.explode(F.array(*(F.lit(number) for number in range(dealt)))))
        on.append("deal")
    pairs = left.join(right, on).drop(*on)
    for other in done:
        theirs = prefix[other]
        apart = F.col(f"{mine}ts") - F.col(f"{theirs}ts")
        fits = (apart <= constraints.apart[role, other]) & (apart >= -constraints.apart[other, role])
        if (role, other) in constraints.precedes:
            fits = fits & precedes(mine, theirs)
        elif (other, role) in constraints.precedes:
            fits = fits & precedes(theirs, mine)
        elif constraints.types[role] == constraints.types[other]:
            fits = fits & differ(mine, theirs)
        pairs = pairs.where(fits)
    bound = {*done, role}
    due = [condition for condition in conditions if role in roles_of(condition) and roles_of(condition) <= bound]
    for same in constraints.same:  # where the values could not be keys
        one = of_role(same.key, done[0])
        due.append(Binary("=", one, of_role(same.key, role)))
    return pairs.where(frames.holds(due, prefix))
