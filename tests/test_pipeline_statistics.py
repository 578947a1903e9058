"""Statistics of prepared traces: how events arrive, how selective rules are, and how plans come of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from pipeline.rule_statistics import RuleStatistics, TraceFacts, rule_statistics
from protocol import pattern as pt
from protocol.events import Event
from protocol.expressions import Same, roles_of
from protocol.languages import Source, parse_rules
from protocol.projection import project
from tests.builders import TYPES
from tests.oracle import evaluate

KINDS = {"id": "int", "v": "int", "w": "float", "s": "string"}
SCHEMA = "node string, type string, ts long, seq long, id long, v long, w double, s string"


def parsed(*texts: str) -> list[pt.Rule]:
    return [*parse_rules([Source(text, f"rules{at}", "sase") for at, text in enumerate(texts)], TYPES.values()).rules]


def frame(spark: Any, events: Sequence[Event]) -> Any:
    rows = [
        (each.node, each.type, each.ts, each.seq, *(each.attributes.get(name) for name in KINDS)) for each in events
    ]
    return spark.createDataFrame(rows, SCHEMA)


def facts(events: Sequence[Event]) -> TraceFacts:
    times = [each.ts for each in events]
    return TraceFacts(min(times), max(times), KINDS)


def all_sets(rule: pt.Rule) -> list[frozenset[str]]:
    roles = [leaf.role for leaf in pt.positive_leaves(rule.pattern.root)]
    return [frozenset(some) for size in (2, 3) for some in combinations(roles, size)]


def counted(
    spark: Any, events: Sequence[Event], rules: Sequence[pt.Rule], sample: float | None = None
) -> dict[str, RuleStatistics]:
    wanted = {rule.name: (rule, all_sets(rule)) for rule in rules}
    return rule_statistics(spark, frame(spark, events), facts(events), wanted, sample=sample)


def drawn(seed: int, number: int, span: int) -> list[Event]:
    """Events with many equal times and values, at three nodes."""
    chance = random.Random(seed)
    numbers: dict[str, int] = {}
    events = []
    for ts in sorted(chance.randrange(span) for _ in range(number)):
        node = chance.choice("pqr")
        numbers[node] = numbers.get(node, 0) + 1
        given = {"id": chance.randrange(3), "v": chance.randrange(6), "w": chance.choice([None, 0.5, 1.5]), "s": "x"}
        events.append(Event(TYPES[chance.choice("ABC")], ts, node, numbers[node], given))
    return events


# -- rules -------------------------------------------------------------------------------------------------------------

RULES = """
Ordered: SEQ(A a, B b, C c) WHERE a.id = b.id AND b.v < c.v AND a.v > 1 WITHIN 30 us RETURN Ordered(x = a.id)
Agreeing: AND(A a, B b, C c) WHERE SAME[id] AND a.v <= b.v WITHIN 12 us RETURN Agreeing(x = a.id)
Twins: AND(A one, A two) WHERE one.id = two.id AND one.v > 2 WITHIN 9 us RETURN Twins(x = one.id)
Three: SEQ(A a, AND(B b, C c)) WHERE a.v + b.v > c.v AND a.w = c.w WITHIN 20 us RETURN Three(x = a.id)
Free: SEQ(B b, A a) WITHIN 7 us RETURN Free(x = a.id)
"""
CHAIN = """
define Chained(x: int) from C() as c and each B(v > 0) as b within 11 us from c
and each A() as a within 8 us from b where x = a.id
"""


def matches(rule: pt.Rule, roles: frozenset[str], events: Sequence[Event]) -> list[dict[str, Any]]:
    """By trying every combination: the events of each role."""
    kept = replace(rule, pattern=project(rule, roles).pattern, attributes=())
    return [dict(match.parts) for match in evaluate([kept], events)]


def unbound(rule: pt.Rule) -> pt.Rule:
    """The rule without what it asks of events together."""
    alone = tuple(each for each in rule.pattern.where if len(roles_of(each)) == 1)
    return replace(rule, pattern=replace(rule.pattern, where=alone))


def test_everything_is_as_if_all_combinations_were_listed(spark: Any) -> None:
    events = drawn(3, 90, 150)
    rules = [*parsed(RULES), *parse_rules([Source(CHAIN, "chain", "tesla")], TYPES.values()).rules]
    found = counted(spark, events, rules)
    checked = 0
    for rule in rules:
        for roles, projection in found[rule.name].projections.items():
            kept = matches(rule, roles, events)
            assert projection.found == len(kept), (rule.name, roles)
            for role in roles:
                alone = matches(rule, frozenset((role,)), events)
                in_some = {match[role] for match in kept}
                assert projection.singles[role].value == pytest.approx(len(in_some) / len(alone)), (rule.name, roles)
            if len(roles) == 2:
                assert projection.selectivity is not None
                assert projection.selectivity.of == len(matches(unbound(rule), roles, events)), (rule.name, roles)
                assert projection.selectivity.passed == len(kept)
            checked += bool(kept)
    assert checked == 4 + 4 + 1 + 4 + 1 + 4
    (seen,) = (each for each in found["Agreeing"].shares.items() if len(each[0]) == 3)
    agreeing = [matches(without_order(rules[1]), frozenset(pair), events) for pair in combinations("abc", 2)]
    assert seen[1].passed == sum(map(len, agreeing))
    for name, each in found.items():
        print(name, {tuple(sorted(k)): (v.passed, v.of, v.told) for k, v in each.shares.items()}, each.notes)


def without_order(rule: pt.Rule) -> pt.Rule:
    return replace(
        rule, pattern=replace(rule.pattern, where=tuple(e for e in rule.pattern.where if isinstance(e, Same)))
    )
