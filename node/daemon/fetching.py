"""Asks providers for the elements of remote tables that the core wants, and puts their answers into the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.node.daemon import journal_records as records
from headwater.node.engine.waiting import Place
from headwater.node.remote.encoding import encode_elements
from headwater.node.remote.guard import Figures, Guard
from headwater.node.remote.provider import Key, ProviderError, Unreachable
from headwater.node.remote.tables import Behind
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.messages.control import NodeConfig
from headwater.protocol.network import DescribedTable

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

log = logging.getLogger("headwater.remote")

AWAITING_MAX: Final = 100_000  # evaluations and inputs that may wait for elements before sources must wait

Providing = Callable[[str, str], Behind]
"""What makes a provider of the name and the description of a table."""


class _Provided(NamedTuple):
    table: DescribedTable
    guard: Guard


class Fetching:
    """The providers of one node process. What is asked for is asked again after a crash, so nothing of it is saved."""

    def __init__(self, daemon: NodeDaemon, providing: Providing | None) -> None:
        self._daemon = daemon
        self._providing = providing
        self._provided: dict[str, _Provided] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._said: dict[str, str] = {}
        """What was last said of a table that cannot be used."""

    @property
    def figures(self) -> dict[str, Figures]:
        """By table, what its requests came to."""
        return {name: provided.guard.figures for name, provided in self._provided.items()}

    def follow(self, config: NodeConfig) -> None:
        """Have a provider for each table that the configuration names."""
        for table in config.tables:
            before = self._provided.get(table.name)
            if before is not None and before.table == table:
                continue
            if before is not None:
                self._run(before.guard.close())
            try:
                if self._providing is None:
                    raise ProviderError("this process asks no remote tables")
                behind = self._providing(table.name, table.description)
            except HeadwaterError as error:
                self._say(table.name, str(error))
                continue
            self._provided[table.name] = _Provided(table, Guard(behind.provider, behind.limits, table=table.name))
            self._run(self._try(table.name))

    def fetch(self, places: Iterable[Place]) -> None:
        """Ask for elements; the answers follow as records."""
        keys_of: dict[str, list[Key]] = {}
        for table, key in places:
            keys_of.setdefault(table, []).append(key)
        for table, keys in keys_of.items():
            provided = self._provided.get(table)
            if provided is None:
                self._say(table, "nothing provides it here")
                self._daemon.loop.call_soon(self._failed, table, keys)
                continue
            size = provided.guard.provider.batch_max
            for first in range(0, len(keys), size):
                self._run(self._ask(provided.guard, keys[first : first + size]))

    async def close(self) -> None:
        """Ask no more, and give back all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(provided.guard.close() for provided in self._provided.values()), return_exceptions=True)

    async def _try(self, table: str) -> None:
        try:
            await self._provided[table].guard.check()
        except ProviderError as error:
            self._say(table, str(error))

    async def _ask(self, guard: Guard, keys: list[Key]) -> None:
        try:
            elements = await guard.fetch(keys)
        except ProviderError as error:
            if not isinstance(error, Unreachable):  # of one that is away the guard speaks
                self._say(guard.table, str(error))
            self._failed(guard.table, keys)
            return
        self._said.pop(guard.table, None)
        packed = encode_elements((guard.table, key, elements[key]) for key in keys)
        self._daemon.apply(records.Fetched(self._daemon.now_us(), packed))

    def _failed(self, table: str, keys: list[Key]) -> None:
        packed = encode_elements((table, key, None) for key in keys)
        self._daemon.apply(records.FetchFailed(self._daemon.now_us(), packed))

    def _say(self, table: str, sentence: str) -> None:
        if self._said.get(table) != sentence:
            self._said[table] = sentence
            log.error("table %r cannot be used: %s; what looks into it waits", table, sentence)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
