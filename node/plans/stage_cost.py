"""Measures whether a stage costs more than its fallback would, as far as its node can see.

The coordinator has said how many links an event of each input, and of the stage's output, crosses now and would cross
with the fallback. The node counts these events in turns and keeps the last few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.node.step import Work
from headwater.node.streams.feeds import Feed
from headwater.protocol.graphs import Watch
from headwater.protocol.messages.plans import CostsMore

Row = tuple[Any, ...]

MARGIN: Final = 1.25
"""A stage falls back if it has cost so many times as much as its fallback: moving costs a set-up, too."""


@dataclass(frozen=True, slots=True)
class StagePatience:
    """How long a node looks before it says that a stage costs too much."""

    turn_us: int = 2_500_000
    """The length of a turn: rates vary by themselves, and ten seconds are soon enough."""
    turns: int = 4
    """The number of consecutive turns in which it must have cost more than its fallback."""
    events_least: int = 40
    """Fewer events than this in all turns say nothing about rates."""


PATIENT: Final = StagePatience()


class _Counter:
    """How many events a feed has brought."""

    def __init__(self, watching: StageWatch) -> None:
        self.count = 0
        self._watching = watching

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self.count += len(rows)
        self._watching.wake(work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        self.count += len(rows)  # blockers cross links like other events
        self._watching.wake(work)

    def watermark_moved(self, work: Work) -> None:
        pass


class StageWatch:
    """One stage at one node. ``look`` now and then: at most once in its life it has something to tell."""

    def __init__(self, watch: Watch, feeds: Sequence[Feed], tree: str, epoch: int, patience: StagePatience) -> None:
        """``feeds``: what brings the events of each weight."""
        self._watch = watch
        self._tree = tree
        self._epoch = epoch
        self._patience = patience
        self._counters = [_Counter(self) for _ in feeds]
        for feed, counter in zip(feeds, self._counters, strict=True):
            feed.consumers.append(counter)
        self._turns: deque[tuple[int, list[int]]] = deque(maxlen=patience.turns)
        """How long each of the last turns took, and what was counted in it."""
        self._since_us: int | None = None
        """When the turn has begun; None: it begins with the next event."""
        self.is_over = False
        """Whether it has nothing more to report."""

    def wake(self, work: Work) -> None:
        """Events have come: begin a turn unless one is under way."""
        if self._since_us is None and not self.is_over:
            self._since_us = work.now_us
            work.timer("watch", work.now_us + self._patience.turn_us, idle=True)

    def look(self, work: Work) -> CostsMore | None:
        """Count a turn that is over; the report, if there is one."""
        if self.is_over or self._since_us is None:
            return None
        took_us = work.now_us - self._since_us
        if took_us < self._patience.turn_us:
            work.timer("watch", self._since_us + self._patience.turn_us, idle=True)
            return None
        counts = [counter.count for counter in self._counters]
        for counter in self._counters:
            counter.count = 0
        self._turns.append((took_us, counts))
        self._since_us = None
        if not any(counts):
            return None
        self._since_us = work.now_us
        work.timer("watch", work.now_us + self._patience.turn_us, idle=True)
        return self._judged()

    def table(self) -> dict[str, Any]:
        return {"stage": self._watch.number, "turns": len(self._turns), "told": self.is_over}

    def _judged(self) -> CostsMore | None:
        if len(self._turns) < self._patience.turns or not all(self._costs(counts, 1.0) for _, counts in self._turns):
            return None
        sums = [sum(column) for column in zip(*(counts for _, counts in self._turns), strict=True)]
        if sum(sums) < self._patience.events_least or not self._costs(sums, MARGIN):
            return None
        self.is_over = True
        took_us = sum(took for took, _ in self._turns)
        return CostsMore(self._tree, self._epoch, self._watch.number, took_us, tuple(sums))

    def _costs(self, counts: Sequence[int], times: float) -> bool:
        """Whether these events have crossed so many times more links than they would have."""
        pairs = list(zip(counts, self._watch.weights, strict=True))
        now = sum(count * weight.now for count, weight in pairs)
        return now > times * sum(count * weight.instead for count, weight in pairs)
