"""Small examples worked out by hand from the sentences of the design, written as rules in text.

    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1 B@6 B@7", "A1 B6")

A trace is a string of events ``Type@ts(attribute=value,..)/node``; those of one node are numbered in the order of the
string. A match is written as its parts in the order of the pattern, a composite part in brackets; a second event of the
same type, ts and node has a ``'``. Every example is fed whole, shuffled with repeats, and in order with a watermark,
repeats and a saved and restored state after each timestamp: the matches are always the same.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from headwater.node.engine import Engine
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event, EventType
from headwater.protocol.functions import Functions
from headwater.protocol.languages import Language, RuleSet, RuleTextError, Source, parse_rules
from headwater.protocol.remote import RemoteTable

TYPES = {name: EventType(name, {"id": "int", "v": "int", "w": "float?", "s": "string?"}) for name in "ABCDEF"}
DECLARED = "".join(f"event {name}(id: int, v: int, w: float?, s: string?)\n" for name in TYPES)
TOKEN = re.compile(r"(\w)@(\d+)(?:\(([^)]*)\))?(?:/(\S+))?")
Names = dict[tuple[str, int], str]
KINDS: dict[str, Callable[[str], Any]] = {"id": int, "v": int, "w": float, "s": str}


def rules(text: str, functions: Functions | None = None) -> RuleSet:
    language: Language = "tesla" if "define " in text else "sase"
    return parse_rules([Source(DECLARED + text, f"test.{language}", language)], functions=functions)


def trace(text: str) -> tuple[list[Event], Names]:
    """The events, and the name of each by its identity."""
    events: list[Event] = []
    names: Names = {}
    count: dict[str, int] = {}
    for token in text.split():
        read = TOKEN.fullmatch(token)
        assert read, f"not an event: {token!r}"
        kind, ts, values, node = read.groups()
        given: dict[str, Any] = {"id": 0, "v": 0}
        for pair in filter(None, (values or "").split(",")):
            attribute, value = pair.split("=")
            given[attribute] = KINDS[attribute](value)
        name = kind + ts + ("/" + node if node else "")
        while name in names.values():
            name += "'"
        node = node or "n"
        seq = count[node] = count.get(node, 0) + 1
        events.append(Event(TYPES[kind], int(ts), node, seq, given))
        names[node, seq] = name
    return events, names


def wording(match: Composite, names: Names) -> str:
    return " ".join(
        "(" + wording(part, names) + ")" if isinstance(part, Composite) else names[part.node, part.seq]
        for _, part in match.events
    )


def fed_whole(make: Callable[[], Engine], events: list[Event]) -> list[Composite]:
    engine = make()
    return engine.feed(events) + engine.close()


def fed_shuffled_with_repeats(make: Callable[[], Engine], events: list[Event]) -> list[Composite]:
    engine = make()
    found: list[Composite] = []
    again = events + events[::2]
    random.Random(len(events)).shuffle(again)
    for event in again:
        found += engine.feed([event])
    return found + engine.close()


def fed_by_watermarks_with_snapshots(make: Callable[[], Engine], events: list[Event]) -> list[Composite]:
    engine = make()
    found: list[Composite] = []
    for ts in sorted({event.ts for event in events}):
        now = [event for event in events if event.ts == ts]
        found += engine.feed(now[::-1] + now)
        found += engine.advance(ts)
        saved = engine.snapshot()
        engine = make()
        engine.restore(saved)
    return found + engine.close()


def composites(text: str, given: str) -> list[Composite]:
    events, _ = trace(given)
    return fed_whole(lambda: Engine(rules(text), tuple(TYPES.values())), events)


def check(text: str, given: str, *expected: str, of: str | None = None, **more: Any) -> None:
    """The matches (of all rules, or of the one named) are exactly these."""
    events, names = trace(given)
    read = rules(text)
    for feed in (fed_whole, fed_shuffled_with_repeats, fed_by_watermarks_with_snapshots):
        found = feed(lambda: Engine(read, tuple(TYPES.values()), **more), events)
        told = [wording(match, names) for match in found if of is None or match.type == of]
        assert sorted(told) == sorted(expected), feed.__name__


def refused(text: str, sentence: str) -> None:
    with pytest.raises(RuleTextError, match=sentence):
        rules(text)


class Live:
    """An engine fed and advanced step by step."""

    def __init__(self, text: str) -> None:
        self.engine = Engine(rules(text), tuple(TYPES.values()))
        self.names: Names = {}
        self.count = 0

    def feed(self, text: str) -> list[str]:
        events = []
        for event in trace(text)[0]:
            self.count += 1
            events.append(Event(event.event_type, event.ts, event.node, self.count, event.attributes))
            self.names[event.node, self.count] = f"{event.type}{event.ts}"
        return self.told(self.engine.feed(events))

    def advance(self, watermark: int) -> list[str]:
        return self.told(self.engine.advance(watermark))

    def close(self) -> list[str]:
        return self.told(self.engine.close())

    def told(self, found: list[Composite]) -> list[str]:
        return [wording(match, self.names) for match in found]


# -- 1. Events ---------------------------------------------------------------------------------------------------------


def test_keys_order_events_by_ts_then_node_then_seq() -> None:
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1/n2 B@1/n1 B@1/n3", "A1/n2 B1/n3")
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1 B@1 A@1", "A1 B1")


def test_node_names_compare_as_utf8_bytes() -> None:
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1/Z B@1/a", "A1/Z B1/a")
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1/n10 B@1/n9", "A1/n10 B1/n9")
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1/é B@1/z A@1/\U00010000 B@1/\uffff", "A1/é B1/\uffff")


def test_equal_content_under_another_seq_is_another_event() -> None:
    check("Q: A a WITHIN 5 us", "A@1 A@1", "A1", "A1'")


def test_the_same_identity_twice_is_one_event() -> None:
    engine = Engine(rules("Q: A a WITHIN 5 us"), tuple(TYPES.values()))
    events, _ = trace("A@1 A@1")
    assert len(engine.feed(events)) == 2
    assert engine.feed(events) == []


def test_an_event_at_or_before_the_watermark_is_late_and_counted() -> None:
    live = Live("Q: SEQ(A a, B b) WITHIN 9 us")
    live.feed("A@1")
    live.advance(3)
    assert live.feed("B@2 B@3") == []
    assert live.feed("B@4") == ["A1 B4"]
    assert live.engine.counters()["late_events"] == 2
    assert [event.ts for event in live.engine.take_late()] == [2, 3]


# -- 1. Composite events -----------------------------------------------------------------------------------------------


def test_identity_is_of_rule_name_roles_and_parts() -> None:
    (one,) = composites("Q: SEQ(A a, B b) WITHIN 9 us", "A@1 B@2")
    assert [one.id] == [match.id for match in composites("Q: SEQ(A a, B b) WITHIN 7 us", "A@1 B@2")]
    assert [one.id] != [match.id for match in composites("P: SEQ(A a, B b) WITHIN 9 us", "A@1 B@2")]
    assert [one.id] != [match.id for match in composites("Q: SEQ(A a, B c) WITHIN 9 us", "A@1 B@2")]


def test_start_and_end_are_keys_of_the_earliest_and_latest_primitive() -> None:
    (match,) = composites("Q: AND(A a, B b) WITHIN 5 us", "B@1/z A@2/a")
    assert (match.start, match.end, match.ts) == ((1, "z", 1), (2, "a", 1), 2)
    assert match.key == (2, "a", 1, 1, "Q", 1, [("a", (2, "a", 1, 0)), ("b", (1, "z", 1, 0))])


def test_parts_are_the_bound_events_and_not_the_constituents_of_a_composite_part() -> None:
    pairs = "X: SEQ(A a, B b) WITHIN 99 us; "
    check(pairs + "Y: AND(X x, A y) WITHIN 99 us", "A@1 B@2", "(A1 B2) A1", of="Y")
    check(pairs + "Y: AND(X x, !A y) WITHIN 99 us", "A@1 B@2", of="Y")


def test_seq_compares_the_left_end_with_the_right_start_of_composites() -> None:
    pairs = "X: SEQ(A a, B b) WITHIN 99 us; "
    check(pairs + "Y: SEQ(C c, X x) WITHIN 99 us", "A@1 C@2 B@3 A@4 B@5", "C2 (A4 B5)", of="Y")
    check(pairs + "Y: SEQ(X x, C c) WITHIN 9 us", "A@1/b B@3/b C@3/a C@3/c", "(A1/b B3/b) C3/c", of="Y")


def test_the_own_key_orders_composites_that_end_together() -> None:
    pairs = "define X() from B() and each A() within 99 us from B; "
    check(pairs + "define Y() from C() and last X() within 5 us from C", "A@1 A@2 B@3 C@8", "C8 (B3 A2)", of="Y")
    check(pairs + "define Y() from C() and first X() within 5 us from C", "A@1 A@2 B@3 C@8", "C8 (B3 A1)", of="Y")
    by_rule_name = (
        "R2: define X() from B() and first A() within 9 us from B; "
        "R1: define X() from B() and last A() within 9 us from B; "
        "define Y() from C() and last X() within 9 us from C"
    )
    check(by_rule_name, "A@1 A@2 B@3 C@4", "C4 (B3 A1)", of="Y")


def test_a_composite_comes_right_after_its_latest_part_for_next() -> None:
    pairs = "X: SEQ(A a, B b) WITHIN 99 us; "
    next_of = "Y: SEQ(C c, OR(X x, B z)) WITHIN 99 us SKIP TILL NEXT MATCH"
    check(pairs + next_of, "C@0 A@1 B@2", "C0 B2", of="Y")


# -- 2. Roles and conjuncts --------------------------------------------------------------------------------------------


def test_roles_of_one_match_bind_different_events() -> None:
    check("Q: AND(A a, A b) WITHIN 5 us", "A@1")
    check("Q: AND(A a, A b) WITHIN 5 us", "A@1 A@2", "A1 A2", "A2 A1")
    two = "define X() from A() and last B() as x within 9 us from A and last B() as y within 9 us from A"
    check(two, "B@1 B@2 A@3", "A3 B2 B1")


def test_a_conjunct_applies_where_all_its_variables_are_bound() -> None:
    choice = "Q: SEQ(A a, OR(B b, C c)) WITHIN 9 us WHERE "
    check(choice + "b.v = 1 AND c.v = 2", "A@1 B@2(v=1) B@3 C@4(v=2) C@5", "A1 B2", "A1 C4")
    check(choice + "b.v = c.v", "A@1 B@2(v=1) C@3(v=2)", "A1 B2", "A1 C3")
    check(choice + "(a.v = 1 OR b.v = 2)", "A@1 B@2 C@3", "A1 C3")


def test_a_conjunct_of_a_negation_over_an_untaken_branch_does_not_apply() -> None:
    quiet = "Q: SEQ(OR(A a, B b), !C c, D d) WHERE c.v = a.v WITHIN 99 us"
    check(quiet, "A@1(v=1) C@2(v=2) D@3", "A1 D3")
    check(quiet, "B@1(v=1) C@2(v=2) D@3")


def test_same_covers_negated_roles_too() -> None:
    for same in ("SAME[id]", "[id]"):
        quiet = f"Q: SEQ(A a, !C c, B b) WHERE {same} WITHIN 9 us"
        check(quiet, "A@1(id=1) C@2(id=2) B@3(id=1)", "A1 B3")
        check(quiet, "A@1(id=1) C@2(id=1) B@3(id=1)")
        check(quiet, "A@1(id=1) B@3(id=2)")


def test_what_has_no_meaning_is_refused() -> None:
    refused("Q: SEQ(A a, !B b, !C c, D d) WHERE b.v = c.v WITHIN 5 s", "two different negations")
    refused("Q: SEQ(A a, OR(!B b, C c)) WITHIN 5 s", "inside OR")
    refused("Q: SEQ(!A a) WITHIN 5 s", "no positive part")
    refused("Q: SEQ(A a, B b)", "no window")
    refused("Q: SEQ(C c, AND(A a, B b)) WITHIN 5 s SKIP TILL NEXT MATCH", "AND")
    refused("X: SEQ(Y y, A a) WITHIN 5 s; Y: SEQ(X x, B b) WITHIN 5 s", "X -> Y -> X")


def test_without_return_the_composite_is_named_after_the_rule_or_the_file() -> None:
    assert [rule.emits for rule in rules("Q: A a WITHIN 1 s; B b WITHIN 1 s").rules] == ["Q", "test"]


# -- 2. TESLA ----------------------------------------------------------------------------------------------------------


def test_within_precedes_by_key_and_its_bound_is_inclusive() -> None:
    check("define X() from A() and each B() within 5 us from A", "B@1 B@2 A@7", "A7 B2")
    check("define X() from A() and each B() within 5 us from A", "B@7/b A@7/c B@7/d", "A7/c B7/b")


def test_last_and_first_take_the_greatest_and_the_least_by_key() -> None:
    check("define X() from A() and last B() within 5 us from A", "B@2 B@3 A@7 B@7", "A7 B3")
    check("define X() from A() and last B() within 5 us from A", "B@3/x B@3/b A@7", "A7 B3/x")
    check("define X() from A() and first B() within 5 us from A", "B@1 B@2 B@3 A@7", "A7 B2")


def test_n_last_and_n_first_give_one_match_for_each_and_fewer_if_there_are_fewer() -> None:
    check("define X() from A() and 2-last B() within 5 us from A", "B@2 B@3 B@4 A@7", "A7 B3", "A7 B4")
    check("define X() from A() and 2-first B() within 5 us from A", "B@1 B@2 B@3 B@4 A@7", "A7 B2", "A7 B3")
    check("define X() from A() and 3-first B() within 5 us from A", "B@3 B@4 A@7", "A7 B3", "A7 B4")


def test_a_selection_sees_its_constraints_and_the_parameters_of_parts_already_chosen() -> None:
    keyed = "define X() from A(id = $x) and last B(id = $x, v > 3) within 9 us from A"
    check(keyed, "B@1(id=1,v=4) B@2(id=1,v=3) B@3(id=2,v=9) A@5(id=1)", "A5 B1")
    before = "define X() from A() and each C(id = $x) within 9 us from A and last B(id = $x) within 9 us from A"
    check(before, "C@0(id=1) B@1(id=1) B@2(id=2) A@5", "A5 C0 B1")


def test_what_is_chosen_later_never_makes_a_selection_look_further() -> None:
    after = "define X() from A() and last B(id = $x) within 9 us from A and each C(id = $x) within 9 us from A"
    check(after, "C@0(id=1) B@1(id=1) B@2(id=2) A@5")
    check(after, "C@0(id=2) B@1(id=1) B@2(id=2) A@5", "A5 B2 C0")
    chain = "define X() from A() and last B() within 5 us from A and last C() within 5 us from B"
    check(chain, "C@0 B@4 B@6 A@7")


def test_negations_and_aggregates_never_make_a_selection_look_further() -> None:
    quiet = "define X() from A() and last B() within 9 us from A and not C() within 2 us from B"
    check(quiet, "B@1 C@4 B@5 A@7")
    high = "define X() from A() and last B() within 9 us from A and Avg(C(id = B.id).v within 9 us from A) > 2"
    check(high, "C@0(id=1,v=3) B@1(id=1) B@2(id=2) A@4")


# -- 2. Windows --------------------------------------------------------------------------------------------------------


def test_the_outermost_window_bounds_the_span_to_the_earliest_primitive() -> None:
    check("Q: SEQ(A a, B b) WITHIN 5 us", "A@1 B@6 B@7", "A1 B6")
    check("X: SEQ(A a, B b) WITHIN 99 us; Y: SEQ(X x, C c) WITHIN 4 us", "A@1 B@3 C@5 C@6", "(A1 B3) C5", of="Y")


def test_an_inner_window_bounds_the_ends_of_its_parts() -> None:
    inner = "Q: SEQ(A a, AND(SEQ(B b, C c), D d) WITHIN 2 us) WITHIN 99 us"
    check(inner, "A@0 B@1 C@8 D@10", "A0 B1 C8 D10")
    check(inner, "A@0 B@1 C@8 D@11")


def test_in_ced_spelling_every_window_bounds_ends() -> None:
    check("Q: and(seq(A, B; 10 us), C; 2 us)", "A@0 B@8 C@10", "A0 B8 C10")
    check("Q: and(seq(A, B; 10 us), C; 2 us)", "A@0 B@8 C@11")


def test_or_takes_one_branch_and_keeps_the_outer_window() -> None:
    check("Q: OR(SEQ(A a, B b), SEQ(C c, D d)) WITHIN 3 us", "A@1 B@4 C@4 D@8", "A1 B4")
    check("Q: SEQ(A a, OR(B b, SEQ(C c, D d)), E e) WITHIN 9 us", "A@1 B@2 C@3 D@4 E@5", "A1 B2 E5", "A1 C3 D4 E5")


def test_seq_directly_inside_seq_is_flattened_unless_it_has_its_own_window() -> None:
    check("Q: SEQ(A a, SEQ(!C c, B b)) WITHIN 9 us", "C@0 A@1 B@2", "A1 B2")
    check("Q: SEQ(A a, SEQ(!C c, B b)) WITHIN 9 us", "A@1 C@2 B@3")
    check("Q: SEQ(A a, SEQ(!C c, B b) WITHIN 2 us) WITHIN 9 us", "C@0 A@1 B@2")
    check("Q: SEQ(A a, SEQ(!C c, B b) WITHIN 2 us) WITHIN 9 us", "A@0 C@1 B@4", "A0 B4")


def test_a_count_window_counts_events_of_the_patterns_own_types_before_constraints() -> None:
    check("Q: SEQ(A a, B b) WITHIN 2", "A@1 C@2 B@3 B@4", "A1 B3")
    check("Q: SEQ(A a, B b) WHERE a.v = 0 WITHIN 2", "A@1 A@2(v=7) B@3")
    check("Q: SEQ(A a, !C c, B b) WHERE c.v = 9 WITHIN 2", "A@1 C@2 B@3")


def test_a_maximum_gap_bounds_neighbouring_events() -> None:
    gaps = "Q: SEQ(A a, B b WITHIN 5 us FROM a, C c WITHIN 2 us FROM b) WITHIN 99 us"
    check(gaps, "A@1 B@6 B@7 C@8 C@9", "A1 B6 C8")


# -- 2. Negation -------------------------------------------------------------------------------------------------------


def test_negation_between_two_parts_is_strict_by_key() -> None:
    quiet = "Q: SEQ(A a, !C c, B b) WITHIN 9 us"
    check(quiet, "A@1 C@1 B@1")
    check(quiet, "C@1 A@1 B@1 C@1", "A1 B1")
    check(quiet, "A@1/b C@1/a B@2/a C@2/b", "A1/b B2/a")


def test_negation_between_operators_is_from_the_left_end_to_the_right_start() -> None:
    quiet = "Q: SEQ(AND(A a, B b), !C c, AND(D d, E e)) WITHIN 99 us"
    check(quiet, "A@1 C@2 B@3 E@4 C@5 D@6", "A1 B3 D6 E4")
    check(quiet, "A@1 B@3 C@4 E@5 D@6")


def test_negation_between_in_tesla_is_between_the_lesser_and_the_greater_end() -> None:
    for ends in ("B and A", "A and B"):
        check(f"define X() from A() and each B() within 9 us from A and not C() between {ends}", "B@1 C@2 A@3")
    unordered = "define X() from A() and each B() within 9 us from A and each D() within 9 us from A"
    unordered += " and not C() between B and D"
    check(unordered, "D@1 C@2 B@3 D@4 A@5", "A5 B3 D4")


def test_negation_first_in_seq_reaches_from_the_latest_ts_minus_window_to_the_first_part() -> None:
    fresh = "Q: SEQ(!C c, A a, B b) WITHIN 5 us"
    check(fresh, "C@2 A@3 B@7")
    check(fresh, "C@1 A@3 B@7", "A3 B7")
    check(fresh, "A@3/b C@3/a B@7")
    check(fresh, "A@3/b C@3/c B@7", "A3/b B7")


def test_negation_last_in_seq_reaches_from_the_last_part_to_the_earliest_ts_plus_window() -> None:
    alone = "Q: SEQ(A a, B b, !C c) WITHIN 5 us"
    check(alone, "A@3 B@7 C@8")
    check(alone, "A@3 B@7 C@9", "A3 B7")
    check(alone, "A@3 B@7/b C@7/a", "A3 B7/b")
    check(alone, "A@3 B@7/b C@7/c")


def test_negation_in_and_reaches_from_the_greatest_minus_window_to_the_least_plus_window() -> None:
    alone = "Q: AND(A a, !C c, B b) WITHIN 5 us"
    check(alone, "C@2 A@3 B@7")
    check(alone, "C@1 A@3 B@7", "A3 B7")
    check(alone, "B@3 C@5 A@7")
    check(alone, "A@3 B@7 C@8")
    check(alone, "A@3 B@7 C@9", "A3 B7")


def test_the_owner_of_the_window_gives_a_negation_its_reach() -> None:
    outer = "Q: SEQ(D d, AND(A a, SEQ(B b, !C c))) WITHIN 9 us"
    check(outer, "D@0 A@1 B@2 C@9")
    check(outer, "D@0 A@1 B@2 C@10", "D0 A1 B2")
    own = "Q: SEQ(D d, AND(A a, SEQ(B b, !C c)) WITHIN 3 us) WITHIN 9 us"
    check(own, "D@0 A@1 B@2 C@4")
    check(own, "D@0 A@1 B@2 C@5", "D0 A1 B2")
    inner_last = "Q: SEQ(SEQ(A a, !C c) WITHIN 2 us, B b) WITHIN 99 us"
    check(inner_last, "A@3 B@4 C@5")
    check(inner_last, "A@3 B@4 C@6", "A3 B4")


def test_not_within_looks_at_what_precedes_with_an_inclusive_bound() -> None:
    check("define X() from A() and not C() within 5 us from A", "C@2 A@7 A@8", "A8")
    check("define X() from A() and not C() within 5 us from A", "A@7/b C@7/a")
    check("define X() from A() and not C() within 5 us from A", "A@7/b C@7/c", "A7/b")


def test_a_part_of_the_match_never_negates_it() -> None:
    check("Q: SEQ(A a, !B c, B+ b[]) WITHIN 9 us", "A@1 B@2 B@3", "A1 B2", "A1 B2 B3")
    check("Q: AND(A a, !A x) WITHIN 3 us", "A@1 A@5 A@8", "A1")
    chosen_later = "define X() from A() and not B() as n within 9 us from A and last B() within 9 us from A"
    check(chosen_later, "B@1 A@2", "A2 B1")
    check(chosen_later, "B@0 B@1 A@2")


def test_a_negated_composite_counts_by_its_end() -> None:
    pairs = "X: SEQ(A a, B b) WITHIN 99 us; "
    check(pairs + "Y: SEQ(C c, !X x, D d) WITHIN 99 us", "A@1 C@2 B@3 D@4 C@5 D@6", "C5 D6", of="Y")
    check(pairs + "Y: SEQ(B p, !X x, C c) WITHIN 99 us", "A@1 B@3 C@4", "B3 C4", of="Y")


def test_a_negated_sub_pattern_without_a_window_takes_the_enclosing_one() -> None:
    check("Q: SEQ(A a, !SEQ(C c, D d), B b) WITHIN 9 us", "C@0 A@1 D@3 B@4")
    check("Q: SEQ(A a, !SEQ(C c, D d), B b) WITHIN 5 us", "C@0 A@3 D@6 B@7", "A3 B7")
    check("Q: SEQ(A a, !SEQ(C c, D d) WITHIN 2 us, B b) WITHIN 9 us", "C@0 A@1 D@3 B@4", "A1 B4")


def test_negation_beside_a_repetition_looks_at_the_elements_of_the_match() -> None:
    check("Q: SEQ(A a, B+ b[], !C c, D d) WITHIN 9 us", "A@1 B@2 C@3 B@4 D@5", "A1 B4 D5", "A1 B2 B4 D5")
    check("Q: SEQ(A a, !C c, B+ b[], D d) WITHIN 9 us", "A@1 B@2 C@3 B@4 D@5", "A1 B2 D5", "A1 B2 B4 D5")


# -- 2. Aggregates -----------------------------------------------------------------------------------------------------


def test_aggregates_use_the_ranges_of_negation() -> None:
    check("define X() from A() and Sum(B().v within 5 us from A) = 3", "B@1(v=9) B@2(v=1) B@3(v=2) A@7", "A7")
    between = "define X() from A() and each B() within 9 us from A and Count(C() between B and A) = 1"
    check(between, "B@1 C@2 B@3 A@4", "A4 B1")


def test_aggregates_include_parts_of_the_match() -> None:
    parts = "define X() from A() and last B() within 9 us from A and Count(B() as o within 9 us from A) = 1"
    check(parts, "B@1 A@4", "A4 B1")


@pytest.mark.parametrize("function", ["Sum", "Avg", "Min", "Max"])
@pytest.mark.parametrize("operator", ["=", "!=", "<", ">="])
def test_over_no_events_an_aggregate_has_no_value_and_comparisons_are_false(function: str, operator: str) -> None:
    check(f"define X() from A() and {function}(B().v within 5 us from A) {operator} 0", "A@7")


def test_count_over_no_events_is_0() -> None:
    check("define X() from A() and Count(B() within 5 us from A) = 0", "A@7", "A7")


def test_a_bound_aggregate_is_a_known_value_for_what_comes_after_it() -> None:
    mean = "define X() from A() and $m = Avg(B().v within 9 us from A) and "
    check(mean + "last B(v > $m) within 9 us from A", "B@1(v=5) B@2(v=1) A@4", "A4 B1")
    check(mean + "not C(v > $m) within 9 us from A", "B@0(v=3) C@1(v=3) A@4", "A4")
    check(mean + "not C(v > $m) within 9 us from A", "B@0(v=3) C@1(v=4) A@4")
    check(mean + "Sum(C(v > $m).v within 9 us from A) > 8", "B@0(v=3) C@1(v=3) C@2(v=4) C@3(v=5) A@4", "A4")


def test_sums_are_exact_and_rounded_once() -> None:
    text = (
        "define X(s: float, a: float) from A() and $s = Sum(B().w within 99 us from A) and "
        "$a = Avg(B().w within 99 us from A) where s = $s, a = $a"
    )
    (match,) = composites(text, "B@1(w=0.1) B@2(w=1e16) B@3(w=0.1) B@4(w=-1e16) B@5 A@6")
    assert match.attributes == {"s": 0.2, "a": 0.05}


# -- 2. Repetition -----------------------------------------------------------------------------------------------------


def test_skip_till_any_takes_every_non_empty_subset_in_key_order() -> None:
    check("Q: SEQ(A a, B+ b[], C c) WITHIN 9 us", "A@1 B@2 B@3 C@4", "A1 B2 C4", "A1 B3 C4", "A1 B2 B3 C4")


def test_the_element_before_and_aggregates_over_the_elements() -> None:
    rising = "Q: SEQ(A a, B+ b[]) WHERE b[i].v > b[i-1].v WITHIN 9 us"
    check(rising, "A@1 B@2(v=2) B@3(v=1) B@4(v=3)", "A1 B2", "A1 B3", "A1 B4", "A1 B2 B4", "A1 B3 B4")
    high = "Q: SEQ(A a, B+ b[]) WHERE avg(b[].v) > 1 AND count(b[]) >= 2 WITHIN 9 us"
    check(high, "A@1 B@2(v=2) B@3(v=1) B@4(v=0)", "A1 B2 B3")


def test_more_events_than_the_limit_give_no_match_for_that_choice_and_are_counted() -> None:
    limited = "Q: SEQ(A a, B+ b[] LIMIT 2, C c) WHERE b.v = 0 WITHIN 9 us"
    check(limited, "A@1 B@2 B@3 B@3(v=1) C@4 B@5 C@6", "A1 B2 C4", "A1 B3 C4", "A1 B2 B3 C4")
    live = Live(limited)
    assert live.feed("A@1 B@2 B@3 B@4 C@5") == []
    assert live.close() == []
    assert live.engine.counters()["over_limit:Q"] == 1


def test_a_group_ends_before_the_next_one_starts() -> None:
    groups = "Q: SEQ((A a, B b)+, C c) WITHIN 9 us"
    check(groups, "A@1 B@2 A@3 B@4 C@5", "A1 B2 C5", "A1 B4 C5", "A3 B4 C5", "A1 A3 B2 B4 C5")
    check(groups, "A@1 A@2 B@3 B@4 C@5", "A1 B3 C5", "A1 B4 C5", "A2 B3 C5", "A2 B4 C5")


def test_counting_without_listing() -> None:
    engine = Engine(rules("Q: SEQ(A a, B+ b[], C c) WITHIN 999 us"), tuple(TYPES.values()), count_only=True)
    events, _ = trace("A@0 " + " ".join(f"B@{i}" for i in range(1, 101)) + " C@101")
    assert engine.feed(events) == []
    assert engine.counts() == {"Q": 2**100 - 1}


# -- 2. Skip till next -------------------------------------------------------------------------------------------------

NEXT = " WITHIN 9 us SKIP TILL NEXT MATCH"


def test_next_takes_the_least_later_event_from_each_first_event() -> None:
    check("Q: SEQ(A a, B b, C c)" + NEXT, "A@1 A@2 B@3 B@4 C@5 C@6", "A1 B3 C5", "A2 B3 C5")
    check("Q: SEQ(A a, B b)" + NEXT, "A@1/b B@1/a B@1/c B@2", "A1/b B1/c")


def test_next_satisfies_all_predicates_on_parts_already_chosen_and_no_others() -> None:
    check("Q: SEQ(A a, B b, C c) WHERE b.v > a.v" + NEXT, "A@1(v=1) B@2(v=1) B@3(v=2) C@5", "A1 B3 C5")
    check("Q: SEQ(A a, B b, C c) WHERE c.v = b.v" + NEXT, "A@1 B@2(v=1) B@3(v=2) C@4(v=2)")


def test_next_of_or_is_the_least_of_any_branch() -> None:
    check("Q: SEQ(A a, OR(B b, C c), D d)" + NEXT, "A@1 C@2 B@3 D@4", "A1 C2 D4")
    check("Q: SEQ(A a, OR(B b, C c), D d) WHERE c.v = 1" + NEXT, "A@1 C@2 B@3 D@4", "A1 B3 D4")


def test_next_repetition_takes_elements_until_the_least_event_that_satisfies_the_next_part() -> None:
    check("Q: SEQ(A a, B+ b[], C c)" + NEXT, "A@1 C@2 B@3 B@4 C@5 B@6 C@7", "A1 B3 B4 C5")
    check("Q: SEQ(A a, B+ b[], C c) WHERE c.v = 1" + NEXT, "A@1 B@3 C@4 B@5 C@6(v=1)", "A1 B3 B5 C6")
    check("Q: SEQ(A a, B+ b[], B c) WHERE c.v = 1" + NEXT, "A@1 B@2(v=1) B@3 B@4(v=1)", "A1 B2 B3 B4")
    falling = "Q: SEQ(A a, B+ b[], C c) WHERE b[i].v > b[i-1].v"
    check(falling + NEXT, "A@1 B@2(v=5) B@3(v=4) B@4(v=6) C@5", "A1 B2 B4 C5")


def test_next_repetition_at_the_end_goes_on_until_the_window_ends() -> None:
    check("Q: SEQ(A a, B+ b[])" + NEXT, "A@1 B@2 C@3 B@10 B@11", "A1 B2 B10")


def test_negation_does_not_make_next_look_further() -> None:
    check("Q: SEQ(A a, !C c, B b)" + NEXT, "A@1 C@2 B@3 A@4 B@5", "A4 B5")


# -- 2. Rules on rules, REMOTE, functions ------------------------------------------------------------------------------


def test_windows_of_tesla_and_aggregates_count_a_composite_by_its_end() -> None:
    pairs = "define X() from B() and each A() within 99 us from B; "
    check(pairs + "define Y() from C() and each X() within 5 us from C", "A@1 B@3 C@8 C@9", "C8 (B3 A1)", of="Y")
    check(pairs + "define Y() from C() and Count(X() within 5 us from C) = 2", "A@1 A@2 B@3 C@8 C@9", "C8", of="Y")


def test_remote_answers_with_the_version_at_the_latest_event_its_arguments_name() -> None:
    tables = {"remote": RemoteTable([((0,), 1), ((0,), 2, 5), ((0, 0), 1), ((0, 0), 2, 5)])}
    by_first = "Q: SEQ(A a, B b) WHERE b.v = REMOTE[a.id] WITHIN 99 us"
    check(by_first, "A@1 B@6(v=1) B@7(v=2) A@8 B@9(v=2)", "A1 B6", "A8 B9", remote=tables)
    by_both = "Q: SEQ(A a, B b, C c) WHERE c.v = REMOTE[a.id, b.id] WITHIN 99 us"
    check(by_both, "A@1 B@5 C@6(v=1) C@7(v=2)", "A1 B5 C7", remote=tables)


def test_string_and_user_functions_in_predicates() -> None:
    words = "Q: SEQ(A a, B b) WHERE lower(a.s) = 'x' AND startswith(b.s, 'fo') AND a.s + b.s = 'Xfoo' WITHIN 9 us"
    check(words, "A@1(s=X) B@2(s=foo) B@3(s=bar)", "A1 B2")
    functions = Functions()
    functions.register("twice", lambda x: 2 * x, ("int",), "int")
    read = rules("Q: SEQ(A a, B b) WHERE b.v = twice(a.v) WITHIN 9 us", functions=functions)
    engine = Engine(read, tuple(TYPES.values()), functions=functions)
    assert [match.ts for match in engine.feed(trace("A@1(v=2) B@2(v=4) B@3(v=5)")[0])] == [2]


# -- 3. When matches are emitted, and what is kept ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Q: SEQ(A a, B b) WITHIN 5 us", ["B@3", "A@1"]),
        ("Q: AND(A a, B b) WITHIN 5 us", ["B@3", "A@4"]),
        ("Q: SEQ((A a, B b)+, C c) WITHIN 9 us", ["C@5 B@3", "A@1"]),
        ("define X() from B() and each A() within 5 us from B", ["B@3", "A@1"]),
    ],
)
def test_monotone_patterns_are_emitted_as_soon_as_their_parts_are_there(text: str, steps: list[str]) -> None:
    live = Live(text)
    *before, last = steps
    assert [live.feed(step) for step in before] == [[]] * len(before)
    assert len(live.feed(last)) == 1
    assert live.close() == []


@pytest.mark.parametrize(
    ("text", "events", "decided"),
    [
        ("define X() from B() and last A() within 5 us from B", "A@1 B@3", 3),
        ("define X() from B() and Count(A() within 5 us from B) = 1", "A@1 B@3", 3),
        ("Q: SEQ(A a, !C c, B b) WITHIN 9 us", "A@1 B@3", 3),
        ("Q: SEQ(A a, B b, !C c) WITHIN 5 us", "A@3 B@7", 8),
        ("Q: AND(A a, !C c, B b) WITHIN 5 us", "A@3 B@7", 8),
        ("Q: SEQ(A a, B+ b[] LIMIT 2, C c) WITHIN 9 us", "A@1 B@2 C@3", 3),
        ("Q: SEQ(A a, B b) WITHIN 50 us SKIP TILL NEXT MATCH", "A@3 B@7", 7),
        ("Q: SEQ(A a, B+ b[]) WITHIN 5 us SKIP TILL NEXT MATCH", "A@3 B@7", 8),
    ],
)
def test_others_are_decided_when_the_watermark_reaches_the_deciding_point(text: str, events: str, decided: int) -> None:
    live = Live(text)
    assert live.feed(events) == []
    assert live.advance(decided - 1) == []
    assert len(live.advance(decided)) == 1
    assert live.close() == []


def test_a_rule_over_composites_waits_only_for_those_that_are_undecided() -> None:
    live = Live("X: SEQ(A a, !C c) WITHIN 5 us; Y: SEQ(X x, B b) WITHIN 20 us; Z: SEQ(Y y, !D d) WITHIN 30 us")
    assert live.feed("A@1 B@3") == []
    assert live.advance(5) == []
    assert live.advance(6) == ["A1", "(A1) B3"]
    assert live.advance(30) == []
    assert live.advance(31) == ["((A1) B3)"]


def test_close_is_the_watermark_plus_infinity() -> None:
    live = Live("Q: SEQ(A a, !C c) WITHIN 5 us")
    assert live.feed("A@1") == []
    assert live.close() == ["A1"]


@pytest.mark.parametrize(
    "text",
    [
        "Q: SEQ(A a, B b, C c) WHERE [id] WITHIN 9 us",
        "Q: SEQ(A a, B+ b[], C c) WHERE [id] WITHIN 9 us SKIP TILL NEXT MATCH",
        "Q: AND(A a, !B b, C c) WHERE [id] WITHIN 9 us",
        "define X() from A(id = $x) and last B(id = $x) within 9 us from A and not C(id = $x) between B and A",
    ],
)
def test_what_no_future_match_can_use_is_freed(text: str) -> None:
    live = Live(text)
    live.feed(" ".join(f"{'ABC'[i % 3]}@{i}(id={i})" for i in range(60)))
    live.advance(59)
    assert live.engine.stored() <= 60
    live.advance(99)
    assert live.engine.stored() == 0


# -- 9. The output form ------------------------------------------------------------------------------------------------


def test_a_composite_is_printed_with_its_parts_one_by_one() -> None:
    text = "Q: SEQ(A a, B+ b[]) WHERE count(b[]) = 2 WITHIN 9 us RETURN Alert(n = count(b[]), mean = avg(b[].v))"
    (match,) = composites(text, "A@1/p B@2(v=1)/q B@4(v=2)/q")
    told = match.to_json()
    assert list(told) == ["id", "type", "ts", "start", "end", "rule", "attributes", "events"]
    told.pop("id")
    assert told == {
        "type": "Alert",
        "ts": 4,
        "start": 1,
        "end": 4,
        "rule": "Q",
        "attributes": {"n": 2, "mean": 1.5},
        "events": [
            {"role": "a", "type": "A", "ts": 1, "node": "p", "seq": 1},
            {"role": "b", "type": "B", "ts": 2, "node": "q", "seq": 1},
            {"role": "b", "type": "B", "ts": 4, "node": "q", "seq": 2},
        ],
    }
