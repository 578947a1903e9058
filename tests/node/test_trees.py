"""Processing trees that nodes build among themselves: the shortest paths, whatever the timing of messages."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import msgpack
import pytest

from headwater.coordinator.shortest_paths import shortest_path_tree
from headwater.coordinator.trees import Orders, TreeKeeper
from headwater.node.plans.tree_protocol import Trees, TreeStateError
from headwater.protocol.errors import ConfigError
from headwater.protocol.messages.trees import (
    CreateTree,
    DropLink,
    InstallTree,
    LinkAgain,
    TreeAck,
    TreeMessage,
    TreeNack,
    TreeOrder,
    UseLink,
)
from headwater.protocol.network import Link, Network, Sink
from headwater.protocol.subscriptions import Subscription
from tests.coordinator.test_shortest_paths import a_network, random_network, tree_by_definition


class Neighbourhood:
    """Nodes and the messages between them; each directed link is a queue, and chance says which delivers next."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        around = network.neighbours()
        self.chance = chance
        self.nodes = {
            node: Trees(node, {n: link.delay_us for n, link in around[node].items()}) for node in network.nodes
        }
        self.queues: dict[tuple[str, str], deque[TreeMessage]] = {}
        self.orders: dict[str, deque[TreeOrder]] = {node: deque() for node in network.nodes}
        self.cut: set[frozenset[str]] = set()
        # Some links are much slower than others, whatever their delay says: late good offers are the hard case.
        self.weight = {(a, b): chance.choice((1, 1, 20, 400)) for a in around for b in around[a]}

    def send(self, origin: str, sends: Iterable[tuple[str, TreeMessage]]) -> None:
        for neighbour, message in sends:
            if frozenset((origin, neighbour)) not in self.cut:
                self.queues.setdefault((origin, neighbour), deque()).append(message)

    def order(self, orders: Orders) -> None:
        for node, order in orders:
            self.orders[node].append(order)

    def obey(self, node: str) -> None:
        told = self.nodes[node].ordered(self.orders[node].popleft())
        self.send(node, [(to, message) for to, message in told if not isinstance(message, LinkAgain)])
        self.nodes[node].validate()

    def step(self) -> tuple[str, str] | None:
        """Deliver one message or one order; None when nothing is under way."""
        busy: list[tuple[str, str]] = [link for link, queue in self.queues.items() if queue]
        busy += [("", node) for node, orders in self.orders.items() if orders]
        if not busy:
            return None
        (link,) = self.chance.choices(busy, [self.weight.get(link, 20) for link in busy])
        origin, node = link
        if not origin:
            self.obey(node)
        else:
            self.send(node, self.nodes[node].received(origin, self.queues[link].popleft()))
            self.nodes[node].validate()
        return link

    def steps(self) -> Iterator[tuple[str, str]]:
        while (link := self.step()) is not None:
            yield link

    def sever(self, one: str, other: str) -> None:
        """What is under way on the link is lost."""
        self.cut.add(frozenset((one, other)))
        self.queues.pop((one, other), None)
        self.queues.pop((other, one), None)

    def parents(self, tree: str, epoch: int) -> dict[str, str | None]:
        return {name: node.parent(tree, epoch) for name, node in sorted(self.nodes.items()) if node.knows(tree, epoch)}

    def children(self, tree: str, epoch: int) -> dict[str, tuple[str, ...]]:
        return {name: node.children(tree, epoch) for name, node in self.nodes.items() if node.knows(tree, epoch)}

    def assert_is(self, tree: str, epoch: int, expected: dict[str, str | None]) -> None:
        assert self.parents(tree, epoch) == expected
        for name, children in self.children(tree, epoch).items():
            assert children == tuple(sorted(node for node, parent in expected.items() if parent == name))

    def assert_settled(self, tree: str, epoch: int, expected: dict[str, str | None]) -> None:
        """The tree is as expected, and nothing under way can change it: only refusals of overtaken offers are left."""
        self.assert_is(tree, epoch, expected)
        for (_, receiver), queue in self.queues.items():
            for message in queue:
                if (message.tree, message.epoch) == (tree, epoch):
                    (row,) = (at for at in self.nodes[receiver].table() if (at["tree"], at["epoch"]) == (tree, epoch))
                    assert isinstance(message, TreeNack), message
                    assert row["state"] == "settled", row
                    assert message.cost != (row["sum_us"], row["zero_hops"]), message


