"""A node in the middle of three passes events on, beside two bare processes that pass the same bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import msgpack
import zmq

from benchmarks.network_ends import feeder, taker
from benchmarks.network_kit import CONTEXT, Stage, a_folder
from headwater.protocol.edge import ClientFeed, ClientTo
from headwater.protocol.events import EventType
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

BATCH = 200
READING = EventType("Reading", {"sensor": "int", "value": "float"})


def a_line() -> Network:
    return Network(
        types=(READING,),
        nodes=("relay", "source", "target"),
        links=(Link("source", "relay"), Link("relay", "target")),
        sources=(Source("source", "Reading", lateness_us=60_000_000),),
        sinks=(Sink("target", Subscription("Reading")),),
        rules=(),
        strategy="st",
    )


def frames(count: int, first: int) -> Iterator[Any]:
    """Frames of 200 events as they come from a device."""
    ts = time.time_ns() // 1000
    for start in range(first, first + count, BATCH):
        yield [(0, [(ts + seq, "source", seq, seq % 1000, seq / 8) for seq in range(start, start + BATCH)], None)]


def relay(durability: str, events: int, repeats: int) -> tuple[list[dict[str, float]], list[bytes]]:
    """By repetition: events, wall and CPU seconds of the relay; and the payloads that it was given."""
    runs = []
    keeps_nothing = {"source": "none", "target": "none"}
    scripts = {"source": feeder, "target": taker}
    with (
        a_folder() as folder,
        Stage(a_line(), folder, (ClientFeed(),), (ClientTo("absent"),), durability, scripts, keeps_nothing) as stage,
    ):
        payloads: list[bytes] = []
        for number in range(repeats):
            source, target = stage.pipes["source"], stage.pipes["target"]
            target.send(("take", "relay"))
            stage.hear("target")
            source.send(("relay", frames, (events, 1 + number * events)))
            born, payloads = stage.hear("source")
            before_s = stage.cpu_s("relay")
            source.send("go")
            began_s, _ = stage.hear("source")
            last = -1
            while True:
                target.send("how many")
                now = stage.hear("target")
                if now == last:
                    break
                last = now
                time.sleep(0.5)
            target.send("taken")
            ended_s, arrived, different = stage.hear("target")
            cpu = stage.cpu_s("relay") - before_s
            if (arrived, different) != (born, born):
                raise SystemExit(f"relay: {born} events left, {arrived} arrived, {different} of them different ones")
            runs.append({"events": born, "seconds": ended_s - began_s, "cpu": cpu})
    return runs, payloads


# ------------------------------------------------------------------------------------------------------------ the limit


def _push(address: str, payloads: list[bytes], times: int) -> None:
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(address)
        for _ in range(times):
            for payload in payloads:
                socket.send(payload)
        socket.send(b"")
        socket.close(linger=-1)


def _pull(pipe: Connection) -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        pipe.send(f"tcp://127.0.0.1:{port}")
        while True:
            data = socket.recv()
            began_s = time.monotonic()
            frames = 0
            while data:
                msgpack.unpackb(data)
                frames += 1
                data = socket.recv()
            pipe.send((frames, time.monotonic() - began_s))


def plain_rows() -> list[bytes]:
    """The same events in the plainest form: a list of events, each a list of its time, identity and values."""
    return [msgpack.packb([list(row) for row in rows]) for [(_, rows, _)] in frames(20_000, 1)]


def raw(payloads: list[bytes], events: int, repeats: int) -> float:
    """Events per second that two bare processes pass, decoded where they arrive; the best of some runs."""
    here, there = CONTEXT.Pipe()
    puller = CONTEXT.Process(target=_pull, args=(there,), daemon=True)
    puller.start()
    address = here.recv()
    best = 0.0
    times = max(1, events // (len(payloads) * BATCH))
    try:
        for _ in range(repeats):
            pusher = CONTEXT.Process(target=_push, args=(address, payloads, times), daemon=True)
            pusher.start()
            frames, seconds = here.recv()
            pusher.join()
            if frames != len(payloads) * times:
                raise SystemExit(f"raw limit: {len(payloads) * times} frames left, {frames} arrived")
            best = max(best, frames * BATCH / seconds)
    finally:
        puller.kill()
        puller.join()
    return best
