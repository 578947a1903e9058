"""``headwater verify``: Spark expects what the oracle finds, and what was not delivered as expected is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headwater.deploy.cli.command import main
from headwater.deploy.cli.verify import in_words
from headwater.pipeline.prepare.prepared_trace import open_prepared
from headwater.pipeline.verify.compare import Wanted
from headwater.pipeline.verify.delivered import delivered_files
from headwater.pipeline.verify.relations import Unverifiable
from headwater.pipeline.verify.verify import PROBLEMS, SUMMARY, Task, VerificationReport, verify
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.pattern import Rule, repeated_roles
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.builders import (
    TYPES,
    Rules,
    absent,
    aggregate,
    both,
    by_engine,
    chain,
    each,
    either,
    first,
    last,
    many,
    no,
    rule,
    same,
    seq,
    trace,
)
from tests.kit.patience import run_to_its_end
from tests.law.equal_places import PLACES
from tests.law.verified import Outcome, by_spark, check_seed, for_small_data, line_of, prepared_from
from tests.oracle import evaluate

PROJECT = Path(__file__).parent.parent.parent
SEEDS = int(os.environ.get("HEADWATER_VERIFY_SEEDS", "12"))
FAILED_ONCE: tuple[int, ...] = (1007,)
"""Seeds that showed a mistake once."""


@pytest.fixture(scope="module", autouse=True)
def quick(spark: Any) -> Iterator[None]:
    with for_small_data(spark):
        yield


# -- against the oracle ------------------------------------------------------------------------------------------------


def test_spark_expects_what_the_oracle_finds(spark: Any, tmp_path: Path) -> None:
    outcome = Outcome()
    for seed in (*FAILED_ONCE, *range(SEEDS)):
        check_seed(spark, seed, tmp_path, outcome)
    assert outcome.share > 0.5, outcome.refused
    assert outcome.matches > 5 * outcome.verified


SINGLE = [
    place
    for place, (rules, _, _) in PLACES.items()
    if isinstance(rules, Rule) and not repeated_roles(rules.pattern.root) and place != "a count window"
]


@pytest.mark.parametrize("place", SINGLE)
def test_two_attributes_of_a_role_that_must_equal_one_value_are_both_compared(spark: Any, place: str) -> None:
    rules, given, wanted = PLACES[place]
    assert by_spark(spark, rules, given) == sorted(wanted)


# -- operators, one by one ---------------------------------------------------------------------------------------------

BETWEEN = "A@0 C@1 B@2 A@3 B@4"
CASES: Mapping[str, tuple[Rules, str, list[str]]] = {
    "a sequence, with ties by node and seq": (
        rule(seq("A a", "B b", within=3, bounds="span")),
        "B@1/m A@1/m A@1/n B@1/z B@4/n",
        ["A@1/m B@1/z", "A@1/m B@4/n", "A@1/n B@1/z", "A@1/n B@4/n"],
    ),
    "windows include their bounds": (rule(seq("A a", "B b", within=3, bounds="span")), "A@0 B@3 B@4", ["A@0 B@3"]),
    "one event is not bound twice": (rule(both("A x", "A y", within=2)), "A@0 A@1", ["A@0 A@1", "A@1 A@0"]),
    "a conjunction in any order": (rule(both("A a", "B b", within=2)), "B@0 A@1 B@3", ["A@1 B@0", "A@1 B@3"]),
    "a disjunction, with what its branches give": (
        rule(seq("A a", either("B b", "C c"), within=5, bounds="span"), out={"x": "b.v", "y": "c.v"}),
        "A@0 B@1(v=7) C@2(v=8)",
        ["A@0 B@1 7/None", "A@0 C@2 None/8"],
    ),
    "an inner window bounds ends": (
        rule(seq("A a", both("B b", "C c", within=1), within=9, bounds="span")),
        "A@0 C@2 B@3 B@5",
        ["A@0 B@3 C@2"],
    ),
    "conditions with missing values are false": (
        rule(seq("A a", "B b", within=9, bounds="span"), "a.w != b.w"),
        "A@0 A@1(w=1.5) B@2(w=2.5)",
        ["A@1 B@2"],
    ),
    "negation between": (rule(seq("A a", no("C c"), "B b", within=9, bounds="span")), BETWEEN, ["A@3 B@4"]),
    "negation first": (rule(seq(no("C c"), "A a", "B b", within=3, bounds="span")), BETWEEN, ["A@0 B@2"]),
    "negation last": (
        rule(seq("A a", "B b", no("C c"), within=4, bounds="span")),
        "A@0 B@1 C@4 A@5 B@6 C@10",
        ["A@5 B@6"],
    ),
    "negation in a conjunction": (
        rule(both("A a", no("C c"), "B b", within=2)),
        "B@1 A@2 C@3 A@6 B@7",
        ["A@6 B@7"],
    ),
    "negation with a condition on the match": (
        rule(seq("A a", no("C c"), "B b", within=9, bounds="span"), "c.v = a.v"),
        "A@0(v=1) A@1(v=2) C@2(v=2) B@3",
        ["A@0 B@3"],
    ),
    "a negated sequence": (
        rule(seq("A a", no(seq("C c", "D d", within=1)), "B b", within=9, bounds="span")),
        "A@0 C@1 D@2 B@3 A@4 C@5 D@7 B@8",
        ["A@4 B@8"],
    ),
    "a part of the match never negates it": (rule(both("A a", no("A x"), within=1)), "A@0 A@3 A@4", ["A@0"]),
    "SAME concerns negated events too": (
        rule(seq("A a", no("C c"), "B b", within=9, bounds="span"), same("id")),
        "A@0(id=1) C@1(id=2) B@2(id=1) C@3(id=1) B@4(id=1)",
        ["A@0 B@2"],
    ),
    "each": (rule(chain("A a", each("B b", 3, "a"))), "B@0 B@2 B@3 A@4", ["A@4 B@2", "A@4 B@3"]),
    "last": (rule(chain("A a", last("B b", 9, "a"))), "B@1 B@2 A@3", ["A@3 B@2"]),
    "first": (rule(chain("A a", first("B b", 9, "a"))), "B@1 B@2 A@3", ["A@3 B@1"]),
    "n-last": (rule(chain("A a", last("B b", 9, "a", 2))), "B@0 B@1 B@2 A@3", ["A@3 B@1", "A@3 B@2"]),
    "n-first, of fewer": (rule(chain("A a", first("B b", 9, "a", 3))), "B@0 B@1 A@3", ["A@3 B@0", "A@3 B@1"]),
    "what is chosen later never makes a selection look further": (
        rule(chain("A a", last("B b", 5, "a"), last("C c", 5, "b"))),
        "C@0 B@4 B@6 A@7",
        [],
    ),
    "not within": (rule(chain("A a", absent("B b", 2, "a"))), "B@0 A@2 B@3 A@6", ["A@6"]),
    "not between": (
        rule(chain("A a", each("B b", 9, "a"), absent("C c", between="b a"))),
        "B@0 C@1 B@2 A@3",
        ["A@3 B@2"],
    ),
    "a part that a later step chooses does not count as absent": (
        rule(chain("A a", absent("B x", 9, "a"), each("B b", 9, "a"))),
        "B@0 A@1",
        ["A@1 B@0"],
    ),
    "aggregates": (
        rule(
            chain(
                "A a",
                aggregate("n", "count", "B x", within=5, of="a"),
                aggregate("m", "avg", "B y", "v", within=5, of="a"),
                aggregate("s", "sum", "B z", "w", within=5, of="a"),
                aggregate("t", "max", "B u", "v", within=5, of="a"),
            ),
            "$n >= 2",
            out={"n": "$n", "m": "$m", "s": "$s", "t": "$t"},
        ),
        "B@0(v=9) A@1 B@4(v=1,w=0.1) B@5(v=2,w=0.2) B@6(v=4,w=0.3) A@7",
        ["A@7 3/2.3333333333333335/0.6/4"],
    ),
    "an aggregate over nothing has no value, and a count is 0": (
        rule(
            chain(
                "A a",
                aggregate("n", "count", "B x", within=5, of="a"),
                aggregate("m", "min", "B y", "v", within=5, of="a"),
            ),
            out={"n": "$n", "m": "$m"},
        ),
        "A@7",
        ["A@7 0/None"],
    ),
    "an aggregate bounds what a later step chooses": (
        rule(chain("A a", aggregate("m", "avg", "B x", "v", within=9, of="a"), last("B b", 9, "a")), "b.v > $m"),
        "B@0(v=1) B@1(v=5) B@2(v=2) A@3",
        ["A@3 B@1"],
    ),
    "skip till next match": (
        rule(seq("A a", "B b", "C c", within=9, bounds="span"), "b.v = a.v", skip="next"),
        "A@0 A@1 B@2(v=1) B@3 B@4 C@5 C@6",
        ["A@0 B@3 C@5", "A@1 B@3 C@5"],
    ),
    "skip till next match, where branches compete": (
        rule(seq("A a", either("B b", "C c"), within=9, bounds="span"), skip="next"),
        "A@0 C@1 B@2",
        ["A@0 C@1"],
    ),
    "a repetition: one element, or a first and a last": (
        rule(seq("A a", many("B b"), "C c", within=9, bounds="span")),
        "A@0 B@1 B@2 B@3 C@4",
        [
            "1 x A@0 B@1 C@4",
            "1 x A@0 B@2 C@4",
            "1 x A@0 B@3 C@4",
            "1 x A@0 B@1 B@2 C@4",
            "1 x A@0 B@2 B@3 C@4",
            "2 x A@0 B@1 B@3 C@4",
        ],
    ),
    "a repetition whose elements rise": (
        rule(seq("A a", many("B b"), within=9, bounds="span"), "b.v > b[i-1].v"),
        "A@0 B@1(v=1) B@2(v=3) B@3(v=2) B@4(v=4)",
        [
            "1 x A@0 B@1",
            "1 x A@0 B@2",
            "1 x A@0 B@3",
            "1 x A@0 B@4",
            "1 x A@0 B@1 B@2",
            "1 x A@0 B@1 B@3",
            "3 x A@0 B@1 B@4",
            "1 x A@0 B@2 B@4",
            "1 x A@0 B@3 B@4",
        ],
    ),
    "a repetition with a condition on all elements": (
        rule(seq("A a", many("B b"), within=9, bounds="span"), "sum(b.v) = 5"),
        "A@0 B@1(v=1) B@2(v=2) B@3(v=2) B@4(v=2) B@5(v=5)",
        ["1 x A@0 B@5", "1 x A@0 B@1 B@3", "2 x A@0 B@1 B@4"],
    ),
    "a limit": (
        rule(seq("A a", many("B b", limit=2), "C c", within=9, bounds="span")),
        "A@0 B@1 B@2 C@3 B@4 C@5",
        ["1 x A@0 B@1 C@3", "1 x A@0 B@2 C@3", "1 x A@0 B@1 B@2 C@3"],
    ),
    "a limit, with a condition on all elements that says nothing of candidates": (
        rule(seq("A a", many("B b", limit=2), "C c", within=9, bounds="span"), "b.v >= avg(b.v)"),
        "A@0 B@1(v=2) B@2(v=1) C@3 B@4 C@5",
        ["1 x A@0 B@1 C@3", "1 x A@0 B@2 C@3"],
    ),
    "negation beside a repetition": (
        rule(seq("A a", many("B b"), no("D d"), "C c", within=9, bounds="span")),
        "A@0 B@1 D@2 B@3 C@4",
        ["1 x A@0 B@3 C@4", "1 x A@0 B@1 B@3 C@4"],
    ),
    "rules over the composites of others": (
        [
            rule(seq("A a", "B b", within=5, bounds="span"), name="one", emits="X", out={"v": "b.v"}),
            rule(seq("X x", "C c", within=5, bounds="span"), name="two", emits="Y", out={"v": "x.v"}),
            rule(chain("C c", last("X x", 9, "c")), name="three", emits="Z", out={"at": "x.ts"}),
        ],
        "A@0 A@1 B@2(v=3) C@3 C@6",
        [
            "(A@0 B@2) C@3 3",
            "(A@1 B@2) C@3 3",
            "(A@1 B@2) C@6 3",
            "A@0 B@2 3",
            "A@1 B@2 3",
            "C@3 (A@1 B@2) 2",
            "C@6 (A@1 B@2) 2",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(spark: Any, name: str) -> None:
    rules, text, wanted = CASES[name]
    assert by_spark(spark, rules, text) == sorted(wanted)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if isinstance(case[0], Rule)])
def test_the_engine_finds_as_much(name: str) -> None:
    rules, text, wanted = CASES[name]
    ways = [int(each.split(" x ")[0]) if " x " in each else 1 for each in wanted]
    assert len(by_engine(rules, text)) == sum(ways)


REFUSED: Mapping[str, tuple[Rules, str]] = {
    "a window that counts": (rule(seq("A a", "B b", events=5)), "a window that counts events"),
    "a repeated group": (rule(seq(many("A a", "B b"), "C c", within=5, bounds="span")), "repeated group (A a, B b)+"),
    "a repetition that skips": (
        rule(seq("A a", many("B b"), within=5, bounds="span"), skip="next"),
        "b[] under SKIP TILL NEXT MATCH",
    ),
    "unbounded parts": (
        rule(both(seq("A a", "B b"), "C c", within=5)),
        "nothing bounds how far a and b may lie apart",
    ),
    "elements that decide on a negation": (
        rule(seq("A a", many("B b"), no("C c"), "D d", within=5, bounds="span"), "c.v = b.v"),
        "the negated c names the elements of b[]",
    ),
    "composites that are only counted": (
        [
            rule(seq("A a", many("B b"), within=5, bounds="span"), name="one", emits="X"),
            rule(seq("X x", "C c", within=5, bounds="span"), name="two", emits="Y"),
        ],
        "rule two: it reads X of rule one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_verified_is_refused_with_a_sentence(spark: Any, name: str) -> None:
    rules, said = REFUSED[name]
    with pytest.raises(Unverifiable, match=r"^rule \w+: ") as refused:
        by_spark(spark, rules, "A@0 B@1 C@2 D@3")
    assert said in str(refused.value)


# -- what was delivered ------------------------------------------------------------------------------------------------

RULES = """
Pair: SEQ(A a, B b) WHERE a.id = b.id WITHIN 4 us RETURN Pair(id = a.id, v = b.v)

