"""A planned network moves to another plan while it runs: nothing is lost and nothing repeated."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.coordinator.daemon.replanning import measured, moved
from headwater.coordinator.inev.model.rules import Statistics
from headwater.deploy.network.file import read_network
from headwater.deploy.network.yaml_file import NetworkFileError
from headwater.protocol.messages.control import COORDINATOR, encode_statistics
from tests.kit.faults import a_load, finish, some_time, under_load
from tests.kit.live_coordinator import a_live_network
from tests.kit.scripted_nodes import a_network


def test_real_nodes_move_to_new_plans_under_load(tmp_path: Path) -> None:
    case = a_load(500)
    chance = random.Random(7)
    with under_load(case, "inev", tmp_path, seconds=5.0) as cluster:
        for number in range(3):
            some_time(chance, 0.6)
            cluster.insist("POST", "/plans", {}, key=f"plan {number}")
        cluster.kill("n2", COORDINATOR)
        cluster.restart("n2", COORDINATOR)
        finish(cluster, case)


def test_only_planned_networks_can_be_planned_anew(tmp_path: Path) -> None:
    case = a_load(100)
    with under_load(case, "st", tmp_path) as cluster:
        status, answer = cluster.ask_coordinator("POST", "/plans", {})
        assert (status, "only inev can plan again" in answer["error"]) == (409, True)
        finish(cluster, case)


def test_rates_have_moved_when_they_are_twice_or_half_of_what_was_planned_for() -> None:
    planned = Statistics({"A": {"n1": 4.0, "n2": 4.0}, "B": {"": 0.01}})
    assert moved(planned, Statistics({"A": {"n1": 7.9, "n2": 2.1}, "B": {"n1": 0.15}})) == []
    (sentence,) = moved(planned, Statistics({"A": {"n1": 8.1, "n2": 4.0}}))
    assert sentence == "A at n1 occurs 8.1 times per second, planned for 4"
    assert len(moved(planned, Statistics({"A": {"n1": 1.9}, "B": {"n1": 0.3}}))) == 2
    assert len(moved(planned, Statistics({"C": {"n1": 3.0}}))) == 1, "no rate was given, so one was assumed"


def test_what_was_not_measured_stays_as_it_was_given() -> None:
    given = Statistics({"A": {"n1": 4.0}}, {"R": {frozenset("ab"): 0.5}})
    assert measured(given, {"A": {"n1": 0.0, "n2": 2.0}}) == Statistics(
        {"A": {"n1": 4.0, "n2": 2.0}}, given.selectivities
    )


def test_the_coordinator_plans_anew_by_itself_when_rates_have_moved(tmp_path: Path) -> None:
    async def scenario() -> None:
        network = replace(a_network(), strategy="inev")
        async with a_live_network(tmp_path, network, replan_us=100_000) as (coordinator, nodes):
            before = (await coordinator.get("/plans"))["plan"]
            for born in (0, 100_000):
                told = {"since_us": 1, "events": [{"type": "Temp", "born": born}]}
                nodes["n1"].hub.whisper(COORDINATOR, encode_statistics(told))
                await asyncio.sleep(0.3)
            while (plans := await coordinator.get("/plans"))["plan"] == before:
                await asyncio.sleep(0.02)
            assert [each["what"] for each in plans["changes"]][:1] == ["plan anew"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("written", "sentence"),
    [("replan: 1s", "write at least 5s"), ("replan: often", "replan"), ("replan: 1 min", "has no plan")],
)
def test_the_network_file_says_how_often_to_look(written: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(
        f"events: {{A: {{v: int}}}}\nnodes: [n1]\nlinks: []\nsources: []\nsinks: []\nrules: []\n{written}\n"
    )
    try:
        found = "\n".join(map(str, read_network(file).warnings))
    except NetworkFileError as error:
        found = str(error)
    assert sentence in found
