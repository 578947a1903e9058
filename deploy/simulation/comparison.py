"""Compares strategies over the same events, for one or more seeds: costs relative to ``centr``, with confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.deploy.experiments.confidence import mean
from headwater.deploy.simulation.traffic_and_delay import RunFigures
from headwater.protocol.strategy import CENTRAL

BASELINE: Final = CENTRAL

MEASURES: Final[Mapping[str, str]] = {
    "composites": "composite events delivered",
    "events": "events sent over links",
    "bytes": "bytes sent over links, overhead included",
    "overhead_bytes": "bytes of overhead",
    "messages": "messages, overhead included",
    "delay_p50_us": "median delay",
    "delay_p95_us": "delay that 95 % stay within",
    "delay_p99_us": "delay that 99 % stay within",
}
"""What is compared. Delays run from the timestamp of the latest event to the arrival at the sink."""

RELATIVE: Final = tuple(name for name in MEASURES if name != "composites")
"""What is also given relative to the baseline: every strategy delivers the same."""


@dataclass(frozen=True, slots=True)
class OneRun:
    """One strategy with one seed."""

    seed: int
    values: Mapping[str, float | None]
    """By measure; None where there is nothing to measure, such as the delay of nothing."""
    relative: Mapping[str, float | None]
    """The same divided by centr's, where that is more than nothing."""


@dataclass(frozen=True, slots=True)
class MeasureSpread:
    """A measure over all seeds."""

    mean: float
    half_width_95: float | None
    """Half the width of the 95 % confidence interval of the mean; None of a single seed."""
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float | None]) -> MeasureSpread | None:
        present = [value for value in values if value is not None]
        if not present:
            return None
        average = mean(present)
        return cls(average.value, average.half_width, min(present), max(present))

    def to_json(self) -> dict[str, float | None]:
        return {"mean": self.mean, "half_width_95": self.half_width_95, "min": self.least, "max": self.most}


@dataclass(slots=True)
class ComparedStrategy:
    """One strategy over all seeds."""

    strategy: str
    runs: list[OneRun] = field(default_factory=list)
    why_not: str | None = None
    """Why it cannot serve the network, where it cannot; it has no runs then."""
    differs: list[int] = field(default_factory=list)
    """Seeds with which sinks did not receive what they received under centr."""

    def spread(self, measure: str) -> MeasureSpread | None:
        return MeasureSpread.of([run.values[measure] for run in self.runs])

    def relative(self, measure: str) -> MeasureSpread | None:
        """The mean of the ratios, not the ratio of the means: every seed counts the same."""
        return MeasureSpread.of([run.relative[measure] for run in self.runs])

    def to_json(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "why_not": self.why_not,
            "same_as_centr": None if self.why_not is not None else not self.differs,
            "figures": {name: _json(self.spread(name)) for name in MEASURES},
            "relative_to_centr": {name: _json(self.relative(name)) for name in RELATIVE},
            "runs": [
                {"seed": run.seed, "figures": dict(run.values), "relative_to_centr": dict(run.relative)}
                for run in self.runs
            ],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All strategies that were asked for, with the baseline first."""

    network: str
    seeds: Sequence[int]
    strategies: Sequence[ComparedStrategy]

    def to_json(self) -> dict[str, Any]:
        """The documented form."""
        return {
            "network": self.network,
            "seeds": list(self.seeds),
            "baseline": BASELINE,
            "strategies": [strategy.to_json() for strategy in self.strategies],
        }


def _json(spread: MeasureSpread | None) -> dict[str, float | None] | None:
    return None if spread is None else spread.to_json()


def one_run(seed: int, run: RunFigures, baseline: RunFigures) -> OneRun:
    """The measures of a run, and beside centr with the same seed."""
    ours, theirs = _measured(run), _measured(baseline)
    relative = {name: _ratio(ours[name], theirs[name]) for name in RELATIVE}
    return OneRun(seed, ours, relative)


def _measured(run: RunFigures) -> dict[str, float | None]:
    return {
        "composites": run.composites,
        "events": run.traffic.events,
        "bytes": run.traffic.bytes + run.overhead.bytes,
        "overhead_bytes": run.overhead.bytes,
        "messages": run.traffic.messages + run.overhead.messages,
        **{f"delay_p{share}_us": delay for share, delay in run.delay_us.items()},
    }


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs
