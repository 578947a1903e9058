"""Turns operator trees (SEQ, AND, OR) into the pairs of roles and the conditions that a match must satisfy.

A disjunction is replaced by each of its branches in turn, so what remains are sequences, conjunctions and leaves. Their
meaning is written as conditions over as few roles as possible, so that joins apply each as early as they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

from headwater.pipeline.verify.relations import Roles, Unverifiable, first_of, last_of
from headwater.protocol.pattern import Conjunction, Disjunction, Leaf, Negation, Part, Repetition, Sequence, Window

if TYPE_CHECKING:
    from pyspark.sql import Column

Operator = Sequence | Conjunction


class Elements(Sequence):
    """The first and the last element of a repetition, as far as order and windows are concerned."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Held:
    """A condition, and the roles that must be bound to judge it."""

    roles: frozenset[str]
    condition: Column


def resolved(part: Part) -> list[Part]:
    """The tree for each way of choosing the branches of its disjunctions; SEQ directly inside SEQ is dissolved.

    A repetition has one element, or a first and a last one: two ways.
    """
    match part:
        case Repetition((leaf,)):
            first, last = Leaf(first_of(leaf.role), leaf.type), Leaf(last_of(leaf.role), leaf.type)
            return [first, Elements((first, last))]
        case Disjunction(parts):
            return [resolved_branch for branch in parts for resolved_branch in resolved(branch)]
        case Sequence(parts) | Conjunction(parts):
            chosen = product(*(resolved(inner) for inner in parts))
            return [_flat(replace(part, parts=tuple(combination))) for combination in chosen]
    return [part]


def _flat(operator: Operator) -> Operator:
    parts: list[Part] = []
    for inner in operator.parts:
        dissolves = isinstance(operator, Sequence) and isinstance(inner, Sequence) and inner.window is None
        parts += inner.parts if dissolves and isinstance(inner, Sequence) else (inner,)
    return replace(operator, parts=tuple(parts))


def positive(operator: Operator) -> list[Part]:
    return [part for part in operator.parts if not isinstance(part, Negation)]


def ending(operator: Operator) -> list[Part]:
    """The parts whose ends a window bounds: every element of a repetition is one."""
    return [
        element for part in positive(operator) for element in (part.parts if isinstance(part, Elements) else (part,))
    ]


def slots(part: Part) -> list[Leaf]:
    """The leaves that a match binds, in the order of the text."""
    match part:
        case Leaf():
            return [part]
        case Sequence() | Conjunction():
            return [leaf for inner in positive(part) for leaf in slots(inner)]
    return []


def roles_in(part: Part) -> list[str]:
    return [leaf.role for leaf in slots(part)]


def operators(part: Part) -> Iterator[Operator]:
    if isinstance(part, Sequence | Conjunction):
        yield part
        for inner in positive(part):
            yield from operators(inner)


def order_pairs(root: Part) -> set[tuple[str, str]]:
    """Pairs of roles of which the first comes before the second."""
    pairs: set[tuple[str, str]] = set()
    for operator in operators(root):
        if isinstance(operator, Sequence):
            for left, right in combinations(positive(operator), 2):
                pairs |= {(a, b) for a in roles_in(left) for b in roles_in(right)}
    return pairs


def structural(root: Part, window: Window | None, roles: Roles) -> Iterator[Held]:
    """Order, windows and difference of events: everything but the conjuncts. ``window`` is the root's."""
    for operator in operators(root):
        if isinstance(operator, Sequence):
            for left, right in pairwise(positive(operator)):
                for a, b in product(roles_in(left), roles_in(right)):
                    yield Held(frozenset((a, b)), roles.before(a, b))
        own = window if operator is root else operator.window
        if own is not None:
            yield from _within(operator, own, roles)
    ordered = order_pairs(root)
    for a, b in combinations(roles_in(root), 2):
        if roles.leaves[a].type == roles.leaves[b].type and (a, b) not in ordered and (b, a) not in ordered:
            yield Held(frozenset((a, b)), roles.differ(a, b))


