"""Losses and returns of nodes and links, and the query to all nodes how far trees have delivered.

One question is asked at a time; what is lost while it is open is dealt with by the same answers, since what they say
stays true: nodes keep what is later from their answer on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from headwater.protocol.messages.plans import DeliveredTo

TreeName: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LostLink:
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class LostNode:
    node: str


@dataclass(frozen=True, slots=True)
class Rejoined:
    """A node is here with an empty memory."""

    node: str


@dataclass(frozen=True, slots=True)
class Relinked:
    """A node remembers everything, but what was on its way between it and the coordinator is lost."""

    node: str


@dataclass(frozen=True, slots=True)
class NodeBack:
    """A node that was lost is here again, with an empty memory."""

    node: str


@dataclass(frozen=True, slots=True)
class LinkBack:
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class BrokenTree:
    """A node reports that a build lost a link there."""

    tree: str
    epoch: int


Fact: TypeAlias = LostLink | LostNode | Rejoined | Relinked | NodeBack | LinkBack | BrokenTree


def renews_all(fact: Fact, *, is_whole: bool) -> bool:
    """Whether all trees are rebuilt for it, and not only those that it breaks. ``is_whole``: every tree reaches all
    nodes."""
    match fact:
        case Rejoined() | Relinked() | NodeBack():
            return True
        case LinkBack():
            return not is_whole
        case LostLink() | LostNode() | BrokenTree():
            return False
        case _:
            assert_never(fact)


class DeliveryQuestion:
    """How far have trees delivered? And what the answers are needed for."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.number = 0
        self._told: set[str] = set()
        self._watermarks: dict[TreeName, float] = {}
        self._known: dict[str, set[TreeName]] = {}
        """By node the builds that it knows, of those that have answered and remember anything."""

    @property
    def is_open(self) -> bool:
        return bool(self.facts)

    def add(self, fact: Fact) -> bool:
        """Note a fact. Returns whether the question must be asked now."""
        is_first = not self.facts
        if is_first:
            self.number += 1
            self._told, self._watermarks, self._known = set(), {}, {}
        if fact not in self.facts:
            self.facts.append(fact)
        match fact:
            case Rejoined(node) | NodeBack(node):
                self._told.add(node)  # it knows nothing
        return is_first

    def answered(self, node: str, report: DeliveredTo) -> None:
        """Take a node's answer. Answers to earlier questions are ignored."""
        if self.facts and report.loss == self.number:
            self._told.add(node)
            self._known[node] = {(watermark.tree, watermark.epoch) for watermark in report.watermarks}
            for watermark in report.watermarks:
                name = (watermark.tree, watermark.epoch)
                self._watermarks[name] = max(watermark.delivered_us, self._watermarks.get(name, watermark.delivered_us))

    def unanswered(self, nodes: Iterable[str]) -> list[str]:
        """The nodes that have not answered yet."""
        return [node for node in nodes if node not in self._told] if self.facts else []

    @property
    def lost_news(self) -> bool:
        """Whether what nodes had told may be lost, too, such as that a tree has drained."""
        return any(isinstance(fact, Relinked) for fact in self.facts)

    def taken(self) -> list[Fact]:
        """Close the question, since all nodes have answered; the facts to deal with now."""
        facts, self.facts = self.facts, []
        return facts

    def is_over(self, tree: str, epoch: int) -> bool:
        """Whether a build that was replaced has drained, although no node may say so: its root, which is the first
        to let go of it, does not know it any more. If the root knows nothing at all, whether the others do not."""
        answers = [self._known[tree]] if tree in self._known else list(self._known.values())
        return not any((tree, epoch) in answer for answer in answers)

    def delivered(
        self, builds: Collection[TreeName], begun: Mapping[TreeName, int | None], partial: Collection[TreeName] = ()
    ) -> dict[str, float]:
        """For every tree up to where all its builds have delivered. What one node knows is true for all, and ``begun``
        says from where on each build had to deliver at all. ``partial`` ones have not delivered what they should."""
        watermarks: dict[str, float] = {}
        for name in builds:
            from_us = begun.get(name)
            least = -float("inf") if from_us is None else from_us - 1
            watermark = least if name in partial else max(least, self._watermarks.get(name, least))
            watermarks[name[0]] = min(watermark, watermarks.get(name[0], watermark))
        return watermarks
