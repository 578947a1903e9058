"""Matches of an operator tree, by joining one role after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipeline.verify.relations import Roles, Unverifiable, all_of, near_join, without_same
from headwater.pipeline.verify.trees import (
    Held,
    bounded,
    distances,
    earliest,
    first_key,
    last_key,
    latest,
    order_pairs,
    resolved,
    roles_in,
    slots,
    structural,
)
from headwater.protocol.expressions import Binary, Expression, roles_of
from headwater.protocol.pattern import Conjunction, Leaf, Negation, Part, Window
from headwater.protocol.pattern import Sequence as Seq

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class MatchFrame:
    """Rows of matches; ``bound`` are the roles that have an event in them."""

    frame: DataFrame
    bound: tuple[str, ...]


def joined(root: Part, window: Window | None, where: Sequence[Expression], roles: Roles) -> MatchFrame:
    """All matches of a tree without disjunctions, repetitions and negations, by the conjuncts over its own roles."""
    named = roles_in(root)
    apart = distances(root, window)
    ordered = order_pairs(root)
    equal = {
        frozenset(roles_of(condition))
        for condition in where
        if isinstance(condition, Binary) and condition.operator == "="
    }
    structure = list(structural(root, window, roles))
    conditions = [*structure, *(Held(roles_of(c), roles.judged(c)) for c in where)]

    def alone(role: str) -> DataFrame:
        events = roles.events(role, [condition for condition in where if roles_of(condition) <= {role}])
        return events.filter(all_of([relation.condition for relation in structure if relation.roles == {role}]))

    def preference(role: str) -> tuple[bool, int, int]:
        linked = any(role in pair and pair & set(bound) for pair in equal if len(pair) == 2)
        return not linked, roles.frequency(role), named.index(role)

    bound = [min(named, key=lambda role: (roles.frequency(role), named.index(role)))]
    frame = alone(bound[0])
    while len(bound) < len(named):
        near = [role for role in named if role not in bound and any(frozenset((role, b)) in apart for b in bound)]
        if not near:
            lone = next(role for role in named if role not in bound)
            bounded(frozenset((lone, bound[0])), apart, roles.rule.name)
        role = min(near, key=preference)
        beside = min(
            (b for b in bound if frozenset((role, b)) in apart),
            key=lambda b: (
                apart[frozenset((role, b))] * (1 if {(b, role), (role, b)} & ordered else 2),
                named.index(b),
            ),
        )
        length = apart[frozenset((role, beside))]
        back = 0 if (beside, role) in ordered else length
        ahead = 0 if (role, beside) in ordered else length
        roles_so_far = {*bound, role}
        on = [
            relation.condition
            for relation in conditions
            if role in relation.roles and relation.roles <= roles_so_far and len(relation.roles) > 1
        ]
        frame = near_join(frame, alone(role), (roles.ts(beside), roles.ts(role)), (back, ahead), on)
        bound.append(role)
    return MatchFrame(frame, tuple(named))


def forbid(matches: MatchFrame, root: Part, window: Window, where: Sequence[Expression], roles: Roles) -> MatchFrame:
    """The matches that no negation anywhere in the tree forbids."""
    for negation, operator, position, owner, owner_window in negations(root, root, window):
        for branch in resolved(negation.part):
            matches = _without(matches, branch, operator, position, owner, owner_window, root, window, where, roles)
    return matches


def negations(
    part: Part, owner: Part, window: Window
) -> Iterable[tuple[Negation, Seq | Conjunction, int, Part, Window]]:
    """Each negation with its operator, its place there, and the operator that owns its window."""
    if not isinstance(part, Seq | Conjunction):
        return
    if part is not owner and part.window is not None:
        owner, window = part, part.window
    for position, inner in enumerate(part.parts):
        if isinstance(inner, Negation):
            yield inner, part, position, owner, window
        else:
            yield from negations(inner, owner, window)


def _without(
    matches: MatchFrame,
    branch: Part,
    operator: Seq | Conjunction,
    position: int,
    owner: Part,
    owner_window: Window,
    root: Part,
    root_window: Window,
    where: Sequence[Expression],
    roles: Roles,
) -> MatchFrame:
    inner = [leaf.role for leaf in slots(branch)]
    own = getattr(branch, "window", None) or owner_window
    if owner_window.unit == "events" or own.unit == "events":
        raise Unverifiable(f"rule {roles.rule.name}: a negation in a window that counts events cannot be verified")
    # SAME concerns the match and the negated events together; what concerns the match alone was judged before.
    written = [c for c in without_same(where, [*matches.bound, *inner]) if roles_of(c) & set(inner)]
    applicable = [c for c in written if roles_of(c) <= {*matches.bound, *inner}]
    inside = [c for c in applicable if roles_of(c) <= set(inner)]
    across = [c for c in applicable if not roles_of(c) <= set(inner)]
    forbidding = joined(branch, None if isinstance(branch, Leaf) else own, inside, roles).frame
    at = latest(inner, roles)
    end = last_key(inner, roles)
    members = roles_in(owner)
    greatest, least, length = latest(members, roles), earliest(members, roles), owner_window.length
    left = [part for part in operator.parts[:position] if not isinstance(part, Negation)]
    right = [part for part in operator.parts[position:] if not isinstance(part, Negation)]
    if isinstance(operator, Conjunction):
        on = [at >= greatest - length, at <= least + length]
        here, near = least, (length, length)
    elif left and right:
        before, after = roles_in(left[-1]), roles_in(right[0])
        on = [_after(end, inner, before, roles), _before(end, inner, after, roles)]
        apart = distances(root, root_window)
        gap = min(bounded(frozenset((a, b)), apart, roles.rule.name) for a in before for b in after)
        here, near = latest(before, roles), (0, gap)
    elif right:
        on = [at >= greatest - length, _before(end, inner, roles_in(right[0]), roles)]
        here, near = greatest, (length, 0)
    else:
        on = [at <= least + length, _after(end, inner, roles_in(left[-1]), roles)]
        here, near = least, (0, length)
    apart_from = [
        roles.differ(one, other)
        for one in inner
        for other in matches.bound
        if roles.leaves[one].type == roles.leaves[other].type
    ]
    on += [*apart_from, *(roles.judged(condition) for condition in across)]
    frame = near_join(matches.frame, forbidding, (here, at), near, on, "left_anti")
    return MatchFrame(frame, matches.bound)


def _after(end: Column, inner: list[str], around: list[str], roles: Roles) -> Column:
    if len(inner) == 1 and len(around) == 1:
        return roles.ends_before(around[0], inner[0])
    return last_key(around, roles) < end


def _before(end: Column, inner: list[str], around: list[str], roles: Roles) -> Column:
    if len(inner) == 1 and len(around) == 1:
        return roles.before(inner[0], around[0])
    return end < first_key(around, roles)
