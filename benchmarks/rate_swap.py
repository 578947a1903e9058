"""What becomes of a plan when rates change, and what a new plan brings.

    python -m benchmarks.rate_swap [--seconds 60] [--seed 1]

A ring of nodes, three types, a rule that joins them by a key. In the first third of the run one type is frequent and
another rare; then they change places. One network keeps its plan; the other is planned anew, for the new rates, a third
later, while it runs. Events on links per second, phase by phase, beside a network that collects everything (centr).
Composites must be the same in all of them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from itertools import pairwise

from coordinator.core import LayOutAnew
from coordinator.inev.rollout import InevPlanner
from coordinator.inev.rules import Statistics
from deploy.simulation.outcome import Outcome
from deploy.simulation.simulator import simulate
from protocol.events import Event, EventType
from protocol.languages import Source as Text
from protocol.languages import parse_rules
from protocol.network import Link, Network, Sink, Source
from protocol.subscriptions import Subscription

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
    )


def births(network: Network, seconds: float, seed: int) -> Iterator[tuple[int, int, Event]]:
    """Poisson sources; after a third of the time the rates change."""
    found = []
    numbers = dict.fromkeys(network.nodes, 0)
    for position, source in enumerate(network.sources):
        chance = random.Random(f"{seed} {position}")
        at = 0.0
        while True:
            rate = (BEFORE if at < seconds / 3 else AFTER)[source.type]
            at += chance.expovariate(rate)
            if at >= seconds:
                break
            found.append((round(at * 1e6), position, chance.randrange(KEYS)))
    for ts, position, key in sorted(found):
        source = network.sources[position]
        numbers[source.node] += 1
        event_type = next(each for each in TYPES if each.name == source.type)
        yield ts, position, Event(event_type, ts, source.node, numbers[source.node], {"key": key})


def sent(outcome: Outcome) -> int:
    return sum(traffic.events for (_, _, kind), traffic in outcome.traffic.items() if kind not in OVERHEAD)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time of the network")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    network = a_ring()
    third_us = round(options.seconds / 3 * 1e6)
    anew = [(2 * third_us, LayOutAnew(InevPlanner(statistics(AFTER))))]
    runs = {
        "centr": {"strategy": "centr"},
        "planned once": {"strategy": "inev", "lay_out": InevPlanner(statistics(BEFORE))},
        "planned anew": {"strategy": "inev", "lay_out": InevPlanner(statistics(BEFORE)), "changes": anew},
    }
    print(f"{'events on links per second':<28}{'as planned':>12}{'swapped':>12}{'last third':>12}   composites")
    base: list[float] = []
    must = None
    for name, how in runs.items():
        totals = [0]
        for phase in (1, 2):
            part = simulate(network, births(network, options.seconds, options.seed), until_us=phase * third_us, **how)
            totals.append(sent(part))
        whole = simulate(network, births(network, options.seconds, options.seed), **how)
        totals.append(sent(whole))
        found = sorted(delivery.item.id for delivery in whole.delivered)
        assert must is None or found == must, "no plan may change results"
        must = found
        rates = [(after - before) / (third_us / 1e6) for before, after in pairwise(totals)]
        base = base or rates
        shown = "".join(f"{rate:>7.1f} {rate / one:>4.0%}" for rate, one in zip(rates, base, strict=True))
        print(f"{name:<28}{shown}   {len(found):,}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
