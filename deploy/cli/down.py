"""``headwater down``: end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwater.deploy.cli.common import say


def down(
    name: Annotated[
        str | None, typer.Option(help="The run, if there are several.", metavar="NAME", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where runs have their folders.", metavar="DIR")] = Path(".headwater"),
    every: Annotated[bool, typer.Option("--all", help="All runs of this folder.")] = False,
) -> None:
    """End a network: nodes hand over what they have and save, then everything that was made for them is removed.

    What does not end within 10 s is killed; nothing that a node has accepted is lost by that. Data and logs stay in the
    folder of the run. It does no harm to call this twice, or after the keeper of the run was killed.
    """
    from headwater.deploy.cluster.runs import runs_in, the_run
    from headwater.deploy.cluster.stop import stop

    runs = runs_in(folder) if every else [the_run(folder, name, purpose="end")]
    for run in runs:
        if stop(run):
            say(f"{run.name} is down; its data and logs are in {run.folder}")
        else:
            say(f"{run.name} was down already")
