"""The rows of a figure as text, and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from deploy.experiments.confidence import Mean
from deploy.experiments.inev.figures import Figure
from deploy.experiments.results import Row
from deploy.experiments.tables import Curve, curves


def drawn(rows: Iterable[Row], figure: Figure) -> Iterator[tuple[str, str, Curve]]:
    """For every line and every column that is shown of it: both names, and the means over x."""
    rows = list(rows)
    for column in figure.columns:
        found = curves(rows, figure.name, column, list(figure.lines))
        for line, curve in found.items():
            yield line, column, curve


def table(rows: Sequence[Row], figure: Figure) -> str:
    """Every line at every x, a column for each thing that is shown."""
    found: dict[tuple[float, str], dict[str, Mean]] = {}
    for line, column, curve in drawn(rows, figure):
        for x, point in curve.items():
            found.setdefault((x, line), {})[column] = point
    order = list(figure.lines)
    titles = [figure.columns[column] for column in figure.columns]
    widths = [max(len(title), 24) for title in titles]
    axis = max(len(figure.axis), *map(len, figure.named.values()), 4) if figure.named else max(len(figure.axis), 4)
    name = max(map(len, order))
    head = "  ".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True))
    text = [f"figure {figure.name}: {figure.title}", f"  {figure.axis:>{axis}}  {'line':{name}}  {head}"]
    for x, line in sorted(found, key=lambda key: (key[0], order.index(key[1]))):
        cells = (found[x, line].get(column) for column in figure.columns)
        shown_x = figure.named.get(x, f"{x:g}")
        values = "  ".join(f"{shown(cell):>{width}}" for cell, width in zip(cells, widths, strict=True))
        text.append(f"  {shown_x:>{axis}}  {line:{name}}  {values}")
    return "\n".join(text)


def shown(value: Mean | None) -> str:
    """With three digits, however small it is: ratios reach from 1 to 1e-8."""
    if value is None:
        return "-"
    return f"{value.value:.3g}" + ("" if value.half_width is None else f" ± {value.half_width:.2g}")


def plot(rows: Sequence[Row], figure: Figure, file: Path) -> None:
    """Write a PNG with means over seeds and their 95 % confidence intervals."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7.5, 4.4), layout="constrained")
    panel = picture.subplots()
    several = len(figure.columns) > 1
    for line, column, curve in drawn(rows, figure):
        panel.errorbar(
            list(curve),
            [point.value for point in curve.values()],
            yerr=[min(point.half_width or 0.0, point.value * 0.99) for point in curve.values()],
            label=f"{line}, {figure.columns[column]}" if several else line,
            marker="os^dv"[list(figure.lines).index(line) % 5],
            linestyle=("-", "--", ":")[list(figure.columns).index(column) % 3],
            capsize=3,
        )
    if figure.logarithmic:
        panel.set_yscale("symlog", linthresh=1e-9)
    if figure.spaced:
        panel.set_xscale("log")
    if figure.named:
        panel.set_xticks(list(figure.named), list(figure.named.values()))
    panel.set_xlabel(figure.axis)
    panel.set_ylabel(" / ".join(figure.columns.values()))
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize="small")
    panel.grid(alpha=0.3)
    seeds = len({row.seed for row in rows})
    counted = "1 seed" if seeds == 1 else f"{seeds} seeds, 95 % confidence"
    picture.suptitle(f"Figure {figure.name}: {figure.title} ({counted})")
    picture.savefig(file, dpi=120, metadata={"Software": "headwater"})
