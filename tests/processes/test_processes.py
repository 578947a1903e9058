"""Real processes on real sockets give every sink what the oracle says, and what the simulator gives it.

Random networks for HEADWATER_PROCESS_SECONDS (default below), from where ``first_seed`` says.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.network.file import read_network
from headwater.deploy.simulation.births import births
from headwater.deploy.simulation.simulator import simulate
from headwater.protocol.events import Event
from headwater.protocol.network import Network
from tests.kit.first_seed import first_seed
from tests.kit.processes import (
    Cluster,
    Difference,
    as_replayed,
    assert_exact,
    difference,
    named,
    replayed,
    traces,
    until,
)
from tests.law.law import SERVED, Unjudged, expected, identity_of, promised
from tests.law.networks import NetworkCase, network_case
from tests.simulation.test_runs import SEEDS as SIMULATED_SEEDS
from tests.simulation.test_simulator import a_network, births_of

PROCESS_SECONDS = 60.0
FIRE = Path(__file__).parent.parent.parent / "examples" / "fire" / "network.yaml"


# -- the harness -------------------------------------------------------------------------------------------------------


def test_what_is_missing_repeated_or_false_is_told() -> None:
    composite = {"id": "x", "type": "X"}
    event = {"type": "A", "ts": 1, "node": "n1", "seq": 7, "attributes": {}}
    must: list[set[Any]] = [{"x"}, {("n1", 7)}]
    assert not difference([[composite], [event]], must)
    assert difference([[], [event]], must) == Difference(missing=("sink 0: x",))
    assert difference([[composite, composite], [event]], must) == Difference(repeated=("sink 0: x x 2",))
    assert difference([[composite, event], [event]], must) == Difference(false=("sink 0: n1#7",))


# -- random networks ---------------------------------------------------------------------------------------------------


def judged(first: int) -> Iterator[tuple[NetworkCase, list[Any]]]:
    """Small networks from this seed on, with what must be delivered."""
    for seed in itertools.count(first):
        case = network_case(seed, "small")
        with suppress(Unjudged):
            yield case, [*expected(case, promised(case))]


def test_random_networks_through_all_strategies(tmp_path: Path) -> None:
    seconds = float(os.environ.get("HEADWATER_PROCESS_SECONDS", PROCESS_SECONDS))
    first = first_seed()
    ends = time.monotonic() + seconds
    runs = matches = 0
    for case, must in judged(first):
        for strategy in SERVED:
            folder = tmp_path / f"{case.seed}-{strategy}"
            folder.mkdir()
            with replayed(case, strategy, folder) as cluster:
                cluster.wait_until_done()
                assert_exact(cluster, must, f"HEADWATER_FUZZ_SEED={case.seed}, {strategy}")
            runs += 1
            matches += sum(map(len, must))
        if time.monotonic() > ends and matches:
            break
    print(f"{runs} runs, {matches} deliveries, from seed {first}")


# -- the same as in virtual time ---------------------------------------------------------------------------------------


def fire() -> NetworkCase:
    """The example, with as many fires as ten minutes bring."""
    found = read_network(FIRE)
    assert found.seed is not None
    return NetworkCase(found.network, tuple(births(found, seed=found.seed)))


def a_star() -> NetworkCase:
    network = a_network()
    return NetworkCase(network, tuple(births_of(network)))


def alone() -> NetworkCase:
    everything = tuple(("alone", name) for name in "ABCD")
    network = a_network(links=(), sources=everything, sinks=(("alone", "X"), ("alone", "Y"), ("alone", "A")))
    return NetworkCase(network, tuple(births_of(network)))


SCENARIOS = {"fire": fire, "star": a_star, "alone": alone}
SCENARIOS |= {f"seed {seed}": partial(network_case, seed, "small") for seed in SIMULATED_SEEDS}
CHOSEN = [(name, strategy) for name in ("fire", "star") for strategy in SERVED]
CHOSEN += [("alone", "st"), *zip([name for name in SCENARIOS if name.startswith("seed")], SERVED, strict=True)]


@pytest.mark.parametrize(("scenario", "strategy"), CHOSEN)
def test_processes_deliver_what_the_simulator_delivers(scenario: str, strategy: str, tmp_path: Path) -> None:
    case = SCENARIOS[scenario]()
    must = simulated(case.network, case.births, strategy)
    with replayed(case, strategy, tmp_path) as cluster:
        cluster.wait_until_done()
        assert_exact(cluster, must)


def simulated(network: Network, births: tuple[tuple[int, int, Event], ...], strategy: str) -> list[list[str]]:
    """By sink the identities of what the simulator delivers there."""
    outcome = simulate(network, births, strategy=strategy)
    found: list[list[str]] = [[] for _ in network.sinks]
    for delivery in outcome.delivered:
        found[delivery.sink].append(named(identity_of(delivery.item)))
    assert all(len(set(each)) == len(each) for each in found)
    return found


def test_nodes_answer_while_a_neighbour_has_never_been_there(tmp_path: Path) -> None:
    """Its address is not known yet; they say what they lack, and go on when it is there."""
    case = a_star()
    network = as_replayed(case.network, "st")
    cluster = Cluster(network, tmp_path, traces(case, tmp_path, 0.0))
    cluster.start_coordinator()
    with ended_with(cluster):
        for node in ("n1", "n3", "n4", "n5"):
            cluster.start(node)
        for node in ("n1", "n3", "n4"):
            until(partial(lacks_n2, cluster, node), f"{node} lacks n2", cluster)
            assert cluster.metric(node, "headwater_disk_full") == 0
            assert cluster.ask(node, "/statistics")["node"] == node
        time.sleep(1.5)  # once a second nodes look at themselves
        cluster.start("n2")
        cluster.wait_until_done()
        assert_exact(cluster, simulated(case.network, case.births, "st"))


@contextmanager
def ended_with(cluster: Cluster) -> Iterator[None]:
    """Processes end with the block, as they do after ``with cluster``, which would have started all of them."""
    try:
        yield
    finally:
        cluster.__exit__()


def lacks_n2(cluster: Cluster, node: str) -> bool:
    return "the link to n2 is down" in lacking(cluster, node)


def lacking(cluster: Cluster, node: str) -> list[str]:
    answer = cluster.ask(node, "/ready")
    return [] if answer is None else answer["missing"]
