"""Replays of prepared traces into a node: the replayed events join the trace under their own numbers.

There is one replayer at a time. It says everything in the order of the trace, so the last number that has come tells
what is known already: whatever comes again, after a crash of either side, is recognised and counted, not born twice.
What the two say to each other is in ``protocol.messages.replay``.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.node.daemon.journal_records import Ended, Replayed
from headwater.node.edge.interfaces import Arrival
from headwater.node.edge.values import TEXT_BYTES_MAX
from headwater.protocol.edge import ReplayFeed
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.events import EventType, conform
from headwater.protocol.messages.replay import EVENTS_MAX, UNDER_WAY_MAX

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

WAITING_MAX: Final = 2 * UNDER_WAY_MAX
"""Messages that may wait here: what a replayer has under way, and as much again of one that has just come back."""

WORDS: Final = ("replay-from", "replay", "replay-end")

log = logging.getLogger("headwater.replay")

Answer = Callable[[list[Any]], None]


class ReplayState(NamedTuple):
    """How far the replay of a prepared trace has come at this node."""

    trace: str
    """The checksum of the trace."""
    last_seq: int
    """The greatest number that has come: an event with a number that is not greater is a duplicate."""


class _Events(NamedTuple):
    """The events of a part, as the source takes them."""

    source: int
    ts: list[int]
    seq: list[int]
    columns: list[list[Any]]

    def after(self, start: int) -> _Events:
        columns = [values[start:] for values in self.columns]
        return _Events(self.source, self.ts[start:], self.seq[start:], columns)


class Replays:
    """The replayer of one node, if there is one."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self._peer: str | None = None
        self._trace = ""
        self._waiting: asyncio.Queue[tuple[list[Any], Answer]] = asyncio.Queue(WAITING_MAX)
        self._taking: asyncio.Task[None] | None = None

    def said(self, peer: str, message: list[Any], answer: Answer) -> None:
        """Something that a replayer says. A HeadwaterError is meant for the replayer."""
        if message[0] == "replay-from":
            if self._peer not in (None, peer):
                raise HeadwaterError("another replay into this node is under way; wait for it, or end it")
            self._peer = peer
        elif peer != self._peer:
            raise HeadwaterError("a replay begins with the name of its trace")
        if self._waiting.full():
            raise HeadwaterError(f"{WAITING_MAX} messages wait already; wait for their answers")
        self._waiting.put_nowait((message, answer))
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_all())

    def left(self, peer: str) -> None:
        """The link to a program is down. If it was the replayer, it starts over, after what has become durable."""
        if peer != self._peer:
            return
        self._peer, self._trace = None, ""
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None
        self._waiting = asyncio.Queue(WAITING_MAX)

    async def _take_all(self) -> None:
        while True:
            message, answer = await self._waiting.get()
            await self._daemon.intake.may_publish()
            number = 0
            try:
                match message:
                    case ["replay-from", str(trace)]:
                        self._begin(trace, answer)
                    case ["replay", int(number), list(parts), watermark] if watermark is None or type(watermark) is int:
                        self._take(number, parts, watermark, answer)
                    case ["replay-end", int(number)]:
                        self._end(number, answer)
                    case _:
                        raise HeadwaterError("this is nothing that a replayer says")
            except HeadwaterError as error:
                self._refuse(message, number, str(error), answer)
            except Exception as error:  # many kinds, for a stranger's message
                self._refuse(message, number, f"this is nothing that a replayer says: {error}", answer)

    def _refuse(self, message: list[Any], number: int, why: str, answer: Answer) -> None:
        self._daemon.watching.reported({"refused_requests": 1})
        if message[0] == "replay-from":
            answer(["replay-at", 0, False, why])
        else:
            answer(["replayed", number, 0, 0, 0, why])

    # ------------------------------------------------------------------------------------------------ begin and end

    def _begin(self, trace: str, answer: Answer) -> None:
        machine = self._daemon.machine
        if not self._sources():
            raise HeadwaterError(
                f"no source at {machine.name} is replayed; give it one in the network file: replay: any"
            )
        replay = machine.replay
        if replay is not None and replay.trace != trace:
            raise HeadwaterError(
                f"{machine.name} has begun with another trace (checksum {replay.trace}, up to {replay.last_seq}), and "
                "events of two traces cannot be distinguished; start the network over, or replay that one"
            )
        self._trace = trace
        last_seq = 0 if replay is None else replay.last_seq
        ended = not machine.replay_sources()
        log.info("the replay of the trace %s continues after number %d", trace, last_seq)
        self._daemon.when_durable(lambda: answer(["replay-at", last_seq, ended, None]))

    def _end(self, number: int, answer: Answer) -> None:
        sources = self._daemon.machine.replay_sources()
        if sources:
            self._daemon.apply(Ended(self._daemon.now_us(), sources))
        self._daemon.when_durable(lambda: answer(["replayed", number, 0, 0, 0, None]))

    # ------------------------------------------------------------------------------------------------------- events

    def _sources(self) -> dict[str, int]:
        """The number of the source for each type, also of those that have ended."""
        config = self._daemon.machine.config
        numbers: dict[str, int] = {}
        for source in () if config is None else config.sources:
            if isinstance(source.feed, ReplayFeed):
                numbers.setdefault(source.source.type, source.number)
        return numbers

    def _take(self, number: int, parts: list[Any], watermark: int | None, answer: Answer) -> None:
        if not self._trace:
            raise HeadwaterError("a replay begins with the name of its trace")
        daemon, machine = self._daemon, self._daemon.machine
        sources = self._sources()
        checked = [self._checked(sources, *part) for part in parts]
        last_seq = before = 0 if machine.replay is None else machine.replay.last_seq
        now_us = daemon.now_us()
        fresh: list[_Events] = []
        repeated = late = 0
        for events in checked:
            seen_before = bisect_right(events.seq, before)
            overdue = seen_before
            if seen_before < len(events.seq):
                last_seq = max(last_seq, events.seq[-1])
                overdue = self._after_late(events, seen_before, now_us)
            repeated += seen_before
            late += overdue - seen_before
            counts = daemon.watching.source(events.source)
            counts.repeated += seen_before
            counts.late += overdue - seen_before
            counts.bear(len(events.seq) - overdue, now_us)
            if overdue < len(events.seq):
                fresh.append(events.after(overdue) if overdue else events)
        born = sum(len(events.seq) for events in fresh)
        daemon.apply(Replayed(now_us, self._trace, [list(events) for events in fresh], watermark, last_seq))
        if born:
            daemon.watching.replayed(
                now_us,
                born,
                (min(events.seq[0] for events in fresh), max(events.seq[-1] for events in fresh)),
                (min(events.ts[0] for events in fresh), max(events.ts[-1] for events in fresh)),
                self._trace,
            )
        daemon.when_durable(lambda: answer(["replayed", number, born, repeated, late, None]))

    def _after_late(self, events: _Events, start: int, now_us: int) -> int:
        """The first place from ``start`` on that is not late. What is new of a source that has ended is refused."""
        daemon, machine = self._daemon, self._daemon.machine
        if events.source in machine.ended:
            raise HeadwaterError(f"{machine.name} was told that the replay has ended, so nothing new can follow")
        assert machine.core is not None, "a node that takes events is configured"
        feed = machine.core.forest.feed_of(events.source)
        place = start
        while feed is not None and place < len(events.ts) and feed.is_late(events.source, events.ts[place], now_us):
            values = tuple(column[place] for column in events.columns)
            ts = events.ts[place]
            daemon.late(events.source, Arrival(ts, machine.name, events.seq[place], values), ts, now_us)
            place += 1
        return place

    def _checked(self, sources: dict[str, int], name: Any, times: Any, numbers: Any, columns: Any) -> _Events:
        """The events of a part; a HeadwaterError if they are none, or not of this node."""
        machine = self._daemon.machine
        source = sources.get(name)
        declared = None if source is None else machine.type_of_source(source)
        if source is None or declared is None:
            types = ", ".join(sorted(sources)) or "nothing"
            raise HeadwaterError(
                f"no source of {name!r} at {machine.name} is replayed (replay: any); those here: {types}"
            )
        count = len(numbers)
        if not 0 < count <= EVENTS_MAX:
            raise HeadwaterError(f"{count} events at once; send at most {EVENTS_MAX}, and no empty part")
        if set(map(type, times)) != {int} or set(map(type, numbers)) != {int} or len(times) != count:
            raise HeadwaterError(f"{name}: times and numbers are whole numbers, as many of the one as of the other")
        if (
            numbers[0] < 1
            or not all(map(int.__lt__, numbers, numbers[1:]))
            or not all(map(int.__le__, times, times[1:]))
        ):
            raise HeadwaterError(f"{name}: the numbers of a trace (seq) grow from 1 on, and its times with them")
        unknown = next((attribute for attribute in columns if attribute not in declared.attributes), None)
        if unknown is not None:
            has = ", ".join(declared.attributes) or "no attributes"
            raise HeadwaterError(f"{name} has no attribute {unknown!r}; it has: {has}")
        values = [_column(declared, attribute, columns.get(attribute), count) for attribute in declared.attributes]
        return _Events(source, times, numbers, values)


