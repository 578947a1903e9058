"""What tests of the edge of a node share: a node that writes down what it is given, brokers, certificates."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from headwater.node.edge.broker import EmbeddedBroker
from headwater.node.edge.dead_letters import DeadLetters
from headwater.node.edge.interfaces import Arrival, Edge
from headwater.protocol.edge import Broker
from tests.kit.patience import patiently
from tests.kit.ports import free_port

"""How long a test waits for something that must come; it fails then, so the length is no part of what is tested."""

T = TypeVar("T")


class Hears:
    """The hearing of a node that writes down what it is told. ``asks`` begins a gap that the adapter must end."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.gaps: asyncio.Queue[int] = asyncio.Queue()
        self.ended: list[int] = []

    def connected(self, source: int) -> None:
        self.told.append("connected")

    def lost(self, source: int) -> None:
        self.told.append("lost")

    def busy(self, source: int) -> None:
        self.told.append("busy")

    async def gap(self, source: int) -> int:
        return await self.gaps.get()

    def caught_up(self, gap: int) -> None:
        self.ended.append(gap)


class Taken:
    """An intake that writes down what it is given. With ``holding`` nothing becomes durable until `release`."""

    def __init__(self, *, holding: bool = False) -> None:
        self.arrivals: list[Arrival] = []
        self.calls: list[tuple[int, list[Arrival], float | None, Any]] = []
        self.bad: list[tuple[int, bytes, str]] = []
        self.over: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.hearing = Hears()
        self._holding = holding
        self._waiting: list[Callable[[], None]] = []

    def publish(
        self,
        source: int,
        arrivals: Sequence[Arrival],
        *,
        watermark: float | None = None,
        position: Any = None,
        done: Callable[[], None] | None = None,
    ) -> None:
        self.arrivals += arrivals
        self.calls.append((source, list(arrivals), watermark, position))
        if done is not None and self._holding:
            self._waiting.append(done)
        elif done is not None:
            done()

    def release(self) -> None:
        """What was published is durable now."""
        self._holding = False
        for done in self._waiting:
            done()
        self._waiting.clear()

    def ended(self, source: int) -> None:
        self.over.append(source)

    def refused(self, source: int, raw: bytes, why: str) -> None:
        self.bad.append((source, raw, why))

    async def may_publish(self) -> None:
        await self.open.wait()

    @property
    def values(self) -> list[tuple[Any, ...]]:
        return [arrival.values for arrival in self.arrivals]


class Outgoing:
    """Deliveries 1, 2, .. of a sink; ``offered_from`` as after a restart."""

    def __init__(self, deliveries: Sequence[dict[str, Any]], confirmed: int = 0, size: int = 3) -> None:
        self._left = [(number, each) for number, each in enumerate(deliveries, 1) if number > confirmed]
        self._size = size
        self.confirmed = confirmed
        self.refused = 0

    async def next(self) -> list[tuple[int, dict[str, Any]]]:
        if not self._left:
            await asyncio.Event().wait()
        batch, self._left = self._left[: self._size], self._left[self._size :]
        return batch

    def confirm(self, number: int, *, refused: int = 0) -> None:
        assert number > self.confirmed, "confirmed backwards"
        self.confirmed = number
        self.refused += refused


def an_edge(folder: Path, node: str = "p1") -> Edge:
    return Edge("net", node, folder, DeadLetters(folder))


def fire(number: int, area: str = "A1") -> dict[str, Any]:
    """A composite as it is delivered."""
    return {
        "id": f"id{number}", "type": "Fire", "ts": number, "start": number, "end": number, "rule": "Fire",
        "attributes": {"area": area}, "events": [],
    }  # fmt: skip


async def until(holds: Callable[[], bool]) -> None:
    """Returns as soon as it holds; a TimeoutError if it does not."""
    async with patiently():
        while not holds():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """A task for the length of a block; what goes wrong in it goes wrong in the test."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        if task.done():
            task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def run(work: Awaitable[T]) -> T:
    async def whole() -> T:
        return await work

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as nodes do
        return runner.run(whole())


# --- brokers ----------------------------------------------------------------------------------------------------------

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


async def _listens(port: int) -> None:
    async with patiently():
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            except OSError:
                await asyncio.sleep(0.02)


class Mosquitto:
    """Mosquitto with persistence, which a test may kill and start again."""

    def __init__(self, folder: Path, port: int, config: str = "") -> None:
        self.port = port
        self._file = folder / f"mosquitto-{port}.conf"
        self._file.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous {'false' if 'password_file' in config else 'true'}\n"
            f"persistence true\npersistence_location {folder}/\nautosave_interval 1\nlog_dest none\nuser root\n{config}"
        )
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen([MOSQUITTO, "-c", str(self._file)])
        await _listens(self.port)

    async def stop(self, *, kill: bool = False) -> None:
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            await asyncio.to_thread(self._process.wait)
            self._process = None


@contextlib.asynccontextmanager
async def a_broker(kind: str, folder: Path, port: int | None = None, config: str = "") -> AsyncIterator[Broker]:
    """A broker of this kind for the length of a block."""
    port = port or free_port()
    broker = Mosquitto(folder, port, config) if kind == "mosquitto" else EmbeddedBroker("127.0.0.1", port)
    await broker.start()
    try:
        yield Broker("127.0.0.1", port)
    finally:
        await broker.stop()


async def device_that_dies(broker: Broker, will_topic: str, will: bytes, *, keepalive_s: int = 60) -> Any:
    """A device connects with a last will and its process ends without a farewell.

    With a keep-alive of a second it only falls silent, as after a loss of power; what is returned keeps it so.
    """

    def text(data: bytes) -> bytes:
        return len(data).to_bytes(2) + data

    will_flags = 0b0000_1110  # a clean session; a will of QoS 1
    body = text(b"MQTT") + bytes([4, will_flags]) + keepalive_s.to_bytes(2)
    body += text(b"t7") + text(will_topic.encode()) + text(will)
    reader, writer = await asyncio.open_connection(broker.host, broker.port)
    writer.write(bytes([0x10, len(body)]) + body)
    async with patiently():
        assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    if keepalive_s > 1:
        writer.transport.abort()
    return writer


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """An authority of our own, and a certificate and key for localhost that it has signed."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    new_key = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        "req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test authority"
    )
    openssl("req", *new_key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(
        "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.crt",
    )  # fmt: skip
    return folder / "ca.crt", folder / "server.crt", folder / "server.key"
