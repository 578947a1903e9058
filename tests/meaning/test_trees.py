"""What docs/guide/rules.md says about operator trees, on the oracle and the engine."""

from __future__ import annotations

import pytest

from headwater.protocol import pattern as pt
from headwater.protocol.expressions import Expression
from tests.kit.builders import Evaluator, Match, both, either, many, no, rule, same, seq


def composites_of_a_then_b() -> pt.Rule:
    """X from A to B, however far apart."""
    return rule(seq("A a", "B b", within=99), name="inner", emits="X")


def outer(found: list[Match]) -> list[Match]:
    return [match for match in found if match.rule == "r"]


# -- SEQ, AND, OR ------------------------------------------------------------------------------------------------------


def test_seq_demands_that_each_part_precedes_the_next(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", "C c", within=9)), "B@1 A@2 B@3 C@4 B@5") == ["A@2 B@3 C@4"]


def test_seq_takes_every_combination_under_skip_till_any(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", "B b", within=9)), "A@1 A@2 B@3 B@4") == [
        "A@1 B@3",
        "A@2 B@3",
        "A@1 B@4",
        "A@2 B@4",
    ]


def test_seq_of_operators_compares_the_end_of_the_left_with_the_start_of_the_right(matches: Evaluator) -> None:
    pairs = rule(seq(both("A a", "B b"), both("C c", "D d"), within=20, bounds="span"))
    assert matches(pairs, "B@1 A@2 D@3 C@4") == ["A@2 B@1 C@4 D@3"]
    assert matches(pairs, "A@1 C@2 B@3 D@4") == []


def test_a_seq_in_a_seq_without_a_window_is_the_same_as_its_parts_in_its_place(matches: Evaluator) -> None:
    nested = rule(seq("A a", seq(no("C c"), "B b"), "D d", within=9, bounds="span"))
    assert matches(nested, "C@0 A@1 B@2 D@3") == ["A@1 B@2 D@3"]
    assert matches(nested, "A@1 C@2 B@3 D@4") == []


def test_and_takes_any_order(matches: Evaluator) -> None:
    assert matches(rule(both("A a", "B b", within=9)), "A@1 B@2 A@3") == ["A@1 B@2", "A@3 B@2"]


def test_or_takes_exactly_one_branch(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", either("B b", "C c"), "D d", within=9)), "A@1 B@2 C@3 D@4") == [
        "A@1 B@2 D@4",
        "A@1 C@3 D@4",
    ]


def test_or_of_sequences_binds_the_whole_branch(matches: Evaluator) -> None:
    branches = either(seq("A a", "B b"), "C c")
    assert matches(rule(seq(branches, "D d", within=9, bounds="span")), "A@1 B@2 C@3 D@4") == ["A@1 B@2 D@4", "C@3 D@4"]


# -- windows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", ["span", "ends"])
def test_window_bounds_are_inclusive(matches: Evaluator, bounds: str) -> None:
    assert matches(rule(seq("A a", "B b", within=5, bounds=bounds)), "A@1 A@2 B@7") == ["A@2 B@7"]


def test_a_span_reaches_back_to_the_start_of_a_composite_part(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), rule(both("X x", "C c", within=5, bounds="span"), emits="Y")]
    assert outer(matches(rules, "A@0 A@2 B@6 C@7")) == ["(A@2 B@6) C@7"]


def test_an_ends_window_compares_only_the_ends_of_composite_parts(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), rule(both("X x", "C c", within=5, bounds="ends"), emits="Y")]
    assert outer(matches(rules, "A@0 A@2 B@6 C@7")) == ["(A@0 B@6) C@7", "(A@2 B@6) C@7"]


def test_the_end_of_an_inner_operator_is_its_greatest_end(matches: Evaluator) -> None:
    tree = both(seq("A a", "B b", within=10), "C c", within=2)
    assert matches(rule(tree), "A@0 B@8 C@10") == ["A@0 B@8 C@10"]
    assert matches(rule(tree), "A@0 C@1 B@8") == []


def test_an_inner_window_bounds_only_its_own_parts(matches: Evaluator) -> None:
    tree = seq(both("A a", "B b", within=2), "C c", within=20, bounds="span")
    assert matches(rule(tree), "A@0 B@2 C@20") == ["A@0 B@2 C@20"]
    assert matches(rule(tree), "A@0 B@3 C@4") == []


