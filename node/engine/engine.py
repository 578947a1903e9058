"""The engine: rules in, events and watermarks in, composite events out.

    engine = Engine(rules)
    for batch in batches:
        found = engine.feed(batch)           # matches of monotone rules, as soon as their parts are there
        found += engine.advance(watermark)   # nothing at or before the watermark will follow
    found += engine.close()                  # the watermark plus infinity

It reads no clock and starts no thread. The same input gives the same output in the same order.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from node.engine.code import Columns, Pool
from node.engine.logical import Logical, take_apart
from node.engine.next_match import NextMatch
from node.engine.rules import RulePlan, add_rule, composite_spec
from node.engine.snapshot import decode_snapshot, encode_snapshot
from node.engine.store import Store, StoreBuilder
from protocol.codec import digest
from protocol.composites import Composite
from protocol.errors import EventError, HeadwaterError, RuleError
from protocol.events import HEADER_WIDTH, Event, EventType
from protocol.expressions import Attribute, Fold, Same, walk
from protocol.functions import Functions
from protocol.pattern import Rule, leaves, types_of

Row = tuple[Any, ...]
FOREVER = float("inf")


@dataclass(slots=True)
class _Running:
    """A rule in the engine: where its matches appear and who reads them."""

    plan: RulePlan
    found: list[Any]
    over_limit: list[int]
    store: Store
    monotone: bool
    readers: list[Store]
    columns: tuple[int | None, ...]
    """For each attribute that readers of the type know, its place among this rule's own, or None."""
    passed_on: list[int]
    """How many composites its readers were given."""


