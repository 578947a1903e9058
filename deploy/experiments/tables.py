"""The rows of a figure as means over seeds, and as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headwater.deploy.experiments.confidence import Mean, mean
from headwater.deploy.experiments.jobs import Figure
from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.trex.figures import Sweep
from headwater.protocol.strategy import TREE_STRATEGIES

Curve = Mapping[float, Mean]


def curves(
    rows: Iterable[ResultRow], figure: Figure, column: str, strategies: Sequence[str] = TREE_STRATEGIES
) -> dict[str, Curve]:
    """For every strategy, in the order people name them, the means of a column over x. Seeds without a value are left
    out."""
    samples: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        value = row.figures[column]
        if row.figure == figure and value is not None:
            samples.setdefault(row.strategy, {}).setdefault(row.x, []).append(value)
    return {
        strategy: {x: mean(values) for x, values in sorted(samples[strategy].items())}
        for strategy in strategies
        if strategy in samples
    }


def table(rows: Sequence[ResultRow], sweep: Sweep) -> str:
    """Delay and traffic of every strategy at every x, as text."""
    delays = curves(rows, sweep.figure, "delay_mean_ms")
    traffic = curves(rows, sweep.figure, "traffic_per_s")
    lines = [f"figure {sweep.figure}: {sweep.title}"]
    width = len(sweep.axis)
    lines.append(f"  {sweep.axis}  {'strategy':8}  {'delay ms':>16}  {'events/s on links':>20}")
    for x in sorted({x for curve in traffic.values() for x in curve}):
        for strategy, curve in traffic.items():
            if x in curve:
                delay = delays.get(strategy, {}).get(x)
                lines.append(f"  {x:>{width}g}  {strategy:8}  {shown(delay):>16}  {shown(curve[x]):>20}")
    return "\n".join(lines)


def shown(value: Mean | None) -> str:
    if value is None:
        return "-"
    return f"{value.value:,.2f}" + ("" if value.half_width is None else f" ± {value.half_width:,.2f}")
