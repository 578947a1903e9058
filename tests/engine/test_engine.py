"""What a user of the Engine class may rely on, beyond the meaning of rules."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgpack
import pytest

from headwater.node.engine import Engine
from headwater.node.engine.snapshot import FORMAT, SnapshotError
from headwater.protocol import expressions as ex
from headwater.protocol import pattern as pt
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.composites import Composite
from headwater.protocol.errors import EventError, RuleError
from headwater.protocol.events import Event, EventType, Value
from headwater.protocol.functions import Functions
from headwater.protocol.languages import Language, RuleSet, Source, parse_rules
from headwater.protocol.remote import RemoteTable

A = EventType("A", {"id": "int", "v": "int"})
B = EventType("B", {"id": "int", "v": "int"})
C = EventType("C", {"id": "int", "v": "int"})
TYPES = (A, B, C)

PAIR = "Pair: SEQ(A a, B b) WHERE a.id = b.id WITHIN 10 us"
LAST = "Late: define Late(v: int) from B() as b and last A() as a within 10 us from b where v = a.v"
ALONE = "Alone: SEQ(A a, !B b) WITHIN 10 us"


def sase(text: str, types: Iterable[EventType] = TYPES, functions: Functions | None = None) -> RuleSet:
    return parse_rules([Source(text, "test.sase", "sase")], types, functions)


def tesla(text: str) -> RuleSet:
    return parse_rules([Source(text, "test.tesla", "tesla")], TYPES)


def event(kind: EventType, ts: int, seq: int = 0, *, id: int = 0, v: int = 0, node: str = "n") -> Event:
    return Event(kind, ts, node, seq, {"id": id, "v": v})


def parts(composites: Iterable[Composite]) -> list[list[tuple[str, int]]]:
    return [[(role, part.ts) for role, part in composite.events] for composite in composites]


# ---------------------------------------------------------------------------------------------------------- deciding


def test_a_monotone_rule_fires_as_soon_as_its_parts_are_there_in_whatever_order() -> None:
    engine = Engine(sase(PAIR))
    assert engine.feed([event(B, 5, 1)]) == []
    assert parts(engine.feed([event(A, 3, 2)])) == [[("a", 3), ("b", 5)]]


def test_a_rule_with_last_waits_for_the_watermark_and_no_longer() -> None:
    engine = Engine(tesla(LAST))
    assert engine.feed([event(A, 1, 1), event(B, 5, 2)]) == []
    assert engine.advance(4) == []
    assert parts(engine.advance(5)) == [[("b", 5), ("a", 1)]]


def test_a_trailing_negation_fires_when_its_time_is_up() -> None:
    engine = Engine(sase(ALONE))
    engine.feed([event(A, 5, 1), event(A, 20, 2), event(B, 22, 3)])
    assert engine.advance(14) == []
    assert parts(engine.advance(15)) == [[("a", 5)]]
    assert engine.close() == []


def test_closing_decides_everything() -> None:
    engine = Engine(sase(ALONE))
    engine.feed([event(A, 5, 1)])
    assert parts(engine.close()) == [[("a", 5)]]


def test_a_rule_on_a_waiting_rules_output_waits_no_longer_than_what_is_still_open() -> None:
    rules = sase(f"{ALONE}\nAfter: SEQ(Alone x, !C n, C c) WITHIN 100 us")
    engine = Engine(rules)
    engine.feed([event(A, 5, 1), event(C, 17, 2)])
    engine.advance(15)
    assert parts(engine.advance(17)) == [[("x", 5), ("c", 17)]]  # no A is open any more: nothing can still come
    engine.feed([event(A, 20, 3), event(C, 25, 4)])
    assert engine.advance(25) == []  # Alone(A@20) may still become true and would be a first part
    assert parts(engine.advance(30)) == [[("a", 20)], [("x", 20), ("c", 25)]]


# ------------------------------------------------------------------------------------- late and repeated events


def test_an_event_at_or_before_the_watermark_is_late_and_handed_out() -> None:
    engine = Engine(sase(PAIR))
    engine.advance(10)
    late = event(A, 10, 1)
    assert engine.feed([late, event(B, 11, 2)]) == []
    assert engine.take_late() == [late]
    assert engine.take_late() == []
    assert engine.counters()["late_events"] == 1


@pytest.mark.parametrize("text", [PAIR, ALONE, "Any: SEQ(A a) WITHIN 1 us", "SEQ(A a, B+ b[]) WITHIN 10 us"])
def test_the_same_event_twice_is_one(text: str) -> None:
    once, twice = Engine(sase(text)), Engine(sase(text))
    events = [event(A, 1, 1), event(B, 5, 2), event(A, 3, 3), event(B, 7, 4)]
    found = once.feed(events) + once.close()
    again = twice.feed(events) + twice.feed(events) + twice.close()
    assert sorted(c.id for c in again) == sorted(c.id for c in found)


def test_equal_content_under_another_number_is_another_event() -> None:
    engine = Engine(sase(PAIR))
    assert len(engine.feed([event(A, 1, 1), event(A, 1, 2), event(B, 5, 3)])) == 2


# ------------------------------------------------------------------------------------------------------ determinism


def test_the_same_input_gives_the_same_output_in_the_same_order() -> None:
    rules = sase(f"{PAIR}\n{ALONE}\nTwo: AND(A a, B b) WITHIN 5 us")

    def run() -> list[str]:
        rng, engine = random.Random(3), Engine(rules)
        ids: list[str] = []
        for i in range(200):
            ids += [c.id for c in engine.feed([event(rng.choice((A, B)), i, i, id=rng.randrange(3))])]
            ids += [c.id for c in engine.advance(i - 1)]
        return ids + [c.id for c in engine.close()]

    assert run() == run()


# ----------------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, B b) WHERE SAME[id] WITHIN 100 us",
        "SEQ(A a, !B b, C c) WHERE SAME[id] WITHIN 100 us",
        "SEQ(A a, !C c) WHERE SAME[id] WITHIN 100 us",
        "SEQ(A a, C+ c[]) WHERE SAME[id] WITHIN 100 us SKIP TILL NEXT MATCH",
        "AND(A a, !SEQ(B b, C c)) WITHIN 100 us",
    ],
)
def test_keys_seen_once_leave_nothing_behind_after_a_window_has_passed(text: str) -> None:
    engine = Engine(sase(text))
    for start in range(0, 20_000, 100):
        engine.feed([event(A, i, i, id=i) for i in range(start, start + 100)])
        engine.advance(start)
    assert engine.stored() <= 2 * 100 + 2 * 125 + 100
    engine.advance(20_000 + 200)
    assert engine.stored() == 0


def test_state_does_not_grow_with_the_stream() -> None:
    engine, held = Engine(sase("SEQ(A a, B b, C c) WHERE SAME[id] WITHIN 1000 us")), []
    rng = random.Random(1)
    for start in range(0, 20_000, 100):
        engine.feed([event(rng.choice(TYPES), i, i, id=rng.randrange(5000)) for i in range(start, start + 100)])
        engine.advance(start)
        held.append(engine.stored())
    assert max(held[20:]) <= 1000 + 250 + 100 + 100


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("seq(A a, B b; 5 us)", True),
        ("and(seq(A a, B b; 5 us), C c; 5 us)", True),
        ("and(seq(A a, B b), C c; 5 us)", False),
        ("seq(and(B+ b[]), C c; 5 us)", False),
        ("seq(or(seq(A a, and(B b, C c)), C c2); 5 us)", False),
        ("SEQ(AND(A a, B b), C c) WITHIN 5 us", True),
    ],
)
def test_only_what_some_window_bounds_is_freed(text: str, bounded: bool) -> None:
    rules = sase(text)
    assert bounded != any(operators_without_bound(rules.rules[0].pattern.root))
    engine = Engine(rules)
    engine.feed([event(A, 1, 1), event(B, 1, 2)])
    engine.advance(1000)
    assert (engine.stored() == 0) == bounded


def test_rules_whose_events_come_only_now_and_then_miss_nothing_and_are_freed() -> None:
    engine = Engine(sase("Eager: SEQ(A a, B b) WITHIN 10 us\nOrdered: SEQ(A a, !C c, B b) WITHIN 10 us"))
    for start in range(0, 100_000, 10_000):
        found = engine.feed([event(A, start, start)]) + engine.advance(start)
        found += engine.feed([event(B, start + 5, start + 1)]) + engine.advance(start + 5)
        assert sorted(c.rule for c in found) == ["Eager", "Ordered"]
        for quiet in range(start + 6, start + 60, 9):
            assert engine.advance(quiet) == []
        assert engine.stored() == 0


def test_one_long_advance_frees_what_its_own_windows_have_passed() -> None:
    engine = Engine(sase("SEQ(A a, !B b, C c) WITHIN 10 us"))
    engine.feed([event(A, i, i) for i in range(50_000)])
    engine.advance(49_000)
    assert engine.stored() <= 1000 + 20


# -------------------------------------------------------------------------------------------------------- snapshots


def test_an_engine_continues_from_a_snapshot_and_the_old_one_is_not_disturbed() -> None:
    rules = sase(f"{PAIR}\n{ALONE}")
    engine = Engine(rules)
    engine.feed([event(A, 1, 1), event(A, 2, 2, id=1)])
    saved = engine.snapshot()
    restored = Engine(rules)
    restored.restore(saved)
    copied = engine.copy()
    for running in (engine, restored, copied):
        assert parts(running.feed([event(B, 5, 3)])) == [[("a", 1), ("b", 5)]]
    assert parts(restored.close()) == parts(engine.close()) == parts(copied.close())
    again = Engine(rules)
    again.restore(saved)
    assert parts(again.feed([event(B, 6, 4, id=1)])) == [[("a", 2), ("b", 6)]]


def test_a_snapshot_remembers_the_watermark() -> None:
    engine = Engine(sase(PAIR))
    engine.advance(10)
    copy = Engine(sase(PAIR))
    copy.restore(engine.snapshot())
    copy.feed([event(A, 10, 1)])
    assert len(copy.take_late()) == 1


BY_BOTH = "Both: SEQ(A a, B b) WHERE a.id = b.id AND a.v = b.v WITHIN 50 us SKIP TILL NEXT MATCH"


def test_runs_are_kept_by_all_attributes_that_the_next_event_must_share() -> None:
    engine = Engine(sase(BY_BOTH))
    engine.feed([event(A, ts, ts, id=ts % 3, v=ts % 2) for ts in range(1, 13)])
    engine.advance(12)
    (runs,) = (state for store in engine._stores for state in store.state.runs_of.values())
    assert {key: len(same) for key, same in runs[0].items()} == {(n % 3, n % 2): 2 for n in range(6)}
    engine.feed([event(B, 20, 20, id=1, v=0)])
    assert parts(engine.advance(20)) == [[("a", 4), ("b", 20)], [("a", 10), ("b", 20)]]


def test_runs_of_a_snapshot_that_kept_them_by_one_attribute_go_on() -> None:
    engine = Engine(sase(BY_BOTH))
    engine.feed([event(A, ts, ts, id=ts % 3, v=ts % 2) for ts in range(1, 13)])
    engine.advance(12)
    form, *rest = msgpack.unpackb(engine.snapshot(), strict_map_key=False)
    assert form == FORMAT
    for store in rest[5]:
        for _, by_stage in store["runs"]:
            by_id: dict[int, list[Any]] = {}
            for (key,), runs in by_stage[0]:
                identity = rest[4][key][1][0]
                by_id.setdefault(identity, []).extend(runs)
            by_stage[0] = [[key, runs] for key, runs in by_id.items()]
    restored = Engine(sase(BY_BOTH))
    restored.restore(msgpack.packb([3, *rest]))
    restored.feed([event(B, 20, 20, id=1, v=0)])
    assert sorted(parts(restored.advance(20))) == [[("a", 4), ("b", 20)], [("a", 10), ("b", 20)]]


def test_a_snapshot_of_other_rules_is_refused() -> None:
    with pytest.raises(SnapshotError, match="other rules or event types"):
        Engine(sase(ALONE)).restore(Engine(sase(PAIR)).snapshot())


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_damaged_snapshot_is_refused_with_a_sentence(damage: bytes | None) -> None:
    engine = Engine(sase(PAIR))
    engine.feed([event(A, 1, 1)])
    saved = engine.snapshot()
    with pytest.raises(SnapshotError):
        Engine(sase(PAIR)).restore(saved[:-3] if damage is None else damage)


# --------------------------------------------------------------------------------------------------------- counting


@pytest.mark.parametrize(
    "text",
    [
        PAIR,
        ALONE,
        "SEQ(A a, B+ b[], C c) WITHIN 50 us",
        "SEQ(A a, B+ b[]) WITHIN 20 us",
        "SEQ(A a, B+ b[], C c) WHERE b[i].v > b[i-1].v WITHIN 50 us",
        "SEQ(A a, B+ b[], C c) WHERE count(b[]) > 2 WITHIN 50 us",
        "SEQ(A a, B+ b[], C c) WITHIN 50 us SKIP TILL NEXT MATCH",
        "Two: SEQ(A a, B b) WITHIN 20 us\nThree: SEQ(Two x, C c) WITHIN 20 us",
    ],
)
def test_counting_gives_the_number_of_matches_that_listing_gives(text: str) -> None:
    rules, rng = sase(text), random.Random(5)
    events = [event(rng.choice(TYPES), 2 * i, i, v=rng.randrange(9)) for i in range(40)]
    listing, counting = Engine(rules), Engine(rules, count_only=True)
    found = listing.feed(events) + listing.close()
    counting.feed(events)
    counting.close()
    numbers = {rule.name: sum(c.rule == rule.name for c in found) for rule in rules.rules}
    assert counting.counts() == numbers
    assert sum(numbers.values()) > 0


def test_a_repetition_that_explodes_is_refused_with_a_sentence_and_can_still_be_counted() -> None:
    rules = sase("Boom: SEQ(A a, B+ b[], C c) WITHIN 50 us")
    events = [event(A, 1, 1), *(event(B, i, i) for i in range(2, 42)), event(C, 45, 99)]
    with pytest.raises(RuleError, match=r"rule 'Boom': a repetition has 40 candidates at once.*LIMIT"):
        Engine(rules).feed(events)
    counting = Engine(rules, count_only=True)
    counting.feed(events)
    assert counting.counts() == {"Boom": 2**40 - 1}


def test_choices_given_up_for_a_limit_are_counted() -> None:
    engine = Engine(sase("Few: SEQ(A a, B+ b[] LIMIT 2, C c) WITHIN 50 us"))
    found = engine.feed([event(A, 1, 1), *(event(B, i, i) for i in (2, 3, 4)), event(C, 9, 9)]) + engine.close()
    assert found == []
    assert engine.counters()["over_limit:Few"] == 1


# ---------------------------------------------------------------------------------------------------- types and names


def test_events_of_a_type_with_other_columns_are_read_by_name() -> None:
    engine = Engine(sase(PAIR))
    wide = EventType("A", {"extra": "string", "v": "int", "id": "int"})
    found = engine.feed([Event(wide, 1, "n", 1, {"extra": "x", "v": 2, "id": 7}), event(B, 5, 2, id=7)])
    assert parts(found) == [[("a", 1), ("b", 5)]]


def test_an_event_without_a_required_attribute_is_refused() -> None:
    engine = Engine(sase(PAIR))
    with pytest.raises(EventError, match="lacks the attribute 'id'"):
        engine.feed([Event(EventType("A", {"v": "int"}), 1, "n", 1, {"v": 1})])


def test_an_event_whose_values_are_of_another_kind_is_refused() -> None:
    engine = Engine(sase(PAIR))
    with pytest.raises(EventError, match=r"A\.id is declared int, but 'x' is string"):
        engine.feed([Event("A", 1, "n", 1, {"id": "x", "v": 1})])


def test_undeclared_types_take_whatever_attributes_the_rules_name() -> None:
    engine = Engine(parse_rules([Source(PAIR, "test.sase", "sase")]))
    assert len(engine.feed([Event("A", 1, "n", 1, {"id": "x"}), Event("B", 2, "n", 2, {"id": "x", "more": 1})])) == 1
    assert engine.feed([Event("B", 3, "n", 3, {"other": 1})]) == []  # no value equals nothing


def test_a_composite_type_cannot_be_fed_from_outside() -> None:
    engine = Engine(sase(f"{PAIR}\nMore: SEQ(Pair p, C c) WITHIN 10 us"))
    with pytest.raises(EventError, match="output of a rule"):
        engine.feed([Event("Pair", 1, "n", 1)])


def test_events_no_rule_names_are_passed_over() -> None:
    assert Engine(sase(PAIR)).feed([Event("Z", 1, "n", 1, {"x": 1})]) == []


def test_two_rules_of_one_name_are_refused() -> None:
    rule = sase(PAIR).rules[0]
    with pytest.raises(RuleError, match="two rules are named 'Pair'"):
        Engine([rule, rule], TYPES)


def test_a_missing_remote_table_is_named() -> None:
    with pytest.raises(RuleError, match="remote table 'limits', which was not given"):
        Engine(sase("SEQ(A a) WHERE a.v > REMOTE.limits[a.id] WITHIN 1 us"))


def test_remote_tables_are_looked_up_at_the_latest_event_named() -> None:
    table = RemoteTable([((1,), 5, 0), ((1,), 50, 100)])
    rules = sase("SEQ(A a) WHERE a.v > REMOTE.limits[a.id] WITHIN 1 us")
    engine = Engine(rules, remote={"limits": table})
    found = engine.feed([event(A, 50, 1, id=1, v=10), event(A, 150, 2, id=1, v=10), event(A, 160, 3, id=2, v=99)])
    assert parts(found) == [[("a", 50)]]


def test_user_functions_registered_from_python_work_in_predicates_and_outputs() -> None:
    functions = Functions()
    functions.register("twice", lambda x: 2 * x, ("int",), "int")
    rules = sase("SEQ(A a, B b) WHERE b.v = twice(a.v) WITHIN 10 us RETURN D(x = twice(b.v))", functions=functions)
    (found,) = Engine(rules, functions=functions).feed([event(A, 1, 1, v=3), event(B, 2, 2, v=6), event(B, 3, 3, v=5)])
    assert found.attributes == {"x": 12}


def test_a_predicate_that_fails_names_its_rule() -> None:
    engine = Engine(parse_rules([Source("Bad: SEQ(A a, B b) WHERE a.v < b.v WITHIN 10 us", "t.sase", "sase")]))
    engine.feed([Event("A", 1, "n", 1, {"v": 1})])
    with pytest.raises(RuleError, match="rule 'Bad' could not be evaluated: TypeError"):
        engine.feed([Event("B", 2, "n", 2, {"v": "one"})])


@pytest.mark.parametrize(
    "text",
    [
        "Bad: SEQ(A a, B b) WHERE a.v < b.v WITHIN 10 us",
        "Bad: SEQ(A a, B b, !C c) WHERE a.v < b.v WITHIN 10 us",  # decided by watermark
        "define Bad() from B() as b and last A(v < b.v) as a within 10 us from b",
        "Bad: SEQ(A a, B b) WHERE a.v < b.v WITHIN 10 us SKIP TILL NEXT MATCH",
    ],
)
def test_an_engine_that_is_to_go_on_counts_what_fails_and_finds_the_rest(text: str) -> None:
    language: Language = "tesla" if text.startswith("define") else "sase"
    told = []
    rules = parse_rules([Source(text, f"t.{language}", language)])
    engine = Engine(rules, on_failure=lambda rule, sentence: told.append((rule, sentence)))
    values: list[tuple[str, int | str]] = [("A", 1), ("B", "one"), ("B", 2)]
    found = engine.feed([Event(name, ts, "n", ts, {"v": value}) for ts, (name, value) in enumerate(values, 1)])
    found += engine.advance(5)
    found += engine.copy().feed([Event("B", 6, "n", 6, {"v": "two"})])  # a copy goes on like the original
    found += engine.close()
    assert [{row[2] for _, row in each.parts()} for each in found] == [{1, 3}]
    assert {rule for rule, _ in told} == {"Bad"}
    assert told[0][1].startswith("rule 'Bad' could not be evaluated: TypeError")


def test_an_output_attribute_that_cannot_be_computed_has_no_value_and_the_others_have_theirs() -> None:
    text = "SEQ(A a, B b) WITHIN 10 us RETURN D(odd = a.v + b.v, big = a.n * 1.5, good = b.n)"
    engine = Engine(parse_rules([Source(text, "t.sase", "sase")]))
    events = [Event("A", 1, "n", 1, {"v": 1, "n": 10**400}), Event("B", 2, "n", 2, {"v": "one", "n": 7})]
    (found,) = engine.feed(events)
    assert found.attributes == {"odd": None, "big": None, "good": 7}


@pytest.mark.parametrize("count", [2, 16, 17, 33])
def test_patterns_of_many_parts_match(count: int) -> None:
    parts_text = ", ".join(f"T{i} t{i}" for i in range(count))
    engine = Engine(parse_rules([Source(f"SEQ({parts_text}) WITHIN 1 s", "t.sase", "sase")]))
    found = engine.feed([Event(f"T{i}", i, "n", i) for i in range(count)])
    assert [len(c.events) for c in found] == [count]
    backwards = Engine(engine.program)
    assert [c.id for c in backwards.feed([Event(f"T{i}", i, "n", i) for i in reversed(range(count))])] == [found[0].id]


def test_sums_are_exact_where_partial_sums_are_too_large_and_have_no_value_where_no_number_fits() -> None:
    b = EventType("B", {"w": "float"})
    text = "S: define S(s: float) from A() as a and $s = Sum(B().w within 99 us from a) where s = $s"
    rules = parse_rules([Source(text, "t.tesla", "tesla")], [A, b])

    def total(*values: float) -> list[Value]:
        engine = Engine(rules)
        engine.feed([*(Event(b, i, "n", i, {"w": w}) for i, w in enumerate(values)), event(A, 50, 50)])
        return [composite.attributes["s"] for composite in engine.close()]

    assert total(1e308, 1e308, -1e308) == [1e308]
    assert total(0.1, 0.2, 0.3, -0.6) == [2.7755575615628914e-17]
    assert total(1e308, 1e308) == [None]


def test_an_attribute_declared_as_float_has_floats() -> None:
    rules = tesla("D: define D(s: float) from A() as a where s = a.v")
    (found,) = Engine(rules).feed([event(A, 1, 1, v=2)])
    assert repr(found.attributes["s"]) == "2.0"


def test_a_remote_lookup_that_names_no_event_is_refused() -> None:
    with pytest.raises(RuleError, match="names no event"):
        sase("SEQ(A a) WHERE a.v = REMOTE.limits[3] WITHIN 1 us")


def test_names_of_a_pattern_never_become_code() -> None:
    wild = "x'); raise SystemExit #\n"
    leaf = pt.Leaf(wild, wild)
    measure = pt.Aggregate(wild, "count", pt.Leaf(wild + "2", wild), None, pt.Within(9, wild))
    where = (
        ex.Binary(">=", ex.Parameter(wild), ex.Constant(0)),
        ex.Binary("=", ex.Attribute(wild, wild), ex.Constant(wild)),
    )
    output = (pt.OutputAttribute(wild, "any", ex.Parameter(wild)),)
    rule = pt.Rule(wild, pt.Pattern(pt.Chain(leaf, (measure,)), where), wild + "3", output)
    engine = Engine([rule])
    engine.feed([Event(wild, 1, "n", 1, {wild: wild})])
    (found,) = engine.close()
    assert found.attributes == {wild: 0}


@pytest.mark.parametrize(
    "condition",
    [
        ex.Binary("or True or", ex.Attribute("a", "v"), ex.Constant(1)),
        ex.Unary("print", ex.Attribute("a", "v")),
        ex.Fold("exit", "a", "v"),
    ],
)
def test_operators_and_functions_of_a_pattern_are_checked_before_they_become_code(condition: ex.Expression) -> None:
    root = pt.Sequence((pt.Repetition((pt.Leaf("a", "A"),)),), pt.Window(5, "us", "span"))
    with pytest.raises(RuleError):
        Engine([pt.Rule("r", pt.Pattern(root, (condition,)), "X")], TYPES)


def test_hundreds_of_rules_run_at_once_and_share_their_buffers() -> None:
    text = "\n".join(f"R{i}: SEQ(A a, B b, C c) WHERE SAME[id] AND c.v = {i} WITHIN 10 us" for i in range(300))
    engine = Engine(sase(text))
    found = engine.feed([event(A, 1, 1), event(B, 2, 2), event(C, 3, 3, v=7), event(C, 4, 4, v=299)])
    assert [c.rule for c in found] == ["R7", "R299"]
    assert engine.stored() < 310  # A and B are kept once for all rules
