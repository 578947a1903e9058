"""The ``headwater`` command. Exit codes: 0 done, 1 the run failed, 2 the input is wrong, 130 stopped by Ctrl-C."""

from __future__ import annotations

import gc
import os
import sys
from importlib import metadata
from typing import Annotated, Any, Final, NoReturn

import typer
import typer.core

from headwater.deploy.cli.broker import broker
from headwater.deploy.cli.check import check
from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.coordinator import coordinator
from headwater.deploy.cli.deploy import deploy, undeploy
from headwater.deploy.cli.down import down
from headwater.deploy.cli.experiment import experiment
from headwater.deploy.cli.explain import explain
from headwater.deploy.cli.job import job
from headwater.deploy.cli.keys import keys
from headwater.deploy.cli.logs import logs
from headwater.deploy.cli.node import node
from headwater.deploy.cli.plan import plan
from headwater.deploy.cli.ps import ps
from headwater.deploy.cli.replay import replay
from headwater.deploy.cli.report import report
from headwater.deploy.cli.rules import rules
from headwater.deploy.cli.run import run
from headwater.deploy.cli.simulate import simulate
from headwater.deploy.cli.statistics import statistics
from headwater.deploy.cli.subscribe import subscribe, subscriptions, unsubscribe
from headwater.deploy.cli.traces import traces
from headwater.deploy.cli.up import up
from headwater.deploy.cli.verify import verify
from headwater.node.remote.provider import ProviderError
from headwater.pipeline.spark.failures import JobFailed
from headwater.protocol.errors import HeadwaterError

GC_THRESHOLD: Final = (200_000, 20, 100)
"""Events and matches are many small tuples without cycles; looking for garbage among them every 700 is wasted time."""

STOPPED: Final = 130  # what shells expect of a command that Ctrl-C ended

SECTIONS: Final = {
    "Rules, with one engine": {
        "check": "Check rules and network files, and describe what they do.",
        "run": "Find composite events in a file or a stream.",
        "explain": "Show why a pattern did not match.",
    },
    "Networks": {
        "plan": "Show where rules are best evaluated, and at what cost.",
        "simulate": "Run a network in virtual time: results, traffic, delay.",
        "up": "Start a network of processes on this machine.",
        "ps": "List the processes of running networks.",
        "logs": "Show the logs of its processes.",
        "down": "Stop it; its data stays.",
    },
    "A running network": {
        "rules": "List its rules, since when they hold, and where they are evaluated.",
        "deploy": "Add or replace rules.",
        "undeploy": "Remove rules.",
        "subscribe": "Print composite events as they are found, or have them delivered.",
        "subscriptions": "List subscriptions.",
        "unsubscribe": "Remove subscriptions.",
    },
    "Single processes, on your own machines": {
        "coordinator": "Run the coordinator of a network.",
        "node": "Run one node of a network.",
        "broker": "Run a small MQTT broker, for machines without one.",
        "keys": "Create keys for links between machines.",
    },
    "Bulk data, on Spark": {
        "traces": "Turn raw data into a prepared trace, or generate one.",
        "statistics": "Count rates and selectivities in a prepared trace, for planners.",
        "replay": "Stream a prepared trace into a running network.",
        "verify": "Compare what a run delivered with what Spark finds in the trace.",
        "report": "Report the traffic, delays and deliveries of runs, as tables and a page.",
        "job": "Package these commands for spark-submit.",
    },
    "Research": {
        "experiment": "Repeat the experiments of papers.",
    },
}
"""The commands as --help shows them; each says more of itself with --help."""


