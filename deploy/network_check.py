"""What can be wrong between the parts of a network although each of them is right."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Any, Final

from protocol.expressions import Attribute, Binary, Constant, Expression
from protocol.network import Link
from protocol.pattern import Chain, Disjunction, Leaf, Negation, Part, Rule, Selection, leaves, positive_leaves


def connected_parts(nodes: Sequence[str], links: Iterable[Link]) -> list[list[str]]:
    """The nodes in groups that links connect, each group and the list in the order of ``nodes``."""
    around: dict[str, list[str]] = {node: [] for node in nodes}
    for link in links:
        around[link.one].append(link.other)
        around[link.other].append(link.one)
    seen: set[str] = set()
    parts = []
    for node in nodes:
        if node in seen:
            continue
        seen.add(node)
        waiting, part = [node], {node}
        while waiting:
            for other in around[waiting.pop()]:
                if other not in seen:
                    seen.add(other)
                    part.add(other)
                    waiting.append(other)
        parts.append([each for each in nodes if each in part])
    return parts


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
    """Types that rules which can fire read, in a negation, an aggregate or one of several branches, and nobody emits.

    By type, with the names of those rules.
    """
    available = set(sourced)
    silent = silent_rules(rules, available)
    available |= {rule.emits for rule in rules if rule.name not in silent}
    found: dict[str, list[str]] = {}
    for rule in rules:
        if rule.name not in silent:
            for name in dict.fromkeys(leaf.type for leaf in leaves(rule.pattern.root)):
                if name not in available:
                    found.setdefault(name, []).append(rule.name)
    return found


def counts_events(rule: Rule) -> bool:
    """Whether the outermost window is a number of events, which only one place that sees them all can count."""
    window = getattr(rule.pattern.root, "window", None)
    return window is not None and window.unit == "events"


def contradiction(where: Iterable[Expression], roles: Collection[str]) -> str | None:
    """Two conditions on one attribute of one of these roles that no value meets, in words; None if none is found."""
    found: dict[tuple[str, str], list[tuple[str, Any]]] = {}
    for conjunct in where:
        match conjunct:
            case Binary(operator, Attribute(role, name, ""), Constant(value)) if operator in _BOUNDS and role in roles:
                found.setdefault((role, name), []).append((operator, value))
            case Binary(operator, Constant(value), Attribute(role, name, "")) if operator in _BOUNDS and role in roles:
                found.setdefault((role, name), []).append((_BOUNDS[operator], value))
    for (_, name), bounds in found.items():
        for one, other in combinations(bounds, 2):
            if not _can_both_hold(one, other):
                return f"{name} {one[0]} {one[1]!r} and {name} {other[0]} {other[1]!r}"
    return None


_BOUNDS: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Comparisons that are looked at, each with its mirror image."""


def _can_both_hold(*bounds: tuple[str, Any]) -> bool:
    kinds = {str if isinstance(value, str) else float for _, value in bounds if isinstance(value, str | int | float)}
    if len(kinds) != 1 or any(value is None for _, value in bounds):
        return True  # values that cannot be compared are somebody else's mistake
    lows = [(value, operator == ">") for operator, value in bounds if operator in (">", ">=", "=")]
    highs = [(value, operator == "<") for operator, value in bounds if operator in ("<", "<=", "=")]
    return not any(low > high or (low == high and (above or below)) for low, above in lows for high, below in highs)
