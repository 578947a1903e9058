"""Estimates by sampling how many events are in matches, where no formula tells.

Events of each type occur independently of each other. An event with few matches is looked at where it has one, which is
drawn as all matches are spread, and weighed by how many it turns out to have: so rare matches take no more draws than
frequent ones. Equal questions draw equal neighbourhoods.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Final

FEW_MATCHES: Final = 5.0
"""Up to so many matches of an event, on average, all of them are counted; beyond, one of each kind is looked for."""

BATCH: Final = 100
"""After so many draws, each time, it is seen whether they are enough."""

SETTLED: Final = 0.01
"""Sampling ends at this relative error."""

Place = tuple[float, int]
"""The time of an event, and its number among the events of its type."""


@dataclass(frozen=True)
class MatchShape:
    """What a match is: one event of each type, in order, within a span or with bounded gaps, that pass conditions."""

    rates: Mapping[str, float]
    """By type, per second."""
    before: frozenset[tuple[str, str]]
    pairs: Mapping[frozenset[str], float]
    """The share of combinations of events of some types that pass what is asked of them together."""
    span_s: float | None = None
    gaps_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By how much one type may precede another, at most: a tree. Either a span or gaps are given."""
    alike: Mapping[frozenset[str], tuple[str, int]] = field(default_factory=dict)
    """Two types whose events must have the same value: what the value is called, and how many there are, all equally
    likely. So an event that agrees with two others makes these agree, too."""

    @property
    def reach_s(self) -> float:
        return self.span_s if self.span_s is not None else sum(self.gaps_s.values())


@dataclass(frozen=True, slots=True)
class Draw:
    """One event: how much it counts, and with how many events of another type it is in matches."""

    weight: float
    partners: int


def share_of(draws: list[Draw], part: float = 1.0) -> float:
    """The share of events in some match, if of the other type only a part of the events is there."""
    return sum(draw.weight * (1 - (1 - part) ** draw.partners) for draw in draws)


def drawn(shape: MatchShape, type: str, other: str, mean: float, samples: int) -> list[Draw]:
    """Events of a type, with the number of events of another type in the same matches; ``mean``: matches per event.

    At most ``samples`` are drawn, fewer where they say the same.
    """
    chance = random.Random(f"{type} {other} {mean!r} {sorted(shape.rates.items())}")
    orders = _Orders(shape)
    draws: list[Draw] = []
    while len(draws) < samples and (len(draws) % BATCH or not _is_settled(draws)):
        around = _Neighbourhood(shape, type, chance, orders)
        if mean <= FEW_MATCHES:
            around.plant()
            partners: set[Place] = set()
            matches = 0
            for match in around.matches():
                matches += 1
                partners.add(match[other])
            draws.append(Draw(mean / max(1, matches), len(partners)))  # rounding may hide the one that was planted
        else:
            count = sum(around.has_match_with(other, place) for place in around.events[other])
            draws.append(Draw(1.0, count))
    return [Draw(draw.weight / len(draws), draw.partners) for draw in draws]


def _is_settled(draws: list[Draw]) -> bool:
    """Whether the share, with all or with few events of the other type, is known well enough."""
    if not draws:
        return False
    for values in (
        [draw.weight * (draw.partners > 0) for draw in draws],
        [draw.weight * draw.partners for draw in draws],
    ):
        middle = fmean(values)
        if pstdev(values, middle) > SETTLED * middle * math.sqrt(len(values)):
            return False
    return True


class _Orders:
    """The orders in which the types of a shape may follow each other, all equally likely."""

    def __init__(self, shape: MatchShape) -> None:
        self.types = tuple(shape.rates)
        number = {type: at for at, type in enumerate(self.types)}
        self._later = [0] * len(self.types)
        for one, other in shape.before:
            self._later[number[one]] |= 1 << number[other]
        self._ways = [1] + [0] * ((1 << len(self.types)) - 1)
        """By the set of types that come first: in how many orders they may."""
        for first in range(1, len(self._ways)):
            self._ways[first] = sum(self._ways[first ^ 1 << last] for last in self._last(first))

    def _last(self, first: int) -> Iterator[int]:
        """Which of some types may come last."""
        return (at for at in range(len(self.types)) if first >> at & 1 and not self._later[at] & first)

    def drawn(self, chance: random.Random) -> list[str]:
        left, order = len(self._ways) - 1, []
        while left:
            chosen = chance.randrange(self._ways[left])
            for last in self._last(left):
                chosen -= self._ways[left ^ 1 << last]
                if chosen < 0:
                    order.append(self.types[last])
                    left ^= 1 << last
                    break
        return order[::-1]


