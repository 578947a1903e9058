"""Cases for the law whose events may come later than any window is long, of rules that a missing event would change.

While a change is made, the trees before it still hear of events that are older than all that those after it began
with. What such a tree makes of them is worth nothing, and must not get in the way of what the trees before it find:
least of all where its aggregates count too little, or where it does not know of an event that forbids a match.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from headwater.protocol.events import Event
from headwater.protocol.expressions import FOLDS, Attribute, Binary, Expression, Parameter
from headwater.protocol.network import Sink, Source
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Chain,
    Conjunction,
    Negation,
    OutputAttribute,
    Part,
    Pattern,
    Rule,
    Selection,
    Step,
    Window,
    Within,
)
from headwater.protocol.pattern import Sequence as Seq
from tests.law.aggregated import AggregatingMaker
from tests.law.contested import ContestedMaker
from tests.law.equal_values import chance_of_seed, drawn
from tests.law.generators import RuleMaker
from tests.law.networks import OUTLASTING, UNSERVED, Birth, Maker, NetworkCase, numbered
from tests.law.stretching import stretched

LATENESS_TICKS = (4, 12, 30, 60)
WINDOW_SHARES = (1, 1, 0.5, 0.25)
"""How long windows are, beside those of other cases."""
DELICATE = ("asked", "negation", "absence", "chain: count", "chain: sum", "chain: avg", "chain: last", "chain: first")


class BareMaker(RuleMaker):
    """Makes rules with few conditions, so that there is nearly always something to find, and to get wrong."""

    def make(self, last: bool) -> Rule:
        pattern = self.negated() if self.chance(0.3) else self.chain()
        values = tuple(OutputAttribute(name, "any", Parameter(name)) for name in self.parameters)
        return Rule(self.name, pattern, self.unique, (*self.outputs(pattern, False), *values))

    def chain(self) -> Pattern:
        """An event, and what is aggregated or absent around it."""
        anchor = self.leaf(" as anchor")
        steps: list[Step] = []
        where: list[Expression] = []
        for _ in range(self.rng.choice((1, 1, 2))):
            leaf = self.leaf()
            where += self.same_id(leaf.role, anchor.role)
            within = Within(self.rng.choice((1, 2, 4)), anchor.role)
            kind = self.rng.choice(("aggregate", "aggregate", "aggregate", "absence", "each", "last"))
            if kind == "aggregate":
                name = f"p{len(self.parameters) + 1}"
                function = self.rng.choice(FOLDS)
                self.features.add(f"chain: {function}")
                steps.append(Aggregate(name, function, leaf, None if function == "count" else "v", within))
                self.parameters.append(name)
            elif kind == "absence":
                self.features.add("chain: absence")
                steps.append(Absence(leaf, within))
            else:
                self.features.add(f"chain: {kind}")
                steps.append(Selection(leaf, "each" if kind == "each" else "last", within))
        return Pattern(Chain(anchor, tuple(steps)), tuple(where))

    def negated(self) -> Pattern:
        """One or two events, and one that must not be before, between or after them."""
        self.features.add("negation")
        positive = [self.leaf() for _ in range(self.rng.choice((1, 2)))]
        absent = self.leaf(" negated")
        parts: list[Part] = [*positive]
        parts.insert(self.rng.randint(0, len(parts)), Negation(absent))
        root = self.rng.choice((Seq, Seq, Conjunction))(tuple(parts), Window(self.rng.choice((1, 2, 4)), "us", "span"))
        where = self.same_id(absent.role, positive[0].role)
        return Pattern(root, tuple(where))

    def same_id(self, one: str, other: str) -> list[Expression]:
        return [Binary("=", Attribute(one, "id"), Attribute(other, "id"))] if self.chance(0.5) else []


MAKERS: tuple[type[RuleMaker], ...] = (BareMaker, BareMaker, BareMaker, AggregatingMaker, RuleMaker, ContestedMaker)


class LateMaker(Maker):
    """Makes networks in which most sources are late by several windows."""

    def rules(self) -> tuple[Rule, ...]:
        count = self.rng.choices((1, 2, 3), (35, 45, 20))[0]
        share = self.rng.choice(WINDOW_SHARES)
        rules: list[Rule] = []
        while len(rules) < count:
            features: set[str] = set()
            maker = self.rng.choice(MAKERS)
            equal = drawn(self.equal, features)
            made = maker(self.rng, f"r{len(rules) + 1}", rules, features, equal).make(len(rules) + 1 == count)
            if features.isdisjoint(UNSERVED) and (rules or _is_delicate(features)):
                rules.append(made)
                self.features |= features
        return tuple(stretched(rule, max(1, int(self.unit_us * share))) for rule in rules)

    def latenesses(self) -> list[int]:
        self.features.add(OUTLASTING)
        return [0, *(self.unit_us * ticks for ticks in self.rng.sample(LATENESS_TICKS, 2))]

    def sinks(self, nodes: Sequence[str], rules: Sequence[Rule], sources: Sequence[Source]) -> tuple[Sink, ...]:
        """Every rule has one at least: some of them come later."""
        made = list(super().sinks(nodes, rules, sources))
        heard = {sink.subscription.type for sink in made if not sink.subscription.where}
        plain = next(sink.subscription for sink in made)
        for rule in rules:
            if rule.emits not in heard or self.chance(0.3):
                made.append(Sink(self.rng.choice(nodes), replace(plain, type=rule.emits, where=())))
        return tuple(made)

    def births(self, rules: Sequence[Rule], sources: Sequence[Source]) -> tuple[Birth, ...]:
        """More events, over a longer time, than in other cases, so that lateness has something to outlast."""
        explosive = any("repetition" in feature for feature in self.features)
        found: list[Birth] = []
        for piece in range(1 if explosive else self.rng.choice((1, 2, 2, 3))):
            later_us = piece * self.unit_us * self.rng.choice((10, 20, 30))
            for at_us, number, event in super().births(rules, sources):
                moved = Event.from_row((event.ts + later_us, event.node, event.seq + 1000 * piece, *event[3:]))
                found.append((at_us + later_us, number, moved))
        return numbered(found, sources)


def _is_delicate(features: set[str]) -> bool:
    """Whether an event that is missing may change what is found, and not only leave it out."""
    return any(word in feature for feature in features for word in DELICATE)


def late_case(seed: int) -> NetworkCase:
    """The case of a seed, always the same."""
    return LateMaker(random.Random(f"late {seed}"), "small", chance_of_seed(seed)).case(seed)