def _within(operator: Operator, window: Window, roles: Roles) -> Iterator[Held]:
    from pyspark.sql import functions as F

    if window.bounds == "span":
        for a in roles_in(operator):
            if roles.composite(a):
                yield Held(frozenset((a,)), roles.ts(a) - roles.start_ts(a) <= window.length)
        for a, b in combinations(roles_in(operator), 2):
            if roles.composite(a) or roles.composite(b):
                spans = [roles.ts(x) - roles.start_ts(y) <= window.length for x, y in ((a, b), (b, a))]
                yield Held(frozenset((a, b)), spans[0] & spans[1])
            else:
                yield Held(frozenset((a, b)), F.abs(roles.ts(a) - roles.ts(b)) <= window.length)
        return
    for left, right in combinations(ending(operator), 2):
        ends = [latest(roles_in(part), roles) for part in (left, right)]
        yield Held(frozenset(roles_in(left) + roles_in(right)), F.abs(ends[0] - ends[1]) <= window.length)


def latest(named: list[str], roles: Roles) -> Column:
    from pyspark.sql import functions as F

    return roles.ts(named[0]) if len(named) == 1 else F.greatest(*(roles.ts(role) for role in named))


def earliest(named: list[str], roles: Roles) -> Column:
    from pyspark.sql import functions as F

    return roles.start_ts(named[0]) if len(named) == 1 else F.least(*(roles.start_ts(role) for role in named))


def last_key(named: list[str], roles: Roles) -> Column:
    from pyspark.sql import functions as F

    return roles.key(named[0]) if len(named) == 1 else F.greatest(*(roles.key(role) for role in named))


def first_key(named: list[str], roles: Roles) -> Column:
    from pyspark.sql import functions as F

    return roles.start_key(named[0]) if len(named) == 1 else F.least(*(roles.start_key(role) for role in named))


def reach(part: Part, window: Window | None) -> int | None:
    """How far the earliest end of an event of a part may lie before the latest; None where nothing bounds it."""
    if isinstance(part, Leaf):
        return 0
    if not isinstance(part, Sequence | Conjunction):
        return None
    parts = ending(part)
    if len(parts) == 1:
        inner = reach(parts[0], getattr(parts[0], "window", None))
        return window.length if inner is None and window is not None and window.bounds == "span" else inner
    if window is None:
        return None
    if window.bounds == "span":
        return window.length
    inners = [reach(inner, getattr(inner, "window", None)) for inner in parts]
    inner_reaches = [inner_reach for inner_reach in inners if inner_reach is not None]
    return window.length + max(inner_reaches) if len(inner_reaches) == len(inners) else None


def distances(root: Part, window: Window | None) -> dict[frozenset[str], int]:
    """How far the ends of the events of two roles may lie apart, for every pair of which it is bounded."""
    by_pair: dict[frozenset[str], int] = {}

    def note(a: str, b: str, length: int) -> None:
        pair = frozenset((a, b))
        by_pair[pair] = min(by_pair.get(pair, length), length)

    for operator in operators(root):
        own = window if operator is root else operator.window
        if own is None:
            continue
        if own.bounds == "span":
            for a, b in combinations(roles_in(operator), 2):
                note(a, b, own.length)
            continue
        for left, right in combinations(ending(operator), 2):
            # Whichever ends first reaches back from its end, and the other one's end lies within the window.
            reaches = [reach(part, getattr(part, "window", None)) for part in (left, right)]
            inner_reaches = [inner_reach for inner_reach in reaches if inner_reach is not None]
            if len(inner_reaches) == len(reaches):
                for a, b in product(roles_in(left), roles_in(right)):
                    note(a, b, own.length + max(inner_reaches))
    return by_pair


def bounded(pair: frozenset[str], apart: dict[frozenset[str], int], rule: str) -> int:
    if pair not in apart:
        one, other = sorted(pair)
        raise Unverifiable(
            f"rule {rule}: nothing bounds how far {one} and {other} may lie apart, so they would have to be compared "
            "over the whole trace; give the operator that holds them a window of its own"
        )
    return apart[pair]
