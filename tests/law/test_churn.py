"""The harness for changes: which rules it lets come and go, and that it judges rules which read each other's events."""

from __future__ import annotations

from itertools import count, islice

import pytest

from headwater.coordinator.requests import DeployRules, UndeployRule
from headwater.deploy.simulation.outcome import Delivery
from headwater.protocol.composites import Composite
from headwater.protocol.pattern import Rule, types_of
from tests.kit.builders import rule, seq
from tests.law.churn import ChurnCase, churn_case, connected_groups, expected, run
from tests.law.law import Unjudged, compare

SEEDS = 150


def a_rule(emits: str, *reads: str) -> Rule:
    return rule(seq(*(f"{name} {name.lower()}" for name in reads), within=5), name=f"of{emits}", emits=emits)


def test_rules_are_connected_by_what_they_read_over_any_number_of_others() -> None:
    alone, low, middle, high, second = (
        a_rule("X", "A", "B"),
        a_rule("P", "A", "B"),
        a_rule("Q", "P", "B"),
        a_rule("R", "Q", "A"),
        a_rule("S", "A", "C"),
    )
    groups = connected_groups([high, alone, low, second, middle])
    assert groups == [[high, low, middle], [alone], [second]]


def test_rules_that_emit_what_another_reads_are_connected_to_each_other() -> None:
    one, other, reader = a_rule("P", "A", "B"), a_rule("P", "B", "A"), a_rule("Q", "P", "B")
    assert connected_groups([one, other]) == [[one], [other]]
    assert connected_groups([one, other, reader]) == [[one, other, reader]]


def test_networks_with_connected_rules_take_part_and_those_rules_stay() -> None:
    taking_part = moved = 0
    for case in filter(None, map(churn_case, range(SEEDS))):
        connected = {
            each.name for group in connected_groups(case.whole.network.rules) if len(group) > 1 for each in group
        }
        taking_part += bool(connected)
        for _, change in case.changes:
            if isinstance(change, DeployRules | UndeployRule):
                moved += 1
                assert (change.rules[0].name if isinstance(change, DeployRules) else change.name) not in connected
        assert connected <= {each.name for each in case.begins.rules}
    assert taking_part > SEEDS // 10
    assert moved > SEEDS // 10


def a_case_in_which_a_reading_rule_fires() -> tuple[ChurnCase, list[Delivery]]:
    for seed in islice(count(), SEEDS):
        case = churn_case(seed)
        if case is None or not case.changes:
            continue
        emitted = {each.emits for each in case.whole.network.rules}
        reading = {each.name for each in case.whole.network.rules if types_of(each.pattern) & emitted}
        if reading:
            outcome = run(case, "centr")
            found = [
                each for each in outcome.delivered if isinstance(each.item, Composite) and each.item.rule in reading
            ]
            if found:
                return case, found
    pytest.fail("no such case")


def test_a_lost_composite_of_a_rule_that_reads_others_is_noticed() -> None:
    case, found = a_case_in_which_a_reading_rule_fires()
    outcome = run(case, "centr")
    try:
        must = expected(case, outcome)
    except Unjudged:
        pytest.fail("the oracle gave up on a case that was chosen for being small")
    assert compare(case.whole, outcome, must) == []
    outcome.delivered.remove(found[0])
    (wrong,) = compare(case.whole, outcome, must)
    assert wrong.startswith("missing: ")
