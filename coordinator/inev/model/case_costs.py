"""The cost model of the case files, and a lower estimate of the cost of any plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.coordinator.inev.model.patterns import Pattern, leaves
from headwater.coordinator.inev.model.problem import Ask, EventNetwork, Problem, Projection, Query


@dataclass(frozen=True)
class CaseCosts:
    """Rates as the case files define them, for comparing plans with other programs.

    The rate of a SEQ is the product of those of its parts, of an AND that times the number of its parts, of an NSEQ the
    product of its first and third part; over local rates, times the number of sources of every type (negated ones
    included), times the selectivity of all pairs. It knows no windows and overestimates a SEQ of k parts by (k-1)!.
    ``single`` holds the share of a type's events in matches of a projection, by type and the projection's types.
    """

    network: EventNetwork
    single: Mapping[tuple[str, frozenset[str]], float]
    name: str = "case"
    _rates: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def rate(self, projection: Projection) -> float:
        rate = self._rates.get(projection.key)
        if rate is None:
            sources = math.prod(len(self.network.rates[type]) for type in leaves(projection.pattern))
            rate = self._rates[projection.key] = self._local(projection.pattern) * sources * projection.selectivity
        return rate

    def _local(self, pattern: Pattern) -> float:
        if isinstance(pattern, str):
            return self.network.total(pattern) / len(self.network.rates[pattern])
        rates = [self._local(part) for part in pattern.parts]
        if pattern.kind == "NSEQ":
            return rates[0] * rates[2]
        return math.prod(rates) * (len(rates) if pattern.kind == "AND" else 1)

    def selected(self, type: str, projection: Projection) -> float | None:
        return self.single.get((type, projection.types))

    @property
    def sends_events(self) -> bool:
        return False

    def carried(
        self,
        projection: Projection,
        types: frozenset[str] | None = None,
        split_by: str | None = None,
        part: float = 1.0,
    ) -> float:
        if types is None:
            return self.rate(projection) * part
        total = 0.0
        for type in sorted(types):
            share = self.selected(type, projection)
            if share is None:
                return math.inf
            total += share * self.network.total(type) * (part if type == split_by else 1.0)
        return total

    def delivered(self, query: Query) -> float:
        return self.rate(query.projection(frozenset(query.types)))

    @property
    def asks_by_event(self) -> bool:
        return False

    def asked(self, ask: Ask) -> float:
        return self.rate(ask.by) if not ask.by.primitive else self.network.total(ask.by.key)

    def answered(self, ask: Ask) -> float:
        """The events in matches; where their number is not known, as many as there are matches."""
        total = self.network.total(ask.type)
        share = self.selected(ask.type, ask.of)
        return min(total, self.rate(ask.of) if share is None else total * share)

    def refined(self, samples: int) -> CaseCosts:
        return self


def estimate(problem: Problem) -> float:
    """What no good plan is expected to be much cheaper than, after section 7.2 of the paper. It is not a bound.

    A type whose local rate exceeds the rate of some projection of its query, or that of all the projection's types,
    need not travel; all others must, from all sources but one, over a typical distance.
    """
    network, costs = problem.network, problem.costs
    travelling: set[str] = set()
    for query in problem.queries:
        projections = [query.projection(types) for types in query.subsets()]
        least = min((costs.rate(projection) for projection in projections), default=math.inf)
        inputs = min((math.fsum(map(network.total, projection.types)) for projection in projections), default=math.inf)
        if len(query.types) == 1:
            continue
        travelling |= {type for type in query.types if min(least, inputs) >= max(network.rates[type].values())}
    over = network.topology.typical_distance
    return over * math.fsum(network.total(type) - max(network.rates[type].values()) for type in travelling)
