"""Reads records in this process, without Spark and Java: the same answers for runs that fit into memory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Final, NamedTuple

from headwater.pipeline.prepare.prepared_trace import PreparedTrace
from headwater.pipeline.report.buckets import Buckets
from headwater.pipeline.report.inputs import FIELDS, NEEDED, VALUES, RunFiles
from headwater.pipeline.report.latencies import (
    CDF_SHARES,
    PERCENTILES,
    Latency,
    RunComparison,
    RunDeliveries,
    piece_width,
    sinks_below,
)
from headwater.pipeline.report.metrics import BORN, HELD, HELD_TOTAL, Coverage, Labels, RunCounts
from headwater.pipeline.report.reading import Identities, Span
from headwater.pipeline.report.shape import Shape
from headwater.protocol.formats import RECORDS

Line = dict[str, Any]

TYPES: Final[Mapping[str, type]] = {"INT": int, "LONG": int, "STRING": str, VALUES: list}


class RecordedDelivery(NamedTuple):
    """One delivery; what tells it from others, when it was, and how long it took if that is known."""

    i: int
    run: str
    node: str
    sink: int
    number: int
    id: str
    rule: str
    delivered_us: int
    latency_us: int | None


class _Lines:
    """The lines of one kind: by run those that are whole, and how many are not."""

    def __init__(self, kind: str, run_files: Sequence[RunFiles]) -> None:
        self.whole: dict[int, list[Line]] = {}
        self.bad: dict[int, int] = {}
        for i, files_of_run in enumerate(run_files):
            files = files_of_run.files[kind]
            if not files:
                continue
            lines = list(_read(kind, files))
            self.whole[i] = [line for line in lines if line is not None]
            if len(self.whole[i]) < len(lines):
                self.bad[i] = len(lines) - len(self.whole[i])

    def mine(self, runs: Identities) -> Iterator[tuple[int, Line]]:
        """Whole lines of the runs themselves: what bears their identity, or none."""
        for i, lines in self.whole.items():
            for line in lines:
                if (line["run"] or "") in ("", runs[i]):
                    yield i, line


def _read(kind: str, files: Sequence[Path]) -> Iterator[Line | None]:
    """Every line of the files, with all fields of its kind; None for one that is cut or of another version."""
    types = {name: TYPES[type_] for name, type_ in FIELDS[kind].items()}
    for path in files:
        with path.open("rb") as file:
            for raw in file:
                if raw.strip():
                    yield _line(raw, types, NEEDED[kind])


def _line(raw: bytes, types: Mapping[str, type], needed: Sequence[str]) -> Line | None:
    try:
        fields = json.loads(raw)
    except ValueError:  # no JSON, or no text
        return None
    if not isinstance(fields, dict) or fields.get("v") != RECORDS:
        return None
    line = {name: fields.get(name) for name in types}
    for name, value in line.items():
        if value is None:
            if name in needed:
                return None
        elif type(value) is not types[name] or (isinstance(value, list) and not all(map(_is_value, value))):
            return None
    return line


def _is_value(value: Any) -> bool:
    """Whether this is a counter or a gauge: a name, perhaps labels, and a number or nothing."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("labels") or {}, dict)
        and isinstance(value.get("value"), (int, float, NoneType))
    )