def test_every_element_of_a_repetition_is_a_part_of_its_own_for_an_ends_window(matches: Evaluator) -> None:
    tree = seq(many("B b"), "C c", within=3)
    assert matches(rule(tree), "B@1 B@4 C@5") == ["B@4 C@5"]


def test_the_branch_that_an_or_took_stands_in_its_place_for_the_window_outside(matches: Evaluator) -> None:
    tree = seq(either(many("B b"), "A a"), "C c", within=3)
    assert matches(rule(tree), "B@1 B@4 C@5") == ["B@4 C@5"]
    dissolving = both(seq(either(seq("A a", "B b"), "D d"), "C c", within=3), "E e", within=9, bounds="span")
    assert matches(rule(dissolving), "A@1 B@4 C@5 E@6") == []
    assert matches(rule(dissolving), "A@2 B@4 C@5 E@6") == ["A@2 B@4 C@5 E@6"]


def test_a_count_window_counts_events_of_the_patterns_own_types(matches: Evaluator) -> None:
    tree = rule(seq("A a", "B b", events=3))
    assert matches(tree, "A@1 A@2 D@3 D@4 B@5 B@6") == ["A@1 B@5", "A@2 B@5", "A@2 B@6"]


def test_a_count_window_counts_negated_types_and_events_that_fail_constraints(matches: Evaluator) -> None:
    tree = rule(seq("A a", no("C c"), "B b", events=2), "c.v = 1", "a.v = 0")
    assert matches(tree, "A@1 B@2") == ["A@1 B@2"]
    assert matches(tree, "A@1 C@2 B@3") == []
    assert matches(tree, "A@1 A@2(v=1) B@3") == []


# -- negation ----------------------------------------------------------------------------------------------------------


def test_negation_between_two_parts_looks_strictly_between_them(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no("C c"), "B b", within=9))
    assert matches(quiet, "C@0 A@1 B@3 C@4") == ["A@1 B@3"]
    assert matches(quiet, "A@1 C@2 B@3") == []
    assert matches(quiet, "A@1 C@1 B@3") == []
    assert matches(quiet, "C@1 A@1 B@3 C@3") == ["A@1 B@3"]


def test_negation_beside_an_operator_looks_between_its_end_and_the_next_start(matches: Evaluator) -> None:
    quiet = rule(seq(both("A a", "B b"), no("C c"), "D d", within=20, bounds="span"))
    assert matches(quiet, "A@1 C@2 B@3 D@4") == ["A@1 B@3 D@4"]
    assert matches(quiet, "A@1 B@3 C@4 D@5") == []


def test_several_negations_between_two_parts_each_have_the_whole_range(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no("C c"), no("D d"), "B b", within=9))
    assert matches(quiet, "A@1 D@2 B@4") == []
    assert matches(quiet, "A@1 C@3 B@4") == []
    assert matches(quiet, "A@1 B@4") == ["A@1 B@4"]


def test_a_negating_event_must_meet_the_conjuncts_that_name_its_role(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no("C c"), "B b", within=9), "c.v > a.v")
    assert matches(quiet, "A@1(v=3) C@2(v=3) B@3") == ["A@1 B@3"]
    assert matches(quiet, "A@1(v=3) C@2(v=4) B@3") == []


def test_leading_negation_reaches_back_from_the_greatest_end_of_the_owner(matches: Evaluator) -> None:
    fresh = rule(seq(no("C c"), "A a", "B b", within=5))
    assert matches(fresh, "C@1 A@3 B@7") == ["A@3 B@7"]
    assert matches(fresh, "C@2 A@3 B@7") == []
    assert matches(fresh, "A@3 C@4 B@7") == ["A@3 B@7"]


def test_trailing_negation_reaches_forward_from_the_least_start_of_the_owner(matches: Evaluator) -> None:
    alone = rule(seq("A a", "B b", no("C c"), within=5))
    assert matches(alone, "A@1 B@3 C@6") == []
    assert matches(alone, "A@1 B@3 C@7") == ["A@1 B@3"]
    assert matches(alone, "A@1 C@2 B@3") == ["A@1 B@3"]


