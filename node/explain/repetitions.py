"""Conditions over whole repetitions: whether some choice of elements satisfies them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice, pairwise, product
from typing import Final

from headwater.node.explain.expressions import Scope, holds
from headwater.node.explain.nearest_misses import Objection, distance, facts, quoted
from headwater.node.explain.shape import Element, Open, PatternShape
from headwater.node.explain.steps import StepReport, World
from headwater.protocol.composites import start_of
from headwater.protocol.expressions import Attribute, Expression, walk

SUBSETS_MAX: Final = 2_000  # choices of elements tried for the conditions over a whole repetition


class TooManyCombinations(Exception):
    """So many choices of the elements of a repetition do not satisfy its conditions that the others are not tried."""


class Repetitions:
    """Judges the repetitions of one pattern."""

    def __init__(self, shape: PatternShape, conditions: Sequence[Expression], world: World) -> None:
        self._shape = shape
        self._conditions = conditions
        self._world = world
        self._limits = [unit for unit in shape.units if unit.limit is not None]

    def objection(self, match: Open, report: StepReport) -> Objection | None:
        """What stands against a match; None if some choice of elements satisfies everything. TooManyCombinations where
        that is not known."""
        return self._over_limit(match) or self._unsatisfied(match, report)

    def _over_limit(self, match: Open) -> Objection | None:
        for unit in self._limits:
            count = len(match.many[self._shape.unit_of[unit.leaves[0].role]])
            if unit.limit is not None and count > unit.limit:
                text = f"LIMIT {unit.limit}"
                story = f"{count} possible {unit.leaves[0].role}[], more than {text}"
                return Objection.about_all(text, story, 1, count - unit.limit)
        return None

    def _unsatisfied(self, match: Open, report: StepReport) -> Objection | None:
        """None if some choice of elements satisfies the conditions over repetitions."""
        if not self._conditions:
            return None
        choices = []
        for elements in match.many.values():
            self._world.budget.spend(1 + min(1 << len(elements), SUBSETS_MAX) // 8)  # cheaper than looking at events
            choices.append(list(_runs(elements)))
        last: Objection | None = None
        for tried, chosen in enumerate(product(*choices)):
            if tried >= SUBSETS_MAX:
                raise TooManyCombinations
            self._world.budget.spend(sum(map(len, chosen)))
            report.tried += 1
            objection = self._judge(match, dict(zip(match.many, chosen, strict=True)))
            if objection is None:
                return None
            if last is None or (objection.cost, objection.distance) < (last.cost, last.distance):
                last = objection
        if any(1 << len(elements) > SUBSETS_MAX for elements in match.many.values()):
            raise TooManyCombinations
        return last

    def _judge(self, match: Open, chosen: dict[int, tuple[Element, ...]]) -> Objection | None:
        base = match_scope(self._shape, self._world, match.single).rows
        elements = {
            leaf.role: [element[index] for element in run]
            for unit, run in chosen.items()
            for index, leaf in enumerate(self._shape.units[unit].leaves)
        }
        for passed, conjunct in enumerate(self._conditions):
            unit, uses_previous = self._in_turn(conjunct)
            scopes = [self._world.scope(base, elements=elements)]
            if unit is not None:
                run = chosen[unit]
                pairs = list(pairwise(run)) if uses_previous else [((), element) for element in run]
                roles = [leaf.role for leaf in self._shape.units[unit].leaves]
                scopes = [
                    self._world.scope(
                        {**base, **dict(zip(roles, element, strict=True))},
                        previous=dict(zip(roles, before, strict=False)),
                        elements=elements,
                    )
                    for before, element in pairs
                ]
            for scope in scopes:
                if not holds(conjunct, scope):
                    story = f"no choice of elements satisfies {quoted(conjunct)}; the nearest{facts(conjunct, scope)}"
                    cost = len(self._conditions) - passed
                    return Objection.about_all(quoted(conjunct), story, cost, distance(conjunct, scope))
        return None

    def _in_turn(self, conjunct: Expression) -> tuple[int | None, bool]:
        """The repetition whose elements a conjunct takes in turn, and whether it looks at the one before, too."""
        unit, previous = None, False
        for part in walk(conjunct):
            if isinstance(part, Attribute) and part.index in ("", "i-1"):
                number = self._shape.unit_of.get(part.role)
                if number is not None and self._shape.units[number].many:
                    unit = number
                    previous = previous or part.index == "i-1"
        return unit, previous


def _runs(elements: list[Element]) -> Iterator[tuple[Element, ...]]:
    """Choices of elements in order that do not overlap, large ones first: they are what people mean. Not all, if there
    are more than SUBSETS_MAX."""
    sizes = (combinations(elements, size) for size in range(len(elements), 0, -1))
    for chosen in islice(chain.from_iterable(sizes), SUBSETS_MAX):
        if all(one[-1][:3] < start_of(other[0]) for one, other in pairwise(chosen)):
            yield chosen


def match_scope(shape: PatternShape, world: World, single: dict[int, Element]) -> Scope:
    """What expressions read: the events that are bound to single roles."""
    return world.scope(
        {
            leaf.role: row
            for unit, element in single.items()
            for leaf, row in zip(shape.units[unit].leaves, element, strict=True)
        }
    )
