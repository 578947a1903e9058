"""Horizons of rules: how far apart in time the events of a match may lie, and so where to look for them and how long.

Bounds are derived from the windows and the order of the parts, one alternative of the rule's ORs at a time. They are
never too tight; where nothing bounds a distance they are None.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final

from headwater.protocol.analysis.branches import FOREVER_US, take_apart
from headwater.protocol.analysis.units import Branch, Forbidden, Measure, Spread
from headwater.protocol.pattern import Rule, Window

Offsets = Mapping[str, tuple[int | None, int | None]]
UNBOUNDED: Final = math.inf


def offsets(rule: Rule, role: str) -> Offsets:
    """For every other role the least and the greatest ``ts(other) - ts(role)``.

    For two parts this holds in every match; for negated and aggregated roles, for every event that can influence a
    match (of a negated sub-pattern: every event of a match of it that forbids one). Roles that never occur together,
    because they stand in different branches of an OR, are left out.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for bounds in _bounds(rule):
        if role not in bounds.roles:
            continue
        for other in bounds.roles:
            if other == role:
                continue
            greatest, least = bounds.greatest(other, role), -bounds.greatest(role, other)
            range_so_far = ranges.get(other, (UNBOUNDED, -UNBOUNDED))
            ranges[other] = min(range_so_far[0], least), max(range_so_far[1], greatest)
    return {other: (_finite(least), _finite(greatest)) for other, (least, greatest) in ranges.items()}


def horizon_us(rule: Rule) -> int | None:
    """How long after its ts an input may still be needed: until no match with it can be completed or decided.

    None if no window bounds it (a window that counts events, or an operator in CED's spelling without its own).
    """
    return _finite(max(bounds.horizon() for bounds in _bounds(rule)))


def _finite(bound: float) -> int | None:
    return None if math.isinf(bound) else int(bound)


@lru_cache(maxsize=256)
def _bounds(rule: Rule) -> tuple[_Bounds, ...]:
    # A composite event counts by its end here, like a primitive one, so it does not matter which types are composite.
    logical = take_apart(rule.pattern, frozenset())
    return tuple(_Bounds(rule, branch) for branch in logical.branches)


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Events that are no part of a match: how far each unit lies before them and they before each unit, at most."""

    after: Mapping[int, float]
    """Unit to the greatest ``ts(event) - ts(unit)``."""
    before: Mapping[int, float]
    """Unit to the greatest ``ts(unit) - ts(event)``."""
    depth: float = 0
    """How much older the earliest event of a negated sub-pattern's match may be than its end, which lies in range."""


