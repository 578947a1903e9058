"""``headwater keys``: the keys by which the processes of a network authenticate each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.protocol.errors import ConfigError


def keys(
    folder: Annotated[Path, typer.Argument(help="The folder of the keys.", metavar="FOLDER")],
    names: Annotated[
        list[str] | None, typer.Argument(help="Nodes and client programs that need keys.", metavar="NAME")
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(help="Create keys for all nodes of this network file, and for its coordinator.", metavar="FILE"),
    ] = None,
) -> None:
    """Create the keys that encrypt and authenticate links.

    NAME.key is secret and belongs only on the machine of NAME; NAME.pub belongs on every machine that connects to NAME.
    Existing keys are never changed, so the command can be run again for every new process.

    \b
    headwater keys keys/ --network fire.yaml      for every node, and for the coordinator
    headwater keys keys/ laptop                   for a client program called laptop
    """
    from headwater.protocol.links.keys import make_keys
    from headwater.protocol.messages.control import COORDINATOR

    owners = list(names or ())
    if network is not None:
        from headwater.deploy.network.file import read_network

        owners += [*read_network(network).network.nodes, COORDINATOR]
    if not owners:
        raise ConfigError("there is nothing to make keys for; give names, or a network with --network FILE")
    new_owners = make_keys(folder, owners)
    for name in new_owners:
        print(f"{folder / name}.key {folder / name}.pub")
    if not new_owners:
        print("all names have keys already")
