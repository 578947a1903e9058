"""The parameters of an experiment on plans, as one frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Final, Literal

from headwater.protocol.errors import ConfigError

GENERATOR_VERSION: Final = 1
"""Raise it when the same scenario and seed would give other networks or workloads."""

TYPES_MAX: Final = 26  # event types are called by letters

Special = Literal["", "kleene", "negation", "third"]
Kind = Literal["plan", "bound", "sharing", "orders", "swaps", "variance", "latency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScenario:
    """A random event network with a workload, and what is planned and measured on it.

    The defaults are those of the INEv evaluation. Its networks have an out-degree of 3, which its program turns into
    a ring with one link per node, half of which lead elsewhere: 2 neighbours on average, as here.
    """

    kind: Kind = "plan"
    planner: Literal["inev", "paper", "push-pull"] = "inev"
    """``paper`` is the construction of the paper (algorithms 1 and 2) without what goes beyond it."""
    nodes: int = 20
    degree: int = 2
    ratio: float = 0.5
    """The share of nodes that produce a type."""
    skew: float = 1.3
    """Of the Zipf distribution of rates: the smaller, the further they lie apart."""
    types: int = 7
    queries: int = 1
    length: int | None = None
    """Types of every query; None: 3 to 6, drawn for each."""
    selectivity: float = 0.01
    """Upper end of the range of pairwise selectivities; the lower one is a tenth of it. Half of the pairs have 1."""
    special: Special = ""
    """An operator in the query, or in a third of a workload both, in turn."""
    special_most: bool = False
    """Whether the operator is over the type with the highest rate instead of the lowest."""
    plain: bool = False
    """The counterpart without the operator: the repeated type once, the negated one as part of a SEQ."""
    at_most_once: bool = False
    """Rates are scaled so that no type occurs more than once in a window, in the whole network."""
    attempts: int = 2000
    """How often the search looks whether to stop: equal on fast and on slow machines."""
    orders: int = 0
    """Orders of the workload that are planned, for how far the results spread."""
    swapped: float = 0.0
    """Share of the types whose rates are swapped after planning, from the middle outwards."""
    variance: float = 0.0
    """Standard deviation of the true rates around the planned ones, relative to these."""
    latency_factor: float = 1.0
    """What work at a node counts beside a hop."""
    bounded: bool = False
    """Refuse plans that are slower than centralised evaluation."""

    def __post_init__(self) -> None:
        for wrong, demand in (
            (self.nodes < 2, "nodes must be at least 2"),
            (not 1 <= self.types <= TYPES_MAX, f"types must be between 1 and {TYPES_MAX}"),
            (self.length is not None and self.length > self.types, "a query cannot have more types than there are"),
            (not 0 < self.selectivity <= 1, "selectivity must be above 0 and at most 1"),
            (not 0 < self.ratio <= 1, "ratio must be above 0 and at most 1"),
            (self.skew <= 1, "skew must be above 1"),
            (not 0 <= self.swapped <= 1, "swapped must be between 0 and 1"),
        ):
            if wrong:
                raise ConfigError(f"this scenario cannot be built: {demand}")

    @property
    def time_s(self) -> float:
        """Time of the network that is simulated: nothing runs here."""
        return 0.0

    def fingerprint(self) -> str:
        """Equal for equal scenarios only."""
        settings = repr((GENERATOR_VERSION, sorted(asdict(self).items())))
        return blake2b(settings.encode(), digest_size=6).hexdigest()
