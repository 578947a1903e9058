"""Results of an experiment in CSV files, one for each figure, from which a stopped experiment resumes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headwater.deploy.experiments.jobs import Figure, Job, Result
from headwater.deploy.experiments.trex.measures import HEADLINE_KINDS
from headwater.deploy.simulation.outcome import KINDS
from headwater.deploy.simulation.traffic_and_delay import OVERHEAD_KINDS
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import write_file
from headwater.protocol.strategy import TREE_STRATEGIES

KEY_COLUMNS: Final = ("figure", "x", "strategy", "seed", "time_s", "scenario")
DELAY_COLUMNS: Final = ("delay_mean_ms", "delay_p50_ms", "delay_p95_ms", "delay_p99_ms", "delay_max_ms")
COLUMNS: Final = (
    *KEY_COLUMNS,
    "born",
    "delivered",
    *DELAY_COLUMNS,
    "traffic_per_s",
    "messages_per_s",
    "bytes_per_s",
    "overhead_events_per_s",
    "overhead_messages_per_s",
    "overhead_bytes_per_s",
    *(f"{kind}_{unit}_per_s" for kind in KINDS for unit in ("events", "bytes")),
    "wall_s",
)

RowKey = tuple[Figure, float, str, int, float, str]


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One line: a point of a figure under a strategy with a seed. ``figures`` has every column after the key."""

    figure: Figure
    x: float
    strategy: str
    seed: int
    time_s: float
    scenario: str
    figures: dict[str, float | None]

    @property
    def key(self) -> RowKey:
        return self.figure, self.x, self.strategy, self.seed, self.time_s, self.scenario


def rows_of(job: Job, result: Result) -> list[ResultRow]:
    """A row for every point that the job gives."""
    measures = result.measures
    figures: dict[str, float | None] = {
        "born": measures.born,
        "delivered": measures.delivered,
        **{column: getattr(measures, column) for column in DELAY_COLUMNS},
        "traffic_per_s": measures.traffic_per_s,
        "messages_per_s": sum(measures.messages_per_s[kind] for kind in HEADLINE_KINDS),
        "bytes_per_s": sum(measures.bytes_per_s[kind] for kind in HEADLINE_KINDS),
        "overhead_events_per_s": sum(measures.events_per_s[kind] for kind in OVERHEAD_KINDS),
        "overhead_messages_per_s": sum(measures.messages_per_s[kind] for kind in OVERHEAD_KINDS),
        "overhead_bytes_per_s": sum(measures.bytes_per_s[kind] for kind in OVERHEAD_KINDS),
        **{f"{kind}_events_per_s": measures.events_per_s[kind] for kind in KINDS},
        **{f"{kind}_bytes_per_s": measures.bytes_per_s[kind] for kind in KINDS},
        "wall_s": result.wall_s,
    }
    assert set(figures) == set(COLUMNS) - set(KEY_COLUMNS)
    return rows_at(job, figures)


def rows_at(job: Job, figures: dict[str, float | None]) -> list[ResultRow]:
    """The same figures at every point that the job gives."""
    scenario = job.scenario.fingerprint()
    return [ResultRow(figure, x, job.strategy, job.seed, job.time_s, scenario, figures) for figure, x in job.places]


