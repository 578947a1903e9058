"""Matches of an operator tree under skip-till-any: one relation for each way through its disjunctions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.pipeline.verify.joins import MatchFrame, forbid, joined, negations
from headwater.pipeline.verify.relations import Roles, Unverifiable, first_of, last_of
from headwater.pipeline.verify.repetitions import conjuncts_of, has_inner, repeated_in, with_candidates
from headwater.pipeline.verify.trees import distances, order_pairs, resolved, roles_in
from headwater.protocol.expressions import Attribute, Expression, Fold, rewritten, roles_of, walk
from headwater.protocol.pattern import Conjunction, Disjunction, Leaf, Part, Repetition, Window, leaves
from headwater.protocol.pattern import Sequence as Seq


@dataclass(frozen=True, slots=True)
class BranchMatches:
    """Matches with the same roles. ``finished``: the conjuncts that look at all elements of repetitions, which the
    matches meet for as many choices of elements as they say."""

    matches: MatchFrame
    finished: tuple[Expression, ...] = ()


def branches_of(root: Part, window: Window, where: Sequence[Expression], roles: Roles) -> list[BranchMatches]:
    return [_branch(branch, root, window, where, roles) for branch in resolved(root)]


def _branch(branch: Part, root: Part, window: Window, where: Sequence[Expression], roles: Roles) -> BranchMatches:
    bound = roles_in(branch)
    negated = [leaf.role for leaf in leaves(branch) if leaf.role not in bound]
    conjuncts = conjuncts_of(where, bound, negated, roles)
    matches = forbid(joined(branch, window, conjuncts.plain, roles), branch, window, conjuncts.negated, roles)
    if not roles.repeated:
        return BranchMatches(matches)
    _check_apart(branch, window, bound, roles)
    for limited in _limits(root):
        if first_of(limited.parts[0].role) in bound:
            matches = _uncrowded(matches, limited, branch, window, where, conjuncts.plain, roles)
    return BranchMatches(with_candidates(matches, conjuncts, distances(branch, window), roles), conjuncts.finished)


def _check_apart(branch: Part, window: Window, bound: Sequence[str], roles: Roles) -> None:
    """Refuses repetitions whose inner elements could also be something else, which would have to be listed."""
    repeated = [role for role in repeated_in(bound, roles) if has_inner(role, bound)]
    ordered = order_pairs(branch)
    types = {role: roles.leaves[first_of(role)].type for role in repeated}
    for at, one in enumerate(repeated):
        for other in repeated[at + 1 :]:
            pair = (first_of(one), first_of(other))
            if types[one] == types[other] and pair not in ordered and pair[::-1] not in ordered:
                raise Unverifiable(
                    f"rule {roles.rule.name}: {one}[] and {other}[] are of one type and in no order, so that they "
                    "share candidates, which cannot be counted"
                )
    for negation, operator, _, _, _ in negations(branch, branch, window):
        forbidden = {leaf.type for leaf in leaves(negation)}
        for role in repeated:
            beside = isinstance(operator, Seq) and any(
                isinstance(part, Leaf) and part.role == first_of(role) for part in operator.parts
            )
            if types[role] in forbidden and not (beside and isinstance(negation.part, Leaf)):
                raise Unverifiable(
                    f"rule {roles.rule.name}: elements of {role}[] are of a type that the rule also forbids around "
                    "them, so that the choice of elements would decide, which cannot be counted"
                )


def _limits(part: Part) -> Iterator[Repetition]:
    match part:
        case Repetition(limit=limit):
            if limit is not None:
                yield part
        case Seq() | Conjunction() | Disjunction():
            for inner in part.parts:
                yield from _limits(inner)


def _uncrowded(
    matches: MatchFrame,
    limited: Repetition,
    branch: Part,
    window: Window,
    where: Sequence[Expression],
    plain: Sequence[Expression],
    roles: Roles,
) -> MatchFrame:
    """The matches beside whose other parts no more candidates of the repetition lie than its limit."""
    from pyspark.sql import functions as F

    role, limit = limited.parts[0].role, limited.limit
    assert limit is not None
    ends = {first_of(role), last_of(role)}
    rest = [role_name for role_name in matches.bound if role_name not in ends]
    if len(repeated_in(matches.bound, roles)) > 1:
        raise Unverifiable(f"rule {roles.rule.name}: LIMIT beside another repeated part cannot be verified")
    own = [_of_first(condition, role) for condition in where if _is_own(condition, role)]
    beside = [condition for condition in plain if not roles_of(condition) & ends]
    alone = _without_role(branch, last_of(role))
    identity = [name for role_name in rest for name in roles.identity_names(role_name)]
    crowded = (
        joined(alone, window, [*beside, *own], roles)
        .frame.groupBy(*identity)
        .agg(F.count("*").alias("_number"))
        .filter(F.col("_number") > limit)
        .select(*identity)
    )
    return MatchFrame(matches.frame.join(crowded, identity, "left_anti"), matches.bound)


def _is_own(conjunct: Expression, role: str) -> bool:
    """Whether a conjunct concerns an element alone, so that it says which events are candidates."""
    names = [part for part in walk(conjunct) if isinstance(part, Attribute | Fold)]
    return roles_of(conjunct) == {role} and all(isinstance(name, Attribute) and name.index == "" for name in names)


def _of_first(conjunct: Expression, role: str) -> Expression:
    return rewritten(conjunct, lambda name: Attribute(first_of(role), name.name))


def _without_role(part: Part, role: str) -> Part:
    if not isinstance(part, Seq | Conjunction):
        return part
    kept = [_without_role(inner, role) for inner in part.parts if not (isinstance(inner, Leaf) and inner.role == role)]
    return replace(part, parts=tuple(kept))
