"""Load for processes that things are done to, and what must come out of it whatever is done."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.protocol.messages.control import COORDINATOR
from headwater.protocol.network import Network
from tests.kit.processes import Cluster, assert_exact, replayed
from tests.law.law import identity_of, reference
from tests.law.networks import NetworkCase
from tests.simulation.test_simulator import LINKS, a_network, births_of

# Composites at both ends of the tail and at a leaf, some of them only, and primitive events that cross everything.
SINKS = (("n5", "X"), ("n4", "X(v = 1)"), ("n3", "Y"), ("n1", "A"), ("n3", "C"))


def a_load(count: int = 400, seed: int = 1, links: Sequence[tuple[str, str]] = LINKS) -> NetworkCase:
    """A star with a tail (n5 - n1 - n2 - (n3, n4)), four sources, two rules that need all of them, five sinks."""
    network = a_network(sinks=SINKS, links=links)
    return NetworkCase(network, tuple(births_of(network, count, seed)), seed=seed)


def found_by_one_engine(case: NetworkCase) -> list[list[Any]]:
    """By sink the identities of everything that one engine, given all events, finds for it."""
    found: list[list[Any]] = [[] for _ in case.network.sinks]
    for delivery in reference(case).delivered:
        found[delivery.sink].append(identity_of(delivery.item))
    return found


@contextmanager
def under_load(
    case: NetworkCase, strategy: str, folder: Path, *, seconds: float = 3.0, started: bool = True, **options: Any
) -> Iterator[Cluster]:
    """The case as processes whose sources publish for so long, if nothing holds them up; the block begins when the
    first deliveries have arrived (or, not ``started``, at once)."""
    folder.mkdir(exist_ok=True)
    speed = case.span_us / 1e6 / seconds
    with replayed(case, strategy, folder, speed=speed, **options) as cluster:
        if started:
            cluster.wait_until_delivered(5)
        yield cluster


def finish(cluster: Cluster, case: NetworkCase) -> None:
    """Let everything arrive; then every sink has everything, each once."""
    cluster.wait_until_done()
    assert_exact(cluster, found_by_one_engine(case))


def names(network: Network) -> list[str]:
    """All processes of a network."""
    return [COORDINATOR, *network.nodes]


def some_time(chance: random.Random, most_s: float) -> None:
    time.sleep(chance.random() * most_s)
