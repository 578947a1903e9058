"""Query patterns over event types: their text, their projections, and the order they ask for.

A planner's pattern names every event type at most once and holds no attributes: what predicates do to rates is in the
selectivities. Operators are AND, SEQ, NSEQ (no match of the second part between the first and the third), KL (one or
more of a type) and OR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, Literal

from headwater.protocol.errors import ConfigError

Kind = Literal["AND", "SEQ", "NSEQ", "KL", "OR"]
KINDS: Final = ("AND", "SEQ", "NSEQ", "KL", "OR")

BRANCHES_MAX: Final = 64
"""A query with OR becomes one query per choice of branches; past this many the planner would drown in them."""


@dataclass(frozen=True, slots=True)
class Operator:
    kind: Kind
    parts: tuple[Pattern, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.parts))})"


Pattern = str | Operator
"""An event type by its name, or an operator over patterns."""


class PatternError(ConfigError):
    """A query that the planner cannot take, with what to write instead."""


# Text ---------------------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(r"\s*(?:([A-Za-z_][\w.]*)|([(),]))")


def parse(text: str) -> Pattern:
    """The pattern that ``SEQ(A, AND(B, C))`` writes; PatternError names the place where it cannot be read."""
    tokens = _tokens(text)
    pattern, after = _parse(text, tokens, 0)
    if after != len(tokens):
        raise PatternError(f"query {text!r}: nothing may follow the closing bracket, but {tokens[after]!r} does")
    return pattern


def _tokens(text: str) -> list[str]:
    tokens, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise PatternError(
                f"query {text!r}: cannot read {stripped[at:].strip()[:12]!r}; write operators and type names only, "
                "as in SEQ(A, AND(B, C))"
            )
        tokens.append(match[1] or match[2])
        at = match.end()
    return tokens


def _parse(text: str, tokens: list[str], at: int) -> tuple[Pattern, int]:
    if at >= len(tokens):
        raise PatternError(f"query {text!r} ends too early; a type or a closing bracket is missing")
    word = tokens[at]
    if word in ("(", ")", ","):
        raise PatternError(f"query {text!r}: a type or an operator must stand where {word!r} does")
    if at + 1 >= len(tokens) or tokens[at + 1] != "(":
        return word, at + 1
    kind = next((name for name in KINDS if name == word.upper()), None)
    if kind is None:
        raise PatternError(f"query {text!r}: unknown operator {word!r}; operators are {', '.join(KINDS)}")
    parts: list[Pattern] = []
    at += 2
    while True:
        part, at = _parse(text, tokens, at)
        parts.append(part)
        if at >= len(tokens):
            raise PatternError(f"query {text!r} ends too early; close the bracket of {kind}")
        at += 1
        if tokens[at - 1] == ")":
            break
        if tokens[at - 1] != ",":
            raise PatternError(f"query {text!r}: a comma must stand before {tokens[at - 1]!r}")
    return Operator(kind, tuple(parts)), at


# Reading ------------------------------------------------------------------------------------------------------------


def leaves(pattern: Pattern) -> Iterator[str]:
    """The event types from left to right, negated and repeated ones included."""
    if isinstance(pattern, str):
        yield pattern
    else:
        for part in pattern.parts:
            yield from leaves(part)


def negated(pattern: Pattern) -> frozenset[str]:
    """The types that must not occur."""
    if isinstance(pattern, str):
        return frozenset()
    below = frozenset().union(*map(negated, pattern.parts))
    return below | frozenset(leaves(pattern.parts[1])) if pattern.kind == "NSEQ" else below


def repeated(pattern: Pattern) -> frozenset[str]:
    """The types under a repetition (KL)."""
    if isinstance(pattern, str):
        return frozenset()
    below = frozenset().union(*map(repeated, pattern.parts))
    return below | frozenset(leaves(pattern)) if pattern.kind == "KL" else below


def without_repetitions(pattern: Pattern) -> Pattern:
    """Every repetition replaced by its type: what travels; repetitions are formed where the query ends."""
    if isinstance(pattern, str):
        return pattern
    if pattern.kind == "KL":
        return without_repetitions(pattern.parts[0])
    return Operator(pattern.kind, tuple(map(without_repetitions, pattern.parts)))


def guards(pattern: Pattern) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    """For every NSEQ: its negated types and those between which they must not occur."""
    if isinstance(pattern, str):
        return ()
    below = tuple(guard for part in pattern.parts for guard in guards(part))
    if pattern.kind != "NSEQ":
        return below
    left, middle, right = (frozenset(leaves(part)) for part in pattern.parts)
    return (*below, (middle, left | right))


def negation_closed(pattern: Pattern, types: frozenset[str]) -> bool:
    """Whether a projection to these types can be evaluated: a negated type comes with all that it lies between."""
    return all(not middle & types or (middle | around) <= types for middle, around in guards(pattern))


def project(pattern: Pattern, types: frozenset[str]) -> Pattern | None:
    """The pattern kept to some of its types: operators of one part fall away, an NSEQ without its negated part is SEQ.

    None where nothing remains. The types should be negation-closed, or be a single type.
    """
    if isinstance(pattern, str):
        return pattern if pattern in types else None
    kept = tuple(project(part, types) for part in pattern.parts)
    if pattern.kind == "NSEQ":
        if kept[1] is not None and kept[0] is not None and kept[2] is not None:
            return Operator("NSEQ", (kept[0], kept[1], kept[2]))
        if kept[1] is not None and kept[0] is None and kept[2] is None:
            return kept[1]
        kept = (kept[0], kept[2])
    parts = tuple(part for part in kept if part is not None)
    if not parts:
        return None
    if len(parts) == 1 and pattern.kind != "KL":
        return parts[0]
    return Operator("SEQ" if pattern.kind == "NSEQ" else pattern.kind, parts)


def same_as(pattern: Pattern) -> str:
    """A text that two patterns share exactly when one is the other with the parts of an AND in another order."""
    if isinstance(pattern, str):
        return pattern
    parts = [same_as(part) for part in pattern.parts]
    return f"{pattern.kind}({','.join(sorted(parts) if pattern.kind == 'AND' else parts)})"


@lru_cache(maxsize=100_000)
def order(pattern: Pattern) -> frozenset[tuple[str, str]]:
    """Which type must precede which, between positive types, transitively closed."""
    if isinstance(pattern, str):
        return frozenset()
    positive = pattern.parts[::2] if pattern.kind == "NSEQ" else pattern.parts
    pairs = set().union(*(order(part) for part in positive))
    if pattern.kind in ("SEQ", "NSEQ"):
        for at, left in enumerate(positive):
            for right in positive[at + 1 :]:
                pairs |= set(product(_positive(left), _positive(right)))
    return frozenset(pairs)


@lru_cache(maxsize=100_000)
def precedence(pattern: Pattern) -> frozenset[tuple[str, str]]:
    """Which type must precede which, with negated ones: they matter only between what they lie between."""
    if isinstance(pattern, str):
        return frozenset()
    pairs = set().union(*(precedence(part) for part in pattern.parts))
    if pattern.kind in ("SEQ", "NSEQ"):
        for at, left in enumerate(pattern.parts):
            for right in pattern.parts[at + 1 :]:
                pairs |= set(product(leaves(left), leaves(right)))
    return frozenset(pairs)


def _positive(pattern: Pattern) -> frozenset[str]:
    return frozenset(leaves(pattern)) - negated(pattern)


def serves(offered: Pattern, wanted: Pattern) -> bool:
    """Whether every match of ``wanted`` is among the matches of ``offered``, over the same types.

    What ``wanted`` asks for beyond that, more order, is checked where its events are put together.
    """
    if frozenset(leaves(offered)) != frozenset(leaves(wanted)):
        return False
    if negated(offered) or negated(wanted):
        return same_as(offered) == same_as(wanted)
    return order(offered) <= order(wanted)


# Taking in ----------------------------------------------------------------------------------------------------------


def branches(pattern: Pattern) -> Iterator[Pattern]:
    """The queries without OR whose matches together are those of the pattern."""
    if isinstance(pattern, str):
        yield pattern
        return
    if pattern.kind == "OR":
        for part in pattern.parts:
            yield from branches(part)
        return
    for parts in product(*(tuple(branches(part)) for part in pattern.parts)):
        yield Operator(pattern.kind, parts)


def checked(pattern: Pattern, name: str) -> list[Pattern]:
    """The query as the planners take it, split at OR; PatternError says what to change where they cannot."""
    _check_shape(pattern, name, below_repetition=False)
    simple_branches: list[Pattern] = []
    for branch in branches(pattern):
        if len(simple_branches) == BRANCHES_MAX:
            raise PatternError(
                f"query {name}: its ORs give more than {BRANCHES_MAX} alternatives; write fewer, or several queries"
            )
        simple_branches.append(_simple(branch))
    for branch in simple_branches:
        _check_types(branch, name)
    return simple_branches


def _check_shape(pattern: Pattern, name: str, *, below_repetition: bool) -> None:
    if isinstance(pattern, str):
        return
    if pattern.kind == "KL":
        if below_repetition:
            raise PatternError(f"query {name}: a repetition inside another finds nothing new; write one KL")
        if len(pattern.parts) != 1:
            raise PatternError(f"query {name}: KL repeats one event type; write KL(A), not {pattern}")
        if not isinstance(pattern.parts[0], str) and pattern.parts[0].kind != "KL":
            raise PatternError(
                f"query {name}: KL repeats one event type, not {pattern.parts[0]}; "
                "the planner places groups that repeat on no more than one node: leave this query to centr"
            )
    if pattern.kind == "NSEQ" and len(pattern.parts) != 3:
        raise PatternError(
            f"query {name}: NSEQ has three parts, the second negated; {pattern} has {len(pattern.parts)}"
        )
    if pattern.kind == "NSEQ" and (negated(pattern.parts[1]) or repeated(pattern.parts[1])):
        raise PatternError(f"query {name}: what NSEQ negates holds neither negation nor repetition; simplify {pattern}")
    if pattern.kind == "NSEQ" and any(_has_or(part) for part in pattern.parts[1:2]):
        raise PatternError(
            f"query {name}: an OR under negation means that none of its parts occurs, which cannot be split into "
            "several queries; give what is forbidden one event type of its own, or leave this query to centr"
        )
    for part in pattern.parts:
        _check_shape(part, name, below_repetition=below_repetition or pattern.kind == "KL")


def _has_or(pattern: Pattern) -> bool:
    return not isinstance(pattern, str) and (pattern.kind == "OR" or any(map(_has_or, pattern.parts)))


def _check_types(pattern: Pattern, name: str) -> None:
    seen: set[str] = set()
    for leaf in leaves(pattern):
        if leaf in seen:
            raise PatternError(
                f"query {name} names {leaf} twice; the planner tells events apart by their type: "
                f"give the second one a type of its own, or leave this query to centr"
            )
        seen.add(leaf)


def _simple(pattern: Pattern) -> Pattern:
    """Operators of a single part are that part."""
    if isinstance(pattern, str):
        return pattern
    parts = tuple(map(_simple, pattern.parts))
    return parts[0] if len(parts) == 1 and pattern.kind in ("AND", "SEQ") else Operator(pattern.kind, parts)


def subsets(pattern: Pattern) -> Iterator[frozenset[str]]:
    """The sets of two or more types that have a projection, small ones first."""
    types = tuple(dict.fromkeys(leaves(pattern)))
    forbidden = negated(pattern)
    for mask in sorted(range(1, 1 << len(types)), key=lambda mask: (mask.bit_count(), mask)):
        chosen = frozenset(types[at] for at in range(len(types)) if mask >> at & 1)
        if len(chosen) > 1 and not chosen <= forbidden and negation_closed(pattern, chosen):
            yield chosen


def listed(types: Iterable[str]) -> str:
    return ", ".join(sorted(types))
