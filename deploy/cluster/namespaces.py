"""The namespace backend: one network namespace for each node, a pair of devices for each link, and a bridge.

Neighbours talk over the devices of their link: ``ip -n hw1a2b-p1 link set to-p2 down`` cuts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headwater.deploy.cluster import addresses, keys
from headwater.deploy.cluster.addresses import Subnets
from headwater.deploy.cluster.backend import Wishes, names_of, note, plan_here, short_id
from headwater.deploy.cluster.host import batch, call, require_linux, require_root, require_tools, succeeds
from headwater.deploy.cluster.run_plan import Kind, RunPlan
from headwater.deploy.cluster.runs import Run

MANAGEMENT_DEVICE: Final = "mgmt0"
NAMESPACES: Final = Path("/run/netns")  # where ``ip netns`` keeps them
BURST_BYTES_MIN: Final = 16 * 1024  # a shaper must be able to pass one large segment at once
BURST_S: Final = 0.004  # and what comes in one tick of its clock
QUEUE: Final = "200ms"  # what waits longer for its turn is dropped, and sent again by TCP


class Namespaces:
    kind: Kind = "netns"

    def check(self) -> None:
        require_linux("--on netns")
        require_root("--on netns")
        require_tools("--on netns", {"ip": "iproute2", "tc": "iproute2"})

    def build(self, run: Run, wishes: Wishes) -> RunPlan:
        network = wishes.file.network
        subnets = addresses.choose_subnets(network, addresses.used_here())
        names = names_of(run, network.nodes)
        bridge = f"{short_id(run)}br"
        note(run, self.kind, {"namespaces": list(names.values()), "bridge": bridge})
        _build(names, subnets, bridge, short_id(run))
        paths = {node: str(NAMESPACES / name) for node, name in names.items()}
        layout = addresses.layout(subnets, broker=wishes.file.embedded_broker is not None, namespaces=paths)
        layout = keys.with_keys(run, layout)
        return plan_here(run, self.kind, wishes, layout, {"namespaces": names, "bridge": bridge})

    def remove(self, run: Run, parts: Mapping[str, Any]) -> None:
        # The system removes devices of a namespace some time after it; removed before, they are gone at once.
        remove_devices(run)
        for name in parts.get("namespaces", ()):
            if (NAMESPACES / name).exists():
                call(["ip", "netns", "delete", name])


def remove_devices(run: Run) -> None:
    """All devices of a run on this machine's own side: the bridge and what is joined by it."""
    for name in os.listdir("/sys/class/net"):
        if name.startswith(short_id(run)):
            succeeds(["ip", "link", "delete", name])  # or it has gone by itself, with its other end


def _build(names: Mapping[str, str], subnets: Subnets, bridge: str, short: str) -> None:
    batch(["ip"], _outside(names, subnets, bridge, short))
    for node, name in names.items():
        batch(["ip", "-n", name], _inside(node, subnets))
        batch(["tc", "-n", name], shaping(node, subnets))


def _outside(names: Mapping[str, str], subnets: Subnets, bridge: str, short: str) -> list[str]:
    lines = [
        f"link add {bridge} type bridge",
        f"addr add {subnets.gateway}/{subnets.prefix} dev {bridge}",
        f"link set {bridge} up",
    ]
    for number, name in enumerate(names.values()):
        device = f"{short}m{number}"
        lines += [
            f"netns add {name}",
            f"link add {device} type veth peer name {MANAGEMENT_DEVICE} netns {name}",
            f"link set {device} master {bridge} up",
        ]
    for wire in subnets.wires:
        first, other = wire.ends
        here, there = names[first.node], names[other.node]
        lines.append(f"link add {first.device} netns {here} type veth peer name {other.device} netns {there}")
    return lines


def _inside(node: str, subnets: Subnets) -> list[str]:
    lines = [
        "link set lo up",
        f"addr add {subnets.nodes[node]}/{subnets.prefix} dev {MANAGEMENT_DEVICE}",
        f"link set {MANAGEMENT_DEVICE} up",
    ]
    for end in (end for wire in subnets.wires for end in wire.ends if end.node == node):
        lines += [f"addr add {end.address}/30 dev {end.device}", f"link set {end.device} up"]
    return lines


def shaping(node: str, subnets: Subnets) -> list[str]:
    """What ``tc`` must be told so that links have their bandwidth; their delay is made by the nodes."""
    lines = []
    for wire in subnets.wires:
        for end in wire.ends:
            if end.node == node and wire.bandwidth_bps is not None:
                burst = max(BURST_BYTES_MIN, int(wire.bandwidth_bps / 8 * BURST_S))
                lines.append(
                    f"qdisc add dev {end.device} root tbf rate {wire.bandwidth_bps}bit burst {burst} latency {QUEUE}"
                )
    return lines
