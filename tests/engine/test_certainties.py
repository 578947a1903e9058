"""Conditions that are always or never true are found, and no other."""

from __future__ import annotations

import random

import pytest

from headwater.node.explain.constant_conditions import certainties
from headwater.node.explain.expressions import Scope, holds
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Same
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.pattern import Pattern


def pattern(where: str) -> Pattern:
    return parse_rules([Source(f"SEQ(A a, B+ b[]) WHERE {where} WITHIN 5 s", "r.sase", "sase")]).rules[0].pattern


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("a.v = a.v", "`a.v = a.v` is true of every event that has the value"),
        ("a.v <= a.v", "`a.v <= a.v` is true of every event that has the value"),
        ("a.v != a.v", "`a.v != a.v` is never true"),
        ("a.v > 70000 AND a.v < 10", "`a.v < 10 and a.v > 70000` are never true together"),
        ("a.v BETWEEN 5 AND 3", "`a.v <= 3 and a.v >= 5` are never true together"),
        ("a.v = 'x' AND a.v = 'y'", "`a.v = 'x' and a.v = 'y'` are never true together"),
        ("a.v IN (1, 2) AND a.v > 2", "`a.v > 2 and a.v in (1, 2)` are never true together"),
        ("a.v != 1 OR a.v != 2", "`a.v != 1 or a.v != 2` is true of every event that has the value"),
        ("a.v < 3 OR a.v >= 3", "`a.v < 3 or a.v >= 3` is true of every event that has the value"),
        ("a.v < b[first].v AND a.v > b[first].v", "`a.v < b[first].v and a.v > b[first].v` are never true together"),
        ("count(b[]) > 5 AND count(b[]) < 3", "`count(b[]) < 3 and count(b[]) > 5` are never true together"),
        ("a.v = 2 * 3 AND a.v = 7", "`a.v = 2 * 3 and a.v = 7` are never true together"),
        ("1 = 1", "`1 = 1` is always true"),
        ("2 < 1", "`2 < 1` is never true"),
    ],
)
def test_what_no_event_can_change_is_told(where: str, told: str) -> None:
    assert [each.sentence for each in certainties(pattern(where).where)] == [told]


@pytest.mark.parametrize(
    "where",
    [
        "NOT a.v = a.v",  # holds where a has no v
        "a.v > 5 AND a.v < 6",
        "a.v >= 5 AND a.v <= 5",
        "a.v = a.w",
        "a.v < b[last].v AND a.v <= b[last].v",
        "b.v > b[i-1].v",
        "a.v + 1 > a.v",  # not looked at: something is computed
        "a.v = 'x' OR a.v = 1",
        "SAME[v] AND a.v > 3",
        "a.v > 1e300 AND a.v < 1e308",
    ],
)
def test_what_depends_on_events_is_not_told(where: str) -> None:
    assert certainties(pattern(where).where) == []


def test_no_event_contradicts_a_certainty() -> None:
    """Random conditions over two attributes: where a certainty is told, every pair of values bears it out."""
    chance = random.Random(7)
    kind = EventType("A", {"v": "any?", "w": "any?"})
    values = [None, 0, 1, 1.5, 2, 3, "", "m", "n", True]
    events = [(0, "p", 1, kind, one, other) for one in values for other in values]
    told = 0
    for _ in range(3000):
        conditions = certainties_of(chance)
        for certainty in certainties(conditions):
            told += 1
            outcomes = {
                all(holds(each, Scope({"a": row})) for each in certainty.conjuncts)
                for row in events
                if not certainty.always or (row[4] is not None and row[5] is not None and comparable(row[4], row[5]))
            }
            assert outcomes == {certainty.always}, str(certainty)
    assert told > 200


def comparable(one: object, other: object) -> bool:
    """An order among values of one kind is all that always-true conditions promise anything about."""
    return isinstance(one, str) == isinstance(other, str) and not isinstance(one, str)


def certainties_of(chance: random.Random) -> tuple:  # type: ignore[type-arg]
    def compared() -> str:
        left = chance.choice(("a.v", "a.w"))
        right = chance.choice(("a.v", "a.w", "0", "1", "2", "2.5"))
        return f"{left} {chance.choice(('=', '!=', '<', '<=', '>', '>='))} {right}"

    parts = []
    for _ in range(chance.randint(1, 3)):
        parts.append(chance.choice((compared(), f"({compared()} OR {compared()})", f"NOT {compared()}")))
    made = pattern(" AND ".join(parts)).where
    return tuple(each for each in made if not isinstance(each, Same))
