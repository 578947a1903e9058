"""Brokers that send faster than a node takes: nothing of QoS 1 is thrown away, and memory has a bound."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from headwater.deploy.cluster.waiting import Patience
from headwater.node.edge import mqtt_source
from headwater.node.edge.adapters import make_source
from headwater.protocol.edge import Broker, FileTo, MqttFeed
from headwater.protocol.events import EventType
from tests.kit.eager_broker import EagerBroker
from tests.kit.edge import MOSQUITTO, Mosquitto, Taken, an_edge, certificates, run, running, until
from tests.kit.patience import PATIENCE_S
from tests.kit.ports import free_port
from tests.kit.processes import Cluster
from tests.kit.processes import until as wait_until
from tests.simulation.test_simulator import a_network

SMOKE = EventType("Smoke", {"area": "string", "n": "int?"})
MESSAGES = 40_000


def payloads(count: int, more: str = "") -> list[bytes]:
    return [json.dumps({"area": f"A1{more}", "n": number}).encode() for number in range(count)]


async def all_is_taken(broker: EagerBroker, taken: Taken, count: int) -> None:
    """Returns when all have come; an AssertionError if for a while none does."""
    patience, before = Patience(PATIENCE_S), -1
    while len(taken.arrivals) < count or len(broker.acknowledged) < count:
        if before != (before := len(taken.arrivals) + len(broker.acknowledged)):
            patience.begin_again()
        assert not patience.over, f"no more than {before} come"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_that_sends_as_fast_as_it_may_is_slowed_down_and_everything_is_taken(
    tmp_path: Path, version: int
) -> None:
    async def scenario() -> None:
        taken, edge = Taken(), an_edge(tmp_path)
        taken.open.clear()  # the node is full
        async with EagerBroker(payloads(MESSAGES, "x" * 200), speaks_5=version == 5) as broker:
            source = make_source(0, MqttFeed("s", Broker("127.0.0.1", broker.port)), SMOKE, edge)
            assert source is not None
            async with running(source.run(taken, None)):
                limit = mqtt_source.UNDER_WAY_MAX if version == 5 else 10_000
                await until(lambda: broker.sent >= limit)
                await standstill(broker)
                assert broker.sent < MESSAGES, "the broker was held back"
                if version == 5:
                    assert broker.receive_maximum == mqtt_source.UNDER_WAY_MAX < mqtt_source.QUEUED_MESSAGES_MAX
                else:
                    assert broker.versions_refused == [5]
                assert broker.version == version
                taken.open.set()
                await all_is_taken(broker, taken, MESSAGES)
        assert [each.values[1] for each in taken.arrivals] == list(range(MESSAGES))
        assert broker.acknowledged == set(range(MESSAGES))
        assert edge.counters == {}

    run(scenario())


async def standstill(broker: EagerBroker) -> None:
    """Returns when the broker cannot send any more."""
    sent = -1
    while sent != broker.sent:
        sent = broker.sent
        await asyncio.sleep(0.5)


def test_a_pause_is_bounded_by_the_bytes_that_wait_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mqtt_source, "QUEUED_BYTES_MAX", 1 << 20)

    async def scenario() -> None:
        taken = Taken()
        taken.open.clear()
        async with EagerBroker(payloads(400, "x" * 60_000), speaks_5=False) as broker:
            source = make_source(0, MqttFeed("s", Broker("127.0.0.1", broker.port)), SMOKE, an_edge(tmp_path))
            assert source is not None
            async with running(source.run(taken, None)):
                await until(lambda: broker.sent > 20)
                await standstill(broker)
                assert broker.sent < 400
                taken.open.set()
                await all_is_taken(broker, taken, 400)

    run(scenario())


def test_a_long_pause_does_not_break_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's answers to pings are not read meanwhile."""
    monkeypatch.setattr("headwater.node.edge.mqtt_connection.KEEPALIVE_S", 1)
    monkeypatch.setattr(mqtt_source, "QUEUED_MESSAGES_MAX", 100)

    async def scenario() -> None:
        taken, edge = Taken(), an_edge(tmp_path)
        taken.open.clear()
        async with EagerBroker(payloads(2_000, "x" * 20_000), speaks_5=False) as broker:
            source = make_source(0, MqttFeed("s", Broker("127.0.0.1", broker.port)), SMOKE, edge)
            assert source is not None
            async with running(source.run(taken, None)):
                await until(lambda: broker.sent > 100)
                await standstill(broker)
                await asyncio.sleep(5.0)  # several keep-alives
                taken.open.set()
                await all_is_taken(broker, taken, 2_000)
        assert edge.counters == {}

    run(scenario())


