"""The figures of the INEv evaluation: what each varies, the lines it has, and the scenario of every point."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.deploy.experiments.inev.case_studies import CaseStudy
from headwater.deploy.experiments.inev.modelled_studies import STREAMS, ModelledStudy
from headwater.deploy.experiments.inev.random_rules import RunScenario
from headwater.deploy.experiments.inev.recordings import RECORDINGS, TABLE_3
from headwater.deploy.experiments.inev.scenario import PlanScenario
from headwater.deploy.experiments.jobs import Job

RATIO: Final = {"ratio": "transmission ratio"}
SELECTIVITIES: Final = (0.1, 0.01, 0.001)
WORKLOADS: Final = (5, 10, 20)
SKEWS: Final = (1.1, 1.2, 1.3, 1.5, 1.7, 2.0)
SHARES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """Lines, each with a scenario for every value on the horizontal axis; ``columns`` are what is shown of each."""

    name: str
    title: str
    axis: str
    lines: Mapping[str, Mapping[float, Any]]
    columns: Mapping[str, str] = field(default_factory=lambda: RATIO)
    logarithmic: bool = True
    """On the vertical axis."""
    measure: str = "transmission ratio"
    """What the vertical axis shows if there are several columns."""
    panels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Which columns are drawn beside each other, by what their vertical axis shows; empty: all of them in one."""
    spaced: bool = False
    """Whether also the horizontal axis is logarithmic."""
    quick: Sequence[float] | None = None
    """The points that are enough to see what comes out; None: all of them."""
    named: Mapping[float, str] = field(default_factory=dict)
    """Words for the values on the axis, where they are not numbers: such points are not joined by lines."""
    reference: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    """What others found, over x; it is shown beside the first column."""


def lines(
    names: Iterable[Any],
    label: Callable[[Any], str],
    points: Iterable[float],
    make: Callable[[Any, float], Any],
) -> dict[str, dict[float, Any]]:
    """A line for each name, with the scenario that ``make`` gives at each point."""
    xs = list(points)
    return {label(name): {x: make(name, x) for x in xs} for name in names}


def _selectivities(points: Iterable[float], make: Callable[[float], PlanScenario]) -> dict[str, dict[float, Any]]:
    return lines(SELECTIVITIES, selectivity_label, points, lambda share, x: replace(make(x), selectivity=share))


def selectivity_label(upper: float) -> str:
    return f"selectivity {upper:g}"


def _workloads(points: Iterable[float], make: Callable[[float], PlanScenario]) -> dict[str, dict[float, Any]]:
    return lines(WORKLOADS, "{} queries".format, points, lambda queries, x: replace(make(x), queries=queries))


_SIX: Final = PlanScenario(types=6, length=6)
_SEVEN: Final = PlanScenario(types=7, length=7)
_MANY: Final = PlanScenario(types=25, queries=10, special="third")
_PLANNERS: Final = ("inev", "paper", "push-pull")
_DYNAMIC: Final = PlanScenario(kind="swaps", types=20, queries=15)


def _compared(base: PlanScenario) -> dict[str, dict[float, Any]]:
    return lines(_PLANNERS, str, SKEWS, lambda planner, x: replace(base, planner=planner, skew=x))


def _operator(special: Any) -> dict[str, dict[float, Any]]:
    return {
        label: {x: replace(_SEVEN, special=special, special_most=bool(x), plain=plain) for x in (0.0, 1.0)}
        for label, plain in (("with the operator", False), ("without", True))
    }


_EXTREMES: Final = {0.0: "lowest rate", 1.0: "highest rate"}
_BROKEN: Final = {"broken": "broken", "repaired": "repaired", "replanned": "re-planned"}
_TURNED: Final = "share that turned invalid"
_INVALID: Final = {"invalid_projections": "invalid projections", "invalid_placements": "invalid placements"}


def _swaps(selectivity: float) -> dict[str, dict[float, Any]]:
    points = {x: replace(_DYNAMIC, selectivity=selectivity, swapped=x) for x in SHARES}
    return {selectivity_label(selectivity): points}


