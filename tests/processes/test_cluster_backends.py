"""Namespaces and Mininet hosts as nodes see them: neighbours reach each other over their link, and only over it."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster import addresses, host
from headwater.deploy.cluster.addresses import choose_subnets, device_towards
from headwater.deploy.cluster.backend import ClusterBackend, Wishes, names_of, noted
from headwater.deploy.cluster.backends import backend_of
from headwater.deploy.cluster.children import spawn
from headwater.deploy.cluster.host import call
from headwater.deploy.cluster.run_plan import RunPlan
from headwater.deploy.cluster.runs import Run, marked
from headwater.deploy.cluster.stop import stop
from headwater.deploy.network.file import read_network
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Link, Network

NETWORK = """\
nodes: [p1, p2, a node with a long name]
links:
  - {between: [p1, p2], bandwidth: 10Mbit}
  - {between: [p2, a node with a long name]}
"""
NAMED = NETWORK.replace("a node with a long name", "a-node-with-a-long-name")


def usable(kind: str) -> ClusterBackend:
    """The backend, or the test is skipped with what this machine lacks."""
    backend = backend_of(kind)
    try:
        backend.check()
    except ConfigError as lacking:
        pytest.skip(str(lacking))
    return backend


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / ".headwater" / "trial")
    made.folder.mkdir(parents=True)
    yield made
    stop(made)


def wishes(run: Run, text: str = NAMED) -> Wishes:
    file = run.folder.parent / "network.yaml"
    file.write_text(text)
    return Wishes(file=read_network(file), data=run.folder / "data")


def inside(namespace: str, code: str) -> str:
    """What a Python program prints in a namespace."""
    log = Path(namespace.replace("/", "_")).name
    handle = os.open(namespace, os.O_RDONLY)
    file = Path(os.environ["PYTEST_FOLDER"]) / log
    file.unlink(missing_ok=True)
    try:
        pid = spawn([sys.executable, "-c", code], file, namespace=handle)
    finally:
        os.close(handle)
    os.waitpid(pid, 0)
    return file.read_text().strip()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_FOLDER", str(tmp_path))


SERVE = """
import socket, threading
server = socket.create_server(("0.0.0.0", 5000))
while True:
    peer, address = server.accept()
    peer.sendall(address[0].encode())
    peer.close()
"""
DIAL = """
import socket
try:
    with socket.create_connection(("{host}", {port}), timeout=5) as peer:
        print(peer.recv(100).decode())
except OSError as error:
    print("no answer")
