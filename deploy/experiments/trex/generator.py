"""Generates a network and its events from a scenario and a seed. The same ones give the same, to the byte.

Every aspect (links, rates, rules, subscriptions, arrivals) draws from a random stream of its own. So two scenarios that
differ in one aspect agree in the others: with more subscriptions the rules stay, and the fewer are among the more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heapreplace
from random import Random
from typing import Final

from headwater.deploy.experiments.trex.scenario import Scenario
from headwater.deploy.experiments.trex.topology import nearest, waxman_links
from headwater.protocol.events import Event, EventType
from headwater.protocol.expressions import Attribute, Binary, Constant
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Chain, Leaf, Pattern, Policy, Rule, Selection, Within
from headwater.protocol.subscriptions import Subscription

ATTRIBUTE: Final = "value"

Birth = tuple[int, int, Event]
"""Virtual time, position of the source in the network, the event."""

Births = Callable[[int], Iterator[Birth]]
"""Given the virtual time to stop before, the births in order of time, made as they are asked for."""


def build(scenario: Scenario, seed: int) -> tuple[Network, Births]:
    """The network of a scenario, and its events as a function that can be called any number of times."""
    nodes = tuple(_names("p", scenario.processors))
    links = waxman_links(nodes, scenario.links, round(scenario.link_delay_ms * 1000), _stream(seed, "links"))
    types = tuple(EventType(name, {ATTRIBUTE: "int"}) for name in _names("Event", scenario.types))
    classes = _classes_of_types([declared.name for declared in types], scenario, seed)
    homes = _homes(classes, nodes, links, scenario, seed)
    sources = tuple(Source(homes[declared.name], declared.name) for declared in types)
    rules = _rules(classes, scenario, seed)
    sinks = _sinks(nodes, [rule.emits for rule in rules], scenario, seed)
    rates = rates_per_s(scenario, seed)

    def births(until_us: int) -> Iterator[Birth]:
        return poisson_births(types, sources, rates, scenario.values, seed, until_us)

    return Network(types, nodes, links, sources, sinks, rules), births


def rates_per_s(scenario: Scenario, seed: int) -> tuple[float, ...]:
    """The rate of each event type.

    They are dealt, not drawn: the scale is cut into as many equal steps as there are types. So every seed has the same
    rates, at other types, and the load does not depend on the seed.
    """
    low, high = math.log(scenario.rate_least_per_s), math.log(scenario.rate_greatest_per_s)
    step = (high - low) / scenario.types
    rates = [math.exp(low + step * (i + 0.5)) for i in range(scenario.types)]
    _stream(seed, "rates").shuffle(rates)
    return tuple(rates)


def expected_deliveries_per_s(network: Network, rates: Sequence[float], values: int) -> float:
    """Roughly how many composite events reach sinks in a second: enough to tell how long a run will take."""
    rate_of = {source.type: rate / values for source, rate in zip(network.sources, rates, strict=True)}
    rate_of_composite: dict[str, float] = {}
    for rule in network.rules:
        chain = rule.pattern.root
        assert isinstance(chain, Chain)
        expected = rate_of[chain.anchor.type]
        for step in chain.steps:
            assert isinstance(step, Selection)
            candidates = rate_of[step.leaf.type] * step.within.length_us / 1e6
            expected *= candidates if step.policy == "each" else -math.expm1(-candidates)
        rate_of_composite[rule.emits] = expected
    return sum(rate_of_composite[sink.subscription.type] for sink in network.sinks)


def _stream(seed: int, *aspect: object) -> Random:
    return Random("/".join(map(str, (seed, *aspect))))


def _names(stem: str, count: int) -> list[str]:
    width = len(str(count))
    return [f"{stem}{number:0{width}}" for number in range(1, count + 1)]


def _classes_of_types(types: Sequence[str], scenario: Scenario, seed: int) -> list[list[str]]:
    """The event types of each class: all of them where there is one class, else dealt out evenly."""
    if scenario.classes == 1:
        return [list(types)]
    shuffled = _stream(seed, "classes").sample(types, len(types))
    return [sorted(shuffled[number :: scenario.classes]) for number in range(scenario.classes)]


def _homes(
    classes: Sequence[Sequence[str]], nodes: Sequence[str], links: Sequence[Link], scenario: Scenario, seed: int
) -> dict[str, str]:
    """Where each event type is born: at one processor."""
    homes: dict[str, str] = {}
    for number, members in enumerate(classes):
        random = _stream(seed, "homes", number)
        near: Sequence[str] = nodes
        if scenario.processors_per_class is not None:
            near = nearest(nodes, links, random.choice(nodes), scenario.processors_per_class)
        homes |= {name: random.choice(near) for name in members}
    return homes


def _rules(classes: Sequence[Sequence[str]], scenario: Scenario, seed: int) -> tuple[Rule, ...]:
    each_selections = _each_selections(scenario, seed)
    if scenario.types_used_once:
        dealt = iter(_stream(seed, "types of rules").sample(classes[0], scenario.types_needed))
    rules = []
    for number, name in enumerate(_names("Composite", scenario.rules)):
        random = _stream(seed, "rule", number)
        if scenario.types_used_once:
            types = [next(dealt) for _ in range(scenario.length)]
        else:
            # Rule 7 is of class 7: with more rules, the first ones stay what they were.
            types = random.sample(classes[number % scenario.classes], scenario.length)
        windows_us = [1000 * round(scenario.window_s * random.uniform(0.5, 1.5) * 1000) for _ in types[1:]]
        wanted = random.randrange(scenario.values)
        steps = []
        for i, (origin, chosen, length_us) in enumerate(zip(types, types[1:], windows_us, strict=False)):
            policy: Policy = "each" if (number, i) in each_selections else "last"
            steps.append(Selection(Leaf(chosen, chosen), policy, Within(length_us, origin)))
        where: tuple[Binary, ...]
        if scenario.same_value:
            where = tuple(Binary("=", Attribute(role, ATTRIBUTE), Attribute(types[0], ATTRIBUTE)) for role in types[1:])
        else:
            where = tuple(Binary("=", Attribute(role, ATTRIBUTE), Constant(wanted)) for role in types)
        pattern = Pattern(Chain(Leaf(types[0], types[0]), tuple(steps)), where if scenario.values > 1 else ())
        rules.append(Rule(name, pattern, emits=name))
    return tuple(rules)


def _each_selections(scenario: Scenario, seed: int) -> set[tuple[int, int]]:
    """Which selections (rule, position) are ``each``: the asked share of them, exactly; a greater share adds to it."""
    selections = [(rule, i) for rule in range(scenario.rules) for i in range(scenario.length - 1)]
    _stream(seed, "each").shuffle(selections)
    return set(selections[: round(scenario.each_share * len(selections))])


def _sinks(nodes: Sequence[str], composites: Sequence[str], scenario: Scenario, seed: int) -> tuple[Sink, ...]:
    sinks = []
    for node in nodes:
        liked = _stream(seed, "subscriptions", node).sample(composites, len(composites))
        sinks += [Sink(node, Subscription(composite)) for composite in liked[: scenario.subscriptions]]
    return tuple(sinks)


def poisson_births(
    types: Sequence[EventType],
    sources: Sequence[Source],
    rates: Sequence[float],
    values: int,
    seed: int,
    until_us: int,
) -> Iterator[Birth]:
    """Poisson arrivals at every source, merged; ``types`` and ``rates`` are those of the sources.

    No two events share a timestamp, so their order is never a tie.
    """
    several = len({source.type for source in sources}) < len(sources)
    waits = [
        _stream(seed, "arrivals", source.type, *([source.node] if several else ())).expovariate for source in sources
    ]
    rates_per_us = [rate / 1e6 for rate in rates]
    value = _stream(seed, "values").randrange
    seqs = dict.fromkeys((source.node for source in sources), 0)
    homes = [source.node for source in sources]
    event = Event.from_row
    # Times are floats in the heap: rounding each wait would slow the fastest types down.
    pending = [(waits[i](rate), i) for i, rate in enumerate(rates_per_us)]
    heapify(pending)
    latest = -1
    while pending:
        exact, i = pending[0]
        at = int(exact)
        if at <= latest:
            heapreplace(pending, (float(latest + 1), i))
            continue
        if at >= until_us:
            return
        latest = at
        node = homes[i]
        seqs[node] = seq = seqs[node] + 1
        yield at, i, event((at, node, seq, types[i], value(values) if values > 1 else 0))
        heapreplace(pending, (exact + waits[i](rates_per_us[i]), i))
