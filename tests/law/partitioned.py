"""A rule divided over a tree of nodes and evaluated there, as simply as it can be done: everything at the end.

Every node evaluates its partial rules on all that its children sent and on its own events, and sends up the parts of
the matches and, where a contest asks for it, blockers. Nothing here is clever; it says what partial rules promise.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.node.engine import Engine
from headwater.node.plans.partition import HERE, split
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.analysis.projection import project
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event, EventType
from headwater.protocol.expressions import Attribute, Binary, Expression, Parameter
from headwater.protocol.pattern import Absence, Aggregate, Chain, Leaf, Pattern, Rule, Selection, Step, Within, leaves
from tests.law.equal_values import Named, chance_of_seed, drawn
from tests.law.generators import REMOTE, TYPES, RuleMaker, values_of

MORE_TYPES: Mapping[str, EventType] = {
    **TYPES,
    "E": EventType("E", {"id": "int", "v": "int"}),
    "F": EventType("F", {"id": "int", "v": "int"}),
}


@dataclass(frozen=True)
class Node:
    """A node of the tree, the types that it produces itself, its events and the nodes below it."""

    name: str
    own: frozenset[str] = frozenset()
    events: tuple[Event, ...] = ()
    children: tuple[Node, ...] = ()

    def types(self) -> frozenset[str]:
        return self.own.union(*(child.types() for child in self.children))

    def producers(self) -> dict[str, tuple[str, ...]]:
        return {
            name: (
                *(child.name for child in self.children if name in child.types()),
                *((HERE,) if name in self.own else ()),
            )
            for name in self.types()
        }

    def all_events(self) -> list[Event]:
        return [*self.events, *(event for child in self.children for event in child.all_events())]


@dataclass
class Sent:
    """What a node sends up. A blocker is an event that takes part in selections and in no match."""

    events: set[Event] = field(default_factory=set)
    blockers: set[Event] = field(default_factory=set)

    def add(self, other: Sent) -> None:
        self.events |= other.events
        self.blockers |= other.blockers
        self.blockers -= self.events


@dataclass(frozen=True)
class Divided:
    """How to evaluate: the declared types, and whether contests are honoured (if not, the law must break)."""

    types: tuple[EventType, ...] = tuple(MORE_TYPES.values())
    contests: bool = True

    def whole(self, rule: Rule, top: Node) -> set[str]:
        """Ids of the matches that the tree finds."""
        return {match.id for match in self._whole(rule, top)}

    def _whole(self, rule: Rule, node: Node) -> list[Composite]:
        division = split(rule, [leaf.role for leaf in leaves(rule.pattern.root)], node.producers())
        if division.delegate is not None:
            return self._whole(rule, _child(node, division.delegate))
        return self._matches(rule, self._gathered(rule, division.parts, division.local, node))

    def sent(self, partial: PartialRule, node: Node) -> Sent:
        """What a node forwards for a partial rule."""
        division = split(partial.rule, partial.roles, node.producers())
        if division.delegate is not None:
            return self.sent(partial, _child(node, division.delegate))
        known = self._gathered(partial.rule, division.parts, division.local, node)
        return self._forwarded(partial, known)

    def _gathered(
        self, rule: Rule, parts: Iterable[tuple[str, PartialRule]], local: frozenset[str], node: Node
    ) -> Sent:
        known = Sent({event for event in node.events if event.type in local})
        for name, part in parts:
            known.add(self.sent(part, _child(node, name)))
        return known

    def _matches(self, rule: Rule, known: Sent) -> list[Composite]:
        found = self.engine_on(rule, known.events | known.blockers)
        return [match for match in found if not any(row in known.blockers for _, row in match.parts())]

    def _forwarded(self, partial: PartialRule, known: Sent) -> Sent:
        rule = Rule(partial.rule.name, partial.pattern, "Partial")
        events = {Event.from_row(row) for match in self._matches(rule, known) for _, row in match.parts()}
        sent = Sent(events)
        for contest in partial.contests if self.contests else ():
            own = Rule("own", project(partial.rule, [contest.role]).pattern, "Own")
            candidates = [match.parts()[0][1] for match in self.engine_on(own, known.events | known.blockers)]
            rivals = [row for row in candidates if row in events]
            for row in candidates:
                for rival in rivals:
                    beaten = rival < row if contest.policy == "last" else rival > row
                    if row not in events and beaten and abs(rival[0] - row[0]) <= contest.window_us:
                        sent.blockers.add(Event.from_row(row))
        return sent

    def engine_on(self, rule: Rule, events: Iterable[Event]) -> list[Composite]:
        engine = Engine([rule], self.types, remote=REMOTE)
        return [*engine.feed(sorted(events)), *engine.close()]


def _child(node: Node, name: str) -> Node:
    return next(child for child in node.children if child.name == name)


def tree_of(children: Mapping[str, str], events: Sequence[Event]) -> Node:
    """A node with children of which each alone produces some types: ``{"left": "A B", "right": "C"}``."""
    return Node(
        "top",
        children=tuple(
            Node(name, frozenset(types.split()), tuple(event for event in events if event.type in types.split()))
            for name, types in children.items()
        ),
    )


class ChainMaker(RuleMaker):
    """Makes chains whose types mostly differ, so that much can be combined and selections have something to decide."""

    def leaf(self, where: str = "") -> Leaf:
        unused = [name for name in MORE_TYPES if name not in self.names]
        kind = self.rng.choice(unused if unused and self.chance(0.85) else sorted(MORE_TYPES))
        return Leaf(self.fresh(kind), kind)

    def within(self, known: list[Named]) -> Within:
        origin = known[-1] if self.chance(0.6) else self.rng.choice(known)
        return Within(self.rng.choice((2, 3, 4, 5, 6, 8)), origin.role)

    def constraints(self, role: Named, known: list[Named], *, positive: bool = False) -> list[Expression]:
        made: list[Expression] = []
        if self.chance(0.1):
            made.append(self.about_one(role))
        if self.chance(0.25):
            other = self.rng.choice(known)
            made.append(Binary(self.rng.choice(("=", "<=")), Attribute(role.role, "id"), Attribute(other.role, "id")))
        if self.parameters and self.chance(0.3):
            made.append(Binary("<=", Attribute(role.role, "v"), Parameter(self.rng.choice(self.parameters))))
        return made

    def chain(self) -> Pattern:
        anchor = self.leaf()
        known = [Named(anchor.role, anchor.type)]
        steps: list[Step] = []
        where: list[Expression] = self.equal.begun_with(known[0]) if self.equal is not None else []
        for _ in range(self.rng.choice((2, 3, 3, 4))):
            leaf = self.leaf()
            role = Named(leaf.role, leaf.type)
            where += self.constraints(role, known)
            kind = self.rng.choices(("selection", "absence", "aggregate"), (68, 25, 7))[0]
            if self.equal is not None:
                where += self.equal.of_step(role, positive=kind == "selection")
            if kind == "selection":
                policy = self.rng.choice(("each", "last", "last", "last", "first"))
                count = 2 if policy != "each" and self.chance(0.15) else 1
                steps.append(Selection(leaf, policy, self.within(known), count))  # type: ignore[arg-type]
                known.append(role)
            elif kind == "absence":
                steps.append(Absence(leaf, self.range(known)))
            else:
                self.parameters.append(f"p{len(self.parameters)}")
                steps.append(Aggregate(self.parameters[-1], "max", leaf, "v", self.range(known)))
                if self.equal is not None:
                    self.equal.take_parameter(self.parameters[-1])
        return Pattern(Chain(anchor, tuple(steps)), tuple(where))


def random_division(seed: int, attempt: int = 0) -> tuple[Rule, Node, tuple[Event, ...]]:
    """A random rule over primitive events, and a random tree of nodes that share a random trace of them.

    ``attempt`` changes the trace only.
    """
    rng = random.Random(f"partition {seed}")
    features: set[str] = set()
    equal = drawn(chance_of_seed(seed), features)
    if rng.random() < 0.6:
        pattern, shared, size = ChainMaker(rng, "r", (), features, equal).chain(), 0.05, 20
    else:
        pattern, shared, size = RuleMaker(rng, "r", (), features, equal).tree(), 0.1, 11
    used = sorted({leaf.type for leaf in leaves(pattern.root)})
    top = random_tree(rng)
    below = [node.name for child in top.children for node in (child, *child.children)]
    main = rng.choice(below)  # most types come from one node, so that it can combine them
    makers = {name: [main if rng.random() < 0.55 else rng.choice(below)] for name in MORE_TYPES}
    for places in makers.values():
        if rng.random() < shared:
            places.append(rng.choice([top.name, *(name for name in below if name not in places)]))
    rng = random.Random(f"trace {seed} {attempt}")
    events = random_events(rng, used, size, features)
    home = {event: rng.choice(makers[event.type]) for event in events}

    def filled(node: Node) -> Node:
        return replace(
            node,
            own=frozenset(name for name, places in makers.items() if node.name in places),
            events=tuple(event for event in events if home[event] == node.name),
            children=tuple(map(filled, node.children)),
        )

    return Rule("r", pattern, "X"), filled(top), events


def random_tree(rng: random.Random) -> Node:
    """Two or three children, some with two children of their own; no events yet."""
    children = []
    for name in "lmn"[: rng.choice((2, 2, 3))]:
        below = tuple(Node(name + number) for number in "12") if rng.random() < 0.3 else ()
        children.append(Node(name, children=below))
    return Node("top", children=tuple(children))


def random_events(rng: random.Random, used: Sequence[str], size: int, features: Collection[str]) -> tuple[Event, ...]:
    span, values = rng.choice((8, 12, 20)), values_of(features)
    made = []
    for seq in range(size):
        kind = MORE_TYPES[rng.choice(used)]
        made.append(Event(kind, rng.randint(0, span), rng.choice(("x", "y")), seq, values(rng, kind)))
    return tuple(sorted(made))
