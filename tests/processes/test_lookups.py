"""Node processes that look into remote tables: a node is killed while answers are outstanding, a server goes away."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.stop import stop
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import PATIENCE_S, output_of, until
from tests.kit.remote_servers import WebServer

NETWORK = """\
events:
  T: {card: string, org: string}
  L: {card: string, limit: int}
nodes: [p1, p2, p3]
links:
  - {between: [p1, p2], delay: 1ms}
  - {between: [p2, p3], delay: 1ms}
sources:
  - {node: p1, type: T, trace: t.csv}
  - {node: p3, type: L, trace: l.csv}
sinks:
  - {node: p2, subscribe: Raised, to: {file: raised.jsonl}}
remote:
  limits: {http: "http://127.0.0.1:PORT/limits/{org}", value: most, timeout: 1s, at: [p2]}
  names: {file: names.csv}
rules:
  - |
    Raised: SEQ(T t, L l)
    WHERE SAME[card] AND l.limit > REMOTE.limits[t.org]
    WITHIN 5 min
    RETURN Raised(card = t.card, name = REMOTE.names[t.org])
strategy: st
"""
RELAYED = (
    NETWORK.replace("at: [p2]", "at: [p3]").replace("{node: p2, sub", "{node: p1, sub").replace(": st\n", ": mt\n")
)
"""The rule is evaluated at p1, and only p3 reaches the table."""
ORGS = 40


class Folder(FireFolder):
    def __init__(self, folder: Path, port: int, network: str = NETWORK, sink: str = "p2") -> None:
        super().__init__(folder)
        self.run = Run(folder / ".headwater" / "cards")
        self.sink = sink
        self.write("cards.yaml", network.replace("PORT", str(port)))
        rows = [(1_000_000 * number, f"c{number}", f"org{number}") for number in range(1, ORGS + 1)]
        self.write("t.csv", "type,ts,card,org\n" + "".join(f"T,{ts},{card},{org}\n" for ts, card, org in rows))
        limits = "".join(f"L,{ts + 500_000},{card},300\n" for ts, card, _ in rows)
        self.write("l.csv", "type,ts,card,limit\n" + limits)
        self.write("names.csv", "key,value\n" + "".join(f"{org},The {org}\n" for _, _, org in rows[::2]))

    def command(self, *words: str) -> str:
        called = self.start(*words)
        out, err = output_of(called, PATIENCE_S)
        assert called.returncode == 0, f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    def received(self) -> list[dict[str, Any]]:
        file = self.run.folder / "data" / self.sink / "raised.jsonl"
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []

    def process(self, name: str) -> dict[str, Any]:
        told = json.loads(self.command("ps", "--json"))
        return next(process for process in told["processes"] if process["name"] == name)

    def metrics(self, name: str) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.process(name)['http']}/metrics") as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        return {metric: float(value) for metric, _, value in (line.rpartition(" ") for line in lines)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    pages = {
        f"/limits/org{number}": [200, json.dumps({"most": 100 if number % 4 else 500})]
        for number in range(1, ORGS + 1)
        if number % 3
    }
    folder = tmp_path / "server"
    folder.mkdir()
    server = WebServer(folder, pages)
    yield server
    server.kill()


def test_a_node_that_is_killed_with_answers_outstanding_asks_again(tmp_path: Path, server: WebServer) -> None:
    folder = Folder(tmp_path, server.port)
    try:
        said = folder.command("up", "cards.yaml")
        assert "cards is up" in said
        assert "table 'limits' cannot be used at p2: http://127.0.0.1:" in said
        assert "does not answer: Connection refused; what looks into it waits" in said
        assert "'names'" not in said
        until(lambda: "limits' is away" in folder.command("logs", "p2"), "p2 has asked")
        assert folder.received() == []

        os.kill(folder.process("p2")["pid"], signal.SIGKILL)
        until(lambda: folder.run.state()["processes"][2]["restarts"] == 1, "p2 is started again")
        until(lambda: folder.command("logs", "p2").count("limits' is away") > 1, "it asks again")
        server.start()

        expected = {f"c{number}" for number in range(1, ORGS + 1) if number % 3 and number % 4}
        until(lambda: len(folder.received()) >= len(expected), "everything is found")
        found = folder.received()
        assert sorted(raised["attributes"]["card"] for raised in found) == sorted(expected)
        assert {raised["attributes"]["name"] for raised in found if raised["attributes"]["card"] == "c1"} == {
            "The org1"
        }
        assert {raised["attributes"]["name"] for raised in found if raised["attributes"]["card"] == "c2"} == {None}
        assert "limits' is back" in folder.command("logs", "p2")
        metrics = folder.metrics("p2")
        assert metrics['headwater_remote_requests_total{table="limits"}'] >= ORGS
        assert metrics["headwater_remote_waiting"] == 0
    finally:
        stop(folder.run)


def test_questions_go_from_node_to_node_and_outlive_those_on_the_way(tmp_path: Path, server: WebServer) -> None:
    folder = Folder(tmp_path, server.port, RELAYED, "p1")
    relayed = 'headwater_remote_relayed{table="limits"}'
    try:
        assert "cards is up" in folder.command("up", "cards.yaml")
        for name in ("p2", "p3"):  # p1 has asked p2, and p2 has asked p3
            until(lambda: folder.metrics(name).get(relayed) == ORGS, f"{name} is asked")  # noqa: B023
        assert folder.received() == []

        for number, name in ((2, "p2"), (3, "p3")):
            os.kill(folder.process(name)["pid"], signal.SIGKILL)
            until(lambda: folder.run.state()["processes"][number]["restarts"] == 1, f"{name} is started again")  # noqa: B023
        server.start()

        expected = {f"c{number}" for number in range(1, ORGS + 1) if number % 3 and number % 4}
        until(lambda: len(folder.received()) >= len(expected), "everything is found")
        assert sorted(raised["attributes"]["card"] for raised in folder.received()) == sorted(expected)
        asked = folder.metrics("p1")
        sent = [metric for metric in asked if metric.startswith("headwater_link_sent_messages_total{")]
        assert any('kind="lookup"' in metric and 'peer="p2"' in metric and asked[metric] for metric in sent), sent
        assert not any(metric.startswith('headwater_remote_requests_total{table="limits"') for metric in asked)
        assert folder.metrics("p3")['headwater_remote_requests_total{table="limits"}'] >= ORGS
        for name in ("p1", "p2", "p3"):
            assert folder.metrics(name).get('headwater_remote_under_way{table="limits"}', 0) == 0
    finally:
        stop(folder.run)
