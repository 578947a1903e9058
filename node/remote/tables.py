"""The tables of one engine: those at hand, those behind providers, and what is at hand of the latter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headwater.node.engine import Engine, Program
from headwater.node.engine.remote_memory import MISSING
from headwater.node.remote.fetching import Fetcher, FetchingEngine
from headwater.node.remote.guard import USUAL, Guard, Limits
from headwater.node.remote.memory import CACHE_BYTES, Lookups, Memory
from headwater.node.remote.policies import DEFAULT
from headwater.node.remote.provider import Provider, ProviderError, Refused, Unreachable, plain_key
from headwater.node.remote.threads import LoopThread
from headwater.protocol.events import Value
from headwater.protocol.remote import STEADY, LookupTable, RemoteTable, RemoteValue, TableShape, TableTerms
from headwater.protocol.text import plural, seconds, show_us

AT_HAND: Final = "at hand"


@dataclass(frozen=True, slots=True)
class Behind:
    """A table behind a provider, as it is described, and what lookups in it mean."""

    provider: Provider
    limits: Limits = USUAL
    terms: TableTerms = STEADY


class WaitingTable:
    """A table whose lookups wait for a provider: for callers that are no engine."""

    def __init__(self, guard: Guard, fetcher: Fetcher) -> None:
        self.guard = guard
        self._fetcher = fetcher
        self._find = fetcher.memory.finder(guard.table)

    def lookup(self, arguments: tuple[Value, ...], ts: int) -> RemoteValue:
        """The value for these arguments in the latest version valid at ``ts``, or None; or a ProviderError."""
        key = plain_key(arguments)
        element = self._find(key)
        if element is MISSING:
            element = self._fetcher.element(self.guard.table, key)
        return None if element is None else element.at(ts)

    def key_lengths(self) -> set[int]:
        length = self.guard.provider.key_length
        return set() if length is None else {length}

    @property
    def accepts(self) -> bool:
        """Whether comparisons are true where elements cannot be had: no index finds what they hold for."""
        return self.guard.table in self._fetcher.memory.accepting()

    def __repr__(self) -> str:
        return f"<table {self.guard.table}: {self.guard.provider.shown}>"


class Tables:
    """The tables of one engine, by name. ``given``: tables that are at hand, and descriptions of those that are not."""

    def __init__(
        self,
        given: Mapping[str, LookupTable | Behind],
        strategy: str = DEFAULT,
        cache_bytes: int = CACHE_BYTES,
        clock: Callable[[], float] = time.monotonic,
        *,
        cache: str = "lru",
        strategies: Mapping[str, str] | None = None,
        priorities: Mapping[str, float] | None = None,
        lineage: bool = False,
    ) -> None:
        """``strategies``: those of single rules; ``cache`` and ``priorities``: see ``Memory``; ``lineage``: composites
        say which values they rest on, of all tables."""
        behind = {name: table for name, table in given.items() if isinstance(table, Behind)}
        at_hand = {name: table for name, table in given.items() if not isinstance(table, Behind)}
        begun_s = time.time() - time.monotonic() if clock is time.monotonic else 0.0  # since 1970, and never set back
        terms = {name: table.terms if isinstance(table, Behind) else STEADY for name, table in given.items()}
        if lineage:
            terms = {name: replace(each, lineage=True) for name, each in terms.items()}
        self.memory = Memory(
            behind,
            at_hand,
            policy=strategy,
            policies=strategies,
            cache=cache,
            cache_bytes=cache_bytes,
            priorities=priorities,
            terms={name: terms for name, terms in terms.items() if terms != STEADY},
            clock=lambda: round(1e6 * (begun_s + clock())),
        )
        guards = {name: Guard(table.provider, table.limits, table=name, clock=clock) for name, table in behind.items()}
        self._loop = LoopThread([guard.close for guard in guards.values()])
        self._fetcher = Fetcher(self.memory, guards, self._loop)
        self._waiting = {name: WaitingTable(guard, self._fetcher) for name, guard in guards.items()}
        self.by_name: dict[str, LookupTable] = {
            name: self._waiting[name] if isinstance(table, Behind) else table for name, table in given.items()
        }
        """For lookups that wait; engines are compiled with ``memory.tables``."""

    def shapes(self) -> dict[str, TableShape]:
        """What rules are checked against, by the name of a table."""
        return {
            name: table.shape() if isinstance(table, RemoteTable) else TableShape(frozenset(table.key_lengths()))
            for name, table in self.by_name.items()
        }

    def engine(self, program: Program) -> Engine:
        """A running instance of a program: one that fetches, if it looks anything up that is not at hand."""
        return FetchingEngine(program, self._fetcher) if program.asked else Engine(program)

    def tried(self, name: str) -> tuple[str, ProviderError | None]:
        """What provides a table, and what is wrong with it, if anything is."""
        table = self._waiting.get(name)
        if table is None:
            return AT_HAND, None
        try:
            self._loop.run(table.guard.check())
        except ProviderError as error:
            return table.guard.provider.shown, error
        return table.guard.provider.shown, None

    def kind(self, name: str) -> str:
        """What a lookup in a table means, in words."""
        table = self._waiting.get(name)
        versioned = getattr(self.by_name[name] if table is None else table.guard.provider, "versioned", None)
        return kind_of(self.memory.terms_of(name), versioned)

    def check(self) -> None:
        """A ProviderError with a sentence for each provider that cannot be used."""
        wrong = {name: error for name in self._waiting if (error := self.tried(name)[1]) is not None}
        if wrong:
            self.close()
            kind = Unreachable if all(isinstance(error, Unreachable) for error in wrong.values()) else Refused
            raise kind("\n".join(f"table {name!r}: {error}" for name, error in wrong.items()))

    def summary(self, engine: Engine | None = None, *, quiet: bool = False) -> Iterator[str]:
        """A line for each table that is not at hand, and one of what waited for them in an engine."""
        if quiet:
            return
        for name, table in self._waiting.items():
            figures, lookups = table.guard.figures, self.memory.lookups[name]
            failed = f" ({figures.failures:,} failed)" if figures.failures else ""
            instead = self.memory.terms_of(name).on_failure
            given_up = f", {lookups.given_up:,} {instead}ed" if lookups.given_up else ""
            yield (
                f"remote {name}: {plural(figures.requests, 'request')}{failed}, {plural(lookups.hits, 'hit')}, "
                f"{lookups.misses:,} miss{'es' * (lookups.misses != 1)}, mean latency "
                f"{seconds(figures.mean_s)}{given_up}" + _ahead(lookups)
            )
        if engine is not None and engine.asking is not None:
            yield f"{plural(engine.asking.waited, 'evaluation')} waited for elements of remote tables"

    def close(self) -> None:
        """Give back all connections. A lookup afterwards opens them again."""
        self._loop.close()
        self._fetcher.close()

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ahead(lookups: Lookups) -> str:
    """What was fetched before it was needed, for the summary of a run."""
    if not lookups.prefetched:
        return ""
    return f"; {lookups.prefetched:,} fetched ahead, {lookups.prefetched_unused:,} of them dropped before any use"


def kind_of(terms: TableTerms, versioned: bool | None) -> str:
    """Which of the three kinds a table is; ``versioned``: None where only its answers tell."""
    if terms.fresh_us is not None:
        return f"fresh for {show_us(terms.fresh_us)}"
    return "static or versioned" if versioned is None else "versioned" if versioned else "static"
