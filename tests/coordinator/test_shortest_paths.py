"""What the coordinator computes and decides about trees: distances, leader, shortest paths, epochs, checks."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headwater.coordinator.leader import leader
from headwater.coordinator.shortest_paths import children_of, distances, shortest_path_tree
from headwater.coordinator.trees import TreeKeeper
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.trees import DropLink, ForgetTree, InstallTree, StartTree
from headwater.protocol.network import Link, Network, Sink
from headwater.protocol.subscriptions import Subscription


def a_network(links: str, sinks: str = "", strategy: str = "st", alone: str = "") -> Network:
    """Links as ``a-b 5, b-c 0``; sinks and nodes without links as names."""
    parsed = []
    for text in filter(None, links.split(", ")):
        ends, delay_us = text.split()
        one, other = ends.split("-")
        parsed.append(Link(one, other, int(delay_us)))
    nodes = dict.fromkeys([*(end for link in parsed for end in (link.one, link.other)), *alone.split()])
    where = tuple(Sink(node, Subscription("A")) for node in sinks.split())
    return Network((), tuple(nodes), tuple(parsed), (), where, (), strategy)


def random_network(chance: random.Random, delays: Sequence[int]) -> Network:
    """1 to 30 nodes, connected; sparse or dense, with names in no particular order."""
    count = chance.choice((1, 2, 3, 4, 6, 10, 18, 30))
    nodes = [f"n{number}" for number in range(count)]
    chance.shuffle(nodes)
    pairs = {(nodes[at], nodes[chance.randrange(at)]) for at in range(1, count)}
    for _ in range(chance.choice((0, 1, count, 2 * count)) if count > 1 else 0):
        one, other = chance.sample(nodes, 2)
        if (other, one) not in pairs:
            pairs.add((one, other))
    links = tuple(Link(one, other, chance.choice(delays)) for one, other in sorted(pairs))
    return Network((), tuple(nodes), links, (), (), (), "st")


def distances_by_definition(network: Network) -> dict[tuple[str, str], float]:
    """Floyd and Warshall: slow, short and unlike the code it judges."""
    far = {(a, b): 0.0 if a == b else float("inf") for a in network.nodes for b in network.nodes}
    for link in network.links:
        far[link.one, link.other] = far[link.other, link.one] = link.delay_us
    for via in network.nodes:
        for a in network.nodes:
            for b in network.nodes:
                far[a, b] = min(far[a, b], far[a, via] + far[via, b])
    return far


def tree_by_definition(network: Network, root: str) -> dict[str, str | None]:
    """Every node's parent lies on a shortest path: over a link that takes time if there is such a parent, else over the
    fewest zero-delay links to a node that has one; of several the least name as UTF-8."""
    far = distances_by_definition(network)
    parents: dict[str, str | None] = {root: None}
    links = [(link.one, link.other, link.delay_us) for link in network.links]
    links += [(other, one, delay_us) for one, other, delay_us in links]
    ranked = {root}
    first = True
    while True:
        found: dict[str, list[str]] = {}
        for near, node, delay_us in links:
            on_shortest = far[root, near] + delay_us == far[root, node] < float("inf")
            if node not in ranked and on_shortest and (delay_us > 0 if first else near in ranked):
                found.setdefault(node, []).append(near)
        if not found and not first:
            return dict(sorted(parents.items()))
        first = False
        ranked |= found.keys()
        parents |= {node: min(nears, key=lambda name: name.encode()) for node, nears in found.items()}


def test_distances_and_trees_are_as_defined() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        network = random_network(chance, chance.choice([(0, 1, 2), (1, 2, 3), (0,), range(1000)]))
        far = distances_by_definition(network)
        found = distances(network)
        assert {(a, b): found[a][b] for a in network.nodes for b in network.nodes} == far
        totals = {node: sum(far[node, other] for other in network.nodes) for node in network.nodes}
        assert leader(network) == min(network.nodes, key=lambda node: (totals[node], node.encode()))
        root = chance.choice(network.nodes)
        tree = shortest_path_tree(network, root)
        assert tree == tree_by_definition(network, root)
        for node in network.nodes:  # following parents leads to the root, along a path of exactly the least delay
            walked, at = 0, node
            while (up := tree[at]) is not None:
                walked, at = walked + network.neighbours()[at][up].delay_us, up
            assert (at, walked) == (root, far[node, root])


def test_without_links_and_nodes_is_a_network_that_never_had_them() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        network = random_network(chance, (0, 1, 2, 9))
        links = chance.sample(network.links, min(2, len(network.links)))
        nodes = chance.sample(network.nodes, 1 if len(network.nodes) > 1 else 0)
        left = tuple(node for node in network.nodes if node not in nodes)
        kept = tuple(at for at in network.links if at not in links and at.one in left and at.other in left)
        smaller = Network((), left, kept, (), (), (), "st")
        names = [(at.other, at.one) for at in links]
        assert distances(network, names, nodes) == distances(smaller)
        assert leader(network, names, nodes) == leader(smaller)
        assert shortest_path_tree(network, left[0], names, nodes) == shortest_path_tree(smaller, left[0])


def test_the_leader_is_nearest_to_all_and_ties_go_to_the_smaller_name() -> None:
    assert leader(a_network("a-m 1, m-b 1, m-c 1")) == "m"
    assert leader(a_network("b-a 1")) == "a"
    assert leader(a_network("a-b 9, b-c 1, c-d 1")) == "b", "b and c are equally near"
    assert leader(a_network("a-b 0, x-y 5, y-z 5")) == "y", "the larger part leads where the network has fallen apart"


def test_a_leader_or_a_root_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="no node is left"):
        leader(a_network("a-b 1"), without_nodes=["a", "b"])
    with pytest.raises(ConfigError, match="'c' cannot be the root"):
        shortest_path_tree(a_network("a-b 1"), "c")


def test_children_are_told_in_order() -> None:
    assert children_of({"c": "a", "b": "a", "a": None}) == {"c": (), "b": (), "a": ("b", "c")}


# -- the keeper --------------------------------------------------------------------------------------------------------

LINE = "a-b 1, b-c 1, c-d 1, d-a 9"


@pytest.mark.parametrize(
    ("strategy", "roots"), [("centr", "b"), ("st", "b"), ("st-pp", "b"), ("mt", "a d"), ("mt-pp", "a d")]
)
def test_roots_are_the_leader_or_the_nodes_with_sinks(strategy: str, roots: str) -> None:
    keeper = TreeKeeper(a_network(LINE, sinks="d a d", strategy=strategy))
    assert keeper.roots == tuple(roots.split())
    assert keeper.leader == (None if strategy.startswith("mt") else "b")
    assert keeper.begin() == [(root, StartTree(root, 1)) for root in roots.split()]
    assert keeper.begin() == []


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown strategy 'gossip'"):
        TreeKeeper(a_network(LINE), "gossip")


def test_news_of_a_replaced_build_are_not_believed() -> None:
    keeper = TreeKeeper(a_network(LINE))
    keeper.begin()
    assert not keeper.tree_stands("a", 1)
    assert not keeper.tree_stands("b", 2)
    assert keeper.tree_stands("b", 1)
    assert keeper.all_stand()
    assert keeper.tree_broken("b", 7) == []
    assert keeper.tree_broken("b", 1) == [("b", StartTree("b", 2))]
    assert keeper.tree_broken("b", 1) == [], "the other end of the link tells the same"
    assert not keeper.tree_stands("b", 1)
    assert not keeper.all_stand()


def test_a_lost_link_concerns_trees_that_use_it_and_the_replaced_build_drains() -> None:
    keeper = TreeKeeper(a_network(LINE))
    keeper.begin()
    keeper.tree_stands("b", 1)
    assert keeper.lost_link("a", "d") == [("a", DropLink("d")), ("d", DropLink("a"))], "no path goes over it"
    assert keeper.epoch("b") == 1
    assert keeper.lost_link("d", "a") == [], "known already"
    assert keeper.lost_link("d", "c") == [("d", DropLink("c")), ("c", DropLink("d")), ("b", StartTree("b", 2))]
    assert keeper.cut_off("b") == ("d",)
    assert keeper.superseded == (("b", 1),)
    assert keeper.drained("b", 2) == []
    assert keeper.drained("b", 1) == [(node, ForgetTree("b", 1)) for node in "abcd"]
    assert not keeper.superseded


def test_a_build_that_never_stood_is_taken_back_when_it_is_replaced() -> None:
    keeper = TreeKeeper(a_network(LINE))
    keeper.begin()
    orders = keeper.lost_link("a", "d")
    assert orders[2:] == [*((node, ForgetTree("b", 1)) for node in "abcd"), ("b", StartTree("b", 2))]


def test_a_loss_before_anything_was_begun_costs_no_epoch() -> None:
    keeper = TreeKeeper(a_network(LINE))
    assert keeper.lost_link("b", "c") == [("b", DropLink("c")), ("c", DropLink("b"))]
    assert keeper.begin() == [("b", StartTree("b", 1))]
    assert keeper.expected("b") == {"a": "b", "b": None, "c": "d", "d": "a"}


def test_a_leader_stays_until_it_is_lost() -> None:
    keeper = TreeKeeper(a_network("a-m 1, b-m 1, c-m 1, a-b 1, a-c 3"))
    keeper.begin()
    keeper.tree_stands("m", 1)
    keeper.lost_link("m", "c")
    assert keeper.leader == "m"
    assert leader(keeper.network, without_links=[("m", "c")]) == "a"
    keeper.tree_stands("m", 2)
    orders = keeper.lost_node("m")
    assert keeper.leader == "a"
    assert orders == [
        *((node, DropLink("m")) for node in "abc"),
        *((node, ForgetTree("m", epoch)) for epoch in (2, 1) for node in "abc"),
        ("a", StartTree("a", 1)),
    ]
    assert keeper.lost_node("m") == []


def test_the_loss_of_every_node_leaves_no_tree() -> None:
    for strategy in ("st", "mt"):
        keeper = TreeKeeper(a_network("a-b 1", sinks="a"), strategy)
        keeper.begin()
        keeper.lost_node("a")
        keeper.lost_node("b")
        assert (keeper.roots, keeper.leader, keeper.begin()) == ((), None, [])


def test_a_lost_node_ends_its_own_tree_and_renews_the_others() -> None:
    keeper = TreeKeeper(a_network(LINE, sinks="a d"), "mt")
    keeper.begin()
    keeper.tree_stands("a", 1)
    keeper.tree_stands("d", 1)
    orders = keeper.lost_node("d")
    assert keeper.roots == ("a",)
    assert ("a", StartTree("a", 2)) in orders
    assert [order for order in orders if order[1] == ForgetTree("d", 1)] == [(n, ForgetTree("d", 1)) for n in "abc"]
    assert keeper.expected("a") == {"a": None, "b": "a", "c": "b"}


def test_epochs_go_on_where_an_earlier_coordinator_stopped() -> None:
    first = TreeKeeper(a_network(LINE))
    first.begin()
    first.tree_broken("b", 1)
    assert first.used_epochs == {"b": 2}
    assert TreeKeeper(a_network(LINE), used_epochs=first.used_epochs).begin() == [("b", StartTree("b", 3))]


def test_what_is_not_in_the_network_cannot_be_lost() -> None:
    keeper = TreeKeeper(a_network(LINE))
    with pytest.raises(ConfigError, match="no link joins 'a' and 'c'"):
        keeper.lost_link("a", "c")
    with pytest.raises(ConfigError, match="no node 'x'"):
        keeper.lost_node("x")


def test_an_installed_tree_tells_every_node_its_place_and_the_root_last() -> None:
    keeper = TreeKeeper(a_network("r-a 1, r-c 1, a-b 1, c-d 1"))
    assert keeper.installed("r") == [
        ("a", InstallTree("r", 1, "r", ("b",))),
        ("b", InstallTree("r", 1, "a", ())),
        ("c", InstallTree("r", 1, "r", ("d",))),
        ("d", InstallTree("r", 1, "c", ())),
        ("r", InstallTree("r", 1, None, ("a", "c"))),
    ]


def test_a_check_says_in_words_what_disagrees() -> None:
    keeper = TreeKeeper(a_network("r-a 1, r-c 1, a-b 1, c-d 1"))

    def row(
        parent: str | None, *children: str, state: str = "settled", waiting_for: str = ""
    ) -> list[dict[str, object]]:
        known = {"tree": "r", "epoch": 1, "state": state, "parent": parent, "children": list(children)}
        return [{**known, "waiting_for": waiting_for.split()}]

    good = {"r": row(None, "a", "c"), "a": row("r", "b"), "b": row("a"), "c": row("r", "d"), "d": row("c")}
    assert keeper.check(good) == []
    wrong = {
        "r": row(None, "a", state="building", waiting_for="c"),
        "a": row("r", "b", "d", state="broken"),
        "b": row("d"),
        "c": [],
    }
    assert keeper.check(wrong) == [
        "tree of r, epoch 1: a lost a link of the tree",
        "tree of r, epoch 1: a has the children d, which are not its own",
        "tree of r, epoch 1: b has parent d, should have a",
        "tree of r, epoch 1: c does not know the tree",
        "tree of r, epoch 1: d has not reported",
        "tree of r, epoch 1: r still waits for c",
        "tree of r, epoch 1: r lacks the children c",
    ]