FIGURES: Final[Mapping[str, Figure]] = {
    figure.name: figure
    for figure in (
        Figure(
            "4a", "Comparison of planners, at most one event in a window", "event skew",
            _compared(replace(_SIX, at_most_once=True)), quick=(1.1, 1.3, 2.0),
        ),
        Figure("4b", "Comparison of planners", "event skew", _compared(_SIX), quick=(1.1, 1.3, 2.0)),
        Figure(
            "5a", "Closeness to the estimate", "event skew",
            lines((0.1, 0.01), selectivity_label, SKEWS, lambda share, x: replace(_SIX, selectivity=share, skew=x)),
            columns={"ratio": "plan", "estimate_ratio": "estimate"}, quick=(1.1, 1.3, 2.0),
        ),
        Figure(
            "5a-exact", "Cost over that of the cheapest plan there is", "nodes",
            lines(
                ("inev", "paper"), str, (3, 4, 5, 6),
                lambda planner, x: PlanScenario(
                    kind="bound", planner=planner, nodes=int(x), types=4, queries=2, length=3, selectivity=0.1
                ),
            ),
            columns={"over_exact": "cost over the cheapest"}, logarithmic=False, quick=(3, 5),
        ),
        Figure(
            "5b", "Planning time", "types of the query",
            lines(
                ("inev", "paper"), str, (3, 4, 5, 6, 7, 8),
                lambda planner, x: PlanScenario(planner=planner, types=int(x), length=int(x)),
            ),
            columns={"seconds": "seconds", "projections": "projections"}, quick=(4, 6, 7, 8),
            panels={"planning time (s)": ("seconds",), "projections of the query": ("projections",)},
        ),
        Figure(
            "6a", "Event skew", "event skew", _selectivities(SKEWS, lambda x: replace(_SEVEN, skew=x)),
            quick=(1.1, 1.3, 2.0),
        ),
        Figure(
            "6b", "Network size", "nodes",
            _selectivities((10, 20, 30, 40, 50), lambda x: replace(_SEVEN, nodes=int(x))), quick=(10, 30, 50),
        ),
        Figure(
            "6c", "Event node ratio", "share of nodes that produce a type",
            _selectivities((0.2, 0.4, 0.5, 0.6, 0.8, 1.0), lambda x: replace(_SEVEN, ratio=x)), quick=(0.2, 0.5, 1.0),
        ),
        Figure(
            "6d", "Out-degree", "neighbours on average",
            _selectivities((2, 4, 6, 8, 10), lambda x: replace(_SEVEN, degree=int(x))), quick=(2, 6, 10),
        ),
        Figure("7a", "Kleene closure", "over the type with the", _operator("kleene"), named=_EXTREMES),
        Figure("7b", "Negation", "of the type with the", _operator("negation"), named=_EXTREMES),
        Figure(
            "8a", "Several queries: event types", "event types",
            _workloads((6, 10, 15, 20, 25), lambda x: replace(_MANY, types=int(x))), quick=(6, 15, 25),
        ),
        Figure(
            "8b", "Several queries: event skew", "event skew", _workloads(SKEWS, lambda x: replace(_MANY, skew=x)),
            quick=(1.1, 2.0),
        ),
        Figure(
            "8c", "Several queries: network size", "nodes",
            _workloads((10, 20, 30, 40, 50), lambda x: replace(_MANY, nodes=int(x))), quick=(10, 40),
        ),
        Figure(
            "8d", "Several queries: event node ratio", "share of nodes that produce a type",
            _workloads((0.2, 0.4, 0.5, 0.6, 0.8, 1.0), lambda x: replace(_MANY, ratio=x)), quick=(0.2, 1.0),
        ),
        Figure("9a", "What rate swaps make invalid", "share of rates swapped", _swaps(0.1), _INVALID, False, _TURNED),
        Figure("9b", "Rate swaps", "share of rates swapped", _swaps(0.1), _BROKEN),
        Figure("9c", "What rate swaps make invalid", "share of rates swapped", _swaps(0.001), _INVALID, False, _TURNED),
        Figure("9d", "Rate swaps", "share of rates swapped", _swaps(0.001), _BROKEN),
        Figure(
            "9e", "Variance of rates", "standard deviation, relative",
            lines(
                (0.1, 0.001), selectivity_label, (0.0, 0.1, 0.25, 0.5, 1.0),
                lambda share, x: replace(_DYNAMIC, kind="variance", selectivity=share, variance=x),
            ),
            {"broken": "planned for the mean", "replanned": "re-planned"}, quick=(0.0, 0.5, 1.0),
        ),
        Figure(
            "10a", "Benefit of sharing", "queries",
            lines(
                ("inev", "paper"), str, WORKLOADS,
                lambda planner, x: PlanScenario(kind="sharing", planner=planner, types=10, queries=int(x)),
            ),
            {"isolated_ratio": "cost over that of queries planned alone"}, False,
        ),
        Figure(
            "10b", "Orders of the workload", "queries",
            lines(
                ("inev", "paper"), str, (5, 10, 20, 30),
                lambda planner, x: PlanScenario(
                    kind="orders", planner=planner, types=10, queries=int(x), orders=50
                ),
            ),
            {"spread": "standard deviation of the ratio"}, False, quick=(5, 10),
        ),
        Figure(
            "11", "Simulated: traffic, delay and load beside centralised", "orders of magnitude between rates",
            {"inev": {x: RunScenario(orders=x) for x in (1.0, 1.5, 2.0, 2.5)}},
            {
                "ratio": "traffic, modelled", "measured_ratio": "traffic, measured", "delay_ratio": "delay",
                "load_ratio": "load of the busiest node",
            },
            measure="inev over centralised", quick=(1.0, 2.0),
        ),
        Figure(
            "12a", "Latency factor", "latency factor",
            lines(
                (1.1, 1.3, 1.5, 1.7), "skew {}".format, (1e-12, 1e-9, 1e-6, 1e-3, 1.0),
                lambda skew, x: PlanScenario(kind="latency", types=7, queries=5, skew=skew, latency_factor=x),
            ),
            {"latency_ratio": "latency over that of centralised"}, spaced=True, quick=(1e-12, 1e-6, 1.0),
        ),
        Figure(
            "12a-bounded", "Latency factor, plans no slower than centralised", "latency factor",
            lines(
                (1.1, 1.3, 1.5, 1.7), "skew {}".format, (1e-9, 1e-6, 1.0),
                lambda skew, x: PlanScenario(
                    kind="latency", types=7, queries=5, skew=skew, latency_factor=x, bounded=True
                ),
            ),
            spaced=True, quick=(1e-9, 1.0),
        ),
        Figure(
            "12b", "Simulated: delay of links", "delay of a link (ms)",
            {"inev": {x: RunScenario(orders=1.0, link_delay_ms=x) for x in (5.0, 100.0, 200.0)}},
            {"delay_ms": "delay (ms)", "delay_ratio": "delay over that of centralised"}, False,
            panels={"delay (ms)": ("delay_ms",), "delay over that of centralised": ("delay_ratio",)},
        ),
    )
}  # fmt: skip


