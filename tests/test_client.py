"""Programs that publish and subscribe through the client, at real nodes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from node.client import Client, ClientError
from protocol.edge import ClientFeed, ClientTo
from protocol.events import EventType
from protocol.languages import Source as RuleText
from protocol.languages import parse_rules
from protocol.network import Link, Network, Sink, Source
from protocol.subscriptions import parse_subscription
from tests.processes import Cluster, until

SMOKE = EventType("Smoke", {"area": "string"})
TEMP = EventType("Temp", {"area": "string", "value": "float"})
RULE = """define Fire(area: string, temperature: float)
from Smoke() and each Temp(area = Smoke.area, value > 45) within 5 min from Smoke
where area = Smoke.area, temperature = Temp.value"""
PROJECT = Path(__file__).parent.parent
LONG = 30.0  # seconds that an answer may take on a busy machine


def network() -> Network:
    rules = parse_rules([RuleText(RULE, "fire", "tesla")], [SMOKE, TEMP]).rules
    links = (Link("p1", "p2"), Link("p2", "p3"))
    sources = (Source("p3", "Smoke", 1_000_000), Source("p3", "Temp", 1_000_000))
    fires = parse_subscription("Fire", "test")
    return Network((SMOKE, TEMP), ("p1", "p2", "p3"), links, sources, (Sink("p1", fires),), rules, "st")


def cluster(folder: Path) -> Cluster:
    return Cluster(network(), folder, (ClientFeed(), ClientFeed()), (ClientTo("brigade"),))


def client(at: Cluster, node: str, name: str) -> Client:
    address = at.log(node).with_suffix(".address")
    until(address.exists, f"{node} listens", at)
    return Client(node, address.read_text(), name=name, network="test")


async def take(subscription: Any, count: int) -> list[dict[str, Any]]:
    found = []
    async with asyncio.timeout(LONG):
        async for each in subscription:
            found.append(each)
            if len(found) == count:
                break
    return found


async def publish_fires(sensors: Client, temperatures: list[float]) -> None:
    for value in temperatures:
        async with asyncio.timeout(LONG):
            await sensors.publish("Temp", {"area": "A1", "value": value})
    async with asyncio.timeout(LONG):
        await sensors.publish("Smoke", {"area": "A1"})


def test_what_one_program_publishes_another_hears_of(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[dict[str, Any]]:
        async with client(network, "p3", "sensors") as sensors, client(network, "p1", "brigade") as brigade:
            hearing = asyncio.create_task(take(brigade.subscribe("Fire"), 2))
            await publish_fires(sensors, [50.0, 20.0, 60.0])
            return await hearing

    with cluster(tmp_path) as network:
        fires = asyncio.run(run(network))
    assert sorted(fire["attributes"]["temperature"] for fire in fires) == [50.0, 60.0]
    assert [fire["delivery"] for fire in fires] == [1, 2]
    assert {part["node"] for fire in fires for part in fire["events"]} == {"p3"}


def test_deliveries_wait_for_a_program_that_is_away_and_come_once(tmp_path: Path) -> None:
    async def run(network: Cluster) -> tuple[list[float], list[float]]:
        async with client(network, "p3", "sensors") as sensors:
            await publish_fires(sensors, [50.0, 51.0, 52.0])
            async with client(network, "p1", "brigade") as brigade:
                first = await take(brigade.subscribe("Fire"), 2)
            async with client(network, "p1", "brigade") as brigade:
                rest = await take(brigade.subscribe("Fire", since=first[-1]["delivery"]), 1)
        return ([each["attributes"]["temperature"] for each in found] for found in (first, rest))  # type: ignore[return-value]

    with cluster(tmp_path) as network:
        first, rest = asyncio.run(run(network))
    assert sorted([*first, *rest]) == [50.0, 51.0, 52.0]


def test_a_program_goes_on_when_its_node_is_killed_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[float]:
        async with client(network, "p3", "sensors") as sensors, client(network, "p1", "brigade") as brigade:
            hearing = asyncio.create_task(take(brigade.subscribe("Fire"), 6))
            await publish_fires(sensors, [50.0, 51.0])
            network.kill("p3")
            publishing = asyncio.create_task(publish_fires(sensors, [52.0, 53.0]))  # Smoke matches all four
            await asyncio.sleep(0.3)
            network.kill("p1")
            network.start("p3")
            network.start("p1")
            await publishing
            return [fire["attributes"]["temperature"] for fire in await hearing]

    with cluster(tmp_path) as network:
        temperatures = asyncio.run(run(network))
    assert sorted(temperatures) == [50.0, 50.0, 51.0, 51.0, 52.0, 53.0]


def test_a_new_subscription_holds_from_now_on(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[dict[str, Any]]:
        async with client(network, "p3", "sensors") as sensors, client(network, "p2", "watchman") as watchman:
            hearing = asyncio.create_task(take(watchman.subscribe("Fire(temperature > 55)"), 1))
            async with asyncio.timeout(LONG):
                while not hearing.done():  # the subscription holds some time after it was asked for
                    await publish_fires(sensors, [50.0, 60.0])
                    await asyncio.sleep(0.3)
            return hearing.result()

    with cluster(tmp_path) as network:
        (fire,) = asyncio.run(run(network))
    assert fire["attributes"] == {"area": "A1", "temperature": 60.0}


async def refusal(asked: Any) -> str:
    with pytest.raises(ClientError) as refused:
        async with asyncio.timeout(LONG):
            await asked
    return str(refused.value)


def test_what_a_node_does_not_take_is_said_in_a_sentence(tmp_path: Path) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors:
            await sensors.connected(LONG)
            assert "aera" in await refusal(sensors.publish("Smoke", {"aera": "A1"}))
            assert "no source of Rain" in await refusal(sensors.publish("Rain", {}))
            assert "value" in await refusal(sensors.publish("Temp", {"area": "A1", "value": "hot"}))
            assert "Fir" in await refusal(take(sensors.subscribe("Fir"), 1))
            async with asyncio.timeout(LONG):
                await sensors.publish("Smoke", {"area": "A1"})  # it goes on
        async with client(network, "p3", "sensors") as stranger:
            stranger.node = "p9"
            with pytest.raises(KeyError):
                await stranger.publish("Smoke", {"area": "A1"})

    with cluster(tmp_path) as network:
        asyncio.run(run(network))


def test_a_second_program_under_a_name_in_use_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as first:
            await first.publish("Smoke", {"area": "A1"})
            async with client(network, "p3", "sensors") as second:
                why = await refusal(second.publish("Smoke", {"area": "A2"}))
                assert why == (
                    "p3 refuses: the name 'sensors' is taken by another program that is connected there now; "
                    "give this one another name, or end the other"
                )
                assert await refusal(second.publish("Smoke", {"area": "A3"})) == why
                assert await refusal(second.connected(LONG)) == why
                assert "is taken" in await refusal(take(second.subscribe("Fire"), 1))
                async with asyncio.timeout(LONG):
                    await first.publish("Smoke", {"area": "A4"})
        async with client(network, "p3", "sensors") as third, asyncio.timeout(LONG):  # the name is free again
            await third.publish("Smoke", {"area": "A5"})

    with cluster(tmp_path) as network:
        asyncio.run(run(network))
        page = network.metrics("p3")
    assert 'headwater_events_born_total{type="Smoke"} 3.0' in page
    assert 'headwater_events_repeated_total{type="Smoke"} 0.0' in page


PUBLISHER = """
import asyncio, sys
from node.client import Client

async def main():
    async with Client("p3", sys.argv[1], name="sensors", network="test") as sensors:
        await sensors.publish("Smoke", {"area": "A1"})
        print("published", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_program_that_was_killed_has_its_name_when_it_is_started_again(tmp_path: Path) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors, asyncio.timeout(LONG):
            await sensors.publish("Smoke", {"area": "A2"})

    with cluster(tmp_path) as network:
        address = network.log("p3").with_suffix(".address")
        until(address.exists, "p3 listens", network)
        command = [sys.executable, "-c", PUBLISHER, address.read_text()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"published\n"
            program.kill()
            asyncio.run(run(network))


def test_a_node_that_is_not_there_is_said(tmp_path: Path) -> None:
    async def run() -> None:
        async with Client("p1", "tcp://127.0.0.1:9", name="nobody") as lonely:
            with pytest.raises(ClientError, match="does not answer"):
                await lonely.connected(0.2)

    asyncio.run(run())
