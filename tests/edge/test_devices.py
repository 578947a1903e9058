"""The five device families of examples/devices, from real brokers through real nodes to composites."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import aiomqtt
import pytest

from headwater.coordinator.daemon.api.edge_models import as_json
from headwater.deploy.network.file import NetworkFile, read_network, running_feeds, running_network
from headwater.node.edge.adapters import make_source
from headwater.node.edge.broker import EmbeddedBroker
from headwater.node.edge.mqtt_connection import wildcards
from headwater.node.edge.payloads import PayloadReader
from headwater.protocol.edge import Broker, Feed, MqttFeed
from headwater.protocol.payload_maps import topic_filter
from tests.kit.edge import MOSQUITTO, Mosquitto, a_broker, an_edge, run, running
from tests.kit.edge import Taken as TakenArrivals
from tests.kit.edge import until as until_async
from tests.kit.patience import ANSWER_S
from tests.kit.ports import free_port
from tests.kit.processes import Cluster, lines_of, until

FOLDER = Path(__file__).parent.parent.parent / "examples" / "devices"
FAMILIES = sorted(each.name for each in FOLDER.iterdir() if each.is_dir())

needs_mosquitto = pytest.mark.skipif(MOSQUITTO is None, reason="mosquitto is not installed")
both_brokers = pytest.mark.parametrize("kind", ["embedded", pytest.param("mosquitto", marks=needs_mosquitto)])

FOUND: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "zigbee2mqtt": [("HeatingTheStreet", {"room": "bath", "temperature": 23.18})],
    "tasmota": [
        ("Frost", {"plug": "pipes", "name": "DS18B20-1"}),
        ("Overload", {"plug": "oven", "watts": 2342.0}),
    ],
    "shelly": [("Started", {"shelly": "shellyplus1pm-a8032abe54dc", "watts": 812.4})],
    "esphome": [("SomebodyInTheSauna", {"room": "sauna", "celsius": 84.3})],
    "gateway": [("Boiler", {"site": "s7", "sensor": "t1", "celsius": 117.0, "bar": 2.45})],
}
DEAD: dict[str, list[str]] = {
    "zigbee2mqtt": [
        "zigbee2mqtt/bath/climate: Climate needs a value for 'temperature'; declare it as optional with '?' if not"
    ],
    "tasmota": [
        "stat/oven/POWER: Switched.on is declared bool, but 'BLINK' is neither true nor false (ON, OFF, yes, no, 1, 0)"
    ],
    "shelly": ["shellypro4pm-f008d1d8b8b8/events/rpc: the time (payload.params.ts) is absent"],
    "esphome": ["hall/sensor/temperature/state: Temp.celsius is declared float, but 'nan' is not a number"],
    "gateway": [
        "gateways/s8/up: Heat needs a value for 'celsius'; declare it as optional with '?' if not: "
        "there is no item.values[0]"
    ],
}
BORN: dict[str, dict[str, int]] = {
    "zigbee2mqtt": {"Climate": 3, "Window": 2},
    "tasmota": {"Switched": 2, "Power": 2, "Probe": 2},
    "shelly": {"Push": 2, "Power": 2},
    "esphome": {"Temp": 2, "Motion": 3},
    "gateway": {"Heat": 3, "Pressure": 2},
}


def _send() -> ModuleType:
    spec = importlib.util.spec_from_file_location("send_samples", FOLDER / "send.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SEND = _send()


def family(name: str) -> tuple[NetworkFile, list[tuple[str, str]]]:
    return read_network(FOLDER / name / "network.yaml"), list(SEND.messages(FOLDER / name / "messages.txt"))


def mqtt_feeds(file: NetworkFile, broker: Broker) -> tuple[MqttFeed, ...]:
    found = []
    for feed in running_feeds(file):
        assert isinstance(feed, MqttFeed)
        found.append(replace(feed, broker=broker))
    return tuple(found)


@contextmanager
def broker_of(kind: str, folder: Path) -> Iterator[Broker]:
    """A broker beside the test: what it runs in must go on while the test waits for processes."""
    port = free_port()
    if kind == "mosquitto":
        mosquitto = Mosquitto(folder, port)
        asyncio.run(mosquitto.start())
        try:
            yield Broker("127.0.0.1", port)
        finally:
            asyncio.run(mosquitto.stop())
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    embedded = EmbeddedBroker("127.0.0.1", port)
    asyncio.run_coroutine_threadsafe(embedded.start(), loop).result(ANSWER_S)
    try:
        yield Broker("127.0.0.1", port)
    finally:
        asyncio.run_coroutine_threadsafe(embedded.stop(), loop).result(ANSWER_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(ANSWER_S)
        loop.close()


def publish(broker: Broker, topic: str, payload: str) -> None:
    async def once() -> None:
        async with aiomqtt.Client(broker.host, broker.port, timeout=ANSWER_S) as client:
            await client.publish(topic, SEND.sent_now(payload), qos=1)

    asyncio.run(once())


def become(file: NetworkFile, feeds: tuple[MqttFeed, ...], topic: str, payload: str) -> int:
    """How many events and refusals the message becomes at all sources together."""
    types = {each.name: each for each in file.network.types}
    refused: list[str] = []
    arrivals = 0
    for source, feed in zip(file.network.sources, feeds, strict=True):
        levels = wildcards(topic, topic_filter(feed.topic))
        if levels is not None:
            reader = PayloadReader(types[source.type], feed=feed, node=source.node)
            told = SEND.sent_now(payload).encode()
            arrivals += len(reader.read(told, lambda raw, why: refused.append(why), levels))
    return arrivals + len(refused)


@both_brokers
@pytest.mark.parametrize("name", FAMILIES)
def test_sample_messages_of_a_device_family_become_composites(tmp_path: Path, kind: str, name: str) -> None:
    file, samples = family(name)
    with broker_of(kind, tmp_path) as broker:
        feeds = mqtt_feeds(file, broker)
        with Cluster(running_network(file), tmp_path, feeds) as cluster:
            cluster.wait_until_ready()

            def statistics() -> list[dict[str, Any]]:
                return [each for node in file.network.nodes for each in cluster.ask(node, "/statistics")["events"]]

            def handled() -> int:
                return sum(each[key] for each in statistics() for key in ("born", "late", "malformed", "repeated"))

            def connected() -> bool:
                said = "".join(cluster.said(node) for node in file.network.nodes)
                return said.count("listens to") >= len(feeds)

            until(connected, "all sources listen", cluster)
            expected = 0
            for topic, payload in samples:
                publish(broker, topic, payload)
                expected += become(file, feeds, topic, payload)
                until(lambda so_far=expected: handled() >= so_far, f"{topic} is handled", cluster)  # type: ignore[misc]
            cluster.wait_until_delivered(len(FOUND[name]))
            found = sorted((each["type"], each["attributes"]) for sink in cluster.delivered() for each in sink)
            letters = [
                letter for node in file.network.nodes for letter in lines_of(cluster.data(node) / "dead-letters.jsonl")
            ]
            born: Counter[str] = Counter()
            for each in statistics():
                born[each["type"]] += each["born"]
            late = sum(each["late"] for each in statistics())
            assert cluster.bugs() == []
    assert found == FOUND[name]
    assert [letter["why"] for letter in letters] == DEAD[name]
    assert born == BORN[name]
    assert late == 0


def test_a_source_with_a_mapping_can_be_brought_while_the_network_runs(tmp_path: Path) -> None:
    """The coordinator's API takes it, and the node of the source listens by it."""
    file, samples = family("esphome")
    with broker_of("embedded", tmp_path) as broker:
        temp, motion = mqtt_feeds(file, broker)
        network = running_network(file)
        without_motion = replace(network, sources=network.sources[:1])
        with Cluster(without_motion, tmp_path, (temp,)) as cluster:
            cluster.wait_until_ready()
            body = {"node": "cellar", "type": "Motion", "from": as_json(motion, Feed)}
            status, answer = cluster.ask_coordinator("POST", "/sources", body)
            assert status == 200, answer
            until(lambda: "listens to" in cluster.said("cellar"), "the new source listens", cluster)
            for topic, payload in samples[:2]:
                publish(broker, topic, payload)
                node = "attic" if "temperature" in topic else "cellar"

                def born(node: str = node) -> bool:
                    return bool(sum(each["born"] for each in cluster.ask(node, "/statistics")["events"]) == 1)

                until(born, f"{topic} is born", cluster)
            cluster.wait_until_delivered(1)
            ((found,),) = cluster.delivered()
    assert (found["type"], found["attributes"]) == FOUND["esphome"][0]


