"""Passes durable deliveries to the adapters of sinks, and records which of them are confirmed."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from headwater.node.daemon.journal_records import Confirmed
from headwater.node.daemon.machine import as_json

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

OFFERED_MAX: Final = 1_000  # deliveries given to an adapter at once


class SinkDeliveries:
    """The deliveries of one sink as its adapter sees them: those that are durable and were not offered yet."""

    def __init__(self, daemon: NodeDaemon, sink: int) -> None:
        self._daemon = daemon
        self._sink = sink
        self._offered = daemon.machine.sinks[sink].confirmed
        self._durable = daemon.machine.sinks[sink].count
        self._more = asyncio.Event()
        self._confirmed = asyncio.Event()

    def again(self) -> None:
        """The adapter starts over: what it has not confirmed is offered again."""
        self._offered = self._daemon.machine.sinks[self._sink].confirmed

    def released(self, count: int) -> None:
        """Everything up to this number is durable now."""
        self._durable = count
        self._more.set()

    async def next(self) -> list[tuple[int, dict[str, Any]]]:
        sink = self._daemon.machine.sinks[self._sink]
        while (begin := max(sink.first, self._offered + 1)) > self._durable:
            self._more.clear()
            await self._more.wait()
        first = sink.first
        end = min(begin + OFFERED_MAX, self._durable + 1)
        self._offered = end - 1
        rows = islice(sink.waiting, begin - first, end - first)
        return [(number, as_json(row)) for number, row in enumerate(rows, begin)]

    async def read(self, number: int) -> None:
        """Wait until everything up to this number is confirmed."""
        while self._daemon.machine.sinks[self._sink].confirmed < number:
            self._confirmed.clear()
            await self._confirmed.wait()

    def confirm(self, number: int, *, refused: int = 0) -> None:
        sink = self._daemon.machine.sinks[self._sink]
        number = min(number, sink.count)
        if number <= sink.confirmed:
            return  # said before
        self._daemon.watching.confirmed(self._sink, number, number - sink.confirmed - refused)
        self._daemon.apply(Confirmed(self._daemon.now_us(), self._sink, number), lazily=True)
        self._confirmed.set()
