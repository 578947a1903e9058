"""Strangers at whole processes in a running network: whatever they send, the network goes on, loses nothing, holds no
more memory than it should, and tells of them."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from node.client import Client, ClientError
from protocol.control import COORDINATOR
from protocol.links import Hub, Keys, LinkError, LinkSettings, make_keys
from protocol.links.frames import OFFER, Frame, Kind, encode
from protocol.links.keys import raw_key
from protocol.links.parts import PART_BYTES, WHOLE_BYTES_MAX, Joined, split
from protocol.messages import (
    Advertise,
    Awakening,
    Batch,
    Deploy,
    FetchRules,
    Filter,
    Mark,
    Message,
    Notify,
    ReverseMark,
    RulesFetched,
    Run,
    SetMode,
    Settled,
    SettledHere,
    Subscribe,
    TreeOver,
    TreeReady,
    TreeStart,
    Want,
)
from protocol.subscriptions import parse_subscription
from protocol.tree_messages import CreateTree, LinkAgain, TreeAck, TreeNack
from protocol.wire import LinkWire
from tests.processes import Cluster, until
from tests.strangers import (
    EVERYTHING,
    NODES,
    TEMP,
    Dialer,
    Load,
    Memory,
    Recorder,
    address,
    assert_all_found,
    bad_frame,
    client,
    cluster,
    connection,
    counted,
    fires,
    good_frames,
    hello,
    http_port,
    port,
    whole_lines,
)

SEED = secrets.randbelow(1 << 30)
FRAMES = 60_000  # of strangers without a link
PAYLOADS = 40_000  # of a program that is let in
STREAMS = 300  # of bytes that are not even ZeroMQ
LONG = 60.0  # seconds that anything may take on a busy machine


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(0)


# -- bad frames --------------------------------------------------------------------------------------------------------


def test_bad_frames_stop_nobody(tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    with cluster(tmp_path) as at, Load(at) as load:
        memory = Memory(at, *NODES, COORDINATOR)
        targets = [*(address(at, node) for node in NODES), at.coordinator["hub"]]
        for target in targets:
            _talk_nonsense(port(target), rng, STREAMS // len(targets))
        for target in targets:
            _send_bad_frames(target, context, rng, FRAMES // len(targets))
        load.goes_on()
        for node in NODES:
            assert counted(at, node, "refused") > FRAMES // len(targets) // 2, "bad frames are counted"
            assert "a bad frame from a stranger" in at.said(node)
            assert len(at.said(node)) < 1 << 20, "a stranger must not fill a log"
        memory.assert_bounded()
        assert_all_found(at, load.stop())
        assert not at.bugs()


def _talk_nonsense(to: tuple[str, int], rng: random.Random, connections: int) -> None:
    """Bytes that are not ZeroMQ, or only begin like it."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16) + b"\x00" + bytes(31)
    ready = b"\x04\x26\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity" + bytes(4)
    huge = b"\x02\xff\xff\xff\xff\xff\xff\xff\xff"  # a message of 16 EiB is announced
    for _ in range(connections):
        with suppress(OSError), connection(to) as made:
            made.sendall(rng.choice((b"", greeting, greeting + ready, greeting + ready + huge, greeting[:20])))
            made.sendall(rng.randbytes(rng.choice((1, 64, 4000))))


def _send_bad_frames(target: str, context: zmq.Context[zmq.Socket[bytes]], rng: random.Random, count: int) -> None:
    good = good_frames(rng)
    dialer = Dialer(target, context)
    for number in range(count):
        if number % 5000 == 4999:
            until_read(dialer)
            dialer.close()
            dialer = Dialer(target, context)
        dialer.say(bad_frame(rng, good))
    until_read(dialer)
    dialer.close()


def until_read(dialer: Dialer) -> None:
    """What was said has been read: the answer to a hello has come."""
    dialer.heard()
    dialer.say(hello("nobody at all", network="the end"))
    end = time.monotonic() + LONG
    while not any(b"the end" in each for each in dialer.heard(20)):
        assert time.monotonic() < end, "nobody answers"


# -- hellos ------------------------------------------------------------------------------------------------------------


