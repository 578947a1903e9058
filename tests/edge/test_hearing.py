"""What sources tell while their node cannot hear them is not late: real processes are frozen, killed and cut off from a
broker that holds messages, or from a program that holds publications, for longer than the lateness of the source."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.node.client import Client
from headwater.node.engine import Engine
from headwater.protocol.edge import Broker, Choice, ClientFeed, Count, Cycle, Feed, FileTo, MqttFeed, RateFeed
from headwater.protocol.events import Event
from headwater.protocol.languages import Source, parse_rules
from headwater.protocol.network import Network
from tests.kit.builders import TYPES
from tests.kit.edge import MOSQUITTO, Mosquitto
from tests.kit.patience import PATIENCE_S
from tests.kit.ports import free_port
from tests.kit.processes import Cluster, assert_exact, until
from tests.simulation.test_simulator import a_network

LATENESS_US = 2_000_000
AWAY_S = 4.0
PERIOD_S = 0.02
SENT_AGAIN = 30
RULE = """
define Lone(v: int) from B() and not A(v = B.v) within 60 ms from B where v = B.v
define Pair(v: int, w: int) from B() and last A() within 300 ms from B where v = A.v, w = B.v
"""
SINKS = (("n2", "Lone"), ("n2", "Pair"), ("n1", "A"), ("n3", "B"))
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto")


def network_of_two_sources() -> Network:
    rules = parse_rules([Source(RULE, "rules", "tesla")], TYPES.values()).rules
    links = (("n1", "n2"), ("n2", "n3"))
    return a_network(*rules, links=links, sources=(("n1", "A"), ("n3", "B")), sinks=SINKS, lateness_us=LATENESS_US)


class Teller:
    """Tells an event every now and then, with its time, from a thread of its own; remembers what it has told."""

    def __init__(self, type_name: str, node: str) -> None:
        self.type, self.node = type_name, node
        self.told: list[Event] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._tell()), daemon=True)
        self.failed: BaseException | None = None

    async def _tell(self) -> None:
        try:
            await self.tell()
        except BaseException as error:
            self.failed = error
            raise

    async def tell(self) -> None:
        raise NotImplementedError

    def next(self, number: int) -> Event:
        attributes = {"id": number, "v": (number * 7) % 5}
        event = Event(TYPES[self.type], time.time_ns() // 1000, self.node, number, attributes)
        self.told.append(event)
        return event

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.failed is None, self.failed


class Device(Teller):
    """Publishes to a broker and numbers what it tells."""

    def __init__(self, type_name: str, port: int) -> None:
        super().__init__(type_name, f"device-{type_name}")
        self._port = port

    async def tell(self) -> None:
        import aiomqtt

        sure = 0  # of so many the broker has said that it has them
        while not self._stop.is_set() or sure < len(self.told):
            try:
                async with aiomqtt.Client("127.0.0.1", self._port, timeout=5) as client:
                    sure = max(0, sure - SENT_AGAIN)  # a broker that is killed may have lost what it has acknowledged
                    while not self._stop.is_set() or sure < len(self.told):
                        while sure < len(self.told):
                            told = self.told[sure]
                            payload = {**told.attributes, "d": self.node, "n": told.seq, "at": told.ts}
                            await client.publish(f"t/{self.type}", json.dumps(payload), qos=1)
                            sure += 1
                        await self._happens()
            except aiomqtt.MqttError:
                await self._happens()

    async def _happens(self) -> None:
        """Something to tell, now and then, whether or not the broker is there."""
        if not self._stop.is_set():
            self.next(len(self.told) + 1)
            await asyncio.sleep(PERIOD_S)


class Program(Teller):
    """Publishes at a node; what the node does not answer waits in the client."""

    def __init__(self, type_name: str, node: str, cluster: Cluster) -> None:
        super().__init__(type_name, node)
        self._address = cluster.log(node).with_suffix(".address").read_text()

    async def tell(self) -> None:
        async with Client(self.node, self._address, name=f"teller-{self.type}", network="test") as client:
            under_way: set[asyncio.Task[None]] = set()
            while not self._stop.is_set():
                # One event that waits behind others keeps the time at which it happened.
                told = self.next(len(self.told) + 1)
                task = asyncio.create_task(client.publish_at(self.type, [(told.ts, told.attributes)]))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(PERIOD_S)
            await asyncio.gather(*under_way)


def by_devices(port: int) -> tuple[Feed, ...]:
    broker = Broker("127.0.0.1", port)
    return tuple(MqttFeed(f"t/{name}", broker, device="d", counter="n", time="at") for name in "AB")


@contextmanager
def a_persistent_broker(folder: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(folder, free_port(), "max_queued_messages 0\nautosave_on_changes true\n")
    asyncio.run(broker.start())
    try:
        yield broker
    finally:
        asyncio.run(broker.stop())


def no_event_is_late(cluster: Cluster, tellers: list[Teller]) -> None:
    """Everything that was told is part of the trace, and sinks have what one engine finds over it."""
    told = sorted(event for teller in tellers for event in teller.told)

    def is_all_there() -> bool:
        return len(cluster.delivered()[2]) + len(cluster.delivered()[3]) >= len(told)

    late = [(cluster.data(node) / "late.jsonl") for node in cluster.network.nodes]
    until(is_all_there, "everything that was told is delivered", cluster, lambda: [f.exists() for f in late])
    assert not any(file.exists() for file in late)
    assert "is late" not in "".join(cluster.said(node) for node in cluster.network.nodes)
    # Programs have no numbers for their events: the node gives them, and the time and the id tell which it is.
    lines = [line for sink in cluster.delivered()[2:] for line in sink]
    born = {(line["type"], line["ts"], line["attributes"]["id"]): (line["node"], line["seq"]) for line in lines}
    trace = [Event(TYPES[e.type], e.ts, *born[e.type, e.ts, e.attributes["id"]], e.attributes) for e in told]
    engine = Engine(cluster.network.rules, cluster.network.types)
    found = engine.feed(sorted(trace)) + engine.close()
    must: list[list[Any]] = [[each.id for each in found if each.type == name] for _, name in SINKS[:2]]
    must += [[(each.node, each.seq) for each in trace if each.type == name] for _, name in SINKS[2:]]
    assert all(must)
    until(lambda: len(cluster.delivered()[0]) >= len(must[0]), "all that was not followed is told", cluster)
    until(lambda: len(cluster.delivered()[1]) >= len(must[1]), "all pairs are told", cluster)
    assert_exact(cluster, must)


def frozen(cluster: Cluster, *nodes: str) -> None:
    for node in nodes:
        cluster.pause(node)
    time.sleep(AWAY_S)
    for node in nodes:
        cluster.go_on(node)


def unheard_s(cluster: Cluster, node: str) -> float:
    """The longest time for which a source of the node has said that it was not heard."""
    return max(map(float, re.findall(r"is heard again after ([\d.]+) s", cluster.said(node))), default=0.0)


def has_stood_still(cluster: Cluster, node: str) -> bool:
    return unheard_s(cluster, node) >= AWAY_S


def killed(cluster: Cluster, *nodes: str) -> None:
    cluster.kill(*nodes)
    time.sleep(AWAY_S)
    cluster.restart(*nodes)


def destinations() -> tuple[FileTo, ...]:
    return tuple(FileTo(f"sink-{number}.jsonl") for number in range(len(SINKS)))


@needs_mosquitto
@pytest.mark.parametrize("away", [frozen, killed])
def test_what_a_broker_holds_for_a_node_that_is_away_is_not_late(tmp_path: Path, away: Callable[..., None]) -> None:
    with (
        a_persistent_broker(tmp_path) as broker,
        Cluster(network_of_two_sources(), tmp_path, by_devices(broker.port), destinations()) as cluster,
    ):
        cluster.wait_until_ready()
        tellers: list[Teller] = [Device("A", broker.port), Device("B", broker.port)]
        until(lambda: all("listens to" in cluster.said(node) for node in ("n1", "n3")), "sources listen", cluster)
        for teller in tellers:
            teller.start()
        cluster.wait_until_delivered(50)
        away(cluster, "n1")
        time.sleep(1.0)
        away(cluster, "n3")
        time.sleep(2.0)
        for teller in tellers:
            teller.stop()
        no_event_is_late(cluster, tellers)
        for node in ("n1", "n3") if away is frozen else ():
            until(partial(has_stood_still, cluster, node), f"{node} has said how long it stood still", cluster)


@needs_mosquitto
def test_what_devices_hold_for_a_broker_that_is_away_is_not_late(tmp_path: Path) -> None:
    with (
        a_persistent_broker(tmp_path) as broker,
        Cluster(network_of_two_sources(), tmp_path, by_devices(broker.port), destinations()) as cluster,
    ):
        cluster.wait_until_ready()
        tellers: list[Teller] = [Device("A", broker.port), Device("B", broker.port)]
        until(lambda: all("listens to" in cluster.said(node) for node in ("n1", "n3")), "sources listen", cluster)
        for teller in tellers:
            teller.start()
        cluster.wait_until_delivered(50)
        asyncio.run(broker.stop(kill=True))
        time.sleep(AWAY_S)
        until(lambda: "unreachable" in " ".join(cluster.ask("n1", "/ready")["degraded"]), "n1 misses it", cluster)
        assert cluster.ask("n1", "/ready")["ready"]
        asyncio.run(broker.start())
        time.sleep(2.0)
        for teller in tellers:
            teller.stop()
        no_event_is_late(cluster, tellers)
        until(lambda: not cluster.ask("n1", "/ready")["degraded"], "the broker is there again", cluster)
        assert "is unreachable: " in cluster.said("n1")
        assert "is reachable again" in cluster.said("n1")


def test_a_broker_that_never_comes_is_waited_for_until_an_operator_takes_its_source_away(tmp_path: Path) -> None:
    nowhere = MqttFeed("t/A", Broker("127.0.0.1", free_port()), device="d", counter="n", time="at")
    values = (Count(1), Choice((0, 1, 2)), Cycle((None,)), Cycle((None,)))
    feeds = (nowhere, RateFeed(20, "regular", values))
    with Cluster(network_of_two_sources(), tmp_path, feeds, destinations()) as cluster:
        cluster.wait_until_ready()
        until(lambda: len(cluster.delivered()[3]) > 100, "the other source goes on", cluster)
        assert cluster.delivered()[0] == [], "the node cannot know whether there was an A"
        held_back = cluster.metric("n1", "headwater_source_held_back_seconds")
        assert held_back is not None
        assert held_back > 2 * LATENESS_US / 1e6
        assert "unreachable" in cluster.ask("n1", "/ready")["degraded"][0]
        status, answer = cluster.ask_coordinator("DELETE", "/sources/0")
        assert status in (200, 202), answer
        until(lambda: len(cluster.delivered()[0]) > 50, "rules do not wait any more", cluster, cluster.waiting)
        until(lambda: cluster.ask("n1", "/ready")["degraded"] == [], "the broker is forgotten", cluster)


@pytest.mark.parametrize("away", [frozen, killed])
def test_what_a_program_holds_for_a_node_that_is_away_is_not_late(tmp_path: Path, away: Callable[..., None]) -> None:
    network = network_of_two_sources()
    with Cluster(network, tmp_path, (ClientFeed(), ClientFeed()), destinations()) as cluster:
        cluster.wait_until_ready()
        tellers: list[Teller] = [Program("A", "n1", cluster), Program("B", "n3", cluster)]
        for teller in tellers:
            teller.start()
        cluster.wait_until_delivered(50)
        away(cluster, "n1")
        time.sleep(1.0)
        away(cluster, "n3")
        time.sleep(2.0)
        for teller in tellers:
            teller.stop()
        no_event_is_late(cluster, tellers)
