"""The tables of a report: small, typed, written as Parquet and CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]

KINDS: Final[Mapping[str, Mapping[str, str]]] = {
    "runs": {
        "run": "text", "network": "text", "strategy": "text", "seed": "int", "simulated": "bool", "run_id": "text",
        "input": "text", "span_s": "float", "active_s": "float", "nodes": "int", "born": "int", "composites": "int",
        "events_sent": "int", "messages_sent": "int", "bytes_sent": "int", "overhead_messages": "int",
        "overhead_bytes": "int", "centralised_events": "int", "transmission_ratio": "float",
        "centralised_bytes": "int", "bytes_ratio": "float", "latency_p50_ms": "float",
        "latency_p90_ms": "float", "latency_p95_ms": "float", "latency_p99_ms": "float", "latency_max_ms": "float",
        "latency_known": "int", "latency_unknown": "int", "born_per_s": "float", "composites_per_s": "float",
        "late": "int", "malformed": "int", "refused": "int", "repeated": "int", "records_dropped": "int",
        "deliveries_unrecorded": "int", "lines_bad": "int", "lines_repeated": "int", "restarts": "int",
        "unrecorded_s": "float", "held_peak": "int", "cpu_s": "float",
    },
    "links": {
        "run": "text", "from": "text", "to": "text", "kind": "text", "overhead": "bool", "events": "int",
        "messages": "int", "bytes": "int",
    },
    "link_types": {"run": "text", "from": "text", "to": "text", "kind": "text", "type": "text", "events": "int"},
    "latency": {
        "run": "text", "rule": "text", "composites": "int", "known": "int", "mean_ms": "float", "p50_ms": "float",
        "p90_ms": "float", "p95_ms": "float", "p99_ms": "float", "max_ms": "float",
    },
    "latency_cdf": {"run": "text", "rule": "text", "share": "float", "latency_ms": "float"},
    "throughput": {
        "run": "text", "from_s": "float", "to_s": "float", "born": "float", "composites": "int",
        "born_per_s": "float", "composites_per_s": "float",
    },
    "nodes": {
        "run": "text", "node": "text", "born": "int", "late": "int", "malformed": "int", "refused": "int",
        "repeated": "int", "events_in": "int", "events_out": "int", "bytes_out": "int", "delivered": "int",
        "cpu_s": "float", "loop_lag_ms": "float", "held_peak": "int", "tasks": "int", "restarts": "int",
        "records_dropped": "int", "unrecorded_s": "float",
    },
    "types": {
        "run": "text", "node": "text", "type": "text", "born": "int", "late": "int", "malformed": "int",
        "refused": "int", "repeated": "int",
    },
    "buffers": {"run": "text", "node": "text", "buffer": "text", "of": "text", "peak": "int"},
    "remote": {
        "run": "text", "node": "text", "table": "text", "requests": "int", "answered": "int", "failed": "int",
        "refused": "int", "latency_ms": "float", "hits": "int", "misses": "int", "waiting_peak": "int",
        "under_way_peak": "int", "prefetched": "int", "prefetched_late": "int", "prefetched_unused": "int",
    },
    "happenings": {"run": "text", "node": "text", "what": "text", "count": "int"},
    "centralised": {
        "run": "text", "node": "text", "type": "text", "way": "text", "events": "int", "hops": "int",
        "transmissions": "int",
    },
    "comparison": {
        "run": "text", "reference": "text", "composites": "int", "same": "int", "missing": "int", "extra": "int",
        "delivered_again": "int",
    },
    "groups": {
        "network": "text", "strategy": "text", "runs": "int", "measure": "text", "mean": "float",
        "half_width_95": "float",
    },
    "notes": {"run": "text", "note": "text"},
}  # fmt: skip
"""Every table with its columns and the kind of each. ``rule`` is empty for all rules together."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables of a report, in the order of ``KINDS``."""

    rows: Mapping[str, Sequence[Row]]

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.rows[name]

    def of(self, name: str, run: str) -> Iterator[Row]:
        """The rows of one run."""
        return (row for row in self.rows[name] if row["run"] == run)

    def run(self, run: str) -> Row:
        return next(self.of("runs", run))


def write_tables(tables: Tables, folder: Path) -> None:
    """``NAME.parquet`` and ``NAME.csv`` for every table, also for those that are empty."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    folder.mkdir(parents=True)
    for name, kinds in KINDS.items():
        schema = pa.schema([(column, types[kind]) for column, kind in kinds.items()])
        pq.write_table(pa.Table.from_pylist(list(tables[name]), schema), folder / f"{name}.parquet")
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(kinds)
            out.writerows([row.get(column) for column in kinds] for row in tables[name])
