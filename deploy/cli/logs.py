"""``headwater logs``: the logs of the processes of a run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from headwater.deploy.cluster.runs import Run

LOOK_S: Final = 0.3  # how often files are looked at while they are followed


def logs(
    node: Annotated[
        str | None,
        typer.Argument(
            help="A node, coordinator, broker or keeper. [default: all]", metavar="NODE", show_default=False
        ),
    ] = None,
    following: Annotated[bool, typer.Option("--follow", "-f", help="Follow the logs until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many lines to show.", min=0)] = 50,
    name: Annotated[
        str | None, typer.Option(help="The name of the run, if there are several.", metavar="NAME", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR")] = Path(".headwater"),
) -> None:
    """Show the last lines of the logs, each with the name of its process."""
    from headwater.deploy.cluster.log_files import last_lines
    from headwater.deploy.cluster.runs import the_run

    run = the_run(folder, name, purpose="read")
    files = _files(run, node)
    for shown, file in files.items():
        for line in last_lines(file, lines):
            print(_labelled(shown, line, files))
    if following:
        follow(run, node)


def follow(run: Run, node: str | None) -> None:
    """Print what is added to logs, until interrupted or the run has ended."""
    from headwater.deploy.cluster.log_files import Follower

    files = _files(run, node)
    followed = {shown: Follower(file) for shown, file in files.items()}
    while True:
        was_kept = run.is_kept()
        for shown, follower in followed.items():
            for line in follower.lines():
                print(_labelled(shown, line, files), flush=True)
        if not was_kept:
            return
        time.sleep(LOOK_S)


def _labelled(shown: str, line: str, files: dict[str, Path]) -> str:
    return line if len(files) == 1 else f"{shown:<{max(map(len, files))}} | {line}"


def _files(run: Run, node: str | None) -> dict[str, Path]:
    plan = run.plan()
    files = {process.name: Path(process.log) for process in plan.processes}
    if node is None:
        return {name.removeprefix("@"): file for name, file in files.items()}
    if node == "keeper" and node not in files:
        return {node: run.keeper_log}
    for name in (node, f"@{node}"):
        if name in files:
            return {node: files[name]}
    names = ", ".join(name.removeprefix("@") for name in files)
    raise ConfigError(f"{run.name} has no process {node!r}; there are {names} and keeper")
