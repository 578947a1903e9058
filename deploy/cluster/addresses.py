"""Assigns addresses to nodes with their own network: one for management, and two for each link."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from headwater.deploy.cli.common import RunFailed
from headwater.deploy.cluster.backend import HTTP_PORT, NODE_PORT, ClusterLayout, ProcessPlace
from headwater.deploy.cluster.host import call
from headwater.deploy.cluster.local import free_ports, place_of
from headwater.protocol.errors import ConfigError
from headwater.protocol.network import Link, Network

LINKS: Final = ipaddress.IPv4Network("10.1.0.0/16")
"""Of links between nodes. They exist inside namespaces only, so that runs cannot get in each other's way."""

MANAGEMENT: Final = [ipaddress.IPv4Network(f"10.{second}.0.0/16") for second in range(64, 256)]
"""One of these joins the nodes, the coordinator and this machine: the first that the machine does not use."""

DEVICE_CHARACTERS: Final = 15  # no name of a network device may be longer


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a link."""

    node: str
    device: str
    address: str


@dataclass(frozen=True, slots=True)
class VirtualLink:
    """A link between two nodes."""

    ends: tuple[LinkEnd, LinkEnd]
    bandwidth_bps: int | None


@dataclass(frozen=True, slots=True)
class Subnets:
    """The addresses of a whole run."""

    management: ipaddress.IPv4Network
    gateway: str
    """Of this machine, where the coordinator and the broker are."""
    nodes: dict[str, str]
    wires: tuple[VirtualLink, ...]

    @property
    def prefix(self) -> int:
        return self.management.prefixlen


def choose_subnets(network: Network, used: Iterable[ipaddress.IPv4Network]) -> Subnets:
    used_networks = list(used)
    management = next(
        (candidate for candidate in MANAGEMENT if not any(candidate.overlaps(other) for other in used_networks)), None
    )
    if management is None:
        raise RunFailed("every network from 10.64.0.0/16 to 10.255.0.0/16 is in use; take some other run down")
    if len(network.nodes) > management.num_addresses - 3 or len(network.links) > LINKS.num_addresses // 4:
        raise ConfigError(f"a network of {len(network.nodes)} nodes has too many addresses for this; use --on local")
    numbers = {node: number for number, node in enumerate(network.nodes)}
    return Subnets(
        management,
        str(management[1]),
        {node: str(management[number + 2]) for node, number in numbers.items()},
        tuple(_wire(position, link, numbers) for position, link in enumerate(network.links)),
    )


def _wire(position: int, link: Link, numbers: dict[str, int]) -> VirtualLink:
    first = 4 * position
    ends = [
        LinkEnd(node, device_towards(other, numbers[other]), str(LINKS[first + side]))
        for side, node, other in ((1, link.one, link.other), (2, link.other, link.one))
    ]
    return VirtualLink((ends[0], ends[1]), link.bandwidth_bps)


def device_towards(node: str, number: int) -> str:
    """The device of a link, called after where it leads: ``to-p2``, or by the node's number where that is no name."""
    name = f"to-{node}"
    return name if len(name) <= DEVICE_CHARACTERS and re.fullmatch(r"[\w-]+", name, re.ASCII) else f"to-{number}"


def used_here() -> list[ipaddress.IPv4Network]:
    """The networks that this machine has routes or addresses in."""
    routes: list[Any] = json.loads(call(["ip", "-j", "-4", "route", "show", "table", "all"]) or "[]")
    names = [route.get("dst", "") for route in routes]
    return [ipaddress.IPv4Network(name, strict=False) for name in names if re.fullmatch(r"[\d.]+(/\d+)?", name)]


def layout(subnets: Subnets, *, broker: bool, namespaces: dict[str, str]) -> ClusterLayout:
    """Nodes listen on all their devices; neighbours dial each other on the device of the link between them.

    The bridge must be there: the coordinator and the broker get ports that are free on its address.
    """
    ports = free_ports(0, subnets.gateway)
    dialled: dict[str, dict[str, str]] = {node: {} for node in subnets.nodes}
    for wire in subnets.wires:
        first, other = wire.ends
        dialled[first.node][other.node] = f"tcp://{other.address}:{NODE_PORT}"
        dialled[other.node][first.node] = f"tcp://{first.address}:{NODE_PORT}"
    return ClusterLayout(
        coordinator=place_of(ports, subnets.gateway),
        broker=place_of(ports, subnets.gateway, http=False) if broker else None,
        nodes={
            node: ProcessPlace(
                listen=f"tcp://0.0.0.0:{NODE_PORT}",
                reach=f"tcp://{address}:{NODE_PORT}",
                http_listen=f"{address}:{HTTP_PORT}",
                http_reach=f"{address}:{HTTP_PORT}",
                namespace=namespaces[node],
            )
            for node, address in subnets.nodes.items()
        },
        dialled=dialled,
    )
