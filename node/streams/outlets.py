"""Outlets: streams to the parent (in a graph: to any neighbour), pushed as they come, or held until they are pulled.

What only passes through this node is kept where it comes from: modes, awakenings and reverse marks are handed on to
the child, and its answers pass. What arises here, or is needed here anyway, is kept here.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.node.plans.catalog import Catalog
from headwater.node.step import FOREVER, Work
from headwater.node.streams.feeds import Feed, Inlet, Merge
from headwater.node.streams.outbox import identity_of, type_of
from headwater.node.tasks.predicates import Condition, row_condition
from headwater.protocol.errors import RuleError
from headwater.protocol.messages.neighbour import Awakening, Watermark

Row = tuple[Any, ...]


@dataclass(slots=True)
class _Window:
    """What was asked for and may still come."""

    least_us: int
    greatest_us: int
    conditions: dict[str, Condition]

    def wants(self, row: Row) -> bool:
        if not self.least_us <= row[0] <= self.greatest_us:
            return False
        if not self.conditions:
            return True
        condition = self.conditions.get(type_of(row))
        try:
            return condition is None or condition(row)
        except RuleError:  # what cannot be decided excludes nothing
            return True


@dataclass(slots=True)
class _Asked:
    """An awakening that is not answered yet: its serial on this stream, and the serial that each child must reach."""

    serial: int
    until_us: float
    below: list[tuple[Inlet, int]]


class _Tap:
    """One of the feeds that a stream is made of."""

    def __init__(self, outlet: Outlet, feed: Feed) -> None:
        self.outlet = outlet
        self.feed = feed
        self.hands_on = False
        """The child keeps what is not asked for; its answers pass."""
        self.counted = 0
        feed.consumers.append(self)

    def below(self) -> int:
        """How many events the child has produced since the stream is handed on."""
        return self.feed.generated - self.counted if isinstance(self.feed, Inlet) else 0

    def may_hand_on(self) -> bool:
        """No other consumer here needs what comes from the child."""
        return isinstance(self.feed, Inlet) and len(self.feed.consumers) == 1

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self.outlet.take(rows, self.hands_on, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        self.outlet.take_blockers(rows, self.hands_on, work)

    def watermark_moved(self, work: Work) -> None:
        self.outlet.watermark_moved(work)


class Outlet:
    """A stream that goes to the parent."""

    def __init__(
        self, neighbour: str, number: int, feed: Feed, kind: str, catalog: Catalog, *, pulled: bool = False
    ) -> None:
        """``pulled``: the stream is pulled from the beginning, and all nodes on its way know it."""
        self.neighbour = neighbour
        self.number = number
        self.kind = kind
        self.feed = feed
        self.pull = pulled
        self.watermarks_only = False
        """The parent wants to know how far the stream has come, and nothing of what it brings."""
        self.silent = False
        """Nothing is sent yet: the node that takes the stream may not know it."""
        self.generated = 0
        self.told_watermark: float = -FOREVER
        self._catalog = catalog
        self._taps = [_Tap(self, source) for source in (feed.inputs if isinstance(feed, Merge) else (feed,))]
        self._wanted: list[float] = []
        self._kept: list[Row] = []
        """Rows in trace order that were not asked for yet."""
        self._kept_blockers: dict[Any, Row] = {}
        self._sent_blockers: dict[Any, int] = {}
        self._windows: list[_Window] = []
        self._asked: list[_Asked] = []
        self._serial = 0
        self._wished: bool | None = None
        """The mode that the parent has asked for, until it holds."""
        self._wished_serial = 0
        self.ends_us: int | None = None
        """Where the plan of the tree ends: nothing comes from there on."""
        self._mode = int(pulled)
        for tap in self._taps if pulled else ():
            tap.hands_on = tap.may_hand_on()

    # ------------------------------------------------------------------------------------------------------------ rows

    def take(self, rows: Sequence[Row], handed_on: bool, work: Work) -> None:
        if not handed_on:
            self.generated += len(rows)
        if self.watermarks_only:
            return
        box = work.outbox(self.neighbour)
        if handed_on or not self.pull:
            kind = "answer" if self.pull and self._wished is not False else self.kind
            box.add(rows, self.number, kind)
            return
        answer: list[Row] = []
        for row in rows:
            identity = identity_of(row)
            kept = self._kept_blockers.pop(identity, None)
            if kept is not None:  # it is kept already, now as a real event
                if not self._open_for(row):
                    continue
                del self._kept[bisect_left(self._kept, kept)]
                answer.append(row)
            elif self._sent_blockers.pop(identity, None) is not None or self._open_for(row):
                answer.append(row)
            else:
                insort(self._kept, row)
        if answer:
            box.add(answer, self.number, "answer")

    def take_blockers(self, rows: Sequence[Row], handed_on: bool, work: Work) -> None:
        box = work.outbox(self.neighbour)
        for row in rows:
            if handed_on or not self.pull or self._open_for(row):
                if self.pull:
                    self._sent_blockers[identity_of(row)] = row[0]
                box.add_blockers((row,), self.number)
            else:
                self._kept_blockers[identity_of(row)] = row
                insort(self._kept, row)

    def _open_for(self, row: Row) -> bool:
        return any(window.wants(row) for window in self._windows)

    # --------------------------------------------------------------------------------------------------- what is asked

    def want(self, ts: float, work: Work) -> None:
        heapq.heappush(self._wanted, ts)
        self.feed.want(ts, work)
        self.watermark_moved(work)

    def set_mode(self, pull: bool, serial: int, work: Work) -> None:
        """The parent wants the stream pushed, or kept until it asks. It holds when it holds for all that is below."""
        self._wished = pull
        self._wished_serial = serial
        for tap in self._taps:
            if pull and not tap.hands_on and tap.may_hand_on():
                tap.hands_on = True
                tap.counted = tap.feed.generated  # type: ignore[attr-defined]
            if tap.hands_on:
                assert isinstance(tap.feed, Inlet)
                tap.feed.set_mode(pull, work)
        self._settle(work)

    def _settle(self, work: Work) -> bool:
        """Whether a new mode holds from now on."""
        wished = self._wished
        if wished is None or not all(_is_in_mode(tap.feed, wished) for tap in self._handing_on()):
            return False
        self._wished = None
        self._mode = self._wished_serial
        watermark = self._watermark(work.now_us)  # before the mode changes: up to here everything was pushed
        self.pull = wished
        if not wished:
            box = work.outbox(self.neighbour)
            blockers = self._kept_blockers
            box.add([row for row in self._kept if identity_of(row) not in blockers], self.number, self.kind)
            box.add_blockers([row for row in self._kept if identity_of(row) in blockers], self.number)
            # Windows stay open: the stream may be kept again before they have passed; the parent asks only once.
            self._kept, self._kept_blockers = [], {}
            for tap in self._taps:
                if tap.hands_on:
                    self.generated += tap.below()
                    tap.hands_on = False
        self.tell(watermark, work)
        return True

    def _handing_on(self) -> list[Any]:
        return [tap for tap in self._taps if tap.hands_on]

    def awaken(self, message: Awakening, work: Work) -> None:
        """Send what lies in the window, and what will."""
        conditions = {}
        for name, where in message.where:
            try:
                condition = row_condition(where, self._catalog.type(name), name in self._catalog.composites)
            except Exception:  # whatever is wrong with it: what cannot be asked excludes nothing
                work.report("unknown_conditions")
                continue
            if condition is not None:
                conditions[name] = condition
        window = _Window(message.least_us, message.greatest_us, conditions)
        until: float = -FOREVER
        below = []
        for tap in self._taps:
            if tap.hands_on:
                assert isinstance(tap.feed, Inlet)
                below.append((tap.feed, tap.feed.awaken(message.least_us, message.greatest_us, message.where, work)))
            else:
                until = min(message.greatest_us, work.now_us)
                if self.ends_us is not None:
                    until = min(until, self.ends_us - 1)
                tap.feed.want(until, work)
        self._answer(window, work)
        self._close_windows(work.now_us)
        self._windows.append(window)
        self._asked.append(_Asked(message.serial, until, below))
        self.watermark_moved(work)

    def _answer(self, window: _Window, work: Work) -> None:
        kept = self._kept
        low, high = bisect_left(kept, (window.least_us,)), bisect_left(kept, (window.greatest_us + 1,))
        wanted = [row for row in kept[low:high] if window.wants(row)]
        if not wanted:
            return
        box = work.outbox(self.neighbour)
        answer: list[Row] = []
        for row in wanted:
            identity = identity_of(row)
            if self._kept_blockers.pop(identity, None) is not None:
                self._sent_blockers[identity] = row[0]
                box.add_blockers((row,), self.number)
            else:
                answer.append(row)
        box.add(answer, self.number, "answer")
        kept[low:high] = [row for row in kept[low:high] if not window.wants(row)]

    def free_before(self, ts: float, work: Work) -> None:
        """Nothing before this will be asked for any more."""
        for tap in self._taps:
            if tap.hands_on:
                assert isinstance(tap.feed, Inlet)
                tap.feed.reverse_mark(ts, work)
        cut = bisect_left(self._kept, (ts,))
        if cut and self._kept_blockers:
            for row in self._kept[:cut]:
                self._kept_blockers.pop(identity_of(row), None)
        del self._kept[:cut]
        self._sent_blockers = {identity: sent for identity, sent in self._sent_blockers.items() if sent >= ts}
        self._close_windows(work.now_us)

    def _close_windows(self, now_us: int) -> None:
        watermark = self.feed.current(now_us)
        self._windows = [window for window in self._windows if window.greatest_us > watermark]

    # ------------------------------------------------------------------------------------------------------ watermarks

    def _watermark(self, now_us: int) -> float:
        """Up to where everything was sent; while the mode changes, up to where what is below still pushed."""
        watermark = self.feed.current(now_us)
        if not self.pull:
            for tap in self._taps:
                if tap.hands_on and isinstance(tap.feed, Inlet) and tap.feed.pull:
                    watermark = min(watermark, tap.feed.pushed_until)
        return watermark if self.ends_us is None else max(watermark, self.told_watermark)

    def watermark_moved(self, work: Work) -> None:
        if self.silent or (self._wished is not None and self._settle(work)):
            return
        watermark = self._watermark(work.now_us)
        due = watermark == FOREVER > self.told_watermark
        while self._wanted and self._wanted[0] <= watermark:
            heapq.heappop(self._wanted)
            due = True
        while self._asked and self._is_answered(self._asked[0], work.now_us):
            self._serial = self._asked.pop(0).serial
            due = True
        if due:
            self.tell(watermark, work)

    def _is_answered(self, awakening: _Asked, now_us: int) -> bool:
        if any(inlet.seen < serial for inlet, serial in awakening.below):
            return False
        until_us = awakening.until_us if self.ends_us is None else min(awakening.until_us, self.ends_us - 1)
        return all(tap.hands_on or tap.feed.current(now_us) >= until_us for tap in self._taps)

    def tell_slowly(self, work: Work) -> None:
        """No decision waits for it, but what is held above can be freed."""
        watermark = self._watermark(work.now_us)
        if watermark > self.told_watermark and not self.silent:
            self.tell(watermark, work)

    def tell(self, watermark: float, work: Work) -> None:
        if watermark > self.told_watermark:
            self.told_watermark = watermark
        generated = self.generated
        for tap in self._taps:
            if tap.hands_on:
                generated += tap.below()
        work.outbox(self.neighbour).add_watermark(
            Watermark(self.number, watermark, self._serial, generated, self.pull, self._mode)
        )

    def held(self) -> int:
        return len(self._kept) + len(self._sent_blockers) + len(self._windows)

    def validate(self) -> list[str]:
        """What contradicts itself."""
        wrong = []
        if self._kept != sorted(self._kept):
            wrong.append("what is kept is out of order")
        kept = {identity_of(row) for row in self._kept}
        if len(kept) < len(self._kept):
            wrong.append("an event is kept twice")
        if not self._kept_blockers.keys() <= kept:
            wrong.append("a blocker is remembered that is not kept")
        if not self.pull and self._kept:
            wrong.append(f"it is pushed, but {len(self._kept)} events are kept")
        return wrong

    def unfinished(self) -> list[str]:
        """What still waits for something."""
        waits = []
        if self._wanted:
            waits.append(f"the watermarks {sorted(self._wanted)} are wanted and were never sent")
        if self._asked:
            waits.append(f"awakenings {[awakening.serial for awakening in self._asked]} are not answered")
        if self._wished is not None:
            waits.append(f"it should be {'pulled' if self._wished else 'pushed'} and is not yet")
        if self.told_watermark < FOREVER:
            waits.append(f"its watermark is {self.told_watermark}")
        return waits


def _is_in_mode(inlet: Inlet, pull: bool) -> bool:
    return inlet.steadily_pulled if pull else inlet.steadily_pushed
