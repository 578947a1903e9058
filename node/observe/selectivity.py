"""Measures the selectivity of predicates: filters at sources, parts of rules, whole rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from headwater.node.plans.dataflow import describe
from headwater.node.plans.plan_tasks import PlanTasks
from headwater.node.streams.feeds import Sieve
from headwater.node.tasks.aggregates.planning import UNNAMED
from headwater.protocol.messages.neighbour import Filter, Part, Stream, Whole
from headwater.protocol.pattern import leaves

PAST_MAX: Final = 4_096  # predicates of trees that are over; more come about only where rules are replaced for ever


class Predicate(NamedTuple):
    """What is evaluated. ``kind``: "filter", "part" (of a rule), "candidates" (a rule whose aggregates are asked for
    afterwards) or "rule"; ``text``: the filter or part in words, or the name of the rule."""

    kind: str
    text: str


class JoinedRoles(NamedTuple):
    """Roles of a rule."""

    rule: str
    roles: tuple[str, ...]


class Selected(NamedTuple):
    """Rows that a predicate has seen, and rows (of a filter) or matches that resulted."""

    seen: int
    passed: int


class PastCounts:
    """What predicates of trees that are over have seen and let pass, so that sums never go back."""

    def __init__(self) -> None:
        self.counts: dict[Predicate, Selected] = {}
        self.joined: dict[JoinedRoles, int] = {}

    def keep(self, tasks: PlanTasks) -> None:
        """The tree is about to be forgotten."""
        for predicate, selected in counted(tasks):
            before = self.counts.pop(predicate, None)
            self.counts[predicate] = selected if before is None else _sum(before, selected)
            if len(self.counts) > PAST_MAX:
                del self.counts[next(iter(self.counts))]
        for stage, matches in _joined(tasks).items():
            self.joined[stage] = self.joined.pop(stage, 0) + matches
            if len(self.joined) > PAST_MAX:
                del self.joined[next(iter(self.joined))]


def selected(works: Iterable[PlanTasks], past: PastCounts) -> Mapping[Predicate, Selected]:
    """Every predicate with its sums over all trees, those that are over included."""
    sums = dict(past.counts)
    for tasks in works:
        for predicate, counts in counted(tasks):
            before = sums.get(predicate)
            sums[predicate] = counts if before is None else _sum(before, counts)
    return sums


def joined(works: Iterable[PlanTasks], past: PastCounts) -> Mapping[JoinedRoles, int]:
    """For roles of rules that are put together here: how many matches there were, in graphs that are over, too."""
    sums = dict(past.joined)
    for tasks in works:
        for stage, matches in _joined(tasks).items():
            sums[stage] = sums.get(stage, 0) + matches
    return sums


def _joined(tasks: PlanTasks) -> dict[JoinedRoles, int]:
    """The same for one graph; none for trees, whose parts of rules may let too much pass."""
    sums: dict[JoinedRoles, int] = {}
    for task in tasks.exact_tasks():
        stream = task.stream
        if isinstance(stream, Whole):
            stage = JoinedRoles(stream.rule.name, tuple(sorted(leaf.role for leaf in leaves(stream.rule.pattern.root))))
        elif isinstance(stream, Part):
            stage = JoinedRoles(stream.partial.rule.name, tuple(sorted(stream.partial.roles)))
        sums[stage] = max(sums.get(stage, 0), task.joined)  # tasks that leave out different types find the same
    return sums


def counted(tasks: PlanTasks) -> Iterator[tuple[Predicate, Selected]]:
    """The predicates that are evaluated here for one tree."""
    for filtered, judge in tasks.filters():
        passed = judge.passed if isinstance(judge, Sieve) else judge.found
        yield Predicate("filter", _text(filtered)), Selected(judge.seen, passed)
    for task in tasks.tasks:
        stream = task.stream
        if isinstance(stream, Filter):
            continue
        if isinstance(stream, Part):
            predicate = Predicate("part", _text(stream))
        else:
            kind = "candidates" if stream.rule.emits == UNNAMED else "rule"
            predicate = Predicate(kind, stream.rule.name)
        yield predicate, Selected(task.seen, task.found)
    for completion in tasks.completions:
        yield Predicate("rule", completion.stream.rule.name), Selected(completion.seen, completion.found)


@lru_cache(maxsize=PAST_MAX)
def _text(stream: Stream) -> str:
    return describe(stream).removeprefix("filter ")


def _sum(one: Selected, other: Selected) -> Selected:
    return Selected(one.seen + other.seen, one.passed + other.passed)
