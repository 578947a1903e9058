"""``headwater ps``: the processes of runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.deploy.cli.tables import print_table

if TYPE_CHECKING:
    from headwater.deploy.cluster.runs import Run
    from headwater.deploy.cluster.status import ProcessRow


def ps(
    name: Annotated[
        str | None,
        typer.Option(help="Only this run. [default: all runs in the folder]", metavar="NAME", show_default=False),
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR")] = Path(".headwater"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run and line.")] = False,
) -> None:
    """List the processes of running networks.

    A process is up (it has reported that it is ready), starting, restarting (after a crash) or dead.
    """
    from headwater.deploy.cluster.runs import runs_in, the_run
    from headwater.deploy.cluster.status import rows

    runs = [the_run(folder, name, purpose="show")] if name is not None else runs_in(folder)
    if not runs and not as_json:
        print(f"there are no runs in {folder}")
    for run in runs:
        process_rows = rows(run)
        if as_json:
            _print_json(run, process_rows)
        else:
            _print(run, process_rows)


def _print_json(run: Run, rows: list[ProcessRow]) -> None:
    state = run.state()
    report = {
        "name": run.name,
        "kind": state.get("kind"),
        "state": state_of(run),
        "network": state.get("network"),
        "folder": str(run.folder),
        "keeper": state.get("keeper"),
        "token_file": state.get("token_file"),
        "processes": [asdict(row) for row in rows],
    }
    print(json.dumps(report, ensure_ascii=False))


def state_of(run: Run) -> str:
    """up, stopping or down; or lost, if its keeper was killed and it is not taken down yet."""
    state = run.state().get("state", "down")
    if run.is_kept():
        return str(state)
    return "down" if state == "down" else "lost"


def _print(run: Run, rows: list[ProcessRow]) -> None:
    state = state_of(run)
    says = {"lost": "has lost its keeper: nothing is started again; headwater down cleans up"}.get(state, f"is {state}")
    print(f"{run.name} on {run.state().get('kind', '?')} {says}")
    if state == "down":
        return
    header = ("NAME", "STATE", "PID", "RESTARTS", "MEMORY", "CPU", "ADDRESS", "HTTP")
    print_table(header, [_cells(row) for row in rows], indent=2)


def _cells(row: ProcessRow) -> tuple[str, ...]:
    return (
        row.name,
        row.state,
        "-" if row.pid is None else str(row.pid),
        str(row.restarts),
        "-" if row.memory_bytes is None else f"{row.memory_bytes / 1e6:.0f} MB",
        "-" if row.cpu_s is None else f"{row.cpu_s:.1f} s",
        row.address or "-",
        row.http or "-",
    )
