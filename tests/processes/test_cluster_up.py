"""A small network on every kind of backend, by the command: up, composites arrive, ps, logs, a node is killed, down."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.deploy.cluster.backend import short_id
from headwater.deploy.cluster.backends import backend_of
from headwater.deploy.cluster.host import call
from headwater.deploy.cluster.run_plan import KINDS
from headwater.deploy.cluster.runs import Run, marked
from headwater.deploy.cluster.stop import stop
from headwater.protocol.errors import ConfigError
from tests.kit.fire_folder import FireFolder
from tests.kit.patience import PATIENCE_S, output_of, run_to_its_end, until
from tests.kit.ports import free_port

PROJECT = Path(__file__).resolve().parent.parent.parent
BUILD_S_MAX = 900.0  # the base image of containers, where it is not in the cache


class Commands(FireFolder):
    """Every command in a process of its own."""

    def __call__(self, *words: str, code: int = 0, timeout_s: float = PATIENCE_S) -> str:
        called = self.start(*words)
        out, err = output_of(called, timeout_s)
        assert called.returncode == code, f"headwater {' '.join(words)}:\n{out}\n{err}"
        return str(out + err)

    def ps(self) -> dict[str, dict[str, Any]]:
        told = json.loads(self("ps", "--json"))
        return {each["name"]: each for each in told["processes"]}

    def received(self) -> list[dict[str, Any]]:
        """All composites that the sink has received."""
        file = self.run.folder / "data" / "p1" / "fires.jsonl"
        if not file.exists():
            return []
        *whole, _ = file.read_text().split("\n")
        return [json.loads(line) for line in whole]

    def fires(self) -> list[str]:
        return [each["id"] for each in self.received()]


@pytest.fixture
def headwater(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    stop(made.run)


def check(kind: str) -> None:
    try:
        backend_of(kind).check()
    except ConfigError as lacking:
        pytest.skip(str(lacking))


@pytest.mark.parametrize("kind", KINDS)
def test_a_network_runs_and_leaves_nothing_behind(kind: str, headwater: Commands) -> None:
    check(kind)

    said = headwater("up", "fire.yaml", "--on", kind, timeout_s=BUILD_S_MAX)

    assert f"fire is up: 3 nodes on {kind}" in said
    processes = headwater.ps()
    assert {name: each["state"] for name, each in processes.items()} == dict.fromkeys(
        ("@coordinator", "p1", "p2", "p3"), "up"
    )
    assert all(processes[name]["http"] in said for name in processes)
    until(lambda: len(headwater.fires()) >= 3, "the sink has received composites")
    assert "the link to p2 is up" in headwater("logs", "p1")
    assert "p3" in headwater("logs", "-n", "5")
    if kind == "containers":
        check_image(headwater.run)

    os.kill(processes["p2"]["pid"], signal.SIGKILL)

    until(lambda: headwater.run.state()["processes"][2]["restarts"] == 1, "p2 is started again")
    until(lambda: headwater.ps()["p2"]["state"] == "up", "p2 is back")
    assert headwater.ps()["p2"]["pid"] != processes["p2"]["pid"]
    so_far = len(headwater.fires())
    until(lambda: len(headwater.fires()) >= so_far + 5, "composites go on")
    found = headwater.fires()
    assert len(set(found)) == len(found), "none is told twice"

    assert "fire is down" in headwater("down")
    assert_nothing_left(headwater.run, kind)
    assert "was down already" in headwater("down")
    assert "is down" in headwater("ps")


def namespaces(run: Run) -> list[str]:
    """Those of a run: others may have theirs on the same machine."""
    folder = Path("/run/netns")
    return [each for each in os.listdir(folder) if each.startswith(short_id(run))] if folder.is_dir() else []


def assert_nothing_left(run: Run, kind: str) -> None:
    assert not run.is_kept()
    assert not list(marked(run))
    assert not [each for each in os.listdir("/sys/class/net") if each.startswith(short_id(run))]
    assert not namespaces(run)
    if kind == "containers":
        label = f"label=headwater.run={short_id(run)}"
        assert not call(["podman", "ps", "--all", "--quiet", "--filter", label]).strip()
        assert short_id(run) not in call(["podman", "network", "ls", "--quiet"]).split()


def check_image(run: Run) -> None:
    """It runs as a user without rights, and its own health check finds it well."""
    container = run.plan().stage["containers"]["p1"]
    image = run.plan().stage["image"]
    assert call(["podman", "image", "inspect", "--format", "{{.User}}", image]).strip() == "headwater"
    (inspected,) = json.loads(call(["podman", "image", "inspect", image]))
    words = inspected["Healthcheck"]["Test"]
    assert words[0] == "CMD"
    options = ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]
    call(["podman", *options, "exec", container, *words[1:]])
    status = Path(f"/proc/{int(Path(run.plan().processes[1].pid_file or '').read_text())}/status").read_text()
    (users,) = (line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    assert set(users) == {"10001"}


def test_a_network_goes_on_where_it_was_and_begins_anew_when_asked(headwater: Commands) -> None:
    headwater("up", "fire.yaml")
    assert "fire is up already" in headwater("up", "fire.yaml", code=2)
    until(lambda: len(headwater.fires()) >= 3, "the sink has received composites")
    headwater("down")
    first = headwater.fires()

    headwater("up", "fire.yaml")
    until(lambda: len(headwater.fires()) > len(first) + 3, "more composites")
    headwater("down")
    both = headwater.fires()
    last_us = max(each["ts"] for each in headwater.received())
    assert both[: len(first)] == first
    assert len(set(both)) == len(both)

    headwater("up", "fire.yaml", "--fresh", "--strategy", "mt")
    until(lambda: len(headwater.fires()) >= 3, "the sink has received composites")
    headwater("down")
    assert min(each["ts"] for each in headwater.received()) > last_us, "nothing is left of what was before"


MQTT_NETWORK = """\
events:
  Smoke: {area: string}
