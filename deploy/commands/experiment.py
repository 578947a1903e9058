"""``headwater experiment``: repeat the experiments of papers in the simulator."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final

import typer

from deploy.commands.common import RunFailed, say
from deploy.experiments.conduct import calibrate, conduct, estimate_s
from deploy.experiments.findings import findings
from deploy.experiments.jobs import Job, run_job
from deploy.experiments.parallel import cores
from deploy.experiments.plots import check_plotting, plot
from deploy.experiments.results import Results, Row
from deploy.experiments.sizes import FULL, MODERATE, QUICK, Size
from deploy.experiments.sweeps import SWEEPS
from deploy.experiments.tables import table
from deploy.units import duration_us
from protocol.errors import ConfigError
from protocol.network import TREE_STRATEGIES

TRUSTED_SHARE: Final = 0.02  # of the work that must be done before the time left is told from it

experiment = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Repeat experiments of papers.")


@experiment.callback()
def _experiment() -> None:
    """Repeat the experiments of papers in the simulator.

    \b
    headwater experiment trex --quick            do the findings of the T-Rex paper come out? (minutes)
    headwater experiment trex --figure 12        one figure, with its CSV file and its picture
    """


@experiment.command()
def trex(
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Only these figures, 10 to 20: -f 10 -f 12, or -f 10,12.", metavar="N"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of every point, each with another seed.", metavar="K")] = None,
    time: Annotated[
        str | None, typer.Option("--time", help="Time of the network that is measured: 20min, 24h.", metavar="T")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only what answers the four findings, with one seed.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size: 24 h of network time, 10 seeds.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for CSV files and pictures.", metavar="DIR")] = Path("trex-results"),
    strategies: Annotated[
        list[str] | None,
        typer.Option("--strategies", "-s", help="Only these: -s st -s mt, or -s st,mt.", metavar="NAME"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", "-j", help="Runs at the same time; by default one for each core.")
    ] = None,
    plots: Annotated[bool, typer.Option("--plots/--no-plots", help="Draw the pictures (needs matplotlib).")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Begin, however long it takes.")] = False,
) -> None:
    """Repeat the evaluation of the T-Rex deployment strategies.

    Figures 10 to 20: delay and traffic of centr, st, mt, st-pp and mt-pp over the number of rules, subscriptions,
    processors and so on. By default 3 seeds and 20 minutes of network time; the time it will take is told beforehand.

    Every finished run is kept in DIR; the same command goes on where it was stopped.
    """
    size = _size(quick, full, seeds, time)
    figures = _figures(figure, size)
    chosen = _chosen("strategy", _words(strategies), TREE_STRATEGIES) or TREE_STRATEGIES
    at_once = cores() if processes is None else processes
    if at_once < 1:
        raise ConfigError("--processes must be at least 1")
    if plots:
        check_plotting()
    jobs = size.jobs(figures, chosen)
    if not jobs:
        raise ConfigError("--quick makes no runs of these figures with these strategies; leave --quick out")
    _say_shortened(jobs, size)
    results = Results(out)
    _run(jobs, results, at_once, asks=full and not yes)
    rows = results.of(jobs)
    _report(rows, results, plots)


def _size(quick: bool, full: bool, seeds: int | None, time_text: str | None) -> Size:
    if quick and full:
        raise ConfigError("--quick and --full exclude each other")
    size = QUICK if quick else FULL if full else MODERATE
    if seeds is not None:
        if seeds < 1:
            raise ConfigError("--seeds must be at least 1")
        size = replace(size, seeds=seeds)
    if time_text is not None:
        time_us = duration_us(time_text)
        if time_us < 1_000_000:
            raise ConfigError(f"--time {time_text} is too short to measure anything; give it at least 1s")
        size = replace(size, time_s=time_us / 1e6)
    return size


def _figures(given: Sequence[str] | None, size: Size) -> list[int]:
    known = SWEEPS if size.points is None else size.points
    wanted = _chosen("figure", _words(given), [str(figure) for figure in SWEEPS])
    return [figure for figure in known if not wanted or str(figure) in wanted]


def _words(given: Sequence[str] | None) -> list[str]:
    return [word.strip() for text in given or () for word in text.split(",") if word.strip()]


def _chosen(what: str, words: Sequence[str], known: Sequence[str]) -> list[str]:
    """The known ones that were named, in their own order."""
    for word in words:
        if word not in known:
            raise ConfigError(f"there is no {what} {word!r}; there are {', '.join(known)}")
    return [name for name in known if name in words]


def _say_shortened(jobs: Sequence[Job], size: Size) -> None:
    full = replace(size, bounded=False)
    shortened = {
        (figure, x): job.time_s
        for job in jobs
        if job.time_s < full.time_of(job.scenario, job.seed)
        for figure, x in job.places
    }
    for (figure, x), time_s in sorted(shortened.items()):
        say(f"figure {figure} at {x:g}: only {time_s:g} s of network time, since it makes so many composite events")


def _run(jobs: Sequence[Job], results: Results, processes: int, *, asks: bool) -> None:
    left = results.missing(jobs)
    if not left:
        say(f"all {_count(len(jobs), 'run')} are in {results.folder} already")
        return
    kept = f" ({len(jobs) - len(left):,} of {len(jobs):,} are there already)" if len(left) < len(jobs) else ""
    say(f"{_count(len(left), 'run')} to make{kept}; a short calibration tells how long they take ..")
    speeds = calibrate(sorted({job.strategy for job in left}, key=TREE_STRATEGIES.index), run_job, processes)
    expected_s = estimate_s(left, speeds, processes)
    if speeds:
        say(f"about {show_s(expected_s)} on {_count(processes, 'core')}")
    if asks:
        raise ConfigError(
            f"the full size takes about {show_s(expected_s)} and keeps every event of a run in memory; "
            "add --yes to begin, or choose a smaller --time or --seeds"
        )
    try:
        with Bar(expected_s) as bar:
            failures = conduct(left, results, run_job, processes, bar.update)
    except KeyboardInterrupt:
        say(f"what was finished is in {results.folder}; the same command goes on from there")
        raise
    for failure in failures:
        say(f"failed: {failure.job.name()}: {failure.reason}")
    if failures:
        raise RunFailed(
            f"{len(failures):,} of {_count(len(left), 'run')} failed; the others are in {results.folder}, "
            "and the same command makes only those that are missing"
        )


def _report(rows: Sequence[Row], results: Results, plots: bool) -> None:
    written = []
    for figure in sorted({row.figure for row in rows}):
        of_figure = [row for row in rows if row.figure == figure]
        print(table(of_figure, SWEEPS[figure]) + "\n")
        written.append(results.path(figure))
        if plots:
            written.append(results.path(figure, "png"))
            plot(of_figure, SWEEPS[figure], written[-1])
    print("findings")
    for finding in findings(rows):
        print(finding.text())
    say(f"written: {', '.join(map(str, written))}")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def show_s(seconds: float) -> str:
    """A time to wait, as people say it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:,.1f} h"


class Bar:
    """How much of the work is done and how long the rest takes, on a terminal; nothing at all in a pipe."""

    def __init__(self, expected_s: float, *, shown: bool | None = None) -> None:
        self._expected_s = expected_s
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._began = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Bar:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("runs"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %  about {task.fields[left]} left"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("runs", total=1.0, left=show_s(self._expected_s))
            self._bar.start()
        return self

    def update(self, share: float) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=share, left=show_s(self.left_s(share)))

    def left_s(self, share: float) -> float:
        """What is left, from the time taken so far; before that says much, from the estimate."""
        taken_s = time.monotonic() - self._began
        if share < TRUSTED_SHARE:
            return max(0.0, self._expected_s - taken_s)
        return taken_s * (1 - share) / share

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()
