"""Decides when a running network should be planned again: its rates have moved away from those of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from headwater.coordinator.inev.model.measured_selectivities import MatchCount, Stage, with_selectivities
from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.layout.stages import RuleLayout
from headwater.protocol.pattern import Rule

FACTOR: Final = 2.0
"""A rate that is so many times what it was, or such a part of it, has moved."""

LEAST_PER_S: Final = 0.1
"""What occurs less often than this is not worth a new plan, whatever it was; and counts as this."""


def measured(statistics: Statistics, rates: Mapping[str, Mapping[str, float]]) -> Statistics:
    """What was given, with the rates that were measured in its place. A source that was silent keeps what was given."""
    merged_rates = {name: dict(at) for name, at in statistics.rates.items()}
    for name, at in rates.items():
        merged_rates.setdefault(name, {}).update({node: rate for node, rate in at.items() if rate > 0})
    return replace(statistics, rates=merged_rates)


def as_measured(
    statistics: Statistics,
    rates: Mapping[str, Mapping[str, float]],
    layout: Mapping[str, RuleLayout],
    rules: Iterable[Rule],
    matches: Mapping[Stage, MatchCount],
    filters: Mapping[str, tuple[float, float]],
) -> Statistics:
    """The same with selectivities, as the stages of a layout that runs show them. Matches of roles that are put
    together in two places are counted twice, and say nothing."""
    times = Counter((name, stage.roles) for name, stages in layout.items() for stage in stages)
    once = {stage: seen for stage, seen in matches.items() if times[stage] == 1}
    return with_selectivities(rules, measured(statistics, rates), once, filters)


def moved(planned: Statistics, now: Statistics) -> list[str]:
    """The types, with the node, whose rates have moved since a plan was made, in words."""
    sentences = []
    for name, at in sorted(now.rates.items()):
        for node, rate in sorted(at.items()):
            before = planned.rates.get(name, {}).get(node, planned.rates.get(name, {}).get("", 1.0))
            one, other = max(before, LEAST_PER_S), max(rate, LEAST_PER_S)
            if max(one, other) > FACTOR * min(one, other):
                sentences.append(f"{name} at {node} occurs {rate:.3g} times per second, planned for {before:.3g}")
    return sentences
