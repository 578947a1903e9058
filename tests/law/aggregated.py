"""Cases for the law whose chains aggregate a type that has no other role, so that its values may be asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from headwater.protocol.events import Event
from headwater.protocol.expressions import FOLDS, Attribute, Binary, Constant, Expression, Parameter
from headwater.protocol.pattern import Absence, Aggregate, Chain, Leaf, OutputAttribute, Pattern, Rule, Selection, Step
from tests.law.equal_values import Named, chance_of_seed, drawn
from tests.law.generators import RuleMaker, comparison
from tests.law.networks import UNSERVED, Birth, Maker, NetworkCase
from tests.law.stretching import stretched

AWKWARD = (0.1, 0.2, 0.3, -0.1, 1e16, -1e16, 1e300, -1e300, 5e-324, 1.0, 3.5, 0.0, -0.0)
"""Floats whose sum depends on the order in which they are added, unless it is exact."""


class AggregatingMaker(RuleMaker):
    """Makes chains only: parts and negations of some types, and aggregates over others."""

    def make(self, last: bool) -> Rule:
        pattern = self.chain()
        values = tuple(OutputAttribute(name, "any", Parameter(name)) for name in self.parameters)
        emits = self.unique if self.chance(0.6) or {"X", "Y"} & set(self.emitted) else "X"
        own = self.outputs(pattern, False)
        return Rule(self.name, pattern, emits, (*own, *values) if emits == self.unique else own)

    def chain(self) -> Pattern:
        *parts, aggregated = self.pool
        anchor = self.of(self.rng.choice(parts))
        known = [Named(anchor.role, anchor.type)]
        where: list[Expression] = [self.about_one(known[0])] if self.chance(0.3) else []
        where += self.equal.begun_with(known[0]) if self.equal is not None else []
        steps: list[Step] = []
        further = self.rng.choices(("selection", "absence", "aggregate"), (50, 15, 35), k=self.rng.randint(0, 3))
        kinds = ["aggregate", *further]
        self.rng.shuffle(kinds)
        for kind in kinds:
            if kind != "aggregate":
                leaf = self.of(self.rng.choice(parts))
                role = Named(leaf.role, leaf.type)
                made = self.constraints(role, known, positive=kind == "selection")
                where += [each for each in made if self.chance(0.5) or not _names_value(each)]
                if kind == "absence":
                    steps.append(Absence(leaf, self.range(known)))
                else:
                    steps.append(Selection(leaf, self.rng.choice(("each", "last", "first")), self.within(known)))
                    known.append(role)
                continue
            leaf = self.of(self.rng.choice(self.emitted) if self.emitted and self.chance(0.4) else aggregated)
            role = Named(leaf.role, leaf.type)
            function = self.rng.choice(FOLDS)
            self.features.add(f"asked: {function}")
            attribute = "w" if role.full and self.chance(0.6) else "v"
            name = f"p{len(self.parameters) + 1}"
            where += [each for each in self.constraints(role, known) if self.chance(0.3) or not _names_value(each)]
            plain = function == "count" and self.chance(0.5)
            steps.append(Aggregate(name, function, leaf, None if plain else attribute, self.range(known)))
            self.parameters.append(name)
            if self.equal is not None:
                self.equal.take_parameter(name)
            if self.chance(0.4):
                bound: Expression = Constant(self.rng.choice((0, 0.3, 1, 2, 5)))
                if self.chance(0.4):
                    bound = Attribute(self.rng.choice(known).role, "v")
                left: Expression = Parameter(name)
                if len(self.parameters) > 1 and self.chance(0.4):
                    left = Binary("+", left, Parameter(self.rng.choice(self.parameters)))
                where.append(Binary(comparison(self.rng), left, bound))
        return Pattern(Chain(anchor, tuple(steps)), tuple(where))

    def of(self, kind: str) -> Leaf:
        return Leaf(self.fresh(kind), kind)


def _names_value(expression: Expression) -> bool:
    return "Parameter" in repr(expression)


class AggregatedMaker(Maker):
    """Makes networks around at least one such rule; others may bring what it aggregates, or read what it finds."""

    def rules(self) -> tuple[Rule, ...]:
        makers: list[type[RuleMaker]] = [AggregatingMaker]
        if self.chance(0.3):
            makers.insert(0, RuleMaker)
        if self.chance(0.3):
            makers.append(self.rng.choice((RuleMaker, AggregatingMaker)))
        rules: list[Rule] = []
        while len(rules) < len(makers):
            features: set[str] = set()
            last = len(rules) + 1 == len(makers)
            equal = drawn(self.equal, features)
            made = makers[len(rules)](self.rng, f"r{len(rules) + 1}", rules, features, equal).make(last)
            if features.isdisjoint(UNSERVED):
                rules.append(made)
                self.features |= features
        return tuple(stretched(rule, self.unit_us) for rule in rules)

    def births(self, rules: Sequence[Rule], sources: Sequence[object]) -> tuple[Birth, ...]:
        awkward = self.chance(0.5)
        return tuple(
            (at_us, source, self.awkward(event) if awkward else event)
            for at_us, source, event in super().births(rules, sources)  # type: ignore[arg-type]
        )

    def awkward(self, event: Event) -> Event:
        place = event.event_type.position("w")
        if place is None or event[place] is None:
            return event
        return Event.from_row((*event[:place], self.rng.choice(AWKWARD), *event[place + 1 :]))


def aggregated_case(seed: int) -> NetworkCase:
    """The case of a seed, always the same."""
    rng = random.Random(f"aggregated {seed}")
    case = AggregatedMaker(rng, "small", chance_of_seed(seed)).case(seed)
    return replace(case, features=case.features | {"aggregated"})
