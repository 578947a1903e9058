"""The cost model of running networks: how often things really happen inside a window.

Events of a type occur independently of each other at their rate. Of k types there are k w^(k-1) times the product of
their rates combinations per second that lie within a window of w seconds; an order that only some of the k!
arrangements satisfy keeps that part of them. So the rate of a SEQ is w^(k-1)/(k-1)! times the product. Predicates keep
their selectivity. A negated type lets a combination through if none of its events lies in the gap that it must stay
out of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator.inev.model import EventNetwork, ProblemError, Projection
from coordinator.inev.patterns import Pattern, leaves, negated, order

ARRANGED_MAX: Final = 8
"""Arrangements of more types than this are not listed one by one for negations: the gap is taken to be a single one."""


@dataclass(frozen=True)
class PhysicalCosts:
    """Rates per second. ``blocking``: the share of a negated type's events that forbid a match, 1 where absent.

    ``single``: the share of a type's events that are in matches of a projection, by type and key of the projection,
    where somebody measured it. Elsewhere it is estimated from the rates, which is exact for two types.
    """

    network: EventNetwork
    blocking: Mapping[str, float] = field(default_factory=dict)
    single: Mapping[tuple[str, str], float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    """Rates that projections, by key, do not exceed: a rule that takes only the last of its parts finds no more."""
    name: str = "physical"
    _rates: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def rate(self, projection: Projection) -> float:
        known = self._rates.get(projection.key)
        if known is None:
            most = self.at_most.get(projection.key, math.inf)
            known = self._rates[projection.key] = min(most, self._rate(projection))
        return known

    def _rate(self, projection: Projection) -> float:
        if projection.primitive:
            return self.network.total(projection.key)
        if projection.window_s is None:
            raise ProblemError(
                f"{projection.text} has no window; a running network needs one to know how often it matches"
            )
        types = tuple(type for type in leaves(projection.pattern) if type not in negated(projection.pattern))
        count, window = len(types), projection.window_s
        combinations = count * window ** (count - 1) * math.prod(map(self.network.total, types))
        kept = arrangements(types, order(projection.pattern)) / math.factorial(count)
        return combinations * kept * projection.selectivity * self._let_through(projection.pattern, types, window)

    def _let_through(self, pattern: Pattern, types: tuple[str, ...], window: float) -> float:
        """The share of combinations without a negated event where there must be none."""
        share = 1.0
        for left, middle, right in _negations(pattern):
            rate = math.prod(self.network.total(type) * self.blocking.get(type, 1.0) for type in middle)
            if len(middle) > 1:
                rate *= len(middle) * window ** (len(middle) - 1) / math.factorial(len(middle))
            share *= self._gap_share(types, order(pattern), left, right, rate * window)
        return share

    def _gap_share(
        self, types: tuple[str, ...], before: frozenset[tuple[str, str]], left: frozenset[str], right: frozenset[str],
        expected: float,
    ) -> float:  # fmt: skip
        if len(types) > ARRANGED_MAX:
            return empty_gap(1, len(types), expected)
        total, count = 0.0, 0
        gaps: dict[int, float] = {}
        for arranged in listed_arrangements(types, before):
            wide = min(arranged.index(type) for type in right) - max(arranged.index(type) for type in left)
            if wide not in gaps:
                gaps[wide] = empty_gap(wide, len(types), expected)
            total += gaps[wide]
            count += 1
        return total / count if count else 0.0

    def selected(self, type: str, projection: Projection) -> float | None:
        """An event is in some match unless the number of its matches, taken to be random with its mean, is zero."""
        known = self.single.get((type, projection.key))
        if known is not None:
            return known
        return -math.expm1(-self.rate(projection) / self.network.total(type))


def arrangements(types: tuple[str, ...], before: frozenset[tuple[str, str]]) -> int:
    """In how many ways events of these types can follow each other such that each precedes what it must."""
    number = {type: at for at, type in enumerate(types)}
    earlier = [0] * len(types)
    for one, other in before:
        earlier[number[other]] |= 1 << number[one]
    ways = [0] * (1 << len(types))
    ways[0] = 1
    for done, count in enumerate(ways):
        if count:
            for at in range(len(types)):
                if not done >> at & 1 and earlier[at] & ~done == 0:
                    ways[done | 1 << at] += count
    return ways[-1]


def listed_arrangements(types: tuple[str, ...], before: frozenset[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """The arrangements that ``arrangements`` counts."""

    def grown(done: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if len(done) == len(types):
            yield done
        for type in types:
            if type not in done and all(one in done for one, other in before if other == type):
                yield from grown((*done, type))

    return grown(())


def empty_gap(gaps: int, parts: int, expected: float) -> float:
    """The chance that nothing falls into ``gaps`` of the spaces between ``parts`` events within a window.

    ``expected`` is how many would fall into the whole window. The spaces are uniform over all that fit, so the sum of
    some of them is Beta(gaps, parts - gaps) of the window, and the chance is Kummer's function 1F1(gaps; parts; -x).
    """
    if expected <= 0:
        return 1.0
    if expected > 500:  # the leading term of its asymptotic series: by then the rest is below a percent of it
        return math.gamma(parts) / math.gamma(parts - gaps) * expected**-gaps if parts > gaps else 0.0
    term = total = 1.0
    for step in range(10_000):
        term *= (parts - gaps + step) / (parts + step) * expected / (step + 1)
        total += term
        if term < total * 1e-16:
            break
    return total * math.exp(-expected)


def _negations(pattern: Pattern) -> Iterator[tuple[frozenset[str], frozenset[str], frozenset[str]]]:
    """For every NSEQ the positive types before the gap, the types that must not be in it, those after it."""
    if isinstance(pattern, str):
        return
    for part in pattern.parts:
        yield from _negations(part)
    if pattern.kind == "NSEQ":
        left, middle, right = pattern.parts
        yield (
            frozenset(leaves(left)) - negated(left),
            frozenset(leaves(middle)),
            frozenset(leaves(right)) - negated(right),
        )
