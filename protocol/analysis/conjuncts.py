"""Which conjuncts of a rule can be judged on some of its roles."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headwater.protocol.expressions import Attribute, Expression, Fold, Parameter, Remote, roles_of, walk


def asks_outside(condition: Expression) -> bool:
    """Whether judging the conjunct takes more than events: a table elsewhere, or the value of an aggregate."""
    return any(isinstance(part, Remote | Parameter) for part in walk(condition))


def tables_in(condition: Expression) -> frozenset[str]:
    """The remote tables that the conjunct looks into."""
    return frozenset(part.table for part in walk(condition) if isinstance(part, Remote))


def staying(where: Iterable[Expression], inside: Collection[str]) -> tuple[Expression, ...]:
    """The conjuncts that can be judged on one event for each of these roles, by a node that reaches their tables.

    For a repeated role that is any one of its elements: conjuncts that relate several of them are left out.
    """
    return tuple(
        condition
        for condition in where
        if roles_of(condition)
        and roles_of(condition) <= set(inside)
        and not any(
            isinstance(part, Fold | Parameter) or (isinstance(part, Attribute) and part.index)
            for part in walk(condition)
        )
    )
