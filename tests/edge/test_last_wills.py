"""Devices that leave by their last wills: which one, what a node shows of it, and that no decision waits for them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from headwater.node.edge import devices as limits
from headwater.node.edge.devices import Devices, device_of_will
from headwater.protocol.edge import Broker, MqttFeed
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.edge import a_broker, device_that_dies, run
from tests.kit.processes import Cluster, until

HERE = Broker("127.0.0.1", 1883)
SMOKE = EventType("Smoke", {"area": "string"})
ALONE = """define Alone(area: string)
from Smoke() as s and not Smoke(area != s.area) as other within 5 min from s
where area = s.area"""


@pytest.mark.parametrize(
    ("device", "topic", "stood_for", "payload", "who"),
    [
        ("+1", "s/t7/left", ["t7"], b"", "t7"),
        ("+2", "s/a/t7/left", ["a", "t7"], b"", "t7"),
        ("+2", "s/t7/left", ["t7"], b"", "t7"),  # the will has fewer wildcards
        ("id", "s/left", [], b'{"id": "t7"}', "t7"),
        ("id", "s/left", [], b'{"id": 7}', "7"),
        ("id", "s/left", [], b'{"id": [7]}', "s/left"),
        ("id", "s/t7/left", ["t7"], b"gone", "t7"),
        ("id", "s/t7/left", ["t7"], b"[" * 100_000, "t7"),
        (None, "s/t7/left", ["t7"], b"", "t7"),
        (None, "s/left", [], b"", "s/left"),
        (None, "s/x/left", ["x" * 60_000], b"", "x" * limits.NAME_CHARACTERS_MAX),
    ],
)
def test_whose_last_will_it_is(device: str | None, topic: str, stood_for: list[str], payload: bytes, who: str) -> None:
    feed = MqttFeed("s/+", HERE, device=device, counter=device and "n", will="s/+/left")
    assert device_of_will(feed, topic, stood_for, payload) == who


def test_a_device_has_left_from_its_will_until_its_next_event() -> None:
    known = Devices("Smoke")
    assert not known.all_left  # no device was heard of
    assert not known.heard("a")
    assert known.left("a", 5)
    assert known.all_left
    assert not known.heard("b")
    assert not known.all_left
    assert known.left("b", 7)
    assert known.shown() == {
        "left": True,
        "devices_present": 0,
        "devices_left": 2,
        "who_left": [{"device": "b", "since": 7}, {"device": "a", "since": 5}],
    }
    assert known.heard("a")  # it is back
    assert (known.present_count, known.left_count) == (1, 1)


def test_a_will_that_the_broker_has_kept_tells_nothing_of_a_device_that_was_heard_of_since() -> None:
    known = Devices("Smoke")
    known.heard("a")
    assert not known.left("a", 5, is_old=True)
    assert known.left("b", 5, is_old=True)
    assert (known.present_count, known.left_count) == (1, 1)


def test_no_more_devices_are_known_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DEVICES_MAX", 3)
    known = Devices("Smoke")
    for number in range(10):
        known.left(f"d{number}", number)
    assert (known.present_count, known.left_count) == (0, 3)
    for name in ("d9", "x", "y"):
        known.heard(name)
    assert (known.present_count, known.left_count) == (3, 0)


def test_a_node_shows_a_source_that_has_left_and_its_rules_go_on(tmp_path: Path) -> None:
    """A negation is decided by the clock, although all devices have left."""
    rules = parse_rules([RuleText(ALONE, "alone", "tesla")], [SMOKE]).rules
    sinks = (Sink("p1", parse_subscription("Alone", "test")),)
    network = Network((SMOKE,), ("p1",), (), (Source("p1", "Smoke", 300_000),), sinks, rules, "st")

    async def publish(broker: Broker, topic: str, event: dict[str, Any]) -> None:
        async with aiomqtt.Client(broker.host, broker.port) as client:
            await client.publish(topic, json.dumps(event), qos=1)

    def shown(cluster: Cluster) -> Any:
        (found,) = cluster.ask("p1", "/sources")
        return found

    async def scenario() -> None:
        async with a_broker("embedded", tmp_path) as broker:
            feed = MqttFeed("s/+/smoke", broker, device="+1", counter="n", will="s/+/left")
            await asyncio.to_thread(watch, feed, asyncio.get_running_loop())

    def watch(feed: MqttFeed, loop: asyncio.AbstractEventLoop) -> None:
        def do(what: Any) -> None:
            asyncio.run_coroutine_threadsafe(what, loop).result()

        with Cluster(network, tmp_path, (feed,)) as cluster:
            cluster.wait_until_ready()
            until(lambda: "listens to" in cluster.said("p1"), "the source is connected", cluster)
            do(publish(feed.broker, "s/t7/smoke", {"area": "A1", "n": 1}))
            until(lambda: shown(cluster)["devices_present"] == 1, "the device is known", cluster)
            do(device_that_dies(feed.broker, "s/t7/left", b"gone"))
            until(lambda: shown(cluster)["left"], "the source has left", cluster)
            assert [each["device"] for each in shown(cluster)["who_left"]] == ["t7"]
            page = cluster.metrics("p1")
            assert 'headwater_source_left{source="0",type="Smoke"} 1.0' in page
            assert 'headwater_source_devices{source="0",state="left"} 1.0' in page
            assert 'headwater_edge_happenings_total{what="devices_left"} 1.0' in page
            cluster.wait_until_delivered(1)  # no decision waits for the device
            do(publish(feed.broker, "s/t7/smoke", {"area": "A1", "n": 2}))
            until(lambda: not shown(cluster)["left"], "the device is back", cluster)
            assert shown(cluster)["devices_present"] == 1
            assert not shown(cluster)["ended"]
            cluster.wait_until_delivered(2)
            assert not cluster.bugs()

    run(scenario())
