"""The report as one HTML page that needs nothing else: no script, style, font or picture from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from headwater.deploy.reporting import charts, remote_tables
from headwater.deploy.reporting.groups import MEASURES
from headwater.deploy.reporting.network_map import network_map
from headwater.deploy.reporting.over_time import over_time
from headwater.deploy.reporting.remote_tables import remote_section
from headwater.deploy.reporting.summary import headline, title
from headwater.deploy.reporting.svg import folded, table, tag
from headwater.pipeline.report.shape import Shape
from headwater.pipeline.report.tables import Row, Tables
from headwater.protocol.text import NOTHING, count, milliseconds, plural, rate, seconds, share, size

STYLE: Final = (files("headwater.deploy.reporting") / "page.css").read_text(encoding="utf-8")
SCRIPT: Final = (files("headwater.deploy.reporting") / "page.js").read_text(encoding="utf-8")

Show = Callable[[Any], str]
Rows = list[tuple[str, str]]
"""Of a table: names, and cells that are HTML already."""


def _plain(value: Any) -> str:
    return NOTHING if value is None else str(value)


SIDE_BY_SIDE: Final[Sequence[tuple[str, str, Show]]] = (
    ("strategy", "strategy", _plain),
    ("seed", "seed", _plain),
    ("active_s", "from the first to the last event born", seconds),
    ("span_s", "recorded time", seconds),
    ("born", "events born", count),
    ("born_per_s", "events born in a second", rate),
    ("composites", "composites delivered", count),
    ("events_sent", "events sent over links", count),
    ("centralised_events", "centralised would send", count),
    ("transmission_ratio", "events, relative to centralised", share),
    ("messages_sent", "messages", count),
    ("bytes_sent", "bytes", size),
    ("overhead_messages", "overhead, messages", count),
    ("overhead_bytes", "overhead, bytes", size),
    ("centralised_bytes", "bytes with overhead under centr", size),
    ("bytes_ratio", "bytes with overhead, relative to centr", share),
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

CARDS: Final[Sequence[tuple[str, str, Show]]] = (
    ("transmission_ratio", "of the events of centralised", share),
    ("bytes_ratio", "of its bytes, with overhead", share),
    ("composites", "composites", count),
    ("latency_p50_ms", "median latency", milliseconds),
    ("latency_p99_ms", "p99 latency", milliseconds),
    ("born_per_s", "events born", rate),
    ("held_peak", "rows held, at most", count),
)

OFTEN_ABSENT: Final = ("seed", "cpu_s")
"""Rows that are left out where no run has them."""

HOW: Final = (
    "Centralised: every event of a type that a rule or a subscription names goes by the shortest path to the node "
    "that would be elected leader, and composites go from there to the sinks; an event that crosses three links "
    "counts three times, there and here. Overhead (watermarks, control) is shown apart and is not part of that "
    "ratio; the ratio in bytes has it on both sides, and is beside a run of centr over the same events, where there "
    "is one. Rates are over the time from the first to the last event that was born. Latency runs from the latest "
    "event of a composite to its delivery: from its timestamp where sources are live or simulated, from when its batch "
    "became part of the trace where it was replayed. Percentiles are exact up to 10,000 composites and within one rank "
    "in 10,000 beyond. What is held and queued is seen when a record is written, so peaks in between are not. All "
    "figures are in the folder tables, as Parquet and CSV."
)


def page(tables: Tables, shapes: Mapping[str, Shape]) -> str:
    """The whole page; ``shapes`` by the name of the run."""
    runs = [run["run"] for run in tables["runs"]]
    several = len(runs) > 1
    sentences = headline(tables)
    parts = [tag("h1", {}, escape(title(tables))), tag("p", {"class_": "lead"}, escape(sentences[0]))]
    parts += [tag("p", {}, escape(sentence)) for sentence in sentences[1:]]
    parts.append(_notes(tables))
    if not several:
        parts.append(_cards(tables["runs"][0]))
    parts += _traffic(tables)
    if several:
        curves = charts.latency_curves(tables, [(run, "", run) for run in runs][: charts.CURVES_MAX])
        parts.append(section("How long composites took", "All rules together, by run.", curves))
        parts += [section("Side by side", "", _side_by_side(tables)), _comparison(tables), _groups(tables)]
        tabs = "".join(
            tag("button", {"type": "button", "data_show": number}, escape(run)) for number, run in enumerate(runs)
        )
        parts.append(tag("nav", {"class_": "tabs", "aria_label": "runs"}, tabs))
    for number, run in enumerate(runs):
        inside = _one(tables, shapes[run], run, f" · {run}" if several else "")
        parts.append(tag("div", {"class_": "run", "data_number": number}, inside))
    if not several:
        parts.append(section("All figures", "", _side_by_side(tables)))
    parts.append(tag("footer", {}, tag("h2", {}, "How this is counted") + tag("p", {}, HOW)))
    return document(title(tables), parts)


def document(name: str, parts: Sequence[str]) -> str:
    """A page of these parts, with its style and script in it."""
    inside = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{inside}\n</main>\n"
        f'<div id="tip" role="status"></div>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n'
    )


def section(name: str, about: str, inside: str) -> str:
    words = tag("p", {"class_": "about"}, escape(about)) if about else ""
    return tag("section", {}, tag("h2", {}, escape(name)) + words + inside)


def _traffic(tables: Tables) -> list[str]:
    mark = "Events; the mark is what sending every event that a rule or subscription names to one node would take."
    beside = (
        "Watermarks and control carry no events but cost messages and bytes; the mark is what centr took, where known."
    )
    return [
        section(
            "What crossed links, by why it was sent", mark, charts.stacked(tables, "events", count, overhead=False)
        ),
        section("Bytes, overhead included", beside, charts.stacked(tables, "bytes", size, overhead=True)),
    ]


def _one(tables: Tables, shape: Shape, run: str, of: str) -> str:
    """Everything about one run."""
    rules = [row for row in tables.of("latency", run) if row["rule"]]
    rules.sort(key=lambda row: (-row["composites"], row["rule"]))
    curves = [(run, "", "all rules")] if len(rules) > 1 else []
    curves += [(run, row["rule"], row["rule"]) for row in rules[: charts.CURVES_MAX - len(curves)]]
    bodies = "Events whose bodies crossed; identities of events that the neighbour has already are not among them."
    latency = charts.latency_curves(tables, curves) + _latencies(tables, run)
    return "".join(
        [
            section(f"The network{of}", "Point at nodes and links, or tap them.", network_map(shape, tables, run)),
            section(f"How long composites took, by rule{of}", "Which share arrived within which time.", latency),
            section(f"Over time{of}", "", over_time(tables, run)),
            section(f"Links by kind{of}", "Events; of overhead, messages.", charts.links_by_kind(tables, run)),
            section(f"Links by type{of}", bodies, charts.links_by_type(tables, run)),
            section(f"Load{of}", "", _loads(tables, run)),
            section(f"What was kept and queued{of}", "The most that any record saw.", charts.buffers(tables, run)),
            _remote(tables, run, of),
            _happenings(tables, run, of),
        ]
    )


def _cell(name: str, row: Row, column: str, show: Show, **more: object) -> str:
    """A figure with its exact value, so that the page can be checked against the tables."""
    data = {"data_table": name, "data_run": row.get("run"), "data_column": column, "data_value": row[column]}
    rest = {f"data_{key}" if key not in ("class_", "style") else key: value for key, value in more.items()}
    return tag("td", {**data, **rest}, escape(show(row[column])))


def _cards(run: Row) -> str:
    cards = ""
    for column, name, show in CARDS:
        data = {"data_table": "runs", "data_run": run["run"], "data_column": column, "data_value": run[column]}
        inside = tag("strong", {}, escape(show(run[column]))) + tag("span", {}, escape(name))
        cards += tag("div", {"class_": "card", **data}, inside)
    return tag("div", {"class_": "cards"}, cards)


def _side_by_side(tables: Tables) -> str:
    runs = tables["runs"]
    rows: Rows = []
    zeros: Rows = []
    for column, name, show in SIDE_BY_SIDE:
        if column not in OFTEN_ABSENT or any(run[column] is not None for run in runs):
            row = (name, "".join(_cell("runs", run, column, show) for run in runs))
            (rows if any(run[column] for run in runs) else zeros).append(row)
    head = [run["run"] for run in runs]
    return table(head, rows) + folded(f"{plural(len(zeros), 'figure')} that are zero or not known", head, zeros)


def _comparison(tables: Tables) -> str:
    rows = []
    for row in tables["comparison"]:
        if row["reference"] is None:
            continue
        equal = not row["missing"] and not row["extra"]
        verdict = tag("td", {"class_": "good" if equal else "bad"}, "the same" if equal else "different")
        figures = [
            _cell("comparison", row, column, count) for column in ("composites", "missing", "extra", "delivered_again")
        ]
        rows.append((row["run"], tag("td", {}, escape(row["reference"])) + verdict + "".join(figures)))
    if not rows:
        return ""
    head = ("against", "delivered", "composites", "missing", "extra", "delivered again")
    about = "Composites are distinguished by their identity and their sink."
    return section("Did they deliver the same?", about, table(head, rows))


def _groups(tables: Tables) -> str:
    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in tables["groups"]:
        groups.setdefault((row["network"], row["strategy"]), {})[row["measure"]] = row
    if not groups:
        return ""
    rows: Rows = []
    zeros: Rows = []
    for measure, name in MEASURES.items():
        show = share if measure.endswith("_ratio") else _mean
        cells = ""
        for group in groups.values():
            cell = group.get(measure)
            if cell is None:
                cells += tag("td", {}, NOTHING)
                continue
            spread = f" ± {show(cell['half_width_95'])}" if cell["half_width_95"] is not None else ""
            data = {"data_table": "groups", "data_strategy": cell["strategy"], "data_measure": measure}
            cells += tag("td", {**data, "data_value": cell["mean"]}, escape(show(cell["mean"]) + spread))
        has_some = any(group[measure]["mean"] for group in groups.values() if measure in group)
        (rows if has_some else zeros).append((name, cells))
    head = [f"{strategy} ({next(iter(group.values()))['runs']} runs)" for (_, strategy), group in groups.items()]
    inside = table(head, rows) + folded(f"{plural(len(zeros), 'figure')} that are zero or not known", head, zeros)
    return section("Strategies over several runs", "Means, with 95 % confidence intervals.", inside)


def _mean(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


def _latencies(tables: Tables, run: str) -> str:
    rows = []
    for row in tables.of("latency", run):
        cells = _cell("latency", row, "composites", count, rule=row["rule"])
        for column in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"):
            cells += _cell("latency", row, column, milliseconds, rule=row["rule"])
        rows.append((row["rule"] or "all rules", cells))
    return table(("composites", "p50", "p90", "p95", "p99", "longest"), rows) if rows else ""


def _loads(tables: Tables, run: str) -> str:
    nodes = sorted(tables.of("nodes", run), key=lambda row: -(row["events_in"] + row["events_out"] + row["born"]))
    used = [load for load in LOADS if any(row[load[0]] for row in nodes)]
    rows: Rows = []
    zeros: Rows = []
    for row in nodes:
        cells = ""
        for column, _, show in used:
            most = max(node[column] or 0 for node in nodes)
            part = f"--share:{100 * (row[column] or 0) / most:.0f}%"
            cells += _cell("nodes", row, column, show, class_="load", style=part, node=row["node"])
        (rows if any(row[column] for column, _, _ in used) else zeros).append((row["node"], cells))
    head = [name for _, name, _ in used]
    return table(head, rows) + folded(f"{plural(len(zeros), 'node')} with nothing but zeros", head, zeros)


def _remote(tables: Tables, run: str, of: str) -> str:
    inside = remote_section(tables, run)
    return section(f"What was looked up in remote tables{of}", remote_tables.ABOUT, inside) if inside else ""


def _happenings(tables: Tables, run: str, of: str) -> str:
    happenings = sorted((row for row in tables.of("happenings", run) if row["count"]), key=lambda row: -row["count"])
    if not happenings:
        return ""
    rows = [
        (row["node"], tag("td", {"class_": "words"}, escape(row["what"])) + tag("td", {}, count(row["count"])))
        for row in happenings[: charts.ROWS_MAX]
    ]
    return section(f"What else nodes reported{of}", "", table((), rows))


def _notes(tables: Tables) -> str:
    if not tables["notes"]:
        return ""
    several = len(tables["runs"]) > 1
    items = ""
    for row in tables["notes"]:
        whose = tag("b", {}, escape(row["run"])) + ": " if several else ""
        items += tag("li", {}, whose + escape(row["note"]))
    inside = tag("h2", {}, "To know before you trust the figures") + tag("ul", {}, items)
    return tag("aside", {"class_": "notes"}, inside)