def start(area: Neighbourhood, *builds: tuple[str, int]) -> None:
    for tree, epoch in builds:
        area.send(tree, area.nodes[tree].start(tree, epoch))


@pytest.mark.parametrize("delays", [(0, 1, 2), (1, 2, 3), (7,), (0,), range(1000)], ids=str)
def test_the_tree_is_the_shortest_path_tree_and_the_root_says_so_when_it_is_final(delays: Sequence[int]) -> None:
    for seed in range(60):
        chance = random.Random(f"{seed} {delays}")
        network = random_network(chance, delays)
        area, root = Neighbourhood(network, chance), chance.choice(network.nodes)
        expected = tree_by_definition(network, root)
        start(area, (root, 1))
        assert area.nodes[root].stands(root, 1) == (len(network.nodes) == 1)
        for _ in area.steps():
            if area.nodes[root].stands(root, 1):
                area.assert_settled(root, 1, expected)
        assert area.nodes[root].stands(root, 1), seed
        area.assert_settled(root, 1, expected)
        assert expected == shortest_path_tree(network, root)
        assert all(node.unknown == 0 for node in area.nodes.values())


def test_several_trees_and_epochs_are_built_at_once_without_disturbing_each_other() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        network = random_network(chance, (0, 1, 1, 5))
        area = Neighbourhood(network, chance)
        builds = [
            (tree, epoch) for tree in chance.sample(network.nodes, min(4, len(network.nodes))) for epoch in (1, 2)
        ]
        chance.shuffle(builds)
        pending = list(builds)
        expected = {tree: tree_by_definition(network, tree) for tree, _ in builds}
        while pending or area.step() is not None:
            if pending and chance.random() < 0.1:
                start(area, pending.pop())
            for tree, epoch in builds:
                if area.nodes[tree].stands(tree, epoch):
                    area.assert_settled(tree, epoch, expected[tree])
        for tree, epoch in builds:
            assert area.nodes[tree].stands(tree, epoch), seed
            area.assert_settled(tree, epoch, expected[tree])


def test_nodes_that_a_zero_delay_link_joins_do_not_take_each_other_for_parent() -> None:
    network = a_network("z-a 5, z-b 5, a-b 0")  # both would prefer each other to z by name alone
    for seed in range(20):
        area = Neighbourhood(network, random.Random(seed))
        start(area, ("z", 1))
        list(area.steps())
        area.assert_is("z", 1, {"a": "z", "b": "z", "z": None})


def test_equal_sums_go_to_the_parent_whose_name_is_smaller_in_utf8() -> None:
    # As UTF-16 the second name would be the smaller one.
    low, high = "\uffff", "\U00010000"
    network = a_network(f"r-{low} 1, r-{high} 1, {low}-x 1, {high}-x 1")
    for seed in range(20):
        area = Neighbourhood(network, random.Random(seed))
        start(area, ("r", 1))
        list(area.steps())
        assert area.nodes["x"].parent("r", 1) == low
        assert area.nodes["r"].stands("r", 1)


def test_a_node_that_acknowledged_leaves_when_a_better_offer_comes() -> None:
    node = Trees("x", {"far": 10, "near": 1})
    assert node.received("far", CreateTree("r", 1, 5)) == [("near", CreateTree("r", 1, 15))]
    assert node.received("near", TreeNack("r", 1, 15)) == [("far", TreeAck("r", 1, 5))]
    assert node.received("near", CreateTree("r", 1, 5)) == [
        ("far", TreeNack("r", 1, 5)),
        ("far", CreateTree("r", 1, 6)),
    ]
    assert node.parent("r", 1) == "near"
    assert node.received("far", TreeNack("r", 1, 15)) == [], "this answers the older offer"
    assert node.stale == 1
    assert node.received("far", TreeNack("r", 1, 6)) == [("near", TreeAck("r", 1, 5))]


def test_a_former_parent_owes_an_answer_to_each_of_two_equal_offers() -> None:
    node = Trees("x", {"a": 1, "b": 1, "c": 1})
    node.received("c", CreateTree("r", 1, 5))
    for better, left in (("b", "c"), ("a", "b")):
        assert node.received(better, CreateTree("r", 1, 5)) == [
            (left, TreeNack("r", 1, 5)),
            (left, CreateTree("r", 1, 6)),
        ]
    refusal = TreeNack("r", 1, 6)
    assert [node.received(neighbour, refusal) for neighbour in "acb"] == [[], [], []]
    # b's first refusal may have left before b heard that x is no longer its child; the second cannot have.
    assert node.received("b", refusal) == [("a", TreeAck("r", 1, 5))]


