"""How long does a match wait for remote elements, under each strategy and cache?

    python -m benchmarks.remote [Q1 Q2 DS1 DS2 any next short long ..] [--quick]

The queries and data sets are those of the EIRES paper (listing 2 and table 2; ``benchmarks/remote_cases.py``), with
every event matched (*any*, the paper's greedy selection) and with the next that fits (*next*), and elements that take
10 to 100 us (*short*) or 1 to 10 ms (*long*). Time is simulated: events come at a fixed rate (``--load``), whatever the
engine does takes the CPU time that it took, an element comes after its drawn latency, and any number may be under way
at once. The latency of a match is the time from the arrival of its last event until it is given; the first window of
the stream is left out.
*limit* is the same rule with the table in memory. *events/s* is what the engine could take at most: events divided by
the time that it was busy or paused.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from benchmarks.remote_cases import CASES, LATENCIES_US, Case
from headwater.node.engine import Engine
from headwater.node.engine.program import compile_rules
from headwater.node.remote.caches import CACHES
from headwater.node.remote.memory import ENTRY_BYTES, Memory
from headwater.node.remote.policies import POLICIES
from headwater.protocol.remote import Versions

ELEMENT_BYTES = ENTRY_BYTES + 16  # one number, in one version


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    strategy: str
    cache: str
    latencies_us: list[float]
    matches: int
    events_per_s: float
    fetched: int
    prefetched_unused: int
    used: float
    """The share of time that the engine was busy or paused; above 1 it falls behind."""

    def percentile(self, share: float) -> float:
        return self.latencies_us[min(len(self.latencies_us) - 1, int(share * len(self.latencies_us)))]


class Station:
    """An engine in simulated time, with elements on their way to it."""

    def __init__(self, engine: Engine, memory: Memory | None, case: Case, latency_us: tuple[float, float]) -> None:
        self.engine = engine
        self.memory = memory
        self.case = case
        self.clock_us = 0.0
        self.busy_us = 0.0
        self.paused_us = 0.0
        self.fetched = 0
        self.latencies_us: list[float] = []
        self.matches = 0
        self._paused_since: float | None = None
        self._under_way: list[tuple[float, int, float, tuple[str, Any]]] = []
        self._draw = random.Random(1).uniform
        self._latency_us = latency_us
        self._warm_ts = case.window_us

    def run(self, events: list[Any]) -> None:
        under_way = self._under_way
        for event in events:
            while under_way and under_way[0][0] <= max(event[0], self.clock_us):
                self._supply()
            self.clock_us = max(self.clock_us, event[0])
            self._perform(lambda event=event: self.engine.feed([event]) + self.engine.advance(event[0]))
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
        element = Versions.always(self.case.value_of(place[1][0]))

        def supply() -> list[Any]:
            memory.took(place[0], arrives_us - asked_us)
            memory.supply(*place, element)
            return self.engine.supply() if self.engine.supplied(*place, element) else []

        self._perform(supply)

    def _perform(self, work: Any) -> None:
        began_us = self.clock_us
        started = time.thread_time_ns()
        composites = work()
        took_us = (time.thread_time_ns() - started) / 1000
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
            arrives_us = self.clock_us + self._draw(*self._latency_us)
            heapq.heappush(self._under_way, (arrives_us, self.fetched, self.clock_us, place))
        asking = self.engine.asking
        paused = asking is not None and asking.pauses()
        if self._paused_since is not None:
            self.paused_us += began_us - self._paused_since
        self._paused_since = self.clock_us if paused else None


def run_case(case: Case, latency_us: tuple[float, float], events: list[Any]) -> Iterator[Outcome]:
    """The limit first, then every strategy with every cache."""
    rules = case.rules()
    yield measure(case, latency_us, events, Engine(rules, remote={"remote": case.table()}), None, "limit", "")
    program = compile_rules(rules, remote=Memory(("remote",)).tables)
    for strategy, cache in product(POLICIES, CACHES):
        if not POLICIES[strategy].keeps and cache != "lru":
            continue
        memory = Memory(("remote",), policy=strategy, cache=cache, cache_bytes=case.cached * ELEMENT_BYTES)
        shown = cache if POLICIES[strategy].keeps else "none"
        yield measure(case, latency_us, events, Engine(program, memory=memory), memory, strategy, shown)


def at_load(case: Case, load: float) -> Case:
    """The case with events so far apart that the limit is busy for this share of time."""
    events = case.trace()
    engine = Engine(case.rules(), remote={"remote": case.table()})
    limit = measure(case, (0.0, 0.0), events, engine, None, "limit", "")
    return replace(case, spacing_us=round(1e6 / limit.events_per_s / load, 1))


def measure(
    case: Case,
    latency_us: tuple[float, float],
    events: list[Any],
    engine: Engine,
    memory: Memory | None,
    strategy: str,
    cache: str,
) -> Outcome:
    station = Station(engine, memory, case, latency_us)
    gc.collect()
    gc.disable()
    station.run(events)
    gc.enable()
    held_us = station.busy_us + station.paused_us
    return Outcome(
        strategy,
        cache,
        sorted(station.latencies_us) or [float("nan")],
        station.matches,
        len(events) / held_us * 1e6,
        station.fetched,
        0 if memory is None else memory.prefetched_unused,
        held_us / (len(events) * case.spacing_us),
    )


def show(case: Case, latency: str, outcomes: list[Outcome]) -> None:
    limit, *others = outcomes
    print(
        f"\n**{case.name}, elements after {LATENCIES_US[latency][0]:,} to {LATENCIES_US[latency][1]:,} us**: "
        f"{case.events:,} events, one every {case.spacing_us:g} us, {case.window_events:,} in the window, "
        f"{case.cached:,} elements in the cache, {limit.matches:,} matches"
    )
    print("\n| strategy | cache | p50 us | p95 us | p50 / limit | events/s | share of time | fetched | never used |")
    print("|---|---|---|---|---|---|---|---|---|")
    for outcome in outcomes:
        print(
            f"| {outcome.strategy} | {outcome.cache} | {outcome.percentile(0.5):,.0f} | "
            f"{outcome.percentile(0.95):,.0f} | {outcome.percentile(0.5) / limit.percentile(0.5):.2f} | "
            f"{outcome.events_per_s:,.0f} | {outcome.used:.0%} | "
            f"{outcome.fetched:,} | {outcome.prefetched_unused:,} |"
        )
    for cache in CACHES:
        of_cache = {outcome.strategy: outcome for outcome in others if outcome.cache in (cache, "none")}
        hybrid, cached = of_cache.pop("hybrid"), of_cache["cache"]
        best = min(of_cache.values(), key=lambda outcome: outcome.percentile(0.5))
        print(
            f"- {cache}: cache / hybrid {cached.percentile(0.5) / hybrid.percentile(0.5):.1f} at p50 and "
            f"{cached.percentile(0.95) / hybrid.percentile(0.95):.1f} at p95; hybrid / limit "
            f"{hybrid.percentile(0.5) / limit.percentile(0.5):.2f}; hybrid / best other ({best.strategy}) "
            f"{hybrid.percentile(0.5) / best.percentile(0.5):.2f}"
        )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.remote", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="Q1 Q2 DS1 DS2 any next short long: only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="a third of the events")
    parser.add_argument("--load", type=float, default=0.1, help="share of time that the limit is busy (default 0.1)")
    options = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, one used, CPU time in simulated time; "
        f"load {os.getloadavg()[0]:.1f}"
    )
    for case, latency in product(CASES, LATENCIES_US):
        chosen = {case.query: ("Q1", "Q2"), case.data: ("DS1", "DS2"), case.selection: ("any", "next")}
        chosen[latency] = ("short", "long")
        if any(set(options.parts) & set(words) and name not in options.parts for name, words in chosen.items()):
            continue
        if options.quick:
            case = case.shortened()
        case = at_load(case, options.load)
        outcomes = list(run_case(case, LATENCIES_US[latency], case.trace()))
        counts = {outcome.matches for outcome in outcomes}
        if len(counts) != 1:
            sys.exit(f"{case.name}: strategies disagree: {[(o.strategy, o.cache, o.matches) for o in outcomes]}")
        show(case, latency, outcomes)


if __name__ == "__main__":
    main()
