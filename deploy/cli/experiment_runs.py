"""What all experiments share on the command line: progress, the runs that are left, and the choice by options."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, TypeVar

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.experiments.conduct import conduct
from headwater.deploy.experiments.eires.figures import EiresSize
from headwater.deploy.experiments.inev.figures import InevSize
from headwater.deploy.experiments.jobs import Job, Runner
from headwater.deploy.experiments.parallel import cores
from headwater.deploy.experiments.results import Results
from headwater.deploy.experiments.trex.sizes import TrexSize
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

TRUSTED_SHARE: Final = 0.02  # of the work that must be done before the time left is told from it


def run_left(
    jobs: Sequence[Job],
    results: Results,
    run: Runner,
    processes: int,
    estimated_s: Callable[[Sequence[Job]], float],
    *,
    refusal: str | None = None,
    **how: Any,
) -> None:
    """Make the runs that have no results yet, with a bar; RunFailed if any failed.

    ``estimated_s`` tells how long some runs will take. With a ``refusal`` nothing is run: it is said why, and how long
    it would take. ``how`` goes to ``conduct``.
    """
    left = results.missing(jobs)
    if not left:
        say(f"all {plural(len(jobs), 'run')} are in {results.folder} already")
        return
    kept = f" ({len(jobs) - len(left):,} of {len(jobs):,} are there already)" if len(left) < len(jobs) else ""
    say(f"{plural(len(left), 'run')} to make{kept}")
    expected_s = estimated_s(left)
    if expected_s:
        say(f"about {show_s(expected_s)} on {plural(processes, 'core')}")
    if refusal is not None:
        raise ConfigError(f"the full size takes about {show_s(expected_s)} {refusal}")
    try:
        with Bar(expected_s) as bar:
            failures = conduct(left, results, run, processes, bar.update, **how)
    except KeyboardInterrupt:
        say(f"what was finished is in {results.folder}; the same command continues from there")
        raise
    for failure in failures:
        say(f"failed: {failure.job.name()}: {failure.reason}")
    if failures:
        raise RunFailed(
            f"{len(failures):,} of {plural(len(left), 'run')} failed; the others are in {results.folder}, "
            "and the same command makes only those that are missing"
        )


S = TypeVar("S", EiresSize, InevSize, TrexSize)


def chosen_size(quick: bool, full: bool, seeds: int | None, sizes: tuple[S, S, S]) -> S:
    """Of the sizes for --quick, for neither and for --full the one that is asked for, with as many seeds."""
    if quick and full:
        raise ConfigError("--quick and --full exclude each other")
    size = sizes[0 if quick else 2 if full else 1]
    if seeds is None:
        return size
    if seeds < 1:
        raise ConfigError("--seeds must be at least 1")
    return replace(size, seeds=seeds)


def runs_at_once(processes: int | None) -> int:
    """As many as --processes says, or one for each core."""
    at_once = cores() if processes is None else processes
    if at_once < 1:
        raise ConfigError("--processes must be at least 1")
    return at_once


def words(texts: Sequence[str] | None) -> list[str]:
    return [word.strip() for text in texts or () for word in text.split(",") if word.strip()]


def chosen(kind: str, named: Sequence[str], choices: Sequence[str]) -> list[str]:
    """The choices that were named, in their own order; ConfigError if a name is none of them."""
    for word in named:
        if word not in choices:
            raise ConfigError(f"there is no {kind} {word!r}; there are {', '.join(choices)}")
    return [name for name in choices if name in named]


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
