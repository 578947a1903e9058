"""The events of a simulated network before any node handles them: when and where each enters.

The same file and the same seed give the same births to the byte, and what one source gives does not depend on the
others.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import inf
from random import Random
from typing import assert_never

from headwater.deploy.network.file import NetworkFile
from headwater.node.edge.generated_events import Stamped, made_up
from headwater.node.traces.source_rows import events_of_source, look
from headwater.protocol.edge import ClientFeed, Feed, MqttFeed, RateFeed, ReplayFeed, TraceFeed
from headwater.protocol.errors import ConfigError, EventError
from headwater.protocol.events import HEADER_WIDTH, Event, EventType
from headwater.protocol.network import Source

Birth = tuple[int, int, Event]


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
        _check_feed(source, feed, length_us)
    traces = _Traces()
    types = {event_type.name: event_type for event_type in network.types}
    rows = [
        traces.rows(feed, source.node, types[source.type]) if isinstance(feed, TraceFeed) else None
        for source, feed in zip(network.sources, feeds, strict=True)
    ]
    firsts = [next(trace_rows) for trace_rows in rows if trace_rows is not None]
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
            stamped = made_up(feed, f"{seed}/{position}", position, start_us, end_us)
        delay = _delays(Random(f"{seed}/{position}/arrival"), source.lateness_us)
        by_node.setdefault(source.node, []).append(_Stream(position, types[source.type], stamped, delay, numbered))
    born = [_of_node(node, streams) for node, streams in by_node.items()]
    return born[0] if len(born) == 1 else heapq.merge(*born)


def _check_feed(source: Source, feed: Feed, length_us: int | None) -> None:
    """A ConfigError if a simulation cannot have such a source, or would never end with it."""
    where = f"the source of {source.type} at {source.node}"
    match feed:
        case MqttFeed():
            raise ConfigError(
                f"{where} listens to MQTT ({feed.topic}), which a simulation "
                "cannot do; give it a trace: or a rate: instead"
            )
        case ClientFeed():
            raise ConfigError(
                f"{where} is fed by programs (client:), which a simulation "
                "cannot do; give it a trace: or a rate: instead"
            )
        case ReplayFeed():
            raise ConfigError(
                f"{where} is fed by headwater replay, which a simulation "
                "cannot do; give it the trace, too (trace: FOLDER)"
            )
        case RateFeed():
            if length_us is None:
                raise ConfigError(f"{where} never ends; say how long to run, as in duration: 10 min")
        case TraceFeed():
            pass  # it ends by itself
        case _:
            assert_never(feed)


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
        self.look = cache(look)

    def gives_seq(self, feed: object) -> bool:
        return isinstance(feed, TraceFeed) and self.look(feed.path, feed.layout)[1]

    def rows(self, feed: TraceFeed, node: str, event_type: EventType) -> Iterator[Event]:
        """The events of a source, in order of time; an EventError if there are none."""
        path, layout = feed.path, feed.layout
        mine = events_of_source(path, node, event_type, in_order=self.look(path, layout)[0], layout=layout)
        first = next(mine, None)
        if first is None:
            raise EventError(
                f"{path} has no row of type {event_type.name} for the node {node}: where a trace has a column 'node', "
                "a source takes the rows that name its own node or none; change the rows, or leave the column out"
            )
        return chain([first], mine)


def _from_trace(events: Iterator[Event], position: int, end_us: float, gives_seq: bool) -> Iterator[Stamped]:
    for event in events:
        if event[0] >= end_us:
            return
        yield event[0], position, event[2] if gives_seq else None, event[HEADER_WIDTH:]
