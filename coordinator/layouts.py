"""Layouts: which roles of each rule are evaluated where; and what is left of one when it meets what may be divided.

A layout is a proposal. ``divided`` makes it one that keeps the law: roles that no partial rule may combine are read as
events instead, and nothing is split over nodes by a role of which each of them would see only its share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from protocol.errors import RuleError
from protocol.pattern import Chain, Conjunction, Leaf, Part, Rule, Selection, leaves
from protocol.pattern import Sequence as InSequence
from protocol.projection import check_divisible, joinable_components


@dataclass(frozen=True, slots=True)
class Stage:
    """Some roles of a rule, put together at one node, or at several that each have their own share of one role's
    events."""

    roles: frozenset[str]
    nodes: tuple[str, ...]
    split: str | None = None
    """The role of which each node reads only what is born there, by itself or in stages that are split in the same way.
    None: there is one node."""
    stages: tuple[int, ...] = ()
    """The stages of the same rule that it reads, by their positions; they come before it."""
    events: frozenset[str] = frozenset()
    """The roles whose events it reads as they are."""


RuleLayout = tuple[Stage, ...]
"""The stages of one rule; the last has all its roles."""

Layout = Mapping[str, RuleLayout]
"""By the name of the rule."""


def at_one_node(rule: Rule, node: str) -> RuleLayout:
    """Everything is evaluated at one node."""
    roles = frozenset(leaf.role for leaf in leaves(rule.pattern.root))
    return (Stage(roles, (node,), events=roles),)


def divided(rule: Rule, layout: RuleLayout, sources: Mapping[str, Sequence[str]]) -> RuleLayout:
    """The layout as it may be run. ``sources``: the nodes at which events of each type are born."""
    whole = at_one_node(rule, layout[-1].nodes[0])
    try:
        check_divisible(rule)
    except RuleError:
        return whole
    splitting = _splitting(rule, sources)
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    known: list[Stage] = []
    stands_for: list[tuple[tuple[int, ...], frozenset[str]]] = []
    """For each proposed stage those that take its place, and the roles that are read as events instead."""
    for position, stage in enumerate(layout):
        read = [stands_for[each] for each in stage.stages]
        stages = tuple(dict.fromkeys(each for found, _ in read for each in found))
        events = stage.events.union(*(found for _, found in read))
        is_last = position == len(layout) - 1
        groups = ((*stage.roles,),) if is_last else joinable_components(rule, stage.roles)
        made: list[int] = []
        passed: set[str] = set()
        for group in map(frozenset, groups):
            if len(group) == 1 and not is_last:
                passed |= group
                continue
            split = stage.split if stage.split in group & splitting else None
            inside = tuple(
                each
                for each in stages
                if known[each].roles <= group and (split not in known[each].roles or known[each].split == split)
            )
            brought = frozenset[str]().union(*(known[each].roles for each in inside))
            nodes = stage.nodes[:1] if split is None else tuple(sources[types[split]])
            made.append(len(known))
            known.append(Stage(group, nodes, split, inside, (group & events) | (group - brought)))
        stands_for.append((tuple(made), frozenset(passed)))
    found = _used(tuple(known))
    return whole if isinstance(rule.pattern.root, Chain) and _overlap(found) else found


def _used(stages: RuleLayout) -> RuleLayout:
    """The stages that the last one reads, directly or not, numbered anew."""
    needed = {len(stages) - 1}
    for position in range(len(stages) - 1, -1, -1):
        if position in needed:
            needed.update(stages[position].stages)
    number = {old: new for new, old in enumerate(sorted(needed))}
    return tuple(
        replace(stages[old], stages=tuple(number[each] for each in stages[old].stages)) for old in sorted(needed)
    )


def _splitting(rule: Rule, sources: Mapping[str, Sequence[str]]) -> set[str]:
    """Roles of which every match has exactly one event, whatever other events of the type there are; and the type has
    no other role."""
    root = rule.pattern.root
    if isinstance(root, Chain):
        each = [step.leaf.role for step in root.steps if isinstance(step, Selection) and step.policy == "each"]
        found = {root.anchor.role, *each}
    else:
        found = set(_always_there(root)) if rule.pattern.skip == "any" else set()
    types = [leaf.type for leaf in leaves(root)]
    return {
        leaf.role
        for leaf in leaves(root)
        if leaf.role in found and types.count(leaf.type) == 1 and sources.get(leaf.type)
    }


def _always_there(part: Part) -> list[str]:
    match part:
        case Leaf(role):
            return [role]
        case InSequence(parts) | Conjunction(parts):
            return [role for inner in parts for role in _always_there(inner)]
    return []


def _overlap(stages: RuleLayout) -> bool:
    """Whether some stage gets events of a role in two ways: it would see some whose other parts were withheld."""
    for stage in stages:
        brought = [*stage.events, *(role for each in stage.stages for role in stages[each].roles)]
        if len(brought) > len(set(brought)):
            return True
    return False
