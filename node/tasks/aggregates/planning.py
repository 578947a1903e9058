"""Which aggregates of a rule can be computed in the network, and what is left of the rule without them.

An aggregate only accepts or rejects matches, and gives values to their attributes, unless a later step looks at its
value. Then the *base rule*, the same without it, finds a candidate for every match, and the range of the aggregate
follows from the candidate's parts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater.protocol.expressions import (
    Attribute,
    Expression,
    Fold,
    Parameter,
    Remote,
    Same,
    parameters_of,
    rewritten,
    roles_of,
    walk,
)
from headwater.protocol.messages.tallies import KNOWN, Tally
from headwater.protocol.pattern import Aggregate, Chain, OutputAttribute, Pattern, Rule, leaves
from headwater.protocol.streams import about_subject
from headwater.protocol.subscriptions import SUBJECT

UNNAMED = "~"
"""What base rules emit: no rule or sink reads it."""


@dataclass(frozen=True, slots=True)
class AskedAggregate:
    """An aggregate whose value is asked for."""

    step: Aggregate
    tally: Tally
    known: tuple[Attribute, ...]
    """What goes along with a question, in the order in which the tally numbers it."""


@dataclass(frozen=True, slots=True)
class AskingRule:
    """A rule, taken apart into what finds candidates and what decides on them."""

    rule: Rule
    base: Rule
    """Finds the candidates; the values of aggregates that stay in it, as far as they are needed, are its attributes."""
    asked: tuple[AskedAggregate, ...]
    judge: Rule | None
    """Its attributes are the conjuncts that a candidate must still meet; None if there are none."""


def asking_rule(rule: Rule, below: Collection[str]) -> AskingRule | None:
    """The rule with as many aggregates asked for as possible, of types that nodes ``below`` produce; None if there is
    none."""
    root = rule.pattern.root
    if not isinstance(root, Chain) or any(isinstance(conjunct, Same) for conjunct in rule.pattern.where):
        return None
    aggregates = [step for step in root.steps if isinstance(step, Aggregate) and step.leaf.type in below]
    able = {step.name: step for step in aggregates if _decides_nothing_else(rule, root, step)}
    # The events of a type must come anyway if they have another role; if all its roles are asked for, none must.
    while True:
        asked_roles = {step.leaf.role for step in able.values()}
        other_types = {leaf.type for leaf in leaves(root) if leaf.role not in asked_roles}
        fewer = {name: step for name, step in able.items() if step.leaf.type not in other_types}
        if len(fewer) == len(able):
            break
        able = fewer
    if not able:
        return None
    where = rule.pattern.where
    accepting = tuple(conjunct for conjunct in where if parameters_of(conjunct) & able.keys())
    base_where = [conjunct for conjunct in where if conjunct not in accepting and not roles_of(conjunct) & asked_roles]
    steps = tuple(step for step in root.steps if not (isinstance(step, Aggregate) and step.name in able))
    needed = [*accepting, *(output.value for output in rule.attributes)]
    if any(isinstance(part, Remote) for expression in needed for part in walk(expression)):
        return None  # what is judged after the answers have come does not wait for remote elements
    kept = dict.fromkeys(
        name for expression in needed for name in sorted(parameters_of(expression)) if name not in able
    )
    brought = tuple(OutputAttribute(name, "any", Parameter(name)) for name in kept)
    base = Rule(rule.name, Pattern(Chain(root.anchor, steps), tuple(base_where)), UNNAMED, brought, rule.version)
    judge = None
    if accepting:
        conjuncts = tuple(OutputAttribute(f"c{i}", "any", conjunct) for i, conjunct in enumerate(accepting))
        judge = Rule(rule.name, rule.pattern, UNNAMED, conjuncts, rule.version)
    return AskingRule(rule, base, tuple(_asked_aggregate(rule, step) for step in able.values()), judge)


def _decides_nothing_else(rule: Rule, chain: Chain, step: Aggregate) -> bool:
    """Whether only the acceptance of matches and their attributes depend on the aggregate, and only parts of the match
    say which events it looks at."""
    order = {chain.anchor.role: 0}
    names = {}
    for number, other in enumerate(chain.steps, start=1):
        order[other.leaf.role] = number
        if isinstance(other, Aggregate):
            order[f"${other.name}"] = number
            names[number] = other.name
    for condition in rule.pattern.where:
        mentioned = [*roles_of(condition), *(f"${name}" for name in parameters_of(condition))]
        home = max((order[name] for name in mentioned), default=0)
        if step.name in parameters_of(condition):
            # It belongs to an aggregate, and does not say what that one looks at.
            if names.get(home) not in parameters_of(condition) or step.leaf.role in roles_of(condition):
                return False
        elif step.leaf.role in roles_of(condition):
            if home != order[step.leaf.role] or parameters_of(condition):
                return False
            if any(isinstance(part, Remote | Fold) for part in walk(condition)):
                return False
    return True


def _asked_aggregate(rule: Rule, step: Aggregate) -> AskedAggregate:
    role = step.leaf.role
    places: dict[Attribute, str] = {}

    def numbered(part: Attribute) -> Expression:
        if part.role == role:
            return Attribute(SUBJECT, part.name)
        return Attribute(KNOWN, places.setdefault(part, str(len(places))))

    own = [conjunct for conjunct in rule.pattern.where if role in roles_of(conjunct)]
    where = {about_subject(conjunct) for conjunct in own if roles_of(conjunct) == {role}}
    looks = [rewritten(conjunct, numbered) for conjunct in own if roles_of(conjunct) != {role}]
    tally = Tally(step.leaf.type, step.function, step.attribute, tuple(sorted(where, key=repr)), tuple(looks))
    return AskedAggregate(step, tally, tuple(places))
