"""``headwater node``: one node of a running network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headwater.node.remote.tables import Behind


def _provided(name: str, description: str) -> Behind:
    """What asks a remote table that the coordinator has described."""
    from headwater.deploy.descriptions.remote import provided  # only where there is one

    return provided(name, description)


def node(
    name: Annotated[str, typer.Argument(help="The name of the node in the network file.")],
    coordinator: Annotated[str, typer.Option(help="Where the coordinator listens, as in tcp://10.0.0.1:7000.")],
    data: Annotated[Path, typer.Option(help="The folder of its journal and other data.")],
    network: Annotated[str, typer.Option(help="The name of the network, the same as the coordinator's.")] = "headwater",
    listen: Annotated[str, typer.Option(help="Where neighbours and programs reach the node.")] = "tcp://127.0.0.1:0",
    advertise: Annotated[
        str | None, typer.Option(help="The address that they use, if it differs from --listen.")
    ] = None,
    http: Annotated[str | None, typer.Option(help="Where to serve health, metrics and tables, HOST:PORT.")] = None,
    keys: Annotated[Path | None, typer.Option(help="A folder of keys, created by `headwater keys`.")] = None,
    allow_functions: Annotated[
        bool,
        typer.Option(
            "--allow-functions",
            help="Run the Python functions that the network names, if the file here has the hash of the plan.",
        ),
    ] = False,
    functions: Annotated[
        Path | None,
        typer.Option(
            help="Where the file of functions is on this machine. [default: where the coordinator has it]",
            metavar="FILE.py",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
) -> None:
    """Run one node until SIGTERM. It registers with the coordinator, which configures it.

    The node keeps a journal in its data folder. After a crash, start it again with the same options: it continues where
    it stopped.
    """
    import logging

    from headwater.deploy.cli.command import version_text
    from headwater.node.daemon.daemon import DaemonSettings
    from headwater.node.daemon.process import run_node, set_up_logging
    from headwater.node.user_functions import NodeFunctions
    from headwater.protocol.links import Keys

    set_up_logging(logging.DEBUG if verbose else logging.INFO)
    run_node(
        DaemonSettings(
            name=name,
            data=data,
            coordinator=coordinator,
            network=network,
            listen=listen,
            advertise=advertise,
            http=http,
            keys=None if keys is None else Keys.read(keys, name),
            version=version_text(),
            providing=_provided,
            functions=NodeFunctions(data, allowed=allow_functions, file=functions),
        )
    )
