"""Rules that fail on the values they meet, in running nodes: said, counted under their name, and harmless to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headwater.node.client import Client
from headwater.protocol.edge import ClientFeed
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.patience import patiently
from tests.kit.processes import Cluster

ODD = EventType("Odd", {"v": "any"})
PLAIN = EventType("Plain", {"v": "int"})
RULES = """
define Both(v: int) from Plain() as p and each Odd(v < p.v) as o within 5 min from p where v = p.v
define Large(v: any) from Odd(v > 10) as o where v = o.v
define Sum(total: any) from Plain() as p and each Odd() as o within 5 min from p where total = o.v + p.v
"""


def network(strategy: str) -> Network:
    rules = parse_rules([RuleText(RULES, "rules", "tesla")], [ODD, PLAIN]).rules
    sinks = tuple(Sink("p1", parse_subscription(name, "test")) for name in ("Both", "Large", "Sum"))
    sources = (Source("p2", "Odd", 1_000_000), Source("p2", "Plain", 1_000_000))
    return Network((ODD, PLAIN), ("p1", "p2"), (Link("p1", "p2"),), sources, sinks, rules, strategy)


@pytest.mark.parametrize("strategy", ["centr", "mt"])
def test_a_rule_that_fails_on_values_is_counted_under_its_name_and_everything_else_goes_on(
    tmp_path: Path, strategy: str
) -> None:
    async def publish(cluster: Cluster) -> None:
        address = cluster.log("p2").with_suffix(".address").read_text()
        async with Client("p2", address, name="test", network="test") as client, patiently():
            for value in (1, "text", 20):
                await client.publish("Odd", {"v": value})
            await client.publish("Plain", {"v": 7})

    with Cluster(network(strategy), tmp_path, (ClientFeed(), ClientFeed())) as cluster:
        cluster.wait_until_ready()
        asyncio.run(publish(cluster))
        cluster.wait_until_delivered(1 + 3)
        both, large, sums = cluster.delivered()
        pages = "".join(cluster.metrics(node) for node in ("p1", "p2"))
        logs = cluster.said("p1") + cluster.said("p2")
        assert not cluster.bugs()
    assert both == []  # the event that it failed at completes nothing
    assert [each["attributes"] for each in large] == [{"v": 20}]
    assert [each["attributes"].get("total") for each in sums] == [8, None, 27]
    assert 'headwater_rule_errors_total{rule="Both"} 1.0' in pages
    assert 'headwater_rule_errors_total{rule="condition on Odd"} ' in pages or '{rule="Large"} 1.0' in pages
    assert "rule 'Both' could not be evaluated: TypeError" in logs
    assert "internal_errors" not in pages
