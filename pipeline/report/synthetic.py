"""Generates records of a run of any size, to measure and try reports with. Equal arguments give equal records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final

from headwater.pipeline.report.inputs import Recorded
from headwater.pipeline.report.shape import Shape, ShapeLink, ShapeSink, write_recording
from headwater.protocol.formats import RECORDS
from headwater.protocol.strategy import DEFAULT_STRATEGY

LINES_PER_FILE: Final = 200_000
METRICS_EVERY_US: Final = 10_000_000
BATCH: Final = 1_000  # events in a batch of births
START_US: Final = 1_700_000_000_000_000

_written = json.JSONEncoder(separators=(",", ":")).encode


def synthetic_run(
    folder: Path,
    *,
    matches: int,
    events: int | None = None,
    nodes: int = 10,
    rules: int = 5,
    strategy: str = DEFAULT_STRATEGY,
    replayed: bool = True,
    seed: int = 0,
) -> Recorded:
    """Write records of so many matches and events (ten for each match if that is not said) into a new folder.

    Nodes are a line whose middle leads; every second one is a sink. Latencies are lognormal. With ``replayed`` they
    follow from births alone, so that reports must join the two.
    """
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    middle = nodes // 2
    born = 10 * matches if events is None else events
    shape = Shape(
        network="synthetic",
        strategy=strategy,
        nodes=names,
        links=tuple(ShapeLink(one, other, 1_000) for one, other in pairwise(names)),
        sources=tuple((node, "A") for node in names),
        sinks=tuple(ShapeSink(node, f"X{number % rules}") for number, node in enumerate(names[::2])),
        rules=tuple(f"rule{number}" for number in range(rules)),
        types=("A",),
        leader=names[middle],
        parents={
            name: None if number == middle else names[number + (1 if number < middle else -1)]
            for number, name in enumerate(names)
        },
        run=f"{seed:016x}",
        seed=seed,
        replayed=replayed,
    )
    folders = {node: folder / "data" / node / "records" for node in names}
    random = Random(f"{seed}/{strategy}")
    owned = [born // nodes + (number < born % nodes) for number in range(nodes)]
    duration_us = max(METRICS_EVERY_US, born * 20)
    for number, (node, own) in enumerate(zip(names, owned, strict=True)):
        folders[node].mkdir(parents=True)
        _write(folders[node], "births", _births(shape, node, own, duration_us))
        _write(folders[node], "metrics", _metrics(shape, number, own, duration_us))
    sinks = len(shape.sinks)
    for number, sink in enumerate(shape.sinks):
        count = matches // sinks + (number < matches % sinks)
        lines = _matches(shape, number, sink.node, count, owned, duration_us, random)
        _write(folders[sink.node], "matches", lines)
    write_recording(folder, shape)
    return Recorded(folder.name, shape, folders)


def _births(shape: Shape, node: str, events: int, duration_us: int) -> Iterator[dict[str, Any]]:
    for first in range(1, events + 1, BATCH):
        last = min(events, first + BATCH - 1)
        yield {
            "v": RECORDS, "run": shape.run, "node": node, "time": _birth_us(first, events, duration_us),
            "first_seq": first, "last_seq": last, "first_ts": first, "last_ts": last, "events": last - first + 1,
        }  # fmt: skip


def _birth_us(seq: int, events: int, duration_us: int) -> int:
    """When the batch that holds a number was born."""
    return START_US + (seq - 1) // BATCH * BATCH * duration_us // max(events, 1)


def _matches(
    shape: Shape, sink: int, node: str, count: int, owned: Sequence[int], duration_us: int, random: Random
) -> Iterator[dict[str, Any]]:
    """Matches whose latest part is any event of any node that has some."""
    nodes, rules, draw, bits = shape.nodes, shape.rules, random.random, random.getrandbits
    born = sum(1 for is_born in owned if is_born)
    for number in range(1, count + 1):
        place = int(draw() * born)
        seq = 1 + int(draw() * owned[place])
        born_us = _birth_us(seq, owned[place], duration_us)
        latency_us = 1 + int(random.lognormvariate(8, 1))
        rule = int(draw() * len(rules))
        yield {
            "v": RECORDS, "run": shape.run, "node": node, "sink": sink, "number": number, "id": f"{bits(128):032x}",
            "rule": rules[rule], "version": 1, "type": f"X{rule}", "ts": seq,
            "end_node": nodes[place], "end_seq": seq, "delivered": born_us + latency_us,
            "latency_us": None if shape.replayed else latency_us,
        }  # fmt: skip


def _metrics(shape: Shape, number: int, events: int, duration_us: int) -> Iterator[dict[str, Any]]:
    node, steps = shape.nodes[number], max(1, duration_us // METRICS_EVERY_US)
    around = [link.other if link.one == node else link.one for link in shape.links if node in (link.one, link.other)]
    for step in range(steps):
        some = events * (step + 1) // steps - events * step // steps
        counters = [_value("headwater_events_born_total", {"type": "A"}, some)]
        for peer in around:
            for kind, sent, size in (("primitive", some // 4, 40), ("composite", some // 40, 90), ("watermark", 0, 12)):
                labels = {"peer": peer, "kind": kind}
                counters += [
                    _value("headwater_link_sent_events_total", labels, sent),
                    _value("headwater_link_sent_messages_total", labels, some // 100 + 1),
                    _value("headwater_link_sent_bytes_total", labels, size * (sent + 1)),
                ]
        gauges = [
            _value("headwater_held_rows", {"purpose": purpose}, (step * 37 + number) % 1000)
            for purpose in ("partial_matches", "tasks", "events")
        ]
        yield {
            "v": RECORDS, "run": shape.run, "network": shape.network, "strategy": shape.strategy, "node": node,
            "life": "synthetic", "time": START_US + (step + 1) * METRICS_EVERY_US,
            "since": START_US + step * METRICS_EVERY_US, "counters": counters, "gauges": gauges,
        }  # fmt: skip


def _value(name: str, labels: dict[str, str], value: float) -> dict[str, Any]:
    return {"name": name, "labels": labels, "value": value}


def _write(folder: Path, kind: str, lines: Iterator[dict[str, Any]]) -> None:
    file, left, number = None, 0, 0
    try:
        for line in lines:
            if not left or file is None:
                if file is not None:
                    file.close()
                number, left = number + 1, LINES_PER_FILE
                file = (folder / f"{kind}-{number:05}.jsonl").open("w", encoding="utf-8")
            file.write(_written(line) + "\n")
            left -= 1
    finally:
        if file is not None:
            file.close()
