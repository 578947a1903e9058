"""Estimates rates and selectivities from a sample of the events that a network file describes.

Rates are counts over the time that the sample spans. For the selectivity of conditions, events of the roles are drawn
at random, no further apart than the rule looks; the share of draws that meet them is what planners are told.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice

from headwater.coordinator.inev.model.rules import Statistics
from headwater.deploy.network.file import NetworkFile
from headwater.deploy.simulation.births import births
from headwater.node.explain.expressions import Scope, evaluate, holds
from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import Event
from headwater.protocol.expressions import (
    Attribute,
    Call,
    Expression,
    Fold,
    Parameter,
    Remote,
    Same,
    rewritten,
    roles_of,
    walk,
)
from headwater.protocol.functions import file_digests, is_offered
from headwater.protocol.pattern import Rule, leaves, positive_leaves

EVENTS_MAX = 50_000  # of a sample; more would take longer and hardly tell more
DRAWS = 2_000  # of events for one selectivity: an error of about one percent


def sampled(file: NetworkFile, seed: int = 1, events_max: int = EVENTS_MAX) -> Statistics:
    """What a sample of the network's own events says. ConfigError if it has none that can be read here."""
    sample = [(source, event) for _, source, event in islice(births(file, seed=seed), events_max)]
    if not sample:
        raise ConfigError(f"{file.path} has no events to take a sample of; write statistics: into it")
    span_s = max(1e-6, (max(event.ts for _, event in sample) - min(event.ts for _, event in sample)) / 1e6)
    rates: dict[str, dict[str, float]] = {}
    by_type: dict[str, list[Event]] = {}
    for number, event in sample:
        source = file.network.sources[number]
        at = rates.setdefault(source.type, {})
        at[source.node] = at.get(source.node, 0.0) + 1 / span_s
        by_type.setdefault(source.type, []).append(event)
    for events in by_type.values():
        events.sort()
    chance = random.Random(seed)
    return Statistics(rates, {rule.name: _selectivities(rule, by_type, chance) for rule in file.network.rules})


def _selectivities(rule: Rule, by_type: dict[str, list[Event]], chance: random.Random) -> dict[frozenset[str], float]:
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    if any(name not in by_type for name in types.values()):
        return {}  # it reads what other rules find, or what did not occur: nothing is known
    positive = frozenset(leaf.role for leaf in positive_leaves(rule.pattern.root))
    agreement: list[Expression] = [
        condition for condition in rule.pattern.where if isinstance(condition, Same) and _can_be_judged(condition)
    ]
    conditions: dict[frozenset[str], list[Expression]] = {}
    for condition in rule.pattern.where:
        roles = frozenset(roles_of(condition))
        if roles and not isinstance(condition, Same) and _can_be_judged(condition):
            conditions.setdefault(roles, []).append(condition)
    # What planners are told for some roles is the share that meets everything which is asked of these together.
    for roles in conditions:
        if len(roles) > 1:
            conditions[roles] += agreement
    if agreement and len(positive) > 1 and (len(positive) > 2 or positive not in conditions):
        conditions[positive] = agreement
    shares: dict[frozenset[str], float] = {}
    for roles, expressions in conditions.items():
        events = {role: by_type[types[role]] for role in sorted(roles)}
        shares[roles] = _share(rule, events, expressions, chance, two=expressions is agreement)
    return shares


def _can_be_judged(condition: Expression) -> bool:
    """Whether it can be judged by one event of each role."""
    parts = condition.key if isinstance(condition, Same) else condition
    return not any(
        isinstance(part, Fold | Parameter | Remote)
        or (isinstance(part, Attribute) and part.index)
        or (isinstance(part, Call) and not all(map(is_offered, file_digests([part.function]))))
        for part in walk(parts)
    )


def _share(
    rule: Rule, events: dict[str, list[Event]], conditions: Sequence[Expression], chance: random.Random, *, two: bool
) -> float:
    """The share of events, one of each role, that meet all conditions; ``two``: of pairs of them."""
    reach_us = horizon_us(rule)
    passed = drawn = 0
    for _ in range(DRAWS):
        rows = _draw(events, reach_us, chance)
        if rows is None:
            continue
        if two:
            rows = dict(chance.sample(sorted(rows.items()), min(2, len(rows))))
        drawn += 1
        passed += all(_is_met(condition, rows) for condition in conditions)
    return max(passed, 0.5) / max(drawn, 1)  # what was never seen may still occur


def _draw(events: dict[str, list[Event]], reach_us: int | None, chance: random.Random) -> dict[str, Event] | None:
    first: Event | None = None
    rows: dict[str, Event] = {}
    for role, candidates in events.items():
        if first is None or reach_us is None:
            rows[role] = chance.choice(candidates)
            first = rows[role]
            continue
        low = bisect_left(candidates, (first.ts - reach_us,))
        high = bisect_right(candidates, (first.ts + reach_us + 1,))
        if low >= high:
            return None
        rows[role] = candidates[chance.randrange(low, high)]
    return rows


def _is_met(condition: Expression, rows: dict[str, Event]) -> bool:
    try:
        if isinstance(condition, Same):
            values = [_value(condition.key, row) for row in rows.values()]
            return all(value == values[0] for value in values)
        return bool(holds(condition, Scope(rows)))
    except HeadwaterError:
        return False


def _value(key: Expression, row: Event) -> object:
    return evaluate(rewritten(key, lambda part: Attribute("row", part.name)), Scope({"row": row}))
