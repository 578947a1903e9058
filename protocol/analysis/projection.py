"""Projections: a rule restricted to some of its roles, and which roles one partial rule may combine.

A projection may let through more than the rule needs, never less: every match of the rule, kept to the covered roles,
is a match of the projection. The node above checks everything again on what it gets, so a condition that cannot be
judged below is left out, and so is one that looks into a remote table by a node that does not reach it
(``node.plans.judging``); but what is withheld must not change a decision above. That rests on three things:

- A node that selects by last or first hears of every candidate that would win over one that it gets: through contests,
  or because the role is a plain filter, or because its origin alone determines it (then both come up together or
  neither).
- A node that judges a negation or computes an aggregate gets every event that meets the role's own conjuncts; or the
  negation was judged below on a tuple that its top event determines, so that no node above can put another together.
- Under skip-till-any a tree selects nothing, so any set of real events that holds the parts of all matches will do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headwater.protocol.analysis.chain_projection import ChainView
from headwater.protocol.analysis.conjuncts import asks_outside, staying
from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.analysis.tree_projection import projected_root, tree_component
from headwater.protocol.errors import RuleError
from headwater.protocol.expressions import (
    Expression,
    Fold,
    Same,
    rewritten,
    walk,
)
from headwater.protocol.pattern import (
    Absence,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Pattern,
    Repetition,
    Rule,
    Selection,
    Sequence,
    Window,
    leaves,
)
from headwater.protocol.strategy import CENTRAL

Groups = tuple[tuple[str, ...], ...]


def joinable_components(rule: Rule, roles: Collection[str]) -> Groups:
    """How roles fall into groups that one partial rule each may combine; every role is in exactly one of them.

    The types of ``roles`` must have one producer only, the same for all. A group of one role is a plain filter. Groups
    and the roles in them are in the order of the text.
    """
    check_divisible(rule)
    wanted = set(roles)
    ordered = [leaf.role for leaf in leaves(rule.pattern.root) if leaf.role in wanted]
    assert len(ordered) == len(wanted), f"{sorted(wanted - set(ordered))} are not roles of rule {rule.name!r}"
    if isinstance(rule.pattern.root, Chain):
        joined = ChainView(rule.pattern, rule.pattern.root).components(wanted)
    else:
        joined = [tree_component(rule.pattern, rule.pattern.root, wanted)]
    group_of = {role: group for group in joined if len(group) > 1 for role in group}
    groups = {tuple(member for member in ordered if member in group_of.get(role, {role})): None for role in ordered}
    return tuple(groups)


def project(rule: Rule, roles: Collection[str]) -> PartialRule:
    """The partial rule for one group of ``joinable_components``."""
    groups = joinable_components(rule, roles)
    assert len(groups) == 1, f"rule {rule.name!r}: {sorted(roles)} cannot be combined in one partial rule"
    (covered,) = groups
    pattern, root = rule.pattern, rule.pattern.root
    if isinstance(root, Chain):
        return ChainView(pattern, root).projected(rule, covered)
    if len(covered) == 1:
        (leaf,) = (leaf for leaf in leaves(root) if leaf.role == covered[0])
        return PartialRule(rule, covered, Pattern(leaf, staying(pattern.where, {leaf.role})))
    kept = projected_root(root, set(covered))
    assert kept is not None
    same = [condition for condition in pattern.where if isinstance(condition, Same) and not asks_outside(condition)]
    return PartialRule(rule, covered, Pattern(kept, (*staying(pattern.where, set(covered)), *same)))


def beside_all_of(partial: PartialRule, heard: Collection[str]) -> PartialRule | None:
    """The partial rule for a node above that gets all events of some of its types anyway; None if it needs more.

    The node above then meets events of those types whose other parts were withheld here. So nothing is determined for
    it any more by what comes along: every selected role of the other types is contested, and a negation cannot be
    decided here.
    """
    root = partial.pattern.root
    if not isinstance(root, Chain):
        return partial
    if any(isinstance(step, Absence) for step in root.steps):
        return None
    original = partial.rule.pattern.root
    assert isinstance(original, Chain)
    contests = tuple(
        Contest(step.leaf.role, step.policy, step.within.length_us)
        for step in original.steps
        if isinstance(step, Selection)
        and step.policy != "each"
        and step.leaf.role in partial.roles
        and step.leaf.type not in heard
    )
    return replace(partial, contests=contests)


def anonymous(partial: PartialRule) -> Pattern | None:
    """The pattern with roles named by their positions, so that those of different rules can be compared: if they are
    equal, the constituents of one's matches are those of the other's. None for chains, whose contests depend on the
    rest of the rule."""
    root = partial.pattern.root
    if isinstance(root, Chain) or partial.contests:
        return None
    root = _sorted(root)
    number = {leaf.role: str(position) for position, leaf in enumerate(leaves(root))}
    where = {_anonymous_condition(condition, number) for condition in partial.pattern.where}
    if None in where:
        return None
    ordered = tuple(sorted((condition for condition in where if condition is not None), key=repr))
    return replace(partial.pattern, root=_renamed(root, number), where=ordered)


def _anonymous_condition(condition: Expression, number: Mapping[str, str]) -> Expression | None:
    """None where a role is named otherwise than by an attribute."""
    if any(isinstance(part, Fold) for part in walk(condition)):
        return None
    return rewritten(condition, lambda attribute: replace(attribute, role=number.get(attribute.role, attribute.role)))


def _sorted(part: Part) -> Part:
    """The same with the parts of every AND in the order of what they are made of."""
    match part:
        case Conjunction(parts):
            return replace(part, parts=tuple(sorted(map(_sorted, parts), key=_types_in)))
        case Sequence(parts):
            return replace(part, parts=tuple(map(_sorted, parts)))
    return part


def _types_in(part: Part) -> tuple[str, ...]:
    return tuple(leaf.type for leaf in leaves(part))


def _renamed(part: Part, number: Mapping[str, str]) -> Part:
    match part:
        case Leaf(role):
            return replace(part, role=number[role])
        case Sequence(parts) | Conjunction(parts):
            return replace(part, parts=tuple(_renamed(inner, number) for inner in parts))
        case Disjunction() | Negation() | Repetition():
            raise AssertionError("a partial rule has parts of every match only")


def check_divisible(rule: Rule) -> None:
    """RuleError if the rule cannot be divided over nodes at all."""
    window = getattr(rule.pattern.root, "window", None)
    if isinstance(window, Window) and window.unit == "events":
        raise RuleError(
            f"rule {rule.name!r} has a window of {window.length} events, which only a node that sees all of them can "
            f"count; give it a window of time, or use the strategy {CENTRAL!r}"
        )
