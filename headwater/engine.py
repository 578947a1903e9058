"""The engine as programs use it: rules as text, events as whatever the program holds, results as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from headwater.arguments import (
    RULES_ACCEPTED,
    RemoteCache,
    RemoteStrategy,
    RuleText,
    TimeUnit,
    Types,
    declared_list,
    layout_of,
    registered,
    remote_tables,
    rule_sources,
)
from headwater.cells import NUMBERS, TimeForm, moment_us, plain_cell
from headwater.deploy.cli.output import in_key_order
from headwater.frames import EventTable, in_python, table_of
from headwater.inference import hints_on, surveyed_events, times_of
from headwater.matches import Matches
from headwater.node.engine import Engine as Core
from headwater.node.engine import Program, compile_rules
from headwater.node.engine.running import fed
from headwater.node.engine.running import run as run_events
from headwater.node.remote.policies import checked_priorities, checked_strategies
from headwater.node.traces.reader import TraceReader, TraceSource, survey
from headwater.node.traces.times import in_another_unit, parse_ts, wrong_unit
from headwater.node.traces.types import Survey
from headwater.protocol.composites import Composite
from headwater.protocol.edge import Layout
from headwater.protocol.errors import ConfigError, EventError, RuleError
from headwater.protocol.events import Event, EventType, Value
from headwater.protocol.functions import Functions
from headwater.protocol.languages import RuleSet, RuleTextError, Source
from headwater.protocol.languages import parse_rules as parse_sources
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE
from headwater.protocol.pattern import Rule, types_of

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Rules: TypeAlias = "RuleText | RuleSet | Program | Sequence[RuleText] | Sequence[Rule]"
Stream: TypeAlias = "Iterable[Event] | Iterable[Mapping[str, Any]]"
Events: TypeAlias = (
    "str | os.PathLike[str] | Iterable[Mapping[str, Any]] | Iterable[Event] | pandas.DataFrame | polars.DataFrame "
    "| polars.LazyFrame | pyarrow.Table | pyarrow.RecordBatch | pyarrow.RecordBatchReader "
    "| Iterable[pyarrow.RecordBatch]"
)


def parse_rules(
    rules: RuleText | Iterable[RuleText],
    types: Types = (),
    functions: Functions | Mapping[str, Callable[..., Value]] | None = None,
) -> RuleSet:
    """The rules of texts and files, checked; a ``RuleTextError`` shows every mistake with its place.

    ``rules`` is a text in either language, the path of a ``.tesla`` or ``.sase`` file, or several of these. ``types``
    declares event types, as ``{"Temp": {"area": "string", "value": "float"}}`` or as ``EventType`` objects; where no
    type is declared, here or in the text, any type and attribute is accepted.

        rules = hw.parse_rules("define Fire(area: string) from Smoke() where area = Smoke.area")
        print([rule.name for rule in rules.rules])
    """
    return parse_sources(rule_sources(rules), declared_list(types), registered(functions))


class Engine:
    """Evaluates rules over events, in this process.

        engine = hw.Engine('''
            define Fire(area: string, temperature: float)
            from Smoke() and last Temp(area = Smoke.area, value > 45) within 5 min from Smoke
            where area = Smoke.area, temperature = Temp.value
        ''')
        fires = engine.run(events)          # dicts, a pandas or Polars frame, an Arrow table, a file
        fires.to_pandas()                   # or loop over it: each item is a Composite

    ``rules`` is a text in either language, the path of a ``.tesla`` or ``.sase`` file, a list of texts and paths, or
    what ``parse_rules`` returned. ``types`` declares event types, as ``{"Temp": {"area": "string", "value": "float"}}``
    or as ``EventType`` objects; types that neither it nor the rules declare are taken from the events, as ``headwater
    run`` does. ``functions`` maps names to Python functions that the rules call; ``remote`` maps the names of remote
    tables to what holds them: a dict of the data, a function (sync or async) of the key, a provider's description such
    as ``{"sqlite": "cards.db", "query": .., "keys": [..]}``, or an object with ``lookup(arguments, ts)``.
    ``remote_strategy`` says how rules come by elements of functions and providers; by default (``hybrid``) events are
    taken on while elements are fetched. It changes when a match is found, never which; ``remote_strategies`` gives
    single rules another one, as ``{"Raised": "lazy"}``. ``remote_cache`` says what makes room where too much of them is
    kept (``lru`` or ``cost``), and ``remote_priorities`` how much the matches of a rule count where it is decided what
    to fetch ahead and what to keep, as ``{"Raised": 3}``. With ``lineage`` composites say which values of remote tables
    they rest on (``Composite.remote()``, and ``"remote"`` in their JSON form).

    ``run`` evaluates a whole input from the start, so one engine serves any number of inputs. A program that receives
    events one after the other uses ``feed``, ``advance`` and ``close`` (or ``run`` with ``lateness_us``) instead; these
    share one state. The engine reads no clock and, unless a remote table is behind a provider, starts no thread: the
    same input gives the same output.
    """

    def __init__(
        self,
        rules: Rules,
        types: Types = (),
        *,
        functions: Functions | Mapping[str, Callable[..., Value]] | None = None,
        remote: Mapping[str, Any] | None = None,
        remote_strategy: RemoteStrategy = "hybrid",
        remote_cache: RemoteCache = "lru",
        remote_priorities: Mapping[str, float] | None = None,
        remote_strategies: Mapping[str, RemoteStrategy] | None = None,
        lineage: bool = False,
    ) -> None:
        self._functions = registered(functions)
        self._tables = remote_tables(
            remote or {}, remote_strategy, remote_cache, remote_priorities, remote_strategies, lineage=lineage
        )
        self._remote = dict(remote or {}) if self._tables is None else self._tables.memory.tables
        self._types = declared_list(types)
        self._sources: list[Source] | None = None
        self._program: Program | None = None
        self._undeclared: RuleTextError | None = None
        self._rules = self._understood(rules)
        names = [rule.name for rule in self._rules.rules]
        checked_priorities(remote_priorities or {}, names)
        checked_strategies(remote_strategies or {}, names)
        self._compiled: tuple[tuple[EventType, ...], bool, Program] | None = None
        self._core: Core | None = None
        self._numbers: dict[str, int] = {}
        self._closed = False

    def _understood(self, rules: Rules) -> RuleSet:
        """The rules as far as they can be understood before any event is seen."""
        if isinstance(rules, Program):
            self._program = rules
            return RuleSet(rules.rules, dict(rules.types))
        if isinstance(rules, RuleSet):
            return RuleSet(rules.rules, {**rules.types, **{event_type.name: event_type for event_type in self._types}})
        if not isinstance(rules, str | os.PathLike | Source):
            if not isinstance(rules, Iterable):
                raise ConfigError(f"{rules!r:.60} holds no rules; {RULES_ACCEPTED}")
            rule_list = list(rules)
            if rule_list and all(isinstance(rule, Rule) for rule in rule_list):
                return RuleSet(tuple(rule_list), {event_type.name: event_type for event_type in self._types})  # type: ignore[arg-type]
            rules = rule_list  # type: ignore[assignment]
        self._sources = rule_sources(rules)  # type: ignore[arg-type]
        try:
            return parse_sources(self._sources, self._types, self._functions)
        except RuleTextError as error:
            if not all(diagnostic.code == UNKNOWN_EVENT_TYPE for diagnostic in error.diagnostics):
                raise
            # Some types are declared and others are not: those may be in the events.
            self._undeclared = error
            return RuleSet(())

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, each after those whose composite events it reads."""
        return self._rules.rules

    def __repr__(self) -> str:
        names = ", ".join(rule.name for rule in self.rules) or "rules whose event types are still to be seen"
        return f"<Engine: {names}>"

    # ----------------------------------------------------------------------------------------------------- whole inputs

    @overload
    def run(
        self,
        events: Events,
        *,
        time_column: str = "ts",
        type_column: str = "type",
        time_unit: TimeUnit | None = None,
    ) -> Matches: ...

    @overload
    def run(
        self, events: Iterable[Event] | Iterable[Mapping[str, Any]], *, lateness_us: int
    ) -> Iterator[Composite]: ...

    def run(
        self,
        events: Any,
        *,
        time_column: str = "ts",
        type_column: str = "type",
        time_unit: TimeUnit | None = None,
        lateness_us: int | None = None,
    ) -> Matches | Iterator[Composite]:
        """Every match in a whole input; events may come in any order and none is late.

        ``events`` is an iterable of dicts (or ``Event`` objects), a pandas or Polars frame, an Arrow table or record
        batches, or the path of a CSV, JSON lines or Parquet file. Every event has

        - ``type``: the name of its type,
        - ``ts``: when it happened: integer microseconds, a datetime or timestamp (without a zone it is UTC), or ISO
          8601 text. ``time_unit`` says that numbers are ``"s"``, ``"ms"``, ``"us"`` or ``"ns"`` since 1970; without it
          numbers that are clearly dates in another unit than microseconds are refused,
        - optionally ``node`` (where it was seen) and ``seq`` (its number there). Without ``seq`` events are numbered,
        - its attributes: numbers, strings and booleans. Columns that are empty for a type are not attributes of it.

        ``time_column`` and ``type_column`` name other columns for the time and the type. Each call starts over, so that
        an engine can be used for one input after the other.

        With ``lateness_us`` the events are taken as a stream instead: the call returns an iterator, which reads one
        event after the other and gives each match as soon as it is certain. An event more than that many microseconds
        behind an earlier one is late and left out (see ``take_late``). Types are not inferred from a stream.
        """
        if lateness_us is not None:
            if (time_column, type_column, time_unit) != ("ts", "type", None):
                raise ConfigError("time_column, type_column and time_unit are for whole inputs; leave lateness_us out")
            return self._streamed(events, lateness_us)
        layout = layout_of(time_column, type_column, time_unit)
        _, composites, times = self._evaluated(events, layout, count_only=False)
        return Matches(in_key_order(composites), times)

    def count(
        self, events: Events, *, time_column: str = "ts", type_column: str = "type", time_unit: TimeUnit | None = None
    ) -> dict[str, int]:
        """How many matches each rule has in a whole input, without listing them; for repetitions much cheaper."""
        return self._evaluated(events, layout_of(time_column, type_column, time_unit), count_only=True)[0].counts()

    def _evaluated(self, data: Any, layout: Layout, *, count_only: bool) -> tuple[Core, list[Composite], TimeForm]:
        try:
            table = table_of(data, layout)
            if isinstance(table, list):
                core = self._core_for(surveyed_events(table), "the events", count_only)
                return core, list(run_events(core, table, None)), NUMBERS
            return self._read(table, count_only)
        except EventError as error:
            raise in_python(error) from None

    def _read(self, table: EventTable | TraceSource, count_only: bool) -> tuple[Core, list[Composite], TimeForm]:
        def look() -> Survey:
            rows = table.open()
            try:
                return survey(rows)
            finally:
                rows.close()

        shown = (table.source if isinstance(table, EventTable) else table).shown
        core = self._core_for(look, shown, count_only)
        wanted: frozenset[str] = core.program.read_types()
        rows = table.open()
        try:
            times = table.times if isinstance(table, EventTable) else times_of(rows)
            events = TraceReader(rows, core.program.types, wanted).whole()
        finally:
            rows.close()
        return core, [*fed(core, events), *core.close()], times

    def _core_for(self, look: Callable[[], Survey], shown: str, count_only: bool) -> Core:
        """An engine in its first state for an input; types that are not declared are looked up in it."""
        if self._program is not None:
            if count_only != self._program.count_only:
                raise ConfigError("a compiled Program either lists or counts matches; give the rules themselves")
            return self._started(self._program)
        rules, types = self._rules, self._rules.types
        read = {name for rule in rules.rules for name in types_of(rule.pattern)}
        emitted = {rule.emits for rule in rules.rules}
        if self._undeclared is not None or read - emitted - types.keys():
            seen = look()
            ours = emitted - read
            declared = self._declared_names()
            inferred = [event_type for name, event_type in seen.types.items() if name not in declared | ours]
            if self._sources is not None:
                rules = self._parsed_again(inferred, shown, seen)
                types = rules.types
            else:
                types = {
                    **types,
                    **{event_type.name: event_type for event_type in inferred if event_type.name not in emitted},
                }
        key = tuple(types.values())
        if self._compiled is None or self._compiled[:2] != (key, count_only):
            program = compile_rules(
                rules.rules, key, functions=self._functions, remote=self._remote, count_only=count_only
            )
            self._compiled = key, count_only, program
        return self._started(self._compiled[2])

    def _started(self, program: Program) -> Core:
        return Core(program) if self._tables is None else self._tables.engine(program)

    def _declared_names(self) -> set[str]:
        if self._undeclared is None:
            return set(self._rules.types)
        from headwater.deploy.cli.common import declared_types

        return {event_type.name for event_type in self._types} | declared_types(self._sources or ())

    def _parsed_again(self, inferred: list[EventType], shown: str, seen: Survey) -> RuleSet:
        assert self._sources is not None
        try:
            return parse_sources(self._sources, [*self._types, *inferred], self._functions)
        except RuleTextError as error:
            raise RuleError("\n".join([str(error), *hints_on(error, shown, seen)])) from None

    # ---------------------------------------------------------------------------------------------------------- streams

    def feed(self, events: Stream) -> list[Composite]:
        """Take events as they arrive, in any order; the composite events that are certain now.

        Events are as for ``run``; numbers of events without a ``seq`` go on from call to call. An event at or before
        the watermark is late: it changes nothing, and ``take_late`` gives it back.

        A match that needs an element of a remote table which is still being fetched is certain when that has come: a
        later call gives it.
        """
        if self._closed:
            raise EventError("the engine is closed and takes no more events; make a new one, or use run()")
        return self._stream().feed(self._events(events))

    def advance(self, watermark: int | datetime) -> list[Composite]:
        """Promise that no event at or before ``watermark`` will follow; the composite events that this decides."""
        at = moment_us(watermark) if isinstance(watermark, datetime) else watermark
        if at is None or isinstance(at, bool) or not isinstance(at, int):
            raise EventError(f"the watermark is {watermark!r}; give integer microseconds or a datetime")
        return self._stream().advance(at)

    def settle(self) -> list[Composite]:
        """Wait for the elements of remote tables that matches need; the composite events that are certain then."""
        core = self._stream()
        if self._tables is None:
            return []
        from headwater.node.remote.fetching import FetchingEngine

        return core.settle() if isinstance(core, FetchingEngine) else []

    def close(self) -> list[Composite]:
        """No event will follow: everything that is still undecided is decided, with all that it needs."""
        self._closed = True
        return self._stream().close()

    def take_late(self) -> list[Event]:
        """The events that came too late since the last call."""
        return self._stream().take_late()

    def snapshot(self) -> bytes:
        """The state of the stream that ``feed`` and ``advance`` move, for ``restore`` in an engine with equal rules."""
        return self._stream().snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Continue from a snapshot; whatever this engine held of its stream is forgotten."""
        self._stream().restore(snapshot)
        self._closed = False

    def _stream(self) -> Core:
        if self._undeclared is not None:
            raise self._undeclared
        if self._core is None:
            self._core = self._started(
                self._program or compile_rules(self._rules, functions=self._functions, remote=self._remote)
            )
        return self._core

    def _streamed(self, events: Iterable[Any], lateness_us: int) -> Iterator[Composite]:
        core = self._stream()
        yield from fed(core, self._events(events), lateness_us, 1)
        yield from self.close()

    def _events(self, items: Iterable[Any]) -> Iterator[Event]:
        """Events of a stream, one after the other: plain values, numbered where they have no number."""
        for item in items:
            if isinstance(item, Event):
                yield item
                continue
            if not isinstance(item, Mapping):
                raise EventError(f"{item!r:.60} is not an event; give an Event, or a dict with type, ts and attributes")
            for name in ("type", "ts"):
                if item.get(name) is None:
                    raise EventError(f"an event has no {name!r}: {dict(item)!r:.100}")
            cells = {str(name): plain_cell(value) for name, value in item.items()}
            ts, node, seq = cells.pop("ts"), cells.pop("node", None), cells.pop("seq", None)
            if not isinstance(item["ts"], datetime) and in_another_unit([ts]) is not None:
                raise EventError(f"{wrong_unit(ts)}; give datetimes or microseconds")
            if isinstance(ts, str):
                ts = parse_ts(ts)
            node = "local" if node is None else str(node)
            if seq is None:
                seq = self._numbers[node] = self._numbers.get(node, 0) + 1
            yield Event(str(cells.pop("type")), ts, node, seq, cells)


def run(
    rules: Rules,
    events: Events,
    types: Types = (),
    *,
    functions: Functions | Mapping[str, Callable[..., Value]] | None = None,
    time_column: str = "ts",
    type_column: str = "type",
    time_unit: TimeUnit | None = None,
) -> Matches:
    """Every match of ``rules`` in ``events``: ``Engine(rules, types).run(events)`` in one call.

    hw.run("fire.tesla", "events.csv").to_pandas()
    """
    engine = Engine(rules, types, functions=functions)
    return engine.run(events, time_column=time_column, type_column=type_column, time_unit=time_unit)