nodes: [p1, p2]
links:
  - {between: [p1, p2]}
mqtt: {broker: embedded, port: PORT}
sources:
  - {node: p2, type: Smoke, mqtt: sensors/+/smoke}
sinks:
  - {node: p1, subscribe: Smoke, to: {file: fires.jsonl}}
"""
PUBLISH = """
import asyncio, sys, aiomqtt
async def main(host, port):
    async with aiomqtt.Client(host, int(port)) as client:
        for area in ("A1", "A2"):
            await client.publish("sensors/x/smoke", '{"area": "%s"}' % area, qos=1)
asyncio.run(main(*sys.argv[1].split(":")))
"""


@pytest.mark.parametrize("kind", ["local", "netns"])
def test_an_embedded_broker_is_started_where_nodes_reach_it(kind: str, headwater: Commands) -> None:
    check(kind)
    port = free_port()
    (headwater.folder / "fire.yaml").write_text(MQTT_NETWORK.replace("PORT", str(port)))
    with socket.create_server(("127.0.0.1", port)):
        if kind == "local":
            said = headwater("up", "fire.yaml", code=1)
            assert f"the embedded broker cannot listen on port {port}: something else does" in said
            assert_nothing_left(headwater.run, kind)

    said = headwater("up", "fire.yaml", "--on", kind)

    address = headwater.ps()["@broker"]["address"].removeprefix("mqtt://")
    assert f"mqtt://{address}" in said
    assert (address == f"127.0.0.1:{port}") == (kind == "local")
    run_to_its_end([sys.executable, "-c", PUBLISH, address], check=True)
    until(lambda: len(headwater.received()) == 2, "both events have arrived")
    headwater("down")
    assert_nothing_left(headwater.run, kind)


def test_in_the_foreground_it_shows_logs_and_ends_with_control_c(headwater: Commands) -> None:
    called = headwater.start("up", "fire.yaml", "--foreground")
    assert called.stdout is not None
    until(lambda: headwater.fires(), "the network runs")
    pid = headwater.ps()["p3"]["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: headwater.ps()["p3"]["state"] == "up", "p3 is back")
    called.send_signal(signal.SIGINT)
    out, err = output_of(called)
    assert called.returncode == 0, err
    assert "fire is up" in err
    assert "p3" in out
    assert_nothing_left(headwater.run, "local")


def test_a_node_that_cannot_start_is_shown_with_its_last_words(headwater: Commands) -> None:
    (headwater.run.folder / "data").mkdir(parents=True)
    (headwater.run.folder / "data" / "p2").mkdir()
    (headwater.run.folder / "data" / "p2" / "durability").write_text("perhaps\n")
    said = headwater("up", "fire.yaml", code=1)
    assert "p2 ended with exit code" in said
    assert "it must be none, async or sync" in said
    assert_nothing_left(headwater.run, "local")


def test_wrong_words_are_answered_with_the_right_ones(headwater: Commands) -> None:
    assert "did you mean netns?" in headwater("up", "fire.yaml", "--on", "netn", code=2)
    assert "did you mean 'st'?" in headwater("up", "fire.yaml", "--strategy", "sst", code=2)
    assert "'../fire' cannot be the name of a run" in headwater("up", "fire.yaml", "--name", "../fire", code=2)
    assert "there is no run in .headwater; start one with: headwater up" in headwater("down", code=2)
    assert "no run 'other'" in headwater("logs", "--name", "other", code=2)
    assert "there are no runs" in headwater("ps")
