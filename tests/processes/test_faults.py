"""Processes are killed, stopped, paused and restarted under load; every sink still gets everything, each once.

What must arrive is what a single engine finds over all events. Sinks are files, which take each delivery once, so the
lines of a file are compared one by one. ``scripts/soak`` does the same for longer.
"""

from __future__ import annotations

import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.node.engine import Engine
from headwater.protocol.languages import Source, parse_rules
from tests.kit.faults import a_load, finish, names, some_time, under_load
from tests.kit.processes import COORDINATOR, identity, lines_of
from tests.law.law import SERVED

SILENCE_S = 2.0  # a link that hears nothing for so long is down
LATE_RECORDS = 10
DISTRIBUTED = ("st", "mt-pp", "inev")
"""One strategy with one tree and one with many, for what does not depend much on which."""


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", SERVED)
def test_nodes_are_killed_one_by_one_and_several_at_once(strategy: str, tmp_path: Path) -> None:
    case = a_load()
    chance = random.Random(f"kills {strategy}")
    with under_load(case, strategy, tmp_path) as cluster:
        for number in (1, 1, 2, 3):
            victims = chance.sample(case.network.nodes, number)
            cluster.kill(*victims)
            some_time(chance, 0.4)
            cluster.restart(*victims)
            some_time(chance, 0.4)
        finish(cluster, case)
        assert cluster.kills == 7


def test_nodes_are_killed_while_they_save_snapshots(tmp_path: Path) -> None:
    """Journals are kept so short that snapshots are taken all the time."""
    case = a_load()
    chance = random.Random("snapshots")
    with under_load(case, "mt-pp", tmp_path, snapshot_bytes=5_000) as cluster:
        for _ in range(6):
            victims = chance.sample(names(case.network), 2)
            cluster.kill(*victims)
            cluster.restart(*victims)
            some_time(chance, 0.5)
        finish(cluster, case)
        assert all(any((cluster.data(node) / "journal").glob("snapshot-*.bin")) for node in case.network.nodes)


def test_a_node_that_stays_away_for_long_is_waited_for(tmp_path: Path) -> None:
    """The only way between sources and sinks is gone for longer than it takes to be noticed."""
    case = a_load(200)
    with under_load(case, "st", tmp_path) as cluster:
        cluster.kill("n2")
        seen = len(cluster.said("n1"))
        time.sleep(SILENCE_S + 0.5)
        assert "the link to n2 is down" in cluster.said("n1")[seen:]
        assert "the link to n2 is down" in cluster.ask("n1", "/ready")["missing"]
        cluster.restart("n2")
        finish(cluster, case)


@pytest.mark.parametrize("strategy", DISTRIBUTED)
def test_nodes_are_killed_as_soon_as_they_start_and_while_trees_are_built(strategy: str, tmp_path: Path) -> None:
    case = a_load(100)
    chance = random.Random(f"early kills {strategy}")
    with under_load(case, strategy, tmp_path, started=False) as cluster:
        for _ in range(8):
            some_time(chance, 0.25)
            victims = chance.sample(names(case.network), chance.randint(1, 3))
            cluster.kill(*victims)
            cluster.restart(*victims)
        finish(cluster, case)


@pytest.mark.parametrize("strategy", ["centr", *DISTRIBUTED])
def test_everything_is_killed_at_once_and_started_again(strategy: str, tmp_path: Path) -> None:
    case = a_load()
    processes = names(case.network)
    with under_load(case, strategy, tmp_path) as cluster:
        for _ in range(2):
            cluster.kill(*processes)
            cluster.restart(*processes)
            time.sleep(0.7)
        finish(cluster, case)


def test_with_durability_async_nothing_is_lost_with_a_process(tmp_path: Path) -> None:
    """What was written but not synced is with the system, which outlives the process."""
    case = a_load(200)
    with under_load(case, "mt", tmp_path, durability="async") as cluster:
        for victim in ("n2", "n3"):
            cluster.kill(victim)
            cluster.restart(victim)
            time.sleep(0.3)
        finish(cluster, case)


# -- the coordinator ---------------------------------------------------------------------------------------------------


def test_the_network_detects_while_the_coordinator_is_away_and_nodes_restart_without_it(tmp_path: Path) -> None:
    case = a_load()
    with under_load(case, "mt-pp", tmp_path) as cluster:
        cluster.kill(COORDINATOR)
        cluster.wait_for_more(10)
        cluster.kill("n2", "n5")
        cluster.restart("n2", "n5")
        cluster.wait_for_more(20)
        cluster.restart(COORDINATOR)
        finish(cluster, case)


