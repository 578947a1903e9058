"""What planned networks send agrees with the physical cost model, on traces drawn from it."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import product
from statistics import fmean

import pytest

from benchmarks.inev_measured import compare
from benchmarks.inev_networks import random_network
from headwater.coordinator.inev.model.patterns import order, parse
from headwater.coordinator.inev.model.physical_costs import PhysicalCosts
from headwater.coordinator.inev.model.problem import EventNetwork, Query, event_network
from headwater.coordinator.inev.model.rules import Statistics, problem_from
from headwater.coordinator.inev.model.sampling import MatchShape, drawn, share_of
from headwater.protocol.events import EventType
from headwater.protocol.languages import Language, parse_rules
from headwater.protocol.languages import Source as Text

WINDOW_S = 2.0
SECONDS = 4_000.0
RATES = {"A": 1.5, "B": 0.25, "C": 0.4}
PASSING = 0.3
ERRORS = 4.0
"""Standard errors by which a measured figure may be off: of six traces, one in a hundred is off by more by chance."""


@pytest.mark.parametrize(("seed", "shape"), [(24, "negation"), (11, "repetition"), (12, "equal"), (11, "chain")])
def test_what_a_plan_sends_is_what_the_model_says(seed: int, shape: str) -> None:
    found = compare(random_network(seed, [shape]), traces=6, seconds=60.0)
    assert found.modelled["matches"] > 0, "a plan that sends nothing but events says little"
    assert {kind: off for kind, off in found.deviations().items() if abs(off) > ERRORS} == {}
    assert [run.delivered for run in found.measured] == [run.delivered for run in found.centre_measured]


def test_an_event_that_several_streams_carry_crosses_a_link_once() -> None:
    found = compare(random_network(10, ["seq4"]), traces=2, seconds=60.0, centre=False)
    for run in found.measured:
        assert run.references > 0
        assert run.bodies + run.references <= sum(run.sent.values())


# Estimates against all combinations of a drawn trace -----------------------------------------------------------------


class Drawn:
    """Events of a few types, and whether pairs of A and B pass a condition."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.times: dict[str, list[float]] = {}
        for type, rate in RATES.items():
            now, times = 0.0, []
            while (now := now + draw.expovariate(rate)) < SECONDS:
                times.append(now)
            self.times[type] = times
        self._draw = draw
        self._passed: dict[tuple[float, float], bool] = {}
        self.first_half = {at for at in self.times["A"] if draw.random() < 0.5}

    def near(self, type: str, at: float) -> list[float]:
        times = self.times[type]
        return times[bisect_left(times, at - WINDOW_S) : bisect_right(times, at + WINDOW_S)]

    def passes(self, a: float, b: float) -> bool:
        if (a, b) not in self._passed:
            self._passed[a, b] = self._draw.random() < PASSING
        return self._passed[a, b]

    def matches(self, text: str) -> Iterator[dict[str, float]]:
        before = order(parse(text))
        for b in self.times["B"]:
            for a, c in product(self.near("A", b), self.near("C", b)):
                at = {"A": a, "B": b, "C": c}
                ordered = all(at[one] < at[other] for one, other in before)
                if ordered and max(at.values()) - min(at.values()) <= WINDOW_S and self.passes(a, b):
                    yield at


def network() -> EventNetwork:
    return event_network(["x", "y"], [("x", "y")], {type: {"x": rate} for type, rate in RATES.items()})


@pytest.mark.parametrize("text", ["SEQ(A, B, C)", "AND(A, B, C)", "SEQ(AND(A, B), C)"])
def test_the_share_of_events_in_matches_of_three_types_is_drawn(text: str) -> None:
    query = Query("q", parse(text), {frozenset("AB"): PASSING}, WINDOW_S)
    costs = PhysicalCosts(network(), queries=(query,))
    projection = query.projection(frozenset("ABC"))
    found: dict[str, list[float]] = {type: [] for type in "ABC"}
    halves: dict[str, list[float]] = {type: [] for type in "BC"}
    for seed in range(4):
        trace = Drawn(seed)
        matches = list(trace.matches(text))
        for type in "ABC":
            found[type].append(len({match[type] for match in matches}) / len(trace.times[type]))
        for type in "BC":
            inside = {match[type] for match in matches if match["A"] in trace.first_half}
            halves[type].append(len(inside) / len(trace.times[type]))
    for type in "ABC":
        refined, quick = costs.refined().selected(type, projection), costs.selected(type, projection)
        assert fmean(found[type]) == pytest.approx(refined, rel=0.08)
        assert refined <= quick * 1.03, "what is estimated while plans are searched is never too little"
    for type in "BC":
        assert fmean(halves[type]) == pytest.approx(costs.refined().share(type, projection, "A", 0.5), rel=0.08)


