"""How long does a match wait for remote elements, under each strategy and cache?

    python -m benchmarks.remote [Q1 Q2 DS1 DS2 any next short long drawn web redis postgres ..] [--quick] [--load ..]

The queries and data sets are those of the EIRES paper (listing 2 and table 2; ``deploy/experiments/eires``), with
every event matched (*any*, the paper's greedy selection) and with the next that fits (*next*). The latency of a match
is the time from the arrival of its last event until it is given; the first window of the stream is left out. *limit*
is the same rule with the table in memory.

*drawn*: elements take 10 to 100 us (*short*) or 1 to 10 ms (*long*). Time is simulated: events come at a fixed rate
(``--load``), whatever the engine does takes the CPU time that it took, an element comes after its drawn latency, and
any number may be under way at once. *events/s* is what the engine could take at most: events divided by the time that
it was busy or paused.

*web*, *redis*, *postgres*: elements come from a server process, in real time (``benchmarks/remote_served.py``); the web
server answers after the same drawn latencies. Redis and PostgreSQL are left out where they are not installed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import product

from benchmarks.remote_figures import Run, compared, disagreement
from benchmarks.remote_served import CASES as SERVED_CASES
from benchmarks.remote_served import (
    POSTGRES,
    REDIS,
    RealOutcome,
    Served,
    measure_limit,
    measure_served,
    postgres_server,
    redis_server,
    web_server,
)
from headwater.deploy.experiments.eires.station import ELEMENT_BYTES, Range, Station, measure
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


def combinations() -> Iterator[tuple[str, str]]:
    """Every strategy with every cache; one that keeps nothing once."""
    for strategy, policy in POLICIES.items():
        yield from ((strategy, cache) for cache in (CACHES if policy.keeps else ("lru",)))


def run_case(case: Synthetic, latency_us: Range, events: Sequence[Event]) -> Iterator[Run]:
    """The limit first, then every strategy with every cache."""
    rules = case.rules()
    yield Run("limit", "", measure(Station(Engine(rules, remote=case.tables()), None, case, latency_us), events))
    program = compile_rules(rules, remote=Memory((TABLE,)).tables)
    for strategy, cache in combinations():
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
    limit = runs[0]
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
    for sentence in compared(runs):
        print(sentence)
    sys.stdout.flush()


def run_served(case: Synthetic, source: Served, events: Sequence[Event]) -> Iterator[Run]:
    """The limit first, then every strategy with every cache."""
    yield Run("limit", "", measure_limit(case, events))
    program = compile_rules(case.rules(), remote=Memory((TABLE,)).tables)
    for strategy, cache in combinations():
        outcome = measure_served(case, events, program, source, strategy, cache, int(case.keys * CACHED_SHARE))
        yield Run(strategy, cache if POLICIES[strategy].keeps else "none", outcome)


def show_served(case: Synthetic, source: str, runs: Sequence[Run]) -> None:
    limit = runs[0]
    print(
        f"\n**{case.name}, elements from {source}**: {case.events:,} events, one every {case.spacing_us:g} us, "
        f"{case.window_events:,} in the window, {limit.outcome.matches:,} matches"
    )
    print("\n| strategy | cache | p50 us | p95 us | p50 / limit | CPU us/event | requests | took us | never used |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run in runs:
        outcome = run.outcome
        assert isinstance(outcome, RealOutcome)
        print(
            f"| {run.strategy} | {run.cache} | {run.p50:,.0f} | {run.p95:,.0f} | {run.p50 / limit.p50:.2f} | "
            f"{outcome.cpu_us:,.0f} | {outcome.requests:,} | {outcome.mean_us:,.0f} | {outcome.prefetched_unused:,} |"
        )
    for sentence in compared(runs):
        print(sentence)
    sys.stdout.flush()


def sources(case: Synthetic, latency: str) -> Iterator[tuple[str, str, AbstractContextManager[Served]]]:
    """The word by which it is chosen, what it is called, and what starts it."""
    least, greatest = LATENCIES_US[latency]
    yield "web", f"a web server after {least:,g} to {greatest:,g} us", web_server(case, (least, greatest))
    if latency == "short":  # these are as fast as they are
        if REDIS is not None:
            yield "redis", "Redis", redis_server(case)
        if POSTGRES is not None:
            yield "postgres", "PostgreSQL", postgres_server(case)


def is_chosen(parts: Sequence[str], *words: str) -> bool:
    """Whether all of these are among the parts, where the parts name some of their kind at all."""
    kinds = [("Q1", "Q2"), ("DS1", "DS2"), ("any", "next"), ("short", "long"), ("drawn", "web", "redis", "postgres")]
    return all(word in parts or not set(kind) & set(parts) for kind in kinds for word in words if word in kind)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.remote", description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", help="Q1 Q2 DS1 DS2 any next short long drawn web redis postgres: only these (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="a third of the events")
    parser.add_argument(
        "--load", default="0.1", help="drawn: shares of time that the limit is busy, by commas (default 0.1)"
    )
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}")
    for load, case, latency in product(map(float, options.load.split(",")), CASES, LATENCIES_US):
        if not is_chosen(options.parts, case.query, case.data, case.selection, latency, "drawn"):
            continue
        case = at_load(case.shortened() if options.quick else case, load)
        runs = list(run_case(case, LATENCIES_US[latency], case.trace()))
        if wrong := disagreement(runs):
            sys.exit(f"{case.name}: {wrong}")
        show(case, latency, runs)
    for case, latency in product(SERVED_CASES, LATENCIES_US):
        if options.quick:
            case = case.shortened()
        for word, name, starting in sources(case, latency):
            if is_chosen(options.parts, case.query, case.data, case.selection, latency, word):
                with starting as source:
                    runs = list(run_served(case, source, case.trace()))
                if wrong := disagreement(runs):
                    sys.exit(f"{case.name}, {name}: {wrong}")
                show_served(case, name, runs)


if __name__ == "__main__":
    main()
