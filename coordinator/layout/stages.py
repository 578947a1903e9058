"""Layouts and their stages: which roles of each rule are evaluated where, and which of them may be divided.

A layout is a proposal. ``divided`` makes it one that keeps the law: roles that no partial rule may combine are read as
events instead, nothing is split over nodes by a role of which each of them would see only its share, and nothing waits
to be asked for unless the events that awaken it say where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.protocol.analysis.projection import beside_all_of, check_divisible, joinable_components, project
from headwater.protocol.analysis.pulling import always_bound, awakening_roles, pullable_roles
from headwater.protocol.errors import RuleError
from headwater.protocol.pattern import Chain, Rule, Selection, leaves


@dataclass(frozen=True, slots=True)
class Home:
    """Where a stage that is split goes if that turns out to cost more, and what part of what splits it each of its
    nodes was expected to have (by node; none: all the same)."""

    node: str
    shares: tuple[tuple[str, float], ...] = ()


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
    left_out: frozenset[tuple[int, str]] = frozenset()
    """Of a stage that it reads, a role whose events it does not get from there: it reads all of them as they are."""
    master: str | None = None
    """A role whose events awaken those that are pulled. It is pushed itself."""
    pulled: frozenset[str] = frozenset()
    """Of the roles that it reads as events those that stay where they are born until an event of the master asks for
    the window around it, with what its values exclude."""
    home: Home | None = None
    """For stages that are split: the one node that takes their place if need be (``coordinator.layout.fallback``)."""

    def taken(self, stage: int, roles: frozenset[str]) -> frozenset[str]:
        """Of the roles of a stage that it reads, those whose events come from that stage."""
        return frozenset(role for role in roles if (stage, role) not in self.left_out)


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
    runnable: list[Stage] = []
    stands_for: list[tuple[tuple[int, ...], frozenset[str]]] = []
    """For each proposed stage those that take its place, and the roles that are read as events instead."""
    for position, stage in enumerate(layout):
        read = [stands_for[below] for below in stage.stages]
        stages = tuple(dict.fromkeys(below for positions, _ in read for below in positions))
        events = stage.events.union(*(roles for _, roles in read))
        is_last = position == len(layout) - 1
        groups = ((*stage.roles,),) if is_last else joinable_components(rule, stage.roles)
        replacements: list[int] = []
        passed: set[str] = set()
        for group in map(frozenset, groups):
            if len(group) == 1 and not is_last:
                passed |= group
                continue
            split = stage.split if stage.split in group & splitting else None
            inside = tuple(
                below
                for below in stages
                if runnable[below].roles <= group
                and (split not in runnable[below].roles or runnable[below].split == split)
            )
            brought = frozenset[str]().union(*(runnable[below].roles for below in inside))
            nodes = stage.nodes[:1] if split is None else tuple(sources[types[split]])
            read_as_events = (group & events) | (group - brought)
            proposed = {
                (below, role) for old, role in stage.left_out for below in stands_for[old][0] if role in read_as_events
            }
            left_out: set[tuple[int, str]] = set()
            for below in inside:
                left_out |= _left_out(
                    below, runnable[below], split, {role for at, role in proposed if at == below}, types
                )
            inside = tuple(
                below for below in inside if any((below, role) not in left_out for role in runnable[below].roles)
            )
            left_out = {(below, role) for below, role in left_out if below in inside}
            replacements.append(len(runnable))
            home = stage.home if split is not None else None
            master, pulled = _awakened(rule, stage, read_as_events - {split}, group, types, sources)
            runnable.append(
                Stage(group, nodes, split, inside, read_as_events, frozenset(left_out), master, pulled, home)
            )
        stands_for.append((tuple(replacements), frozenset(passed)))
    used = _used(tuple(runnable))
    if isinstance(rule.pattern.root, Chain) and (_overlap(used) or not all(_selectable(rule, used))):
        return whole
    return used


def _left_out(
    number: int, stage: Stage, split: str | None, proposed: set[str], types: Mapping[str, str]
) -> set[tuple[int, str]]:
    """What a reader may do without. A type is sent for all its roles or for none; and what each node of a split stage
    takes from itself alone is not sent at all."""
    if split in stage.roles:
        return set()
    needed = {types[role] for role in stage.roles - proposed}
    return {(number, role) for role in proposed & stage.roles if types[role] not in needed}


def _awakened(
    rule: Rule,
    proposed: Stage,
    events: frozenset[str],
    group: frozenset[str],
    types: Mapping[str, str],
    sources: Mapping[str, Sequence[str]],
) -> tuple[str | None, frozenset[str]]:
    """Which of these events may wait until the proposed master asks for them, and the master if any may.

    A type waits for all its roles or for none: what comes for one of them would come for the others.
    """
    master = proposed.master
    if master not in group or master not in awakening_roles(rule):
        return None, frozenset()
    may = (proposed.pulled & events & pullable_roles(rule)) - {master}
    pushed = {types[role] for role in events - may}
    pulled = frozenset(role for role in may if types[role] not in pushed and sources.get(types[role]))
    return (master, pulled) if pulled else (None, pulled)


def heard_types(rule: Rule, stage: Stage, below: int, roles: frozenset[str]) -> tuple[str, ...]:
    """The types of a stage below that its reader gets otherwise."""
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    return tuple(sorted({types[role] for role in roles - stage.taken(below, roles)}))


def _selectable(rule: Rule, stages: RuleLayout) -> Iterator[bool]:
    """For each input, whether its reader can do without what is left out: a chain may need all that was
    put together to decide on what comes beside it."""
    for stage in stages:
        for below in stage.stages:
            heard = heard_types(rule, stage, below, stages[below].roles)
            yield not heard or beside_all_of(project(rule, stages[below].roles), heard) is not None


def _used(stages: RuleLayout) -> RuleLayout:
    """The stages that the last one reads, directly or not, renumbered."""
    needed = {len(stages) - 1}
    for position in range(len(stages) - 1, -1, -1):
        if position in needed:
            needed.update(stages[position].stages)
    number = {old: new for new, old in enumerate(sorted(needed))}
    return tuple(
        replace(
            stages[old],
            stages=tuple(number[below] for below in stages[old].stages),
            left_out=frozenset((number[below], role) for below, role in stages[old].left_out),
        )
        for old in sorted(needed)
    )


def _splitting(rule: Rule, sources: Mapping[str, Sequence[str]]) -> set[str]:
    """Roles of which every match has exactly one event, whatever other events of the type there are; and the type has
    no other role."""
    root = rule.pattern.root
    if isinstance(root, Chain):
        selected = [step.leaf.role for step in root.steps if isinstance(step, Selection) and step.policy == "each"]
        bound_once = {root.anchor.role, *selected}
    else:
        bound_once = set(always_bound(root)) if rule.pattern.skip == "any" else set()
    types = [leaf.type for leaf in leaves(root)]
    return {
        leaf.role
        for leaf in leaves(root)
        if leaf.role in bound_once and types.count(leaf.type) == 1 and sources.get(leaf.type)
    }


def _overlap(stages: RuleLayout) -> bool:
    """Whether some stage gets events of a role in two ways: it would see some whose other parts were withheld."""
    for stage in stages:
        brought = [*stage.events, *(role for below in stage.stages for role in stage.taken(below, stages[below].roles))]
        if len(brought) > len(set(brought)):
            return True
    return False
