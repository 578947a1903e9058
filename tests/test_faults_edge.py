"""What is around a network fails under load: a disk fills up, an MQTT broker is killed. Nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node.engine import Engine
from protocol.edge import Broker, FileTo, MqttFeed
from protocol.events import Event
from protocol.languages import Source, parse_rules
from tests.builders import TYPES
from tests.edge_kit import MOSQUITTO, Mosquitto, free_port
from tests.fault_kit import a_load, found_by_one_engine, under_load
from tests.processes import Cluster, assert_exact, difference, until
from tests.test_simulator import a_network

# -- a full disk -------------------------------------------------------------------------------------------------------

DISK_BYTES = 6 << 20


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of its own in a folder; the test is skipped where nothing can be mounted."""
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Leave not one block of a file system free."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    return filler


@pytest.mark.parametrize("killed", [False, True], ids=["", "and it is killed"])
@pytest.mark.parametrize("victim", ["n3", "n2", "n5"], ids=["of a source", "of a relay", "of a sink"])
def test_a_disk_is_full_until_room_is_made(victim: str, killed: bool, tmp_path: Path) -> None:
    case = a_load()
    with small_disk(tmp_path / "nodes" / victim), under_load(case, "mt-pp", tmp_path, seconds=4.0) as cluster:
        filler = fill(cluster.data(victim))
        full = "sources wait: the disk is full"
        until(lambda: full in (cluster.ask(victim, "/ready") or {}).get("missing", ()), "the node says so", cluster)
        assert "cannot be written" in cluster.said(victim)
        assert cluster.metric(victim, "headwater_disk_full") == 1
        if killed:
            cluster.kill(victim)
        filler.unlink()
        if killed:
            cluster.restart(victim)
        cluster.wait_until_done()
        assert_exact(cluster, found_by_one_engine(case))
        assert cluster.metric(victim, "headwater_disk_full") == 0


def test_a_node_that_is_started_on_a_full_disk_works_when_room_is_made(tmp_path: Path) -> None:
    """It cannot take anything in, but it does not give up."""
    case = a_load()
    with small_disk(tmp_path / "nodes" / "n3"), under_load(case, "st", tmp_path, seconds=4.0) as cluster:
        cluster.kill("n3")
        filler = fill(cluster.data("n3"))
        cluster.restart("n3")
        time.sleep(2.0)
        assert not cluster.dead()
        filler.unlink()
        cluster.wait_until_done()
        assert_exact(cluster, found_by_one_engine(case))


# -- a broker that is killed -------------------------------------------------------------------------------------------

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


def born(lines: list[dict[str, Any]]) -> list[Event]:
    return [Event(TYPES[e["type"]], e["ts"], e["node"], e["seq"], e["attributes"]) for e in lines]


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

    def composites(found: list[list[dict[str, Any]]]) -> list[str]:
        engine = Engine(rules, network.types)
        matches = engine.feed(sorted(born(found[1]) + born(found[2]))) + engine.close()
        return [match.id for match in matches]

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
                return not difference(found[1:], must[1:]) and len(found[0]) >= len(composites(found))

            until(all_there, "everything is delivered", cluster, cluster.waiting)
            time.sleep(1.0)  # whatever is repeated has had its time
            found = cluster.delivered()
            must[0] = composites(found)
            assert len(must[0]) > 100
            assert_exact(cluster, must)
            assert min(device.connections for device in devices) > 1
            assert sum(map(repeated_at, (cluster.ask(node, "/statistics") for node in ("n1", "n3")))) > 0
    finally:
        asyncio.run(broker.stop())


def repeated_at(statistics: dict[str, Any]) -> int:
    """How often a device was recognised to tell the same again, since the last start of the node."""
    return sum(source["repeated"] for source in statistics["events"])
