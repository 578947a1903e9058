"""Programs that subscribe at the nodes of a network of real processes, each from a client of its own."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from headwater.node.client import Client, ClientError
from headwater.node.edge.interfaces import identity
from headwater.protocol.network import Sink
from headwater.protocol.subscriptions import print_subscription
from tests.kit.processes import Cluster, Difference, named, until

AWAY_S = 1.0
"""A program that leaves is back after so long."""


@dataclass(eq=False)
class Program:
    """One subscriber. It reads on when its node is killed, and names its last delivery when it has been away."""

    name: str
    sink: Sink
    heard: list[dict[str, Any]] = field(default_factory=list)
    forgiven: set[str] = field(default_factory=set)
    """Identities that waited for it at a node whose journal was lost; nothing else had them."""
    left: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def identities(self) -> set[str]:
        return {identity(delivery) for delivery in list(self.heard)}

    def repeated(self) -> list[str]:
        """Identities that came more than once from one life of the node."""
        times = Counter((delivery["delivery"].partition(":")[0], identity(delivery)) for delivery in self.heard)
        return sorted(what for (_, what), count in times.items() if count > 1)


class Programs:
    """All programs of a cluster, in a thread. Use it in a ``with`` block inside that of the cluster."""

    def __init__(self, cluster: Cluster, sinks: Iterable[Sink]) -> None:
        self.cluster = cluster
        self.programs = [Program(program_name(number), sink) for number, sink in enumerate(sinks)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="programs", daemon=True)

    def __enter__(self) -> Programs:
        self._thread.start()
        for program in self.programs:
            self._loop.call_soon_threadsafe(self._begin, program)
        return self

    def __exit__(self, *_: object) -> None:
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def leave(self, program: Program) -> None:
        """The program ends its connection without a word about what it has read, and is back a little later."""
        program.left += 1
        self._loop.call_soon_threadsafe(self._begin, program, AWAY_S)

    def at(self, node: str) -> list[Program]:
        return [program for program in self.programs if program.sink.node == node]

    def difference(self, must: Iterable[Iterable[Any]]) -> Difference:
        """What programs have heard against what they must hear, each at least once; never twice from one life."""
        missing: list[str] = []
        repeated: list[str] = []
        false: list[str] = []
        for program, wanted in zip(self.programs, _as_written(must), strict=True):
            heard = program.identities
            missing += [f"{program.name}: {key}" for key in sorted(wanted - heard - program.forgiven)]
            false += [f"{program.name}: {key}" for key in sorted(heard - wanted)]
            repeated += [f"{program.name}: {key}" for key in program.repeated()]
        return Difference(tuple(missing), tuple(repeated), tuple(false))

    def wait_until_heard(self, must: Collection[Iterable[Any]]) -> None:
        def missing() -> tuple[str, ...]:
            return self.difference(must).missing

        until(lambda: not missing(), "programs have heard everything", self.cluster, lambda: f"not of {missing()}")

    def _begin(self, program: Program, after_s: float = 0.0) -> None:
        last = program.task
        program.task = self._loop.create_task(self._run(program, last, after_s))

    async def _run(self, program: Program, last: asyncio.Task[None] | None, after_s: float) -> None:
        if last is not None:
            last.cancel()
            with suppress(asyncio.CancelledError):
                await last
            await asyncio.sleep(after_s)
        node = program.sink.node
        address = self.cluster.log(node).with_suffix(".address")
        while not address.exists():
            await asyncio.sleep(0.05)
        while True:
            since = program.heard[-1]["delivery"] if program.heard else None
            # A program that comes back at once may find its own name taken until its node has noticed that it left.
            with suppress(ClientError):
                async with Client(node, address.read_text(), name=program.name, network="test") as client:
                    async for delivery in client.subscribe(print_subscription(program.sink.subscription), since=since):
                        program.heard.append(delivery)

    async def _end(self) -> None:
        tasks = [program.task for program in self.programs if program.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def program_name(number: int) -> str:
    return f"program-{number}"


def _as_written(must: Iterable[Iterable[Any]]) -> list[set[str]]:
    return [{named(key) for key in wanted} for wanted in must]
