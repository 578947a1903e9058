"""The sizes of an experiment: seeds, virtual time, and which points of which figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.deploy.experiments.jobs import Job, bounded_time_s, jobs_of
from headwater.deploy.experiments.trex.figures import SWEEPS
from headwater.deploy.experiments.trex.scenario import Scenario
from headwater.protocol.strategy import TREE_STRATEGIES

QUICK_POINTS: Final[Mapping[int, Mapping[float, Sequence[str]]]] = {
    10: {0: TREE_STRATEGIES},
    12: dict.fromkeys((1, 2, 5, 10, 20), ("st", "mt")),
    20: {3: ("st", "mt", "st-pp", "mt-pp")},
}
"""The runs that answer the four findings."""

QUICK_WINDOWS: Final = 10
QUICK_LEAST_S: Final = 120.0
"""A quick run lasts ten windows, but no less than this: strategies that adapt to rates must come to know them."""


@dataclass(frozen=True, slots=True)
class TrexSize:
    """``time_s`` None: as long as the scenario's windows ask for. ``points`` None: all of them."""

    seeds: int
    time_s: float | None
    points: Mapping[int, Mapping[float, Sequence[str]]] | None = None
    bounded: bool = True
    """Shorten runs whose results would not fit in memory."""

    def time_of(self, scenario: Scenario, seed: int) -> float:
        time_s = max(QUICK_WINDOWS * scenario.window_s, QUICK_LEAST_S) if self.time_s is None else self.time_s
        return bounded_time_s(time_s, scenario, seed) if self.bounded else time_s

    def jobs(self, figures: Sequence[int], strategies: Sequence[str]) -> list[Job]:
        """The runs of these figures under these strategies."""

        def wanted(figure: int | str, x: float, strategy: str) -> bool:
            return self.points is None or strategy in self.points.get(int(figure), {}).get(x, ())

        seeds = range(1, self.seeds + 1)
        return jobs_of((SWEEPS[figure] for figure in figures), strategies, seeds, self.time_of, wanted)


MODERATE: Final = TrexSize(seeds=3, time_s=20 * 60.0)
QUICK: Final = TrexSize(seeds=1, time_s=None, points=QUICK_POINTS)
FULL: Final = TrexSize(seeds=10, time_s=24 * 3600.0, bounded=False)
"""The paper's: its rarest events come about a hundred times in a day."""
