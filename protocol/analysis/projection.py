"""Projections: a rule restricted to some of its roles, and which roles one partial rule may combine.

A projection may let through more than the rule needs, never less: every match of the rule, kept to the covered roles,
is a match of the projection. The node above checks everything again on what it gets, so a condition that cannot be
judged below is left out; but what is withheld must not change a decision above. That rests on three things:

- A node that selects by last or first hears of every candidate that would win over one that it gets: through contests,
  or because the role is a plain filter, or because its origin alone determines it (then both come up together or
  neither).
- A node that judges a negation or computes an aggregate gets every event that meets the role's own conjuncts; or the
  negation was judged below on a tuple that its top event determines, so that no node above can put another together.
- Under skip-till-any a tree selects nothing, so any set of real events that holds the parts of all matches will do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from headwater.protocol.analysis.partial_rules import Contest, PartialRule
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.errors import RuleError
from headwater.protocol.expressions import (
    Attribute,
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
    Absence,
    Between,
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
    Step,
    Window,
    Within,
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
        joined = _ChainView(rule.pattern, rule.pattern.root).components(wanted)
    else:
        joined = [_tree_component(rule.pattern, rule.pattern.root, wanted)]
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
        return _ChainView(pattern, root).projected(rule, covered)
    if len(covered) == 1:
        (leaf,) = (leaf for leaf in leaves(root) if leaf.role == covered[0])
        return PartialRule(rule, covered, Pattern(leaf, _staying(pattern.where, {leaf.role})))
    kept = _projected_root(root, set(covered))
    assert kept is not None
    same = [condition for condition in pattern.where if isinstance(condition, Same) and not _asks_outside(condition)]
    return PartialRule(rule, covered, Pattern(kept, (*_staying(pattern.where, set(covered)), *same)))


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


def _asks_outside(condition: Expression) -> bool:
    """Whether judging the conjunct takes more than events: a table elsewhere, or the value of an aggregate."""
    return any(isinstance(part, Remote | Parameter) for part in walk(condition))


def _staying(where: Iterable[Expression], inside: Collection[str]) -> tuple[Expression, ...]:
    """The conjuncts that can be judged on one event for each of these roles.

    For a repeated role that is any one of its elements: conjuncts that relate several of them are left out.
    """
    return tuple(
        condition
        for condition in where
        if roles_of(condition)
        and roles_of(condition) <= set(inside)
        and not _asks_outside(condition)
        and not any(isinstance(part, Fold) or (isinstance(part, Attribute) and part.index) for part in walk(condition))
    )


# --------------------------------------------------------------------------------------------------------------- chains


class _ChainView:
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
        return bool(_staying((condition,), group))

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
        return PartialRule(rule, covered, Pattern(chain, _staying(self.where, covered)), tuple(contests))

    def _projected_step(self, role: str, group: Collection[str]) -> Step:
        step = self.selection(role)
        if step is None:
            return self.steps[role]
        if self.keeps_policy(role, group):
            return step
        above = self.nearest(role, group)
        assert above is not None
        return Selection(step.leaf, "each", Within(above[1], above[0]))


# ---------------------------------------------------------------------------------------------------------------- trees


def _tree_component(pattern: Pattern, root: Part, roles: set[str]) -> set[str]:
    """The roles that one partial rule may combine: parts of every match, if something bounds them."""
    if pattern.skip == "next":
        return set()
    joinable = {role for role in _parts_of_every_match(root) if role in roles}
    return joinable if len(joinable) > 1 and _projected_root(root, joinable) is not None else set()


def _parts_of_every_match(part: Part) -> Iterable[str]:
    match part:
        case Leaf(role):
            return (role,)
        case Repetition((leaf,), None):
            return (leaf.role,)
        case Sequence(parts) | Conjunction(parts):
            return [role for inner in parts for role in _parts_of_every_match(inner)]
        case Repetition() | Disjunction() | Negation():
            return ()


def _projected_root(root: Part, roles: set[str]) -> Part | None:
    """The tree kept to these roles; None if its windows then do not bound how long its events must be remembered."""
    kept, _ = _projected_part(_flattened(root), roles)
    if not isinstance(kept, Sequence | Conjunction):
        return None
    window = getattr(root, "window", None)
    if isinstance(window, Window) and window.bounds == "span" and kept.window != window:
        # The operator that held the window fell away, because only one of its parts is left.
        kept = replace(kept, window=window) if kept.window is None else Sequence((kept,), window)
    return None if kept.window is None or any(operators_without_bound(kept)) else kept


def _flattened(part: Part) -> Part:
    """SEQs without a window dissolve into the SEQ around them; only then are the parts of a window the right ones."""
    if not isinstance(part, Sequence | Conjunction):
        return part
    inside: list[Part] = []
    for inner in map(_flattened, part.parts):
        if isinstance(part, Sequence) and isinstance(inner, Sequence) and inner.window is None:
            inside += inner.parts
        else:
            inside.append(inner)
    return replace(part, parts=tuple(inside))


def _projected_part(part: Part, roles: set[str]) -> tuple[Part | None, bool]:
    """What is left of a part, and whether the end of what is left is always the end of the part."""
    match part:
        case Leaf(role):
            return (part, True) if role in roles else (None, False)
        case Repetition((leaf,), None):
            # Any element of the repetition; only the last one would be its end.
            return (leaf, False) if leaf.role in roles else (None, False)
        case Sequence() | Conjunction():
            return _projected_operator(part, roles)
    return None, False


def _projected_operator(part: Sequence | Conjunction, roles: set[str]) -> tuple[Part | None, bool]:
    positive = [inner for inner in part.parts if not isinstance(inner, Negation)]
    projected = [_projected_part(inner, roles) for inner in positive]
    left = [kept for kept, _ in projected if kept is not None]
    if not left:
        return None, False
    exact = projected[-1][1] if isinstance(part, Sequence) else all(same_end for _, same_end in projected)
    if len(left) == 1:
        return left[0], exact
    return replace(part, parts=_spliced(part, left), window=_kept_window(part, positive, projected)), exact


def _kept_window(
    part: Sequence | Conjunction, positive: Iterable[Part], projected: list[tuple[Part | None, bool]]
) -> Window | None:
    if part.window is None or part.window.bounds == "span":
        return part.window
    for inner, (kept, same_end) in zip(positive, projected, strict=True):
        if kept is None:
            continue
        # Every element of a repetition that stands directly in the operator counts as a part of its own.
        if not same_end and not isinstance(inner, Repetition):
            return None
        if isinstance(part, Sequence) and isinstance(kept, Sequence) and kept.window is None:
            return None  # it would dissolve, and the window would then bound its parts, not its end
    return part.window


def _spliced(part: Sequence | Conjunction, inside: list[Part]) -> tuple[Part, ...]:
    flattened = _flattened(replace(part, parts=tuple(inside)))
    assert isinstance(flattened, Sequence | Conjunction)
    return flattened.parts
