"""Devices and consumers over MQTT, against Mosquitto and against the embedded broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import msgpack
import pytest

from headwater.deploy.cli.command import main
from headwater.node.edge.adapters import make_sink, make_source
from headwater.node.edge.broker import EmbeddedBroker
from headwater.node.edge.interfaces import Arrival, Edge
from headwater.node.edge.mqtt_connection import connection, wildcards
from headwater.protocol.edge import Broker, MqttFeed, MqttTo
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from tests.kit.edge import (
    MOSQUITTO,
    Mosquitto,
    Outgoing,
    Taken,
    a_broker,
    an_edge,
    certificates,
    device_that_dies,
    fire,
    run,
    running,
    until,
)
from tests.kit.patience import ANSWER_S, patiently
from tests.kit.ports import free_port

SMOKE = EventType("Smoke", {"area": "string", "n": "int?"})
needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed: apt-get install mosquitto")
both_brokers = pytest.mark.parametrize("kind", [pytest.param("mosquitto", marks=needs_mosquitto), "embedded"])


@contextlib.asynccontextmanager
async def listening(feed: MqttFeed, taken: Taken, edge: Edge) -> AsyncIterator[asyncio.Task[Any]]:
    """A source that is connected when the block begins."""
    source: Any = make_source(0, feed, SMOKE, edge)
    async with running(source.run(taken, None)) as task:
        await until(lambda: source.is_connected)
        yield task


async def publish(broker: Broker, topic: str, *payloads: Any, qos: int = 1) -> None:
    async with aiomqtt.Client(broker.host, broker.port, timeout=ANSWER_S) as client:
        for payload in payloads:
            body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            await client.publish(topic, body, qos=qos)


# --- sources ----------------------------------------------------------------------------------------------------------


@both_brokers
@pytest.mark.parametrize("qos", [0, 1])
def test_what_devices_publish_on_a_topic_becomes_events(tmp_path: Path, kind: str, qos: int) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            taken, edge = Taken(), an_edge(tmp_path)
            async with listening(MqttFeed("sensors/+/smoke", broker, qos=qos), taken, edge):
                await publish(broker, "sensors/hall/smoke", {"area": "A1"}, [{"area": "A2"}, {"area": "A3"}], qos=qos)
                await publish(broker, "sensors/hall/temp", {"area": "B1"}, qos=qos)
                await publish(broker, "sensors/smoke", {"area": "B2"}, qos=qos)
                await publish(broker, "sensors/x/smoke", b'{"area": "A4"}\n{"area": "A5", "n": 1}', qos=qos)
                await until(lambda: len(taken.arrivals) >= 5)
        assert taken.arrivals == [Arrival(None, None, None, (f"A{i}", 1 if i == 5 else None)) for i in range(1, 6)]
        assert taken.bad == []

    run(scenario())


@both_brokers
def test_msgpack_payloads_with_the_device_from_the_topic_and_a_time(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            taken = Taken()
            feed = MqttFeed("s/+/+", broker, payload="msgpack", device="+2", counter="c", time="at")
            async with listening(feed, taken, an_edge(tmp_path)):
                await publish(broker, "s/hall/t7", msgpack.packb({"area": "A1", "c": 4, "at": 99}))
                await until(lambda: bool(taken.arrivals))
        assert taken.arrivals == [Arrival(99, "t7", 4, ("A1", None))]

    run(scenario())


@both_brokers
def test_what_was_not_durable_when_the_connection_broke_comes_again(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            feed = MqttFeed("s", broker, device="d", counter="c")
            events = [{"area": "A1", "d": "t7", "c": number} for number in range(30)]
            held = Taken(holding=True)
            async with listening(feed, held, an_edge(tmp_path)):
                await publish(broker, "s", *events[:10])
                await until(lambda: len(held.arrivals) == 10)
            await publish(broker, "s", *events[10:20])  # while no client listens
            held.release()  # too late: the connection is gone
            taken = Taken()
            async with listening(feed, taken, an_edge(tmp_path)):
                await publish(broker, "s", *events[20:])
                await until(lambda: {each.counter for each in taken.arrivals} == set(range(30)))
            # All of that was acknowledged and never comes again.
            again = Taken()
            async with listening(feed, again, an_edge(tmp_path)):
                await publish(broker, "s", {"area": "A1", "d": "t7", "c": 30})
                await until(lambda: bool(again.arrivals))
                assert [each.counter for each in again.arrivals] == [30]

    run(scenario())


@both_brokers
def test_a_message_is_acknowledged_only_when_it_is_durable_however_long_that_takes(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            feed = MqttFeed("s", broker)
            held = Taken(holding=True)
            async with listening(feed, held, an_edge(tmp_path)):
                await publish(broker, "s", {"area": "A1"}, {"area": "A2"})
                await until(lambda: len(held.arrivals) == 2)
                held.release()
                await publish(broker, "s", {"area": "A3"})
                await until(lambda: len(held.arrivals) == 3)
            taken = Taken()
            async with listening(feed, taken, an_edge(tmp_path)):
                await publish(broker, "s", {"area": "A4"})
                await until(lambda: bool(taken.arrivals))
            assert taken.values == [("A4", None)]

    run(scenario())


@both_brokers
def test_a_killed_node_gets_what_it_had_not_made_durable(tmp_path: Path, kind: str) -> None:
    """The node is a process that takes everything, acknowledges nothing and is killed."""

    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            code = (
                "import asyncio, sys\nfrom pathlib import Path\nfrom tests.edge.test_mqtt import *\n"
                "async def node():\n"
                f"    taken, feed = Taken(holding=True), MqttFeed('s', Broker('127.0.0.1', {broker.port}))\n"
                f"    async with listening(feed, taken, an_edge(Path({str(tmp_path)!r}))):\n"
                "        print('ready', flush=True)\n"
                "        await until(lambda: len(taken.arrivals) == 5)\n"
                "        print('taken', flush=True)\n"
                "        await asyncio.sleep(60)\n"
                "run(node())\n"
            )
            project = Path(__file__).parent.parent.parent
            node = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=project)
            assert node.stdout is not None
            assert await asyncio.to_thread(node.stdout.readline) == b"ready\n"
            await publish(broker, "s", *({"area": f"A{number}"} for number in range(5)))
            assert await asyncio.to_thread(node.stdout.readline) == b"taken\n"
            node.kill()
            await asyncio.to_thread(node.wait)
            taken = Taken()
            async with listening(MqttFeed("s", broker), taken, an_edge(tmp_path)):
                await until(lambda: len(taken.arrivals) == 5)
            assert sorted(taken.values) == [(f"A{number}", None) for number in range(5)]

    run(scenario())


@both_brokers
def test_a_last_will_says_that_a_device_has_left(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            edge, taken = an_edge(tmp_path), Taken()
            async with listening(MqttFeed("s/#", broker, will="s/+/left"), taken, edge):
                await publish(broker, "s/t7", {"area": "A1"})
                await until(lambda: bool(taken.arrivals))
                assert edge.counters == {}
                await device_that_dies(broker, "s/t7/left", b"gone")
                await until(lambda: edge.counters == {"devices_left": 1})
                (gone,) = edge.devices[0].shown()["who_left"]
                assert gone["device"] == "t7"
                assert edge.devices[0].all_left
                silent = await device_that_dies(broker, "s/t7/left", b"gone", keepalive_s=1)
                await until(lambda: edge.counters == {"devices_left": 2})
                silent.close()
                await publish(broker, "s/t8", {"area": "A1"})
                await until(lambda: len(taken.arrivals) == 2)
                assert not edge.devices[0].all_left  # another one is there
                await publish(broker, "s/t7", {"area": "A1"})
                await until(lambda: edge.devices[0].left_count == 0)
                assert edge.devices[0].present_count == 2
            assert (len(taken.arrivals), taken.bad) == (3, [])

    run(scenario())


@both_brokers
def test_a_retained_message_is_no_event_unless_it_has_an_identity(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with a_broker(kind, tmp_path) as broker:
            async with aiomqtt.Client(broker.host, broker.port) as device:
                await device.publish("s", b'{"area": "old", "n": 1}', qos=1, retain=True)
            for feed, expected in (
                (MqttFeed("s", broker), [None]),
                (MqttFeed("s", broker, device="area", counter="n"), [1, 2]),
            ):
                taken, edge = Taken(), an_edge(tmp_path, f"for {len(expected)}")
                async with listening(feed, taken, edge):
                    await publish(broker, "s", {"area": "new", "n": 2})
                    await until(lambda: len(taken.arrivals) == len(expected))  # noqa: B023
                assert sorted([each.counter for each in taken.arrivals], key=str) == expected
                assert edge.counters.get("mqtt_retained_skipped", 0) == 2 - len(expected)

    run(scenario())


@both_brokers
def test_malformed_payloads_are_refused_and_never_end_the_source(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        rng = random.Random(7)
        async with a_broker(kind, tmp_path) as broker:
            taken = Taken()
            async with listening(MqttFeed("s", broker, payload="json"), taken, an_edge(tmp_path)) as task:
                payloads = [rng.randbytes(rng.randint(0, 40)) for _ in range(3000)]
                async with aiomqtt.Client(broker.host, broker.port, timeout=ANSWER_S) as client:
                    client.pending_calls_threshold = 200
                    for start in range(0, len(payloads), 20):
                        batch = payloads[start : start + 20]
                        await asyncio.gather(*(client.publish("s", each, qos=1) for each in batch))
                    await client.publish("s", b'{"area": "A1"}', qos=1)
                await until(lambda: len(taken.bad) >= 3000 and bool(taken.arrivals))
                assert not task.done()
            assert taken.values == [("A1", None)]
            assert sorted(raw for _, raw, _ in taken.bad) == sorted(payloads)
            assert all(why.startswith("s: ") for _, _, why in taken.bad)
            again = Taken()  # what was refused was acknowledged: a broken device is not heard of for ever
            async with listening(MqttFeed("s", broker), again, an_edge(tmp_path)):
                await publish(broker, "s", {"area": "A2"})
                await until(lambda: bool(again.arrivals))
            assert (again.values, again.bad) == ([("A2", None)], [])

    run(scenario())


@both_brokers
def test_a_source_reconnects_when_the_broker_is_back(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        port = free_port()
        broker = Broker("127.0.0.1", port)
        taken, edge = Taken(), an_edge(tmp_path)
        source: Any = make_source(0, MqttFeed("s", broker), SMOKE, edge)
        async with running(source.run(taken, None)):
            await until(lambda: edge.counters.get("mqtt_connections_lost", 0) > 0)  # there is no broker yet
            async with a_broker(kind, tmp_path, port):
                await until(lambda: source.is_connected)
                await publish(broker, "s", {"area": "A1"})
                await until(lambda: len(taken.arrivals) == 1)
            await until(lambda: not source.is_connected)
            async with a_broker(kind, tmp_path, port):
                await until(lambda: source.is_connected)
                await publish(broker, "s", {"area": "A2"})
                await until(lambda: len(taken.arrivals) == 2)
        assert taken.values == [("A1", None), ("A2", None)]

    run(scenario())


@needs_mosquitto
def test_a_broker_with_persistence_may_be_killed(tmp_path: Path) -> None:
    async def scenario() -> None:
        mosquitto = Mosquitto(tmp_path, free_port())
        await mosquitto.start()
        broker = Broker("127.0.0.1", mosquitto.port)
        try:
            held = Taken(holding=True)
            async with listening(MqttFeed("s", broker), held, an_edge(tmp_path)):
                await publish(broker, "s", *({"area": f"A{number}"} for number in range(10)))
                await until(lambda: len(held.arrivals) == 10)
                await asyncio.sleep(2.5)  # the broker writes down what it holds once a second
                await mosquitto.stop(kill=True)
            await mosquitto.start()
            taken = Taken()
            async with listening(MqttFeed("s", broker), taken, an_edge(tmp_path)):
                await until(lambda: len(taken.arrivals) == 10)
        finally:
            await mosquitto.stop(kill=True)

    run(scenario())


@needs_mosquitto
def test_a_broker_that_is_encrypted_and_wants_a_password(tmp_path: Path) -> None:
    async def scenario() -> None:
        ca, cert, key = certificates(tmp_path)
        subprocess.run(["mosquitto_passwd", "-b", "-c", str(tmp_path / "users"), "node", "secret"], check=True)
        (tmp_path / "password").write_text("secret\n")
        config = f"password_file {tmp_path}/users\ncertfile {cert}\nkeyfile {key}\ncafile {ca}\n"
        async with a_broker("mosquitto", tmp_path, config=config) as plain:
            good = Broker("localhost", plain.port, "node", str(tmp_path / "password"), str(ca), tls=True)
            taken = Taken()
            edge = an_edge(tmp_path)
            outgoing = Outgoing([{"area": "A1"}])
            sink: Any = make_sink(0, MqttTo("s", good), edge)
            async with listening(MqttFeed("s", good), taken, edge), running(sink.run(outgoing, 0)):
                await until(lambda: taken.values == [("A1", None)])
            assert edge.counters == {}
            (tmp_path / "wrong").write_text("guess")
            for bad in (
                replace(good, password_file=str(tmp_path / "wrong")),
                replace(good, password_file=str(tmp_path / "nowhere")),
                replace(good, username=None, password_file=None),
                replace(good, ca_file=None),
                replace(good, ca_file=str(tmp_path / "users")),
            ):
                edge = an_edge(tmp_path)
                source: Any = make_source(0, MqttFeed("s", bad), SMOKE, edge)
                async with running(source.run(Taken(), None)):
                    await until(lambda: edge.counters.get("mqtt_connections_lost", 0) > 1)  # noqa: B023
                    assert not source.is_connected

    run(scenario())


def test_wildcards_stand_for_levels() -> None:
    assert wildcards("a/b/c", "a/+/c") == ["b"]
    assert wildcards("a/b/c", "+/b/#") == ["a", "c"]
    assert wildcards("a/b/c/d", "a/#") == ["b/c/d"]
    assert wildcards("a", "a/#") == [""]
    assert wildcards("a", "a") == []
    assert wildcards("a/b", "a") is None
    assert wildcards("a", "a/b") is None
    assert wildcards("a/x", "a/b") is None
    assert wildcards("$SYS/x", "#") is None


# --- sinks ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def consumer(broker: Broker, topic: str) -> AsyncIterator[list[tuple[str, Any]]]:
    """What a consumer has received so far."""
    got: list[tuple[str, Any]] = []

    async def collect(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            got.append((str(message.topic), json.loads(message.payload)))

    async with aiomqtt.Client(broker.host, broker.port) as client:
        await client.subscribe(topic, qos=1)
        async with running(collect(client)):
            yield got


@both_brokers
@pytest.mark.parametrize("qos", [0, 1])
def test_deliveries_are_published_in_order_and_confirmed(tmp_path: Path, kind: str, qos: int) -> None:
    async def scenario() -> None:
        fires = [fire(number, f"A{number % 2}") for number in range(1, 101)]
        async with a_broker(kind, tmp_path) as broker, consumer(broker, "fires/#") as got:
            outgoing = Outgoing(fires, size=30)
            sink: Any = make_sink(0, MqttTo("fires/{area}", broker, qos), an_edge(tmp_path))
            async with running(sink.run(outgoing, 0)):
                await until(lambda: outgoing.confirmed == 100 and len(got) >= 100)
        assert got == [(f"fires/{each['attributes']['area']}", each) for each in fires]

    run(scenario())


@both_brokers
def test_deliveries_wait_for_the_broker(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        port = free_port()
        broker = Broker("127.0.0.1", port)
        outgoing, edge = Outgoing([fire(number) for number in range(1, 4)]), an_edge(tmp_path)
        sink: Any = make_sink(0, MqttTo("fires", broker), edge)
        async with running(sink.run(outgoing, 0)):
            await until(lambda: edge.counters.get("mqtt_connections_lost", 0) > 0)
            assert outgoing.confirmed == 0
            async with a_broker(kind, tmp_path, port):
                await until(lambda: outgoing.confirmed == 3)

    run(scenario())


@both_brokers
def test_deliveries_go_on_after_the_broker_was_away(tmp_path: Path, kind: str) -> None:
    """At least once: what the broker had not acknowledged is published again."""

    async def scenario() -> None:
        port = free_port()
        broker = Broker("127.0.0.1", port)
        fires = [fire(number) for number in range(1, 7)]
        first, second, edge = asyncio.Event(), asyncio.Event(), an_edge(tmp_path)

        class Slow(Outgoing):
            async def next(self) -> list[tuple[int, dict[str, Any]]]:
                await (first if self.confirmed == 0 else second).wait()
                return await super().next()

        outgoing = Slow(fires)
        sink: Any = make_sink(0, MqttTo("fires", broker), edge)
        async with running(sink.run(outgoing, 0)):
            async with a_broker(kind, tmp_path, port), consumer(broker, "fires") as got:
                first.set()
                await until(lambda: outgoing.confirmed == 3 and len(got) == 3)
            await until(lambda: not sink.is_connected)
            async with a_broker(kind, tmp_path, port), consumer(broker, "fires") as got:
                second.set()
                await until(lambda: outgoing.confirmed == 6 and len(got) == 3)
                assert [each["id"] for _, each in got] == ["id4", "id5", "id6"]

    run(scenario())


# --- the embedded broker ----------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said() -> None:
    async def scenario() -> None:
        first = EmbeddedBroker("127.0.0.1", free_port())
        await first.start()
        try:
            with pytest.raises(ConfigError, match=f"the broker cannot listen at 127.0.0.1:{first.port}"):
                await EmbeddedBroker("127.0.0.1", first.port).start()
        finally:
            await first.stop()

    run(scenario())


def test_the_command_says_in_one_line_that_its_port_is_taken() -> None:
    async def scenario() -> None:
        first = EmbeddedBroker("127.0.0.1", free_port())
        await first.start()
        words = [sys.executable, "-m", "headwater.deploy.cli.command", "broker", "--listen", f"127.0.0.1:{first.port}"]
        process = await asyncio.create_subprocess_exec(
            *words, cwd=Path(__file__).parent.parent.parent, stderr=asyncio.subprocess.PIPE
        )
        try:
            async with patiently():
                _, said = await process.communicate()
        finally:
            await first.stop()
        where = f"127.0.0.1:{first.port}"
        assert said.decode() == (
            f"headwater: the broker cannot listen at {where}: Address already in use; choose another address\n"
        )
        assert process.returncode == 1

    run(scenario())


def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        project = Path(__file__).parent.parent.parent
        words = [sys.executable, "-m", "headwater.deploy.cli.command", "broker", "--listen", f"127.0.0.1:{port}"]
        process = subprocess.Popen(words, cwd=project, stderr=subprocess.PIPE)
        try:
            taken = Taken()
            broker = Broker("127.0.0.1", port)
            async with listening(MqttFeed("s", broker), taken, an_edge(tmp_path)):
                await publish(broker, "s", {"area": "A1"})
                await until(lambda: bool(taken.arrivals))
        finally:
            process.terminate()
            _, said = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0
        assert [line.split(" ", 3)[3] for line in said.decode().splitlines()] == [f"INFO listening at 127.0.0.1:{port}"]

    run(scenario())


def test_the_command_refuses_what_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["broker", "--listen", "1883"])
    assert left.value.code == 2
    assert "'1883' is not a host and a port; write --listen 127.0.0.1:1883" in capsys.readouterr().err


def test_a_socket_that_is_closed_before_the_loop_comes_to_write_to_it_disturbs_nothing() -> None:
    """A broker that is killed at the right moment: what was to be written waits for a socket that is gone."""

    async def scenario() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        client = connection(Broker("127.0.0.1", 1), "a", clean_session=True)
        near, far = socket.socketpair()
        client._on_socket_register_write(client._client, None, near)
        near.close()
        far.close()
        await asyncio.sleep(0.05)
        assert failures == []

    run(scenario())