def test_a_time_in_another_unit_is_a_dead_letter_and_not_late(tmp_path: Path) -> None:
    file, samples = family("gateway")
    with broker_of("embedded", tmp_path) as broker:
        feeds = tuple(replace(feed, time_unit=None) for feed in mqtt_feeds(file, broker))
        with Cluster(running_network(file), tmp_path, feeds) as cluster:
            cluster.wait_until_ready()
            until(lambda: "listens to" in cluster.said("attic"), "the source listens", cluster)
            publish(broker, *samples[1])
            letters = cluster.data("attic") / "dead-letters.jsonl"
            until(lambda: len(lines_of(letters)) == 2, "both readings are refused", cluster)
            (counts,) = cluster.ask("attic", "/statistics")["events"]
    assert (counts["born"], counts["late"], counts["malformed"]) == (0, 0, 2)
    for letter in lines_of(letters):
        assert "taken as microseconds, lies in January 1970; as milliseconds it is 20" in letter["why"]
        assert letter["why"].endswith("say it in microseconds, or its unit in the source: time: {from: .., unit: ms}")


@pytest.mark.parametrize("name", FAMILIES)
def test_random_payloads_never_end_a_source_and_what_cannot_be_mapped_is_refused_with_a_reason(name: str) -> None:
    """Beside payloads that were mangled, ones whose values are of any kind at any place."""
    file, samples = family(name)
    types = {each.name: each for each in file.network.types}
    feeds = mqtt_feeds(file, Broker("b"))
    rng = random.Random(name)
    outcomes = {"events": 0, "refused": 0}
    for source, feed in zip(file.network.sources, feeds, strict=True):
        reader = PayloadReader(types[source.type], feed=feed, node=source.node)
        for number in range(1500):
            topic, payload = rng.choice(samples)
            levels = wildcards(topic, topic_filter(feed.topic)) or ["x"]
            sent = SEND.sent_now(payload)
            raw = stranger(rng, sent) if number % 2 else mangled(rng, sent.encode())
            refused: list[str] = []
            arrivals = reader.read(raw, lambda raw, why: refused.append(why), levels)  # noqa: B023 -- called at once
            assert all(refused)
            for arrival in arrivals:
                for value, value_kind in zip(arrival.values, types[source.type].kinds, strict=True):
                    assert value is None or type(value) is KINDS[value_kind]
                json.dumps(arrival).encode()
            outcomes["events"] += len(arrivals)
            outcomes["refused"] += len(refused)
    assert min(outcomes.values()) > 100