def test_children_must_acknowledge_every_new_offer() -> None:
    node = Trees("x", {"p": 9, "q": 1, "child": 1})
    node.received("p", CreateTree("r", 1, 0))
    node.received("child", TreeAck("r", 1, 9))
    assert node.children("r", 1) == ("child",)
    node.received("q", CreateTree("r", 1, 0))
    assert node.children("r", 1) == ()
    node.received("child", TreeAck("r", 1, 9))
    assert node.children("r", 1) == ()
    node.received("child", TreeAck("r", 1, 1))
    assert node.children("r", 1) == ("child",)


def test_a_worse_offer_is_refused_at_once() -> None:
    node = Trees("x", {"p": 1, "q": 1})
    node.received("p", CreateTree("r", 1, 5))
    assert node.received("q", CreateTree("r", 1, 5)) == [("q", TreeNack("r", 1, 5))], "the larger name loses a tie"
    assert node.received("q", CreateTree("r", 1, 4)) != [("q", TreeNack("r", 1, 4))]


def test_a_build_goes_on_from_saved_state() -> None:
    for seed in range(30):
        chance = random.Random(seed)
        network = random_network(chance, (0, 1, 2))
        area, root = Neighbourhood(network, chance), chance.choice(network.nodes)
        start(area, (root, 1))
        for _ in area.steps():
            name = chance.choice(network.nodes)
            saved = msgpack.unpackb(msgpack.packb(area.nodes[name].save()))
            reborn = Trees(name, {})
            reborn.restore(saved)
            reborn.validate()
            assert reborn.save() == area.nodes[name].save()
            area.nodes[name] = reborn
        assert area.nodes[root].stands(root, 1), seed
        area.assert_is(root, 1, tree_by_definition(network, root))


def test_saved_state_of_another_node_or_damaged_is_refused_and_changes_nothing() -> None:
    node = Trees("x", {"y": 1})
    node.start("x", 1)
    before = node.save()
    with pytest.raises(TreeStateError, match="of 'y', not of 'x'"):
        node.restore(Trees("y", {"x": 1}).save())
    for damaged in ({}, {**before, "builds": [["x", 1]]}, {**before, "gone": 3}):
        with pytest.raises(TreeStateError, match="damaged"):
            node.restore(damaged)
    assert node.save() == before


def test_messages_about_unknown_or_forgotten_builds_are_counted_and_offers_refused() -> None:
    node = Trees("x", {"y": 1, "z": 2})
    assert node.received("y", TreeAck("r", 1, 3)) == []
    assert node.received("y", TreeNack("r", 1, 3)) == []
    assert node.received("stranger", CreateTree("r", 1, 0)) == []
    assert node.received("y", CreateTree("x", 9, 0)) == [("y", TreeNack("x", 9, 0))], "x never began its tree"
    assert node.unknown == 4
    node.received("y", CreateTree("r", 2, 0))
    node.forget("r", 2)
    assert not node.knows("r", 2)
    assert node.received("z", CreateTree("r", 2, 0)) == [("z", TreeNack("r", 2, 0))]
    assert node.received("z", CreateTree("r", 1, 0)) == [("z", TreeNack("r", 1, 0))], "an epoch before a forgotten one"
    assert node.received("z", TreeAck("r", 2, 1)) == []
    assert node.unknown == 7
    assert node.table() == []
    assert node.received("z", CreateTree("r", 3, 0)) == [("y", CreateTree("r", 3, 2))], "a later epoch is welcome"


def test_an_order_given_twice_changes_nothing() -> None:
    root = Trees("r", {"a": 1})
    assert root.start("r", 1) == [("a", CreateTree("r", 1, 0))]
    assert root.start("r", 1) == []
    root.received("a", TreeAck("r", 1, 0))
    assert root.start("r", 1) == []
    assert root.stands("r", 1)
    root.forget("r", 1)
    root.forget("r", 1)
    assert root.start("r", 1) == []
    assert not root.stands("r", 1)


