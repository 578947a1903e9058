"""Streams between nodes: the events that pass a filter, the parts of a partial rule's matches, or composite events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.protocol.analysis.horizons import horizon_us
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.expressions import Attribute, Expression, rewritten
from headwater.protocol.pattern import Rule, leaves, may_wait, types_of
from headwater.protocol.subscriptions import SUBJECT

UNBOUNDED_US = 1 << 60  # the horizon of rules that no window bounds: nothing they read may ever be forgotten


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
    from_us: int | None = None
    """What ends earlier is of no use to a reader of the stream, and must not be told: the plan began with a part of
    the past, so it would lack what was before, and would have the identity of what an earlier plan has found."""


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


def whole_streams(rules: Iterable[tuple[Rule, int | None, int | None]], from_us: int | None = None) -> Iterator[Whole]:
    """The streams of rules, given with their bounds after those whose composites they read, with how long each may wait
    for decisions. ``from_us`` is where the plan begins (None: with the first event)."""
    waits_us: dict[str, int] = {}
    streams: list[Whole] = []
    for rule, since_us, until_us in rules:
        through_us = max((waits_us.get(name, 0) for name in types_of(rule.pattern)), default=0)
        wait_us = min(UNBOUNDED_US, _own_wait_us(rule) + through_us)
        waits_us[rule.emits] = max(waits_us.get(rule.emits, 0), wait_us)
        streams.append(Whole(rule, since_us, until_us, wait_us))
    yield from streams if from_us is None else _begun(streams, from_us)


def _own_wait_us(rule: Rule) -> int:
    if not may_wait(rule):
        return 0
    own_us = horizon_us(rule)
    return UNBOUNDED_US if own_us is None else own_us


def _begun(streams: Sequence[Whole], from_us: int) -> list[Whole]:
    """The same where a plan begins: each tells of what no plan before has decided, and of what those that read it may
    need for that, which is at most a horizon older."""
    undecided_us: dict[str, int] = {}
    least_us: list[float] = []
    for stream in streams:
        through_us = min((undecided_us.get(name, from_us) for name in types_of(stream.rule.pattern)), default=from_us)
        first_us = through_us - _own_wait_us(stream.rule)
        if stream.since_us is not None:  # nothing is older
            first_us = max(first_us, min(stream.since_us, from_us))
        undecided_us[stream.rule.emits] = min(first_us, undecided_us.get(stream.rule.emits, from_us))
        least_us.append(first_us)
    read_us: dict[str, float] = {}
    for place in reversed(range(len(streams))):
        stream, own_us = streams[place], horizon_us(streams[place].rule)
        least_us[place] = min(least_us[place], read_us.get(stream.rule.emits, math.inf))
        reads_us = -math.inf if own_us is None else least_us[place] - own_us
        if stream.since_us is not None:
            reads_us = max(reads_us, stream.since_us)
        for name in types_of(stream.rule.pattern):
            read_us[name] = min(reads_us, read_us.get(name, math.inf))
    return [
        stream if math.isinf(least) else replace(stream, from_us=int(least))
        for stream, least in zip(streams, least_us, strict=True)
    ]
