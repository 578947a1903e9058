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
from itertools import combinations
from typing import Any

from headwater.deploy.simulation.faults import Amnesia, Faults, LinkOutage, NodeOutage, SlowCoordinator, random_faults
from headwater.deploy.simulation.links import FOREVER
from headwater.deploy.simulation.outages import GiveUp
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.node.core import NodeSettings
from headwater.protocol.network import Network
from tests.law import churn
from tests.law.churn import ChurnCase, churn_case
from tests.law.law import (
    RUN_SECONDS,
    TooSlow,
    Unjudged,
    Verdict,
    check,
    columns_from,
    compare,
    content,
    expected,
    identity_of,
    promised,
    remembered,
    time_limit,
)
from tests.law.layouts import impatient, random_planner, strikes
from tests.law.looked_up import tables_of
from tests.law.networks import Draw, NetworkCase, small_case

Missing = str | frozenset[str]
"""A node, or the two ends of a link."""


def loss_case(seed: int, draw: Draw = small_case) -> NetworkCase | None:
    """A network that stays connected when it loses one link, or one node without sources and sinks; None if the seed's
    network has neither."""
    rng = random.Random(f"loss {seed}")
    case = draw(seed)
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


def _always_connected(network: Network, gone: set[Missing], maybe: set[Missing]) -> bool:
    """Whether the network stays connected, whichever of those that come back are there."""
    return all(
        _connected(
            network,
            {each for each in [*gone, *some] if isinstance(each, frozenset)},
            {each for each in [*gone, *some] if isinstance(each, str)},
        )
        for size in range(len(maybe) + 1)
        for some in combinations(sorted(maybe, key=str), size)
    )


def check_loss(case: NetworkCase, strategy: str) -> Verdict:
    return check(case, strategy, True)


# -- several things at once --------------------------------------------------------------------------------------------


def storm(network: Network, seed: int, from_us: int, span_us: int, *, busy: bool = False) -> tuple[Faults, int]:
    """Nodes forget, links and nodes are lost and come back, besides faults that heal, and all of it takes a while to be
    noticed and to be told; after how long it is noticed.

    Only nodes without sources and sinks forget or are lost (``busy``: one that has some, too), and what is left stays
    connected.
    """
    return Storm(network, seed, from_us, span_us).gathered(busy=busy)


class Storm:
    """Draws what goes wrong, one thing after the other, as long as what is left stays connected."""

    def __init__(self, network: Network, seed: int, from_us: int, span_us: int) -> None:
        self.network = network
        self.from_us, self.span_us = from_us, span_us
        self.rng = rng = random.Random(f"storm {seed}")
        self.detection_us = max(1, int(span_us * rng.random() ** 3))
        self.usual = random_faults(network, seed, span_us, from_us=from_us) if rng.random() < 0.5 else Faults()
        self.links = list(self.usual.link_outages)
        self.nodes = list(self.usual.node_outages)
        self.amnesias: list[Amnesia] = []
        self.gone: set[Missing] = set()
        self.maybe: set[Missing] = set()

    def gathered(self, *, busy: bool) -> tuple[Faults, int]:
        rng, bare = self.rng, _bare(self.network)
        if busy:
            self._strike(rng.choice([node for node in self.network.nodes if node not in bare]))
        for node in bare:
            if rng.random() < 0.2 and self._may_miss(node, returns=False):
                self._lose(node)
            elif rng.random() < 0.7:
                for _ in range(rng.choice((1, 1, 2))):
                    self._forget(node)
        self._cut_links()
        slow = (SlowCoordinator(self._length()),) if rng.random() < 0.7 else ()
        return replace(
            self.usual,
            link_outages=tuple(self.links),
            node_outages=tuple(self.nodes),
            amnesias=tuple(self.amnesias),
            slow_coordinators=slow,
        ), self.detection_us

    def _moment(self) -> int:
        return self.from_us + self.rng.randrange(self.span_us)

    def _length(self) -> int:
        return max(1, int(self.span_us * self.rng.random() ** 2 / 2))

    def _may_miss(self, what: Missing, *, returns: bool) -> bool:
        """Whether what is left stays connected without it; then it is taken for missing from now on."""
        if not _always_connected(self.network, self.gone | {what}, self.maybe):
            return False
        (self.maybe if returns else self.gone).add(what)
        return True

    def _strike(self, node: str) -> None:
        if self.rng.random() < 0.5 and self._may_miss(node, returns=False):
            self._lose(node)
        else:
            self._forget(node)

    def _lose(self, node: str) -> None:
        self.nodes[:] = [outage for outage in self.nodes if outage.node != node]
        self.nodes.append(NodeOutage(node, self._moment()))

    def _forget(self, node: str) -> None:
        start = self._moment()
        given_up = self.rng.random() < 0.3 and self._may_miss(node, returns=True)
        end = start + self._length() + self.detection_us * given_up
        self.amnesias.append(Amnesia(node, start, end, given_up))

    def _cut_links(self) -> None:
        for link in self.network.links:
            returns = self.rng.random() < 0.5
            if self.rng.random() < 0.25 and self._may_miss(frozenset((link.one, link.other)), returns=returns):
                start = self._moment()
                end = start + self.detection_us + self._length() if returns else FOREVER
                self.links.append(LinkOutage(link.one, link.other, start, end, given_up=returns))


