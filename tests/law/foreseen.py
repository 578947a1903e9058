"""Long random streams whose remote elements come late: what an engine has learnt on the way decides what it asks for,
and what was restored of it and of its memory has learnt the same.

There is no oracle here, which such streams are too long for: two that must be equal are compared step by step.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial

from headwater.node.engine import Engine
from headwater.node.engine.program import compile_rules
from headwater.node.remote.caches import CACHES
from headwater.node.remote.memory import ENTRY_BYTES, Memory
from headwater.node.remote.policies import POLICIES
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.pattern import Rule, leaves
from tests.kit.patience import TooSlow, time_limit
from tests.law.awaited import DATA_SETS, TABLES, Late, hand
from tests.law.behind import looks_up, with_lookups
from tests.law.generators import TYPES, case_of_seed, random_trace
from tests.law.looked_up import of_another
from tests.law.twins import Twin, hasty

PIECES = 12
PIECE_EVENTS = 12
PIECE_TS = 24
RESTORING = 0.1
SECONDS = 5.0  # of work: a stream with more matches than that is left out


def rules_of(seed: int, rng: random.Random) -> tuple[Rule, ...]:
    """The rules of a seed's case, or now and then one whose runs have long known what they need."""
    if rng.random() < 0.7:
        return tuple(of_another(with_lookups(rule, rng), rng) for rule in case_of_seed(seed).rules)
    names = [rng.choice(sorted(TYPES)) for _ in range(rng.randint(2, 5))]
    parts = [f"{name}{rng.choice(('', '', '', '+'))} r{i}" for i, name in enumerate(names)]
    several = [i for i, part in enumerate(parts) if "+" in part]
    single = [i for i in range(len(parts)) if i not in several]
    conditions = ["SAME[id]"] if rng.random() < 0.2 and not several else []
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(parts))
        key = rng.choice([i for i in single if i <= at] or [0])
        if key in single and at in single:
            conditions.append(f"r{at}.v {rng.choice(('<', '>=', '!='))} REMOTE.table[r{key}.id]")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text = f"R: SEQ({', '.join(parts)}){where} WITHIN {rng.choice((5, 20, 60))} us SKIP TILL NEXT MATCH"
    return parse_rules([Source(text, "r.sase", "sase")], list(TYPES.values())).rules


def long_stream(rng: random.Random, types: Sequence[str]) -> list[Event]:
    """Traces one after the other, in which some keys are more frequent than others."""
    events: list[Event] = []
    keys = [rng.randint(0, 60) for _ in range(rng.choice((3, 10, 40)))]
    for piece in range(PIECES):
        for event in random_trace(rng, types, PIECE_EVENTS, set()):
            values = {**event.attributes}
            if "id" in values:
                values["id"] = keys[int(len(keys) * rng.random() ** 2)]
            events.append(Event(event[3], event.ts + piece * PIECE_TS, event.node, len(events), values))
    return sorted(events)


def check_foreseen(seed: int, counts: Counter[str] | None = None) -> int | None:
    """How many composites a stream gave; None if no rule looks anything up, or they are too many."""
    rng = random.Random(f"foreseen {seed}")
    rules = rules_of(seed, rng)
    if not any(map(looks_up, rules)):
        return None
    program = compile_rules(rules, list(TYPES.values()), remote=Memory(TABLES).tables)
    names = sorted({leaf.type for rule in rules for leaf in leaves(rule.pattern.root)} & set(TYPES))
    policy, cache = rng.choice(list(POLICIES)), rng.choice(list(CACHES))
    cache_bytes = rng.choice((3, 6, 12, 10**4)) * (ENTRY_BYTES + 16)
    memory = Memory(TABLES, policy=policy, cache=cache, cache_bytes=cache_bytes)
    try:
        with hasty(rng), time_limit(SECONDS):
            number = followed(Twin(program, memory), long_stream(rng, names), Late(rng, seed % DATA_SETS), rng)
    except TooSlow:
        return None
    if counts is not None:
        counts[policy] += 1
        counts[cache] += 1
        counts["prefetched"] += memory.prefetched
        counts["prefetched late"] += memory.prefetched_late
        counts["prefetched and never used"] += memory.prefetched_unused
    return number


def fed(event: Event, memory: Memory, engine: Engine) -> list[Composite]:
    return engine.feed([event])


def advanced(watermark: float, memory: Memory, engine: Engine) -> list[Composite]:
    return engine.advance(watermark)


def followed(twin: Twin, events: Sequence[Event], late: Late, rng: random.Random) -> int:
    """Take both through the stream; how many composites they gave."""
    number, restoring = 0, rng.choice((0.01, RESTORING))
    for place, event in enumerate(events):
        if rng.random() < restoring:
            twin.save_and_restore()
        number += len(twin.do(partial(fed, event)))
        if rng.random() < 0.5 and place + 1 < len(events):
            watermark = events[place + 1].ts - 1
            number += len(twin.do(partial(advanced, watermark)))
        number += handed_over(twin, late, rng)
    number += len(twin.do(lambda memory, engine: engine.close()))
    while twin.engine.waiting():
        number += handed_over(twin, late, rng, all_of_it=True)
    twin.compare()
    return number


def handed_over(twin: Twin, late: Late, rng: random.Random, *, all_of_it: bool = False) -> int:
    late.asked(twin.do(lambda memory, engine: memory.take_wanted()))
    for place in late.arrived(all_of_it=all_of_it):
        took_us = rng.choice((0, 10, 100, 10**6))
        twin.do(partial(hand, place, late.element(place), took_us))
    return len(twin.do(lambda memory, engine: Engine.supply(engine)))