class Results:
    """The rows of a folder. Every row is on disk as soon as ``add`` returns."""

    def __init__(
        self,
        folder: Path,
        columns: Sequence[str] = COLUMNS,
        strategies: Sequence[str] = TREE_STRATEGIES,
        *,
        numbered: bool = True,
    ) -> None:
        """Read what is there. A line that was cut off when the experiment was stopped is left out and not kept.

        ``columns`` are those of the experiment, ``KEY_COLUMNS`` first; lines are kept in the order of ``strategies``.
        ``numbered``: figures are called by numbers, otherwise by names, even where these look like numbers.
        """
        self.folder = folder
        self._columns = tuple(columns)
        self._strategies = tuple(strategies)
        folder.mkdir(parents=True, exist_ok=True)
        self._rows: dict[RowKey, ResultRow] = {}
        for file in sorted(folder.glob("figure-*.csv")):
            rows, whole = _read(file, self._columns, numbered)
            self._rows |= {row.key: row for row in rows}
            if not whole:
                _write(file, rows, self._columns)

    def path(self, figure: Figure, ending: str = "csv") -> Path:
        return self.folder / f"figure-{figure}.{ending}"

    def add(self, rows: Iterable[ResultRow]) -> None:
        for row in rows:
            self._rows[row.key] = row
            file = self.path(row.figure)
            new = not file.exists()
            with file.open("a", encoding="utf-8", newline="") as out:
                writer = csv.writer(out, lineterminator="\n")
                if new:
                    writer.writerow(self._columns)
                writer.writerow(_cells(row, self._columns))

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that must be run. What a finished run of another figure gives as well is copied, not run."""
        finished = {row.key[2:]: row for row in self._rows.values()}
        left = []
        for job in jobs:
            scenario = job.scenario.fingerprint()
            finished_row = finished.get((job.strategy, job.seed, job.time_s, scenario))
            if finished_row is None:
                left.append(job)
                continue
            places = (
                ResultRow(figure, x, job.strategy, job.seed, job.time_s, scenario, finished_row.figures)
                for figure, x in job.places
            )
            self.add(row for row in places if row.key not in self._rows)
        return left

    def of(self, jobs: Iterable[Job]) -> list[ResultRow]:
        """The rows of these jobs that are there, in the order of the figures."""
        keys = {
            (figure, x, job.strategy, job.seed, job.time_s, job.scenario.fingerprint())
            for job in jobs
            for figure, x in job.places
        }
        return sorted((row for key, row in self._rows.items() if key in keys), key=self._order)

    def tidy(self) -> None:
        """Put the rows in order, so that files do not depend on which run was finished first."""
        for figure in {row.figure for row in self._rows.values()}:
            rows = sorted((row for row in self._rows.values() if row.figure == figure), key=self._order)
            _write(self.path(figure), rows, self._columns)

    def _order(self, row: ResultRow) -> tuple[object, ...]:
        rank = self._strategies.index(row.strategy) if row.strategy in self._strategies else len(self._strategies)
        return row.figure, row.x, rank, row.strategy, row.seed, row.time_s, row.scenario


def _cells(row: ResultRow, columns: Sequence[str]) -> list[str]:
    values = (*row.key, *(row.figures[column] for column in columns[len(KEY_COLUMNS) :]))
    return ["" if value is None else _number(value) if isinstance(value, int | float) else value for value in values]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(f"{value:.9g}"))


def _read(file: Path, columns: Sequence[str], numbered: bool) -> tuple[list[ResultRow], bool]:
    """The rows of a file, and whether it holds nothing else."""
    text = file.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    if not text or (len(lines) == 1 and ",".join(columns).startswith(text)):
        return [], False  # stopped before even the header was written
    if lines[0] != ",".join(columns):
        raise ConfigError(
            f"{file} has other columns than this version writes, so it cannot be added to; "
            "move it away or choose another folder with --out"
        )
    rows, whole = [], text.endswith("\n")
    # What follows the last newline was cut off, even where it happens to look like a row.
    for cells in csv.reader(lines[1:-1]):
        row = _row(cells, columns, numbered)
        if row is None:
            whole = False
        else:
            rows.append(row)
    return rows, whole


def _row(cells: list[str], columns: Sequence[str], numbered: bool) -> ResultRow | None:
    if len(cells) != len(columns):
        return None
    figure, x, strategy, seed, time_s, scenario, *rest = cells
    try:
        numbers = [float(cell) if cell else None for cell in rest]
        row = ResultRow(
            int(figure) if numbered else figure,
            float(x),
            strategy,
            int(seed),
            float(time_s),
            scenario,
            dict(zip(columns[len(KEY_COLUMNS) :], numbers, strict=True)),
        )
    except ValueError:
        return None
    return row if all(number is None or math.isfinite(number) for number in numbers) else None


def _write(file: Path, rows: Iterable[ResultRow], columns: Sequence[str]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(_cells(row, columns) for row in rows)
    write_file(
        file, out.getvalue(), sync=False
    )  # written after every run: an interrupted experiment keeps its finished runs
