"""What rules have looked up in remote tables, by node and table, from the metrics of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headwater.pipeline.report.measured import MeasuredRun
from headwater.pipeline.report.metrics import label
from headwater.pipeline.report.tables import Row

COUNTED: Final = {
    "requests": "requests", "requests_answered": "answered", "requests_failed": "failed",
    "requests_refused": "refused", "request_seconds": "seconds", "hits": "hits", "misses": "misses",
    "prefetched": "prefetched", "prefetched_late": "prefetched_late", "prefetched_unused": "prefetched_unused",
}  # fmt: skip
"""By the name of a metric, the column that its sum is in."""
PEAKS: Final = {"waiting_matches": "waiting_peak", "under_way": "under_way_peak"}


def remote_rows(one: MeasuredRun) -> Iterator[Row]:
    """A row for each node and each table that it has looked into or asked."""
    for node in one.run.shape.nodes:
        by_table: dict[str, dict[str, float]] = {}
        for metric, column in COUNTED.items():
            for labels, value in one.counted.by(node, f"headwater_remote_{metric}_total").items():
                by_table.setdefault(label(labels, "table"), {})[column] = value
        for metric, column in PEAKS.items():
            for labels, value in one.counted.peak(node, f"headwater_remote_{metric}").items():
                if value:
                    by_table.setdefault(label(labels, "table"), {})[column] = value
        for table, values in sorted(by_table.items()):
            seconds, answered = values.pop("seconds", 0.0), values.get("answered", 0.0)
            yield {
                "run": one.run.label,
                "node": node,
                "table": table,
                **{column: 0 for column in (*COUNTED.values(), *PEAKS.values()) if column != "seconds"},
                **{column: round(value) for column, value in values.items()},
                "latency_ms": 1e3 * seconds / answered if answered else None,
            }
