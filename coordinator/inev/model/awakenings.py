"""Awakenings as planners price them: the window and the conditions with which one role asks for events of another.

As nodes ask: every match has one event of the master, of a type that no other role has, and the rule bounds where the
others lie around it. Told are the conditions that name the two and nothing else, unless all events must be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, product

from headwater.coordinator.inev.model.problem import AskScope
from headwater.protocol import pattern as p
from headwater.protocol.analysis.pulling import in_negated_patterns, masters
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.expressions import Attribute, Expression, Fold, Parameter, Remote, Same, roles_of, walk

Share = Callable[[Sequence[Expression]], float]
"""How selective some conditions are together."""


def asking(rule: p.Rule, share: Share) -> dict[tuple[str, str], AskScope]:
    """By the role that asks and the one that is asked for."""
    leaves = tuple(p.leaves(rule.pattern.root))
    types = [leaf.type for leaf in leaves]
    alone = {leaf.role for leaf in leaves if types.count(leaf.type) == 1}
    bounds = _bounds(rule)
    by_pair: dict[tuple[str, str], AskScope] = {}
    for master in masters(rule) if rule.pattern.skip == "any" else ():
        for role in sorted(alone - in_negated_patterns(rule) - {master}) if master in alone else ():
            span_us = bounds(master, role)
            if span_us is not None:
                passing = share([*_conditions(rule, master, role)])
                by_pair[master, role] = AskScope(passing, span_us / 1e6)
    return by_pair


def _conditions(rule: p.Rule, master: str, role: str) -> Iterator[Expression]:
    """The conditions that a known event of the master turns into ones on a single event of the other role."""
    root = rule.pattern.root
    if role in _limited(root):
        return  # all that meet its own constraints count
    if isinstance(root, p.Chain):
        text = [leaf.role for leaf in p.leaves(root)]
        chosen = {s.leaf.role for s in root.steps if isinstance(s, p.Selection) and s.policy != "each"}
        if role in chosen and text.index(master) > text.index(role):
            return  # what is chosen first must be seen, to fail
    for condition in rule.pattern.where:
        if isinstance(condition, Same) or (roles_of(condition) == {master, role} and _on_one_event(condition)):
            yield condition


def _on_one_event(condition: Expression) -> bool:
    """Whether a condition looks at nothing but single events."""
    return not any(
        isinstance(part, Fold | Remote | Parameter) or (isinstance(part, Attribute) and part.index)
        for part in walk(condition)
    )


def _limited(part: p.Part | p.Chain) -> set[str]:
    """The roles of repetitions that have a limit."""
    if isinstance(part, p.Repetition):
        return {leaf.role for leaf in part.parts} if part.limit is not None else set()
    return set().union(*(_limited(inner) for inner in getattr(part, "parts", ())))


# How far -------------------------------------------------------------------------------------------------------------


def _bounds(rule: p.Rule) -> Callable[[str, str], int | None]:
    """How long the time is, in microseconds, in which events of a role may lie around one of another; None: any."""
    root = rule.pattern.root
    if isinstance(root, p.Chain):
        return _Chain(root).span_us
    window = getattr(root, "window", None)
    if window is None or window.unit != "us" or any(operators_without_bound(root)):
        return lambda master, role: None
    before = set(_precedence(root))

    def span_us(master: str, role: str) -> int:
        return int(window.length) * (1 if {(master, role), (role, master)} & before else 2)

    return span_us


def _precedence(part: p.Part) -> Iterator[tuple[str, str]]:
    """Which role comes before which; a negated one matters only where the text has it."""
    match part:
        case p.Leaf():
            return
        case p.Negation(negated):
            yield from _precedence(negated)
        case _:
            for inner in part.parts:
                yield from _precedence(inner)
    if isinstance(part, p.Sequence):
        for left, right in combinations(part.parts, 2):
            yield from product((leaf.role for leaf in p.leaves(left)), (leaf.role for leaf in p.leaves(right)))


class _Chain:
    """A chain as the tree in which everything hangs from what it is chosen from."""

    def __init__(self, chain: p.Chain) -> None:
        self.steps = {step.leaf.role: step for step in chain.steps}
        self.ranges: dict[str, p.Within | p.Between] = {
            role: step.within if isinstance(step, p.Selection) else step.range for role, step in self.steps.items()
        }

    def span_us(self, master: str, role: str) -> int | None:
        bounds = self._bounds(master)
        step = self.steps.get(role)
        if isinstance(step, p.Selection) and step.policy != "each" and role in self._above(master):
            # It was chosen before the master was, from all of its window; a node that repeats that must see all of it.
            least, greatest = bounds[step.within.origin]
            return greatest - least + step.within.length_us
        least, greatest = bounds[role]
        return greatest - least

    def _above(self, role: str) -> list[str]:
        """What a role is chosen from, and what that is, up to the anchor."""
        roles = []
        while role in self.ranges:
            within = self.ranges[role]
            assert isinstance(within, p.Within), "what is asked by is a part of the match"
            role = within.origin
            roles.append(role)
        return roles

    def _bounds(self, master: str) -> dict[str, tuple[int, int]]:
        """For every role the least and the greatest time after an event of the master."""
        bounds = {master: (0, 0)}
        for role, above in zip([master, *self._above(master)], self._above(master), strict=False):
            within = self.ranges[role]
            assert isinstance(within, p.Within)
            bounds[above] = (bounds[role][0], bounds[role][1] + within.length_us)
        for role, range in self.ranges.items():  # in the order of the text: what it is chosen from comes first
            if role in bounds:
                continue
            if isinstance(range, p.Within):
                least, greatest = bounds[range.origin]
                bounds[role] = (least - range.length_us, greatest)
            else:
                ends = (bounds[range.one], bounds[range.other])
                bounds[role] = (min(end[0] for end in ends), max(end[1] for end in ends))
        return bounds