def test_strangers_with_the_names_of_neighbours_are_shaken_off(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """Without keys anybody on the machine may say that he is p1. The real one comes back, and nothing is lost."""
    with cluster(tmp_path) as at, Load(at) as load:
        dialers = [Dialer(address(at, "p2"), context) for _ in range(20)]
        for number, dialer in enumerate(dialers):
            dialer.say(hello("p1", life=f"life {number}"), hello("p3"), hello("p2"), hello(COORDINATOR))
            dialer.say(hello("p1", network="another"), hello("x" * 256), encode(Frame(Kind.HELLO, OFFER, 1, body=[])))
            dialer.say(*(encode(Frame(Kind.DATA, 0, number, 1, 0, 0, 9, [b"\xc1"])) for _ in range(50)))
        for dialer in dialers:
            until_read(dialer)
            dialer.close()
        load.goes_on()
        assert_all_found(at, load.stop())
        assert counted(at, "p2", "refused") > 100
        assert "belongs to the network 'another'" in at.said("p2")
        assert not at.bugs()


def test_a_conversation_that_is_said_again_does_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path) as at, Load(at) as load:
        recorder = Recorder(address(at, "p3"))
        asyncio.run(_through(at, recorder.address))
        recorder.close()
        said = bytes(recorder.said)
        assert b"again" in said, "the conversation is not encrypted and was kept"
        for _ in range(50):
            with suppress(OSError), connection(port(address(at, "p3"))) as made:
                made.sendall(said)
                made.settimeout(0.05)
                with suppress(TimeoutError):
                    while made.recv(1 << 16):
                        pass
        load.goes_on()
        assert_all_found(at, [*load.stop(), "again"])
        assert not at.bugs()


async def _through(at: Cluster, other: str) -> None:
    async with Client("p3", other, name="victim", network="test") as victim, asyncio.timeout(LONG):
        await victim.publish("Temp", {"area": "again", "value": 60.0})
        await victim.publish("Smoke", {"area": "again"})


# -- a program that is let in ------------------------------------------------------------------------------------------


