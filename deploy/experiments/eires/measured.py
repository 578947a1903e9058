"""What was measured, as the findings need it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

from headwater.deploy.experiments.eires.figures import OURS
from headwater.deploy.experiments.eires.scenario import LIMIT
from headwater.deploy.experiments.results import ResultRow

BASELINES: Final = ("block", "cache", "last")


Point = tuple[str, str, float]
"""A figure, one of its lines, and a value on its axis."""


class Measured:
    """What was measured, the median over seeds. What was not raises KeyError."""

    def __init__(self, rows: Sequence[ResultRow]) -> None:
        self._samples: dict[Point, dict[int, ResultRow]] = {}
        for row in rows:
            self._samples.setdefault((str(row.figure), row.strategy, row.x), {})[row.seed] = row

    def at(self, point: Point, column: str = "p50_us") -> float:
        return statistics.median(self._by_seed(point, column).values())

    def over(self, one: Point, other: Point, column: str = "p50_us") -> float:
        """How many times the other the one is: seed by seed, since a seed changes the events."""
        ones, others = self._by_seed(one, column), self._by_seed(other, column)
        return statistics.median(ones[seed] / others[seed] for seed in sorted(ones.keys() & others.keys()))

    def _by_seed(self, point: Point, column: str) -> dict[int, float]:
        rows = self._samples[point]
        values = {seed: value for seed, row in rows.items() if (value := row.figures[column]) is not None}
        if not values:
            raise KeyError(point)
        return values

    def points(self, figure: str, line: str) -> list[float]:
        return sorted(x for name, of_line, x in self._samples if (name, of_line) == (figure, line))

    def curve(self, figure: str, line: str, column: str = "p50_us") -> dict[float, float]:
        """KeyError unless there are two points at least."""
        curve = {x: self.at((figure, line, x), column) for x in self.points(figure, line)}
        if len(curve) < 2:
            raise KeyError(figure)
        return curve

    def growth(self, figure: str, line: str, column: str = "p50_us", *, falling: bool = False) -> float:
        """How many times the first point of a line the last one is, or the last one the first."""
        first, *_, last = self.curve(figure, line, column)
        one, other = (figure, line, last), (figure, line, first)
        return self.over(other, one, column) if falling else self.over(one, other, column)

    def panels(self, figures: Iterable[str]) -> list[tuple[str, float]]:
        """The parts of these figures in which every strategy was measured."""
        panels = [
            (figure, x)
            for figure in figures
            for x in self.points(figure, "hybrid")
            if all((figure, line, x) in self._samples for line in (LIMIT, *BASELINES, *OURS))
        ]
        if not panels:
            raise KeyError(*figures)
        return panels

    def matches(self) -> dict[tuple[str, float, int], dict[str, float | None]]:
        """By figure, x and seed: what each line gave."""
        counts: dict[tuple[str, float, int], dict[str, float | None]] = {}
        for (figure, line, x), rows in self._samples.items():
            for row in rows.values():
                counts.setdefault((figure, x, row.seed), {})[line] = row.figures["matches"]
        return counts
