"""The statistics in a network file, as values for planners."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.coordinator.inev.model.latency_bounds import USUAL_TERMS, LatencyTerms
from headwater.coordinator.inev.model.rules import Measured
from headwater.protocol.pattern import Rule
from headwater.protocol.wire.rule_encoding import digest


@dataclass(frozen=True, slots=True)
class GivenStatistics:
    """Rates by type and node ("" for all its sources), selectivities by rule and the roles or types they join."""

    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    selectivities: Mapping[str, Mapping[frozenset[str], float]] = field(default_factory=dict)
    latency: LatencyTerms = USUAL_TERMS
    pull: bool = True
    file: Path | None = None
    """The file that some of it comes from."""
    projections: Mapping[str, Mapping[frozenset[str], Measured]] = field(default_factory=dict)
    """By rule and roles, matches that were counted."""
    keys: tuple[tuple[str, float], ...] = ()
    """Remote tables, each with the number of its keys that are looked up within a window."""


def rule_digest(rule: Rule) -> str:
    """What tells versions of a rule apart, as far as statistics depend on them."""
    return digest(rule.pattern)[:16]
