"""Random cases whose remote tables are behind providers: wherever a table is, the matches are those of the oracle.

The tables are drawn, with versions, collections and keys that are absent. The oracle has them at hand; the engine asks
a function or SQLite for them, under every strategy, with a cache of any size, with requests that fail now and then, and
is saved and restored with elements outstanding.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from headwater.node.engine import compile_rules
from headwater.node.remote.call import CallProvider
from headwater.node.remote.guard import Limits
from headwater.node.remote.memory import ENTRY_BYTES
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.provider import Elements, Key, Provider, Unreachable
from headwater.node.remote.sqlite import SqliteProvider
from headwater.node.remote.tables import Behind, Tables
from headwater.protocol.expressions import Attribute, Binary, Constant, Expression, Items, Remote, walk
from headwater.protocol.pattern import Rule, positive_leaves, repeated_roles
from headwater.protocol.remote import ACCEPT, WAIT, RemoteValue, TableTerms, Versions
from tests import oracle
from tests.law.fuzzing import (
    Advance,
    Feed,
    Mismatch,
    Run,
    SaveAndRestore,
    Schedule,
    check_complete,
    check_counts,
    check_decided_by_watermark,
    check_monotone_at_once,
    check_new,
    check_nothing_kept,
    check_nothing_late,
    expected_of,
    schedules,
)
from tests.law.generators import TYPES, Case, case_of_seed
from tests.law.timing import timings

KEYS = range(-64, 256)
DATA_SETS = 8
ABSENT = 0.25
FAILING = 0.1
CANNOT_BE_HAD = 0.3
LOOKING_UP = 0.8
IMPATIENT = Limits(tries=100, pause_first_s=0.0, failures_max=10**9)
QUERY = "select value, ts from elements where data = {data} and name = '{name}' and key = ?"


@cache
def drawn(data: int, name: str, key: int) -> Versions | None:
    """What a table of a data set has for a key."""
    rng = random.Random(f"{data} {name} {key}")
    if key not in KEYS or rng.random() < ABSENT:
        return None

    def value() -> RemoteValue:
        if name == "sets":
            return tuple(rng.randint(-1, 6) for _ in range(rng.randint(2, 4)))
        number: int | None = rng.choice((None, *range(-2, 8)))
        return number

    since: list[int | None] = [None] if rng.random() < 0.5 else []
    since += rng.sample(range(-2, 22), rng.randint(0 if since else 1, 4))
    return Versions.of([(each, value()) for each in since])


def is_failing(data: int, table: str, key: tuple[Any, ...]) -> bool:
    """Whether an element can never be had, where a table rejects or accepts then."""
    return random.Random(f"failing {data} {table} {key}").random() < CANNOT_BE_HAD


class AtHand:
    """A drawn table for the oracle. ``on_failure``: what is done with elements that cannot be had, if there are any."""

    def __init__(self, data: int, name: str, on_failure: str = WAIT) -> None:
        self._data = data
        self._name = name
        self._on_failure = on_failure

    def lookup(self, arguments: tuple[Any, ...], ts: int) -> Any:
        if self._on_failure != WAIT and is_failing(self._data, self._name, arguments):
            return oracle.ACCEPTED if self._on_failure == ACCEPT else None
        found = drawn(self._data, self._name, *arguments)
        return None if found is None else found.at(ts)


class Shaky(Provider):
    """A provider whose requests fail now and then, before they are made or after."""

    def __init__(self, inner: Provider, rng: random.Random) -> None:
        self.shown, self.key_length = inner.shown, inner.key_length
        self._inner = inner
        self._rng = rng

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        if self._rng.random() < FAILING:
            raise Unreachable("lost on the way there")
        found = await self._inner.fetch(keys)
        if self._rng.random() < FAILING:
            raise Unreachable("lost on the way back")
        return found

    async def close(self) -> None:
        await self._inner.close()


def fill(database: Path) -> None:
    """The rows of all data sets."""
    rows = [
        (data, name, key, each, None if since == float("-inf") else int(since))
        for data in range(DATA_SETS)
        for name in ("table", "sets")
        for key in KEYS
        for since, value in zip(*(drawn(data, name, key) or ((), ()))[:2], strict=True)
        for each in (value if isinstance(value, tuple) else (value,))
    ]
    with sqlite3.connect(database) as made:
        made.execute("create table elements (data int, name text, key int, value int, ts int)")
        made.executemany("insert into elements values (?, ?, ?, ?, ?)", rows)
        made.execute("create index by_key on elements (data, name, key)")
    made.close()


def provider(kind: str, data: int, name: str, database: Path) -> Provider:
    if kind == "sqlite":
        return SqliteProvider(str(database), QUERY.format(data=data, name=name), ["key"])

    async def later(key: int) -> Versions | None:
        await asyncio.sleep(0)
        return drawn(data, name, key)

    return CallProvider(later if kind == "async" else lambda key: drawn(data, name, key))


def with_lookups(rule: Rule, rng: random.Random) -> Rule:
    """The rule with most comparisons of ``v`` with a constant turned into lookups: as drawn, few rules have any."""

    def turned(conjunct: Expression) -> Expression:
        match conjunct:
            case Binary(operator, Attribute(role, "v", index) as value, Constant(int())) if rng.random() < LOOKING_UP:
                return Binary(operator, value, Remote("table", (Attribute(role, "id", index),)))
            case Binary("in" | "not in", Attribute(role, "v", index) as value, Items()) if rng.random() < LOOKING_UP:
                return Binary(conjunct.operator, value, Remote("sets", (Attribute(role, "id", index),)))
        return conjunct

    where = tuple(map(turned, rule.pattern.where))
    return replace(rule, pattern=replace(rule.pattern, where=where))


def of_others(rule: Rule, rng: random.Random) -> Rule:
    """The rule with some comparisons of two events, equalities among them, turned into comparisons with what the table
    has for the other."""

    def turned(conjunct: Expression) -> Expression:
        match conjunct:
            case Binary(operator, Attribute(one) as value, Attribute(other, _, index)) if one != other:
                if rng.random() < 0.5:
                    return Binary(operator, value, Remote("table", (Attribute(other, "id", index),)))
        return conjunct

    where = tuple(map(turned, rule.pattern.where))
    roles = [leaf.role for leaf in positive_leaves(rule.pattern.root) if leaf.type in TYPES]
    if len(roles) > 1 and not repeated_roles(rule.pattern.root) and rng.random() < 0.5:
        one, other = rng.sample(roles, 2)
        where = (*where, Binary("=", Attribute(one, "v"), Remote("table", (Attribute(other, "id"),))))
    return replace(rule, pattern=replace(rule.pattern, where=where))


def looks_up(rule: Rule) -> bool:
    return any(isinstance(part, Remote) for each in rule.pattern.where for part in walk(each))


def perform(case: Case, schedule: Schedule, expected: dict[str, Any], tables: Tables, *, waits: bool) -> None:
    """Run an engine through the schedule. ``waits``: the stream waits for elements, so that matches are out in time."""
    program = compile_rules(list(case.rules), case.types, remote=tables.memory.tables)
    run = Run(case, schedule, expected, timings(case.rules))
    engine = tables.engine(program)
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
                engine = tables.engine(program)
                engine.restore(saved)
                continue
        if waits:
            check_monotone_at_once(run)
            check_decided_by_watermark(run)
    check_new(run, engine.close())
    check_complete(run)
    check_nothing_late(run, engine)
    check_nothing_kept(run, engine)


def check_behind(seed: int, database: Path, counts: Counter[str] | None = None) -> int | None:
    """The number of matches of a case, or None if none of its rules looks anything up; raises Mismatch."""
    rng = random.Random(f"behind {seed}")
    drawn_case = case_of_seed(seed, size=20)
    case = replace(drawn_case, rules=tuple(with_lookups(rule, rng) for rule in drawn_case.rules))
    if not any(map(looks_up, case.rules)):
        return None
    data = seed % DATA_SETS
    case = replace(case, remote={name: AtHand(data, name) for name in ("table", "sets")})
    expected = expected_of(case)
    if expected is None:
        return None
    kinds = {name: rng.choice(("call", "async", "sqlite")) for name in ("table", "sets")}
    given = {
        name: Behind(
            Shaky(provider(kind, data, name, database), rng), IMPATIENT, TableTerms(rng.choice((None, None, None, 1)))
        )
        for name, kind in kinds.items()
    }
    cache_bytes = rng.choice((0, 5 * ENTRY_BYTES, 10**6, 10**6))
    policy = rng.choice(list(POLICIES))
    with Tables(given, policy, cache_bytes) as tables:
        for schedule in schedules(random.Random(f"schedule {seed}"), case.events, 1):
            named = replace(schedule, name=f"{schedule.name}, {policy}")
            try:
                perform(case, named, expected, tables, waits=POLICIES[policy].waiting.pauses)
            except Mismatch:
                raise
            except Exception as error:
                raise Mismatch("raised", f"{policy}: {error!r}", case, named) from error
            if counts is not None:
                counts[policy] += 1
        check_counts(replace(case, remote=tables.memory.tables), seed, expected, tables.engine)
    return len(expected)
