"""Bounds on the latency of plans: how users state them, and what they mean for a given problem.

``search.search`` keeps plans within them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headwater.coordinator.inev.model.latency import LatencyBound, latency
from headwater.coordinator.inev.model.problem import Problem
from headwater.coordinator.inev.search.baselines import centralised
from headwater.protocol.errors import ConfigError
from headwater.protocol.strategy import CENTRAL

OFF: Final = "off"
USUAL: Final = "3x"
"""Of networks. A plan too slow to be of use is refused; half of it would refuse most of what in-network evaluation
is for: every stage on the way costs hops, and work besides that of the node where matches are completed."""

CHOICES: Final = "off, centr (no slower than centralised), a number of times that, such as 3x, or a number above 0"


@dataclass(frozen=True, slots=True)
class LatencyTerms:
    """``bound`` as it is written: off, centr, 3x, or a number; ``factor`` is what work at a node counts beside a hop.

    ConfigError if either makes no sense.
    """

    bound: str = USUAL
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.factor < math.inf:
            raise ConfigError(f"a latency factor of {self.factor:g} has no meaning; write 0 or a number above it")
        if self.bound not in (OFF, CENTRAL) and not self._number > 0:
            raise ConfigError(f"latency bound {self.bound!r} is none; write {CHOICES}")

    @property
    def _number(self) -> float:
        try:
            number = float(self.bound.removesuffix("x"))
        except ValueError:
            return math.nan
        return number if math.isfinite(number) else math.nan

    def limit(self, central: float) -> float | None:
        """The latency that a plan may have, if centralised evaluation has this one; None: any."""
        if self.bound == OFF:
            return None
        if self.bound == CENTRAL:
            return central
        return self._number * (central if self.bound.endswith("x") else 1.0)

    def bound_for(self, problem: Problem) -> LatencyBound | None:
        """What the search for plans of a problem must obey."""
        limit = None if self.bound == OFF else self.limit(latency(centralised(problem), self.factor))
        return None if limit is None else LatencyBound(limit, self.factor)


USUAL_TERMS: Final = LatencyTerms()