class _Neighbourhood:
    """An event of a type at time 0, and what happens around it."""

    def __init__(self, shape: MatchShape, type: str, chance: random.Random, orders: _Orders) -> None:
        self.shape = shape
        self.orders = orders
        self.type = type
        self.chance = chance
        self.reach = shape.reach_s
        self.events: dict[str, list[Place]] = {type: [(0.0, 0)]}
        for event_type, rate in shape.rates.items():
            if event_type != type:
                self.events[event_type] = self._happening(rate)
        self.rarest_first = sorted(
            (event_type for event_type in shape.rates if event_type != type),
            key=lambda event_type: len(self.events[event_type]),
        )
        self.passed: dict[tuple[frozenset[str], tuple[int, ...]], bool] = {}
        self.values: dict[tuple[str, str, int], int] = {}
        """By name, type and number of the event."""

    def _happening(self, rate: float) -> list[Place]:
        at = -self.reach
        times: list[Place] = []
        while (at := at + self.chance.expovariate(rate)) < self.reach:
            times.append((at, len(times)))
        return times

    def plant(self) -> None:
        """Add a match, drawn as matches are spread."""
        times = self._spread()
        planted = {}
        for event_type, at in times.items():
            moved = at - times[self.type]
            place = (0.0, 0) if event_type == self.type else (moved, len(self.events[event_type]))
            if event_type != self.type:
                self.events[event_type].insert(bisect_left(self.events[event_type], place), place)
            planted[event_type] = place
        for types in self.shape.pairs:
            if types <= planted.keys():
                self.passed[types, self._numbers(types, planted)] = True
        agreeing: dict[tuple[str, str], int] = {}
        for _ in self.shape.alike:  # as often as an agreement may have to be handed on
            for types, (name, many) in self.shape.alike.items():
                if types <= planted.keys():
                    agreed = [agreeing[name, event_type] for event_type in types if (name, event_type) in agreeing]
                    value = min(agreed) if agreed else self.chance.randrange(many)
                    agreeing.update({(name, event_type): value for event_type in types})
        self.values.update(
            {(name, event_type, planted[event_type][1]): value for (name, event_type), value in agreeing.items()}
        )

    def _spread(self) -> dict[str, float]:
        shape, chance = self.shape, self.chance
        if shape.span_s is None:
            gaps = dict(shape.gaps_s)
            root = next(later for _, later in gaps if all(later != earlier for earlier, _ in gaps))
            times = {root: 0.0}
            while gaps:
                for (earlier, later), most in list(gaps.items()):
                    if later in times:
                        times[earlier] = times[later] - chance.uniform(0, most)
                        del gaps[earlier, later]
            return times
        arranged = self.orders.drawn(chance)
        inside = sorted(chance.uniform(0, shape.span_s) for _ in arranged[1:])
        return dict(zip(arranged, [0.0, *inside], strict=True))

    # Searching ------------------------------------------------------------------------------------------------------

    def matches(self) -> Iterator[dict[str, Place]]:
        return self._extended({self.type: (0.0, 0)}, self.rarest_first)

    def has_match_with(self, other: str, place: Place) -> bool:
        begun = {self.type: (0.0, 0)}
        if not self._fits(other, place, begun):
            return False
        begun[other] = place
        left = [event_type for event_type in self.rarest_first if event_type != other]
        return next(self._extended(begun, left), None) is not None

    def _extended(self, begun: dict[str, Place], left: list[str]) -> Iterator[dict[str, Place]]:
        if not left:
            yield begun
            return
        type, *rest = left
        low, high = self._window(type, begun)
        candidates = self.events[type]
        for at in range(bisect_left(candidates, (low, -1)), bisect_right(candidates, (high, 1 << 60))):
            if self._passes(type, candidates[at], begun):
                yield from self._extended({**begun, type: candidates[at]}, rest)

    def _fits(self, type: str, place: Place, begun: dict[str, Place]) -> bool:
        low, high = self._window(type, begun)
        return low <= place[0] <= high and self._passes(type, place, begun)

    def _window(self, type: str, begun: dict[str, Place]) -> tuple[float, float]:
        """Between which times an event can join those that are there."""
        shape = self.shape
        times = [at for at, _ in begun.values()]
        span = self.reach if shape.span_s is None else shape.span_s
        low, high = max(times) - span, min(times) + span
        for begun_type, (at, _) in begun.items():
            if (begun_type, type) in shape.before:
                low = max(low, at)
            if (type, begun_type) in shape.before:
                high = min(high, at)
            if (begun_type, type) in shape.gaps_s:
                low, high = max(low, at), min(high, at + shape.gaps_s[begun_type, type])
            if (type, begun_type) in shape.gaps_s:
                low, high = max(low, at - shape.gaps_s[type, begun_type]), min(high, at)
        return low, high

    def _passes(self, type: str, place: Place, begun: dict[str, Place]) -> bool:
        together = {**begun, type: place}
        for types, share in self.shape.pairs.items():
            if type in types and types <= together.keys():
                key = (types, self._numbers(types, together))
                passes = self.passed.get(key)
                if passes is None:
                    passes = self.passed[key] = self.chance.random() < share
                if not passes:
                    return False
        for types, (name, many) in self.shape.alike.items():
            if type in types and types <= together.keys():
                one, other = (
                    self._value(name, many, event_type, together[event_type][1]) for event_type in sorted(types)
                )
                if one != other:
                    return False
        return True

    def _value(self, name: str, many: int, type: str, number: int) -> int:
        value = self.values.get((name, type, number))
        if value is None:
            value = self.values[name, type, number] = self.chance.randrange(many)
        return value

    def _numbers(self, types: frozenset[str], places: Mapping[str, Place]) -> tuple[int, ...]:
        return tuple(places[type][1] for type in sorted(types))
