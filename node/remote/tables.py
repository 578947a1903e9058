"""The tables of one engine: lookups that are answered at once, from a cache or by a provider that is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.node.remote.cache import CACHE_BYTES, Cache
from headwater.node.remote.guard import USUAL, Guard, Limits
from headwater.node.remote.provider import Provider, ProviderError, Refused, Unreachable, plain_key
from headwater.node.remote.waiting import LoopThread
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import Value
from headwater.protocol.expressions import Remote, walk
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import LookupTable, RemoteValue
from headwater.protocol.text import closest, plural, seconds, suggestion


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a table comes by an element that a lookup needs."""

    paper: str
    """Its name in the EIRES paper."""
    keeps: bool
    """Whether elements are kept for the next lookup."""
    about: str


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "block": Strategy("BL1", keeps=False, about="every lookup asks the provider and waits"),
    "cache": Strategy("BL2", keeps=True, about="a lookup of what is not in the cache asks the provider and waits"),
}
DEFAULT: Final = "cache"
AT_HAND: Final = "at hand"


def strategy_named(name: str) -> Strategy:
    """The row of the table; a ConfigError if there is none of this name."""
    if name in STRATEGIES:
        return STRATEGIES[name]
    near = closest(name, list(STRATEGIES))
    cure = f"did you mean {near}? " if near else ""
    raise ConfigError(f"there is no remote strategy {name!r}; {cure}write one of {', '.join(STRATEGIES)}")


@dataclass(frozen=True, slots=True)
class Behind:
    """A table behind a provider, as it is described. ``fresh_s``: an element is used for so long; None: for ever."""

    provider: Provider
    limits: Limits = USUAL
    fresh_s: float | None = None


@dataclass(slots=True)
class Lookups:
    hits: int = 0
    misses: int = 0


class WaitingTable:
    """A table whose lookups wait for a provider."""

    def __init__(self, guard: Guard, loop: LoopThread, cache: Cache | None, fresh_s: float | None) -> None:
        self.guard = guard
        self.lookups = Lookups()
        self._loop = loop
        self._cache = cache
        self._fresh_s = fresh_s

    def lookup(self, arguments: tuple[Value, ...], ts: int) -> RemoteValue:
        """The value for these arguments in the latest version valid at ``ts``, or None; or a ProviderError."""
        key, cache = plain_key(arguments), self._cache
        if cache is not None:
            kept = cache.get(self.guard.table, key, self._fresh_s)
            if kept is not None:
                self.lookups.hits += 1
                return None if kept.versions is None else kept.versions.at(ts)
        self.lookups.misses += 1
        versions = self._loop.run(self.guard.fetch_when_there((key,)))[key]
        if cache is not None:
            cache.put(self.guard.table, key, versions)
        return None if versions is None else versions.at(ts)

    def key_lengths(self) -> set[int]:
        length = self.guard.provider.key_length
        return set() if length is None else {length}

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
    ) -> None:
        cache = Cache(cache_bytes, clock) if strategy_named(strategy).keeps else None
        behind = {name: table for name, table in given.items() if isinstance(table, Behind)}
        guards = {name: Guard(table.provider, table.limits, table=name, clock=clock) for name, table in behind.items()}
        self._loop = LoopThread([guard.close for guard in guards.values()])
        self._waiting = {
            name: WaitingTable(guard, self._loop, cache, behind[name].fresh_s) for name, guard in guards.items()
        }
        self.by_name: dict[str, LookupTable] = {
            name: self._waiting[name] if isinstance(table, Behind) else table for name, table in given.items()
        }

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

    def check(self) -> None:
        """A ProviderError with a sentence for each provider that cannot be used."""
        wrong = {name: error for name in self._waiting if (error := self.tried(name)[1]) is not None}
        if wrong:
            self.close()
            kind = Unreachable if all(isinstance(error, Unreachable) for error in wrong.values()) else Refused
            raise kind("\n".join(f"table {name!r}: {error}" for name, error in wrong.items()))

    def summary(self, *, quiet: bool = False) -> Iterator[str]:
        """A line for each table that is not at hand."""
        for name, table in self._waiting.items() if not quiet else ():
            figures, lookups = table.guard.figures, table.lookups
            failed = f" ({figures.failures:,} failed)" if figures.failures else ""
            yield (
                f"remote {name}: {plural(figures.requests, 'request')}{failed}, {plural(lookups.hits, 'hit')}, "
                f"{lookups.misses:,} miss{'es' * (lookups.misses != 1)}, mean latency {seconds(figures.mean_s)}"
            )

    def close(self) -> None:
        """Give back all connections. A lookup afterwards opens them again."""
        self._loop.close()

    def __enter__(self) -> Tables:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_lookups(rules: Iterable[Rule], tables: Mapping[str, LookupTable], *, complete: bool = False) -> None:
    """A lookup with more or fewer arguments than a table has key columns would find nothing, and not say why.

    ``complete``: these are all the tables there are, so that a rule may look nothing up in another.
    """
    for rule in rules:
        for expression in (*rule.pattern.where, *(attribute.value for attribute in rule.attributes)):
            for inner in walk(expression):
                if not isinstance(inner, Remote):
                    continue
                if inner.table in tables:
                    _check_length(rule, inner, tables[inner.table].key_lengths())
                elif complete:
                    near = suggestion(inner.table, sorted(tables), "given are")
                    raise ConfigError(
                        f"rule {rule.name!r} looks things up in the table {inner.table!r}, which was not given; {near}"
                    )


def _check_length(rule: Rule, lookup: Remote, lengths: set[int]) -> None:
    given = len(lookup.arguments)
    if lengths and given not in lengths:
        raise ConfigError(
            f"rule {rule.name!r} looks up {plural(given, 'value')} in the table "
            f"{lookup.table!r}, which has {plural(max(lengths), 'key column')}"
        )