class RecordsInProcess:
    """All lines are kept; a caller sees to it that they are few enough."""

    def __init__(self, run_files: Sequence[RunFiles]) -> None:
        self._metrics = _Lines("metrics", run_files)
        self._births = _Lines("births", run_files)
        self._run_files = run_files

    def __enter__(self) -> RecordsInProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def coverage(self) -> tuple[Mapping[int, Mapping[str, Sequence[Coverage]]], dict[int, int]]:
        covers: dict[int, dict[str, list[Coverage]]] = defaultdict(lambda: defaultdict(list))
        for i, lines in self._metrics.whole.items():
            of: dict[tuple[str, str], list[Line]] = defaultdict(list)
            for line in lines:
                of[line["node"], line["run"] or ""].append(line)
            for (node, run), mine in sorted(of.items()):
                covers[i][node].append(_cover(run, mine))
        return covers, dict(self._metrics.bad)

    def counted(self, runs: Identities) -> Mapping[int, RunCounts]:
        counted: dict[int, RunCounts] = defaultdict(RunCounts)
        for i, line in self._metrics.mine(runs):
            sums, peaks = counted[i].sums[line["node"]], counted[i].peaks[line["node"]]
            for name, labels, value in _values(line["counters"]):
                sums[name, labels] = sums.get((name, labels), 0) + (value or 0)
            held = 0.0
            for name, labels, value in _values(line["gauges"]):
                if value is not None:
                    peaks[name, labels] = max(value, peaks.get((name, labels), value))
                    held += value if name == HELD else 0.0
            peaks[HELD_TOTAL, ()] = max(held, peaks.get((HELD_TOTAL, ()), held))
        return counted

    def born_over_time(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, Mapping[int, float]]:
        by_bucket: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for i, line in self._metrics.mine(runs):
            first, last = _born_between(line)
            born = _born(line)
            if first is None or last is None or not born or last < first:
                continue
            steps = buckets[i]
            for step in range(steps.at(first), steps.at(last) + 1):
                from_us = steps.start_us + step * steps.step_us
                covered = max(0, min(last, from_us + steps.step_us) - max(first, from_us))
                by_bucket[i][step] += born * (covered / (last - first) if last > first else 1.0)
        return by_bucket

    def births(
        self, runs: Identities, buckets: Mapping[int, Buckets]
    ) -> tuple[Mapping[int, Mapping[int, float]], Mapping[int, Collection[str]]]:
        by_bucket: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        traces: dict[int, set[str]] = defaultdict(set)
        for i, line in self._births.mine(runs):
            by_bucket[i][buckets[i].at(line["time"])] += line["events"]
            if line["trace"]:
                traces[i].add(line["trace"])
        return by_bucket, traces

    def deliveries(self, runs: Identities, timed: Collection[int]) -> DeliveriesInProcess | None:
        lines = _Lines("matches", self._run_files)
        if not lines.whole:
            return None
        born = _Births((i, line) for i, line in self._births.mine(runs) if i in timed)
        return DeliveriesInProcess(lines, born)

    def in_trace(self, trace: PreparedTrace) -> Mapping[tuple[str, str], int]:
        import pyarrow.parquet as pq

        events: dict[tuple[str, str], int] = defaultdict(int)
        for node in trace.manifest.nodes:
            for file in trace.files_of(node):
                # The folder is called node=..: only the file itself is meant.
                for batch in pq.ParquetFile(file).iter_batches(columns=["type"]):
                    for count in batch.column(0).value_counts().to_pylist():
                        events[node, count["values"]] += count["counts"]
        return events


def _cover(run: str, lines: list[Line]) -> Coverage:
    """What some records of one node cover."""
    lines.sort(key=lambda line: (line["time"], line["since"]))
    gaps = [after["since"] - before["time"] for before, after in pairwise(lines)]
    born = [_born_between(line) for line in lines]
    return Coverage(
        run=run,
        network=max((line["network"] for line in lines if line["network"] is not None), default=""),
        strategy=max((line["strategy"] for line in lines if line["strategy"] is not None), default=""),
        first_us=min(line["since"] for line in lines),
        last_us=max(line["time"] for line in lines),
        records=len(lines),
        starts=sum(1 for gap in gaps if gap),
        uncovered_us=sum(gap for gap in gaps if gap > 0),
        born_from_us=min((first for first, _ in born if first is not None), default=None),
        born_to_us=max((last for _, last in born if last is not None), default=None),
    )


def _values(values: Sequence[Mapping[str, Any]] | None) -> Iterator[tuple[str, Labels, float | None]]:
    for value in values or ():
        yield value["name"], tuple(sorted((value.get("labels") or {}).items())), value.get("value")


def _born(line: Line) -> float:
    """How many events a record says were born."""
    return sum(value or 0 for name, _, value in _values(line["counters"]) if name == BORN)


def _born_between(line: Line) -> tuple[int | None, int | None]:
    """When the first and the last event of a record were born. Records of earlier versions say only that some were."""
    first, last = line["born_from"], line["born_to"]
    if first is not None and last is not None:
        return first, last
    return (line["since"], line["time"]) if _born(line) > 0 else (first, last)


