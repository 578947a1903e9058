"""Feeds: where the rows of a task come from, whether local sources, streams of children, or several merged.

A feed has consumers, to whom it gives rows, and a *watermark*: nothing at or before it will follow. A consumer that
waits for a decision *wants* a watermark; the wish travels towards the sources and the watermark comes back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

from headwater.node.plans.catalog import Catalog
from headwater.node.step import FOREVER, Work
from headwater.node.streams.neighbour_checks import Shapes
from headwater.node.tasks.predicates import Condition
from headwater.protocol.messages.neighbour import (
    Awakening,
    Conditions,
    Filter,
    Part,
    ReverseMark,
    SetMode,
    Stream,
    Want,
    Watermark,
    Whole,
)

Row = tuple[Any, ...]


class Consumer(Protocol):
    """Takes the rows of a feed."""

    def accept(self, rows: Sequence[Row], work: Work) -> None: ...

    def block(self, rows: Sequence[Row], work: Work) -> None:
        """Take blockers: candidates that fail for reasons decided below."""
        ...

    def watermark_moved(self, work: Work) -> None:
        """The watermark of the feed has moved."""
        ...


class Feed(ABC):
    """Rows and a watermark."""

    rank = 0

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []

    @abstractmethod
    def current(self, now_us: int) -> float:
        """Nothing at or before this will follow."""

    @abstractmethod
    def want(self, ts: float, work: Work) -> None:
        """Move the watermark to ``ts`` as soon as possible and tell the consumers."""

    def pass_on(self, rows: Sequence[Row], work: Work) -> None:
        for consumer in self.consumers:
            consumer.accept(rows, work)

    def pass_blockers(self, rows: Sequence[Row], work: Work) -> None:
        for consumer in self.consumers:
            consumer.block(rows, work)

    def tell(self, work: Work) -> None:
        for consumer in self.consumers:
            consumer.watermark_moved(work)


class Inlet(Feed):
    """A stream of a child, pushed or pulled.

    While it is pulled, its watermark tells up to where everything asked for in the first ``seen`` awakenings has come.
    """

    def __init__(self, child: str, number: int, stream: Stream, catalog: Catalog, *, pulled: bool = False) -> None:
        """``pulled``: the stream is pulled from the beginning, and both ends know it."""
        super().__init__()
        self.child = child
        self.number = number
        self.stream = stream
        self.shapes = Shapes(_types(stream), catalog)
        self.watermark: float = -FOREVER
        self.asked: set[float] = set()
        """Watermarks that were asked for and have not come yet."""
        self.pull = pulled
        """The mode that the child has confirmed."""
        self.wished = pulled
        """The mode that was last asked for."""
        self._mode_asked = self._mode_seen = int(pulled)
        self.pushed_until: float = -FOREVER
        """Up to here everything came while the stream was pushed."""
        self.serial = 0
        self.seen = 0
        self.generated = 0
        """How many events the stream has produced, sent or kept."""
        self._freed: float = -FOREVER

    def current(self, now_us: int) -> float:
        return self.watermark

    def admits(self, rows: Sequence[Row], blockers: bool, work: Work) -> bool:
        """Whether the stream may bring these events; a child that sends others is faulty."""
        foreign = self.shapes.foreign(rows)
        if blockers and type(self.stream) is not Part:  # only partial rules have contests
            foreign = len(rows)
        if not foreign:
            return True
        work.report("foreign_events", foreign)
        return False

    def want(self, ts: float, work: Work) -> None:
        if ts > self.watermark and ts not in self.asked:
            self.asked.add(ts)
            work.send(self.child, Want(self.number, ts))

    def set_mode(self, pull: bool, work: Work) -> None:
        if pull != self.wished:
            self.wished = pull
            self._mode_asked += 1
            work.send(self.child, SetMode(self.number, pull, self._mode_asked))

    @property
    def steadily_pushed(self) -> bool:
        """It is pushed, and nothing else was asked for that the child has not yet heard."""
        return not self.pull and not self.wished and self._mode_seen == self._mode_asked

    @property
    def steadily_pulled(self) -> bool:
        """It is pulled, and nothing else was asked for that the child has not yet heard."""
        return self.pull and self.wished and self._mode_seen == self._mode_asked

    def awaken(self, least_us: int, greatest_us: int, where: Conditions, work: Work) -> int:
        """Ask for a window; the serial number under which the child will say that it has been served."""
        self.serial += 1
        work.send(self.child, Awakening(self.number, self.serial, least_us, greatest_us, where))
        return self.serial

    def reverse_mark(self, ts: float, work: Work) -> None:
        """Promise that nothing before ``ts`` will be asked for any more."""
        if self.pull and ts > self._freed:
            self._freed = ts
            work.send(self.child, ReverseMark(self.number, ts))

    def take_watermark(self, watermark: Watermark, work: Work) -> None:
        # Modes are asked for by turns, the first is to be pulled: a child can only be in one that it was asked for.
        if (
            not self._mode_seen <= watermark.mode <= self._mode_asked
            or watermark.pull != watermark.mode % 2
            or watermark.serial > self.serial
        ):
            work.report("contradicting_watermarks")
            return
        self.generated = watermark.generated
        moved = watermark.ts > self.watermark or watermark.serial > self.seen or watermark.pull != self.pull
        if watermark.pull and not self.pull:
            self.pushed_until = watermark.ts
        self.pull = watermark.pull
        moved = moved or watermark.mode > self._mode_seen
        self._mode_seen = watermark.mode
        self.seen = watermark.serial
        if watermark.ts > self.watermark:
            self.watermark = watermark.ts
            if self.asked:
                self.asked = {ts for ts in self.asked if ts > watermark.ts}
        if moved:
            self.tell(work)


def _types(stream: Stream) -> frozenset[str]:
    match stream:
        case Filter(name):
            return frozenset((name,))
        case Whole(rule):
            return frozenset((rule.emits,))
        case Part(partial):
            return partial.types


class Merge(Feed):
    """Several feeds as one: a filter whose events come from here and from children, or a stream that only passes."""

    def __init__(self, inputs: Sequence[Feed]) -> None:
        super().__init__()
        self.inputs = tuple(inputs)
        self.rank = max((feed.rank for feed in self.inputs), default=0)
        for feed in self.inputs:
            feed.consumers.append(self)

    def current(self, now_us: int) -> float:
        return min((feed.current(now_us) for feed in self.inputs), default=FOREVER)

    def want(self, ts: float, work: Work) -> None:
        for feed in self.inputs:
            feed.want(ts, work)

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self.pass_on(rows, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        self.pass_blockers(rows, work)

    def watermark_moved(self, work: Work) -> None:
        self.tell(work)


class Sieve(Feed):
    """The rows of a feed that meet a condition."""

    def __init__(self, source: Feed, condition: Condition) -> None:
        super().__init__()
        self.source = source
        self.condition = condition
        self.seen = 0
        self.passed = 0
        """How many rows came, and how many of them met the condition."""
        self.rank = source.rank
        source.consumers.append(self)

    def current(self, now_us: int) -> float:
        return self.source.current(now_us)

    def want(self, ts: float, work: Work) -> None:
        self.source.want(ts, work)

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        condition = self.condition
        passed = [row for row in rows if condition(row)]
        self.seen += len(rows)
        if passed:
            self.passed += len(passed)
            self.pass_on(passed, work)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("blockers are sent for partial rules, never for filters")

    def watermark_moved(self, work: Work) -> None:
        self.tell(work)
