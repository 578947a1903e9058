"""A table that does not answer: when too much waits for it sources wait, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.node.daemon import daemon
from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
from headwater.node.daemon.process import recovered
from headwater.node.remote.provider import Elements, Key, Provider
from headwater.node.remote.tables import Behind
from headwater.protocol.edge import FileTo
from headwater.protocol.network import DescribedTable
from headwater.protocol.remote import Versions
from tests.coordinator.test_with_nodes import SMOKE, TEMP, delivered, is_ready, more_of
from tests.kit.live_coordinator import LiveCoordinator, until
from tests.kit.scripted_nodes import a_network

RULE = """define Fire(area: string)
from Smoke() and each Temp(area = Smoke.area and value < REMOTE.limits[Smoke.area]) within 300 ms from Smoke
where area = Smoke.area"""
BOUND = 20


class Silent(Provider):
    """Answers nothing until it is allowed to."""

    shown = "a silent server"
    key_length = 1

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def fetch(self, keys: Sequence[Key]) -> Elements:
        await self.may_answer.wait()
        return {key: Versions.always(1000) for key in keys}


def waiting(nodes: Sequence[NodeDaemon]) -> int:
    return sum(node.machine.core.awaiting() for node in nodes if node.machine.core is not None)


def numbers(nodes: Sequence[NodeDaemon]) -> list[int]:
    return [node.machine.next_seq for node in nodes]


def test_sources_wait_when_too_much_waits_for_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "AWAITING_MAX", BOUND)
    fires = tmp_path / "fires.jsonl"

    async def scenario() -> None:
        network = replace(a_network(strategy="st", rules=RULE), tables=(DescribedTable("limits", "{}"),))
        coordinator = LiveCoordinator(tmp_path, network, feeds=(SMOKE, TEMP), destinations=(FileTo(str(fires)),))
        await coordinator.start()
        provider = Silent()
        nodes: list[NodeDaemon] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            for name in network.nodes:
                settings = DaemonSettings(
                    name=name,
                    data=tmp_path / name,
                    coordinator=coordinator.listen,
                    network="net",
                    http="127.0.0.1:0",
                    providing=lambda table, description: Behind(provider),
                )
                settings.data.mkdir()
                journal, machine, _ = recovered(settings, None)
                nodes.append(NodeDaemon(settings, machine, journal))
                tasks.append(asyncio.create_task(nodes[-1].run()))
            await is_ready(coordinator)
            await until(lambda: not any(node.gate.is_set() for node in nodes), "all sources wait")
            assert delivered(fires) == []
            await asyncio.sleep(0.5)  # what was on its way arrives
            before = numbers(nodes), waiting(nodes)
            await asyncio.sleep(1.0)
            assert (numbers(nodes), waiting(nodes)) == before, "nothing is taken in"
            assert before[1] > BOUND
            provider.may_answer.set()
            await until(lambda: all(node.gate.is_set() for node in nodes), "sources go on")
            await more_of(fires, 10)
            identities = [each["id"] for each in delivered(fires)]
            assert len(set(identities)) == len(identities)
        finally:
            provider.may_answer.set()
            for node in nodes:
                node.stop()
            await asyncio.gather(*tasks)
            await coordinator.close()

    asyncio.run(scenario())
