"""Arrival times of generated events, cell by cell (a type at a node, or a vehicle), in chunks that tasks can share.

Time is stretched so that events of every kind of arrivals come once per unit on average: s = integral of the rate.
There Poisson arrivals are sums of exponentials and regular ones whole numbers; bursts are in the stretching alone. A
first look at a cell only sums up, and notes where each chunk begins; chunks are then filled by whichever task gets
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from headwater.pipeline.generate.model import Arrivals, Bursty, Regular
from headwater.pipeline.generate.seeded_random import Floats, exponentials, key_of, uniforms

CHUNK_EVENTS: Final = 16_384
"""As many events of one cell are filled at once: enough for numpy to be quick, few enough to share out hot cells."""


@dataclass(frozen=True, slots=True)
class StreamCell:
    """A sequence of arrivals of its own: the seed and stream, its number in the stream, its rate and what for."""

    seed: int
    stream: int
    number: int
    rate_per_us: float
    duration_us: int
    arrivals: Arrivals


@dataclass(frozen=True, slots=True)
class Chunk:
    """So many events of a cell from number ``first`` on; ``passed`` is the stretched time of the one before."""

    first: int
    passed: float
    count: int


def chunks(cell: StreamCell) -> Iterator[Chunk]:
    """All events of a cell, in order."""
    end = _stretched_end(cell)
    first, passed = 0, 0.0
    # Cells with few events must not pay for a whole chunk; what is left over falls into the next one.
    size = min(CHUNK_EVENTS, int(1.1 * end) + 16)
    while True:
        times = _stretched(cell, Chunk(first, passed, size))
        count = int(np.searchsorted(times, end, side="left"))
        if count:
            yield Chunk(first, passed, count)
        if count < size:
            return
        first, passed = first + size, float(times[-1])


def times_us(cell: StreamCell, chunk: Chunk) -> Floats:
    """When the events of a chunk come, from the start of the trace."""
    stretched = _stretched(cell, chunk)
    if isinstance(cell.arrivals, Bursty):
        moments, passed = _bursts(cell)
        return np.interp(stretched, passed, moments)
    return stretched / cell.rate_per_us


def _stretched(cell: StreamCell, chunk: Chunk) -> Floats:
    numbers = np.arange(chunk.first, chunk.first + chunk.count, dtype=np.int64)
    if isinstance(cell.arrivals, Regular):
        phase = uniforms(key_of(cell.seed, cell.stream, "phase"), cell.number, np.zeros(1, dtype=np.int64))
        return numbers + phase
    gaps = exponentials(key_of(cell.seed, cell.stream, "gaps"), cell.number, numbers)
    gaps[0] += chunk.passed
    return np.cumsum(gaps)


def _stretched_end(cell: StreamCell) -> float:
    if not isinstance(cell.arrivals, Bursty):
        return cell.rate_per_us * cell.duration_us
    moments, passed = _bursts(cell)
    return float(np.interp(float(cell.duration_us), moments, passed))


@lru_cache(maxsize=8)  # the chunks of a cell often come one after the other
def _bursts(cell: StreamCell) -> tuple[Floats, Floats]:
    """The moments at which the cell goes on or off, and how much stretched time has passed at each."""
    bursty = cell.arrivals
    assert isinstance(bursty, Bursty)
    mean = bursty.on_us + bursty.off_us
    on_rate = cell.rate_per_us * mean / (bursty.on_us + bursty.quiet * bursty.off_us)
    key = key_of(cell.seed, cell.stream, "states")
    # Exponential lengths have no memory, so the first one is as long as any other, however long ago it began.
    begins_on = bool(uniforms(key, cell.number, np.array([-1], dtype=np.int64))[0] < bursty.on_us / mean)
    count = int(2.2 * cell.duration_us / mean) + 64
    lengths = [np.zeros(0)]
    drawn, whole = 0, 0.0
    while whole < cell.duration_us:
        numbers = np.arange(drawn, drawn + count, dtype=np.int64)
        on = (numbers % 2 == 0) == begins_on
        new_lengths = exponentials(key, cell.number, numbers) * np.where(on, bursty.on_us, bursty.off_us)
        lengths.append(new_lengths)
        drawn, whole = drawn + count, whole + float(np.cumsum(new_lengths)[-1])
    every = np.concatenate(lengths)
    on = (np.arange(drawn) % 2 == 0) == begins_on
    moments = np.concatenate([[0.0], np.cumsum(every)])
    passed = np.concatenate([[0.0], np.cumsum(every * np.where(on, on_rate, on_rate * bursty.quiet))])
    return moments, passed
