"""``headwater simulate``: a whole network in virtual time, with its traffic and delay."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Final

import typer

from headwater.coordinator.requests import FallBack
from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.network_options import AllowFunctions
from headwater.deploy.cli.remote import LineageOption
from headwater.deploy.cli.simulated_run import (
    SimulatedRun,
    check_feeds,
    check_functions,
    difference,
    record_beside_centr,
    run_beside_centr,
)
from headwater.deploy.network.units import duration_us
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.traffic_and_delay import delivery_lines, figures, render
from headwater.protocol.edge import RateFeed, TraceFeed
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import STRATEGIES, unknown_strategy
from headwater.protocol.text import UNITS_US, plural, show_us

RULE_SUFFIXES: Final = (".tesla", ".sase")


def simulate(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.yaml")],
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(STRATEGIES)}; several to compare, as in st,mt; or all. "
            "[default: that of the file]",
            metavar="STRATEGY",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Equal seeds give equal runs, to the byte. [default: that of the file, or 0]", metavar="N"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Compare over this many seeds, from --seed on. [default: 1]", metavar="N", min=1),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(help="Write the comparison as an HTML page.", metavar="FILE.html"),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="How long events enter (10s, 5 min). [default: that of the file, or as long as its traces]",
            metavar="DURATION",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check invariants during the run; a violation ends it.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write what the sinks received, as JSON lines in order of arrival.", metavar="FILE"),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(help="Write the tables of all nodes at the end, as one JSON object.", metavar="FILE"),
    ] = None,
    lineage: LineageOption = False,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Create a folder of records, like those of a running network, for `headwater report`.",
            metavar="FOLDER",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing recording.")] = False,
    allow_functions: AllowFunctions = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report; only --json, --out and errors.")] = False,
) -> None:
    """Run a network in virtual time.

    All nodes of the network run in this process: events enter at their sources, nodes evaluate the rules as the
    strategy distributes them, and links delay and lose frames. The report shows what the sinks received, what crossed
    the links, how long composite events took, and which node evaluated what.

    Unless the strategy is centr, which sends every event to one node, centr runs over the same events as well. The
    report compares the two, and the run fails if their sinks received different composite events.

    Several strategies (or all), over one or more seeds, are compared in one table, relative to centr over the same
    events: means with 95 % confidence intervals.

    Example: headwater simulate fire.yaml --strategy mt --out fires.jsonl

    Example: headwater simulate fire.yaml --strategy all --seeds 5 --chart strategies.html
    """
    from headwater.deploy.network.file import read_network

    strategies = _strategies(strategy)
    until_us = None if duration is None else duration_us(duration)
    if len(strategies) > 1 or seeds is not None or chart is not None:
        from headwater.deploy.cli.simulate_several import simulate_several

        _refuse_outputs_of_one_run({"--out": out, "--tables": tables, "--record": record})
        simulate_several(
            network,
            strategies,
            seed=seed,
            seeds=seeds or 1,
            duration_us=until_us,
            check=check,
            allow_functions=allow_functions,
            chart=chart,
            as_json=as_json,
            quiet=quiet,
        )
        return
    strategy = strategies[0] if strategies else None
    file = read_network(network, strategy=strategy, duration_us=until_us)
    for warning in file.warnings:
        say(str(warning))
    if lineage:
        tables_with = tuple(replace(table, lineage=True) for table in file.network.tables)
        file = replace(file, network=replace(file.network, tables=tables_with))
    run = SimulatedRun.of(file, network, seed, check=check)
    check_feeds(run)
    check_functions(run, allowed=allow_functions)
    _check_outputs(run, out, tables)
    started = time.perf_counter()
    outcome, central = _run_into(run, out, tables, record, overwrite=overwrite)
    for sentence in dict.fromkeys(outcome.planner_failures):
        say(f"warning: {sentence}")
    for count, sentence in outcome.rule_failures.values():
        say(f"warning: {sentence} ({plural(count, 'time')})")
    steady = all(table.terms.is_steady for table in file.network.tables)
    if central is not None and steady and (wrong := difference(run, outcome, central)) is not None:
        raise RunFailed(wrong)
    run_figures = figures(outcome, central)
    if as_json:
        print(json.dumps(run_figures.to_json(), ensure_ascii=False))
    elif not quiet:
        print(render(run_figures))
    if not quiet:
        _say_how_it_went(run, outcome, time.perf_counter() - started)


def _run_into(
    run: SimulatedRun, out: Path | None, tables: Path | None, record: Path | None, *, overwrite: bool
) -> tuple[Outcome, Outcome | None]:
    """Run it, with centr beside it, and write what --out, --tables and --record ask for. Files are opened first, so
    that one that cannot be written is known before the run."""
    with contextlib.ExitStack() as stack:
        output = _open_output(out, stack)
        tables_output = _open_output(tables, stack)
        if record is None:
            outcome, central = run_beside_centr(run)
        else:
            outcome, central = record_beside_centr(run, record, overwrite=overwrite)
        if tables_output is not None:
            json.dump(outcome.tables, tables_output, indent=2, ensure_ascii=False)
            tables_output.write("\n")
        if output is not None:
            _write_deliveries(outcome, output)
    return outcome, central


def _strategies(option: str | None) -> list[str]:
    """The strategies that --strategy names, each once; none where it says nothing."""
    if option is None:
        return []
    names: list[str] = []
    for name in option.split(","):
        strategy = name.strip()
        names += STRATEGIES if strategy == "all" else [_checked(strategy)]
    return list(dict.fromkeys(names))


def _checked(strategy: str) -> str:
    if strategy in STRATEGIES:
        return strategy
    raise ConfigError(unknown_strategy(strategy, "all"))


def _say_how_it_went(run: SimulatedRun, outcome: Outcome, seconds: float) -> None:
    """When parts of the plan fell back, and how long the run was."""
    for change, from_us in outcome.held_from:
        if isinstance(change, FallBack):
            say(f"after {_show_span(from_us - min(event.ts for event in outcome.born))}: {change.why}")
    born = len(outcome.born)
    span = _show_span(_span_us(run, outcome))
    say(f"{plural(born, 'event')} in {span} of virtual time, seed {run.seed}; took {seconds:.2f} s")


def _span_us(run: SimulatedRun, outcome: Outcome) -> int:
    """From the first possible birth to the end of the births: rates last for the duration, traces end by themselves."""
    if run.until_us is not None and any(isinstance(feed, RateFeed) for feed in run.file.feeds):
        return run.until_us
    times = [event.ts for event in outcome.born]
    return max(times) - min(times) if times else 0


def _show_span(span_us: int) -> str:
    """A duration with at most two decimals."""
    length = next((unit_us for _, unit_us in UNITS_US[:-1] if span_us >= unit_us), 100)
    hundredth = length // 100
    return show_us(round(span_us / hundredth) * hundredth)


def _refuse_outputs_of_one_run(outputs: Mapping[str, Path | None]) -> None:
    for name, path in outputs.items():
        if path is not None:
            raise ConfigError(
                f"{name} is for one run; leave it out, or simulate one strategy without --seeds or --chart"
            )


def _check_outputs(run: SimulatedRun, out: Path | None, tables: Path | None) -> None:
    refuse_to_overwrite(run, out)
    refuse_to_overwrite(run, tables)
    if out is not None and tables is not None and out.absolute() == tables.absolute():
        raise ConfigError(f"--out and --tables both name {out}; write to two files")


def refuse_to_overwrite(run: SimulatedRun, out: Path | None) -> None:
    """An output that is also an input would be emptied before it is read."""
    if out is None or not out.is_file():  # a terminal or /dev/null is no harm
        return
    if out.suffix in RULE_SUFFIXES:
        raise ConfigError(f"{out} is a rule file; write what sinks receive to another file")
    for read in (run.path, *(Path(feed.path) for feed in run.file.feeds if isinstance(feed, TraceFeed))):
        if read.exists() and out.samefile(read):
            raise ConfigError(f"{out} would be overwritten while it is in use; write to another file")


def _write_deliveries(outcome: Outcome, output: IO[str]) -> None:
    try:
        output.writelines(delivery_lines(outcome.delivered))
        output.flush()
    except OSError as error:
        raise RunFailed(f"cannot write {output.name}: {error.strerror or error}") from None


def _open_output(out: Path | None, stack: contextlib.ExitStack) -> IO[str] | None:
    if out is None:
        return None
    try:
        return stack.enter_context(open(out, "w", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
