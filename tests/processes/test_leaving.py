"""Nodes that are told to leave (SIGTERM) in the middle of everything, and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.edge.test_client import client, cluster
from tests.kit.patience import patiently
from tests.kit.processes import Cluster, until

ROUNDS = 2


def replayed(network: Cluster, node: str) -> float:
    """How many records of its journal the node that runs now has read back at its start."""
    until(lambda: network.ask(node, "/health"), f"{node} answers", network)
    found = network.metric(node, "headwater_replayed_records_total")
    assert found is not None
    return found


@pytest.mark.parametrize("node", ["p1", "p2", "p3"])  # where the sink is, between, and where events are born
def test_a_node_that_left_in_good_order_has_nothing_to_replay_and_nothing_is_lost(tmp_path: Path, node: str) -> None:
    """Under load: neighbours send and acknowledge until the last moment."""

    async def run(network: Cluster) -> tuple[int, list[float]]:
        published, counts = 0, []
        enough = asyncio.Event()

        async def load() -> None:
            nonlocal published
            async with client(network, "p3", "sensors") as sensors:
                await sensors.publish("Temp", {"area": "A1", "value": 50.0})
                while not enough.is_set():
                    await sensors.publish("Smoke", {"area": "A1"})  # a fire each
                    published += 1

        heard: list[str] = []

        async def hear() -> None:
            async with client(network, "p1", "brigade") as brigade:
                async for fire in brigade.subscribe("Fire"):
                    heard.append(fire["id"])

        loading = asyncio.create_task(load())
        hearing = asyncio.create_task(hear())
        for number in range(1, ROUNDS + 1):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(network.terminate, node)
            network.start(node)
            counts.append(await asyncio.to_thread(replayed, network, node))
            assert network.metric(node, "headwater_restarts_total") == number
        before = published
        while published < before + 10:
            await asyncio.sleep(0.01)
        enough.set()
        await loading
        async with patiently():
            while len(heard) < published:
                await asyncio.sleep(0.01)
        hearing.cancel()
        await asyncio.gather(hearing, return_exceptions=True)
        assert len(set(heard)) == len(heard) == published
        return published, counts

    with cluster(tmp_path) as network:
        network.wait_until_ready()
        published, counts = asyncio.run(run(network))
        assert not network.bugs()
    assert counts == [0] * ROUNDS
    assert published >= 10
