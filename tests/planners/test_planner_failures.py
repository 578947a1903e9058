"""A planner that fails: everything goes on without it, what was asked for holds, and that is said and counted."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import headwater.coordinator.inev.plan.layouts
import headwater.coordinator.inev.search.planners
from headwater.coordinator.daemon.api.rule_texts import read_rules
from headwater.coordinator.daemon.inputs import Answered
from headwater.coordinator.daemon.journaled_machine import JournaledMachine
from headwater.coordinator.daemon.machine import Machine, Settings
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.inev.search.search import Search
from headwater.coordinator.layout.current_layout import Layings
from headwater.coordinator.layout.planner_interface import Ground, Routes
from headwater.coordinator.layout.stages import Layout, Stage, at_one_node
from headwater.coordinator.requests import AddSubscription, DeployRules, GiveUpNode, PlanAnew
from headwater.deploy.cli.command import app
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.protocol.composites import Composite
from headwater.protocol.edge import FileTo
from headwater.protocol.languages import Source
from headwater.protocol.network import Sink
from headwater.protocol.subscriptions import Subscription
from tests.coordinator.test_machine import Room
from tests.law.law import reference
from tests.law.rate_swap import AFTER, BEFORE, a_ring, a_swap, known

TRIO = Subscription("Trio")


def broken(*_: Any) -> Any:
    raise KeyError("a projection without a place")


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Lets every search fail."""
    monkeypatch.setattr(Search, "plan", broken)
    return monkeypatch


def a_room() -> Room:
    return Room(a_ring(), statistics=known(BEFORE)).start()


def another_rule(room: Room) -> DeployRules:
    """One whose composites a sink wants already."""
    text = "Pair: SEQ(A a, B b) WHERE a.key = b.key WITHIN 1 s RETURN Trio(key = a.key)"
    read = read_rules([Source(text, "t", "sase")], {}, room.machine.registry.types, "inev")
    return DeployRules(read.rules, read.types)


def ask(room: Room, what: Any) -> Answered:
    answer = room.ask(what, f"r{len(room.answers)}")
    assert answer is not None
    return answer


def test_a_network_starts_without_its_planner(fails: pytest.MonkeyPatch) -> None:
    room = a_room()
    layings = room.machine.coordinator.layings
    assert room.machine.begun
    assert room.machine.counts["planner_failures"] == 1
    (note,) = [note for note in room.notes if "planner" in note]
    assert note == layings.failure
    assert "KeyError in test_planner_failures.py, line" in note
    assert "Trio is evaluated at" in note
    assert all(len(stages) == 1 for stages in layings.as_run.values())
    ask(room, AddSubscription(Sink("n4", TRIO), FileTo("f")))
    assert "internal_errors" not in room.journaled.counts


def test_a_rule_is_deployed_although_the_planner_fails_and_all_else_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = a_room()
    before = dict(room.machine.coordinator.layings.as_run)
    assert room.machine.coordinator.layings.failure is None
    monkeypatch.setattr(Search, "plan", broken)
    answer = ask(room, another_rule(room))
    assert answer.status == 200
    assert answer.body["rules"] == ["Pair"]
    assert "Pair is evaluated at" in answer.body["warnings"][0]
    assert {name: each for name, each in room.machine.coordinator.layings.as_run.items() if name != "Pair"} == before
    assert len(room.machine.coordinator.layings.as_run["Pair"]) == 1
    assert "Pair" in room.machine.coordinator.rules
    assert room.machine.counts["planner_failures"] == 1
    monkeypatch.undo()
    assert ask(room, PlanAnew(InevPlanner(known(BEFORE)))).status == 200
    assert room.machine.coordinator.layings.failure is None, "the next plan that is found takes its place"


def test_a_client_that_asks_for_a_change_is_told_that_the_planner_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    room = a_room()
    before = dict(room.machine.coordinator.layings.as_run)
    planned_for = room.machine.planned_for
    monkeypatch.setattr(Search, "plan", broken)
    answer = ask(room, PlanAnew(InevPlanner(known(AFTER))))
    assert answer.status == 200
    (warning,) = answer.body["warnings"]
    assert "what was laid out before stays as it is" in warning
    assert room.machine.coordinator.layings.as_run == before
    assert room.machine.planned_for == planned_for, "so it will be tried again when rates are looked at"
    assert room.machine.history[-1].refused is None