def test_a_source_tells_that_it_has_caught_up_when_nothing_is_held_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        taken = Taken(holding=True)
        async with EagerBroker(payloads(50), speaks_5=True) as broker:
            source = make_source(0, MqttFeed("s", Broker("127.0.0.1", broker.port)), SMOKE, an_edge(tmp_path))
            assert source is not None
            async with running(source.run(taken, None)):
                taken.hearing.gaps.put_nowait(1)
                await until(lambda: len(taken.arrivals) == 50)
                await asyncio.sleep(3 * mqtt_source.QUIET_S)
                assert taken.hearing.ended == []  # nothing is durable yet, and the broker may hold more
                taken.release()
                await until(lambda: taken.hearing.ended == [1])
        assert taken.hearing.told[0] == "connected"

    run(scenario())


# --- the real broker and a real node ----------------------------------------------------------------------------------


async def publish_at_once(port: int, topic: bytes, bodies: Iterable[bytes], count: int) -> None:
    """All of them are written before an answer is read; each is made when it is its turn."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01d")
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    acknowledged = asyncio.ensure_future(reader.readexactly(4 * count))
    for number, payload in enumerate(bodies, 1):
        body = len(topic).to_bytes(2) + topic + number.to_bytes(2) + payload
        assert len(body) < 128
        writer.write(bytes([0x32, len(body)]) + body)
        if number % 1_000 == 0:
            await writer.drain()
    await writer.drain()
    await acknowledged
    writer.close()


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto")
def test_twenty_thousand_messages_published_at_once_all_become_events_in_time(tmp_path: Path) -> None:
    count, port = 20_000, free_port()
    numbers = range(1, count + 1)
    broker = Mosquitto(tmp_path, port, "max_queued_messages 0\nmax_inflight_messages 0\nmax_queued_bytes 0\n")
    network = a_network(links=(("n1", "n2"),), sources=(("n1", "A"),), sinks=(("n2", "A"),), lateness_us=2_000_000)
    feed = MqttFeed("t", Broker("127.0.0.1", port), device="d", counter="n", time="at")
    asyncio.run(broker.start())
    try:
        with Cluster(network, tmp_path, (feed,), (FileTo("sink-0.jsonl"),)) as cluster:
            cluster.wait_until_ready()
            wait_until(lambda: "listens to t" in cluster.said("n1"), "the source listens", cluster)
            readings = ({"d": "d", "n": n, "id": n, "v": n % 3, "at": time.time_ns() // 1000} for n in numbers)
            bodies = (json.dumps(reading, separators=(",", ":")).encode() for reading in readings)
            asyncio.run(publish_at_once(port, b"t", bodies, count))
            wait_until(lambda: cluster.count() >= count, "everything was delivered", cluster, cluster.waiting)
            assert sorted(each["seq"] for each in cluster.delivered()[0]) == list(numbers)
            assert not (cluster.data("n1") / "late.jsonl").exists()
            assert "is late" not in cluster.said("n1")
    finally:
        asyncio.run(broker.stop())


@pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto")
def test_reading_pauses_and_goes_on_over_an_encrypted_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_source, "QUEUED_MESSAGES_MAX", 50)
    authority, certificate, key = certificates(tmp_path)
    tls_port, port = free_port(), free_port()
    config = f"listener {tls_port} 127.0.0.1\ncafile {authority}\ncertfile {certificate}\nkeyfile {key}\n"
    broker = Mosquitto(tmp_path, port, config + "max_queued_messages 0\nmax_inflight_messages 0\n")

    async def scenario() -> None:
        await broker.start()
        try:
            taken, edge = Taken(), an_edge(tmp_path)
            where = Broker("localhost", tls_port, ca_file=str(authority))
            source = make_source(0, MqttFeed("t", where), SMOKE, edge)
            assert source is not None
            async with running(source.run(taken, None)):
                await until(lambda: source.is_connected)  # type: ignore[attr-defined]
                taken.open.clear()
                await publish_at_once(port, b"t", payloads(3_000), 3_000)
                await asyncio.sleep(1.0)
                assert len(taken.arrivals) <= 1
                taken.open.set()
                await until(lambda: len(taken.arrivals) >= 3_000)
            assert len(taken.arrivals) == 3_000
            assert {each.values[1] for each in taken.arrivals} == set(range(3_000))
        finally:
            await broker.stop()

    run(scenario())
