"""The parameters of an experiment on deployment strategies, as one frozen value, and the numbers derived from them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Final

from headwater.protocol.errors import ConfigError

GENERATOR_VERSION: Final = 1
"""Raise it when the same scenario and seed would give other networks or events: older results are then not taken for
results of the new ones."""

DEFAULT_PROCESSORS: Final = 20
DEFAULT_DEGREE: Final = 5.0
DEFAULT_TYPES: Final = 120
DEFAULT_RULES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A synthetic network with its rules and subscriptions; the defaults are those of the T-Rex evaluation."""

    processors: int = DEFAULT_PROCESSORS
    degree: float = DEFAULT_DEGREE
    """Neighbours of a processor, on the average; fewer where the network is too small for that many."""
    link_delay_ms: float = 5.0
    """On the average over all links; the delay of a link grows with the distance of its ends."""
    types: int = DEFAULT_TYPES
    rate_least_per_s: float = 1 / 1000
    rate_greatest_per_s: float = 10.0
    """Rates are evenly spread between least and greatest on a logarithmic scale."""
    rules: int = DEFAULT_RULES
    length: int = 3
    """Events in the sequence of a rule, all of different types."""
    window_s: float = 60.0
    """On the average; every window is drawn from half to one and a half of it."""
    subscriptions: int = 10
    """Composite types that are wanted at each processor."""
    each_share: float = 0.0
    """Share of the selections that are ``each .. within``; the others are ``last .. within``."""
    values: int = 1
    """Values of the attribute that every rule selects one of; with 1 the rules select by type only."""
    same_value: bool = False
    """Instead, the events of a match must have the same value, whichever it is: a shared parameter."""
    rules_per_class: int | None = None
    """Rules come in classes of this many, each class with event types of its own; None: any rule may use any type."""
    processors_per_class: int | None = None
    """The types of a class are born at this many processors near to each other; None: anywhere. Needs classes."""
    types_used_once: bool = False
    """No event type is read by two rules."""

    def __post_init__(self) -> None:
        for wrong, demand in (
            (self.processors < 2, "processors must be at least 2"),
            (self.degree <= 0, "degree must be above 0"),
            (self.link_delay_ms <= 0, "link_delay_ms must be above 0"),
            (not 0 < self.rate_least_per_s <= self.rate_greatest_per_s, "rates must be above 0, the least one first"),
            (self.rules < 1 or self.length < 1, "rules and length must be at least 1"),
            (self.window_s <= 0, "window_s must be above 0"),
            (not 0 <= self.subscriptions <= self.rules, "subscriptions must be between 0 and the number of rules"),
            (not 0 <= self.each_share <= 1, "each_share must be between 0 and 1"),
            (self.values < 1, "values must be at least 1"),
            (self.rules_per_class is not None and self.rules_per_class < 1, "rules_per_class must be at least 1"),
            (
                self.processors_per_class is not None and self.rules_per_class is None,
                "processors_per_class needs rules_per_class",
            ),
            (
                self.processors_per_class is not None and not 0 < self.processors_per_class <= self.processors,
                "processors_per_class must be between 1 and the number of processors",
            ),
            (
                self.types_used_once and self.rules_per_class is not None,
                "types_used_once and rules_per_class exclude each other",
            ),
            (self.types < self.types_needed, f"types must be at least {self.types_needed} for these rules"),
        ):
            if wrong:
                raise ConfigError(f"this scenario cannot be built: {demand}")

    @property
    def classes(self) -> int:
        """Into how many classes the rules (and the event types) fall."""
        return 1 if self.rules_per_class is None else math.ceil(self.rules / self.rules_per_class)

    @property
    def types_needed(self) -> int:
        """The fewest event types of which these rules can be made."""
        return self.length * (self.rules if self.types_used_once else self.classes)

    @property
    def links(self) -> int:
        """Number of links: what the degree asks for, but no fewer than a tree has and no more than there are pairs."""
        most = self.processors * (self.processors - 1) // 2
        return min(most, max(self.processors - 1, round(self.processors * self.degree / 2)))

    def fingerprint(self) -> str:
        """Equal for equal scenarios only: results carry it, so that they are not mixed up."""
        settings = repr((GENERATOR_VERSION, sorted(asdict(self).items())))
        return blake2b(settings.encode(), digest_size=6).hexdigest()


def degree_for(processors: int) -> float:
    """The degree at which a network of this size has about as many hops from end to end as the default one.

    Hops in a random network grow with log(processors) / log(degree); this keeps that ratio.
    """
    return float(DEFAULT_DEGREE ** (math.log(processors) / math.log(DEFAULT_PROCESSORS)))
