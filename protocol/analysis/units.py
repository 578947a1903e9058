"""What a pattern asks for, for one combination of its OR alternatives: units, precedences, distances and negations.

The join generator and the skip-till-next machine work on these values alone; `protocol.analysis.branches` makes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from headwater.protocol.expressions import Attribute, Expression, Fold, roles_of, walk
from headwater.protocol.pattern import Leaf, Pattern


@dataclass(frozen=True, slots=True)
class Unit:
    """Something a match binds as a whole: one event, or the events of a repetition (of one leaf or of a group)."""

    leaves: tuple[Leaf, ...]
    many: bool = False
    limit: int | None = None

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(leaf.role for leaf in self.leaves)

    @property
    def is_group(self) -> bool:
        return len(self.leaves) > 1


@dataclass(frozen=True, slots=True)
class Reach:
    """Any two of the units lie within ``length``: the end ts of the later minus the start ts of the earlier (of a span
    window) or its end ts."""

    length: int
    from_start: bool
    units: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReachPair:
    """One pair of a Reach: ``later.end.ts - earlier.ts <= length``."""

    earlier: int
    later: int
    length: int
    from_start: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The ends of these parts lie within ``length``; a part's end is the greatest end of its units.

    ``elements`` marks parts that are repetitions standing directly in the operator: every element counts.
    """

    parts: tuple[tuple[int, ...], ...]
    elements: tuple[bool, ...]
    length: int


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A negation in one branch. Which of the unit sets matter depends on ``place``.

    between: after the end of ``left`` and before the start of ``right``; before: from the owner's greatest ts minus the
    window up to the start of ``right``; after: from the end of ``left`` up to the owner's least ts plus the window;
    around: from greatest minus window to least plus window; ends: strictly between the ends of ``left`` and ``right``;
    within: before the end of ``right``, at most the window earlier.
    """

    leaf: Leaf | None
    sub: tuple[Branch, ...]
    place: Literal["between", "before", "after", "around", "ends", "within"]
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()
    owner: tuple[int, ...] = ()
    window: int = 0
    numbered: bool = False
    """The owner has a count window: ``window`` is a number of events and ranges compare event numbers."""
    where: tuple[Expression, ...] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        if self.leaf is not None:
            return (self.leaf.role,)
        return tuple(dict.fromkeys(leaf.role for branch in self.sub for unit in branch.units for leaf in unit.leaves))

    @property
    def waits(self) -> bool:
        """Decided only when time has passed the match."""
        return self.place in ("after", "around")


@dataclass(frozen=True, slots=True)
class Choice:
    """A step of a chain that chooses: the unit, how, and how many."""

    unit: int
    policy: Literal["each", "last", "first"]
    count: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A step of a chain that computes: an aggregate over a range that is given like that of a negation."""

    name: str
    function: str
    leaf: Leaf
    attribute: str | None
    place: Literal["ends", "within"]
    left: tuple[int, ...]
    right: tuple[int, ...]
    window: int
    where: tuple[Expression, ...]


@dataclass(slots=True)
class Branch:
    """One way to match a pattern. Unit numbers index ``units``; ``before`` holds every ordered pair."""

    units: list[Unit] = field(default_factory=list)
    before: dict[tuple[int, int], Literal["start", "end"]] = field(default_factory=dict)
    reaches: list[Reach] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    own_spans: list[tuple[int, int, bool]] = field(default_factory=list)
    """(unit, length, from start): the unit's own first and last moment lie within the length."""
    count: int | None = None
    forbidden: list[Forbidden] = field(default_factory=list)
    where: list[Expression] = field(default_factory=list)
    steps: list[Choice | Measure] = field(default_factory=list)
    horizon: int = 0
    """How much older than the newest event of a match any of its events, negating ones included, may be."""

    def unit_of(self, role: str) -> int:
        for number, unit in enumerate(self.units):
            for leaf in unit.leaves:
                if leaf.role == role:
                    return number
        raise KeyError(role)

    def units_in(self, expression: Expression) -> frozenset[int]:
        return frozenset(self.unit_of(role) for role in roles_of(expression))

    def gaps_to(self, later: int) -> Iterator[ReachPair]:
        """How long after other units this one may end."""
        for reach in self.reaches:
            if later in reach.units:
                for unit in sorted(reach.units):
                    if unit != later and (later, unit) not in self.before:
                        yield ReachPair(unit, later, reach.length, reach.from_start)

    def gaps_from(self, earlier: int) -> Iterator[ReachPair]:
        """How long after this unit others may end."""
        for reach in self.reaches:
            if earlier in reach.units:
                for unit in sorted(reach.units):
                    if unit != earlier and (unit, earlier) not in self.before:
                        yield ReachPair(earlier, unit, reach.length, reach.from_start)

    def forbidden_horizon(self, forbidden: Forbidden) -> int:
        """How much older than the newest event of a match (or than its deciding time) what forbids it may be."""
        if forbidden.place not in ("before", "after", "around"):
            return self.horizon + self.longest_wait
        return self.horizon + self.longest_wait + (0 if forbidden.numbered else forbidden.window)

    @property
    def longest_wait(self) -> int:
        """How long after its newest event a match may have to wait before it is decided."""
        waits = [forbidden.window for forbidden in self.forbidden if forbidden.waits and not forbidden.numbered]
        if any(unit.limit is not None for unit in self.units):
            waits.append(self.horizon)
        return max(waits, default=0)

    def is_last(self, unit: int) -> bool:
        """Whether nothing in the match has to follow this unit."""
        return not any(earlier == unit for earlier, _ in self.before)


@dataclass(frozen=True, slots=True)
class Logical:
    """A pattern taken apart. ``monotone``: more events never take a match back, so matches are told at once."""

    pattern: Pattern
    roles: tuple[str, ...]
    repeated: tuple[bool, ...]
    branches: tuple[Branch, ...]
    monotone: bool
    in_text_order: bool
    """Steps choose one after another (chains with anything but plain ``each``)."""


def elementwise(condition: Expression, roles: frozenset[str]) -> bool:
    """Whether the conjunct speaks of each element of these repeated roles in turn and never of several."""
    for part in walk(condition):
        match part:
            case Fold(role=role) if role in roles:
                return False
            case Attribute(role=role, index=index) if role in roles and index:
                return False
    return True


def needs_previous(condition: Expression, roles: frozenset[str]) -> bool:
    return any(isinstance(p, Attribute) and p.role in roles and p.index == "i-1" for p in walk(condition))


def needs_whole(condition: Expression, roles: frozenset[str]) -> bool:
    """Whether the conjunct can only be judged on the finished repetition."""
    for part in walk(condition):
        match part:
            case Fold(role=role) if role in roles:
                return True
            case Attribute(role=role, index="first" | "last") if role in roles:
                return True
    return False
