"""Asks providers for the elements of remote tables that the core wants, and puts their answers into the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final

from headwater.node.daemon import journal_records as records
from headwater.node.engine.remote_memory import Place
from headwater.node.remote.encoding import encode_elements
from headwater.node.remote.fetching import FetchAnswer, Requests
from headwater.node.remote.guard import Figures, Guard
from headwater.node.remote.provider import Key, ProviderError, Unreachable
from headwater.node.remote.tables import Behind
from headwater.protocol.errors import HeadwaterError
from headwater.protocol.messages.control import NodeConfig
from headwater.protocol.network import DescribedTable
from headwater.protocol.remote import ACCEPT, REJECT, WAIT

if TYPE_CHECKING:
    from headwater.node.daemon.daemon import NodeDaemon

log = logging.getLogger("headwater.remote")

AWAITING_MAX: Final = 100_000  # evaluations and inputs that may wait for elements before sources must wait
TRIED_AGAIN_S: Final = (1.0, 30.0)  # the first and the longest pause before a provider that is not fine is tried again

Providing = Callable[[str, str], Behind]
"""What makes a provider of the name and the description of a table."""

OUTCOMES: Final = {
    WAIT: "what looks into it waits",
    REJECT: "comparisons with what it has are false",
    ACCEPT: "comparisons with what it has are true",
}
"""What becomes of lookups in a table that cannot be used."""
_CHECK: Final[Key] = ("the check",)
"""Stands for the check of a provider among the keys that it has refused."""


class ProvidedTable:
    """One table of this node: its provider, what is asked of it, and what is wrong with it."""

    def __init__(self, table: DescribedTable, guard: Guard, answered: Callable[[FetchAnswer], None]) -> None:
        self.table = table
        self.guard = guard
        self.requests = Requests(guard, answered)
        self.is_tried = False
        """Whether the provider has been tried since the node started."""
        self._refused: dict[Key, None] = {}
        """What it has last refused. Some keys may be refused for ever while others are answered."""
        self._said = ""

    def wrong(self) -> str:
        """What is wrong with the provider now; empty if nothing is."""
        return self.guard.away or (self._said if self._refused else "")

    def answers(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._refused.pop(key, None)
        if self._said and not self._refused:
            self._said = ""
            log.warning("table %r can be used again", self.table.name)

    def refuses(self, keys: Iterable[Key], error: Exception) -> None:
        """Said once, whatever else it refuses, until it refuses nothing any more."""
        self._refused |= dict.fromkeys(keys)
        if not self._said:
            self._said = str(error)
            outcome = OUTCOMES.get(self.table.on_failure, OUTCOMES[WAIT])
            log.error("table %r cannot be used: %s; %s", self.table.name, error, outcome)


class Fetching:
    """The providers of one node process. What is asked for is asked again after a crash, so nothing of it is saved.

    A provider that is away is asked again here, for as long as its table says (``wait``), before the core is told: an
    outage that is over by then leaves nothing in the journal.
    """

    def __init__(self, daemon: NodeDaemon, providing: Providing | None) -> None:
        self._daemon = daemon
        self._providing = providing
        self._provided: dict[str, ProvidedTable] = {}
        self._unusable: dict[str, str] = {}
        """By table why there is no provider."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._out_of_reach: frozenset[str] = frozenset()
        """Tables that something waits for and no node that is left reaches, as the log has said."""

    @property
    def figures(self) -> dict[str, Figures]:
        """By table, what its requests came to."""
        return {name: provided.guard.figures for name, provided in self._provided.items()}

    def shown(self) -> dict[str, dict[str, Any]]:
        """By table what provides it, and what is wrong with that; None while it has not been tried."""
        tables: dict[str, dict[str, Any]] = {
            name: {
                "provider": provided.guard.provider.shown,
                "wrong": provided.wrong() if provided.is_tried else provided.wrong() or None,
            }
            for name, provided in self._provided.items()
        }
        return tables | {name: {"provider": "", "wrong": why} for name, why in self._unusable.items()}

    def follow(self, config: NodeConfig) -> None:
        """Have a provider for each table that the configuration names."""
        for table in (table for table in config.tables if not table.at or self._daemon.machine.name in table.at):
            before = self._provided.get(table.name)
            if before is not None and before.table == table:
                continue
            if before is not None:
                self._run(_closed(before))
            try:
                if self._providing is None:
                    raise ProviderError("this process asks no remote tables")
                behind = self._providing(table.name, table.description)
            except HeadwaterError as error:
                self._cannot(table.name, str(error))
                continue
            self._unusable.pop(table.name, None)
            guard = Guard(behind.provider, behind.limits, table=table.name)
            provided = self._provided[table.name] = ProvidedTable(table, guard, self._answered)
            self._run(self._try_out(provided))
            core = self._daemon.machine.core
            if before is not None and core is not None:  # what the other provider has not answered
                self.fetch([place for place in core.memory.under_way if place[0] == table.name])

    def fetch(self, places: Iterable[Place]) -> None:
        """Ask for elements; the answers follow as records."""
        keys_of: dict[str, list[Key]] = {}
        for table, key in places:
            keys_of.setdefault(table, []).append(key)
        for table, keys in keys_of.items():
            provided = self._provided.get(table)
            if provided is None:
                self._cannot(table, "nothing provides it here")
                self._daemon.loop.call_soon(self._failed, table, keys)
            else:
                provided.requests.add(keys)

    def look(self) -> None:
        """Say which tables have come out of reach of all nodes, and which are within it again."""
        core = self._daemon.machine.core
        out_of_reach = frozenset() if core is None else frozenset(core.relay.unreachable())
        for table in sorted(out_of_reach - self._out_of_reach):
            log.error("no node that is left reaches the table %r; what looks into it waits for one that does", table)
        for table in sorted(self._out_of_reach - out_of_reach):
            log.warning("the table %r is within reach again", table)
        self._out_of_reach = out_of_reach

    async def close(self) -> None:
        """Ask no more, and give back all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*map(_closed, self._provided.values()), return_exceptions=True)

    async def _try_out(self, provided: ProvidedTable) -> None:
        """Until it is fine, so that the log and the node's page say so even if nothing is asked of it meanwhile."""
        pause_s, most_s = TRIED_AGAIN_S
        while True:
            try:
                await provided.guard.try_out()
            except ProviderError as error:
                if not isinstance(error, Unreachable):  # of one that is away the guard speaks
                    provided.refuses([_CHECK], error)
            else:
                provided.answers([_CHECK])
                return
            finally:
                provided.is_tried = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, most_s)

    def _answered(self, answer: FetchAnswer) -> None:
        provided = self._provided[answer.table]
        if answer.error is None:
            provided.answers(answer.keys)
            keys = dict.fromkeys((*answer.keys, *answer.elements))  # with others of the same whole
            packed = encode_elements((answer.table, key, answer.elements.get(key)) for key in keys)
            self._daemon.apply(records.Fetched(self._daemon.now_us(), packed, round(1e6 * answer.took_s)))
            return
        if not isinstance(answer.error, ProviderError):
            log.error("table %r: an unexpected error (a bug)", answer.table, exc_info=answer.error)
        elif not isinstance(answer.error, Unreachable):
            provided.refuses(answer.keys, answer.error)
        self._failed(answer.table, answer.keys)

    def _failed(self, table: str, keys: Iterable[Key]) -> None:
        packed = encode_elements((table, key, None) for key in keys)
        self._daemon.apply(records.FetchFailed(self._daemon.now_us(), packed))

    def _cannot(self, table: str, sentence: str) -> None:
        if table not in self._unusable:
            self._unusable[table] = sentence
            log.error("table %r cannot be used: %s; what looks into it waits", table, sentence)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _closed(provided: ProvidedTable) -> None:
    await asyncio.gather(*provided.requests.cancel(), return_exceptions=True)
    await provided.guard.close()
