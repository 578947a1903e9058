"""Groups runs of one strategy with different seeds: means, with confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headwater.deploy.experiments.confidence import mean
from headwater.pipeline.report.tables import Row, Tables

MEASURES: Final[Mapping[str, str]] = {
    "transmission_ratio": "events, relative to centralised",
    "bytes_ratio": "bytes with overhead, relative to centr",
    "events_sent": "events sent over links",
    "messages_sent": "messages",
    "bytes_sent": "bytes",
    "overhead_messages": "overhead, messages",
    "overhead_bytes": "overhead, bytes",
    "composites": "composites delivered",
    "latency_p50_ms": "latency p50 (ms)",
    "latency_p95_ms": "latency p95 (ms)",
    "latency_p99_ms": "latency p99 (ms)",
    "held_peak": "most rows held by a node",
}
"""What is averaged, and how it is called."""


def grouped(tables: Tables) -> Tables:
    """The tables with the groups: one for each network and strategy of which there is more than one run."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for run in tables["runs"]:
        groups.setdefault((run["network"], run["strategy"]), []).append(run)
    rows = [row for (network, strategy), runs in groups.items() for row in _group(network, strategy, runs)]
    return Tables({**tables.rows, "groups": rows})


def _group(network: str, strategy: str, runs: Sequence[Row]) -> list[Row]:
    if len(runs) < 2 or (runs[0]["simulated"] and len({run["seed"] for run in runs}) < len(runs)):
        return []  # the same simulation twice says nothing new
    rows = []
    for measure in MEASURES:
        values = [run[measure] for run in runs if run[measure] is not None]
        if values:
            average = mean(values)
            rows.append(
                {
                    "network": network,
                    "strategy": strategy,
                    "runs": len(values),
                    "measure": measure,
                    "mean": average.value,
                    "half_width_95": average.half_width,
                }
            )
    return rows
