"""What was measured, as the findings need it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headwater.deploy.experiments.eires.figures import OURS
from headwater.deploy.experiments.eires.scenario import LIMIT
from headwater.deploy.experiments.results import ResultRow

BASELINES: Final = ("block", "cache", "last")


class Measured:
    """The means over seeds of what was measured. What was not raises KeyError."""

    def __init__(self, rows: Sequence[ResultRow]) -> None:
        self._samples: dict[tuple[str, str, float], list[ResultRow]] = {}
        for row in rows:
            self._samples.setdefault((str(row.figure), row.strategy, row.x), []).append(row)

    def at(self, figure: str, line: str, x: float, column: str = "p50_us") -> float:
        values = [value for row in self._samples[figure, line, x] if (value := row.figures[column]) is not None]
        if not values:
            raise KeyError(column)
        return sum(values) / len(values)

    def points(self, figure: str, line: str) -> list[float]:
        return sorted(x for name, of_line, x in self._samples if (name, of_line) == (figure, line))

    def curve(self, figure: str, line: str, column: str = "p50_us") -> dict[float, float]:
        """KeyError unless there are two points at least."""
        curve = {x: self.at(figure, line, x, column) for x in self.points(figure, line)}
        if len(curve) < 2:
            raise KeyError(figure)
        return curve

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
            for row in rows:
                counts.setdefault((figure, x, row.seed), {})[line] = row.figures["matches"]
        return counts
