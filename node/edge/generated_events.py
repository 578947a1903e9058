"""Generates events for sources without devices: their times and values. Equal seeds give equal events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate, count, cycle, islice, repeat
from math import log
from random import Random
from typing import Any, Final, assert_never

from headwater.protocol.edge import Choice, Count, Cycle, Generator, Normal, RateFeed, Uniform
from headwater.protocol.events import Value

CHUNK_EVENTS: Final = 512
"""Events generated at once: enough to spread the cost of a chunk, few enough to be made in a millisecond."""

Stamped = tuple[int, int, int | None, tuple[Value, ...]]
"""Time, position of the source, seq where a trace gives it, values."""


def made_up(feed: RateFeed, seed: str, position: int, start_us: int, end_us: float) -> Iterator[Stamped]:
    """Events from the start on, in order of time; equal seeds give equal events. An endless one has no end."""
    times = (_regular if feed.times == "regular" else _poisson)(feed.per_s, Random(f"{seed}/times"), start_us)
    # Each attribute has its own random numbers, so that a change of one leaves the others and the times alone.
    columns = [_column(generator, Random(f"{seed}/values/{index}")) for index, generator in enumerate(feed.values)]
    while True:
        chunk = times()
        values: Iterator[Any] = zip(*(column(len(chunk)) for column in columns), strict=True) if columns else repeat(())
        if chunk[-1] < end_us:
            yield from zip(chunk, repeat(position), repeat(None), values, strict=False)
            continue
        for ts, row in zip(chunk, values, strict=False):
            if ts >= end_us:
                return
            yield ts, position, None, row


def _poisson(per_s: float, random: Random, start_us: int) -> Callable[[], list[int]]:
    """A function that gives the next times of events that happen independently of each other."""
    draw, mean_us = random.random, 1_000_000 / per_s
    last = 0.0

    def chunk() -> list[int]:
        nonlocal last
        # The times since the start are added up as floats: microseconds stay exact for centuries.
        gaps = [-log(1.0 - draw()) * mean_us for _ in range(CHUNK_EVENTS)]
        gaps[0] += last
        since = list(accumulate(gaps))
        last = since[-1]
        return [start_us + int(elapsed_us) for elapsed_us in since]

    return chunk


def _regular(per_s: float, random: Random, start_us: int) -> Callable[[], list[int]]:
    numbers = count(1)
    return lambda: [start_us + round(number * 1_000_000 / per_s) for number in islice(numbers, CHUNK_EVENTS)]


def _column(generator: Generator, random: Random) -> Callable[[int], list[Value]]:
    """A function that gives the next n values of an attribute."""
    draw = random.random
    match generator:
        case Uniform(low, high, whole):
            if whole:
                least, span = int(low), int(high - low) + 1
                return lambda n: [least + int(draw() * span) for _ in range(n)]
            width = high - low
            return lambda n: [low + width * draw() for _ in range(n)]
        case Normal(mean, deviation, whole):
            gauss = random.gauss
            if whole:
                return lambda n: [round(gauss(mean, deviation)) for _ in range(n)]
            return lambda n: [gauss(mean, deviation) for _ in range(n)]
        case Choice(items, None):
            size = len(items)
            return lambda n: [items[int(draw() * size)] for _ in range(n)]
        case Choice(items, weights):
            return lambda n: random.choices(items, weights, k=n)
        case Cycle(items):
            turns = cycle(items)
            return lambda n: list(islice(turns, n))
        case Count(start):
            numbers = count(start)
            return lambda n: list(islice(numbers, n))
        case _:
            assert_never(generator)
