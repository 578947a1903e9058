"""A coordinator in a process of its own, and nodes of this process that speak with it over real links."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import aiohttp

from headwater.coordinator.daemon.folder import DataFolder
from headwater.coordinator.daemon.inputs import Setup
from headwater.coordinator.daemon.machine import Settings
from headwater.coordinator.daemon.process import ProcessSettings, run_coordinator
from headwater.protocol.links import Hub, Keys, LinkSettings
from headwater.protocol.messages import control
from headwater.protocol.messages.control import COORDINATOR
from headwater.protocol.network import Network
from tests.kit.patience import ANSWER_S, joined, soon
from tests.kit.scripted_nodes import ScriptedNode, destinations_of, feeds_of


def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.kit.live_coordinator", "uvloop", "headwater.coordinator.daemon.api.server"])
    return context


def _serve(data: Path, setup: Setup, listen: str, http: str, timeout_us: int, keys: Path | None) -> None:
    logging.basicConfig(filename=data.parent / "coordinator.log", level=logging.INFO)
    folder = DataFolder(data)
    kept = folder.setup()
    if kept is None:
        folder.keep_setup(setup)
    settings = ProcessSettings(
        listen=listen,
        http=http,
        keys=None if keys is None else Keys.read(keys, COORDINATOR),
        machine=Settings(timeout_us),
    )
    run_coordinator(folder, kept or setup, settings, said=lambda line: None)


class LiveCoordinator:
    """Its process, which may be killed and started again, and a client of its API."""

    def __init__(
        self, folder: Path, network: Network, *, timeout_us: int = 30_000_000, keys: Path | None = None, **setup: Any
    ) -> None:
        self.data = folder / "coordinator"
        self.keys = keys
        public = () if keys is None else tuple((n, (keys / f"{n}.pub").read_text().strip()) for n in network.nodes)
        given = {"feeds": feeds_of(network), "destinations": destinations_of(network), "public_keys": public, **setup}
        self.setup = Setup(id="net", network=network, **given)
        self.timeout_us = timeout_us
        self.listen, self.http = "tcp://127.0.0.1:0", "127.0.0.1:0"
        self.process: ForkServerProcess | None = None
        self.session: aiohttp.ClientSession | None = None

    async def start(self) -> LiveCoordinator:
        endpoints = self.data / "endpoints.json"
        endpoints.unlink(missing_ok=True)
        made = _context().Process(
            target=_serve, args=(self.data, self.setup, self.listen, self.http, self.timeout_us, self.keys), daemon=True
        )
        made.start()
        self.process = made
        await until(lambda: endpoints.exists() or not made.is_alive(), "the coordinator listens")
        assert made.is_alive(), (self.data.parent / "coordinator.log").read_text()
        found = json.loads(endpoints.read_text())
        self.listen, self.http = found["hub"], found["http"].removeprefix("http://")  # the same again after a restart
        self.token = (self.data / "token").read_text().strip()
        if self.session is None:
            self.session = aiohttp.ClientSession()
        return self

    def kill(self) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    async def terminate(self) -> int:
        assert self.process is not None
        self.process.terminate()
        await asyncio.to_thread(joined, self.process, "the coordinator")
        assert self.process.exitcode is not None
        return self.process.exitcode

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()
        if self.process is not None and self.process.is_alive():
            self.kill()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON (or text) of an answer."""
        assert self.session is not None
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", **(headers or {})}
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        data = body if isinstance(body, bytes) else None
        given = None if data is not None or body is None else body
        async with self.session.request(
            method, f"http://{self.http}{path}", json=given, data=data, headers=sent, timeout=timeout
        ) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def get(self, path: str) -> Any:
        status, body = await self.call("GET", path)
        assert status == 200, body
        return body


class LiveNode:
    """A scripted node with a real link to the coordinator."""

    def __init__(self, name: str, coordinator: LiveCoordinator, network: str = "net", life: str = "first") -> None:
        self.script = ScriptedNode(name, life)
        self.is_up = asyncio.Event()
        self.resets = 0
        self._coordinator = coordinator
        keys = coordinator.keys
        self.hub = Hub(name, life, network, self, keys=None if keys is None else Keys.read(keys, name))

    async def start(self) -> LiveNode:
        await self.hub.start(None)
        self.hub.add_peer(COORDINATOR, dial=self._coordinator.listen)
        self.hub.send(COORDINATOR, [control.encode(self.script.registers())])
        return self

    def say(self, message: control.Control) -> None:
        self.hub.send(COORDINATOR, [control.encode(message)])

    def received(self, peer: str, last_seq: int, payloads: list[bytes]) -> None:
        for payload in payloads:
            for said in self.script.hear(payload):
                self.say(said)
        self.hub.confirm(peer, last_seq)

    def whispered(self, peer: str, payload: bytes) -> None: ...

    def link_up(self, peer: str) -> None:
        self.is_up.set()

    def link_down(self, peer: str, reason: str) -> None:
        self.is_up.clear()

    def link_reset(self, peer: str, life: str) -> None:
        self.resets += 1

    def acknowledged(self, peer: str, seq: int) -> None: ...

    def admit(self, name: str, key_name: str | None) -> LinkSettings | None:
        return None


async def until(condition: Any, what: str) -> None:
    """Wait; a test that waits for what never comes fails with a sentence."""
    await soon(condition, what)


@contextlib.asynccontextmanager
async def a_live_network(
    folder: Path, network: Network, **options: Any
) -> AsyncIterator[tuple[LiveCoordinator, dict[str, LiveNode]]]:
    """A coordinator and all its nodes, ready."""
    coordinator = await LiveCoordinator(folder, network, **options).start()
    nodes = {name: LiveNode(name, coordinator) for name in network.nodes}
    try:
        for node in nodes.values():
            await node.start()
        await until(lambda: all(node.script.adopted for node in nodes.values()), "all nodes have the first plan")
        while (await coordinator.call("GET", "/ready"))[0] != 200:
            await asyncio.sleep(0.01)
        yield coordinator, nodes
    finally:
        for node in nodes.values():
            await node.hub.close()
        await coordinator.close()
