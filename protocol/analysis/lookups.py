"""Which remote tables rules look into, and from which nodes these can be reached."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from headwater.protocol.expressions import Remote, walk
from headwater.protocol.network import DescribedTable
from headwater.protocol.pattern import Rule


def lookups_of(rule: Rule) -> Iterator[Remote]:
    """Every lookup of a rule, in its conditions and in the attributes of its composites."""
    for expression in (*rule.pattern.where, *(output.value for output in rule.attributes)):
        yield from (part for part in walk(expression) if isinstance(part, Remote))


def tables_of(rule: Rule) -> frozenset[str]:
    """The remote tables that a rule looks into."""
    return frozenset(lookup.table for lookup in lookups_of(rule))


def reaching(
    nodes: Iterable[str], tables: Iterable[DescribedTable], names: Collection[str] | None = None
) -> tuple[str, ...]:
    """Those of the nodes that reach all of the tables; ``names``: all that have one of these names."""
    needed = [table for table in tables if table.at and (names is None or table.name in names)]
    return tuple(node for node in nodes if all(node in table.at for table in needed))
