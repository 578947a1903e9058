"""Rules in which what one node withholds could change what another selects.

A chain whose anchor comes from one side of the network and whose other parts come from the other: a node over there
may combine them on its own, and must still let the node that has the anchor know of candidates that failed.
"""

from __future__ import annotations

from headwater.protocol.expressions import Attribute, Binary, Expression
from headwater.protocol.pattern import Chain, Leaf, Pattern, Policy, Selection, Step, Within
from tests.law.equal_values import Named
from tests.law.generators import RuleMaker


class ContestedMaker(RuleMaker):
    """Makes chains only: the anchor of the first type in the pool, everything selected of the others."""

    def tree(self) -> Pattern:
        return self.chain()

    def chain(self) -> Pattern:
        near, *far = self.pool
        anchor = Leaf(self.fresh(near), near)
        known = [Named(anchor.role, near)]
        where: list[Expression] = self.equal.begun_with(known[0]) if self.equal is not None else []
        steps: list[Step] = []
        for number in range(self.rng.choice((2, 2, 3))):
            kind = far[number % len(far)] if self.chance(0.8) else self.rng.choice(far)
            leaf = Leaf(self.fresh(kind), kind)
            choices: tuple[Policy, ...] = ("last", "last", "first", "each")
            policy = self.rng.choice(choices)
            count = 2 if policy != "each" and self.chance(0.2) else 1
            self.features.add(f"chain: {'n-' if count > 1 else ''}{policy}")
            origin = known[-1] if self.chance(0.75) else known[0]
            steps.append(Selection(leaf, policy, Within(self.rng.choice((1, 2, 3, 4, 6)), origin.role), count))
            role = Named(leaf.role, kind)
            if self.chance(0.3):
                where.append(self.about_one(role))
            if self.chance(0.4):
                where.append(Binary("=", Attribute(role.role, "id"), Attribute(self.rng.choice(known).role, "id")))
            if self.equal is not None:
                where += self.equal.of_step(role, positive=True)
            known.append(role)
        self.features.add("rule: contested")
        return Pattern(Chain(anchor, tuple(steps)), tuple(where))
