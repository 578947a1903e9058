"""Computes selectivities and match rates of a rule from the counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headwater.pipeline.statistics.sampling import Estimate
from headwater.protocol.expressions import Expression, Same
from headwater.protocol.languages.printing import ExpressionPrinter, PrintError

if TYPE_CHECKING:
    pass


SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Selectivity:
    """A selectivity: the share of ``of`` events or combinations that passed, and the part of the trace looked at."""

    estimate: Estimate
    passed: float
    of: float
    sampled: float = 1.0

    @property
    def told(self) -> float:
        """What planners are told: what was never seen may still occur."""
        return self.estimate.value if self.passed else 0.5 / max(1.0, self.of)


@dataclass(frozen=True, slots=True)
class ProjectionStatistics:
    """The combinations of some roles that meet all that the rule asks of these."""

    found: float
    """Those that were counted."""
    per_s: Estimate
    singles: Mapping[str, Estimate]
    """By role, the share of its events (those that meet what is asked of the role alone) that are in some match."""
    selectivity: Selectivity | None = None
    """For pairs: the share of those near enough and in order that meet all conditions."""
    sampled: float = 1.0


@dataclass(slots=True)
class RuleStatistics:
    """``notes`` says what was left out, and why."""

    shares: dict[frozenset[str], Selectivity] = field(default_factory=dict)
    projections: dict[frozenset[str], ProjectionStatistics] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What must be known of a trace beside its events."""

    first_us: int
    last_us: int
    kinds: Mapping[str, str]

    @property
    def span_s(self) -> float:
        return (self.last_us - self.first_us) / SECOND_US


def shown(condition: Expression) -> str:
    """A condition as text."""
    if isinstance(condition, Same):
        return f"SAME[{shown(condition.key)}]"
    try:
        return ExpressionPrinter(
            lambda attribute: f"{attribute.role}.{attribute.name}" if attribute.role else attribute.name,
            lambda role: role,
            parameters=True,
        ).text(condition)
    except PrintError:
        return repr(condition)
