"""The network file: YAML with the nodes, links, sources, sinks and rules of a network (docs/guide/networks.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from headwater.deploy.network.statistics import GivenStatistics
from headwater.deploy.network.yaml_file import NetworkFileError, Sheet
from headwater.protocol.edge import (
    Broker,
    ClientFeed,
    Destination,
    Feed,
    MqttFeed,
    RateFeed,
    ReplayFeed,
    TraceFeed,
    is_replayed,
)
from headwater.protocol.errors import ConfigError
from headwater.protocol.languages import Diagnostic
from headwater.protocol.languages.rule_texts import LANGUAGES
from headwater.protocol.network import DescribedTable, Network
from headwater.protocol.remote import TableShape

__all__ = [
    "ClientFeed", "Destination", "Feed", "MqttFeed", "NetworkFile", "NetworkFileError", "RateFeed",
    "ReplayFeed", "TraceFeed",
    "check_running", "read_network", "running_feeds", "running_network",
]  # fmt: skip

NEVER_ENDS = "never_ends"
"""The code of the warning that a simulation of a source would never end."""

DEFAULT_DURABILITY = "sync"

UNNAMED: Final = "network"
"""What messages call a network that is in no file."""


@dataclass(frozen=True, slots=True)
class DescribedTables:
    """The remote tables of a network file. ``only_simulated``: why some of them cannot be used by node processes."""

    tables: tuple[DescribedTable, ...] = ()
    shapes: Mapping[str, TableShape] = field(default_factory=dict)
    """By the name of every table, those with mistakes included, what rules are checked against."""
    only_simulated: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkFile:
    """A network as its file describes it, checked: what is doubtful but possible is in ``warnings``."""

    path: Path
    network: Network
    feeds: tuple[Feed, ...]
    """Where the events of each source come from in a simulation, in the order of ``network.sources``."""
    duration_us: int | None = None
    seed: int | None = None
    warnings: tuple[Diagnostic, ...] = ()
    destinations: tuple[Destination, ...] = ()
    """Where the deliveries of each sink go in a running network, in the order of ``network.sinks``."""
    durability: str = DEFAULT_DURABILITY
    """Which inputs of a running node are on disk before the node acts on them: none, async or sync."""
    listen: dict[str, str] = field(default_factory=dict)
    """Where nodes listen, as host:port, by node; the others choose for themselves."""
    replan_us: int | None = None
    """How often a running network looks whether its rates call for a new plan."""
    falls_back: bool = True
    """Whether stages of a plan that cost more than they save fall back by themselves."""
    lost_after_us: int | None = None
    """After so long a silence a node or link counts as lost for good; None: only an operator says so."""
    embedded_broker: Broker | None = None
    """The broker that is started with the network, if one is."""
    live_feeds: tuple[Feed, ...] | None = None
    """Where the events come from in a running network, if that is not the same."""
    only_simulated: tuple[Diagnostic, ...] = ()
    """Why the network can be simulated and cannot run (`check_running`)."""
    statistics: GivenStatistics = field(default_factory=GivenStatistics)
    """Rates and selectivities for planners."""
    text: str | None = None
    """What it was read from, where that is no file."""

    def running(self) -> tuple[Feed, ...]:
        """Where the events of each source come from in a running network."""
        return self.feeds if self.live_feeds is None else self.live_feeds


def check_running(network_file: NetworkFile) -> None:
    """A NetworkFileError if this network can be simulated and cannot run."""
    if network_file.only_simulated:
        raise NetworkFileError([*network_file.only_simulated], [*network_file.warnings])


def running_network(network_file: NetworkFile) -> Network:
    """The network as running nodes know it: sources that read a trace, or get one from a replayer, have
    its times, and are not live as in a simulation.

    A NetworkFileError if it cannot run.
    """
    check_running(network_file)
    network = network_file.network
    sources = tuple(
        replace(source, replayed=is_replayed(feed))
        for source, feed in zip(network.sources, network_file.running(), strict=True)
    )
    return replace(network, sources=sources)


def running_feeds(network_file: NetworkFile) -> tuple[Feed, ...]:
    """The feeds as running nodes need them: wherever a node runs, and for as long as the file says."""

    def running(feed: Feed) -> Feed:
        match feed:
            case TraceFeed(path):
                return replace(feed, path=str(Path(path).absolute()))
            case RateFeed():
                return replace(feed, duration_us=network_file.duration_us, seed=network_file.seed or 0)
            case _:
                return feed

    return tuple(running(feed) for feed in network_file.running())


def read_network(
    path: Path | str | Mapping[str, Any],
    strategy: str | None = None,
    duration_us: int | None = None,
    statistics: Path | None = None,
    *,
    counted: bool = True,
) -> NetworkFile:
    """The network of a file, or a NetworkFileError with all that is wrong in it and in the files it names.

    In the place of a path, a text of several lines or a dict is taken for what such a file would say; files that it
    names are looked for in the current folder.

    ``strategy`` (one of STRATEGIES), ``duration_us`` and ``statistics`` (a file that headwater statistics wrote) take
    the place of what the file says, before it is asked whether everything fits together. Without ``counted`` no file of
    statistics is read: it may have to be written first.
    """
    text = _text_of(path)
    file = Path(UNNAMED if text is not None else str(path))
    if file.suffix.lower() in LANGUAGES:
        raise ConfigError(f"{file} holds rules; name a network file (.yaml) that lists it under rules:")
    from headwater.deploy.network.assembly import (
        NetworkReading,  # with pydantic, which a command that reads no file can spare
    )

    reading = NetworkReading(Sheet(file, text=text), strategy, duration_us)
    reading.given_statistics, reading.counted = statistics, counted
    read = reading.network_file()
    return read if text is None else replace(read, text=text)


def _text_of(network: Path | str | Mapping[str, Any]) -> str | None:
    """What the file would say, where there is none; None: it is the path of one."""
    match network:
        case Mapping():
            try:
                return yaml.safe_dump(dict(network), sort_keys=False, allow_unicode=True)
            except yaml.YAMLError:
                raise ConfigError(
                    "this dict is not a network: what stands in it must be texts, numbers, lists and dicts"
                ) from None
        case str() if "\n" in network:
            return network
        case _:
            return None
