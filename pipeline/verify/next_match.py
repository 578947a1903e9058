"""Matches under skip-till-next: from each first event, every next part is the earliest later event that fits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headwater.pipeline.verify.joins import MatchFrame, forbid
from headwater.pipeline.verify.relations import HEADER, Roles, Unverifiable, all_of, near_join, without_same
from headwater.pipeline.verify.trees import resolved, roles_in, structural
from headwater.protocol.expressions import Expression, roles_of
from headwater.protocol.pattern import Disjunction, Leaf, Negation, Part, Window
from headwater.protocol.pattern import Sequence as Seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Opening = tuple[Leaf, tuple[Part, ...]]


def openings(parts: tuple[Part, ...], rule: str) -> list[Opening]:
    """What a run may take next when these parts are still to come, each with what is to come after it."""
    if not parts:
        return []
    first, rest = parts[0], parts[1:]
    match first:
        case Negation():
            return openings(rest, rule)
        case Seq(inner):
            return openings((*inner, *rest), rule)
        case Disjunction(branches):
            return [opening for branch in branches for opening in openings((branch, *rest), rule)]
        case Leaf():
            return [(first, rest)]
    raise Unverifiable(f"rule {rule}: a repeated part under SKIP TILL NEXT MATCH cannot be verified")


def next_matches(root: Part, window: Window, where: Sequence[Expression], roles: Roles) -> list[MatchFrame]:
    """All matches, one relation for each way of choosing the branches of disjunctions."""
    rule = roles.rule.name
    matches: list[MatchFrame] = []
    waiting: list[tuple[DataFrame | None, tuple[str, ...], tuple[Part, ...]]] = [(None, (), (root,))]
    while waiting:
        frame, bound, rest = waiting.pop()
        wanted = openings(rest, rule)
        if not wanted:
            assert frame is not None
            matches.append(_whole(frame, bound, root, window, where, roles))
            continue
        for (leaf, after), taken in zip(wanted, _taken(frame, bound, wanted, root, window, where, roles), strict=True):
            waiting.append((taken, (*bound, leaf.role), after))
    return matches


def _taken(
    frame: DataFrame | None,
    bound: tuple[str, ...],
    wanted: Sequence[Opening],
    root: Part,
    window: Window,
    where: Sequence[Expression],
    roles: Roles,
) -> list[DataFrame]:
    """For each opening the runs that take it next: the least later event that fits any of them decides."""
    from pyspark.sql import Window as Over
    from pyspark.sql import functions as F

    candidates = []
    for number, (leaf, _) in enumerate(wanted):
        role = leaf.role
        written = without_same(where, [*bound, role])
        judged = [condition for condition in written if roles_of(condition) <= {*bound, role}]
        alone = [condition for condition in judged if roles_of(condition) <= {role}]
        if frame is None:
            candidates.append(roles.events(role, alone))
            continue
        gap = _gap(root, window, bound, role, roles.rule.name)
        on = [roles.before(bound[-1], role)]
        on += [
            roles.judged(condition) for condition in judged if role in roles_of(condition) and condition not in alone
        ]
        joined = near_join(frame, roles.events(role, alone), (roles.ts(bound[-1]), roles.ts(role)), (0, gap), on)
        key = [column.alias(f"_next_{number_of}") for number_of, column in enumerate(roles.order(role))]
        candidates.append(joined.select("*", *key, F.lit(number).alias("_opening")))
    if frame is None:
        return candidates  # every event that fits begins a run
    together = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), candidates)
    identity = [column for role in bound for column in roles.identity(role)]
    least = Over.partitionBy(*identity).orderBy(*(F.col(f"_next_{number}") for number in range(len(HEADER) + 1)))
    chosen = together.withColumn("_rank", F.rank().over(least)).filter(F.col("_rank") == 1)
    return [
        chosen.filter(F.col("_opening") == number).select(
            *(F.col(f"`{name}`") for name in frame_of.columns if not name.startswith("_"))
        )
        for number, frame_of in enumerate(candidates)
    ]


def _gap(root: Part, window: Window, bound: tuple[str, ...], role: str, rule: str) -> int:
    """How long after the last event of a run the next one may come before some window is broken."""
    lengths = []
    for branch in resolved(root):
        if not {*bound, role} <= set(roles_in(branch)):
            continue
        bounds: list[int] = []
        for operator, own in _windows(branch, window):
            parts = [roles_in(part) for part in operator.parts if not isinstance(part, Negation)]
            at = next((i for i, part in enumerate(parts) if role in part), None)
            if at is None:
                continue
            earlier = [role_before for part in parts[:at] for role_before in part]
            within = [other for other in parts[at] if other != role] if own.bounds == "span" else []
            if set(bound) & {*earlier, *within}:
                bounds.append(own.length)
        if not bounds:
            raise Unverifiable(f"rule {rule}: nothing bounds how long after {bound[-1]} the event {role} may come")
        lengths.append(min(bounds))
    return max(lengths)


def _windows(part: Part, window: Window | None) -> list[tuple[Seq, Window]]:
    """The sequences that have a window, the outermost with the one that is given."""
    if not isinstance(part, Seq):
        return []
    windows = [(part, window)] if window is not None else []
    for inner in part.parts:
        if isinstance(inner, Seq):
            windows += _windows(inner, inner.window)
    return windows


def _whole(
    frame: DataFrame, bound: tuple[str, ...], root: Part, window: Window, where: Sequence[Expression], roles: Roles
) -> MatchFrame:
    """Windows only grow wider with every event taken, so that it is enough to look at them in the end."""
    branch = next(branch for branch in resolved(root) if set(roles_in(branch)) == set(bound))
    kept = frame.filter(all_of([relation.condition for relation in structural(branch, window, roles)]))
    return forbid(MatchFrame(kept, bound), branch, window, where, roles)
