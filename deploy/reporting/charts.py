"""The charts of a report: stacked bars, curves, heat maps, bars."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headwater.deploy.reporting.svg import COLOURS, Chart, bar, decades, explained, legend, none, table, tag, ticks
from headwater.deploy.reporting.traffic_kinds import EXPLAINED
from headwater.node.observe.accounts import KINDS
from headwater.pipeline.report.assemble import between_nodes
from headwater.pipeline.report.tables import Tables
from headwater.protocol.text import count, joined, milliseconds, size

CURVES_MAX: Final = COLOURS  # rules whose curves are drawn, those with most composites
ROWS_MAX: Final = 40  # links in a heat map: those with most in them
BARS_MAX: Final = 20  # buffers in a list
WIDE: Final = 20  # a range whose ends are further apart than this is drawn logarithmically

LINE_WIDTH: Final = 2.2  # of a curve, as page.css has it

Show = Callable[[float | None], str]
Curve = Sequence[tuple[float, float]]


def stacked(tables: Tables, column: str, show: Show, *, overhead: bool) -> str:
    """A bar for each run, in pieces by kind; where centralised is known, a mark where that would be."""
    sums: dict[str, dict[str, int]] = {run["run"]: defaultdict(int) for run in tables["runs"]}
    for row in tables["links"]:
        if between_nodes(row) and (overhead or not row["overhead"]):
            sums[row["run"]][row["kind"]] += row[column]
    central = {run["run"]: run[f"centralised_{column}"] or 0 for run in tables["runs"]}
    most = max([*(sum(kinds.values()) for kinds in sums.values()), *central.values()], default=0) or 1
    bars = ""
    for run, kinds in sums.items():
        pieces = "".join(
            _piece(run, kind, column, kinds[kind], most, show(kinds[kind])) for kind in KINDS if kinds.get(kind)
        )
        if central.get(run):
            tip = f"{run}: everything to one node would be {show(central[run])} of {column}"
            place = f"left:{100 * central[run] / most:.4f}%"
            pieces += tag("b", {"class_": "mark", "style": place, "data_tip": tip, "title": tip})
        bars += bar(run, pieces, show(sum(kinds.values())))
    used = [kind for kind in KINDS if any(kinds.get(kind) for kinds in sums.values())]
    entries = [(kind, f"k-{kind}", EXPLAINED[kind]) for kind in used]
    if any(central.values()):
        entries.append(("centralised", "k-mark", "What sending everything to one node takes."))
    return tag("div", {"class_": "bars"}, bars) + explained(entries)


def _piece(run: str, kind: str, column: str, value: int, most: int, shown: str) -> str:
    tip = f"{run}: {shown} of {kind}"
    data = {"data_run": run, "data_kind": kind, "data_column": column, "data_value": value}
    style = f"width:{100 * value / most:.4f}%"
    return tag("span", {"class_": f"piece k-{kind}", "style": style, "data_tip": tip, "title": tip, **data})


def latency_curves(tables: Tables, curves: Sequence[tuple[str, str, str]]) -> str:
    """Which share of composites took at most how long; a curve for each (run, rule, name)."""
    drawn_curves = []
    for run, rule, name in curves:
        points = [(row["latency_ms"], row["share"]) for row in tables.of("latency_cdf", run) if row["rule"] == rule]
        if points:
            drawn_curves.append((run, rule, name, points))
    if not drawn_curves:
        return none("No latency is known.")
    values = [x for *_, points in drawn_curves for x, _ in points]
    least, most = max(min(values), 0.001), max(*values, 0.001)
    log = most > WIDE * least
    xs = decades(least, most) if log else ticks(1.05 * most, 6)
    chart = Chart((xs[0], xs[-1]), (0, 1), log_x=log)
    words = [(x, milliseconds(x) if x else "0") for x in xs]
    chart.axes(words, [(y / 4, f"{25 * y} %") for y in range(5)], "from the event that completed it to the sink")
    alike = _alike(chart, [(name, points) for _, _, name, points in drawn_curves])
    for colour, (names, curve) in enumerate(alike):
        chart.line([(curve[0][0], 0.0), *curve, (xs[-1], 1.0)], colour, _together(names))
    for run, rule, name, _ in drawn_curves:
        row = next(row for row in tables.of("latency", run) if row["rule"] == rule)
        for share, column in ((0.5, "p50_ms"), (0.9, "p90_ms"), (0.95, "p95_ms"), (0.99, "p99_ms"), (1.0, "max_ms")):
            tip = f"{name}: {100 * share:g} % within {milliseconds(row[column])}"
            chart.spot(row[column], share, tip, run=run, rule=rule, column=column, value=row[column])
    drawn = legend([(_together(names), f"c{i % COLOURS}") for i, (names, _) in enumerate(alike)])
    return chart.svg("latency") + drawn


def _alike(chart: Chart, curves: Sequence[tuple[str, Curve]]) -> list[tuple[list[str], Curve]]:
    """Curves that a reader could not tell apart, put together: they are drawn once."""
    groups: list[tuple[list[str], Curve]] = []
    for name, points in curves:
        same = next((names for names, drawn in groups if _coincide(chart, points, drawn)), None)
        if same is None:
            groups.append(([name], points))
        else:
            same.append(name)
    return groups


def _coincide(chart: Chart, first: Curve, other: Curve) -> bool:
    """Whether two curves lie less than a line's width apart wherever both are."""
    near = (math.dist(chart.at(*a), chart.at(*b)) < LINE_WIDTH for a, b in zip(first, other, strict=False))
    return len(first) == len(other) and all(near)


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{joined(names)} coincide"


