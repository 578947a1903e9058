"""Cases and rules that are a little smaller than a given one, to find the smallest that still fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from headwater.protocol import expressions as ex
from headwater.protocol import pattern as pt
from tests.law.generators import Case
from tests.law.shapes import has_lonely_limit


def reductions(case: Case) -> Iterator[Case]:
    """Cases that are a little smaller than this one."""
    for i, dropped in enumerate(case.rules):
        others = case.rules[:i] + case.rules[i + 1 :]
        if others and not any(dropped.emits in pt.types_of(rule.pattern) for rule in others):
            yield replace(case, rules=others)
    for width in (4, 2, 1):
        for i in range(0, len(case.events), width):
            yield replace(case, events=case.events[:i] + case.events[i + width :])
    read = {name for rule in case.rules for name in pt.types_of(rule.pattern)}
    for i, rule in enumerate(case.rules):
        for smaller in smaller_rules(rule, rule.emits not in read):
            yield replace(case, rules=(*case.rules[:i], smaller, *case.rules[i + 1 :]))


def smaller_rules(rule: pt.Rule, attributes_free: bool) -> Iterator[pt.Rule]:
    pattern = rule.pattern
    if attributes_free and rule.attributes:
        for i in range(len(rule.attributes)):
            yield replace(rule, attributes=rule.attributes[:i] + rule.attributes[i + 1 :])
    if isinstance(pattern.root, pt.Chain):
        roots: Iterable[Any] = [
            replace(pattern.root, steps=pattern.root.steps[:i] + pattern.root.steps[i + 1 :])
            for i in range(len(pattern.root.steps))
        ]
    else:
        roots = smaller_parts(pattern.root)
    for root in roots:
        if (made := without_lost_names(rule, root)) is not None:
            yield made
    for i in range(len(pattern.where)):
        yield replace(rule, pattern=replace(pattern, where=pattern.where[:i] + pattern.where[i + 1 :]))


def smaller_parts(part: Any) -> Iterator[Any]:
    """The part with one part fewer somewhere; never an operator without a positive part."""
    match part:
        case pt.Negation(inner):
            for smaller in smaller_parts(inner):
                yield pt.Negation(smaller)
            if not isinstance(inner, pt.Leaf):
                yield from (pt.Negation(leaf) for leaf in pt.leaves(inner))
        case pt.Repetition(parts, limit):
            if limit is not None:
                yield pt.Repetition(parts)
        case pt.Sequence(parts) | pt.Conjunction(parts) | pt.Disjunction(parts):
            for i, inner in enumerate(parts):
                rest = parts[:i] + parts[i + 1 :]
                if any(not isinstance(p, pt.Negation) for p in rest):
                    yield replace(part, parts=rest)
                for smaller in smaller_parts(inner):
                    yield replace(part, parts=(*parts[:i], smaller, *parts[i + 1 :]))
                if isinstance(inner, pt.Sequence | pt.Conjunction | pt.Disjunction | pt.Repetition):
                    for leaf in pt.positive_leaves(inner):
                        yield replace(part, parts=(*parts[:i], leaf, *parts[i + 1 :]))


def without_lost_names(rule: pt.Rule, root: Any) -> pt.Rule | None:
    """The rule with another root and without what names a role or parameter that is gone; None if that cannot be."""
    roles = {leaf.role for leaf in pt.leaves(root)}
    positive = {leaf.role for leaf in pt.positive_leaves(root)}
    parameters = set()
    if isinstance(root, pt.Chain):
        for step in root.steps:
            reach = step.within if isinstance(step, pt.Selection) else step.range
            named = {reach.origin} if isinstance(reach, pt.Within) else {reach.one, reach.other}
            if not named <= positive:
                return None
            if isinstance(step, pt.Aggregate):
                parameters.add(step.name)
    if has_lonely_limit(root):
        return None
    repeated = pt.repeated_roles(root)

    def known(expression: ex.Expression, allowed: set[str]) -> bool:
        for part in ex.walk(expression):
            if isinstance(part, ex.Fold) and part.role not in repeated:
                return False
            if isinstance(part, ex.Attribute) and part.index and part.role not in repeated:
                return False
        return ex.roles_of(expression) <= allowed and ex.parameters_of(expression) <= parameters

    where = tuple(c for c in rule.pattern.where if known(c, roles))
    kept = tuple(a if known(a.value, positive) else replace(a, value=ex.Constant(0)) for a in rule.attributes)
    return replace(rule, pattern=replace(rule.pattern, root=root, where=where), attributes=kept)
