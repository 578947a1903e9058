"""How much of what they see predicates let pass: filters at sources, parts of rules, whole rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from node.aggregates.planning import UNNAMED
from node.feeds import Feed, Merge, Sieve
from node.tree_work import TreeWork, describe
from protocol.messages import Filter, Stream, Whole

PAST_MAX: Final = 4_096  # predicates of trees that are over; more come about only where rules are replaced for ever


class Predicate(NamedTuple):
    """What is evaluated. ``kind``: "filter", "part" (of a rule), "candidates" (a rule whose aggregates are asked for
    afterwards) or "rule"; ``text``: the filter or part in words, or the name of the rule."""

    kind: str
    text: str


class Selected(NamedTuple):
    """Rows that a predicate has seen, and rows (of a filter) or matches that came of them."""

    seen: int
    passed: int


class Past:
    """What predicates of trees that are over have seen and let pass, so that sums never go back."""

    def __init__(self) -> None:
        self.counts: dict[Predicate, Selected] = {}

    def keep(self, found: TreeWork) -> None:
        """The tree is about to be forgotten."""
        for predicate, selected in counted(found):
            before = self.counts.pop(predicate, None)
            self.counts[predicate] = selected if before is None else _sum(before, selected)
            if len(self.counts) > PAST_MAX:
                del self.counts[next(iter(self.counts))]


def selected(works: Iterable[TreeWork], past: Past) -> Mapping[Predicate, Selected]:
    """Every predicate with its sums over all trees, those that are over included."""
    sums = dict(past.counts)
    for found in works:
        for predicate, counts in counted(found):
            before = sums.get(predicate)
            sums[predicate] = counts if before is None else _sum(before, counts)
    return sums


def counted(found: TreeWork) -> Iterator[tuple[Predicate, Selected]]:
    """The predicates that are evaluated here for one tree."""
    for stream, feed in found.feeds.items():
        if isinstance(stream, Filter):
            for sieve in _sieves(feed):
                yield Predicate("filter", _text(stream)), Selected(sieve.seen, sieve.passed)
    for task in found.tasks:
        stream = task.stream
        if not isinstance(stream, Whole):
            predicate = Predicate("part", _text(stream))
        else:
            kind = "candidates" if stream.rule.emits == UNNAMED else "rule"
            predicate = Predicate(kind, stream.rule.name)
        yield predicate, Selected(task.seen, task.found)
    for completion in found.completions:
        yield Predicate("rule", completion.stream.rule.name), Selected(completion.seen, completion.found)


def _sieves(feed: Feed) -> Iterator[Sieve]:
    for each in feed.inputs if isinstance(feed, Merge) else (feed,):
        if isinstance(each, Sieve):
            yield each


@lru_cache(maxsize=PAST_MAX)
def _text(stream: Stream) -> str:
    return describe(stream).removeprefix("filter ")


def _sum(one: Selected, other: Selected) -> Selected:
    return Selected(one.seen + other.seen, one.passed + other.passed)
