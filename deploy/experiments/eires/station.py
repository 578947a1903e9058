"""An engine in simulated time, with remote elements on their way to it.

Events come when their times say, an element comes after a latency drawn for its key, and any number may be under way at
once: all of this is the same in every run. What the engine itself does takes the CPU time that it took, on the clock of
the simulation; so how fast this machine is shows in the figures, and what else it does only as far as that slows the
CPU down. The latency of a match is the time from the arrival of its last event until it is given.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headwater.node.engine import Engine
from headwater.node.remote.caches import ENTRY_BYTES
from headwater.node.remote.memory import Memory
from headwater.protocol.events import Event
from headwater.protocol.languages import RuleSet
from headwater.protocol.remote import LookupTable, RemoteValue, Versions

ELEMENT_BYTES: Final = ENTRY_BYTES + 16  # one number, in one version
LEAST_US: Final = 0.001  # what events take at least, so that none comes for nothing
PROGRESS_EVERY: Final = 256  # events after which it is said how far a run is

Range = tuple[float, float]
"""Least and greatest latency, in microseconds."""


class Workload(Protocol):
    """Rules, a stream for them, and the tables that they look up."""

    @property
    def name(self) -> str: ...

    @property
    def window_us(self) -> int: ...

    @property
    def keys(self) -> int:
        """How many elements the tables have, or some number near it."""
        ...

    @property
    def time_us(self) -> float:
        """How long the stream lasts, or some time near it."""
        ...

    def rules(self) -> RuleSet: ...

    def trace(self, seed: int = 1) -> list[Event]: ...

    def value(self, table: str, key: tuple[Any, ...]) -> RemoteValue:
        """What a table has for a key."""
        ...

    def tables(self) -> Mapping[str, LookupTable]:
        """All of them as a whole."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    latencies_us: Sequence[float]
    """Of the matches after the first window, in increasing order."""
    matches: int
    events_per_s: float
    """What the engine could take at most: events divided by the time that it was busy or paused."""
    used: float
    """The share of time that it was; above 1 it falls behind."""
    fetched: int
    prefetched: int = 0
    prefetched_late: int = 0
    prefetched_unused: int = 0
    hits: int = 0
    misses: int = 0

    def percentile(self, share: float) -> float:
        """NaN if there was no match."""
        if not self.latencies_us:
            return float("nan")
        return self.latencies_us[min(len(self.latencies_us) - 1, int(share * len(self.latencies_us)))]


class Station:
    """An engine in simulated time, with elements on their way to it."""

    def __init__(
        self,
        engine: Engine,
        memory: Memory | None,
        workload: Workload,
        latency_us: Range,
        *,
        seed: int = 1,
        cpu_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        """``memory`` None: all elements are at hand. ``cpu_ns``: what the engine's work is measured with."""
        self.engine = engine
        self.memory = memory
        self.workload = workload
        self.clock_us = 0.0
        self.busy_us = 0.0
        self.paused_us = 0.0
        self.fetched = 0
        self.latencies_us: list[float] = []
        self.matches = 0
        self._cpu_ns = cpu_ns
        self._paused_since: float | None = None
        self._under_way: list[tuple[float, int, float, tuple[str, Any]]] = []
        self._latency_us = latency_us
        self._seed = seed
        self._warm_ts = 0.0

    def run(self, events: Sequence[Event], progress: Callable[[float], None] = lambda share: None) -> None:
        under_way = self._under_way
        self._warm_ts = events[0][0] + self.workload.window_us
        for number, event in enumerate(events):
            if number % PROGRESS_EVERY == 0:
                progress(number / len(events))
            while under_way and under_way[0][0] <= max(event[0], self.clock_us):
                self._supply()
            self.clock_us = max(self.clock_us, event[0])
            # What the event has fetched ahead is asked for before the event is evaluated, as by engines that fetch.
            self._perform(lambda event=event: self.engine.feed([event]))  # type: ignore[misc]
            self._perform(lambda event=event: self.engine.advance(event[0]))  # type: ignore[misc]
        while under_way:
            self._supply()
        self._perform(self.engine.close)
        while under_way:
            self._supply()

    def _supply(self) -> None:
        """The next element comes."""
        memory = self.memory
        assert memory is not None
        arrives_us, _, asked_us, place = heapq.heappop(self._under_way)
        self.clock_us = max(self.clock_us, arrives_us)
        element = Versions.always(self.workload.value(*place))

        def supply() -> list[Any]:
            memory.took(place[0], arrives_us - asked_us)
            memory.supply(*place, element)
            return self.engine.supply() if self.engine.supplied(*place, element) else []

        self._perform(supply)

    def _perform(self, work: Callable[[], list[Any]]) -> None:
        began_us = self.clock_us
        started = self._cpu_ns()
        composites = work()
        took_us = (self._cpu_ns() - started) / 1000
        self.clock_us += took_us
        self.busy_us += took_us
        self.matches += len(composites)
        for composite in composites:
            ts = composite.ts
            if ts >= self._warm_ts:
                self.latencies_us.append(self.clock_us - ts)
        if self.memory is None:
            return
        for place in self.memory.take_wanted():
            self.fetched += 1
            arrives_us = self.clock_us + drawn_latency_us(place, self._latency_us, self._seed)
            heapq.heappush(self._under_way, (arrives_us, self.fetched, self.clock_us, place))
        asking = self.engine.asking
        paused = asking is not None and asking.pauses()
        if self._paused_since is not None:
            self.paused_us += began_us - self._paused_since
        self._paused_since = self.clock_us if paused else None


def drawn_latency_us(place: tuple[str, Any], latency_us: Range, seed: int = 1) -> float:
    """How long an element takes: the same whenever it is fetched, and by whichever strategy."""
    return random.Random(f"{seed} {place}").uniform(*latency_us)


def measure(
    station: Station, events: Sequence[Event], progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Run a station through its events."""
    gc.collect()
    gc.disable()
    try:
        station.run(events, progress)
    finally:
        gc.enable()
    held_us = station.busy_us + station.paused_us
    counts: tuple[int, ...] = (station.fetched,)
    memory = station.memory
    if memory is not None:
        lookups = memory.lookups.values()
        hits, misses = sum(table.hits for table in lookups), sum(table.misses for table in lookups)
        counts = (*counts, memory.prefetched, memory.prefetched_late, memory.prefetched_unused, hits, misses)
    lasted_us = events[-1][0] - events[0][0]
    return Outcome(
        sorted(station.latencies_us),
        station.matches,
        len(events) / max(held_us, LEAST_US) * 1e6,
        held_us / max(1, lasted_us),
        *counts,
    )
