"""What docs/guide/rules.md says about chains (TESLA), on the oracle and the engine."""

from __future__ import annotations

import pytest

from tests.kit.builders import Evaluator, absent, aggregate, chain, each, first, last, rule, seq

# -- selections --------------------------------------------------------------------------------------------------------


def test_an_anchor_alone_matches_every_event_that_meets_its_constraints(matches: Evaluator) -> None:
    assert matches(rule(chain("A a"), "a.v > 1"), "A@1 A@2(v=2)") == ["A@2"]


def test_each_takes_every_candidate_before_the_anchor_within_the_time(matches: Evaluator) -> None:
    assert matches(rule(chain("A a", each("B b", 5, "a"))), "B@1 B@2 B@3 A@7 B@8") == ["A@7 B@2", "A@7 B@3"]


def test_before_means_by_key_at_one_ts(matches: Evaluator) -> None:
    assert matches(rule(chain("A a", each("B b", 5, "a"))), "B@7 A@7 B@7") == ["A@7 B@7"]


def test_last_takes_the_greatest_and_first_the_least(matches: Evaluator) -> None:
    assert matches(rule(chain("A a", last("B b", 5, "a"))), "B@1 B@2 B@3 A@7") == ["A@7 B@3"]
    assert matches(rule(chain("A a", first("B b", 5, "a"))), "B@1 B@2 B@3 A@7") == ["A@7 B@2"]


def test_n_last_and_n_first_give_one_match_for_each_of_up_to_n(matches: Evaluator) -> None:
    assert matches(rule(chain("A a", last("B b", 9, "a", 2))), "B@1 B@2 B@3 A@7") == ["A@7 B@2", "A@7 B@3"]
    assert matches(rule(chain("A a", first("B b", 9, "a", 2))), "B@1 B@2 B@3 A@7") == ["A@7 B@1", "A@7 B@2"]
    assert matches(rule(chain("A a", last("B b", 9, "a", 5))), "B@1 A@7") == ["A@7 B@1"]


def test_candidates_satisfy_the_conjuncts_whose_last_role_they_are(matches: Evaluator) -> None:
    assert matches(rule(chain("A a", last("B b", 9, "a")), "b.id = a.id"), "B@1(id=1) B@2(id=2) A@3(id=1)") == [
        "A@3 B@1"
    ]


def test_a_selection_may_start_from_another_part(matches: Evaluator) -> None:
    steps = chain("A a", last("B b", 5, "a"), last("C c", 5, "b"))
    assert matches(rule(steps), "C@0 B@4 C@5 A@7") == ["A@7 B@4 C@0"]


def test_what_is_chosen_later_never_makes_a_selection_look_further(matches: Evaluator) -> None:
    steps = chain("A a", last("B b", 5, "a"), last("C c", 5, "b"))
    assert matches(rule(steps), "C@0 B@4 B@6 A@7") == []


def test_a_conjunct_with_a_later_role_does_not_move_an_earlier_selection(matches: Evaluator) -> None:
    steps = chain("A a", last("B b", 9, "a"), each("C c", 9, "a"))
    assert matches(rule(steps, "c.id = b.id"), "B@1(id=1) B@2(id=2) C@3(id=1) A@4") == []


def test_an_event_already_bound_is_no_candidate(matches: Evaluator) -> None:
    steps = chain("A a", last("B b", 9, "a"), last("B c", 9, "a"))
    assert matches(rule(steps), "B@1 B@2 A@3") == ["A@3 B@2 B@1"]


def test_a_selected_composite_may_start_before_the_window_and_counts_by_its_end(matches: Evaluator) -> None:
    inner = rule(seq("C c", "D d", within=99), name="inner", emits="X")
    found = matches([inner, rule(chain("A a", each("X x", 3, "a")), emits="Y")], "C@0 D@6 A@9")
    assert [m.text for m in found if m.rule == "r"] == ["A@9 (C@0 D@6)"]


# -- absence -----------------------------------------------------------------------------------------------------------


def test_absence_within_looks_before_the_origin(matches: Evaluator) -> None:
    quiet = rule(chain("A a", absent("C c", within=3, of="a")))
    assert matches(quiet, "C@1 A@4") == []
    assert matches(quiet, "C@0 A@4 C@5") == ["A@4"]


def test_absence_between_looks_strictly_between_the_two_ends(matches: Evaluator) -> None:
    quiet = rule(chain("A a", each("B b", 9, "a"), absent("C c", between="b a")))
    assert matches(quiet, "C@0 B@1 A@4 C@5") == ["A@4 B@1"]
    assert matches(quiet, "B@1 C@2 A@4") == []
    turned = rule(chain("A a", each("B b", 9, "a"), absent("C c", between="a b")))
    assert matches(turned, "B@1 C@2 A@4") == []


def test_absence_never_makes_a_selection_look_further(matches: Evaluator) -> None:
    quiet = rule(chain("A a", first("B b", 9, "a"), absent("C c", between="b a")))
    assert matches(quiet, "B@1 C@2 B@3 A@4") == []


def test_absent_events_must_meet_the_constraints_on_them(matches: Evaluator) -> None:
    quiet = rule(chain("A a", absent("C c", within=9, of="a")), "c.id = a.id")
    assert matches(quiet, "C@1(id=1) A@2(id=2)") == ["A@2"]
    assert matches(quiet, "C@1(id=2) A@2(id=2)") == []


