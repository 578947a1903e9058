"""A node: a deterministic state machine without sockets, clocks, threads or randomness.

    effects = core.handle(input, now_us)

The daemon and the simulator drive the same core. Everything it knows can be printed (``tables``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias, assert_never

from headwater.node import invariants, snapshot
from headwater.node.effects import (
    Born,
    BornTogether,
    Effect,
    Fetch,
    Fetched,
    FetchFailed,
    Input,
    LinkReset,
    MessageReceived,
    OrderReceived,
    SourcesEnded,
    SourcesHeard,
    SourcesUnheard,
    TimerFired,
)
from headwater.node.engine.remote_memory import Key, Place
from headwater.node.plans.forest import Forest
from headwater.node.plans.stage_cost import PATIENT, StagePatience
from headwater.node.remote.kinds import misfit
from headwater.node.remote.memory import Memory
from headwater.node.remote.relay import Relay
from headwater.node.step import Work
from headwater.node.streams.feeds import Inlet
from headwater.node.streams.neighbour_checks import Testimony, are_exact
from headwater.node.streams.outbox import Inbox, Outbox
from headwater.node.streams.outlets import Outlet
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.messages.neighbour import Awakening, Batch, Message, Notify, ReverseMark, Run, SetMode, Want
from headwater.protocol.messages.plans import Adopt
from headwater.protocol.messages.remote import ElementAnswer, ElementRefusal, ElementRequest
from headwater.protocol.messages.tallies import TallyAnswer, TallyRequest
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import Versions
from headwater.protocol.wire.received_columns import Columns

TICKS_PER_HORIZON = 4  # how often a node tells slow watermarks and forgets what has passed
TICKS_PER_SETTLING = 4  # how often roots tell how far everything has been delivered: about once per horizon
TICK_IDLE_US = 1_000_000  # of a node that serves no rule with a window
TICK_MOST_US = 3_600_000_000  # even if no window bounds what rules need
IDLE_DOUBLINGS = 8  # an idle node does its housekeeping up to 2^8 times less often
FETCH_AGAIN_US = 1_000_000  # after a table could not be asked; by then the runtime has tried several times
HISTORY_HORIZONS = 3  # bodies are remembered as long as a partial match may still refer to them, and some more


_ts_of = itemgetter(0)

Pieces: TypeAlias = dict[int, list[Sequence[Any]]]
"""Rows by the number of a stream, in as many pieces as they came."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What an operator or a test may set. None of it changes results."""

    tick_least_us: int = 100_000
    """The shortest time between two rounds of housekeeping and slow watermarks."""
    review_us: int = 10_000_000
    """The shortest time between two reviews of the masters of push-pull."""
    values_in_awakenings: bool = True
    """Awakenings carry the values and predicates that a known event excludes others by, and not only a window."""
    replayed: bool = False
    """Events have the times of traces: the latest event, not the clock, tells how old something is."""
    patience: StagePatience = PATIENT
    """How long a stage of a plan may cost more than its fallback."""
    restless: bool = False
    """Masters of push-pull change at every review: a test that a change loses and repeats nothing."""


