"""One run of the experiment on remote elements, as a frozen value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Final

from headwater.deploy.experiments.eires.bushfire import Bushfire
from headwater.deploy.experiments.eires.cluster import Cluster
from headwater.deploy.experiments.eires.station import Range
from headwater.deploy.experiments.eires.synthetic import Synthetic
from headwater.deploy.experiments.eires.tuning import Tuning
from headwater.node.remote.caches import CACHES
from headwater.node.remote.policies import POLICIES
from headwater.protocol.errors import ConfigError

GENERATOR_VERSION: Final = 1
"""Raise it when the same scenario and seed would give other events or elements."""

LIMIT: Final = "limit"
"""Not a strategy: all elements are at hand from the beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupScenario:
    """A workload, and how its remote elements come."""

    workload: Synthetic | Bushfire | Cluster
    strategy: str
    cache: str = "cost"
    cached_share: float = 0.1
    """How many elements the cache holds, of all that there are."""
    latency_us: Range = (10.0, 100.0)
    tuning: Tuning = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        for wrong, demand in (
            (self.strategy not in (LIMIT, *POLICIES), f"the strategy must be {LIMIT} or one of {', '.join(POLICIES)}"),
            (self.cache not in CACHES, f"the cache must be one of {', '.join(CACHES)}"),
            (not 0 <= self.cached_share <= 1, "cached_share must be between 0 and 1"),
            (not 0 <= self.latency_us[0] <= self.latency_us[1], "latencies must not be negative, the least one first"),
            (not 0 <= self.tuning.noise <= 1, "noise must be between 0 and 1"),
        ):
            if wrong:
                raise ConfigError(f"this scenario cannot be built: {demand}")

    @property
    def time_s(self) -> float:
        """How long the stream lasts, in simulated time."""
        return round(self.workload.time_us / 1e6, 3)

    def fingerprint(self) -> str:
        """Equal for equal scenarios only. Where recorded events lie does not count."""
        workload = {name: value for name, value in asdict(self.workload).items() if name != "folder"}
        settings = (
            GENERATOR_VERSION,
            self.workload.name,
            sorted(workload.items()),
            self.strategy,
            self.cache if self.keeps else "",
            self.cached_share if self.keeps else 0.0,
            self.latency_us if self.strategy != LIMIT else (),
            sorted(asdict(self.tuning).items()),
        )
        return blake2b(repr(settings).encode(), digest_size=6).hexdigest()

    @property
    def keeps(self) -> bool:
        """Whether there is a cache at all."""
        return self.strategy != LIMIT and POLICIES[self.strategy].keeps
