"""From ``Client.publish`` at one end of a line of three nodes to a subscribed program at the other end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from multiprocessing.connection import Connection

from benchmarks.network_kit import CONTEXT, NETWORK, PATIENCE_S, Stage, a_folder
from headwater.node.client import Client
from headwater.protocol.edge import ClientFeed
from headwater.protocol.events import EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Source

PER_S = 1_000
WARM_S = 1.0  # the first publications make connections, and pages of memory, and are left out
TYPES = (EventType("Smoke", {"area": "int", "sent": "int"}), EventType("Temp", {"area": "int", "sent": "int"}))
RULE = """
define Fire(area: int, sent: int) from Temp() and each Smoke(area = Temp.area) within 5 s from Temp
where area = Temp.area, sent = Temp.sent
"""


def a_line() -> Network:
    rules = parse_rules([Text(RULE, "fire.tesla", "tesla")], TYPES).rules
    return Network(
        types=TYPES,
        nodes=("far", "middle", "near"),
        links=(Link("near", "middle"), Link("middle", "far")),
        sources=(Source("near", "Smoke"), Source("near", "Temp")),
        sinks=(),
        rules=rules,
        strategy="st",
    )


def publisher(pipe: Connection, address: str, seconds: float) -> None:
    """Publishes a Smoke and then a Temp of the same area, each on its own, at a steady pace."""

    async def run() -> None:
        async with Client("near", address, name="publisher", network=NETWORK) as client:
            await client.connected(PATIENCE_S)
            count = int(seconds * PER_S) // 2 * 2
            began_s = time.monotonic()
            tasks = set()
            for number in range(count):
                due_s = began_s + number / PER_S
                wait_s = due_s - time.monotonic()
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                kind = "Smoke" if number % 2 == 0 else "Temp"
                event = {"area": number // 2, "sent": time.time_ns() // 1000}
                task = asyncio.create_task(client.publish(kind, event))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                if len(tasks) > PER_S:
                    await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            pipe.send((count // 2, time.monotonic() - began_s))

    _run(run())


def subscriber(pipe: Connection, address: str) -> None:
    """Notes for every composite when it was published and how long ago that was, until all that it is told to expect
    are there."""

    async def run() -> None:
        async with Client("far", address, name="subscriber", network=NETWORK) as client:
            await client.connected(PATIENCE_S)
            arrived: list[tuple[int, int]] = []

            async def listen() -> None:
                async for fire in client.subscribe("Fire"):
                    sent = fire["attributes"]["sent"]
                    arrived.append((sent, time.time_ns() // 1000 - sent))

            listening = asyncio.create_task(listen())
            await asyncio.sleep(0.5)
            pipe.send("ready")
            while not pipe.poll():
                await asyncio.sleep(0.05)
            expected = pipe.recv()
            ends_s = time.monotonic() + PATIENCE_S
            while len(arrived) < expected and time.monotonic() < ends_s and not listening.done():
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)  # whatever comes twice would come now
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening
            pipe.send(arrived)

    _run(run())


def _run(running: object) -> None:
    import uvloop

    uvloop.run(running)  # type: ignore[arg-type]


def latencies(durability: str, seconds: float) -> tuple[int, list[float]]:
    """How many were published, and milliseconds from publishing to arrival of each after warming up."""
    with a_folder() as folder, Stage(a_line(), folder, (ClientFeed(), ClientFeed()), (), durability) as stage:
        from_publisher, to_publisher = CONTEXT.Pipe()
        from_subscriber, to_subscriber = CONTEXT.Pipe()
        listening = CONTEXT.Process(target=subscriber, args=(to_subscriber, stage.address("far")), daemon=True)
        listening.start()
        talking = None
        try:
            from_subscriber.recv()
            stage.until(lambda: all(stage._is_ready(node) for node in stage.network.nodes), "the sink is deployed")
            time.sleep(1.0)
            talking = CONTEXT.Process(
                target=publisher, args=(to_publisher, stage.address("near"), seconds + WARM_S), daemon=True
            )
            talking.start()
            pairs, _ = from_publisher.recv()
            from_subscriber.send(pairs)
            arrived = from_subscriber.recv()
        finally:
            for process in (listening, talking):
                if process is not None:
                    process.kill()
                    process.join()
    if len(arrived) != pairs or len({sent for sent, _ in arrived}) != pairs:
        raise SystemExit(f"latency: {pairs} composites are right, {len(arrived)} arrived")
    first = min(sent for sent, _ in arrived)
    return pairs, [took / 1000 for sent, took in arrived if sent > first + WARM_S * 1e6]


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
