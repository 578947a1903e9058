"""A small network under load, and those who do not behave towards it."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import socket
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import msgpack
import zmq

from headwater.node.client import Client
from headwater.protocol.edge import ClientFeed, Destination, FileTo
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as RuleText
from headwater.protocol.languages import parse_rules
from headwater.protocol.links import Hub, LinkSettings
from headwater.protocol.links.frames import OFFER, START, Frame, Hello, Kind, encode
from headwater.protocol.links.keys import Keys
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import parse_subscription
from tests.kit import patience
from tests.kit.first_seed import first_seed
from tests.kit.patience import ANSWER_S, joined, patiently
from tests.kit.processes import Cluster, until

SMOKE = EventType("Smoke", {"area": "string"})
TEMP = EventType("Temp", {"area": "string", "value": "float"})
TICK = EventType("Tick", {"n": "int"})
RULE = """define Fire(area: string, temperature: float)
from Smoke() and each Temp(area = Smoke.area, value > 45) within 5 min from Smoke
where area = Smoke.area, temperature = Temp.value"""
NODES = ("p1", "p2", "p3")
EVERYTHING = ("Smoke", "Temp", "Fire")

SEED = first_seed()
LONG = ANSWER_S  # for those who cannot wait patiently

MEMORY_MAX = 100 << 20
"""What strangers may make a node hold beyond what it needs by itself: buffers of a few connections, and what the
allocator does not give back."""


def network(strategy: str = "st") -> Network:
    """Sources at one end, a sink at the other: everything passes p2. No program may publish Tick."""
    rules = parse_rules([RuleText(RULE, "fire", "tesla")], [SMOKE, TEMP, TICK]).rules
    links = (Link("p1", "p2"), Link("p2", "p3"))
    sources = (Source("p3", "Smoke", 1_000_000), Source("p3", "Temp", 1_000_000))
    sinks = (Sink("p1", parse_subscription("Fire", "test")),)
    return Network((SMOKE, TEMP, TICK), NODES, links, sources, sinks, rules, strategy)


def cluster(folder: Path, *, to: Destination | None = None, **options: Any) -> Cluster:
    folder.mkdir(exist_ok=True)
    return Cluster(network(), folder, (ClientFeed(), ClientFeed()), (to or FileTo("sink-0.jsonl"),), **options)


def address(at: Cluster, node: str) -> str:
    file = at.log(node).with_suffix(".address")
    until(file.exists, f"{node} listens", at)
    return file.read_text()


def port(url: str) -> tuple[str, int]:
    host, _, number = url.rpartition("//")[2].partition("/")[0].rpartition(":")
    return host, int(number)


def http_port(at: Cluster, node: str) -> tuple[str, int]:
    return port(at.log(node).with_suffix(".http").read_text())


def client(at: Cluster, node: str, name: str) -> Client:
    keys = None if at.keys is None else Keys.read(at.keys, name)
    return Client(node, address(at, node), name=name, network="test", keys=keys)


class Load:
    """A program that publishes one fire after the other, from a thread of its own, while a test does what it wants.

    Every fire has an area of its own, so that one that is lost or repeated is seen by its name.
    """

    def __init__(self, at: Cluster, name: str = "sensors", pause_s: float = 0.01) -> None:
        self.at = at
        self.areas: list[str] = []
        self._name = name
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        until(lambda: self.areas or self._failed, "the first fire is published", self.at)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> list[str]:
        self._stop.set()
        joined(self._thread, "the thread that publishes")
        if self._failed is not None:
            raise self._failed
        return self.areas

    def goes_on(self) -> None:
        """Wait until new fires have been published and found."""
        count = len(self.areas) + 3
        until(lambda: len(self.areas) >= count or self._failed, "more fires are published", self.at)
        wanted = set(self.areas[:count])
        until(lambda: self._failed or wanted <= set(fires(self.at)), "the network goes on detecting", self.at)
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        async def publish() -> None:
            async with client(self.at, "p3", self._name) as sensors, patiently():
                number = 0
                while not self._stop.is_set():
                    area = f"{self._name} {number}"
                    await sensors.publish("Temp", {"area": area, "value": 50.0})
                    await sensors.publish("Smoke", {"area": area})
                    self.areas.append(area)
                    number += 1
                    await asyncio.sleep(self._pause_s)

        try:
            asyncio.run(publish())
        except BaseException as error:
            self._failed = error


def fires(at: Cluster) -> Counter[str]:
    """By area how often its fire is in the file of the sink."""
    file = at.data("p1") / "sink-0.jsonl"
    return Counter(json.loads(line)["attributes"]["area"] for line in whole_lines(file))


def whole_lines(file: Path) -> list[bytes]:
    """The lines of a file that a process may be writing at this moment."""
    return file.read_bytes().split(b"\n")[:-1] if file.exists() else []


def assert_all_found(at: Cluster, areas: list[str]) -> None:
    """Every fire that was published was found once, and nothing else."""
    until(lambda: set(areas) <= fires(at).keys(), "all fires are found", at)
    assert fires(at) == Counter(areas)
    assert not at.dead()


def rss(at: Cluster, name: str) -> int:
    """The memory of a process, in bytes."""
    for line in Path(f"/proc/{at.running[name].pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"{name} has no memory")


def descriptors(at: Cluster, name: str) -> int:
    return len(list(Path(f"/proc/{at.running[name].pid}/fd").iterdir()))


class Memory:
    """What processes hold, compared with what they held before."""

    def __init__(self, at: Cluster, *names: str) -> None:
        self.at = at
        self.before = {name: rss(at, name) for name in names}

    def assert_bounded(self, more: int = MEMORY_MAX) -> None:
        grown = {name: rss(self.at, name) - was for name, was in self.before.items()}
        assert all(each < more for each in grown.values()), f"bytes more than before: {grown}"


def metrics(at: Cluster, node: str) -> dict[str, float]:
    """All metrics of a node, by name and labels."""
    where = at.log(node).with_suffix(".http").read_text()
    with urllib.request.urlopen(where + "/metrics", timeout=ANSWER_S) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def counted(at: Cluster, node: str, word: str) -> float:
    """The sum of all metrics that speak of the word."""
    return sum(value for name, value in metrics(at, node).items() if word in name and "_created" not in name)


# -- frames ------------------------------------------------------------------------------------------------------------


def hello(name: str, *, life: str = "a stranger", network: str = "test", step: int = OFFER, **fields: Any) -> bytes:
    said = Hello(network, name, life, None, "", 0, 0, 0, 0, 0, "")._replace(**fields)
    return encode(Frame(Kind.HELLO, step, random.getrandbits(60), body=said))


def good_frames(rng: random.Random) -> list[bytes]:
    """One of every kind, of a session that was never opened."""
    session = rng.getrandbits(62)
    return [
        hello("@client/fuzz"),
        hello("@client/fuzz", step=START),
        hello("p9"),
        hello("@coordinator"),
        encode(Frame(Kind.DATA, 0, session, 1, 0, 0, 100, [b"one", b"two"])),
        encode(Frame(Kind.ACK, 0, session, 0, 3, 5)),
        encode(Frame(Kind.HEARTBEAT, 0, session)),
        encode(Frame(Kind.WHISPER, 0, session, body=b"hush")),
        encode(Frame(Kind.REFUSE, 0, session, body=("resume", ""))),
        encode(Frame(Kind.BYE, 0, session)),
    ]


def bad_frame(rng: random.Random, good: list[bytes]) -> bytes:
    """Random, truncated, of another version, or with some bytes changed."""
    frame = bytearray(rng.choice(good))
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.choice((0, 1, 20, 44, 60, 500)))
        case 1:
            return bytes(frame[: rng.randrange(len(frame))])
        case 2:
            frame[1] = rng.choice((0, 2, 3, 255))
        case 3:
            frame[2] = rng.randrange(256)
        case 4:
            frame[rng.randrange(4, 44)] = rng.randrange(256)
        case _:
            frame[44:] = rng.randbytes(len(frame) - 44)
    return bytes(frame)


class Dialer:
    """A bare connection to the port of a hub, that says whatever it likes."""

    def __init__(self, to: str, context: zmq.Context[zmq.Socket[bytes]], **options: bytes) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.SNDTIMEO, 20_000)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        for name, value in options.items():
            self.socket.setsockopt(getattr(zmq, name.upper()), value)
        self.socket.connect(to)

    def say(self, *frames: bytes) -> None:
        for frame in frames:
            self.socket.send(frame)

    def heard(self, patience_ms: int = 0) -> list[bytes]:
        """What has come, waiting so long at most for the first."""
        found: list[bytes] = []
        while self.socket.poll(0 if found else patience_ms):
            found.append(self.socket.recv())
        return found

    def close(self) -> None:
        self.socket.close(0)


def connection(to: tuple[str, int]) -> socket.socket:
    made = socket.create_connection(to, timeout=ANSWER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Recorder:
    """Stands between a program and a node and keeps every byte that the program sends."""

    def __init__(self, to: str) -> None:
        self.said = bytearray()
        self._to = port(to)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            there = connection(self._to)
            threading.Thread(target=self._pass, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(there, here, False), daemon=True).start()

    def _pass(self, here: socket.socket, there: socket.socket, keep: bool) -> None:
        here.settimeout(None)
        try:
            while data := here.recv(1 << 16):
                if keep:
                    self.said += data
                there.sendall(data)
        except OSError:
            pass
        for end in (here, there):
            end.close()

    def close(self) -> None:
        self._server.close()


# -- talking -----------------------------------------------------------------------------------------------------------


def until_read(dialer: Dialer) -> None:
    """What was said has been read: the answer to a hello has come."""
    dialer.heard()
    dialer.say(hello("a stranger", network="the end"))
    patience.until(lambda: any(b"the end" in each for each in dialer.heard(20)), "the node answers")


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
        async with patiently():
            await self._up.wait()

    async def say(self, payloads: list[bytes]) -> None:
        """Send, and wait until the node has taken it."""
        self.hub.send(self.node, payloads)
        async with patiently():
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
