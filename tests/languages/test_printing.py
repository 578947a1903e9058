"""Rules back to text: what is printed parses to an equal rule, and what cannot be said is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from headwater.protocol.events import EventType
from headwater.protocol.expressions import Attribute, Binary, Constant, Expression, Items, Unary
from headwater.protocol.languages import Language, PrintError, RuleTextError, Source, parse_rules, print_rule
from headwater.protocol.pattern import Chain, Leaf, OutputAttribute, Pattern, Rule, Selection, Sequence, Window, Within
from tests.law.generators import TYPES, case_of_seed

A, B = Leaf("a", "A"), Leaf("b", "B")
SPAN = Window(5_000_000, "us", "span")
RANDOM_CASES = 300


def parsed(text: str, language: Language, types: Iterable[EventType] | None = None) -> Rule:
    (rule,) = parse_rules([Source(text, f"again.{language}", language)], types).rules
    return rule


def language_of(rule: Rule) -> Language:
    return "tesla" if isinstance(rule.pattern.root, Chain) else "sase"


TEXTS = [
    (
        "tesla",
        """\
Rule R1
define Fire(area: string, temp: float)
from Smoke()
  and each Temp(area = Smoke.area and value > 45) within 5 min from Smoke
  and 45 < $t = avg(Temp(area = Smoke.area).value within 90 min from Smoke)
  and not Rain(level < $t) between Temp and Smoke
  and count(Rain() within 1 h from Temp) > 3
  and 3-last Temp() as other within 90 s from Temp
  and $z = sum(Rain(level > other.value).level between other and Smoke)
  and 30 < $m = max(Rain().level within 2 ms from other)
  and $m < 45 + Smoke.limit
where area = Smoke.area and temp = ($t + $z) * 2
""",
    ),
    (
        "tesla",
        """\
define Alone()
from A()
""",
    ),
    (
        "sase",
        """\
