"""``headwater coordinator``: the coordinator of a running network as a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.deploy.cli.common import say
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.strategy import STRATEGIES, strategy_of

if TYPE_CHECKING:
    from headwater.coordinator.daemon.inputs import Setup, Started
    from headwater.protocol.links import Keys


def coordinator(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.yaml")],
    data: Annotated[Path, typer.Option(help="The folder of its journal and token.", metavar="DIR")],
    listen: Annotated[str, typer.Option(help="Where nodes reach it.")] = "tcp://127.0.0.1:0",
    http: Annotated[str, typer.Option(help="Where to serve the HTTP API, HOST:PORT.")] = "127.0.0.1:0",
    advertise: Annotated[
        str | None, typer.Option(help="The address that nodes use, if it differs from --listen.")
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="A folder of keys, created by `headwater keys`.", metavar="DIR")
    ] = None,
    name: Annotated[
        str, typer.Option("--network", help="The name of the network, the same for all its nodes.", metavar="NAME")
    ] = "headwater",
    strategy: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(STRATEGIES)}. [default: that of the file]", metavar="STRATEGY"),
    ] = None,
    broker: Annotated[
        str | None, typer.Option(help="Where the embedded broker is, HOST:PORT. [default: that of the file]")
    ] = None,
    addresses: Annotated[
        Path | None,
        typer.Option(
            help='A JSON file with the addresses that each node uses for its neighbours, as in {"p1": {"p2": "tcp://10.0.0.2:7001"}}.',
            metavar="FILE",
        ),
    ] = None,
    change_timeout: Annotated[
        str, typer.Option(help="A change that some node has not prepared by then is aborted.", metavar="DURATION")
    ] = "10 s",
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
) -> None:
    """Run the coordinator of a network until SIGTERM.

    Nodes register with it and receive their plan from it. Events do not pass through it: while it is down, the network
    continues to detect, and only changes wait. It keeps a journal in its data folder and continues where it stopped.

    The network file is read when the data folder is new. If the nodes remember an earlier coordinator, the new one
    learns from them what was decided. Later changes are made over HTTP, with the token in the file `token` of the data
    folder. The file `endpoints.json` there holds its addresses.
    """
    import logging

    from headwater.coordinator.daemon.folder import DataFolder
    from headwater.coordinator.daemon.machine import Settings
    from headwater.coordinator.daemon.process import ProcessSettings, run_coordinator
    from headwater.deploy.cli.command import version_text
    from headwater.deploy.network.units import duration_us
    from headwater.node.daemon.process import set_up_logging
    from headwater.protocol.links import Keys
    from headwater.protocol.messages.control import COORDINATOR

    set_up_logging(logging.DEBUG if verbose else logging.INFO)
    timeout_us = duration_us(change_timeout)
    known_keys = None if keys is None else Keys.read(keys, COORDINATOR)
    folder = DataFolder(data)
    setup = folder.setup()
    if setup is None:
        setup = _setup(network, name, strategy, known_keys)
        folder.keep_setup(setup)
    elif setup.id != name:
        raise ConfigError(f"{data} belongs to the network {setup.id!r}, not {name!r}; give another folder")
    else:
        _warn_of_changes(network, setup, strategy, known_keys)
    settings = ProcessSettings(
        listen=listen,
        advertise=advertise,
        http=http,
        keys=known_keys,
        version=version_text(),
        started=_started(broker, addresses, setup),
        machine=Settings(timeout_us),
    )
    run_coordinator(folder, setup, settings, said=lambda line: print(line, flush=True))


def _setup(file: Path, name: str, strategy: str | None, keys: Keys | None) -> Setup:
    """What the coordinator must know of the file, as plain values."""
    import secrets
    from hashlib import blake2b

    from headwater.coordinator.daemon.inputs import Setup
    from headwater.deploy.network.file import read_network, running_feeds, running_network
    from headwater.deploy.network.planning_problem import statistics_of

    if strategy is not None:
        strategy_of(strategy)
    network_file = read_network(file, strategy=strategy)
    for warning in network_file.warnings:
        say(str(warning))
    network, feeds = running_network(network_file), running_feeds(network_file)
    public = [] if keys is None else [(node, keys.public_key_of(node)) for node in network.nodes]
    read = (network, feeds, network_file.destinations, network_file.durability, network_file.lost_after_us)
    return Setup(
        id=name,
        network=network,
        feeds=feeds,
        destinations=network_file.destinations,
        durability=network_file.durability,
        public_keys=tuple((node, key) for node, key in public if key is not None),
        lost_after_us=network_file.lost_after_us,
        replan_us=network_file.replan_us,
        falls_back=network_file.falls_back,
        embedded_broker=network_file.embedded_broker,
        statistics=statistics_of(network_file),
        digest=blake2b(repr(read).encode(), digest_size=16).hexdigest(),
        run=secrets.token_hex(8),
    )


def _warn_of_changes(file: Path, setup: Setup, strategy: str | None, keys: Keys | None) -> None:
    """What holds is what was decided since the first start; a user who has edited the file must know."""
    try:
        if _setup(file, setup.id, strategy, keys).digest == setup.digest:
            return
        problem = "has changed since this coordinator first started"
    except HeadwaterError as error:
        problem = f"cannot be read ({error})"
    say(
        f"headwater: {file} {problem}; the network continues unchanged. Change it over HTTP (POST /rules, "
        f"/subscriptions, /sources), or start over with empty data folders, those of the nodes included"
    )


def _started(broker: str | None, addresses: Path | None, setup: Setup) -> Started:
    from pydantic import TypeAdapter, ValidationError

    from headwater.coordinator.daemon.inputs import Started

    place = None
    if broker is not None:
        host, _, port = broker.rpartition(":")
        if not host or not port.isdecimal():
            raise ConfigError(f"--broker is {broker!r}; write HOST:PORT, as in 127.0.0.1:1883")
        place = (host, int(port))
    if addresses is None:
        return Started(place)
    try:
        read = TypeAdapter(dict[str, dict[str, str]]).validate_json(addresses.read_bytes())
    except OSError as error:
        raise ConfigError(f"--addresses {addresses}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        at = "".join(f"{step}: " for step in first["loc"])
        raise ConfigError(
            f"--addresses {addresses}: {at}{first['msg']}; expected a JSON object of JSON objects"
        ) from None
    dialled = sorted((node, peer, at) for node, around in read.items() for peer, at in around.items())
    strangers = sorted({name for node, peer, _ in dialled for name in (node, peer)} - set(setup.network.nodes))
    if strangers:
        raise ConfigError(f"--addresses {addresses} names {', '.join(strangers)}, which the network does not have")
    return Started(place, tuple(dialled))
