"""How much traffic does it save to ask for the values of aggregates instead of sending the aggregated events?

    python -m benchmarks.aggregates [--seconds N]

A tree of nodes: sensors at its leaves measure temperatures all the time, smoke is seen at the root now and then, and a
rule wants the average temperature before it. The same run with temperatures sent (st, mt) and asked for (st-pp, mt-pp);
*ratio* is sent / asked. The composite events must be the same. Messages and bytes are with all overhead: who gets the
temperatures must still ask every sensor, for each smoke, whether it has got them all. Where smoke is as frequent as
temperatures, there is nothing to be saved.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import simulate
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription

SMOKE = EventType("Smoke", {"area": "int"})
TEMP = EventType("Temp", {"area": "int", "value": "float"})

RULE = """
define Fire(area: int, mean: float)
from Smoke(area = $a)
 and $m = Avg(Temp(area = $a).value within 5 s from Smoke) > 20
where area = Smoke.area, mean = $m
"""

AREAS = 4
OVERHEAD = ("watermark", "control")
BRANCHES, SENSORS = 3, 3  # a root, so many nodes below it, and so many sensors below each of them


@dataclass(frozen=True, slots=True)
class Load:
    """How often things happen in the whole network."""

    name: str
    temperatures_per_s: float
    smoke_per_s: float


LOADS = (
    Load("rare smoke", 200, 0.2),
    Load("some smoke", 200, 2),
    Load("much smoke", 200, 20),
    Load("as much smoke as temperatures", 50, 50),
)


def a_network() -> Network:
    branches = [f"branch{number}" for number in range(BRANCHES)]
    sensors = {f"{branch}.{number}": branch for branch in branches for number in range(SENSORS)}
    links = [Link("root", branch, 2000) for branch in branches]
    links += [Link(branch, sensor, 2000) for sensor, branch in sensors.items()]
    sources = (Source("root", "Smoke"), *(Source(sensor, "Temp") for sensor in sensors))
    rules = parse_rules([Text(RULE, "fire.tesla", "tesla")], [SMOKE, TEMP]).rules
    sinks = (Sink("root", Subscription("Fire")),)
    return Network((SMOKE, TEMP), ("root", *branches, *sensors), tuple(links), sources, sinks, tuple(rules))


def births(network: Network, load: Load, seconds: float) -> Iterator[tuple[int, int, Event]]:
    rng = random.Random(f"{load.name}")
    numbers = dict.fromkeys(network.nodes, 0)
    ts = 0
    share = load.smoke_per_s / (load.smoke_per_s + load.temperatures_per_s)
    while (ts := ts + 1 + round(rng.expovariate(load.smoke_per_s + load.temperatures_per_s) * 1e6)) < seconds * 1e6:
        place = 0 if rng.random() < share else rng.randrange(1, len(network.sources))
        source = network.sources[place]
        numbers[source.node] += 1
        attributes = {"area": rng.randrange(AREAS)} | ({} if place == 0 else {"value": round(rng.gauss(20, 10), 1)})
        yield ts, place, Event(SMOKE if place == 0 else TEMP, ts, source.node, numbers[source.node], attributes)


def crossed(outcome: Outcome) -> tuple[int, int, int]:
    """Over all links: events (with questions and answers), and messages and bytes with all overhead."""
    events = sum(traffic.events for (_, _, kind), traffic in outcome.traffic.items() if kind not in OVERHEAD)
    traffics = outcome.traffic.values()
    return events, sum(traffic.messages for traffic in traffics), sum(traffic.bytes for traffic in traffics)


def fires(outcome: Outcome) -> frozenset[tuple[object, ...]]:
    return frozenset((fire.id, repr(fire.attributes)) for fire in outcome.composites())


def compare(load: Load, sent_by: str, pulled_by: str, seconds: float) -> str:
    network = a_network()
    sent = simulate(network, births(network, load, seconds), strategy=sent_by)
    pulled = simulate(network, births(network, load, seconds), strategy=pulled_by)
    assert fires(sent) == fires(pulled), "the strategies find different composite events"
    columns = [load.name, f"{sent_by}, {pulled_by}", f"{len(sent.born):,}", f"{len(fires(pulled)):,}"]
    for much, little in zip(crossed(sent), crossed(pulled), strict=True):
        columns += [f"{much:,}", f"{little:,}", f"**{much / little:.1f}**"]
    return f"| {' | '.join(columns)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.aggregates", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each network runs in virtual time")
    options = parser.parse_args()
    columns = ["load", "sent, asked by", "born", "composites"]
    for unit in ("events", "messages", "bytes"):
        columns += [f"{unit} when sent", "when asked", "ratio"]
    print(f"{options.seconds:g} s of virtual time\n")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for load in LOADS:
        for strategies in (("st", "st-pp"), ("mt", "mt-pp")):
            print(compare(load, *strategies, options.seconds), flush=True)


if __name__ == "__main__":
    main()
