"""Engine against oracle: random cases under random deliveries, and what must hold at every moment of each.

``check_seed`` makes the case of a seed, asks the oracle and runs the engine under several delivery schedules. Each
property has a function of its own, so that a failure says which one broke. ``minimise`` makes a failing case small.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.protocol import pattern as pt
from headwater.protocol.events import Event
from tests.law.describing import describe
from tests.law.generators import Case, case_of_seed
from tests.law.shrinking import reductions
from tests.law.timing import Timing, deciding_ts, timings
from tests.oracle import Found, TooManyMatches, evaluate

MATCHES_MAX = 3000
READ_MAX = 40  # composites of one rule that others read: their combinations explode
SAVES_MAX = 2  # in one schedule: most of a case's time goes into compiling its rules for a fresh engine
FAR = 10**12  # beyond every window of every case

IGNORED: list[str] = []
"""Words of properties not to check, for a developer who works on others first (scripts/fuzz --ignore)."""


class Mismatch(AssertionError):
    """The engine broke a property. ``case`` and ``schedule`` repeat it."""

    def __init__(self, broken: str, detail: str, case: Case, schedule: Schedule) -> None:
        super().__init__(f"{broken}: {detail}")
        self.property = broken
        self.detail = detail
        self.case = case
        self.schedule = schedule

    def __reduce__(self) -> tuple[Any, ...]:
        return Mismatch, (self.property, self.detail, self.case, self.schedule)


# -- schedules: how a trace reaches the engine -------------------------------------------------------------------------


@dataclass(frozen=True)
class Feed:
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Advance:
    watermark: int


@dataclass(frozen=True)
class SaveAndRestore:
    """Snapshot, restore into a fresh engine, go on with that one."""


@dataclass(frozen=True)
class Schedule:
    name: str
    actions: tuple[Feed | Advance | SaveAndRestore, ...]


def in_order_at_once(events: Sequence[Event]) -> Schedule:
    return Schedule("in order, one batch", (Feed(tuple(events)),))


def in_order_one_by_one(events: Sequence[Event]) -> Schedule:
    """Every event alone, the watermark right behind it."""
    actions: list[Any] = []
    for i, event in enumerate(events):
        actions.append(Feed((event,)))
        if i + 1 < len(events) and events[i + 1].ts > event.ts:
            actions.append(Advance(events[i + 1].ts - 1))
    return Schedule("in order, one by one", tuple(actions))


def random_schedule(rng: random.Random, events: Sequence[Event]) -> Schedule:
    """Out of order within honest watermarks, in batches, with duplicates, saved and restored in between."""
    lateness = rng.choice((0, 1, 3, 6, 100))
    deliveries = [*events, *(event for event in events if rng.random() < 0.15)]
    deliveries.sort(key=lambda event: (event.ts + rng.uniform(0, lateness), rng.random()))
    batch_max = rng.choice((1, 3, 6, 20))
    eagerness, saving = rng.choice((0.3, 1.0)), rng.choice((0.0, 0.3, 1.0))
    actions: list[Any] = []
    watermark = -1
    while deliveries:
        size = rng.randint(1, batch_max)
        batch, deliveries = deliveries[:size], deliveries[size:]
        actions.append(Feed(tuple(batch)))
        if rng.random() < saving:
            actions.append(SaveAndRestore())
        honest = min((event.ts for event in deliveries), default=max(event.ts for event in events) + 3) - 1
        if rng.random() < eagerness and honest > watermark:
            watermark = honest if rng.random() < 0.7 else rng.randint(watermark + 1, honest)
            actions.append(Advance(watermark))
            if rng.random() < saving:
                actions.append(SaveAndRestore())
    while rng.random() < 0.5:
        watermark += rng.randint(1, 6)
        actions.append(Advance(watermark))
    saves = [i for i, action in enumerate(actions) if isinstance(action, SaveAndRestore)]
    dropped = set(saves) - set(rng.sample(saves, min(len(saves), SAVES_MAX)))
    kept = tuple(action for i, action in enumerate(actions) if i not in dropped)
    return Schedule(f"lateness {lateness}, batches of up to {batch_max}", kept)


def schedules(rng: random.Random, events: Sequence[Event], count: int = 2) -> Iterator[Schedule]:
    yield in_order_at_once(events)
    yield in_order_one_by_one(events)
    for _ in range(count):
        yield random_schedule(rng, events)


# -- the properties ----------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """An engine on its way through a schedule, and what the oracle says about it."""

    case: Case
    schedule: Schedule
    expected: dict[str, Found]
    timing: dict[str, Timing]
    emitted: list[Any] = field(default_factory=list)
    fed: set[tuple[str, int]] = field(default_factory=set)
    watermark: int = -1

    def fail(self, broken: str, detail: str) -> None:
        if any(word in broken for word in IGNORED):
            return
        raise Mismatch(broken, detail, self.case, self.schedule)

    def rule(self, name: str) -> pt.Rule:
        return next(rule for rule in self.case.rules if rule.name == name)

    def show(self, ids: Iterable[str]) -> str:
        shown = [self.expected[i] for i in ids if i in self.expected]
        return "; ".join(f"{f.rule} {' '.join(f'{role}:{part}' for role, part in f.parts)}" for f in shown[:5])


def check_new(run: Run, new: Sequence[Any]) -> None:
    """Nothing false, nothing twice, and the content is right."""
    before = {composite.id for composite in run.emitted}
    for composite in new:
        if composite.id not in run.expected:
            run.fail("emitted a match that is none", f"{composite.rule}: {composite!r} at watermark {run.watermark}")
        if composite.id in before:
            run.fail("emitted a match twice", f"{composite.rule}: {composite!r}")
        before.add(composite.id)
        check_content(run, composite, run.expected[composite.id])
    run.emitted += new


def check_content(run: Run, composite: Any, expected: Found) -> None:
    told = composite.to_json()
    told.pop("remote", None)  # what it rests on is checked where tables are
    told_parts = [(p["role"], p.get("id") or (p["node"], p["seq"])) for p in told.pop("events")]
    wanted = {
        "id": expected.id,
        "type": expected.type,
        "ts": expected.ts,
        "start": expected.start[0],
        "end": expected.end[0],
        "rule": expected.rule,
        "attributes": dict(expected.attributes),
    }
    if told != wanted or told_parts != list(expected.parts):
        run.fail("wrong content", f"told {told} {told_parts}, expected {wanted} {expected.parts}")
    if (composite.start, composite.end) != (expected.start, expected.end):
        run.fail("wrong start or end", f"{composite.start}..{composite.end}, not {expected.start}..{expected.end}")


def check_monotone_at_once(run: Run) -> None:
    """Matches of monotone rules are out as soon as their parts are in."""
    out = {composite.id for composite in run.emitted}
    for match in run.expected.values():
        if run.timing[match.rule].eager and match.id not in out:
            parts = [identity for _, identity in match.parts]
            if all(part in run.fed if isinstance(part, tuple) else part in out for part in parts):
                run.fail("a monotone rule held a match back", run.show([match.id]))


def check_decided_by_watermark(run: Run) -> None:
    """Matches of the other rules are out when the watermark decides them: not before and not later."""
    out = {composite.id for composite in run.emitted}
    for match in run.expected.values():
        timing = run.timing[match.rule]
        if timing.eager:
            continue
        decided = deciding_ts(run.rule(match.rule), match)
        if match.id in out and decided > run.watermark:
            run.fail("emitted before it was decided", f"{run.show([match.id])}: {decided} > {run.watermark}")
        if match.id not in out and timing.exact and decided <= run.watermark:
            run.fail("not emitted though decided", f"{run.show([match.id])}: {decided} <= {run.watermark}")


def check_complete(run: Run) -> None:
    missing = set(run.expected) - {composite.id for composite in run.emitted}
    if missing:
        run.fail("missed matches", f"{len(missing)} of {len(run.expected)}: {run.show(sorted(missing))}")


def check_nothing_late(run: Run, engine: Any) -> None:
    if late := engine.take_late():
        run.fail("called events late that were not", repr(late))


def check_nothing_kept(run: Run, engine: Any) -> None:
    if hasattr(engine, "stored") and (kept := engine.stored()):
        run.fail("kept rows after everything was decided", f"{kept} rows")


# -- running -----------------------------------------------------------------------------------------------------------


def perform(case: Case, schedule: Schedule, expected: dict[str, Found], programs: list[Any]) -> list[str]:
    """Run the engine through the schedule, check every property on the way and give the ids in order of emission.

    ``programs`` keeps the compiled rules of the case, so that all its runs share them.
    """
    from headwater.node.engine import Engine, compile_rules

    run = Run(case, schedule, expected, timings(case.rules))

    def fresh() -> Any:
        if not programs:
            programs.append(compile_rules(list(case.rules), case.types, remote=case.remote))
        return Engine(programs[0])

    try:
        engine = fresh()
        for action in schedule.actions:
            match action:
                case Feed(events):
                    run.fed |= {(event.node, event.seq) for event in events}
                    check_new(run, engine.feed(list(events)))
                case Advance(watermark):
                    run.watermark = watermark
                    check_new(run, engine.advance(watermark))
                case SaveAndRestore():
                    saved = engine.snapshot()
                    engine = fresh()
                    engine.restore(saved)
                    continue
            check_monotone_at_once(run)
            check_decided_by_watermark(run)
        run.watermark = FAR
        far = len(schedule.actions) % 2 == 1
        if far:
            check_new(run, engine.advance(FAR))
        check_new(run, engine.close())
        check_complete(run)
        check_nothing_late(run, engine)
        if far:
            check_nothing_kept(run, engine)
        return [composite.id for composite in run.emitted]
    except Mismatch:
        raise
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.filename.rsplit('/', 1)[-1]}:{where.lineno}"
        raise Mismatch(f"raised {type(error).__name__} at {place}", str(error), case, schedule) from error


def expected_of(case: Case) -> dict[str, Found] | None:
    """What the oracle finds, by id; None if the case explodes."""
    try:
        found = evaluate(
            case.rules, case.events, case.types, None, case.remote, matches_max=MATCHES_MAX, read_max=READ_MAX
        )
    except TooManyMatches:
        return None
    return {match.id: match for match in found}


def check_case(case: Case, schedule_seed: int = 0, count: int = 2) -> int:
    """Check one case under several schedules; gives the number of matches, raises Mismatch."""
    expected = expected_of(case)
    if expected is None:
        return 0
    programs: list[Any] = []
    for schedule in schedules(random.Random(f"schedule {schedule_seed}"), case.events, count):
        order = perform(case, schedule, expected, programs)
        if schedule_seed % 8 == 0 and order != perform(case, schedule, expected, []):
            raise Mismatch(
                "another order the second time", "the same schedule gave its matches otherwise", case, schedule
            )
    check_counts(case, schedule_seed, expected)
    return len(expected)


def check_counts(
    case: Case, schedule_seed: int, expected: dict[str, Found], start: Callable[[Any], Any] | None = None
) -> None:
    """Counting without listing gives as many as listing, with few kinds of choices told apart, or one by one.

    ``start`` makes an engine of a program; by default ``Engine``.
    """
    from headwater.node.engine import Engine, compile_rules, counting

    rng = random.Random(f"counting {schedule_seed}")
    program = compile_rules(list(case.rules), case.types, remote=case.remote, count_only=True)
    schedule = random_schedule(rng, case.events)
    numbers = {rule.name: sum(match.rule == rule.name for match in expected.values()) for rule in case.rules}
    kinds_max = counting.KINDS_MAX
    counting.KINDS_MAX = rng.choice((kinds_max, kinds_max, 3))
    try:
        engine = (start or Engine)(program)
        for action in schedule.actions:
            match action:
                case Feed(events):
                    engine.feed(list(events))
                case Advance(watermark):
                    engine.advance(watermark)
                case SaveAndRestore():
                    engine = engine.copy()
        engine.close()
    finally:
        counting.KINDS_MAX = kinds_max
    if engine.counts() != numbers:
        raise Mismatch("counted other than listed", f"counted {engine.counts()}, not {numbers}", case, schedule)


def check_seed(seed: int) -> int:
    return check_case(case_of_seed(seed), seed)


# -- making failing cases small ----------------------------------------------------------------------------------------


def failure_of(case: Case, schedule_seed: int, tries: int = 6) -> Mismatch | None:
    try:
        check_case(case, schedule_seed, count=tries)
    except Mismatch as mismatch:
        return mismatch
    return None


def minimise(case: Case, mismatch: Mismatch, schedule_seed: int = 0, seconds: float = 20.0) -> tuple[Case, Mismatch]:
    """Drop events, rules, conjuncts, steps, parts and attributes while the same property still breaks."""
    until = time.monotonic() + seconds
    smaller = True
    while smaller and time.monotonic() < until:
        smaller = False
        for candidate in reductions(case):
            if time.monotonic() > until:
                break
            try:
                found = failure_of(candidate, schedule_seed)
            except Exception:  # the reduced case is not valid
                continue
            if found is not None and kind_of_failure(found) == kind_of_failure(mismatch):
                case, mismatch, smaller = candidate, found, True
                break
    return case, mismatch


def kind_of_failure(mismatch: Mismatch) -> str:
    return mismatch.property.split(":")[0]


# -- reporting ---------------------------------------------------------------------------------------------------------


def report(mismatch: Mismatch, seed: int | None, small: tuple[Case, Mismatch] | None = None) -> str:
    case, shown = small or (mismatch.case, mismatch)
    lines = [
        f"seed {seed}: {mismatch}",
        f"repeat with: scripts/fuzz --seed {seed} --count 1",
        "",
        f"# smallest case found: {shown}",
        f"# schedule: {shown.schedule.name}",
        *(f"#   {action}" for action in shown.schedule.actions),
        describe(case),
    ]
    return "\n".join(lines)


@dataclass
class Outcome:
    """What a stretch of seeds gave."""

    cases: int = 0
    matched: int = 0
    matches: int = 0
    failures: list[tuple[int, Mismatch]] = field(default_factory=list)


def run_seeds(
    first: int,
    count: int | None,
    seconds: float | None,
    failures_max: int = 1,
    tell: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Check seeds one after the other until the count, the time or the failures are used up."""
    outcome = Outcome()
    until = None if seconds is None else time.monotonic() + seconds
    seed = first
    while (count is None or seed < first + count) and (until is None or time.monotonic() < until):
        try:
            matches = check_seed(seed)
            outcome.matched += matches > 0
            outcome.matches += matches
        except Mismatch as mismatch:
            outcome.failures.append((seed, mismatch))
        outcome.cases += 1
        seed += 1
        if tell is not None:
            tell(outcome)
        if len(outcome.failures) >= failures_max:
            break
    return outcome


def kept_case(source: str) -> Case:
    """The case in the text that ``describe`` printed."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return namespace["case"]  # type: ignore[no-any-return]