Many: SEQ(A a, C+ c[], B b) WHERE a.id = b.id WITHIN 6 us RETURN Many(n = count(c[]), most = max(c[].v))
"""
LETTERS = "A@0(id=1)/m C@1(v=1) C@2(v=4)/m B@3(id=1,v=7) A@5(id=2) B@6(id=2,v=3)/m C@8 A@9(id=3) B@11(id=3,v=9)"
"""Three matches of Pair, and three of Many: c[] is one of the two C, or both."""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    folder = tmp_path_factory.mktemp("letters")
    given = trace(LETTERS)
    prepared_from(folder / "trace", given.events)
    (folder / "rules.sase").write_text(RULES)
    rules = parse_rules([Source(RULES, "rules", "sase")], TYPES.values())
    lines = [json.dumps(line_of(each)) for each in evaluate(rules.rules, given.events)]
    assert len(lines) == 6
    (folder / "all.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return Task(open_prepared(folder / "trace"), rules.rules, TYPES, (folder / "all.jsonl",))


def lines_of(task: Task, rule_name: str) -> list[dict[str, Any]]:
    told = [json.loads(line) for line in task.delivered[0].read_text().splitlines()]
    return [each for each in told if each["rule"] == rule_name]


def judged(
    spark: Any, task: Task, lines: Sequence[Mapping[str, Any] | str], folder: Path, **changed: Any
) -> tuple[VerificationReport, str]:
    """The report on a task whose deliveries are these lines, and its words."""
    # A name of its own each time: Spark keeps what it has read of a file, as long as the session lasts.
    file = folder / f"delivered-{len(list(folder.iterdir()))}.jsonl"
    file.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
    report = verify(spark, replace(task, delivered=(file,), **changed), examples=5, out=None, tell=lambda _: None)
    return report, "\n".join(in_words(report))


def figures(report: VerificationReport) -> dict[str, tuple[int, int, int, int, int, int]]:
    return {f.rule: (f.expected, f.delivered, f.missing, f.extra, f.duplicate, f.altered) for f in report.figures}


def test_what_was_delivered_as_it_should_be_is_the_same(spark: Any, task: Task, tmp_path: Path) -> None:
    report = verify(spark, task, examples=3, out=tmp_path / "out", tell=lambda _: None)
    assert report.equal
    assert figures(report) == {"Pair": (3, 3, 0, 0, 0, 0), "Many": (3, 3, 0, 0, 0, 0)}
    assert list(in_words(report))[-1] == "the same"
    assert json.loads((tmp_path / "out" / SUMMARY).read_text())["equal"] is True
    assert pq.read_table(tmp_path / "out" / PROBLEMS).num_rows == 0


def test_every_kind_of_problem_is_found_and_named(spark: Any, task: Task, tmp_path: Path) -> None:
    one, two, three = lines_of(task, "Pair")
    invented = {**one, "events": [one["events"][0], three["events"][1]]}
    altered = {**two, "attributes": {**two["attributes"], "v": 4}}
    report, words = judged(spark, task, [three, three, invented, altered, *lines_of(task, "Many")], tmp_path)
    assert not report.equal
    assert figures(report)["Pair"] == (3, 4, 1, 1, 1, 1)
    assert "missing: Pair [a:m#0 b:n#1] with id = 1, v = 7 was not delivered" in words
    assert "extra: Pair [a:m#0 b:n#5] with id = 1, v = 7 was delivered, and should not have been" in words
    assert "duplicate: Pair [a:n#4 b:n#5] was delivered 1 time too often" in words
    assert "altered: Pair [a:n#2 b:m#2] was delivered with id = 2, v = 4, and should have id = 2, v = 3" in words


def test_problems_of_counted_composites_are_found_and_named(spark: Any, task: Task, tmp_path: Path) -> None:
    pairs = lines_of(task, "Pair")
    first_c, second_c, both_c = sorted(
        lines_of(task, "Many"), key=lambda line: (len(line["events"]), line["events"][1]["ts"])
    )
    stranger = {**first_c["events"][1], "seq": 3}  # the C at 8, which is too late
    wrong = {**both_c, "events": [both_c["events"][0], first_c["events"][1], stranger, both_c["events"][-1]]}
    altered = {**both_c, "attributes": {"n": 3, "most": 4}}
    report, words = judged(spark, task, [*pairs, second_c, second_c, wrong, altered], tmp_path)
    assert figures(report) == {"Pair": (3, 3, 0, 0, 0, 0), "Many": (3, 4, 1, 1, 1, 1)}
    assert "missing: Many [a:m#0 c:n#0 b:n#1] was not delivered" in words
    assert "extra: Many [a:m#0 c:n#0 c:n#3 b:n#1] with n = 2, most = 4 was delivered" in words
    assert "duplicate: Many [a:m#0 c:m#1 b:n#1] was delivered 1 time too often" in words
    assert "altered: Many [a:m#0 c:n#0 c:m#1 b:n#1] was delivered with n = 3, most = 4" in words


def test_nothing_delivered_is_all_missing(spark: Any, task: Task, tmp_path: Path) -> None:
    report, words = judged(spark, task, [], tmp_path)
    assert figures(report) == {"Pair": (3, 0, 3, 0, 0, 0), "Many": (3, 0, 3, 0, 0, 0)}
    assert "nothing was delivered" in words


def test_lines_that_are_no_composites_are_counted_and_named(spark: Any, task: Task, tmp_path: Path) -> None:
    lines: list[Any] = [*lines_of(task, "Pair"), "{torn", *lines_of(task, "Many"), '{"rule": "Pair"}', ""]
    report, words = judged(spark, task, lines, tmp_path)
    assert report.bad_lines == 2
    assert not report.equal
    assert figures(report)["Pair"] == (3, 3, 0, 0, 0, 0)
    assert f"{tmp_path / 'delivered-0.jsonl'}:4: {{torn" in words


def test_deliveries_of_something_else_are_refused(spark: Any, task: Task, tmp_path: Path) -> None:
    later = tuple(replace(each, version=2) for each in task.rules)
    with pytest.raises(ConfigError, match="version 1 of rule Pair found what was delivered, and version 2 is to be"):
        judged(spark, task, lines_of(task, "Pair"), tmp_path, rules=later)
    with pytest.raises(
        ConfigError, match="what was delivered is of the rules Other, and those to verify are Many, Pair"
    ):
        judged(spark, task, [{**lines_of(task, "Pair")[0], "rule": "Other"}], tmp_path)
    with pytest.raises(ConfigError, match="no file with deliveries"):
        delivered_files([task.trace.folder])


def test_deliveries_over_another_trace_are_extra_and_its_own_missing(spark: Any, task: Task, tmp_path: Path) -> None:
    other = prepared_from(tmp_path / "other", trace("A@0(id=1)/x B@1(id=1)/x").events)
    report, _ = judged(spark, task, lines_of(task, "Pair"), tmp_path, trace=other)
    assert figures(report)["Pair"] == (1, 3, 1, 3, 0, 0)


def test_every_sink_is_compared_with_what_it_subscribed_to(spark: Any, task: Task, tmp_path: Path) -> None:
    some = Wanted("0", (parse_subscription("Pair(v > 5)"),))
    all_ = Wanted("1", (parse_subscription("Pair"), parse_subscription("Many")))
    one, two, three = lines_of(task, "Pair")
    lines = [{**each, "sink": 1} for each in (one, two, three, *lines_of(task, "Many"))]
    report, words = judged(spark, task, [*lines, {**one, "sink": 0}, {**two, "sink": 0}], tmp_path, sinks=(some, all_))
    assert figures(report) == {"Pair": (5, 5, 1, 1, 0, 0), "Many": (3, 3, 0, 0, 0, 0)}
    assert "missing: Pair [a:n#4 b:n#5] at sink 0" in words
    assert "extra: Pair [a:n#2 b:m#2] at sink 0" in words
    late = (Wanted("0", (parse_subscription("Many(n > 1)"),)),)
    report, _ = judged(spark, task, [], tmp_path, sinks=late)
    assert report.refused["Many"].startswith(
        "rule Many: a sink asks for some values of n, which depends on the elements"
    )


def test_numbers_of_a_run_that_only_counted_are_compared(spark: Any, task: Task, tmp_path: Path) -> None:
    report, _ = judged(spark, task, [], tmp_path, counts={"Pair": 3, "Many": 3})
    assert report.equal
    report, _ = judged(spark, task, [], tmp_path, counts={"Pair": 4, "Many": 1})
    assert figures(report) == {"Pair": (3, 4, 0, 1, 0, 0), "Many": (3, 1, 2, 0, 0, 0)}


def test_a_rule_alone_is_verified_with_what_it_reads(spark: Any, task: Task, tmp_path: Path) -> None:
    over = """Twice: SEQ(Pair p, Pair q) WITHIN 20 us RETURN Twice(id = q.id)"""
    rules = parse_rules([Source(RULES, "rules", "sase"), Source(over, "over", "sase")], TYPES.values()).rules
    found = [line_of(each) for each in evaluate(rules, trace(LETTERS).events) if each.rule == "Twice"]
    report, _ = judged(spark, task, found[1:], tmp_path, rules=rules, only=frozenset(["Twice"]))
    assert figures(report) == {"Twice": (len(found), len(found) - 1, 1, 0, 0, 0)}


def test_a_row_that_spark_cannot_judge_refuses_its_rule_alone(spark: Any, task: Task, tmp_path: Path) -> None:
    near = "Near: SEQ(A a, B b) WHERE power(a.id, 2) = b.id * b.id WITHIN 4 us"
    rules = parse_rules([Source(RULES, "rules", "sase"), Source(near, "near", "sase")], TYPES.values()).rules
    report, _ = judged(spark, task, lines_of(task, "Pair"), tmp_path, rules=rules)
    assert figures(report)["Pair"] == (3, 3, 0, 0, 0, 0)
    assert report.refused["Near"].startswith("rule Near: '=' compares values that differ only in digits")


# -- the command -------------------------------------------------------------------------------------------------------


def headwater(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Spark has one session in a process, so commands run in one of their own."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "headwater.deploy.cli.command", "verify", *map(str, words), "--master", "local[1]"]
    return run_to_its_end(command, env=environment, text=True)


def test_the_command_says_what_is_wrong_by_its_exit_code(task: Task, tmp_path: Path) -> None:
    rules = task.trace.folder.parent / "rules.sase"
    done = headwater(task.trace.folder, "--rules", rules, "--delivered", task.delivered[0])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the same"
    less = tmp_path / "less.jsonl"
    less.write_text("".join(task.delivered[0].read_text().splitlines(keepends=True)[1:]))
    done = headwater(task.trace.folder, "--rules", rules, "--delivered", less, "--json", "--out", tmp_path / "out")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert sum(each["missing"] for each in told["rules"]) == 1
    assert [each["kind"] for each in pq.read_table(tmp_path / "out" / PROBLEMS).to_pylist()] == ["missing"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--delivered", "LINES"], "say what to verify: either rule files with --rules, or a network with --network"),
        (
            ["--rules", "RULES"],
            "say what a run has found: either deliveries with --delivered, or numbers with --counts",
        ),
        (["--rules", "RULES", "--counts", "LINES"], "is not what headwater run --count --json prints"),
        (["--rules", "RULES", "--delivered", "nowhere"], "there is no file nowhere with what a run delivered"),
        (
            ["--rules", "RULES", "--delivered", "LINES", "--only", "Trio"],
            "there is no rule 'Trio'; there are: Many, Pair",
        ),
        (["--rules", "OTHER", "--delivered", "LINES"], "the rules read X, Y, and the trace"),
        (["--rules", "RULES", "--delivered", "LINES", "--out", "."], ". exists already; name another folder"),
    ],
)
def test_wrong_input_is_said_before_spark_starts(
    task: Task, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    other = tmp_path / "other.sase"
    other.write_text("event X(v: int)\nevent Y(v: int)\nO: SEQ(X x, Y y) WITHIN 3 s\n")
    names = {"LINES": task.delivered[0], "RULES": task.trace.folder.parent / "rules.sase", "OTHER": other}
    with pytest.raises(SystemExit) as left:
        main(["verify", str(task.trace.folder), *(str(names.get(word, word)) for word in words)])
    told = capsys.readouterr().err
    assert left.value.code == 2
    assert said in told
    assert "starting Spark" not in told
