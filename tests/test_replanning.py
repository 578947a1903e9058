"""A planned network moves to another plan while it runs: nothing is lost and nothing repeated."""

from __future__ import annotations

import random
from pathlib import Path

from tests.fault_kit import a_load, finish, some_time, under_load
from tests.processes import COORDINATOR


def test_real_nodes_move_to_new_plans_under_load(tmp_path: Path) -> None:
    case = a_load(500)
    chance = random.Random(7)
    with under_load(case, "inev", tmp_path, seconds=5.0) as cluster:
        for _ in range(3):
            some_time(chance, 0.6)
            status, answer = cluster.ask_coordinator("POST", "/plans", {})
            assert status == 200, answer
        cluster.kill("n2", COORDINATOR)
        cluster.restart("n2", COORDINATOR)
        finish(cluster, case)


def test_only_planned_networks_can_be_planned_anew(tmp_path: Path) -> None:
    case = a_load(100)
    with under_load(case, "st", tmp_path) as cluster:
        status, answer = cluster.ask_coordinator("POST", "/plans", {})
        assert (status, "only inev can plan anew" in answer["error"]) == (409, True)
        finish(cluster, case)
