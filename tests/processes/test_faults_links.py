"""Links are cut for real: every node is in a network namespace of its own, and its device goes down under load."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.faults import a_load, finish, under_load
from tests.kit.processes import Cluster, Place, until

IP = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
SILENCE_S = 2.0


def ip(*words: str) -> None:
    assert IP is not None
    done = subprocess.run([IP, *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Hosts:
    """A namespace for each node, all on one bridge: ``unplug`` a node, or ``cut`` the way between two of them."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._short = f"hwf{os.getpid() % 100_000}"
        self._net = f"172.31.{os.getpid() % 250}"
        self.gateway = f"{self._net}.1"
        self.places = {
            node: Place(f"{self._net}.{number}", f"{self._short}-{node}") for number, node in enumerate(nodes, 10)
        }
        self._devices = {node: f"{self._short}d{number}" for number, node in enumerate(nodes)}

    @property
    def options(self) -> dict[str, Any]:
        """For ``Cluster``. A process that listens to other machines, too, has keys."""
        return {"places": self.places, "coordinator_host": self.gateway, "with_keys": True}

    def build(self) -> None:
        ip("link", "add", f"{self._short}b", "type", "bridge")
        ip("addr", "add", f"{self.gateway}/24", "dev", f"{self._short}b")
        ip("link", "set", f"{self._short}b", "up")
        for node, place in self.places.items():
            namespace, device = str(place.namespace), self._devices[node]
            ip("netns", "add", namespace)
            ip("link", "add", device, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("link", "set", device, "master", f"{self._short}b", "up")
            ip("-n", namespace, "link", "set", "lo", "up")
            ip("-n", namespace, "addr", "add", f"{place.host}/24", "dev", "eth0")
            ip("-n", namespace, "link", "set", "eth0", "up")

    def remove(self) -> None:
        for node, place in self.places.items():
            subprocess.run([str(IP), "link", "delete", self._devices[node]], capture_output=True)
            subprocess.run([str(IP), "netns", "delete", str(place.namespace)], capture_output=True)
        subprocess.run([str(IP), "link", "delete", f"{self._short}b"], capture_output=True)

    def unplug(self, node: str) -> None:
        ip("link", "set", self._devices[node], "down")

    def plug_in(self, node: str) -> None:
        ip("link", "set", self._devices[node], "up")

    def cut(self, one: str, other: str) -> None:
        """Packets between the two vanish; both still reach all others."""
        self._both_ways("add", one, other)

    def mend(self, one: str, other: str) -> None:
        self._both_ways("del", one, other)

    def _both_ways(self, verb: str, one: str, other: str) -> None:
        for here, there in ((one, other), (other, one)):
            ip("-n", str(self.places[here].namespace), "route", verb, "blackhole", f"{self.places[there].host}/32")


@contextmanager
def hosts(nodes: Sequence[str]) -> Iterator[Hosts]:
    if IP is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    made = Hosts(nodes)
    try:
        made.build()
        yield made
    finally:
        made.remove()


def hears_nothing_of(cluster: Cluster, node: str, peer: str) -> None:
    until(
        lambda: f"the link to {peer} is down" in cluster.ask(node, "/ready")["missing"],
        f"{node} finds out that it cannot reach {peer}",
        cluster,
    )


@pytest.mark.parametrize("strategy", ["st", "mt-pp"])
def test_links_are_cut_and_mended_under_load(strategy: str, tmp_path: Path) -> None:
    case = a_load()
    with (
        hosts(case.network.nodes) as made,
        under_load(case, strategy, tmp_path, seconds=4.0, **made.options) as cluster,
    ):
        made.cut("n2", "n3")
        hears_nothing_of(cluster, "n2", "n3")
        hears_nothing_of(cluster, "n3", "n2")
        made.cut("n1", "n5")
        made.mend("n2", "n3")
        time.sleep(0.5)  # too short to be noticed: TCP repeats what was lost
        made.mend("n1", "n5")
        made.unplug("n2")
        hears_nothing_of(cluster, "n1", "n2")
        made.plug_in("n2")
        finish(cluster, case)


def test_a_node_is_killed_behind_a_link_that_is_cut(tmp_path: Path) -> None:
    case = a_load(300)
    with (
        hosts(case.network.nodes) as made,
        under_load(case, "mt", tmp_path, **made.options) as cluster,
    ):
        made.cut("n2", "n4")
        made.cut("n1", "n2")
        cluster.kill("n2", "n4")
        cluster.start("n4")
        time.sleep(SILENCE_S)
        cluster.start("n2")
        time.sleep(0.5)
        made.mend("n1", "n2")
        made.mend("n2", "n4")
        finish(cluster, case)
