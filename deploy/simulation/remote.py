"""Remote tables in virtual time: what they answer, and when."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.deploy.simulation.links import Interval
from headwater.node.effects import Fetch, Fetched, FetchFailed
from headwater.node.engine.remote_memory import Key
from headwater.node.remote.guard import Figures
from headwater.node.remote.memory import CACHE_BYTES, Memory
from headwater.node.remote.policies import DEFAULT
from headwater.protocol.remote import TableTerms, Versions

TIME_LIMIT_US = 1_000_000  # for so long a node waits for an answer that is lost

Elements = Callable[[Key], Versions | None]
"""What a table has for a key; None: nothing."""


@dataclass(frozen=True, slots=True)
class SimulatedTables:
    """The tables of a simulated network, how they answer, and how nodes make use of them."""

    tables: Mapping[str, Elements] = field(default_factory=dict)
    latency_us: tuple[int, int] = (0, 0)
    """The least and the most time between a question and its answer."""
    loss: float = 0.0
    """Share of questions that are never answered."""
    repeats: float = 0.0
    """Share of answers that come twice."""
    outages: tuple[Interval, ...] = ()
    """When no table answers."""
    along: Callable[[str, Key], Collection[Key]] = lambda table, key: ()
    """Which other keys belong to the same whole as a key, and come with it."""
    failing: Callable[[str, Key], bool] = lambda table, key: False
    """Which elements can never be had."""
    reached_from: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Of tables that not every node reaches, those that do; others are never answered."""
    strategy: str = DEFAULT
    """How rules come by elements: a row of ``node.remote.policies``."""
    strategies: Mapping[str, str] = field(default_factory=dict)
    """The same of single rules."""
    cache: str = "lru"
    """What makes room in a full memory: a row of ``node.remote.caches``."""
    cache_bytes: int = CACHE_BYTES
    priorities: Mapping[str, float] = field(default_factory=dict)
    """How much the matches of a rule count where nodes decide what to fetch ahead and what to keep."""
    terms: Mapping[str, TableTerms] = field(default_factory=dict)
    """What lookups mean in tables that are not steady."""

    def memory(self) -> Memory:
        """That of a node."""
        return Memory(
            self.tables,
            policy=self.strategy,
            policies=self.strategies,
            cache=self.cache,
            cache_bytes=self.cache_bytes,
            terms=self.terms,
            priorities=self.priorities,
        )


class Answers:
    """When what comes back in one run."""

    def __init__(self, remote: SimulatedTables, seed: int) -> None:
        self._remote = remote
        self._random = random.Random(f"{seed} remote")
        self._figures: dict[str, dict[str, Figures]] = {}

    def figures_of(self, node: str) -> dict[str, Figures]:
        """By table, what the requests of a node came to, in virtual time."""
        return self._figures.setdefault(node, {})

    def to(self, node: str, fetch: Fetch, now_us: int) -> Iterator[tuple[int, Fetched | FetchFailed]]:
        """What a node is told, and when."""
        remote, chance = self._remote, self._random
        for table, key in fetch.places:
            if node not in remote.reached_from.get(table, (node,)):
                continue
            figures = self.figures_of(node).setdefault(table, Figures())
            figures.requests += 1
            arrival_us = now_us + chance.randint(*remote.latency_us)
            if remote.failing(table, key) or any(start <= now_us < end for start, end in remote.outages):
                figures.failures += 1
                yield arrival_us, FetchFailed(((table, key),))
                continue
            if chance.random() < remote.loss:
                figures.failures += 1
                yield now_us + TIME_LIMIT_US, FetchFailed(((table, key),))
                continue
            figures.answered += 1
            figures.latency_s += (arrival_us - now_us) / 1e6
            keys = dict.fromkeys((key, *remote.along(table, key)))
            fetched = Fetched(tuple((table, each, remote.tables[table](each)) for each in keys), arrival_us - now_us)
            yield arrival_us, fetched
            if chance.random() < remote.repeats:
                yield arrival_us + chance.randint(*remote.latency_us), fetched
