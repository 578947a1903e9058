"""The coordinator loses its memory under load, all of it or a part: it finds its network again at the nodes, and every
sink still gets everything, each once."""

from __future__ import annotations

import random
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.node.edge.interfaces import identity
from headwater.node.engine import Engine
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.messages.control import COORDINATOR
from tests.kit.faults import a_load, finish, some_time, under_load
from tests.kit.processes import Cluster, lines_of, until
from tests.law.networks import NetworkCase
from tests.processes.test_faults_disk import flip

PAIR = "define Pair(v: int) from B() and last A() within 20 ms from B where v = A.v"
TWIN = "define Twin(v: int) from A() and each B() within 5 ms from A where v = B.v"


def journal_of(cluster: Cluster) -> Path:
    return max((cluster.folder / "coordinator" / "journal").glob("*.log"))


def all_of_it(cluster: Cluster) -> None:
    """The data folder is gone; where the coordinator listens is not its to decide."""
    folder = cluster.folder / "coordinator"
    endpoints = (folder / "endpoints.json").read_text()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "endpoints.json").write_text(endpoints)


def the_journal(cluster: Cluster) -> None:
    shutil.rmtree(cluster.folder / "coordinator" / "journal")


def a_bit_in_the_middle(cluster: Cluster) -> None:
    file = journal_of(cluster)
    flip(file, file.stat().st_size // 2)


def a_bit_at_the_end(cluster: Cluster) -> None:
    file = journal_of(cluster)
    flip(file, file.stat().st_size - 3)


def is_ready(cluster: Cluster) -> bool:
    return cluster.ask_coordinator("GET", "/ready")[0] == 200


def wait_until_back(cluster: Cluster) -> None:
    until(
        lambda: is_ready(cluster), "the coordinator is ready", cluster, lambda: cluster.ask_coordinator("GET", "/ready")
    )


def change(cluster: Cluster, method: str, path: str, body: Any = None) -> Any:
    return cluster.insist(method, path, body, key=secrets.token_hex(8))


def deploy(cluster: Cluster, text: str, name: str, node: str) -> tuple[int, int]:
    """A rule and a sink for it; from when on both hold. Some node has heard of it: a change that none has heard of when
    the coordinator loses its memory is lost with it (docs/reliability.md)."""
    since = change(cluster, "POST", "/rules", {"text": text})["holds_from_us"]
    to = {"file": f"{name}.jsonl"}
    asked = {"node": node, "subscribe": name, "to": to}
    heard = change(cluster, "POST", "/subscriptions", asked)["holds_from_us"]
    plan = cluster.ask_coordinator("GET", "/plans")[1]["plan"]
    until(
        lambda: any(plan in plans_of(cluster, one) for one in cluster.network.nodes),
        f"a node hears of plan {plan}",
        cluster,
    )
    return since, heard


def plans_of(cluster: Cluster, node: str) -> set[int]:
    return {int(plan) for plan in (cluster.ask(node, "/tables") or {}).get("plans", ())}


def rules_of(cluster: Cluster) -> list[str]:
    shown = cluster.ask_coordinator("GET", "/rules")[1]["rules"]
    return sorted(rule["name"] for rule in shown if rule["until_us"] is None)


def must_hold(case: NetworkCase, text: str, since: int, heard: int, until_us: int | None) -> list[Any]:
    """What one engine finds for a rule, and a sink, that hold from and until then."""
    engine = Engine(parse_rules([Source(text, "rule", "tesla")], case.network.types).rules, case.network.types)
    found = engine.feed(sorted(event for _, _, event in case.births if event.ts >= since)) + engine.close()
    return sorted(match.id for match in found if match.ts >= heard and (until_us is None or match.ts < until_us))


def delivered(cluster: Cluster, node: str, name: str) -> list[str]:
    return sorted(identity(line) for line in lines_of(cluster.data(node) / f"{name}.jsonl"))


@pytest.mark.parametrize(
    ("loses", "strategy", "at_rest"),
    [
        (all_of_it, "st", True),
        (all_of_it, "mt-pp", True),
        (all_of_it, "mt", False),
        (the_journal, "centr", False),
        (a_bit_in_the_middle, "st-pp", True),
        (a_bit_in_the_middle, "mt-pp", False),
        (a_bit_at_the_end, "mt", True),
    ],
)
def test_a_coordinator_that_has_lost_its_memory_finds_its_network_again(
    loses: Callable[[Cluster], None], strategy: str, at_rest: bool, tmp_path: Path
) -> None:
    """Rules deployed before are there, can be undeployed, and others are deployed beside them. It is killed while the
    network is at rest, and detects on, or while trees of the last plan are being built and have not begun."""
    case = a_load(600)
    with under_load(case, strategy, tmp_path, seconds=8.0) as cluster:
        since, heard = deploy(cluster, PAIR, "Pair", "n5")
        rules = rules_of(cluster)
        if at_rest:
            wait_until_back(cluster)
        cluster.kill(COORDINATOR)
        loses(cluster)
        if at_rest:
            cluster.wait_for_more(5)
        cluster.restart(COORDINATOR)
        wait_until_back(cluster)
        assert rules_of(cluster) == rules
        assert "found again at its nodes" in cluster.said(COORDINATOR)
        twin_since, twin_heard = deploy(cluster, TWIN, "Twin", "n4")
        ended = change(cluster, "DELETE", "/rules/Pair")["holds_from_us"]
        # Where a busy machine takes longer than the load lasts, all events are over, and changes hold from their end.
        assert since <= heard <= twin_since <= twin_heard <= ended
        finish(cluster, case)
        assert delivered(cluster, "n5", "Pair") == must_hold(case, PAIR, since, heard, ended)
        assert delivered(cluster, "n4", "Twin") == must_hold(case, TWIN, twin_since, twin_heard, None)


@pytest.mark.parametrize(("victim", "strategy"), [("n2", "st"), ("n3", "mt-pp"), ("n1", "mt")])
def test_the_coordinator_and_a_node_lose_their_memory_together(victim: str, strategy: str, tmp_path: Path) -> None:
    """The node may be the root of the only tree, where all rules are kept. The others know enough for both."""
    case = a_load(500, seed=5)
    with under_load(case, strategy, tmp_path, seconds=6.0) as cluster:
        since, heard = deploy(cluster, PAIR, "Pair", "n5")
        wait_until_back(cluster)
        cluster.kill(COORDINATOR, victim)
        all_of_it(cluster)
        shutil.rmtree(cluster.data(victim) / "journal")
        cluster.restart(COORDINATOR, victim)
        wait_until_back(cluster)
        assert f"{victim} remember nothing and start a new life" in cluster.said(COORDINATOR)
        ended = change(cluster, "DELETE", "/rules/Pair")["holds_from_us"]
        finish(cluster, case)
        assert delivered(cluster, "n5", "Pair") == must_hold(case, PAIR, since, heard, ended)


@pytest.mark.parametrize("strategy", ["st", "mt-pp"])
def test_the_coordinator_forgets_again_and_again_while_rules_change(strategy: str, tmp_path: Path) -> None:
    """A client asks again with the same key until there is an answer; what has come to a node is made once."""
    case = a_load(600)
    chance = random.Random(f"amnesia {strategy}")
    with under_load(case, strategy, tmp_path, seconds=8.0) as cluster:
        answers: dict[str, Any] = {}

        def insist(what: str, method: str, path: str, body: Any = None) -> None:
            # Its token may be new, it may not know yet what holds, or a node does not answer in time.
            answers[what] = cluster.insist(method, path, body, key=what, later=(401, 503, 504))

        def change_things() -> None:
            insist("deploy", "POST", "/rules", {"text": PAIR})
            to = {"file": "Pair.jsonl"}
            insist("subscribe", "POST", "/subscriptions", {"node": "n5", "subscribe": "Pair", "to": to})
            insist("undeploy", "DELETE", "/rules/Pair")

        changing = threading.Thread(target=change_things)
        changing.start()
        while changing.is_alive():
            some_time(chance, 0.4)
            cluster.kill(COORDINATOR)
            chance.choice([all_of_it, the_journal, a_bit_in_the_middle, a_bit_at_the_end])(cluster)
            cluster.restart(COORDINATOR)
            changing.join(2.0)  # let it get somewhere
        finish(cluster, case)
        since, heard, ended = (answers[each]["holds_from_us"] for each in ("deploy", "subscribe", "undeploy"))
        assert since <= heard <= ended
        assert delivered(cluster, "n5", "Pair") == must_hold(case, PAIR, since, heard, ended)


@pytest.mark.parametrize("strategy", ["mt", "st-pp"])
def test_a_coordinator_that_gets_an_old_copy_of_its_folder_learns_from_its_nodes_what_holds(
    strategy: str, tmp_path: Path
) -> None:
    case = a_load(500, seed=9)
    with under_load(case, strategy, tmp_path, seconds=6.0) as cluster:
        folder = cluster.folder / "coordinator"
        wait_until_back(cluster)
        cluster.kill(COORDINATOR)
        shutil.copytree(folder, tmp_path / "copy")
        cluster.restart(COORDINATOR)
        wait_until_back(cluster)
        since, heard = deploy(cluster, PAIR, "Pair", "n5")
        cluster.kill(COORDINATOR)
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        cluster.restart(COORDINATOR)
        until(lambda: "begins a new life" in cluster.said(COORDINATOR), "it finds out", cluster)
        wait_until_back(cluster)
        assert "Pair" in rules_of(cluster)
        ended = change(cluster, "DELETE", "/rules/Pair")["holds_from_us"]
        finish(cluster, case)
        assert delivered(cluster, "n5", "Pair") == must_hold(case, PAIR, since, heard, ended)
