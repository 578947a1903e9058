"""Generates a planning problem from a scenario and a seed. The same scenario and seed give the same problem.

Every aspect (links, rates, sources, queries, selectivities) draws from a random stream of its own, so that scenarios
that differ in one aspect agree in the others: with more queries the fewer are among the more, and with another skew
the types that are frequent stay the frequent ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from headwater.coordinator.inev.model.case_files import case_from
from headwater.coordinator.inev.model.patterns import Operator, Pattern
from headwater.coordinator.inev.model.problem import Problem
from headwater.deploy.experiments.inev.random_networks import nested, ring, singles, sources, zipf
from headwater.deploy.experiments.inev.scenario import PlanScenario


def build(scenario: PlanScenario, seed: int, rates: dict[str, dict[str, float]] | None = None) -> Problem:
    """The problem of a scenario; with ``rates`` (by type and node) others than it would draw."""
    case = draw_case(scenario, seed)
    problem = case_from(case, f"seed {seed}").problem
    return problem if rates is None else with_rates(case, rates)


def with_rates(case: dict[str, Any], rates: dict[str, dict[str, float]]) -> Problem:
    """The problem of a case if its events came at other rates than it says."""
    from headwater.coordinator.inev.model.case_costs import CaseCosts
    from headwater.coordinator.inev.model.problem import event_network

    planned = case_from(case, "other rates").problem
    links = [(str(first), str(other)) for first, other in case["edges"]]
    network = event_network([str(node) for node in case["nodes"]], links, rates)
    costs = planned.costs
    assert isinstance(costs, CaseCosts)
    return Problem(network, planned.queries, CaseCosts(network, costs.single))


def draw_case(scenario: PlanScenario, seed: int) -> dict[str, Any]:
    """A case in the format of the case files."""
    names = [chr(ord("A") + at) for at in range(scenario.types)]
    rates = _rates(names, scenario, seed)
    queries = [str(pattern) for pattern in _workload(names, rates, scenario, seed)]
    low, high = scenario.selectivity / 10, scenario.selectivity
    pairs = {}
    for at, first in enumerate(names):
        for other in names[at + 1 :]:
            draw = _stream(seed, "pair", first, other)
            pairs[first + other] = 1.0 if draw.random() < 0.5 else draw.uniform(low, high)
    return {
        "format": "inev-case-1",
        "case": f"seed {seed}",
        "nodes": list(range(scenario.nodes)),
        "edges": [list(link) for link in ring(_stream(seed, "links"), scenario.nodes, scenario.degree)],
        "event_types": {
            name: {
                "local_rate": rates[name],
                "sources": sources(_stream(seed, "sources", name), scenario.nodes, scenario.ratio),
            }
            for name in names
        },
        "queries": queries,
        "pairwise_selectivities": pairs,
        "single_selectivities": singles(_stream(seed, "singles"), queries, pairs),
    }


def _stream(seed: int, *aspect: object) -> Random:
    return Random("/".join(map(str, (seed, *aspect))))


def _rates(names: list[str], scenario: PlanScenario, seed: int) -> dict[str, float]:
    rates = {name: float(zipf(_stream(seed, "rate", name), scenario.skew)) for name in names}
    if scenario.at_most_once:
        most = max(rates.values()) * scenario.nodes
        rates = {name: rate / most for name, rate in rates.items()}
    return rates


def _workload(names: list[str], rates: dict[str, float], scenario: PlanScenario, seed: int) -> list[Pattern]:
    """Different queries; of a workload with both operators every third has one, Kleene and negation in turn."""
    patterns: list[Pattern] = []
    number = 0
    while len(patterns) < scenario.queries:
        draw = _stream(seed, "query", number)
        length = scenario.length or draw.randint(min(3, scenario.types), min(6, scenario.types))
        types = draw.sample(names, length)
        special = scenario.special
        if special == "third":
            special = (("kleene", "negation")[number // 3 % 2]) if number % 3 == 0 and length > 3 else ""
        number += 1
        pattern = _query(draw, types, rates, special, scenario)
        if pattern not in patterns:
            patterns.append(pattern)
    return patterns


def _query(draw: Random, types: list[str], rates: dict[str, float], special: str, scenario: PlanScenario) -> Pattern:
    if not special or len(types) < 3:
        return nested(draw, types)
    by_rate = sorted(types, key=lambda name: (rates[name], name))
    chosen = by_rate[-1 if scenario.special_most else 0]
    if special == "kleene":
        pattern = nested(draw, types)
        return pattern if scenario.plain else _repeated(pattern, chosen)
    first, last, *unguarded = [name for name in types if name != chosen]
    guarded = Operator("SEQ" if scenario.plain else "NSEQ", (first, chosen, last))
    return Operator("AND", (guarded, nested(draw, unguarded))) if unguarded else guarded


def _repeated(pattern: Pattern, chosen: str) -> Pattern:
    if isinstance(pattern, str):
        return Operator("KL", (pattern,)) if pattern == chosen else pattern
    return Operator(pattern.kind, tuple(_repeated(part, chosen) for part in pattern.parts))
