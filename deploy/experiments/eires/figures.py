"""The figures of the EIRES evaluation: what each varies, the lines it has, and the scenario of every point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headwater.deploy.experiments.eires.bushfire import Bushfire
from headwater.deploy.experiments.eires.cluster import Cluster
from headwater.deploy.experiments.eires.scenario import LIMIT, LookupScenario
from headwater.deploy.experiments.eires.station import Range
from headwater.deploy.experiments.eires.synthetic import VALUES, Synthetic
from headwater.deploy.experiments.eires.tuning import Tuning
from headwater.deploy.experiments.inev.figures import Figure, lines
from headwater.deploy.experiments.jobs import Job
from headwater.node.remote.policies import POLICIES
from headwater.node.remote.utility import Weights

SHORT: Final[Range] = (10.0, 100.0)
"""What the paper's elements take, in microseconds."""
MIDDLE: Final[Range] = (100.0, 1000.0)
LONG: Final[Range] = (1000.0, 10_000.0)
"""What they take in its cluster: as long beside our engine's work as its short ones are beside that of the authors'."""
KEYS: Final = 10_000
"""Elements of the synthetic workloads. The paper has 100,000, and streams that are longer in proportion."""

STRATEGIES: Final = (LIMIT, *POLICIES)
OURS: Final = ("prefetch", "lazy", "hybrid")
PANELS: Final = (("next", "cost"), ("next", "lru"), ("any", "cost"), ("any", "lru"))
"""Parts a to d of the overall figures: which events a match takes, and the cache."""
COLUMNS: Final = {
    "p5_us": "p5 us",
    "p25_us": "p25 us",
    "p50_us": "p50 us",
    "p75_us": "p75 us",
    "p95_us": "p95 us",
    "events_per_s": "events/s",
    "used": "share of time",
}

WORKLOADS: Final[Mapping[tuple[str, str], Synthetic]] = {
    ("Q1", "next"): Synthetic("Q1", "DS1", "next", 12_000, 4_000, 400.0, KEYS),
    ("Q1", "any"): Synthetic("Q1", "DS1", "any", 10_000, 2_200, 150.0, KEYS),
    ("Q2", "next"): Synthetic("Q2", "DS1", "next", 8_000, 400, 150.0, KEYS),
    ("Q2", "any"): Synthetic("Q2", "DS1", "any", 6_000, 60, 150.0, KEYS),
}
SLOWER: Final = {query: replace(WORKLOADS[query, "any"], spacing_us=300.0) for query in ("Q1", "Q2")}
"""For the sensitivity analysis, at half the rate: a strategy that pauses should be able to follow."""
BY_HAND: Final = {
    query: Synthetic(query, "DS1", "next", 12_000, 600, 400.0, KEYS, ids=10) for query in ("Q1 late", "Q1 early")
}
STAGES: Final[Range] = (10_000.0, 60_000.0)
"""A run of these comes to its next stage after some 16 ms: its elements take up to four stages."""
CASES: Final[Mapping[str, Bushfire | Cluster]] = {"13a": Bushfire(40_000), "13b": Cluster(15_000)}
CASE_CACHED_SHARES: Final = {Bushfire: 1.0, Cluster: 0.8}
"""The paper's cache of 10,000 elements holds what all areas say, and the regions of most of 12,500 machines."""


def _overall(name: str, query: str, data: str, latency_us: Range, quick: Sequence[float] = (0, 2)) -> Figure:
    def scenario(strategy: str, x: float) -> LookupScenario:
        selection, cache = PANELS[int(x)]
        workload = replace(WORKLOADS[query, selection], data=data)
        return LookupScenario(workload=workload, strategy=strategy, cache=cache, latency_us=latency_us)

    return Figure(
        name,
        f"{query} over {data}, elements after {_shown(latency_us)}",
        "selection, cache",
        lines(STRATEGIES, str, range(len(PANELS)), scenario),
        COLUMNS,
        quick=quick,
        named={float(x): f"{selection}, {cache}" for x, (selection, cache) in enumerate(PANELS)},
    )


def _throughput(name: str, latency_us: Range) -> Figure:
    panels = {float(x): cache for x, (selection, cache) in enumerate(PANELS) if selection == "next"}
    whole = _overall("", "Q1", "DS1", latency_us)
    return Figure(
        name,
        f"Throughput for Q1 under next, elements after {_shown(latency_us)}",
        "cache",
        {strategy: {x: whole.lines[strategy][x] for x in panels} for strategy in STRATEGIES},
        {"events_per_s": "events/s", "p50_us": "p50 us"},
        quick=(0,),
        named=panels,
    )


def _varied(
    name: str,
    title: str,
    axis: str,
    points: Iterable[float],
    quick: Sequence[float],
    make: Callable[[LookupScenario, float], LookupScenario],
    *,
    query: str = "Q1",
    strategies: Sequence[str] = OURS,
    latency_us: Range = MIDDLE,
    spaced: bool = False,
) -> Figure:
    def scenario(strategy: str, x: float) -> LookupScenario:
        base = LookupScenario(workload=SLOWER[query], strategy=strategy, latency_us=latency_us)
        return make(base, x)

    points_of = lines(strategies, str, points, scenario)
    return Figure(name, f"{title} ({query}, any, cost)", axis, points_of, COLUMNS, quick=quick, spaced=spaced)


