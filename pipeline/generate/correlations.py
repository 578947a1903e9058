"""Computes mixtures of independent numbers that have given correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headwater.pipeline.generate.model import Normal
from headwater.protocol.errors import ConfigError


def triangular(attributes: Mapping[str, Normal]) -> list[list[float]]:
    """What makes independent numbers into such as give the correlations; a ConfigError if nothing does."""
    names = list(attributes)
    wanted = [[0.0] * len(names) for _ in names]
    for row, (name, attribute) in enumerate(attributes.items()):
        for other, correlation in attribute.correlated.items():
            column = names.index(other)
            # The more of a value is memory, the more must the new parts agree for the values to do so.
            mine, theirs = attribute.previous, attributes[other].previous
            new = correlation * (1 - mine * theirs) / math.sqrt((1 - mine**2) * (1 - theirs**2))
            if abs(new) >= 1:
                raise ConfigError(
                    f"{name} and {other} cannot have the correlation {correlation:g}: they follow the events before "
                    "them too differently; give both the same previous:"
                )
            wanted[row][column] = wanted[column][row] = new
    factor: list[list[float]] = []
    for row in range(len(names)):
        parts: list[float] = []
        for column in range(row):
            explained = math.fsum(parts[k] * factor[column][k] for k in range(column))
            parts.append((wanted[row][column] - explained) / factor[column][column])
        rest = 1 - math.fsum(part * part for part in parts)
        if rest <= 1e-12:
            raise ConfigError(
                f"no numbers have all these correlations between {', '.join(names)}; make some of them smaller"
            )
        factor.append([*parts, math.sqrt(rest)])
    return factor
