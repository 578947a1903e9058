"""Hubs with a handler that writes everything down, and a peer process that can be killed."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from headwater.protocol.links import Hub, Keys, LinkSettings
from tests.kit.patience import patiently

made: list[Ends] = []
"""All of the running test: what a failed one leaves open would hang the next."""


class Ends:
    """A hub and its handler. What is received is confirmed at once unless told otherwise."""

    def __init__(
        self, name: str, life: str = "first", network: str = "net", keys: Keys | None = None, **more: Any
    ) -> None:
        self.received_from: dict[str, list[bytes]] = {}
        self.whispers: list[bytes] = []
        self.log: list[tuple[str, ...]] = []
        self.confirms = True
        self.admits: Callable[[str, str | None], LinkSettings | None] = lambda name, key: None
        made.append(self)
        self.hub = Hub(name, f"{life} life of {name}", network, self, keys=keys, **more)

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        self.received_from.setdefault(peer, []).extend(payloads)
        if self.confirms:
            self.hub.confirm(peer, last_seq)

    def whispered(self, peer: str, payload: bytes) -> None:
        self.whispers.append(payload)

    def link_up(self, peer: str) -> None:
        self.log.append(("up", peer))

    def link_down(self, peer: str, reason: str) -> None:
        self.log.append(("down", peer, reason))

    def link_reset(self, peer: str, life: str) -> None:
        self.log.append(("reset", peer, life))

    def acknowledged(self, peer: str, seq: int) -> None:
        pass

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return self.admits(name, key_name)

    def got(self, peer: str) -> list[bytes]:
        return self.received_from.get(peer, [])


async def until(condition: Callable[[], Any]) -> None:
    async with patiently():
        while not condition():
            await asyncio.sleep(0.002)


async def a_pair(settings: LinkSettings | None = None, **more: Any) -> tuple[Ends, Ends]:
    """Two hubs whose link is up: a dials b."""
    a, b = Ends("a", **more), Ends("b", **more)
    address = await b.hub.start("tcp://127.0.0.1:0")
    b.hub.add_peer("a", dial=None, settings=settings)
    a.hub.add_peer("b", dial=address, settings=settings)
    await a.hub.start(None)
    await until(lambda: a.hub.is_up("b") and b.hub.is_up("a"))
    return a, b


async def closed(*ends: Ends) -> None:
    for end in ends:
        await end.hub.close()


async def _cleaned(test: Coroutine[Any, Any, None]) -> None:
    try:
        await test
    finally:
        await closed(*made)
        made.clear()


@contextmanager
def strangers() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        yield context
    finally:
        context.destroy(linger=0)


def run(test: Coroutine[Any, Any, None], loop: str = "asyncio") -> None:
    test = _cleaned(test)
    if loop == "uvloop":
        import uvloop

        uvloop.run(test)
    else:
        asyncio.run(test)


# -- a process that remembers: what it received is in its file before it is confirmed


class Keeper(Ends):
    """Writes down what it receives, and echoes each payload."""

    def __init__(self, file: Path) -> None:
        super().__init__("keeper")
        self.hub.add_peer("a", dial=None)
        if file.exists():
            whole = written(file)
            os.truncate(file, sum(4 + len(payload) for payload in whole))  # the last one may be torn
            self.hub.replay_received("a", whole)
            self.hub.send("a", [b"echo " + payload for payload in whole])
        self._file = file.open("ab", buffering=0)

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        self._file.write(b"".join(struct.pack("!I", len(payload)) + payload for payload in payloads))
        self.hub.confirm(peer, last_seq)
        self.hub.send(peer, [b"echo " + payload for payload in payloads])


def written(file: Path) -> list[bytes]:
    data, at, found = file.read_bytes(), 0, []
    while at + 4 <= len(data):
        (size,) = struct.unpack_from("!I", data, at)
        if at + 4 + size > len(data):
            break
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


async def keep(file: Path, address: str) -> None:
    keeper = Keeper(file)
    print(await keeper.hub.start(address), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(keep(Path(sys.argv[1]), sys.argv[2]))
