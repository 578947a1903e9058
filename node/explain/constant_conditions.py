"""Conditions whose outcome no event can change: ``port > 70000 and port < 10``, ``orig = orig``.

A condition that compares one reference (an attribute, say) with constants is the same between two neighbouring
constants. So it is enough to try every constant, a value between each two of them, and one on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from math import isfinite
from typing import Any, Final

from headwater.node.explain.expressions import Scope, evaluate, show
from headwater.protocol.expressions import (
    COMPARISONS,
    Attribute,
    Binary,
    Call,
    Constant,
    Expression,
    Fold,
    Items,
    Parameter,
    Remote,
    Same,
    Unary,
    roles_of,
    walk,
)

VALUES_MOST: Final = 200
"""A condition with more constants than this is not looked at: a long list of an ``in`` is no slip."""

Reference = Attribute | Fold | Parameter


@dataclass(frozen=True, slots=True)
class Certainty:
    """Conjuncts that, taken together, are always or never true of events that have the values they ask for."""

    conjuncts: tuple[Expression, ...]
    always: bool

    @property
    def roles(self) -> frozenset[str]:
        return frozenset().union(*map(roles_of, self.conjuncts))

    def __str__(self) -> str:
        return " and ".join(map(show, self.conjuncts))

    @property
    def sentence(self) -> str:
        """The conditions, and that they are always or never true."""
        if not self.always:
            return f"`{self}` {'is never true' if len(self.conjuncts) == 1 else 'are never true together'}"
        asks = any(map(_references, self.conjuncts))
        return f"`{self}` is {'true of every event that has the value' if asks else 'always true'}"

    @property
    def cure(self) -> str:
        """What the author may have meant instead."""
        if len(self.conjuncts) > 1:
            return "write or instead of and, or correct one of them"
        (only,) = self.conjuncts
        match only:
            case Binary("or", _, _) if self.always:
                return "write and instead of or, or correct one of them"
            case Binary(_, left, right) if left == right and not isinstance(left, Constant):
                return "name another event on one side, or leave it out"
            case _:
                return "correct it, or leave it out"


def certainties(where: Iterable[Expression]) -> list[Certainty]:
    """Single conjuncts that are always or never true, and sets of them that cannot be true together."""
    conditions = [condition for condition in where if not isinstance(condition, Same)]
    single = [
        Certainty((condition,), verdict) for condition in conditions if (verdict := _verdict((condition,))) is not None
    ]
    settled = {condition for certainty in single for condition in certainty.conjuncts}
    open_ones = [condition for condition in conditions if condition not in settled]
    return [*single, *_never_together(open_ones)]


def never_met(where: Iterable[Expression], roles: Collection[str]) -> Certainty | None:
    """Conditions on some of these roles that no events meet."""
    return next(
        (certainty for certainty in certainties(where) if not certainty.always and certainty.roles <= set(roles)), None
    )


def _never_together(conditions: Sequence[Expression]) -> Iterator[Certainty]:
    by_reference: dict[frozenset[Expression], list[Expression]] = {}
    for condition in conditions:
        by_reference.setdefault(frozenset(_references(condition)), []).append(condition)
    for references, group in by_reference.items():
        if len(group) > 1 and len(references) <= 2 and _verdict(group) is False:
            pair = next((two for two in combinations(group, 2) if _verdict(two) is False), tuple(group))
            yield Certainty(pair, always=False)


def _verdict(conditions: Sequence[Expression]) -> bool | None:
    """True or False where the conditions, taken together, are always or never true; None where that depends."""
    references = sorted({reference for condition in conditions for reference in _references(condition)}, key=repr)
    if not all(map(_is_plain, conditions)) or len(references) > 2:
        return None
    tried = _for_two(conditions) if len(references) == 2 else _for_one(conditions)
    if tried is None:
        return None
    outcomes = set(tried)
    return outcomes.pop() if len(outcomes) == 1 else None


def _for_one(conditions: Sequence[Expression]) -> list[bool] | None:
    """What the conditions give for every value that could make a difference, the missing one among them where it may
    make them true."""
    if not any(_references(condition) for condition in conditions):
        return [_all_hold(conditions, lambda _: None)]
    values = _telling(conditions)
    if len(values) > VALUES_MOST:
        return None
    without = _all_hold(conditions, lambda _: None)  # comparisons with no value are false: it only counts if true
    return [_all_hold(conditions, lambda _, value=value: value) for value in values] + [True] * without  # type: ignore[misc]


def _for_two(conditions: Sequence[Expression]) -> list[bool] | None:
    """What comparisons of two references with each other give if the first is less, equal or greater."""
    if any(_constants(condition) for condition in conditions):
        return None
    first = min((reference for condition in conditions for reference in _references(condition)), key=repr)
    without = _all_hold(conditions, lambda _: None)
    return [
        _all_hold(conditions, lambda reference, sign=sign: sign if reference == first else 0)  # type: ignore[misc]
        for sign in (-1, 0, 1)
    ] + [True] * without


def _telling(conditions: Sequence[Expression]) -> list[Any]:
    """Every constant, a value between each two neighbours, one below and one above; numbers and strings apart."""
    constants = {value for condition in conditions for value in _constants(condition)}
    numbers = sorted(value for value in constants if isinstance(value, int | float))
    strings = sorted(value for value in constants if isinstance(value, str))
    values: list[Any] = []
    if numbers or not strings:
        ends = numbers or [0]
        exact = [Fraction(value) for value in ends]
        between = [(low + high) / 2 for low, high in pairwise(exact)]
        values += [exact[0] - 1, *ends, *between, exact[-1] + 1]
    if strings:
        values += [*strings, *(f"{text}\0" for text in strings)]
        values += [""] if strings[0] else []
    return values


def _references(expression: Expression) -> list[Reference]:
    return [part for part in walk(expression) if isinstance(part, Attribute | Fold | Parameter)]


def _constants(expression: Expression) -> list[Any]:
    """The values that references are compared with; constants are computed first (``2 * 3``)."""
    match expression:
        case Binary(operator, left, right) if operator in COMPARISONS:
            sides = [*(right.items if isinstance(right, Items) else (right,)), left]
            values = [evaluate(side, Scope()) for side in sides if not _references(side)]
            return [
                value
                for value in values
                if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
            ]
        case Binary(_, left, right):
            return [*_constants(left), *_constants(right)]
        case Unary(_, operand):
            return _constants(operand)
        case _:
            return []


def _is_plain(expression: Expression) -> bool:
    """Whether references are only compared, with each other or with constants, and nothing is computed of them."""
    match expression:
        case Binary("and" | "or", left, right):
            return _is_plain(left) and _is_plain(right)
        case Unary("not", operand):
            return _is_plain(operand)
        case Binary(operator, left, right) if operator in COMPARISONS:
            sides = (left, *(right.items if isinstance(right, Items) else (right,)))
            return all(isinstance(side, Attribute | Fold | Parameter) or _is_constant(side) for side in sides)
        case _:
            return _is_constant(expression)


def _is_constant(expression: Expression) -> bool:
    return not any(isinstance(part, Attribute | Fold | Parameter | Call | Remote | Same) for part in walk(expression))


def _all_hold(conditions: Iterable[Expression], value_of: Callable[[Reference], Any]) -> bool:
    return all(evaluate(_filled(condition, value_of), Scope()) is True for condition in conditions)


def _filled(expression: Expression, value_of: Callable[[Reference], Any]) -> Expression:
    """The expression with a value in the place of each reference."""
    match expression:
        case Attribute() | Fold() | Parameter():
            return Constant(value_of(expression))
        case Unary(operator, operand):
            return Unary(operator, _filled(operand, value_of))
        case Binary(operator, left, right):
            return Binary(operator, _filled(left, value_of), _filled(right, value_of))
        case Items(items):
            return Items(tuple(_filled(item, value_of) for item in items))
        case _:
            return expression
