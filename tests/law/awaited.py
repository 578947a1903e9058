"""Random cases whose remote elements come later: an engine that never waits finds what the oracle finds.

The tables are drawn, with versions, collections and keys that are absent. The oracle has them at hand. The engine asks
for elements and gets them after some more events, in any order, once or twice, or only when everything else is over,
under every policy and with a cache of any size. It is saved at any moment with its memory; what is restored of these
goes on beside it and must do exactly what it does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headwater.deploy.experiments.eires.tuning import TunedMemory, Tuning
from headwater.node.engine import Engine
from headwater.node.engine.program import Program, compile_rules
from headwater.node.engine.waiting_match import AskingNextMatch
from headwater.node.remote.caches import CACHES
from headwater.node.remote.memory import ENTRY_BYTES, Memory
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.utility import Weights
from headwater.protocol.remote import ACCEPT, ON_FAILURE, STEADY, TableTerms
from tests.law.behind import AtHand, drawn, is_failing, looks_up, of_others, with_lookups
from tests.law.fuzzing import Advance, Feed, Mismatch, Run, SaveAndRestore, Schedule, check_new, expected_of, schedules
from tests.law.generators import case_of_seed
from tests.law.lineage import wrongly_said
from tests.law.twins import Twin, hasty

TABLES = ("table", "sets")
DATA_SETS = 8


def drawn_terms(rng: random.Random) -> dict[str, TableTerms]:
    """What lookups mean in some of the tables."""
    drawn_terms = {}
    for table in TABLES:
        if rng.random() < 0.5:
            drawn_terms[table] = TableTerms(
                on_failure=rng.choice(ON_FAILURE), lineage=rng.random() < 0.5, whole=rng.random() < 0.3
            )
    return drawn_terms


def along(table: str, key: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Which other keys come with one, where a table answers for several."""
    return [(other,) for other in range(4 * (key[0] // 4), 4 * (key[0] // 4) + 4) if other != key[0]]


class Late:
    """Elements on their way: each comes after a drawn number of steps, and now and then once more."""

    def __init__(self, rng: random.Random, data: int) -> None:
        self._rng = rng
        self._data = data
        self._slowest = rng.choice((0, 0, 1, 3, 10, 10**6))
        self._under_way: list[tuple[int, tuple[str, Any]]] = []
        self._step = 0

    def asked(self, places: Sequence[tuple[str, Any]]) -> None:
        for place in places:
            self._under_way.append((self._step + self._rng.randint(0, self._slowest), place))
            if self._rng.random() < 0.1:
                self._under_way.append((self._step + self._rng.randint(0, self._slowest), place))

    def arrived(self, *, all_of_it: bool = False) -> Iterator[tuple[str, Any]]:
        self._step += 1
        due = [entry for entry in self._under_way if all_of_it or entry[0] < self._step]
        self._under_way = [entry for entry in self._under_way if entry not in due]
        self._rng.shuffle(due)
        return iter([place for _, place in due])

    def element(self, place: tuple[str, Any]) -> Any:
        return self.of(*place)

    def of(self, table: str, key: tuple[Any, ...]) -> Any:
        return drawn(self._data, table, *key)


def decide_by_lot(engine: Engine, rng: random.Random) -> None:
    """Decide by lot where it pays to go on without an element; cases are too short for the engine to find out."""
    for postponing in engine.asking.postponing if engine.asking is not None else ():
        postponing.pays = rng.random() < 0.5
    for store in engine._stores:
        for machine in store.machines:
            if isinstance(machine, AskingNextMatch):
                machine._splitting = {number: rng.random() < 0.5 for number in machine._splitting}


def by_hand(rng: random.Random) -> Tuning:
    """Decisions as experiments set them, in half of the cases."""
    if rng.random() < 0.5:
        return Tuning()
    return Tuning(
        noise=rng.choice((0.0, 0.5)),
        weights=Weights(rng.random(), rng.random()),
        lookahead=rng.choice((None, 1, 2, 9)),
        stages_in_doubt=rng.choice((None, 0, 1, 1, 1, 2)),
    )


def hand(place: tuple[str, Any], element: Any, took_us: float, memory: Memory, engine: Engine) -> bool:
    """An element has come; whether it was asked for."""
    memory.took(place[0], took_us)
    if not memory.supply(*place, element):
        return False
    engine.supplied(*place, element)
    return True


def told_together(table: str, keys: tuple[Any, ...], memory: Memory, engine: Engine) -> None:
    memory.came_together(table, keys)


def drawn_strategies(rng: random.Random, rules: Iterable[Any]) -> dict[str, str]:
    """Remote strategies of single rules, which have names, in some cases."""
    if rng.random() < 0.5:
        return {}
    return {rule.name: rng.choice(list(POLICIES)) for rule in rules if rng.random() < 0.5}


class Awaited:
    """One engine on its way through a schedule, with elements on their way to it."""

    def __init__(
        self,
        program: Program,
        run: Run,
        rng: random.Random,
        policy: str,
        cache: str,
        data: int,
        tuning: Tuning,
        terms: dict[str, TableTerms],
    ) -> None:
        self.rng = rng
        self.run = run
        use: dict[str, Any] = {
            "policy": policy,
            "policies": drawn_strategies(random.Random(f"of rules {rng.random()}"), program.rules),
            "cache": cache,
            "cache_bytes": rng.choice((0, 5 * ENTRY_BYTES, 10**6, 10**6)),
            "terms": terms,
        }
        self.memory = Memory(TABLES, **use) if tuning == Tuning() else TunedMemory(TABLES, tuning, **use)
        self.data = data
        self.rules = {rule.name: rule for rule in program.rules}
        self.twin = Twin(program, self.memory)
        if rng.random() < 0.5:
            decide_by_lot(self.engine, rng)
        self.late = Late(rng, data)
        self.promised = float("-inf")

    @property
    def engine(self) -> Engine:
        return self.twin.engine

    def perform(self, schedule: Schedule) -> None:
        for action in schedule.actions:
            match action:
                case Feed(events):
                    self.take(partial(Engine.feed, events=events))
                case Advance(watermark):
                    self.run.watermark = watermark
                    self.take(partial(Engine.advance, watermark=watermark))
                case SaveAndRestore():
                    self.twin.save_and_restore()
            self.hand_over()
        self.take(Engine.close)
        for _ in range(10_000):
            if not self.engine.waiting():
                break
            self.hand_over(all_of_it=True)
        if self.engine.waiting():
            self.run.fail("waits for ever", repr(list(self.engine.asking.held.values())))  # type: ignore[union-attr]
        self.twin.compare()

    def hand_over(self, *, all_of_it: bool = False) -> None:
        self.late.asked(self.twin.do(lambda memory, engine: memory.take_wanted()))
        for place in self.together(self.late.arrived(all_of_it=all_of_it)):
            if self.rng.random() < 0.1:
                self.twin.save_and_restore()
            element, took_us = self.memory.stamped(place[0], self.element(place)), self.rng.choice((0, 10, 10**6))
            if self.twin.do(partial(hand, place, element, took_us)) and self.rng.random() < 0.7:
                self.take(Engine.supply)
        self.take(Engine.supply)

    def together(self, places: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """With the elements of tables that answer for several keys, those of other keys come."""
        for table, key in places:
            if self.memory.terms_of(table).whole:
                together = (key, *along(table, key))
                self.twin.do(partial(told_together, table, together))
                yield from ((table, other) for other in along(table, key))
            yield table, key

    def element(self, place: tuple[str, Any]) -> Any:
        """What comes: the element, or what stands for it if it cannot be had."""
        instead = None
        if is_failing(self.data, *place):
            instead = self.twin.do(lambda memory, engine: memory.instead(place[0]))
        return self.late.element(place) if instead is None else instead

    def take(self, call: Callable[[Engine], list[Any]]) -> None:
        composites = self.twin.do(lambda memory, engine: call(engine))
        for composite in composites:
            if composite.ts <= self.promised:
                self.run.fail("emitted what was promised not to come", f"{composite!r} after {self.promised}")
            rule, failing = self.rules[composite.rule], partial(is_failing, self.data)
            if wrong := wrongly_said(rule, composite, self.memory.terms, self.late.of, failing):
                self.run.fail("does not say what it rests on", f"{composite!r} {wrong}: {composite.looked_up}")
        check_new(self.run, composites)
        self.promised = max(self.promised, self.engine.output_watermark())


def check_awaited(seed: int, counts: Counter[str] | None = None) -> int | None:
    """The number of matches of a case, or None if none of its rules looks anything up; raises Mismatch."""
    rng = random.Random(f"awaited {seed}")
    drawn_case = case_of_seed(seed, size=20)
    case = replace(drawn_case, rules=tuple(with_lookups(rule, rng) for rule in drawn_case.rules))
    terms = drawn_terms(random.Random(f"terms {seed}"))
    if terms.get("table", STEADY).on_failure == ACCEPT:  # which no index of equal values may miss
        others = random.Random(f"others {seed}")
        case = replace(case, rules=tuple(of_others(rule, others) for rule in case.rules))
    if not any(map(looks_up, case.rules)):
        return None
    data = seed % DATA_SETS
    case = replace(case, remote={name: AtHand(data, name, terms.get(name, STEADY).on_failure) for name in TABLES})
    expected = expected_of(case)
    if expected is None:
        return None
    program = compile_rules(case.rules, case.types, remote=Memory(TABLES, terms=terms).tables)
    for schedule in schedules(random.Random(f"schedule {seed}"), case.events, 1):
        policy, cache = rng.choice(list(POLICIES)), rng.choice(list(CACHES))
        run = Run(case, replace(schedule, name=f"{schedule.name}, {policy}, {cache}"), expected, {})
        try:
            tuning = by_hand(random.Random(f"by hand {seed}"))
            with hasty(rng):
                awaited = Awaited(program, run, rng, policy, cache, data, tuning, terms)
                awaited.perform(schedule)
            missing = set(expected) - {composite.id for composite in run.emitted}
            if missing:
                run.fail("missed matches", f"{len(missing)} of {len(expected)}: {run.show(sorted(missing))}")
            if kept := awaited.engine.stored():
                run.fail("kept rows after everything was decided", f"{kept} rows")
            if late := awaited.engine.take_late():
                run.fail("called events late that were not", repr(late))
        except Mismatch:
            raise
        except Exception as error:
            raise Mismatch("raised", f"{policy}: {error!r}", case, schedule) from error
        if counts is not None:
            counts[policy] += 1
            counts[cache] += 1
            counts["elements that could not be had"] += sum(each.given_up for each in awaited.memory.lookups.values())
            counts["prefetched"] += awaited.memory.prefetched
            counts["prefetched and never used"] += awaited.memory.prefetched_unused
    return len(expected)
