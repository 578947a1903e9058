"""A running store: the events that a set of rules with the same idea of time still needs.

Rows in buffers, matches that wait for their time, and the handlers of the generated code bound to them. Events reach
an *eager* store as they arrive, in any order. An *ordered* store keeps them until the watermark has passed and then
handles them in trace order.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from types import CodeType
from typing import Any, Protocol, cast

from headwater.node.engine import waiting
from headwater.node.engine.codegen.store_builder import CompiledStore
from headwater.node.engine.intake import all_of
from headwater.node.engine.lineage import Lineage
from headwater.node.engine.remote_memory import Counted
from headwater.node.engine.runtime import NAMES, Row
from headwater.node.engine.sweeps import Sweeps
from headwater.node.engine.waiting import Asking, Doubtful, HeldEvaluation, NotAtHand, Site
from headwater.protocol.composites import Composite, LookedUp
from headwater.protocol.events import EventType

CHUNK_EVENTS = 1024  # after this many events an ordered store decides and frees, even within one long advance
SWEEPS_PER_HORIZON = 4  # a buffer holds at most a quarter of its horizon more than it needs
Handler = Callable[[Row], None]


class NextMachine(Protocol):
    """Something beside the generated code that sees the events of an ordered store: a skip-till-next rule."""

    plan: Any
    waits: bool

    def bind(self, state: StoreState) -> None: ...

    def finish(self, watermark: float) -> None: ...

    def sweep(self, watermark: float) -> float:
        """Free what has passed; when to come again."""
        ...

    def undecided_before(self) -> float: ...

    def decided_at(self) -> float: ...

    def held(self) -> int: ...

    def restored(self, held: Iterable[HeldEvaluation]) -> None:
        """The store was restored with these evaluations waiting."""
        ...

    def saved(self) -> Sequence[Any] | None:
        """What it has learnt of its runs, as plain values."""
        ...

    def restore(self, saved: Sequence[Any]) -> None:
        """Continue with what was learnt."""
        ...

    def retry(self, held: HeldEvaluation) -> None:
        """Go on with a run that has waited for elements."""
        ...


class StoreState:
    """What changes while a store runs: plain containers, so that it can be saved, restored and counted."""

    __slots__ = (
        "arrival", "arrivals", "doubtful", "fresh", "fresh_numbered", "log_bases", "logs", "newest", "number",
        "pending", "rows", "runs_of", "serial", "waiting", "waiting_numbered", "watermark",
    )  # fmt: skip

    def __init__(self, compiled: CompiledStore) -> None:
        self.rows: list[Any] = [{} if keyed else [] for keyed, _ in compiled.buffers]
        self.newest: list[Row] = [()]
        self.number = [0]
        self.waiting: list[tuple[int, int, int, Composite]] = []
        """A heap of matches that a later event may still forbid: (deadline, serial number, check, match)."""
        self.waiting_numbered: list[tuple[int, int, int, Composite, int | None]] = []
        """The same for deadlines that are event numbers of a count window, each with a deadline in time or None."""
        self.fresh: list[tuple[int, int, int, Composite]] = []
        self.fresh_numbered: list[tuple[int, int, int, Composite, int | None]] = []
        """Matches that were found and are not among the waiting ones yet; empty between two advances."""
        self.serial = count()
        self.pending: list[Row] = []
        self.runs_of: dict[int, list[dict[Any, list[Any]]]] = {}
        """Open runs of skip-till-next rules: by rule number and stage, those with the same key together."""
        self.watermark: float = float("-inf")
        self.doubtful = Doubtful()
        """Matches with postponed conditions, each with the check that judges them; empty between two events."""
        self.arrival = 0
        self.arrivals: dict[int, tuple[int, Row | None]] = {}
        """In an eager store, while evaluations are held: which rows came since, by their identity in memory, in the
        order in which they came. A held evaluation leaves out what came after it."""
        self.logs: dict[int, list[Row]] = {}
        self.log_bases: dict[int, list[int]] = {}
        """Of skip-till-next rules with runs that wait, by rule number: the events since the first that one waits at,
        and how many came before these."""


class Store:
    """A running store."""

    def __init__(
        self,
        compiled: CompiledStore,
        names: Mapping[str, Any],
        types: Mapping[str, EventType],
        number: int = 0,
        asking: Asking | None = None,
    ) -> None:
        """``asking``: what the engine asks of remote tables, if some of its evaluations may have to wait for them."""
        self.compiled = compiled
        self.number = number
        self._asking = asking if compiled.asks else None
        self._later: set[int] = set()
        self._swept_number = 0
        """Under a count window: what was needed when an event of this number came is still there."""
        self._types = types
        self.state = StoreState(compiled)
        self._names = names
        self.machines: list[NextMachine] = []
        self.fell_asleep: Callable[[str], None] = lambda event_type: None
        """Called when a buffer of the type is empty and will not be looked at before ``wake``: rules whose events do
        not come cost nothing."""
        self.failed: Callable[[Exception], None] = _raise
        """Called when a row or a decision fails; if it returns, the next one is looked at."""
        self.accept: list[Callable[[Composite], None]] = []
        self.lineage: dict[int, Lineage] = {}
        """By the number of a rule whose matches say what they rest on: what tells them."""
        self._counted = self._classes()
        self._bind()

    def _bind(self) -> None:
        self.handlers: dict[str, Handler]
        self.exports: dict[str, Callable[..., Any]]
        self.handlers, self._checks, self.exports = self._build(self.compiled.code)
        self._old_handlers: dict[str, Handler] | None = None
        counted = zip(self.compiled.aheads, self._counted, strict=True)
        types = dict.fromkeys(ahead.event_type for ahead, key_class in counted if key_class is not None)
        self.looks_ahead = {event_type: self._ahead_of(event_type) for event_type in types}
        """By type: what has elements fetched that an event will need."""
        self._by_type = {t: self.handlers[name] for name, t in self._types.items() if name in self.handlers}
        self._schedule = [(float("-inf"), position) for position in range(len(self.compiled.buffers))]
        self._asleep: dict[str, list[int]] = {}
        self._numbered_sweep = 0
        self._machines_due: float = float("-inf")

        self._ends: _Ends | None = None
        self._look_again()

    def _classes(self) -> list[Counted | None]:
        """For every lookup whose key an event names, what counts such events; None if nothing is to be counted."""
        if self._asking is None:
            return []
        return [
            self._asking.counted(
                ahead.rule,
                f"{self.compiled.name} {ahead.function}",
                ahead.lookup.table,
                ahead.horizon if ahead.count is None else ahead.count,
                numbered=ahead.count is not None,
                early=any(other.early for other in self.compiled.aheads if other.function == ahead.function),
            )
            for ahead in self.compiled.aheads
        ]

    def _ahead_of(self, event_type: str) -> Handler:
        """What has elements fetched that an event of the type will need."""
        functions = {
            ahead.function: counted.add
            for ahead, counted in zip(self.compiled.aheads, self._counted, strict=True)
            if ahead.event_type == event_type and counted is not None
        }
        named = [(self.exports[function], add) for function, add in functions.items()]

        def look_ahead(row: Row) -> None:
            for key_of, add in named:
                try:
                    key = key_of(row)
                except Exception:  # whatever is wrong with the event is said when it is evaluated
                    continue
                if key is not None:
                    add(key, row[0])

        return look_ahead

    def _build(self, code: CodeType) -> Any:
        """What the ``build`` function of a generated program gives for the state."""
        space: dict[str, Any] = {
            **NAMES,
            "bisect_left": bisect_left,
            "bisect_right": bisect_right,
            "C": Composite,
            **self.compiled.pool.objects,
            **self._names,
        }
        if self._asking is not None:
            self.state.doubtful.too_many = self._asking.too_many_in_doubt
            space |= waiting.NAMES | {"guarded": self._guarded, "arrived": self._arrived, "later": self._later}
            space |= {"misses": self._asking.misses}
            counted = {(a.rule, a.lookup): c for a, c in zip(self.compiled.aheads, self._counted, strict=True)}
            space |= {
                f"s{i}": Site(
                    self._asking,
                    site.rule,
                    site.lookup.table,
                    counted.get((site.rule, site.lookup)),
                    by_trigger=site.by_trigger,
                )
                for i, site in enumerate(self.compiled.sites)
            }
        exec(code, space)
        return space["build"](self.state)

    def replace_state(self, state: StoreState) -> None:
        """Continue from another state of the same compiled store."""
        self.state = state
        self._bind()
        for machine in self.machines:
            machine.bind(state)

    def saved(self) -> list[Any]:
        """Beside the state, what decides when rows and runs are freed and what runs have taught, as plain values: what
        is still there is looked at, which a cache remembers."""
        return [
            self._schedule,
            self._asleep,
            self._numbered_sweep,
            self._swept_number,
            self._machines_due,
            [machine.saved() for machine in self.machines],
        ]

    def restore(self, saved: Sequence[Any]) -> None:
        """Continue with it."""
        schedule, asleep, self._numbered_sweep, self._swept_number, self._machines_due, machines = saved
        self._schedule = [(due, position) for due, position in schedule]
        self._asleep = {name: list(positions) for name, positions in asleep.items()}
        for machine, learnt in zip(self.machines, machines, strict=True):
            if learnt is not None:
                machine.restore(learnt)

    # -------------------------------------------------------------------------------------------------------- arrivals

    def taker(self, event_type: str) -> Handler:
        """What takes the events of a type as they arrive."""
        self.wake(event_type)
        take = self.state.pending.append if self.compiled.ordered else self.handlers[event_type]
        look_ahead = self.looks_ahead.get(event_type)
        return take if look_ahead is None else all_of([look_ahead, take])

    def old_taker(self, event_type: str) -> Handler:
        """What takes events of a type that may be older than the watermark and complete nothing."""
        pending = self.state.pending
        if not self.compiled.ordered:
            insert = self.handlers[event_type]
        else:
            if self._old_handlers is None:
                source = compile(self.compiled.old_source, f"<headwater {self.compiled.name}>", "exec")
                self._old_handlers = self._build(source)
            insert = self._old_handlers[event_type]

        def take(row: Row) -> None:
            self.wake(event_type)
            if self.compiled.ordered and row[0] > self.state.watermark:
                pending.append(row)
            else:
                insert(row)

        return take

    # ------------------------------------------------------------------------------------------------------ in order

    def advance(self, watermark: float) -> None:
        """Nothing at or before the watermark will follow."""
        state = self.state
        if watermark <= state.watermark and (not state.pending or watermark == float("-inf")):
            return
        state.watermark = max(state.watermark, watermark)
        if not self.compiled.ordered:
            self._sweep(watermark)
            return
        pending = state.pending
        if pending:
            self._look_again()
            pending.sort()
            cut = len(pending) if watermark == float("inf") else bisect_left(pending, (watermark + 1,))
            ready = pending[:cut]
            del pending[:cut]
            for start in range(0, len(ready), CHUNK_EVENTS):
                chunk = ready[start : start + CHUNK_EVENTS]
                self._run(chunk)
                if start + CHUNK_EVENTS < len(ready):
                    passed = chunk[-1][0] - 1
                    self._decide(passed)
                    self._sweep(passed)
        if state.waiting or state.fresh or self.machines or state.waiting_numbered or state.fresh_numbered:
            self._decide(watermark)
        self._sweep(watermark)

    def _run(self, rows: list[Row]) -> None:
        before: Row = ()
        by_type, handlers = self._by_type, self.handlers
        if self.compiled.has_composites:
            for row in rows:
                if row != before:
                    before = row
                    kind = row[3]
                    try:
                        (handlers[kind.type] if isinstance(kind, Composite) else by_type[kind])(row)
                    except Exception as error:
                        self.failed(error)
            return
        for row in rows:
            if row != before:  # otherwise the same event was delivered again
                before = row
                try:
                    by_type[row[3]](row)
                except Exception as error:
                    self.failed(error)

    def _decide(self, watermark: float) -> None:
        for machine in self.machines:
            if machine.waits:
                machine.finish(watermark)
        waiting, numbered = self.state.waiting, self.state.waiting_numbered
        for fresh, heap in ((self.state.fresh, waiting), (self.state.fresh_numbered, numbered)):
            for entry in cast(list[Any], fresh):
                heapq.heappush(cast(list[Any], heap), entry)
                if self._ends is not None:
                    self._ends.add(entry)
            fresh.clear()
        while numbered and (numbered[0][0] <= self.state.number[0] or watermark == float("inf")):
            _, serial, check, match, deadline = heapq.heappop(numbered)
            heapq.heappush(waiting, (match.ts if deadline is None else deadline, serial, check, match))
        while waiting and waiting[0][0] <= watermark:
            deadline, serial, check, match = heapq.heappop(waiting)
            if self._ends is not None:
                self._ends.gone.add(serial)
            self._decide_on(check, match, deadline)
        if self._ends is not None and len(self._ends.gone) > 2 * len(waiting) + CHUNK_EVENTS:
            self._ends = None  # no caller asks any more, or a fresh look is cheap

    def _decide_on(self, check: int, match: Composite, deadline: float) -> None:
        try:
            if self._asking is not None:
                self._judge(check, match, deadline)
            elif self._checks[check](match):
                self.accept[check](match)
        except Exception as error:
            self.failed(error)

    # ------------------------------------------------------------------------------------------------- remote elements

    def _guarded(self, run: Handler, rule: int, again: str) -> Handler:
        """A trigger whose evaluation is held if it misses an element."""
        assert self._asking is not None
        asking, misses, state = self._asking, self._asking.misses, self.state

        def trigger(row: Row) -> None:
            marks = self.marks(rule)
            asking.begin(rule)
            state.doubtful.most = asking.in_doubt_max(rule)
            before = misses[0]
            try:
                run(row)
            except NotAtHand:
                pass
            except Exception:
                if misses[0] == before:
                    raise
            if misses[0] != before:
                self.take_back(rule, marks)
                self._hold_trigger(rule, again, row)
                return
            if self.lineage:
                self.tell_new(rule, marks)
            if state.doubtful:
                self.judge_doubtful(rule)

        return trigger

    def _hold_trigger(self, rule: int, again: str, row: Row, held: HeldEvaluation | None = None) -> None:
        assert self._asking is not None
        state = self.state
        arrival = state.arrival if held is None else held.what[3]
        if held is None:
            self._asking.postponing[rule].waits()
        if not self.compiled.ordered and not state.arrivals:
            state.arrivals[0] = (0, None)  # from now on it matters what comes
        # In an eager store the trigger may be any part of the match.
        end_ts = row[0]
        what = ("trigger", again, row, arrival)
        self.hold(rule, what, end_ts=end_ts, keeps_ts=row[0], again=held)

    def hold(
        self, rule: int, what: tuple[Any, ...], *, end_ts: float, keeps_ts: float, again: HeldEvaluation | None = None
    ) -> HeldEvaluation:
        """The evaluation that has just run waits for what it has noted: see ``Asking.hold``."""
        assert self._asking is not None
        return self._asking.hold(
            self.number, rule, what, end_ts=end_ts, keeps_ts=keeps_ts, number=self._swept_number, again=again
        )

    def _arrived(self, row: Row) -> None:
        if id(row) not in self.state.arrivals:
            self.state.arrival += 1
            self.state.arrivals[id(row)] = (self.state.arrival, row)

    def marks(self, rule: int) -> tuple[int, ...]:
        """How far everything has come that an evaluation of the rule may add to."""
        state, out = self.state, self._names[f"o{rule}"]
        given = out[0] if self._counts(rule) else len(out)
        return given, self._names[f"v{rule}"][0], len(state.fresh), len(state.fresh_numbered), len(state.doubtful)

    def take_back(self, rule: int, marks: tuple[int, ...]) -> None:
        """Take back what an evaluation has added since."""
        state, out = self.state, self._names[f"o{rule}"]
        given, self._names[f"v{rule}"][0], fresh, numbered, doubtful = marks
        if self._counts(rule):
            out[0] = given
        else:
            del out[given:]
        del state.fresh[fresh:]
        del state.fresh_numbered[numbered:]
        del state.doubtful[doubtful:]

    def _counts(self, rule: int) -> bool:
        out = self._names[f"o{rule}"]
        return len(out) == 1 and isinstance(out[0], int)

    def judge_doubtful(self, rule: int) -> None:
        """Judge the matches that were found with postponed conditions, or have them wait for the elements."""
        doubtful, self.state.doubtful[:] = self.state.doubtful[:], []
        assert self._asking is not None
        self._asking.postponing[rule].carried()
        for check, match in doubtful:
            try:
                self._judge(check, match, None)
            except Exception as error:
                self.failed(error)

    def _judge(self, check: int, match: Composite, deadline: float | None, held: HeldEvaluation | None = None) -> None:
        """``deadline``: what decides the match is kept as it was needed at this time."""
        asking = self._asking
        assert asking is not None
        rule = self.compiled.rule_of_check[check]
        asking.begin(rule, None if held is None else held.needs)
        over = self._names[f"v{rule}"]
        before, over_before = asking.misses[0], over[0]
        verdict: Any = False
        try:
            verdict = self._checks[check](match)
        except NotAtHand:
            pass
        except Exception:
            if asking.misses[0] == before:
                raise
        if asking.misses[0] != before:
            over[0] = over_before
            keeps_ts = float("inf") if deadline is None else deadline
            what = ("match", check, match, deadline)
            self.hold(rule, what, end_ts=match.ts, keeps_ts=keeps_ts, again=held)
        elif verdict:
            found = match if verdict is True else verdict
            if rule in self.lineage:
                found = self.lineage[rule].tell(found, asking.used, match.looked_up)
            self.accept[check](found)

    def retry(self, held: HeldEvaluation) -> None:
        """Go on with an evaluation whose elements are there."""
        kind = held.what[0]
        if kind == "trigger":
            self._retry_trigger(held)
        elif kind == "match":
            _, check, match, deadline = held.what
            self._judge(check, match, deadline, held)
        else:
            machine = next(machine for machine in self.machines if machine.plan.number == held.rule)
            machine.retry(held)

    def _retry_trigger(self, held: HeldEvaluation) -> None:
        asking, state = self._asking, self.state
        assert asking is not None
        _, again, row, arrival = held.what
        self._later.clear()
        self._later.update(identity for identity, (number, _) in state.arrivals.items() if number > arrival)
        marks = self.marks(held.rule)
        asking.begin(held.rule, held.needs)
        state.doubtful.most = asking.in_doubt_max(held.rule)
        before = asking.misses[0]
        try:
            self.exports[again if self._later else self.compiled.undisturbed.get(again, again)](row)
        except NotAtHand:
            pass
        except Exception:
            if asking.misses[0] == before:
                raise
        if asking.misses[0] != before:
            self.take_back(held.rule, marks)
            self._hold_trigger(held.rule, again, row, held)
            return
        self.tell_new(held.rule, marks)
        if state.doubtful:
            self.judge_doubtful(held.rule)

    def tell_new(self, rule: int, marks: tuple[int, ...], before: Iterable[LookedUp] = ()) -> None:
        """Tell the matches that an evaluation has added since what they rest on; ``before``: beside what it has looked
        up."""
        lineage = self.lineage.get(rule)
        if lineage is None:
            return
        assert self._asking is not None
        state = self.state
        given, _, fresh, numbered, doubtful = marks
        lists: list[tuple[list[Any], int, int]] = [
            (self._names[f"o{rule}"], given, -1),
            (state.fresh, fresh, 3),
            (state.fresh_numbered, numbered, 3),
            (state.doubtful, doubtful, 1),
        ]
        lineage.tell_new(lists, self._asking.used, before)

    def settle(self) -> None:
        """Evaluations that were held have gone on: decide and free what can be, now."""
        state = self.state
        if self.compiled.ordered and state.watermark > float("-inf"):
            self._decide(state.watermark)
        if state.arrivals and self._keeps() == float("inf"):
            state.arrivals.clear()
        if state.watermark > float("-inf"):
            self._sweep(state.watermark)

    def _keeps(self) -> float:
        return float("inf") if self._asking is None else self._asking.keeps(self.number)

    # -------------------------------------------------------------------------------------------------------- deciding

    def undecided_before(self, checks: frozenset[int]) -> float:
        """The least end of a match still waiting under one of these checks; infinity if there is none."""
        if self._ends is None:  # kept only where a caller asks
            self._ends = _Ends((*self.state.waiting, *self.state.waiting_numbered))
        return min(map(self._ends.least, checks), default=float("inf"))

    def _look_again(self) -> None:
        """Rows have left the pending ones, which so far only grew."""
        self._looked_at = 0
        self._next_trigger = float("inf")

    def waits_until(self, watermark: float) -> float:
        """The first moment after the watermark at which something held back now is decided; infinity if nothing is.

        What should have been decided already waits for another rule, which says itself when.
        """
        pending, compiled = self.state.pending, self.compiled
        if self._next_trigger <= watermark:  # it waits for something else; others that are pending follow it
            self._looked_at, self._next_trigger = 0, float("inf")
        if len(pending) > self._looked_at:
            for row in pending[self._looked_at :]:
                if watermark < row[0] < self._next_trigger:
                    kind = row[3]
                    name = kind.type if isinstance(kind, Composite) else kind.name
                    if name in compiled.completing or compiled.counted is not None:  # any event moves a count window on
                        self._next_trigger = row[0]
            self._looked_at = len(pending)
        waits = self._next_trigger
        if self.state.waiting and watermark < self.state.waiting[0][0] < waits:
            waits = self.state.waiting[0][0]
        for machine in self.machines:
            moment = machine.decided_at()
            if watermark < moment < waits:
                waits = moment
        return waits

    # -------------------------------------------------------------------------------------------------------- freeing

    def sweeps(self) -> list[Any]:
        """When it is looked next for what can be dropped, as plain values."""
        asleep = [[name, positions] for name, positions in self._asleep.items()]
        schedule = [[due, position] for due, position in self._schedule]
        return [schedule, asleep, self._numbered_sweep, self._swept_number, self._machines_due]

    def sweep_as(self, sweeps: Sweeps) -> None:
        """Look for what can be dropped when the store that was saved would have."""
        self._schedule, self._asleep, self._numbered_sweep, self._swept_number, self._machines_due = sweeps

    def _sweep(self, watermark: float) -> None:
        """Drop what no future match can use. Every buffer is swept a few times per horizon: amortised constant."""
        watermark = min(watermark, self._keeps() - 1)
        if self.machines and watermark >= self._machines_due:
            self._machines_due = min(machine.sweep(watermark) for machine in self.machines)
        if watermark == float("inf"):
            for rows in self.state.rows:
                rows.clear()
            return
        if self.compiled.counted is not None:
            self._sweep_numbered(self.compiled.counted)
            return
        schedule = self._schedule
        while schedule and schedule[0][0] <= watermark:
            _, position = schedule[0]
            horizon = self.compiled.buffers[position][1]
            newest = _drop_before(self.state.rows[position], watermark + 1 - horizon)
            due = watermark + max(1, horizon // SWEEPS_PER_HORIZON)
            if newest is None:  # what comes from now on cannot be old before a whole horizon has passed
                due = watermark + max(1, horizon)
            elif newest <= watermark:
                due = min(due, newest + horizon)
            name = self.compiled.buffer_types[position]
            if newest is None and name is not None and name in self._types and name not in self._pending_types():
                heapq.heappop(schedule)
                self._asleep.setdefault(name, []).append(position)
                self.fell_asleep(name)
            else:
                heapq.heapreplace(schedule, (max(due, watermark + 1), position))

    def _pending_types(self) -> set[str]:
        return {row[3].type if isinstance(row[3], Composite) else row[3].name for row in self.state.pending}

    def wake(self, event_type: str) -> None:
        """Events of the type come again: look after its buffers again."""
        for position in self._asleep.pop(event_type, ()):
            due = self.state.watermark + max(1, self.compiled.buffers[position][1])
            heapq.heappush(self._schedule, (due, position))

    def _sweep_numbered(self, window: int) -> None:
        """Under a count window rows go by their numbers, and not before windows of time inside it have passed too."""
        number = self.state.number[0]
        if number < self._numbered_sweep:
            return
        self._numbered_sweep = number + max(1, window // 2)
        if self._asking is not None:
            number = int(min(number, self._asking.keeps_number(self.number)))
            self._swept_number = number
        least = number + 2 - 2 * window
        lists = [
            (rows, key, bucket, horizon)
            for rows, (_, horizon) in zip(self.state.rows, self.compiled.buffers, strict=True)
            for key, bucket in (list(rows.items()) if isinstance(rows, dict) else [(None, rows)])
        ]
        cuts = [bisect_left(bucket, least, key=lambda row: row[-1]) for _, _, bucket, _ in lists]
        kept = [bucket[cut][0] for (_, _, bucket, _), cut in zip(lists, cuts, strict=True) if cut < len(bucket)]
        oldest = min(kept, default=float("inf"))
        for (rows, key, bucket, horizon), cut in zip(lists, cuts, strict=True):
            del bucket[: min(cut, bisect_left(bucket, (oldest - horizon,)))]
            if key is not None and not bucket:
                del rows[key]

    def overstayed(self, old_us: int) -> list[str]:
        """Buffers with rows that should have been dropped. A row that comes old is only looked at a horizon after the
        buffer was last found empty, and then at the next sweep."""
        watermark, sentences = min(self.state.watermark, self._keeps() - 1), []
        if self.compiled.counted is not None or not abs(watermark) < float("inf"):
            return []
        for rows, (_, horizon), name in zip(
            self.state.rows, self.compiled.buffers, self.compiled.buffer_types, strict=True
        ):
            lists = rows.values() if isinstance(rows, dict) else (rows,)
            oldest = min((bucket[0][0] for bucket in lists if bucket), default=watermark)
            if oldest < watermark - max(horizon, old_us) - horizon - max(1, horizon // SWEEPS_PER_HORIZON):
                sentences.append(f"{name} at {oldest} (watermark {watermark}, horizon {horizon})")
        return sentences

    def stored(self) -> int:
        """How many rows and partial matches are held."""
        held = len(self.state.pending) + len(self.state.waiting) + len(self.state.waiting_numbered)
        held += len(self.state.arrivals)
        for rows in self.state.rows:
            held += sum(map(len, rows.values())) if isinstance(rows, dict) else len(rows)
        return held + sum(machine.held() for machine in self.machines)


def _raise(error: Exception) -> None:
    raise error


class _Ends:
    """The least end of the waiting matches of each check, while they come and go."""

    def __init__(self, waiting: Iterable[tuple[Any, ...]]) -> None:
        self._heaps: dict[int, list[tuple[int, int]]] = {}
        self.gone: set[int] = set()
        """Serial numbers of matches that wait no more and are still in a heap."""
        for entry in waiting:
            self.add(entry)

    def add(self, entry: tuple[Any, ...]) -> None:
        heapq.heappush(self._heaps.setdefault(entry[2], []), (entry[3].ts, entry[1]))

    def least(self, check: int) -> float:
        heap = self._heaps.get(check, [])
        while heap and heap[0][1] in self.gone:
            self.gone.discard(heapq.heappop(heap)[1])
        return heap[0][0] if heap else float("inf")


def _drop_before(rows: Any, low: float) -> int | None:
    """Remove rows older than ``low``; the newest timestamp left."""
    if isinstance(rows, list):
        if rows and rows[0][0] < low:
            del rows[: bisect_left(rows, (low,))]
        return cast(int, rows[-1][0]) if rows else None
    newest: int | None = None
    dead = []
    for key, bucket in rows.items():
        last = bucket[-1][0]
        if last < low:
            dead.append(key)
            continue
        if bucket[0][0] < low:
            del bucket[: bisect_left(bucket, (low,))]
        if newest is None or last > newest:
            newest = last
    for key in dead:
        del rows[key]
    return newest