def _sensitivity(query: str, suffix: str) -> tuple[Figure, ...]:
    return (
        _varied(
            f"10a{suffix}", "Wrong estimations", "share of estimations", (0.0, 0.1, 0.3, 0.5, 0.7, 0.9), (0.0, 0.9),
            lambda base, x: replace(base, tuning=Tuning(noise=x)), query=query,
        ),
        _varied(
            f"10b{suffix}", "Cache size", "share of elements", (0.01, 0.02, 0.05, 0.1, 0.2, 0.5), (0.01, 0.5),
            lambda base, x: replace(base, cached_share=x), query=query, spaced=True,
        ),
        _varied(
            f"10c{suffix}", "Transmission latency", "mean us", (55.0, 137.5, 550.0, 1375.0, 5500.0), (55.0, 5500.0),
            lambda base, x: replace(base, latency_us=(x * 2 / 11, x * 20 / 11)), query=query, spaced=True,
        ),
    )  # fmt: skip


def _small_caches() -> Figure:
    def scenario(strategy: str, x: float) -> LookupScenario:
        return LookupScenario(workload=WORKLOADS["Q1", "next"], strategy=strategy, cached_share=x, latency_us=MIDDLE)

    strategies = ("cache", *OURS)
    points_of = lines(strategies, str, (0.02, 0.05, 0.1, 0.5), scenario)
    title = "Cache size (Q1, next, cost)"
    return Figure("10b-next", title, "share of elements", points_of, COLUMNS, quick=(0.02, 0.5), spaced=True)


def _weights(name: str, title: str, weights: Callable[[float], Weights]) -> Figure:
    return _varied(
        name, title, "weight of urgent utility", (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0), (0.0, 0.5, 0.7, 1.0),
        lambda base, x: replace(base, cached_share=0.02, tuning=Tuning(weights=weights(x))),
        strategies=("prefetch", "hybrid"),
    )  # fmt: skip


def _by_hand(name: str, title: str, query: str, strategy: str, tuned: Callable[[int], Tuning]) -> Figure:
    """With a cache that holds all that the runs need, and with one that does not."""

    def scenario(share: float, x: float) -> LookupScenario:
        return LookupScenario(
            workload=BY_HAND[query], strategy=strategy, cached_share=share, latency_us=STAGES, tuning=tuned(int(x))
        )

    shares = (0.1, 0.02)
    points_of = lines(shares, "cache of {:.0%}".format, range(1, 8), scenario)
    return Figure(name, f"{title} ({query}, next, {strategy})", "stages", points_of, COLUMNS, quick=(1, 3, 7))


def case_study(name: str, workload: Bushfire | Cluster) -> Figure:
    share = CASE_CACHED_SHARES[type(workload)]
    scenarios = {
        strategy: {0.0: LookupScenario(workload=workload, strategy=strategy, cached_share=share, latency_us=LONG)}
        for strategy in STRATEGIES
    }
    title = f"Case study: {workload.name}, elements after {_shown(LONG)}"
    return Figure(name, title, "selection, cache", scenarios, COLUMNS, named={0.0: "any, cost"})


def _shown(latency_us: Range) -> str:
    least, most = latency_us
    return f"{least / 1000:g} to {most / 1000:g} ms" if least >= 1000 else f"{least:g} to {most:g} us"


OVERALL: Final = {"5": ("Q1", "DS1"), "6": ("Q2", "DS1"), "7": ("Q1", "DS2"), "8": ("Q2", "DS2")}
RECORDED: Final = "13b-recorded"

FIGURES: Final[Mapping[str, Figure]] = {
    figure.name: figure
    for figure in (
        *(_overall(name, *of, SHORT) for name, of in OVERALL.items()),
        *(_overall(f"{name}-long", *of, LONG) for name, of in OVERALL.items()),
        _throughput("9", SHORT),
        _throughput("9-long", LONG),
        *_sensitivity("Q1", ""),
        *_sensitivity("Q2", "-q2"),
        _small_caches(),
        _weights("11a", "Weight for fetching", lambda x: Weights(fetch=x)),
        _weights("11b", "Weight for the cache", lambda x: Weights(cache=x)),
        _by_hand("12a", "Lookahead", "Q1 late", "prefetch", lambda stages: Tuning(lookahead=stages)),
        _by_hand("12b", "Stages in doubt", "Q1 early", "lazy", lambda stages: Tuning(stages_in_doubt=stages)),
        *(case_study(name, workload) for name, workload in CASES.items()),
    )
}


@dataclass(frozen=True, slots=True)
class EiresSize:
    """How often every point is run, and how long the streams are beside those of the figures."""

    seeds: int
    share: float = 1.0
    quick: bool = False
    values: int | None = None
    """Elements of the synthetic workloads; None: as the figures have them."""

    def jobs(self, figures: Iterable[Figure]) -> list[Job]:
        """The runs that these figures need, each once."""
        jobs: dict[tuple[Any, ...], Job] = {}
        points = [
            (figure.name, line, x, self.sized(scenario))
            for figure in figures
            for line, scenarios in figure.lines.items()
            for x, scenario in scenarios.items()
            if not self.quick or figure.quick is None or x in figure.quick
        ]
        # Seed after seed: what else the machine does for a while should not fall on all runs of one point.
        for seed in range(1, 1 + self.seeds):
            for name, line, x, scenario in points:
                key = (scenario.fingerprint(), line, seed)
                job = jobs.get(key) or Job(scenario, line, seed, scenario.time_s)
                jobs[key] = replace(job, places=(*job.places, (name, float(x))))
        return list(jobs.values())

    def sized(self, scenario: LookupScenario) -> LookupScenario:
        workload = scenario.workload
        if isinstance(workload, Synthetic) and self.values is not None:
            workload = replace(workload, values=self.values)
        if self.share != 1.0:
            workload = workload.shortened(self.share)
        return replace(scenario, workload=workload)


QUICK: Final = EiresSize(seeds=1, share=1 / 3, quick=True)
MODERATE: Final = EiresSize(seeds=3, share=0.6)
FULL: Final = EiresSize(seeds=20, share=10.0, values=VALUES)
"""The paper's number of runs and of elements; its streams were longer still."""
