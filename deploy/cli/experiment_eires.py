"""``headwater experiment eires``: how long matches wait for remote elements, under each strategy and cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.experiment_runs import chosen, chosen_size, run_left, runs_at_once, words
from headwater.deploy.experiments.eires.cluster import FILE, Cluster
from headwater.deploy.experiments.eires.figures import FIGURES, FULL, MODERATE, QUICK, RECORDED, STRATEGIES, case_study
from headwater.deploy.experiments.eires.findings import findings
from headwater.deploy.experiments.eires.plots import plot
from headwater.deploy.experiments.eires.runs import COLUMNS, run_job, seconds_of
from headwater.deploy.experiments.inev.figures import Figure
from headwater.deploy.experiments.inev.tables import table
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.plots import check_plotting
from headwater.deploy.experiments.results import ResultRow, Results, rows_at
from headwater.protocol.errors import ConfigError

DATA_VARIABLE: Final = "HEADWATER_DATA"
RECORDED_EVENTS: Final = 171_587
RECORDED_SPEED: Final = 10_000.0
HOW: Final = (
    "time is simulated: events and elements come at drawn times, the same for every strategy, and what the engine does "
    "takes the CPU time that it takes here; so matches repeat exactly, latencies as far as CPU time does"
)


def eires(
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Only these: -f 5 -f 10a, or -f 10 for all of its parts.", metavar="NAME"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to run for every point.", metavar="K")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, short streams, 1 seed: a minute.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's 20 runs and 100,000 elements: hours.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for CSV files and pictures.", metavar="DIR")] = Path(
        "eires-results"
    ),
    data: Annotated[
        Path | None,
        typer.Option(
            help=f"A folder with recorded task events ({FILE}), for a case study on them.",
            metavar="DIR",
            envvar=DATA_VARIABLE,
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="How many runs at the same time. [default: one per core]")
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the pictures (needs matplotlib).")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --full, however long it takes.")] = False,
) -> None:
    """Repeat the evaluation of EIRES: remote data in rules.

    Figures 5 to 13: percentiles of the latency of matches, and throughput, of all strategies with both caches; over
    wrong estimations, cache sizes, latencies and weights; with lookahead and lazy classes set by hand; case studies.

    Every finished run is kept in DIR; the same command continues where it stopped.
    """
    size = chosen_size(quick, full, seeds, (QUICK, MODERATE, FULL))
    figures = chosen_figures(figure, [] if data is None else [recorded_study(data)])
    at_once = runs_at_once(processes)
    if plots:
        check_plotting()
    jobs = size.jobs(figures)
    results = results_in(out)

    def estimated_s(left: Sequence[Job]) -> float:
        return sum(map(seconds_of, left)) / at_once

    refusal = "; add --yes to begin, or choose fewer --seeds" if full and not yes else None
    say(HOW)
    failed = None
    try:
        run_left(
            jobs, results, run_job, at_once, estimated_s, refusal=refusal, weigh=seconds_of, rows=rows_at, reuse=True
        )
    except RunFailed as error:
        failed = error  # what the other runs gave is worth showing
    _report(results.of(jobs), figures, results, plots)
    if failed is not None:
        raise failed


def results_in(folder: Path) -> Results:
    """The results of this experiment in a folder."""
    lines = dict.fromkeys([*STRATEGIES, *(line for figure in FIGURES.values() for line in figure.lines)])
    return Results(folder, COLUMNS, list(lines), numbered=False)


def recorded_study(data: Path) -> Figure:
    """Listing 4 on the task events in a folder; ConfigError if they are not there."""
    if not (data / FILE).is_file():
        raise ConfigError(
            f"there is no {data / FILE}; --data (or {DATA_VARIABLE}) is the folder that {FILE.parent} is in"
        )
    return case_study(RECORDED, Cluster(RECORDED_EVENTS, RECORDED_SPEED, str(data.absolute())))


def chosen_figures(named: Sequence[str] | None, studies: Iterable[Figure] = ()) -> list[Figure]:
    """Those named; a number stands for all of its parts."""
    by_name = {**FIGURES, **{study.name: study for study in studies}}
    names: list[str] = []
    for word in words(named):
        if word == RECORDED and word not in by_name:
            raise ConfigError(f"{word} needs recorded task events: name their folder with --data or {DATA_VARIABLE}")
        parts = [name for name in by_name if word.isdecimal() and name.partition("-")[0].rstrip("abc") == word]
        names += parts or chosen("figure", [word], list(by_name))
    return [figure for name, figure in by_name.items() if not names or name in names]


def _report(rows: Sequence[ResultRow], figures: Sequence[Figure], results: Results, plots: bool) -> None:
    written = []
    for figure in figures:
        of_figure = [row for row in rows if row.figure == figure.name]
        if not of_figure:
            continue
        print(table(of_figure, figure) + "\n")
        written.append(results.path(figure.name))
        if plots:
            written.append(results.path(figure.name, "png"))
            plot(of_figure, figure, written[-1])
    if len({row.seed for row in rows}) == 1:
        say("one seed only: differences below some 20 % may be chance, and more so where few matches were measured")
    print("findings")
    for finding in findings(rows):
        print(finding.text())
    say(f"written: {', '.join(map(str, written))}")
