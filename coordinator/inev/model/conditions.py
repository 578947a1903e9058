"""How selective the conditions of a rule are, by the roles that they join.

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
    """The conditions of one rule. ``known`` are selectivities by roles or types; ``warnings`` grows by a sentence for
    each that is missing."""

    rule: p.Rule
    known: Mapping[frozenset[str], float]
    warnings: list[str]

    def __post_init__(self) -> None:
        self.leaves = tuple(p.leaves(self.rule.pattern.root))
        self.all = [each for each in self.rule.pattern.where if not isinstance(each, Same)]
        self.labels = {leaf.role: self._label(leaf) for leaf in self.leaves}
        """By role, the event type that stands for it in queries."""
        self.positive = frozenset(leaf.role for leaf in p.positive_leaves(self.rule.pattern.root))
        self.agree = [each for each in self.rule.pattern.where if isinstance(each, Same)]
        self._used: set[frozenset[str]] = set()
        self.between: dict[frozenset[str], list[Expression]] = {}
        """The conditions on two or more positive roles, by these."""
        for condition in self.all:
            roles = frozenset(roles_of(condition))
            if len(roles) > 1 and roles <= self.positive:
                self.between.setdefault(roles, []).append(condition)

    def _label(self, leaf: p.Leaf) -> str:
        own = sorted(shown(each) for each in self.all if roles_of(each) == {leaf.role})
        return RoleType(leaf.type, " and ".join(own)) if own else leaf.type

    def _labels(self, roles: frozenset[str]) -> frozenset[str]:
        return frozenset(self.labels[role] for role in roles)

    # Shares ---------------------------------------------------------------------------------------------------------

    def given(self, roles: frozenset[str]) -> float | None:
        """The selectivity that is given for these roles, by their names or by their types."""
        types = frozenset(leaf.type for leaf in self.leaves if leaf.role in roles)
        # Two roles of one type are not named by it: that is what a share of its single events is given for.
        names = (roles, types) if len(types) == len(roles) else (roles,)
        name = next((name for name in names if name in self.known), None)
        if name is None:
            return None
        self._used.add(name)
        return self.known[name]

    def unused(self) -> list[str]:
        """A sentence for every selectivity that is given and that no condition of the rule needs."""
        return [
            f"rule {self.rule.name}: the selectivity given for {', '.join(sorted(names))} is not used: the rule asks "
            f"nothing of these together; its roles are {', '.join(self.labels)}"
            for names in sorted(self.known, key=sorted)
            if names not in self._used
        ]

    def share(self, roles: frozenset[str], default: float, what: str) -> float:
        """The selectivity given for these roles; the default, with a warning, if there is none."""
        found = self.given(roles)
        if found is not None:
            return found
        self.warnings.append(
            f"rule {self.rule.name}: no selectivity is given for {what}, so {default:g} is assumed; to set it, write "
            f'statistics: selectivities: {self.rule.name}: {{"{", ".join(sorted(roles))}": ..}}'
        )
        return default

    def filters(self) -> dict[str, float]:
        """For every label with conditions of its own: the share of its type's events that meet them."""
        found = {}
        for leaf in self.leaves:
            label = self.labels[leaf.role]
            if label != leaf.type:
                found[label] = self.share(frozenset((leaf.role,)), DEFAULT_FILTER, label)
        return found

    def agreeing(self) -> float | None:
        """The share of pairs of positive events that agree as SAME asks; None where nothing asks for it."""
        if not self.agree or len(self.positive) < 2:
            return None
        return self.share(self.positive, DEFAULT_PAIR, "that all agree")

    def _beside_same(self, roles: frozenset[str], agreeing: float | None) -> float:
        """The share that meets the conditions between some roles, among those that agree already."""
        what = " and ".join(sorted(shown(each) for each in self.between[roles]))
        if agreeing is None:
            return self.share(roles, DEFAULT_PAIR, what)
        if roles == self.positive:
            if len(roles) == 2:
                return 1.0  # what is given for the two is for both
            self.warnings.append(
                f"rule {self.rule.name}: what is given for all its parts says how often two of them agree; "
                f"of {what} {DEFAULT_PAIR:g} is assumed to pass"
            )
            return DEFAULT_PAIR
        found = self.given(roles)
        if found is None:
            return self.share(roles, DEFAULT_PAIR, what)
        return float(found / agreeing ** (len(roles) - 1))

    # What planners ask ----------------------------------------------------------------------------------------------

    def pairs(self) -> dict[frozenset[str], float]:
        """By labels, factors of which those within a set of labels multiply to the share of combinations that pass."""
        agreeing = self.agreeing()
        found: dict[frozenset[str], float] = {}
        for roles in self.between:
            labels = self._labels(roles)
            found[labels] = found.get(labels, 1.0) * self._beside_same(roles, agreeing)
        if agreeing is not None:
            # Of m events each but one must agree: over all subsets, the share for even sizes, its inverse for odd ones.
            for size in range(2, len(self.positive) + 1):
                for some in combinations(sorted(self.positive), size):
                    labels = self._labels(frozenset(some))
                    found[labels] = found.get(labels, 1.0) * (agreeing if size % 2 == 0 else 1 / agreeing)
        return found

    def alike(self) -> dict[frozenset[str], tuple[str, float]]:
        """The pairs of labels whose events must have equal values: under a name that pairs over one value share, and
        with the share of pairs that agree."""
        agreeing = self.agreeing()
        if agreeing is not None:
            pairs = [self._labels(frozenset(some)) for some in combinations(sorted(self.positive), 2)]
            return {labels: (AGREEING, agreeing) for labels in pairs if len(labels) == 2}
        names = self._value_names()
        found: dict[frozenset[str], tuple[str, float]] = {}
        for roles in self.between:
            first = self._first_equality(roles)
            labels = self._labels(roles)
            if first is not None and len(labels) == 2:
                found[labels] = (names[first], self._beside_same(roles, None))
        return found

    def apart(self) -> dict[frozenset[str], float]:
        """The factors of all conditions that are not accounted for by equal values."""
        agreeing = self.agreeing()
        found: dict[frozenset[str], float] = {}
        for roles in self.between:
            labels = self._labels(roles)
            if agreeing is None and len(labels) == 2 and self._first_equality(roles) is not None:
                continue
            share = min(1.0, self._beside_same(roles, agreeing))
            if share < 1 or agreeing is None:
                found[labels] = found.get(labels, 1.0) * share
        return found

    def _first_equality(self, roles: frozenset[str]) -> tuple[str, str] | None:
        """One end of the first condition that asks two roles for equal values."""
        ends = next((ends for each in self.between[roles] if (ends := equality(each)) is not None), None)
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
                names = {end: name if known in before else known for end, known in names.items()}
                names.update(dict.fromkeys(ends, name))
        return names

    def blocking(self) -> dict[str, float]:
        """The share of a negated type's events that meet its conditions with the other roles."""
        found: dict[str, float] = {}
        agreeing = self.agreeing()
        for leaf in self.leaves:
            if leaf.role in self.positive:
                continue
            joined: dict[frozenset[str], list[str]] = {}
            for condition in self.all:
                roles = frozenset(roles_of(condition))
                if leaf.role in roles and len(roles) > 1:
                    joined.setdefault(roles, []).append(shown(condition))
            shares = [self.share(roles, DEFAULT_PAIR, " and ".join(sorted(texts))) for roles, texts in joined.items()]
            if agreeing is not None and not any(self.given(roles) is not None for roles in joined):
                shares.append(agreeing)  # it must agree with the match; what is given for it says so already
            if shares:
                label = self.labels[leaf.role]
                for share in shares:
                    found[label] = found.get(label, 1.0) * share
        return found

    def told(self, some: Sequence[Expression]) -> float:
        """The share of the events of one role that an event of another leaves, if it tells these conditions on both."""
        agreeing = None
        found = 1.0
        if any(isinstance(each, Same) for each in some):
            agreeing = self.agreeing()
            found = DEFAULT_PAIR if agreeing is None else agreeing
        joined: dict[frozenset[str], list[str]] = {}
        for each in some:
            if not isinstance(each, Same):
                joined.setdefault(frozenset(roles_of(each)), []).append(shown(each))
        for roles, texts in joined.items():
            if roles in self.between:
                found *= min(1.0, self._beside_same(roles, agreeing))
            else:
                found *= self.share(roles, DEFAULT_PAIR, " and ".join(sorted(texts)))
        return found

    def predicates(self) -> dict[frozenset[str], str]:
        """By labels, the conditions on them as a text that is part of what tells projections apart."""
        found: dict[frozenset[str], set[str]] = {}
        for condition in self.all:
            roles = roles_of(condition)
            if len(roles) > 1:
                # Rules may give the same name to events of different types.
                named = ", ".join(f"{role}: {self.labels[role]}" for role in sorted(roles))
                found.setdefault(self._labels(frozenset(roles)), set()).add(f"{shown(condition)} ({named})")
        for same in self.agree:
            for one, other in combinations(sorted(set(self.labels.values())), 2):
                found.setdefault(frozenset((one, other)), set()).add(shown(same))
        return {labels: "; ".join(sorted(texts)) for labels, texts in found.items()}


def equality(condition: Expression) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The two attributes, each with its role, that a condition asks to be equal."""
    match condition:
        case Binary("=", Attribute(one, name, ""), Attribute(other, other_name, "")) if one != other:
            return (one, name), (other, other_name)
    return None


def shown(condition: Expression) -> str:
    """A condition as text, without the names of roles where it concerns one only."""
    several = len(roles_of(condition)) > 1

    def attribute(each: Attribute) -> str:
        return f"{each.role}.{each.name}" if several else each.name

    if isinstance(condition, Same):
        return f"same {shown(condition.key)}"
    try:
        return ExpressionPrinter(attribute, lambda role: role, parameters=True).text(condition)
    except PrintError:
        return repr(condition)
