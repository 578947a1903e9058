"""``headwater experiment``: repeat the experiments of papers in the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headwater.deploy.cli.common import say
from headwater.deploy.cli.experiment_eires import eires
from headwater.deploy.cli.experiment_inev import inev
from headwater.deploy.cli.experiment_runs import chosen, chosen_size, run_left, runs_at_once, words
from headwater.deploy.experiments.conduct import calibrate, estimate_s
from headwater.deploy.experiments.jobs import Job, run_job
from headwater.deploy.experiments.plots import check_plotting, plot
from headwater.deploy.experiments.results import ResultRow, Results
from headwater.deploy.experiments.tables import table
from headwater.deploy.experiments.trex.figures import SWEEPS
from headwater.deploy.experiments.trex.findings import findings
from headwater.deploy.experiments.trex.sizes import FULL, MODERATE, QUICK, TrexSize
from headwater.deploy.network.units import duration_us
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import TREE_STRATEGIES, strategy_of

experiment = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Repeat the experiments of papers.")


@experiment.callback()
def _experiment() -> None:
    """Repeat the experiments of papers.

    \b
    headwater experiment trex --quick            check the findings of the T-Rex paper (minutes)
    headwater experiment trex --figure 12        one figure, with its CSV file and its picture
    headwater experiment inev --quick            check the findings of the INEv paper (minutes)
    headwater experiment eires --quick           check the findings of the EIRES paper (a minute)
    """


experiment.command()(inev)
experiment.command()(eires)


@experiment.command()
def trex(
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Only these figures, 10 to 20: -f 10 -f 12, or -f 10,12.", metavar="N"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to run for every point.", metavar="K")] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="Measured network time per run: 20min, 24h.", metavar="T")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the runs that the four findings need, with one seed.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size: 24 h of network time, 10 seeds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for CSV files and pictures.", metavar="DIR")] = Path("trex-results"),
    strategies: Annotated[
        list[str] | None,
        typer.Option("--strategies", "-s", help="Only these: -s st -s mt, or -s st,mt.", metavar="NAME"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="How many runs at the same time. [default: one per core]")
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the pictures (needs matplotlib).")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --full, however long it takes.")] = False,
) -> None:
    """Repeat the evaluation of the T-Rex deployment strategies.

    Figures 10 to 20: delay and traffic of centr, st, mt, st-pp and mt-pp over the number of rules, subscriptions,
    processors and so on. The default is 3 seeds and 20 minutes of network time; the command first estimates
    how long it will take.

    Every finished run is kept in DIR; the same command continues where it stopped.
    """
    size = _size(quick, full, seeds, time)
    figures = _figures(figure, size)
    names = _strategies(strategies)
    at_once = runs_at_once(processes)
    if plots:
        check_plotting()
    jobs = size.jobs(figures, names)
    if not jobs:
        raise ConfigError("--quick makes no runs of these figures with these strategies; leave --quick out")
    _say_shortened(jobs, size)
    results = Results(out)
    _run(jobs, results, at_once, asks=full and not yes)
    rows = results.of(jobs)
    _report(rows, results, plots)


def _size(quick: bool, full: bool, seeds: int | None, time_text: str | None) -> TrexSize:
    size = chosen_size(quick, full, seeds, (QUICK, MODERATE, FULL))
    if time_text is not None:
        time_us = duration_us(time_text)
        if time_us < 1_000_000:
            raise ConfigError(f"--time {time_text} is too short to measure anything; give it at least 1s")
        size = replace(size, time_s=time_us / 1e6)
    return size


def _figures(names: Sequence[str] | None, size: TrexSize) -> list[int]:
    figures = SWEEPS if size.points is None else size.points
    wanted = chosen("figure", words(names), [str(figure) for figure in SWEEPS])
    return [figure for figure in figures if not wanted or str(figure) in wanted]


def _strategies(names: Sequence[str] | None) -> Sequence[str]:
    """Those named, or all that build trees."""
    named = [strategy_of(word) for word in words(names)]
    planned = [strategy.name for strategy in named if strategy.planned]
    if planned:
        raise ConfigError(
            f"the paper's strategies build trees, and {planned[0]} does not; choose from {', '.join(TREE_STRATEGIES)}"
        )
    return chosen("strategy", [strategy.name for strategy in named], TREE_STRATEGIES) or TREE_STRATEGIES


def _say_shortened(jobs: Sequence[Job], size: TrexSize) -> None:
    full = replace(size, bounded=False)
    shortened = {
        (figure, x): job.time_s
        for job in jobs
        if job.time_s < full.time_of(job.scenario, job.seed)
        for figure, x in job.places
    }
    for (figure, x), time_s in sorted(shortened.items()):
        say(f"figure {figure} at {x:g}: only {time_s:g} s of network time, because it finds very many composites")


def _run(jobs: Sequence[Job], results: Results, processes: int, *, asks: bool) -> None:
    def estimated_s(left: Sequence[Job]) -> float:
        say("a short calibration measures how long they take ..")
        speeds = calibrate(sorted({job.strategy for job in left}, key=TREE_STRATEGIES.index), run_job, processes)
        return estimate_s(left, speeds, processes)

    refusal = (
        "and keeps every event of a run in memory; add --yes to begin, or choose a smaller --time or --seeds"
        if asks
        else None
    )
    run_left(jobs, results, run_job, processes, estimated_s, refusal=refusal)


def _report(rows: Sequence[ResultRow], results: Results, plots: bool) -> None:
    written = []
    for figure in sorted({row.figure for row in rows}):
        of_figure = [row for row in rows if row.figure == figure]
        sweep = SWEEPS[int(figure)]
        print(table(of_figure, sweep) + "\n")
        written.append(results.path(figure))
        if plots:
            written.append(results.path(figure, "png"))
            plot(of_figure, sweep, written[-1])
    print("findings")
    for finding in findings(rows):
        print(finding.text())
    say(f"written: {', '.join(map(str, written))}")
