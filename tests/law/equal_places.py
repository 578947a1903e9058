"""Rules that bind two attributes of one role to one value, in every place where an equality may stand.

Each with a trace and what is found in it: some of its events break one of the equalities, but only within a role.
"""

from __future__ import annotations

from headwater.protocol.pattern import Rule
from tests.kit.builders import absent, aggregate, both, chain, each, either, first, last, many, no, rule, same, seq

INNER = rule(seq("A a", "B b", within=9), "b.id = a.v", "a.v = b.v", name="inner", emits="Y", out={"v": "a.v"})
OUTER = rule(seq("Y y", "C c", within=9), "c.w = y.v", "y.v = c.v")

PLACES: dict[str, tuple[Rule | list[Rule], str, list[str]]] = {
    "a sequence": (
        rule(seq("A a", "B b", within=9), "b.w = a.v", "a.v = b.v"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=1,w=2.0) B@4(v=2) B@5(v=2,w=2.0)",
        ["A@1 B@5"],
    ),
    "a conjunction": (
        rule(both("A a", "B b", within=9), "b.w = a.v", "a.v = b.v"),
        "B@1(v=2,w=1.0) B@2(v=2,w=2.0) A@3(v=2) B@4(v=1,w=2.0) B@5(v=2,w=2.0)",
        ["A@3 B@2", "A@3 B@5"],
    ),
    "one role": (
        rule(seq("A a", "B b", within=9), "a.v = a.w", "a.w = b.v"),
        "A@1(v=2,w=1.0) A@2(v=1,w=2.0) A@3(v=2,w=2.0) B@4(v=2)",
        ["A@3 B@4"],
    ),
    "two roles with two attributes each": (
        rule(seq("A a", "B b", within=9), "a.v = b.v", "b.v = a.w", "a.w = b.w"),
        "A@1(v=2,w=2.0) A@2(v=2,w=1.0) B@3(v=2,w=1.0) B@4(v=1,w=2.0) B@5(v=2,w=2.0)",
        ["A@1 B@5"],
    ),
    "strings, with the name of the node": (
        rule(seq("A a", "B b", within=9), "b.node = a.s", "b.s = a.s"),
        "A@1(s='x')/x B@2(s='x')/y B@3(s='y')/x B@4(s='x')/x",
        ["A@1/x B@4/x"],
    ),
    "SAME beside another equality": (
        rule(seq("A a", "B b", within=9), same("v"), "a.v = b.w"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=1,w=2.0) B@4(v=2,w=2.0)",
        ["A@1 B@4"],
    ),
    "a branch of an OR": (
        rule(seq("A a", either("B b", "C c"), within=9), "a.v = b.v", "b.w = a.v", "c.v = a.w"),
        "A@1(v=2,w=1.0) B@2(v=2,w=1.0) C@3(v=1) B@4(v=2,w=2.0)",
        ["A@1 C@3", "A@1 B@4"],
    ),
    "a branch of an OR that was not taken": (
        rule(seq("A a", either("B b", "C c"), "D d", within=9), "a.v = b.v", "b.v = d.v", "c.w = a.v"),
        "A@1(v=2) C@2(w=2.0) D@3(v=1) B@3(v=2) D@4(v=1) D@5(v=2)",
        ["A@1 C@2 D@3", "A@1 C@2 D@4", "A@1 B@3 D@5", "A@1 C@2 D@5"],
    ),
    "a repetition": (
        rule(seq("A a", many("B b"), "C c", within=9), "b.v = a.w", "a.w = b.w", "c.v = a.v"),
        "A@1(v=2,w=1.0) B@2(v=1,w=1.0) B@3(v=1,w=2.0) B@4(v=2,w=1.0) C@5(v=2)",
        ["A@1 B@2 C@5"],
    ),
    "a repetition that ends the match": (
        rule(seq("A a", many("B b"), within=9), "b.v = a.v", "a.v = b.w"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=2,w=2.0) B@4(v=1,w=2.0)",
        ["A@1 B@3"],
    ),
    "a part that a repetition is compared with": (
        rule(seq(many("B b"), "C c", within=9), "b.v = c.v", "c.w = b.v"),
        "B@1(v=2) B@2(v=1) C@3(v=2,w=1.0) C@4(v=1,w=2.0) C@5(v=2,w=2.0)",
        ["B@1 C@5"],
    ),
    "neighbours in a repetition": (
        rule(seq("A a", many("B b"), within=9), "b[i-1].v = b.w", "b.v = a.v"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=2,w=2.0) B@4(v=2,w=1.0)",
        ["A@1 B@2", "A@1 B@2 B@3", "A@1 B@3", "A@1 B@4"],
    ),
    "a group": (
        rule(seq("A a", many("B b", "C c"), within=9), "a.v = b.v", "c.w = a.v", "a.v = c.v"),
        "A@1(v=2) B@2(v=2) C@3(v=2,w=1.0) C@4(v=1,w=2.0) C@5(v=2,w=2.0)",
        ["A@1 B@2 C@5"],
    ),
    "a part that a group is compared with": (
        rule(seq(many("B b", "C c"), "D d", within=9), "d.v = b.v", "b.v = d.w", "c.w = d.v"),
        "B@1(v=2) C@2(w=2.0) D@3(v=2,w=1.0) D@4(v=1,w=2.0) D@5(v=2,w=2.0)",
        ["B@1 C@2 D@5"],
    ),
    "a group alone": (
        rule(seq(many("B b", "C c"), within=9), "b.v = c.v", "c.w = b.v"),
        "B@2(v=2) C@3(v=2,w=1.0) C@4(v=1,w=2.0) C@5(v=2,w=2.0)",
        ["B@2 C@5"],
    ),
    "a negated role": (
        rule(seq("A a", no("B b"), "C c", within=9), "b.v = a.v", "b.w = c.v", "a.v = c.v"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=1,w=2.0) C@4(v=2) B@5(v=2,w=2.0) C@6(v=2)",
        ["A@1 C@4"],
    ),
    "through a negated role, which makes no parts equal": (
        rule(seq("A a", no("B b"), "C c", within=9), "b.v = a.v", "b.v = c.v", "b.v = a.w"),
        "A@1(v=2,w=2.0) B@2(v=2) C@3(v=2) C@4(v=1) A@5(v=2,w=1.0) B@6(v=2) C@7(v=2)",
        ["A@1 C@4", "A@5 C@7"],
    ),
    "a negated sequence": (
        rule(seq("A a", no(seq("B b", "C c")), "D d", within=9), "b.v = c.v", "c.w = b.v"),
        "A@1 B@2(v=2) C@3(v=2,w=1.0) C@4(v=1,w=2.0) D@5 C@6(v=2,w=2.0) D@7",
        ["A@1 D@5"],
    ),
    "a negated conjunction with the parts around it": (
        rule(seq("A a", no(both("B b", "C c")), "D d", within=9), "b.v = c.v", "c.w = b.v", "b.v = a.v"),
        "A@1(v=2) C@2(v=2,w=1.0) B@3(v=2) C@4(v=1,w=2.0) D@5 C@6(v=2,w=2.0) D@7",
        ["A@1 D@5"],
    ),
    "a negation after the match": (
        rule(seq("A a", "C c", no("B b"), within=5, bounds="span"), "b.v = a.v", "b.w = a.v", "c.v = a.v"),
        "A@1(v=2) C@2(v=2) B@3(v=2,w=1.0) B@4(v=1,w=2.0) A@11(v=2) C@12(v=2) B@13(v=2,w=2.0)",
        ["A@1 C@2"],
    ),
    "a count window": (
        rule(seq("A a", "B b", events=6), "b.w = a.v", "a.v = b.v"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=1,w=2.0) B@4(v=2,w=2.0)",
        ["A@1 B@4"],
    ),
    "skip till next": (
        rule(seq("A a", "B b", within=9), "b.w = a.v", "a.v = b.v", skip="next"),
        "A@1(v=2) B@2(v=2,w=1.0) B@3(v=1,w=2.0) B@4(v=2,w=2.0)",
        ["A@1 B@4"],
    ),
    "a repetition under skip till next": (
        rule(seq("A a", many("B b"), "C c", within=9), "b.w = a.v", "a.v = b.v", same("v"), skip="next"),
        "A@1(v=2) B@2(v=2,w=2.0) B@3(v=2,w=1.0) B@4(v=1,w=2.0) B@5(v=2,w=2.0) C@6(v=2)",
        ["A@1 B@2 B@5 C@6"],
    ),
    "a rule on rules": (
        [INNER, OUTER],
        "A@1(v=2) B@2(v=2,id=1) B@3(v=1,id=2) B@4(v=2,id=2) C@5(v=2,w=1.0) C@6(v=1,w=2.0) C@7(v=2,w=2.0)",
        ["A@1 B@4", "(A@1 B@4) C@7"],
    ),
    "each in a chain": (
        rule(chain("A a", each("B b", 9, "a")), "b.w = a.v", "a.v = b.v"),
        "B@1(v=2,w=1.0) B@2(v=1,w=2.0) B@3(v=2,w=2.0) A@4(v=2)",
        ["A@4 B@3"],
    ),
    "last in a chain": (
        rule(chain("A a", last("B b", 9, "a")), "b.w = a.v", "a.v = b.v"),
        "B@1(v=2,w=2.0) B@2(v=1,w=2.0) B@3(v=2,w=1.0) A@4(v=2)",
        ["A@4 B@1"],
    ),
    "first in a chain": (
        rule(chain("A a", first("B b", 9, "a"), each("C c", 9, "b")), "b.w = a.v", "a.v = b.v", "c.v = b.w"),
        "C@0(v=2) B@1(v=2,w=1.0) B@2(v=1,w=2.0) B@3(v=2,w=2.0) A@4(v=2)",
        ["A@4 B@3 C@0"],
    ),
    "an absence in a chain": (
        rule(chain("A a", absent("B b", 9, "a")), "b.w = a.v", "a.v = b.v"),
        "B@1(v=2,w=1.0) B@2(v=1,w=2.0) A@3(v=2) B@4(v=2,w=2.0) A@5(v=2)",
        ["A@3"],
    ),
    "an aggregate in a chain": (
        rule(chain("A a", aggregate("p", "count", "B b", None, 9, "a")), "b.w = a.v", "a.v = b.v", "$p = a.id"),
        "B@1(v=2,w=1.0) B@2(v=1,w=2.0) B@3(v=2,w=2.0) A@4(v=2,id=1) A@5(v=2,id=2)",
        ["A@4"],
    ),
    "a parameter in a chain": (
        rule(
            chain("A a", aggregate("p", "max", "B b", "v", 9, "a"), each("C c", 9, "a")),
            "c.v = $p",
            "$p = c.w",
            "c.v = a.v",
        ),
        "B@1(v=2) C@2(v=2,w=1.0) C@3(v=1,w=2.0) C@4(v=2,w=2.0) A@5(v=2)",
        ["A@5 C@4"],
    ),
}
