"""The section of a report about remote tables: what each node has asked, what was at hand, and what waited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, Final

from headwater.deploy.reporting.svg import table, tag
from headwater.pipeline.report.tables import Row, Tables
from headwater.protocol.text import NOTHING, count, milliseconds, share

COLUMNS: Final[Sequence[tuple[str, str, Callable[[Any], str]]]] = (
    ("requests", "requests", count),
    ("failed", "not answered", count),
    ("refused", "refused", count),
    ("latency_ms", "mean latency", milliseconds),
    ("hits", "hits", count),
    ("misses", "misses", count),
    ("waiting_peak", "most that waited", count),
    ("under_way_peak", "most under way", count),
    ("prefetched", "fetched ahead", count),
    ("prefetched_late", "of these too late", count),
    ("prefetched_unused", "of these never used", count),
)
ABOUT: Final = (
    "A hit is a lookup whose element was at hand, a miss one whose element was not. What waited are evaluations of "
    "matches, as records saw them."
)


def remote_section(tables: Tables, run: str) -> str:
    """A row for each table and node, and one for each table at several nodes; nothing where nothing was looked up."""
    rows = sorted(tables.of("remote", run), key=lambda row: (row["table"], row["node"]))
    if not rows:
        return ""
    always = ("requests", "failed", "hits", "misses", "waiting_peak")
    shown = [column for column in COLUMNS if column[0] in always or any(row[column[0]] for row in rows)]
    lines: list[tuple[str, str]] = []
    for name in dict.fromkeys(row["table"] for row in rows):
        own = [row for row in rows if row["table"] == name]
        lines += [(f"{name} at {row['node']}", _cells(row, shown, name)) for row in own]
        if len(own) > 1:
            lines.append((f"{name}, all nodes", _sums(own, shown)))
    return table(["hit ratio", *(title for _, title, _ in shown)], lines)


def _cells(row: Row, shown: Sequence[tuple[str, str, Callable[[Any], str]]], name: str) -> str:
    cells = tag("td", {}, escape(_ratio(row["hits"], row["misses"])))
    for column, _, show in shown:
        data = {
            "data_table": "remote", "data_run": row["run"], "data_node": row["node"], "data_of": name,
            "data_column": column, "data_value": row[column],
        }  # fmt: skip
        cells += tag("td", data, escape(show(row[column])))
    return cells


def _sums(rows: Sequence[Row], shown: Sequence[tuple[str, str, Callable[[Any], str]]]) -> str:
    """Over all nodes; a peak of one node says nothing of another, so that their sum is none."""
    cells = tag("td", {}, escape(_ratio(*(sum(row[column] for row in rows) for column in ("hits", "misses")))))
    answered = sum(row["answered"] for row in rows)
    for column, _, show in shown:
        if column.endswith("_peak"):
            text = NOTHING
        elif column == "latency_ms":
            taken = sum((row["latency_ms"] or 0.0) * row["answered"] for row in rows)
            text = show(taken / answered if answered else None)
        else:
            text = show(sum(row[column] for row in rows))
        cells += tag("td", {}, escape(text))
    return cells


def _ratio(hits: int, misses: int) -> str:
    return share(hits / (hits + misses)) if hits + misses else NOTHING
