"""A random network with one rule, to be run: what figures 11 and 12b measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from random import Random
from typing import Final

from headwater.coordinator.inev.model.patterns import Pattern
from headwater.coordinator.inev.model.rules import Statistics
from headwater.deploy.experiments.inev.random_networks import nested, ring, sources
from headwater.deploy.experiments.inev.simulated import Ruled, compared, network_of
from headwater.deploy.experiments.trex.generator import poisson_births
from headwater.deploy.simulation.simulator import Birth

RULES_VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScenario:
    """Types whose rates are spread evenly on a logarithmic scale, and one rule whose events agree in a key."""

    nodes: int = 10
    types: int = 4
    ratio: float = 0.5
    rate_per_s: float = 5.0
    """Of the most frequent type, over all its sources."""
    orders: float = 2.0
    """How many orders of magnitude rarer the rarest type is."""
    values: int = 20
    """Values of the key that all events of a match agree in."""
    window_s: float = 10.0
    link_delay_ms: float = 5.0
    time_s: float = 600.0

    def fingerprint(self) -> str:
        return blake2b(repr((RULES_VERSION, sorted(asdict(self).items()))).encode(), digest_size=6).hexdigest()

    def seconds(self) -> float:
        """About how long a run takes on one core."""
        return 1 + self.rate_per_s * self.time_s / 1000 * (1 + 10 ** (1 - self.orders))

    def measured(self, seed: int, progress: Callable[[float], None]) -> dict[str, float | None]:
        return compared(ruled(self, seed), progress)


def ruled(scenario: RunScenario, seed: int) -> Ruled:
    """The network, the same for the same scenario and seed."""
    names = [chr(ord("A") + at) for at in range(scenario.types)]
    Random(f"{seed}/rates").shuffle(names)
    rates: dict[str, dict[str, float]] = {}
    for at, name in enumerate(names):
        rate = scenario.rate_per_s * 10 ** (-scenario.orders * at / max(1, scenario.types - 1))
        homes = sources(Random(f"{seed}/sources/{name}"), scenario.nodes, scenario.ratio)
        rates[name] = {f"n{node}": rate / len(homes) for node in homes}
    pattern = nested(Random(f"{seed}/query"), sorted(names))
    text = f"Query: {_with_roles(pattern)} WHERE SAME[key] WITHIN {scenario.window_s:g} s RETURN Query(key = a.key)"
    links = ring(Random(f"{seed}/links"), scenario.nodes, 2)
    sink = f"n{Random(f'{seed}/sink').randrange(scenario.nodes)}"
    network = network_of(links, "key", rates, text, sink, scenario.link_delay_ms)
    shares = {"Query": {frozenset(name.lower() for name in names): 1 / scenario.values}}
    declared = {event_type.name: event_type for event_type in network.types}
    until_us = round(scenario.time_s * 1e6)

    def births() -> Iterable[Birth]:
        return poisson_births(
            [declared[source.type] for source in network.sources],
            network.sources,
            [rates[source.type][source.node] for source in network.sources],
            scenario.values,
            seed,
            until_us,
        )

    return Ruled(network, Statistics(rates, shares), births, until_us)


def _with_roles(pattern: Pattern) -> str:
    if isinstance(pattern, str):
        return f"{pattern} {pattern.lower()}"
    return f"{pattern.kind}({', '.join(map(_with_roles, pattern.parts))})"
