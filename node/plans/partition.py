"""Partitions rules recursively: what a node asks of each of its children, and what it evaluates itself.

The same function serves every level: the root splits a whole rule, a node below the partial rule it was given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.analysis.projection import check_divisible, joinable_components, project
from headwater.protocol.pattern import Rule, leaves

HERE = ""
"""Among the producers of a type: the node itself."""


@dataclass(frozen=True, slots=True)
class Split:
    """Who evaluates what. Either ``delegate`` does everything, or the node does, on what parts and itself provide."""

    delegate: str | None = None
    """The child that alone produces all the types: it gets the same rule, whole or partial."""
    parts: tuple[tuple[str, PartialRule], ...] = ()
    """Each child with a partial rule for it: children by name, the rules of one in the order of the text."""
    local: frozenset[str] = frozenset()
    """The types that the node itself produces, alone or beside others."""


def split(rule: Rule, roles: Collection[str], producers: Mapping[str, tuple[str, ...]]) -> Split:
    """How a node that must evaluate these roles of a rule (all of them, for a whole rule) divides the work.

    ``producers`` names for every event type the children that produce it or pass it on, and HERE for the node itself.
    A child may combine only types that it alone produces; of others it filters what it has. A type
    without a producer is asked of no child. RuleError for rules that cannot be divided.
    """
    check_divisible(rule)
    covered = [leaf for leaf in leaves(rule.pattern.root) if leaf.role in roles]
    makers = {leaf.type: frozenset(producers.get(leaf.type, ())) for leaf in covered}
    everyone = frozenset().union(*makers.values())
    if len(everyone) == 1 and HERE not in everyone and all(makers.values()):
        return Split(delegate=next(iter(everyone)))
    parts: list[tuple[str, PartialRule]] = []
    for child in sorted(everyone - {HERE}):
        own = [leaf.role for leaf in covered if makers[leaf.type] == {child}]
        shared = [leaf.role for leaf in covered if child in makers[leaf.type] and leaf.role not in own]
        groups = [*joinable_components(rule, own), *((role,) for role in shared)]
        order = {leaf.role: position for position, leaf in enumerate(covered)}
        parts += [(child, project(rule, group)) for group in sorted(groups, key=lambda group: order[group[0]])]
    return Split(None, tuple(parts), frozenset(name for name, nodes in makers.items() if HERE in nodes))