def test_trailing_negation_counts_from_the_start_of_a_composite(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), rule(seq("X x", no("C c"), within=5), emits="Y")]
    assert outer(matches(rules, "A@0 B@3 C@6")) == ["(A@0 B@3)"]
    assert outer(matches(rules, "A@0 B@3 C@5")) == []


def test_negation_in_and_reaches_both_ways(matches: Evaluator) -> None:
    alone = rule(both("A a", no("C c"), "B b", within=5))
    assert matches(alone, "A@4 B@7 C@9") == []
    assert matches(alone, "A@4 B@7 C@10") == ["A@4 B@7"]
    assert matches(alone, "C@2 A@4 B@7") == []
    assert matches(alone, "C@1 A@4 B@7") == ["A@4 B@7"]
    assert matches(alone, "A@4 C@5 B@7") == []


def test_the_owner_of_a_negation_is_the_nearest_operator_with_a_window(matches: Evaluator) -> None:
    own = rule(seq("D d", seq("A a", no("C c"), within=2), within=9, bounds="span"))
    assert matches(own, "D@0 A@3 C@5") == []
    assert matches(own, "D@0 A@3 C@6") == ["D@0 A@3"]
    borrowed = rule(both("D d", seq("A a", no("C c")), within=9, bounds="span"))
    assert matches(borrowed, "D@0 A@3 C@9") == []
    assert matches(borrowed, "D@0 A@3 C@10") == ["D@0 A@3"]


def test_a_part_of_the_match_never_negates_it(matches: Evaluator) -> None:
    assert matches(rule(both("A a", "B b", no("B c"), within=9)), "A@1 B@2") == ["A@1 B@2"]
    assert matches(rule(both("A a", "B b", no("B c"), within=9)), "A@1 B@2 B@3") == []
    assert matches(rule(seq("A a", no("B c"), many("B b"), "D d", within=9)), "A@1 B@2 B@3 D@4") == [
        "A@1 B@2 B@3 D@4",
        "A@1 B@2 D@4",
    ]


def test_a_negated_composite_counts_by_its_end(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), rule(seq("C c", no("X x"), "D d", within=9), emits="Y")]
    assert outer(matches(rules, "A@1 C@2 B@3 D@4")) == []
    assert outer(matches(rules, "A@1 C@2 D@4 B@5")) == ["C@2 D@4"]


def test_a_negated_sub_pattern_forbids_by_a_match_that_ends_in_the_range(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no(seq("C c", "D d")), "B b", within=9, bounds="span"))
    assert matches(quiet, "A@1 C@2 B@3") == ["A@1 B@3"]
    assert matches(quiet, "A@1 C@2 D@3 B@4") == []
    assert matches(quiet, "C@0 A@1 D@3 B@4") == []
    assert matches(quiet, "A@1 D@2 C@3 B@4") == ["A@1 B@4"]


def test_a_negated_sub_pattern_keeps_to_its_own_window_or_else_the_owners(matches: Evaluator) -> None:
    own = rule(seq("A a", no(seq("C c", "D d", within=1)), "B b", within=9, bounds="span"))
    assert matches(own, "A@1 C@2 D@4 B@5") == ["A@1 B@5"]
    assert matches(own, "A@1 C@2 D@3 B@5") == []
    owners = rule(seq("A a", no(seq("C c", "D d")), "B b", within=4, bounds="span"))
    assert matches(owners, "C@3 A@6 D@7 B@8") == []
    assert matches(owners, "C@2 A@6 D@7 B@8") == ["A@6 B@8"]


def test_a_negated_sub_pattern_that_contains_a_part_of_the_match_forbids_nothing(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no(both("A c", "D d")), "B b", within=9, bounds="span"))
    assert matches(quiet, "A@1 D@2 B@3") == ["A@1 B@3"]


def test_a_negated_or_forbids_by_either_branch(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no(either("C c", "D d")), "B b", within=9), "c.v = 1")
    assert matches(quiet, "A@1 D@2 B@3") == []
    assert matches(quiet, "A@1 C@2 B@3") == ["A@1 B@3"]