class Engine:
    """Evaluates rules over events that may arrive in any order within the promised watermarks.

    ``rules`` is a sequence of Rule, or a RuleSet as ``parse_rules`` returns it. ``types`` declares the event types; a
    type that is not declared takes whatever attributes the rules name. ``functions`` holds user functions, ``remote``
    maps the names of remote tables to objects with ``lookup(arguments, ts)``. With ``count_only`` matches are counted
    (see ``counts``) instead of listed, which for repetitions is much cheaper.
    """

    def __init__(
        self,
        rules: Any,
        types: Iterable[EventType] = (),
        *,
        functions: Functions | None = None,
        remote: Mapping[str, Any] | None = None,
        count_only: bool = False,
    ) -> None:
        given = list(types)
        if hasattr(rules, "rules"):
            given += [t for t in rules.types.values() if t.name not in {known.name for known in given}]
            rules = rules.rules
        self.rules: tuple[Rule, ...] = in_dependency_order(tuple(rules))
        self.watermark: float = -FOREVER
        self._pool = Pool(functions if functions is not None else Functions(), remote or {})
        self._late: list[Event] = []
        self.late_count = 0
        self._types = self._input_types(given)
        self._columns = self._all_columns()
        self._count_only = count_only
        self._build(count_only)
        self._dispatch: dict[EventType, Callable[[Row], None] | None] = {}

    # --------------------------------------------------------------------------------------------------------- set-up

    def _input_types(self, given: list[EventType]) -> dict[str, EventType]:
        emitted = {rule.emits for rule in self.rules}
        found = {t.name: t for t in given}
        for name in sorted(emitted & found.keys()):
            raise RuleError(f"{name!r} is both an event type of a source and the output of a rule; rename one of them")
        used: dict[str, dict[str, None]] = {}
        for rule in self.rules:
            kinds = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
            for name in kinds.values():
                used.setdefault(name, {})
            for expression in (*rule.pattern.where, *(output.value for output in rule.attributes)):
                for part in walk(expression):
                    if isinstance(part, Attribute | Fold) and part.name is not None and part.role:
                        used[kinds[part.role]][part.name] = None
                    if isinstance(expression, Same) and isinstance(part, Attribute):
                        for name in kinds.values():
                            used[name][part.name] = None
            for leaf in leaves(rule.pattern.root):
                for step in getattr(rule.pattern.root, "steps", ()):
                    if getattr(step, "attribute", None) is not None and step.leaf == leaf:
                        used[leaf.type][step.attribute] = None
        for name, attributes in used.items():
            if name not in found and name not in emitted:
                own = [(a, "any?") for a in attributes if a not in ("ts", "node", "seq", "type")]
                found[name] = EventType(name, own)
        return {name: t for name, t in found.items() if name in used}

    def _all_columns(self) -> dict[str, Columns]:
        columns = {}
        for name, event_type in self._types.items():
            optional = frozenset(
                a for a, missing in zip(event_type.attributes, event_type.optional, strict=True) if missing
            )
            position = {attribute: HEADER_WIDTH + i for i, attribute in enumerate(event_type.attributes)}
            columns[name] = Columns(name, position, optional, composite=False)
        for rule in self.rules:
            known = columns.get(rule.emits)
            united = dict(known.position) if known is not None else {}
            for output in rule.attributes:
                united.setdefault(output.name, HEADER_WIDTH + len(united))
            columns[rule.emits] = Columns(rule.emits, united, frozenset(united), composite=True)
        return columns

    def _build(self, count_only: bool) -> None:
        composite_types = frozenset(rule.emits for rule in self.rules)
        read = {name for rule in self.rules for name in types_of(rule.pattern)}
        shared = {ordered: self._builder("ordered" if ordered else "eager", ordered) for ordered in (False, True)}
        builders: list[StoreBuilder] = list(shared.values())
        plans: list[tuple[RulePlan, StoreBuilder]] = []
        machines: list[tuple[StoreBuilder, NextMatch]] = []
        self._store_inputs: dict[int, set[str]] = {}
        for number, rule in enumerate(self.rules):
            try:
                logical = take_apart(rule.pattern, composite_types)
                spec, parameters = composite_spec(rule, logical, self._columns, self._pool)
                plan = RulePlan(number, rule, logical, spec, parameters)
                plan.counts = count_only and rule.emits not in read
                builder = self._home(rule, logical, shared, builders, composite_types)
                builder.writing = rule.name
                if rule.pattern.skip == "next":
                    machine = NextMatch(builder, plan)
                    machines.append((builder, machine))
                else:
                    add_rule(builder, plan)
            except RuleError as error:
                if rule.name in str(error):
                    raise
                raise RuleError(f"rule {rule.name!r}: {error}") from error
            plans.append((plan, builder))
        self._found: list[Composite] = []
        found: dict[str, list[Any]] = {}
        for plan, _ in plans:
            found[plan.out] = [0] if plan.counts else [] if plan.rule.emits in read else self._found
        over = {f"v{plan.number}": [0] for plan, _ in plans}
        names: dict[str, Any] = {**found, **over}
        for _, machine in machines:
            names[machine.name] = machine.handle
        self._stores = [Store(builder.compile(), names) for builder in builders]
        store_of = dict(zip(map(id, builders), self._stores, strict=True))
        for builder, machine in machines:
            machine.attach(store_of[id(builder)])
        self._running: list[_Running] = []
        for plan, builder in plans:
            store = store_of[id(builder)]
            running = _Running(
                plan,
                found[plan.out],
                over[f"v{plan.number}"],
                store,
                plan.logical.monotone,
                [],
                self._reorder(plan),
                [0],
            )
            for _ in plan.checks:
                store.accept.append(self._acceptor(running))
            self._running.append(running)
        self._link(plans, store_of)

    def _builder(self, name: str, ordered: bool, counted: int | None = None) -> StoreBuilder:
        return StoreBuilder(name, self._pool, self._columns, ordered=ordered, counted=counted)

    def _home(
        self,
        rule: Rule,
        logical: Logical,
        shared: dict[bool, StoreBuilder],
        builders: list[StoreBuilder],
        composite_types: frozenset[str],
    ) -> StoreBuilder:
        """The store of a rule. Rules on primitive events share two; others have a clock of their own."""
        counted = next((branch.count for branch in logical.branches if branch.count is not None), None)
        if counted is None and not (types_of(rule.pattern) & composite_types):
            return shared[not logical.monotone]
        builder = self._builder(rule.name, not logical.monotone, counted)
        builder.has_composites = bool(types_of(rule.pattern) & composite_types)
        builders.append(builder)
        return builder

    def _reorder(self, plan: RulePlan) -> tuple[int | None, ...]:
        own = {output.name: i for i, output in enumerate(plan.rule.attributes)}
        return tuple(own.get(name) for name in self._columns[plan.rule.emits].position)

    @staticmethod
    def _acceptor(running: _Running) -> Callable[[Composite], None]:
        found = running.found
        if not running.plan.counts:
            return found.append

        def count(match: Composite) -> None:
            found[0] += 1

        return count

    def _link(self, plans: list[tuple[RulePlan, StoreBuilder]], store_of: dict[int, Store]) -> None:
        """Who reads whose composites, and which stores take which primitive events."""
        self._readers_of: dict[str, list[Store]] = {}
        self._sources_of: dict[int, list[_Running]] = {}
        for plan, builder in plans:
            store = store_of[id(builder)]
            for name in sorted(types_of(plan.rule.pattern)):
                stores = self._readers_of.setdefault(name, [])
                if store not in stores:
                    stores.append(store)
        for running in self._running:
            running.readers = self._readers_of.get(running.plan.rule.emits, [])
            for store in running.readers:
                self._sources_of.setdefault(id(store), []).append(running)
        self._read = [running for running in self._running if running.readers]

    # --------------------------------------------------------------------------------------------------------- running

    def feed(self, events: Iterable[Event]) -> list[Composite]:
        """Take events in any order; the composites that are certain now.

        An event at or before the watermark is late: it is kept apart (``take_late``) and changes nothing. The same
        event (node and seq) again changes nothing either.
        """
        dispatch = self._dispatch
        watermark = self.watermark
        try:
            for event in events:
                try:
                    handler = dispatch[event[3]]
                except KeyError:
                    handler = self._admit(event[3])
                if handler is not None:
                    if event[0] <= watermark:
                        self._late.append(event)
                    else:
                        handler(event)
            return self._collect()
        except HeadwaterError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def advance(self, watermark: float) -> list[Composite]:
        """Promise that no event at or before ``watermark`` will follow; the composites that this decides."""
        if watermark > self.watermark:
            self.watermark = watermark
        try:
            for store in self._stores:
                store.advance(self._watermark_of(store))
                if self._read:
                    self._pass_on()
            return self._collect()
        except HeadwaterError:
            raise
        except Exception as error:
            raise self._failure(error) from error

    def close(self) -> list[Composite]:
        """The end of time: everything still undecided is decided."""
        return self.advance(FOREVER)

    def _failure(self, error: Exception) -> RuleError:
        """A predicate or a user function failed: say in which rule."""
        rules: dict[str, None] = {}
        for frame in traceback.extract_tb(error.__traceback__):
            for store in self._stores:
                if frame.filename == f"<headwater {store.compiled.name}>" and frame.name in store.compiled.owners:
                    rules[store.compiled.owners[frame.name]] = None
        where = f"rule {next(iter(rules))!r}" if rules else "a rule"
        return RuleError(
            f"{where} could not be evaluated: {type(error).__name__}: {error}; "
            f"declare the kinds of its attributes, or check the functions it calls"
        )

    def _watermark_of(self, store: Store) -> float:
        watermark = self.watermark
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
        return watermark

    def _pass_on(self) -> None:
        """Give new composites to the rules that read them, in dependency order."""
        for running in self._read:
            new, running.found[:] = running.found[:], []
            running.passed_on[0] += len(new)
            if not self._count_only:
                self._found += new
            for composite in new:
                values = running.plan.spec.values(*composite[1:])
                row = (*composite.end, composite, *(None if i is None else values[i] for i in running.columns))
                for store in running.readers:
                    if store.compiled.ordered:
                        store.state.pending.append(row)
                    else:
                        store.handlers[running.plan.rule.emits](row)

    def _collect(self) -> list[Composite]:
        if self._read:
            self._pass_on()
        result = self._found[:]
        self._found.clear()
        return result

    def _admit(self, event_type: EventType) -> Callable[[Row], None] | None:
        """The handler for a type met for the first time: None if no rule names it."""
        own = self._types.get(event_type.name)
        handler: Callable[[Row], None] | None = None
        if own is not None:
            handlers = []
            for store in self._readers_of[own.name]:
                if store.compiled.ordered:
                    handlers.append(store.state.pending.append)
                else:
                    handlers.append(store.handlers[own.name])
            handler = handlers[0] if len(handlers) == 1 else _all_of(tuple(handlers))
            if own is not event_type:
                handler = _reordering(own, event_type, handler)
        elif event_type.name in self._columns:
            raise EventError(f"{event_type.name!r} is the output of a rule and cannot be fed as a source's event")
        self._dispatch[event_type] = handler
        return handler

    # ------------------------------------------------------------------------------------------------------ inspection

    def take_late(self) -> list[Event]:
        """The events that came too late since the last call."""
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
        return {r.plan.rule.name: r.found[0] if r.plan.counts else r.passed_on[0] for r in self._running}

    def stored(self) -> int:
        """How many events and open matches are held."""
        return sum(store.stored() for store in self._stores)

    def sources(self) -> dict[str, str]:
        """The generated program of each store, for reading."""
        return {store.compiled.name: store.compiled.source for store in self._stores}

    # ------------------------------------------------------------------------------------------------------- snapshots

    def snapshot(self) -> bytes:
        """The whole running state. It fits any engine with the same rules and types."""
        return encode_snapshot(
            self._fingerprint(), self.watermark, self._running, self._stores, self.counters()["late_events"]
        )

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot; everything this engine held before is forgotten."""
        self.watermark, self.late_count = decode_snapshot(
            snapshot, self._fingerprint(), self._types, self._running, self._stores
        )
        self._dispatch.clear()
        self._late.clear()

    def _fingerprint(self) -> str:
        return digest(self.rules, tuple(self._types[name].declaration() for name in sorted(self._types)))


def _all_of(handlers: tuple[Callable[[Row], None], ...]) -> Callable[[Row], None]:
    def handle(row: Row) -> None:
        for handler in handlers:
            handler(row)

    return handle


def _reordering(own: EventType, given: EventType, handler: Callable[[Row], None]) -> Callable[[Row], None]:
    """Events of an equally named type with other columns are brought into the engine's order."""
    missing = object()
    places: list[int | None] = []
    for attribute, optional in zip(own.attributes, own.optional, strict=True):
        place = given.position(attribute)
        if place is None and not optional:
            raise EventError(f"{given!r} lacks the attribute {attribute!r} that the rules know as {own!r}")
        if place is not None and not optional and given.is_optional(attribute):
            place = -place
        places.append(place)
    del missing

    def handle(row: Row) -> None:
        values = []
        for attribute, place in zip(own.attributes, places, strict=True):
            value = None if place is None else row[abs(place)]
            if place is not None and place < 0 and value is None:
                raise EventError(f"{row!r} has no value for {attribute!r}, which the rules require")
            values.append(value)
        handler(Event.from_row((row[0], row[1], row[2], own, *values)))

    return handle


def in_dependency_order(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Rules after those whose composites they read; a RuleError that names the cycle if there is none."""
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise RuleError(f"two rules are named {name!r}; give one of them another name")
    producers: dict[str, list[Rule]] = {}
    for rule in rules:
        producers.setdefault(rule.emits, []).append(rule)
    done: dict[str, Rule] = {}
    path: list[str] = []

    def visit(rule: Rule) -> None:
        if rule.name in done:
            return
        if rule.name in path:
            raise RuleError(
                f"rules read each other in a circle: {' -> '.join([*path[path.index(rule.name) :], rule.name])}"
            )
        path.append(rule.name)
        for name in sorted(types_of(rule.pattern)):
            for producer in producers.get(name, []):
                visit(producer)
        path.pop()
        done[rule.name] = rule

    for rule in rules:
        visit(rule)
    return tuple(done.values())
