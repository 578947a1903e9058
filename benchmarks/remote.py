"""How long does a match wait for remote elements, under each strategy and cache?

    python -m benchmarks.remote [Q1 Q2 DS1 DS2 any next short long ..] [--quick]

The queries and data sets are those of the EIRES paper (listing 2 and table 2; ``deploy/experiments/eires``), with
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
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from headwater.deploy.experiments.eires.station import ELEMENT_BYTES, Outcome, Range, Station, measure
from headwater.deploy.experiments.eires.synthetic import TABLE, Synthetic
from headwater.node.engine import Engine
from headwater.node.engine.program import compile_rules
from headwater.node.remote.caches import CACHES
from headwater.node.remote.memory import Memory
from headwater.node.remote.policies import POLICIES
from headwater.protocol.events import Event

LATENCIES_US = {"short": (10.0, 100.0), "long": (1000.0, 10_000.0)}
CASES = (
    Synthetic("Q1", "DS1", "any", 20_000, 2_200),
    Synthetic("Q1", "DS1", "next", 30_000, 10_000),
    Synthetic("Q1", "DS2", "any", 20_000, 2_200),
    Synthetic("Q1", "DS2", "next", 30_000, 10_000),
    Synthetic("Q2", "DS1", "any", 12_000, 60),
    Synthetic("Q2", "DS1", "next", 12_000, 400),
    Synthetic("Q2", "DS2", "any", 12_000, 60),
    Synthetic("Q2", "DS2", "next", 12_000, 400),
)
CACHED_SHARE = 0.1  # of the keys, as in the paper


@dataclass(frozen=True, slots=True)
class Run:
    """What a strategy gave with a cache."""

    strategy: str
    cache: str
    outcome: Outcome

    @property
    def p50(self) -> float:
        return self.outcome.percentile(0.5)

    @property
    def p95(self) -> float:
        return self.outcome.percentile(0.95)


def run_case(case: Synthetic, latency_us: Range, events: Sequence[Event]) -> Iterator[Run]:
    """The limit first, then every strategy with every cache."""
    rules = case.rules()
    yield Run("limit", "", measure(Station(Engine(rules, remote=case.tables()), None, case, latency_us), events))
    program = compile_rules(rules, remote=Memory((TABLE,)).tables)
    for strategy, cache in product(POLICIES, CACHES):
        if not POLICIES[strategy].keeps and cache != "lru":
            continue
        cache_bytes = int(case.keys * CACHED_SHARE) * ELEMENT_BYTES
        memory = Memory((TABLE,), policy=strategy, cache=cache, cache_bytes=cache_bytes)
        shown = cache if POLICIES[strategy].keeps else "none"
        station = Station(Engine(program, memory=memory), memory, case, latency_us)
        yield Run(strategy, shown, measure(station, events))


def at_load(case: Synthetic, load: float) -> Synthetic:
    """The case with events so far apart that the limit is busy for this share of time."""
    engine = Engine(case.rules(), remote=case.tables())
    limit = measure(Station(engine, None, case, (0.0, 0.0)), case.trace())
    return replace(case, spacing_us=round(1e6 / limit.events_per_s / load, 1))


def show(case: Synthetic, latency: str, runs: Sequence[Run]) -> None:
    limit, *others = runs
    print(
        f"\n**{case.name}, elements after {LATENCIES_US[latency][0]:,} to {LATENCIES_US[latency][1]:,} us**: "
        f"{case.events:,} events, one every {case.spacing_us:g} us, {case.window_events:,} in the window, "
        f"{int(case.keys * CACHED_SHARE):,} elements in the cache, {limit.outcome.matches:,} matches"
    )
    print("\n| strategy | cache | p50 us | p95 us | p50 / limit | events/s | share of time | fetched | never used |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run in runs:
        outcome = run.outcome
        print(
            f"| {run.strategy} | {run.cache} | {run.p50:,.0f} | {run.p95:,.0f} | {run.p50 / limit.p50:.2f} | "
            f"{outcome.events_per_s:,.0f} | {outcome.used:.0%} | {outcome.fetched:,} | {outcome.prefetched_unused:,} |"
        )
    for cache in CACHES:
        of_cache = {run.strategy: run for run in others if run.cache in (cache, "none")}
        hybrid, cached = of_cache.pop("hybrid"), of_cache["cache"]
        best = min(of_cache.values(), key=lambda run: run.p50)
        print(
            f"- {cache}: cache / hybrid {cached.p50 / hybrid.p50:.1f} at p50 and {cached.p95 / hybrid.p95:.1f} at p95; "
            f"hybrid / limit {hybrid.p50 / limit.p50:.2f}; hybrid / best other ({best.strategy}) "
            f"{hybrid.p50 / best.p50:.2f}"
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
        runs = list(run_case(case, LATENCIES_US[latency], case.trace()))
        if len({run.outcome.matches for run in runs}) != 1:
            sys.exit(f"{case.name}: strategies disagree: {[(r.strategy, r.cache, r.outcome.matches) for r in runs]}")
        show(case, latency, runs)


if __name__ == "__main__":
    main()