class _Births:
    """When events were born, by run, node and number: ranges, cut into pieces so that few are looked at."""

    def __init__(self, lines: Iterator[tuple[int, Line]]) -> None:
        whole_lines = list(lines)
        lengths = [line["last_seq"] - line["first_seq"] + 1 for _, line in whole_lines]
        self._width = piece_width(sum(lengths) / len(lengths) if lengths else None)
        self._pieces: dict[tuple[int, str, int], list[Line]] = defaultdict(list)
        for i, line in whole_lines:
            for piece in range(line["first_seq"] // self._width, line["last_seq"] // self._width + 1):
                self._pieces[i, line["node"], piece].append(line)

    def of(self, i: int, match: Line) -> int | None:
        """When the batch with the latest part of a match was born; None where no record tells."""
        seq, ts = match["end_seq"], match["ts"]
        if seq is None:
            return None
        return max(
            (
                line["time"]
                for line in self._pieces.get((i, match["end_node"], seq // self._width), ())
                if line["first_seq"] <= seq <= line["last_seq"]
                and line["first_ts"] is not None
                and line["last_ts"] is not None
                and line["first_ts"] <= ts <= line["last_ts"]
            ),
            default=None,
        )


class DeliveriesInProcess:
    """Every delivery of every run, once."""

    def __init__(self, lines: _Lines, births: _Births) -> None:
        self._counts = {i: (len(whole), lines.bad.get(i, 0)) for i, whole in lines.whole.items()}
        by_key: dict[tuple[int, str, str, int, int, str, str], tuple[int, int | None, int | None]] = {}
        for i, whole in lines.whole.items():
            for line in whole:
                key = (i, line["run"] or "", line["node"], line["sink"], line["number"], line["id"], line["rule"])
                seen = (line["delivered"], line["latency_us"], births.of(i, line))
                before = by_key.get(key)
                by_key[key] = seen if before is None else _earlier(before, seen)
        self._deliveries = [RecordedDelivery(*key, seen[0], _latency(*seen)) for key, seen in by_key.items()]

    def between(self, runs: Identities) -> Mapping[int, Span]:
        times: dict[int, list[int]] = defaultdict(list)
        for delivery in self._own(runs):
            times[delivery.i].append(delivery.delivered_us)
        return {i: (min(moments), max(moments)) for i, moments in times.items()}

    def summed(self, runs: Identities, buckets: Mapping[int, Buckets]) -> Mapping[int, RunDeliveries]:
        result: dict[int, RunDeliveries] = defaultdict(RunDeliveries)
        latencies: dict[tuple[int, str], list[int | None]] = defaultdict(list)
        for delivery in self._deliveries:
            here = result[delivery.i]
            if not _is_own(delivery, runs):
                here.strangers[delivery.node, delivery.run] += 1
                continue
            here.over_time[buckets[delivery.i].at(delivery.delivered_us)] += 1
            numbers = here.sinks.setdefault(delivery.sink, [0, delivery.number, delivery.number])
            numbers[:] = numbers[0] + 1, min(numbers[1], delivery.number), max(numbers[2], delivery.number)
            for rule in dict.fromkeys((delivery.rule, "")):
                latencies[delivery.i, rule].append(delivery.latency_us)
        for (i, rule), values in latencies.items():
            result[i].latency[rule] = _summary(values)
        return result

    def compared(
        self, runs: Identities, shapes: Sequence[Shape], references: Sequence[int | None], sinks: Sequence[int]
    ) -> Sequence[RunComparison]:
        lines = [0] * len(shapes)
        by_id: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for delivery in self._own(runs):
            lines[delivery.i] += 1
            by_id[delivery.id][delivery.i].add(delivery.sink)
        result = []
        for i, (shape, other) in enumerate(zip(shapes, references, strict=True)):
            got = [reached.get(i, set()) for reached in by_id.values()]
            composites = sum(map(len, got))
            verdict = RunComparison(
                composites,
                lines[i] - composites,
                {
                    link: sum(1 for reached_sinks in got if reached_sinks & below)
                    for link, below in sinks_below(shape).items()
                },
            )
            if other is not None:
                theirs = [reached.get(other, set()) for reached in by_id.values()]
                verdict.same = sum(len(one & two) for one, two in zip(got, theirs, strict=True))
                verdict.missing, verdict.extra = sum(map(len, theirs)) - verdict.same, composites - verdict.same
            result.append(verdict)
        return result

    def lines(self, run: int) -> tuple[int, int]:
        return self._counts.get(run, (0, 0))

    def _own(self, runs: Identities) -> Iterator[RecordedDelivery]:
        return (delivery for delivery in self._deliveries if _is_own(delivery, runs))


def _is_own(delivery: RecordedDelivery, runs: Identities) -> bool:
    return delivery.run in ("", runs[delivery.i])


def _earlier(
    one: tuple[int, int | None, int | None], other: tuple[int, int | None, int | None]
) -> tuple[int, int | None, int | None]:
    """The same delivery in two lines: the first one counts, and the latest birth of its batch."""
    latencies = [latency for latency in (one[1], other[1]) if latency is not None]
    births = [birth for birth in (one[2], other[2]) if birth is not None]
    return min(one[0], other[0]), min(latencies, default=None), max(births, default=None)


def _latency(delivered_us: int, told_us: int | None, born_us: int | None) -> int | None:
    return told_us if told_us is not None else None if born_us is None else delivered_us - born_us


def _summary(values: Sequence[int | None]) -> Latency:
    latencies = sorted(value for value in values if value is not None)
    if not latencies:
        return Latency(len(values), 0, None, None, {}, [])
    return Latency(
        len(values),
        len(latencies),
        sum(latencies) / len(latencies),
        latencies[-1],
        {percentile: _ranked(latencies, percentile / 100) for percentile in PERCENTILES},
        [(share, _ranked(latencies, share)) for share in CDF_SHARES],
    )


def _ranked(ordered: Sequence[int], share: float) -> int:
    """The least of the numbers that at least this share of them does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
