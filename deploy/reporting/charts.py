"""The other pictures of a report: stacked bars, curves, heat maps, bars."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from deploy.reporting.drawing import Chart, decades, legend, number, tag, ticks
from deploy.reporting.words import count, milliseconds, rate, size
from node.accounts import KINDS
from pipeline.report.assemble import between_nodes
from pipeline.report.tables import Tables

CURVES_MAX: Final = 8  # rules whose curves are drawn, those with most composites
ROWS_MAX: Final = 40  # links in a heat map, and buffers in a list: those with most in them


def stacked(tables: Tables, column: str, show: Callable[[float | None], str], *, overhead: bool) -> str:
    """A bar for each run, in pieces by kind; where centralised is known, a mark where that would be."""
    sums: dict[str, dict[str, int]] = {run["run"]: defaultdict(int) for run in tables["runs"]}
    for row in tables["links"]:
        if between_nodes(row) and (overhead or not row["overhead"]):
            sums[row["run"]][row["kind"]] += row[column]
    central = {run["run"]: run["centralised_events"] for run in tables["runs"]} if column == "events" else {}
    most = max([*(sum(kinds.values()) for kinds in sums.values()), *central.values()], default=0) or 1
    bars = []
    for run, kinds in sums.items():
        pieces = ""
        for kind in KINDS:
            if kinds.get(kind):
                tip = f"{run}: {show(kinds[kind])} of {kind}"
                pieces += tag("span", {"class_": f"piece k-{kind}", "style": f"width:{100 * kinds[kind] / most:.4f}%",
                                       "data_tip": tip, "title": tip, "data_run": run, "data_kind": kind,
                                       "data_column": column, "data_value": kinds[kind]})  # fmt: skip
        mark = ""
        if central.get(run):
            tip = f"{run}: everything to one node would be {show(central[run])}"
            mark = tag(
                "b",
                {"class_": "mark", "style": f"left:{100 * central[run] / most:.4f}%", "data_tip": tip, "title": tip},
            )
        total = tag("span", {"class_": "total"}, escape(show(sum(kinds.values()))))
        bars.append(
            f'<div class="bar"><span class="what">{escape(run)}</span><span class="track">{pieces}{mark}</span>{total}</div>'
        )
    used = [kind for kind in KINDS if any(kinds.get(kind) for kinds in sums.values())]
    entries = [(kind, f"k-{kind}") for kind in used] + ([("centralised", "k-mark")] if any(central.values()) else [])
    return f'<div class="bars">{"".join(bars)}</div>{legend(entries)}'


def latency_curves(tables: Tables, curves: Sequence[tuple[str, str, str]]) -> str:
    """Which share of composites took at most how long; a curve for each (run, rule, name)."""
    found = [
        (
            name,
            run,
            rule,
            [(row["latency_ms"], row["share"]) for row in tables.of("latency_cdf", run) if row["rule"] == rule],
        )
        for run, rule, name in curves
    ]
    found = [each for each in found if each[3]]
    if not found:
        return '<p class="none">No latency is known.</p>'
    values = [x for *_, points in found for x, _ in points]
    least, most = max(min(values), 0.001), max(max(values), 0.001)
    log = most > 20 * least
    if log:
        xs = [each for each in decades(least, most)]
        chart = Chart((xs[0], xs[-1]), (0, 1), log_x=True)
    else:
        xs = ticks(most, 6)
        chart = Chart((0, xs[-1]), (0, 1))
    chart.axes(
        [(x, milliseconds(x) if x else "0") for x in xs],
        [(y / 4, f"{25 * y} %") for y in range(5)],
        "from the event that completed it to the sink",
    )
    for colour, (name, run, rule, points) in enumerate(found):
        start = [(points[0][0], 0.0)]
        row = next(row for row in tables.of("latency", run) if row["rule"] == rule)
        chart.line(
            start + points + [(xs[-1], 1.0)],
            colour,
            f"{name}: p50 {milliseconds(row['p50_ms'])}, p99 {milliseconds(row['p99_ms'])}",
        )
        for share, column in ((0.5, "p50_ms"), (0.9, "p90_ms"), (0.95, "p95_ms"), (0.99, "p99_ms"), (1.0, "max_ms")):
            tip = f"{name}: {100 * share:g} % within {milliseconds(row[column])}"
            chart.spot(row[column], share, tip, run=run, rule=rule, column=column, value=row[column])
    entries = [(name, f"c{colour % 8}") for colour, (name, *_) in enumerate(found)]
    return chart.svg("latency") + (legend(entries) if len(entries) > 1 or entries[0][0] else "")


def throughput(tables: Tables, run: str) -> str:
    """Events born and composites delivered in a second, over time."""
    rows = list(tables.of("throughput", run))
    made = []
    for colour, (column, name) in enumerate(
        (("born_per_s", "events born in a second"), ("composites_per_s", "composites delivered in a second"))
    ):
        most = max((row[column] for row in rows), default=0)
        ys, xs = ticks(most, 3), ticks(rows[-1]["to_s"], 6) if rows else [0.0, 1.0]
        chart = Chart((0, max(xs[-1], rows[-1]["to_s"] if rows else 1)), (0, ys[-1]), height=190)
        chart.axes([(x, number(x)) for x in xs], [(y, number(y)) for y in ys], "seconds since the beginning")
        points = [(rows[0]["from_s"], rows[0][column])] + [(row["to_s"], row[column]) for row in rows] if rows else []
        chart.area(points, colour * 2, name)
        for row in rows:
            if row[column]:
                tip = f"{row['from_s']:g} to {row['to_s']:g} s: {rate(row[column])}"
                chart.spot((row["from_s"] + row["to_s"]) / 2, row[column], tip)
        made.append(f"<h4>{name}</h4>{chart.svg(name)}")
    return "".join(made)


def heat_map(cells: Mapping[tuple[str, str], int], columns: Sequence[str], what: str, run: str) -> str:
    """Links by kinds or types; as dark as there is much in a cell, logarithmically."""
    rows: dict[str, int] = defaultdict(int)
    for (link, _), value in cells.items():
        rows[link] += value
    kept = [link for link, total in sorted(rows.items(), key=lambda pair: (-pair[1], pair[0])) if total]
    if not kept:
        return '<p class="none">Nothing crossed a link.</p>'
    most = max(cells.values())
    head = "".join(f'<th scope="col"><span>{escape(column)}</span></th>' for column in columns)
    body = ""
    for link in kept[:ROWS_MAX]:
        inside = ""
        for column in columns:
            value = cells.get((link, column), 0)
            warm = 0.12 + 0.88 * math.log1p(value) / math.log1p(most) if value else 0
            tip = f"{link}: {count(value)} {column}"
            inside += tag("td", {"class_": "cell hot" if warm > 0.55 else "cell", "style": f"--warm:{100 * warm:.0f}%" if value else None,
                                 "title": tip, "data_run": run, "data_link": link, "data_what": what, "data_column": column,
                                 "data_value": value}, number_short(value))  # fmt: skip
        body += f'<tr><th scope="row">{escape(link)}</th>{inside}</tr>'
    more = f'<p class="none">and {len(kept) - ROWS_MAX:,} links with less</p>' if len(kept) > ROWS_MAX else ""
    return f'<div class="picture"><table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def number_short(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value < 10_000 else f"{value / 1e3:,.0f}k" if value < 1e6 else f"{value / 1e6:,.1f}M"


def links_by_kind(tables: Tables, run: str) -> str:
    cells: dict[tuple[str, str], int] = defaultdict(int)
    for row in tables.of("links", run):
        if between_nodes(row):
            cells[f"{row['from']} → {row['to']}", row["kind"]] += row["messages"] if row["overhead"] else row["events"]
    used = [kind for kind in KINDS if any(each == kind and value for (_, each), value in cells.items())]
    return heat_map({cell: value for cell, value in cells.items() if value}, used, "kind", run)


def links_by_type(tables: Tables, run: str) -> str:
    cells: dict[tuple[str, str], int] = defaultdict(int)
    for row in tables.of("link_types", run):
        if between_nodes(row):
            cells[f"{row['from']} → {row['to']}", row["type"]] += row["events"]
    used = sorted({kind for _, kind in cells})
    return heat_map(cells, used, "type", run)


def buffers(tables: Tables, run: str) -> str:
    """What was full, as bars: rows held and queues, the greatest first."""
    made = []
    for buffer, show in (("held rows", count), ("link queue, messages", count), ("link queue, bytes", size)):
        rows = sorted(
            (row for row in tables.of("buffers", run) if row["buffer"] == buffer), key=lambda row: -row["peak"]
        )
        if not rows:
            continue
        most = rows[0]["peak"]
        bars = ""
        for row in rows[: ROWS_MAX // 2]:
            piece = tag("span", {"class_": "piece k-buffer", "style": f"width:{100 * row['peak'] / most:.3f}%", "data_run": run,
                                 "data_node": row["node"], "data_buffer": buffer, "data_of": row["of"], "data_value": row["peak"]})  # fmt: skip
            joined = (
                f"{row['node']} → {row['of']}"
                if buffer.startswith("link")
                else f"{row['node']} {row['of'].replace('_', ' ')}"
            )
            bars += f'<div class="bar"><span class="what wide">{escape(joined)}</span><span class="track">{piece}</span><span class="total">{show(row["peak"])}</span></div>'
        more = f'<p class="none">and {len(rows) - ROWS_MAX // 2:,} with less</p>' if len(rows) > ROWS_MAX // 2 else ""
        made.append(f'<h4>{buffer}, at most</h4><div class="bars">{bars}</div>{more}')
    return "".join(made) or '<p class="none">Nothing was held.</p>'
