"""Expressions as Spark columns against the engine's own evaluation of them."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from headwater.node.explain.expressions import Scope, evaluate, holds, show
from headwater.pipeline.expressions.cells import Cell, attribute
from headwater.pipeline.expressions.expressions import Name, cell, condition, equality
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Event, EventType
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
    Unary,
)

pytest.importorskip("pyspark", reason="pyspark is not installed")

KINDS = {"i": "int", "j": "int", "x": "float", "y": "float", "s": "string", "t": "string", "b": "bool"}
A, B = EventType("A", {name: kind + "?" for name, kind in KINDS.items()}), EventType("B", {"i": "int?", "x": "float?"})
TEXTS = ("", "x", "é", "z", "Zoë ", " \t12 ", "1_000", "-3.5", "1e3", "\U0001f40e", "￿", "a.b", "ss\n")
SMALL: dict[str, tuple[Any, ...]] = {
    "int": (None, 0, 1, -1, 2, 3, -7, 12, 1_000_003, -(10**6)),
    "float": (None, 0.0, -0.0, 0.1, 0.3, -2.5, 2.5, 3.0, 1e6, 0.1 + 0.2, 1e-9),
    "string": (None, *TEXTS),
    "bool": (None, True, False),
}
LARGE = SMALL | {
    "int": (None, 0, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63), 10**18 + 1),
    "float": (None, 0.5, 2.0**53, 2.0**53 + 2, -(2.0**63), 2.0**63, 1e18, 1e19, 1e300, -1e300, 2.0**100),
}


def rows_of(values: dict[str, tuple[Any, ...]], count: int, rng: random.Random) -> list[tuple[Event, Event, Any]]:
    """Events of two types, one at each of two nodes, and the value of a parameter."""
    made = []
    for number in range(count):
        given = {name: rng.choice(values[kind]) for name, kind in KINDS.items()}
        other = {"i": rng.choice(values["int"]), "x": rng.choice(values["float"])}
        when = rng.choice((0, 1, 86_399_999_999, 1_700_000_000_123_456, -1))
        a = Event(A, when, rng.choice(("n1", "é")), number, given)
        made.append((a, Event(B, rng.randint(0, 9), "n2", number, other), rng.choice(values["float"])))
    return made


def frame_of(spark: Any, rows: list[tuple[Event, Event, Any]]) -> Any:
    spark_kinds = {"int": "bigint", "float": "double", "string": "string", "bool": "boolean"}
    names = [f"a_{name} {spark_kinds[kind]}" for name, kind in {**HEAD, **KINDS}.items()]
    names += [f"b_{name} {spark_kinds[kind]}" for name, kind in {**HEAD, "i": "int", "x": "float"}.items()]
    data = [(n, *a[:3], *a[4:], *b[:3], *b[4:], p) for n, (a, b, p) in enumerate(rows)]
    return spark.createDataFrame(data, "n int, " + ", ".join(names) + ", p double")


HEAD = {"ts": "int", "node": "string", "seq": "int"}


def lookup(name: Name) -> Cell | None:
    from pyspark.sql import functions as F

    match name:
        case Parameter():
            return attribute(F.col("p"), "float")
        case Attribute(role, "type"):
            return Cell(F.lit(role.upper()), "string")
        case Attribute(role, word) if word in HEAD:
            return Cell(F.col(f"{role}_{word}"), HEAD[word])
        case Attribute("a", word) if word in KINDS:
            return attribute(F.col(f"a_{word}"), KINDS[word])
        case Attribute("b", word) if word in ("i", "x"):
            return attribute(F.col(f"b_{word}"), KINDS[word])
    return None


def scope_of(row: tuple[Event, Event, Any]) -> Scope:
    return Scope({"a": tuple(row[0]), "b": tuple(row[1])}, parameters={"p": row[2]})


def same(one: Any, other: Any) -> bool:
    """Equal, and both numbers or both not; a float that is no number equals another."""
    if one is None or other is None:
        return one is other
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return bool(one == other) and isinstance(one, bool | str) == isinstance(other, bool | str)


class Maker:
    """Random expressions of a wanted kind."""

    def __init__(self, rng: random.Random, values: dict[str, tuple[Any, ...]], divides: bool) -> None:
        self.rng, self.values, self.divides = rng, values, divides

    def make(self, kind: str, depth: int) -> Expression:
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf(kind)
        makers: list[Callable[[], Expression]] = getattr(self, f"_{kind}")(depth - 1)
        return self.rng.choice(makers)()

    def leaf(self, kind: str) -> Expression:
        if self.rng.random() < 0.3:
            given = [v for v in self.values[kind] if v is not None]
            return Constant(self.rng.choice(given))
        choices: list[Expression] = [Attribute("a", name) for name, of in KINDS.items() if of == kind]
        choices += [Attribute("b", "x"), Parameter("p")] * (kind == "float")
        choices += [Attribute("b", "i"), Attribute("a", "ts"), Attribute("b", "seq")] * (kind == "int")
        choices += [Attribute("a", "node"), Attribute("b", "type")] * (kind == "string")
        return self.rng.choice(choices)

    def _int(self, depth: int) -> list[Callable[[], Expression]]:
        def arithmetic() -> Expression:
            operator = self.rng.choice("+-*" if depth == 0 else "+-%")
            # The product of the two least longs is already beyond what is computed.
            left = Constant(self.rng.choice((2, -3, 10**9))) if operator == "*" else self.make("int", 0)
            return Binary(operator, left, self.make("int", depth))

        return [
            arithmetic,
            arithmetic,
            lambda: Unary("-", self.make("int", depth)),
            lambda: Call(self.rng.choice(("hour", "minute", "second", "dayofweek")), (self.leaf("int"),)),
            lambda: Call("abs", (self.make("int", depth),)),
            lambda: Call("length", (self.make("string", depth),)),
            lambda: Call("int", (self.make(self.rng.choice(("int", "string", "float", "bool")), 0),)),
            lambda: Call(self.rng.choice(("least", "greatest")), (self.make("int", 0), self.make("int", depth))),
            lambda: Call("coalesce", (self.make("int", depth), self.make("int", 0))),
        ]

    def _float(self, depth: int) -> list[Callable[[], Expression]]:
        def arithmetic() -> Expression:
            kinds = self.rng.choice((("float", "float"), ("int", "float"), ("float", "int")))
            operator = self.rng.choice("+-*/%" if self.divides else "+-*")
            return Binary(operator, self.make(kinds[0], depth), self.make(kinds[1], 0))

        def whole() -> Expression:
            return Binary("/", self.leaf("int"), Attribute("a", "j")) if self.divides else self.leaf("float")

        return [
            arithmetic,
            arithmetic,
            whole,
            lambda: Unary("-", self.make("float", depth)),
            lambda: Call(self.rng.choice(("abs", "sqrt")), (self.make("float", depth),)),
            lambda: Call("float", (self.make(self.rng.choice(("int", "string", "float")), 0),)),
            lambda: Call("round", (self.make("float", depth), *([Constant(self.rng.randint(0, 4))] * (depth % 2)))),
            lambda: Call(self.rng.choice(("least", "greatest")), (self.make("float", 0), self.make("float", depth))),
            lambda: Call("if", (self.make("bool", 0), self.make("float", depth), self.make("float", 0))),
        ]

    def _string(self, depth: int) -> list[Callable[[], Expression]]:
        return [
            lambda: Binary("+", self.make("string", depth), self.make("string", 0)),
            lambda: Call(self.rng.choice(("upper", "lower", "trim")), (self.make("string", depth),)),
            lambda: Call("concat", (self.make("string", 0), self.make("int", depth), self.make("bool", 0))),
            lambda: Call("substring", (self.make("string", depth), self.make("int", 0))),
            lambda: Call("substring", (self.make("string", 0), self.make("int", depth), self.make("int", 0))),
            lambda: Call("replace", (self.make("string", depth), Constant("x"), self.make("string", 0))),
            lambda: Call("string", (self.make("int", depth),)),
        ]

    def _bool(self, depth: int) -> list[Callable[[], Expression]]:
        def comparison() -> Expression:
            kinds = self.rng.choice((("int", "int"), ("float", "int"), ("float", "float"), ("string", "string")))
            operator = self.rng.choice(("=", "!=", "<", "<=", ">", ">="))
            return Binary(operator, self.make(kinds[0], depth), self.make(kinds[1], 0))

        def odd() -> Expression:
            operator = self.rng.choice(("=", "!=", "<", ">="))
            return Binary(operator, self.leaf(self.rng.choice(list(self.values))), self.leaf("bool"))

        def member() -> Expression:
            kind = self.rng.choice(list(self.values))
            items = Items(tuple(self.make(kind, 0) for _ in range(self.rng.randint(0, 3))))
            return Binary(self.rng.choice(("in", "not in")), self.make(kind, depth), items)

        return [
            comparison,
            comparison,
            comparison,
            odd,
            member,
            lambda: Binary(self.rng.choice(("and", "or")), self.make("bool", depth), self.make("bool", depth)),
            lambda: Unary("not", self.make("bool", depth)),
            lambda: Call(
                self.rng.choice(("contains", "startswith", "endswith")),
                (self.make("string", 0), self.make("string", 0)),
            ),
            lambda: Call("matches", (self.make("string", 0), Constant(self.rng.choice(("^z", "[a-z].$", "x|é", "."))))),
        ]


@pytest.mark.parametrize(("values", "divides"), [(SMALL, True), (LARGE, False)], ids=["small", "large"])
def test_random_expressions_mean_in_spark_what_they_mean_to_the_engine(spark: Any, values: Any, divides: bool) -> None:
    count = int(os.environ.get("HEADWATER_EXPRESSIONS", "4"))  # of each kind and depth; more by hand
    rng = random.Random(count)
    rows = rows_of(values, 60, rng)
    maker = Maker(rng, values, divides)
    expressions = [maker.make(kind, depth) for kind in values for depth in (1, 2, 3) for _ in range(count)]
    made = [(each, cell(each, lookup)) for each in expressions]
    judged = [condition(each, lookup) for each in expressions]
    frame = frame_of(spark, rows).select(
        "n",
        *(c.column.alias(f"v{i}") for i, (_, c) in enumerate(made)),
        *(c.alias(f"h{i}") for i, c in enumerate(judged)),
    )
    wrong = []
    for found in frame.collect():
        scope = scope_of(rows[found["n"]])
        for i, (expression, typed) in enumerate(made):
            wanted = evaluate(expression, scope)
            given = int(found[f"v{i}"]) if typed.wide and found[f"v{i}"] is not None else found[f"v{i}"]
            if not same(given, wanted) or found[f"h{i}"] is not holds(expression, scope):
                wrong.append(f"{i}: {show(expression)} over {rows[found['n']]} is {wanted!r}, in Spark {given!r}")
            if typed.kind == "int" and wanted is not None:
                assert typed.low <= wanted <= typed.high, show(expression)
    assert not wrong, f"{len(wrong)} values differ, such as\n" + "\n".join(
        {each.partition(":")[0]: each for each in wrong}.values()
    )


def one(spark: Any, expression: Expression, **values: Any) -> Any:
    """The value of an expression over one pair of events."""
    given = dict.fromkeys(KINDS) | values
    row = (Event(A, 5, "n1", 1, given), Event(B, 6, "n2", 1, {"i": 1, "x": 1.0}), None)
    return frame_of(spark, [row]).select(cell(expression, lookup).column.alias("v")).first()["v"]


def test_values_that_java_may_round_otherwise_are_judged_only_where_it_cannot_matter(spark: Any) -> None:
    far = Call("distance", (Attribute("a", "x"), Constant(0), Constant(3), Attribute("a", "y")))
    assert one(spark, Binary("<", far, Constant(5.1)), x=0.0, y=4.0) is True
    with pytest.raises(Exception, match="digits that Java may round differently"):
        one(spark, Binary("<", far, Constant(5.0)), x=0.0, y=4.0)
    loose = cell(Binary("<", far, Constant(5.0)), lookup, exact=False).column
    row = (Event(A, 5, "n1", 1, dict.fromkeys(KINDS) | {"x": 0.0, "y": 4.0}), Event(B, 6, "n2", 1), None)
    assert frame_of(spark, [row]).select(loose.alias("v")).first()["v"] is False


def test_what_spark_would_compute_wrongly_ends_the_job_with_a_sentence(spark: Any) -> None:
    i, j = Attribute("a", "i"), Attribute("a", "j")
    with pytest.raises(Exception, match="beyond 2\\*\\*126"):
        one(spark, Binary("*", Binary("*", i, j), i), i=2**62, j=2**62)
    with pytest.raises(Exception, match="beyond 2\\*\\*53 cannot be rounded exactly"):
        one(spark, Binary("/", i, j), i=2**60 + 1, j=3)
    with pytest.raises(Exception, match="beyond 2\\*\\*63"):
        one(spark, Call("floor", (Attribute("a", "x"),)), x=1e300)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        (Binary("=", Remote("table", (Attribute("a", "i"),)), Constant(1)), "REMOTE.table"),
        (Call("mine", (Attribute("a", "i"),)), "the function mine is none of the built-in ones"),
        (Call("string", (Attribute("a", "x"),)), "writes a float"),
        (Call("matches", (Attribute("a", "s"), Constant(r"\d+"))), "matches can be computed in Spark only"),
        (Call("matches", (Attribute("a", "s"), Attribute("a", "t"))), "matches can be computed in Spark only"),
        (Call("round", (Attribute("a", "x"), Attribute("a", "i"))), "round can be computed in Spark only"),
        (Call("floor", (Call("log", (Attribute("a", "x"),)),)), "cannot be computed exactly"),
        (Binary("-", Call("exp", (Attribute("a", "x"),)), Constant(1)), "cannot be computed exactly"),
        (Call("coalesce", (Attribute("a", "x"), Attribute("a", "s"))), "no common column"),
        (Constant(2**200), "too large"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_a_sentence(spark: Any, expression: Expression, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        cell(expression, lookup)


def test_an_equality_between_attributes_can_be_a_key_of_a_join(spark: Any) -> None:
    a, b = Attribute("a", "i"), Attribute("b", "i")
    key = equality(Binary("=", a, b), lookup)
    assert key is not None
    rows = rows_of(SMALL, 5, random.Random(1))
    left = frame_of(spark, rows).select("a_i")
    right = frame_of(spark, rows).select("b_i")
    plan = left.join(right, key)._jdf.queryExecution().toString()
    assert "CartesianProduct" not in plan
    assert "NestedLoop" not in plan
    assert equality(Binary("=", a, Attribute("b", "x")), lookup) is None
    assert equality(Binary("<", a, b), lookup) is None


def test_a_missing_int_differs_from_no_float(spark: Any) -> None:
    assert one(spark, Binary("!=", Attribute("a", "y"), Attribute("a", "i")), y=0.5) is False


def test_folds_and_parameters_are_what_the_lookup_says(spark: Any) -> None:
    assert cell(Fold("sum", "a", "i"), lambda _: None).kind == "none"
    assert one(spark, Binary("!=", Parameter("p"), Constant(1.0))) is False
