"""What rule text means: both languages, text to pattern."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from headwater.protocol.analysis.validate import check_pattern, check_rule
from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.events import EventType, Value
from headwater.protocol.expressions import (
    Attribute,
    Binary,
    Call,
    Constant,
    Expression,
    Fold,
    Items,
    Parameter,
    Remote,
    Same,
    Unary,
)
from headwater.protocol.functions import BUILT_IN, Functions
from headwater.protocol.languages import Language, RuleSet, RuleTextError, Source, parse_rules
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    OutputAttribute,
    Part,
    Pattern,
    Policy,
    Repetition,
    Rule,
    Selection,
    Sequence,
    Step,
    Window,
    Within,
)

SECOND = 1_000_000
FIVE_S = Window(5 * SECOND, "us", "span")
A, B, C, D = Leaf("a", "A"), Leaf("b", "B"), Leaf("c", "C"), Leaf("d", "D")


def parse(text: str, language: Language, name: str = "some-file", **more: Any) -> RuleSet:
    return parse_rules([Source(text, f"{name}.{language}", language)], **more)


def sase(text: str, **more: Any) -> Rule:
    (rule,) = parse(text, "sase", **more).rules
    return rule


def tesla(text: str, **more: Any) -> Rule:
    (rule,) = parse(text, "tesla", **more).rules
    return rule


def where(condition: str, **more: Any) -> tuple[Expression, ...]:
    return sase(f"SEQ(A a, B+ b[], C c) WHERE {condition} WITHIN 5 s", **more).pattern.where


def condition(text: str, **more: Any) -> Expression:
    (only,) = where(text, **more)
    return only


def right_side(condition: Expression) -> Expression:
    assert isinstance(condition, Binary)
    return condition.right


def value(text: str) -> Expression:
    """The right side of a comparison."""
    return right_side(condition(f"a.v = {text}"))


# Literals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10", 10),
        ("10k", 10_000),
        ("50K", 50_000),
        ("2M", 2_000_000),
        ("1.5k", 1_500),
        ("2.5", 2.5),
        ("1e3", 1_000.0),
        ("2.5e-3", 0.0025),
        ("-7", -7),
        ("TRUE", True),
        ("false", False),
        ("NULL", None),
        (r"'it\'s'", "it's"),
        (r'"a\n\t\\"', "a\n\t\\"),
        (r"'\d+'", r"\d+"),
        ("'# -- //'", "# -- //"),
        ("5 us", 5),
        ("5µs", 5),
        ("5 μs", 5),
        ("5ms", 5_000),
        ("5 s", 5 * SECOND),
        ("5 sec", 5 * SECOND),
        ("0.5 seconds", SECOND // 2),
        ("5 min", 300 * SECOND),
        ("5 min.", 300 * SECOND),
        ("1 Minute", 60 * SECOND),
        ("2 hours", 7_200 * SECOND),
        ("1h 30min", 5_400 * SECOND),
        ("1 d", 86_400 * SECOND),
        ("2 DAYS", 172_800 * SECOND),
    ],
)
def test_literal(text: str, expected: Value) -> None:
    made = value(text)
    assert isinstance(made, Constant)
    assert made == Constant(expected)
    assert type(made.value) is type(expected)


def test_comments_and_separators_are_ignored() -> None:
    text = "# one\n-- two\n// three\n;X: SEQ(A a, -- here\n B b) WITHIN 5 s; ; Y: A a WITHIN 5 s;"
    assert [rule.name for rule in parse(text, "sase").rules] == ["X", "Y"]


def test_keywords_and_built_in_functions_are_found_in_any_case() -> None:
    one = sase("x: SEQ(A a, B b) WHERE a.v = ABS(b.v) AND NOT a.w IN (1) WITHIN 5 MIN SKIP TILL NEXT MATCH")
    other = sase("x: seq(A a, B b) where a.v = abs(b.v) and not a.w in (1) within 5 min skip till next match")
    assert one == other


def test_words_of_the_language_are_names_where_they_cannot_mean_anything_else() -> None:
    rule = sase("SEQ(Seq first, Last next) WHERE first.within = next.from AND next.count > 3 WITHIN 5 s")
    assert (
        rule.pattern.where
        == Pattern(
            A,
            (
                Binary("=", Attribute("first", "within"), Attribute("next", "from")),
                Binary(">", Attribute("next", "count"), Constant(3)),
            ),
        ).where
    )


# Expressions


def test_operators_bind_as_in_arithmetic() -> None:
    assert value("1 + 2 * a.x - 3") == Binary(
        "-", Binary("+", Constant(1), Binary("*", Constant(2), Attribute("a", "x"))), Constant(3)
    )
    assert value("-(a.x + 1) % 2") == Binary(
        "%", Unary("-", Binary("+", Attribute("a", "x"), Constant(1))), Constant(2)
    )


def test_and_binds_tighter_than_or_and_not_tighter_than_and() -> None:
    x, y, z = (Binary("=", Attribute("a", name), Constant(1)) for name in "xyz")
    assert condition("a.x = 1 OR NOT a.y = 1 AND a.z = 1") == Binary("or", x, Binary("and", Unary("not", y), z))


def test_conjuncts_are_taken_apart_through_brackets_and_chains() -> None:
    assert where("(a.x = 1 AND (a.y = 1)) AND a.x < a.y <= a.z") == where(
        "a.x = 1 AND a.y = 1 AND a.x < a.y AND a.y <= a.z"
    )


def test_a_chain_of_equalities_joins_neighbours() -> None:
    assert where("a.id = b.id = c.id") == where("a.id = b.id AND b.id = c.id")


@pytest.mark.parametrize(
    ("written", "meant"), [("==", "="), ("<>", "!="), ("!=", "!="), ("≠", "!="), ("≤", "<="), ("≥", ">=")]
)
def test_comparison_signs(written: str, meant: str) -> None:
    assert condition(f"a.v {written} 3") == Binary(meant, Attribute("a", "v"), Constant(3))


def test_between_is_two_conjuncts_and_not_between_is_one() -> None:
    assert where("a.v BETWEEN 1 AND 2 AND a.w = 3") == where("a.v >= 1 AND a.v <= 2 AND a.w = 3")
    inside = Binary("and", condition("a.v >= 1"), condition("a.v <= 2"))
    assert condition("a.v NOT BETWEEN 1 AND 2") == Unary("not", inside)


def test_in_takes_lists_and_remote_tables() -> None:
    assert condition("a.v IN (1, 2)") == Binary("in", Attribute("a", "v"), Items((Constant(1), Constant(2))))
    assert condition("a.v IN [1, 2]") == condition("a.v IN (1, 2)")
    assert condition("a.v NOT IN REMOTE[a.id]") == Binary(
        "not in", Attribute("a", "v"), Remote("remote", (Attribute("a", "id"),))
    )


def test_remote_tables_have_names() -> None:
    assert value("REMOTE.limits[a.org, 3]") == Remote("limits", (Attribute("a", "org"), Constant(3)))


def test_same_takes_attributes_and_functions_of_them() -> None:
    keys = (Same(Attribute("", "id")), Same(Call("lower", (Attribute("", "name"),))))
    assert set(where("SAME[id, lower(name)]")) == set(keys)
    assert where("[id]") == where("SAME[id]")


def test_elements_of_a_repetition() -> None:
    assert value("b.v") == value("b[].v") == value("b[i].v") == Attribute("b", "v")
    assert value("b[i-1].v") == value("b[i - 1].v") == Attribute("b", "v", "i-1")
    assert value("b[1].v") == value("b[first].v") == Attribute("b", "v", "first")
    assert value("b[last].v") == Attribute("b", "v", "last")
    assert value("avg(b[].v)") == value("AVG(b.v)") == Fold("avg", "b", "v")
    assert value("count(b[])") == value("COUNT(b)") == Fold("count", "b", None)


def test_registered_functions_are_called_by_their_exact_name() -> None:
    functions = Functions()
    functions.register("Twice", lambda x: 2 * x, ("int",), "int")
    assert right_side(condition("a.v = Twice[a.w]", functions=functions)) == Call("Twice", (Attribute("a", "w"),))
    with pytest.raises(RuleTextError, match="did you mean 'Twice'"):
        condition("a.v = twice(a.w)", functions=functions)


# Operator trees


def steps(pattern: Pattern) -> tuple[Step, ...]:
    assert isinstance(pattern.root, Chain)
    return pattern.root.steps


def tree(text: str) -> Part | Chain:
    return sase(text).pattern.root


def test_sequence_conjunction_disjunction() -> None:
    assert tree("SEQ(A a, AND(B b, C c), D d) WITHIN 5 s") == Sequence((A, Conjunction((B, C)), D), FIVE_S)
    assert tree("SEQ(A a, OR(B b, C c)) WITHIN 5 s") == Sequence((A, Disjunction((B, C))), FIVE_S)
    assert tree("SEQ(A a, (B b OR C c)) WITHIN 5 s") == tree("SEQ(A a, OR(B b, C c)) WITHIN 5 s")
    assert tree("SEQ(A a, (B b AND C c OR D d)) WITHIN 5 s") == tree("SEQ(A a, OR(AND(B b, C c), D d)) WITHIN 5 s")


def test_sequence_in_a_sequence_is_flattened_unless_it_has_a_window() -> None:
    assert tree("SEQ(A a, SEQ(B b, C c), D d) WITHIN 5 s") == tree("SEQ(A a, B b, C c, D d) WITHIN 5 s")
    inner = Sequence((B, C), Window(SECOND))
    assert tree("SEQ(A a, SEQ(B b, C c) WITHIN 1 s) WITHIN 5 s") == Sequence((A, inner), FIVE_S)


def test_negation_of_events_and_of_sub_patterns() -> None:
    assert tree("SEQ(A a, !B b, C c) WITHIN 5 s") == Sequence((A, Negation(B), C), FIVE_S)
    assert tree("SEQ(A a, NOT B b, C c) WITHIN 5 s") == tree("SEQ(A a, !B b, C c) WITHIN 5 s")
    inner = Sequence((B, C), Window(SECOND))
    assert tree("SEQ(A a, !SEQ(B b, C c) WITHIN 1 s) WITHIN 5 s") == Sequence((A, Negation(inner)), FIVE_S)


def test_repetition_of_events_and_groups() -> None:
    assert tree("SEQ(A a, B+ b[]) WITHIN 5 s") == Sequence((A, Repetition((B,))), FIVE_S)
    assert tree("SEQ(A a, B+ b[] LIMIT 20) WITHIN 5 s") == Sequence((A, Repetition((B,), 20)), FIVE_S)
    assert tree("SEQ((A a, B b)+, C c) WITHIN 5 s") == Sequence((Repetition((A, B)), C), FIVE_S)


def test_inev_spellings() -> None:
    assert tree("NSEQ(A a, B b, C c) WITHIN 5 s") == tree("SEQ(A a, !B b, C c) WITHIN 5 s")
    assert tree("SEQ(A a, KL(B b)) WITHIN 5 s") == tree("SEQ(A a, B+ b[]) WITHIN 5 s")
    assert tree("SEQ(A, A, B) WITHIN 5 s") == Sequence((Leaf("A", "A"), Leaf("A_2", "A"), Leaf("B", "B")), FIVE_S)


def test_windows_after_a_semicolon_bound_ends() -> None:
    assert tree("seq(A a, B b; 5 s)") == Sequence((A, B), Window(5 * SECOND, "us", "ends"))
    assert tree("and(A a, seq(B b, C c); 5 s)") == Conjunction((A, Sequence((B, C))), Window(5 * SECOND, "us", "ends"))


def test_outermost_window_spans_or_counts() -> None:
    assert tree("SEQ(A a, B b) WITHIN 50K") == Sequence((A, B), Window(50_000, "events", "span"))
    assert tree("OR(A a, B b) WITHIN 5 s") == Sequence((Disjunction((A, B)),), FIVE_S)
    assert tree("SEQ(A a, B b; 1 s) WITHIN 5 s") == Sequence((Sequence((A, B), Window(SECOND)),), FIVE_S)


def test_single_events_need_no_window() -> None:
    assert tree("or(A a, B b)") == Disjunction((A, B))
    assert tree("X: A a WHERE a.v > 3") == A


def test_gap_between_neighbours_is_a_conjunct() -> None:
    gap = Binary("<=", Binary("-", Attribute("b", "ts"), Attribute("a", "ts")), Constant(2 * SECOND))
    assert sase("SEQ(A a, B b WITHIN 2 s FROM a) WITHIN 5 s").pattern.where == (gap,)


def test_clauses_after_where_come_in_any_order() -> None:
    one = sase("x: SEQ(A a, B b) WHERE a.v = b.v WITHIN 5 s SKIP TILL NEXT MATCH RETURN X(v = a.v)")
    other = sase("x: SEQ(A a, B b) RETURN X(v = a.v) SKIP TILL NEXT MATCH WITHIN 5 s WHERE a.v = b.v")
    assert one == other
    assert one.pattern.skip == "next"
    assert sase("SEQ(A a, B b) WITHIN 5 s SKIP TILL ANY MATCH").pattern.skip == "any"


def test_sase_rules_are_named_by_themselves_or_their_file() -> None:
    rules = parse("SEQ(A a, B b) WITHIN 5 s; X: A a WITHIN 5 s RETURN Y; SEQ(A a, C c) WITHIN 5 s", "sase").rules
    assert [(rule.name, rule.emits) for rule in rules] == [
        ("some_file", "some_file"),
        ("X", "Y"),
        ("some_file_2", "some_file_2"),
    ]


def test_kinds_of_sase_outputs_are_inferred_or_stated() -> None:
    rule = sase(
        "event A(v: int, s: string) SEQ(A a, A+ b[]) WITHIN 5 s RETURN X("
        "v = a.v, w = a.v / 2, s = a.s + 'x', t = a.ts, n = count(b[]), f: float = a.v, g = REMOTE[a.v], h = a.v > 3)"
    )
    kinds = {attribute.name: attribute.kind for attribute in rule.attributes}
    assert kinds == {
        "v": "int", "w": "float", "s": "string", "t": "int", "n": "int", "f": "float", "g": "any", "h": "bool",
    }  # fmt: skip


# TESLA


def test_tesla_rule() -> None:
    rule = tesla(
        "define Fire(area: string) from Smoke(area = $a) and 3-last Temp(area = $a, value > 45) as t within 5 s "
        "from Smoke where area = $a"
    )
    conditions = (
        Binary("=", Attribute("t", "area"), Attribute("Smoke", "area")),
        Binary(">", Attribute("t", "value"), Constant(45)),
    )
    steps = (Selection(Leaf("t", "Temp"), "last", Within(5 * SECOND, "Smoke"), 3),)
    assert rule == Rule(
        "Fire",
        Pattern(Chain(Leaf("Smoke", "Smoke"), steps), conditions),
        "Fire",
        (OutputAttribute("area", "string", Attribute("Smoke", "area")),),
    )


@pytest.mark.parametrize(
    ("text", "policy", "count"),
    [("each", "each", 1), ("last", "last", 1), ("FIRST", "first", 1), ("2-first", "first", 2), ("3 - last", "last", 3)],
)
def test_tesla_policies(text: str, policy: Policy, count: int) -> None:
    pattern = tesla(f"define X() from A() and {text} B() within 5 s from A").pattern
    assert steps(pattern) == (Selection(Leaf("B", "B"), policy, Within(5 * SECOND, "A"), count),)


@pytest.mark.parametrize("heading", ["Rule R ", "rule R: ", "R: "])
def test_tesla_headings(heading: str) -> None:
    assert tesla(f"{heading}define X from A").name == "R"


def test_tesla_absences() -> None:
    pattern = tesla(
        "define X() from A() and last B() within 5 s from A and not C() within 1 s from B and not C() between A and B"
    ).pattern
    assert steps(pattern)[1:] == (
        Absence(Leaf("C", "C"), Within(SECOND, "B")),
        Absence(Leaf("C_2", "C"), Between("A", "B")),
    )


def aggregated(text: str) -> Pattern:
    return tesla(f"define X() from A() and {text}").pattern


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45 < $t=Avg(B().v within 5 s from A)", [Binary("<", Constant(45), Parameter("t"))]),
        ("$t=Avg(B().v within 5 s from A) > 45", [Binary(">", Parameter("t"), Constant(45))]),
        ("$t=Avg(B().v within 5 s from A)", []),
        ("Avg(B().v within 5 s from A) = $t", []),
        (
            "30 < $t=Avg(B().v within 5 s from A) < 45",
            [Binary("<", Constant(30), Parameter("t")), Binary("<", Parameter("t"), Constant(45))],
        ),
        (
            "$t=Avg(B().v within 5 s from A) and $t > A.limit * 2",
            [Binary(">", Parameter("t"), Binary("*", Attribute("A", "limit"), Constant(2)))],
        ),
    ],
)
def test_tesla_aggregate_is_compared_or_bound(text: str, expected: list[Expression]) -> None:
    pattern = aggregated(text)
    assert steps(pattern) == (Aggregate("t", "avg", Leaf("B", "B"), "v", Within(5 * SECOND, "A")),)
    assert set(pattern.where) == set(expected)


def test_tesla_aggregates_without_a_name_are_numbered() -> None:
    pattern = aggregated(
        "Count(B() within 5 s from A) > 3 and Max(B().v within 5 s from A) < Sum(C().v within 1 s from A)"
    )
    assert [step.name for step in steps(pattern) if isinstance(step, Aggregate)] == ["_1", "_2", "_3"]
    assert [step.leaf.role for step in steps(pattern)] == ["B", "B_2", "C"]
    assert Binary("<", Parameter("_2"), Parameter("_3")) in pattern.where


def test_tesla_aggregate_may_stand_in_where() -> None:
    rule = tesla("define X(n: int) from A() where n = Count(B(v > A.v) within 5 s from A) + 1")
    assert rule.attributes[0].value == Binary("+", Parameter("_1"), Constant(1))
    assert rule.pattern.where == (Binary(">", Attribute("B", "v"), Attribute("A", "v")),)


def test_tesla_hidden_roles_make_way_for_parts() -> None:
    pattern = aggregated("Count(B() within 5 s from A) > 3 and last B() within 5 s from A")
    assert [step.leaf.role for step in steps(pattern)] == ["B_2", "B"]


def test_tesla_parameter_is_a_known_value_for_what_comes_after() -> None:
    pattern = aggregated("$t = Avg(B().v within 5 s from A) and last C(v > $t) within 5 s from A")
    assert pattern.where == (Binary(">", Attribute("C", "v"), Parameter("t")),)


# Sets of rules


def test_rules_come_after_those_they_read_and_otherwise_in_the_order_of_the_text() -> None:
    sources = [
        Source("Top: SEQ(Middle m, A a) WITHIN 5 s\nOther: A a WITHIN 5 s", "one.sase", "sase"),
        Source("define Middle(v: int) from Low() where v = Low.n", "two.tesla", "tesla"),
        Source("L: SEQ(A a, B b) WITHIN 5 s RETURN Low(n = 3)", "three.sase", "sase"),
    ]
    assert [rule.name for rule in parse_rules(sources).rules] == ["Other", "L", "Middle", "Top"]


def test_several_rules_may_emit_one_type() -> None:
    rules = parse(
        "X: A a WITHIN 1 s RETURN Z(v = 1)\nY: B b WITHIN 1 s RETURN Z(v = 2.5)\nT: Z z WHERE z.v > 1", "sase"
    )
    assert [rule.name for rule in rules.rules] == ["X", "Y", "T"]


def test_attributes_of_composites_are_known_even_in_an_open_set() -> None:
    with pytest.raises(RuleTextError, match="Low has no attribute 'm'"):
        parse("A a WITHIN 1 s RETURN Low(n = 1); Low l WHERE l.m = 3", "sase")


def test_declared_types_are_returned_with_those_given() -> None:
    given = EventType("A", {"v": "int"})
    rules = parse("event B(w: double, note: string?) SEQ(A a, B b) WITHIN 5 s", "sase", types=[given])
    assert rules.types == {"A": given, "B": EventType("B", {"w": "float", "note": "string?"})}


def test_sources_are_read_from_files_by_their_extension(tmp_path: Path) -> None:
    path = tmp_path / "fire.tesla"
    path.write_bytes("\ufeffdefine Fire() from Smoke()".encode())
    source = Source.from_path(path)
    assert (source.language, source.name) == ("tesla", str(path))
    assert parse_rules([source]).rules[0].name == "Fire"
    with pytest.raises(ConfigError, match=r"rule files end in \.tesla or \.sase"):
        Source.from_path(tmp_path / "fire.txt")
    with pytest.raises(ConfigError, match="No such file"):
        Source.from_path(tmp_path / "none.sase")


# Patterns built in Python


def test_patterns_built_in_python_are_checked_too() -> None:
    assert check_pattern(Pattern(Sequence((A, B), FIVE_S))) == []
    (flaw,) = check_pattern(Pattern(Sequence((A, Leaf("a", "B")), FIVE_S)))
    assert str(flaw) == "two parts of this pattern are called 'a'; give one of them another name"
    unbound = Pattern(Sequence((A, B), FIVE_S), (Binary("=", Attribute("x", "v"), Parameter("p")),))
    assert [flaw.message for flaw in check_pattern(unbound)] == ["unbound name 'x'", "unbound parameter $p"]
    late = Chain(A, (Selection(B, "last", Within(5, "c")), Selection(C, "each", Within(5, "a"), 0)))
    assert [flaw.message for flaw in check_pattern(Pattern(late))] == ["unbound name 'c'", "0-each chooses nothing"]
    output = Rule(
        "X", Pattern(Sequence((A, Negation(B)), FIVE_S)), "X", (OutputAttribute("v", "any", Attribute("b", "v")),)
    )
    assert [flaw.message for flaw in check_rule(output)] == ["'b' is not part of the match, so it has no value here"]


# Functions


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("abs", (-3,), 3),
        ("sqrt", (9,), 3.0),
        ("sqrt", (-1,), None),
        ("floor", (2.7,), 2),
        ("ceil", (2.1,), 3),
        ("floor", (math.inf,), None),
        ("round", (2.567, 1), 2.6),
        ("power", (2, 10), 1024.0),
        ("power", (10.0, 400), None),
        ("log", (0,), None),
        ("log", (8, 2), 3.0),
        ("exp", (1000,), None),
        ("least", (3, 1, 2), 1),
        ("least", ("a", 1), None),
        ("greatest", (3, 1, 2.5), 3),
        ("distance", (0, 0, 3, 4), 5.0),
        ("lower", ("AbC",), "abc"),
        ("upper", ("AbC",), "ABC"),
        ("length", ("abc",), 3),
        ("concat", ("a", 1, True, 2.5), "a1true2.5"),
        ("substring", ("abcdef", 2), "bcdef"),
        ("substring", ("abcdef", 2, 3), "bcd"),
        ("substring", ("abc", -5, 7), "a"),
        ("contains", ("abc", "b"), True),
        ("startswith", ("abc", "b"), False),
        ("endswith", ("abc", "c"), True),
        ("trim", ("  a ",), "a"),
        ("replace", ("aXbX", "X", "-"), "a-b-"),
        ("matches", ("abc-12", r"\d+$"), True),
        ("matches", ("abc", "("), None),
        ("coalesce", (None, None, 3, 4), 3),
        ("if", (True, 1, 2), 1),
        ("if", (None, 1, 2), 2),
        ("hour", (3_600_000_000 * 25,), 1),
        ("minute", (60_000_000 * 61,), 1),
        ("second", (61_000_000,), 1),
        ("dayofweek", (0,), 4),
        ("int", ("12",), 12),
        ("int", (2.9,), 2),
        ("int", ("twelve",), None),
        ("int", ("9" * 30,), None),
        ("float", ("2.5",), 2.5),
        ("float", ("nan",), None),
        ("string", (False,), "false"),
    ],
)
def test_built_in_function(name: str, arguments: tuple[Any, ...], expected: object) -> None:
    assert BUILT_IN[name].call(*arguments) == expected


def test_only_coalesce_and_if_accept_missing_values() -> None:
    assert sorted(name for name, each in BUILT_IN.items() if each.accepts_missing) == ["coalesce", "if"]


def test_functions_cannot_take_the_place_of_others() -> None:
    functions = Functions()
    functions.register("near", lambda a, b: abs(a - b) < 1)
    assert functions.get("near") is not None
    assert functions.get("NEAR") is None
    assert functions.get("ABS") is BUILT_IN["abs"]
    for name in ("near", "Abs", "avg", "two words"):
        with pytest.raises(RuleError):
            functions.register(name, len)
    with pytest.raises(RuleError, match="unknown kind"):
        functions.register("other", len, ("txt",))
