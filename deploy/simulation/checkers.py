"""Checkers that observe a simulated run: what crosses links, what nodes hold, and whether neighbours agree.

They know only what is said in docs/architecture.md about streams and watermarks, and raise an AssertionError at the
first thing that contradicts it, with the node or link, the stream, the virtual time and the seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from headwater.node.core import NodeCore
from headwater.node.effects import Effect, Input, OrderReceived, Report, SetTimer, TimerFired
from headwater.node.invariants import forgotten_bodies
from headwater.node.plans.dataflow import describe
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.protocol.composites import Composite
from headwater.protocol.messages.neighbour import (
    Awakening,
    Batch,
    Deploy,
    Filter,
    Message,
    Notify,
    Part,
    SetMode,
    Stream,
    Watermark,
)
from headwater.protocol.messages.plans import Adopt
from headwater.protocol.messages.tallies import Tally

FORBIDDEN = frozenset(
    {"unknown_body", "unknown_stream", "unknown_tree", "unknown_message", "unknown_answer", "unknown_source"}
)
"""Counters that stay at 0 while the network is not changed and no frame is forged."""


@dataclass(slots=True)
class _Stream:
    """What one stream has carried, as the link from child to parent has seen it."""

    stream: Stream
    watermark: float = float("-inf")
    serial: int = 0
    mode: int = 0
    pull: bool = False
    mode_asked: int = 0
    """The serial of the mode that the parent has last asked for. Until it holds, what was kept further down may come
    though the parent has not asked for it, since a mode holds there before it holds here."""
    real: set[Any] = field(default_factory=set)
    blockers: set[Any] = field(default_factory=set)
    newest: float = float("-inf")
    """The ts of the latest real event."""
    windows: list[tuple[int, int, int]] = field(default_factory=list)
    """Awakenings: (serial, least, greatest)."""

    def is_asked(self, ts: float) -> bool:
        """Whether an awakening that the last watermark did not speak of covers the time."""
        return any(serial > self.serial and least <= ts <= most for serial, least, most in self.windows)


class Checkers:
    """Watches one run. ``about`` says which, for the messages."""

    def __init__(self, nodes: Mapping[str, NodeCore], about: str) -> None:
        self._nodes = nodes
        self._about = about
        self._now_us = 0
        self._bodies: dict[tuple[str, str], dict[Any, float]] = {}
        """By directed link, the bodies that both ends remember, with their ts."""
        self._streams: dict[tuple[str, str, int], _Stream] = {}
        """By child, parent and number."""
        self._notified: dict[tuple[str, str, str, int], set[Any]] = {}
        self._composites: dict[Any, Any] | None = {}
        """The row that first crossed a link for each composite: all nodes must send the same one. None: a node has lost
        its memory, and values of aggregates may differ from then on."""
        self.held_max: dict[str, int] = {}
        """The most that each node was found to hold at its housekeeping."""

    def _fail(self, where: str, fault: str) -> NoReturn:
        raise AssertionError(f"{where}: {fault}; at {self._now_us} us of {self._about}")

    # ---------------------------------------------------------------------------------------------------- what happens

    def handled(self, node: str, received: Input, effects: Sequence[Effect], now_us: int, clock_us: int) -> None:
        """A node has taken an input; ``clock_us`` is what it took for the time."""
        self._now_us = now_us
        does_housekeeping = False
        for effect in effects:
            match effect:
                case Report(counter) if counter in FORBIDDEN:
                    self._fail(f"node {node}", f"{counter} after {received!r}")
                case SetTimer(name="tick"):
                    does_housekeeping = True
        match received:
            case OrderReceived(Adopt(share)):
                for inlet in (inlet for graph in share.graphs for inlet in graph.inlets):
                    begun = int(inlet.pulled)
                    laid = _Stream(inlet.stream, mode=begun, pull=inlet.pulled, mode_asked=begun)
                    self._streams.setdefault((inlet.neighbour, node, inlet.number), laid)
            # A tick that another one has overtaken does nothing; one that does its housekeeping sets the next.
            case TimerFired("tick") if does_housekeeping:
                core = self._nodes[node]
                self._none(f"node {node}", core.validate(clock_us))
                self.held_max[node] = max(self.held_max.get(node, 0), core.held())

    def sent(self, sender: str, receiver: str, message: Message, now_us: int) -> None:
        """A message leaves; links keep the order, so the receiver will see the same."""
        self._now_us = now_us
        match message:
            case Batch():
                self._batch(sender, receiver, message)
            case Deploy(number=number, stream=stream) if not isinstance(stream, Tally):
                if (receiver, sender, number) in self._streams:
                    self._fail(f"link {sender}->{receiver}", f"stream {number} is asked for twice")
                self._streams[receiver, sender, number] = _Stream(stream)
            case Awakening(number, serial, least_us, greatest_us):
                self._stream(receiver, sender, number).windows.append((serial, least_us, greatest_us))
            case SetMode(number, serial=serial):
                self._stream(receiver, sender, number).mode_asked = serial
            case Notify(tree, epoch, rows):
                notified = self._notified.setdefault((sender, receiver, tree, epoch), set())
                for row in rows:
                    if row[:4] in notified:
                        self._fail(f"link {sender}->{receiver}", f"{row!r} goes down the tree of {tree} a second time")
                    notified.add(row[:4])

    def forgot(self, node: str) -> None:
        """A node starts again with nothing, and so do the links to it."""
        self._bodies = {link: bodies for link, bodies in self._bodies.items() if node not in link}
        self._streams = {name: stream for name, stream in self._streams.items() if node not in name[:2]}
        self.lost()

    def lost(self) -> None:
        """Events are gone that only one node knew."""
        self._composites = None

    def stands(self, now_us: int) -> None:
        """Trees and tasks are set up, and nothing is under way."""
        self._now_us = now_us
        self._none("tables", disagreements(self._nodes))

    def ended(self, now_us: int, clocks_us: Mapping[str, int], *, healed: bool) -> None:
        """All sources have ended and nothing is under way; ``healed``: and nothing was lost for good."""
        self._now_us = now_us
        if not healed:
            return
        self._none("tables", disagreements(self._nodes))
        for node, core in self._nodes.items():
            self._none(f"node {node}", core.validate(clocks_us[node]))
            self._none(f"node {node}", core.unfinished())

    def _none(self, where: str, wrong: Iterable[str]) -> None:
        faults = list(wrong)
        if faults:
            self._fail(where, "; ".join(faults))

    # --------------------------------------------------------------------------------------------------------- batches

    def _batch(self, sender: str, receiver: str, batch: Batch) -> None:
        link = f"link {sender}->{receiver}"
        bodies = self._bodies.setdefault((sender, receiver), {})
        if batch.floor_us is not None:
            for identity in [identity for identity, ts in bodies.items() if ts < batch.floor_us]:
                del bodies[identity]
        watermarks = {watermark.number: watermark for watermark in batch.watermarks}
        if len(watermarks) < len(batch.watermarks):
            self._fail(link, "two watermarks of one stream in a batch")
        real: dict[int, list[float]] = {}
        for run in batch.runs:
            for position, identity in enumerate(run.identities):
                ts = self._body(link, bodies, identity, None if run.rows is None else run.rows[position])
                for number in run.streams:
                    stream = self._stream(sender, receiver, number)
                    where = f"{link}, stream {number} ({describe(stream.stream)})"
                    if run.blocker:
                        self._blocker(where, stream, identity)
                    else:
                        self._real(where, stream, identity, ts)
                        real.setdefault(number, []).append(ts)
        for number, times in real.items():
            stream = self._stream(sender, receiver, number)
            stream.newest = max(stream.newest, *times)
            where = f"{link}, stream {number} ({describe(stream.stream)})"
            for ts in times:
                self._after_watermark(where, stream, ts)
        for watermark in batch.watermarks:
            stream = self._stream(sender, receiver, watermark.number)
            self._watermark(f"{link}, stream {watermark.number} ({describe(stream.stream)})", stream, watermark)

    def _body(self, link: str, bodies: dict[Any, float], identity: Any, row: Any) -> float:
        if row is None:
            if identity not in bodies:
                self._fail(link, f"{identity} is referred to, but its body is not there")
            return bodies[identity]
        if identity in bodies:
            self._fail(link, f"the body of {identity} crosses a second time")
        bodies[identity] = row[0]
        if self._composites is not None and isinstance(row[3], Composite):
            earlier = self._composites.setdefault(identity, row)
            if earlier is not row and repr(earlier) != repr(row):  # values need not be comparable
                self._fail(link, f"{row!r} was told as {earlier!r} before")
        return float(row[0])

    def _stream(self, child: str, parent: str, number: int) -> _Stream:
        stream = self._streams.get((child, parent, number))
        if stream is None:
            self._fail(f"link {child}->{parent}", f"stream {number} was never asked for")
        return stream

    def _blocker(self, where: str, stream: _Stream, identity: Any) -> None:
        if not isinstance(stream.stream, Part):
            self._fail(where, f"{identity} blocks, but only partial rules have contests")
        if identity in stream.real:
            self._fail(where, f"{identity} comes as a blocker after it was real")
        if identity in stream.blockers:
            self._fail(where, f"{identity} comes as a blocker a second time")
        stream.blockers.add(identity)

    def _real(self, where: str, stream: _Stream, identity: Any, ts: float) -> None:
        if identity in stream.real:
            self._fail(where, f"{identity} at {ts} comes a second time")
        stream.real.add(identity)

    def _after_watermark(self, where: str, stream: _Stream, ts: float) -> None:
        """Nothing comes that the watermark has excluded."""
        settled = stream.mode == stream.mode_asked
        if stream.pull:
            if settled and isinstance(stream.stream, Filter) and ts <= stream.watermark and not stream.is_asked(ts):
                self._fail(
                    where, f"an event at {ts} comes after the watermark {stream.watermark}, and was not asked for"
                )
        elif ts <= stream.watermark:
            if not isinstance(stream.stream, Part):
                self._fail(where, f"an event at {ts} comes after the watermark {stream.watermark}")
            # The match that it is part of must end later, if its end is among what the stream sends. While another mode
            # is asked for, the end may be kept below, where that mode holds already.
            if settled and stream.newest <= stream.watermark and not stream.stream.heard:
                self._fail(
                    where, f"a part at {ts} comes, and all of its match lies before the watermark {stream.watermark}"
                )

    def _watermark(self, where: str, stream: _Stream, watermark: Watermark) -> None:
        if watermark.ts < stream.watermark:
            self._fail(where, f"the watermark goes back from {stream.watermark} to {watermark.ts}")
        if watermark.serial < stream.serial or watermark.mode < stream.mode:
            self._fail(where, f"serials go back: {watermark} after awakening {stream.serial}, mode {stream.mode}")
        if watermark.mode == stream.mode and watermark.pull != stream.pull:
            self._fail(where, f"the mode changes by itself: {watermark}")
        if watermark.serial > stream.serial:
            stream.windows = [window for window in stream.windows if window[0] > watermark.serial]
        stream.watermark, stream.serial, stream.mode, stream.pull = (
            watermark.ts,
            watermark.serial,
            watermark.mode,
            watermark.pull,
        )


# --------------------------------------------------------------------------------------------------------------- tables


def disagreements(nodes: Mapping[str, NodeCore]) -> Iterator[str]:
    """Where the tables of neighbours differ; only of interest while nothing is under way."""
    for node, core in nodes.items():
        for work in core.works.values():
            yield from _with_parent(node, work, nodes)
        for number, inlet in core.inlets.items():
            below = nodes[inlet.child].outlets.get((node, number))
            stream = f"stream {number} from {inlet.child} to {node} ({describe(inlet.stream)})"
            if below is None:
                yield f"{stream}: the child does not know it"
            elif not any(work.gives(number, below, inlet.stream) for work in nodes[inlet.child].works.values()):
                yield f"{stream}: the child gives something else"
        for parent, number in core.outlets:
            above = nodes[parent].inlets.get(number)
            if above is None or above.child != node:
                yield f"stream {number} from {node} to {parent}: the parent has not asked for it"
        yield from forgotten_bodies(core, nodes)


def _with_parent(node: str, work: PlanTasks, nodes: Mapping[str, NodeCore]) -> Iterator[str]:
    where = f"tree {work.tree}, {node}"
    for child in work.children:
        below = nodes[child].works.get((work.tree, work.epoch))
        if below is None or below.parent != node:
            yield f"{where}: {child} is a child and has another parent"
    if work.parent is None:
        return
    above = nodes[work.parent].works.get((work.tree, work.epoch))
    if above is None or node not in above.children:
        yield f"{where}: the parent {work.parent} has no such child"
        return
    if above.advertised.get(node) != frozenset(work.advertisement()):
        advertised = sorted(above.advertised.get(node, ()))
        yield f"{where}: it advertises {work.advertisement()}, the parent {work.parent} knows {advertised}"
    if above.subscribers.children.get(node) != work.subscription():
        yield f"{where}: the parent {work.parent} knows other subscriptions of it"