def test_a_lost_link_breaks_the_trees_that_use_it_and_only_those() -> None:
    area = Neighbourhood(a_network("r-a 1, a-b 1, r-b 1"), random.Random(0))
    start(area, ("r", 1), ("a", 1))
    list(area.steps())
    assert area.nodes["a"].link_gone("b") == []
    assert area.nodes["a"].broken() == (("a", 1),)
    assert not area.nodes["a"].stands("a", 1)
    assert area.nodes["r"].stands("r", 1)
    assert area.nodes["b"].broken() == ()
    area.nodes["b"].link_gone("a")
    assert area.nodes["b"].broken() == (("a", 1),)
    assert area.nodes["b"].parent("a", 1) == "a", "what still drains along a broken tree may read it"
    assert area.nodes["b"].received("r", CreateTree("a", 1, 0)) == []
    area.nodes["a"].link_back("b")
    area.nodes["b"].link_back("a", 7)
    start(area, ("a", 2))
    list(area.steps())
    assert area.nodes["a"].stands("a", 2)
    assert area.nodes["b"].parent("a", 2) == "r"


def test_a_build_that_only_awaits_an_answer_over_a_lost_link_goes_on_without_it() -> None:
    node = Trees("x", {"p": 1, "q": 1})
    node.received("p", CreateTree("r", 1, 0))
    assert node.link_gone("q") == [("p", TreeAck("r", 1, 0))]
    assert node.received("q", TreeAck("r", 1, 1)) == []
    assert node.received("q", CreateTree("r", 1, 0)) == []
    assert (node.unknown, node.stale, node.broken()) == (0, 2, ())


def test_what_was_sent_before_a_link_was_lost_is_ignored_when_it_is_back() -> None:
    node = Trees("x", {"p": 1, "q": 1})
    node.received("p", CreateTree("r", 1, 5))
    node.ordered(DropLink("q"))
    assert node.ordered(UseLink("q", 1)) == [("q", LinkAgain(1))]
    assert node.ordered(UseLink("q", 1)) == [], "an order given twice"
    assert node.received("q", CreateTree("r", 1, 0)) == [], "q has not said yet that it uses the link again"
    assert node.parent("r", 1) == "p"
    node.link_again("q", 1)
    assert node.received("q", CreateTree("r", 2, 0)) == [("p", CreateTree("r", 2, 1))]


def test_what_comes_over_a_link_that_is_back_waits_until_the_node_is_told_of_it() -> None:
    node = Trees("x", {"p": 1, "q": 1})
    node.ordered(DropLink("q"))
    assert node.received("q", CreateTree("r", 1, 0)) == []
    node.link_again("q", 1)
    assert node.received("q", CreateTree("r", 2, 0)) == []
    copied = Trees("x", {})
    copied.restore(node.save())
    for each in (node, copied):
        assert each.ordered(UseLink("q", 1)) == [("q", LinkAgain(1)), ("p", CreateTree("r", 2, 1))]
        assert not each.knows("r", 1), "that came before the link was lost"


def test_a_node_that_remembers_nothing_repeats_what_it_offered_before_it_was_told_of_its_links() -> None:
    node = Trees("x", {"q": 1})
    assert node.start("x", 1) == [("q", CreateTree("x", 1, 0))]
    assert node.ordered(UseLink("q", 3)) == [("q", LinkAgain(3)), ("q", CreateTree("x", 1, 0))]
    node.link_again("q", 3)
    assert node.received("q", TreeAck("x", 1, 0)) == []
    assert node.stands("x", 1)


def test_a_neighbour_that_remembers_nothing_breaks_builds_and_is_told_again_of_the_link() -> None:
    node = Trees("x", {"p": 1, "q": 1})
    node.ordered(UseLink("q", 1))
    node.link_again("q", 1)
    node.received("p", CreateTree("r", 1, 5))
    node.received("p", CreateTree("s", 1, 5))
    node.received("q", TreeNack("s", 1, 6))
    assert node.link_reset("q") == [("q", LinkAgain(1))]
    assert node.broken() == (("r", 1),), "in the other it owes nothing"


