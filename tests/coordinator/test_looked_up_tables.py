"""Rules that are deployed in a running network may look into the tables that its file describes, and no others."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

import pytest

from headwater.coordinator.core import Coordinator
from headwater.coordinator.daemon.api.rule_texts import read_rules
from headwater.coordinator.daemon.operations import RequestRefused
from headwater.coordinator.leader import leader
from headwater.coordinator.table_ways import table_ways
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.messages import control
from headwater.protocol.network import DescribedTable, Link, Network, Sink
from headwater.protocol.network import Source as EventSource
from headwater.protocol.strategy import STRATEGIES
from headwater.protocol.subscriptions import Subscription

T = EventType("T", [("org", "string"), ("vol", "int")])
RULE = "Over: SEQ(T t) WHERE t.vol > REMOTE.limits[t.org] AND t.org = REMOTE.names[t.org] WITHIN 1 s RETURN Over()"


def read(*tables: DescribedTable) -> list[str]:
    found = read_rules([Source(RULE, "over", "sase")], {}, {"T": T}, "inev", tables=tables)
    return [rule.name for rule in found.rules]


def test_a_rule_may_look_into_the_tables_there_are() -> None:
    assert read(DescribedTable("limits", "{}"), DescribedTable("names", "{}", ("p1",))) == ["Over"]


def test_a_table_that_there_is_not_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        RequestRefused, match="looks into 'names', which is no remote table of this network; the tables"
    ):
        read(DescribedTable("limits", "{}"))
    with pytest.raises(RequestRefused, match="its file describes none"):
        read()


@pytest.mark.parametrize(
    ("description", "length"),
    [
        ("{keys: [org, card], sqlite: a.db}", 2),
        ("{http: 'http://h/{org}/{card}'}", 2),
        ("{redis: 'h:1', key: 'a:{org}:{card}:{org}'}", 2),
        ("{http: 'http://h?ids={keys}', keys: [id]}", 1),
        ("{file: names.csv}", None),
        ("{python: 'a:b'}", None),
    ],
)
def test_a_lookup_with_too_few_or_too_many_values_is_refused(description: str, length: int | None) -> None:
    tables = DescribedTable("limits", description), DescribedTable("names", "{}")
    if length in (None, 1):
        assert read(*tables) == ["Over"]
    else:
        with pytest.raises(RequestRefused, match=r"'Over' looks up 1 value in the table 'limits', whose key has 2"):
            read(*tables)


def test_no_node_needs_to_reach_all_tables_of_a_rule() -> None:
    assert read(DescribedTable("limits", "{}", ("p1",)), DescribedTable("names", "{}", ("p2",))) == ["Over"]


def test_the_leader_reaches_most_tables_itself() -> None:
    links = (Link("p1", "p2", 1), Link("p2", "p3", 1))
    network = Network((T,), ("p1", "p2", "p3"), links, (), (), ())
    assert leader(network) == "p2"
    near = Network((T,), ("p1", "p2", "p3"), links, (), (), (), tables=(DescribedTable("a", "", ("p1", "p3")),))
    assert leader(near) == "p1"
    assert leader(near, without_nodes={"p1"}) == "p3"
    assert leader(near, without_nodes={"p1", "p3"}) == "p2"
    reached_from = {"a": ("p1",), "b": ("p1", "p3"), "c": ("p2",)}
    several = tuple(DescribedTable(name, "", at) for name, at in reached_from.items())
    assert leader(Network((T,), ("p1", "p2", "p3"), links, (), (), (), tables=several)) == "p1"


# p1 - p2 - p3 - p5, and p4 between p1 and p5 by slow links
RING = Network(
    (T,),
    ("p1", "p2", "p3", "p4", "p5"),
    (Link("p1", "p2", 1), Link("p2", "p3", 1), Link("p3", "p5", 1), Link("p5", "p4", 9), Link("p4", "p1", 9)),
    (),
    (),
    (),
    tables=(DescribedTable("limits", "", ("p5",)), DescribedTable("names", ""), DescribedTable("risk", "", ("p1",))),
)


def ways(lost_nodes: Collection[str] = (), lost_links: Collection[tuple[str, str]] = ()) -> dict[str, dict[str, str]]:
    nodes = [node for node in RING.nodes if node not in lost_nodes]
    links = [(link.one, link.other) for link in RING.links if (link.one, link.other) not in lost_links]
    return {node: {way.table: way.neighbour for way in found} for node, found in table_ways(RING, nodes, links).items()}


def test_ways_lead_to_the_nearest_node_that_reaches_a_table_over_what_is_left() -> None:
    assert ways() == {
        "p1": {"limits": "p2"},
        "p2": {"limits": "p3", "risk": "p1"},
        "p3": {"limits": "p5", "risk": "p2"},
        "p4": {"limits": "p5", "risk": "p1"},
        "p5": {"risk": "p3"},
    }
    assert ways(lost_links=[("p2", "p3")])["p1"] == {"limits": "p4"}
    assert ways(lost_nodes=["p3"])["p2"] == {"limits": "p1", "risk": "p1"}
    assert ways(lost_nodes=["p5"])["p2"] == {"limits": "", "risk": "p1"}
    assert ways(lost_nodes=["p4"], lost_links=[("p2", "p3")])["p1"] == {"limits": ""}


def test_of_nodes_that_reach_a_table_and_look_into_it_those_further_out_ask_a_neighbour_first() -> None:
    links = [(link.one, link.other) for link in RING.links]
    lookers = {"names": {"p1", "p2", "p3", "p4"}, "limits": {"p4", "p5"}, "risk": {"p1"}}
    first = {
        node: {way.table: way.neighbour for way in told if way.reached}
        for node, told in table_ways(RING, RING.nodes, links, lookers).items()
    }
    assert first == {"p1": {}, "p2": {"names": "p1"}, "p3": {"names": "p2"}, "p4": {"names": "p1"}, "p5": {}}
    beside = replace(RING, tables=(DescribedTable("names", "{keys: [org], file: names.csv}"),))
    assert table_ways(beside, RING.nodes, links, lookers) == {}


def test_ways_lead_in_no_circle_where_links_take_no_time() -> None:
    chance = random.Random(15)
    for _ in range(200):
        nodes = tuple(f"n{number}" for number in range(chance.randint(2, 7)))
        pairs = [(one, other) for one in nodes for other in nodes if one < other and chance.random() < 0.5]
        links = tuple(Link(one, other, chance.choice((0, 0, 1))) for one, other in pairs)
        at = tuple(chance.sample(nodes, chance.randint(1, len(nodes))))
        network = Network((T,), nodes, links, (), (), (), tables=(DescribedTable("limits", "", at),))
        told = {node: way.neighbour for node, (way,) in table_ways(network, nodes, pairs).items()}
        for node in told:
            steps = 0
            while told.get(node):
                node, steps = told[node], steps + 1
                assert steps < len(nodes)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nodes_can_read_the_plan_of_a_network_whose_tables_not_all_reach(strategy: str) -> None:
    network = replace(
        RING,
        sources=(EventSource("p1", "T"),),
        sinks=(Sink("p3", Subscription("Over")),),
        rules=parse_rules([Source(RULE, "over", "sase")], [T]).rules,
    )
    orders = Coordinator(network, strategy).begin()
    assert orders
    for _, order in orders:
        assert control.decode(control.encode(control.Ordered(order))) == control.Ordered(order)
