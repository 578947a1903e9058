"""Projections of chains: which roles of a chain of selections go together, and what a group keeps of the rule.

``protocol.analysis.projection`` says what a projection must let through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from headwater.protocol.analysis.conjuncts import asks_outside, staying
from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.expressions import Expression, Same, roles_of
from headwater.protocol.pattern import Absence, Between, Chain, Pattern, Rule, Selection, Step, Within, leaves


class ChainView:
    """A chain seen as the tree in which every selected role hangs below its origin."""

    def __init__(self, pattern: Pattern, chain: Chain) -> None:
        self.where = pattern.where
        self.steps: dict[str, Step] = {step.leaf.role: step for step in chain.steps}
        self.leaf = {leaf.role: leaf for leaf in leaves(chain)}
        self.order = {role: number for number, role in enumerate(self.leaf)}
        self.positive = {chain.anchor.role} | {r for r, step in self.steps.items() if isinstance(step, Selection)}
        self.uses = Counter(leaf.type for leaf in self.leaf.values())

    def selection(self, role: str) -> Selection | None:
        step = self.steps.get(role)
        return step if isinstance(step, Selection) else None

    def contested(self, role: str) -> Selection | None:
        """The role's selection if it lets candidates compete."""
        step = self.selection(role)
        return step if step is not None and step.policy != "each" else None

    def nearest(self, role: str, inside: Collection[str]) -> tuple[str, int] | None:
        """The nearest of these roles that this one hangs below, and how much earlier than it this one may lie."""
        length_us = 0
        step = self.selection(role)
        while step is not None:
            length_us += step.within.length_us
            if step.within.origin in inside:
                return step.within.origin, length_us
            step = self.selection(step.within.origin)
        return None

    # Which roles go together

    def components(self, roles: set[str]) -> list[set[str]]:
        joinable = roles & self.positive
        while True:
            groups = self._connected(joinable)
            alone = {role for group in groups if len(group) > 1 for role in group if self._meets_others(role, group)}
            if not alone:
                break
            joinable -= alone
        return [group | self._negations(group, roles) for group in groups]

    def _connected(self, roles: set[str]) -> list[set[str]]:
        group_of: dict[str, set[str]] = {}
        for role in sorted(roles, key=self.order.__getitem__):
            above = self.nearest(role, roles)
            group = group_of[above[0]] if above is not None else set()
            group.add(role)
            group_of[role] = group
        return [group for role, group in group_of.items() if min(group, key=self.order.__getitem__) == role]

    def _meets_others(self, role: str, group: set[str]) -> bool:
        """Whether candidates of a contested role may also come up for a role outside the group.

        The group's contests know nothing of those, nor does its selection know which of them the other role has bound
        (they are no candidates then). So such a role must be a plain filter, which withholds none.
        """
        if self.contested(role) is None:
            return False
        return sum(self.leaf[other].type == self.leaf[role].type for other in group) < self.uses[self.leaf[role].type]

    def _negations(self, group: set[str], roles: set[str]) -> set[str]:
        """The negations that can be judged where the group is: then what they forbid need not come up at all."""
        top = self._top(group)
        if self.uses[self.leaf[top].type] > 1:
            return set()
        negated = {role for role in roles if self._can_judge(role, group)}
        whole = group | negated
        return negated if all(self.determined(role, whole) for role in group - {top}) else set()

    def _can_judge(self, role: str, group: set[str]) -> bool:
        if not self._is_bounded_by(role, group) or not self._keeps_all(role, group | {role}):
            return False
        # A part of the match never negates it, and parts outside the group are not known to be parts.
        return all(self.leaf[other].type != self.leaf[role].type for other in self.positive)

    def _is_bounded_by(self, role: str, group: set[str]) -> bool:
        match self.steps.get(role):
            case Absence(_, Within(_, origin)):
                return origin in group
            case Absence(_, Between(one, other)):
                return one in group and other in group
        return False

    # What a group keeps of the rule

    def _stays(self, condition: Expression, group: Collection[str]) -> bool:
        """Whether every node that evaluates the group judges the conjunct; not every node reaches remote tables."""
        return bool(staying((condition,), group)) and not asks_outside(condition)

    def _mentioning(self, role: str) -> list[Expression]:
        return [condition for condition in self.where if role in roles_of(condition) or isinstance(condition, Same)]

    def _keeps_all(self, role: str, group: Collection[str]) -> bool:
        """Whether every conjunct that mentions the role can be judged in the group."""
        return all(self._stays(condition, group) for condition in self._mentioning(role))

    def keeps_policy(self, role: str, group: Collection[str]) -> bool:
        """Whether the group sees exactly the candidates among which the rule selects."""
        step = self.selection(role)
        return step is not None and step.within.origin in group and self._keeps_all(role, group)

    def determined(self, role: str, group: Collection[str]) -> bool:
        """Whether the event bound to the origin alone says which event the role binds, here and at every node above."""
        step = self.contested(role)
        if step is None or step.count != 1 or not self.keeps_policy(role, group):
            return False
        origin = step.within.origin
        if self.uses[step.leaf.type] > 1 or self.uses[self.leaf[origin].type] > 1:
            return False
        own = (
            condition
            for condition in self._mentioning(role)
            if max(map(self.order.__getitem__, roles_of(condition))) == self.order[role]
        )
        return all(roles_of(condition) <= {role, origin} for condition in own)

    def _top(self, group: Collection[str]) -> str:
        return min(group, key=self.order.__getitem__)

    def projected(self, rule: Rule, covered: tuple[str, ...]) -> PartialRule:
        steps = tuple(self._projected_step(role, covered) for role in covered[1:])
        chain = Chain(self.leaf[covered[0]], steps)
        contests = []
        for role in covered:
            step = self.contested(role)
            if step is not None and len(covered) > 1 and not self.determined(role, covered):
                assert step.policy != "each"
                contests.append(Contest(role, step.policy, step.within.length_us))
        return PartialRule(rule, covered, Pattern(chain, staying(self.where, covered)), tuple(contests))

    def _projected_step(self, role: str, group: Collection[str]) -> Step:
        step = self.selection(role)
        if step is None:
            return self.steps[role]
        if self.keeps_policy(role, group):
            return step
        above = self.nearest(role, group)
        assert above is not None
        return Selection(step.leaf, "each", Within(above[1], above[0]))
