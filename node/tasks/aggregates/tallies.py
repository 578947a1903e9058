"""Keeps and counts aggregated events at the node where they enter, and merges the tallies of the nodes below.

A *point* answers for one node and all below it. Its *store* holds the events of this node; an *inlet* asks a child, an
*outlet* answers the parent. A question is answered once, when everything it is about is there.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.node.plans.catalog import Catalog
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Feed
from headwater.node.streams.outbox import type_of
from headwater.node.tasks.predicates import known_condition, row_condition
from headwater.protocol.errors import RuleError
from headwater.protocol.events import EventType
from headwater.protocol.messages.neighbour import Deploy
from headwater.protocol.messages.tallies import Question, Tally, TallyAnswer, TallyRequest
from headwater.protocol.tallies import Part, merged, nothing, tally

if TYPE_CHECKING:
    from headwater.node.plans.tree_tasks import TreeTasks

Row = tuple[Any, ...]

LAST_RANK = 1 << 30  # answers go out together, after every task has run


class Asker(Protocol):
    """A task that asks a point."""

    def answered(self, serial: int, part: Part, work: Work) -> None: ...


class TallyStore:
    """The events of one kind that enter at this node, as long as they may be asked about."""

    def __init__(self, aggregate: Tally, event_type: EventType, composite: bool, feeds: Sequence[Feed]) -> None:
        self._asked = aggregate
        self._event_type = event_type
        self._composite = composite
        self._feeds = tuple(feeds)
        self._condition = row_condition(aggregate.where, event_type, composite)
        self._rows: list[Row] = []
        """In trace order."""
        self._waiting: list[tuple[Question, TallyPoint]] = []
        for feed in self._feeds:
            feed.consumers.append(self)
        self._look = known_condition(aggregate.looks, event_type, composite)
        attribute = aggregate.attribute
        self._column = None if attribute is None else column_of(event_type, attribute)
        kind = event_type.kind(attribute) if attribute in event_type.attributes else "int"
        self._twins = composite or kind in ("any", "float")

    # Events

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        condition = self._condition
        for row in rows:
            if type_of(row) == self._asked.type and (condition is None or condition(row)):
                insort(self._rows, row)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("neither sources nor whole rules send blockers")

    def watermark_moved(self, work: Work) -> None:
        if not self._waiting:
            return
        watermark = self._watermark(work)
        ready = [pair for pair in self._waiting if pair[0].before[0] <= watermark]
        if ready:
            self._waiting = [pair for pair in self._waiting if pair[0].before[0] > watermark]
            for question, point in ready:
                point.answered(question.serial, self._answer(question), work)

    def _watermark(self, work: Work) -> float:
        return min((feed.current(work.now_us) for feed in self._feeds), default=FOREVER)

    # Questions

    def ask(self, question: Question, point: TallyPoint, work: Work) -> None:
        """Answer the point as soon as no event before the end of the range can follow."""
        if question.before[0] <= self._watermark(work):
            point.answered(question.serial, self._answer(question), work)
            return
        self._waiting.append((question, point))
        for feed in self._feeds:
            feed.want(question.before[0], work)

    def _answer(self, question: Question) -> Part:
        rows = self._rows[bisect_left(self._rows, question.least) : bisect_left(self._rows, question.before)]
        if self._look is not None:
            look, values = self._look, question.known
            rows = [row for row in rows if look(row, values)]
        return tally(self._asked.function, rows, self._column, twins=self._twins)

    def free_before(self, ts: float) -> None:
        """Nothing before this will be asked for; what waits for an answer is still needed."""
        ts = min([ts, *(question.least[0] for question, _ in self._waiting)])
        if self._rows and self._rows[0][0] < ts:
            del self._rows[: bisect_left(self._rows, (ts,))]

    def held(self) -> int:
        return len(self._rows) + len(self._waiting)

    def unfinished(self) -> list[str]:
        return [f"the question for events before {question.before} is not answered" for question, _ in self._waiting]


class TallyInlet:
    """Asks one child."""

    def __init__(self, child: str, number: int, aggregate: Tally) -> None:
        self.child = child
        self.number = number
        self.asked = aggregate

    def ask(self, questions: tuple[Question, ...], work: Work) -> None:
        work.send(self.child, TallyRequest(self.number, questions))

    def free_before(self, ts: float, work: Work) -> None:
        work.send(self.child, TallyRequest(self.number, (), ts))


@dataclass(slots=True)
class _Open:
    """A question on its way: who asked it under which serial, and what is still missing of the answer."""

    asker: Asker
    serial: int
    missing: int
    part: Part


class TallyPoint:
    """Answers questions about all events of one kind at this node and below."""

    def __init__(self, aggregate: Tally, store: TallyStore | None, inlets: Sequence[TallyInlet]) -> None:
        self.asked = aggregate
        self.store = store
        self.inlets = tuple(inlets)
        self._serials = Numbers()
        self._open: dict[int, _Open] = {}
        self._floors: list[tuple[Asker, float]] = []
        self._floor = -FOREVER

    def join(self, asker: Asker) -> None:
        """From now on this asker may ask, about anything until it says otherwise."""
        self._floors.append((asker, -FOREVER))

    def ask(self, asker: Asker, questions: Sequence[Question], work: Work) -> None:
        """``asker.answered`` is called for each of them when all is known, some perhaps at once."""
        renumbered = []
        for question in questions:
            serial = self._serials.next()
            missing = len(self.inlets) + (self.store is not None)
            self._open[serial] = _Open(asker, question.serial, missing, nothing(self.asked.function))
            renumbered.append(Question(serial, question.least, question.before, question.known))
        for inlet in self.inlets:
            inlet.ask(tuple(renumbered), work)
        for question in renumbered:
            if self.store is not None:
                self.store.ask(question, self, work)
            elif not self.inlets:
                self._conclude(question.serial, work)

    def answered(self, serial: int, part: Part, work: Work) -> None:
        """A child, or the store, has answered."""
        open_question = self._open.get(serial)
        if open_question is None:
            work.report("unknown_answer")
            return
        open_question.part = merged(self.asked.function, open_question.part, part)
        open_question.missing -= 1
        if not open_question.missing:
            self._conclude(serial, work)

    def _conclude(self, serial: int, work: Work) -> None:
        open_question = self._open.pop(serial)
        open_question.asker.answered(open_question.serial, open_question.part, work)

    def free_before(self, asker: Asker, ts: float, work: Work) -> None:
        """This asker will not ask about anything before ``ts`` any more."""
        self._floors = [(other, max(ts, floor_us) if other is asker else floor_us) for other, floor_us in self._floors]
        floor = min(floor_us for _, floor_us in self._floors)
        if floor > self._floor:
            self._floor = floor
            for inlet in self.inlets:
                inlet.free_before(floor, work)
            if self.store is not None:
                self.store.free_before(floor)

    def held(self) -> int:
        return len(self._open) + (self.store.held() if self.store is not None else 0)

    def unfinished(self) -> list[str]:
        waits = [] if self.store is None else self.store.unfinished()
        return waits + [f"{len(self._open)} questions are not answered"] * bool(self._open)


class TallyOutlet:
    """Answers the parent; what becomes known at the same time goes out together."""

    rank = LAST_RANK

    def __init__(self, neighbour: str, stream: int, number: int, point: TallyPoint) -> None:
        self.neighbour = neighbour
        self.stream = stream
        self.number = number
        """Among the tasks of the node."""
        self.queued = False
        self._point = point
        self._answers: list[tuple[int, Part]] = []
        point.join(self)

    def requested(self, message: TallyRequest, work: Work) -> None:
        if message.questions:
            self._point.ask(self, message.questions, work)
        if message.floor_us is not None:
            self._point.free_before(self, message.floor_us, work)

    def answered(self, serial: int, part: Part, work: Work) -> None:
        self._answers.append((serial, part))
        work.touch(self)

    def run(self, work: Work) -> None:
        answers, self._answers = self._answers, []
        work.send(self.neighbour, TallyAnswer(self.stream, tuple(answers)))


class Tallies:
    """The points of one node in one tree, and the streams between them and those of its neighbours."""

    def __init__(self, tasks: TreeTasks, catalog: Catalog, numbers: Numbers) -> None:
        self._work = tasks
        self._catalog = catalog
        self._numbers = numbers
        self.points: dict[Tally, TallyPoint] = {}
        self.inlets: dict[int, TallyPoint] = {}
        """The points that await answers, by the number of the stream."""
        self.outlets: dict[int, TallyOutlet] = {}

    def point(self, aggregate: Tally, work: Work) -> TallyPoint:
        """What answers such questions here; made, with everything below that it needs, when it is first asked for."""
        point = self.points.get(aggregate)
        if point is None:
            tasks, inlets, store = self._work, [], None
            for producer in tasks.producers(aggregate.type):
                if producer:
                    inlet = TallyInlet(producer, self._numbers.next(), aggregate)
                    work.send(producer, Deploy(tasks.tree, tasks.epoch, inlet.number, aggregate))
                    inlets.append(inlet)
                else:
                    store = TallyStore(
                        aggregate,
                        self._catalog.type(aggregate.type),
                        aggregate.type in self._catalog.composites,
                        tasks.local_feeds(aggregate.type),
                    )
            point = self.points[aggregate] = TallyPoint(aggregate, store, inlets)
            self.inlets |= {inlet.number: point for inlet in inlets}
        return point

    def serve(self, stream: int, aggregate: Tally, work: Work) -> None:
        """The parent will ask such questions."""
        parent = self._work.parent
        assert parent is not None
        self.outlets[stream] = TallyOutlet(parent, stream, self._numbers.next(), self.point(aggregate, work))

    def received(self, neighbour: str, message: TallyRequest | TallyAnswer, work: Work) -> bool:
        """Take a message if it belongs to this tree."""
        match message:
            case TallyRequest(number):
                outlet = self.outlets.get(number)
                if outlet is None or outlet.neighbour != neighbour:
                    return False
                outlet.requested(message, work)
                return True
            case TallyAnswer(number, answers):
                point = self.inlets.get(number)
                if point is None or neighbour not in (inlet.child for inlet in point.inlets):
                    return False
                for serial, part in answers:
                    point.answered(serial, part, work)
                return True

    def streams(self) -> set[tuple[str, int]]:
        """Every stream with the neighbour at its other end."""
        inlets = {(inlet.child, inlet.number) for point in self.points.values() for inlet in point.inlets}
        return inlets | {(outlet.neighbour, number) for number, outlet in self.outlets.items()}

    def table(self) -> list[str]:
        """What is counted here, from where."""
        return [
            f"{aggregate.function} of {aggregate.type}{'.' + aggregate.attribute if aggregate.attribute else ''} from "
            f"{', '.join([*(['here'] if point.store is not None else []), *(inlet.child for inlet in point.inlets)])}"
            for aggregate, point in self.points.items()
        ]

    def held(self) -> int:
        return sum(point.held() for point in self.points.values())

    def unfinished(self) -> list[str]:
        """What still waits for an answer."""
        return [
            f"{point.asked.function} of {point.asked.type}: {waits}"
            for point in self.points.values()
            for waits in point.unfinished()
        ]


def column_of(event_type: EventType, attribute: str) -> int:
    """Where an attribute stands in a row."""
    header = {"ts": 0, "node": 1, "seq": 2}
    place = header.get(attribute, event_type.position(attribute))
    if place is None:
        raise RuleError(f"{event_type.name} has no attribute {attribute!r} to aggregate")
    return place
