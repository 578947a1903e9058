"""Node processes that run the functions of a user's file, if they may and the file has the hash of the plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cluster.runs import Run
from headwater.deploy.cluster.stop import stop
from headwater.protocol.function_files import digest_of
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import PATIENCE_S, output_of, until
from tests.kit.ports import free_port

FUNCTIONS = """\
def score(value, area):
    if value % 10 == 7:
        raise ValueError("seven")
    return value + len(area)
"""
NETWORK = """\
events:
  Temp: {area: string, value: int}
nodes: [p1, p2]
links:
  - {between: [p1, p2]}
sources:
  - {node: p1, type: Temp, trace: temp.csv}
sinks:
  - {node: p2, subscribe: Hot, to: {file: hot.jsonl}}
functions: scores.py
rules:
  - |
    define Hot(score: any) from Temp(score(value, area) > 20) as t where score = score(t.value, t.area)
"""
ROWS = 40


class Folder(FireFolder):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run = Run(folder / ".headwater" / "hot")
        self.write("hot.yaml", NETWORK)
        self.write("scores.py", FUNCTIONS)
        rows = "".join(f"Temp,{1000 * number},A{number % 2},{number}\n" for number in range(1, ROWS + 1))
        self.write("temp.csv", "type,ts,area,value\n" + rows)

    def command(self, *words: str) -> str:
        called = self.start(*words)
        out, err = output_of(called, PATIENCE_S)
        assert called.returncode == 0, f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    def refused(self, *words: str) -> str:
        called = self.start(*words)
        out, err = output_of(called, PATIENCE_S)
        assert called.returncode in (1, 2), f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    def scores(self, node: str = "p2", file: str = "hot.jsonl") -> list[int]:
        path = self.run.folder / "data" / node / file
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line)["attributes"]["score"] for line in lines]


EXPECTED = [number + 2 for number in range(1, ROWS + 1) if number + 2 > 20 and number % 10 != 7]


def test_a_network_runs_the_functions_of_its_file_and_goes_on_with_them_when_the_file_has_changed(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    try:
        assert "add --allow-functions if you trust that file" in folder.refused("up", "hot.yaml")
        folder.command("up", "hot.yaml", "--allow-functions")
        until(lambda: len(folder.scores()) >= len(EXPECTED), "everything is found")
        assert folder.scores() == EXPECTED
        assert "7, 'A1') failed: ValueError: seven; it has no value there" in folder.command("logs", "p1")
        folder.write("more.tesla", "define Low(v: int) from Temp(score(value, area) < 5) as t where v = t.value")
        assert "Low is deployed" in folder.command("deploy", "more.tesla")

        folder.write("scores.py", FUNCTIONS.replace("value + len(area)", "0"))
        pid = next(each for each in folder.run.state()["processes"] if each["name"] == "p1")["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: folder.run.state()["processes"][1]["restarts"] == 1, "p1 is started again")
        until(lambda: "is up" in folder.command("ps"), "the network is up")
        folder.command("down")
        folder.command("up", "hot.yaml", "--allow-functions")  # with the functions that its plan names
        assert folder.scores() == EXPECTED
        folder.command("down")

        data = folder.run.folder / "data" / "p1"
        words = ("node", "p1", "--coordinator", "tcp://127.0.0.1:9", "--network", "hot", "--data", str(data))
        said = folder.refused(*words)
        assert f"a rule calls score of a file of functions with the hash {digest_of(FUNCTIONS.encode())[:12]}" in said
        assert "start the node with --allow-functions" in said
        assert "Traceback" not in said
        assert "damaged" not in said
    finally:
        stop(folder.run)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """What starts a process of the command, which ends with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater.deploy.cli.command", *words]
        with (tmp_path / f"{words[0]}-{words[1]}.log").open("ab") as log:
            running.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def ready(http: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{http}/ready") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_node_refuses_without_permission_or_with_another_file_and_the_coordinator_says_so(
    tmp_path: Path, started: Any
) -> None:
    Folder(tmp_path)
    other = FUNCTIONS.replace("value + len(area)", "0")
    (tmp_path / "other.py").write_text(other)
    port = free_port()
    started("coordinator", "hot.yaml", "--data", "c", "--network", "hot", "--listen", f"tcp://127.0.0.1:{port}")
    endpoints = tmp_path / "c" / "endpoints.json"
    until(endpoints.exists, "the coordinator is there")
    told = json.loads(endpoints.read_text())

    def node(name: str, *more: str) -> subprocess.Popen[bytes]:
        words = ("node", name, "--coordinator", told["hub"], "--network", "hot", "--data", name, *more)
        process: subprocess.Popen[bytes] = started(*words)
        return process

    def refused() -> list[str]:
        return list(ready(told["http"])[1].get("refused", []))

    node("p1", "--allow-functions")
    without = node("p2")
    until(lambda: any("not started with --allow-functions" in each for each in refused()), "p2 refuses")
    assert all(each.startswith("p2 refuses plans that call functions") for each in refused())

    without.terminate()
    without.wait(PATIENCE_S)
    different = node("p2", "--allow-functions", "--functions", "other.py")
    hashes = [digest_of(text.encode())[:12] for text in (FUNCTIONS, other)]
    until(lambda: any(all(digest in each for digest in hashes) for each in refused()), "p2 names both hashes")

    different.terminate()
    different.wait(PATIENCE_S)
    node("p2", "--allow-functions")
    until(lambda: ready(told["http"])[0] == 200, "the network is ready")
    received = tmp_path / "p2" / "hot.jsonl"
    until(lambda: received.exists() and received.read_text().count("\n") == len(EXPECTED), "everything is found")
