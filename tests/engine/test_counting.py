"""Counting the matches of repetitions without listing them: as many as listing gives, and far beyond that."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import comb

import pytest

from headwater.node.engine import Engine, counting
from headwater.protocol.errors import RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import RuleSet, Source, parse_rules

TYPES = {name: EventType(name, {"k": "int?", "v": "int", "w": "float?"}) for name in "ABCD"}


def sase(text: str) -> RuleSet:
    return parse_rules([Source(text, "rule.sase", "sase")], TYPES.values())


def event(name: str, ts: int, seq: int, v: int = 0, w: float | None = None, k: int | None = 0) -> Event:
    return Event(TYPES[name], ts, "n", seq, {"k": k, "v": v, "w": w})


def counted(text: str, events: list[Event]) -> int:
    engine = Engine(sase(text), count_only=True)
    assert engine.feed(events) == []
    engine.close()
    return sum(engine.counts().values())


def listed(text: str, events: list[Event]) -> int:
    engine = Engine(sase(text))
    return len(engine.feed(events) + engine.close())


SEQ = "Q: SEQ(A a, B+ b[], C c) WHERE {} WITHIN 99 us"
CONDITIONS = {
    "count": "count(b[]) > 3",
    "count of an attribute that may lack": "count(b[].w) = 2",
    "sum": "sum(b[].v) >= 9",
    "sum of floats": "sum(b[].w) < 7",
    "sum of integers that may lack": "sum(b[].k) < 2",
    "avg": "avg(b[].v) > a.v",
    "avg of floats": "avg(b[].w) <= 2.5",
    "min and max": "min(b[].v) > 1 AND max(b[].w) < 4",
    "two folds in one": "sum(b[].v) > 2 * count(b[])",
    "first and last": "b[first].v < b[last].v",
    "neighbours": "b[i].v > b[i-1].v",
    "neighbours and a fold": "b[i].v >= b[i-1].v AND sum(b[].v) > 6",
    "first, last and a fold": "b[first].v = 1 AND b[last].v = 2 AND count(b[]) > 2",
    "each event and a fold": "b.v >= avg(b[].v)",
    "a condition that knows no way out": "count(b[]) > 2 AND sum(b[].v) % 3 = c.v",
}
OTHERS = {
    "the repetition is last": "Q: SEQ(A a, B+ b[]) WHERE count(b[]) > 3 WITHIN 99 us",
    "the repetition is last, with a sum": "Q: SEQ(A a, B+ b[]) WHERE sum(b[].v) > 8 WITHIN 99 us",
    "any order": "Q: AND(A a, B+ b[], C c) WHERE max(b[].v) > 2 AND count(b[]) < 5 WITHIN 99 us",
    "two repetitions": "Q: SEQ(A+ a[], B+ b[]) WHERE count(b[]) > 2 AND sum(a[].v) > 2 WITHIN 99 us",
    "two repetitions side by side": "Q: AND(B+ b[], C+ c[]) WHERE count(b[]) > count(c[]) WITHIN 99 us",
    "two repetitions of one type": "Q: AND(C+ b[], C+ c[]) WHERE count(b[]) > count(c[]) WITHIN 99 us",
    "each event of two repetitions": "Q: SEQ(A+ a[], C+ c[]) WHERE a.v < c[last].v AND a[first].v <= c.v WITHIN 99 us",
    "a negation at the end": "Q: SEQ(A a, B+ b[], !D d) WHERE count(b[]) > 3 WITHIN 30 us",
    "a negation between": "Q: SEQ(A a, B+ b[], !D d, C c) WHERE sum(b[].v) > 4 WITHIN 99 us",
    "a negation that looks at the events": (
        "Q: SEQ(A a, B+ b[], !D d, C c) WHERE d.v = b.v AND count(b[]) > 1 WITHIN 99 us"
    ),
    "groups": "Q: SEQ(A a, (B b, C c)+, D d) WHERE sum(b[].v) > 3 WITHIN 99 us",
    "groups at the end": "Q: SEQ(A a, (B b, C c)+) WHERE count(b[]) > 1 AND b[first].v < c[last].v WITHIN 40 us",
    "a count window": "Q: SEQ(A a, B+ b[], C c) WHERE count(b[]) > 2 WITHIN 12",
    "a limit": "Q: SEQ(A a, B+ b[] LIMIT 9, C c) WHERE count(b[]) > 2 WITHIN 99 us",
    "a limit at the end": "Q: SEQ(A a, B+ b[] LIMIT 9) WHERE sum(b[].v) > 5 WITHIN 60 us",
    "an inner window": "Q: SEQ(A a, AND(B+ b[], D d) WITHIN 30 us, C c) WHERE count(b[]) > 1 WITHIN 99 us",
}
TEXTS = {name: SEQ.format(condition) for name, condition in CONDITIONS.items()} | OTHERS


@pytest.mark.parametrize("kinds_max", [counting.KINDS_MAX, 4], ids=["by kinds", "one by one"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_counting_gives_as_many_matches_as_listing(text: str, kinds_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "KINDS_MAX", kinds_max)
    found = 0
    for seed in range(12):
        rng = random.Random(seed)
        drawn = [(rng.choice("ABBBBCCD"), rng.randrange(4), rng.choice((None, 0.0, 1.0, 2.25))) for _ in range(18)]
        events = [event(name, 4 * i, i, v, w, rng.choice((None, 0, 1))) for i, (name, v, w) in enumerate(drawn)]
        rng.shuffle(events)
        number = listed(text, events)
        assert counted(text, events) == number, seed
        found += number
    assert found > 0


def many(candidates: int, v: Callable[[int], int] = lambda i: i % 3) -> list[Event]:
    rows = [event("B", i, i, v(i), w=float(v(i))) for i in range(1, candidates + 1)]
    return [event("A", 0, 1000), *rows, event("C", candidates + 1, 1001)]


def test_conditions_on_how_many_events_are_counted_exactly_over_any_number_of_candidates() -> None:
    assert counted(SEQ.format("count(b[]) > 5"), many(60)) == sum(comb(60, size) for size in range(6, 61))
    text = "Q: SEQ(A a, B+ b[]) WHERE count(b[]) = 5 WITHIN 999 us"
    assert counted(text, many(300)) == comb(300, 5)


def test_sums_least_and_greatest_values_are_counted_over_more_candidates_than_can_be_listed() -> None:
    def ways(values: list[int], wanted: Callable[[int], bool]) -> int:
        sums = {0: 1}
        for value in values:
            grown = dict(sums)
            for total, number in sums.items():
                grown[total + value] = grown.get(total + value, 0) + number
            sums = grown
        return sum(number for total, number in sums.items() if wanted(total))

    values = [i % 3 for i in range(1, 61)]
    assert counted(SEQ.format("sum(b[].v) > 30"), many(60)) == ways(values, lambda total: total > 30)
    assert counted(SEQ.format("sum(b[].w) > 30"), many(60)) == ways(values, lambda total: total > 30)
    assert counted(SEQ.format("min(b[].v) = 1"), many(60)) == 2**40 - 2**20  # some 1, perhaps 2, never 0
    assert counted(SEQ.format("max(b[].v) < 2"), many(60)) == 2**40 - 1
    assert counted(SEQ.format("b[first].v = 0 AND b[last].v = 2"), many(6)) == listed(
        SEQ.format("b[first].v = 0 AND b[last].v = 2"), many(6)
    )


def test_neighbours_groups_and_two_repetitions_are_counted_over_more_candidates_than_can_be_listed() -> None:
    rising = many(50, v=lambda i: i)
    assert counted(SEQ.format("b[i].v > b[i-1].v"), rising) == 2**50 - 1
    assert counted(SEQ.format("b[i].v < b[i-1].v"), rising) == 50
    two = [event(name, i, i) for i, name in enumerate("A" * 40 + "B" * 40)]
    assert counted("Q: SEQ(A+ a[], B+ b[]) WITHIN 99 us", two) == (2**40 - 1) ** 2
    waiting = "Q: SEQ(A a, B+ b[], !D d) WITHIN 99 us"
    assert counted(waiting, many(50)) == 2**50 - 1
    assert counted(waiting, [*many(50), event("D", 60, 2000)]) == 0
    groups = [event(name, i, i) for i, name in enumerate("BC" * 40 + "D")]
    # Runs of (B, C): pairs of an increasing choice of positions that begins with B and alternates.
    assert counted("Q: SEQ((B b, C c)+, D d) WITHIN 99 us", groups) > 1 << 22


def test_a_count_survives_a_snapshot_however_large_it_is() -> None:
    engine = Engine(sase(SEQ.format("count(b[]) > 5")), count_only=True)
    engine.feed(many(90))
    assert engine.copy().counts() == engine.counts()
    waiting = Engine(sase("Q: SEQ(A a, B+ b[], !D d) WITHIN 99 us"), count_only=True)
    waiting.feed(many(90))
    waiting.advance(50)
    copied = waiting.copy()
    copied.close()
    assert copied.counts() == {"Q": 2**90 - 1}


def refusal(text: str, events: list[Event]) -> str:
    with pytest.raises(RuleError) as refused:
        counted(text, events)
    return str(refused.value)


def test_what_cannot_even_be_counted_is_refused_with_an_advice_that_was_not_followed_yet() -> None:
    powers = many(40, v=lambda i: 3**i)
    told = refusal(SEQ.format("sum(b[].v) > 5"), powers)
    assert told.startswith("rule 'Q': a repetition has 40 candidates at once, and its conditions tell more than 100,0")
    assert "too many even for counting" in told
    assert "LIMIT" in told
    assert "only count" not in told
    told = refusal(SEQ.format("b.v >= avg(b[].v)"), many(40))
    assert "look at each of more than 4,194,304 choices" in told
    assert "only count" not in told


def test_a_rule_that_is_listed_for_another_says_so_instead_of_advising_to_count() -> None:
    told = refusal("Q: SEQ(A a, B+ b[], C c) WITHIN 99 us\nR: SEQ(Q q, D d) WITHIN 99 us", many(40))
    assert told.startswith("rule 'Q': a repetition has 40 candidates at once")
    assert told.endswith("its matches are listed although they are only counted, because rule 'R' reads them")


def test_listing_advises_to_count() -> None:
    with pytest.raises(RuleError, match=r"or only count the matches \(headwater run --count\)"):
        listed(SEQ.format("count(b[]) > 5"), many(40))