class _Bounds:
    """The greatest differences between the timestamps of roles in one branch."""

    def __init__(self, rule: Rule, branch: Branch) -> None:
        self.rule = rule
        self.branch = branch
        self.unit_of = {leaf.role: number for number, unit in enumerate(branch.units) for leaf in unit.leaves}
        self._difference = self._units()
        self.hidden: dict[str, _Hidden] = {}
        for forbidden in branch.forbidden:
            depth = max((float(sub.horizon) for sub in forbidden.sub), default=0.0)
            hidden = self._range_of(forbidden, UNBOUNDED if depth >= FOREVER_US else depth)
            self.hidden |= dict.fromkeys(forbidden.roles, hidden)
        for step in branch.steps:
            if isinstance(step, Measure):
                self.hidden[step.leaf.role] = self._range_of(step, 0)
        self.roles = (*self.unit_of, *self.hidden)

    # Distances between roles

    def greatest(self, later: str, earlier: str) -> float:
        """The greatest ``ts(later) - ts(earlier)`` of two different roles."""
        if later in self.hidden and earlier in self.hidden:
            one, other = self.hidden[later], self.hidden[earlier]
            if one is other:
                return one.depth
            through = (one.after[unit] + other.before[unit] for unit in one.after if unit in other.before)
            return min(through, default=UNBOUNDED) + other.depth
        if later in self.hidden:
            return self._after(self.hidden[later], self.unit_of[earlier])
        if earlier in self.hidden:
            return self._before(self.hidden[earlier], self.unit_of[later])
        return self._apart(self.unit_of[later], self.unit_of[earlier])

    def _after(self, hidden: _Hidden, unit: int) -> float:
        return min((length + self._apart(near, unit) for near, length in hidden.after.items()), default=UNBOUNDED)

    def _before(self, hidden: _Hidden, unit: int) -> float:
        through = (self._apart(unit, near) + length for near, length in hidden.before.items())
        return min(through, default=UNBOUNDED) + hidden.depth

    def _apart(self, later: int, earlier: int) -> float:
        """The greatest difference between any element of one unit and any of the other; 0 for the same event."""
        if later != earlier or not self.branch.units[later].many:
            return self._difference[later][earlier]
        own = [float(length) for unit, length, _ in self.branch.own_spans if unit == later]
        other_units = (unit for unit in range(len(self.branch.units)) if unit != later)
        around = [self._difference[later][unit] + self._difference[unit][later] for unit in other_units]
        return min([*own, *around], default=UNBOUNDED)

    def _units(self) -> list[list[float]]:
        """Greatest differences between units. The ends of operators inside a window are variables of their own."""
        branch, count = self.branch, len(self.branch.units)
        ends = [(spread, members, number) for spread in branch.spreads for number, members in enumerate(spread.parts)]
        table = self._stated(ends)
        changed = True
        while changed:
            _close(table)
            self._difference = table
            changed = False
            for place, (_, members, _) in enumerate(ends, start=count):
                for unit in members:
                    # The end is the latest of the members, so it is no further from one than the furthest of them.
                    furthest = max(self._apart(other, unit) for other in members)
                    if furthest < table[place][unit]:
                        table[place][unit] = furthest
                        changed = True
        return table

    def _stated(self, ends: Sequence[tuple[Spread, Collection[int], int]]) -> list[list[float]]:
        """The differences that order, windows and the ends of operators state directly."""
        branch, count = self.branch, len(self.branch.units)
        size = count + len(ends)
        table = [[0.0 if row == column else UNBOUNDED for column in range(size)] for row in range(size)]

        def bound(later: int, earlier: int, length: float) -> None:
            table[later][earlier] = min(table[later][earlier], length)

        for earlier, later in branch.before:
            bound(earlier, later, 0)
        for reach in branch.reaches:
            for one, other in product(reach.units, repeat=2):
                if one != other:
                    bound(one, other, reach.length)
        for place, (spread, members, number) in enumerate(ends, start=count):
            for unit in members:
                bound(unit, place, 0)
                if self._is_end(spread, number, unit):
                    bound(place, unit, 0)
            for other, (other_spread, _, _) in enumerate(ends, start=count):
                if other != place and other_spread is spread:
                    bound(place, other, spread.length)
        return table

    def _is_end(self, spread: Spread, number: int, unit: int) -> bool:
        """Whether the unit's event is always the end of the part (or, if its elements count by themselves, an end)."""
        if spread.elements[number]:
            return True
        rest = [other for other in spread.parts[number] if other != unit]
        return not self.branch.units[unit].many and all((other, unit) in self.branch.before for other in rest)

    # Negations and aggregates

    def _range_of(self, step: Forbidden | Measure, depth: float) -> _Hidden:
        left, right, window = dict.fromkeys(step.left, 0.0), dict.fromkeys(step.right, 0.0), float(step.window)
        # What counts events in its window says nothing about time.
        owner: dict[int, float] = {}
        if isinstance(step, Forbidden) and not step.numbered:
            owner = dict.fromkeys(step.owner, window)
        match step.place:
            case "between":
                return _Hidden(right, left, depth)
            case "before":
                return _Hidden(right, owner, depth)
            case "after":
                return _Hidden(owner, left, depth)
            case "around":
                return _Hidden(owner, owner, depth)
            case "within":
                return _Hidden(right, dict.fromkeys(step.right, window), depth)
            case "ends":
                (one,), (other,) = step.left, step.right
                units = range(len(self.branch.units))
                after = {unit: max(self._apart(one, unit), self._apart(other, unit)) for unit in units}
                before = {unit: max(self._apart(unit, one), self._apart(unit, other)) for unit in units}
                return _Hidden(after, before, depth)

    # How long to remember

    def horizon(self) -> float:
        """How much older than the last moment that matters to a match anything that matters to it may be."""
        units = range(len(self.branch.units))
        if self.branch.count is not None or self.branch.horizon >= FOREVER_US:
            return UNBOUNDED
        ages = [self._age(unit) for unit in units]
        for hidden, step in self._ranges():
            if self._is_reckoned_from_the_latest(step) and not self._waits():
                ages.append(step.window + hidden.depth)
            else:
                through = (ages[unit] + length for unit, length in hidden.before.items())
                ages.append(min(through, default=UNBOUNDED) + hidden.depth)
        return max(ages)

    def _is_reckoned_from_the_latest(self, step: Forbidden | Measure) -> bool:
        """Whether the range begins a window before the latest part of all, which decides the match if nothing waits."""
        if not isinstance(step, Forbidden) or step.place not in ("before", "around"):
            return False
        return len(step.owner) == len(self.branch.units)

    def _ranges(self) -> Iterator[tuple[_Hidden, Forbidden | Measure]]:
        for forbidden in self.branch.forbidden:
            yield self.hidden[forbidden.roles[0]], forbidden
        for step in self.branch.steps:
            if isinstance(step, Measure):
                yield self.hidden[step.leaf.role], step

    def _age(self, unit: int) -> float:
        """How long after the unit's event the match it is part of may be decided."""
        age = max(self._apart(other, unit) for other in range(len(self.branch.units)))
        for forbidden in self.branch.forbidden:
            if forbidden.waits:
                # Its range ends a window after the earliest part of its owner.
                least = min(self._apart(owner, unit) if owner != unit else 0.0 for owner in forbidden.owner)
                age = max(age, least + forbidden.window)
        if self._waits_for_elements():
            window = getattr(self.rule.pattern.root, "window", None)
            if isinstance(window, Window) and window.bounds == "span":
                return max(age, window.length)
            age += self.branch.horizon
        return age

    def _waits_for_elements(self) -> bool:
        """Repetitions that must hear the last of their candidates before anything is decided."""
        skips = self.rule.pattern.skip == "next"
        return any(unit.limit is not None or (skips and unit.many) for unit in self.branch.units)

    def _waits(self) -> bool:
        return self._waits_for_elements() or any(forbidden.waits for forbidden in self.branch.forbidden)


def _close(table: list[list[float]]) -> None:
    """Shortest paths: no difference is greater than the sum of those along any way."""
    for through, onward in enumerate(table):
        for row in table:
            first = row[through]
            if first < UNBOUNDED:
                for column, second in enumerate(onward):
                    if first + second < row[column]:
                        row[column] = first + second
