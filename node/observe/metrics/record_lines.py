"""The lines of a node's records: what was counted between two moments, and what a sink was given.

The daemon and the recordings of simulations are made of the same lines; docs/reference/metrics.md describes the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import Any, Final

from headwater.node.observe.metrics.catalogue import samples
from headwater.node.observe.metrics.counters import Histogram
from headwater.node.observe.metrics.observed import Observed
from headwater.protocol.composites import Composite
from headwater.protocol.formats import RECORDS

CPU: Final = "process_cpu_seconds_total"

_Key = tuple[str, tuple[tuple[str, str], ...]]
"""Name and labels of a value."""


class Growth:
    """What was counted since the record before, without what did not change, and gauges as they are."""

    def __init__(self, observed: Observed, *, from_nothing: bool = False) -> None:
        """``from_nothing``: the first record tells all that was counted before, too."""
        self._observed = observed
        self._last = {} if from_nothing else dict(_counted(observed))
        if not from_nothing:
            observed.counters.take_born_between()
        self._last_us = observed.now_us()

    def record(self) -> dict[str, Any]:
        """The next record of the metrics."""
        observed = self._observed
        now_us = observed.now_us()
        counted = dict(_counted(observed))
        born_from_us, born_to_us = observed.counters.take_born_between()
        grown = {key: value - self._last.get(key, 0) for key, value in counted.items()}
        record = {
            "v": RECORDS,
            "run": observed.run,
            "network": observed.network,
            "strategy": observed.strategy,
            "node": observed.node,
            "life": observed.life,
            "time": now_us,
            "since": self._last_us,
            "born_from": born_from_us,
            "born_to": born_to_us,
            "counters": [_written(key, value) for key, value in grown.items() if value],
            "gauges": [_written(key, value) for key, value in _gauges(observed)],
        }
        self._last, self._last_us = counted, now_us
        return record


def match_record(
    run: str, node: str, sink: int, number: int, match: Composite, delivered_us: int, *, live: bool
) -> dict[str, Any]:
    """A composite event that a sink was given, under this number. ``live``: its latency means something."""
    ts, end_node, end_seq = match.end
    return {
        "v": RECORDS,
        "run": run,
        "node": node,
        "sink": sink,
        "number": number,
        "id": match.id,
        "rule": match.rule,
        "version": match.version,
        "type": match.type,
        "ts": ts,
        "end_node": end_node,
        "end_seq": end_seq,
        "delivered": delivered_us,
        "latency_us": delivered_us - ts if live else None,
    }


def birth_record(
    run: str, node: str, now_us: int, events: int, numbers: tuple[int, int], times: tuple[int, int], trace: str = ""
) -> dict[str, Any]:
    """So many events became part of the trace at once, from the first to the last number, and time."""
    return {
        "v": RECORDS,
        "run": run,
        "node": node,
        "time": now_us,
        "first_seq": numbers[0],
        "last_seq": numbers[1],
        "first_ts": times[0],
        "last_ts": times[1],
        "events": events,
        "trace": trace,
    }


def _counted(observed: Observed) -> Iterator[tuple[_Key, float]]:
    """Everything that only grows; of histograms how many there were and their sum."""
    for metric, values, value in samples(observed):
        labels = tuple(zip(metric.labels, values, strict=True))
        if isinstance(value, Histogram):
            yield (f"{metric.name}_count", labels), value.count
            yield (f"{metric.name}_sum", labels), value.sum_us / 1e6
        elif metric.kind == "counter":
            yield (metric.name, labels), value
    if observed.cpu_s is not None:
        yield (CPU, ()), observed.cpu_s()


def _gauges(observed: Observed) -> Iterator[tuple[_Key, float]]:
    for metric, values, value in samples(observed):
        if metric.kind == "gauge" and metric.name != "headwater_node_info" and not isinstance(value, Histogram):
            yield (metric.name, tuple(zip(metric.labels, values, strict=True))), value


def _written(key: _Key, value: float) -> dict[str, Any]:
    """Infinity, which JSON cannot say, is null."""
    name, labels = key
    return {"name": name, "labels": dict(labels), "value": None if isinf(value) else round(value, 6)}
