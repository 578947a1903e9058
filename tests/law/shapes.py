"""What a generated pattern looks like: its roles, its limits, and which operators stand where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headwater.protocol.pattern import (
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Repetition,
    positive_leaves,
)
from headwater.protocol.pattern import Sequence as Seq
from tests.law.equal_values import Named


def has_lonely_limit(part: Any) -> bool:
    """Whether a repetition with a limit can be all of a match: the whole trace would then be its range."""
    match part:
        case Repetition(_, limit):
            return limit is not None
        case Disjunction(parts):
            return any(has_lonely_limit(inner) for inner in parts)
        case Seq(parts) | Conjunction(parts):
            positive = [inner for inner in parts if not isinstance(inner, Negation)]
            return len(positive) == 1 and has_lonely_limit(positive[0])
    return False


def without_limits(part: Any) -> Any:
    match part:
        case Repetition(parts):
            return Repetition(parts)
        case Seq(parts) | Conjunction(parts) | Disjunction(parts):
            return replace(part, parts=tuple(without_limits(inner) for inner in parts))
    return part


def named_roles(root: Part | Chain) -> list[Named]:
    """The roles of a pattern; of a chain only those of the parts of a match."""
    if isinstance(root, Chain):
        return [Named(leaf.role, leaf.type) for leaf in positive_leaves(root)]
    made: list[Named] = []
    counter = iter(range(100))

    def visit(part: Part, negation: int | None, in_or: bool) -> None:
        match part:
            case Leaf(role, kind):
                made.append(Named(role, kind, None, negation, in_or))
            case Repetition(parts):
                number = next(counter)
                made.extend(Named(leaf.role, leaf.type, number, negation, in_or) for leaf in parts)
            case Negation(inner):
                visit(inner, next(counter), in_or)
            case Disjunction(parts):
                for inner in parts:
                    visit(inner, negation, True)
            case _:
                for inner in part.parts:
                    visit(inner, negation, in_or)

    visit(root, None, False)
    return made


def places_in_sequence(parts: Sequence[Part], inside: str) -> Iterator[str]:
    """Where negations and repetitions stand."""
    positive = [i for i, part in enumerate(parts) if not isinstance(part, Negation)]
    for i, part in enumerate(parts):
        if isinstance(part, Negation):
            place = "leading" if i < positive[0] else "trailing" if i > positive[-1] else "middle"
            yield f"negation: {place}" + (" in an inner SEQ" if inside else "")
        elif isinstance(part, Repetition):
            yield f"repetition: {'last' if i == positive[-1] else 'not last'} in SEQ"


def note_operator(part: Any, features: set[str], skips: bool, inside: str = "") -> None:
    """Record which operators stand where."""
    prefix = "next: " if skips else ""
    match part:
        case Seq(parts):
            if inside:
                features.add(f"{prefix}SEQ in {inside}")
            features.update(f"{prefix}{place}" for place in places_in_sequence(parts, inside))
            for inner in parts:
                note_operator(inner, features, skips, "SEQ")
        case Conjunction(parts):
            if inside:
                features.add(f"{prefix}AND in {inside}")
            for inner in parts:
                if isinstance(inner, Negation):
                    features.add(f"{prefix}negation: in AND")
                note_operator(inner, features, skips, "AND")
        case Disjunction(parts):
            features.add(f"{prefix}OR in {inside}")
            for inner in parts:
                note_operator(inner, features, skips, "OR")
        case Repetition(parts, limit):
            features.add(f"{prefix}repetition" + (" of a group" if len(parts) > 1 else f" in {inside}"))
            if limit is not None:
                features.add(f"{prefix}repetition: limit")
