"""The remote tables of a network file, for a simulation of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from headwater.deploy.descriptions.remote import described
from headwater.deploy.simulation.remote import Elements, SimulatedTables
from headwater.node.engine.remote_memory import Key
from headwater.node.remote.guard import Guard
from headwater.node.remote.policies import DEFAULT
from headwater.node.remote.provider import ProviderError, Refused
from headwater.node.remote.tables import Behind
from headwater.node.remote.threads import LoopThread
from headwater.protocol.network import Network
from headwater.protocol.remote import STEADY, RemoteTable, Versions

LATENCY_US: Final = (200, 2_000)
"""In virtual time, of every table: about that of a server in the same building."""


@contextmanager
def simulated_tables(network: Network) -> Iterator[SimulatedTables]:
    """The tables as their providers have them now. Connections are given back at the end."""
    tables = {table.name: described(table.name, table.description, shown=table.name) for table in network.tables}
    guards = {
        name: Guard(table.provider, table.limits, table=name)
        for name, table in tables.items()
        if isinstance(table, Behind)
    }
    loop = LoopThread([guard.close for guard in guards.values()])
    try:
        wrong = [f"table {name!r}: {error}" for name, guard in guards.items() if (error := _tried(loop, guard))]
        if wrong:
            raise Refused("\n".join(wrong))
        elements = {
            name: partial(_asked, loop, guards[name]) if name in guards else _at_hand(table)
            for name, table in tables.items()
        }
        at = {table.name: table.at for table in network.tables if table.at}
        terms = {table.name: table.terms for table in network.tables if table.terms != STEADY}
        yield SimulatedTables(
            elements,
            LATENCY_US,
            reached_from=at,
            strategy=network.remote_strategy or DEFAULT,
            strategies=dict(network.remote_strategies),
            cache=network.remote_cache or "lru",
            terms=terms,
            priorities=dict(network.remote_priorities),
        )
    finally:
        loop.close()


def _tried(loop: LoopThread, guard: Guard) -> ProviderError | None:
    """What is wrong with a provider, if anything is."""
    try:
        loop.run(guard.check())
    except ProviderError as error:
        return error
    return None


def _asked(loop: LoopThread, guard: Guard, key: Key) -> Versions | None:
    return loop.run(guard.fetch_when_there((key,)))[key]


def _at_hand(table: object) -> Elements:
    assert isinstance(table, RemoteTable)
    return table.versions
