"""``headwater down``: end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.deploy.cli.common import say


def down(
    name: Annotated[
        str | None, typer.Option(help="The name of the run, if there are several.", metavar="NAME", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR")] = Path(".headwater"),
    every: Annotated[bool, typer.Option("--all", help="Stop all runs in the folder.")] = False,
) -> None:
    """Stop a network: nodes send what they hold and save a snapshot; namespaces and containers are removed.

    Processes that have not ended after 10 s are killed, which loses nothing that a node has accepted. Data and logs
    stay in the folder of the run. Stopping a network twice, or after its keeper was killed, does no harm.
    """
    from headwater.deploy.cluster.runs import runs_in, the_run
    from headwater.deploy.cluster.stop import stop

    runs = runs_in(folder) if every else [the_run(folder, name, purpose="end")]
    for run in runs:
        if stop(run):
            say(f"{run.name} is down; its data and logs are in {run.folder}")
        else:
            say(f"{run.name} was down already")
