"""The engine: rules in, events and watermarks in, composite events out.

    for composite in Engine(rules).run(events):  # all matches of a whole input
        print(composite)

A program that decides itself when time moves on takes the matches of three methods, each of which gives those that are
certain now and that no other call gives again:

    engine = Engine(rules)
    found = []
    for batch in batches:
        found += engine.feed(batch)          # matches of monotone rules, as soon as their parts are there
        found += engine.advance(watermark)   # nothing at or before the watermark will follow
    found += engine.close()                  # the watermark plus infinity

It reads no clock and starts no thread. The same input gives the same output in the same order.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.node.engine.codegen.rules import RulePlan
from headwater.node.engine.counting import TooManyChoices
from headwater.node.engine.intake import Handler, Row, all_of, reordering, widening
from headwater.node.engine.lineage import Lineage, NotingTable, table_of
from headwater.node.engine.next_match import NextMatch
from headwater.node.engine.next_plan import NextPlan
from headwater.node.engine.program import Program, compile_rules
from headwater.node.engine.remote_memory import RemoteMemory
from headwater.node.engine.running import run
from headwater.node.engine.runtime import TooManySubsets
from headwater.node.engine.snapshot import SnapshotError, WaitingState, decode_snapshot, encode_snapshot
from headwater.node.engine.store import Store
from headwater.node.engine.waiting import Asking
from headwater.node.engine.waiting_match import AskingNextMatch
from headwater.protocol.analysis.lookups import tables_of
from headwater.protocol.composites import Composite
from headwater.protocol.errors import ConfigError, EventError, HeadwaterError, RuleError
from headwater.protocol.events import HEADER_WIDTH, Event, EventType
from headwater.protocol.functions import Functions
from headwater.protocol.pattern import types_of
from headwater.protocol.remote import Versions
from headwater.protocol.text import listed

FOREVER = float("inf")


@dataclass(slots=True)
class _Running:
    """A rule in the engine: where its matches appear and who reads them."""

    plan: RulePlan
    matches: list[Any]
    over_limit: list[int]
    store: Store
    readers: list[Store]
    columns: tuple[int | None, ...]
    """For each attribute that readers of the type know, its place among this rule's own, or None."""
    passed_on: list[int]
    """How many composites its readers were given."""


