"""What a rule asks of some of its roles together: distances in time, order and conditions.

Times are bounded pair by pair. What a role that is left out would have bound between two others is kept in the bounds
of these; so the combinations of some roles are those that a part of the rule would find, before negations, selections
and aggregates. A repeated role stands for any one of its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final

from headwater.protocol.expressions import (
    Attribute,
    Binary,
    Expression,
    Fold,
    Parameter,
    Remote,
    Same,
    rewritten,
    roles_of,
    walk,
)
from headwater.protocol.pattern import (
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Repetition,
    Rule,
    Selection,
    Window,
    Within,
    leaves,
    positive_leaves,
)
from headwater.protocol.pattern import Sequence as InOrder

UNBOUNDED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Equality:
    """Two values, each of one role's event, that must be equal."""

    one: str
    value: Expression
    other: str
    other_value: Expression


class RoleConstraints:
    """A rule as a set of roles with bounds and conditions between them."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.types: dict[str, str] = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
        self.positive = tuple(leaf.role for leaf in positive_leaves(rule.pattern.root))
        self.number = {role: at for at, role in enumerate(self.types)}
        self.left_out: list[Expression] = [condition for condition in rule.pattern.where if not judged(condition)]
        """Conditions that one event for each role cannot decide."""
        self.conditions = tuple(
            condition for condition in rule.pattern.where if judged(condition) and not isinstance(condition, Same)
        )
        self.same = tuple(
            condition for condition in rule.pattern.where if judged(condition) and isinstance(condition, Same)
        )
        self.precedes: set[tuple[str, str]] = set()
        self.apart: dict[tuple[str, str], int] = {}
        """By how many microseconds the first may at most lie after the second."""
        self._never: set[frozenset[str]] = set()
        """Roles of different alternatives of an OR."""
        root = rule.pattern.root
        if isinstance(root, Chain):
            self._chain(root)
        else:
            self._tree(root)
        self._close()

    # Bounds ---------------------------------------------------------------------------------------------------------

    def _bound(self, later: str, earlier: str, most_us: int) -> None:
        self.apart[later, earlier] = min(most_us, self.apart.get((later, earlier), UNBOUNDED))

    def _order(self, first: str, second: str) -> None:
        self.precedes.add((first, second))
        self._bound(first, second, 0)

    def _chain(self, chain: Chain) -> None:
        for step in chain.steps:
            role = step.leaf.role
            match step.within if isinstance(step, Selection) else step.range:
                case Within(length_us, origin):
                    self._order(role, origin)
                    self._bound(origin, role, length_us)
                case Between(one, other):
                    # It lies between the two, whichever comes first, so not further from either than they are apart.
                    reach = max(self._reach(one), self._reach(other))
                    for end in (one, other):
                        self._bound(role, end, reach)
                        self._bound(end, role, reach)

    def _reach(self, role: str) -> int:
        """How long before the anchor a role may lie."""
        assert isinstance(self.rule.pattern.root, Chain)
        length = 0
        steps = {step.leaf.role: step for step in self.rule.pattern.root.steps}
        while role in steps:
            where = getattr(steps[role], "within", None)
            if not isinstance(where, Within):
                break
            length, role = length + where.length_us, where.origin
        return length

    def _tree(self, root: Part) -> None:
        self._part(root)
        window = getattr(root, "window", None)
        if isinstance(window, Window) and window.unit == "us" and window.bounds == "span":
            for one, other in combinations(self.types, 2):
                self._within(one, other, window.length)

    def _part(self, part: Part) -> None:
        if isinstance(part, Leaf):
            return
        inside = (part.part,) if isinstance(part, Negation) else part.parts
        for inner in inside:
            self._part(inner)
        held = [[leaf.role for leaf in leaves(inner)] for inner in inside]
        for left, right in combinations(held, 2):
            for one in left:
                for other in right:
                    match part:
                        case Disjunction():
                            self._never.add(frozenset((one, other)))
                        case InOrder() | Repetition():
                            self._order(one, other)
        window = getattr(part, "window", None)
        if isinstance(part, InOrder | Conjunction) and isinstance(window, Window) and window.unit == "us":
            for left_part, right_part in combinations(inside, 2):
                self._ends_within(left_part, right_part, window.length)

    def _within(self, one: str, other: str, most_us: int) -> None:
        self._bound(one, other, most_us)
        self._bound(other, one, most_us)

    def _ends_within(self, left: Part, right: Part, most_us: int) -> None:
        """The ends of two parts lie within a window. Where it is not known whose event is the end of a part, any event
        of it may lie as much further away as the part is long."""
        slack = sum(0 if _end(side) is not None else self._length(side) for side in (left, right))
        ends = [[end] if (end := _end(side)) is not None else _roles(side) for side in (left, right)]
        if slack < UNBOUNDED:
            for one in ends[0]:
                for other in ends[1]:
                    self._within(one, other, most_us + slack)

    def _length(self, part: Part) -> int:
        roles = _roles(part)
        return max(
            (self.apart.get((one, other), UNBOUNDED) for one in roles for other in roles if one != other), default=0
        )

    def _close(self) -> None:
        """No two events lie further apart than along any way over others."""
        for through in self.types:
            for one in self.types:
                for other in self.types:
                    ways = (self.apart.get((one, through), UNBOUNDED), self.apart.get((through, other), UNBOUNDED))
                    if one != other and sum(ways) < UNBOUNDED:
                        self._bound(one, other, sum(ways))
        for through in self.types:
            for one in self.types:
                for other in self.types:
                    if (one, through) in self.precedes and (through, other) in self.precedes:
                        self.precedes.add((one, other))

    @property
    def timed(self) -> bool:
        """Whether a window of time bounds all roles."""
        window = getattr(self.rule.pattern.root, "window", None)
        if isinstance(window, Window) and window.unit != "us":
            return False
        return all(
            self.apart.get(pair, UNBOUNDED) < UNBOUNDED
            for roles in self.compatible_pairs()
            for pair in ((roles[0], roles[1]), (roles[1], roles[0]))
        )

    @property
    def reach_us(self) -> int:
        """How far apart two events of a match lie at most."""
        return max((most for most in self.apart.values() if most < UNBOUNDED), default=0)

    # Roles that go together -----------------------------------------------------------------------------------------

    def compatible(self, roles: frozenset[str]) -> bool:
        """Whether one match can have all of them."""
        return not any(never <= roles for never in self._never)

    def compatible_pairs(self) -> Iterator[tuple[str, str]]:
        """The pairs of which at least one is part of the match."""
        for one, other in combinations(self.types, 2):
            if (one in self.positive or other in self.positive) and self.compatible(frozenset((one, other))):
                yield one, other

    def in_order(self, roles: frozenset[str]) -> tuple[str, ...]:
        return tuple(sorted(roles, key=self.number.__getitem__))

    # Conditions -----------------------------------------------------------------------------------------------------

    def own(self, role: str) -> tuple[Expression, ...]:
        """What is asked of a role alone."""
        return tuple(condition for condition in self.conditions if roles_of(condition) == {role})

    def between(self, roles: frozenset[str]) -> tuple[Expression, ...]:
        """What is asked of exactly these roles together, beside SAME."""
        return tuple(condition for condition in self.conditions if roles_of(condition) == roles)

    def among(self, roles: frozenset[str]) -> tuple[Expression, ...]:
        """What is asked of two or more of these roles together, beside SAME."""
        return tuple(
            condition for condition in self.conditions if len(roles_of(condition)) > 1 and roles_of(condition) <= roles
        )

    def equalities(self, roles: frozenset[str]) -> Iterator[tuple[Expression | None, Equality]]:
        """What must be equal between two of these roles, and the condition that says so; None for SAME, which is told
        for each role and the one before it."""
        ordered = self.in_order(roles)
        for same in self.same:
            for one, other in pairwise(ordered):
                yield None, Equality(one, of_role(same.key, one), other, of_role(same.key, other))
        for condition in self.among(roles):
            if isinstance(condition, Binary) and condition.operator == "=":
                left, right = roles_of(condition.left), roles_of(condition.right)
                if len(left) == 1 and len(right) == 1 and left != right:
                    yield condition, Equality(next(iter(left)), condition.left, next(iter(right)), condition.right)


def of_role(key: Expression, role: str) -> Expression:
    """The key of SAME as it is for one role."""
    return rewritten(key, lambda part: Attribute(role, part.name))


def judged(condition: Expression) -> bool:
    """Whether one event of each role decides it."""
    return not any(
        isinstance(part, Fold | Parameter | Remote) or (isinstance(part, Attribute) and part.index)
        for part in walk(condition)
    )


def _end(part: Part) -> str | None:
    """The role whose event is always the end of a part; None where several could be."""
    match part:
        case Leaf(role) | Repetition((Leaf(role),)) | Negation(Leaf(role)):
            return role
        case InOrder(parts):
            kept = [inner for inner in parts if not isinstance(inner, Negation)]
            return _end(kept[-1]) if kept else None
        case _:
            return None


def _roles(part: Part) -> list[str]:
    return [leaf.role for leaf in leaves(part)]


def names(roles: frozenset[str], order: Mapping[str, int]) -> str:
    """Roles as they stand in files and tables."""
    return ", ".join(sorted(roles, key=lambda role: order.get(role, len(order))))


def subsets(roles: Sequence[str], most: int) -> Iterator[frozenset[str]]:
    """All sets of two or more of the roles, small ones first."""
    for size in range(2, min(most, len(roles)) + 1):
        for some in combinations(roles, size):
            yield frozenset(some)
