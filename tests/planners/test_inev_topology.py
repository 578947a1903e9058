"""Distances and small trees, against a search through all trees."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from headwater.coordinator.inev.model.steiner_trees import exact_tree, spanning_tree
from headwater.coordinator.inev.model.topology import Topology, bit_positions, joined
from headwater.deploy.experiments.inev.random_networks import ring


def smallest(topology: Topology, wanted: set[int]) -> int:
    """Tries all sets of nodes that hold the wanted ones, smallest first: a tree over n nodes has n - 1 links."""
    others = [node for node in range(topology.nodes) if node not in wanted]
    for more in range(len(others) + 1):
        for chosen in combinations(others, more):
            inside = wanted | set(chosen)
            reached, level = {min(inside)}, [min(inside)]
            while level:
                level = [
                    near
                    for node in level
                    for near in topology.neighbours[node]
                    if near in inside and near not in reached
                ]
                reached |= set(level)
            if reached == inside:
                return len(inside) - 1
    raise AssertionError("not connected")


def is_tree_over(topology: Topology, bits: int, wanted: set[int]) -> bool:
    links = topology.link_names(bits)
    inside = {end for link in links for end in link} or set(wanted)
    if len(links) != len(inside) - 1 or not wanted <= inside:
        return False
    reached = {min(inside)}
    while True:
        more = {end for link in links if set(link) & reached for end in link} - reached
        if not more:
            return reached == inside
        reached |= more


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("seed", range(12))
def test_trees_span_their_nodes_and_are_smallest_with_at_most_one_cycle(seed: int, degree: int) -> None:
    draw = random.Random(seed)
    nodes = draw.randint(3, 10)
    topology = Topology(nodes, ring(draw, nodes, degree))
    for _ in range(25):
        wanted = set(draw.sample(range(nodes), draw.randint(1, min(nodes, 6))))
        bits = topology.spanning(wanted)
        assert is_tree_over(topology, bits, wanted)
        if len(topology.links) <= nodes or len(wanted) <= 4:
            assert bits.bit_count() == smallest(topology, wanted)
        else:
            assert bits.bit_count() <= smallest(topology, wanted) + 1


def test_signatures_of_two_sets_join_to_that_of_both() -> None:
    draw = random.Random(3)
    topology = Topology(12, ring(draw, 12, 2))
    for _ in range(50):
        one, other = (set(draw.sample(range(12), 4)) for _ in range(2))
        both = joined(topology.signature(one), topology.signature(other))
        assert both == topology.signature(one | other)
        assert topology.size(both) == topology.spanning(one | other).bit_count()


def test_exact_and_grown_trees_agree_on_a_grid() -> None:
    links = [(5 * y + x, 5 * y + x + 1) for y in range(5) for x in range(4)]
    links += [(5 * y + x, 5 * y + x + 5) for y in range(4) for x in range(5)]
    topology = Topology(25, links)
    draw = random.Random(1)
    for _ in range(20):
        wanted = sorted(draw.sample(range(25), 4))
        exact = exact_tree(topology.neighbours, wanted, topology.hops)
        assert len(spanning_tree(topology.neighbours, wanted, topology.hops)) == len(exact)
    many = sorted(draw.sample(range(25), 12))
    grown = spanning_tree(topology.neighbours, many, topology.hops)
    assert is_tree_over(topology, sum(1 << topology.link_number[link] for link in grown), set(many))


def test_paths_are_shortest() -> None:
    topology = Topology(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 4)])
    for start in range(6):
        for end in range(6):
            path = topology.path(start, end)
            assert len(path) == topology.hops(start)[end]


def test_large_networks_share_a_tree_over_the_targets() -> None:
    draw = random.Random(5)
    topology = Topology(200, ring(draw, 200, 4))
    assert topology.large
    targets = topology.signature(draw.sample(range(200), 30))
    for node in range(0, 200, 7):
        bits = topology.reaching(node, targets)
        assert bits.bit_count() == topology.reached(node, targets)
        assert topology.tree(targets) & ~bits == 0
        assert is_tree_over(topology, bits, {node})
        assert node in topology.nodes_of(bits)


def test_bits_are_listed_from_the_lowest() -> None:
    assert list(bit_positions(0b101001)) == [0, 3, 5]
