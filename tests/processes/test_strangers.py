"""Strangers at whole processes in a running network: whatever they send, the network goes on, loses nothing, holds no
more memory than it should, and tells of them."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from headwater.node.client import Client
from headwater.protocol.links import Hub, Keys, make_keys
from headwater.protocol.links.frames import OFFER, Frame, Kind, encode
from headwater.protocol.links.keys import raw_key
from headwater.protocol.messages.control import COORDINATOR
from tests.kit.patience import patiently
from tests.kit.processes import Cluster, until
from tests.kit.strangers import (
    LONG,
    NODES,
    SEED,
    Dialer,
    Load,
    Memory,
    Recorder,
    Rogue,
    address,
    assert_all_found,
    bad_frame,
    client,
    cluster,
    connection,
    counted,
    good_frames,
    hello,
    http_port,
    port,
    until_read,
)

FRAMES = 60_000  # of strangers without a link; 40,000 more are in test_stranger_programs
STREAMS = 300  # of bytes that are not even ZeroMQ


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(0)


# -- bad frames --------------------------------------------------------------------------------------------------------


def test_bad_frames_stop_no_other(tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]) -> None:
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


# -- hellos ------------------------------------------------------------------------------------------------------------


def test_strangers_with_the_names_of_neighbours_are_shaken_off(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """Without keys any process on the machine may say that it is p1. The real one comes back, and nothing is lost."""
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
    async with Client("p3", other, name="victim", network="test") as victim, patiently():
        await victim.publish("Temp", {"area": "again", "value": 60.0})
        await victim.publish("Smoke", {"area": "again"})


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
        async with patiently():
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
