"""Tasks: patterns that a node evaluates over the rows of its feeds.

A *whole* task gives the composite events of a rule; a *partial* one the constituents of its matches, and blockers. A
*filter* that looks something up is a task, too: its events may wait for elements of remote tables.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.node.delivery.matches import MatchBatch
from headwater.node.engine import Engine
from headwater.node.engine.remote_memory import Key
from headwater.node.pull.masters import PushPull
from headwater.node.step import FOREVER, Work
from headwater.node.streams.blockers import Candidates
from headwater.node.streams.feeds import Feed, Inlet
from headwater.node.streams.outbox import identity_of, type_of
from headwater.protocol.composites import Composite
from headwater.protocol.messages.neighbour import Filter, Part, Stream, Whole
from headwater.protocol.pattern import Chain
from headwater.protocol.remote import Versions

Row = tuple[Any, ...]

SWEEPS_PER_HORIZON = 4  # an eager task moves its engine's clock, and frees, this often per horizon
REAL, BLOCKER = True, False


class JoinTask(Feed):
    """An engine over several feeds.

    Monotone patterns are matched as rows arrive. Others are decided when the watermarks of all feeds have passed; then
    a partial match of a child may bring parts older than what has been decided: they are inserted, since the match they
    belong to ends later.
    """

    def __init__(
        self,
        number: int,
        stream: Stream,
        engine: Engine,
        inputs: Sequence[Feed],
        candidates: Iterable[Candidates] = (),
        horizon_us: int | None = None,
    ) -> None:
        super().__init__()
        self.number = number
        self.queued = False
        self.stream = stream
        self.whole = isinstance(stream, Whole)
        self.drives = self.whole or _holds_anchor(stream)
        """Whether decisions here are awaited as soon as they fall due: no node above would know of them to ask. With
        push-pull any part may be the master above, whose events awaken those that would ask."""
        self._since_us = None if isinstance(stream, Filter) else stream.since_us
        self._from_us = stream.from_us if isinstance(stream, Whole) else None
        self._until_us = stream.until_us if isinstance(stream, Whole) else None
        self._heard = frozenset(stream.heard if isinstance(stream, Part) else ())
        self.engine = engine
        self.ordered = engine.ordered()
        self.inputs = tuple(inputs)
        self.rank = 1 + max((feed.rank for feed in self.inputs), default=0)
        self._standing = tuple(feed for feed in self.inputs if isinstance(feed, Inlet | JoinTask))
        self._moving = tuple(feed for feed in self.inputs if not isinstance(feed, Inlet | JoinTask))
        """Inputs whose watermarks stand until they tell new ones, and those whose watermarks move by themselves."""
        self.push_pull: PushPull | None = None
        self.watermark: float = -FOREVER
        self._looked_at: float | None = None
        """The watermark of the inputs in the last run; None if more than watermarks and rows has changed since."""
        self._asked: list[float] = []
        """The watermarks that the inputs were last asked for."""
        self._wanted: list[float] = []
        """A heap of the watermarks that consumers have asked for."""
        self.horizon_us = horizon_us
        self._latest_us = -(1 << 63)
        """The time of the latest row: no match ends later."""
        self.seen = 0
        self.found = 0
        """How many rows the engine was given, and how many matches it has found."""
        self.counts_from_us: float = -FOREVER
        self.joined = 0
        """How many matches resulted from rows at or after this time: other tasks have found the earlier ones."""
        self._candidates: dict[str, list[Candidates]] = {}
        for contested in candidates:
            self._candidates.setdefault(contested.type, []).append(contested)
        self._incoming: list[Row] = []
        self._blocked: dict[Any, Row] = {}
        self._sent: dict[Any, tuple[int, bool]] = {}
        self._free_after: float = -FOREVER
        """The watermark of the inputs past which it is time to free again."""

    # ----------------------------------------------------------------------------------------------------------- input

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        if self._since_us is not None:
            rows = [row for row in rows if row[0] >= self._since_us]
        self._incoming += rows
        if self._blocked:
            for row in rows:
                self._blocked.pop(identity_of(row), None)
        if self._candidates:
            self._note(rows)
        work.touch(self)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        if self._since_us is not None:
            rows = [row for row in rows if row[0] >= self._since_us]
        for row in rows:
            self._blocked[identity_of(row)] = row
        self._looked_at = None
        if self.ordered:
            self._incoming += rows
        if self._candidates:
            self._note(rows)
        work.touch(self)

    def _note(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for candidates in self._candidates.get(type_of(row), ()):
                candidates.add(row)

    def watermark_moved(self, work: Work) -> None:
        work.touch(self)

    def supplied(self, elements: Sequence[tuple[str, Key, Versions | None]], work: Work) -> None:
        """Elements of remote tables have come: evaluations that have waited for them go on."""
        goes_on = False
        for table, key, element in elements:
            goes_on = self.engine.supplied(table, key, element)
        if goes_on:
            self._looked_at = None
            work.touch(self)

    def current(self, now_us: int) -> float:
        return self.watermark

    def want(self, ts: float, work: Work) -> None:
        if self.watermark < ts < FOREVER and ts not in self._wanted:
            heapq.heappush(self._wanted, ts)
            self._looked_at = None
            work.touch(self)

    # --------------------------------------------------------------------------------------------------------- running

    def run(self, work: Work) -> None:
        """Match what has come, decide what can be decided, and ask for what is still needed."""
        watermark = self._watermark_of_inputs(work.now_us)
        rows = self._incoming
        if rows:
            self._take_in_order(rows)
        elif watermark == self._looked_at and self.push_pull is None:
            return  # another input than the one that is furthest behind has moved
        self._looked_at = watermark
        before = self.watermark
        awaited = self._go_on()
        if self.ordered:
            matches = awaited + self._decide(rows, watermark)
            reached = self.engine.output_watermark()
        else:
            if self.push_pull is not None:
                # An answer may go back further than any match that is still to come, when the master changes.
                rows = [row for row in rows if row[0] > self.engine.watermark]
            matches = awaited + self.engine.feed(rows)
            reached = min(watermark, self.engine.held_before() - 1)
        if reached > before:
            self.watermark = reached
        if matches:
            self.found += len(matches)
            if (rows[-1][0] if rows else watermark) >= self.counts_from_us:
                self.joined += len(matches)
            self._give(matches, work)
        if self._candidates and self.watermark > before:
            self._give_blockers(work)
        if self.horizon_us is not None:
            self._free_if_due(watermark, self.horizon_us)
        self._ask(watermark, work)
        if self.watermark > before:
            if self._from_us is not None and self.watermark >= self._from_us:
                self._from_us = None  # nothing that follows ends earlier
            self.tell(work)

    def _go_on(self) -> list[Composite]:
        """With the evaluations whose elements have come. What was kept for them may be freed then."""
        if self.engine.asking is None:
            return []
        held_before = self.engine.held_before()
        matches = self.engine.supply()
        if self.horizon_us is not None and self.engine.held_before() > held_before:
            self._free_after = -FOREVER
        return matches

    def _take_in_order(self, rows: list[Row]) -> None:
        self._incoming = []
        if len(rows) > 1:
            rows.sort()  # they came stream by stream; an engine is fastest with what is in order
        self.seen += len(rows)
        self._latest_us = max(self._latest_us, rows[-1][0])

    def _watermark_of_inputs(self, now_us: int) -> float:
        watermark = FOREVER
        for feed in self._standing:
            if feed.watermark < watermark:
                watermark = feed.watermark
        for moving in self._moving:
            current = moving.current(now_us)
            if current < watermark:
                watermark = current
        return watermark

    def _decide(self, rows: list[Row], watermark: float) -> list[Composite]:
        engine = self.engine
        if rows:
            decided = engine.watermark
            old = [row for row in rows if row[0] <= decided]
            if old:
                rows = [row for row in rows if row[0] > decided]
                if self.horizon_us is not None:
                    # When the master changes, an answer may go back further than any match that is still to come.
                    old = [row for row in old if row[0] >= decided - self.horizon_us]
                engine.insert_old(old)
            engine.feed(rows)
        return engine.advance(watermark) if watermark > engine.watermark else []

    def _ask(self, watermark: float, work: Work) -> None:
        """Ask the feeds to move on to where the next decision falls, and to where consumers want to be."""
        wanted = self._wanted
        while wanted and wanted[0] <= self.watermark:
            heapq.heappop(wanted)
        needed = [ts for ts in wanted if ts > watermark] if wanted else []
        if self.ordered and (self.drives or self.push_pull is not None or len(needed) < len(wanted)):
            waits = self.engine.waits_until()
            if watermark < waits < FOREVER:
                needed.append(waits)
        if self.push_pull is None and needed == self._asked:
            return  # a feed that is asked remembers; only one whose mode changes must be asked again
        self._asked = needed
        for ts in needed:
            for feed in self.inputs:
                if feed.current(work.now_us) < ts:
                    feed.want(ts, work)

    # ---------------------------------------------------------------------------------------------------------- output

    def _give(self, matches: list[Composite], work: Work) -> None:
        blocked = self._blocked
        if blocked:
            matches = [match for match in matches if not any(identity_of(row) in blocked for row in _rows(match))]
        if isinstance(self.stream, Filter):
            self.pass_on([row for match in matches for row in _rows(match)], work)
        elif not self.whole:
            self._give_parts(matches, work)
        elif matches:
            rows = MatchBatch(matches, self._latest_us).between(self._from_us, self._until_us)
            if rows:
                self.pass_on(rows, work)

    def _give_parts(self, matches: list[Composite], work: Work) -> None:
        """The events of matches one by one, each once."""
        fresh: list[Row] = []
        sent, heard = self._sent, self._heard
        for match in matches:
            for row in _rows(match):
                if heard and type_of(row) in heard:
                    continue
                identity = identity_of(row)
                earlier = sent.get(identity)
                if earlier is None or earlier[1] is BLOCKER:
                    sent[identity] = (row[0], REAL)
                    fresh.append(row)
        if fresh:
            if self._candidates:
                for row in fresh:
                    for candidates in self._candidates.get(type_of(row), ()):
                        candidates.forward(row)
            self.pass_on(fresh, work)

    def _give_blockers(self, work: Work) -> None:
        fresh = []
        for of_type in self._candidates.values():
            for candidates in of_type:
                for row in candidates.blockers(self.watermark):
                    identity = identity_of(row)
                    if identity not in self._sent:
                        self._sent[identity] = (row[0], BLOCKER)
                        fresh.append(row)
        if fresh:
            self.pass_blockers(fresh, work)

    # --------------------------------------------------------------------------------------------------------- freeing

    def _free_if_due(self, watermark: float, horizon_us: int) -> None:
        if watermark > self._free_after or watermark == FOREVER:
            self._free(watermark)
        elif self.push_pull is not None:
            # With another master the watermark may be further back: what comes meanwhile is freed when it returns.
            self._free_after = min(self._free_after, watermark + horizon_us / SWEEPS_PER_HORIZON)

    def _free(self, watermark: float) -> None:
        """Forget what nothing can refer to any more."""
        assert self.horizon_us is not None
        self._free_after = watermark + self.horizon_us / SWEEPS_PER_HORIZON
        oldest = watermark - self.horizon_us
        if not self.ordered and oldest > self.engine.watermark:
            self.engine.advance(oldest)
        # A match of a child may bring parts a horizon older than what it ends with, and what was kept may come another
        # horizon later than it was due.
        oldest = min(oldest, self.engine.held_before() - self.horizon_us) - 2 * self.horizon_us
        if self._sent:
            self._sent = {identity: sent for identity, sent in self._sent.items() if sent[0] >= oldest}
        if self._blocked:
            self._blocked = {identity: row for identity, row in self._blocked.items() if row[0] >= oldest}
        for of_type in self._candidates.values():
            for candidates in of_type:
                candidates.forget_before(oldest)
        if self.push_pull is not None:
            self.push_pull.free(watermark)

    def want_to_free(self, ts: float, work: Work) -> None:
        """Something is held only because inputs have not told their watermarks for long: ask them."""
        if self.engine.stored():
            for feed in self.inputs:
                if feed.current(work.now_us) < ts:
                    feed.want(ts, work)

    def held(self) -> int:
        """How many rows, partial matches and remembered identities are kept."""
        kept = sum(candidates.held() for of_type in self._candidates.values() for candidates in of_type)
        if self.push_pull is not None:
            kept += sum(slot.held() for slot in self.push_pull.slots)
        return kept + self.engine.stored() + len(self._incoming) + len(self._blocked) + len(self._sent)

    # -------------------------------------------------------------------------------------------------------- checking

    def validate(self, now_us: int) -> list[str]:
        """What contradicts itself, or is kept for longer than the horizon allows; right after housekeeping."""
        wrong = []
        if self._incoming or self.queued:
            wrong.append("something waits for its turn after all work was done")
        late = self.engine.counters()["late_events"]
        if late:
            wrong.append(f"its engine has seen {late} late events")
        overstayed = self.engine.overstayed(self.horizon_us or 0)
        if overstayed:
            wrong.append(f"its engine keeps rows that no match can use: {', '.join(overstayed)}")
        watermark = min([feed.current(now_us) for feed in self.inputs], default=FOREVER)
        if self.horizon_us is not None:
            # What a match of a child brings is a horizon older than the match, and sweeps come a quarter late.
            needed = min(watermark, self.engine.held_before())
            oldest = needed - 3 * self.horizon_us - self.horizon_us / SWEEPS_PER_HORIZON
            kept = {
                "sent": [ts for ts, _ in self._sent.values()],
                "blocked": [row[0] for row in self._blocked.values()],
                "candidates": [c.oldest() for of_type in self._candidates.values() for c in of_type],
                "recent": [] if self.push_pull is None else [slot.oldest() for slot in self.push_pull.slots],
            }
            for name, times in kept.items():
                least = min(times, default=FOREVER)
                if least < oldest:
                    wrong.append(f"{name}: {least} is kept, nothing before {oldest} is needed (watermark {watermark})")
        if self.push_pull is not None:
            wrong += self.push_pull.validate()
        return wrong

    def unfinished(self) -> list[str]:
        """What still waits for something."""
        waits = []
        if self.watermark < FOREVER:
            waits.append(f"its watermark is {self.watermark}")
        if self._wanted:
            waits.append(f"the watermarks {sorted(self._wanted)} are wanted and were never sent")
        if self._incoming:
            waits.append(f"{len(self._incoming)} rows were never taken")
        if self.engine.stored() and (self.ordered or self.horizon_us is not None):  # others keep everything
            waits.append(f"its engine still holds {self.engine.stored()} rows and partial matches")
        if self.horizon_us is not None and (self._sent or self._blocked):
            waits.append(f"{len(self._sent)} sent and {len(self._blocked)} blocked events are still remembered")
        for slot in () if self.push_pull is None else self.push_pull.slots:
            waits += slot.unfinished()
        return waits


def _rows(match: Composite) -> Sequence[Row]:
    """The rows of the parts of a match."""
    spec = match[0]
    return match[1 : 1 + len(spec.roles)] if spec.plain else [row for _, row in match.parts()]


def _holds_anchor(stream: Stream) -> bool:
    """Whether a partial rule has the events that complete matches of a chain."""
    if not isinstance(stream, Part):
        return False
    root = stream.partial.rule.pattern.root
    return isinstance(root, Chain) and root.anchor.role in stream.partial.roles
