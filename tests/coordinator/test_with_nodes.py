"""A coordinator process and real nodes: the network detects while the coordinator is down, and picks up with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
from headwater.node.daemon.process import recovered
from headwater.protocol.edge import Choice, FileTo, RateFeed, Uniform
from tests.kit.live_coordinator import LiveCoordinator, until
from tests.kit.patience import patiently
from tests.kit.scripted_nodes import a_network

SMOKE = RateFeed(20.0, "regular", (Choice(("a", "b")),))
TEMP = RateFeed(20.0, "regular", (Choice(("a", "b")), Uniform(0, 100, False)))
NEAR = """define Fire(area: string) from Smoke() and each Temp(area = Smoke.area) within 300 ms from Smoke
where area = Smoke.area"""

HOT = """define Hot(value: float) from Temp(value > 50) and each Smoke() within 200 ms from Temp
where value = Temp.value"""


@contextlib.asynccontextmanager
async def real_nodes(coordinator: LiveCoordinator, folder: Path) -> AsyncIterator[dict[str, NodeDaemon]]:
    """All nodes of the network in this event loop; each has its own links, journal and sources."""
    nodes: dict[str, NodeDaemon] = {}
    tasks: list[asyncio.Task[None]] = []
    try:
        for name in coordinator.setup.network.nodes:
            settings = DaemonSettings(
                name=name, data=folder / name, coordinator=coordinator.listen, network="net", http="127.0.0.1:0"
            )
            settings.data.mkdir()
            journal, machine, _ = recovered(settings, None)
            nodes[name] = NodeDaemon(settings, machine, journal)
            tasks.append(asyncio.create_task(nodes[name].run()))
        yield nodes
    finally:
        for node in nodes.values():
            node.stop()
        await asyncio.gather(*tasks)


def delivered(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def more_of(file: Path, count: int = 5) -> None:
    before = len(delivered(file))
    await until(lambda: len(delivered(file)) >= before + count, f"{file.name} grows")


async def is_ready(coordinator: LiveCoordinator) -> None:
    async with patiently():
        while (await coordinator.call("GET", "/ready"))[0] != 200:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("strategy", ["st", "mt-pp"])
def test_the_network_goes_on_without_its_coordinator_and_takes_changes_when_it_is_back(
    tmp_path: Path, strategy: str
) -> None:
    fires, hot = tmp_path / "fires.jsonl", tmp_path / "hot.jsonl"

    async def scenario() -> None:
        network = a_network(strategy=strategy, rules=NEAR)
        coordinator = LiveCoordinator(tmp_path, network, feeds=(SMOKE, TEMP), destinations=(FileTo(str(fires)),))
        await coordinator.start()
        try:
            async with real_nodes(coordinator, tmp_path) as nodes:
                await is_ready(coordinator)
                await more_of(fires)
                coordinator.kill()
                await until(lambda: not any(node.hub.is_up("@coordinator") for node in nodes.values()), "all noticed")
                await more_of(fires)
                await coordinator.start()
                await is_ready(coordinator)
                status, body = await coordinator.call("POST", "/rules", {"text": HOT})
                assert status == 200, body
                subscription = {"node": "n2", "subscribe": "Hot", "to": {"file": str(hot)}}
                status, body = await coordinator.call("POST", "/subscriptions", subscription)
                assert status == 200, body
                await more_of(hot)
                await more_of(fires)
                assert (await coordinator.get("/nodes/n3/tables"))["node"] == "n3"
                status, body = await coordinator.call("DELETE", "/rules/Hot")
                assert status == 200, body
                last_us = body["holds_from_us"]
                await more_of(fires, 10)
                assert all(each["ts"] < last_us for each in delivered(hot))
                identities = [each["id"] for each in delivered(fires)]
                assert len(set(identities)) == len(identities)
        finally:
            await coordinator.close()

    asyncio.run(scenario())