Q: SEQ(A a, AND(B b, C) WITHIN 5 s, !SEQ(D, E) WITHIN 3 ms, B+ x[] LIMIT 20, (A u, B v)+, OR(A, A A_2), !F f)
WHERE a.v < x[i].v
  AND x[i-1].v < x[i].v
  AND a.v != x[last].v
  AND a.name in ('it\\'s', 'two\\n', -4.5)
  AND SAME[id]
  AND SAME[lower(name)]
  AND (a.v = 1 or b.v = 2 and not a.v = REMOTE.limits[a.id, 3])
WITHIN 1 h
RETURN X(n: int = count(x[]), mean: float = avg(x[].v), more = -(a.v - -(1)) % 2 + 3)
""",
    ),
    (
        "sase",
        """\
Q: SEQ(A, !B, C+ C[]; 5 s)
SKIP TILL NEXT MATCH
""",
    ),
    (
        "sase",
        """\
Q: OR(A, B)
RETURN X()
""",
    ),
    (
        "sase",
        """\
Q: SEQ(SEQ(A, B) WITHIN 3 s)
WITHIN 50000 events
""",
    ),
]


@pytest.mark.parametrize(("language", "text"), TEXTS)
def test_printed_text_parses_to_an_equal_rule(language: Language, text: str) -> None:
    rule = parsed(text, language)
    assert parsed(print_rule(rule, language), language) == rule


@pytest.mark.parametrize(("language", "text"), [row for row in TEXTS if "WHERE" not in row[1]])
def test_printed_text_is_laid_out_for_reading(language: Language, text: str) -> None:
    assert print_rule(parsed(text, language), language) == text


def sayable(rule: Rule) -> Rule:
    """The rule with what text cannot carry made sayable: its version, windows of no length, bounds of counts."""
    return replace(rule, version=1, pattern=replace(rule.pattern, root=with_windows(rule.pattern.root)))


def with_windows(part: Any) -> Any:
    if isinstance(part, Window):
        return replace(part, length=max(1, part.length), bounds="span" if part.unit == "events" else part.bounds)
    if isinstance(part, Within):
        return replace(part, length_us=max(1, part.length_us))
    if isinstance(part, tuple):
        return tuple(with_windows(each) for each in part)
    changed = {}
    for name in ("parts", "part", "window", "steps", "within", "range"):
        inside = getattr(part, name, None)
        if inside is not None:
            changed[name] = with_windows(inside)
    return replace(part, **changed) if changed else part


def test_random_rules_come_back_equal() -> None:
    compared = 0
    for seed in range(RANDOM_CASES):
        rules = [sayable(rule) for rule in case_of_seed(seed).rules]
        sources = [Source(print_rule(rule, language_of(rule)), rule.name, language_of(rule)) for rule in rules]
        try:
            again = parse_rules(sources, TYPES.values()).rules
        except RuleTextError as mistake:
            # The generator may give an output a kind that its value does not have; text does not allow that.
            if all("type mismatch" in each.message for each in mistake.diagnostics):
                continue
            raise
        by_name = {rule.name: rule for rule in again}
        assert [by_name[rule.name] for rule in rules] == rules, f"seed {seed}"
        compared += 1
    assert compared > RANDOM_CASES * 0.9


def rule_of(pattern: Pattern, attributes: tuple[OutputAttribute, ...] = ()) -> Rule:
    return Rule("X", pattern, "X", attributes)


TREE = Pattern(Sequence((A, B), SPAN))
CHAIN = Pattern(Chain(A, (Selection(B, "last", Within(5, "a")),)))


@pytest.mark.parametrize(
    ("rule", "language", "reason"),
    [
        (rule_of(CHAIN), "sase", "SASE cannot say a chain"),
        (rule_of(TREE), "tesla", "TESLA cannot say an operator tree"),
        (replace(rule_of(TREE), name="two words"), "sase", "cannot be written as the name of a rule"),
        (rule_of(Pattern(Sequence((Leaf("not", "A"), B), SPAN))), "sase", "cannot be written as the name of a role"),
        (rule_of(Pattern(Sequence((A, B)))), "sase", "this SEQ has no window"),
        (rule_of(Pattern(Sequence((A, Sequence((B,))), SPAN))), "sase", "the same as its parts in its place"),
        (rule_of(Pattern(Sequence((A, B), Window(0, "us", "span")))), "sase", "a window of no length"),
        (rule_of(Pattern(Sequence((A, B), Window(5, "events", "ends")))), "sase", "spans the whole match"),
        (
            rule_of(replace(TREE, where=(Binary("=", Attribute("a", "v"), Constant(float("inf"))),))),
            "sase",
            "inf cannot be written",
        ),
        (
            rule_of(replace(TREE, where=(Binary("in", Attribute("a", "v"), Attribute("b", "v")),))),
            "sase",
            "IN needs a list",
        ),
        (rule_of(replace(CHAIN, where=(Binary("=", Constant(1), Constant(1)),))), "tesla", "names no event"),
        (
            rule_of(TREE, attributes=(OutputAttribute("v", "any", Items(())),)),
            "sase",
            "a list stands only on the right of IN",
        ),
    ],
)
def test_what_a_language_cannot_say_is_refused_with_a_reason(rule: Rule, language: Language, reason: str) -> None:
    with pytest.raises(PrintError, match=reason):
        print_rule(rule, language)


@pytest.mark.parametrize(
    "value",
    [
        Unary("-", Constant(5)),
        Unary("-", Constant(-5)),
        Unary("-", Unary("-", Attribute("a", "v"))),
        Binary("-", Constant(1), Binary("-", Constant(2), Constant(3))),
        Binary("-", Attribute("a", "v"), Constant(-1.5e-300)),
        Binary("=", Binary("<", Constant(1), Constant(2)), Constant(True)),
        Binary("and", Constant(True), Binary("and", Constant(False), Constant(None))),
        Unary("not", Unary("not", Binary("or", Constant(True), Constant(False)))),
        Constant("quote ' backslash \\ line \n tab \t \\n"),
        Constant("\u2028…é\x00"),
    ],
    ids=repr,
)
def test_awkward_expressions_come_back_equal(value: Expression) -> None:
    rule = rule_of(TREE, attributes=(OutputAttribute("v", "any", value),))
    again = parsed(print_rule(rule, "sase"), "sase")
    assert again.attributes[0].value == value
