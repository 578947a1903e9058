"""``explain``: what the walk through a pattern counts, and what it says of the nearest misses."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest

import headwater.node.explain.explain as explain_module
from headwater.deploy.cli.explain import show_explanation
from headwater.node.explain import steps as explain_steps
from headwater.node.explain.explain import Explanation, explain
from headwater.node.explain.expressions import Scope, evaluate, show
from headwater.node.explain.steps import Budget
from headwater.protocol.events import Event, EventType
from headwater.protocol.expressions import Attribute, Binary, Call, Constant, Expression, Fold, Items, Remote, Unary
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.remote import RemoteTable
from headwater.protocol.text import show_ts, show_us

TYPES = {name: EventType(name, {"k": "int", "v": "float"}) for name in "ABCD"}


def a_trace(*rows: tuple[str, int, int, float]) -> list[Event]:
    """Events (type, second, key, value) of one node."""
    return [
        Event(TYPES[name], seconds * 1_000_000, "n", seq, {"k": key, "v": value})
        for seq, (name, seconds, key, value) in enumerate(rows, 1)
    ]


def explained(text: str, trace: list[Event], language: Any = "tesla", near: int = 3, **options: Any) -> Explanation:
    rules = parse_rules([Source(text, f"rule.{language}", language)], TYPES.values())
    return explain(rules.rules[-1], rules.rules, trace, TYPES.values(), near=near, **options)


def reasons(found: Explanation) -> list[str]:
    return [str(miss) for miss in found.misses]


LAST = "define X() from A() and last B(k = A.k, v > 45) within 10 s from A"


def test_a_match_is_counted_and_there_is_no_miss() -> None:
    found = explained(LAST, a_trace(("B", 1, 7, 50), ("A", 5, 7, 0)))
    assert found.matches == 1
    assert found.misses == []
    assert [step.kept for step in found.branches[0].steps] == [1, 1]


def test_a_predicate_that_fails_is_named_with_the_value() -> None:
    found = explained(LAST, a_trace(("B", 1, 7, 44.2), ("A", 5, 7, 0)))
    assert found.matches == 0
    assert reasons(found) == ["A n#2 ts=5000000: B n#1 ts=1000000 fails `B.v > 45` (B.v = 44.2)"]
    assert found.branches[0].steps[1].turned_away == {"`B.v > 45`": 1}


def test_a_lookup_that_fails_is_named_with_what_the_table_gave() -> None:
    rule = "X: SEQ(A a) WHERE a.v > REMOTE.limits[a.k] AND a.k NOT IN REMOTE.banned[a.k] WITHIN 1 s RETURN X()"
    tables = {"limits": RemoteTable([((7,), 50)]), "banned": RemoteTable([((7,), tuple(range(7, 2_007)))])}
    explanation = explained(rule, a_trace(("A", 1, 7, 44.0)), "sase", remote=tables)
    assert reasons(explanation) == [
        "A n#1 ts=1000000 fails `a.v > REMOTE.limits[a.k]` (a.v = 44.0, REMOTE.limits[a.k] = 50, a.k = 7) and "
        "fails `a.k not in REMOTE.banned[a.k]` (a.k = 7, REMOTE.banned[a.k] = "
        "(7, 8, 9, 10, 11, 12, 13, 14, 15, 16, .. 1,990 more))"
    ]


def test_a_missed_window_says_by_how_much() -> None:
    found = explained(LAST, a_trace(("B", 1, 7, 50), ("A", 14, 7, 0)))
    assert reasons(found) == ["A n#2 ts=14000000: B n#1 ts=1000000 is outside the window by 3 s"]
    assert found.branches[0].steps[1].turned_away == {"outside the window (10 s from A)": 1}


def test_an_event_on_the_wrong_side_says_so() -> None:
    found = explained(LAST, a_trace(("A", 5, 7, 0), ("B", 7, 7, 50)))
    assert reasons(found) == ["A n#1 ts=5000000: B n#2 ts=7000000 comes 2 s after A"]


def test_the_event_with_least_to_forgive_is_the_nearest() -> None:
    """Another key weighs more than a window that is missed."""
    found = explained(LAST, a_trace(("B", 1, 7, 50), ("B", 12, 8, 50), ("A", 14, 7, 0)))
    assert reasons(found) == ["A n#3 ts=14000000: B n#1 ts=1000000 is outside the window by 3 s"]


def test_a_type_that_never_occurs_is_said() -> None:
    assert reasons(explained(LAST, a_trace(("A", 5, 7, 0)))) == ["A n#1 ts=5000000: there is no B event to go with it"]
    assert reasons(explained(LAST, [])) == ["there is no A event at all"]


def test_events_that_a_selection_passes_over_are_counted() -> None:
    found = explained(LAST, a_trace(("B", 1, 7, 50), ("B", 2, 7, 50), ("B", 3, 7, 50), ("A", 5, 7, 0)))
    assert found.branches[0].steps[1].turned_away == {"not the last": 2}
    two = LAST.replace("last", "2-last")
    found = explained(two, a_trace(("B", 1, 7, 50), ("B", 2, 7, 50), ("B", 3, 7, 50), ("A", 5, 7, 0)))
    assert found.matches == 2
    assert found.branches[0].steps[1].turned_away == {"not the 2-last": 1}


def test_the_event_that_forbids_a_chain_is_named() -> None:
    text = "define X() from A() and each B() within 10 s from A and not C(k = A.k) between B and A"
    found = explained(text, a_trace(("B", 1, 0, 0), ("C", 2, 7, 0), ("A", 5, 7, 0)))
    assert reasons(found) == ["A n#3 ts=5000000, B n#1 ts=1000000: forbidden by C n#2 ts=2000000"]
    assert found.branches[0].steps[2].text == "not C between B and A"


def test_an_aggregate_that_rejects_shows_its_value() -> None:
    text = "define X() from A() and Avg(B(k = A.k).v within 10 s from A) > 45"
    found = explained(text, a_trace(("B", 1, 7, 40), ("B", 2, 7, 44), ("B", 3, 8, 90), ("A", 5, 7, 0)))
    assert found.matches == 0
    assert len(found.misses) == 1
    assert "= 42.0), over 2 of B" in reasons(found)[0]


SEQ = "X: SEQ(A a, !C c, B b) WHERE a.k = b.k AND b.v > a.v WITHIN 10 s"


def test_a_sequence_counts_order_window_and_predicates() -> None:
    trace = a_trace(("B", 1, 7, 9), ("A", 2, 7, 5), ("B", 3, 8, 9), ("B", 4, 7, 5), ("B", 13, 7, 9))
    found = explained(SEQ, trace, "sase")
    assert found.matches == 0
    assert found.branches[0].steps[1].turned_away == {
        "not after a": 1, "outside the window (10 s)": 1, "`a.k = b.k`": 1, "`b.v > a.v`": 1,
    }  # fmt: skip
    assert reasons(found) == ["A n#2 ts=2000000: B n#4 ts=4000000 fails `b.v > a.v` (b.v = 5.0, a.v = 5.0)"]


def test_the_event_that_forbids_a_sequence_is_named() -> None:
    found = explained(SEQ, a_trace(("A", 1, 7, 1), ("C", 2, 0, 0), ("B", 3, 7, 2)), "sase")
    assert reasons(found) == ["A n#1 ts=1000000, B n#3 ts=3000000: forbidden by C n#2 ts=2000000"]


def test_every_branch_of_an_or_is_explained() -> None:
    text = "X: SEQ(A a, OR(B b, C c)) WHERE b.v > 5 AND c.v > 6 WITHIN 10 s"
    found = explained(text, a_trace(("A", 1, 0, 0), ("B", 2, 0, 4), ("C", 3, 0, 7)), "sase")
    assert found.matches == 1
    assert [branch.roles for branch in found.branches] == [("a", "b"), ("a", "c")]
    assert [branch.steps[1].kept for branch in found.branches] == [0, 1]


def test_a_repetition_counts_its_possible_elements() -> None:
    text = "X: SEQ(A a, B+ b[], C c) WHERE b.v > 5 AND b[i].v > b[i-1].v AND count(b[]) > 2 WITHIN 10 s"
    found = explained(
        text, a_trace(("A", 1, 0, 0), ("B", 2, 0, 6), ("B", 3, 0, 1), ("B", 4, 0, 7), ("C", 5, 0, 0)), "sase"
    )
    assert found.matches == 0
    assert found.branches[0].steps[1].turned_away == {"`b.v > 5`": 1}
    assert "no choice of elements satisfies `count(b[]) > 2`; the nearest (count(b[]) = 2)" in reasons(found)[0]
    assert any("repeated role" in note for note in found.notes)


def test_composites_of_other_rules_are_events_like_others() -> None:
    text = "Y: SEQ(A a, B b) WITHIN 5 s RETURN Y(k = a.k)\nX: SEQ(Y y, C c) WHERE y.k = c.k WITHIN 20 s"
    found = explained(text, a_trace(("A", 1, 7, 0), ("B", 2, 7, 0), ("C", 3, 8, 0)), "sase")
    assert found.branches[0].steps[0].kept == 1
    assert reasons(found) == ["Y from ts=1000000 to ts=2000000: C n#3 ts=3000000 fails `y.k = c.k` (y.k = 7, c.k = 8)"]


def test_the_longest_partial_matches_come_first_and_near_limits_them() -> None:
    text = "X: SEQ(A a, B b, C c) WITHIN 10 s"
    trace = a_trace(("A", 1, 0, 0), ("B", 2, 0, 0), ("A", 50, 0, 0))
    assert [miss.steps for miss in explained(text, trace, "sase").misses] == [2, 1]
    assert [miss.steps for miss in explained(text, trace, "sase", near=1).misses] == [1 + 1]
    assert explained(text, trace, "sase", near=0).misses == []


def test_the_explanation_is_plain_data() -> None:
    found = explained(LAST, a_trace(("B", 1, 7, 44.2), ("A", 5, 7, 0))).to_json()
    assert found["nearest_misses"] == [
        {"steps": 1, "events": ["A n#2 ts=5000000"], "reason": "B n#1 ts=1000000 fails `B.v > 45` (B.v = 44.2)"}
    ]
    assert found["branches"][0]["steps"][1]["partial_matches_before"] == 1


EXACT = {
    "each": ("tesla", "define X() from A() and each B(k = A.k) within 4 s from A"),
    "last": ("tesla", "define X() from A() and last B(v > A.v) within 4 s from A and each C() within 3 s from B"),
    "first": ("tesla", "define X() from A() and 2-first B() within 4 s from A and not C(k = A.k) between B and A"),
    "absent": ("tesla", "define X() from A() and not B(k = A.k) within 4 s from A"),
    "aggregate": ("tesla", "define X() from A() and Sum(B(k = A.k).v within 4 s from A) > 3"),
    "seq": ("sase", "X: SEQ(A a, B b, C c) WHERE a.v < c.v AND SAME[k] WITHIN 5 s"),
    "and": ("sase", "X: AND(A a, B b) WHERE a.v < b.v WITHIN 3 s"),
    "inner": ("sase", "X: SEQ(A a, AND(B b, C c) WITHIN 1 s, D d) WITHIN 6 s"),
    "or": ("sase", "X: SEQ(OR(A a, B b), C c) WHERE a.v < c.v WITHIN 4 s"),
    "not between": ("sase", "X: SEQ(A a, !B b, C c) WHERE b.k = a.k WITHIN 5 s"),
    "not first": ("sase", "X: SEQ(!B b, A a, C c) WHERE b.k = a.k WITHIN 3 s"),
    "not last": ("sase", "X: SEQ(A a, C c, !B b) WHERE SAME[k] WITHIN 5 s"),
    "not in and": ("sase", "X: AND(A a, C c, !B b) WITHIN 3 s"),
    "not a sequence": ("sase", "X: SEQ(A a, !SEQ(B b, C c), D d) WHERE b.k = a.k WITHIN 6 s"),
    "count window": ("sase", "X: SEQ(A a, B b, C c) WITHIN 4"),
    "next": ("sase", "X: SEQ(A a, B b, C c) WHERE a.k = b.k WITHIN 5 s SKIP TILL NEXT MATCH"),
    "twice": ("sase", "X: SEQ(A a, A b, !B c, A d) WITHIN 4 s"),
    "two of one role": ("sase", "X: SEQ(A a, B b) WHERE a.v = b.k AND b.k = a.k WITHIN 5 s"),
    "beside same": ("sase", "X: AND(A a, B b) WHERE SAME[k] AND b.v = a.k WITHIN 3 s"),
    "ced": ("sase", "X: seq(A, and(B, C; 2 s); 5 s)"),
}


@pytest.mark.parametrize("name", EXACT)
def test_the_walk_ends_with_as_many_matches_as_the_engine_finds(name: str) -> None:
    language, text = EXACT[name]
    for seed in range(40):
        chance = random.Random(seed)
        rows = [
            (chance.choice("ABCD"), chance.randrange(12), chance.randrange(2), chance.randrange(4)) for _ in range(14)
        ]
        found = explained(text, a_trace(*rows), language)
        assert sum(branch.steps[-1].kept for branch in found.branches) == found.matches, (seed, text)


def a_long_trace(seed: int, size: int = 600) -> list[Event]:
    chance = random.Random(seed)
    drawn = [
        (chance.choice("ABCD"), chance.randrange(200), chance.randrange(3), chance.randrange(5)) for _ in range(size)
    ]
    return a_trace(*sorted(drawn, key=lambda row: row[1]))


@pytest.mark.parametrize("name", EXACT)
def test_what_a_short_walk_says_is_never_more_than_there_is(name: str) -> None:
    """Whatever is cut off, the numbers agree: with each other, with the whole walk, and with the engine."""
    language, text = EXACT[name]
    trace = a_long_trace(7, 250)
    whole = explained(text, trace, language, looks=10**9)
    assert not whole.partial
    assert sum(branch.steps[-1].kept for branch in whole.branches) == whole.matches
    short = False
    for looks in (50, 300, 2_000, 10_000):
        found = explained(text, trace, language, looks=looks)
        assert found.matches == whole.matches
        for branch, entire in zip(found.branches, whole.branches, strict=True):
            for number, (step, known) in enumerate(zip(branch.steps, entire.steps, strict=True)):
                if number:
                    before = branch.steps[number - 1]
                    assert (step.before, step.before_partial) == (before.kept, before.partial)
                assert step.looked_at <= (step.before if number else step.events)
                assert step.kept <= known.kept
                assert all(step.turned_away[reason] <= known.turned_away[reason] for reason in step.turned_away)
                if not step.partial:
                    assert (step.kept, step.turned_away) == (known.kept, known.turned_away)
        assert found.partial == any("looks at events" in note for note in found.notes)
        short = short or found.partial
    assert short


@pytest.mark.parametrize("looks", [0, 100, 1_000])
@pytest.mark.parametrize("text", [
    "X: SEQ(A a, B+ b[], C c) WHERE a.k = b.k AND b.v < c.v AND sum(b[].v) > 1000 WITHIN 12 s",
    "X: SEQ(A a, (B b, C c)+, D d) WHERE count(b[]) > 90 WITHIN 6 s",
    "X: SEQ(A a, !SEQ(B b, C c), D d) WHERE b.k = a.k WITHIN 60 s",
    "X: SEQ(A a, B b, C c) WITHIN 60 s",
])  # fmt: skip
def test_a_walk_never_looks_at_more_events_than_it_may(text: str, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [0]
    spend = Budget.spend

    def counting(budget: Budget, amount: int = 1) -> None:
        spend(budget, amount)
        seen[0] += amount

    monkeypatch.setattr(Budget, "spend", counting)
    found = explained(text, a_long_trace(3), "sase", looks=looks)
    assert found.partial
    assert seen[0] <= looks
    assert sum(step.tried for branch in found.branches for step in branch.steps) <= looks


def test_partial_matches_beyond_those_that_are_followed_are_still_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_steps, "PARTIAL_MATCHES_MAX", 10)
    found = explained("X: SEQ(A a, B b) WITHIN 300 s", a_long_trace(1), "sase")
    first, second = found.branches[0].steps
    assert not first.partial
    assert first.kept > 10
    assert (second.looked_at, second.before) == (10, first.kept)
    assert second.partial
    assert f"looked at the first 10 of {first.kept} partial matches, at least {second.kept:,} partial" in shown(found)


def shown(found: Explanation) -> str:
    return "\n".join(show_explanation(found, 3))


def test_partial_figures_are_marked_wherever_they_are_shown() -> None:
    text = "X: SEQ(A a, B b, C c) WHERE a.v < b.v WITHIN 300 s"
    found = explained(text, a_long_trace(1), "sase", looks=2_000)
    told = shown(found)
    assert told.startswith(f"X: {found.matches:,} matches\n")
    assert "looked at the first" in told
    assert "at least" in told
    assert "nearest misses among what was looked at:" in told or "no near misses among what was looked at" in told
    assert "at most 2,000 looks at events" in told
    whole = shown(explained(text, a_long_trace(1, 60), "sase"))
    assert "at least" not in whole
    assert "looked at" not in whole


def test_events_of_the_first_step_that_were_not_looked_at_are_said() -> None:
    found = explained("X: SEQ(A a, B b) WHERE a.v > 9 WITHIN 3 s", a_long_trace(1), "sase", looks=100)
    assert re.search(r"looked at the first 50 of \d+ A events; at least 0 partial matches left", shown(found))


def test_an_open_match_with_too_many_choices_to_try_is_neither_kept_nor_turned_away() -> None:
    rows = [("A", 1, 0, 0), *(("B", 2 + i, 0, 1) for i in range(14)), ("C", 20, 0, 0)]
    found = explained("X: SEQ(A a, B+ b[], C c) WHERE sum(b[].v) = 1 WITHIN 60 s", a_trace(*rows), "sase")
    assert found.matches == 14
    last = found.branches[0].steps[-1]
    assert (last.kept, last.undecided, last.partial) == (0, 1, True)
    assert "1 not decided: too many choices of elements to try" in shown(found)


def test_matches_that_cannot_even_be_counted_are_no_reason_not_to_explain() -> None:
    rows = [("A", 1, 0, 0), *(("B", 2 + i, 0, 3.0**i) for i in range(40)), ("C", 60, 0, 0)]
    found = explained("X: SEQ(A a, B+ b[], C c) WHERE sum(b[].v) > 5 WITHIN 90 s", a_trace(*rows), "sase")
    assert found.matches is None
    assert shown(found).startswith("X: more matches than can be counted\n")
    assert any("the matches cannot be counted: rule 'X'" in note for note in found.notes)


def test_composite_events_that_a_rule_reads_are_looked_at_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Y: SEQ(A a, B b) WITHIN 60 s RETURN Y(k = a.k)\nX: SEQ(Y y, C c) WHERE y.k = c.k WITHIN 20 s"
    whole = explained(text, a_long_trace(2, 60), "sase")
    monkeypatch.setattr(explain_module, "COMPOSITES_MAX", 5)
    found = explained(text, a_long_trace(2, 60), "sase")
    assert found.matches == whole.matches
    assert all(step.partial for step in found.branches[0].steps)
    assert any("composite events; the first 5 were looked at" in note for note in found.notes)


ROLES = {"a": (1, "n", 1, TYPES["A"], 3, 2.5), "b": (2, "n", 2, TYPES["B"], 4, 0.0)}
NUMBER: Callable[[str, str], Attribute] = Attribute


@pytest.mark.parametrize(
    ("expression", "text", "value"),
    [
        (Binary("+", Attribute("a", "k"), Constant(1)), "a.k + 1", 4),
        (Binary("*", Binary("+", Attribute("a", "k"), Constant(1)), Constant(2)), "(a.k + 1) * 2", 8),
        (Binary("-", Constant(5), Binary("-", Constant(3), Constant(1))), "5 - (3 - 1)", 3),
        (Binary("/", Constant(1), Attribute("b", "v")), "1 / b.v", None),
        (Binary("<", Attribute("c", "v"), Constant(1)), "c.v < 1", False),
        (Unary("not", Binary("<", Attribute("c", "v"), Constant(1))), "not c.v < 1", True),
        (Binary("!=", Attribute("c", "v"), Constant(1)), "c.v != 1", False),
        (Binary("in", Attribute("a", "k"), Items((Constant(3), Constant("x")))), "a.k in (3, 'x')", True),
        (Binary("not in", Attribute("a", "k"), Items((Constant(3),))), "a.k not in (3)", False),
        (Binary("or", Binary("and", Constant(True), Constant(False)), Constant(True)), "true and false or true", True),
        (Call("abs", (Unary("-", Attribute("a", "v")),)), "abs(-a.v)", 2.5),
        (Call("abs", (Attribute("c", "v"),)), "abs(c.v)", None),
        (Remote("limits", (Attribute("a", "k"),)), "REMOTE.limits[a.k]", 9),
        (Binary("in", Constant(9), Remote("limits", (Attribute("a", "k"),))), "9 in REMOTE.limits[a.k]", True),
        (Fold("sum", "r", "v"), "sum(r[].v)", 2.5),
        (Fold("count", "r", None), "count(r[])", 2),
        (Attribute("r", "k", "last"), "r[last].k", 4),
        (Attribute("a", "ts"), "a.ts", 1),
        (Attribute("a", "type"), "a.type", "A"),
    ],
)
def test_expressions_are_evaluated_and_shown(expression: Expression, text: str, value: Any) -> None:
    scope = Scope(ROLES, elements={"r": list(ROLES.values())}, remote={"limits": RemoteTable.from_mapping({3: 9})})
    assert show(expression) == text
    assert evaluate(expression, scope) == value


def test_durations_and_times_are_shown_in_fitting_units() -> None:
    assert [show_us(us) for us in (5, 1500, 2_000_000, 90_000_000, 7_200_000_000)] == [
        "5 us", "1.5 ms", "2 s", "1.5 min", "2 h",
    ]  # fmt: skip
    assert show_ts(12) == "12"
    assert show_ts(1_700_000_000_000_000) == "2023-11-14T22:13:20Z"
