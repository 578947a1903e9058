"""The latency bound: every plan obeys the one in force, or it is said that none does."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from benchmarks.inev_networks import Example, random_network
from headwater.coordinator.inev.model.case_files import case_from, read_case
from headwater.coordinator.inev.model.latency import LatencyBound, latencies, latency
from headwater.coordinator.inev.model.latency_bounds import OFF, LatencyTerms
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.plan.plans import Plan, plan_from
from headwater.coordinator.inev.plan.well_formed import faults
from headwater.coordinator.inev.search.baselines import best_centre, central_solution, centralised
from headwater.coordinator.inev.search.search import Clock, Search
from headwater.coordinator.inev.search.space import Space
from headwater.deploy.cli.command import main
from headwater.deploy.network.file import NetworkFileError, read_network
from headwater.protocol.errors import ConfigError

CASES = Path(__file__).parent / "inev_cases"


def planned(made: Example, terms: LatencyTerms) -> Plan:
    """As a running network plans it."""
    plan = InevPlanner(replace(made.statistics, latency=terms), attempts=400).plan(made.ground(), {})
    assert plan is not None
    return plan


def within(problem: Problem, bound: LatencyBound) -> Plan:
    search = Search(problem, Clock(400, count().__next__), bound)
    return plan_from(search.space, search.run(), "inev")


@pytest.mark.parametrize("seed", range(1, 13))
@pytest.mark.parametrize("factor", [1.0, 0.01])
def test_plans_of_networks_obey_their_bound_and_looser_ones_cost_no_more(seed: int, factor: float) -> None:
    made = random_network(seed)
    free = planned(made, LatencyTerms(OFF, factor))
    centre = centralised(free.problem)
    space = Space(free.problem)
    gathered = space.cost(central_solution(space, best_centre(space)))
    slow = latency(free, factor)
    # A plan that is found under a tight bound is among those that a loose one allows; the search need not find it.
    for times in ("centr", "2x", "3x"):
        terms = LatencyTerms(times, factor)
        plan = planned(made, terms)
        limit = terms.limit(latency(centre, factor))
        assert limit is not None
        assert faults(plan) == []
        assert latency(plan, factor) <= limit * (1 + 1e-9)
        assert plan.cost <= gathered * (1 + 1e-9)
        if slow <= limit:
            assert plan.cost == pytest.approx(free.cost), "the cheapest plan is fast enough, so nothing is lost"


def test_networks_are_planned_with_a_bound_where_none_is_given() -> None:
    made = random_network(2)
    free, usual = planned(made, LatencyTerms(OFF)), planned(made, Statistics({}).latency)
    limit = 3 * latency(centralised(free.problem))
    assert latency(free) > limit >= latency(usual)
    assert free.cost < usual.cost


@pytest.mark.parametrize("seed", range(1, 9))
def test_where_nothing_is_fast_enough_the_fastest_plan_is_given(seed: int) -> None:
    problem = planned(random_network(seed), LatencyTerms(OFF)).problem
    plan = within(problem, LatencyBound(0.25))
    assert faults(plan) == []
    assert 0.25 < latency(plan) <= latency(centralised(problem))


def test_another_node_is_the_centre_where_the_cheapest_is_too_far() -> None:
    line = {
        "format": "inev-case-1",
        "nodes": [0, 1, 2, 3, 4],
        "edges": [[0, 1], [1, 2], [2, 3], [3, 4]],
        "event_types": {"A": {"local_rate": 9.0, "sources": [0]}, "B": {"local_rate": 1.0, "sources": [4]}},
        "queries": ["SEQ(A, B)"],
        "pairwise_selectivities": {},
    }
    problem = case_from(line, "line").problem
    assert latency(centralised(problem), 0.0) == 4
    plan = within(problem, LatencyBound(2.0, 0.0))
    assert (latency(plan, 0.0), plan.cost) == (2, 2 * 9 + 2 * 1)
    assert latency(within(problem, LatencyBound(3.0, 0.0)), 0.0) == 3


def test_delivery_to_the_sinks_takes_time() -> None:
    free = read_case(CASES / "c01.json").problem
    near, centre = centralised(free), centralised(free).finals[free.queries[0].name].nodes[0]
    far = max(range(free.network.topology.nodes), key=free.network.topology.hops(centre).__getitem__)
    with_sink = replace(near, problem=replace(free, sinks={free.queries[0].name: (centre,)}))
    assert latency(with_sink) == latency(near)
    search = Search(replace(free, sinks={free.queries[0].name: (far,)}), Clock(100, count().__next__), patient=False)
    plan = plan_from(search.space, search.run(), "inev")
    before = max(
        value
        for vertex, value in zip(plan.vertices, latencies(plan.vertices, plan.problem, 1.0), strict=True)
        if vertex.projection == plan.finals[free.queries[0].name].projection
    )
    delivered = plan.finals[free.queries[0].name].nodes != (far,)
    assert (latency(plan) > before) == delivered


@pytest.mark.parametrize("bound", ["soon", "0", "-1", "x", "0x", "nan", "inf", "infx", ""])
def test_a_bound_that_is_none_is_refused(bound: str) -> None:
    with pytest.raises(ConfigError, match="write off, centr"):
        LatencyTerms(bound)


# The command --------------------------------------------------------------------------------------------------------

NETWORK = """
events: {A: {key: int}, B: {key: int}, C: {key: int}}
nodes: [n1, n2, n3, n4, n5]
links: [{between: [n1, n2]}, {between: [n2, n3]}, {between: [n3, n4]}, {between: [n4, n5]}]
sources:
  - {node: n1, type: A, rate: 9/s, values: {key: 1}}
  - {node: n2, type: A, rate: 9/s, values: {key: 1}}
  - {node: n2, type: B, rate: 1/s, values: {key: 1}}
  - {node: n5, type: C, rate: 2/s, values: {key: 1}}
