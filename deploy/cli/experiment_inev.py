"""``headwater experiment inev``: what plans save, on random networks and on recorded streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.experiment_runs import chosen, chosen_size, run_left, runs_at_once, words
from headwater.deploy.experiments.inev.figures import (
    FIGURES,
    FULL,
    LARGE,
    MODELLED_TABLE,
    MODERATE,
    QUICK,
    TABLE,
    Figure,
    case_studies,
    modelled_studies,
)
from headwater.deploy.experiments.inev.findings import findings
from headwater.deploy.experiments.inev.modelled_studies import STREAMS
from headwater.deploy.experiments.inev.recordings import RECORDINGS, TABLE_3, present
from headwater.deploy.experiments.inev.runs import COLUMNS, run_job, seconds_of
from headwater.deploy.experiments.inev.tables import plot, table
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.plots import check_plotting
from headwater.deploy.experiments.results import ResultRow, Results, rows_at
from headwater.protocol.errors import ConfigError

DATA_VARIABLE: Final = "HEADWATER_DATA"
DAYS_MAX: Final = math.ceil(RECORDINGS[LARGE].days)


def inev(
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Only these: -f 6a -f 9b, or -f 6 for 6a to 6d.", metavar="NAME"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to run for every point.", metavar="K")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, 3 seeds, short searches: minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size: 50 seeds, long searches.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for CSV files and pictures.", metavar="DIR")] = Path("inev-results"),
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with recorded streams (inev-citibike-bikes/ ..), for the case studies.",
            metavar="DIR",
            envvar=DATA_VARIABLE,
        ),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="How many days of the largest recording to use, 1 to 31.", metavar="N")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="How many runs at the same time. [default: one per core]")
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the pictures (needs matplotlib).")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --full, however long it takes.")] = False,
) -> None:
    """Repeat the evaluation of INEv graphs.

    Figures 4 to 12: the cost of plans relative to centralised evaluation, over the skew of rates, the size of the
    network, the number of queries and so on; with --data also the case studies of table 3. The default is 5 seeds.

    Every finished run is kept in DIR; the same command continues where it stopped.
    """
    size = chosen_size(quick, full, seeds, (QUICK, MODERATE, FULL))
    if days is not None:
        if not 1 <= days <= DAYS_MAX:
            raise ConfigError(f"--days must be between 1 and {DAYS_MAX}; the recording has no more")
        size = replace(size, days=days)
    figures = chosen_figures(figure, [] if data is None else studies_in(data, size.days))
    at_once = runs_at_once(processes)
    if plots:
        check_plotting()
    jobs = size.jobs(figures)
    results = results_in(out)

    def estimated_s(left: Sequence[Job]) -> float:
        return sum(map(seconds_of, left)) / at_once

    refusal = "; add --yes to begin, or choose fewer --seeds" if full and not yes else None
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
    lines = dict.fromkeys(line for figure in FIGURES.values() for line in figure.lines)
    return Results(folder, COLUMNS, list(lines), numbered=False)


def studies_in(data: Path, days: int) -> list[Figure]:
    """The case studies whose streams are in a folder; what is left out is said, and ConfigError if none is there."""
    if not data.is_dir():
        raise ConfigError(f"there is no folder {data}; --data (or {DATA_VARIABLE}) is the folder with recorded streams")
    folders = dict.fromkeys(
        [*(recording.folder for recording in RECORDINGS.values()), *(stream.folder for stream in STREAMS.values())]
    )
    there = [name for name in folders if present(data, name)]
    if not there:
        raise ConfigError(
            f"{data} has none of the recorded streams; there should be folders {', '.join(folders)} in it"
        )
    if len(there) < len(folders):
        say(f"left out, since {data} does not have them: {', '.join(name for name in folders if name not in there)}")
    folder = str(data.absolute())
    recorded = [name for name, recording in RECORDINGS.items() if recording.folder in there]
    for name in recorded:
        RECORDINGS[name].check(data)
    studies = [case_studies(folder, days, recorded), modelled_studies(folder, there)]
    return [study for study in studies if study.lines]


def chosen_figures(named: Sequence[str] | None, studies: Iterable[Figure] = ()) -> list[Figure]:
    """Those named; a number stands for all of its parts."""
    by_name = {**FIGURES, **{study.name: study for study in studies}}
    names: list[str] = []
    for word in words(named):
        if word in (TABLE, MODELLED_TABLE) and word not in by_name:
            raise ConfigError(f"{word} needs recorded streams: name their folder with --data or {DATA_VARIABLE}")
        parts = [name for name in by_name if word.isdecimal() and name.partition("-")[0].rstrip("abcde") == word]
        names += parts or chosen("figure", [word], list(by_name))
    return [figure for name, figure in by_name.items() if not names or name in names]


def _report(rows: Sequence[ResultRow], figures: Sequence[Figure], results: Results, plots: bool) -> None:
    written = []
    for figure in figures:
        of_figure = [row for row in rows if row.figure == figure.name]
        if not of_figure:
            continue
        print(table(of_figure, figure))
        if figure.name in (TABLE, MODELLED_TABLE):
            for name, ratios in TABLE_3.items():
                print(f"  the paper, {name}: " + ", ".join(f"Q{at} {ratio:g}" for at, ratio in ratios.items()))
        print()
        written.append(results.path(figure.name))
        if plots:
            written.append(results.path(figure.name, "png"))
            plot(of_figure, figure, written[-1])
    print("findings")
    for finding in findings(rows):
        print(finding.text())
    say(f"written: {', '.join(map(str, written))}")
