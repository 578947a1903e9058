"""Programs that publish and subscribe through the client, at real nodes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from headwater.node.client import Client, ClientError
from headwater.protocol.edge import ClientFeed, ClientTo, FileTo
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit.patience import ANSWER_S, patiently, soon
from tests.kit.processes import Cluster, lines_of, until

SMOKE = EventType("Smoke", {"area": "string"})
TEMP = EventType("Temp", {"area": "string", "value": "float"})
RULE = """define Fire(area: string, temperature: float)
from Smoke() and each Temp(area = Smoke.area, value > 45) within 5 min from Smoke
where area = Smoke.area, temperature = Temp.value"""
PROJECT = Path(__file__).parent.parent.parent
LONG = ANSWER_S  # for what cannot wait patiently


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
    async with patiently():
        async for each in subscription:
            found.append(each)
            if len(found) == count:
                break
    return found


async def publish_fires(sensors: Client, temperatures: list[float]) -> None:
    for value in temperatures:
        async with patiently():
            await sensors.publish("Temp", {"area": "A1", "value": value})
    async with patiently():
        await sensors.publish("Smoke", {"area": "A1"})


def test_what_one_program_publishes_another_hears_of(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[dict[str, Any]]:
        async with client(network, "p3", "sensors") as sensors, client(network, "p1", "brigade") as brigade:
            hearing = asyncio.create_task(take(brigade.subscribe("Fire"), 2))
            whole: Any = np.int64(20)
            await publish_fires(sensors, [np.float64(50.0), whole, 60.0])
            return await hearing

    with cluster(tmp_path) as network:
        fires = asyncio.run(run(network))
    assert sorted(fire["attributes"]["temperature"] for fire in fires) == [50.0, 60.0]
    (life,) = {fire["delivery"].partition(":")[0] for fire in fires}
    assert [fire["delivery"] for fire in fires] == [f"{life}:1", f"{life}:2"]
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


def test_a_node_hears_again_of_what_was_read_before_it_could_hear_of_it(tmp_path: Path) -> None:
    """Nothing waits for a program that has dealt with everything, although the node did not know and repeated it."""

    def unread(network: Cluster) -> list[str]:
        return [sentence for sentence in network.ask("p1", "/waiting") or ["?"] if "not left" in sentence]

    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors:
            await publish_fires(sensors, [50.0, 51.0])
            async with client(network, "p1", "brigade") as brigade:
                fires = await take(brigade.subscribe("Fire"), 2)
            assert unread(network), "the node knows of the first only: the program has not come back for more"
            async with client(network, "p1", "brigade") as brigade:
                more = brigade.subscribe("Fire", since=fires[-1]["delivery"])
                hearing = asyncio.ensure_future(anext(more))
                await soon(lambda: not unread(network), "the node knows what was read")
                assert not hearing.done(), "a repetition was taken for news"
                hearing.cancel()

    with cluster(tmp_path) as network:
        asyncio.run(run(network))


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
            async with patiently():
                while not hearing.done():  # the subscription holds some time after it was asked for
                    await publish_fires(sensors, [50.0, 60.0])
                    await asyncio.sleep(0.3)
            return hearing.result()

    with cluster(tmp_path) as network:
        (fire,) = asyncio.run(run(network))
    assert fire["attributes"] == {"area": "A1", "temperature": 60.0}


async def refusal(asked: Any) -> str:
    with pytest.raises(ClientError) as refused:
        async with patiently():
            await asked
    return str(refused.value)


def test_what_a_node_does_not_take_is_said_in_a_sentence(tmp_path: Path) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors:
            await sensors.connected(LONG)
            assert "aera" in await refusal(sensors.publish("Smoke", {"aera": "A1"}))
            assert "no source of Rain" in await refusal(sensors.publish("Rain", {}))
            in_seconds = sensors.publish("Smoke", {"area": "A1"}, ts=1_772_366_400)
            assert "as seconds it is 2026-03-01 12:00" in await refusal(in_seconds)
            assert "value" in await refusal(sensors.publish("Temp", {"area": "A1", "value": "hot"}))
            assert "Fir" in await refusal(take(sensors.subscribe("Fir"), 1))
            assert 'since is 41; give it the "delivery"' in await refusal(
                take(sensors.subscribe("Temp", since=cast(Any, 41)), 1)
            )
            async with patiently():
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
                async with patiently():
                    await first.publish("Smoke", {"area": "A4"})
        async with client(network, "p3", "sensors") as third, patiently():  # the name is free again
            await third.publish("Smoke", {"area": "A5"})

    with cluster(tmp_path) as network:
        asyncio.run(run(network))
        page = network.metrics("p3")
    assert 'headwater_events_born_total{type="Smoke"} 3.0' in page
    assert 'headwater_events_repeated_total{type="Smoke"} 0.0' in page


PUBLISHER = """
import asyncio, sys
from headwater.node.client import Client