class Engine:
    """Evaluates rules over events that may arrive in any order within the promised watermarks.

    ``rules`` is a sequence of Rule, a RuleSet as ``parse_rules`` returns it, or a Program that ``compile_rules`` made
    (the other arguments are then its own). ``types`` declares the event types; a type that is not declared takes
    whatever attributes the rules name. ``functions`` holds user functions, ``remote`` maps the names of remote tables
    to objects with ``lookup(arguments, ts)``. ``composites`` declares types of composite events whose rules run
    elsewhere: their rows are fed like events. With ``count_only`` matches are counted (see ``counts``) instead of
    listed, which for repetitions is much cheaper.

    A rule that fails on the values of an event (they cannot be compared or added, a function fails, too many matches at
    once) raises a RuleError. With ``on_failure`` it is told the rule and the sentence instead: the event completes
    nothing, and everything goes on with the next one.
    """

    def __init__(
        self,
        rules: Any,
        types: Iterable[EventType] = (),
        *,
        composites: Iterable[EventType] = (),
        functions: Functions | None = None,
        remote: Mapping[str, Any] | None = None,
        count_only: bool = False,
        on_failure: Callable[[str, str], None] | None = None,
        memory: RemoteMemory | None = None,
    ) -> None:
        self._on_failure = on_failure
        if isinstance(rules, Program):
            self.program = rules
        else:
            self.program = compile_rules(
                rules, types, composites=composites, functions=functions, remote=remote, count_only=count_only
            )
        self.memory = memory
        self.asking: Asking | None = None
        """What is asked of remote tables; None where everything is at hand."""
        if self.program.asked:
            if memory is None:
                raise ConfigError(f"the elements of {listed(self.program.asked)} are asked for, but of no memory")
            self.asking = Asking(memory, [plan.rule.name for plan, _ in self.program.plans], table_of)
        self._queue: deque[tuple[str, Any]] = deque()
        """What was given to the engine while it paused, in order."""
        self.watermark: float = -FOREVER
        """What was promised of the input."""
        self._applied: float = -FOREVER
        """How far that has been evaluated: the same, unless the engine pauses."""
        self.late_count = 0
        self._late: list[Any] = []
        self._dispatch: dict[EventType, Handler | None] = {}
        self._dispatch_composites: dict[str, Handler | None] = {}
        self._dispatch_old: dict[EventType | str, Handler | None] = {}
        self._output: float | None = None
        self._admitted: dict[str, list[EventType]] = {}
        self._start()

    def _start(self) -> None:
        """Make the running parts of the program: stores, machines, and where the matches of each rule go."""
        program = self.program
        read = program.read_types()
        self._matches: list[Composite] = []
        matches: dict[str, list[Any]] = {}
        for plan, _ in program.plans:
            matches[plan.out] = [0] if plan.counts else [] if plan.rule.emits in read else self._matches
        over = {f"v{plan.number}": [0] for plan, _ in program.plans}
        machines = [(self._machine(plan), place) for plan, place in program.machines]
        names: dict[str, Any] = {**matches, **over, **{machine.name: machine.handle for machine, _ in machines}}
        if self.asking is not None:
            names |= {name: self.asking.table(table) for table, name in program.asked.items()}
        self._stores = [
            Store(compiled, names, program.types, number, self.asking) for number, compiled in enumerate(program.stores)
        ]
        for store in self._stores:
            store.fell_asleep = self._dismiss
            store.failed = self._failed
        for machine, place in machines:
            machine.attach(self._stores[place])
        self._running: list[_Running] = []
        for plan, place in program.plans:
            own = {output.name: i for i, output in enumerate(plan.rule.attributes)}
            columns = tuple(own.get(name) for name in program.columns[plan.rule.emits].position)
            running = _Running(plan, matches[plan.out], over[f"v{plan.number}"], self._stores[place], [], columns, [0])
            self._stores[place].accept += [self._acceptor(running)] * len(plan.checks)
            if self.asking is not None and not plan.counts and self._says_what_it_rests_on(plan):
                pool = self._stores[place].compiled.pool
                self._stores[place].lineage[plan.number] = Lineage(plan, program.columns, pool)
            self._running.append(running)
        self._link()

    def _says_what_it_rests_on(self, plan: RulePlan) -> bool:
        assert self.asking is not None
        return any(isinstance(self.asking.tables.get(table), NotingTable) for table in tables_of(plan.rule))

    def _machine(self, plan: NextPlan) -> NextMatch:
        if self.asking is None or not plan.asks:
            return NextMatch(plan)
        return AskingNextMatch(plan, self.asking)

    @staticmethod
    def _acceptor(running: _Running) -> Callable[[Composite], None]:
        matches = running.matches
        if not running.plan.counts:
            return matches.append

        def count(match: Composite) -> None:
            matches[0] += match[-1]  # how many matches this one stands for

        return count

    def _link(self) -> None:
        """Who reads whose composites, and which stores take which primitive events."""
        self._readers_of: dict[str, list[Store]] = {}
        self._sources_of: dict[int, list[_Running]] = {}
        for running in self._running:
            for name in sorted(types_of(running.plan.rule.pattern)):
                stores = self._readers_of.setdefault(name, [])
                if running.store not in stores:
                    stores.append(running.store)
        for running in self._running:
            running.readers = self._readers_of.get(running.plan.rule.emits, [])
            for store in running.readers:
                self._sources_of.setdefault(id(store), []).append(running)
        self._read = [running for running in self._running if running.readers]
        self._used = [store for store in self._stores if any(running.store is store for running in self._running)]
        self._waiting = [store for store in self._used if store.compiled.ordered]

    # --------------------------------------------------------------------------------------------------------- running

    def run(
        self, events: Iterable[Event | Mapping[str, Any]], *, lateness_us: int | None = None
    ) -> Iterator[Composite]:
        """All composites of these events, each once: those of ``feed``, ``advance`` and ``close`` in one loop.

        An event is an Event or a mapping with ``type``, ``ts`` (integer microseconds) and the attributes, perhaps
        ``node`` and ``seq``; where no event has a ``seq``, they are numbered. The events are put in order first and
        none is late. With ``lateness_us`` they are taken as a stream instead, one after the other, and composites are
        given as they are decided: an event more than that behind an earlier one is late (see ``take_late``). At the end
        of the events the engine is closed.
        """
        return run(self, events, lateness_us)

    def feed(self, events: Iterable[Row]) -> list[Composite]:
        """Take events in any order; the composites that are certain now.

        An event at or before the watermark is late: it is kept apart (``take_late``) and changes nothing. The same
        event (node and seq) again changes nothing either. Composite events of declared types come as the rows that
        ``Composite.row`` gives, with the values in the declared order.
        """
        if self._is_paused():
            in_time = [event for event in events if event[0] > self.watermark or self._note_late(event)]
            return self._postpone("feed", self._in_own_columns(in_time))
        self._feed(events)
        return self._collect()

    def _feed(self, events: Iterable[Row]) -> None:
        dispatch = self._dispatch
        watermark = self._applied
        if self.program.composites:
            events = self._take_composites(events)
        for event in events:
            try:
                handler = dispatch[event[3]]
            except KeyError:
                handler = self._admit(event[3])
            if handler is not None:
                if event[0] <= watermark:
                    self._late.append(event)
                else:
                    try:
                        handler(event)
                    except Exception as error:
                        self._failed(error)

    def _note_late(self, row: Row) -> bool:
        """Keep a late row apart, if some rule names its type at all."""
        name = row[3].type if isinstance(row[3], Composite) else row[3].name
        if name in self._readers_of:
            self._late.append(row)
        return False

    def _take_composites(self, rows: Iterable[Row]) -> list[Row]:
        """Hand composite rows to their readers; the other rows."""
        rest = []
        for row in rows:
            kind = row[3]
            if not isinstance(kind, Composite):
                rest.append(row)
                continue
            name = kind.type
            if name not in self._dispatch_composites:
                self._dispatch_composites[name] = self._route_composites(name, Store.taker)
            handler = self._dispatch_composites[name]
            if handler is not None:
                if row[0] <= self._applied:
                    self._late.append(row)
                else:
                    try:
                        handler(row)
                    except Exception as error:
                        self._failed(error)
        return rest

    def insert_old(self, rows: Iterable[Row]) -> list[Composite]:
        """Take events, some of them at or before the watermark, as parts of matches that are still to be found.

        The caller promises that none of the old ones is the last part of such a match, or negated, aggregated or
        limited in one. They are put at their place and complete nothing; those that are there already, or are older
        than anything still needed, change nothing. Monotone rules take them like any event that is out of order.
        """
        if not self.program.takes_old:
            raise RuleError(
                "old events cannot be inserted for rules that skip till the next match or have a count window; "
                "feed such rules every event before its watermark"
            )
        if self._is_paused():
            return self._postpone("insert_old", self._in_own_columns(rows))
        self._insert_old(rows)
        return self._collect()

    def _insert_old(self, rows: Iterable[Row]) -> None:
        newer: list[Row] = []
        self._output = None
        for row in rows:
            if row[0] > self._applied:
                newer.append(row)
                continue
            kind = row[3].type if isinstance(row[3], Composite) else row[3]
            if kind not in self._dispatch_old:
                self._dispatch_old[kind] = self._route_old(kind)
            handler = self._dispatch_old[kind]
            if handler is not None:
                try:
                    handler(row)
                except Exception as error:
                    self._failed(error)
        self._feed(newer)

    def advance(self, watermark: float) -> list[Composite]:
        """Promise that no event at or before ``watermark`` will follow; the composites that this decides."""
        self._output = None
        if watermark > self.watermark:
            self.watermark = watermark
        if self._is_paused():
            return self._postpone("advance", watermark)
        self._advance(watermark)
        return self._collect()

    def _advance(self, watermark: float) -> None:
        if watermark > self._applied:
            self._applied = watermark
        for store in self._used:
            try:
                store.advance(self._watermark_of(store) if self._read else self._applied)
                if self._read:
                    self._pass_on()
            except Exception as error:
                self._failed(error)

    def close(self) -> list[Composite]:
        """The end of time: everything still undecided is decided."""
        return self.advance(FOREVER)

    # ------------------------------------------------------------------------------------------------- remote elements

    def supplied(self, table: str, key: tuple[Any, ...], element: Versions | None) -> bool:
        """An element of a remote table has come; whether ``supply`` has something to do."""
        return self.asking is not None and self.asking.supplied(table, key, element)

    def can_go_on(self) -> bool:
        """Whether ``supply`` has something to do."""
        return bool(self._queue) or (self.asking is not None and self.asking.is_ready)

    def supply(self) -> list[Composite]:
        """Go on with the evaluations whose elements have come; the composites that are certain now."""
        asking = self.asking
        if asking is None:
            return []
        self._output = None
        while ready := asking.take_ready():
            for position, held in enumerate(ready, 1):
                try:
                    self._stores[held.store].retry(held)
                except Exception as error:
                    try:
                        self._failed(error)
                    except HeadwaterError:
                        asking.put_back(ready[position:])  # what else is ready goes on with the next call
                        raise
            for number in sorted({held.store for held in ready}):
                try:
                    self._stores[number].settle()
                except Exception as error:
                    self._failed(error)
            if self._read:
                self._advance(self._applied)
        while self._queue and not asking.pauses():
            name, argument = self._queue.popleft()
            _REPLAYED[name](self, argument)
        return self._collect()

    def waiting(self) -> int:
        """How many evaluations wait for elements of remote tables."""
        return 0 if self.asking is None else len(self.asking.held)

    def awaiting(self) -> int:
        """The same with the inputs that it was given since it pauses."""
        return self.waiting() + sum(len(given) if isinstance(given, list) else 1 for _, given in self._queue)

    def held_before(self) -> float:
        """No match that waits for elements of remote tables ends before this."""
        if self.asking is None:
            return FOREVER
        behind = self._applied + 1 if self._queue else FOREVER
        return min(
            behind,
            *(self.asking.least_end(running.store.number, running.plan.number) for running in self._running),
            FOREVER,
        )

    def _is_paused(self) -> bool:
        return bool(self._queue) or (self.asking is not None and self.asking.pauses())

    def _in_own_columns(self, rows: Iterable[Row]) -> list[Row]:
        """The rows with their values in the engine's own order, so that they can be saved; without those of types that
        no rule names."""
        own: list[Row] = []
        for row in rows:
            event_type = row[3]
            if isinstance(event_type, Composite):
                own.append(row)
            elif (declared := self.program.types.get(event_type.name)) is not None:
                if declared is event_type:
                    own.append(row)
                else:
                    reordering(declared, event_type, own.append)(row)
        return own

    def _postpone(self, name: str, argument: Any) -> list[Composite]:
        """What is given to an engine that pauses is taken when it goes on."""
        self._queue.append((name, argument))
        return []

    def _failed(self, error: Exception) -> None:
        """Raise what went wrong as what it means to people, or give it to ``on_failure`` and go on."""
        if isinstance(error, HeadwaterError):
            raise error
        rule, sentence = self._failure(error)
        if self._on_failure is None:
            raise RuleError(sentence) from error
        self._on_failure(rule, sentence)

    def _failure(self, error: Exception) -> tuple[str, str]:
        """A predicate or a user function failed: in which rule, and in words."""
        rules: dict[str, None] = {}
        if len(self._running) == 1:
            rules[self._running[0].plan.rule.name] = None
        else:
            for frame in traceback.extract_tb(error.__traceback__):
                for store in self._stores:
                    if frame.filename == f"<headwater {store.compiled.name}>" and frame.name in store.compiled.owners:
                        rules[store.compiled.owners[frame.name]] = None
        rule = next(iter(rules), "")
        where = f"rule {rule!r}" if rules else "a rule"
        if isinstance(error, TooManyChoices):
            return rule, f"{where}: {error}"
        if isinstance(error, TooManySubsets):
            return rule, f"{where}: {error}{self._instead_of_listing(rule)}"
        return rule, (
            f"{where} could not be evaluated: {type(error).__name__}: {error}; "
            f"declare the kinds of its attributes, or check the functions it calls"
        )

    def _instead_of_listing(self, rule: str) -> str:
        if not self.program.count_only:
            return ", or only count the matches (headwater run --count)"
        emits = next((running.plan.rule.emits for running in self._running if running.plan.rule.name == rule), "")
        readers = [r.plan.rule.name for r in self._running if emits in types_of(r.plan.rule.pattern)]
        if not readers:
            return ""
        return f"; its matches are listed although they are only counted, because rule {readers[0]!r} reads them"

    def _watermark_of(self, store: Store) -> float:
        watermark = self._applied
        for running in self._sources_of.get(id(store), ()):
            watermark = min(watermark, self._output_watermark(running))
        return watermark

    def _output_watermark(self, running: _Running) -> float:
        """No composite of the rule that ends at or before this will follow."""
        watermark = running.store.state.watermark
        if running.plan.checks:
            watermark = min(watermark, running.store.undecided_before(frozenset(running.plan.checks)) - 1)
        for machine in running.store.machines:
            if machine.plan is running.plan:
                watermark = min(watermark, machine.undecided_before() - 1)
        if self.asking is not None:
            watermark = min(watermark, self.asking.least_end(running.store.number, running.plan.number) - 1)
        return watermark

    def _pass_on(self) -> None:
        """Give new composites to the rules that read them, in dependency order."""
        for running in self._read:
            new, running.matches[:] = running.matches[:], []
            running.passed_on[0] += len(new)
            if not self.program.count_only:
                self._matches += new
            for composite in new:
                values = running.plan.spec.values(*composite[1:])
                row = (*composite.end, composite, *(None if i is None else values[i] for i in running.columns))
                for store in running.readers:
                    if (look_ahead := store.looks_ahead.get(running.plan.rule.emits)) is not None:
                        look_ahead(row)
                    if store.compiled.ordered:
                        store.state.pending.append(row)
                    else:
                        store.handlers[running.plan.rule.emits](row)

    def _collect(self) -> list[Composite]:
        if self._read:
            try:
                self._pass_on()
            except Exception as error:
                self._failed(error)
        if not self._matches:
            return []
        result = self._matches[:]
        self._matches.clear()
        return result

    def _admit(self, event_type: EventType | Composite) -> Handler | None:
        """The handler for a type met for the first time, or again after a while: None if no rule names it."""
        if isinstance(event_type, Composite):  # no type of composites was declared
            return self._route_composites(event_type.type, Store.taker)
        handler = self._route(event_type, Store.taker)
        if handler is not None:
            self._admitted.setdefault(event_type.name, []).append(event_type)
        self._dispatch[event_type] = handler
        return handler

    def _route(self, event_type: EventType, taker: Callable[[Store, str], Handler]) -> Handler | None:
        """What brings events of a type to the stores that read them: None if no rule names it."""
        own = self.program.types.get(event_type.name)
        if own is None:
            if event_type.name in self.program.columns:
                raise EventError(f"{event_type.name!r} is the output of a rule and cannot be fed as a source's event")
            return None
        handler = all_of([taker(store, own.name) for store in self._readers_of[own.name]])
        return handler if own is event_type else reordering(own, event_type, handler)

    def _route_composites(self, name: str, taker: Callable[[Store, str], Handler]) -> Handler | None:
        """The same for composites that come from outside."""
        declared = self.program.composites.get(name)
        if declared is None:
            if name in self.program.columns and name in self._readers_of:
                raise EventError(f"{name!r} was fed as a composite event; declare it among the engine's composites")
            return None
        width = HEADER_WIDTH + len(self.program.columns[name].position)
        return widening(declared, width, all_of([taker(store, name) for store in self._readers_of[name]]))

    def _route_old(self, kind: EventType | str) -> Handler | None:
        if isinstance(kind, str):
            return self._route_composites(kind, Store.old_taker)
        return self._route(kind, Store.old_taker)

    def _dismiss(self, name: str) -> None:
        """A store has nothing of this type and sleeps: the next event of the type must be admitted again."""
        for event_type in self._admitted.pop(name, ()):
            del self._dispatch[event_type]

    # ------------------------------------------------------------------------------------------------------ inspection

    def ordered(self) -> bool:
        """Whether some rule is decided by watermark; the others match as their parts arrive."""
        return any(running.store.compiled.ordered for running in self._running)

    def triggers(self) -> frozenset[str]:
        """The types whose events can complete a match of a rule that is decided by watermark: the anchor of a chain,
        and whatever else no other part must follow."""
        return frozenset().union(*(store.compiled.completing for store in self._stores))

    def output_watermark(self) -> float:
        """No composite that ends at or before this will be given any more."""
        if self._output is None:
            self._output = min(map(self._output_watermark, self._running), default=self.watermark)
        return self._output

    def waits_until(self) -> float:
        """The event time that the watermark must reach before anything held back now is decided; infinity if nothing
        is. (Under a count window something may also be held until further events come.)"""
        waiting = self._waiting
        if len(waiting) == 1:
            return waiting[0].waits_until(self.watermark)
        return min((store.waits_until(self.watermark) for store in waiting), default=FOREVER)

    def take_late(self) -> list[Any]:
        """The events that came too late since the last call, composites as their rows."""
        late, self._late = self._late, []
        self.late_count += len(late)
        return late

    def counters(self) -> dict[str, int]:
        """Figures that should be looked at: late events, and choices given up for the limit of a repetition."""
        figures = {"late_events": self.late_count + len(self._late)}
        for running in self._running:
            if any(unit.limit for branch in running.plan.logical.branches for unit in branch.units):
                figures[f"over_limit:{running.plan.rule.name}"] = running.over_limit[0]
        return figures

    def counts(self) -> dict[str, int]:
        """With ``count_only``: matches so far per rule."""
        return {r.plan.rule.name: r.matches[0] if r.plan.counts else r.passed_on[0] for r in self._running}

    def overstayed(self, old_us: int = 0) -> list[str]:
        """Rows that are held for longer than any match can need them; none, unless there is a leak. ``old_us``: how far
        behind the watermark rows were inserted at most."""
        return [row for store in self._stores for row in store.overstayed(old_us)]

    def stored(self) -> int:
        """How many events and partial matches are held."""
        return sum(store.stored() for store in self._stores) + self.waiting() + len(self._queue)

    def sources(self) -> dict[str, str]:
        """The generated program of each store, for reading."""
        return {store.compiled.name: store.compiled.source for store in self._stores}

    # ------------------------------------------------------------------------------------------------------- snapshots

    def snapshot(self) -> bytes:
        """The whole running state. It fits any engine with the same rules and types."""
        return encode_snapshot(
            self.program.fingerprint,
            self.watermark,
            self._running,
            self._stores,
            self.counters()["late_events"],
            self._waiting_state(),
        )

    def _waiting_state(self) -> WaitingState:
        if self.asking is None:
            return WaitingState(self._applied)
        learnt = [self.asking.saved(), [store.saved() for store in self._stores]]
        return WaitingState(self._applied, tuple(self._queue), tuple(self.asking.held.values()), learnt)

    def copy(self) -> Engine:
        """Another engine in the same state; from here on they go their own ways."""
        engine = Engine(self.program, on_failure=self._on_failure, memory=self.memory)
        engine.restore(self.snapshot())
        return engine

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot; everything this engine held before is forgotten."""
        self.watermark, self.late_count, waiting = decode_snapshot(
            snapshot, self.program.fingerprint, self.program.types, self._running, self._stores
        )
        self._applied, self._queue = waiting.applied, deque(waiting.queue)
        if self.asking is not None:
            self._restore_waiting(self.asking, waiting)
        self._dispatch.clear()
        self._dispatch_composites.clear()
        self._dispatch_old.clear()
        self._output = None
        self._admitted.clear()
        self._late.clear()

    def _restore_waiting(self, asking: Asking, waiting: WaitingState) -> None:
        try:
            of_asking, of_stores = waiting.learnt or (None, (None,) * len(self._stores))
            asking.restore(waiting.held, of_asking)
            for store, learnt in zip(self._stores, of_stores, strict=True):
                for machine in store.machines:
                    machine.restored(waiting.held)
                if learnt is not None:
                    store.restore(learnt)
        except (TypeError, ValueError, AttributeError) as error:
            raise SnapshotError(f"the snapshot is damaged: {error!r}") from error


_REPLAYED: Final[Mapping[str, Callable[[Engine, Any], None]]] = {
    "feed": Engine._feed,
    "insert_old": Engine._insert_old,
    "advance": Engine._advance,
}
"""What an engine was asked to do while it paused, by the name under which it is kept."""
