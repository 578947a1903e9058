"""Selectivities computed from the matches that running tasks find.

A stage that puts roles of a rule together finds as many matches as the rates of its types, the windows, and the
conditions between its roles let it. Rates are measured and windows known: what is left is the share that passes the
conditions. Where several conditions are judged in one stage and none of them was measured in a smaller one, all of them
are taken to be off by the same factor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from headwater.coordinator.inev.model.patterns import negated, repeated
from headwater.coordinator.inev.model.problem import Problem, event_network
from headwater.coordinator.inev.model.rules import Statistics, labels_of, problem_from
from headwater.coordinator.inev.model.selectivities import DEFAULT_PAIR
from headwater.protocol.analysis.projection import project
from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.expressions import Same, roles_of
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.pattern import Rule, leaves, positive_leaves
from headwater.protocol.streams import filter_of
from headwater.protocol.subscriptions import Subscription, print_subscription

Stage: TypeAlias = tuple[str, frozenset[str]]
"""A rule and some of its roles."""

MATCHES_LEAST: Final = 5.0
"""Fewer matches than this, found or expected, say nothing about how often there are some."""

EVENTS_LEAST: Final = 20
"""The same for events that a condition on single events has judged."""

SHARE_LEAST: Final = 1e-9
"""No condition is taken to be stricter: what was never seen may still occur."""

NOWHERE: Final = "all"
"""The node of a network in which only totals count."""


@dataclass(frozen=True, slots=True)
class MatchCount:
    """Matches that were counted: in all, per second, and over how many seconds."""

    count: float
    per_s: float
    seconds: float


def with_selectivities(
    rules: Iterable[Rule],
    statistics: Statistics,
    matches: Mapping[Stage, MatchCount],
    filters: Mapping[str, tuple[float, float]],
) -> Statistics:
    """What is given, with the selectivities that were measured in its place. The given rates are those at which
    ``matches`` were counted; ``filters``: by text, how many events conditions have seen and let pass. What was not seen
    stays as it is given."""
    selectivities = {name: dict(shares) for name, shares in statistics.selectivities.items()}
    for rule in rules:
        shares = selectivities.setdefault(rule.name, {})
        shares.update(_filtered(rule, filters))
        seen = {roles: measured for (name, roles), measured in matches.items() if name == rule.name}
        settled: set[frozenset[str]] = set()
        for roles in sorted(seen, key=lambda roles: (len(roles), sorted(roles))):
            _attribute(rule, roles, seen[roles], statistics.rates, shares, settled)
    return replace(
        statistics, selectivities={name: shares for name, shares in selectivities.items() if shares}, projections={}
    )


def unmeasured(rules: Iterable[Rule], statistics: Statistics) -> list[str]:
    """What was neither given nor measured, and what is assumed instead, in sentences."""
    sentences: list[str] = []
    for rule in rules:
        problem = _problem(rule, statistics.rates, statistics.selectivities.get(rule.name, {}))
        sentences += problem.warnings if problem is not None else ()
    return sentences


def _filtered(rule: Rule, filters: Mapping[str, tuple[float, float]]) -> dict[frozenset[str], float]:
    shares = {}
    for leaf in leaves(rule.pattern.root):
        try:
            stream = filter_of(project(rule, (leaf.role,)))
            text = print_subscription(Subscription(stream.type, stream.where))
        except (RuleError, PrintError):
            continue
        seen, passed = filters.get(text, (0, 0))
        if stream.where and seen >= EVENTS_LEAST:
            shares[frozenset((leaf.role,))] = min(1.0, max(passed, 0.5) / seen)
    return shares


def _attribute(
    rule: Rule,
    roles: frozenset[str],
    seen: MatchCount,
    rates: Mapping[str, Mapping[str, float]],
    shares: dict[frozenset[str], float],
    settled: set[frozenset[str]],
) -> None:
    """Say of the conditions between some roles what the matches of these roles say."""
    problem = _problem(rule, rates, shares)
    conditions = _conditions(rule, roles)
    open_ones = {
        condition_roles: times for condition_roles, times in conditions.items() if condition_roles not in settled
    }
    if problem is None or not open_ones:
        return
    (query,) = problem.queries
    labels = labels_of(rule)
    types = frozenset(labels[role] for role in roles)
    whole = types == frozenset(query.types)
    if query.whole or (whole and (negated(query.pattern) or repeated(query.pattern))) or types & query.negated:
        return  # other things than conditions decide how many matches there are
    expected = problem.costs.rate(query.projection(types))
    if expected <= 0 or max(seen.count, expected * seen.seconds) < MATCHES_LEAST:
        return
    factor = max(seen.per_s, 0.5 / seen.seconds) / expected
    assumed = _assumed(rule, shares)
    for condition_roles in open_ones:
        before = shares.get(condition_roles, assumed.get(condition_roles, 1.0))
        shares[condition_roles] = min(1.0, max(SHARE_LEAST, before * factor ** (1 / sum(open_ones.values()))))
        settled.add(condition_roles)


def _conditions(rule: Rule, roles: frozenset[str]) -> Counter[frozenset[str]]:
    """By the roles under which planners know them, the conditions that are judged where some roles are put together,
    each as often as its share counts."""
    positive = frozenset(leaf.role for leaf in positive_leaves(rule.pattern.root))
    counts: Counter[frozenset[str]] = Counter()
    for condition in rule.pattern.where:
        if isinstance(condition, Same):
            counts[positive] += max(0, len(roles & positive) - 1)
        elif len(named := frozenset(roles_of(condition))) > 1 and named <= roles & positive:
            counts[named] += 1
    return +counts


def _assumed(rule: Rule, shares: Mapping[frozenset[str], float]) -> dict[frozenset[str], float]:
    """What stands in for shares that are not known."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    return {
        roles: shares.get(frozenset(types[role] for role in roles), DEFAULT_PAIR)
        for roles in _conditions(rule, frozenset(types))
    }


def _problem(
    rule: Rule, rates: Mapping[str, Mapping[str, float]], shares: Mapping[frozenset[str], float]
) -> Problem | None:
    """The rule alone, wherever its events come from; None if it is no single query, or a rate is not known."""
    types = {leaf.type for leaf in leaves(rule.pattern.root)}
    totals = {name: {NOWHERE: _total(rates.get(name, {}))} for name in sorted(types)}
    if not all(at[NOWHERE] > 0 for at in totals.values()):
        return None
    try:
        network = event_network((NOWHERE,), (), totals)
        problem = problem_from([rule], (NOWHERE,), network, Statistics(totals, {rule.name: shares}), {})
    except ConfigError:
        return None
    return problem if len(problem.queries) == 1 else None


def _total(at: Mapping[str, float]) -> float:
    """Over all nodes; what is said of any node counts only where nothing is said of one."""
    return sum(rate for node, rate in at.items() if node) or at.get("", 0.0)
