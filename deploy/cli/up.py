"""``headwater up``: a network of real processes on this machine."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.deploy.cli.common import say
from headwater.deploy.cli.network_options import AllowFunctions
from headwater.deploy.cli.tables import table_lines
from headwater.deploy.cluster.run_plan import KINDS
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import STRATEGIES, strategy_of
from headwater.protocol.text import closest, plural

if TYPE_CHECKING:
    from headwater.deploy.cluster.run_plan import RunPlan
    from headwater.deploy.cluster.runs import Run
    from headwater.deploy.cluster.start import Steps


def up(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.yaml")],
    on: Annotated[
        str,
        typer.Option(
            "--on",
            help="local (processes on loopback), netns (a network namespace for each node), mininet, or containers.",
            metavar="KIND",
        ),
    ] = "local",
    name: Annotated[
        str | None, typer.Option(help="The name of the run. [default: the name of the file]", metavar="NAME")
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR", show_default=True)] = Path(
        ".headwater"
    ),
    data: Annotated[
        Path | None,
        typer.Option(help="Where processes keep their data. [default: data/ in the folder of the run]", metavar="DIR"),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(help=f"One of {', '.join(STRATEGIES)}. [default: that of the file]", metavar="STRATEGY"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the data of an earlier run with this name.")] = False,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Show the logs of all processes; Ctrl-C stops the network.")
    ] = False,
    allow_functions: AllowFunctions = False,
    image: Annotated[
        str | None,
        typer.Option(help="The image for containers. [default: built from the source code]", metavar="IMAGE"),
    ] = None,
) -> None:
    """Start a network and leave it running: a coordinator, and one process for each node.

    The command returns when all nodes have registered, know their rules and are connected. Processes that crash are
    restarted. `headwater ps` lists the processes, `headwater logs` shows their logs, `headwater down` stops them.

    After `down`, the network continues where it stopped when it is started again, unless --fresh discards its data.

    Example: headwater up fire.yaml --on netns
    """
    from headwater.deploy.cluster.backend import Wishes
    from headwater.deploy.cluster.backends import backend_of
    from headwater.deploy.cluster.remote_tables import wrong_tables
    from headwater.deploy.cluster.runs import Run
    from headwater.deploy.cluster.start import start
    from headwater.deploy.network.file import NEVER_ENDS, check_running, read_network
    from headwater.deploy.network.function_file import refuse_functions

    if on not in KINDS:
        near = closest(on, KINDS)
        hint = f"did you mean {near}? " if near else ""
        raise ConfigError(f"a network cannot run on {on!r}; {hint}it runs on {', '.join(KINDS)}")
    if strategy is not None:
        strategy_of(strategy)
    backend = backend_of(on, image)
    backend.check()
    file = read_network(network, strategy=strategy)
    check_running(file)
    refuse_functions(file.network, allowed=allow_functions)
    for warning in file.warnings:
        if warning.code != NEVER_ENDS:  # of a simulation; here that is what sources do
            say(str(warning))
    run_name = name or network.stem
    if not re.fullmatch(r"[^\W_][\w.\- ]{0,99}", run_name):
        raise ConfigError(f"{run_name!r} cannot be the name of a run; give it one of letters and digits with --name")
    run = Run(folder / run_name)
    kept = data.absolute() if data is not None else run.folder / "data"
    if fresh and not run.is_kept():
        _forget(run, kept)
    with _steps() as steps:
        wishes = Wishes(file=file, data=kept, strategy=strategy, allow_functions=allow_functions, say=steps.say)
        begun = time.perf_counter()
        plan = start(run, backend, wishes, steps)
    _report(run, plan, time.perf_counter() - begun)
    if file.network.tables:
        for sentence in wrong_tables(plan.nodes()):
            say(sentence)
    if foreground:
        _follow(run)


def _forget(run: Run, data: Path) -> None:
    """Remove what a run has kept; only what is known to be of a run, whatever folder was named."""
    from headwater.deploy.cluster.stop import stop

    if not run.exists():
        return
    stop(run)
    for process in run.plan().processes:
        if process.data is not None:
            shutil.rmtree(process.data, ignore_errors=True)
    for log in run.logs.glob("*.log*"):
        log.unlink(missing_ok=True)


@contextlib.contextmanager
def _steps() -> Iterator[Steps]:
    """On a terminal a line that changes; in a pipe only steps that take long."""
    from headwater.deploy.cluster.start import Steps

    if not sys.stderr.isatty():
        yield Steps(say=say)
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("starting") as status:

        def ready(done: int, of: int, waiting_for: str) -> None:
            status.update(f"{done} of {of} nodes run" + (f"; {waiting_for}" if waiting_for else ""))

        yield Steps(say=lambda text: status.update(text), ready=ready)


def _report(run: Run, plan: RunPlan, seconds: float) -> None:
    nodes = plan.nodes()
    coordinator = plan.coordinator()
    say(f"{run.name} is up: {plural(len(nodes), 'node')} on {plan.kind}, in {seconds:.1f} s")
    rows: list[tuple[str, str]] = [("coordinator", f"http://{coordinator.http}  ({coordinator.address})")]
    rows += [("MQTT broker", str(process.address)) for process in plan.processes if process.role == "broker"]
    rows += [(node.name, f"http://{node.http}  ({node.address})") for node in nodes]
    if plan.token_file is not None:
        rows.append(("token", plan.token_file))
    rows.append(("folder", str(run.folder)))
    for line in table_lines(rows[0], rows[1:], indent=2):
        say(line)
    say("headwater ps lists its processes, headwater logs -f follows their logs, headwater down stops it")


def _follow(run: Run) -> None:
    from headwater.deploy.cli.logs import follow
    from headwater.deploy.cluster.stop import stop

    with contextlib.suppress(KeyboardInterrupt):
        follow(run, None)
    say("stopping it")
    stop(run)
