"""Figures as pictures: delay on the left, traffic on the right, a curve for each strategy."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.tables import Curve, curves
from headwater.deploy.experiments.trex.figures import Sweep
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import strategy_of

STYLES: Final = {
    "centr": ("#444444", "o", "-"),
    "st": ("#1f77b4", "s", "-"),
    "mt": ("#d62728", "^", "-"),
    "st-pp": ("#1f77b4", "s", "--"),
    "mt-pp": ("#d62728", "^", "--"),
}
"""Colour, marker and line of each strategy: one colour for each kind of tree, dashed where events are pulled."""


def check_plotting() -> None:
    """Say in time that the library for pictures is not installed, not after hours of runs."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            "pictures need matplotlib: pip install 'headwater[experiments]'; --no-plots continues without them"
        )


def plot(rows: Sequence[ResultRow], sweep: Sweep, file: Path) -> None:
    """Write a PNG with means over seeds and their 95 % confidence intervals."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(11, 4.2), layout="constrained")
    panels = picture.subplots(1, 2)
    for panel, column, label in (
        (panels[0], "delay_mean_ms", "average delay (ms)"),
        (panels[1], "traffic_per_s", "traffic (events per second, over all links)"),
    ):
        by_strategy = curves(rows, sweep.figure, column)
        draw = _bars if len(sweep.points) == 1 else _lines
        draw(panel, by_strategy)
        if len(sweep.points) > 1:
            panel.set_xlabel(sweep.axis)
            if sweep.logarithmic:
                panel.set_xscale("log")
                panel.set_xticks(list(sweep.points), [f"{x:g}" for x in sweep.points])
                panel.minorticks_off()
            if by_strategy:
                panel.legend()
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    seeds, times = {row.seed for row in rows}, {row.time_s for row in rows}
    sizes = " to ".join(f"{time_s:g}" for time_s in sorted({min(times), max(times)})) if times else "0"
    counted = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds, 95 % confidence"
    picture.suptitle(f"Figure {sweep.figure}: {sweep.title} ({counted}, {sizes} s of network time)")
    picture.savefig(file, dpi=120, metadata={"Software": "headwater"})


def _lines(panel: Any, by_strategy: dict[str, Curve]) -> None:
    for strategy, curve in by_strategy.items():
        colour, marker, line = STYLES[strategy]
        panel.errorbar(
            list(curve),
            [point.value for point in curve.values()],
            yerr=[point.half_width or 0.0 for point in curve.values()],
            label=strategy,
            color=colour,
            marker=marker,
            linestyle=line,
            capsize=3,
        )


def _bars(panel: Any, by_strategy: dict[str, Curve]) -> None:
    points = {strategy: point for strategy, curve in by_strategy.items() for point in curve.values()}
    panel.bar(
        list(points),
        [point.value for point in points.values()],
        yerr=[point.half_width or 0.0 for point in points.values()],
        color=[STYLES[strategy][0] for strategy in points],
        hatch=["//" if strategy_of(strategy).pulls else "" for strategy in points],
        capsize=4,
    )
