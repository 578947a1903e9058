"""The cost model of running networks: how often matches really occur within a window.

Events of a type occur independently of each other at their rate. Of k types there are k w^(k-1) times the product of
their rates combinations per second that lie within a window of w seconds; an order that only some of the k!
arrangements satisfy keeps that part of them. So the rate of a SEQ is w^(k-1)/(k-1)! times the product. Predicates keep
their selectivity. A negated type lets a combination through if none of its events lies in the gap that it must stay
out of. A repeated type multiplies the matches by the number of non-empty sets of its events in its range.

What travels of a projection are the events in its matches, each once. An event is in none if the number of its matches
is zero, which for two types has the chance exp(-mean). Matches of more types come in clusters, so that events are in
none more often than that: while plans are searched the chance is taken from the projection, or the part of it, that
leaves out most; for a plan that is found it is drawn (``sampling``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final

from headwater.coordinator.inev.model.patterns import Pattern, leaves, negated, order, repeated
from headwater.coordinator.inev.model.problem import Ask, EventNetwork, ProblemError, Projection, Query
from headwater.coordinator.inev.model.sampling import Draw, MatchShape, drawn, share_of

ARRANGED_MAX: Final = 8
"""Arrangements of more types than this are not listed one by one for negations: the gap is taken to be a single one."""

PARTS_MAX: Final = 9
"""Of a projection with more other types than this the parts are not looked at, to estimate how many events it has."""

SAMPLES: Final = 1500
"""Events drawn for each type of a projection: the share of them in matches is then known to about two percent."""

SAMPLES_LEAST: Final = 50
"""Fewer would say less than the estimate."""


@dataclass(frozen=True)
class PhysicalCosts:
    """Rates per second. ``blocking``: the share of a negated type's events that forbid a match, 1 where absent.

    ``single``: the share of a type's events that are in matches of a projection, by type and key of the projection,
    where it was measured. Elsewhere it is estimated from the rates, which is exact for two types.
    """

    network: EventNetwork
    blocking: Mapping[str, float] = field(default_factory=dict)
    single: Mapping[tuple[str, str], float] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    """Rates that projections, by key, do not exceed: a rule that takes only the last of its parts finds no more."""
    queries: tuple[Query, ...] = ()
    """Where projections come from: what is known of their parts sharpens the estimates."""
    samples: int = 0
    """How many events are drawn to find the share of them that is in matches; 0: it is estimated."""
    counted: Mapping[str, float] = field(default_factory=dict)
    """Rates of projections, by key, where they were counted."""
    name: str = "physical"
    _rates: dict[str, float] = field(default_factory=dict, repr=False, compare=False)
    _homes: dict[str, Query | None] = field(default_factory=dict, repr=False, compare=False)
    _least: dict[tuple[str, str, str | None], tuple[float, float]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _drawn: dict[tuple[str, str, str], list[Draw]] = field(default_factory=dict, repr=False, compare=False)
    _parts: dict[tuple[str, frozenset[str]], Projection | None] = field(default_factory=dict, repr=False, compare=False)

    def rate(self, projection: Projection) -> float:
        rate = self._rates.get(projection.key)
        if rate is None:
            most = self.at_most.get(projection.key, math.inf)
            seen = self.counted.get(projection.key)
            rate = self._rates[projection.key] = min(most, self._rate(projection) if seen is None else seen)
        return rate

    def _rate(self, projection: Projection) -> float:
        if projection.primitive:
            return self.network.total(projection.key)
        if projection.window_s is None:
            raise ProblemError(
                f"{projection.text} has no window; a running network needs one to know how often it matches"
            )
        types = tuple(type for type in leaves(projection.pattern) if type not in negated(projection.pattern))
        count, window = len(types), projection.window_s
        gaps = self._gaps(projection)
        if gaps is not None:
            return math.prod(map(self.network.total, types)) * math.prod(gaps.values()) * projection.selectivity
        combinations = count * window ** (count - 1) * math.prod(map(self.network.total, types))
        kept = arrangements(types, order(projection.pattern)) / math.factorial(count)
        return combinations * kept * projection.selectivity * self._let_through(projection.pattern, types, window)

    def _let_through(self, pattern: Pattern, types: tuple[str, ...], window: float) -> float:
        """The share of combinations without a negated event where there must be none."""
        share = 1.0
        for left, middle, right in _negations(pattern):
            rate = math.prod(self.network.total(type) * self.blocking.get(type, 1.0) for type in sorted(middle))
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

    # What travels ---------------------------------------------------------------------------------------------------

    @property
    def sends_events(self) -> bool:
        return True

    def refined(self, samples: int = SAMPLES) -> PhysicalCosts:
        return replace(self, samples=min(SAMPLES, max(SAMPLES_LEAST, samples)), _drawn={})

    def selected(self, type: str, projection: Projection) -> float:
        """The share of a type's events that are in matches of a projection."""
        return self.share(type, projection, None, 1.0)

    def carried(
        self,
        projection: Projection,
        types: frozenset[str] | None = None,
        split_by: str | None = None,
        part: float = 1.0,
    ) -> float:
        """The events of these types in matches. A node with a part of the split type sends of the other types what is
        in matches with that part, of the split type itself what is its own."""
        if projection.primitive:
            return self.network.total(projection.key) * part
        total = 0.0
        for type in sorted((projection.types if types is None else types) - negated(projection.pattern)):
            rate = self.network.total(type)
            if type == split_by:
                total += rate * part * self.share(type, projection, None, 1.0)
            else:
                total += rate * self.share(type, projection, split_by, part)
        return total

    def share(self, type: str, projection: Projection, split_by: str | None, part: float) -> float:
        """The share of a type's events in matches, if only a part of the events of another type is there."""
        share = self.single.get((type, projection.key))
        if share is not None:
            # With a part of the partners, as if these were spread evenly over the events.
            return share if split_by is None else 1.0 - (1.0 - share) ** part
        home = self._home(projection)
        if self.samples and home is not None and len(projection.types) > 2 and not negated(projection.pattern):
            other = split_by or next(name for name in sorted(projection.types) if name != type)
            return min(1.0, share_of(self._draws(type, other, projection, home), part))
        without, with_it = self._least_means(type, projection, split_by)
        return -math.expm1(-min(without, with_it * part))

    def _least_means(self, type: str, projection: Projection, split_by: str | None) -> tuple[float, float]:
        """The least number of matches per event, over all parts of a projection: without the split type, and with."""
        means = self._least.get((type, projection.key, split_by))
        if means is None:
            without = with_it = math.inf
            home = self._home(projection)
            for some in self._parts_of(projection, home, type):
                mean = self.rate(some) / self.network.total(type)
                if split_by in some.types:
                    with_it = min(with_it, mean)
                else:
                    without = min(without, mean)
            means = self._least[type, projection.key, split_by] = without, with_it
        return means

    def _parts_of(self, projection: Projection, home: Query | None, type: str) -> Iterator[Projection]:
        """The projection, and those of its parts that have the type: an event is in their matches more often."""
        yield projection
        if home is None:
            return
        other_types = sorted(projection.types - {type} - negated(projection.pattern))
        for size in range(1, len(other_types) if len(other_types) <= PARTS_MAX else 1):
            for some in combinations(other_types, size):
                part = self._part(home, frozenset((type, *some)))
                if part is not None:
                    yield part

    def _part(self, home: Query, types: frozenset[str]) -> Projection | None:
        key = (home.name, types)
        if key not in self._parts:
            possible = home.joinable is None or home.joinable(types)
            self._parts[key] = home.projection(types) if possible else None
        return self._parts[key]

    def _home(self, projection: Projection) -> Query | None:
        """A query that has the projection."""
        if projection.key not in self._homes:
            self._homes[projection.key] = next(
                (
                    query
                    for query in self.queries
                    if projection.types <= set(query.types)
                    and not query.whole
                    and query.projection(projection.types).key == projection.key
                ),
                None,
            )
        return self._homes[projection.key]

    def _gaps(self, projection: Projection) -> Mapping[tuple[str, str], float] | None:
        home = self._home(projection)
        return home.gaps_s(projection.types) if home is not None and home.gaps_s is not None else None

    def _draws(self, type: str, other: str, projection: Projection, home: Query) -> list[Draw]:
        draws = self._drawn.get((type, other, projection.key))
        if draws is None:
            gaps = self._gaps(projection)
            conditions = home.pairs if home.apart is None else home.apart
            shape = MatchShape(
                {name: self.network.total(name) for name in sorted(projection.types)},
                order(projection.pattern),
                {types: share for types, share in conditions.items() if types <= projection.types},
                projection.window_s if gaps is None else None,
                gaps or {},
                {
                    types: (name, max(1, round(1 / share)))
                    for types, (name, share) in home.alike.items()
                    if types <= projection.types
                },
            )
            mean = self.rate(projection) / self.network.total(type)
            draws = self._drawn[type, other, projection.key] = drawn(shape, type, other, mean, self.samples)
        return draws

    # What is asked for -----------------------------------------------------------------------------------------------

    @property
    def asks_by_event(self) -> bool:
        return True

    def asked(self, ask: Ask) -> float:
        """Every event of the master asks once, as it comes: all of them, or those in matches of what brings them."""
        assert ask.master is not None
        total = self.network.total(ask.master)
        return total if ask.by.primitive else total * self.selected(ask.master, ask.by)

    def answered(self, ask: Ask) -> float:
        """An event is sent once if at least one event of the master lies where it asks for it, and fits. How many do is
        a Poisson number; where they come in clusters it is more often none, so this is never too little."""
        assert ask.master is not None
        scope = ask.query.ask_scope(ask.master, ask.type)
        if scope is None or scope.span_s is None:
            return self.network.total(ask.type)
        return self.network.total(ask.type) * -math.expm1(-self.asked(ask) * scope.span_s * scope.share)

    def delivered(self, query: Query) -> float:
        """Composites per second: matches of the whole query, times the sets that a repeated type may be."""
        whole = query.projection(frozenset(query.types))
        most = self.at_most.get(whole.key, math.inf)
        return min(most, self.rate(whole) * self._repetitions(query))

    def _repetitions(self, query: Query) -> float:
        """How many non-empty sets of events of repeated types there are for each single event of them, on average."""
        times = 1.0
        for type in sorted(repeated(query.pattern)):
            other_types = tuple(name for name in query.types if name != type and name not in negated(query.pattern))
            expected = self.network.total(type) * (query.window_s or 0.0) * self._passing(query, type)
            before = order(query.core)
            earlier = {one for one, later in before if later == type}
            later = {one for earlier_, one in before if earlier_ == type}
            if not other_types or len(other_types) > ARRANGED_MAX:
                sets, single = math.expm1(min(expected, 700.0)), expected
            else:
                sets = single = 0.0
                for arranged in listed_arrangements(other_types, frozenset(b for b in before if type not in b)):
                    first = max((arranged.index(name) + 1 for name in earlier), default=0)
                    last = min((arranged.index(name) for name in later), default=len(other_types))
                    slots = last - first + 1
                    sets += kummer(slots, len(other_types), expected) - 1
                    single += slots * expected / len(other_types)
            times *= sets / single if single else 1.0
        return times

    def _passing(self, query: Query, type: str) -> float:
        """The share of a repeated type's events that pass what is asked of them with the others."""
        return math.prod(share for types, share in query.pairs.items() if type in types)


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


def kummer(a: int, b: int, x: float) -> float:
    """The confluent hypergeometric function 1F1(a; b; x) for x >= 0."""
    term = total = 1.0
    for step in range(100_000):
        term *= (a + step) / (b + step) * x / (step + 1)
        total += term
        if term < total * 1e-16 or total > 1e300:
            break
    return total


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
