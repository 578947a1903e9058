"""What a node process shows of itself while it is not complete yet."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path

from headwater.node.daemon import journal_records as records
from headwater.node.daemon.daemon import DaemonSettings, NodeDaemon
from headwater.node.daemon.process import recovered
from headwater.protocol.messages import control
from headwater.protocol.messages.control import COORDINATOR, Configure, NodeConfig, PeerConfig
from tests.kit.patience import ANSWER_S

NEIGHBOUR = PeerConfig("p2", None, None, dials=True)  # its address follows when it has registered


async def a_configured_node(folder: Path) -> NodeDaemon:
    """A node that gets no answers, which has been told of a neighbour that it cannot dial yet."""
    settings = DaemonSettings(
        name="p1", data=folder, coordinator="tcp://127.0.0.1:1", network="test", http="127.0.0.1:0"
    )
    journal, machine, _ = recovered(settings, None)
    config = NodeConfig(1, "test", "p1", (), (NEIGHBOUR,), (), (), "async", "st")
    machine.apply(records.Frames(1, COORDINATOR, 1, [control.encode(Configure(config))]))
    return NodeDaemon(settings, machine, journal)


def test_a_neighbour_without_an_address_does_not_keep_a_node_from_telling_of_itself(tmp_path: Path) -> None:
    def get(url: str) -> str:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            return str(answer.read().decode())

    async def run() -> list[str]:
        daemon = await a_configured_node(tmp_path)
        running = asyncio.create_task(daemon.run())
        while not daemon.http:
            await asyncio.sleep(0.01)
        for _ in range(4):
            daemon.watching.beat()
        pages = [await asyncio.to_thread(get, daemon.http + page) for page in ("/statistics", "/metrics")]
        daemon.stop()
        await running
        return pages

    statistics, metrics = asyncio.run(run())
    assert json.loads(statistics)["up"] == {COORDINATOR: False}
    assert 'headwater_link_up{peer="@coordinator"} 0.0' in metrics
    assert "internal_errors" not in metrics
