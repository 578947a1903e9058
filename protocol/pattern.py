"""Patterns and rules: the one form that both languages are parsed into and that everything else works on.

A pattern is either an operator tree (SASE, INEv, CED) or a chain (TESLA); its predicates are a flat set of conjuncts.
The meaning of every operator is defined over the global trace in docs/guide/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headwater.protocol.expressions import Expression

Policy = Literal["each", "last", "first"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One event of a type, bound to a role. Role names are unique within a pattern."""

    role: str
    type: str


@dataclass(frozen=True, slots=True)
class Window:
    """A bound on how far apart the parts of an operator lie.

    ``unit`` "us": ``bounds`` "span" limits the time from the earliest to the latest primitive of the operator (the
    outermost SASE window), "ends" the time between the ends of the operator's parts (inner windows, and all of CED's).
    ``unit`` "events" (outermost only): at most ``length`` events of the pattern's own types, before any constraint,
    from the earliest part to the latest, both included.
    """

    length: int
    unit: Literal["us", "events"] = "us"
    bounds: Literal["span", "ends"] = "ends"


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts in order: the end of each precedes the start of the next."""

    parts: tuple[Part, ...]
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Conjunction:
    """All parts, in any order."""

    parts: tuple[Part, ...]
    window: Window | None = None


@dataclass(frozen=True, slots=True)
class Disjunction:
    """One of the parts; the roles of the others stay unbound. Holds no negation at any depth."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """No such event (or match of a positive sub-pattern) in its range. Stands directly in a Sequence or Conjunction.

    The sub-pattern holds neither negation nor repetition. A match of it counts by its end.
    """

    part: Part


@dataclass(frozen=True, slots=True)
class Repetition:
    """One or more in key order: a single leaf (``B+ b[]``) or a group in sequence (``(A a, B b)+``).

    ``limit``: with more candidates than this in range, the choice of the other parts gives no match; leaves only.
    """

    parts: tuple[Leaf, ...]
    limit: int | None = None


Part = Leaf | Sequence | Conjunction | Disjunction | Negation | Repetition


@dataclass(frozen=True, slots=True)
class Within:
    """Before ``origin`` and at most ``length_us`` earlier: the TESLA range ``within T from F``."""

    length_us: int
    origin: str


@dataclass(frozen=True, slots=True)
class Between:
    """Strictly between the ends of two roles, whichever comes first."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Selection:
    """``each|last|first|n-last|n-first E within T from F``; ``count`` is the n."""

    leaf: Leaf
    policy: Policy
    within: Within
    count: int = 1


@dataclass(frozen=True, slots=True)
class Absence:
    """``not E within T from F`` or ``not E between F and G``."""

    leaf: Leaf
    range: Within | Between


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The value of a function over all events in a range; other expressions name it as Parameter(name).

    ``attribute`` is None only for count. ``function`` is one of headwater.protocol.expressions.FOLDS.
    """

    name: str
    function: str
    leaf: Leaf
    attribute: str | None
    range: Within | Between


Step = Selection | Absence | Aggregate


@dataclass(frozen=True, slots=True)
class Chain:
    """A TESLA pattern: everything lies before the anchor; steps choose in the order of the text."""

    anchor: Leaf
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Pattern:
    """Operators, predicates and skip policy. ``where`` is a set: kept sorted, so that equal patterns compare equal.

    In a chain every conjunct belongs to the step that introduces the last of its roles and parameters: it constrains
    what a selection, an absence or an aggregate looks at, and where an aggregate's own value is the last, it accepts or
    rejects the match. ``skip`` is "next" for SKIP TILL NEXT MATCH (trees of Sequence and Disjunction only).
    """

    root: Part | Chain
    where: tuple[Expression, ...] = ()
    skip: Literal["any", "next"] = "any"

    def __post_init__(self) -> None:
        ordered = tuple(sorted(set(self.where), key=repr))
        object.__setattr__(self, "where", ordered)


@dataclass(frozen=True, slots=True)
class OutputAttribute:
    """One attribute of a composite event: its kind ("any" where unknown) and the expression that gives its value."""

    name: str
    kind: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Rule:
    """A named pattern and the composite event that each of its matches is."""

    name: str
    pattern: Pattern
    emits: str
    attributes: tuple[OutputAttribute, ...] = ()
    version: int = 1


def leaves(part: Part | Chain) -> Iterator[Leaf]:
    """All leaves in pattern order (the order of the text), negated and aggregated ones included."""
    match part:
        case Leaf():
            yield part
        case Negation(inner):
            yield from leaves(inner)
        case Chain(anchor, steps):
            yield anchor
            for step in steps:
                yield step.leaf
        case _:
            for inner in part.parts:
                yield from leaves(inner)


def positive_leaves(part: Part | Chain) -> Iterator[Leaf]:
    """The leaves whose events are parts of a match, in pattern order."""
    match part:
        case Leaf():
            yield part
        case Negation():
            return
        case Chain(anchor, steps):
            yield anchor
            for step in steps:
                if isinstance(step, Selection):
                    yield step.leaf
        case _:
            for inner in part.parts:
                yield from positive_leaves(inner)


def repeated_roles(part: Part | Chain) -> frozenset[str]:
    """Roles that bind several events."""
    match part:
        case Leaf() | Chain() | Negation():
            return frozenset()
        case Repetition(parts):
            return frozenset(leaf.role for leaf in parts)
        case _:
            return frozenset().union(*(repeated_roles(inner) for inner in part.parts))


def types_of(pattern: Pattern) -> frozenset[str]:
    """The event types the pattern reads."""
    return frozenset(leaf.type for leaf in leaves(pattern.root))


def waits_through(rule: Rule, rules: Iterable[Rule]) -> bool:
    """Whether what follows may still decide about a match of the rule, or about a composite that it reads."""
    all_rules = tuple(rules)
    read = types_of(rule.pattern)
    return may_wait(rule) or any(waits_through(other, all_rules) for other in all_rules if other.emits in read)


def may_wait(rule: Rule) -> bool:
    """Whether what follows the last part of a match may still decide about it."""

    def look(part: Part) -> bool:
        if isinstance(part, Negation) or (isinstance(part, Repetition) and part.limit is not None):
            return True
        return any(look(inner) for inner in getattr(part, "parts", ()))

    root = rule.pattern.root
    return not isinstance(root, Chain) and (rule.pattern.skip == "next" or look(root))
