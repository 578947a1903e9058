"""Programs that are let in and do not behave, or read slowly, or want everything: the network goes on, all others
get everything, and memory is bounded."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgpack
import pytest

from headwater.node.client import Client, ClientError
from headwater.protocol.events import Value
from headwater.protocol.links import LinkError
from headwater.protocol.links.large_payloads import PART_BYTES, WHOLE_BYTES_MAX, Joined, split
from headwater.protocol.messages.control import COORDINATOR
from tests.kit.patience import patiently
from tests.kit.processes import Cluster, until
from tests.kit.strangers import (
    EVERYTHING,
    NODES,
    SEED,
    Load,
    Memory,
    Rogue,
    address,
    assert_all_found,
    client,
    cluster,
    counted,
    fires,
    whole_lines,
)

PAYLOADS = 40_000  # of a program that talks nonsense; 60,000 frames more are in test_strangers


# -- a program that is let in ------------------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


def within(head: list[Any], inner: bytes) -> bytes:
    """A list that ends with something that was packed already."""
    packed = [msgpack.packb(each) for each in head]
    return bytes([0x90 + len(head) + 1]) + b"".join(packed) + inner


def nonsense(rng: random.Random, number: int) -> bytes:
    """What a program should not say."""
    count = rng.choice((number, -1, 0, 1 << 62))
    value = rng.choice((None, True, 7, "x", b"x", [1], {"a": {"b": 1}}, 1e308, float("nan"), "\0", (1 << 64) - 1))
    event = rng.choice((value, [value, {}], [None, value], [None, {"area": value}], [1 << 61, {"area": "x"}], []))
    match rng.randrange(10):
        case 0:
            return rng.randbytes(rng.randrange(40))
        case 1:
            return bytes(msgpack.packb(value))
        case 2:
            return bytes(
                msgpack.packb(["publish", "life", count, rng.choice(("Smoke", "Temp", "Tick", "Fire", "")), [event]])
            )
        case 3:
            return bytes(msgpack.packb(["publish", value, value, value, value]))
        case 4:
            return bytes(msgpack.packb(["subscribe", rng.choice((count, value)), rng.choice((value, "Fire(", "?"))]))
        case 5:
            return bytes(msgpack.packb([rng.choice(("got", "unsubscribe", "deliver", "")), count, value, count]))
        case 6:
            return rng.choice((b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff"))
        case 7:
            return nested(rng.choice((10, 300, 511, 600, 1000, 5000)))
        case 8:
            return within(["publish", "life", count, "Smoke"], nested(rng.choice((2, 300, 505, 600, 1000))))
        case _:
            inner = b"\x91\x92\xc0" + b"\x81\xa4area" + nested(rng.choice((2, 300, 505, 600)))
            return within(["publish", "life", count, "Smoke"], inner)


def test_a_program_that_talks_nonsense_is_refused_each_time(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")

    async def run(at: Cluster) -> None:
        rogues = {node: Rogue() for node in NODES}
        for node, rogue in rogues.items():
            await rogue.connect(at, node)
        for first in range(0, PAYLOADS, 2_000):
            for rogue in rogues.values():
                await rogue.say([nonsense(rng, first + each) for each in range(2_000 // len(rogues))])
        for rogue in rogues.values():
            for full in (True, 7, None):  # only a neighbour may say that sources must wait
                rogue.hub.whisper(rogue.node, msgpack.packb(["p1", 1 << 60, full]))
            assert any(said[0] == "refused" for said in rogue.heard)
            await rogue.say([msgpack.packb(["publish", "life", 1 << 50, "Tick", []])])
            async with patiently():  # it is still listened to
                while not any(said[:2] == ["published", 1 << 50] for said in rogue.heard):
                    await asyncio.sleep(0.01)
            await rogue.hub.close()
        async with client(at, "p3", "rogue") as again, patiently():  # the same name in good order
            with pytest.raises(ClientError, match="no source of Tick"):
                await again.publish("Tick", {"n": 1})

    with cluster(tmp_path) as at, Load(at) as load:
        memory = Memory(at, *NODES, COORDINATOR)
        asyncio.run(run(at))
        load.goes_on()
        for node in NODES:
            assert counted(at, node, "refused_requests") > PAYLOADS / 10
        memory.assert_bounded()
        found = load.stop()
        assert_all_found(at, found)
        assert not at.bugs()


def test_a_publication_of_the_largest_kind_passes_the_whole_network(tmp_path: Path) -> None:
    """Strings as long as they may be, as many as fit: what follows from them is larger than any frame."""
    text = "x" * 60_000

    async def run(at: Cluster) -> list[dict[str, Any]]:
        async with client(at, "p3", "sensors") as sensors, client(at, "p2", "watcher") as watcher, patiently():
            found = watcher.subscribe("Fire")
            hearing = asyncio.ensure_future(anext(found))
            await _holds(at, "p2", "watcher")
            for _ in range(2):
                hot: list[dict[str, Value]] = [{"area": text, "value": 50.0 + each} for each in range(100)]
                await sensors.publish("Temp", *hot)
            await sensors.publish("Smoke", {"area": text})
            return [await hearing, *[await anext(found) for _ in range(199)]]

    with cluster(tmp_path) as at:
        heard = asyncio.run(run(at))
        assert len({fire["id"] for fire in heard}) == 200
        until(lambda: at.count() == 200, "the file has all fires, too", at)
        with Load(at) as load:
            load.goes_on()
        assert not at.bugs()


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 5 * PART_BYTES, 5 * PART_BYTES + 7])
def test_large_payloads_are_sent_in_parts_and_put_together(size: int) -> None:
    payload = b"\x90" * size
    parts = split(payload)
    assert all(len(part) <= PART_BYTES + 2 for part in parts)
    joined = Joined()
    found = [joined.take(part) for part in parts]
    assert found == [*[None] * (len(parts) - 1), payload]
    assert joined.take(b"next") == b"next"


def test_parts_that_do_not_belong_together_are_refused() -> None:
    joined = Joined()
    for bad in ([b"\xc1\x07"], [b"\xc1\x01half", b"whole"], [b"\xc1\x01" + bytes(WHOLE_BYTES_MAX)]):
        with pytest.raises(LinkError):
            [joined.take(part) for part in bad]
        assert joined.take(b"next") == b"next"


async def _holds(at: Cluster, node: str, name: str) -> None:
    """A subscription of a program holds: its node has a sink for it."""
    while not any(name in str(sink) for sink in (at.ask(node, "/config") or {}).get("sinks", ())):
        await asyncio.sleep(0.05)


def test_ten_thousand_subscriptions_are_too_many(tmp_path: Path) -> None:
    async def run(at: Cluster) -> None:
        rogue = Rogue()
        await rogue.connect(at, "p1")
        asked = [["subscribe", number % 7, f"Fire(temperature > {number})"] for number in range(10_000)]
        for first in range(0, len(asked), 500):
            await rogue.say(list(map(msgpack.packb, asked[first : first + 500])))
        assert any(said[0] == "refused" for said in rogue.heard)
        await rogue.hub.close()

    with cluster(tmp_path) as at, Load(at) as load:
        memory = Memory(at, *NODES, COORDINATOR)
        asyncio.run(run(at))
        load.goes_on()
        assert counted(at, "p1", "refused_requests") > 9_000
        _, found = at.ask_coordinator("GET", "/subscriptions")
        assert len(str(found)) < 100_000
        memory.assert_bounded()
        assert_all_found(at, load.stop())
        assert not at.bugs()


def test_programs_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    """Thousands of names, each connected for a moment."""

    async def run(at: Cluster) -> None:
        for first in range(0, 1200, 40):
            rogues = [Rogue(f"passer-by {first + each}", confirms=False) for each in range(40)]
            await asyncio.gather(*(rogue.connect(at, "p2") for rogue in rogues))
            await asyncio.gather(*(rogue.say([b"\x01"]) for rogue in rogues))
            await asyncio.gather(*(rogue.hub.close() for rogue in rogues))

    with cluster(tmp_path) as at, Load(at) as load:
        memory = Memory(at, "p2")
        asyncio.run(run(at))
        load.goes_on()
        until(lambda: "passer-by" not in str(at.ask("p2", "/waiting") or "passer-by"), "nothing waits for them", at)
        memory.assert_bounded()
        assert_all_found(at, load.stop())
        assert not at.bugs()


def test_a_program_that_never_acknowledges_is_dropped(tmp_path: Path) -> None:
    """It asks and asks, and what it is told piles up: at some point the node breaks off, and says so."""

    async def run(at: Cluster) -> None:
        rogue = Rogue(confirms=False)
        await rogue.connect(at, "p2")
        async with patiently():
            while not rogue.resets:
                rogue.hub.send("p2", [msgpack.packb(["publish", "life", 1, "x" * 300, []])] * 50)
                await asyncio.sleep(0.01)
        await rogue.hub.close()

    with cluster(tmp_path) as at, Load(at) as load:
        memory = Memory(at, "p2")
        asyncio.run(run(at))
        load.goes_on()
        memory.assert_bounded()
        assert counted(at, "p2", "dropped_clients") >= 1
        assert "rogue" in at.said("p2")
        assert_all_found(at, load.stop())
        assert not at.bugs()


# -- readers -----------------------------------------------------------------------------------------------------------


def _read_slowly(where: str, file: Path) -> None:
    """A process that subscribes to everything and writes down what it hears."""

    async def read(reader: Client, text: str) -> None:
        async for each in reader.subscribe(text):
            with file.open("a") as out:
                out.write(json.dumps(each) + "\n")

    async def run() -> None:
        async with Client("p1", where, name="slow", network="test") as reader:
            await asyncio.gather(*(read(reader, text) for text in EVERYTHING))

    asyncio.run(run())


def test_a_reader_that_stops_reading_harms_no_other_and_can_go_on(tmp_path: Path) -> None:
    text = "y" * 20_000

    async def flood(at: Cluster, prefix: str, count: int) -> list[str]:
        areas = [f"{prefix} {number} {text}" for number in range(count)]
        async with client(at, "p3", "flooder") as flooder, patiently():
            for area in areas:
                await flooder.publish("Temp", {"area": area, "value": 50.0})
                await flooder.publish("Smoke", {"area": area})
        return areas

    with cluster(tmp_path) as at:
        file = tmp_path / "slow.jsonl"
        at._run("slow", _reader_main, address(at, "p1"), file)
        asyncio.run(_hold(at, "p1", "slow", len(EVERYTHING)))
        first = asyncio.run(flood(at, "read", 5))
        until(lambda: len(whole_lines(file)) == 15, "the reader hears everything", at)
        at.pause("slow")
        memory = Memory(at, *NODES, COORDINATOR)
        second = asyncio.run(flood(at, "kept", 400))  # some 30 MB for the reader, of which nothing leaves
        until(lambda: fires(at).keys() == {*first, *second}, "the file has all fires", at)
        until(lambda: "the link to @client/slow is down" in at.said("p1"), "the reader is known to be away", at)
        memory.assert_bounded()
        at.go_on("slow")
        until(lambda: len(whole_lines(file)) >= 3 * 405, "the reader has got what was kept", at)
        heard = [(each["type"], each["attributes"]["area"]) for each in map(json.loads, whole_lines(file))]
        assert sorted(heard) == sorted((kind, area) for kind in EVERYTHING for area in (*first, *second))
        assert fires(at) == dict.fromkeys((*first, *second), 1)
        assert not at.bugs()


def _reader_main(log: Path, where: str, file: Path) -> None:
    from tests.kit.process_mains import _begin

    _begin(log)
    _read_slowly(where, file)


async def _hold(at: Cluster, node: str, name: str, count: int) -> None:
    async with patiently():
        while str((at.ask(node, "/config") or {}).get("sinks", "")).count(name) < count:
            await asyncio.sleep(0.05)


def test_a_subscription_to_everything_at_every_node_gets_everything(tmp_path: Path) -> None:
    areas = [f"A{number}" for number in range(50)]

    async def read(at: Cluster, node: str, text: str) -> list[str]:
        async with client(at, node, f"all of {text}") as reader:
            found = reader.subscribe(text)
            return [(await anext(found))["attributes"]["area"] for _ in areas]

    async def run(at: Cluster) -> None:
        async with patiently(), client(at, "p3", "sensors") as sensors:
            readers = [asyncio.create_task(read(at, node, text)) for node in NODES for text in EVERYTHING]
            for node in NODES:
                await _hold(at, node, "all of", len(EVERYTHING))
            for area in areas:
                await sensors.publish("Temp", {"area": area, "value": 50.0})
                await sensors.publish("Smoke", {"area": area})
            for reader in readers:
                assert sorted(await reader) == sorted(areas)

    with cluster(tmp_path) as at:
        asyncio.run(run(at))
        assert_all_found(at, areas)
        assert not at.bugs()