async def main():
    async with Client("p3", sys.argv[1], name="sensors", network="test") as sensors:
        await sensors.publish("Smoke", {"area": "A1"})
        print("published", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_program_that_was_killed_has_its_name_when_it_is_started_again(tmp_path: Path) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors, patiently():
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
        async with Client("p1", "tcp://127.0.0.1:9", name="absent") as lonely:
            with pytest.raises(ClientError, match="does not answer"):
                await lonely.connected(0.2)

    asyncio.run(run())


# -- nodes and programs that begin a new life --------------------------------------------------------------------------

SHORT = RULE.replace("within 5 min", "within 1 s")
FORGOTTEN_S = 4.0
"""So long after its last event no program that joins primes a part of a match: windows and lateness are over."""


def short_network() -> Network:
    """Fires go to a program and to a file, both at p1."""
    rules = parse_rules([RuleText(SHORT, "fire", "tesla")], [SMOKE, TEMP]).rules
    fires = Sink("p1", parse_subscription("Fire", "test"))
    return replace(network(), rules=rules, sinks=(fires, fires))


def short_cluster(folder: Path) -> Cluster:
    return Cluster(short_network(), folder, (ClientFeed(), ClientFeed()), (ClientTo("brigade"), FileTo("sink-1.jsonl")))


def forget(network: Cluster, node: str) -> None:
    """Kill a node, remove its journal, and start it: it knows nothing but its name."""
    network.kill(node)
    shutil.rmtree(network.data(node) / "journal")
    network.start(node)


async def publish_hot(sensors: Client, values: range) -> None:
    """A fire for each value, in an area of its own."""
    for value in values:
        async with asyncio.timeout(LONG):
            await sensors.publish("Temp", {"area": f"A{value}", "value": float(value)})
            await sensors.publish("Smoke", {"area": f"A{value}"})


def temperatures(found: list[dict[str, Any]]) -> list[int]:
    return [int(each["attributes"]["temperature"]) for each in found]


async def ended(subscription: AsyncIterator[dict[str, Any]]) -> None:
    assert isinstance(subscription, AsyncGenerator)
    await subscription.aclose()


async def take_until(subscription: Any, values: range, found: list[dict[str, Any]]) -> None:
    """Until each of these temperatures has come."""
    async with asyncio.timeout(LONG):
        while not set(values) <= set(temperatures(found)):
            found.append(await anext(subscription))


BEFORE, AFTER = range(100, 160), range(200, 250)


def test_a_program_that_reads_on_misses_nothing_when_its_node_has_lost_its_journal(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        async with client(network, "p3", "sensors") as sensors, client(network, "p1", "brigade") as brigade:
            subscription = brigade.subscribe("Fire")
            await publish_hot(sensors, BEFORE)
            await take_until(subscription, BEFORE, heard)
            await asyncio.sleep(FORGOTTEN_S)
            forget(network, "p1")
            await publish_hot(sensors, AFTER)
            await take_until(subscription, AFTER, heard)
            await ended(subscription)
        return heard

    with short_cluster(tmp_path) as network:
        heard = asyncio.run(run(network))
    assert sorted(set(temperatures(heard))) == [*BEFORE, *AFTER]
    assert len({each["delivery"] for each in heard}) == len(heard)
    assert len({each["delivery"].partition(":")[0] for each in heard}) == 2  # lives


def test_a_program_that_was_away_when_its_node_lost_its_journal_misses_nothing(tmp_path: Path) -> None:
    async def run(network: Cluster) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        async with client(network, "p3", "sensors") as sensors:
            async with client(network, "p1", "brigade") as brigade:
                await publish_hot(sensors, BEFORE)
                await take_until(brigade.subscribe("Fire"), BEFORE, heard)
            await asyncio.sleep(FORGOTTEN_S)
            forget(network, "p1")
            await publish_hot(sensors, AFTER)
            async with client(network, "p1", "brigade") as brigade:
                await take_until(brigade.subscribe("Fire", since=heard[-1]["delivery"]), AFTER, heard)
        return heard

    with short_cluster(tmp_path) as network:
        heard = asyncio.run(run(network))
    assert sorted(set(temperatures(heard))) == [*BEFORE, *AFTER]


def test_events_of_a_source_whose_node_has_lost_its_journal_are_new_ones(tmp_path: Path) -> None:
    """The node does not know which numbers it has given, and gives others: the same would be the same events."""

    async def run(network: Cluster) -> list[dict[str, Any]]:
        heard: list[dict[str, Any]] = []
        async with client(network, "p3", "sensors") as sensors, client(network, "p1", "brigade") as brigade:
            subscription = brigade.subscribe("Fire")
            await publish_hot(sensors, BEFORE)
            await take_until(subscription, BEFORE, heard)
            forget(network, "p3")
            await publish_hot(sensors, AFTER)
            await take_until(subscription, AFTER, heard)
            await ended(subscription)
        return heard

    with short_cluster(tmp_path) as network:
        heard = asyncio.run(run(network))
        file = network.data("p1") / "sink-1.jsonl"
        until(lambda: len(lines_of(file)) >= len(BEFORE) + len(AFTER), "the file has every fire", network)
    assert sorted(temperatures(heard)) == [*BEFORE, *AFTER]
    assert sorted(temperatures(lines_of(file))) == [*BEFORE, *AFTER]
    parts = [(part["node"], part["seq"]) for each in heard for part in each["events"]]
    assert len(set(parts)) == len(parts)


def test_a_program_that_was_started_anew_is_heard_though_its_clock_has_gone_back(
    tmp_path: Path, monkeypatch: Any
) -> None:
    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors, asyncio.timeout(LONG):
            await sensors.publish("Smoke", {"area": "A1"})
            await sensors.publish("Smoke", {"area": "A2"})

    with cluster(tmp_path) as network:
        asyncio.run(run(network))
        monkeypatch.setattr("time.time_ns", lambda: 1)
        asyncio.run(run(network))
        page = network.metrics("p3")
    assert 'headwater_events_born_total{type="Smoke"} 4.0' in page
    assert 'headwater_events_repeated_total{type="Smoke"} 0.0' in page


def test_a_subscription_that_was_given_up_is_made_anew_when_it_is_asked_for_again(tmp_path: Path) -> None:
    async def hear(watchman: Client, area: str) -> None:
        async for smoke in watchman.subscribe("Smoke"):
            if smoke["attributes"]["area"] == area:
                return

    async def run(network: Cluster) -> None:
        async with client(network, "p3", "sensors") as sensors, client(network, "p2", "watchman") as watchman:
            for area in ("A1", "A2"):
                hearing = asyncio.create_task(hear(watchman, area))
                async with asyncio.timeout(LONG):
                    while not hearing.done():
                        await sensors.publish("Smoke", {"area": area})
                        await asyncio.sleep(0.3)
                    await watchman.unsubscribe("Smoke")

    with cluster(tmp_path) as network:
        asyncio.run(run(network))
