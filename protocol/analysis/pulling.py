"""Which roles of a rule may awaken others under push-pull, and which may stay at their node until a task pulls them.

A node that evaluates a rule may wait for the events of one role, the *master*, and ask for the others around each of
them. That is sound if every match contains an event of the master, and if the rule says how far from it the others can
lie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.pattern import Chain, Conjunction, Leaf, Negation, Part, Rule, Window, leaves, positive_leaves
from headwater.protocol.pattern import Sequence as InSequence


def masters(rule: Rule) -> tuple[str, ...]:
    """The roles that every match binds to one event, in the order of the text."""
    root = rule.pattern.root
    if isinstance(root, Chain):
        return tuple(leaf.role for leaf in positive_leaves(root))
    return tuple(always_bound(root))


def always_bound(part: Part) -> Iterator[str]:
    """The roles in a part that every match binds to one event."""
    match part:
        case Leaf(role):
            yield role
        case InSequence(parts) | Conjunction(parts):
            for inner in parts:
                yield from always_bound(inner)


def awakening_roles(rule: Rule) -> tuple[str, ...]:
    """The masters that can be told by their type: nothing else in the rule has it. Under skip-till-next there is none,
    since which event is next depends on all others."""
    if rule.pattern.skip != "any":
        return ()
    types = {leaf.role: leaf.type for leaf in leaves(rule.pattern.root)}
    uses = Counter(leaf.type for leaf in leaves(rule.pattern.root))
    return tuple(role for role in masters(rule) if uses[types[role]] == 1)


def pullable_roles(rule: Rule) -> frozenset[str]:
    """The roles whose events an event of any master bounds in time, on both sides."""
    window = getattr(rule.pattern.root, "window", None)
    counts = isinstance(window, Window) and window.unit == "events"
    if counts or any(operators_without_bound(rule.pattern.root)):
        return frozenset()
    return frozenset(leaf.role for leaf in leaves(rule.pattern.root)) - in_negated_patterns(rule)


def in_negated_patterns(rule: Rule) -> frozenset[str]:
    """Roles of negated sub-patterns of several: their matches are found as their parts come, in trace order."""
    roles: set[str] = set()

    def look(part: Part) -> None:
        if isinstance(part, Negation):
            inner = list(leaves(part.part))
            if len(inner) > 1:
                roles.update(leaf.role for leaf in inner)
        for inside in getattr(part, "parts", ()):
            look(inside)

    if not isinstance(rule.pattern.root, Chain):
        look(rule.pattern.root)
    return frozenset(roles)
