"""Runs the adapters of the configured sources and sinks, and restarts those that fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.node.daemon.clients import Clients
from headwater.node.daemon.deliveries import SinkDeliveries
from headwater.node.edge.adapters import make_sink, make_source
from headwater.node.edge.backoff import Backoff
from headwater.node.edge.dead_letters import DeadLetters
from headwater.node.edge.interfaces import Edge, SourceAdapter
from headwater.protocol.edge import ClientFeed, ClientTo
from headwater.protocol.messages.control import Answer, NodeConfig, SinkConfig, SourceConfig

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

RETRY_LEAST_S: Final = 0.2
RETRY_MOST_S: Final = 10.0

log = logging.getLogger("headwater.edge")


class Adapters:
    """Everything at the edge of one node."""

    def __init__(self, daemon: NodeDaemon) -> None:
        self._daemon = daemon
        self.clients = Clients(daemon)
        settings = daemon.settings
        self.dead_letters = DeadLetters(settings.data)
        self.edge = Edge(
            settings.network, settings.name, settings.data, self.dead_letters, reborn=daemon.machine.rebirths > 0
        )
        self._sources: dict[int, tuple[SourceConfig, asyncio.Task[None]]] = {}
        self._sinks: dict[int, tuple[SinkConfig, SinkDeliveries | None, asyncio.Task[None] | None]] = {}

    def follow(self, config: NodeConfig) -> None:
        """Start what is new, stop what is gone, and restart what has changed."""
        self.edge.durability = config.durability
        self._follow_sources({source.number: source for source in config.sources})
        self._follow_sinks({sink.number: sink for sink in config.sinks})
        self.clients.follow()

    def _follow_sources(self, sources: Mapping[int, SourceConfig]) -> None:
        for number, (config, running) in list(self._sources.items()):
            if sources.get(number) != config:
                running.cancel()
                del self._sources[number]
                self.edge.ends.pop(("source", number), None)
        machine = self._daemon.machine
        adapters: list[tuple[SourceConfig, SourceAdapter]] = []  # all before one of them runs: traces take turns
        for number, source in sources.items():
            if number not in self._sources and number not in machine.ended:
                declared = machine.type_of_source(number)
                assert declared is not None
                adapter = make_source(number, source.feed, declared, self.edge)
                if adapter is not None:
                    adapters.append((source, adapter))
        for source, adapter in adapters:
            label = f"source {source.number} ({source.source.type})"
            task = asyncio.create_task(self._insist(label, self._source, source.number, adapter))
            self._sources[source.number] = (source, task)

    def _follow_sinks(self, sinks: Mapping[int, SinkConfig]) -> None:
        for number, (config, _, task_or_none) in list(self._sinks.items()):
            if sinks.get(number) != config:
                if task_or_none is not None:
                    task_or_none.cancel()
                del self._sinks[number]
                self.edge.ends.pop(("sink", number), None)
        for number, sink in sinks.items():
            if number not in self._sinks:
                if isinstance(sink.destination, ClientTo):
                    self._sinks[number] = (sink, None, None)
                    continue
                deliveries = SinkDeliveries(self._daemon, number)
                sending = asyncio.create_task(self._insist(f"sink {number}", self._sink, sink, deliveries))
                self._sinks[number] = (sink, deliveries, sending)

    async def _source(self, number: int, adapter: SourceAdapter) -> None:
        intake = self._daemon.intake
        await intake.may_publish()  # before the node has a plan it does not know the source
        await adapter.run(intake, self._daemon.machine.positions.get(number))

    async def _sink(self, sink: SinkConfig, deliveries: SinkDeliveries) -> None:
        adapter = make_sink(sink.number, sink.destination, self.edge)
        assert adapter is not None
        deliveries.again()
        await adapter.run(deliveries, self._daemon.machine.sinks[sink.number].confirmed)

    async def _insist(self, label: str, run: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Run it until it ends by itself. A failure is logged, and the next try waits longer each time."""
        backoff = Backoff(RETRY_LEAST_S, RETRY_MOST_S)
        while True:
            try:
                await run(*arguments)
                return
            except Exception as error:
                wait_s = backoff.next_s()
                log.exception("%s failed and is started again in %.1f s: %s", label, wait_s, error)
                self._daemon.watching.reported({"failed_adapters": 1})
                await asyncio.sleep(wait_s)

    def is_connected(self, kind: str, end: SourceConfig | SinkConfig) -> bool | None:
        """Whether the other end of a source or sink is there; None if it has no other end."""
        match end:
            case SourceConfig(feed=ClientFeed()):
                return self.clients.is_fed(end.number)
            case SinkConfig(destination=ClientTo()):
                return self.clients.is_read(end.number)
            case _:
                presence = self.edge.ends.get((kind, end.number))
                return None if presence is None else presence.is_there

    def released(self, sink: int, count: int) -> None:
        """Deliveries up to this number are durable."""
        if sink not in self._sinks:
            return  # it is gone, or its configuration follows
        _, deliveries, _ = self._sinks[sink]
        if deliveries is not None:
            deliveries.released(count)
        else:
            self.clients.released(sink, count)

    def answered(self, answer: Answer) -> None:
        self.clients.answered(answer)

    async def close_sources(self) -> None:
        await _cancelled([task for _, task in self._sources.values()])
        self._sources.clear()

    async def close(self) -> None:
        await self.close_sources()
        self.clients.close()
        await _cancelled([task for _, _, task in self._sinks.values() if task is not None])
        self._sinks.clear()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    waiting: list[Awaitable[Any]] = list(tasks)
    await asyncio.gather(*waiting, return_exceptions=True)
