"""The local backend: all processes on this machine's loopback interface, each with its own ports."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster.backend import ClusterLayout, ProcessPlace, Wishes, plan_here
from headwater.deploy.cluster.run_plan import Kind, RunPlan
from headwater.deploy.cluster.runs import Run
from headwater.protocol.edge import Broker

HOST: Final = "127.0.0.1"
PORTS: Final = range(20_000, 30_000)
"""Below those that the system gives to outgoing connections: these come and go between two starts of a process."""


class Local:
    kind: Kind = "local"

    def check(self) -> None:
        """Every machine can."""

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        ports = free_ports(zlib.crc32(str(run.folder).encode()))
        layout = ClusterLayout(
            coordinator=place_of(ports, HOST),
            broker=None if wishes.file.embedded_broker is None else _broker(wishes.file.embedded_broker),
            nodes={node: place_of(ports, HOST) for node in wishes.file.network.nodes},
        )
        return plan_here(run, self.kind, wishes, layout)

    def remove(self, run: Run, parts: Mapping[str, Any]) -> None:
        """There is nothing but processes."""


def _broker(broker: Broker) -> ProcessPlace:
    """Where the network file says: devices must know it."""
    if not is_free(broker.host, broker.port):
        raise RunFailed(
            f"the embedded broker cannot listen on port {broker.port}: something else does; "
            "end that, or name another with mqtt: {broker: embedded, port: 1884}"
        )
    address = f"tcp://{broker.host}:{broker.port}"
    return ProcessPlace(listen=address, reach=address)


def place_of(ports: Iterator[int], host: str, *, http: bool = True) -> ProcessPlace:
    address = f"tcp://{host}:{next(ports)}"
    pages = f"{host}:{next(ports)}" if http else None
    return ProcessPlace(listen=address, reach=address, http_listen=pages, http_reach=pages)


def free_ports(seed: int, host: str = HOST) -> Iterator[int]:
    """Ports that no process listens on now. The same run tries them in the same order, so it mostly keeps its own."""
    for step in range(len(PORTS)):
        port = PORTS[(seed + step) % len(PORTS)]
        if is_free(host, port):
            yield port
    raise RunFailed(f"there are not enough free ports from {PORTS.start} to {PORTS.stop - 1}; end some of what runs")


def is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
