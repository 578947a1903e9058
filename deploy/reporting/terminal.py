"""A report for the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headwater.deploy.cli.tables import table_lines
from headwater.deploy.reporting.summary import agreement
from headwater.pipeline.report.tables import Tables
from headwater.protocol.text import NOTHING, count, milliseconds, rate, seconds, share, size

ROWS: Final[Sequence[tuple[str, str, Callable[[Any], str]]]] = (
    ("strategy", "strategy", str),
    ("active_s", "from the first to the last event", seconds),
    ("born", "events born", count),
    ("born_per_s", "  in a second", rate),
    ("composites", "composites delivered", count),
    ("events_sent", "events sent over links", count),
    ("centralised_events", "  centralised", count),
    ("transmission_ratio", "  ratio", share),
    ("bytes_sent", "bytes", size),
    ("overhead_bytes", "  of overhead, beside", size),
    ("bytes_ratio", "  both, relative to centr", share),
    ("latency_p50_ms", "latency p50", milliseconds),
    ("latency_p95_ms", "latency p95", milliseconds),
    ("latency_p99_ms", "latency p99", milliseconds),
    ("latency_max_ms", "latency, longest", milliseconds),
    ("held_peak", "most rows held by a node", count),
    ("late", "late", count),
    ("malformed", "malformed", count),
    ("refused", "refused", count),
    ("repeated", "repeated", count),
    ("records_dropped", "records dropped", count),
    ("restarts", "restarts", count),
)
"""Column, name, and how it is written."""

QUIET: Final = ("late", "malformed", "refused", "repeated", "records_dropped", "restarts")
"""Rows that are shown only if some run has something there."""


def render(tables: Tables) -> str:
    """One column for each run, without a line end."""
    runs = tables["runs"]
    rows = [
        [name, *(show(run[column]) for run in runs)]
        for column, name, show in ROWS
        if column not in QUIET or any(run[column] for run in runs)
    ]
    if len(runs) > 1:
        rows.append(["same composites", *(_verdict(tables, run["run"]) for run in runs)])
    lines = table_lines(["", *(run["run"] for run in runs)], rows, figures=range(1, 1 + len(runs)))
    if len(runs) > 1:
        lines += ["", agreement(tables)]
    return "\n".join(lines)


def _verdict(tables: Tables, run: str) -> str:
    row = next(iter(tables.of("comparison", run)), None)
    if row is None or row["reference"] is None:
        return NOTHING
    return (
        f"as {row['reference']}"
        if not row["missing"] and not row["extra"]
        else f"-{row['missing']:,} +{row['extra']:,}"
    )


def to_json(tables: Tables) -> dict[str, Any]:
    """The documented summary: what is known of each run, of each against another, of each rule, and of groups."""
    return {name: list(tables[name]) for name in ("runs", "comparison", "latency", "groups", "notes")}