def test_an_installed_tree_can_be_read_and_is_not_negotiated() -> None:
    node = Trees("x", {"p": 1, "a": 1, "b": 1})
    assert node.ordered(InstallTree("r", 4, "p", ("b", "a"))) == []
    assert (node.parent("r", 4), node.children("r", 4)) == ("p", ("a", "b"))
    assert node.received("a", CreateTree("r", 4, 0)) == [("a", TreeNack("r", 4, 0))]
    assert node.received("a", TreeNack("r", 4, 0)) == []
    assert node.children("r", 4) == ("a", "b")
    assert node.unknown == 2
    with pytest.raises(ConfigError, match="no link"):
        node.install("r", 5, "absent", ())
    node.ordered(DropLink("a"))
    assert node.broken() == (("r", 4),)


def test_a_link_must_join_two_nodes_and_take_no_negative_time() -> None:
    for neighbours in ({"x": 1}, {"y": -1}):
        with pytest.raises(ConfigError, match="cannot be"):
            Trees("x", neighbours)


# -- with the coordinator ----------------------------------------------------------------------------------------------


def with_sinks(network: Network, nodes: Iterable[str]) -> Network:
    sinks = tuple(Sink(node, Subscription("A")) for node in nodes)
    return Network(network.types, network.nodes, network.links, (), sinks, (), "mt")


def run_with_keeper(area: Neighbourhood, keeper: TreeKeeper, lost: set[str], steps_max: int | None = None) -> None:
    """Let nodes and coordinator talk, until nothing is under way or for so many steps."""
    reported: set[tuple[str, str, int]] = set()
    done = 0
    while True:
        for name, node in area.nodes.items():
            for tree, epoch in node.broken():
                if name not in lost and (name, tree, epoch) not in reported:
                    reported.add((name, tree, epoch))
                    area.order(keeper.tree_broken(tree, epoch))
        for tree in keeper.roots:
            if area.nodes[tree].stands(tree, keeper.epoch(tree)):
                assert keeper.tree_stands(tree, keeper.epoch(tree))
        done += 1
        if done == steps_max or area.step() is None:
            return


@pytest.mark.parametrize("strategy", ["st", "mt"])
def test_trees_are_rebuilt_after_links_and_nodes_are_lost_at_any_moment(strategy: str) -> None:
    replaced = 0
    for seed in range(60):
        chance = random.Random(seed)
        network = random_network(chance, (0, 1, 2, 50))
        network = with_sinks(network, chance.sample(network.nodes, min(3, len(network.nodes))))
        area, keeper = Neighbourhood(network, chance), TreeKeeper(network, strategy)
        lost: set[str] = set()
        area.order(keeper.begin())
        for _ in range(chance.randrange(1, 5)):
            run_with_keeper(area, keeper, lost, chance.choice((None, 1, 5, 50)))
            if chance.random() < 0.6 and network.links:
                link: Link = chance.choice(network.links)
                area.sever(link.one, link.other)
                area.order(keeper.lost_link(link.one, link.other))
            elif len(network.nodes) - len(lost) > 1:
                gone = chance.choice([node for node in network.nodes if node not in lost])
                lost.add(gone)
                for neighbour in network.neighbours()[gone]:
                    area.sever(gone, neighbour)
                area.orders[gone].clear()
                area.order(keeper.lost_node(gone))
        run_with_keeper(area, keeper, lost)
        assert keeper.all_stand(), seed
        assert keeper.check({name: node.table() for name, node in area.nodes.items() if name not in lost}) == [], seed
        replaced += len(keeper.superseded)
        for tree, epoch in keeper.superseded:
            area.order(keeper.drained(tree, epoch))
        list(area.steps())
        for name in set(area.nodes) - lost:
            held = {(row["tree"], row["epoch"]) for row in area.nodes[name].table()}
            assert held <= {(tree, keeper.epoch(tree)) for tree in keeper.roots}, seed
    assert replaced > 20, "the losses must have hit trees that stood"


def test_an_installed_tree_stands_and_equals_the_built_one() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        network = random_network(chance, (0, 1, 2))
        area, keeper = Neighbourhood(network, chance), TreeKeeper(network, "st")
        area.order(keeper.installed(keeper.roots[0]) if seed % 2 else keeper.begin())
        run_with_keeper(area, keeper, set())
        if not seed % 2:
            area.order(keeper.installed(keeper.roots[0]))
            run_with_keeper(area, keeper, set())
        root = keeper.roots[0]
        assert keeper.epoch(root) == (1 if seed % 2 else 2)
        assert keeper.all_stand()
        area.assert_is(root, keeper.epoch(root), tree_by_definition(network, root))
        assert keeper.check({name: node.table() for name, node in area.nodes.items()}) == []
