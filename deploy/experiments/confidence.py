"""Means over seeds, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

STUDENT_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1, 2, .. degrees of freedom."""

NORMAL_95: Final = 1.960  # what they tend to


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean and half the width of its 95 % confidence interval; None where one value says nothing of the spread."""

    value: float
    half_width: float | None


def mean(values: Sequence[float]) -> Mean:
    """The mean of at least one value."""
    count = len(values)
    centre = math.fsum(values) / count
    if count == 1:
        return Mean(centre, None)
    variance = math.fsum((value - centre) ** 2 for value in values) / (count - 1)
    quantile = STUDENT_95[count - 2] if count - 2 < len(STUDENT_95) else NORMAL_95
    return Mean(centre, quantile * math.sqrt(variance / count))