def test_counting_and_looking_for_matches_agree() -> None:
    shape = MatchShape(RATES, frozenset({("A", "B"), ("B", "C"), ("A", "C")}), {frozenset("AB"): PASSING}, WINDOW_S)
    query = Query("q", parse("SEQ(A, B, C)"), {frozenset("AB"): PASSING}, WINDOW_S)
    mean = PhysicalCosts(network()).rate(query.projection(frozenset("ABC"))) / RATES["B"]
    counted = share_of(drawn(shape, "B", "A", mean, 4000), 0.5)
    searched = share_of(drawn(shape, "B", "A", 1e9, 20_000), 0.5)
    assert counted == pytest.approx(searched, rel=0.08)


def test_an_event_that_agrees_with_two_makes_these_agree() -> None:
    """With ten values a B that agrees with an A and a C does so more often where both ask for the same value."""
    before = frozenset({("A", "B"), ("B", "C"), ("A", "C")})
    pairs = [frozenset("AB"), frozenset("BC"), frozenset("AC")]
    alike = MatchShape(RATES, before, {}, WINDOW_S, alike=dict.fromkeys(pairs, ("", 10)))
    alone = MatchShape(RATES, before, dict.fromkeys(pairs, 0.1), WINDOW_S)
    assert share_of(drawn(alike, "B", "A", 1e9, 20_000)) > 3 * share_of(drawn(alone, "B", "A", 1e9, 20_000))


# Rules ---------------------------------------------------------------------------------------------------------------

TYPES = tuple(EventType(name, {"v": "int"}) for name in RATES)


def costs_of(
    text: str, language: Language, shares: dict[frozenset[str], float] | None = None
) -> tuple[PhysicalCosts, Query]:
    (rule,) = parse_rules([Text(text, f"r.{language}", language)], TYPES).rules
    statistics = Statistics({}, {rule.name: shares or {}})
    problem = problem_from([rule], ("x", "y"), network(), statistics, {})
    assert isinstance(problem.costs, PhysicalCosts)
    return problem.costs, problem.queries[0]


def test_composites_of_a_repetition_are_counted_as_sets() -> None:
    costs, query = costs_of("SEQ(A a, B+ b[], C c) WITHIN 2 s RETURN R()", "sase")
    found = []
    for seed in range(4):
        trace = Drawn(seed)
        count = 0
        for c in trace.times["C"]:
            for a in trace.near("A", c):
                if a < c and c - a <= WINDOW_S:
                    count += 2 ** sum(a < b < c for b in trace.near("B", c)) - 1
        found.append(count / SECONDS)
    assert fmean(found) == pytest.approx(costs.delivered(query), rel=0.08)


@pytest.mark.parametrize("text", ["SEQ(B+ b[], C c)", "AND(B+ b[], C c)"])
def test_a_repetition_at_an_end_reaches_as_far_as_the_window(text: str) -> None:
    costs, query = costs_of(f"{text} WITHIN 2 s RETURN R()", "sase")
    found = []
    for seed in range(4):
        trace = Drawn(seed)
        count = 0
        for c in trace.times["C"]:
            near = [b for b in trace.near("B", c) if b < c or "AND" in text]
            for chosen in range(1, 1 << len(near)):
                some = [b for at, b in enumerate(near) if chosen >> at & 1]
                count += max(*some, c) - min(*some, c) <= WINDOW_S
        found.append(count / SECONDS)
    assert fmean(found) == pytest.approx(costs.delivered(query), rel=0.08)


def test_a_chain_has_a_window_for_each_step() -> None:
    text = "define R() from C() and each B() within 2 s from C and each A() within 1 s from B"
    costs, query = costs_of(text, "tesla")
    assert costs.delivered(query) == pytest.approx(RATES["A"] * RATES["B"] * RATES["C"] * 2.0 * 1.0)
    both_ends = query.projection(frozenset("AC"))
    assert costs.rate(both_ends) == pytest.approx(RATES["A"] * RATES["C"] * 3.0), "windows add up"


def test_negations_are_decided_with_all_that_a_rule_reads() -> None:
    _, query = costs_of("SEQ(A a, !B b, C c) WITHIN 2 s RETURN R()", "sase")
    assert query.subsets() == [frozenset("AC"), frozenset("ABC")]


def test_conditions_over_one_value_hang_together() -> None:
    shares = {frozenset("ab"): 0.1, frozenset("bc"): 0.1}
    _, query = costs_of(
        "SEQ(A a, B b, C c) WHERE a.v = b.v AND b.v = c.v AND a.v < c.v WITHIN 2 s RETURN R()", "sase", shares
    )
    assert {labels: share for labels, (_, share) in query.alike.items()} == {frozenset("AB"): 0.1, frozenset("BC"): 0.1}
    assert len({name for name, _ in query.alike.values()}) == 1
    assert query.apart == {frozenset("AC"): 0.1}, "the default, of which a warning tells"