sinks: [{node: n5, subscribe: R}]
rules: ["R: SEQ(A a, B b, C c) WHERE SAME[key] WITHIN 1 s RETURN R()"]
statistics:
  selectivities: {R: {"a, b, c": 0.05}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "network.yaml"
    found.write_text(NETWORK)
    return found


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str]:
    """What a successful run prints, and what it says beside that."""
    with pytest.raises(SystemExit) as done:
        main(["plan", *map(str, arguments)])
    assert not done.value.code
    printed = capsys.readouterr()
    return printed.out, printed.err


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    return dict(json.loads(command(capsys, *arguments, "--json")[0]))


def test_a_network_file_states_bound_and_factor(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual = told(capsys, file)
    assert usual["latency_factor"] == 1
    assert usual["latency_bound"] == pytest.approx(3 * usual["centralized_latency"])
    assert usual["latency_bound_obeyed"] is True
    file.write_text(NETWORK + "  latency: {bound: centr, factor: 0.01}\n")
    stated = told(capsys, file)
    assert stated["latency_factor"] == 0.01
    assert stated["latency_bound"] == pytest.approx(stated["centralized_latency"])
    assert stated["latency"] <= stated["latency_bound"] * (1 + 1e-9)
    asked = told(capsys, file, "--latency-bound", "off", "--latency-factor", "2")
    assert (asked["latency_bound"], asked["latency_bound_obeyed"], asked["latency_factor"]) == (None, None, 2)
    assert asked["cost"] <= stated["cost"]


def test_case_files_are_planned_without_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, CASES / "c01.json")["latency_bound"] is None


def test_a_bound_that_nothing_obeys_is_told(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, said = command(capsys, file, "--latency-bound", "0.5")
    assert "bound 0.5, NOT obeyed" in words
    assert "no plan was found that obeys the latency bound of 0.5; this is the fastest" in said
    found = told(capsys, file, "--latency-bound", "0.5")
    assert found["latency_bound_obeyed"] is False
    assert any("raise the bound" in warning for warning in found["warnings"])


@pytest.mark.parametrize("planner", ["exact", "centr", "push-pull"])
def test_planners_that_do_not_look_at_latency_say_where_they_break_the_bound(
    file: Path, capsys: pytest.CaptureFixture[str], planner: str
) -> None:
    _, said = command(capsys, file, "--planner", planner, "--latency-bound", "0.5")
    assert "more than the latency bound of 0.5: only --planner inev looks for one below it" in said
    _, said = command(capsys, file, "--planner", planner, "--latency-bound", "1000")
    assert "latency" not in said


@pytest.mark.parametrize(
    ("latency", "sentence"),
    [
        ("{bound: soon}", "latency bound 'soon' is none"),
        ("{factor: -1}", "a latency factor of -1 has no meaning"),
        ("{factor: much}", "the factor 'much' is not a number"),
        ("{limit: 3x}", "latency has no key 'limit'"),
        ("3x", "latency must be a mapping"),
    ],
)
def test_a_section_that_makes_no_sense_is_refused_with_its_place(file: Path, latency: str, sentence: str) -> None:
    file.write_text(NETWORK + f"  latency: {latency}\n")
    with pytest.raises(NetworkFileError, match=r"network\.yaml:14") as refused:
        read_network(file)
    assert sentence in str(refused.value)
