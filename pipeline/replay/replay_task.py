"""One task of a replay: streams the events of its nodes to them, in time order and at the common pace.

The time of the trace is cut into slices, the same for all tasks, each with about as many events as the others. No task
begins a slice before all tasks have finished the one ``AHEAD_MAX`` before it: otherwise the nodes of a fast task would
pile up what they cannot decide without the watermarks of the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.pipeline.replay.lockstep import Invitation, Seat
from headwater.pipeline.replay.pace import Pace
from headwater.pipeline.replay.rows import NodeMessage, ReplayStretch, stretches
from headwater.pipeline.replay.sender import NodeGroup, ReplayRefused, Sender
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.replay import TracePart

if TYPE_CHECKING:
    import pyarrow as pa

AHEAD_MAX: Final = 4  # slices by which a task may be ahead of the slowest
UNANSWERED_MAX: Final = 2  # slices that may be under way at once: nodes never wait for the next one
TICK_S: Final = 0.1  # how often what has become due is sent
MESSAGES_PER_S: Final = 1_000  # that a task sends at most to say how late it is: many nodes hear of it less often
TELL_S: Final = 0.5  # how often the driver hears how far a task has come


@dataclass(frozen=True, slots=True)
class FeedingOptions:
    """What all tasks are told alike. Travels to tasks."""

    bounds: tuple[int, ...]
    """The last time of each slice."""
    attributes: Mapping[str, tuple[str, ...]]
    """What is sent of each type."""
    speed: float = 0.0
    """How many times faster than the times say; 0: as fast as the nodes take it."""
    streams: frozenset[tuple[str, str]] = frozenset()
    """Node and type of the events that are sent; others are left out."""
    ends: bool = True
    """Whether nodes are told at the end that nothing follows."""


class Fed(NamedTuple):
    """The outcome of the events of one node, and by how much its task was behind the pace."""

    node: str
    born: int
    repeated: int
    late: int
    lag_max_s: float
    lag_mean_s: float


Events = Mapping[str, Iterable["pa.RecordBatch"]]
"""By node its events in the order of the trace, with the columns type, ts, seq and attributes. A node may be absent."""


async def feed(
    group: NodeGroup, options: FeedingOptions, events: Events, invitation: Invitation, seat: int
) -> list[Fed]:
    """Stream events to the nodes of a group, merged by time.

    Raises ReplayRefused if a node does not take them, ConfigError if they are no trace, Stopped if that has happened to
    another task; anything else is a failure after which the same may be tried again.
    """
    async with Seat(invitation, seat) as council:
        try:
            async with Sender(group) as sender:
                return await _Feeding(group, options, sender, council).run(events)
        except (ReplayRefused, ConfigError) as error:
            await council.stop(str(error))
            raise


class _Feeding:
    def __init__(self, group: NodeGroup, options: FeedingOptions, sender: Sender, council: Seat) -> None:
        self._nodes = tuple(group.addresses)
        self._options = options
        self._sender = sender
        self._council = council
        self._numbers: dict[str, int] = {}
        """By node the last message."""
        self._finished: deque[tuple[int, dict[str, int]]] = deque()
        """Slices that were sent and not answered yet, with the last message to each node then."""
        self._watermarks: dict[str, int] = {}
        self._lag_max_s = self._lag_sum_s = 0.0
        self._ticks = 0
        self._told_s = 0.0

    async def run(self, events: Events) -> list[Fed]:
        options, council = self._options, self._council
        at = await self._sender.positions()
        after = {node: position.last_seq for node, position in at.items()}
        reading = _Ahead(stretches(events, options.bounds, after, options.attributes, options.streams))
        stretch = await reading.next()
        while stretch is not None and not stretch.rows:  # what all nodes have already
            stretch = await reading.next()
        slices = len(options.bounds)
        began = slices if stretch is None else stretch.slice
        first_us = None if stretch is None else min(rows.first_us for rows in stretch.rows.values())
        council.tell({"slices": began, "from_us": first_us})
        await council.all_have(0)
        pace = Pace(options.speed, council.zero_us) if options.speed and council.zero_us is not None else None
        while stretch is not None:
            await self._answers(stretch.slice - UNANSWERED_MAX + 1)
            await council.all_have(stretch.slice - AHEAD_MAX + 1)
            if pace is None:
                await self._send(stretch, stretch.last_us, stretch.watermark_us, everywhere=stretch.completes)
            else:
                await self._send_when_due(stretch, pace)
            if stretch.completes:
                self._finished.append((stretch.slice, dict(self._numbers)))
            self._tell(stretch.watermark_us)
            stretch = await reading.next()
        await self._end([node for node in self._nodes if not at[node].ended])
        await self._answers(slices)
        self._tell(options.bounds[-1] if options.bounds else None, slices=slices, now=True)
        await council.all_have(slices)  # a task that leaves earlier would be missed
        mean_s = self._lag_sum_s / self._ticks if self._ticks else 0.0
        return [Fed(node, *self._sender.taken(node), self._lag_max_s, mean_s) for node in self._nodes]

    async def _send_when_due(self, stretch: ReplayStretch, pace: Pace) -> None:
        tick_s = max(TICK_S, len(self._nodes) / MESSAGES_PER_S)
        while True:
            due_us = pace.due_us()
            last_us = min(due_us, stretch.last_us)
            await self._send(stretch, last_us, min(last_us, stretch.watermark_us), everywhere=True)
            lag_s = pace.lag_s(last_us)
            self._lag_max_s = max(self._lag_max_s, lag_s)
            self._lag_sum_s += lag_s
            self._ticks += 1
            if last_us == stretch.last_us:
                return
            self._tell(last_us, lag_s=lag_s)
            await asyncio.sleep(tick_s)

    async def _send(self, stretch: ReplayStretch, last_us: int, watermark_us: int, *, everywhere: bool) -> None:
        """What is due of a stretch, to all nodes at once, each as fast as it takes it."""
        waiting = []
        for node in self._nodes:
            rows = stretch.rows.get(node)
            messages = [] if rows is None else rows.up_to(last_us)
            if messages or (everywhere and watermark_us > self._watermarks.get(node, -(1 << 62))):
                waiting.append(self._send_to(node, messages, watermark_us))
        if len(waiting) == 1:
            await waiting[0]
        elif waiting:
            await asyncio.gather(*waiting)

    async def _send_to(self, node: str, messages: list[NodeMessage], watermark_us: int) -> None:
        watermarks = [*(message.first_ts - 1 for message in messages[1:]), watermark_us]
        for message, watermark in zip(messages or [NodeMessage([], 0, 0, 0)], watermarks, strict=True):
            parts: list[TracePart] = message.parts
            self._numbers[node] = await self._sender.send(node, parts, watermark, message.last_seq)
        self._watermarks[node] = watermark_us

    async def _answers(self, slices: int) -> None:
        """Wait until so many slices are durable at all nodes, and say so."""
        while self._finished and self._finished[0][0] < slices:
            number, sent = self._finished.popleft()
            for node, message in sent.items():
                await self._sender.answered(node, message)
            self._council.tell({"slices": number + 1})

    async def _end(self, nodes: list[str]) -> None:
        if self._options.ends:
            for node in nodes:
                self._numbers[node] = await self._sender.end(node)
        for node, number in self._numbers.items():
            await self._sender.answered(node, number)

    def _tell(self, ts: int | None, *, slices: int | None = None, lag_s: float = 0.0, now: bool = False) -> None:
        now_s = asyncio.get_running_loop().time()
        if not now and now_s - self._told_s < TELL_S:
            return
        self._told_s = now_s
        events = sum(sum(self._sender.taken(node)) for node in self._nodes)
        progress = {"events": events, "ts": ts, "lag_s": lag_s, "behind": self._sender.behind()}
        self._council.tell(progress if slices is None else {**progress, "slices": slices})


class _Ahead:
    """Reads one stretch ahead, in a thread: making them may be slow, and links must be heard meanwhile."""

    def __init__(self, source: Iterator[ReplayStretch]) -> None:
        self._stretches = source
        self._coming: asyncio.Future[ReplayStretch | None] = self._read()

    def _read(self) -> asyncio.Future[ReplayStretch | None]:
        return asyncio.ensure_future(asyncio.to_thread(next, self._stretches, None))

    async def next(self) -> ReplayStretch | None:
        stretch = await self._coming
        if stretch is not None:
            self._coming = self._read()
        return stretch
