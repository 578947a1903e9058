"""How fast are simulated networks, beside the time that passes in them?

    python -m benchmarks.simulator [STRATEGY ..] [--seconds N] [--profile] [--quick]

The default scenario of ``headwater experiment trex`` (20 processors, 120 event types, 100 rules) runs under each
strategy in a process of its own; setting the network up is timed apart. *x real time* is seconds of the network per CPU
second, beside the limit that every strategy should reach. *hops* are events that cross a link, for whatever reason;
*messages* are all frames, watermarks and control too. The cost of a message is told for each quarter of the run: it
must not grow with the time that the network has been running, nor must what the nodes hold, once the longest windows
have passed. All strategies must deliver the same number of events.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import multiprocessing
import platform
import pstats
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.deploy.experiments.trex.figures import DEFAULT
from headwater.deploy.experiments.trex.generator import build
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.outcome import Delivery
from headwater.deploy.simulation.simulator import SETUP_US, Simulation

STRATEGIES = ("centr", "st", "mt", "st-pp", "mt-pp")
REAL_TIME_LEAST = 20.0  # a day of a network in little more than an hour
SEED = 1
GC_THRESHOLD = (200_000, 20, 100)  # as the command sets it: events and messages are tuples without cycles
QUARTERS = 4
ON_ITS_WAY_US = 1_000_000  # what occurs so shortly before the end may not have reached its sinks by then


@dataclass
class Measured:
    """What one run gave."""

    strategy: str
    set_up_s: float
    run_s: float
    delivered: int
    hops: int
    messages: int
    quarters_us: list[float]
    """CPU microseconds per message in each quarter of the run."""
    held: list[int]
    """Rows, partial matches and remembered identities in all nodes at the end of each quarter."""
    peak_mb: float
    profile: list[str]


def standing(strategy: str, starts_us: int, on_delivery: Callable[[Delivery], None]) -> Simulation:
    """A network that is set up and has seen no event."""
    network, _ = build(DEFAULT, SEED)
    set_up_us = SETUP_US
    while True:
        simulation = Simulation(network, strategy, SEED, Faults(), keep=False, on_delivery=on_delivery)
        if simulation.set_up(starts_us - set_up_us) < starts_us:
            return simulation
        set_up_us *= 8


def messages_of(simulation: Simulation) -> int:
    return sum(traffic.messages for traffic in simulation.outcome.traffic.values())


class Quarters:
    """Looks at a run whenever a quarter of its time has passed."""

    def __init__(self, simulation: Simulation, starts_us: int, length_us: int) -> None:
        self._simulation = simulation
        self._ends_us = [starts_us + length_us * number // QUARTERS for number in range(1, QUARTERS + 1)]
        self._then = time.process_time()
        self._messages = messages_of(simulation)
        self.cost_us: list[float] = []
        self.held: list[int] = []

    def look(self, now_us: int) -> None:
        if now_us < self._ends_us[len(self.cost_us)]:
            return
        spent, messages = time.process_time() - self._then, messages_of(self._simulation)
        self.cost_us.append(spent / max(1, messages - self._messages) * 1e6)
        self.held.append(sum(core.held() for core in self._simulation.nodes.values()))
        self._messages, self._then = messages, time.process_time()


def measure(strategy: str, seconds: float, profile: bool) -> Measured:
    gc.set_threshold(*GC_THRESHOLD)
    _, births_until = build(DEFAULT, SEED)
    length_us = round(seconds * 1e6)
    births = list(births_until(length_us))
    starts_us = births[0][0]
    in_time = 0

    def count(delivery: Delivery) -> None:
        nonlocal in_time
        in_time += delivery.item.ts < length_us - ON_ITS_WAY_US

    began = time.process_time()
    simulation = standing(strategy, starts_us, count)
    set_up_s = time.process_time() - began
    watch = Quarters(simulation, 0, length_us)
    profiler = cProfile.Profile() if profile else None
    began = time.process_time()
    if profiler is not None:
        profiler.enable()
    outcome = simulation.run(births, watch.look, until_us=length_us)
    if profiler is not None:
        profiler.disable()
    run_s = time.process_time() - began
    watch.look(length_us)  # the last event is born before the end
    return Measured(
        strategy,
        set_up_s,
        run_s,
        in_time,
        sum(traffic.events for traffic in outcome.traffic.values()),
        messages_of(simulation),
        watch.cost_us,
        watch.held,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        top_costs(profiler) if profiler is not None else [],
    )


def top_costs(profiler: cProfile.Profile, count: int = 12) -> list[str]:
    """The functions that most time was spent in, each with its share."""
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    whole = sum(own for _, _, own, _, _ in stats.values())
    costly = sorted(stats.items(), key=lambda entry: -entry[1][2])[:count]
    return [
        f"{own / whole:.1%} {name}" + (f" ({'/'.join(path.split('/')[-2:])}:{line})" if line else "")
        for (path, line, name), (_, _, own, _, _) in costly
    ]


def in_own_process(*arguments: Any) -> Measured:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulator", description=__doc__.splitlines()[0])
    parser.add_argument("strategies", nargs="*", metavar="STRATEGY", help=f"{' '.join(STRATEGIES)} (default: all)")
    parser.add_argument("--seconds", type=float, default=240.0, help="time of the network (default: 240)")
    parser.add_argument("--profile", action="store_true", help="run again under a profiler and tell what costs most")
    parser.add_argument("--quick", action="store_true", help="40 s of the network")
    options = parser.parse_args()
    if unknown := set(options.strategies) - set(STRATEGIES):
        parser.error(f"no such strategy: {', '.join(sorted(unknown))}; choose from {' '.join(STRATEGIES)}")
    seconds = 40.0 if options.quick else options.seconds
    print(f"Python {platform.python_version()}, {multiprocessing.cpu_count()} cores, one used, CPU seconds")
    print(f"{seconds:g} s of the default scenario, seed {SEED}\n")
    columns: tuple[str, ...] = (
        "strategy",
        "delivered",
        "set-up s",
        "run s",
        "x real time",
        "limit",
        "hops/s",
        "messages/s",
    )
    columns += ("us per message by quarter", "held by quarter", "peak MB")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    slow, delivered, profiles = [], set(), []
    for strategy in options.strategies or STRATEGIES:
        run = in_own_process(strategy, seconds, False)
        print(
            f"| {strategy} | {run.delivered:,} | {run.set_up_s:.2f} | {run.run_s:.2f} | "
            f"**{seconds / run.run_s:.1f}** | {REAL_TIME_LEAST:g} | {run.hops / run.run_s:,.0f} | "
            f"{run.messages / run.run_s:,.0f} | {', '.join(f'{cost:.1f}' for cost in run.quarters_us)} | "
            f"{', '.join(f'{held:,}' for held in run.held)} | {run.peak_mb:.0f} |",
            flush=True,
        )
        delivered.add(run.delivered)
        if seconds / run.run_s < REAL_TIME_LEAST:
            slow.append(strategy)
        if options.profile:
            profiles.append((strategy, in_own_process(strategy, min(seconds, 60.0), True).profile))
    for strategy, costs in profiles:
        print(f"\nwhere the time goes under {strategy}, as a profiler sees it:\n  " + "\n  ".join(costs))
    if slow:
        print(f"\nslower than {REAL_TIME_LEAST:g} times real time: {', '.join(slow)}")
    if len(delivered) > 1:
        sys.exit(f"the strategies delivered {sorted(delivered)} events, which should be the same number")


if __name__ == "__main__":
    main()
