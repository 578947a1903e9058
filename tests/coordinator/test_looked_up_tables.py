"""Rules that are deployed in a running network may look into the tables that its file describes, and no others."""

from __future__ import annotations

import pytest

from headwater.coordinator.daemon.api.rule_texts import read_rules
from headwater.coordinator.daemon.operations import RequestRefused
from headwater.coordinator.leader import leader
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source
from headwater.protocol.network import DescribedTable, Link, Network

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


def test_tables_that_no_node_reaches_together_are_refused() -> None:
    with pytest.raises(RequestRefused, match="limits, names; no node reaches all of them"):
        read(DescribedTable("limits", "{}", ("p1",)), DescribedTable("names", "{}", ("p2",)))


def test_the_leader_reaches_all_tables_if_a_node_does() -> None:
    links = (Link("p1", "p2", 1), Link("p2", "p3", 1))
    network = Network((T,), ("p1", "p2", "p3"), links, (), (), ())
    assert leader(network) == "p2"
    near = Network((T,), ("p1", "p2", "p3"), links, (), (), (), tables=(DescribedTable("a", "", ("p1", "p3")),))
    assert leader(near) == "p1"
    assert leader(near, without_nodes={"p1"}) == "p3"
    assert leader(near, without_nodes={"p1", "p3"}) == "p2"
