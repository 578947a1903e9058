"""What the runs of ``benchmarks/remote.py`` come to beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.deploy.experiments.eires.station import Outcome
from headwater.node.remote.caches import CACHES


@dataclass(frozen=True, slots=True)
class Run:
    """What a strategy gave with a cache."""

    strategy: str
    cache: str
    outcome: Outcome

    @property
    def p50(self) -> float:
        return self.outcome.percentile(0.5)

    @property
    def p95(self) -> float:
        return self.outcome.percentile(0.95)


def compared(runs: Sequence[Run]) -> Iterator[str]:
    """For each cache, what is to be reached: ``hybrid`` beside ``cache``, the limit, and the best other strategy."""
    limit, *others = runs
    for cache in CACHES:
        of_cache = {run.strategy: run for run in others if run.cache in (cache, "none")}
        hybrid, cached = of_cache.pop("hybrid"), of_cache["cache"]
        best = min(of_cache.values(), key=lambda run: run.p50)
        yield (
            f"- {cache}: cache / hybrid {cached.p50 / hybrid.p50:.1f} at p50 and {cached.p95 / hybrid.p95:.1f} at p95; "
            f"hybrid / limit {hybrid.p50 / limit.p50:.2f}; hybrid / best other ({best.strategy}) "
            f"{hybrid.p50 / best.p50:.2f}"
        )


def disagreement(runs: Sequence[Run]) -> str:
    """What is wrong if strategies have found different matches; empty if they have not."""
    if len({run.outcome.matches for run in runs}) == 1:
        return ""
    return f"strategies disagree: {[(run.strategy, run.cache, run.outcome.matches) for run in runs]}"
