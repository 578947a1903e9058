"""Tasks: patterns that a node evaluates over the rows of its feeds.

A *whole* task gives the composite events of a rule; a *partial* one the constituents of its matches, and blockers.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

from node.contests import Candidates
from node.engine import Engine
from node.feeds import Feed
from node.outbox import identity_of
from node.push_pull import PushPull
from node.work import FOREVER, Work
from protocol.composites import Composite
from protocol.messages import Part, Whole
from protocol.pattern import Chain

Row = tuple[Any, ...]

SWEEPS_PER_HORIZON = 4  # an eager task moves its engine's clock, and frees, this often per horizon
REAL, BLOCKER = True, False


class JoinTask(Feed):
    """An engine over several feeds.

    Monotone patterns are matched as rows arrive. Others are decided when the marks of all feeds have passed; then a
    partial match of a child may bring parts older than what has been decided: they are inserted, since the match they
    belong to ends later.
    """

    def __init__(
        self,
        number: int,
        stream: Whole | Part,
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
        self._drives = self.whole or _holds_anchor(stream)
        """Whether decisions here are awaited as soon as they fall due: nobody above would know of them to ask. With
        push-pull any part may be the master above, whose events awaken those that would ask."""
        self.engine = engine
        self.ordered = engine.ordered()
        self.inputs = tuple(inputs)
        self.rank = 1 + max((feed.rank for feed in self.inputs), default=0)
        self.push_pull: PushPull | None = None
        self.mark: float = -FOREVER
        self._wanted: list[float] = []
        """A heap of the marks that consumers have asked for."""
        self.horizon_us = horizon_us
        self._candidates: dict[str, list[Candidates]] = {}
        for made in candidates:
            self._candidates.setdefault(made.type, []).append(made)
        self._incoming: list[Row] = []
        self._blocked: dict[Any, Row] = {}
        self._sent: dict[Any, tuple[int, bool]] = {}
        self._freed_at: float = -FOREVER

    # ----------------------------------------------------------------------------------------------------------- input

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self._incoming += rows
        if self._blocked:
            for row in rows:
                self._blocked.pop(identity_of(row), None)
        if self._candidates:
            self._note(rows)
        work.touch(self)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        for row in rows:
            self._blocked[identity_of(row)] = row
        if self.ordered:
            self._incoming += rows
        if self._candidates:
            self._note(rows)
        work.touch(self)

    def _note(self, rows: Sequence[Row]) -> None:
        for row in rows:
            inner = row[3]
            for candidates in self._candidates.get(inner.type if isinstance(inner, Composite) else inner.name, ()):
                candidates.add(row)

    def told(self, work: Work) -> None:
        work.touch(self)

    def current(self, now_us: int) -> float:
        return self.mark

    def want(self, ts: float, work: Work) -> None:
        if self.mark < ts < FOREVER and ts not in self._wanted:
            heapq.heappush(self._wanted, ts)
            work.touch(self)

    # --------------------------------------------------------------------------------------------------------- running

    def run(self, work: Work) -> None:
        """Match what has come, decide what can be decided, and ask for what is still needed."""
        rows, self._incoming = self._incoming, []
        now = work.now_us
        mark = min([feed.current(now) for feed in self.inputs], default=FOREVER)
        before = self.mark
        if self.ordered:
            found = self._decide(rows, mark)
            self.mark = max(before, self.engine.output_watermark())
        else:
            found = self.engine.feed(rows) if rows else []
            self.mark = max(before, mark)
        if found:
            self._give(found, work)
        if self._candidates and self.mark > before:
            self._give_blockers(work)
        if self.horizon_us is not None and mark - self._freed_at > self.horizon_us / SWEEPS_PER_HORIZON:
            self._free(mark)
        self._ask(mark, work)
        if self.mark > before:
            self.tell(work)

    def _decide(self, rows: list[Row], mark: float) -> list[Composite]:
        engine = self.engine
        if rows:
            decided = engine.watermark
            old = [row for row in rows if row[0] <= decided]
            if old:
                engine.insert_old(old)
                rows = [row for row in rows if row[0] > decided]
            engine.feed(rows)
        return engine.advance(mark) if mark > engine.watermark else []

    def _ask(self, mark: float, work: Work) -> None:
        """Ask the feeds to move on to where the next decision falls, and to where consumers want to be."""
        wanted = self._wanted
        while wanted and wanted[0] <= self.mark:
            heapq.heappop(wanted)
        needed = [ts for ts in wanted if ts > mark]
        if self.ordered and (self._drives or self.push_pull is not None or len(needed) < len(wanted)):
            waits = self.engine.waits_until()
            if mark < waits < FOREVER:
                needed.append(waits)
        for ts in needed:
            for feed in self.inputs:
                if feed.current(work.now_us) < ts:
                    feed.want(ts, work)

    # ---------------------------------------------------------------------------------------------------------- output

    def _give(self, found: list[Composite], work: Work) -> None:
        blocked = self._blocked
        if blocked:
            found = [match for match in found if not any(identity_of(row) in blocked for _, row in match.parts())]
        if self.whole:
            if found:
                self.pass_on([match.row() for match in found], work)
            return
        fresh: list[Row] = []
        sent = self._sent
        for match in found:
            for _, row in match.parts():
                identity = identity_of(row)
                known = sent.get(identity)
                if known is None or known[1] is BLOCKER:
                    sent[identity] = (row[0], REAL)
                    fresh.append(row)
        if fresh:
            if self._candidates:
                for row in fresh:
                    inner = row[3]
                    name = inner.type if isinstance(inner, Composite) else inner.name
                    for candidates in self._candidates.get(name, ()):
                        candidates.forward(row)
            self.pass_on(fresh, work)

    def _give_blockers(self, work: Work) -> None:
        fresh = []
        for of_type in self._candidates.values():
            for candidates in of_type:
                for row in candidates.blockers(self.mark):
                    identity = identity_of(row)
                    if identity not in self._sent:
                        self._sent[identity] = (row[0], BLOCKER)
                        fresh.append(row)
        if fresh:
            self.pass_blockers(fresh, work)

    # --------------------------------------------------------------------------------------------------------- freeing

    def _free(self, mark: float) -> None:
        """Forget what nothing can refer to any more."""
        assert self.horizon_us is not None
        self._freed_at = mark
        oldest = mark - self.horizon_us
        if not self.ordered and oldest > self.engine.watermark:
            self.engine.advance(oldest)
        oldest -= self.horizon_us  # a match of a child may bring parts a horizon older than what it ends with
        if self._sent:
            self._sent = {identity: known for identity, known in self._sent.items() if known[0] >= oldest}
        if self._blocked:
            self._blocked = {identity: row for identity, row in self._blocked.items() if row[0] >= oldest}
        for of_type in self._candidates.values():
            for candidates in of_type:
                candidates.forget_before(oldest)
        if self.push_pull is not None:
            self.push_pull.free(mark)

    def held(self) -> int:
        """How many rows, open matches and remembered identities are kept."""
        kept = sum(candidates.held() for of_type in self._candidates.values() for candidates in of_type)
        return kept + self.engine.stored() + len(self._incoming) + len(self._blocked) + len(self._sent)


def _holds_anchor(stream: Whole | Part) -> bool:
    """Whether a partial rule has the events that complete matches of a chain."""
    if isinstance(stream, Whole):
        return False
    root = stream.partial.rule.pattern.root
    return isinstance(root, Chain) and root.anchor.role in stream.partial.roles