_KINDS: Final[dict[str, set[type]]] = {
    "int": {int}, "float": {float}, "string": {str}, "bool": {bool}, "any": {int, float, str, bool},
}  # fmt: skip


def _column(declared: EventType, name: str, values: Any, count: int) -> list[Any]:
    """The values of an attribute as its type declares them. Nearly always they already are, which their kinds show."""
    if values is None:
        values = [None] * count
    if len(values) != count:
        raise HeadwaterError(f"{declared.name}.{name} has {len(values)} values for {count} events")
    kinds = set(map(type, values))
    plain = _KINDS[declared.kind(name)] | ({type(None)} if declared.is_optional(name) else set())
    if not kinds <= plain or (float in kinds and not all(isfinite(value) for value in values if type(value) is float)):
        values = [_value(declared, name, value) for value in values]
    if str in kinds and max(len(value) for value in values if type(value) is str) > TEXT_BYTES_MAX:
        raise HeadwaterError(f"{declared.name}.{name} has a text of more than {TEXT_BYTES_MAX} characters")
    return values if type(values) is list else list(values)


def _value(declared: EventType, name: str, value: Any) -> Any:
    if type(value) is float and value in (float("inf"), -float("inf")):
        raise HeadwaterError(f"{declared.name}.{name} is {value}, which is not a finite number")
    return conform(declared, name, value)
