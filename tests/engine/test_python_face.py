"""What programs in Python give the engine and get from it: one loop over all matches, plain values, sentences."""

from __future__ import annotations

import asyncio
import enum
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headwater.node.client import Client, ClientError
from headwater.node.engine import Engine
from headwater.protocol.errors import EventError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Language, Source, parse_rules

A = EventType("A", {"k": "int", "v": "float?"})
B = EventType("B", {"k": "int", "v": "float?"})
RULES: dict[str, tuple[Language, str]] = {
    "monotone": ("sase", "Q: SEQ(A a, B b) WHERE a.k = b.k WITHIN 9 us"),
    "negation at the end": ("sase", "Q: SEQ(A a, !B b) WHERE a.k = b.k WITHIN 9 us"),
    "next": ("sase", "Q: SEQ(A a, B b) WITHIN 9 us SKIP TILL NEXT MATCH"),
    "chain": ("tesla", "define Q() from B() and last A(k = B.k) within 9 us from B"),
    "each": ("tesla", "define Q() from B() and each A(k = B.k) within 9 us from B"),
}


def rules(name: str) -> Any:
    language, text = RULES[name]
    return parse_rules([Source(text, f"rule.{language}", language)], [A, B])


def drawn(seed: int, count: int = 60) -> list[Event]:
    rng = random.Random(seed)
    return [Event(rng.choice((A, B)), rng.randrange(90), "n", seq, {"k": rng.randrange(3)}) for seq in range(count)]


@pytest.mark.parametrize("name", RULES)
def test_one_loop_gives_every_match_of_rules_of_either_language(name: str) -> None:
    events = drawn(1)
    engine = Engine(rules(name))
    expected = {composite.id for composite in [*engine.feed(events), *engine.close()]}
    assert expected
    found = [composite.id for composite in Engine(rules(name)).run(events)]
    assert sorted(found) == sorted(expected)
    in_order = iter(sorted(events))
    streamed = [composite.id for composite in Engine(rules(name)).run(in_order, lateness_us=0)]
    assert sorted(streamed) == sorted(expected)


def test_a_long_input_is_fed_in_batches_and_frees_what_it_no_longer_needs() -> None:
    events = [Event(B if i % 3 else A, i, "n", i, {"k": i % 2}) for i in range(5_000)]
    engine = Engine(rules("negation at the end"))
    run = engine.run(reversed(events))
    next(run)
    assert engine.stored() < 1_000
    assert 1 + len(list(run)) == len(list(Engine(rules("negation at the end")).run(events)))