def test_roles_of_one_negated_sub_pattern_may_meet_in_a_conjunct(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no(seq("C c", "D d")), "B b", within=9), "c.id = d.id")
    assert matches(quiet, "A@1 C@2(id=1) D@3(id=2) B@4") == ["A@1 B@4"]
    assert matches(quiet, "A@1 C@2(id=1) D@3(id=1) B@4") == []


def test_same_makes_every_event_of_a_negated_sub_pattern_agree_with_the_parts(matches: Evaluator) -> None:
    quiet = rule(seq("A a", no(seq("C c", "D d")), "B b", within=9), same("id"))
    assert matches(quiet, "A@1 C@2 D@3(id=1) B@4") == ["A@1 B@4"]
    assert matches(quiet, "A@1 C@2 D@3 B@4") == []


def test_a_conjunct_of_a_negated_and_a_repeated_role_must_hold_for_every_element(matches: Evaluator) -> None:
    quiet = rule(seq("A a", many("B b"), no("C c"), "D d", within=9), "c.v > b.v")
    found = matches(quiet, "A@1 B@2(v=1) B@3(v=5) C@4(v=3) D@5")
    assert found == ["A@1 B@2 B@3 D@5", "A@1 B@3 D@5"]


def test_under_a_count_window_negation_counts_events_instead_of_time(matches: Evaluator) -> None:
    fresh = rule(seq(no("C c"), "A a", "B b", events=3))
    assert matches(fresh, "C@1 A@2 B@3") == []
    assert matches(fresh, "C@1 A@2 B@3 B@3") == ["A@2 B@3'"]
    alone = rule(seq("A a", no("C c"), events=2))
    assert matches(alone, "A@1 C@50") == []
    assert matches(alone, "A@1 A@2 C@50") == ["A@1"]
    either_way = rule(both("A a", no("C c"), events=2))
    assert matches(either_way, "C@1 A@2 A@3 A@4 C@5") == ["A@3"]


# -- repetition --------------------------------------------------------------------------------------------------------


def test_a_repetition_takes_every_non_empty_subset_in_order(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", many("B b"), "C c", within=9)), "A@1 B@2 B@3 C@4") == [
        "A@1 B@2 B@3 C@4",
        "A@1 B@2 C@4",
        "A@1 B@3 C@4",
    ]


def test_each_element_must_end_before_the_next_starts(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), rule(seq(many("X x"), within=99), emits="Y")]
    assert outer(matches(rules, "A@1 A@2 B@3")) == ["(A@1 B@3)", "(A@2 B@3)"]
    assert "(A@1 B@2) (A@3 B@4)" in outer(matches(rules, "A@1 B@2 A@3 B@4"))


def test_a_repetition_in_and_takes_elements_anywhere(matches: Evaluator) -> None:
    assert matches(rule(both("A a", many("B b"), within=9)), "B@1 A@2 B@3") == ["A@2 B@1", "A@2 B@1 B@3", "A@2 B@3"]


def test_a_group_repeats_as_a_whole(matches: Evaluator) -> None:
    groups = rule(seq(many("A a", "B b"), "C c", within=9))
    assert matches(groups, "A@1 B@2 A@3 B@4 C@5") == [
        "A@1 A@3 B@2 B@4 C@5",
        "A@1 B@2 C@5",
        "A@1 B@4 C@5",
        "A@3 B@4 C@5",
    ]
    assert matches(groups, "A@1 A@2 B@3 B@4 C@5") == ["A@1 B@3 C@5", "A@1 B@4 C@5", "A@2 B@3 C@5", "A@2 B@4 C@5"]


def test_a_conjunct_on_the_element_holds_for_every_element(matches: Evaluator) -> None:
    assert matches(rule(seq("A a", many("B b"), within=9), "b.v > a.v"), "A@1(v=3) B@2(v=4) B@3(v=1) B@4(v=5)") == [
        "A@1 B@2",
        "A@1 B@2 B@4",
        "A@1 B@4",
    ]


def test_a_conjunct_on_the_element_before_holds_for_all_but_the_first(matches: Evaluator) -> None:
    rising = rule(seq(many("B b"), within=9), "b.v > b[i-1].v")
    assert matches(rising, "B@1(v=1) B@2(v=3) B@3(v=2)") == ["B@1", "B@1 B@2", "B@2", "B@1 B@3", "B@3"]


