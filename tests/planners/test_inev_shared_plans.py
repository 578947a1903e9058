"""Queries that share what travels: whatever operators they have, every planner's plan is right for each of them.

A projection that one query may split over many nodes is not always one that another may read: a repeated or negated
type must be seen whole by the query that repeats or negates it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from headwater.coordinator.inev.model.case_files import case_from
from headwater.coordinator.inev.model.patterns import Operator, Pattern
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import centralised
from headwater.coordinator.inev.search.exact import exact_plan
from headwater.coordinator.inev.search.paper import paper_plan
from headwater.coordinator.inev.search.push_pull import push_pull_plan
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.deploy.experiments.inev.figures import FIGURES
from headwater.deploy.experiments.inev.generator import build
from headwater.deploy.experiments.inev.random_networks import query, ring, singles, sources, zipf

ATTEMPTS = 60


def searched(problem: Problem, attempts: int = ATTEMPTS, seed: int = 0) -> Plan:
    """The planner's plan after so many looks at its clock, so that a machine's speed does not matter."""
    search = Search(problem, Clock(attempts, count().__next__), seed=seed)
    return plan_from(search.space, search.run(), "inev")


def with_repetition(pattern: Pattern, chosen: str) -> Pattern:
    if isinstance(pattern, str):
        return Operator("KL", (pattern,)) if pattern == chosen else pattern
    return Operator(pattern.kind, tuple(with_repetition(part, chosen) for part in pattern.parts))


def workload(seed: int, *, nodes: int, types: int, queries: int, longest: int) -> dict[str, Any]:
    """A case of few types, so that queries have many projections in common; a third repeat, a third negate."""
    draw = random.Random(f"shared/{seed}")
    names = [chr(ord("A") + at) for at in range(types)]
    texts: list[str] = []
    while len(texts) < queries:
        chosen = draw.sample(names, draw.randint(2, longest))
        operator = draw.choice(("plain", "repeats", "negates"))
        if operator == "negates" and len(chosen) == 3:
            pattern: Pattern = Operator("NSEQ", tuple(chosen))
        else:
            pattern = query(draw, chosen, operator == "negates")
        if operator == "repeats":
            pattern = with_repetition(pattern, draw.choice(chosen))
        # Twice the same text is one query; the same pattern with and without a repetition are two.
        if str(pattern) not in texts:
            texts.append(str(pattern))
    pairs = {
        one + other: 1.0 if draw.random() < 0.4 else draw.uniform(0.001, 0.2)
        for at, one in enumerate(names)
        for other in names[at + 1 :]
    }
    return {
        "format": "inev-case-1",
        "nodes": list(range(nodes)),
        "edges": [list(link) for link in ring(draw, nodes, draw.choice((2, 2, 4)))],
        "event_types": {
            name: {"local_rate": float(zipf(draw, 1.4)), "sources": sources(draw, nodes, 0.5)} for name in names
        },
        "queries": texts,
        "pairwise_selectivities": pairs,
        "single_selectivities": singles(draw, texts, pairs),
    }


def test_a_query_that_repeats_a_type_reads_nothing_that_is_split_by_it() -> None:
    scenario = replace(FIGURES["8b"].lines["20 queries"][2.0], attempts=50)
    assert faults(searched(build(scenario, 1), 50)) == []


@pytest.mark.parametrize("seed", range(60))
def test_plans_of_queries_with_parts_in_common_are_right_for_each_of_them(seed: int) -> None:
    given = workload(seed, nodes=6 + seed % 5, types=5, queries=2 + seed % 5, longest=5)
    problem = case_from(given, "shared").problem
    centre = centralised(problem)
    assert faults(centre) == []
    for plan in (searched(problem, seed=seed), push_pull_plan(problem), paper_plan(problem)):
        assert faults(plan) == [], plan.planner
        assert plan.cost <= centre.cost * (1 + 1e-9), plan.planner


@pytest.mark.parametrize("seed", range(12))
def test_exact_plans_of_two_such_queries_are_right_and_cheapest(seed: int) -> None:
    given = workload(1000 + seed, nodes=4, types=4, queries=2, longest=3)
    problem = case_from(given, "shared").problem
    exact = exact_plan(problem)
    assert faults(exact) == []
    assert exact.cost <= searched(problem).cost * (1 + 1e-9)
