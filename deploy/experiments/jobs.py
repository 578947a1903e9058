"""One run of an experiment: a scenario under a strategy with a seed, for some virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from headwater.deploy.experiments.trex.figures import Sweep
from headwater.deploy.experiments.trex.generator import build, expected_deliveries_per_s, rates_per_s
from headwater.deploy.experiments.trex.measures import Measures, measure
from headwater.deploy.experiments.trex.scenario import Scenario

WARM_UP_S: Final = 30.0
"""Nothing is measured in this time after the first sources begin to publish."""

DELIVERIES_MAX: Final = 2_000_000
"""All that a run delivers is kept until it is measured. A run that is expected to deliver more is made shorter, because
``each`` over frequent events makes thousands of composite events in a second."""

WINDOWS_LEAST: Final = 3  # no run is made shorter than this many windows


Figure = int | str
"""The number of a figure, with a letter where it has several parts: 12, "6a"."""


@dataclass(frozen=True, slots=True)
class Job:
    """What must be known to repeat a run. ``places`` are the points (figure, x) whose results it gives."""

    scenario: Any
    """A Scenario, or what another experiment varies: a frozen value with a ``fingerprint`` of its own."""
    strategy: str
    """The line of a figure that the run belongs to."""
    seed: int
    time_s: float
    """Time of the network that is measured, the warm-up not included."""
    places: tuple[tuple[Figure, float], ...] = field(default=(), compare=False)

    def name(self) -> str:
        places = " and ".join(f"figure {figure} at {x:g}" for figure, x in self.places) or "calibration"
        return f"{places}, {self.strategy}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a run gave, and the seconds it took."""

    measures: Measures
    wall_s: float


Runner = Callable[[Job, Callable[[float], None]], Any]
"""Does a job and gives its result. It says now and then which share of it is done."""


def run_job(job: Job, progress: Callable[[float], None]) -> Result:
    """Simulate the job's network twice: up to the end of the warm-up, and to the end."""
    from headwater.deploy.simulation.simulator import simulate

    began = time.perf_counter()
    network, births = build(job.scenario, job.seed)
    network = replace(network, strategy=job.strategy)
    from_us = round(WARM_UP_S * 1e6)
    until_us = from_us + round(job.time_s * 1e6)
    work_us = until_us + from_us

    def tell_progress(offset_us: int) -> Callable[[int], None]:
        return lambda virtual_us: progress(min(1.0, (offset_us + virtual_us) / work_us))

    warm_up, whole = (
        simulate(
            network,
            births(stop_us),
            strategy=job.strategy,
            seed=job.seed,
            until_us=stop_us,
            on_progress=tell_progress(offset_us),
        )
        for stop_us, offset_us in ((from_us, 0), (until_us, from_us))
    )
    return Result(measure(whole, warm_up, from_us, until_us), time.perf_counter() - began)


def jobs_of(
    sweeps: Iterable[Sweep],
    strategies: Sequence[str],
    seeds: Sequence[int],
    time_s: Callable[[Scenario, int], float],
    only: Callable[[Figure, float, str], bool] = lambda figure, x, strategy: True,
) -> list[Job]:
    """The runs that these figures need, each once: points of several figures may be the same run."""
    jobs: dict[Job, Job] = {}
    for sweep in sweeps:
        for x, scenario in sweep.points.items():
            for seed in seeds:
                for strategy in strategies:
                    if not only(sweep.figure, x, strategy):
                        continue
                    job = Job(scenario, strategy, seed, time_s(scenario, seed))
                    earlier = jobs.get(job, job)
                    jobs[job] = replace(earlier, places=(*earlier.places, (sweep.figure, float(x))))
    return list(jobs.values())


@lru_cache(maxsize=4096)
def work_per_s(scenario: Scenario, seed: int) -> tuple[float, float]:
    """Events born and composite events delivered (expected) in a second of the network."""
    network, _ = build(scenario, seed)
    rates = rates_per_s(scenario, seed)
    return sum(rates), expected_deliveries_per_s(network, rates, scenario.values)


def bounded_time_s(asked_s: float, scenario: Scenario, seed: int) -> float:
    """The time asked for, or less where the deliveries of that time would not fit."""
    _, deliveries_per_s = work_per_s(scenario, seed)
    if deliveries_per_s * asked_s <= DELIVERIES_MAX:
        return asked_s
    return min(asked_s, max(WINDOWS_LEAST * scenario.window_s, round(DELIVERIES_MAX / deliveries_per_s)))


def work(job: Job) -> float:
    """How much there is to do, in events: only ratios mean something."""
    return sum(work_per_s(job.scenario, job.seed)) * (job.time_s + 2 * WARM_UP_S)
