"""Random numbers as a function: the same key, cell and number give the same value on every machine, in every task.

The hash is Spark's ``xxhash64`` over longs, so that expressions and numpy draw alike. Logarithm and cosine are made of
additions and multiplications, which round alike everywhere; those of libraries differ in the last bit between
processors, and an event at the edge of a microsecond would show it.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Numbers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Hashes: TypeAlias = npt.NDArray[np.uint64]

SPARK_SEED: Final = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_LN2: Final = 0.6931471805599453
_HALF_PI: Final = 1.5707963267948966
_LOG_TERMS: Final = [1 / (2 * k + 1) for k in range(12)]
_COS_TERMS: Final = [1.0, -1 / 2, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600, -1 / 87178291200]
_SIN_TERMS: Final = [1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800, -1 / 1307674368000]


def _rotated(value: Hashes, by: int) -> Hashes:
    return (value << np.uint64(by)) | (value >> np.uint64(64 - by))


def _mixed(before: Hashes, value: Hashes) -> Hashes:
    """One more long into a hash, as Spark does it."""
    mixed = before + _P5 + np.uint64(8)
    mixed = mixed ^ (_rotated(value * _P2, 31) * _P1)
    mixed = _rotated(mixed, 27) * _P1 + _P4
    mixed = (mixed ^ (mixed >> np.uint64(33))) * _P2
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _P3
    return mixed ^ (mixed >> np.uint64(32))


def key_of(seed: int, stream: int, purpose: str) -> int:
    """What tells the draws of one purpose from all others; a long of Spark's."""
    hashed = np.array([SPARK_SEED], dtype=np.uint64)
    for part in (seed, stream, zlib.crc32(purpose.encode())):
        hashed = _mixed(hashed, np.array([part & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    return int(hashed.view(np.int64)[0])


def uniforms(key: int, cell: int, numbers: Numbers) -> Floats:
    """For each number a value from 0 (included) to 1 (excluded), with 53 random bits."""
    hashed = np.array([SPARK_SEED], dtype=np.uint64)
    for part in (key, cell):
        hashed = _mixed(hashed, np.array([part & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64))
    hashes = _mixed(hashed, numbers.astype(np.int64).view(np.uint64))
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def exponentials(key: int, cell: int, numbers: Numbers) -> Floats:
    """Values of exponential distribution with the mean 1."""
    return -logarithms(1.0 - uniforms(key, cell, numbers))


def normals(key: int, other_key: int, cell: int, numbers: Numbers) -> Floats:
    """Values of normal distribution with the mean 0 and the deviation 1."""
    radius = np.sqrt(2.0 * exponentials(key, cell, numbers))
    drawn: Floats = radius * cosines(uniforms(other_key, cell, numbers))
    return drawn


def logarithms(values: Floats) -> Floats:
    """Natural logarithms of positive values."""
    fraction, exponent = np.frexp(values)
    small = fraction < 0.7071067811865476
    fraction = np.where(small, 2.0 * fraction, fraction)
    exponent = exponent - small
    part = (fraction - 1.0) / (fraction + 1.0)
    return exponent * _LN2 + 2.0 * part * _series(_LOG_TERMS, part * part)


def cosines(turns: Floats) -> Floats:
    """Cosines of angles in full turns."""
    quarters = np.rint(4.0 * turns)
    angle = (4.0 * turns - quarters) * _HALF_PI
    square = angle * angle
    cosine = _series(_COS_TERMS, square)
    sine = angle * _series(_SIN_TERMS, square)
    quadrant = quarters.astype(np.int64) & 3
    return np.choose(quadrant, [cosine, -sine, -cosine, sine])


def _series(terms: list[float], value: Floats) -> Floats:
    total = np.full_like(value, terms[-1])
    for term in reversed(terms[:-1]):
        total = total * value + term
    return total