class Rogue:
    """A program with a real link that says what it likes. It need not acknowledge what it hears."""

    def __init__(self, name: str = "rogue", *, confirms: bool = True) -> None:
        self.name = name
        self.confirms = confirms
        self.heard: list[Any] = []
        self.resets = 0
        self._up = asyncio.Event()

    async def connect(self, at: Cluster, node: str) -> None:
        self.node = node
        self.hub = Hub(f"@client/{self.name}", secrets.token_hex(8), "test", self)
        await self.hub.start(None)
        self.hub.add_peer(node, dial=address(at, node))
        await asyncio.wait_for(self._up.wait(), LONG)

    async def say(self, payloads: list[bytes]) -> None:
        """Send, and wait until the node has taken it."""
        self.hub.send(self.node, payloads)
        async with asyncio.timeout(LONG):
            while self.hub.queued(self.node)[0]:
                await asyncio.sleep(0.01)

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        self.heard += map(msgpack.unpackb, payloads)
        del self.heard[:-1000]
        if self.confirms:
            self.hub.confirm(peer, last_seq)

    def link_up(self, peer: str) -> None:
        self._up.set()

    def link_reset(self, peer: str, life: str) -> None:
        self.resets += 1

    def whispered(self, peer: str, payload: bytes) -> None: ...

    def link_down(self, peer: str, reason: str) -> None:
        self._up.clear()

    def acknowledged(self, peer: str, seq: int) -> None: ...

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None: ...


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
            return bytes(msgpack.packb(["publish", count, rng.choice(("Smoke", "Temp", "Tick", "Fire", "")), [event]]))
        case 3:
            return bytes(msgpack.packb(["publish", value, value, value]))
        case 4:
            return bytes(msgpack.packb(["subscribe", rng.choice((count, value)), rng.choice((value, "Fire(", "?"))]))
        case 5:
            return bytes(msgpack.packb([rng.choice(("got", "unsubscribe", "deliver", "")), count, count]))
        case 6:
            return rng.choice((b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff"))
        case 7:
            return nested(rng.choice((10, 300, 511, 600, 1000, 5000)))
        case 8:
            return within(["publish", count, "Smoke"], nested(rng.choice((2, 300, 505, 600, 1000))))
        case _:
            inner = b"\x91\x92\xc0" + b"\x81\xa4area" + nested(rng.choice((2, 300, 505, 600)))
            return within(["publish", count, "Smoke"], inner)


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
            for full in (True, 7, None):  # nobody but a neighbour may say that sources must wait
                rogue.hub.whisper(rogue.node, msgpack.packb(["p1", 1 << 60, full]))
            assert any(said[0] == "refused" for said in rogue.heard)
            await rogue.say([msgpack.packb(["publish", 1 << 50, "Tick", []])])
            async with asyncio.timeout(LONG):  # it is still listened to
                while not any(said[:2] == ["published", 1 << 50] for said in rogue.heard):
                    await asyncio.sleep(0.01)
            await rogue.hub.close()
        async with client(at, "p3", "rogue") as again, asyncio.timeout(LONG):  # the same name in good order
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
        async with client(at, "p3", "sensors") as sensors, client(at, "p2", "watcher") as watcher:
            async with asyncio.timeout(LONG):
                found = watcher.subscribe("Fire")
                hearing = asyncio.ensure_future(anext(found))
                await _holds(at, "p2", "watcher")
                for _ in range(2):
                    await sensors.publish("Temp", *[{"area": text, "value": 50.0 + each} for each in range(100)])
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
            for part in bad:
                joined.take(part)
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
        async with asyncio.timeout(LONG):
            while not rogue.resets:
                rogue.hub.send("p2", [msgpack.packb(["publish", 1, "x" * 300, []])] * 50)
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


# -- keys --------------------------------------------------------------------------------------------------------------


def test_with_keys_only_the_right_one_hears_anything(tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with cluster(tmp_path, with_keys=True) as at:
        assert at.keys is not None
        make_keys(at.keys, ["sensors", "visitor"])
        target = address(at, "p2")
        server = raw_key((at.keys / "p2.pub").read_text().strip())
        public, secret = zmq.curve_keypair()
        unknown = {"curve_serverkey": server, "curve_publickey": public, "curve_secretkey": secret}
        with Load(at) as load:
            names = ("p1", "p3", COORDINATOR, "@client/sensors", "@client/unknown")
            without = [Dialer(target, context) for _ in range(5)]
            wrong = [Dialer(target, context, **unknown) for _ in range(5)]
            for dialer in (*without, *wrong):
                with suppress(zmq.Again):
                    dialer.socket.setsockopt(zmq.SNDTIMEO, 0)
                    dialer.say(*(hello(name) for name in names))
            until(lambda: counted(at, "p2", "unknown_key") >= 2, "strangers are counted", at)
            load.goes_on()
            assert not any(dialer.heard(0) for dialer in (*without, *wrong)), "strangers hear nothing"
            asyncio.run(_right_and_borrowed(at))
            assert counted(at, "p2", 'reason="key"') >= 4
            assert "no key that is known here" in at.said("p2")
            assert "it has the key of" in at.said("p2")
            assert_all_found(at, load.stop())
        assert not at.bugs()


async def _right_and_borrowed(at: Cluster) -> None:
    assert at.keys is not None
    rogues = []
    for name, key in (("@client/sensors", "visitor"), ("p1", "p3"), ("p1", "visitor"), ("@client/visitor", "p3")):
        rogue = Rogue()
        rogue.hub = Hub(name, "another life", "test", rogue, keys=Keys.read(at.keys, key))
        await rogue.hub.start(None)
        rogue.hub.add_peer("p2", dial=address(at, "p2"))
        rogues.append(rogue)
    async with client(at, "p2", "visitor") as visitor:
        await visitor.connected(LONG)
        found = visitor.subscribe("Fire")
        async with asyncio.timeout(LONG):
            assert (await anext(found))["type"] == "Fire", "the right key hears of fires"
    for rogue in rogues:
        assert not rogue.heard
        assert not rogue.hub.is_up("p2")
        await rogue.hub.close()


# -- floods ------------------------------------------------------------------------------------------------------------


def test_a_flood_of_connections_changes_nothing(tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with cluster(tmp_path) as at, Load(at) as load:
        at.wait_until_ready()
        memory = Memory(at, *NODES, COORDINATOR)
        targets = [
            port(address(at, "p2")),
            http_port(at, "p2"),
            port(at.coordinator["hub"]),
            port(at.coordinator["http"]),
        ]
        open_ones = []
        for number in range(400):
            target = targets[number % 4]
            with suppress(OSError):
                open_ones.append(connection(target))
                if number % 3:
                    open_ones[-1].sendall(b"GET /health HTTP/1.1\r\nX: " if target in targets[1::2] else b"\xff")
        dialers = [Dialer(address(at, "p1"), context) for _ in range(300)]
        for dialer in dialers:
            dialer.say(hello("@client/flood", life=secrets.token_hex(4)), hello(f"@client/{secrets.token_hex(4)}"))
        load.goes_on()
        for made in open_ones:
            made.close()
        for dialer in dialers:
            until_read(dialer)
            dialer.close()
        load.goes_on()
        until(lambda: at.ask("p2", "/health"), "the node answers again", at)
        until(lambda: at.ask_coordinator("GET", "/nodes")[0] == 200, "the coordinator answers", at)
        memory.assert_bounded()
        assert counted(at, "p1", "refused_clients") > 0
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


def test_a_reader_that_stops_reading_harms_nobody_and_can_go_on(tmp_path: Path) -> None:
    text = "y" * 20_000

    async def flood(at: Cluster, prefix: str, count: int) -> list[str]:
        areas = [f"{prefix} {number} {text}" for number in range(count)]
        async with client(at, "p3", "flooder") as flooder, asyncio.timeout(LONG):
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
    from tests.process_mains import _begin

    _begin(log)
    _read_slowly(where, file)


async def _hold(at: Cluster, node: str, name: str, count: int) -> None:
    async with asyncio.timeout(LONG):
        while str((at.ask(node, "/config") or {}).get("sinks", "")).count(name) < count:
            await asyncio.sleep(0.05)


def test_a_subscription_to_everything_at_every_node_gets_everything(tmp_path: Path) -> None:
    areas = [f"A{number}" for number in range(50)]

    async def read(at: Cluster, node: str, text: str) -> list[str]:
        async with client(at, node, f"all of {text}") as reader:
            found = reader.subscribe(text)
            return [(await anext(found))["attributes"]["area"] for _ in areas]

    async def run(at: Cluster) -> None:
        async with asyncio.timeout(LONG), client(at, "p3", "sensors") as sensors:
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


# -- HTTP --------------------------------------------------------------------------------------------------------------


def _request(to: tuple[str, int], head: bytes, body: int = 0) -> bytes:
    """The answer to a request with a body of so many bytes, sent until the other end has had enough."""
    block = b"x" * (1 << 20)
    with connection(to) as made:
        made.sendall(head)
        with suppress(OSError):
            for _ in range(body >> 20):
                made.sendall(block)
        found = b""
        with suppress(OSError):
            while more := made.recv(1 << 16):
                found += more
                if b"\r\n\r\n" in found and b"ontent-" not in head:
                    break
        return found


def test_http_takes_neither_large_bodies_nor_strange_requests(tmp_path: Path) -> None:
    large = 100 << 20
    with cluster(tmp_path) as at, Load(at) as load:
        at.wait_until_ready()
        memory = Memory(at, "p2", COORDINATOR)
        node, coordinator = http_port(at, "p2"), port(at.coordinator["http"])
        token = (at.folder / "coordinator" / "token").read_text().strip().encode()
        for to, path, status in ((node, b"/health", (b"405", b"413", b"400")), (coordinator, b"/rules", (b"413",))):
            head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token
            json_head = b"\r\nContent-Type: application/json"
            sized = _request(to, head + json_head + b"\r\nContent-Length: %d\r\n\r\n" % large, large)
            chunked = head + json_head + b"\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % large
            for answer in (sized, _request(to, chunked, large)):
                assert answer == b"" or answer.split()[1] in status, answer[:200]
            assert _request(to, b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n").split()[1] in (b"400", b"404", b"405", b"501")
            assert not _request(to, b"\xff" * 100 + b"\r\n\r\n").startswith(b"HTTP/1.1 200")
            assert not _request(to, b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        slow = [connection(to) for to in (node, coordinator) for _ in range(30)]
        for made in slow:
            made.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert at.ask("p2", "/health"), "others are answered meanwhile"
        assert at.ask_coordinator("GET", "/nodes")[0] == 200
        for made in slow:
            with suppress(OSError):
                made.sendall(b"y")
            made.close()
        load.goes_on()
        memory.assert_bounded()
        assert counted(at, "p2", "http") > 5
        assert_all_found(at, load.stop())
        assert not at.bugs()


# -- a neighbour that lies ---------------------------------------------------------------------------------------------


def lies(rng: random.Random, count: int) -> Iterator[Message]:
    """Well-formed messages that nobody would send."""
    huge = 1 << 61
    for _ in range(count):
        tree = rng.choice((*NODES, "nowhere", f"tree {rng.random()}"))
        epoch = rng.choice((0, 1, 2, 3, -1, huge))
        number = rng.choice((0, 1, 2, 3, 77, -5, huge))
        ts = rng.choice((0, -huge, huge, time.time_ns() // 1000, 5))
        about = (tree, epoch, rng.choice((0, 10, huge)))
        serial = rng.randrange(9)
        rows = [(ts, "p3", each, TEMP, rng.choice((None, "A")), 1.5) for each in (1, 1, 2, huge)]
        names = tuple((row[1], row[2]) for row in rows)
        everything = tuple(parse_subscription(text, "lie") for text in EVERYTHING)
        yield rng.choice(
            (
                CreateTree(*about),
                TreeAck(*about),
                TreeNack(*about),
                TreeReady(tree, epoch, rng.choice((0, 1, 2, huge)), ts, ts),
                TreeStart(tree, epoch),
                TreeOver(tree, epoch),
                Settled(tree, epoch, ts, ts),
                SettledHere(tree, epoch, ts),
                Advertise(tree, epoch, rng.choice((("Smoke",), ("Smoke", "Temp"), ("Never",), ()))),
                Subscribe(tree, epoch, everything),
                FetchRules(tree, epoch, "Fire"),
                RulesFetched(tree, epoch, "Fire", ()),
                Deploy(tree, epoch, number, Filter(rng.choice(("Temp", "Never")))),
                Want(number, ts),
                Awakening(number, serial, -huge, huge),
                ReverseMark(number, ts),
                SetMode(number, rng.random() < 0.5, serial),
                Batch((Run(names, tuple(rows), (number, 1)), Run(names, None, (number,))), (), None),
                Batch((), (Mark(number, ts), Mark(1, ts), Mark(1, -ts)), ts),
                Notify(tree, epoch, tuple(rows)),
                LinkAgain(serial),
            )
        )


class Liar(Rogue):
    """A neighbour that is not who it says it is; it acknowledges everything."""

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return None


@pytest.mark.parametrize("liar", ["p1", "p3"])
def test_a_neighbour_that_lies_is_survived_and_forgotten(liar: str, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    print(f"seed {SEED}")

    async def lie(at: Cluster) -> None:
        found = Liar()
        found.hub = Hub(liar, secrets.token_hex(8), "test", found)
        dials = liar == "p1"
        await found.hub.start(None if dials else address(at, liar))
        found.hub.add_peer("p2", dial=address(at, "p2") if dials else None)
        await asyncio.wait_for(found._up.wait(), LONG)
        wire = LinkWire(at.network.types)
        for _ in range(10):
            payloads = [wire.encode(message) for message in lies(rng, 300)]
            payloads += [rng.randbytes(20), b"\xc1\x01half", b"\xc1\x07", msgpack.packb([7, [[1, "Temp", []]], []])]
            rng.shuffle(payloads)
            found.node = "p2"
            await found.say(payloads)
            for _ in range(20):
                found.hub.whisper("p2", msgpack.packb([f"node {rng.random()}", 1 << 60, True]))
        await found.hub.close()

    with cluster(tmp_path) as at:
        with Load(at, "before") as before:
            before.goes_on()
        assert_all_found(at, before.areas)
        at.kill(liar)
        memory = Memory(at, "p2")
        asyncio.run(lie(at))
        assert not at.dead()
        memory.assert_bounded()
        reports = at.reports_of("p2")
        assert reports.get("malformed_messages", 0) >= 10
        assert reports.get("unknown_tree", 0) + reports.get("unknown_stream", 0) > 10
        assert "(a bug)" not in at.said("p2"), at.said("p2")[-5000:]
        at.start(liar)
        until(lambda: not at.missing(), "the network heals", at, at.missing)
        with Load(at, "after") as after:
            after.goes_on()
        assert_all_found(at, [*before.areas, *after.areas])
        assert "(a bug)" not in "".join(map(at.said, (*NODES, COORDINATOR)))