def test_events_may_be_mappings_and_are_numbered_where_they_have_no_number() -> None:
    given = [
        {"type": "B", "ts": 5, "k": 1},
        {"type": "A", "ts": 3, "k": 1, "v": 2},
        {"type": "Other", "ts": 4, "x": "y"},
        {"type": "A", "ts": 3, "k": 1, "node": "m"},
    ]
    found = [composite.to_json()["events"] for composite in Engine(rules("monotone")).run(given)]
    assert [[(part["node"], part["seq"]) for part in parts] for parts in found] == [
        [("local", 1), ("local", 3)],
        [("m", 1), ("local", 3)],
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ts": 3}, "event 1 has no 'type'"),
        ({"type": "A"}, "event 1 has no 'ts'"),
        ({"type": "A", "ts": 1.5, "k": 1}, "ts is 1.5, a float; write integer microseconds"),
        ({"type": "A", "ts": "3", "k": 1}, "ts is '3', a str; write integer microseconds"),
        ({"type": "A", "ts": 3}, "lacks the attribute 'k'"),
        (("A", 3), "event 1 is a tuple; give an Event, or a mapping"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(given: Any, sentence: str) -> None:
    with pytest.raises(EventError, match=sentence):
        list(Engine(rules("monotone")).run([given]))


def test_some_events_with_a_number_and_some_without_are_refused() -> None:
    with pytest.raises(EventError, match="number all of them or none"):
        list(Engine(rules("monotone")).run([{"type": "A", "ts": 1, "k": 1}, {"type": "A", "ts": 2, "seq": 4, "k": 1}]))


def test_two_events_under_one_identity_are_refused_and_the_same_event_twice_is_one() -> None:
    first, second = Event(A, 1, attributes={"k": 1}), Event(B, 2, attributes={"k": 1})
    with pytest.raises(EventError, match="two events have the node '' and the seq 0"):
        list(Engine(rules("monotone")).run([first, second]))
    numbered = Event(B, 2, seq=1, attributes={"k": 1})
    assert len(list(Engine(rules("monotone")).run([first, numbered, first]))) == 1


def test_a_stream_gives_matches_as_they_are_decided_and_keeps_late_events_apart() -> None:
    engine = Engine(rules("monotone"))
    told: list[int] = []

    def events() -> Iterator[dict[str, Any]]:
        for ts in (1, 5, 3, 20, 9):
            told.append(ts)
            yield {"type": "A" if ts in (1, 3, 9) else "B", "ts": ts, "k": 1}

    run = engine.run(events(), lateness_us=2)
    assert next(run).ts == 5
    assert told == [1, 5]
    assert len(list(run)) == 1  # A@3 is 2 behind B@5, which is not too late; A@9 is 11 behind B@20
    assert [event.ts for event in engine.take_late()] == [9]


# -- values of numpy, and numbers beyond the ordinary ------------------------------------------------------------------


class Level(enum.IntEnum):
    HIGH = 3


PLAIN = [
    (np.int64(3), 3),
    (np.uint8(3), 3),
    (np.float64(2.5), 2.5),
    (np.float32(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (Level.HIGH, 3),
    (2**200, 2**200),
]


@pytest.mark.parametrize(("given", "value"), PLAIN)
def test_scalars_of_numpy_become_the_python_values_they_stand_for(given: Any, value: Any) -> None:
    for event_type in ("E", EventType("E", {"x": "any"})):
        ts: Any = np.int64(7)
        seq: Any = np.int32(4)
        made = Event(event_type, ts, np.str_("n"), seq, {"x": given})
        assert tuple(made)[:3] == (7, "n", 4)
        assert [type(part) for part in tuple(made)[:3]] == [int, str, int]
        assert (made.attributes["x"], type(made.attributes["x"])) == (value, type(value))


def test_scalars_of_numpy_match_like_plain_values_and_travel_like_them() -> None:
    given = [
        {"type": "A", "ts": np.int64(1), "k": np.int64(1), "v": np.float64(2.5)},
        {"type": "B", "ts": np.int64(2), "k": np.uint16(1), "v": np.float32("nan")},
    ]
    engine = Engine(rules("monotone"))
    (found,) = engine.run(given)
    assert found.events[1][1].attributes == {"k": 1, "v": None}
    assert engine.copy().counters() == engine.counters()


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        ("float", math.inf, "E.x is inf, which is not a finite number"),
        ("float", np.float64("-inf"), "E.x is -inf, which is not a finite number"),
        ("float", 10**400, "E.x is an integer that is too large for a float"),
        ("float", math.nan, "E needs a value for 'x'"),
        ("int", np.float64(3.0), "E.x is declared int, but 3.0 is float"),
        ("float", np.array([1.0]), "E.x is ndarray; values are numbers, strings or booleans"),
        ("any", np.datetime64("2026-01-01"), "E.x is datetime64"),
        ("float", np.longdouble(1) / 3, "E.x is longdouble"),
        ("any", 1 + 2j, "E.x is complex"),
    ],
)
def test_values_that_no_attribute_can_have_are_refused_with_a_sentence(kind: str, value: Any, sentence: str) -> None:
    with pytest.raises(EventError) as refused:
        Event(EventType("E", {"x": kind}), 1, "n", 1, {"x": value})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ((1.0, "n", 1), "ts is 1.0, a float; write integer microseconds, for example round(seconds * 1_000_000)"),
        ((np.float64(1.0), "n", 1), "a float64; write integer microseconds"),
        ((True, "n", 1), "ts is True, a bool"),
        ((None, "n", 1), "ts is None, a NoneType"),
        ((1, "n", 1.5), "seq is 1.5, a float; it must be an integer"),
        ((1, 7, 1), "node is 7, a int; it must be a string"),
    ],
)
def test_a_time_a_number_or_a_node_of_another_kind_is_refused(header: tuple[Any, Any, Any], sentence: str) -> None:
    with pytest.raises(EventError) as refused:
        Event(A, *header, {"k": 1})
    assert sentence in str(refused.value)


def test_integers_beyond_64_bits_are_compared_summed_saved_and_printed() -> None:
    big = 10**30
    text = "Q: SEQ(A a, B+ b[]) WHERE sum(b[].v) > 2 * a.v WITHIN 9 us RETURN Q(total = sum(b[].v))"
    types = [EventType(name, {"v": "int"}) for name in "AB"]
    made = parse_rules([Source(text, "rule.sase", "sase")], types)
    engine = Engine(made)
    engine.feed([Event(types[0], 1, "n", 1, {"v": big})])
    engine = engine.copy()
    found = engine.feed([Event(types[1], ts, "n", ts, {"v": big + ts}) for ts in (2, 3)]) + engine.close()
    assert [composite.attributes["total"] for composite in found] == [2 * big + 5]


@pytest.mark.parametrize(
    ("attributes", "ts", "sentence"),
    [
        ({"x": 2**70}, None, "Temp: .*64 bits"),
        ({"x": object()}, None, "Temp: .*values are numbers"),
        ({"x": 1}, 1.5, "Temp: ts is 1.5, a float; write integer microseconds"),
    ],
)
def test_a_client_refuses_what_cannot_travel_before_it_waits_for_an_answer(
    attributes: Any, ts: Any, sentence: str
) -> None:
    async def publish() -> None:
        await Client("p1", "tcp://127.0.0.1:1").publish("Temp", attributes, ts=ts)

    with pytest.raises(ClientError, match=sentence):
        asyncio.run(publish())
