"""The physical cost model against events drawn at random."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from itertools import permutations, product

import pytest

from headwater.coordinator.inev.model.patterns import order, parse
from headwater.coordinator.inev.model.physical_costs import PhysicalCosts, arrangements, empty_gap, listed_arrangements
from headwater.coordinator.inev.model.problem import EventNetwork, ProblemError, Query, event_network

WINDOW_S = 2.0
SECONDS = 20_000.0
RATES = {"A": 0.3, "B": 0.25, "C": 0.2, "N": 0.4}


def network() -> EventNetwork:
    return event_network(["x", "y"], [("x", "y")], {type: {"x": rate} for type, rate in RATES.items()})


def drawn(seed: int) -> dict[str, list[float]]:
    draw = random.Random(seed)
    found: dict[str, list[float]] = {}
    for type, rate in RATES.items():
        now, times = 0.0, []
        while (now := now + draw.expovariate(rate)) < SECONDS:
            times.append(now)
        found[type] = times
    return found


def rate(text: str) -> float:
    query = Query("q", parse(text), {}, WINDOW_S)
    return PhysicalCosts(network()).rate(query.projection(frozenset(query.types)))


def near(times: list[float], at: float) -> list[float]:
    return times[bisect_left(times, at - WINDOW_S) : bisect_right(times, at + WINDOW_S)]


def counted(text: str, types: str, trace: dict[str, list[float]]) -> float:
    """Matches per second, by trying all combinations within the window."""
    before = order(parse(text))
    count = 0
    for first in trace[types[0]]:
        for others in product(*(near(trace[type], first) for type in types[1:])):
            at = dict(zip(types, (first, *others), strict=True))
            if max(at.values()) - min(at.values()) <= WINDOW_S and all(at[one] < at[other] for one, other in before):
                count += "NSEQ" not in text or not any(at["A"] < n < at["B"] for n in near(trace["N"], at["A"]))
    return count / SECONDS


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SEQ(A, B)", "AB"),
        ("AND(A, B)", "AB"),
        ("SEQ(A, B, C)", "ABC"),
        ("AND(A, B, C)", "ABC"),
        ("SEQ(A, AND(B, C))", "ABC"),
        ("AND(A, SEQ(B, C))", "ABC"),
        ("NSEQ(A, N, B)", "AB"),
        ("AND(NSEQ(A, N, B), C)", "ABC"),
    ],
)
def test_rates_are_those_of_events_drawn_at_random(text: str, types: str) -> None:
    found = [counted(text, types, drawn(seed)) for seed in range(4)]
    assert sum(found) / len(found) == pytest.approx(rate(text), rel=0.08)


def test_a_sequence_is_overestimated_by_the_product_formula() -> None:
    for text, parts in (("SEQ(A, B)", 2), ("SEQ(A, B, C)", 3), ("SEQ(A, B, C, N)", 4)):
        product_formula = math.prod(RATES[type] for type in "ABCN"[:parts]) * WINDOW_S ** (parts - 1)
        assert product_formula / rate(text) == pytest.approx(math.factorial(parts - 1))


def test_the_share_of_events_in_matches_of_two_types_is_exact() -> None:
    query = Query("q", parse("SEQ(A, B)"), {}, WINDOW_S)
    expected = PhysicalCosts(network()).selected("B", query.projection(frozenset("AB")))
    found = []
    for seed in range(4):
        trace = drawn(seed)
        inside = sum(any(0 < b - a <= WINDOW_S for a in near(trace["A"], b)) for b in trace["B"])
        found.append(inside / len(trace["B"]))
    assert sum(found) / len(found) == pytest.approx(expected, rel=0.05)


def test_predicates_keep_their_selectivity_and_rates_per_node_add_up() -> None:
    rates = {"A": {"x": 1.0, "y": 3.0}, "B": {"y": 0.5}}
    unequal = event_network(["x", "y"], [("x", "y")], rates)
    query = Query("q", parse("SEQ(A, B)"), {frozenset("AB"): 0.1}, WINDOW_S)
    assert PhysicalCosts(unequal).rate(query.projection(frozenset("AB"))) == pytest.approx(4.0 * 0.5 * WINDOW_S * 0.1)
    assert unequal.share("A", 1) == 0.75


def test_a_window_is_needed() -> None:
    query = Query("q", parse("SEQ(A, B)"), {})
    with pytest.raises(ProblemError, match="has no window"):
        PhysicalCosts(network()).rate(query.projection(frozenset("AB")))


@pytest.mark.parametrize("text", ["SEQ(A, B, C)", "AND(A, B, C)", "SEQ(A, AND(B, C))", "AND(A, SEQ(B, C), N)"])
def test_arrangements_are_the_permutations_that_keep_the_order(text: str) -> None:
    types = tuple(type for type in "ABCN" if type in text.replace("AND", "").replace("SEQ", ""))
    before = order(parse(text))
    kept = [each for each in permutations(types) if all(each.index(a) < each.index(b) for a, b in before)]
    assert arrangements(types, before) == len(kept)
    assert sorted(listed_arrangements(types, before)) == sorted(kept)


def test_a_gap_is_empty_as_often_as_the_integral_says() -> None:
    for gaps, parts, expected in ((1, 2, 0.7), (1, 3, 2.0), (2, 3, 5.0), (2, 5, 30.0)):
        steps = 200_000
        total = 0.0
        beta = math.gamma(parts) / math.gamma(gaps) / math.gamma(parts - gaps)
        for step in range(steps):
            at = (step + 0.5) / steps
            total += beta * at ** (gaps - 1) * (1 - at) ** (parts - gaps - 1) * math.exp(-expected * at) / steps
        assert empty_gap(gaps, parts, expected) == pytest.approx(total, rel=1e-4)
    assert empty_gap(1, 3, 0.0) == 1
    assert empty_gap(1, 3, 501.0) == pytest.approx(empty_gap(1, 3, 499.0), rel=0.02)
