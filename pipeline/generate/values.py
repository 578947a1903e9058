"""Normally distributed attributes, correlated with each other and with the event before.

Numbers of one event come from independent ones by a triangular matrix. Those that follow the event before are sums over
its predecessors with falling weights. The sum is cut off where the weights no longer count, so that a chunk can be
filled without those before it; events before the first are generated for it like all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from headwater.pipeline.generate.correlations import triangular
from headwater.pipeline.generate.model import Attribute, GeneratedStream, Normal
from headwater.pipeline.generate.seeded_random import Floats, key_of, normals

WEIGHT_LEAST: Final = 1e-9  # an event before that counts less for a value than this does not count
DIGITS: Final = 6  # of a deviation


def normal_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Normal]:
    return {name: attribute for name, attribute in attributes.items() if isinstance(attribute, Normal)}


class NormalValues:
    """The normal attributes of a stream."""

    def __init__(self, seed: int, stream_number: int, stream: GeneratedStream) -> None:
        self._attributes = normal_attributes(stream.attributes)
        self._triangular = triangular(self._attributes)
        self._keys = [
            (key_of(seed, stream_number, f"{name} radius"), key_of(seed, stream_number, f"{name} angle"))
            for name in self._attributes
        ]

    def drawn(self, cell: int, first: int, count: int) -> dict[str, Floats]:
        """The values of ``count`` events of a cell, from number ``first`` on."""
        if not self._attributes:
            return {}
        memory = max(_memory(attribute.previous) for attribute in self._attributes.values())
        numbers = np.arange(first - memory, first + count, dtype=np.int64)
        independent = [normals(key, other, cell, numbers) for key, other in self._keys]
        columns = {}
        for row, (name, attribute) in enumerate(self._attributes.items()):
            new = sum(
                (self._triangular[row][column] * independent[column] for column in range(row)),
                self._triangular[row][row] * independent[row],
            )
            values = _following(new, attribute.previous)[memory:]
            columns[name] = _rounded(attribute.mean + attribute.deviation * values, attribute)
        return columns


def _memory(previous: float) -> int:
    """How many events before one count for it."""
    return math.ceil(math.log(WEIGHT_LEAST) / math.log(abs(previous))) if previous else 0


def _following(new: Floats, previous: float) -> Floats:
    """x[n] = previous x[n-1] + what is new, scaled to the deviation 1: by doubling the reach of the sums."""
    if not previous:
        return new
    following, weight, reach = new * math.sqrt(1 - previous * previous), previous, 1
    while reach < len(following) and abs(weight) >= WEIGHT_LEAST:
        longer = following.copy()
        longer[reach:] += weight * following[:-reach]
        following, weight, reach = longer, weight * weight, 2 * reach
    return following


def _rounded(values: Floats, attribute: Normal) -> Floats:
    """Digits that no reader needs would only make files larger."""
    if attribute.kind == "int" or not attribute.deviation:
        return np.rint(values) if attribute.kind == "int" else values
    return np.round(values, max(0, DIGITS - math.ceil(math.log10(attribute.deviation))))