def test_in_a_group_bare_names_mean_the_same_iteration_and_i_minus_1_the_one_before(matches: Evaluator) -> None:
    trace = "A@1(v=1) B@2(v=5) A@3(v=5) B@4(v=9)"
    groups = seq(many("A a", "B b"), within=9)
    assert "A@1 A@3 B@2 B@4" in matches(rule(groups, "a.v = b[i-1].v"), trace)
    assert "A@1 A@3 B@2 B@4" not in matches(rule(groups, "a.v != b[i-1].v"), trace)
    assert matches(rule(groups, "b.v = a.v + 4"), trace) == ["A@1 B@2", "A@1 A@3 B@2 B@4", "A@3 B@4"]


def test_first_last_and_folds_see_the_finished_repetition(matches: Evaluator) -> None:
    trace = "B@1(v=1) B@2(v=2) B@3(v=4)"
    run = seq(many("B b"), within=9)
    assert matches(rule(run, "sum(b.v) = 6"), trace) == ["B@2 B@3"]
    assert matches(rule(run, "count(b) = 3"), trace) == ["B@1 B@2 B@3"]
    assert matches(rule(run, "b[last].v = b[first].v + 1"), trace) == ["B@1 B@2"]
    assert matches(rule(run, "avg(b.v) = 2.5"), trace) == ["B@1 B@3"]
    assert matches(rule(run, "b.v < max(b.v)"), trace) == []


def test_folds_ignore_missing_values_and_have_none_over_nothing(matches: Evaluator) -> None:
    run = rule(
        seq(many("B b"), within=9), out={"n": "count(b)", "with": "count(b.w)", "sum": "sum(b.w)", "least": "min(b.w)"}
    )
    found = {m.text: m.attributes for m in matches(run, "B@1 B@2(w=0.5) B@3(w=0.25)")}
    assert found["B@1"] == {"n": 1, "with": 0, "sum": None, "least": None}
    assert found["B@1 B@2 B@3"] == {"n": 3, "with": 2, "sum": 0.75, "least": 0.25}


def test_more_candidates_than_the_limit_give_no_match_for_that_choice_of_the_other_parts(matches: Evaluator) -> None:
    limited = rule(seq("A a", many("B b", limit=2), "C c", within=9), "b.v = 0")
    assert matches(limited, "A@1 B@2 B@3 B@3(v=1) C@4 B@5 C@6") == ["A@1 B@2 B@3 C@4", "A@1 B@2 C@4", "A@1 B@3 C@4"]


def test_the_limit_counts_before_conjuncts_with_other_roles(matches: Evaluator) -> None:
    limited = rule(seq("A a", many("B b", limit=1), "C c", within=9), "b.v = a.v")
    assert matches(limited, "A@1 B@2(v=7) B@3 C@4") == []
    assert matches(limited, "A@1 B@3 C@4") == ["A@1 B@3 C@4"]


def test_the_limit_counts_only_inside_the_window(matches: Evaluator) -> None:
    limited = rule(seq("A a", many("B b", limit=1), within=3))
    assert matches(limited, "A@1 B@4 B@5") == ["A@1 B@4"]
    assert matches(limited, "A@1 B@3 B@4") == []


# -- skip till next match ----------------------------------------------------------------------------------------------


def next_match(root: pt.Part, *where: str | Expression) -> pt.Rule:
    return rule(root, *where, skip="next", emits="Y")


def test_next_takes_the_least_later_event_from_each_first_event(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", "B b", "C c", within=9)), "A@1 A@2 B@3 B@4 C@5 C@6") == [
        "A@1 B@3 C@5",
        "A@2 B@3 C@5",
    ]


def test_next_skips_events_that_fail_a_conjunct_whose_roles_are_bound(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", "B b", within=9), "b.v > a.v"), "A@1(v=3) B@2(v=1) B@3(v=4) B@4(v=5)") == [
        "A@1 B@3"
    ]


