"""An operator tree as the explanation walks it: units in text order, their bounds, and what is forbidden."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from headwater.node.explain.expressions import Row
from headwater.node.explain.steps import named, show_event
from headwater.protocol.pattern import Conjunction, Disjunction, Leaf, Negation, Part, Repetition, Window
from headwater.protocol.pattern import Sequence as SequenceOf

BRANCHES_MAX: Final = 512  # combinations of OR branches that are made at all

Element = tuple[Row, ...]
"""The events of a unit: one, or one for each leaf of a repeated group."""


def alternatives(part: Part) -> Iterator[Part]:
    """The tree with one choice for each of its ORs, for every combination of choices."""
    match part:
        case Disjunction(parts):
            for inner in parts:
                yield from alternatives(inner)
        case SequenceOf(parts, window) | Conjunction(parts, window):
            combined = product(*(list(alternatives(inner)) for inner in parts))
            for chosen in islice(combined, BRANCHES_MAX):
                yield type(part)(chosen, window)
        case _:
            yield part


def has_repetition(part: Part) -> bool:
    match part:
        case Repetition():
            return True
        case Leaf() | Negation():
            return False
        case _:
            return any(has_repetition(inner) for inner in part.parts)


@dataclass(frozen=True, slots=True)
class Unit:
    """What one step binds: a leaf, or a repetition of one leaf or of a group."""

    leaves: tuple[Leaf, ...]
    many: bool = False
    limit: int | None = None

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(leaf.role for leaf in self.leaves)

    @property
    def text(self) -> str:
        if not self.many:
            return named(self.leaves[0])
        inner = ", ".join(named(leaf) for leaf in self.leaves)
        return f"{inner}, one or more" if len(self.leaves) == 1 else f"({inner}), one or more"


@dataclass(frozen=True, slots=True)
class WindowBound:
    """A window with the units of each direct part of the operator that owns it."""

    window: Window
    parts: tuple[tuple[int, ...], ...]

    @property
    def units(self) -> tuple[int, ...]:
        return tuple(unit for part in self.parts for unit in part)


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A negation and where it stands: between units of a sequence, at one of its ends, or in a conjunction."""

    part: Part
    left: tuple[int, ...]
    right: tuple[int, ...]
    in_sequence: bool
    owner: WindowBound | None


class PatternShape:
    """A tree without ORs as units, precedences, windows and negations."""

    def __init__(self, root: Part) -> None:
        self.units: list[Unit] = []
        self.before: set[tuple[int, int]] = set()
        self.windows: list[WindowBound] = []
        self.negations: list[Forbidden] = []
        self._read(root)
        self.unit_of = {leaf.role: number for number, unit in enumerate(self.units) for leaf in unit.leaves}

    def _read(self, part: Part) -> tuple[tuple[int, ...], list[Forbidden]]:
        """The units inside a part, and the negations that still look for the operator owning their window."""
        match part:
            case Leaf():
                self.units.append(Unit((part,)))
                return (len(self.units) - 1,), []
            case Repetition(parts, limit):
                self.units.append(Unit(parts, True, limit))
                return (len(self.units) - 1,), []
            case SequenceOf(parts, window) | Conjunction(parts, window):
                return self._operator(parts, window, isinstance(part, SequenceOf))
            case _:
                raise AssertionError("ORs are taken apart before, and a negation stands in an operator")

    def _operator(
        self, parts: tuple[Part, ...], window: Window | None, in_sequence: bool
    ) -> tuple[tuple[int, ...], list[Forbidden]]:
        inside: list[tuple[int, ...] | Negation] = []
        waiting: list[Forbidden] = []
        for inner in parts:
            if isinstance(inner, Negation):
                inside.append(inner)
            else:
                units, unowned = self._read(inner)
                inside.append(units)
                waiting.extend(unowned)
        positive = tuple(units for units in inside if not isinstance(units, Negation))
        if in_sequence:
            for index, earlier in enumerate(positive):
                for later in positive[index + 1 :]:
                    self.before.update(product(earlier, later))
        for index, item in enumerate(inside):
            if isinstance(item, Negation):
                left: tuple[int, ...] = ()
                right: tuple[int, ...] = ()
                if in_sequence:
                    left = next((units for units in inside[:index][::-1] if not isinstance(units, Negation)), ())
                    right = next((units for units in inside[index:] if not isinstance(units, Negation)), ())
                waiting.append(Forbidden(item.part, left, right, in_sequence, None))
        if window is not None:
            owner = WindowBound(window, positive)
            self.windows.append(owner)
            self.negations.extend(Forbidden(n.part, n.left, n.right, n.in_sequence, owner) for n in waiting)
            waiting = []
        return tuple(unit for part in positive for unit in part), waiting


@dataclass(slots=True)
class Open:
    """A partial match: one element for each single unit bound, the possible elements of each repetition."""

    single: dict[int, Element] = field(default_factory=dict)
    many: dict[int, list[Element]] = field(default_factory=dict)

    def rows(self, units: Sequence[int] | None = None) -> list[Row]:
        rows = [row for unit, element in self.single.items() if units is None or unit in units for row in element]
        for unit, elements in self.many.items():
            if units is None or unit in units:
                rows.extend(row for element in elements for row in element)
        return rows

    def shown(self) -> tuple[str, ...]:
        texts: list[str] = []
        for unit in sorted({*self.single, *self.many}):
            if unit in self.single:
                texts.extend(show_event(row) for row in self.single[unit])
            else:
                elements = self.many[unit]
                first = ", ".join(show_event(row) for row in elements[0])
                texts.append(first if len(elements) == 1 else f"{first} and {len(elements) - 1} more")
        return tuple(texts)