def test_a_lost_node_is_dealt_with_although_the_planner_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    room = a_room()
    monkeypatch.setattr(Search, "plan", broken)
    assert ask(room, GiveUpNode("n2")).status == 200
    room.settle()
    assert room.machine.counts["planner_failures"] == 1
    assert ask(room, AddSubscription(Sink("n4", TRIO), FileTo("f"))).status == 200


def test_a_coordinator_that_repeats_its_journal_fails_and_goes_on_in_the_same_way(fails: pytest.MonkeyPatch) -> None:
    room = a_room()
    ask(room, another_rule(room))
    again = JournaledMachine(Machine(room.setup, Settings(10_000_000)))
    for record in room.journal:
        again.replay(record)
    assert again.machine.coordinator.layings.as_run == room.machine.coordinator.layings.as_run
    assert again.machine.counts == room.machine.counts
    kept = JournaledMachine.restored(room.journaled.save()).machine.coordinator.layings
    assert kept.failure == room.machine.coordinator.layings.failure is not None


def test_a_layout_that_cannot_be_laid_is_a_failure_of_the_planner_too() -> None:
    network = a_ring()
    room = a_room()
    ground: list[Ground] = []

    def lay_out(given: Ground, kept: Layout) -> tuple[Layout, Routes]:
        ground.append(given)
        rule = given.rules[0].rule
        whole = at_one_node(rule, "nowhere")[0]
        return {rule.name: (Stage(whole.roles, ("nowhere",), events=whole.roles),)}, broken

    layings = Layings(lay_out, watches=True)
    coordinator_ = room.machine.coordinator
    graphs = layings.laid(coordinator_._ground(coordinator_.trees.roots[0], None), "n1", 1, 1)
    assert graphs.keys() == set(network.nodes)
    assert layings.take_failures() == [layings.failure]
    assert layings.laid(ground[0], "n1", 2, 2).keys() == set(network.nodes), "what is kept can be laid again"


def composites(outcome: Outcome, sink: int) -> list[str]:
    items = [delivery.item for delivery in outcome.delivered if delivery.sink == sink]
    return sorted(item.id for item in items if isinstance(item, Composite))


def test_no_match_is_lost_by_a_planner_that_fails_while_the_network_runs() -> None:
    case = a_swap(20.0)

    class Failing(headwater.coordinator.inev.plan.layouts.InevPlanner):
        def __call__(self, ground: Ground, kept: Layout) -> tuple[Layout, Routes]:
            if kept:
                raise ZeroDivisionError("half of nothing")
            return super().__call__(ground, kept)

    sink = AddSubscription(Sink("n4", TRIO))
    outcome = simulate(
        case.network, case.births, lay_out=Failing(known(BEFORE)), changes=[(8_000_000, sink)], check=True
    )
    assert outcome.planner_failures
    assert composites(outcome, 0) == composites(reference(case), 0)


NETWORK = """
events: {A: {k: int}, B: {k: int}, C: {k: int}}
nodes: [n1, n2, n3]
links: [{between: [n1, n2]}, {between: [n2, n3]}]
sources:
  - {node: n1, type: A, rate: 2/s, values: {k: {uniform: [0, 3]}}}
  - {node: n2, type: B, rate: 2/s, values: {k: {uniform: [0, 3]}}}
  - {node: n3, type: C, rate: 2/s, values: {k: {uniform: [0, 3]}}}
sinks: [{node: n1, subscribe: R()}]
rules: ["R: SEQ(A a, B b, C c) WHERE SAME[k] WITHIN 1 s RETURN R()"]
strategy: inev
"""


def test_the_command_plans_centralised_evaluation_if_its_planner_fails(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK)
    monkeypatch.setattr(headwater.coordinator.inev.search.planners, "inev_plan", broken)
    done = CliRunner().invoke(app, ["plan", str(file)])
    assert done.exit_code == 0, done.output
    assert "the planner inev failed (a bug: KeyError in test_planner_failures.py, line" in done.output
    assert "this is centralised evaluation" in done.output
    assert "Traceback" not in done.output


def test_the_command_simulates_without_a_planner_and_says_so(tmp_path: Any, fails: pytest.MonkeyPatch) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK)
    done = CliRunner().invoke(app, ["simulate", str(file), "--duration", "5s"])
    assert done.exit_code == 0, done.output
    assert "warning: the planner failed" in done.output