TABLE: Final = "table-3"
MODELLED_TABLE: Final = "table-3-modelled"


LARGE: Final = "Citi Bike"
"""The recording of which only the first days are run by default; the others are small."""

_PAPER: Final = {f"the paper, {name}": {float(at): ratio for at, ratio in row.items()} for name, row in TABLE_3.items()}


def _named(queries: Iterable[int]) -> dict[float, str]:
    return {float(query): f"Q{query}" for query in sorted(queries)}


def case_studies(folder: str, days: int, recordings: Iterable[str] = tuple(RECORDINGS)) -> Figure:
    """What table 3 has, on the recordings in a folder on which queries can be evaluated."""
    studies: dict[str, dict[float, CaseStudy]] = {}
    for name in recordings:
        recording = RECORDINGS[name]
        whole = math.ceil(recording.days)
        days_taken = min(days, whole) if name == LARGE else whole
        label = f"{name}, {recording.nodes} nodes, {days_taken} day{'s' * (days_taken > 1)}"
        studies[label] = {
            float(query): CaseStudy(recording=name, query=query, days=days_taken, folder=folder)
            for query in recording.queries
        }
    return Figure(
        TABLE,
        "Case studies, run",
        "query",
        studies,
        {
            "ratio": "modelled ratio",
            "measured_ratio": "measured ratio",
            "load_ratio": "load of the busiest node",
            "delivered": "matches",
            "delivered_centr": "matches, centralised",
        },
        panels={
            "transmission ratio": ("ratio", "measured_ratio"),
            "load of the busiest node over centralised": ("load_ratio",),
        },
        named=_named({int(query) for points in studies.values() for query in points}),
        reference=_PAPER,
    )


def modelled_studies(folder: str, folders: Iterable[str]) -> Figure:
    """The same on streams of which only rates are known, as far as their folders are there."""
    there = set(folders)
    return Figure(
        MODELLED_TABLE,
        "Case studies on streams without attributes, modelled",
        "query",
        {
            name: {float(query): ModelledStudy(stream=name, query=query, folder=folder) for query in stream.queries}
            for name, stream in STREAMS.items()
            if stream.folder in there
        },
        {"ratio": "modelled ratio"},
        named=_named({1, 2, 3, 4}),
        reference=_PAPER,
    )


@dataclass(frozen=True, slots=True)
class InevSize:
    """How often every point is run, and how long plans of workloads are searched for."""

    seeds: int
    attempts: int
    days: int
    """Of the largest recording."""
    orders: int
    """Of a workload whose order is varied."""
    topologies: int
    """How many networks every query of the case studies is run on; the events are the same each time."""
    quick: bool = False

    def jobs(self, figures: Iterable[Figure]) -> list[Job]:
        """The runs that these figures need, each once."""
        jobs: dict[Job, Job] = {}
        for figure in figures:
            for line, points in figure.lines.items():
                for x, scenario in points.items():
                    if self.quick and figure.quick is not None and x not in figure.quick:
                        continue
                    if isinstance(scenario, PlanScenario):
                        orders = min(self.orders, scenario.orders)
                        scenario = replace(scenario, attempts=self.attempts, orders=orders)
                    recorded = isinstance(scenario, CaseStudy | ModelledStudy)
                    for seed in range(1, 1 + (min(self.seeds, self.topologies) if recorded else self.seeds)):
                        job = Job(scenario, line, seed, scenario.time_s)
                        earlier = jobs.get(job, job)
                        jobs[job] = replace(earlier, places=(*earlier.places, (figure.name, float(x))))
        return list(jobs.values())


QUICK: Final = InevSize(seeds=3, attempts=50, orders=5, days=1, topologies=1, quick=True)
MODERATE: Final = InevSize(seeds=5, attempts=200, orders=5, days=7, topologies=1)
FULL: Final = InevSize(seeds=50, attempts=2000, orders=50, days=31, topologies=10)
"""The paper's number of runs and orders, with the plans that running networks get."""
