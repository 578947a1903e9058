"""What one node sends another for one purpose: the events that pass a filter, the constituents of a partial rule's
matches, or the composites of a whole rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from protocol.expressions import Attribute, Expression, rewritten
from protocol.partial import PartialRule
from protocol.pattern import Rule, leaves, may_wait, types_of
from protocol.subscriptions import SUBJECT


@dataclass(frozen=True, slots=True)
class Filter:
    """Events of one type that meet every conjunct, each over the event alone (its role is SUBJECT)."""

    type: str
    where: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Whole:
    """The composite events of a rule between its bounds, as PlannedRule has them.

    They may be decided up to ``waits_us`` after their end, because what follows may forbid them or one of their parts.
    """

    rule: Rule
    since_us: int | None = None
    until_us: int | None = None
    waits_us: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """The constituents of the matches of a partial rule, and blockers; but for events of the types in ``heard``, which
    the receiver gets anyway, all of them."""

    partial: PartialRule
    since_us: int | None = None
    heard: tuple[str, ...] = ()


Stream = Filter | Whole | Part
"""What a stream carries."""


def about_subject(expression: Expression) -> Expression:
    """The same condition about the one event it speaks of, whatever its role was called."""
    return rewritten(expression, lambda part: Attribute(SUBJECT, part.name))


def filter_of(partial: PartialRule) -> Filter:
    """A partial rule of one role as a filter, the same for all rules that ask for the same events."""
    (leaf,) = leaves(partial.pattern.root)
    where = {about_subject(conjunct) for conjunct in partial.pattern.where}
    return Filter(leaf.type, tuple(sorted(where, key=repr)))


def whole_streams(
    rules: Iterable[tuple[Rule, int | None, int | None]], horizon: Callable[[Rule], int | None]
) -> Iterator[Whole]:
    """The streams of rules, given with their bounds after those whose composites they read, with how long each may wait
    for decisions."""
    waits_us: dict[str, int] = {}
    for rule, since_us, until_us in rules:
        own_us = (horizon(rule) or 0) if may_wait(rule) else 0
        through_us = max((waits_us.get(name, 0) for name in types_of(rule.pattern)), default=0)
        waits_us[rule.emits] = max(waits_us.get(rule.emits, 0), own_us + through_us)
        yield Whole(rule, since_us, until_us, own_us + through_us)
