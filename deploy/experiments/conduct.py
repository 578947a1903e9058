"""Conducts an experiment: which runs are left, how long they will take, and writing their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headwater.deploy.experiments.jobs import Job, Runner, work
from headwater.deploy.experiments.parallel import Failure, run_all
from headwater.deploy.experiments.results import ResultRow, Results, rows_of
from headwater.deploy.experiments.trex.figures import DEFAULT

CALIBRATION_S: Final = 10.0
"""Time of the network in the runs that tell how fast this machine is."""

Watch = Callable[[float], None]
"""Told the share of all work that is done."""


def conduct(
    jobs: Sequence[Job],
    results: Results,
    run: Runner,
    processes: int,
    watch: Watch = lambda share: None,
    *,
    weigh: Callable[[Job], float] = work,
    rows: Callable[[Job, Any], list[ResultRow]] = rows_of,
    reuse: bool = False,
) -> list[Failure]:
    """Run the jobs that have no results yet and keep what they give; the failures are returned, nothing is tried twice.

    ``weigh`` tells how much there is to do in a job, ``rows`` makes lines of its result. ``reuse``: many are so
    short that a process should do several.
    Whenever this is stopped, what was finished is on disk, and the same call goes on from there.
    """
    left = in_order_of_work(results.missing(jobs), weigh)
    weights = [weigh(job) for job in left]
    whole = sum(weights)

    def watched(shares: Sequence[float]) -> None:
        watch(sum(share * weight for share, weight in zip(shares, weights, strict=True)) / whole)

    failures = []
    for job, result in run_all(left, run, processes, watched, reuse=reuse):
        if isinstance(result, Failure):
            failures.append(result)
        else:
            results.add(rows(job, result))
    results.tidy()
    return failures


def in_order_of_work(jobs: Sequence[Job], weigh: Callable[[Job], float] = work) -> list[Job]:
    """The longest first, so that at the end no core waits for a long one that began last."""
    return sorted(jobs, key=weigh, reverse=True)


def calibrate(strategies: Sequence[str], run: Runner, processes: int) -> dict[str, float]:
    """Seconds that a unit of work takes under each strategy, from short runs of the default scenario.

    A strategy that cannot even do that is left out: its runs will tell why.
    """
    jobs = [Job(DEFAULT, strategy, 1, CALIBRATION_S) for strategy in strategies]
    return {
        job.strategy: result.wall_s / work(job)
        for job, result in run_all(jobs, run, processes)
        if not isinstance(result, Failure)
    }


def estimate_s(jobs: Sequence[Job], seconds_per_work: dict[str, float], processes: int) -> float:
    """About how long these jobs will take, the cores evenly used; one job cannot use more than one core."""
    slowest = max(seconds_per_work.values(), default=0.0)
    seconds = [work(job) * seconds_per_work.get(job.strategy, slowest) for job in jobs]
    return max(sum(seconds) / processes, max(seconds, default=0.0))
