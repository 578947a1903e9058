"""Blockers: candidates that a partial rule withholds although a node above could have selected them.

A node that selects the last (first, n-last, ..) event of a role must not fall back to an earlier one because the right
one was withheld below. So a candidate that is not forwarded is sent as a blocker when an earlier (for first: a later)
candidate within the selection's window is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

from headwater.node.step import FOREVER
from headwater.node.tasks.predicates import Condition
from headwater.protocol.analysis.partial_rules import Contest

Row = tuple[Any, ...]


class Candidates:
    """The candidates of one contested role: those forwarded, and those that are not (yet)."""

    def __init__(self, contest: Contest, event_type: str, condition: Condition | None) -> None:
        self.contest = contest
        self.type = event_type
        self._condition = condition
        self._held: list[Row] = []
        self._forwarded: list[Row] = []
        self._newly_forwarded: list[Row] = []
        self._watermark: float = -FOREVER

    def add(self, row: Row) -> None:
        """A row of the type arrived, as a real event or as a blocker."""
        if self._condition is not None and not self._condition(row):
            return
        for rows in (self._held, self._forwarded):
            place = bisect_left(rows, row)
            if place < len(rows) and rows[place] == row:
                return
        insort(self._held, row)

    def forward(self, row: Row) -> None:
        """The row goes up as a real event."""
        place = bisect_left(self._held, row)
        if place < len(self._held) and self._held[place] == row:
            del self._held[place]
            insort(self._forwarded, row)
            self._newly_forwarded.append(row)

    def blockers(self, watermark: float) -> list[Row]:
        """Candidates up to the watermark that must be known above by now, in trace order. Some may be told twice."""
        window = self.contest.window_us
        blockers: set[Row] = set()
        held = self._held
        last = self.contest.policy == "last"
        upto = len(held) if watermark == FOREVER else bisect_left(held, (watermark + 1,))
        for row in held[0 if self._watermark == -FOREVER else bisect_left(held, (self._watermark + 1,)) : upto]:
            if last:
                place = bisect_left(self._forwarded, row) - 1
                if place >= 0 and row[0] - self._forwarded[place][0] <= window:
                    blockers.add(row)
            else:
                place = bisect_right(self._forwarded, row)
                if place < len(self._forwarded) and self._forwarded[place][0] - row[0] <= window:
                    blockers.add(row)
        for forwarded in self._newly_forwarded:
            if last:
                low, high = bisect_right(held, forwarded), bisect_left(held, (forwarded[0] + window + 1,))
            else:
                low, high = bisect_left(held, (forwarded[0] - window,)), bisect_left(held, forwarded)
            blockers.update(held[low : min(high, upto)])
        self._newly_forwarded = []
        self._watermark = watermark
        return sorted(blockers)

    def forget_before(self, ts: float) -> None:
        for rows in (self._held, self._forwarded):
            if rows and rows[0][0] < ts:
                del rows[: bisect_left(rows, (ts,))]

    def held(self) -> int:
        return len(self._held) + len(self._forwarded)

    def oldest(self) -> float:
        """The ts of the oldest candidate that is kept; infinity if there is none."""
        return min((rows[0][0] for rows in (self._held, self._forwarded) if rows), default=FOREVER)
