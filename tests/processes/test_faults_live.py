"""Live sources, whose events happen now: nodes are killed under load, and so is the MQTT broker that they listen to.

What was born is what sinks at the nodes of the sources have received; every other sink must have what a single engine
finds over it.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.node.engine import Engine
from headwater.protocol.composites import Composite
from headwater.protocol.edge import Broker, Choice, Count, Cycle, FileTo, MqttFeed, RateFeed
from headwater.protocol.events import Event
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.network import Network
from tests.kit.builders import TYPES
from tests.kit.edge import MOSQUITTO, Mosquitto
from tests.kit.faults import names, some_time
from tests.kit.ports import free_port
from tests.kit.processes import Cluster, assert_exact, difference, until
from tests.law.law import SERVED
from tests.simulation.test_simulator import a_network

# -- events that a node makes up ---------------------------------------------------------------------------------------

EVENTS_AT = (("n3", "A"), ("n4", "B"), ("n5", "C"), ("n3", "D"))
COMPOSITES_AT = (("n5", "X"), ("n3", "Y"), ("n1", "X"))


def born(lines: list[dict[str, Any]]) -> list[Event]:
    return [Event(TYPES[e["type"]], e["ts"], e["node"], e["seq"], e["attributes"]) for e in lines]


def composites(network: Network, events: list[Event]) -> list[Composite]:
    engine = Engine(network.rules, network.types)
    return engine.feed(sorted(events)) + engine.close()


@pytest.mark.parametrize("strategy", SERVED)
def test_nodes_with_live_sources_are_killed(strategy: str, tmp_path: Path) -> None:
    chance = random.Random(f"live {strategy}")
    network = a_network(sources=EVENTS_AT, sinks=(*COMPOSITES_AT, *EVENTS_AT), lateness_us=0)
    values = (Count(1), Choice((0, 1, 2)), Cycle((None,)), Cycle((None,)))
    feeds = tuple(RateFeed(per_s, "poisson", values, duration_us=3_000_000) for per_s in (60, 60, 90, 8))
    with Cluster(replace(network, strategy=strategy), tmp_path, feeds) as cluster:
        cluster.wait_until_delivered(5)
        for number in (1, 3, 2):
            victims = chance.sample(names(network), number)
            cluster.kill(*victims)
            some_time(chance, 0.4)
            cluster.restart(*victims)
            some_time(chance, 0.5)
        cluster.wait_until_done()
        found = cluster.delivered()
        events = [event for lines in found[len(COMPOSITES_AT) :] for event in born(lines)]
        matches = composites(network, events)
        must: list[list[Any]] = [[match.id for match in matches if match.type == name] for _, name in COMPOSITES_AT]
        must += [[(event.node, event.seq) for event in events if event.type == name] for _, name in EVENTS_AT]
        assert all(must)
        assert_exact(cluster, must)


# -- events of devices -------------------------------------------------------------------------------------------------

PAIR = "define Pair(v: int) from B() and last A() within 300 ms from B where v = A.v"
SENT_AGAIN = 30  # what a device sends again when it has lost its connection: the broker may have lost it, too


class Device:
    """Publishes events that it numbers itself; what it is not sure of it sends again."""

    def __init__(self, name: str, port: int, count: int, period_s: float) -> None:
        self.name, self.port, self.count, self.period_s = name, port, count, period_s
        self.acknowledged = 0
        self.connections = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> Device:
        self._thread.start()
        return self

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    async def _run(self) -> None:
        import aiomqtt

        number = 1
        while number <= self.count:
            try:
                async with aiomqtt.Client("127.0.0.1", self.port, identifier=self.name, timeout=5) as client:
                    self.connections += 1
                    number = max(1, number - SENT_AGAIN)
                    while number <= self.count:
                        payload = {"device": self.name, "n": number, "id": number, "v": number % 3}
                        await client.publish(f"test/{self.name}", json.dumps(payload), qos=1)
                        self.acknowledged = max(self.acknowledged, number)
                        number += 1
                        await asyncio.sleep(self.period_s)
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
def test_the_broker_and_the_node_behind_it_are_killed(tmp_path: Path) -> None:
    """Each event that a device has numbered is born once, and composites are those of the events that were born."""
    port = free_port()
    broker = Mosquitto(tmp_path, port, "autosave_on_changes true\n")
    rules = parse_rules([Source(PAIR, "pair", "tesla")], TYPES.values()).rules
    links = (("n1", "n2"), ("n2", "n3"))
    sinks = (("n2", "Pair"), ("n1", "A"), ("n3", "B"))
    network = a_network(*rules, links=links, sources=(("n1", "A"), ("n3", "B")), sinks=sinks, lateness_us=100_000)
    feeds = tuple(
        MqttFeed(f"test/{name}", Broker("127.0.0.1", port), device="device", counter="n") for name in ("da", "db")
    )
    destinations = tuple(FileTo(f"sink-{number}.jsonl") for number in range(len(sinks)))

    def found_in(found: list[list[dict[str, Any]]]) -> list[str]:
        return [match.id for match in composites(network, born(found[1]) + born(found[2]))]

    asyncio.run(broker.start())
    try:
        with Cluster(network, tmp_path, feeds, destinations) as cluster:
            cluster.wait_until_ready()
            devices = [Device("da", port, 400, 0.01).start(), Device("db", port, 300, 0.013).start()]
            for victims in ((), ("n1",), ("n2", "n3")):
                time.sleep(0.7)
                asyncio.run(broker.stop(kill=True))
                if victims:
                    cluster.kill(*victims)
                time.sleep(0.3)
                asyncio.run(broker.start())
                cluster.restart(*victims)
            until(lambda: all(device.is_done for device in devices), "the devices have sent everything", cluster)
            must: list[Any] = [[], [("da", n) for n in range(1, 401)], [("db", n) for n in range(1, 301)]]

            def all_there() -> bool:
                found = cluster.delivered()
                return not difference(found[1:], must[1:]) and len(found[0]) >= len(found_in(found))

            until(all_there, "everything is delivered", cluster, cluster.waiting)
            time.sleep(1.0)  # whatever is repeated has had its time
            found = cluster.delivered()
            must[0] = found_in(found)
            assert must[0]
            assert_exact(cluster, must)
            assert min(device.connections for device in devices) > 1
            assert sum(map(repeated_at, (cluster.ask(node, "/statistics") for node in ("n1", "n3")))) > 0
    finally:
        asyncio.run(broker.stop())


def repeated_at(statistics: dict[str, Any]) -> int:
    """How often a device was recognised to tell the same again, since the last start of the node."""
    return sum(source["repeated"] for source in statistics["events"])
