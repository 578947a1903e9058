"""Subscriptions: from text and back, which ones make others needless, and which events they ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.explain.expressions import Scope, holds
from headwater.node.step import Work
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.errors import RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.expressions import Attribute, Binary, Constant, Items
from headwater.protocol.languages import RuleTextError
from headwater.protocol.subscriptions import (
    SUBJECT,
    Subscription,
    covers,
    parse_subscription,
    print_subscription,
    without_covered,
)

FIRE = EventType("Fire", {"area": "string", "value": "float?"})
TEMP = EventType("Temp", {"value": "int?", "area": "string?"})
TYPES = [FIRE, TEMP]


def parse(text: str) -> Subscription:
    return parse_subscription(text, types=TYPES)


def mistake(text: str) -> str:
    with pytest.raises(RuleTextError) as raised:
        parse(text)
    return str(raised.value)


# --- text -------------------------------------------------------------------------------------------------------------


def test_a_subscription_is_a_type_with_conditions_on_its_attributes() -> None:
    area = Attribute(SUBJECT, "area")
    assert parse("Fire(area = 'A1')") == Subscription("Fire", (Binary("=", area, Constant("A1")),))
    inside = Binary("in", area, Items((Constant("a"), Constant("b"))))
    hot = Binary(">", Attribute(SUBJECT, "value"), Constant(45))
    assert set(parse("Temp(value > 45 and area in ('a','b'))").where) == {hot, inside}


def test_no_brackets_and_empty_brackets_ask_for_all_events_of_the_type() -> None:
    assert parse("Fire") == parse("Fire()") == parse(" Fire ( ) ") == Subscription("Fire")


def test_conditions_in_another_order_make_the_same_subscription() -> None:
    assert parse("Fire(area = 'a' and value > 3)") == parse("Fire(value > 3, Fire.area = 'a', value > 3)")


@pytest.mark.parametrize(
    "text",
    [
        "Fire",
        "Fire(area = 'it''s')".replace("''", "\\'"),
        "Fire((area = 'a' or value > 3) and not value = 7)",
        "Fire(area in ('a', 'b') and value between 1 and 2)",
        "Fire(ts > 5 s and node = 'p1' and seq >= 3)",
        "Fire(abs(value - 20) < -3 + 7 * 2)",
    ],
)
def test_a_printed_subscription_parses_to_the_same(text: str) -> None:
    assert parse(print_subscription(parse(text))) == parse(text)


def test_an_attribute_named_like_a_keyword_is_printed_so_that_it_can_be_read() -> None:
    odd = Subscription("Fire", (Binary("=", Attribute(SUBJECT, "first"), Constant(1)),))
    assert parse_subscription(print_subscription(odd)) == odd


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no subscription in this text"),
        ("Fier", "did you mean 'Fire'?"),
        ("Fire(are = 'A1')", "Fire has no attribute 'are'"),
        ("Fire(area > 3)", "cannot compare a string with an int"),
        ("Fire(area = 'A1'", "the subscription ends too early"),
        ("Fire(area = 'A1)", "this string does not end"),
        ("Fire() and Temp()", "one subscription is about one type"),
        ("Fire(area = $x)", "no parameters such as $x"),
        ("Fire(Temp.area = 'x')", "knows no 'Temp'"),
        ("Fire(1 = 1)", "says nothing about Fire"),
        ("Fire(area in REMOTE.t[area])", "REMOTE"),
        ("Fire([area])", "no SAME"),
        ("Fire(Count(Fire() within 5 s from Fire) > 3)", "cannot aggregate"),
        ("Fire() as f", "needs no other name"),
        ("Fire(" + "(" * 200 + "area = 'x'" + ")" * 200 + ")", "nested more than 100 levels"),
        ("45", "unexpected '45'"),
    ],
)
def test_a_mistake_is_explained(text: str, said: str) -> None:
    assert said in mistake(text)


def test_a_mistake_is_shown_at_its_place() -> None:
    assert mistake("Fire(are = 'A1')").splitlines()[0] == "subscription:1:6: Fire has no attribute 'are'"


def test_without_types_any_name_is_accepted() -> None:
    assert parse_subscription("Whatever(x > 3)").type == "Whatever"


# --- covering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [
        ("Fire", "Fire(area = 'A1')"),
        ("Fire(area = 'A1')", "Fire(value > 3 and area = 'A1')"),
        ("Temp(value > 5)", "Temp(value > 10)"),
        ("Temp(value >= 5)", "Temp(value > 5)"),
        ("Temp(value < 5)", "Temp(3 > value)"),
        ("Temp(value > 5)", "Temp(value = 6)"),
        ("Temp(value > 5)", "Temp(value in (6, 7))"),
        ("Temp(value in (1, 2, 3))", "Temp(value in (1, 3))"),
        ("Temp(value in (1, 2, 3))", "Temp(value = 2)"),
        ("Temp(value != 5)", "Temp(value > 5)"),
        ("Temp(value not in (1, 2))", "Temp(value not in (1, 2, 3))"),
        ("Temp(area >= 'b')", "Temp(area > 'c')"),
        ("Temp(value > 3 or area = 'x')", "Temp(value > 4)"),
        ("Temp(value > 3)", "Temp(value > 5 or value = 4)"),
        ("Temp(value > 3)", "Temp(value = NULL)"),
    ],
)
def test_a_wider_subscription_covers_a_narrower_one(wider: str, narrower: str) -> None:
    assert covers(parse(wider), parse(narrower))
    assert not covers(parse(narrower), parse(wider))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Fire", "Temp"),
        ("Temp(value > 5)", "Temp(value >= 5)"),
        ("Temp(value > 5)", "Temp(value in (5, 6))"),
        ("Temp(value > 5)", "Temp(not value <= 5)"),  # the other holds where there is no value
        ("Temp(value != 5)", "Temp(value >= 5)"),
        ("Temp(value = 5)", "Temp(area = 'x')"),
        ("Temp(area in ('a', 'b'))", "Temp(area > 'a')"),
    ],
)
def test_what_is_not_wider_does_not_cover(one: str, other: str) -> None:
    assert not covers(parse(one), parse(other))


def test_covered_subscriptions_are_left_out_whatever_their_order() -> None:
    texts = ["Temp(value > 10)", "Fire(area = 'A1')", "Temp(value > 5)", "Fire", "Temp(value = 7)", "Temp(value < 3)"]
    kept = without_covered(map(parse, texts))
    assert [print_subscription(each) for each in kept] == ["Fire", "Temp(value < 3)", "Temp(value > 5)"]
    assert without_covered(map(parse, reversed(texts))) == kept


_constants = st.sampled_from(["1", "2", "3", "2.5", "NULL"])
_simple = st.one_of(
    st.builds("value {} {}".format, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), _constants),
    st.builds("{} {} value".format, _constants, st.sampled_from(["=", "!=", "<", "<=", ">", ">="])),
    st.builds("value {} ({}, {})".format, st.sampled_from(["in", "not in"]), _constants, _constants),
    st.builds("area {} '{}'".format, st.sampled_from(["=", "!=", "<", ">="]), st.sampled_from("abc")),
)
_conditions = st.one_of(
    _simple,
    st.builds("({} or {})".format, _simple, _simple),
    st.builds("not {}".format, _simple),
    st.builds("({} or {} and {})".format, _simple, _simple, _simple),
)
_texts = st.lists(_conditions, min_size=0, max_size=3).map(lambda some: f"Temp({' and '.join(some)})")
EVERY_EVENT = [
    Event(TEMP, ts=0, attributes={"value": value, "area": area})
    for value in (None, 0, 1, 2, 3, 4)
    for area in (None, "", "a", "b", "c", "d")
]


def matching(subscription: Subscription, event_type: EventType = TEMP) -> Callable[[Event], bool]:
    condition = row_condition(subscription.where, event_type)
    return (lambda event: True) if condition is None else condition


@settings(max_examples=200)
@given(_texts, _texts)
def test_covering_is_never_wrong(one: str, other: str) -> None:
    wider, narrower = parse(one), parse(other)
    if covers(wider, narrower):
        wide, narrow = matching(wider), matching(narrower)
        assert not [event for event in EVERY_EVENT if narrow(event) and not wide(event)]


@settings(max_examples=200)
@given(st.lists(_texts, max_size=5))
def test_what_is_left_asks_for_the_same_events(texts: list[str]) -> None:
    all_of_them = [parse(text) for text in texts]
    kept = without_covered(all_of_them)
    before, after = list(map(matching, all_of_them)), list(map(matching, kept))
    for event in EVERY_EVENT:
        assert any(each(event) for each in before) == any(each(event) for each in after)
    assert not [(a, b) for a in kept for b in kept if a is not b and covers(a, b)]


# --- matching ---------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(_texts)
def test_compiled_conditions_hold_where_the_slow_evaluation_says(text: str) -> None:
    subscription = parse(text)
    matches = matching(subscription)
    for event in EVERY_EVENT:
        scope = Scope({SUBJECT: event})
        assert matches(event) is all(holds(each, scope) for each in subscription.where), event


def test_time_node_and_number_may_be_named() -> None:
    matches = matching(parse("Temp(node = 'p1' and ts >= 5 s and seq < 3 and type = 'Temp')"))
    assert matches(Event(TEMP, 5_000_000, "p1", 2))
    assert not matches(Event(TEMP, 4_999_999, "p1", 2))


def test_an_attribute_that_events_lack_is_a_rule_error_and_values_that_cannot_be_compared_meet_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(RuleError, match="Temp has no attribute 'area'; it has: value"):
        matching(parse("Temp(area = 'x')"), EventType("Temp", {"value": "float"}))
    odd = EventType("Odd", {"v": "any"})
    matches = matching(parse_subscription("Odd(v > 3)"), odd)
    step = Work(0, {}, {})
    monkeypatch.setattr(NOTED, "step", step)
    assert not matches(Event(odd, 0, "p1", 1, {"v": "text"}))
    assert matches(Event(odd, 0, "p1", 2, {"v": 4}))
    (failure,) = step.failures.reports()
    assert (failure.counter, failure.count, failure.rule) == ("rule_errors", 1, "condition on Odd")
    assert failure.sentence.startswith("a condition on Odd cannot be decided for the event p1#1: TypeError")
