"""Random networks with rules, rates and selectivities that are known, and traces that are drawn from them.

Sources are independent and Poisson; the values of events give the stated selectivities.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headwater.coordinator.inev.model.latency_bounds import OFF, LatencyTerms
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.layout.planner_interface import Ground
from headwater.protocol.events import Event, EventType
from headwater.protocol.languages import Source as Text
from headwater.protocol.languages import parse_rules
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import types_of
from headwater.protocol.subscriptions import Subscription

PRIME = 10_007
"""Values are drawn below it; of two of them the product, modulo it, is as good as drawn anew for every pair."""

TYPES = tuple(EventType(name, {"u": "int", "k": "int"}) for name in "ABCDEN")
VALUES = 8
"""Of this many values each is as likely as the others, where events must agree."""


@dataclass(frozen=True)
class Example:
    """A network with the rates of its sources, and what is known of its rules."""

    name: str
    network: Network
    per_s: tuple[float, ...]
    """By the position of the source."""
    window_s: float
    selectivities: dict[str, dict[frozenset[str], float]]

    @property
    def statistics(self) -> Statistics:
        rates: dict[str, dict[str, float]] = {}
        for source, rate in zip(self.network.sources, self.per_s, strict=True):
            rates.setdefault(source.type, {})[source.node] = rate
        # What is compared is cost: a latency bound would only leave fewer kinds of plans to compare.
        return Statistics(rates, self.selectivities, LatencyTerms(OFF))

    def ground(self) -> Ground:
        """What the coordinator lays a graph over when the network starts."""
        network = self.network
        sources: dict[str, tuple[str, ...]] = {}
        for source in network.sources:
            sources[source.type] = (*sources.get(source.type, ()), source.node)
        return Ground(
            network.nodes,
            tuple((link.one, link.other) for link in network.links),
            sources,
            tuple((sink.node, sink.subscription.type) for sink in network.sinks),
            tuple(PlannedRule(rule, None) for rule in network.rules),
        )


def _passes(one: str, other: str, share: float) -> str:
    return f"{one}.u * {other}.u % {PRIME} < {round(share * PRIME)}"


Shaped = list[tuple[str, dict[frozenset[str], float]]]
"""Rules, in TESLA if they begin with "from", and the shares that pass their conditions, by roles."""


def _sequence(draw: random.Random) -> Shaped:
    share = draw.choice((0.05, 0.2, 0.5))
    return [(f"SEQ(A a, B b, C c) WHERE {_passes('a', 'b', share)} WITHIN {{w}}", {frozenset("ab"): share})]


def _conjunction(draw: random.Random) -> Shaped:
    one, other = draw.choice((0.05, 0.2)), draw.choice((0.2, 1.0))
    conditions = f"{_passes('a', 'b', one)} AND {_passes('b', 'c', other)}"
    return [(f"AND(A a, B b, C c) WHERE {conditions} WITHIN {{w}}", {frozenset("ab"): one, frozenset("bc"): other})]


def _long(draw: random.Random) -> Shaped:
    one, other = draw.choice((0.05, 0.2)), draw.choice((0.1, 0.3))
    conditions = f"{_passes('a', 'b', one)} AND {_passes('c', 'd', other)}"
    text = f"SEQ(A a, AND(B b, C c), D d) WHERE {conditions} WITHIN {{w}}"
    return [(text, {frozenset("ab"): one, frozenset("cd"): other})]


def _negation(draw: random.Random) -> Shaped:
    share = draw.choice((0.1, 0.4))
    return [(f"SEQ(A a, !N n, B b, C c) WHERE {_passes('a', 'b', share)} WITHIN {{w}}", {frozenset("ab"): share})]


def _repetition(draw: random.Random) -> Shaped:
    share = draw.choice((0.1, 0.3))
    return [(f"SEQ(A a, E+ e[], C c) WHERE {_passes('a', 'c', share)} WITHIN {{w}}", {frozenset("ac"): share})]


def _filtered(draw: random.Random) -> Shaped:
    own, share = draw.choice((0.2, 0.5)), draw.choice((0.1, 0.3))
    conditions = f"a.u < {round(own * PRIME)} AND {_passes('b', 'c', share)}"
    return [(f"SEQ(A a, B b, C c) WHERE {conditions} WITHIN {{w}}", {frozenset("a"): own, frozenset("bc"): share})]


def _agreement(draw: random.Random) -> Shaped:
    return [("SEQ(A a, B b, C c) WHERE SAME[k] WITHIN {w}", {frozenset("abc"): 1 / VALUES})]


def _equality(draw: random.Random) -> Shaped:
    shares = {frozenset("ab"): 1 / VALUES, frozenset("bc"): 1 / VALUES}
    return [("SEQ(A a, B b, C c, D d) WHERE a.k = b.k AND b.k = c.k WITHIN {w}", shares)]


def _chain(draw: random.Random) -> Shaped:
    own = draw.choice((0.2, 0.5))
    text = f"from C() and each B(u < {round(own * PRIME)}) within {{w}} from C and each A() within {{w}} from B"
    return [(text, {frozenset("B"): own})]


def _shared(draw: random.Random) -> Shaped:
    share = draw.choice((0.05, 0.1))
    condition, selectivities = _passes("a", "b", share), {frozenset("ab"): share}
    return [(f"SEQ(A a, B b, {last}) WHERE {condition} WITHIN {{w}}", selectivities) for last in ("C c", "D d")]


SHAPES: dict[str, Callable[[random.Random], Shaped]] = {
    "seq3": _sequence,
    "and3": _conjunction,
    "seq4": _long,
    "negation": _negation,
    "repetition": _repetition,
    "filter": _filtered,
    "same": _agreement,
    "equal": _equality,
    "chain": _chain,
    "shared": _shared,
}


def random_network(seed: int, shapes: Iterable[str] | None = None) -> Example:
    """The network of a seed, with rules of these shapes; without any, of one that follows from the seed, and sometimes
    of another."""
    draw = random.Random(f"measured {seed}")
    names = sorted(SHAPES)
    further = draw.sample(names, draw.choice((0, 0, 1)))
    chosen = list(shapes) if shapes is not None else list(dict.fromkeys((names[seed % len(names)], *further)))
    window_s = draw.choice((0.5, 1.0, 2.0))
    texts, selectivities = [], {}
    for position, (body, shares) in enumerate(rule for shape in chosen for rule in SHAPES[shape](draw)):
        body = body.format(w=f"{round(window_s * 1000)} ms")
        if body.startswith("from"):
            texts.append(Text(f"R{position}: define Out{position}() {body}", "measured.tesla", "tesla"))
        else:
            texts.append(Text(f"R{position}: {body} RETURN Out{position}()", "measured.sase", "sase"))
        selectivities[f"R{position}"] = shares
    rules = parse_rules(texts, TYPES).rules
    nodes = tuple(f"n{number}" for number in range(1, draw.randint(5, 8) + 1))
    links = [Link(draw.choice(nodes[:at]), nodes[at], 1_000) for at in range(1, len(nodes))]
    one, other = sorted(draw.sample(nodes, 2))
    if not any({link.one, link.other} == {one, other} for link in links):
        links.append(Link(one, other, 1_000))
    sources, rates = [], []
    for type in TYPES:
        if any(type.name in types_of(rule.pattern) for rule in rules):
            rare = type.name in "EN" or draw.random() < 0.4
            total = draw.uniform(0.3, 1.0) / window_s if rare else draw.uniform(2.0, 8.0) / window_s
            at = draw.sample(nodes, draw.randint(1, 3))
            weights = [draw.uniform(0.3, 1.0) for _ in at]
            for node, weight in zip(at, weights, strict=True):
                sources.append(Source(node, type.name))
                rates.append(total * weight / sum(weights))
    sinks = tuple(Sink(draw.choice(nodes), Subscription(rule.emits)) for rule in rules)
    network = Network(TYPES, nodes, tuple(links), tuple(sources), sinks, rules, "inev")
    return Example(f"{seed} {'+'.join(chosen)}", network, tuple(rates), window_s, selectivities)


def trace(example: Example, seconds: float, seed: int) -> list[tuple[int, int, Event]]:
    """Events drawn from the model, as births."""
    draw = random.Random(f"trace {example.name} {seed}")
    types = {event_type.name: event_type for event_type in TYPES}
    births: list[tuple[int, int, int, int]] = []
    for position, rate in enumerate(example.per_s):
        at = 0.0
        while (at := at + draw.expovariate(rate)) < seconds:
            births.append((round(at * 1e6), position, draw.randrange(1, PRIME), draw.randrange(VALUES)))
    numbers: Counter[str] = Counter()
    events = []
    for ts, position, value, key in sorted(births):
        source = example.network.sources[position]
        numbers[source.node] += 1
        events.append(
            (ts, position, Event(types[source.type], ts, source.node, numbers[source.node], {"u": value, "k": key}))
        )
    return events
