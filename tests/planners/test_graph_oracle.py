"""Our graph algorithms against networkx, on random graphs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

import networkx as nx
import pytest
from networkx.algorithms.approximation import steiner_tree

from headwater.coordinator.inev.model.topology import Topology
from headwater.coordinator.shortest_paths import distances
from headwater.deploy.experiments.trex.topology import nearest
from headwater.deploy.network.check import connected_parts
from headwater.protocol.analysis.dependencies import CircularDependency, order_by_need
from headwater.protocol.breadth_first import breadth_first, components
from headwater.protocol.network import Link, Network

SEEDS = range(40)


def graphs(seed: int, *, connected: bool) -> Iterator[tuple[int, list[tuple[int, int]], nx.Graph[int]]]:
    """Graphs of growing density, with their links as pairs of numbers."""
    rng = Random(seed)
    for nodes in (1, 2, 7, 25):
        for extra in (0, nodes // 4, nodes):
            tree = {(node, rng.randrange(node)) for node in range(1, nodes) if connected or rng.random() < 0.8}
            drawn = [rng.sample(range(nodes), 2) for _ in range(extra if nodes > 1 else 0)]
            more = {(max(pair), min(pair)) for pair in drawn}
            links = sorted(tree | more)
            graph: nx.Graph[int] = nx.Graph(links)
            graph.add_nodes_from(range(nodes))
            yield nodes, links, graph


def neighbours(graph: nx.Graph[int], node: int) -> list[int]:
    return sorted(graph[node])


@pytest.mark.parametrize("seed", SEEDS)
def test_searches_and_components_are_those_of_networkx(seed: int) -> None:
    for nodes, links, graph in graphs(seed, connected=False):
        before = breadth_first(0, partial(neighbours, graph))
        edges = list(nx.bfs_edges(graph, 0, sort_neighbors=sorted))
        assert [(parent, node) for node, parent in before.items() if node] == edges
        groups = sorted(map(sorted, nx.connected_components(graph)))
        assert components(range(nodes), graph.__getitem__) == groups
        assert Topology(nodes, links).parts() == groups
        names = [f"n{node:02}" for node in range(nodes)]
        named = connected_parts(names, [Link(names[one], names[other]) for one, other in links])
        assert named == [[names[node] for node in group] for group in groups]


@pytest.mark.parametrize("seed", SEEDS)
def test_distances_and_paths_are_those_of_networkx(seed: int) -> None:
    for nodes, links, graph in graphs(seed, connected=True):
        topology = Topology(nodes, links)
        for start, far in nx.all_pairs_shortest_path_length(graph):
            assert topology.hops(start) == [far[node] for node in range(nodes)]
            assert [len(topology.path(start, end)) for end in range(nodes)] == topology.hops(start)


@pytest.mark.parametrize("seed", SEEDS)
def test_delays_are_those_of_networkx(seed: int) -> None:
    rng = Random(seed)
    for nodes, links, graph in graphs(seed, connected=False):
        names = [f"n{node:02}" for node in range(nodes)]
        network_links = [Link(names[one], names[other], rng.randrange(0, 5)) for one, other in links]
        named: nx.Graph[str] = nx.Graph()
        named.add_nodes_from(names)
        named.add_weighted_edges_from((link.one, link.other, link.delay_us) for link in network_links)
        far = dict(nx.all_pairs_dijkstra_path_length(named))
        assert distances(Network((), tuple(names), tuple(network_links), (), (), ())) == far
        reached = sorted(far[names[0]].items(), key=lambda item: (item[1], item[0]))
        assert nearest(names, network_links, names[0], 3) == [name for name, _ in reached[:3]]
        assert graph.number_of_nodes() == len(far)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_spanning_tree_joins_its_nodes_with_no_more_links_than_that_of_networkx(seed: int) -> None:
    rng = Random(seed)
    for nodes, links, graph in graphs(seed, connected=True):
        topology = Topology(nodes, links)
        for count in {min(nodes, 2), min(nodes, 4), min(nodes, 9)}:
            terminals = rng.sample(range(nodes), count)
            tree = nx.Graph(topology.link_names(topology.spanning(terminals)))
            tree.add_nodes_from(terminals)
            assert nx.is_tree(tree)
            assert tree.number_of_edges() <= steiner_tree(graph, terminals).number_of_edges()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_by_need_is_the_first_of_all_topological_ones(seed: int) -> None:
    rng = Random(seed)
    count = rng.randrange(1, 30)
    rank = rng.sample(range(count), count)
    needs = [
        {other for other in range(count) if rank[other] < rank[own] and rng.random() < 0.1} for own in range(count)
    ]
    graph = nx.DiGraph([(need, own) for own, needed in enumerate(needs) for need in needed])
    graph.add_nodes_from(range(count))
    assert order_by_need(needs) == list(nx.lexicographical_topological_sort(graph))


def test_a_circle_is_named_from_its_first_member() -> None:
    with pytest.raises(CircularDependency) as circle:
        order_by_need([set(), {3}, {1}, {2}, {3}])
    assert circle.value.positions == [1, 3, 2, 1]
    with pytest.raises(CircularDependency) as circle:
        order_by_need([{0}])
    assert circle.value.positions == [0, 0]


def test_a_chain_of_many_rules_is_ordered_without_recursion() -> None:
    assert order_by_need([{own + 1} if own < 4_999 else set() for own in range(5_000)]) == list(range(4_999, -1, -1))
