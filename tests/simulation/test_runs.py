"""Ways to run a simulation: stopping it, keeping nothing of it, and getting the same run again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.protocol.composites import Composite
from tests.law.law import SERVED
from tests.law.networks import NetworkCase, network_case

SEEDS = (9, 12, 17, 21, 63, 31)


def a_busy_case() -> NetworkCase:
    """The case of SEEDS under which most is delivered."""
    return max((network_case(seed, "small") for seed in SEEDS), key=lambda case: len(run(case, "st").delivered))


def run(case: NetworkCase, strategy: str, **options: Any) -> Outcome:
    return simulate(case.network, case.births, strategy=strategy, seed=case.seed, **options)


def told(delivery: Delivery) -> tuple[Any, ...]:
    item = delivery.item
    return delivery.sink, delivery.delivered_us, item.id if isinstance(item, Composite) else item.key


@pytest.mark.parametrize("strategy", SERVED)
def test_a_run_that_keeps_nothing_tells_every_delivery_and_has_the_same_traffic(strategy: str) -> None:
    case = a_busy_case()
    kept = run(case, strategy)
    heard: list[Delivery] = []
    light = run(case, strategy, keep=False, on_delivery=heard.append)
    assert heard
    assert [*map(told, heard)] == [*map(told, kept.delivered)]
    assert (light.delivered, light.born) == ([], [])
    assert light.counters["delivered"] == len(kept.delivered)
    assert light.counters["born"] == len(kept.born)
    assert light.traffic == kept.traffic


@pytest.mark.parametrize("strategy", SERVED)
def test_a_run_that_is_stopped_is_the_beginning_of_the_whole_run(strategy: str) -> None:
    case = a_busy_case()
    whole = run(case, strategy)
    middle_us = case.births[len(case.births) * 3 // 4][0]
    stopped = run(case, strategy, until_us=middle_us)
    assert stopped.finished_us == middle_us
    assert [*map(told, stopped.delivered)] == [
        told(delivery) for delivery in whole.delivered if delivery.delivered_us < middle_us
    ]
    assert 0 < len(stopped.born) < len(whole.born)
    assert stopped.born == [event for at_us, _, event in case.births if event in whole.born and at_us < middle_us]
    for link, traffic in stopped.traffic.items():
        assert traffic.messages <= whole.traffic[link].messages
        assert traffic.bytes <= whole.traffic[link].bytes


def fingerprint() -> str:
    """Everything that crossed links and reached sinks in some runs."""
    found: list[tuple[Any, ...]] = []
    for seed in SEEDS:
        case = network_case(seed, "small")
        for strategy in SERVED:
            outcome = run(case, strategy)
            found.append((sorted((link, str(amount)) for link, amount in outcome.traffic.items()),))
            found.append(tuple(map(told, outcome.delivered)))
    return repr(found)


def test_a_run_does_not_depend_on_how_strings_are_hashed() -> None:
    def in_a_process(hash_seed: str) -> str:
        command = [sys.executable, "-c", "from tests.simulation.test_runs import fingerprint; print(fingerprint())"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    # With 1 and 2 sets of two names most often come in different orders.
    assert in_a_process("1") == in_a_process("2")