def test_next_never_looks_further_for_the_sake_of_what_comes_later(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", "B b", "C c", within=9), "c.v = b.v"), "A@1 B@2(v=1) B@3(v=2) C@4(v=2)") == []


def test_next_lets_the_branches_of_or_compete(matches: Evaluator) -> None:
    choice = next_match(seq("A a", either("B b", "C c"), within=9))
    assert matches(choice, "A@1 C@2 B@3") == ["A@1 C@2"]


def test_next_goes_on_with_each_branch_that_the_same_event_fits(matches: Evaluator) -> None:
    choice = next_match(seq("A a", either(seq("B b", "C c"), seq("B d", "E e")), within=9, bounds="span"))
    assert matches(choice, "A@1 B@2 E@3 C@4") == ["A@1 B@2 E@3", "A@1 B@2 C@4"]


def test_next_later_means_that_the_start_follows_the_end_of_the_part_before(matches: Evaluator) -> None:
    rules = [composites_of_a_then_b(), next_match(seq("C c", "X x", within=99))]
    assert outer(matches(rules, "A@1 C@2 B@3 A@4 B@5")) == ["C@2 (A@4 B@5)"]


def test_next_repetition_takes_elements_until_an_event_fits_the_next_part(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", many("B b"), "C c", within=9)), "A@1 B@2 B@3 C@4 B@5 C@6") == [
        "A@1 B@2 B@3 C@4"
    ]


def test_next_repetition_skips_events_that_are_no_elements(matches: Evaluator) -> None:
    rising = next_match(seq("A a", many("B b"), "C c", within=9), "b.v > b[i-1].v")
    assert matches(rising, "A@1 B@2(v=2) B@3(v=1) B@4(v=3) C@5") == ["A@1 B@2 B@4 C@5"]


def test_next_an_event_that_fits_the_next_part_ends_the_repetition_rather_than_being_taken(matches: Evaluator) -> None:
    peak = next_match(seq("A a", many("B b"), "B c", within=9), "c.v > 5")
    assert matches(peak, "A@1 B@2(v=1) B@3(v=2) B@4(v=9) B@5(v=9)") == ["A@1 B@2 B@3 B@4"]


def test_next_the_event_that_ends_a_repetition_must_satisfy_its_folds(matches: Evaluator) -> None:
    enough = next_match(seq("A a", many("B b"), "C c", within=9), "count(b) >= 2")
    assert matches(enough, "A@1 B@2 C@3 B@4 C@5") == ["A@1 B@2 B@4 C@5"]


def test_next_a_last_repetition_ends_with_the_window_and_its_folds_accept_or_reject(matches: Evaluator) -> None:
    run = seq("A a", many("B b"), within=4)
    assert matches(next_match(run), "A@1 B@2 B@5 B@6") == ["A@1 B@2 B@5"]
    assert matches(next_match(run, "count(b) = 1"), "A@1 B@2 B@5 B@6") == []
    assert matches(next_match(run, "count(b) = 2"), "A@1 B@2 B@5 B@6") == ["A@1 B@2 B@5"]


def test_next_every_event_that_fits_a_first_repetition_begins_a_run(matches: Evaluator) -> None:
    assert matches(next_match(seq(many("B b"), "C c", within=9)), "B@1 B@2 C@3") == ["B@1 B@2 C@3", "B@2 C@3"]


def test_next_a_part_that_would_break_a_window_ends_the_run(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", "B b", within=3)), "A@1 A@2 B@5") == ["A@2 B@5"]


def test_next_a_repetition_does_not_take_what_would_break_its_window_but_the_run_goes_on(matches: Evaluator) -> None:
    inner = next_match(seq(seq("A a", many("B b"), within=2), "C c", within=20, bounds="span"))
    assert matches(inner, "A@1 B@2 B@4 C@5") == ["A@1 B@2 C@5"]


def test_next_negations_are_judged_on_the_finished_run(matches: Evaluator) -> None:
    quiet = next_match(seq("A a", no("D d"), "B b", "C c", within=9))
    assert matches(quiet, "A@1 D@2 B@3 C@4") == []
    assert matches(quiet, "A@1 B@2 D@3 B@3 C@4") == ["A@1 B@2 C@4"]


def test_next_same_holds_from_part_to_part(matches: Evaluator) -> None:
    assert matches(next_match(seq("A a", "B b", within=9), same("id")), "A@1(id=1) B@2(id=2) B@3(id=1)") == ["A@1 B@3"]
