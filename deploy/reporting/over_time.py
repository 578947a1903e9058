"""Events and composite events per second over time; long idle stretches are cut out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headwater.deploy.reporting.svg import Chart, none, number, tag, ticks
from headwater.pipeline.report.tables import Row, Tables
from headwater.protocol.text import rate, seconds

EMPTY_SHARE: Final = 0.08  # of the drawn time: a stretch without anything is cut if it is longer, and has
EMPTY_STEPS: Final = 4  # at least so many steps
CUT_SHARE: Final = 0.05  # how wide a cut is drawn, of what is kept
LABELS_APART: Final = 0.09  # of the axis, so that a telephone can show both

COLUMNS: Final = (
    ("born_per_s", "events born in a second", 0),
    ("composites_per_s", "composites delivered in a second", 2),
)


@dataclass(frozen=True, slots=True)
class DrawnStretch:
    """Steps one after the other, and where they are drawn: on an axis from 0 on, in seconds that are kept."""

    rows: Sequence[Row]
    at_s: float

    @property
    def from_s(self) -> float:
        return float(self.rows[0]["from_s"])

    @property
    def to_s(self) -> float:
        return float(self.rows[-1]["to_s"])

    def place(self, second: float) -> float:
        return self.at_s + second - self.from_s


def stretches(rows: Sequence[Row]) -> list[DrawnStretch]:
    """The steps without long stretches in which nothing was born or delivered."""
    least = max(EMPTY_STEPS, EMPTY_SHARE * len(rows))
    pieces: list[list[Row]] = [[]]
    empty: list[Row] = []
    for row in rows:
        if not row["born"] and not row["composites"]:
            empty.append(row)
            continue
        if len(empty) > least:
            pieces.append([])  # what is empty at the very beginning leaves an empty piece before it
        else:
            pieces[-1] += empty
        empty = []
        pieces[-1].append(row)
    if len(empty) <= least:
        pieces[-1] += empty
    kept = [piece for piece in pieces if piece]
    gap_s = CUT_SHARE * sum(piece[-1]["to_s"] - piece[0]["from_s"] for piece in kept)
    placed: list[DrawnStretch] = []
    for piece in kept:
        placed.append(DrawnStretch(piece, placed[-1].place(placed[-1].to_s) + gap_s if placed else 0.0))
    return placed


def over_time(tables: Tables, run: str) -> str:
    """Two pictures, one above the other, with the same axis of time."""
    kept = stretches(list(tables.of("throughput", run)))
    if not kept:
        return none("Nothing was born or delivered.")
    html = ""
    for column, name, colour in COLUMNS:
        html += tag("h4", {}, name) + _picture(kept, column, name, colour)
    return html + _cuts(kept)


def _picture(kept: Sequence[DrawnStretch], column: str, name: str, colour: int) -> str:
    ys = ticks(max(row[column] for piece in kept for row in piece.rows), 3)
    end_s = kept[-1].place(kept[-1].to_s)
    chart = Chart((0, end_s), (0, ys[-1]), height=210)
    chart.axes(_times(kept), [(y, number(y)) for y in ys], "seconds since the first event")
    for piece in kept:
        chart.area(piece.at_s, [(piece.place(row["to_s"]), row[column]) for row in piece.rows], colour, name)
        for row in piece.rows:
            if row[column]:
                tip = f"{row['from_s']:g} to {row['to_s']:g} s: {rate(row[column])}"
                chart.spot(piece.place((row["from_s"] + row["to_s"]) / 2), row[column], tip)
    for before, after in pairwise(kept):
        words = f"nothing for {seconds(after.from_s - before.to_s)}"
        chart.cut(before.place(before.to_s), after.at_s, words)
    return chart.svg(name)


def _times(kept: Sequence[DrawnStretch]) -> list[tuple[float, str]]:
    """Round times that are drawn, and where; after a cut also where time goes on. What is too near is left out."""
    step = ticks(sum(piece.to_s - piece.from_s for piece in kept), 6)[1]
    apart = LABELS_APART * kept[-1].place(kept[-1].to_s)
    labels: list[tuple[float, str]] = []
    for piece in kept:
        while labels and piece.at_s - labels[-1][0] < apart:
            labels.pop()
        times = [piece.from_s] + [step * multiple for multiple in range(int(piece.to_s / step + 1e-9) + 1)]
        for second in times:
            if second >= piece.from_s and (not labels or piece.place(second) - labels[-1][0] >= apart):
                labels.append((piece.place(second), number(round(second, 3))))
    return labels


def _cuts(kept: Sequence[DrawnStretch]) -> str:
    if len(kept) == 1:
        return ""
    empty_s = sum(after.from_s - before.to_s for before, after in pairwise(kept))
    return none(f"{seconds(empty_s)} in which nothing was born or delivered are cut out, where the axis is broken.")
