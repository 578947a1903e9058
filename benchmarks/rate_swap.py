"""What becomes of a plan when rates change, what its nodes mend by themselves, and what a new plan brings.

    python -m benchmarks.rate_swap [--seconds 120] [--seed 1]

A ring of nodes, three types, a rule that joins them by a key. After a quarter of the run a frequent type and a rare one
change places. One network keeps its plan. In another nodes notice that parts of it cost more than they save, and these
fall back; a third is also planned anew, for the new rates, when three quarters are over. Events on links per second,
quarter by quarter, beside a network that collects everything (centr). Composites must be the same in all of them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.requests import FallBack, PlanAnew
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

TYPES = tuple(EventType(name, {"key": "int"}) for name in "ABC")
KEYS = 40
RULE = """
Trio: SEQ(A a, B b, C c) WHERE SAME[key] WITHIN 2 s RETURN Trio(key = a.key)
"""
AT = {"A": ("n0", "n2", "n4"), "B": ("n5", "n7"), "C": ("n6", "n9")}
BEFORE = {"A": 20.0, "B": 1.0, "C": 2.0}
AFTER = {"A": 1.0, "B": 30.0, "C": 2.0}
OVERHEAD = ("watermark", "control")


def a_ring(nodes: int = 10) -> Network:
    names = tuple(f"n{number}" for number in range(nodes))
    links = tuple(Link(names[at], names[(at + 1) % nodes], 2_000) for at in range(nodes))
    sources = tuple(Source(node, name) for name, at in AT.items() for node in at)
    rules = parse_rules([Text(RULE, "trio.sase", "sase")], TYPES).rules
    return Network(TYPES, names, links, sources, (Sink("n1", Subscription("Trio")),), rules, "inev")


def statistics(rates: dict[str, float]) -> Statistics:
    share = 1 / KEYS
    return Statistics(
        {name: dict.fromkeys(AT[name], rate) for name, rate in rates.items()},
        {"Trio": {frozenset("abc"): share}},
        pull=False,  # what is asked for cannot be watched, so that nodes would repair nothing
    )


def births(network: Network, seconds: float, seed: int) -> Iterator[tuple[int, int, Event]]:
    """Poisson sources; after a quarter of the time the rates change."""
    drawn = []
    numbers = dict.fromkeys(network.nodes, 0)
    for position, source in enumerate(network.sources):
        chance = random.Random(f"{seed} {position}")
        at = 0.0
        while True:
            rate = (BEFORE if at < seconds / 4 else AFTER)[source.type]
            at += chance.expovariate(rate)
            if at >= seconds:
                break
            drawn.append((round(at * 1e6), position, chance.randrange(KEYS)))
    for ts, position, key in sorted(drawn):
        source = network.sources[position]
        numbers[source.node] += 1
        event_type = next(event_type for event_type in TYPES if event_type.name == source.type)
        yield ts, position, Event(event_type, ts, source.node, numbers[source.node], {"key": key})


def sent(outcome: Outcome) -> int:
    return sum(traffic.events for (_, _, kind), traffic in outcome.traffic.items() if kind not in OVERHEAD)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="time of the network")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    network = a_ring()
    quarter_us = round(options.seconds / 4 * 1e6)
    anew = [(3 * quarter_us, PlanAnew(InevPlanner(statistics(AFTER))))]
    planned: dict[str, Any] = {"strategy": "inev", "lay_out": InevPlanner(statistics(BEFORE))}
    runs: dict[str, dict[str, Any]] = {
        "centr": {"strategy": "centr"},
        "planned once": {**planned, "falls_back": False},
        "falls back": planned,
        "falls back, planned anew": {**planned, "changes": anew},
    }
    heads = ("before", "swapped", "then", "last quarter")
    print(f"{'events on links per second':<28}{''.join(f'{head:>14}' for head in heads)}   composites")
    base: list[float] = []
    must = None
    for name, how in runs.items():
        totals = [0]
        for phase in (1, 2, 3):
            part = simulate(network, births(network, options.seconds, options.seed), until_us=phase * quarter_us, **how)
            totals.append(sent(part))
        whole = simulate(network, births(network, options.seconds, options.seed), **how)
        totals.append(sent(whole))
        composites = sorted(composite.id for composite in whole.composites())
        assert must is None or composites == must, "no plan may change results"
        must = composites
        rates = [(after - before) / (quarter_us / 1e6) for before, after in pairwise(totals)]
        base = base or rates
        shown = "".join(f"{rate:>9.1f} {rate / one:>4.0%}" for rate, one in zip(rates, base, strict=True))
        print(f"{name:<28}{shown}   {len(composites):,}", flush=True)
        for change, from_us in whole.held_from:
            if isinstance(change, FallBack):
                print(f"    after {from_us / 1e6:.1f} s: {change.why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
