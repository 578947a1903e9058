"""A ring whose rates change: what is frequent becomes rare, and the other way round."""

from __future__ import annotations

import random
from collections.abc import Mapping

from headwater.coordinator.inev.model.rules import Statistics
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.subscriptions import Subscription
from tests.law.networks import Birth, NetworkCase

TYPES = tuple(EventType(name, {"key": "int"}) for name in "ABC")
KEYS = 20
AT = {"A": ("n0", "n2"), "B": ("n3", "n4"), "C": ("n5",)}
BEFORE = {"A": 20.0, "B": 1.0, "C": 2.0}
AFTER = {"A": 1.0, "B": 30.0, "C": 2.0}
RULE = "Trio: SEQ(A a, B b, C c) WHERE SAME[key] WITHIN 1 s RETURN Trio(key = a.key)"


def a_ring(nodes: int = 6) -> Network:
    names = tuple(f"n{number}" for number in range(nodes))
    links = tuple(Link(names[at], names[(at + 1) % nodes], 2_000) for at in range(nodes))
    sources = tuple(Source(node, name) for name, at in AT.items() for node in at)
    rules = parse_rules([Text(RULE, "trio.sase", "sase")], TYPES).rules
    return Network(TYPES, names, links, sources, (Sink("n1", Subscription("Trio")),), rules, "inev")


def known(rates: Mapping[str, float]) -> Statistics:
    """Without pulling: what is asked for cannot be watched."""
    at = {name: dict.fromkeys(AT[name], rate) for name, rate in rates.items()}
    return Statistics(at, {"Trio": {frozenset("abc"): 1 / KEYS}}, pull=False)


def a_swap(seconds: float, seed: int = 1, *, keys: int = KEYS) -> NetworkCase:
    """Poisson sources; after a third of the time the rates change, and there are so many keys."""
    network = a_ring()
    drawn: list[tuple[int, int, int]] = []
    for position, source in enumerate(network.sources):
        chance = random.Random(f"{seed} {position}")
        at = 0.0
        while (at := at + chance.expovariate((BEFORE if at < seconds / 3 else AFTER)[source.type])) < seconds:
            drawn.append((round(at * 1e6), position, chance.randrange(KEYS if at < seconds / 3 else keys)))
    numbers = dict.fromkeys(network.nodes, 0)
    types = {each.name: each for each in TYPES}
    births: list[Birth] = []
    for ts, position, key in sorted(drawn):
        source = network.sources[position]
        numbers[source.node] += 1
        born = Event(types[source.type], ts, source.node, numbers[source.node], {"key": key})
        births.append((ts, position, born))
    return NetworkCase(network, tuple(births), seed=seed)
