"""Awakenings: the window and the conditions with which a master event asks for the other events of a match."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.protocol.analysis.horizons import Offsets, offsets
from headwater.protocol.analysis.pulling import in_negated_patterns
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Parameter, Remote, Same, rewritten, walk
from headwater.protocol.pattern import Chain, Part, Repetition, Rule, Selection, leaves
from headwater.protocol.subscriptions import SUBJECT


@dataclass(frozen=True, slots=True)
class PullReach:
    """Where events of a stream lie relative to a master event, and what its values exclude, by type."""

    least_us: int
    greatest_us: int
    where: tuple[tuple[str, tuple[Expression, ...]], ...]
    """Conjuncts that name the master's role and SUBJECT."""


def reach_of(rule: Rule, master: str, roles: frozenset[str], *, values: bool) -> PullReach | None:
    """Where the events of some roles lie around an event of the master role; None if it does not bound them.

    ``values``: with what the values of the master event exclude.
    """
    where_to = offsets(rule, master)
    if roles & in_negated_patterns(rule):
        return None  # matches of a negated sub-pattern are found as their parts come, in trace order
    bounds = [_candidate_bounds(rule, role, where_to, master) for role in roles]
    if any(least is None or greatest is None for least, greatest in bounds):
        return None
    least = min(least for least, _ in bounds if least is not None)
    greatest = max(greatest for _, greatest in bounds if greatest is not None)
    return PullReach(least, greatest, _excluding(rule, master, roles) if values else ())


def _candidate_bounds(rule: Rule, role: str, where_to: Offsets, master_role: str) -> tuple[int | None, int | None]:
    """Where events lie that the role binds, or chooses from.

    A selection that the master's own choice depends on was made before it and looked at all of its window; so a node
    that repeats it must see all of that window, too.
    """
    bounds = where_to.get(role, (None, None))
    root = rule.pattern.root
    if not isinstance(root, Chain):
        return bounds
    steps = {step.leaf.role: step for step in root.steps if isinstance(step, Selection)}
    above = master_role
    while above in steps:
        above = steps[above].within.origin
        if above == role and role in steps and steps[role].policy != "each":
            within = steps[role].within
            least, greatest = (0, 0) if within.origin == master_role else where_to[within.origin]
            return None if least is None else least - within.length_us, greatest
    return bounds


def _excluding(rule: Rule, master_role: str, roles: frozenset[str]) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
    """For each type of a feed the conjuncts that a known master event turns into conditions on one event.

    A part that is selected by last or first may only be filtered by what the text knows before it: the rest must be
    seen, to fail.
    """
    text = [leaf.role for leaf in leaves(rule.pattern.root)]
    counted = _limited(rule.pattern.root)
    selected = set()
    if isinstance(rule.pattern.root, Chain):
        selected = {
            step.leaf.role for step in rule.pattern.root.steps if isinstance(step, Selection) and step.policy != "each"
        }
    by_type: dict[str, list[Expression]] = {}
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    for role in sorted(roles):
        name = types[role]
        if list(types.values()).count(name) > 1:
            continue  # what one role excludes the other may need
        if role in counted:
            continue  # all events of its own constraints count towards its limit
        if role in selected and text.index(master_role) > text.index(role):
            continue
        for conjunct in rule.pattern.where:
            if any(isinstance(part, Fold | Remote | Parameter) for part in walk(conjunct)):
                continue
            if isinstance(conjunct, Same):
                by_type.setdefault(name, []).append(
                    Binary("=", _renamed(conjunct.key, "", SUBJECT), _renamed(conjunct.key, "", master_role))
                )
                continue
            parts = [part for part in walk(conjunct) if isinstance(part, Attribute)]
            if any(part.index for part in parts) or {part.role for part in parts} != {role, master_role}:
                continue
            by_type.setdefault(name, []).append(_renamed(conjunct, role, SUBJECT))
    return tuple((name, tuple(conjuncts)) for name, conjuncts in sorted(by_type.items()))


def _limited(part: Part | Chain) -> set[str]:
    """Roles of repetitions that have a limit."""
    if isinstance(part, Repetition):
        return {leaf.role for leaf in part.parts} if part.limit is not None else set()
    return set().union(*(_limited(inner) for inner in getattr(part, "parts", ())))


def _renamed(expression: Expression, old: str, new: str) -> Expression:
    return rewritten(expression, lambda part: Attribute(new, part.name) if part.role == old else part)
