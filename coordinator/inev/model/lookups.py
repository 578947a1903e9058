"""What lookups in remote tables cost: questions that leave the node at which a rule is evaluated, and their answers.

A node that does not reach a table asks over the links to the nearest one that does. It asks for what its memory does
not hold: in each window once for each key, where it is known how many keys there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.protocol.analysis.lookups import lookups_of
from headwater.protocol.expressions import roles_of
from headwater.protocol.network import DescribedTable
from headwater.protocol.pattern import Rule

HITS: Final = 0.9
"""The share of lookups that a node's memory answers, where it is not known how many keys a window has."""


@dataclass(frozen=True, slots=True)
class TableLookups:
    """What a query asks of one table that not every node reaches."""

    table: str
    at: tuple[int, ...]
    """The nodes that reach it."""
    asked: tuple[tuple[str, float], ...]
    """By the event type that names keys, how many elements are asked for per second where all its events are."""

    def rate(self, split_by: str | None, part: float) -> float:
        """How many elements a node asks for that has all events, or of one type this part."""
        return sum(rate * (part if type == split_by else 1.0) for type, rate in self.asked)


def lookups_in(
    rule: Rule,
    labels: Mapping[str, str],
    rates: Mapping[str, float],
    window_s: float,
    tables: Iterable[DescribedTable],
    names: tuple[str, ...],
    keys: Mapping[str, float],
) -> tuple[TableLookups, ...]:
    """What a rule asks of tables that not every node reaches. ``labels``: by role its type in queries; ``rates`` of all
    types per second; ``keys``: by table how many keys are looked up in a window."""
    asked: dict[str, dict[str, float]] = {}
    for lookup in dict.fromkeys(lookups_of(rule)):
        naming = [labels[role] for role in sorted(roles_of(lookup)) if role in labels and labels[role] in rates]
        if naming:
            # Keys of several roles are as many as the events of the most frequent one: the others come with it.
            type = max(naming, key=lambda label: rates[label])
            of_table = asked.setdefault(lookup.table, {})
            of_table[type] = of_table.get(type, 0.0) + _missed(rates[type], window_s, keys.get(lookup.table))
    number = {name: position for position, name in enumerate(names)}
    return tuple(
        TableLookups(table.name, tuple(number[node] for node in table.at if node in number), tuple(by_type.items()))
        for table in tables
        if table.at and (by_type := asked.get(table.name)) and not number.keys().isdisjoint(table.at)
    )


def _missed(rate: float, window_s: float, keys: float | None) -> float:
    """Of lookups at a rate, how many ask for an element that is not at hand."""
    if keys is None:
        return rate * (1 - HITS)
    return min(rate, keys / window_s) if window_s > 0 else rate
