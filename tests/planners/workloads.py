"""Random workloads for the planner: small networks, rules of every kind over a handful of types, rates and shares that
are drawn, bounds on latency, pulling or not. Rules have pairs in common often, and some are part of others, so that
their streams are shared."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headwater.coordinator.inev.model.latency_bounds import LatencyTerms
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.layout.planner_interface import Ground
from headwater.protocol.events import EventType
from headwater.protocol.languages import Language, parse_rules
from headwater.protocol.languages import Source as Text
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.pattern import Rule, leaves, types_of

TYPES: Final = tuple(EventType(name, {"k": "int", "v": "int"}) for name in "ABCDE")
NODES_MOST: Final = 8
RULES_MOST: Final = 4
BOUNDS: Final = ("off", "centr", "3x", "1.2x", "2")


@dataclass(frozen=True)
class Workload:
    """What a coordinator plans for, and what it knows."""

    seed: int
    ground: Ground
    statistics: Statistics
    texts: tuple[str, ...]

    def __str__(self) -> str:
        links = " ".join(f"{one}-{other}" for one, other in self.ground.links)
        return "\n".join((f"seed {self.seed}: {links}; {dict(self.ground.sources)}", *self.texts))


def workload(seed: int) -> Workload:
    """The workload of a seed, always the same."""
    draw = random.Random(f"workload {seed}")
    nodes = tuple(f"n{number}" for number in range(1, draw.randint(1, NODES_MOST) + 1))
    links = [(draw.choice(nodes[:at]), nodes[at]) for at in range(1, len(nodes))]
    for _ in range(draw.choice((0, 0, 1, 3)) if len(nodes) > 2 else 0):
        one, other = sorted(draw.sample(nodes, 2), key=nodes.index)
        if (one, other) not in links:
            links.append((one, other))
    texts = _texts(draw)
    rules = parse_rules([Text(text, "drawn", language) for language, text in texts], TYPES).rules
    read = sorted({name for rule in rules for name in types_of(rule.pattern)} & {each.name for each in TYPES})
    sources = {name: tuple(sorted(draw.sample(nodes, min(len(nodes), draw.choice((1, 1, 2, 3, 5)))))) for name in read}
    # Planners must live with a rate that was not given, too.
    rates = {
        name: {node: 10 ** draw.uniform(-3, 3) for node in at if draw.random() < 0.9} for name, at in sources.items()
    }
    sinks = [
        (node, rule.emits) for rule in rules for node in draw.sample(nodes, min(len(nodes), draw.choice((1, 1, 2, 3))))
    ]
    if draw.random() < 0.2 and len(rules) > 1:
        sinks = [(node, name) for node, name in sinks if name != rules[0].emits]
    known = Statistics(
        rates,
        {rule.name: _shares(draw, rule) for rule in rules if draw.random() < 0.7},
        LatencyTerms(draw.choice(BOUNDS), draw.choice((0.0, 0.01, 1.0, 1.0))),
        pull=draw.random() < 0.6,
    )
    ground = Ground(nodes, tuple(links), sources, tuple(sinks), tuple(PlannedRule(rule, None) for rule in rules))
    return Workload(seed, ground, known, tuple(text for _, text in texts))


def _shares(draw: random.Random, rule: Rule) -> dict[frozenset[str], float]:
    """How selective the rule is for pairs of its roles, some of them; those without a condition are warned of."""
    roles = sorted({leaf.role for leaf in leaves(rule.pattern.root)})
    pairs = [frozenset((one, other)) for at, one in enumerate(roles) for other in roles[at + 1 :]]
    return {pair: 10 ** draw.uniform(-3, 0) for pair in pairs if draw.random() < 0.6}


# Rules ---------------------------------------------------------------------------------------------------------------


def _texts(draw: random.Random) -> list[tuple[Language, str]]:
    """Rules as text, each with its language."""
    window = draw.choice(("200 ms", "1 s", "10 s"))
    names = draw.sample("ABCDE", 5) if draw.random() < 0.7 else list("ABCDE")
    count = draw.choice((1, 2, 2, 3, 3, RULES_MOST))
    found: list[tuple[Language, str]] = []
    for number in range(count):
        if draw.random() < 0.3:
            names = draw.sample("ABCDE", 5)
        language, body = draw.choice(SHAPES)(draw, names)
        body = body.replace("WINDOW", window if draw.random() < 0.8 else draw.choice(("200 ms", "1 s", "10 s")))
        text = f"R{number}: define O{number}() {body}" if language == "tesla" else f"R{number}: {body}"
        found.append((language, text if language == "tesla" else f"{text} RETURN O{number}()"))
    return found


def _where(*conditions: str) -> str:
    told = " AND ".join(condition for condition in conditions if condition)
    return f" WHERE {told}" if told else ""


def _own(draw: random.Random, role: str) -> str:
    return draw.choice(("", "", f"{role}.v > 3"))


def _sequence(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c, d = names[:4]
    parts = [f"{a} a", f"{b} b", f"{c} c", f"{d} d"][: draw.choice((2, 2, 3, 4))]
    equal = draw.choice(("a.k = b.k", "SAME[k]", "a.k = b.k AND a.v < b.v", ""))
    operator = draw.choice(("SEQ", "SEQ", "AND"))
    return "sase", f"{operator}({', '.join(parts)}){_where(equal, _own(draw, 'a'), _own(draw, 'b'))} WITHIN WINDOW"


def _nested(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c, d = names[:4]
    inner = draw.choice(("AND", "OR"))
    equal = draw.choice(("", "a.k = d.k"))
    return "sase", f"SEQ({a} a, {inner}({b} b, {c} c), {d} d){_where(equal, _own(draw, 'a'))} WITHIN WINDOW"


def _negation(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c, d = names[:4]
    parts = draw.choice((f"{a} a, !{b} n, {c} c", f"{a} a, !{b} n, {c} c, {d} d", f"{a} a, {c} c, !{b} n"))
    return "sase", f"SEQ({parts}){_where(draw.choice(('', 'a.k = c.k', 'SAME[k]')))} WITHIN WINDOW"


def _repetition(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c = names[:3]
    parts = draw.choice((f"{a} a, {b}+ b[], {c} c", f"{a}+ a[], {b} b", f"{a} a, {b}+ b[]"))
    return "sase", f"SEQ({parts}) WITHIN WINDOW"


def _single(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a = names[0]
    return draw.choice(
        (
            ("sase", f"SEQ({a}+ a[]) WITHIN WINDOW"),
            ("sase", f"SEQ({a} a){_where(_own(draw, 'a'))} WITHIN WINDOW"),
            ("tesla", f"from {a}(v > 2)"),
        )
    )


def _next(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c = names[:3]
    return "sase", f"SEQ({a} a, {b} b, {c} c) WHERE a.k = b.k WITHIN WINDOW SKIP TILL NEXT MATCH"


def _chain(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c, d = names[:4]
    policies = ("each",) if draw.random() < 0.5 else ("each", "last", "first", "2-last")
    one, other = draw.choice(policies), draw.choice(policies)
    filtered = draw.choice(("", "v > 3"))
    text = f"from {a}() and {one} {b}({filtered}) within WINDOW from {a}"
    if draw.random() < 0.7:
        text += f" and {other} {c}() within WINDOW from {draw.choice((a, b))}"
    if draw.random() < 0.3:
        text += f" and not {d}() within WINDOW from {a}"
    return "tesla", text


def _aggregate(draw: random.Random, names: list[str]) -> tuple[Language, str]:
    a, b, c = names[:3]
    text = f"from {a}()" + (f" and each {c}() within WINDOW from {a}" if draw.random() < 0.4 else "")
    key = draw.choice(("", f"k = {a}.k"))
    return "tesla", f"{text} and Count({b}({key}) within WINDOW from {a}) > 2"


SHAPES: Final[tuple[Callable[[random.Random, list[str]], tuple[Language, str]], ...]] = (
    _sequence, _sequence, _sequence, _nested, _negation, _repetition, _single, _next, _chain, _chain, _aggregate,
)  # fmt: skip