def storm_case(seed: int, draw: Draw = small_case, *, changes: bool = False) -> ChurnCase | None:
    """A network in a storm in which nothing gets lost; with ``changes`` everything changes as well, and some changes
    are given up and asked for again."""
    case = churn_case(seed, draw)
    if case is None:
        return None
    if not changes:
        whole = case.drawn
        case = replace(case, begins=whole.network, changes=(), births=whole.births, whole=whole)
    first, last = case.births[0][0], case.births[-1][0]
    faults, detection_us = storm(case.whole.network, seed, first, max(2, last - first))
    rng = random.Random(f"aborts {seed}")
    aborts = [(rng.randint(first, last), GiveUp()) for _ in range(rng.choice((0, 1, 3, 6)) if changes else 0)]
    asked = tuple(sorted([*case.changes, *aborts], key=lambda each: each[0]))
    return replace(case, changes=asked, faults=faults, detection_us=detection_us)


def check_storm(case: ChurnCase, strategy: str) -> Verdict:
    try:
        remembered(case.whole, promised(case.drawn))  # not run if there may be too much of it
    except Unjudged:
        return Verdict(unjudged=True)
    return churn.check(case, strategy)


# -- nodes with sources and sinks --------------------------------------------------------------------------------------


def busy_case(seed: int, draw: Draw = small_case) -> tuple[NetworkCase, int] | None:
    """A network in a storm in which a node with sources or sinks is lost or forgets."""
    case = draw(seed)
    if not case.births or len(_bare(case.network)) == len(case.network.nodes):
        return None
    first, last = case.births[0][0], case.births[-1][0]
    faults, detection_us = storm(case.network, seed, first, max(2, last - first), busy=True)
    return replace(case, faults=faults), detection_us


def check_busy(case: NetworkCase, detection_us: int, strategy: str) -> Verdict:
    try:
        remembered(case, promised(case))
        with time_limit(RUN_SECONDS), columns_from(2):
            outcome = simulate(
                case.network,
                case.births,
                strategy=strategy,
                seed=case.seed,
                lay_out=random_planner(case.seed),
                faults=case.faults,
                check=True,
                wire=case.seed % 3 == 0,
                settings=NodeSettings(
                    tick_least_us=50, review_us=100, restless=case.seed % 4 != 0, patience=impatient(case.births)
                ),
                changes=strikes(case.seed, case.births) if strategy == "inev" else (),
                detection_us=detection_us,
                remote=tables_of(case, strategy, faults=True),
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
    lost |= {each.node for each in case.faults.amnesias if each.given_up}
    forgetful = {each.node for each in case.faults.amnesias}
    must: list[Mapping[Any, Any]] = []
    received = list(outcome.delivered)
    for number, sink in enumerate(case.network.sinks):
        sets = [each[number] for each in found]
        needed = {key: thing for key, thing in sets[0].items() if all(key in other for other in sets)}
        seen = set()
        for delivery in [each for each in received if each.sink == number]:
            key = identity_of(delivery.item)
            if sink.node in forgetful and key in seen:
                received.remove(delivery)  # its identities are forgotten with the rest; its driver filters them
                continue
            seen.add(key)
            for each in sets:  # values of aggregates may differ with the trace
                if key in each and (key not in needed or content(each[key]) == content(delivery.item)):
                    needed[key] = each[key]
        if sink.node in lost:  # it was gone when it should have received the rest
            needed = {key: thing for key, thing in needed.items() if key in seen}
        must.append(needed)
    return Verdict(sum(map(len, must)), wrong=compare(case, replace(outcome, delivered=received), must))
