"""A node that evaluates W1, beside the bare engine.

Of the ten types of W1 the rule reads three, and only those ever reach a node: the others are not requested. So both are
given the events of these three types, and both find all matches of the workload.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.engine import GC_THRESHOLD, drain
from benchmarks.network_ends import feeder
from benchmarks.network_kit import CONTEXT, Stage, a_folder
from benchmarks.workloads import WORKLOADS
from headwater.node.daemon.daemon import NodeDaemon
from headwater.node.engine import Engine
from headwater.protocol.edge import ClientFeed, ClientTo
from headwater.protocol.events import Event
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

W1 = next(workload for workload in WORKLOADS if workload.name == "W1")
READ = ("A", "B", "C")
BATCH = 200


def events_read(count: int | None) -> list[Event]:
    return [event for event in W1.trace(count) if event[3].name in READ]


def a_pair() -> Network:
    (rule,) = W1.rules().rules
    return Network(
        types=tuple(W1.types()[name] for name in READ),
        nodes=("evaluator", "source"),
        links=(Link("evaluator", "source"),),
        sources=tuple(Source("source", name, replayed=True) for name in READ),
        sinks=(Sink("evaluator", Subscription(rule.emits)),),
        rules=(rule,),
        strategy="centr",
    )


def frames(count: int | None, turn: int) -> Iterator[Any]:
    """Frames of 200 events of all three types with a watermark, as for the bare engine; a turn is a minute later."""
    events = events_read(count)
    later_us, later = turn * 60_000_000, turn * len(events) * 10
    for start in range(0, len(events), BATCH):
        batch = events[start : start + BATCH]
        watermark = batch[-1][0] + later_us - 1
        yield [
            (number, [(r[0] + later_us, r[1], r[2] + later, *r[4:]) for r in batch if r[3].name == name], watermark)
            for number, name in enumerate(READ)
        ]


async def evaluator(daemon: NodeDaemon, pipe: Connection) -> None:
    """A node whose sink reads its deliveries and drops them, as that of the bare engine does; it says when the last
    one came and how many there were, whenever it is asked."""
    import asyncio

    last_s = 0.0

    def released(sink: int, count: int) -> None:
        nonlocal last_s
        last_s = time.monotonic()
        daemon.drop_deliveries(sink, count)

    daemon.adapters.released = released  # type: ignore[method-assign]
    while True:
        while not pipe.poll():
            await asyncio.sleep(0.05)
        pipe.recv()
        pipe.send((last_s, sum(sink.count for sink in daemon.machine.sinks.values())))


def bare(pipe: Connection, count: int | None, repeats: int) -> None:
    """In a process of its own: CPU and wall seconds of the engine alone, and its matches."""
    gc.set_threshold(GC_THRESHOLD, 50, 50)
    events = events_read(count)
    batches = [events[i : i + BATCH] for i in range(0, len(events), BATCH)]
    rules = W1.rules()
    gc.collect()
    gc.freeze()
    runs = []
    for _ in range(repeats):
        wall_s, cpu_s = time.monotonic(), time.process_time()
        matches = drain(Engine(rules), batches)
        runs.append((time.process_time() - cpu_s, time.monotonic() - wall_s, matches))
    # Each on its own: the run with the least CPU time may have waited long for the processor.
    pipe.send((len(events), (min(run[0] for run in runs), min(run[1] for run in runs), runs[0][2])))


def engine_alone(count: int | None, repeats: int) -> tuple[int, tuple[float, float, int]]:
    here, there = CONTEXT.Pipe()
    process = CONTEXT.Process(target=bare, args=(there, count, repeats), daemon=True)
    process.start()
    measured: tuple[int, tuple[float, float, int]] = here.recv()
    process.join()
    return measured


def node(durability: str, count: int | None, turns: int) -> list[dict[str, float]]:
    """By turn: events, matches, wall and CPU seconds of the node."""
    runs = []
    keeps_nothing = {"source": "none"}
    scripts = {"source": feeder, "evaluator": evaluator}
    feeds = tuple(ClientFeed() for _ in READ)
    with (
        a_folder() as folder,
        Stage(a_pair(), folder, feeds, (ClientTo("absent"),), durability, scripts, keeps_nothing) as stage,
    ):
        source, target = stage.pipes["source"], stage.pipes["evaluator"]
        before = 0
        for turn in range(turns):
            source.send(("evaluator", frames, (count, turn)))
            events, _ = stage.hear("source")
            before_s = stage.cpu_s("evaluator")
            source.send("go")
            began_s, _ = stage.hear("source")
            target.send("how many")
            last: tuple[float, int] = stage.hear("evaluator")
            while True:
                time.sleep(0.5)
                target.send("how many")
                now = stage.hear("evaluator")
                if now == last:
                    break
                last = now
            cpu = stage.cpu_s("evaluator") - before_s
            runs.append({"events": events, "seconds": last[0] - began_s, "cpu": cpu, "matches": last[1] - before})
            before = last[1]
    return runs
