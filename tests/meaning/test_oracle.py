"""The oracle and the generator themselves: examples worked out by hand, and what the generator covers."""

from __future__ import annotations

from collections import Counter

import pytest

from headwater.protocol import pattern as pt
from headwater.protocol.analysis.validate import check_rule
from headwater.protocol.events import Event
from tests.kit.builders import by_oracle, chain, last, rule, seq, trace
from tests.law.describing import describe
from tests.law.fuzzing import expected_of, kept_case
from tests.law.generators import case_of_seed
from tests.oracle import TooManyMatches, evaluate


def test_the_example_of_the_design_gives_no_match() -> None:
    steps = chain("A a", last("B b", 5, "a"), last("C c", 5, "b"))
    assert by_oracle(rule(steps), "C@0 B@4 B@6 A@7") == []


def test_the_same_event_twice_is_one_event() -> None:
    events = trace("A@1 B@2").events
    assert len(evaluate([rule(seq("A a", "B b", within=5))], events + events)) == 1


def test_it_reads_the_finite_trace_whatever_the_order_of_the_events() -> None:
    events = trace("A@1 B@2 A@3 B@4").events
    rules = [rule(seq("A a", "B b", within=5))]
    assert evaluate(rules, events[::-1]) == evaluate(rules, events)


def test_cyclic_rules_are_a_mistake_of_the_test() -> None:
    with pytest.raises(AssertionError, match="cyclic"):
        evaluate([rule(seq("X x", within=5), emits="X")], [])


def test_it_gives_up_where_asked_to() -> None:
    events = trace("A@1 A@2 A@3 B@4").events
    with pytest.raises(TooManyMatches):
        evaluate([rule(seq("A a", "B b", within=5))], events, matches_max=2)


def test_a_seed_always_gives_the_same_case() -> None:
    assert case_of_seed(5) == case_of_seed(5)
    assert case_of_seed(5) != case_of_seed(6)


def test_a_printed_case_can_be_read_back() -> None:
    for seed in range(40):
        case = case_of_seed(seed)
        assert kept_case(describe(case)).rules == case.rules
        assert kept_case(describe(case)).events == case.events


WANTED = """
    tree: SEQ, tree: AND, window: span, window: ends, window: events, window: inner, skip till next, same type twice
    AND in SEQ, OR in SEQ, SEQ in SEQ, SEQ in AND, OR in AND, SEQ in OR, AND in OR, AND in AND
    negation: leading, negation: middle, negation: trailing, negation: in AND, negation: trailing in an inner SEQ
    negation: of SEQ, negation: of AND, negation: of OR
    repetition in SEQ, repetition in AND, repetition in OR, repetition of a group, repetition: limit
    next: negation: leading, next: negation: middle, next: negation: trailing, next: OR in SEQ, next: SEQ in SEQ
    next: repetition: last in SEQ, next: repetition: not last in SEQ, next: SEQ in OR
    chain: each, chain: last, chain: first, chain: n-last, chain: n-first, chain: from a later role
    chain: absence within, chain: absence between, chain: aggregate within, chain: aggregate between
    chain: count, chain: sum, chain: avg, chain: min, chain: max
    chain: aggregate condition, chain: parameter in a later step
    where: SAME, where: remote, where: call, where: negated role, where: [first] or [last]
    where: repetition back, where: repetition fold, where: repetition ends, where: repetition mixed
    composite read, composite read negated, composite read aggregated, composite read selected, composite read absent
    composite read as anchor, composite read in a repetition, rules: several emit one type
    output: role of an OR, output: of a repetition, output: parameter
"""


def test_generated_cases_cover_every_operator_and_policy_with_matches_and_without() -> None:
    cases = [case_of_seed(seed) for seed in range(1200)]
    with_matches: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for case in cases:
        found = expected_of(case)
        seen.update(case.features)
        if found:
            with_matches.update(case.features)
    for feature in WANTED.replace("\n", ",").split(","):
        if feature.strip():
            assert with_matches[feature.strip()] >= 1, f"no case with matches has {feature.strip()!r}"
            assert seen[feature.strip()] > with_matches[feature.strip()], f"all cases with {feature.strip()!r} match"


def test_generated_traces_have_ties_and_nodes_whose_byte_order_matters() -> None:
    events = [event for seed in range(50) for event in case_of_seed(seed).events]
    assert all(isinstance(event, Event) for event in events)
    assert {"n2", "n10", "é"} <= {event.node for event in events}
    assert any(
        a.ts == b.ts and a.node != b.node
        for seed in range(50)
        for a, b in zip(case_of_seed(seed).events, case_of_seed(seed).events[1:], strict=False)
    )


def test_generated_rules_name_a_window_at_the_outermost_operator() -> None:
    for seed in range(300):
        for made in case_of_seed(seed).rules:
            root = made.pattern.root
            assert isinstance(root, pt.Chain) or (isinstance(root, pt.Sequence | pt.Conjunction) and root.window)


def test_generated_rules_are_valid() -> None:
    for seed in range(500):
        for made in case_of_seed(seed).rules:
            assert check_rule(made) == []
