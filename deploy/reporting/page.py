"""The report as one page that needs nothing else: no script, style, font or picture from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from deploy.reporting import charts
from deploy.reporting.drawing import tag
from deploy.reporting.groups import MEASURES
from deploy.reporting.network_map import network_map
from deploy.reporting.words import count, headline, milliseconds, rate, seconds, share, size, title
from pipeline.report.shape import Shape
from pipeline.report.tables import Row, Tables

STYLE: Final = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
SCRIPT: Final = (Path(__file__).parent / "page.js").read_text(encoding="utf-8")

Show = Callable[[Any], str]


def _plain(value: Any) -> str:
    return "–" if value is None else str(value)


SIDE_BY_SIDE: Final[Sequence[tuple[str, str, Show]]] = (
    ("strategy", "strategy", _plain),
    ("seed", "seed", _plain),
    ("span_s", "recorded time", seconds),
    ("born", "events born", count),
    ("born_per_s", "events born in a second", rate),
    ("composites", "composites delivered", count),
    ("events_sent", "events sent over links", count),
    ("centralised_events", "centralised would send", count),
    ("transmission_ratio", "sent, relative to centralised", share),
    ("messages_sent", "messages", count),
    ("bytes_sent", "bytes", size),
    ("overhead_messages", "overhead, messages", count),
    ("overhead_bytes", "overhead, bytes", size),
    ("latency_p50_ms", "latency p50", milliseconds),
    ("latency_p90_ms", "latency p90", milliseconds),
    ("latency_p95_ms", "latency p95", milliseconds),
    ("latency_p99_ms", "latency p99", milliseconds),
    ("latency_max_ms", "latency, longest", milliseconds),
    ("latency_unknown", "latency not known of", count),
    ("held_peak", "most rows held by a node", count),
    ("cpu_s", "processor time", seconds),
    ("late", "late events", count),
    ("malformed", "malformed events", count),
    ("refused", "refused events", count),
    ("repeated", "repeated events", count),
    ("records_dropped", "records dropped", count),
    ("deliveries_unrecorded", "deliveries without a record", count),
    ("lines_repeated", "deliveries recorded twice, counted once", count),
    ("lines_bad", "lines passed over", count),
    ("restarts", "restarts", count),
    ("unrecorded_s", "time without records, summed over nodes", seconds),
)
"""Rows of the table of runs: column, name, and how it is written."""

LOADS: Final[Sequence[tuple[str, str, Show]]] = (
    ("born", "born", count),
    ("events_in", "events in", count),
    ("events_out", "events out", count),
    ("bytes_out", "bytes out", size),
    ("delivered", "delivered", count),
    ("held_peak", "rows held, at most", count),
    ("tasks", "tasks", count),
    ("cpu_s", "processor time", seconds),
    ("loop_lag_ms", "loop late by", milliseconds),
    ("late", "late", count),
    ("malformed", "malformed", count),
    ("refused", "refused", count),
    ("repeated", "repeated", count),
    ("records_dropped", "records dropped", count),
    ("restarts", "restarts", count),
)


def page(tables: Tables, shapes: Mapping[str, Shape]) -> str:
    """The whole page; ``shapes`` by the name of the run."""
    runs = [run["run"] for run in tables["runs"]]
    several = len(runs) > 1
    said = headline(tables)
    parts = [f"<h1>{escape(title(tables))}</h1>", f'<p class="lead">{escape(said[0])}</p>']
    parts += [f"<p>{escape(each)}</p>" for each in said[1:]]
    parts.append(_notes(tables))
    if not several:
        parts.append(_cards(tables["runs"][0]))
    parts.append(
        _section(
            "What crossed links, by why it was sent",
            "Events; the mark is what sending every event that a rule or subscription names to one node would take.",
            charts.stacked(tables, "events", count, overhead=False),
        )
    )
    parts.append(
        _section(
            "Bytes, overhead included",
            "Watermarks and control carry no events but cost messages and bytes.",
            charts.stacked(tables, "bytes", size, overhead=True),
        )
    )
    if several:
        parts.append(
            _section(
                "How long composites took",
                "All rules together, by run.",
                charts.latency_curves(tables, [(run, "", run) for run in runs]),
            )
        )
        parts.append(_section("Side by side", "", _side_by_side(tables)))
        parts.append(_comparison(tables))
        parts.append(_groups(tables))
        tabs = "".join(
            f'<button type="button" data-show="{number}">{escape(run)}</button>' for number, run in enumerate(runs)
        )
        parts.append(f'<nav class="tabs" aria-label="runs">{tabs}</nav>')
    for number, run in enumerate(runs):
        parts.append(f'<div class="run" data-number="{number}">{_one(tables, shapes[run], run, several=several)}</div>')
    if not several:
        parts.append(_section("All figures", "", _side_by_side(tables)))
    parts.append(_how())
    inside = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title(tables))}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{inside}\n</main>\n"
        f'<div id="tip" role="status"></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n'
    )


def _section(name: str, about: str, inside: str) -> str:
    words = f'<p class="about">{escape(about)}</p>' if about else ""
    return f"<section><h2>{escape(name)}</h2>{words}{inside}</section>"


def _one(tables: Tables, shape: Shape, run: str, *, several: bool) -> str:
    """Everything about one run."""
    rules = sorted(
        (row for row in tables.of("latency", run) if row["rule"]), key=lambda row: (-row["composites"], row["rule"])
    )
    curves = [(run, "", "all rules")] if len(rules) > 1 else []
    curves += [(run, row["rule"], row["rule"]) for row in rules[: charts.CURVES_MAX - 1]]
    of = f" · {run}" if several else ""
    parts = [
        _section(f"The network{of}", "Point at nodes and links.", network_map(shape, tables, run)),
        _section(
            f"How long composites took, by rule{of}",
            "Which share of them arrived within which time.",
            charts.latency_curves(tables, curves) + _latencies(tables, run),
        ),
        _section(f"Over time{of}", "", charts.throughput(tables, run)),
        _section(
            f"Links by kind{of}", "Events; of watermarks and control, messages.", charts.links_by_kind(tables, run)
        ),
        _section(
            f"Links by type{of}",
            "Events whose bodies crossed; identities of events that the neighbour has already are not among them.",
            charts.links_by_type(tables, run),
        ),
        _section(f"Load{of}", "", _loads(tables, run)),
        _section(f"What was kept and queued{of}", "The most that any record saw.", charts.buffers(tables, run)),
        _happenings(tables, run, of),
    ]
    return "".join(parts)


def _cell(table: str, row: Row, column: str, show: Show, **more: object) -> str:
    """A figure with its exact value, so that the page can be checked against the tables."""
    data = {f"data_{key}": value for key, value in more.items()}
    return tag(
        "td",
        {"data_table": table, "data_run": row.get("run"), "data_column": column, "data_value": row[column], **data},
        escape(show(row[column])),
    )


def _cards(run: Row) -> str:
    cards = (
        ("transmission_ratio", "of centralised", share),
        ("composites", "composites", count),
        ("latency_p50_ms", "median latency", milliseconds),
        ("latency_p99_ms", "p99 latency", milliseconds),
        ("born_per_s", "events born", rate),
        ("held_peak", "rows held, at most", count),
    )
    return (
        '<div class="cards">'
        + "".join(
            tag(
                "div",
                {
                    "class_": "card",
                    "data_table": "runs",
                    "data_run": run["run"],
                    "data_column": column,
                    "data_value": run[column],
                },
                f"<strong>{escape(show(run[column]))}</strong><span>{escape(name)}</span>",
            )  # fmt: skip
            for column, name, show in cards
        )
        + "</div>"
    )


def _side_by_side(tables: Tables) -> str:
    runs = tables["runs"]
    head = "".join(f'<th scope="col">{escape(run["run"])}</th>' for run in runs)
    body = ""
    for column, name, show in SIDE_BY_SIDE:
        if all(run[column] in (None, 0) for run in runs) and column in ("seed", "cpu_s"):
            continue
        body += (
            f'<tr><th scope="row">{escape(name)}</th>{"".join(_cell("runs", run, column, show) for run in runs)}</tr>'
        )
    return f'<div class="picture"><table class="figures"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _comparison(tables: Tables) -> str:
    rows = [row for row in tables["comparison"] if row["reference"] is not None]
    if not rows:
        return ""
    body = ""
    for row in rows:
        equal = not row["missing"] and not row["extra"]
        verdict = '<td class="good">the same</td>' if equal else '<td class="bad">different</td>'
        figures = "".join(
            _cell("comparison", row, column, count) for column in ("composites", "missing", "extra", "delivered_again")
        )
        body += (
            f'<tr><th scope="row">{escape(row["run"])}</th><td>{escape(row["reference"])}</td>{verdict}{figures}</tr>'
        )
    head = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("run", "against", "delivered", "composites", "missing", "extra", "delivered again")
    )
    table = (
        f'<div class="picture"><table class="figures"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    return _section("Did they deliver the same?", "Composites are told apart by their identity and their sink.", table)


def _groups(tables: Tables) -> str:
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in tables["groups"]:
        groups.setdefault((row["network"], row["strategy"]), {})[row["measure"]] = row
    if not groups:
        return ""
    head = "".join(
        f'<th scope="col">{escape(strategy)} ({next(iter(rows.values()))["runs"]} runs)</th>'
        for (_, strategy), rows in groups.items()
    )
    body = ""
    for measure, name in MEASURES.items():
        cells = ""
        for rows in groups.values():
            row = rows.get(measure)
            if row is None:
                cells += "<td>–</td>"
                continue
            show: Show = (
                share
                if measure == "transmission_ratio"
                else lambda value: f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
            )
            spread = f" ± {show(row['half_width_95'])}" if row["half_width_95"] is not None else ""
            cells += tag(
                "td",
                {
                    "data_table": "groups",
                    "data_strategy": row["strategy"],
                    "data_measure": measure,
                    "data_value": row["mean"],
                },
                escape(show(row["mean"]) + spread),
            )
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    table = f'<div class="picture"><table class="figures"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return _section("Strategies over several runs", "Means, with 95 % confidence intervals.", table)


def _latencies(tables: Tables, run: str) -> str:
    columns = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms")
    head = "".join(f'<th scope="col">{name}</th>' for name in ("composites", "p50", "p90", "p95", "p99", "longest"))
    body = ""
    for row in tables.of("latency", run):
        cells = _cell("latency", row, "composites", count, rule=row["rule"])
        cells += "".join(_cell("latency", row, column, milliseconds, rule=row["rule"]) for column in columns)
        body += f'<tr><th scope="row">{escape(row["rule"] or "all rules")}</th>{cells}</tr>'
    if not body:
        return ""
    return f'<div class="picture"><table class="figures"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _loads(tables: Tables, run: str) -> str:
    rows = sorted(tables.of("nodes", run), key=lambda row: -(row["events_in"] + row["events_out"] + row["born"]))
    used = [
        each for each in LOADS if any(row[each[0]] for row in rows) or each[0] in ("born", "events_in", "events_out")
    ]
    most = {column: max((row[column] or 0 for row in rows), default=0) for column, _, _ in used}
    head = "".join(f'<th scope="col">{escape(name)}</th>' for _, name, _ in used)
    body = ""
    for row in rows:
        cells = ""
        for column, _, show in used:
            value = row[column]
            width = 100 * value / most[column] if value and most[column] else 0
            cells += tag("td", {"class_": "load", "style": f"--share:{width:.0f}%", "data_table": "nodes", "data_run": run,
                                "data_node": row["node"], "data_column": column, "data_value": value}, escape(show(value)))  # fmt: skip
        body += f'<tr><th scope="row">{escape(row["node"])}</th>{cells}</tr>'
    return f'<div class="picture"><table class="figures"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _happenings(tables: Tables, run: str, of: str) -> str:
    rows = [row for row in tables.of("happenings", run) if row["count"]]
    if not rows:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(row["node"])}</th><td class="words">{escape(row["what"])}</td><td>{count(row["count"])}</td></tr>'
        for row in sorted(rows, key=lambda row: -row["count"])[: charts.ROWS_MAX]
    )
    return _section(
        f"What else nodes told{of}",
        "",
        f'<div class="picture"><table class="figures"><tbody>{body}</tbody></table></div>',
    )


def _notes(tables: Tables) -> str:
    if not tables["notes"]:
        return ""
    several = len(tables["runs"]) > 1
    items = ""
    for row in tables["notes"]:
        whose = f"<b>{escape(row['run'])}</b>: " if several else ""
        items += f"<li>{whose}{escape(row['note'])}</li>"
    return f'<aside class="notes"><h2>To know before you trust the figures</h2><ul>{items}</ul></aside>'


def _how() -> str:
    return (
        "<footer><h2>How this is counted</h2><p>Centralised: every event of a type that a rule or a subscription names goes "
        "by the shortest path to the node that would be elected leader, and composites go from there to the sinks; an event "
        "that crosses three links counts three times, there and here. Overhead (watermarks, control) is shown apart and is "
        "no part of that ratio. Latency runs from the latest event of a composite to its delivery: from its timestamp where "
        "sources are live or simulated, from when its batch became part of the trace where it was replayed. Percentiles are "
        "exact up to 10,000 composites and within one rank in 10,000 beyond. Gauges (what is held and queued) are seen when a "
        "record is written, so peaks in between are not. All figures are in the folder <code>tables</code>, as Parquet and CSV.</p></footer>"
    )
