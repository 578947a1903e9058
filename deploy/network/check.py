"""Checks a network whose parts are each correct: are there mistakes between them?"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from headwater.protocol.breadth_first import components
from headwater.protocol.edge import Feed, MqttFeed
from headwater.protocol.network import Link
from headwater.protocol.pattern import (
    Chain,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Rule,
    Selection,
    leaves,
    positive_leaves,
)
from headwater.protocol.payload_maps import topic_filter

T = TypeVar("T")


def connected_parts(nodes: Sequence[str], links: Iterable[Link]) -> list[list[str]]:
    """The nodes in groups that links connect, each group and the list in the order of ``nodes``."""
    around: dict[str, list[str]] = {node: [] for node in nodes}
    for link in links:
        around[link.one].append(link.other)
        around[link.other].append(link.one)
    return components(nodes, around.__getitem__)


def can_match(part: Part | Chain, available: Collection[str]) -> bool:
    """Whether a pattern can have a match where only events of these types occur."""
    match part:
        case Leaf():
            return part.type in available
        case Negation():
            return True
        case Chain(anchor, steps):
            chosen = [anchor, *(step.leaf for step in steps if isinstance(step, Selection))]
            return all(leaf.type in available for leaf in chosen)
        case Disjunction(parts):
            return any(can_match(inner, available) for inner in parts)
        case _:
            return all(can_match(inner, available) for inner in part.parts)


def silent_rules(rules: Sequence[Rule], sourced: Iterable[str]) -> dict[str, list[str]]:
    """Rules that can never fire, by name, with the types they lack. ``rules`` come after those they read."""
    available = set(sourced)
    silent: dict[str, list[str]] = {}
    for rule in rules:
        if can_match(rule.pattern.root, available):
            available.add(rule.emits)
        else:
            lacking = dict.fromkeys(leaf.type for leaf in positive_leaves(rule.pattern.root))
            silent[rule.name] = [name for name in lacking if name not in available]
    return silent


def readers_of_nothing(rules: Sequence[Rule], sourced: Iterable[str]) -> dict[str, list[str]]:
    """Types without a source or rule that emits them, which rules that can fire read in a negation, an aggregate or one
    of several branches.

    By type, with the names of those rules.
    """
    available = set(sourced)
    silent = silent_rules(rules, available)
    available |= {rule.emits for rule in rules if rule.name not in silent}
    readers: dict[str, list[str]] = {}
    for rule in rules:
        if rule.name not in silent:
            for name in dict.fromkeys(leaf.type for leaf in leaves(rule.pattern.root)):
                if name not in available:
                    readers.setdefault(name, []).append(rule.name)
    return readers


def shared_identities(sources: Sequence[tuple[T, Feed | None]]) -> Iterator[tuple[T, T]]:
    """Sources that give the events of one message the identity that an earlier one gives them, each with that one."""
    first_sources: dict[tuple[str, str, str | None], T] = {}
    for source, feed in sources:
        if isinstance(feed, MqttFeed) and feed.device is not None:
            key = topic_filter(feed.topic), feed.device, feed.counter
            if key in first_sources:
                yield source, first_sources[key]
            first_sources.setdefault(key, source)


def counts_events(rule: Rule) -> bool:
    """Whether the outermost window is a number of events, which only one place that sees them all can count."""
    window = getattr(rule.pattern.root, "window", None)
    return window is not None and window.unit == "events"