class NodeCore:
    """The whole of one node."""

    def __init__(
        self,
        name: str,
        neighbours: Mapping[str, int],
        settings: NodeSettings | None = None,
        memory: Memory | None = None,
    ) -> None:
        """``neighbours`` with the configured delay of the link to each, in microseconds; ``memory`` for elements of
        remote tables."""
        self.name = name
        self.settings = settings or NodeSettings()
        self.memory = Memory(()) if memory is None else memory
        """The elements of remote tables that are at hand, and those that are under way: all rules share it."""
        self.relay = Relay(self.memory, neighbours)
        """Where elements are asked for, and who waits for them."""
        self._failed: dict[Place, None] = {}
        """Elements that could not be had and are asked for again."""
        self.forest = Forest(
            name, neighbours, self.memory, values=self.settings.values_in_awakenings, patience=self.settings.patience
        )
        self.trees = self.forest.trees
        self.works = self.forest.works
        self.local = self.forest.local
        self.inlets = self.forest.inlets
        self.outlets = self.forest.outlets
        self._outboxes = {neighbour: Outbox(neighbour) for neighbour in neighbours}
        self._testimony = Testimony()
        self._inboxes = {neighbour: Inbox(self._testimony) for neighbour in neighbours}
        self._timers: dict[str, int] = {}
        self._review_us = -(1 << 62)
        self._ticks = 0
        self._idle_ticks = 0
        self._active = False
        """Whether events have come since the last tick."""
        self._latest_us: int | None = None
        """The time of the latest event seen, where events are replayed."""
        self._handled_us = -(1 << 62)
        """The clock at the last input: nothing was promised by a later one."""

    # ---------------------------------------------------------------------------------------------------------- inputs

    def handle(self, received: Input, now_us: int) -> list[Effect]:
        """Take one input; what must be done now, in this order."""
        work = NOTED.step = Work(now_us, self._outboxes, self._timers)
        self.memory.now_us = now_us
        try:
            self._take(received, work)
            if work.queue:
                work.run()
            if work.boxes:
                work.flush()
        finally:
            NOTED.step = None
        work.report_failures()
        if wanted := self.memory.take_wanted():
            self.relay.ask(wanted, work)
        self._handled_us = max(self._handled_us, now_us)
        return work.effects

    def _take(self, received: Input, work: Work) -> None:
        match received:  # what comes often first: this runs for every message
            case MessageReceived():
                self._received(received.neighbour, received.message, work)
            case Born():
                self._born(received, work)
            case BornTogether():
                for born in received.births:
                    self._born(born, work)
            case TimerFired():
                self._fired(received.name, work)
            case SourcesEnded() | SourcesUnheard() | SourcesHeard():
                self._told_of_sources(received, work)
            case OrderReceived():
                self.forest.ordered(received.order, work)
                if isinstance(received.order, Adopt):
                    self.relay.follow(received.order.share.ways, work)
                work.timer("tick", work.now_us + self._tick_us(), idle=True)
            case LinkReset():
                self._link_reset(received.neighbour, work)
            case Fetched():
                self._fetched(received, work)
            case FetchFailed():
                self._fetch_failed(received, work)
            case _:
                assert_never(received)

    def _born(self, born: Born, work: Work) -> None:
        self._woken(work)
        source = born.source
        feed = self.forest.feed_of(source)
        if feed is None:
            work.report("unadvertised_events", len(born.events))
            return
        if self.settings.replayed and born.events:
            self._saw(max(event[0] for event in born.events))
        events: Sequence[Any] = born.events
        if not are_exact(events):
            events = [event for event in events if self._testimony.agrees((event[1], event[2]), event)]
            if len(events) < len(born.events):
                work.report("contradicting_events", len(born.events) - len(events))
        feed.born(source, events, work)
        if born.watermark is not None:
            feed.advanced(source, born.watermark, work)

    def _told_of_sources(self, told: SourcesEnded | SourcesUnheard | SourcesHeard, work: Work) -> None:
        match told:
            case SourcesEnded(sources):
                self._sources_ended(sources, work)
            case SourcesUnheard(sources, since_us):
                for number in sources:
                    self.forest.unheard.setdefault(number, max(since_us, self._handled_us))
            case SourcesHeard(sources):
                self.forest.heard(sources, work)

    def _sources_ended(self, sources: Sequence[int], work: Work) -> None:
        for feed in self.local.values():
            ended = feed.sources.keys() & set(sources)
            if ended:
                feed.ended |= ended
                feed.moved(work)

    def _link_reset(self, neighbour: str, work: Work) -> None:
        """The neighbour has lost its memory: no event that it was sent may be referred to any more."""
        if neighbour in self._outboxes:
            self._outboxes[neighbour] = Outbox(neighbour)
            self._inboxes[neighbour] = Inbox(self._testimony)
            self.forest.link_reset(neighbour, work)
            self.relay.link_reset(neighbour, work)

    def _fired(self, name: str, work: Work) -> None:
        due = self._timers.get(name)
        if due is None or due > work.now_us:
            return
        del self._timers[name]
        if name == "tick":
            self._tick(work)
        elif name == "watch":
            self.forest.look(work)
        elif name == "fetch":
            self._fetch_again(work)
        elif name == "silence":
            self.relay.silence(work)
        elif name.startswith("local "):
            feed = self.local.get(name.removeprefix("local "))
            if feed is not None:
                feed.moved(work)

    def _received(self, neighbour: str, message: Message, work: Work) -> None:
        if neighbour not in self._inboxes:
            work.report("unknown_neighbour")
            return
        if isinstance(message, Batch):  # most messages are batches or wants
            self._batch(neighbour, message, work)
            return
        if isinstance(message, Want):
            if (outlet := self._outlet(neighbour, message.number, work)) is not None:
                outlet.want(message.ts, work)
            return
        match message:
            case Notify(tree, epoch, rows):
                if (tasks := self.forest.tasks_of(tree, epoch, work)) is not None:
                    tasks.subscribers.deliver(rows, work)
            case Awakening(number) | ReverseMark(number) | SetMode(number):
                if (outlet := self._outlet(neighbour, number, work)) is not None:
                    _steer(outlet, message, work)
            case TallyRequest(number) | TallyAnswer(number):
                if not any(tasks.tally(neighbour, message, work) for tasks in self.works.values()):
                    self.forest.report_stream(neighbour, number, work)
            case ElementRequest() | ElementAnswer() | ElementRefusal():
                self._heard_of_elements(neighbour, message, work)
            case _:
                self.forest.received(neighbour, message, work)
                work.timer("tick", work.now_us + self._tick_us(), idle=True)

    # ---------------------------------------------------------------------------------------------------------- events

    def _batch(self, neighbour: str, batch: Batch, work: Work) -> None:
        inbox = self._inboxes[neighbour]
        if batch.floor_us is not None:  # first: what comes with it, however old, may be referred to again
            inbox.forget_before(batch.floor_us)
        if batch.runs:
            self._woken(work)
            real, blockers = self._by_stream(inbox, batch.runs, work)
            for number, pieces in blockers.items():
                inlet = self._inlet(neighbour, number, work)
                taken = _joined(pieces)
                if inlet is not None and inlet.admits(taken, True, work):
                    inlet.pass_blockers(taken, work)
            for number, pieces in real.items():
                inlet = self._inlet(neighbour, number, work)
                taken = _joined(pieces)
                if inlet is not None and inlet.admits(taken, False, work):
                    inlet.pass_on(taken, work)
        for watermark in batch.watermarks:
            inlet = self._inlet(neighbour, watermark.number, work)
            if inlet is not None:
                inlet.take_watermark(watermark, work)

    def _by_stream(self, inbox: Inbox, runs: Sequence[Run], work: Work) -> tuple[Pieces, Pieces]:
        """The rows of a batch, by the number of the stream they are for: those to match, and those that block."""
        real: Pieces = {}
        blockers: Pieces = {}
        for run in runs:
            rows = inbox.rows(run)
            if len(rows) < len(run.identities):
                why = "unknown_body" if run.rows is None else "contradicting_events"
                work.report(why, len(run.identities) - len(rows))
                if not rows:
                    continue
            pieces = blockers if run.blocker else real
            for number in run.streams:
                before = pieces.get(number)
                if before is None:
                    pieces[number] = [rows]
                else:
                    before.append(rows)
            if self.settings.replayed:
                self._saw(rows.greatest_us if type(rows) is Columns else max(map(_ts_of, rows)))
        return real, blockers

    def _outlet(self, neighbour: str, number: int, work: Work) -> Outlet | None:
        outlet = self.outlets.get((neighbour, number))
        if outlet is None:
            self.forest.report_stream(neighbour, number, work)
        return outlet

    def _inlet(self, neighbour: str, number: int, work: Work) -> Inlet | None:
        inlet = self.inlets.get(number)
        if inlet is None or inlet.child != neighbour:
            self.forest.report_stream(neighbour, number, work)
            return None
        return inlet

    # ------------------------------------------------------------------------------------------------- remote elements

    def _heard_of_elements(
        self, neighbour: str, message: ElementRequest | ElementAnswer | ElementRefusal, work: Work
    ) -> None:
        try:
            match message:
                case ElementRequest():
                    self.relay.requested(neighbour, message, work)
                case ElementAnswer():
                    self._came(self.relay.answered(neighbour, message), work)
                case ElementRefusal():
                    self._ask_later(self.relay.refused(neighbour, message, work), work)
        except ValueError:
            work.report("malformed_elements")

    def _fetched(self, fetched: Fetched, work: Work) -> None:
        under_way = self.memory.under_way
        for table in dict.fromkeys(table for table, key, _ in fetched.elements if (table, key) in under_way):
            self.memory.took(table, fetched.took_us)
        self._came(fetched.elements, work)

    def _came(self, elements: Sequence[tuple[str, Key, Versions | None]], work: Work) -> None:
        """Elements have come: whatever waits for them goes on, here and at neighbours."""
        stamped = [(table, key, self.memory.stamped(table, element)) for table, key, element in elements]
        supplied = [element for element in stamped if self.memory.supply(*element)]
        unasked = len(stamped) - len(supplied)
        if unasked and not all(self.memory.terms_of(table).whole for table, _, _ in stamped):
            work.report("unasked_elements", unasked)
        by_table: dict[str, list[Key]] = {}
        for table, key, _ in stamped:
            by_table.setdefault(table, []).append(key)
        for table, keys in by_table.items():
            self.memory.came_together(table, keys)
        for table, key, element in supplied:
            self._failed.pop((table, key), None)
            if (why := misfit(self._rules(), table, key, element)) is not None:
                work.failures.note(f"table {table}", why)
        self.relay.came(supplied, work)
        for tasks in self.works.values():
            for task in tasks.tasks:
                task.supplied(supplied, work)

    def _rules(self) -> Iterator[Rule]:
        """The rules that are evaluated here, and the parts of others."""
        for tasks in self.works.values():
            for task in tasks.tasks:
                yield from task.engine.program.rules

    def _fetch_failed(self, failed: FetchFailed, work: Work) -> None:
        """What is waited for is asked for again. What is not is decided without: the record of this failure in the
        journal has a node that crashes decide the same again."""
        places = [place for place in failed.places if place in self.memory.under_way]
        instead = [(*place, element) for place in places if (element := self.memory.instead(place[0]))]
        for _, _, element in instead:
            work.report(f"{element.on_failure}ed_elements")
        decided = {(table, key) for table, key, _ in instead}
        self._ask_later([place for place in places if place not in decided], work)
        if instead:
            self._came(instead, work)

    def _ask_later(self, places: Iterable[Place], work: Work) -> None:
        """Ask again for what could not be had, after a while."""
        places = [place for place in places if place in self.memory.under_way]
        if not places:
            return
        work.report("failed_fetches", len(places))
        for place in places:
            if self.memory.is_ahead(place) and place not in self.relay.askers:
                self.memory.give_up(place)  # if something needs it after all, it is asked for once more
            else:
                self._failed[place] = None
        if self._failed:
            work.timer("fetch", work.now_us + FETCH_AGAIN_US)

    def _fetch_again(self, work: Work) -> None:
        places, self._failed = self._failed, {}
        if places:
            self.relay.ask(places, work)

    def _forget_classes(self) -> None:
        """What rules that are gone have counted is worth nothing to the others."""
        if self.memory.counts():
            engines = (task.engine for tasks in self.works.values() for task in tasks.tasks)
            self.memory.retain(
                {id(c) for engine in engines if engine.asking is not None for c in engine.asking.classes}
            )

    def awaiting(self) -> int:
        """How many evaluations, and inputs behind them, wait for elements."""
        if not self.memory.under_way:
            return 0
        return sum(task.engine.awaiting() for tasks in self.works.values() for task in tasks.tasks)

    def waiting_by_table(self) -> dict[str, int]:
        """How many evaluations wait for elements of each table."""
        by_table: dict[str, int] = {}
        if self.memory.under_way:
            engines = (task.engine for tasks in self.works.values() for task in tasks.tasks)
            for asking in (engine.asking for engine in engines):
                for table, number in asking.held_by_table().items() if asking is not None else ():
                    by_table[table] = by_table.get(table, 0) + number
        return by_table

    def fetches(self) -> list[Fetch]:
        """What a runtime that has lost what it was doing must do again: fetch all that is under way from providers."""
        under_way = tuple(
            place for place in self.memory.under_way if place not in self._failed and self.relay.is_fetched_here(place)
        )
        return [Fetch(under_way)] if under_way else []

    # ---------------------------------------------------------------------------------------------------- housekeeping

    def _tick_us(self) -> int:
        horizon_us = self.forest.horizon_us
        if not horizon_us:
            return TICK_IDLE_US
        if self.settings.replayed:  # it is not known how fast the time of the events passes
            return self.settings.tick_least_us
        return min(TICK_MOST_US, max(self.settings.tick_least_us, horizon_us // TICKS_PER_HORIZON))

    def _saw(self, ts: int) -> None:
        if self._latest_us is None or ts > self._latest_us:
            self._latest_us = ts

    def _time_of_events_us(self, now_us: int) -> int:
        """Up to where events have come, as far as this node knows."""
        return now_us if self._latest_us is None else self._latest_us

    def _tick(self, work: Work) -> None:
        """Tell slow watermarks, so that those above can free what has passed, and forget old bodies."""
        for tasks in self.works.values():
            for task in tasks.tasks:
                work.touch(task)
        work.run()
        for outlet in self.outlets.values():
            outlet.tell_slowly(work)
        for tasks in self.works.values():
            if tasks.started and tasks.until_us is None:
                for task in tasks.tasks:
                    task.want_to_free(self._time_of_events_us(work.now_us) - self._tick_us(), work)
        if work.now_us >= self._review_us:
            self._review_us = work.now_us + self.settings.review_us
            for tasks in self.works.values():
                tasks.review(work, restless=self.settings.restless)
        self._ticks += 1
        self._idle_ticks = 0 if self._active or self.held() else self._idle_ticks + 1
        self._active = False
        if self._ticks % TICKS_PER_SETTLING == 0:
            self.forest.settle(work)
        self.forest.end_drained(work)
        self._forget_classes()
        self._forget_the_past(work)
        rest = min(self._idle_ticks, IDLE_DOUBLINGS)  # a node that receives and holds nothing need not hurry
        work.timer("tick", work.now_us + (self._tick_us() << rest), idle=True)

    def _woken(self, work: Work) -> None:
        """Events have come: do the housekeeping as often as usual again."""
        self._active = True
        if self._idle_ticks:
            self._idle_ticks = 0
            work.timer("tick", work.now_us + self._tick_us(), idle=True)

    def _forget_the_past(self, work: Work) -> None:
        """Bodies that no neighbour will refer to, events that nothing started later can need, and old deliveries."""
        reach_us = HISTORY_HORIZONS * (self.forest.horizon_us + self._tick_us()) + self.forest.lateness_us
        unheard_us = min(self.forest.unheard.values(), default=work.now_us)
        floor_us = min(self._time_of_events_us(work.now_us), unheard_us) - reach_us
        for outbox in self._outboxes.values():
            outbox.forget_before(floor_us)
        self._testimony.forget_before(floor_us)
        self.forest.forget_the_past(min((feed.least(work.now_us) for feed in self.local.values()), default=work.now_us))

    # --------------------------------------------------------------------------------------------------------- showing

    def tables(self) -> dict[str, Any]:
        """Everything this node knows, as plain data."""
        return {
            "node": self.name,
            "plans": {plan: share.table() for plan, share in sorted(self.forest.shares.items())},
            "sources": {name: feed.lateness_us() for name, feed in sorted(self.local.items())},
            "trees": self.trees.table(),
            "work": [tasks.table() for _, tasks in sorted(self.works.items())],
            "history": {name: len(outbox.history) for name, outbox in sorted(self._outboxes.items())},
            "horizon_us": self.forest.horizon_us,
        }

    @property
    def outboxes(self) -> Mapping[str, Outbox]:
        """By neighbour, the events that were sent to it and may be referred to again. To be read, not changed."""
        return self._outboxes

    @property
    def inboxes(self) -> Mapping[str, Inbox]:
        """By neighbour, the events that it has sent and may refer to again. To be read, not changed."""
        return self._inboxes

    @property
    def testimony(self) -> Testimony:
        """What was said of events, to tell which neighbour contradicts it. To be read, not changed."""
        return self._testimony

    @property
    def timers(self) -> Mapping[str, int]:
        """The timers that the core has set, by name, with the time at which each is due."""
        return self._timers

    def save(self) -> bytes:
        """The whole state of the node."""
        return snapshot.save(self)

    @staticmethod
    def restored(data: bytes) -> NodeCore:
        """The node as it was saved."""
        core = snapshot.restore(data)
        if not isinstance(core, NodeCore):
            raise snapshot.StateError("this is not a saved node")
        return core

    def validate(self, now_us: int) -> list[str]:
        """What contradicts itself or is kept for too long, in sentences; nothing, unless there is a bug."""
        return list(invariants.broken(self, now_us))

    def unfinished(self) -> list[str]:
        """What still waits for something, in sentences; nothing when all sources have ended and been heard."""
        return list(invariants.unfinished(self))

    def held(self) -> int:
        """How many rows, partial matches and remembered identities are kept in all."""
        kept = sum(tasks.held() for tasks in self.works.values()) + self.forest.delivered.held()
        kept += sum(len(feed.history) for feed in self.local.values())
        kept += sum(len(outbox.history) for outbox in self._outboxes.values())
        kept += self._testimony.held()
        return kept + sum(len(inbox.bodies) for inbox in self._inboxes.values())


def _steer(outlet: Outlet, message: Awakening | ReverseMark | SetMode, work: Work) -> None:
    """What the other end of a stream says of it."""
    match message:
        case Awakening():
            outlet.awaken(message, work)
        case ReverseMark(_, ts):
            outlet.free_before(ts, work)
        case SetMode(_, pull, serial):
            outlet.set_mode(pull, serial, work)


def _joined(pieces: list[Sequence[Any]]) -> Sequence[Any]:
    """What came for one stream; columns that came alone stay what they are."""
    return pieces[0] if len(pieces) == 1 else list(chain.from_iterable(pieces))
