"""The rows of a figure as text, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headwater.deploy.experiments.confidence import Mean
from headwater.deploy.experiments.inev.figures import Figure
from headwater.deploy.experiments.results import ResultRow
from headwater.deploy.experiments.tables import Curve, curves

LEGEND_INSIDE_MAX: Final = 4  # with more entries a legend would cover what it explains


def drawn(rows: Iterable[ResultRow], figure: Figure) -> Iterator[tuple[str, str, Curve]]:
    """For every line and every column that is shown of it: both names, and the means over x."""
    rows = list(rows)
    for column in figure.columns:
        by_line = curves(rows, figure.name, column, list(figure.lines))
        for line, curve in by_line.items():
            yield line, column, curve


def table(rows: Sequence[ResultRow], figure: Figure) -> str:
    """Every line at every x, a column for each thing that is shown."""
    points: dict[tuple[float, str], dict[str, Mean]] = {}
    for line, column, curve in drawn(rows, figure):
        for x, point in curve.items():
            points.setdefault((x, line), {})[column] = point
    order = list(figure.lines)
    ordered = sorted(points, key=lambda key: (key[0], order.index(key[1])))
    cells = {key: [shown(points[key].get(column)) for column in figure.columns] for key in ordered}
    widths = [max(map(len, column)) for column in zip(figure.columns.values(), *cells.values(), strict=True)]
    axis = max(len(figure.axis), *map(len, figure.named.values()), 4) if figure.named else max(len(figure.axis), 4)
    name = max(map(len, order))
    head = "  ".join(f"{title:>{width}}" for title, width in zip(figure.columns.values(), widths, strict=True))
    text = [f"figure {figure.name}: {figure.title}", f"  {figure.axis:>{axis}}  {'line':{name}}  {head}"]
    for x, line in ordered:
        shown_x = figure.named.get(x, f"{x:g}")
        values = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells[x, line], widths, strict=True))
        text.append(f"  {shown_x:>{axis}}  {line:{name}}  {values}")
    return "\n".join(text)


def shown(value: Mean | None) -> str:
    """With three digits, however small it is, since ratios reach from 1 to 1e-8, and with all of a large number."""
    if value is None:
        return "-"
    return _digits(value.value, 3) + ("" if value.half_width is None else f" ± {_digits(value.half_width, 2)}")


def _digits(number: float, digits: int) -> str:
    return f"{number:,.0f}" if abs(number) >= 10**digits else f"{number:.{digits}g}"


def plot(rows: Sequence[ResultRow], figure: Figure, file: Path) -> None:
    """Write a PNG with means over seeds: a colour for each line, a style for each column.

    Linear axes have 95 % confidence intervals. On logarithmic ones, where a mean is often that of one large value and
    many small ones, pale dots show every run.
    """
    from matplotlib.figure import Figure as Picture

    panels = figure.panels or {_vertical(figure): tuple(figure.columns)}
    picture = Picture(figsize=(7.5 if len(panels) == 1 else 5.6 * len(panels), 4.6), layout="constrained")
    drawn_curves = list(drawn(rows, figure))
    for number, (label, columns) in enumerate(panels.items()):
        panel = picture.add_subplot(1, len(panels), number + 1)
        shown_here = [(line, column, curve) for line, column, curve in drawn_curves if column in columns]
        # What is 0, like some estimates, cannot be drawn on a logarithmic axis and is left out.
        logarithmic = figure.logarithmic and any(
            point.value > 0 for _, _, curve in shown_here for point in curve.values()
        )
        runs = rows if logarithmic else ()
        _draw(panel, figure, columns, shown_here, runs, figure.reference if number == 0 else {})
        if logarithmic:
            panel.set_yscale("log", nonpositive="mask")
        else:
            panel.set_ylim(bottom=0)
        panel.set_ylabel(label)
    seeds = len({row.seed for row in rows})
    counted = "1 seed" if seeds == 1 else f"mean of {seeds} seeds"
    picture.suptitle(f"{_called(figure)}: {figure.title} ({counted})", fontsize="medium")
    picture.savefig(file, dpi=120, metadata={"Software": "headwater"})


def _called(figure: Figure) -> str:
    return figure.name.capitalize().replace("-", " ") if figure.name.startswith("table") else f"Figure {figure.name}"


def _vertical(figure: Figure) -> str:
    return next(iter(figure.columns.values())) if len(figure.columns) == 1 else figure.measure


def _draw(
    panel: Any,
    figure: Figure,
    columns: Sequence[str],
    drawn_curves: Sequence[tuple[str, str, Curve]],
    runs: Sequence[ResultRow],
    reference: Mapping[str, Mapping[float, float]],
) -> None:
    lines = list(figure.lines)
    beside = 0.5 / max(1, len(lines) + len(reference))  # points over a name stand side by side

    def place(x: float, number: int) -> float:
        return x + beside * (number - (len(lines) + len(reference) - 1) / 2) if figure.named else x

    for line, column, curve in drawn_curves:
        number, style = lines.index(line), columns.index(column)
        colour = f"C{number if len(lines) > 1 else style}"
        panel.errorbar(
            [place(x, number) for x in curve],
            [point.value for point in curve.values()],
            yerr=None if runs else [point.half_width or 0.0 for point in curve.values()],
            label=", ".join(_names(figure, columns, line, column)),
            color=colour,
            marker="os^dv*"[number % 6],
            markerfacecolor="none" if style % 2 else None,
            linestyle="none" if figure.named else ("-", "--", ":", "-.")[style % 4],
            linewidth=1.3,
            elinewidth=0.8,
            capsize=3,
        )
        dots = [(place(row.x, number), row.figures[column]) for row in runs if row.strategy == line]
        shown_dots = [(x, value) for x, value in dots if value]
        if len(shown_dots) > len(curve):
            panel.plot(*zip(*shown_dots, strict=True), ".", color=colour, alpha=0.25, markersize=4)
    for number, (name, curve_of) in enumerate(reference.items()):
        places = [place(x, len(lines) + number) for x in curve_of]
        marker = "x+"[number % 2]
        panel.plot(places, list(curve_of.values()), label=name, color="black", marker=marker, linestyle="none")
    if figure.spaced:
        panel.set_xscale("log")
    if figure.named:
        panel.set_xticks(list(figure.named), list(figure.named.values()))
    panel.set_xlabel(figure.axis)
    entries = len(panel.get_legend_handles_labels()[0])
    if entries > LEGEND_INSIDE_MAX or (entries and figure.named):
        panel.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    elif entries:
        panel.legend(fontsize="x-small")
    panel.grid(alpha=0.3)


def _names(figure: Figure, columns: Sequence[str], line: str, column: str) -> list[str]:
    """What tells a curve from the others of its panel."""
    named = [line] if len(figure.lines) > 1 or len(columns) == 1 else []
    return named + ([figure.columns[column]] if len(columns) > 1 else [])
