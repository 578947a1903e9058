"""Where the events of a source come from: a trace, a generator, or a broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from protocol.events import Value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any number from low to high, both included; whole numbers for an int attribute."""

    low: float
    high: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Normal:
    """Numbers around a mean; rounded for an int attribute."""

    mean: float
    deviation: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the items, each as likely as its weight says."""

    items: tuple[Value, ...]
    weights: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Cycle:
    """The items in turn, again from the first after the last; a constant is a cycle of one."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """``start``, ``start + 1``, ``start + 2``, .."""

    start: int | float


Generator = Uniform | Normal | Choice | Cycle | Count


@dataclass(frozen=True, slots=True)
class TraceFeed:
    """The rows of a file that have the type of the source and, where the file names nodes, its node."""

    path: Path


@dataclass(frozen=True, slots=True)
class RateFeed:
    """Events made up: so many per second, at regular or at random (Poisson) distances."""

    per_s: float
    times: Literal["poisson", "regular"]
    values: tuple[Generator, ...]
    """One for each attribute of the type, in its order."""


@dataclass(frozen=True, slots=True)
class MqttFeed:
    """Events that a broker delivers; only a running node can receive them, a simulation cannot."""

    topic: str


Feed = TraceFeed | RateFeed | MqttFeed