"""


@contextlib.contextmanager
def served(namespace: str | None, run: Run) -> Iterator[None]:
    handle = None if namespace is None else os.open(namespace, os.O_RDONLY)
    pid = spawn([sys.executable, "-c", SERVE], run.folder / "served.log", namespace=handle)
    try:
        yield
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        if handle is not None:
            os.close(handle)


def dial(namespace: str, address: str) -> str:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    said = "no answer"
    for _ in range(50):  # the one who listens may not have begun yet
        said = inside(namespace, DIAL.format(host=host, port=port))
        if said != "no answer":
            break
    return said


@pytest.mark.parametrize("kind", ["netns", "mininet"])
def test_neighbours_reach_each_other_over_their_link_alone(kind: str, run: Run) -> None:
    backend = usable(kind)
    plan = backend.build(run, wishes(run))
    places = {process.name: process for process in plan.nodes()}
    dialled = json.loads((run.folder / "addresses.json").read_text())
    p1, p2 = places["p1"].namespace, places["p2"].namespace
    assert p1 is not None
    assert p2 is not None

    with served(p2, run):
        assert dial(p1, dialled["p1"]["p2"]) == address_of(dialled["p2"]["p1"]), "it comes from the link's own address"
        assert places["p2"].address is not None
        assert dial(p1, places["p2"].address) == address_of(places["p1"].address), "and here over the management"
        assert "tbf" in inside(p1, "import subprocess; subprocess.run(['tc', 'qdisc', 'show', 'dev', 'to-p2'])")

        inside(p1, "import subprocess; subprocess.run(['ip', 'link', 'set', 'to-p2', 'down'])")
        host, _, port = dialled["p1"]["p2"].removeprefix("tcp://").rpartition(":")
        assert inside(p1, DIAL.format(host=host, port=port)) == "no answer", (
            "there is no other way to a neighbour's link"
        )
        inside(p1, "import subprocess; subprocess.run(['ip', 'link', 'set', 'to-p2', 'up'])")
        assert dial(p1, dialled["p1"]["p2"]) == address_of(dialled["p2"]["p1"])

    check_commands(plan, run)
    assert stop(run)
    assert_nothing_left(run, plan)


def check_commands(plan: RunPlan, run: Run) -> None:
    coordinator = plan.coordinator()
    assert "--addresses" in coordinator.arguments
    for process in plan.processes:
        assert process.arguments[-2:] == ("--keys", str(run.keys)), "links leave loopback, so they are encrypted"
    assert {file.name for file in run.keys.iterdir()} >= {"p1.key", "p1.pub", "@coordinator.key"}


def address_of(address: str | None) -> str:
    assert address is not None
    return address.removeprefix("tcp://").rpartition(":")[0]


def assert_nothing_left(run: Run, plan: RunPlan) -> None:
    short = names_of(run, ["x"])["x"].removesuffix("-x")
    assert not [each for each in os.listdir("/sys/class/net") if each.startswith(short)]
    if Path("/run/netns").is_dir():
        assert not [each for each in os.listdir("/run/netns") if each.startswith(short)]
    assert not list(marked(run))
    assert not noted(run)


@pytest.mark.parametrize("kind", ["netns", "mininet"])
def test_a_backend_that_was_half_built_is_removed(
    kind: str, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    backend = usable(kind)
    plan = backend.build(run, wishes(run))
    assert stop(run)
    assert_nothing_left(run, plan)
    # A device with one of the names that are needed: the build fails somewhere in the middle.
    short = names_of(run, ["x"])["x"].removesuffix("-x")
    call(["ip", "link", "add", f"{short}m1", "type", "bridge"])
    try:
        if kind == "netns":
            with pytest.raises(RunFailed, match="ip -batch"):
                backend.build(run, wishes(run))
        else:
            with contextlib.suppress(RunFailed):
                backend.build(run, wishes(run))
        assert noted(run)
    finally:
        subprocess.run(["ip", "link", "delete", f"{short}m1"], check=False, capture_output=True)
    assert stop(run)
    assert_nothing_left(run, plan)


def a_network(nodes: int) -> Network:
    names = tuple(f"p{number}" for number in range(nodes))
    links = tuple(Link(one, other) for one, other in itertools.pairwise(names))
    return Network((), names, links, (), (), ())


def test_addresses_do_not_collide_with_each_other_or_with_the_machine() -> None:
    used = [ipaddress.IPv4Network(each) for each in ("10.64.0.0/16", "10.65.3.0/24", "192.168.0.0/16")]
    made = choose_subnets(a_network(300), used)
    assert str(made.management) == "10.66.0.0/16"
    given = [made.gateway, *made.nodes.values(), *(end.address for wire in made.wires for end in wire.ends)]
    assert len(set(given)) == len(given)
    for wire in made.wires:
        one, other = (ipaddress.IPv4Interface(f"{end.address}/30") for end in wire.ends)
        assert one.network == other.network
        assert one.ip not in (one.network.network_address, one.network.broadcast_address)
    with pytest.raises(RunFailed, match=r"every network from 10\.64"):
        choose_subnets(a_network(2), [ipaddress.IPv4Network("10.0.0.0/8")])


def test_devices_have_names_that_the_system_takes() -> None:
    assert device_towards("p2", 1) == "to-p2"
    assert device_towards("a-very-long-name-of-a-node", 17) == "to-17"
    assert device_towards("ä/b", 3) == "to-3"


@pytest.mark.parametrize("kind", ["netns", "mininet", "containers"])
def test_who_is_not_root_is_told_what_to_do(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="needs root: run it with sudo, or use --on local"):
        backend_of(kind).check()


@pytest.mark.parametrize(
    ("kind", "program", "package"),
    [
        ("netns", "ip", "iproute2"),
        ("mininet", "mnexec", "mininet"),
        ("mininet", "brctl", "bridge-utils"),
        ("containers", "podman", "podman"),
        ("containers", "buildah", "buildah"),
        ("containers", "runc", "runc"),
    ],
)
def test_what_is_missing_is_named_with_its_package(
    kind: str, program: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(host, "tool", lambda name: None if name == program else f"/usr/bin/{name}")
    with pytest.raises(ConfigError, match=f"needs {program}.*apt-get install -y --no-install-recommends {package}"):
        backend_of(kind).check()


def test_networks_of_this_machine_are_known() -> None:
    if host.tool("ip") is None:
        pytest.skip("this machine has no ip (iproute2)")
    assert all(isinstance(each, ipaddress.IPv4Network) for each in addresses.used_here())
