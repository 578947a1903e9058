"""Random networks with rules, sources, sinks and a trace, from a seed: what the law is tested on.

Rules come from ``law.generators`` and cover every operator; count windows are left out, since a network does not serve
them, and lookups, which ``law.looked_up`` draws. Times are stretched so that the delays of links are sometimes much
smaller than windows, sometimes comparable and sometimes larger. ``NetworkCase.features`` says what a case exercises.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.deploy.simulation.faults import Faults, random_faults
from headwater.node.explain.expressions import show
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.events import Event
from headwater.protocol.expressions import Attribute, Binary, Constant, Expression, Items, Unary
from headwater.protocol.network import Link, Network, Sink, Source
from headwater.protocol.pattern import Rule, leaves, types_of
from headwater.protocol.subscriptions import SUBJECT, Subscription
from tests.law.contested import ContestedMaker
from tests.law.describing import event_code, rule_text
from tests.law.equal_values import chance_of_seed, drawn
from tests.law.generators import NODES, TYPES, RuleMaker, comparison, values_of
from tests.law.stretching import stretched

Size = Literal["small", "large"]
Birth = tuple[int, int, Event]
"""When the event reaches its source in virtual time, the position of the source in the network, the event."""

COUNTED, LOOKING_UP = "window: events", "where: remote"
UNSERVED = (COUNTED, LOOKING_UP)
"""Features of rules that networks refuse (count windows) or that are drawn only where tables are (``looked_up``)."""

CONTESTED = ("chain: last", "chain: first", "chain: n-last", "chain: n-first")
"""Features of rules in which what is withheld below could change a selection above."""

OUTLASTING = "sources: lateness of several windows"

UNITS_US = (1_000, 20_000, 200_000)
"""What one tick of a generated rule or trace may last."""

DELAYS = {"much smaller": 0.01, "smaller": 0.3, "comparable": 3.0, "larger": 15.0}
"""Delay of a link in ticks; windows are up to ten ticks long."""

SHAPES = ("line", "star", "ring", "tree", "graph", "complete")


@dataclass(frozen=True)
class NetworkCase:
    """A network and the events that enter it. Births are in order of time; each event's node is its source's."""

    network: Network
    births: tuple[Birth, ...]
    features: frozenset[str] = field(default=frozenset(), compare=False)
    seed: int = 0
    faults_seed: int = 0
    faults: Faults | None = None
    """What goes wrong in a run with faults; None: what the seed says."""
    tick_us: int = 0
    """Where rules look into remote tables: how long a tick of their versions lasts."""
    functions: Any = field(default=None, compare=False, repr=False)
    """Where rules call functions of a user's file: these, as the oracle has them."""

    def chosen_faults(self) -> Faults:
        return self.faults if self.faults is not None else random_faults(self.network, self.faults_seed, self.span_us)

    @property
    def span_us(self) -> int:
        """When the last event is born."""
        return max((at_us for at_us, _, _ in self.births), default=0)

    def is_late(self, birth: Birth) -> bool:
        """Whether the event comes after its source has promised that no such event would."""
        at_us, source, event = birth
        return at_us - event.ts > self.network.sources[source].lateness_us


def network_case(seed: int, size: Size | None = None, unserved: Sequence[str] = UNSERVED) -> NetworkCase:
    """The case of a seed (and a size; without one most are small), always the same."""
    rng = random.Random(f"network {seed} {size}")
    chosen: Size = size or ("small" if rng.random() < 0.85 else "large")
    return Maker(rng, chosen, chance_of_seed(seed), unserved).case(seed)


Draw = Callable[[int], NetworkCase]
"""Makes the case of a seed."""


def small_case(seed: int) -> NetworkCase:
    return network_case(seed, "small")


def numbered(births: Iterable[Birth], sources: Sequence[Source]) -> tuple[Birth, ...]:
    """The births in order of time, every event at its source's node; there they are numbered anew from 1 on, in the
    order of their numbers until now."""
    of_node: dict[str, list[Birth]] = {}
    for birth in sorted(births, key=lambda birth: (birth[2].seq, birth[0], birth[1])):
        of_node.setdefault(sources[birth[1]].node, []).append(birth)
    made = [
        (at_us, source, Event.from_row((event.ts, node, number, *event[3:])))
        for node, together in of_node.items()
        for number, (at_us, source, event) in enumerate(together, 1)
    ]
    return tuple(sorted(made, key=lambda birth: (birth[0], birth[1], birth[2].seq)))