def heat_map(
    cells: Mapping[tuple[str, str], int],
    columns: Sequence[str],
    dimension: str,
    run: str,
    tips: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Links by kinds or types; as dark as there is much in a cell, logarithmically. ``tips``: what columns mean."""
    sums: dict[str, int] = defaultdict(int)
    for (link, _), value in cells.items():
        sums[link] += value
    kept = [link for link, total in sorted(sums.items(), key=lambda pair: (-pair[1], pair[0])) if total]
    if not kept:
        return none("Nothing crossed a link.")
    most = max(cells.values())
    rows = []
    for link in kept[:ROWS_MAX]:
        inside = ""
        for column in columns:
            value = cells.get((link, column), 0)
            warm = 0.12 + 0.88 * math.log1p(value) / math.log1p(most) if value else 0
            shade = {"class_": "cell hot" if warm > 0.55 else "cell", "style": f"--warm:{100 * warm:.0f}%"}
            data = {
                "data_run": run,
                "data_link": link,
                "data_what": dimension,
                "data_column": column,
                "data_value": value,
            }
            inside += tag("td", {**shade, "title": f"{link}: {count(value)} {column}", **data}, _short(value))
        rows.append((link, inside))
    more = none(f"and {len(kept) - ROWS_MAX:,} links with less") if len(kept) > ROWS_MAX else ""
    return table(columns, rows, "heat", {name: f"{name}: {words}" for name, words in tips.items()}) + more


def _short(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1e3:,.0f}k" if value < 1e6 else f"{value / 1e6:,.1f}M"


def links_by_kind(tables: Tables, run: str) -> str:
    cells: dict[tuple[str, str], int] = defaultdict(int)
    for row in tables.of("links", run):
        amount = row["messages"] if row["overhead"] else row["events"]
        if between_nodes(row) and amount:
            cells[f"{row['from']} → {row['to']}", row["kind"]] += amount
    used = [kind for kind in KINDS if any(present == kind for _, present in cells)]
    return heat_map(cells, used, "kind", run, EXPLAINED)


def links_by_type(tables: Tables, run: str) -> str:
    cells: dict[tuple[str, str], int] = defaultdict(int)
    for row in tables.of("link_types", run):
        if between_nodes(row):
            cells[f"{row['from']} → {row['to']}", row["type"]] += row["events"]
    return heat_map(cells, sorted({kind for _, kind in cells}), "type", run)


def buffers(tables: Tables, run: str) -> str:
    """What was full, as bars: rows held and queues, the greatest first."""
    html = ""
    kinds: Sequence[tuple[str, Show]] = (
        ("held rows", count),
        ("link queue, messages", count),
        ("link queue, bytes", size),
    )
    for buffer, show in kinds:
        rows = sorted(
            (row for row in tables.of("buffers", run) if row["buffer"] == buffer), key=lambda row: -row["peak"]
        )
        if not rows:
            continue
        bars = ""
        for row in rows[:BARS_MAX]:
            data = {"data_run": run, "data_node": row["node"], "data_buffer": buffer, "data_of": row["of"]}
            style = f"width:{100 * row['peak'] / rows[0]['peak']:.3f}%"
            piece = tag("span", {"class_": "piece k-buffer", "style": style, **data, "data_value": row["peak"]})
            of = f"→ {row['of']}" if buffer.startswith("link") else row["of"].replace("_", " ")
            bars += bar(f"{row['node']} {of}", piece, show(row["peak"]), thin=True)
        more = none(f"and {len(rows) - BARS_MAX:,} with less") if len(rows) > BARS_MAX else ""
        html += tag("h4", {}, f"{buffer}, at most") + tag("div", {"class_": "bars"}, bars) + more
    return html or none("Nothing was held.")