PAIR = "define Pair(v: int) from B() and last A() within 20 ms from B where v = A.v"


@pytest.mark.parametrize("strategy", DISTRIBUTED)
def test_the_coordinator_is_killed_while_rules_change(strategy: str, tmp_path: Path) -> None:
    """A rule and a sink come and go under load; the client asks again with the same key until there is an answer."""
    case = a_load(500)
    chance = random.Random(f"changes {strategy}")
    with under_load(case, strategy, tmp_path, seconds=5.0) as cluster:
        answers: dict[str, Any] = {}

        def change() -> None:
            to = {"file": "pairs.jsonl"}
            sink = {"node": "n5", "subscribe": "Pair", "to": to}
            answers["deploy"] = cluster.insist("POST", "/rules", {"text": PAIR}, key="deploy")
            answers["subscribe"] = cluster.insist("POST", "/subscriptions", sink, key="subscribe")
            answers["undeploy"] = cluster.insist("DELETE", "/rules/Pair", key="undeploy")

        changing = threading.Thread(target=change)
        changing.start()
        while changing.is_alive():
            some_time(chance, 0.4)
            cluster.kill(COORDINATOR)
            if chance.random() < 0.3:
                cluster.kill("n2")
                cluster.restart(COORDINATOR, "n2")
            else:
                cluster.restart(COORDINATOR)
            changing.join(0.5)  # let it get somewhere
        finish(cluster, case)
        since, heard, until = (answers[each]["holds_from_us"] for each in ("deploy", "subscribe", "undeploy"))
        assert since <= heard <= until
        engine = Engine(parse_rules([Source(PAIR, "pair", "tesla")], case.network.types).rules, case.network.types)
        found = engine.feed(sorted(event for _, _, event in case.births if event.ts >= since)) + engine.close()
        must = sorted(match.id for match in found if heard <= match.ts < until)
        assert sorted(identity(line) for line in lines_of(cluster.data("n5") / "pairs.jsonl")) == must


# -- paused, told to leave ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["n2", "n3", COORDINATOR])
def test_a_process_is_paused_for_longer_than_silence_is_borne(victim: str, tmp_path: Path) -> None:
    case = a_load(300)
    with under_load(case, "mt", tmp_path) as cluster:
        cluster.pause(victim)
        time.sleep(SILENCE_S + 1.5)
        assert any(f"the link to {victim} is down" in cluster.said(name) for name in ("n1", "n2"))
        cluster.go_on(victim)
        finish(cluster, case)


@pytest.mark.parametrize("strategy", DISTRIBUTED)
def test_nodes_that_are_told_to_leave_need_hardly_any_replay_when_they_are_back(strategy: str, tmp_path: Path) -> None:
    case = a_load()
    with under_load(case, strategy, tmp_path) as cluster:
        for victims in (("n3",), ("n2", "n5"), ("n4", COORDINATOR)):
            cluster.terminate(*victims)
            cluster.restart(*victims)
            time.sleep(0.2)
        finish(cluster, case)
        for node in ("n2", "n3", "n4", "n5"):  # all but what came in the moment between saving and leaving
            assert all(
                int(count) <= LATE_RECORDS for count in re.findall(r"replayed (\d+) records", cluster.said(node))
            )


def test_everything_is_told_to_leave_at_once(tmp_path: Path) -> None:
    case = a_load()
    processes = names(case.network)
    with under_load(case, "mt-pp", tmp_path) as cluster:
        cluster.terminate(*processes)
        cluster.restart(*processes)
        finish(cluster, case)


@pytest.mark.parametrize(("victim", "strategy"), [("n2", "st"), ("n3", "mt-pp")])
def test_with_durability_none_a_killed_node_begins_a_new_life(victim: str, strategy: str, tmp_path: Path) -> None:
    """It has forgotten everything; here others still have it, or traces tell it again from the beginning."""
    case = a_load(300)
    with under_load(case, strategy, tmp_path, durability="none") as cluster:
        life = cluster.ask(victim, "/health")["life"]
        cluster.kill(victim)
        cluster.restart(victim)
        finish(cluster, case)
        assert cluster.ask(victim, "/health")["life"] != life