class Maker:
    """Makes one case: first the rules, then who is where, then what happens."""

    def __init__(
        self, rng: random.Random, size: Size, equal: random.Random | None = None, unserved: Sequence[str] = UNSERVED
    ) -> None:
        self.rng = rng
        self.unserved = unserved
        self.equal = equal  # draws classes of equal values
        self.size = size
        self.features: set[str] = {f"size: {size}"}
        # Long delays over many hops would make virtual time, and with it the run, long and dull.
        self.unit_us = rng.choice(UNITS_US if size == "small" else UNITS_US[:2])
        # Work is divided among nodes only where a part of the network has several types of a rule to itself. Left to
        # chance that is rare, so half of the cases are made for it.
        self.apart = rng.random() < 0.5
        self.alone: str | None = None  # a type that has its side of the network to itself
        if self.apart:
            self.features.add("sources: types apart")

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def case(self, seed: int) -> NetworkCase:
        rules = self.rules()
        nodes = self.nodes()
        links = self.links(nodes)
        sources = self.sources_apart(nodes, links, rules) if self.apart else self.sources(nodes, rules)
        sinks = self.sinks(nodes, rules, sources)
        births = self.births(rules, sources)
        network = Network(tuple(TYPES.values()), nodes, links, sources, sinks, rules)
        return NetworkCase(network, births, frozenset(self.features), seed, self.rng.randrange(2**32))

    # -- rules ---------------------------------------------------------------------------------------------------------

    def rules(self) -> tuple[Rule, ...]:
        weights = (60, 25, 15, 0, 0) if self.size == "small" else (20, 25, 25, 20, 10)
        count = self.rng.choices((1, 2, 3, 4, 5), weights)[0]
        rules: list[Rule] = []
        while len(rules) < count:
            features: set[str] = set()
            maker = ContestedMaker if self.apart and not rules and self.chance(0.6) else RuleMaker
            equal = drawn(self.equal, features)
            made = maker(self.rng, f"r{len(rules) + 1}", rules, features, equal).make(len(rules) + 1 == count)
            if features.isdisjoint(self.unserved) and (not self.apart or self.divides(made, features)):
                if "rule: contested" in features:
                    self.alone = next(leaves(made.pattern.root)).type
                rules.append(made)
                self.features |= features
        if count > 1:
            self.features.add("several rules")
        if any(any(operators_without_bound(rule.pattern.root)) for rule in rules):
            self.features.add("rule: reaches back without end")
        self.rng.shuffle(rules)
        return tuple(stretched(rule, self.unit_us) for rule in rules)

    def divides(self, rule: Rule, features: set[str]) -> bool:
        """Whether to take a rule where work is to be divided: many types mostly, and often a contested selection."""
        many = len(types_of(rule.pattern) & TYPES.keys()) > 2
        if "rule: contested" in features:
            return True
        return (many or self.chance(0.1)) and (not features.isdisjoint(CONTESTED) or self.chance(0.25))

    # -- the graph -----------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[str, ...]:
        if self.size == "small":
            weights = (1, 5, 20, 25, 25, 24) if self.apart else (8, 18, 24, 20, 15, 15)
            count = self.rng.choices((1, 2, 3, 4, 5, 6), weights)[0]
        else:
            count = self.rng.randint(7, 30)
        self.features.add(f"nodes: {count}")
        names = [*NODES, *(f"p{i}" for i in range(1, count + 1))]
        return tuple(self.rng.sample(names, count))

    def links(self, nodes: Sequence[str]) -> tuple[Link, ...]:
        shape = self.rng.choice(("line", "tree", "graph") if self.apart and self.chance(0.7) else SHAPES)
        if shape == "complete" and len(nodes) > 8:
            shape = "graph"
        kind = self.rng.choice(("none", "equal", "different", "different"))
        relation = self.rng.choice(list(DELAYS))
        typical_us = 0 if kind == "none" else max(1, int(DELAYS[relation] * self.unit_us))
        jitter_us = self.rng.choice((0, 0, typical_us // 3, 2 * typical_us, self.unit_us))
        bandwidth = self.rng.choice((None,) * 6 + (20_000, 10_000_000))
        loss = self.rng.choice((0.0,) * 6 + (0.05, 0.4))
        made = []
        for one, other in edges(self.rng, nodes, shape):
            delay_us = self.rng.randint(0, 2 * typical_us) if kind == "different" else typical_us
            made.append(Link(one, other, delay_us, bandwidth, jitter_us, loss))
        if made:
            self.features |= {f"shape: {shape}", f"delay: {kind}"}
            self.features |= {f"delay: {relation} than windows"} if typical_us else set()
            self.features |= {"jitter"} if jitter_us else set()
            self.features |= {"bandwidth"} if bandwidth else set()
            self.features |= {"loss"} if loss else set()
        return tuple(made)

    # -- sources and sinks ---------------------------------------------------------------------------------------------

    def sources(self, nodes: Sequence[str], rules: Sequence[Rule]) -> tuple[Source, ...]:
        """Every primitive type that a rule reads has at least one source; others may."""
        read = {name for rule in rules for name in types_of(rule.pattern)}
        wanted = [name for name in TYPES if name in read or self.chance(0.3)]
        places = self.rng.sample(list(nodes), self.rng.randint(1, len(nodes)))
        lateness = self.latenesses()
        made: list[Source] = []
        for name in wanted:
            count = self.rng.choices((1, 2, 3, len(places)), (50, 25, 15, 10))[0]
            chosen = self.rng.sample(places, min(count, len(places)))
            if self.chance(0.04):
                chosen.append(chosen[0])
                self.features.add("sources: two of one type at one node")
            made += [Source(node, name, self.rng.choice(lateness)) for node in chosen]
            if len(set(chosen)) > 1:
                self.features.add("sources: a type at several nodes")
        return self.noted(made)

    def sources_apart(self, nodes: Sequence[str], links: Sequence[Link], rules: Sequence[Rule]) -> tuple[Source, ...]:
        """A link divides the types: those on its one side have no source on the other. A type has one source mostly."""
        read = {name for rule in rules for name in types_of(rule.pattern)}
        wanted = [name for name in TYPES if name in read or self.chance(0.3)]
        near, far = sides(nodes, links, self.rng)
        self.rng.shuffle(wanted)
        wanted.sort(key=lambda name: name != self.alone)
        cut = 1 if self.alone else self.rng.randint(1, max(1, len(wanted) - 1))
        lateness = self.latenesses()
        made: list[Source] = []
        for number, name in enumerate(wanted):
            places = near if number < cut else far
            chosen = self.rng.sample(places, min(len(places), self.rng.choice((1, 1, 1, 1, 2))))
            made += [Source(node, name, self.rng.choice(lateness)) for node in chosen]
        return self.noted(made)

    def latenesses(self) -> list[int]:
        return [0] if self.chance(0.5) else [0, self.unit_us // 10, self.unit_us, 12 * self.unit_us]

    def noted(self, sources: list[Source]) -> tuple[Source, ...]:
        places = {(source.node, source.type) for source in sources}
        if len(places) > len({source.node for source in sources}):
            self.features.add("sources: several types at a node")
        if any(source.lateness_us for source in sources):
            self.features.add("sources: lateness")
        self.rng.shuffle(sources)
        return tuple(sources)

    def sinks(self, nodes: Sequence[str], rules: Sequence[Rule], sources: Sequence[Source]) -> tuple[Sink, ...]:
        """One sink at least listens to composites; types without a subscription may be left."""
        emitted = {rule.emits: [(a.name, a.kind) for a in rule.attributes] for rule in rules}
        present = [TYPES[source.type] for source in sources]
        plain = {kind.name: list(zip(kind.attributes, kind.kinds, strict=True)) for kind in present}
        made: list[Sink] = []
        for number in range(self.rng.randint(1, 4 if self.size == "small" else 8)):
            choices = emitted if number == 0 or self.chance(0.75) else plain
            kind = "composite" if choices is emitted else "primitive"
            name = self.rng.choice(sorted(choices))
            where: list[Expression] = []
            while self.chance(0.3) and len(where) < 2:
                where.append(self.constraint(choices[name], nodes))
            self.features.add(f"sink: {kind}" + (" with constraints" if where else ""))
            made.append(Sink(self.rng.choice(nodes), Subscription(name, tuple(where))))
        if len({sink.node for sink in made}) < len(made):
            self.features.add("sinks: several at a node")
        if len({sink.subscription.type for sink in made}) < len(made):
            self.features.add("sinks: several of a type")
        if {rule.emits for rule in rules} - {sink.subscription.type for sink in made}:
            self.features.add("sinks: a rule without any")
        self.rng.shuffle(made)
        return tuple(made)

    def constraint(self, attributes: Sequence[tuple[str, str]], nodes: Sequence[str]) -> Expression:
        def of(name: str) -> Attribute:
            return Attribute(SUBJECT, name)

        numbers = [name for name, kind in attributes if kind in ("int", "float")]
        strings = [name for name, kind in attributes if kind == "string"]
        if not (numbers or strings) or self.chance(0.1):
            if self.chance(0.5):
                return Binary(self.rng.choice(("=", "!=")), of("node"), Constant(self.rng.choice(nodes)))
            return Binary(comparison(self.rng), of("ts"), Constant(self.unit_us * self.rng.randint(0, 20)))
        if strings and (not numbers or self.chance(0.2)):
            wanted = Constant(self.rng.choice(("x", "y", *nodes)))
            return Binary(self.rng.choice(("=", "!=", "<=")), of(self.rng.choice(strings)), wanted)
        one, other = of(self.rng.choice(numbers)), of(self.rng.choice(numbers))
        bound = Constant(self.rng.choice((0, 1, 2, 3, 5, 0.25)))
        return self.rng.choice(
            (
                Binary(comparison(self.rng), one, bound),
                Binary("=", one, Constant(self.rng.choice((0, 1)))),
                Unary("not", Binary(comparison(self.rng), one, bound)),
                Binary("in", one, Items((Constant(0), Constant(1), Constant(4)))),
                Binary("<=", one, Binary("+", other, Constant(1))),
                Binary("or", Binary("=", one, Constant(0)), Binary(">", other, Constant(4))),
            )
        )

    # -- the trace -----------------------------------------------------------------------------------------------------

    def births(self, rules: Sequence[Rule], sources: Sequence[Source]) -> tuple[Birth, ...]:
        """Events of the sources, mostly of types that rules read, reaching them as late as they promised to be."""
        explosive = any("repetition" in feature for feature in self.features)
        least, most = (25, 45) if self.size == "small" else (25, 100)
        count = self.rng.randint(8, 20) if explosive else self.rng.randint(least, most)
        spread = (count // 3, count, count, 3 * count) if explosive else (3, count // 3, count // 2, count)
        ticks = self.rng.choice(spread)
        exact = self.chance(0.6)  # on whole ticks timestamps tie and windows are met exactly
        late = self.chance(0.06)
        read = {name for rule in rules for name in types_of(rule.pattern)}
        weights = [self.rng.choice((2, 6)) if source.type in read else 1 for source in sources]
        values = values_of(self.features)
        made: list[Birth] = []
        for _ in range(count):
            number = self.rng.choices(range(len(sources)), weights)[0]
            source = sources[number]
            ts = self.unit_us * self.rng.randint(0, max(1, ticks))
            if not exact:
                ts += self.rng.randrange(self.unit_us)
            at_us = ts + self.rng.choice((0, source.lateness_us, self.rng.randint(0, source.lateness_us)))
            if late and self.chance(0.2):
                at_us = ts + source.lateness_us + self.rng.randint(1, 3 * self.unit_us)
                self.features.add("births: late")
            kind = TYPES[source.type]
            made.append((at_us, number, Event(kind, ts, "", 0, values(self.rng, kind))))
        if exact:
            self.features.add("births: on whole ticks")
        # A trace is numbered in order of time, a live source in order of arrival.
        by_time = self.chance(0.5)
        self.features.add("births: numbered by time" if by_time else "births: numbered by arrival")
        made.sort(key=lambda birth: (birth[2].ts if by_time else birth[0], birth[1]))
        ranked = [(at_us, number, moved(event, rank)) for rank, (at_us, number, event) in enumerate(made)]
        return numbered(ranked, sources)


def moved(event: Event, seq: int) -> Event:
    """The event under another number."""
    return Event.from_row((event.ts, event.node, seq, *event[3:]))


def edges(rng: random.Random, nodes: Sequence[str], shape: str) -> list[tuple[str, str]]:
    """Pairs of nodes that connect all of them, without loops and doubles."""
    count = len(nodes)
    pairs: set[tuple[int, int]] = set()
    for i in range(1, count):
        match shape:
            case "line" | "ring":
                pairs.add((i - 1, i))
            case "star":
                pairs.add((0, i))
            case "complete":
                pairs |= {(j, i) for j in range(i)}
            case _:
                pairs.add((rng.randrange(i), i))
    if shape == "ring" and count > 2:
        pairs.add((0, count - 1))
    if shape == "graph" and count > 2:
        for _ in range(rng.randint(1, count)):
            one, other = sorted(rng.sample(range(count), 2))
            pairs.add((one, other))
    found = [(nodes[one], nodes[other]) for one, other in sorted(pairs)]
    rng.shuffle(found)
    return [pair if rng.random() < 0.5 else (pair[1], pair[0]) for pair in found]


def sides(nodes: Sequence[str], links: Sequence[Link], rng: random.Random) -> tuple[list[str], list[str]]:
    """The nodes on the one and on the other side of a random link, if it is the only way across; else any two parts."""
    if len(nodes) == 1:
        return list(nodes), list(nodes)
    cut = rng.choice(links)
    near = {cut.one}
    others = [link for link in links if link != cut]
    while grown := {link.end(node) for link in others for node in near if node in (link.one, link.other)} - near:
        near |= grown
    if len(near) == len(nodes):
        near = set(rng.sample(list(nodes), rng.randint(1, len(nodes) - 1)))
    return [node for node in nodes if node in near], [node for node in nodes if node not in near]


# -- printing ----------------------------------------------------------------------------------------------------------


def describe(case: NetworkCase) -> str:
    """The case as text for people, in comments, and below it as Python that makes it again (``kept_case``)."""
    lines = ["# " + line for line in for_people(case)]
    lines += ["from headwater.deploy.simulation.faults import *"] if case.faults is not None else []
    lines += ["from headwater.protocol.events import Event, EventType", "from headwater.protocol.expressions import *"]
    lines += [
        "from headwater.protocol.network import DescribedTable, Link, Network, Sink, Source",
        "from headwater.protocol.pattern import *",
    ]
    lines += ["from headwater.protocol.subscriptions import Subscription"]
    lines += ["from tests.law.generators import TYPES", "from tests.law.networks import NetworkCase", ""]
    network = case.network
    for name in ("links", "sources", "sinks", "rules"):
        lines += [f"{name} = (", *(f"    {each!r}," for each in getattr(network, name)), ")"]
    lines += ["births = ("]
    lines += [f"    ({at_us}, {source}, {event_code(event)})," for at_us, source, event in case.births]
    tables = f", tables={network.tables!r}" if network.tables else ""
    lines += [")"]
    lines += [f"network = Network(tuple(TYPES.values()), {network.nodes!r}, links, sources, sinks, rules{tables})"]
    seeds = f"seed={case.seed}, faults_seed={case.faults_seed}, faults={case.faults!r}"
    seeds += f", tick_us={case.tick_us}" if case.tick_us else ""
    lines += [f"case = NetworkCase(network, births, {seeds})"]
    return "\n".join(lines)


def for_people(case: NetworkCase) -> list[str]:
    network = case.network
    lines = [f"seed {case.seed}: {len(network.nodes)} nodes: {', '.join(network.nodes)}"]
    for link in network.links:
        extras = [f"jitter up to {link.jitter_us} us"] if link.jitter_us else []
        extras += [f"{link.bandwidth_bps} bit/s"] if link.bandwidth_bps else []
        extras += [f"loss {link.loss}"] if link.loss else []
        lines.append(", ".join([f"link {link.one} - {link.other}: {link.delay_us} us", *extras]))
    for number, source in enumerate(network.sources):
        late = f", up to {source.lateness_us} us late" if source.lateness_us else ""
        lines.append(f"source {number} at {source.node}: {source.type}{late}")
    for number, sink in enumerate(network.sinks):
        where = "".join(f" and {show(conjunct)}" for conjunct in sink.subscription.where)
        lines.append(f"sink {number} at {sink.node}: {sink.subscription.type}{where}")
    for rule in network.rules:
        lines += rule_text(rule).splitlines()
    for birth in case.births:
        at_us, number, event = birth
        how = "" if at_us == event.ts else f", born at {at_us}" + (" (late)" if case.is_late(birth) else "")
        lines.append(f"{event!r} from source {number}{how}")
    return lines + (case.faults.describe().splitlines() if case.faults else [])


def kept_case(text: str) -> dict[str, Any]:
    """What a text that ``describe`` printed defines: ``case`` and whatever else was written below it."""
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace
