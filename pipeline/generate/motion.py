"""Positions of vehicles that move between random points of an area, each at a random speed."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from headwater.pipeline.generate.model import Motion
from headwater.pipeline.generate.seeded_random import Floats, key_of, uniforms

DEGREE_M: Final = 111_320.0  # of latitude
LEGS_AT_ONCE: Final = 256
LEGS_BEFORE: Final = 5  # of the greatest length: vehicles are on their way, all over the area, when the trace begins


def extent_m(motion: Motion) -> tuple[float, float]:
    """How high and how wide the area is."""
    across = math.cos(math.radians((motion.south + motion.north) / 2))
    return (motion.north - motion.south) * DEGREE_M, (motion.east - motion.west) * DEGREE_M * across


def crossings(motion: Motion) -> tuple[int, int]:
    """How many roads there are from west to east, and from south to north."""
    assert motion.roads_m is not None
    high, wide = extent_m(motion)
    return int(high / motion.roads_m) + 1, int(wide / motion.roads_m) + 1


def positions(
    motion: Motion, seed: int, stream: int, vehicle: int, times_us: Floats, duration_us: int
) -> tuple[Floats, Floats, Floats]:
    """Latitude, longitude and speed (m/s) of a vehicle at some times of the trace."""
    ends, up, right, speeds = _route(motion, seed, stream, vehicle, duration_us)
    high, wide = extent_m(motion)
    at = times_us / 1e6 + _before_s(motion)
    leg = np.minimum(np.searchsorted(ends, at, side="right") - 1, len(speeds) - 1)
    lat = motion.south + np.interp(at, ends, up) / high * (motion.north - motion.south)
    lon = motion.west + np.interp(at, ends, right) / wide * (motion.east - motion.west)
    return np.round(lat, 6), np.round(lon, 6), np.round(speeds[leg], 2)


def _before_s(motion: Motion) -> float:
    return LEGS_BEFORE * math.hypot(*extent_m(motion)) / motion.slowest_m_per_s


@lru_cache(maxsize=8)  # the chunks of a vehicle often come one after the other
def _route(
    motion: Motion, seed: int, stream: int, vehicle: int, duration_us: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """When the vehicle is at which turning point (metres up and right), and how fast from there on."""
    until = duration_us / 1e6 + _before_s(motion)
    legs, whole = 0, 0.0
    while whole < until:
        legs = max(LEGS_AT_ONCE, 2 * legs)
        up, right, speeds = _turns(motion, seed, stream, vehicle, legs)
        lengths = np.sqrt(np.diff(up) ** 2 + np.diff(right) ** 2)
        ends = np.concatenate([[0.0], np.cumsum(lengths / speeds)])
        whole = float(ends[-1])
    return ends, up, right, speeds


def _turns(motion: Motion, seed: int, stream: int, vehicle: int, legs: int) -> tuple[Floats, Floats, Floats]:
    """So many legs: where each begins and the last one ends, and the speed of each."""
    numbers = np.arange(legs + 1, dtype=np.int64)

    def draw(purpose: str) -> Floats:
        return uniforms(key_of(seed, stream, purpose), vehicle, numbers)

    high, wide = extent_m(motion)
    up, right = draw("up"), draw("right")
    speeds = motion.slowest_m_per_s + draw("speed")[:-1] * (motion.fastest_m_per_s - motion.slowest_m_per_s)
    if motion.roads_m is None:
        return up * high, right * wide, speeds
    rows, columns = crossings(motion)
    up, right = np.floor(up * rows) * motion.roads_m, np.floor(right * columns) * motion.roads_m
    # Between two crossings there is a corner: along one road first, and then along the other.
    first_up = draw("corner")[:-1] < 0.5
    corner_up = np.where(first_up, up[1:], up[:-1])
    corner_right = np.where(first_up, right[:-1], right[1:])
    return _interleaved(up, corner_up), _interleaved(right, corner_right), np.repeat(speeds, 2)


def _interleaved(points: Floats, corners: Floats) -> Floats:
    points_and_corners = np.empty(2 * len(corners) + 1)
    points_and_corners[0::2], points_and_corners[1::2] = points, corners
    return points_and_corners
