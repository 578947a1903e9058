"""The selectivities of a rule's conditions, by the roles that they join.

A selectivity that is given for some roles is that of everything the rule asks of these roles together: it counts
once, however many conditions there are between them. ``SAME`` is given for all positive roles, as the share of pairs
that agree; what is given for fewer roles includes that they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from headwater.coordinator.inev.model.role_types import RoleType
from headwater.protocol import pattern as p
from headwater.protocol.expressions import Attribute, Binary, Expression, Same, roles_of
from headwater.protocol.languages.printing import ExpressionPrinter, PrintError

DEFAULT_PAIR: Final = 0.1
DEFAULT_FILTER: Final = 0.5
"""Shares that pass what is asked of two or more events together, and of a single event, where none is given."""

AGREEING: Final = ""
"""The name of the value over which SAME asks events to agree."""


@dataclass
class Conditions:
    """The conditions of one rule. ``selectivities`` are by roles or types; ``warnings`` grows by a sentence for
    each that is missing."""

    rule: p.Rule
    selectivities: Mapping[frozenset[str], float]
    warnings: list[str]

    def __post_init__(self) -> None:
        self.leaves = tuple(p.leaves(self.rule.pattern.root))
        self.all = [condition for condition in self.rule.pattern.where if not isinstance(condition, Same)]
        self.labels = {leaf.role: self._label(leaf) for leaf in self.leaves}
        """By role, the event type that stands for it in queries."""
        self.positive = frozenset(leaf.role for leaf in p.positive_leaves(self.rule.pattern.root))
        self.agree = [condition for condition in self.rule.pattern.where if isinstance(condition, Same)]
        self._used: set[frozenset[str]] = set()
        self.between: dict[frozenset[str], list[Expression]] = {}
        """The conditions on two or more positive roles, by these."""
        for condition in self.all:
            roles = frozenset(roles_of(condition))
            if len(roles) > 1 and roles <= self.positive:
                self.between.setdefault(roles, []).append(condition)

    def _label(self, leaf: p.Leaf) -> str:
        own = sorted(shown(condition) for condition in self.all if roles_of(condition) == {leaf.role})
        return RoleType(leaf.type, " and ".join(own)) if own else leaf.type

    def _labels(self, roles: frozenset[str]) -> frozenset[str]:
        return frozenset(self.labels[role] for role in roles)

    # Shares ---------------------------------------------------------------------------------------------------------

    def given(self, roles: frozenset[str]) -> float | None:
        """The selectivity that is given for these roles, by their names or by their types."""
        types = frozenset(leaf.type for leaf in self.leaves if leaf.role in roles)
        # Two roles of one type are not named by it: that is what a share of its single events is given for.
        names = (roles, types) if len(types) == len(roles) else (roles,)
        name = next((name for name in names if name in self.selectivities), None)
        if name is None:
            return None
        self._used.add(name)
        return self.selectivities[name]

    def unused(self) -> list[str]:
        """A sentence for every selectivity that is given and that no condition of the rule needs."""
        return [
            f"rule {self.rule.name}: the selectivity given for {', '.join(sorted(names))} is not used: the rule asks "
            f"nothing of these together; its roles are {', '.join(self.labels)}"
            for names in sorted(self.selectivities, key=sorted)
            if names not in self._used
        ]

    def share(self, roles: frozenset[str], default: float, text: str) -> float:
        """The selectivity given for these roles; the default, with a warning, if there is none."""
        selectivity = self.given(roles)
        if selectivity is not None:
            return selectivity
        self.warnings.append(
            f"rule {self.rule.name}: no selectivity is given for {text}, so {default:g} is assumed; to set it, write "
            f'statistics: selectivities: {self.rule.name}: {{"{", ".join(sorted(roles))}": ..}}'
        )
        return default

    def filters(self) -> dict[str, float]:
        """For every label with conditions of its own: the share of its type's events that meet them."""
        shares = {}
        for leaf in self.leaves:
            label = self.labels[leaf.role]
            if label != leaf.type:
                shares[label] = self.share(frozenset((leaf.role,)), DEFAULT_FILTER, label)
        return shares

    def agreeing(self) -> float | None:
        """The share of pairs of positive events that agree as SAME asks; None where nothing asks for it."""
        if not self.agree or len(self.positive) < 2:
            return None
        return self.share(self.positive, DEFAULT_PAIR, "that all agree")

    def _beside_same(self, roles: frozenset[str], agreeing: float | None) -> float:
        """The share that meets the conditions between some roles, among those that agree already."""
        text = " and ".join(sorted(shown(condition) for condition in self.between[roles]))
        if agreeing is None:
            return self.share(roles, DEFAULT_PAIR, text)
        if roles == self.positive:
            if len(roles) == 2:
                return 1.0  # what is given for the two is for both
            self.warnings.append(
                f"rule {self.rule.name}: what is given for all its parts says how often two of them agree; "
                f"of {text} {DEFAULT_PAIR:g} is assumed to pass"
            )
            return DEFAULT_PAIR
        selectivity = self.given(roles)
        if selectivity is None:
            return self.share(roles, DEFAULT_PAIR, text)
        return float(selectivity / agreeing ** (len(roles) - 1))

    # What planners ask ----------------------------------------------------------------------------------------------

    def pairs(self) -> dict[frozenset[str], float]:
        """By labels, factors of which those within a set of labels multiply to the share of combinations that pass."""
        agreeing = self.agreeing()
        shares: dict[frozenset[str], float] = {}
        for roles in self.between:
            labels = self._labels(roles)
            shares[labels] = shares.get(labels, 1.0) * self._beside_same(roles, agreeing)
        if agreeing is not None:
            # Of m events each but one must agree: over all subsets, the share for even sizes, its inverse for odd ones.
            for size in range(2, len(self.positive) + 1):
                for some in combinations(sorted(self.positive), size):
                    labels = self._labels(frozenset(some))
                    shares[labels] = shares.get(labels, 1.0) * (agreeing if size % 2 == 0 else 1 / agreeing)
        return shares

    def alike(self) -> dict[frozenset[str], tuple[str, float]]:
        """The pairs of labels whose events must have equal values: under a name that pairs over one value share, and
        with the share of pairs that agree."""
        agreeing = self.agreeing()
        if agreeing is not None:
            pairs = [self._labels(frozenset(some)) for some in combinations(sorted(self.positive), 2)]
            return {labels: (AGREEING, agreeing) for labels in pairs if len(labels) == 2}
        names = self._value_names()
        equalities: dict[frozenset[str], tuple[str, float]] = {}
        for roles in self.between:
            first = self._first_equality(roles)
            labels = self._labels(roles)
            if first is not None and len(labels) == 2:
                equalities[labels] = (names[first], self._beside_same(roles, None))
        return equalities

    def apart(self) -> dict[frozenset[str], float]:
        """The factors of all conditions that are not accounted for by equal values."""
        agreeing = self.agreeing()
        shares: dict[frozenset[str], float] = {}
        for roles in self.between:
            labels = self._labels(roles)
            if agreeing is None and len(labels) == 2 and self._first_equality(roles) is not None:
                continue
            share = min(1.0, self._beside_same(roles, agreeing))
            if share < 1 or agreeing is None:
                shares[labels] = shares.get(labels, 1.0) * share
        return shares

    def _first_equality(self, roles: frozenset[str]) -> tuple[str, str] | None:
        """One end of the first condition that asks two roles for equal values."""
        ends = next((ends for condition in self.between[roles] if (ends := equality(condition)) is not None), None)
        return None if ends is None else ends[0]

    def _value_names(self) -> dict[tuple[str, str], str]:
        """A name for every attribute that must equal another; those that hang together have the same."""
        names: dict[tuple[str, str], str] = {}
        for conditions in self.between.values():
            for condition in conditions:
                ends = equality(condition)
                if ends is None:
                    continue
                name = min(names.get(end, "/".join(end)) for end in ends)
                before = {names[end] for end in ends if end in names}
                names = {end: name if old_name in before else old_name for end, old_name in names.items()}
                names.update(dict.fromkeys(ends, name))
        return names

    def blocking(self) -> dict[str, float]:
        """The share of a negated type's events that meet its conditions with the other roles."""
        shares: dict[str, float] = {}
        agreeing = self.agreeing()
        for leaf in self.leaves:
            if leaf.role in self.positive:
                continue
            joined: dict[frozenset[str], list[str]] = {}
            for condition in self.all:
                roles = frozenset(roles_of(condition))
                if leaf.role in roles and len(roles) > 1:
                    joined.setdefault(roles, []).append(shown(condition))
            own_shares = [
                self.share(roles, DEFAULT_PAIR, " and ".join(sorted(texts))) for roles, texts in joined.items()
            ]
            if agreeing is not None and not any(self.given(roles) is not None for roles in joined):
                own_shares.append(agreeing)  # it must agree with the match; what is given for it says so already
            if own_shares:
                label = self.labels[leaf.role]
                for share in own_shares:
                    shares[label] = shares.get(label, 1.0) * share
        return shares

    def passing(self, some: Sequence[Expression]) -> float:
        """The share of the events of one role that an event of another leaves, if it tells these conditions on both."""
        agreeing = None
        share = 1.0
        if any(isinstance(condition, Same) for condition in some):
            agreeing = self.agreeing()
            share = DEFAULT_PAIR if agreeing is None else agreeing
        joined: dict[frozenset[str], list[str]] = {}
        for condition in some:
            if not isinstance(condition, Same):
                joined.setdefault(frozenset(roles_of(condition)), []).append(shown(condition))
        for roles, texts in joined.items():
            if roles in self.between:
                share *= min(1.0, self._beside_same(roles, agreeing))
            else:
                share *= self.share(roles, DEFAULT_PAIR, " and ".join(sorted(texts)))
        return share

    def predicates(self) -> dict[frozenset[str], str]:
        """By labels, the conditions on them as a text that is part of what tells projections apart."""
        texts_of: dict[frozenset[str], set[str]] = {}
        for condition in self.all:
            roles = roles_of(condition)
            if len(roles) > 1:
                # Rules may give the same name to events of different types.
                named = ", ".join(f"{role}: {self.labels[role]}" for role in sorted(roles))
                texts_of.setdefault(self._labels(frozenset(roles)), set()).add(f"{shown(condition)} ({named})")
        for same in self.agree:
            for one, other in combinations(sorted(set(self.labels.values())), 2):
                texts_of.setdefault(frozenset((one, other)), set()).add(shown(same))
        return {labels: "; ".join(sorted(texts)) for labels, texts in texts_of.items()}


def equality(condition: Expression) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The two attributes, each with its role, that a condition asks to be equal."""
    match condition:
        case Binary("=", Attribute(one, name, ""), Attribute(other, other_name, "")) if one != other:
            return (one, name), (other, other_name)
    return None


def shown(condition: Expression) -> str:
    """A condition as text, without the names of roles where it concerns one only."""
    several = len(roles_of(condition)) > 1

    def attribute(operand: Attribute) -> str:
        return f"{operand.role}.{operand.name}" if several else operand.name

    if isinstance(condition, Same):
        return f"same {shown(condition.key)}"
    try:
        return ExpressionPrinter(attribute, lambda role: role, parameters=True).text(condition)
    except PrintError:
        return repr(condition)