class Grouped(typer.core.TyperGroup):
    """Lists its commands by what they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


app = typer.Typer(
    name="headwater",
    cls=Grouped,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(check)
app.command()(explain)
app.command()(plan)
app.command()(simulate)
app.command()(up)
app.command()(ps)
app.command()(logs)
app.command()(down)
app.command()(rules)
app.command()(deploy)
app.command()(undeploy)
app.command()(subscribe)
app.command()(subscriptions)
app.command()(unsubscribe)
app.command()(node)
app.command()(coordinator)
app.command()(broker)
app.command()(keys)
app.command()(traces)
app.command()(statistics)
app.command()(replay)
app.command()(verify)
app.command()(report)
app.command()(job)
app.add_typer(experiment, name="experiment")


def version_text() -> str:
    try:
        return metadata.version("headwater")
    except metadata.PackageNotFoundError:
        return "0 (not installed)"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {version_text()}")
        raise typer.Exit


@app.callback()
def headwater(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Detect patterns in streams of events.

    A rule says which events, in which order and how near to each other, make a composite event; it is written in TESLA
    (.tesla) or SASE (.sase). An event has a type, a timestamp (ts), attributes, the node where it entered and its
    number there (seq).

    \b
    headwater check fire.tesla                        is the rule correct?
    headwater run fire.tesla --events events.csv      find composite events
    headwater explain fire.tesla --events events.csv  why did the pattern not match?

    A network file (.yaml) describes nodes and links, the sources of events, rules, and the sinks that subscribe to
    composite events. Nodes share the work and find exactly what one engine would find. A node that crashes is restarted
    and continues where it stopped.

    \b
    headwater simulate fire.yaml                      in virtual time
    headwater up fire.yaml                            one process for each node
    headwater ps                                      its processes; see also logs, down
    headwater deploy alarm.tesla                      add a rule while it runs
    headwater subscribe Fire                          print fires as they are found

    Results go to standard output, everything else to standard error. Exit codes: 0 success, 1 the run failed, 2 the
    input is wrong.
    """


def _invoke(arguments: list[str]) -> int:
    # Not through app(): that has opinions of its own on closed pipes and Ctrl-C.
    command = typer.main.get_command(app)
    try:
        with command.make_context("headwater", arguments) as context:
            command.invoke(context)
        code = 0
    except typer.Exit as left:
        code = left.exit_code
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _out_of_memory(arguments: list[str]) -> NoReturn:
    instead = "or a shorter window" if "--count" in arguments else "a shorter window, or only --count"
    say(
        "headwater: out of memory; a repetition (B+) has a match for every choice of its events: "
        f"give it LIMIT n or SKIP TILL NEXT MATCH, {instead}"
    )
    sys.exit(1)


def _usage_error(error: Exception) -> str | None:
    """What is wrong with the command line; None if the error is another."""
    message = getattr(error, "format_message", None)
    if message is None:
        return None
    if type(error).__name__ == "NoArgsIsHelpError":
        return str(message())
    path = getattr(getattr(error, "ctx", None), "command_path", "headwater")
    return f"headwater: {message()} ({path} --help shows how to use it)"


def _unexpected(error: Exception) -> str:
    """What to say of an error that no command foresees: the machine refuses something, or there is a bug."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"headwater: the run cannot continue: {error.strerror or error}{where}"
    return f"headwater: internal error: {type(error).__name__}: {error} (a bug; --debug shows where)"


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code; whatever goes wrong is said in a sentence."""
    gc.set_threshold(*GC_THRESHOLD)
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    words = [word for word in (sys.argv[1:] if arguments is None else arguments) if word != "--debug"]
    try:
        sys.exit(_invoke(words))
    except (RunFailed, JobFailed, ProviderError) as error:
        if debug:
            raise
        say(f"headwater: {error}")
        sys.exit(1)
    except HeadwaterError as error:
        if isinstance(error.__cause__, MemoryError):
            _out_of_memory(words)
        # Diagnostics of rules begin with their file and line and stand for themselves.
        say(str(error) if "\n" in str(error) else f"headwater: {error}")
        sys.exit(2)
    except BrokenPipeError:
        # The reader of the output has seen enough. The interpreter must not try to flush what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        say("headwater: stopped")
        sys.exit(STOPPED)
    except MemoryError:
        _out_of_memory(words)
    except Exception as error:
        usage = _usage_error(error)
        if usage is not None:
            say(usage)
            sys.exit(2)
        if debug:
            raise
        say(_unexpected(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
