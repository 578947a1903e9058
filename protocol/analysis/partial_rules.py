"""Partial rules: what a node asks a neighbour to evaluate that sees only some of the events a rule needs.

A partial rule is a filter. The node that evaluates it forwards the bare events of its matches, and the node above
evaluates its own pattern again on what arrives. It is fully determined by the rule and the roles it covers, so a node
can split what it was given again for those below. ``protocol.analysis.projection`` decides which roles one may combine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from headwater.protocol.languages.print_sase import print_sase
from headwater.protocol.languages.print_tesla import print_tesla
from headwater.protocol.languages.printing import PrintError
from headwater.protocol.pattern import Chain, Pattern, Rule, leaves


@dataclass(frozen=True, slots=True)
class Contest:
    """A role that is chosen by last or first, here or further up: losing candidates must be heard of, too.

    A *candidate* is an event that meets the conjuncts over this role alone. One that is not forwarded goes up as a
    blocker if the node forwards (for any part of the same rule) an earlier candidate, for "first" a later one, at most
    ``window_us`` away from it; and no later than that one.
    """

    role: str
    policy: Literal["last", "first"]
    window_us: int


@dataclass(frozen=True, slots=True)
class PartialRule:
    """Some roles of a rule, in the order of the text, and the pattern that events in these roles must meet.

    Every match of the rule, kept to these roles, is a match of the pattern.
    """

    rule: Rule
    roles: tuple[str, ...]
    pattern: Pattern
    contests: tuple[Contest, ...] = ()

    @property
    def types(self) -> frozenset[str]:
        """The event types it reads."""
        return frozenset(leaf.type for leaf in leaves(self.pattern.root))

    @property
    def single(self) -> bool:
        """It looks at each event by itself and withholds none that meets the conjuncts over its role alone."""
        return len(self.roles) == 1

    def label(self) -> str:
        """The pattern on one line, in the words of the language it was written in."""
        named = Rule("partial", self.pattern, "partial")
        try:
            if isinstance(self.pattern.root, Chain):
                _, text = print_tesla(replace(named, emits="Partial", name="Partial")).split("from ", 1)
            else:
                _, text = print_sase(named).split(": ", 1)
        except PrintError:
            # Rules that were built in Python may hold what no text can say, such as a window of no length.
            return f"{', '.join(f'{leaf.type} {leaf.role}' for leaf in leaves(self.pattern.root))} of {self.rule.name}"
        return " ".join(text.split())