KINDS = {"string": str, "float": float, "int": int, "bool": bool}
ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1e308,
    -0.0,
    "",
    "ON",
    "nan",
    "1e400",
    "\ud800",
    "x" * 70_000,
    [],
    {},
    [[1]],
    {"a": {}},
]


def stranger(rng: random.Random, payload: str) -> bytes:
    """The payload with a value somewhere inside replaced by anything."""
    try:
        whole = json.loads(payload)
    except ValueError:
        return json.dumps(rng.choice(ODD)).encode()
    places: list[tuple[Any, Any]] = []
    waiting = [whole]
    while waiting:
        inside = waiting.pop()
        pairs = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
        for key, value in pairs:
            places.append((inside, key))
            waiting.append(value)
    if not places:
        return json.dumps(rng.choice(ODD)).encode()
    inside, key = rng.choice(places)
    inside[key] = rng.choice(ODD)
    return json.dumps(whole).encode()


def mangled(rng: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(rng.randint(0, 3)):
        place = rng.randrange(len(made) + 1)
        made[place : place + rng.randint(0, 4)] = rng.randbytes(rng.randint(0, 3))
    return bytes(made)


def test_a_source_with_a_mapping_goes_on_after_what_it_cannot_map(tmp_path: Path) -> None:
    file, _ = family("gateway")
    types = {each.name: each for each in file.network.types}
    rng = random.Random(7)

    async def scenario() -> None:
        async with a_broker("embedded", tmp_path) as broker:
            feed = next(each for each in mqtt_feeds(file, broker) if each.topic.startswith("meters"))
            edge, taken = an_edge(tmp_path, "cellar"), TakenArrivals()
            source: Any = make_source(0, feed, types["Pressure"], edge)
            async with running(source.run(taken, None)):
                await until_async(lambda: source.is_connected)
                async with aiomqtt.Client(broker.host, broker.port) as client:
                    for _ in range(200):
                        await client.publish("meters/s7/pressure", rng.randbytes(rng.randint(1, 20)), qos=1)
                    await client.publish("meters/s7/pressure", b"200000", qos=1)
                await until_async(lambda: ("s7", 2.0) in taken.values)
            assert len(taken.bad) + len(taken.arrivals) >= 201
            assert len(taken.bad) > 150

    run(scenario())
