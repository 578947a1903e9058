"""The law when a link or a node is gone for good: trees are rebuilt around it, and nothing is lost or repeated."""

from __future__ import annotations

import random
from dataclasses import replace

from deploy.simulation.faults import Faults, LinkOutage, NodeOutage
from protocol.network import Network
from tests.law import Verdict, check
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
    busy = {source.node for source in network.sources} | {sink.node for sink in network.sinks}
    links = [link for link in network.links if _connected(network, {frozenset((link.one, link.other))}, set())]
    nodes = [node for node in network.nodes if node not in busy and _connected(network, set(), {node})]
    if nodes and (not links or rng.random() < 0.5):
        return replace(case, faults=Faults(node_outages=(NodeOutage(rng.choice(nodes), at_us),)))
    if links:
        link = rng.choice(links)
        return replace(case, faults=Faults(link_outages=(LinkOutage(link.one, link.other, at_us),)))
    return None


def _connected(network: Network, without_links: set[frozenset[str]], without_nodes: set[str]) -> bool:
    nodes = [node for node in network.nodes if node not in without_nodes]
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
