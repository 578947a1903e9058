"""The events of a network before anybody handles them: when and where each is born.

The same file and the same seed give the same births to the byte, and what one source gives does not depend on the
others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, count, cycle, islice, repeat
from math import inf, log
from pathlib import Path
from random import Random
from typing import Any, Final, assert_never

from deploy.network.feeds import Choice, Count, Cycle, Generator, MqttFeed, Normal, RateFeed, TraceFeed, Uniform
from deploy.network_file import NetworkFile
from deploy.traces import DEFAULT_NODE, TraceReader, TraceSource, survey
from protocol.errors import ConfigError, EventError
from protocol.events import HEADER_WIDTH, Event, EventType, Value

CHUNK_EVENTS: Final = 512
"""Events made up at once: enough to spread the cost of a chunk, few enough to be made in a millisecond."""

Birth = tuple[int, int, Event]
Stamped = tuple[int, int, int | None, tuple[Value, ...]]
"""Time, position of the source, seq where a trace gives it, values."""


def births(network_file: NetworkFile, *, seed: int, until_us: int | None = None) -> Iterator[Birth]:
    """``(at_us, source, event)`` sorted by (at_us, source, seq): at that time the event reaches that source's node.

    Time begins with the first row of the earliest trace, or with 0 where there is no trace; sources with a rate begin
    then. Only events with a ``ts`` less than ``until_us`` (else the file's duration) after the beginning are born. An
    event arrives at its ``ts``, or up to the lateness of its source later. Mistakes in the input are raised at once,
    bad rows of a trace when their turn comes.
    """
    network, feeds = network_file.network, network_file.feeds
    length_us = network_file.duration_us if until_us is None else until_us
    for source, feed in zip(network.sources, feeds, strict=True):
        if isinstance(feed, MqttFeed):
            raise ConfigError(
                f"the source of {source.type} at {source.node} listens to MQTT ({feed.topic}), which a simulation "
                "cannot do; give it a trace: or a rate: instead"
            )
        if isinstance(feed, RateFeed) and length_us is None:
            raise ConfigError(
                f"the source of {source.type} at {source.node} never ends; say how long to run, as in duration: 10 min"
            )
    traces = _Traces()
    types = {each.name: each for each in network.types}
    rows = [
        traces.rows(feed.path, source.node, types[source.type]) if isinstance(feed, TraceFeed) else None
        for source, feed in zip(network.sources, feeds, strict=True)
    ]
    firsts = [next(each) for each in rows if each is not None]
    start_us = min((event[0] for event in firsts), default=0)
    end_us = inf if length_us is None else start_us + length_us
    waiting = iter(firsts)
    by_node: dict[str, list[_Stream]] = {}
    for position, (source, feed) in enumerate(zip(network.sources, feeds, strict=True)):
        trace, numbered = rows[position], traces.gives_seq(feed)
        if trace is not None:
            stamped = _from_trace(chain([next(waiting)], trace), position, end_us, numbered)
        else:
            assert isinstance(feed, RateFeed)
            stamped = _made_up(feed, f"{seed}/{position}", position, start_us, end_us)
        delay = _delays(Random(f"{seed}/{position}/arrival"), source.lateness_us)
        by_node.setdefault(source.node, []).append(_Stream(position, types[source.type], stamped, delay, numbered))
    born = [_of_node(node, streams) for node, streams in by_node.items()]
    return born[0] if len(born) == 1 else heapq.merge(*born)


@dataclass(frozen=True, slots=True)
class _Stream:
    """One source while it runs."""

    position: int
    event_type: EventType
    stamped: Iterator[Stamped]
    delay: Callable[[], int] | None
    numbered: bool
    """Its events come with a seq, which need not grow with time."""


# --- from time order to order of arrival ------------------------------------------------------------------------------


def _of_node(node: str, streams: list[_Stream]) -> Iterator[Birth]:
    """The births of one node: its sources together in the order of time, numbered, then put into order of arrival."""
    merged = streams[0].stamped if len(streams) == 1 else heapq.merge(*(stream.stamped for stream in streams))
    types = {stream.position: stream.event_type for stream in streams}
    if all(stream.delay is None and not stream.numbered for stream in streams):
        return _numbered(node, types, merged)
    return _arriving(_numbered(node, types, merged), {stream.position: stream.delay for stream in streams})


def _numbered(node: str, types: dict[int, EventType], stamped: Iterator[Stamped]) -> Iterator[Birth]:
    new = tuple.__new__
    number = 0
    for ts, position, seq, values in stamped:
        if seq is None:
            number += 1
            seq = number
        yield ts, position, new(Event, (ts, node, seq, types[position], *values))


def _arriving(in_order: Iterator[Birth], delays: dict[int, Callable[[], int] | None]) -> Iterator[Birth]:
    """Each event at the time of its arrival; what has arrived before the next event happens can be told."""
    waiting: list[tuple[int, int, int, Event]] = []
    for ts, position, event in in_order:
        while waiting and waiting[0][0] < ts:
            at, source, _, earlier = heapq.heappop(waiting)
            yield at, source, earlier
        delay = delays[position]
        heapq.heappush(waiting, (ts + delay() if delay is not None else ts, position, event[2], event))
    while waiting:
        at, source, _, earlier = heapq.heappop(waiting)
        yield at, source, earlier


def _delays(random: Random, lateness_us: int) -> Callable[[], int] | None:
    if not lateness_us:
        return None
    draw, choices = random.random, lateness_us + 1
    return lambda: int(draw() * choices)


# --- traces -----------------------------------------------------------------------------------------------------------


class _Traces:
    """Trace files; one that serves several sources is looked at once."""

    def __init__(self) -> None:
        self.look = cache(self._look)

    @staticmethod
    def _look(path: Path) -> tuple[bool, bool]:
        """Whether the rows are in order of time, and whether they come with a seq."""
        rows = TraceSource.at(str(path)).open()
        try:
            return survey(rows).in_order, rows.gives_seq
        finally:
            rows.close()

    def gives_seq(self, feed: object) -> bool:
        return isinstance(feed, TraceFeed) and self.look(feed.path)[1]

    def rows(self, path: Path, node: str, event_type: EventType) -> Iterator[Event]:
        """The events of a source, in order of time; an EventError if there are none."""
        mine = self._mine(path, node, event_type, in_order=self.look(path)[0])
        first = next(mine, None)
        if first is None:
            raise EventError(
                f"{path} has no row of type {event_type.name} for the node {node}: where a trace has a column 'node', "
                "a source takes the rows that name its own node or none; change the rows, or leave the column out"
            )
        return chain([first], mine)

    @staticmethod
    def _mine(path: Path, node: str, event_type: EventType, *, in_order: bool) -> Iterator[Event]:
        rows = TraceSource.at(str(path)).open()
        try:
            reader = TraceReader(rows, {event_type.name: event_type})
            if in_order:
                for batch, _ in reader.batches():
                    yield from (event for event in batch if event[1] in (node, DEFAULT_NODE))
            else:
                yield from [event for event in reader.whole() if event[1] in (node, DEFAULT_NODE)]
        finally:
            rows.close()


def _from_trace(events: Iterator[Event], position: int, end_us: float, gives_seq: bool) -> Iterator[Stamped]:
    for event in events:
        if event[0] >= end_us:
            return
        yield event[0], position, event[2] if gives_seq else None, event[HEADER_WIDTH:]


# --- rates ------------------------------------------------------------------------------------------------------------


def _made_up(feed: RateFeed, seed: str, position: int, start_us: int, end_us: float) -> Iterator[Stamped]:
    times = (_regular if feed.times == "regular" else _poisson)(feed.per_s, Random(f"{seed}/times"), start_us)
    # Each attribute has its own random numbers, so that a change of one leaves the others and the times alone.
    columns = [_column(each, Random(f"{seed}/values/{index}")) for index, each in enumerate(feed.values)]
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
        return [start_us + int(each) for each in since]

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
