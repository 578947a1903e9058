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
        "check": "Is it right, and what does it do? Rules, and network files.",
        "run": "Find composite events in a file or a stream.",
        "explain": "Why did my pattern not fire?",
    },
    "Networks": {
        "plan": "Where rules are best evaluated, and what that costs.",
        "simulate": "Run one in virtual time: results, traffic, delay.",
        "up": "Run one for real, on this machine, and leave it running.",
        "ps": "Show its processes.",
        "logs": "Show what they say.",
        "down": "End it; its data stays.",
    },
    "A running network": {
        "rules": "Which rules hold, since when, and where they are evaluated.",
        "deploy": "Add rules, or replace them.",
        "undeploy": "End rules.",
        "subscribe": "See what is found, here and now, or have it delivered.",
        "subscriptions": "Who hears of what.",
        "unsubscribe": "End subscriptions.",
    },
    "Single processes, for machines of your own": {
        "coordinator": "Holds a network together; changes are made through it.",
        "node": "One node of a network.",
        "broker": "A small MQTT broker, where there is no other.",
        "keys": "Keys for links that leave a machine.",
    },
    "Data in bulk, on Spark": {
        "traces": "Turn raw data into event streams by node.",
        "statistics": "Count in them what planners need.",
        "replay": "Stream a prepared trace into a running network.",
        "verify": "Compare what a run delivered with what Spark finds in the trace.",
        "report": "What runs sent, found and took; tables and a page.",
        "job": "Package these commands for spark-submit.",
    },
    "Research": {
        "experiment": "Repeat the experiments of papers in the simulator.",
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Detect patterns in streams of events.

    A rule says which events, in which order and how near to each other, make a composite event; it is written in TESLA
    (.tesla) or SASE (.sase). An event has a type, a time (ts), attributes, and the node and number it was born under.

    \b
    headwater check fire.tesla                        is the rule right?
    headwater run fire.tesla --events events.csv      find composite events
    headwater explain fire.tesla --events events.csv  why did my pattern not fire?

    A network (.yaml) says which nodes there are, where events come in, by which rules they are joined, and who wants to
    hear of what. Nodes share the work and give the results that one engine would give. A node that dies is started
    again and goes on where it was.

    \b
    headwater simulate fire.yaml                      in virtual time
    headwater up fire.yaml                            one process for each node
    headwater ps                                      then also logs -f, down
    headwater deploy alarm.tesla                      another rule, while it runs
    headwater subscribe Fire                          what it finds, as it finds it

    Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 the run failed, 2 the input
    is wrong.
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


def _out_of_memory(given: list[str]) -> NoReturn:
    instead = "or a shorter window" if "--count" in given else "a shorter window, or only --count"
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
    return f"headwater: {message()} ({path} --help tells more)"


def _unexpected(error: Exception) -> str:
    """What to say of an error that no command foresees: the machine refuses something, or there is a bug."""
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        return f"headwater: the run cannot go on: {error.strerror or error}{where}"
    return f"headwater: internal error: {type(error).__name__}: {error} (a bug; --debug shows where)"


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and leave with its exit code; whatever goes wrong is said in a sentence."""
    gc.set_threshold(*GC_THRESHOLD)
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    given = [word for word in (sys.argv[1:] if arguments is None else arguments) if word != "--debug"]
    try:
        sys.exit(_invoke(given))
    except (RunFailed, JobFailed, ProviderError) as error:
        if debug:
            raise
        say(f"headwater: {error}")
        sys.exit(1)
    except HeadwaterError as error:
        if isinstance(error.__cause__, MemoryError):
            _out_of_memory(given)
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
        _out_of_memory(given)
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