def test_parts_of_the_match_do_not_count_as_absent_even_if_chosen_later(matches: Evaluator) -> None:
    quiet = rule(chain("A a", absent("B c", within=9, of="a"), each("B b", 9, "a")))
    assert matches(quiet, "B@1 A@2") == ["A@2 B@1"]
    assert matches(quiet, "B@1 B@1 A@2") == []


# -- aggregates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "value"), [("count", 2), ("sum", 7), ("avg", 3.5), ("min", 2), ("max", 5)])
def test_aggregates_range_over_the_events_before_the_origin(matches: Evaluator, function: str, value: object) -> None:
    counted = rule(chain("A a", aggregate("p", function, "B b", "v", within=5, of="a")), out={"p": "$p"})
    (match,) = matches(counted, "B@1(v=9) B@2(v=2) B@7(v=5) A@7 B@8(v=1)")
    assert match.attributes == {"p": value}


def test_aggregates_between_two_parts_exclude_the_ends(matches: Evaluator) -> None:
    counted = chain("A a", each("B b", 9, "a"), aggregate("p", "count", "B c", between="b a"))
    found = matches(rule(counted, out={"p": "$p"}), "B@1 B@2 B@3 A@4")
    assert {m.text: m.attributes["p"] for m in found} == {"A@4 B@1": 2, "A@4 B@2": 1, "A@4 B@3": 0}


def test_aggregates_include_parts_of_the_match(matches: Evaluator) -> None:
    counted = chain("A a", last("B b", 9, "a"), aggregate("p", "count", "B c", within=9, of="a"))
    assert [m.attributes for m in matches(rule(counted, out={"p": "$p"}), "B@1 B@2 A@3")] == [{"p": 2}]


def test_over_nothing_count_is_zero_and_the_others_have_no_value(matches: Evaluator) -> None:
    for function, value in {"count": 0, "sum": None, "avg": None, "min": None, "max": None}.items():
        nothing = chain("A a", aggregate("p", function, "B b", "v", within=5, of="a"))
        assert [m.attributes for m in matches(rule(nothing, out={"p": "$p"}), "A@1")] == [{"p": value}]


def test_a_condition_on_an_aggregate_without_value_is_false(matches: Evaluator) -> None:
    nothing = chain("A a", aggregate("p", "sum", "B b", "v", within=5, of="a"))
    for operator in ("<", ">=", "!="):
        assert matches(rule(nothing, f"$p {operator} 3"), "A@1") == []


def test_aggregates_ignore_missing_values(matches: Evaluator) -> None:
    trace = "B@1(w=0.5) B@2 A@3"
    for function, value in {"count": 1, "sum": 0.5, "avg": 0.5, "min": 0.5, "max": 0.5}.items():
        counted = chain("A a", aggregate("p", function, "B b", "w", within=5, of="a"))
        assert [m.attributes for m in matches(rule(counted, out={"p": "$p"}), trace)] == [{"p": value}]
    every = chain("A a", aggregate("p", "count", "B b", within=5, of="a"))
    assert [m.attributes for m in matches(rule(every, out={"p": "$p"}), trace)] == [{"p": 2}]


def test_sums_are_exact_and_rounded_once_and_integers_stay_integers(matches: Evaluator) -> None:
    total = rule(chain("A a", aggregate("p", "sum", "B b", "w", within=99, of="a")), out={"p": "$p"})
    trace = " ".join(f"B@{i}(w=0.1)" for i in range(10)) + " A@20"
    assert [m.attributes for m in matches(total, trace)] == [{"p": 1.0}]
    whole = rule(chain("A a", aggregate("p", "sum", "B b", "v", within=99, of="a")), out={"p": "$p"})
    (match,) = matches(whole, "B@1(v=9007199254740993) B@2(v=2) A@3")
    assert match.attributes == {"p": 9007199254740995}


def test_aggregated_events_must_meet_the_constraints_on_them(matches: Evaluator) -> None:
    counted = rule(chain("A a", aggregate("p", "count", "B b", within=9, of="a")), "b.id = a.id", out={"p": "$p"})
    assert [m.attributes for m in matches(counted, "B@1 B@2(id=1) A@3")] == [{"p": 1}]


def test_a_parameter_is_known_to_the_steps_after_it(matches: Evaluator) -> None:
    above = chain("A a", aggregate("p", "avg", "B b", "v", within=9, of="a"), last("B c", 9, "a"))
    assert matches(rule(above, "c.v > $p"), "B@1(v=1) B@2(v=9) B@3(v=2) A@4") == ["A@4 B@2"]


def test_a_condition_on_an_aggregate_accepts_or_rejects_and_never_moves_a_selection(matches: Evaluator) -> None:
    busy = chain("A a", last("B b", 9, "a"), aggregate("p", "count", "C c", between="b a"))
    assert matches(rule(busy, "$p >= 1"), "B@1 C@2 B@3 A@4") == []
    assert matches(rule(busy, "$p >= 1"), "B@1 B@2 C@3 A@4") == ["A@4 B@2"]


def test_a_composite_is_aggregated_by_its_end(matches: Evaluator) -> None:
    inner = rule(seq("C c", "D d", within=99), name="inner", emits="X")
    counted = rule(chain("A a", aggregate("p", "count", "X x", within=3, of="a")), emits="Y", out={"p": "$p"})
    found = matches([inner, counted], "C@0 D@6 D@7 A@9")
    assert [m.attributes for m in found if m.rule == "r"] == [{"p": 2}]
