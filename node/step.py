"""The work of one call into a node's core: the current time, the tasks with input, and the effects so far."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Protocol

from headwater.node.effects import Effect, Report, Send, SetTimer
from headwater.node.tasks.rule_failures import Failures

if TYPE_CHECKING:
    from headwater.node.streams.outbox import Outbox
    from headwater.protocol.messages.neighbour import Message

Row = tuple[Any, ...]
FOREVER = float("inf")


class Numbers:
    """Counts from 1 on; can be saved."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


class Runnable(Protocol):
    """A task that waits for its turn. Tasks of lower rank feed those of higher rank."""

    rank: int
    number: int
    queued: bool

    def run(self, work: Work) -> None: ...


class Work:
    """Collects effects and runs tasks in the order of their ranks until none has anything to do."""

    __slots__ = ("_failures", "_outboxes", "_timers", "boxes", "effects", "now_us", "queue")

    def __init__(self, now_us: int, outboxes: dict[str, Outbox], timers: dict[str, int]) -> None:
        self.now_us = now_us
        self.effects: list[Effect] = []
        self._outboxes = outboxes
        self._timers = timers
        self._failures: Failures | None = None
        self.queue: list[tuple[int, int, Runnable]] = []
        self.boxes: dict[str, Outbox] = {}
        """Outboxes that may have something to send."""

    @property
    def failures(self) -> Failures:
        """The rules that have failed in this step."""
        if self._failures is None:
            self._failures = Failures()
        return self._failures

    def report_failures(self) -> None:
        if self._failures is not None:
            self.effects += self._failures.reports()

    def touch(self, task: Runnable) -> None:
        """The task has something to do."""
        if not task.queued:
            task.queued = True
            heapq.heappush(self.queue, (task.rank, task.number, task))

    def run(self) -> None:
        queue = self.queue
        while queue:
            _, _, task = heapq.heappop(queue)
            task.queued = False
            task.run(self)

    def outbox(self, neighbour: str) -> Outbox:
        """What is collected for the neighbour; it goes out with ``flush``."""
        box = self.boxes.get(neighbour)
        if box is None:
            box = self.boxes[neighbour] = self._outboxes[neighbour]
        return box

    def flush(self) -> None:
        """Send what was collected for neighbours, in a fixed order, not in that of collection."""
        boxes = self.boxes
        if len(boxes) > 1:
            boxes = {name: box for name, box in self._outboxes.items() if name in boxes}
        for box in boxes.values():
            box.flush(self)
        self.boxes = {}

    def send(self, neighbour: str, message: Message) -> None:
        self.effects.append(Send(neighbour, message))

    def report(self, counter: str, count: int = 1) -> None:
        self.effects.append(Report(counter, count))

    def timer(self, name: str, at_us: int, *, idle: bool = False) -> None:
        """Set a timer of this name; of several with one name the earliest counts."""
        earliest_us = self._timers.get(name)
        if earliest_us is None or at_us < earliest_us:
            self._timers[name] = at_us
            self.effects.append(SetTimer(at_us, name, idle))
