"""The law when links and nodes are gone for good, come back, or come back without memory.

Where nothing is lost that only a lost node had, nothing may be missing, false or doubled, whatever else happens at the
same time. Where a node with sources and sinks is lost or forgets, there are several traces: the global one, and that
without the events that were born at the node before. Trees see the first until it happens and the second afterwards.
So whatever follows from both of them must be received, and nothing else than what follows from one of them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deploy.simulation.faults import (
    Amnesia,
    Faults,
    LinkOutage,
    NodeOutage,
    SlowCoordinator,
    random_faults,
)
from deploy.simulation.happenings import GiveUp
from deploy.simulation.links import FOREVER
from deploy.simulation.outcome import Outcome
from deploy.simulation.simulator import simulate
from node.core import NodeSettings
from protocol.network import Network
from tests import churn
from tests.churn import ChurnCase, churn_case
from tests.law import (
    RUN_SECONDS,
    TooSlow,
    Unjudged,
    Verdict,
    check,
    compare,
    expected,
    identity_of,
    promised,
    remembered,
    time_limit,
)
from tests.networks import NetworkCase, network_case


def loss_case(seed: int) -> NetworkCase | None:
    """A network that stays connected when it loses one link, or one node without sources and sinks; None if the seed's
    network has neither."""
    rng = random.Random(f"loss {seed}")
    case = network_case(seed, "small")
    network = case.network
    if not case.births:
        return None
    at_us = rng.randint(case.births[0][0], case.births[-1][0])
    links = [link for link in network.links if _connected(network, {frozenset((link.one, link.other))}, set())]
    nodes = [node for node in _bare(network) if _connected(network, set(), {node})]
    if nodes and (not links or rng.random() < 0.5):
        return replace(case, faults=Faults(node_outages=(NodeOutage(rng.choice(nodes), at_us),)))
    if links:
        link = rng.choice(links)
        return replace(case, faults=Faults(link_outages=(LinkOutage(link.one, link.other, at_us),)))
    return None


def _bare(network: Network) -> list[str]:
    """Nodes without sources and sinks."""
    busy = {source.node for source in network.sources} | {sink.node for sink in network.sinks}
    return [node for node in network.nodes if node not in busy]


def _connected(network: Network, without_links: set[frozenset[str]], without_nodes: set[str]) -> bool:
    nodes = [node for node in network.nodes if node not in without_nodes]
    if not nodes:
        return False
    around = network.neighbours()
    seen, open_nodes = {nodes[0]}, [nodes[0]]
    while open_nodes:
        node = open_nodes.pop()
        for other in around[node]:
            if other not in seen and other not in without_nodes and frozenset((node, other)) not in without_links:
                seen.add(other)
                open_nodes.append(other)
    return len(seen) == len(nodes)


def check_loss(case: NetworkCase, strategy: str) -> Verdict:
    return check(case, strategy, True)


# -- several things at once --------------------------------------------------------------------------------------------


def storm(network: Network, seed: int, from_us: int, span_us: int, *, busy: bool = False) -> tuple[Faults, int]:
    """Nodes forget, links and nodes are lost and come back, besides faults that heal, and all of it takes a while to be
    noticed and to be told; after how long it is noticed.

    Only nodes without sources and sinks forget or are lost (``busy``: one that has some, too), and what is left stays
    connected.
    """
    rng = random.Random(f"storm {seed}")
    detection_us = max(1, int(span_us * rng.random() ** 3))
    usual = random_faults(network, seed, span_us, from_us=from_us) if rng.random() < 0.5 else Faults()

    def moment() -> int:
        return from_us + rng.randrange(span_us)

    def length() -> int:
        return max(1, int(span_us * rng.random() ** 2 / 2))

    bare = _bare(network)
    lost_nodes: set[str] = set()
    lost_links: set[frozenset[str]] = set()
    links, nodes, amnesias = list(usual.link_outages), list(usual.node_outages), []
    if busy:
        one = rng.choice([node for node in network.nodes if node not in bare])
        if rng.random() < 0.5 and _connected(network, set(), {one}):
            lost_nodes.add(one)
            nodes = [outage for outage in nodes if outage.node != one]
            nodes.append(NodeOutage(one, moment()))
        else:
            start = moment()
            amnesias.append(Amnesia(one, start, start + length()))
    for node in bare:
        if rng.random() < 0.2 and _connected(network, lost_links, lost_nodes | {node}):
            lost_nodes.add(node)
            nodes = [outage for outage in nodes if outage.node != node]
            nodes.append(NodeOutage(node, moment()))
        elif rng.random() < 0.7:
            for _ in range(rng.choice((1, 1, 2))):
                start = moment()
                amnesias.append(Amnesia(node, start, start + length()))
    for link in network.links:
        name = frozenset((link.one, link.other))
        if rng.random() < 0.25 and _connected(network, lost_links | {name}, lost_nodes):
            start = moment()
            if rng.random() < 0.5:
                lost_links.add(name)
                links.append(LinkOutage(link.one, link.other, start))
            else:
                longer = start + detection_us + length()
                links.append(LinkOutage(link.one, link.other, start, longer, given_up=True))
                lost_links.add(name)  # while it is given up
    slow = (SlowCoordinator(length()),) if rng.random() < 0.7 else ()
    return replace(
        usual,
        link_outages=tuple(links),
        node_outages=tuple(nodes),
        amnesias=tuple(amnesias),
        slow_coordinators=slow,
    ), detection_us


def storm_case(seed: int, *, changes: bool = False) -> ChurnCase | None:
    """A network in a storm in which nothing gets lost; with ``changes`` everything changes as well, and some changes
    are given up and asked for again."""
    case = churn_case(seed)
    if case is None:
        return None
    if not changes:
        whole = network_case(seed, "small")
        case = replace(case, begins=whole.network, changes=(), births=whole.births, whole=whole)
    first, last = case.births[0][0], case.births[-1][0]
    faults, detection_us = storm(case.whole.network, seed, first, max(2, last - first))
    rng = random.Random(f"aborts {seed}")
    aborts = [(rng.randint(first, last), GiveUp()) for _ in range(rng.choice((0, 1, 3, 6)) if changes else 0)]
    asked = tuple(sorted([*case.changes, *aborts], key=lambda each: each[0]))
    return replace(case, changes=asked, faults=faults, detection_us=detection_us)


def check_storm(case: ChurnCase, strategy: str) -> Verdict:
    try:
        remembered(case.whole, promised(network_case(case.seed, "small")))  # not run if there may be too much of it
    except Unjudged:
        return Verdict(unjudged=True)
    return churn.check(case, strategy)


# -- nodes with sources and sinks --------------------------------------------------------------------------------------


def busy_case(seed: int) -> tuple[NetworkCase, int] | None:
    """A network in a storm in which a node with sources or sinks is lost or forgets."""
    case = network_case(seed, "small")
    if not case.births or len(_bare(case.network)) == len(case.network.nodes):
        return None
    first, last = case.births[0][0], case.births[-1][0]
    faults, detection_us = storm(case.network, seed, first, max(2, last - first), busy=True)
    return replace(case, faults=faults), detection_us


def check_busy(case: NetworkCase, detection_us: int, strategy: str) -> Verdict:
    try:
        remembered(case, promised(case))
        with time_limit(RUN_SECONDS):
            outcome = simulate(
                case.network,
                case.births,
                strategy=strategy,
                seed=case.seed,
                faults=case.faults,
                check=True,
                wire=case.seed % 3 == 0,
                settings=NodeSettings(tick_least_us=50, review_us=100, restless=case.seed % 4 != 0),
                detection_us=detection_us,
            )
        return judge_busy(case, outcome)
    except Unjudged:
        return Verdict(unjudged=True)
    except TooSlow as error:
        return Verdict(wrong=[f"too slow: {error}"])


def judge_busy(case: NetworkCase, outcome: Outcome) -> Verdict:
    """What follows from all traces must be there, what follows from none must not."""
    assert case.faults is not None
    trace = tuple(sorted(outcome.born))
    traces = [trace]
    for forgotten in outcome.forgotten:
        traces.append(tuple(event for event in traces[-1] if event not in set(forgotten)))
    found = [expected(case, each) for each in traces]
    lost = {outage.node for outage in case.faults.node_outages if outage.to_us >= FOREVER}
    forgetful = {each.node for each in case.faults.amnesias}
    must: list[Mapping[Any, Any]] = []
    received = list(outcome.delivered)
    for number, sink in enumerate(case.network.sinks):
        sets = [each[number] for each in found]
        needed = {key: thing for key, thing in sets[0].items() if all(key in other for other in sets)}
        may = {key: thing for each in sets for key, thing in each.items()}
        seen = set()
        for delivery in [each for each in received if each.sink == number]:
            key = identity_of(delivery.item)
            if sink.node in forgetful and key in seen:
                received.remove(delivery)  # its identities are forgotten with the rest; whoever drives it filters them
                continue
            seen.add(key)
            if key in may:
                needed.setdefault(key, may[key])
        if sink.node in lost:  # it was gone when it should have received the rest
            needed = {key: thing for key, thing in needed.items() if key in seen}
        must.append(needed)
    return Verdict(sum(map(len, must)), wrong=compare(case, replace(outcome, delivered=received), must))
