"""One run of the experiment: an engine with a strategy, in simulated time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from headwater.deploy.experiments.eires.scenario import LIMIT, LookupScenario
from headwater.deploy.experiments.eires.station import ELEMENT_BYTES, Outcome, Station, measure
from headwater.deploy.experiments.eires.synthetic import Synthetic
from headwater.deploy.experiments.eires.tuning import TunedMemory
from headwater.deploy.experiments.jobs import Job
from headwater.deploy.experiments.results import KEY_COLUMNS
from headwater.node.engine import Engine
from headwater.node.engine.program import compile_rules

PERCENTILES: Final = {"p5_us": 0.05, "p25_us": 0.25, "p50_us": 0.5, "p75_us": 0.75, "p95_us": 0.95}
COUNTS: Final = ("matches", "fetched", "prefetched", "prefetched_late", "prefetched_unused", "hits", "misses")
COLUMNS: Final = (*KEY_COLUMNS, *PERCENTILES, "measured", "events_per_s", "used", *COUNTS, "wall_s")

Figures = dict[str, float | None]


def run_job(job: Job, progress: Callable[[float], None]) -> Figures:
    """What a run gives, by column; percentiles are None where no match was measured."""
    began = time.perf_counter()
    outcome = outcome_of(job.scenario, job.seed, progress)
    figures: Figures = {
        **{column: _finite(outcome.percentile(share)) for column, share in PERCENTILES.items()},
        "measured": len(outcome.latencies_us),
        "events_per_s": outcome.events_per_s,
        "used": outcome.used,
        **{column: getattr(outcome, column) for column in COUNTS},
        "wall_s": time.perf_counter() - began,
    }
    assert set(figures) == set(COLUMNS) - set(KEY_COLUMNS)
    return figures


def outcome_of(
    scenario: LookupScenario,
    seed: int,
    progress: Callable[[float], None] = lambda share: None,
    cpu_ns: Callable[[], int] = time.thread_time_ns,
) -> Outcome:
    """Run a scenario. ``cpu_ns`` measures what the engine's work takes."""
    workload = scenario.workload
    rules, tables = workload.rules(), workload.tables()
    if scenario.strategy == LIMIT:
        station = Station(Engine(rules, remote=tables), None, workload, scenario.latency_us, seed=seed, cpu_ns=cpu_ns)
        return measure(station, workload.trace(seed), progress)
    memory = TunedMemory(
        tables,
        scenario.tuning,
        seed,
        policy=scenario.strategy,
        cache=scenario.cache,
        cache_bytes=int(workload.keys * scenario.cached_share) * ELEMENT_BYTES,
    )
    engine = Engine(compile_rules(rules, remote=memory.tables), memory=memory)
    station = Station(engine, memory, workload, scenario.latency_us, seed=seed, cpu_ns=cpu_ns)
    return measure(station, workload.trace(seed), progress)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def seconds_of(job: Job) -> float:
    """About how long a run takes on one core."""
    workload = job.scenario.workload
    event_us = 40.0
    if isinstance(workload, Synthetic):
        event_us = 110.0 if workload.query == "Q2" and workload.selection == "any" else 70.0
    at_hand = 0.5 if job.scenario.strategy == LIMIT else 1.0
    return float(0.1 + workload.events * event_us * at_hand / 1e6)
