"""Where remote conditions are judged: by the lowest node that has their roles and reaches their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from headwater.node.plans.catalog import Catalog
from headwater.protocol.analysis.conjuncts import tables_in
from headwater.protocol.analysis.lookups import tables_of
from headwater.protocol.expressions import Expression, roles_of
from headwater.protocol.messages.neighbour import Filter, Part, Stream, Whole
from headwater.protocol.pattern import leaves
from headwater.protocol.streams import about_subject

ANY_NODE = ""
"""In place of a node that is not known: it judges what every node does."""


class Brought(NamedTuple):
    """What comes to a task: a stream (None: unfiltered), the node that has judged its conditions, and the roles that
    its events may have."""

    stream: Stream | None
    judge: str
    roles: Collection[str]


def left_by(catalog: Catalog, child: str, where: tuple[Expression, ...], rule: str = "") -> tuple[Expression, ...]:
    """The remote conditions that this node judges because the child does not. What the child judges, it or a node below
    has judged on everything that it gives."""
    judged_below = catalog.judged_by(child, where, rule)
    return tuple(conjunct for conjunct in catalog.judged_here(where, rule) if conjunct not in judged_below)


def stays(catalog: Catalog, stream: Whole | Part, child: str) -> bool:
    """Whether what the child could evaluate alone, a rule or a part of one, stays here because this node reaches a
    table that the child does not."""
    if isinstance(stream, Part):
        return bool(left_by(catalog, child, stream.partial.pattern.where, stream.partial.rule.name))
    tables = tables_of(stream.rule)
    return not catalog.out_of_reach(child, tables) <= catalog.out_of_reach(catalog.node, tables)


def judged_below(catalog: Catalog, stream: Whole | Part, inputs: Iterable[Brought]) -> tuple[Expression, ...]:
    """The remote conditions that everything meets which comes: they need not be judged again.

    Such a condition is about one event, whose type has no other role in the rule, and all events of the type come in
    streams of nodes that judge it. A partial rule gives single events of its matches, which may not belong together.
    Where composite events say what was looked up, it is looked up again.
    """
    rule = stream.rule if isinstance(stream, Whole) else stream.partial.rule
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    uses = Counter(types.values())
    brought = list(inputs)
    judged = []
    for conjunct in rule.pattern.where:
        roles = roles_of(conjunct)
        tables = tables_in(conjunct)
        if tables and not catalog.says(tables) and len(roles) == 1 and uses[types[min(roles)]] == 1:
            asked = about_subject(conjunct)
            if all(_judges(catalog, one, asked) for one in brought if not roles.isdisjoint(one.roles)):
                judged.append(conjunct)
    return tuple(judged)


def _judges(catalog: Catalog, brought: Brought, asked: Expression) -> bool:
    stream = brought.stream
    return isinstance(stream, Filter) and asked in stream.where and bool(catalog.judged_by(brought.judge, (asked,)))
