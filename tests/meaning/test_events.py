"""What docs/guide/rules.md says about events, starts and ends, on the oracle and the engine."""

from __future__ import annotations

from typing import Any

import msgpack

from headwater.protocol import expressions as ex
from tests.kit.builders import (
    Evaluator,
    aggregate,
    both,
    chain,
    each,
    either,
    last,
    many,
    no,
    rule,
    same,
    seq,
)


def test_a_rule_sees_the_order_of_keys_not_of_arrival(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", within=9)), "B@2 A@1") == ["A@1 B@2"]


def test_events_at_one_ts_are_ordered_by_node_name_as_bytes(matches: Evaluator) -> None:
    follows = rule(seq("A a", "B b", within=9))
    assert matches(follows, "A@1/n10 B@1/n2") == ["A@1/n10 B@1/n2"]
    assert matches(follows, "A@1/n2 B@1/n10") == []
    assert matches(follows, "A@1/z B@1/é") == ["A@1/z B@1/é"]


def test_events_at_one_ts_and_node_are_ordered_by_their_number(matches: Evaluator) -> None:
    follows = rule(seq("A a", "B b", within=9))
    assert matches(follows, "A@1 B@1") == ["A@1 B@1"]
    assert matches(follows, "B@1 A@1") == []


def test_equal_content_under_another_number_is_another_event(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", within=9)), "A@1 A@1 B@2") == ["A@1 B@2", "A@1' B@2"]


def test_a_composite_starts_and_ends_with_its_parts_and_its_ts_is_its_end(matches: Evaluator) -> None:
    (match,) = matches(rule(both("A a", "B b", within=9)), "B@2 A@5")
    assert (match.start, match.end, match.ts) == (2, 5, 5)


def test_start_and_end_of_a_composite_of_composites_reach_to_its_earliest_and_latest_primitive(
    matches: Evaluator,
) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X")
    outer = rule(both("X x", "C c", within=9, bounds="span"), name="outer", emits="Y")
    found = matches([inner, outer], "A@1 C@2 B@3")
    assert [(m.text, m.start, m.end) for m in found] == [("A@1 B@3", 1, 3), ("(A@1 B@3) C@2", 1, 3)]


def test_parts_are_listed_role_by_role_in_the_order_of_the_text(matches: Evaluator) -> None:
    assert matches(rule(both("B b", "A a", within=9)), "A@1 B@2") == ["B@2 A@1"]
    assert "A@1 A@3 B@2 B@4" in matches(rule(seq(many("A a", "B b"), within=9)), "A@1 B@2 A@3 B@4")


def test_composites_are_ordered_by_end_then_rule_name_then_version_then_parts(matches: Evaluator) -> None:
    rules = [
        rule(seq("A a", "B b", within=9), name="two", emits="Y"),
        rule(seq("B b", within=9), name="one", emits="X"),
    ]
    found = matches(rules, "A@1 A@2 B@3 B@4")
    assert [(m.rule, m.text) for m in found] == [
        ("one", "B@3"),
        ("two", "A@1 B@3"),
        ("two", "A@2 B@3"),
        ("one", "B@4"),
        ("two", "A@1 B@4"),
        ("two", "A@2 B@4"),
    ]


def test_identity_is_the_hash_of_rule_version_and_the_roles_and_identities_of_the_parts(matches: Evaluator) -> None:
    from hashlib import blake2b

    (match,) = matches(rule(seq("A a", many("B b"), within=9), version=3), "A@1 B@2/m")
    packed = msgpack.packb(["r", 3, [["a", ["n", 0]], ["b", ["m", 0]]]])
    assert match.id == blake2b(packed, digest_size=16).hexdigest()


def test_no_event_is_bound_twice_in_a_match(matches: Evaluator) -> None:
    assert matches(rule(both("A a", "A b", within=9)), "A@1") == []
    assert matches(rule(both("A a", "A b", within=9)), "A@1 A@2") == ["A@1 A@2", "A@2 A@1"]
    assert matches(rule(chain("A a", each("A b", 9, "a"))), "A@1 A@2") == ["A@2 A@1"]


def test_a_composite_is_one_part_and_its_constituents_are_not_parts(matches: Evaluator) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X")
    outer = rule(both("X x", "A a", within=9), name="outer", emits="Y")
    assert matches([inner, outer], "A@1 B@2") == ["A@1 B@2", "(A@1 B@2) A@1"]


def test_a_conjunct_applies_only_where_all_its_roles_are_bound(matches: Evaluator) -> None:
    choice = seq("A a", either("B b", "C c"), within=9)
    assert matches(rule(choice, "b.v > a.v"), "A@1(v=5) B@2(v=1) C@3(v=1)") == ["A@1 C@3"]


def test_in_an_output_attribute_an_unbound_role_has_no_value(matches: Evaluator) -> None:
    found = matches(rule(seq("A a", either("B b", "C c"), within=9), out={"x": "b.v", "y": "c.v + 1"}), "A@1 C@3(v=4)")
    assert [m.attributes for m in found] == [{"x": None, "y": 5}]


def test_a_comparison_with_no_value_is_false_and_its_negation_true(matches: Evaluator) -> None:
    one = seq("A a", within=9)
    trace = "A@1 A@2(w=1.5)"
    less = ex.Binary("<", ex.Attribute("a", "w"), ex.Constant(2.0))
    assert matches(rule(one, less), trace) == ["A@2"]
    assert matches(rule(one, ex.Unary("not", less)), trace) == ["A@1"]
    assert matches(rule(one, "a.w != 7.0"), trace) == ["A@2"]
    for operator in ("in", "not in"):
        listed = ex.Binary(operator, ex.Attribute("a", "w"), ex.Items((ex.Constant(1.5), ex.Constant(2.5))))
        assert matches(rule(one, listed), trace) == (["A@2"] if operator == "in" else [])


def test_arithmetic_on_no_value_and_division_by_zero_have_no_value(matches: Evaluator) -> None:
    found = matches(
        rule(seq("A a", within=9), out={"sum": "a.w + 1", "ratio": "a.v / a.id", "rest": "a.v % a.id"}),
        "A@1(v=3) A@2(v=3,id=2,w=1.0)",
    )
    assert [m.attributes for m in found] == [
        {"sum": None, "ratio": None, "rest": None},
        {"sum": 2.0, "ratio": 1.5, "rest": 1},
    ]


def test_attributes_ts_node_and_type_of_a_composite_are_those_of_its_end(matches: Evaluator) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X")
    outer = rule(chain("X x"), name="outer", emits="Y", out={"at": "x.ts", "where": "x.node", "what": "x.type"})
    found = matches([inner, outer], "A@1/p B@2/q")
    assert found[-1].attributes == {"at": 2, "where": "q", "what": "X"}


def test_same_demands_that_all_parts_agree(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", within=9), same("id")), "A@1(id=1) A@2(id=2) B@3(id=2)") == ["A@2 B@3"]
    assert matches(rule(seq("A a", many("B b"), within=9), same("id")), "A@1 B@2 B@3(id=1) B@4") == [
        "A@1 B@2",
        "A@1 B@2 B@4",
        "A@1 B@4",
    ]


def test_same_concerns_negating_events_too(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no("C c"), "B b", within=9), same("id"))
    assert matches(quiet, "A@1 C@2(id=1) B@3") == ["A@1 B@3"]
    assert matches(quiet, "A@1 C@2 B@3") == []


def test_no_value_agrees_with_nothing(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", within=9), same("w")), "A@1 B@2 A@3(w=1.0) B@4(w=1.0)") == ["A@3 B@4"]


def test_a_rule_reads_the_composites_of_other_rules_by_their_type(matches: Evaluator) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X", out={"v": "a.v + b.v"})
    outer = rule(chain("C c", last("X x", 9, "c")), "x.v > 3", name="outer", emits="Y")
    found = matches([outer, inner], "A@1(v=1) B@2(v=1) B@3(v=5) C@4")
    assert [m.text for m in found if m.rule == "outer"] == ["C@4 (A@1 B@3)"]


def test_several_rules_may_emit_one_type(matches: Evaluator) -> None:
    rules = [
        rule(seq("A a", within=9), name="one", emits="X"),
        rule(seq("B b", within=9), name="two", emits="X"),
        rule(chain("C c", aggregate("n", "count", "X x", within=9, of="c")), name="three", emits="Y", out={"n": "$n"}),
    ]
    found = matches(rules, "A@1 B@2 C@3")
    assert found[-1].attributes == {"n": 2}


def test_in_seq_a_composite_must_start_after_the_end_of_the_part_before(matches: Evaluator) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X")
    outer = rule(seq("C c", "X x", within=9), name="outer", emits="Y")
    found = matches([inner, outer], "A@1 C@2 A@3 B@4")
    assert [m.text for m in found if m.rule == "outer"] == ["C@2 (A@3 B@4)"]


def test_last_among_composites_with_one_end_is_decided_by_their_own_keys(matches: Evaluator) -> None:
    inner = rule(seq("A a", "B b", within=9), name="inner", emits="X")
    outer = rule(chain("C c", last("X x", 9, "c")), name="outer", emits="Y")
    found = matches([inner, outer], "A@1 A@2 B@3 C@4")
    assert [m.text for m in found if m.rule == "outer"] == ["C@4 (A@2 B@3)"]


def test_the_composite_of_a_trailing_negation_is_read_at_the_time_of_its_end(matches: Evaluator) -> None:
    alone = rule(seq("A a", no("B b"), within=5), name="alone", emits="X")
    outer = rule(chain("C c", last("X x", 9, "c")), name="outer", emits="Y")
    found = matches([alone, outer], "A@1 A@2 C@3 B@7")
    assert [m.text for m in found] == ["A@1", "C@3 (A@1)"]


def test_a_remote_table_answers_with_the_version_at_the_latest_event_its_arguments_name(matches: Evaluator) -> None:
    class Versions:
        def lookup(self, arguments: tuple[Any, ...], ts: int) -> int | None:
            return {("old",): None}.get(arguments, 1 if ts < 3 else 2)

    looked_up = ex.Remote("limits", (ex.Binary("+", ex.Attribute("a", "s"), ex.Attribute("b", "s")),))
    pattern = rule(seq("A a", "B b", within=9), ex.Binary("=", ex.Attribute("a", "v"), looked_up))
    trace = "A@1(v=1,s='x') A@1(v=2,s='x') B@2(s='y') B@3(s='y')"
    assert matches(pattern, trace, {"limits": Versions()}) == ["A@1 B@2", "A@1' B@3"]
