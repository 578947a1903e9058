"""The model of a generated trace, as the section ``generate:`` of a description defines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

MOTION_KINDS: Final = {"vehicle": "string", "lat": "float", "lon": "float", "speed": "float"}
"""The attributes that every event of a vehicle has."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Events come independently of each other."""


@dataclass(frozen=True, slots=True)
class Regular:
    """Events come at equal distances, each type at each node with a beginning of its own."""


@dataclass(frozen=True, slots=True)
class Bursty:
    """Poisson arrivals whose rate changes between two states of exponential length: a Markov-modulated process.

    ``quiet``: the rate in the state ``off``, as a part of that in the state ``on``.
    """

    on_us: int
    off_us: int
    quiet: float = 0.0


Arrivals: TypeAlias = Poisson | Regular | Bursty


@dataclass(frozen=True, slots=True)
class Normal:
    """A number of normal distribution. ``correlated``: with which other normal attributes, and how much.
    ``previous``: the correlation with the event before it of the same type and node, or vehicle."""

    mean: float
    deviation: float
    correlated: Mapping[str, float] = field(default_factory=dict)
    previous: float = 0.0
    kind: str = "float"


@dataclass(frozen=True, slots=True)
class Uniform:
    """A number from low to high; whole numbers include both."""

    low: float
    high: float
    kind: str = "float"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values; the k-th is chosen in proportion to k to the power of minus ``exponent``."""

    values: tuple[str, ...]
    exponent: float = 0.0
    kind: str = "string"


@dataclass(frozen=True, slots=True)
class Derived:
    """An expression of Spark SQL over ``type``, ``node``, ``ts`` and the attributes that stand before it."""

    value: str
    kind: str


Attribute: TypeAlias = Normal | Uniform | Choice | Derived


@dataclass(frozen=True, slots=True)
class Motion:
    """Vehicles that drive from one random point of an area to the next, straight or along a grid of roads."""

    vehicles: int
    south: float
    north: float
    west: float
    east: float
    slowest_m_per_s: float
    fastest_m_per_s: float
    roads_m: float | None = None


@dataclass(frozen=True, slots=True)
class GeneratedStream:
    """Events of some types at some nodes. ``rate_per_s`` is that of all of them together.

    Without ``motion``, every type at every node is a *cell* with arrivals of its own; with it, every vehicle is one,
    and an event is born at the node nearest to it.
    """

    types: tuple[str, ...]
    nodes: tuple[str, ...]
    rate_per_s: float
    arrivals: Arrivals = Poisson()
    types_zipf: float = 0.0
    nodes_zipf: float = 0.0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    motion: Motion | None = None

    @property
    def cells(self) -> int:
        return len(self.types) * len(self.nodes) if self.motion is None else self.motion.vehicles

    def shares(self) -> list[float]:
        """Of each cell, the part of the rate; cells count through the nodes of the first type, then of the next."""
        if self.motion is not None:
            return [1 / self.motion.vehicles] * self.motion.vehicles
        nodes = zipf_shares(len(self.nodes), self.nodes_zipf)
        return [one * other for one in zipf_shares(len(self.types), self.types_zipf) for other in nodes]

    def kinds(self) -> dict[str, str]:
        own = {name: attribute.kind for name, attribute in self.attributes.items()}
        return {**MOTION_KINDS, **own} if self.motion is not None else own


@dataclass(frozen=True, slots=True)
class Generation:
    """A trace to be generated. ``places``: latitude and longitude of the nodes of which they are known."""

    name: str
    seed: int
    start_us: int
    duration_us: int
    streams: tuple[GeneratedStream, ...]
    places: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    about: str = ""

    def expected(self) -> int:
        """How many events there will be, on average over all seeds."""
        return round(sum(stream.rate_per_s for stream in self.streams) * self.duration_us / 1e6)

    def kinds(self) -> dict[str, str]:
        """The kind of every attribute that any stream gives."""
        return {name: kind for stream in self.streams for name, kind in stream.kinds().items()}


def zipf_shares(count: int, exponent: float) -> list[float]:
    """Shares of ranks 1, 2, ..; they add up to 1."""
    weights = [(rank + 1) ** -exponent for rank in range(count)]
    whole = sum(weights)
    return [weight / whole for weight in weights]
