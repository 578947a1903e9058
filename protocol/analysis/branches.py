"""Takes patterns apart into branches.

Both kinds of pattern end up in the same form: an operator tree gives one `Branch` for each combination of its OR
branches, a TESLA chain gives one `Branch` whose steps keep the order of the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from headwater.protocol.analysis.units import Branch, Choice, Forbidden, Logical, Measure, Reach, Spread, Unit
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.expressions import (
    Attribute,
    Binary,
    Constant,
    Expression,
    Index,
    Same,
    parameters_of,
    rewritten,
    roles_of,
)
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Pattern,
    Repetition,
    Selection,
    Window,
    Within,
    leaves,
    positive_leaves,
)
from headwater.protocol.pattern import Sequence as SequenceOf

FOREVER_US = 1 << 62  # the horizon of patterns that no window bounds: their events are kept until the engine closes


def take_apart(pattern: Pattern, composite_types: frozenset[str]) -> Logical:
    """The branches of a pattern. ``composite_types`` are those whose events have a start apart from their end."""
    positive = tuple(positive_leaves(pattern.root))
    if isinstance(pattern.root, Chain):
        branch = _chain(pattern, pattern.root)
        plain = all(isinstance(step, Selection) and step.policy == "each" for step in pattern.root.steps)
        return Logical(
            pattern, tuple(leaf.role for leaf in positive), (False,) * len(positive), (branch,), plain, not plain
        )
    branches = tuple(_tree(pattern, chosen, composite_types) for chosen in _choices(pattern.root))
    waits = any(branch.forbidden or branch.count for branch in branches) or pattern.skip == "next"
    waits = waits or any(unit.limit is not None for branch in branches for unit in branch.units)
    repeated = {leaf.role for branch in branches for unit in branch.units if unit.many for leaf in unit.leaves}
    roles = tuple(leaf.role for leaf in positive)
    return Logical(pattern, roles, tuple(role in repeated for role in roles), branches, not waits, False)


def _choices(part: Part) -> Iterator[Part]:
    """The tree with every OR replaced by one of its branches, for all choices."""
    match part:
        case Disjunction(parts):
            for inner in parts:
                yield from _choices(inner)
        case SequenceOf(parts, _) | Conjunction(parts, _):
            for chosen in product(*(tuple(_choices(inner)) for inner in parts)):
                yield replace(part, parts=tuple(_spliced(part, chosen)))
        case _:
            yield part


def _spliced(part: Part, inside: Sequence[Part]) -> Iterator[Part]:
    """The chosen branch of an OR stands in its place: a SEQ without a window dissolves into the SEQ around it."""
    for inner in inside:
        if isinstance(part, SequenceOf) and isinstance(inner, SequenceOf) and inner.window is None:
            yield from inner.parts
        else:
            yield inner


# ---------------------------------------------------------------------------------------------------------- trees


class _TreeBuilder:
    def __init__(self, pattern: Pattern, composite_types: frozenset[str]) -> None:
        self.branch = Branch()
        self.pattern = pattern
        self.composite_types = composite_types
        self.negations: list[tuple[Negation, str, tuple[int, ...], tuple[int, ...], int]] = []
        self.owners: list[tuple[Window | None, list[int]]] = []

    def has_duration(self, unit: int) -> bool:
        content = self.branch.units[unit]
        return content.many or any(leaf.type in self.composite_types for leaf in content.leaves)

    def build(self, part: Part) -> list[int]:
        """Add a positive part; the numbers of its units."""
        match part:
            case Leaf():
                self.branch.units.append(Unit((part,)))
                return [len(self.branch.units) - 1]
            case Repetition(parts, limit):
                self.branch.units.append(Unit(parts, many=True, limit=limit))
                return [len(self.branch.units) - 1]
            case SequenceOf(parts, window) | Conjunction(parts, window):
                return self._operator(part, parts, window)
            case _:
                raise AssertionError(f"unexpected part {part!r}")

    def _operator(self, part: SequenceOf | Conjunction, parts: tuple[Part, ...], window: Window | None) -> list[int]:
        owner = len(self.owners) if window is not None else self._current_owner
        if window is not None:
            self.owners.append((window, []))
        outer, self._current_owner = self._current_owner, owner
        inside: list[list[int]] = [[] if isinstance(inner, Negation) else self.build(inner) for inner in parts]
        self._current_owner = outer
        units = [unit for group in inside for unit in group]
        if isinstance(part, SequenceOf):
            placed = [group for group in inside if group]
            for i, group in enumerate(placed):
                for later in placed[i + 1 :]:
                    for one, other in product(group, later):
                        self.branch.before[one, other] = "start"
        for position, inner in enumerate(parts):
            if isinstance(inner, Negation):
                place, left, right = _place(part, inside, position)
                self.negations.append((inner, place, left, right, owner))
        if window is not None:
            self.owners[owner][1].extend(units)
            self._bound(window, [(parts[i], group) for i, group in enumerate(inside) if group], units)
        return units

    _current_owner = -1

    def _bound(self, window: Window, parts: list[tuple[Part, list[int]]], units: list[int]) -> None:
        branch = self.branch
        if window.unit == "events":
            branch.count = window.length
            return
        if window.bounds == "span":
            branch.reaches.append(Reach(window.length, True, frozenset(units)))
            branch.own_spans += [(unit, window.length, True) for unit in units if self.has_duration(unit)]
            return
        ends = [self._end_unit(part, group) for part, group in parts]
        if all(end is not None for end in ends):
            branch.reaches.append(Reach(window.length, False, frozenset(end for end in ends if end is not None)))
            branch.own_spans += [
                (unit, window.length, False) for unit in ends if unit is not None and branch.units[unit].many
            ]
        else:
            spread = Spread(
                tuple(tuple(group) for _, group in parts),
                tuple(isinstance(part, Repetition) for part, _ in parts),
                window.length,
            )
            branch.spreads.append(spread)

    def _end_unit(self, part: Part, units: list[int]) -> int | None:
        """The unit whose end is always the end of the part, if there is one that is not a nested repetition."""
        match part:
            case Leaf() | Repetition():
                return units[0]
            case SequenceOf(parts, _):
                last = [inner for inner in parts if not isinstance(inner, Negation)][-1]
                return units[-1] if isinstance(last, Leaf) else None
            case _:
                return None


def _place(
    part: SequenceOf | Conjunction, inside: list[list[int]], position: int
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    if isinstance(part, Conjunction):
        return "around", (), ()
    left: list[int] = next((group for group in reversed(inside[:position]) if group), [])
    right: list[int] = next((group for group in inside[position:] if group), [])
    if left and right:
        return "between", tuple(left), tuple(right)
    return ("before", (), tuple(right)) if right else ("after", tuple(left), ())


def _tree(pattern: Pattern, root: Part, composite_types: frozenset[str]) -> Branch:
    builder = _TreeBuilder(pattern, composite_types)
    builder.build(root)
    branch = builder.branch
    positive = {role for unit in branch.units for role in unit.roles}
    branch.where = [
        condition
        for condition in _expand_same(pattern.where, branch, (), pattern.skip == "next")
        if roles_of(condition) <= positive
    ]
    if pattern.skip == "any" and not any(unit.limit for unit in branch.units):
        branch.where = [condition for condition in branch.where if not _is_gap(condition, branch)]
    for negation, place, left, right, owner in builder.negations:
        window, members = builder.owners[owner]
        assert window is not None
        sub, leaf = _negated(negation.part, window, composite_types, pattern)
        forbidden = Forbidden(
            leaf,
            sub,
            place,  # type: ignore[arg-type]
            left,
            right,
            tuple(members),
            window.length if window.unit == "us" else window.length - 1,
            window.unit == "events",
        )
        names = set(forbidden.roles)
        where = tuple(
            condition
            for condition in _expand_same(pattern.where, branch, forbidden.roles, pattern.skip == "next")
            if roles_of(condition) & names
            and roles_of(condition) <= positive | names
            and not (leaf is None and roles_of(condition) <= names)
        )
        branch.forbidden.append(replace(forbidden, where=where))
    branch.horizon = FOREVER_US if any(operators_without_bound(root)) else _tree_horizon(root)
    return branch


def _is_gap(condition: Expression, branch: Branch) -> bool:
    """A conjunct ``b.ts - a.ts <= T`` with a before b bounds a distance; it becomes a Reach, which narrows searches."""
    match condition:
        case Binary(
            "<=", Binary("-", Attribute(later, "ts", ""), Attribute(earlier, "ts", "")), Constant(int() as length)
        ):
            pair = branch.unit_of(earlier), branch.unit_of(later)
            if pair in branch.before and not any(branch.units[unit].is_group for unit in pair):
                branch.reaches.append(Reach(length, False, frozenset(pair)))
                return True
    return False


def _tree_horizon(part: Part) -> int:
    """The greatest distance between the end of an operator and the earliest event inside it that may matter."""
    match part:
        case SequenceOf(parts, window) | Conjunction(parts, window):
            if window is not None and window.unit == "us" and window.bounds == "span":
                return window.length
            positive = [p for p in parts if not isinstance(p, Negation)]
            if window is None or window.unit == "events":
                return max((_tree_horizon(p) for p in positive), default=0)
            return window.length + max((_tree_horizon(p) for p in positive), default=0)
        case _:
            return 0


def _negated(
    part: Part, window: Window, composite_types: frozenset[str], pattern: Pattern
) -> tuple[tuple[Branch, ...], Leaf | None]:
    if isinstance(part, Leaf):
        return (), part
    inner_roles = {leaf.role for leaf in leaves(part)}
    where = tuple(
        condition for condition in pattern.where if roles_of(condition) and roles_of(condition) <= inner_roles
    )
    sub_pattern = Pattern(part, where + tuple(c for c in pattern.where if isinstance(c, Same)))
    branches = []
    for chosen in _choices(part):
        if isinstance(chosen, SequenceOf | Conjunction) and chosen.window is None:
            chosen = replace(chosen, window=window)
        branches.append(_tree(sub_pattern, chosen, composite_types))
    return tuple(branches), None


def with_role(key: Expression, role: str, index: Index = "") -> Expression:
    """A SAME key for one role."""
    return rewritten(key, lambda attribute: Attribute(role, attribute.name, index))


def _same_along(key: Expression, branch: Branch, hidden: Sequence[str]) -> Iterator[Expression]:
    """SAME as equalities with the first unit, so that what a run has bound decides on the next event."""
    first = branch.units[0]
    role = first.leaves[0].role
    reference = with_role(key, role, "first" if first.many else "")
    yield Binary("=", with_role(key, role), with_role(key, role))
    if first.many:
        yield Binary("=", with_role(key, role), with_role(key, role, "i-1"))
    for other in (*(unit.leaves[0].role for unit in branch.units[1:]), *hidden):
        yield Binary("=", with_role(key, other), reference)


def _expand_same(
    where: Sequence[Expression], branch: Branch, hidden: Sequence[str], in_runs: bool
) -> Iterator[Expression]:
    """Conjuncts with SAME written out as equalities with one reference role; ``hidden`` roles are negated ones."""
    for condition in where:
        if not isinstance(condition, Same):
            yield condition
            continue
        key = condition.key
        if in_runs:
            yield from _same_along(key, branch, hidden)
            continue
        single = [leaf.role for unit in branch.units if not unit.many for leaf in unit.leaves]
        repeated = [leaf.role for unit in branch.units if unit.many for leaf in unit.leaves]
        reference = single[0] if single else repeated[0]
        if single:
            anchor = with_role(key, reference)
            yield Binary("=", anchor, anchor)  # no value agrees with nothing, not even with itself
        else:
            anchor = with_role(key, reference, "first")
            yield Binary("=", with_role(key, reference), with_role(key, reference))
            yield Binary("=", with_role(key, reference), with_role(key, reference, "i-1"))
        for role in [*single, *repeated, *hidden]:
            if role != reference:
                yield Binary("=", with_role(key, role), anchor)


# ---------------------------------------------------------------------------------------------------------- chains


def _chain(pattern: Pattern, chain: Chain) -> Branch:
    branch = Branch()
    numbers = {chain.anchor.role: 0}
    branch.units.append(Unit((chain.anchor,)))
    introduced = {chain.anchor.role: 0}
    for order, step in enumerate(chain.steps, start=1):
        introduced[step.leaf.role] = order
        if isinstance(step, Aggregate):
            introduced[f"${step.name}"] = order

    def home(condition: Expression) -> int:
        names = [introduced[role] for role in roles_of(condition)]
        names += [introduced[f"${name}"] for name in parameters_of(condition)]
        return max(names, default=0)

    by_step: dict[int, list[Expression]] = {}
    for condition in pattern.where:
        by_step.setdefault(home(condition), []).append(condition)

    # ``depth`` is how far before the anchor the events of a role may lie: windows add up along the chain.
    depth = {chain.anchor.role: 0}
    for order, step in enumerate(chain.steps, start=1):
        own = by_step.get(order, [])
        match step:
            case Selection(leaf, policy, within, count):
                unit = len(branch.units)
                numbers[leaf.role] = unit
                branch.units.append(Unit((leaf,)))
                origin = numbers[within.origin]
                branch.before[unit, origin] = "end"
                branch.reaches.append(Reach(within.length_us, False, frozenset((unit, origin))))
                branch.steps.append(Choice(unit, policy, count))
                branch.where += own
                reach = depth[leaf.role] = _depth(within, depth)
            case Absence(leaf, bounds):
                place, left, right, window = _range(bounds, numbers)
                forbidden = Forbidden(leaf, (), place, left, right, (), window, where=tuple(own))
                branch.forbidden.append(forbidden)
                reach = _depth(bounds, depth)
            case Aggregate(name, function, leaf, attribute, bounds):
                place, left, right, window = _range(bounds, numbers)
                looks = tuple(condition for condition in own if name not in parameters_of(condition))
                branch.where += [condition for condition in own if name in parameters_of(condition)]
                branch.steps.append(Measure(name, function, leaf, attribute, place, left, right, window, looks))
                reach = _depth(bounds, depth)
        branch.horizon = max(branch.horizon, reach)
    branch.where += by_step.get(0, [])
    return branch


def _range(
    bounds: Within | Between, numbers: dict[str, int]
) -> tuple[Literal["ends", "within"], tuple[int, ...], tuple[int, ...], int]:
    match bounds:
        case Within(length_us, origin):
            return "within", (), (numbers[origin],), length_us
        case Between(one, other):
            return "ends", (numbers[one],), (numbers[other],), 0


def _depth(bounds: Within | Between, depth: dict[str, int]) -> int:
    """How far before the anchor an event within these bounds may lie."""
    match bounds:
        case Within(length_us, origin):
            return depth[origin] + length_us
        case Between(one, other):
            return max(depth[one], depth[other])
