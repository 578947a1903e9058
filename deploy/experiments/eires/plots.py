"""A figure as a picture: for each strategy the span of latencies, and how many events it can take in a second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.deploy.experiments.inev.figures import Figure
from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.tables import Curve, curves

SPAN: Final = ("p5_us", "p25_us", "p50_us", "p75_us", "p95_us")
SPREAD_MAX: Final = 20  # between bars that are drawn from 0
WIDTH: Final = 0.8  # of what belongs to one value on the horizontal axis


def plot(rows: Sequence[ResultRow], figure: Figure, file: Path) -> None:
    """Write a PNG with means over seeds: a dot at the median, a bar from p25 to p75, a line from p5 to p95."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(12, 4.8), layout="constrained")
    latency, rate = picture.subplots(1, 2)
    names = list(figure.lines)
    of_column = {column: curves(rows, figure.name, column, names) for column in (*SPAN, "events_per_s")}
    places = {x: float(place) for place, x in enumerate(sorted({row.x for row in rows}))}
    for number, name in enumerate(names):
        shift = WIDTH * ((number + 0.5) / len(names) - 0.5)
        colour = f"C{number}"
        _spans(latency, {column: of_column[column].get(name, {}) for column in SPAN}, places, shift, colour, name)
        rates = of_column["events_per_s"].get(name, {})
        at = [places[x] + shift for x in rates]
        rate.bar(at, [point.value for point in rates.values()], WIDTH / len(names), color=colour, label=name)
    for panel, label in ((latency, "latency (us): p5 to p95"), (rate, "events per second at most")):
        panel.set_xticks(list(places.values()), [figure.named.get(x, f"{x:g}") for x in places])
        panel.set_xlabel(figure.axis)
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    if rows:
        latency.set_yscale("log")
        measured = [row.figures["events_per_s"] or 0.0 for row in rows]
        if max(measured) > SPREAD_MAX * min(measured):
            rate.set_yscale("log")
        picture.legend(
            *rate.get_legend_handles_labels(), fontsize="small", ncols=len(names), loc="outside lower center"
        )
    seeds = len({row.seed for row in rows})
    counted = "1 seed" if seeds == 1 else f"mean of {seeds} seeds"
    picture.suptitle(f"Figure {figure.name}: {figure.title} ({counted})", fontsize="medium")
    picture.savefig(file, dpi=120, metadata={"Software": "headwater"})


def _spans(
    panel: Any, spans: Mapping[str, Curve], places: Mapping[float, float], shift: float, colour: str, name: str
) -> None:
    medians = spans["p50_us"]
    at = [places[x] + shift for x in medians]
    low, lower, _, upper, high = ([spans[column][x].value for x in medians] for column in SPAN)
    panel.vlines(at, low, high, color=colour, linewidth=1)
    panel.vlines(at, lower, upper, color=colour, linewidth=4)
    panel.plot(at, [point.value for point in medians.values()], "o", color=colour, markersize=5, label=name)
