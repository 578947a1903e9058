"""What is kept of remote tables, and what is fetched before anything needs it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.node.engine import Engine
from headwater.node.engine.next_match import NextMatch
from headwater.node.engine.program import compile_rules
from headwater.node.engine.remote_memory import MISSING
from headwater.node.engine.splitting import where_splitting_pays
from headwater.node.remote.caches import CACHES, ENTRY_BYTES
from headwater.node.remote.encoding import decode_plain
from headwater.node.remote.memory import Memory
from headwater.node.remote.prefetching import FAILURES_MAX, KEYS_MAX, REFRESH_EVERY, KeyClass
from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.remote import Versions

TYPES = [EventType(name, {"k": "int", "v": "int"}) for name in "ABC"]
A, B, C = TYPES
ELEMENT = Versions.always(1)
SIZE = ENTRY_BYTES + 16


def an_engine(text: str, memory: Memory) -> Engine:
    rules = parse_rules([Source(text, "r.sase", "sase")], TYPES)
    return Engine(compile_rules(rules, remote=memory.tables), memory=memory)


def event(kind: EventType, ts: int, k: int = 0, v: int = 0) -> Any:
    return Event.from_row((ts, "n", ts, kind, k, v))


def supplied(memory: Memory, *keys: int) -> None:
    for key in keys:
        memory.want("remote", (key,))
        memory.take_wanted()
        assert memory.supply("remote", (key,), ELEMENT)


def at_hand(memory: Memory, *keys: int) -> list[int]:
    find = memory.finder("remote")
    return [key for key in keys if find((key,)) is not MISSING]


# ------------------------------------------------------------------------------------------------ caches


def test_lru_drops_what_was_not_looked_up_for_longest() -> None:
    memory = Memory(["remote"], cache="lru", cache_bytes=3 * SIZE)
    supplied(memory, 1, 2, 3)
    at_hand(memory, 1)
    supplied(memory, 4)
    assert at_hand(memory, 1, 2, 3, 4) == [1, 3, 4]


def test_cost_drops_what_is_worth_least_for_its_size() -> None:
    memory = Memory(["remote"], policy="cache", cache="cost", cache_bytes=3 * SIZE)
    needed = memory.key_class("r", "a", "remote", 1000, numbered=False, early=True)
    assert needed is not None
    for key, times in ((1, 3), (2, 1), (3, 5), (4, 2)):
        for ts in range(times):
            needed.add((key,), ts)
    supplied(memory, 1, 2, 3)
    at_hand(memory, 1, 2, 3)
    supplied(memory, 4)
    assert at_hand(memory, 1, 2, 3, 4) == [1, 3, 4]


def test_cost_keeps_what_was_asked_for_and_not_looked_up_yet_before_all_others() -> None:
    memory = Memory(["remote"], policy="cache", cache="cost", cache_bytes=4 * SIZE)
    needed = memory.key_class("r", "a", "remote", 1000, numbered=False, early=True)
    assert needed is not None
    supplied(memory, 1, 2, 3, 4)
    at_hand(memory, 1, 2, 3)  # 4 is awaited still
    for key in (1, 2, 3):
        needed.add((key,), 0)
    supplied(memory, 5)
    assert 4 in at_hand(memory, 4, 5)


@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_never_takes_more_bytes_than_it_may(cache: str) -> None:
    memory = Memory(["remote"], cache=cache, cache_bytes=10 * SIZE)
    for key in range(100):
        supplied(memory, key)
        at_hand(memory, key // 2)
        assert memory.kept_bytes <= 10 * SIZE
    assert memory.kept_bytes == 10 * SIZE


def test_an_element_that_alone_is_too_large_is_not_kept() -> None:
    memory = Memory(["remote"], cache_bytes=SIZE)
    memory.want("remote", (1,))
    memory.supply("remote", (1,), Versions.always("x" * 1000))
    assert memory.kept_bytes == 0


def test_a_cache_of_another_name_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(ConfigError, match="did you mean cost"):
        Memory(["remote"], cache="costs")


@pytest.mark.parametrize("cache", CACHES)
def test_what_rules_of_a_higher_priority_need_is_worth_more(cache: str) -> None:
    memory = Memory(["remote"], cache=cache, priorities={"urgent": 4.0})
    for rule, key in (("urgent", 1), ("urgent/a,b", 2), ("other", 3)):  # a part of a rule counts as the rule does
        needed = memory.key_class(rule, "a", "remote", 1000, numbered=False, early=True)
        assert needed is not None
        needed.add((key,), 0)
    worth = [memory._utility.of(("remote", (key,)), 0.5) for key in (1, 2, 3)]
    assert worth[0] == worth[1] == 4 * worth[2] > 0
    restored = Memory.restored(*memory.saved())
    assert [restored._utility.of(("remote", (key,)), 0.5) for key in (1, 2, 3)] == worth


def test_the_cost_based_cache_keeps_what_rules_of_a_higher_priority_need() -> None:
    memory = Memory(["remote"], policy="cache", cache="cost", cache_bytes=2 * SIZE, priorities={"urgent": 4.0})
    for rule, key, times in (("urgent", 1, 1), ("other", 2, 2), ("other", 3, 3)):
        needed = memory.key_class(rule, "a", "remote", 1000, numbered=False, early=True)
        assert needed is not None
        for ts in range(times):
            needed.add((key,), ts)
    supplied(memory, 1, 2)
    at_hand(memory, 1, 2)
    supplied(memory, 3)
    assert at_hand(memory, 1, 2, 3) == [1, 3]


# ------------------------------------------------------------------------------------------------ fetching ahead

LATER = "R: SEQ(A a, B b) WHERE b.v = REMOTE[a.k] WITHIN 1 s"


def test_the_element_of_a_later_condition_is_wanted_when_the_event_that_names_it_is_taken() -> None:
    memory = Memory(["remote"], policy="hybrid")
    engine = an_engine(LATER, memory)
    engine.feed([event(A, 1, k=7)])
    assert memory.take_wanted() == [("remote", (7,))]
    memory.supply("remote", (7,), ELEMENT)
    engine.supplied("remote", (7,), ELEMENT)
    assert len(engine.feed([event(B, 2, v=1)])) == 1
    assert (memory.prefetched, memory.prefetched_late, memory.prefetched_unused) == (1, 0, 0)


@pytest.mark.parametrize("policy", ["block", "cache", "last", "lazy"])
def test_other_strategies_fetch_nothing_ahead(policy: str) -> None:
    memory = Memory(["remote"], policy=policy)
    an_engine(LATER, memory).feed([event(A, 1, k=7)])
    assert memory.take_wanted() == []


def test_an_event_that_cannot_have_the_role_has_nothing_fetched() -> None:
    memory = Memory(["remote"])
    engine = an_engine("R: SEQ(A a, B b) WHERE a.v > 5 AND b.v = REMOTE[a.k] WITHIN 1 s", memory)
    engine.feed([event(A, 1, k=7, v=5), event(A, 2, k=8, v=6)])
    assert memory.take_wanted() == [("remote", (8,))]


def test_a_rule_that_waits_for_the_watermark_has_elements_fetched_before_it_passes() -> None:
    memory = Memory(["remote"])
    engine = an_engine("R: SEQ(A a, !C c, B b) WHERE b.v = REMOTE[b.k] WITHIN 1 s", memory)
    engine.feed([event(A, 1), event(B, 2, k=9)])
    assert memory.take_wanted() == [("remote", (9,))]


def test_a_run_has_the_element_fetched_that_a_later_stage_needs() -> None:
    memory = Memory(["remote"])
    engine = an_engine("R: SEQ(A a, B b, C c) WHERE c.v = REMOTE[a.k, b.k] WITHIN 1 s SKIP TILL NEXT MATCH", memory)
    engine.feed([event(A, 1, k=3), event(B, 2, k=4)])
    engine.advance(1)
    assert memory.take_wanted() == []
    engine.advance(2)
    assert memory.take_wanted() == [("remote", (3, 4))]


def test_what_is_needed_before_it_has_come_is_counted_as_late_and_asked_for_once() -> None:
    memory = Memory(["remote"])
    engine = an_engine(LATER, memory)
    engine.feed([event(A, 1, k=7), event(B, 2, v=1)])
    assert memory.take_wanted() == [("remote", (7,))]
    assert memory.prefetched_late == 1
    memory.supply("remote", (7,), ELEMENT)
    engine.supplied("remote", (7,), ELEMENT)
    assert len(engine.supply()) == 1


def test_what_makes_room_before_anything_looked_it_up_is_counted() -> None:
    memory = Memory(["remote"], cache_bytes=SIZE)
    engine = an_engine(LATER, memory)
    for key in (1, 2):
        engine.feed([event(A, key, k=key)])
        for place in memory.take_wanted():
            memory.supply(*place, ELEMENT)
    supplied(memory, 3)
    assert memory.prefetched_unused >= 1


def test_a_full_cache_takes_only_what_is_worth_more_than_what_would_go() -> None:
    memory = Memory(["remote"], cache_bytes=100 * SIZE)
    engine = an_engine(LATER, memory)
    for key in range(100):  # every element of the cache is needed by three events
        engine.feed([event(A, 3 * key + i + 1, k=key) for i in range(3)])
        for place in memory.take_wanted():
            memory.supply(*place, ELEMENT)
    engine.feed([event(A, 1000, k=100)])
    assert memory.take_wanted() == []
    engine.feed([event(A, 1001 + i, k=100) for i in range(3)])
    assert memory.take_wanted() == [("remote", (100,))]


def test_a_class_whose_elements_go_unused_stops_fetching_until_a_window_has_passed() -> None:
    memory = Memory(["remote"])
    needed = memory.key_class("r", "a", "remote", 1000, numbered=False, early=True)
    assert isinstance(needed, KeyClass)
    for _ in range(FAILURES_MAX + 1):
        needed.was_unused()
    needed.add((1,), 10)
    assert memory.take_wanted() == []
    needed.add((2,), 1011)
    assert memory.take_wanted() == [("remote", (2,))]


def test_frequent_keys_that_only_the_deciding_event_names_are_fetched_again() -> None:
    memory = Memory(["remote"], cache_bytes=2 * SIZE)
    needed = memory.key_class("r", "a", "remote", 10**9, numbered=False, early=False)
    assert needed is not None
    for ts in range(REFRESH_EVERY):
        needed.add((ts % 2 * ts,), ts)
    assert memory.take_wanted() == [("remote", (0,))]


def test_rules_without_lookups_have_no_code_for_fetching_ahead() -> None:
    rules = parse_rules([Source("R: SEQ(A a, B b) WHERE a.k = b.k WITHIN 1 s", "r.sase", "sase")], TYPES)
    engine = Engine(compile_rules(rules, remote=Memory(["remote"]).tables))
    assert all(not store.compiled.aheads and not store.looks_ahead for store in engine._stores)
    assert not any("def a" in source for source in engine.sources().values())


def test_a_class_counts_a_bounded_number_of_keys_and_keeps_the_frequent_ones() -> None:
    memory = Memory(["remote"])
    needed = memory.key_class("r", "a", "remote", 10**9, numbered=False, early=True)
    assert needed is not None
    for key in range(3 * KEYS_MAX):
        needed.add((key,), key)
        needed.add((-1,), key)
    figures = decode_plain(memory.saved()[2])["classes"][0]
    assert KEYS_MAX // 2 <= len(figures[2]) <= KEYS_MAX + REFRESH_EVERY
    assert needed.of_key((-1,)) == 3 * KEYS_MAX


# ------------------------------------------------------------------------------------------------ postponing


def test_an_evaluation_waits_once_it_carries_more_matches_in_doubt_than_waiting_costs() -> None:
    memory = Memory(["remote"], policy="lazy")
    memory.took("remote", 40)  # as long as four matches in doubt
    engine = an_engine("R: SEQ(A a, B b) WHERE b.v >= REMOTE[a.k] WITHIN 1 s", memory)
    engine.feed([event(A, ts, k=ts) for ts in range(1, 21)])
    engine.feed([event(B, 100, v=1)])  # what matches in doubt may cost is known after the first evaluation with some
    assert engine.waiting() == 20
    engine.feed([event(B, 101, v=1)])
    assert engine.waiting() == 21
    for place in memory.take_wanted():
        memory.supply(*place, ELEMENT)
        engine.supplied(*place, ELEMENT)
    assert len(engine.supply()) == 40


def test_an_evaluation_waits_at_once_for_an_element_that_its_own_event_names() -> None:
    """All its matches need it: carrying them in doubt would only do their work twice."""
    memory = Memory(["remote"], policy="lazy")
    engine = an_engine("R: SEQ(A a, B b) WHERE a.v >= REMOTE[b.k] WITHIN 1 s", memory)
    engine.feed([event(A, ts, v=1) for ts in range(1, 21)])
    engine.feed([event(B, 100, k=7)])
    assert engine.waiting() == 1
    (place,) = memory.take_wanted()
    memory.supply(*place, ELEMENT)
    engine.supplied(*place, ELEMENT)
    assert len(engine.supply()) == 20


def test_an_evaluation_looks_an_element_up_once_however_often_it_comes_to_the_event_that_names_it() -> None:
    memory = Memory(["remote"], policy="lazy")
    engine = an_engine("R: SEQ(A a, B b, C c) WHERE c.v >= REMOTE[a.k] WITHIN 1 s", memory)
    supplied(memory, 7)
    engine.feed([event(A, 1, k=7), *(event(B, ts) for ts in range(2, 12))])
    before = memory.lookups["remote"].hits
    assert len(engine.feed([event(C, 20, v=1)])) == 10
    assert memory.lookups["remote"].hits == before + 1


NEXT = "R: SEQ(A a, B b) WHERE a.v = REMOTE[b.k] WITHIN 1 s SKIP TILL NEXT MATCH"


def test_runs_that_wait_for_one_element_at_one_event_wait_together() -> None:
    memory = Memory(["remote"], policy="cache")
    engine = an_engine(NEXT, memory)
    engine.feed([event(A, ts, v=ts % 2) for ts in range(1, 7)])
    engine.feed([event(B, 10, k=7)])
    engine.advance(10)
    assert engine.waiting() == 1
    assert memory.take_wanted() == [("remote", (7,))]
    memory.supply("remote", (7,), ELEMENT)
    engine.supplied("remote", (7,), ELEMENT)
    assert sorted(match.start[0] for match in engine.supply()) == [1, 3, 5]
    engine.feed([event(B, 11, k=8)])
    engine.advance(11)
    memory.supply("remote", (8,), Versions.always(0))
    engine.supplied("remote", (8,), Versions.always(0))
    assert sorted(match.start[0] for match in engine.supply()) == [2, 4, 6]


def test_runs_wait_where_their_element_comes_before_the_next_event_and_go_on_where_it_does_not() -> None:
    engine = an_engine(
        "R: SEQ(A a, B b, C c) WHERE a.v = REMOTE[b.k] WITHIN 1 s SKIP TILL NEXT MATCH", Memory(["remote"])
    )
    (machine,) = (machine for store in engine._stores for machine in store.machines)
    assert isinstance(machine, NextMatch)
    rates, standing = {0: 0.01, 1: 0.01, 2: 0.01}, {0: 1, 1: 1, 2: 0}  # a run stays 100 us at a stage
    assert not any(where_splitting_pays(machine.stages, rates, standing, 50).values())
    assert where_splitting_pays(machine.stages, rates, standing, 500) == {0: True, 1: True, 2: True}


def test_an_evaluation_that_fails_takes_no_other_with_it() -> None:
    """Both elements have come. The first cannot be compared; what waits for the second goes on with the next call."""
    memory = Memory(["remote"], policy="lazy")
    engine = an_engine("X: SEQ(A a) WHERE a.v > REMOTE[a.k] WITHIN 1 s RETURN X(v = a.v)", memory)
    assert engine.feed([event(A, 1, k=1, v=1), event(A, 2, k=2, v=2)]) == []
    for key, value in ((1, "text"), (2, 0)):
        element = Versions.always(value)
        memory.supply("remote", (key,), element)
        engine.supplied("remote", (key,), element)
    with pytest.raises(RuleError, match="could not be evaluated"):
        engine.supply()
    assert [match.ts for match in engine.supply()] == [2]
    assert engine.waiting() == 0
