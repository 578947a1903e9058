"""The figures of the T-Rex evaluation: what each varies, and the scenario of every point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from headwater.deploy.experiments.trex.scenario import (
    DEFAULT_PROCESSORS,
    DEFAULT_RULES,
    DEFAULT_TYPES,
    Scenario,
    degree_for,
)

DEFAULT: Final = Scenario()

PROCESSORS_PER_CLASS: Final = 3  # a publisher's neighbourhood: one processor and the two nearest to it


@dataclass(frozen=True, slots=True)
class Sweep:
    """One figure: a scenario for every value on its horizontal axis."""

    figure: int
    title: str
    axis: str
    points: Mapping[float, Scenario]
    logarithmic: bool = False


def _grown(processors: int) -> Scenario:
    """A network of another size: types, rules and links grow along with it."""
    return Scenario(
        processors=processors,
        degree=degree_for(processors),
        types=DEFAULT_TYPES * processors // DEFAULT_PROCESSORS,
        rules=DEFAULT_RULES * processors // DEFAULT_PROCESSORS,
    )


def _local(scenario: Scenario) -> Scenario:
    return replace(scenario, rules_per_class=10, processors_per_class=PROCESSORS_PER_CLASS)


def pull_scenario(length: int) -> Scenario:
    """A large network, short windows, and every event type in one rule only: where asking for events should pay."""
    return Scenario(processors=50, types=DEFAULT_RULES * length, length=length, window_s=1.0, types_used_once=True)


_SIZES: Final = (5, 10, 20, 30, 40, 50)

SWEEPS: Final[Mapping[int, Sweep]] = {
    sweep.figure: sweep
    for sweep in (
        Sweep(10, "Default scenario", "default", {0: DEFAULT}),
        Sweep(11, "Number of rules", "rules", {n: replace(DEFAULT, rules=n) for n in (20, 50, 100, 150, 200)}),
        Sweep(
            12,
            "Number of subscriptions",
            "subscriptions per processor",
            {n: replace(DEFAULT, subscriptions=n) for n in (1, 2, 5, 10, 20, 50)},
            logarithmic=True,
        ),
        Sweep(
            13,
            "Selection policy",
            "each-within operators (%)",
            {percent: replace(DEFAULT, each_share=percent / 100) for percent in (0, 10, 20, 30)},
        ),
        Sweep(
            14,
            "Size of windows",
            "average window (s)",
            {seconds: replace(DEFAULT, window_s=float(seconds)) for seconds in (10, 30, 60, 120, 180)},
        ),
        Sweep(
            15,
            "Filtering of primitive events",
            "values of the attribute",
            {n: replace(DEFAULT, values=n) for n in (1, 2, 4, 6, 8, 10)},
        ),
        Sweep(16, "Number of processors", "processors", {n: _grown(n) for n in _SIZES}),
        Sweep(17, "Number of processors (with locality)", "processors", {n: _local(_grown(n)) for n in _SIZES}),
        Sweep(
            18,
            "Number of processors (with filtering)",
            "processors",
            {n: replace(_grown(n), values=10) for n in _SIZES},
        ),
        Sweep(
            19,
            "Publication rate",
            "greatest average time between publications (s)",
            {s: replace(DEFAULT, rate_least_per_s=1 / s) for s in (5, 10, 100, 1000, 10_000)},
            logarithmic=True,
        ),
        Sweep(20, "A scenario for pull", "length of sequences", {n: pull_scenario(n) for n in range(2, 7)}),
    )
}
