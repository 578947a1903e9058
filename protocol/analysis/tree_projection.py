"""Projections of trees of SEQ, AND, OR, negation and repetition: the operators and windows that some roles keep.

``protocol.analysis.projection`` says what a projection must let through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.pattern import (
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Pattern,
    Repetition,
    Sequence,
    Window,
)


def tree_component(pattern: Pattern, root: Part, roles: set[str]) -> set[str]:
    """The roles that one partial rule may combine: parts of every match, if something bounds them."""
    if pattern.skip == "next":
        return set()
    joinable = {role for role in _parts_of_every_match(root) if role in roles}
    return joinable if len(joinable) > 1 and projected_root(root, joinable) is not None else set()


def _parts_of_every_match(part: Part) -> Iterable[str]:
    match part:
        case Leaf(role):
            return (role,)
        case Repetition((leaf,), None):
            return (leaf.role,)
        case Sequence(parts) | Conjunction(parts):
            return [role for inner in parts for role in _parts_of_every_match(inner)]
        case Repetition() | Disjunction() | Negation():
            return ()


def projected_root(root: Part, roles: set[str]) -> Part | None:
    """The tree kept to these roles; None if its windows then do not bound how long its events must be remembered."""
    kept, _ = _projected_part(_flattened(root), roles)
    if not isinstance(kept, Sequence | Conjunction):
        return None
    window = getattr(root, "window", None)
    if isinstance(window, Window) and window.bounds == "span" and kept.window != window:
        # The operator that held the window fell away, because only one of its parts is left.
        kept = replace(kept, window=window) if kept.window is None else Sequence((kept,), window)
    return None if kept.window is None or any(operators_without_bound(kept)) else kept


def _flattened(part: Part) -> Part:
    """SEQs without a window dissolve into the SEQ around them; only then are the parts of a window the right ones."""
    if not isinstance(part, Sequence | Conjunction):
        return part
    inside: list[Part] = []
    for inner in map(_flattened, part.parts):
        if isinstance(part, Sequence) and isinstance(inner, Sequence) and inner.window is None:
            inside += inner.parts
        else:
            inside.append(inner)
    return replace(part, parts=tuple(inside))


def _projected_part(part: Part, roles: set[str]) -> tuple[Part | None, bool]:
    """What is left of a part, and whether the end of what is left is always the end of the part."""
    match part:
        case Leaf(role):
            return (part, True) if role in roles else (None, False)
        case Repetition((leaf,), None):
            # Any element of the repetition; only the last one would be its end.
            return (leaf, False) if leaf.role in roles else (None, False)
        case Sequence() | Conjunction():
            return _projected_operator(part, roles)
    return None, False


def _projected_operator(part: Sequence | Conjunction, roles: set[str]) -> tuple[Part | None, bool]:
    positive = [inner for inner in part.parts if not isinstance(inner, Negation)]
    projected = [_projected_part(inner, roles) for inner in positive]
    left = [kept for kept, _ in projected if kept is not None]
    if not left:
        return None, False
    exact = projected[-1][1] if isinstance(part, Sequence) else all(same_end for _, same_end in projected)
    if len(left) == 1:
        return left[0], exact
    return replace(part, parts=_spliced(part, left), window=_kept_window(part, positive, projected)), exact


def _kept_window(
    part: Sequence | Conjunction, positive: Iterable[Part], projected: list[tuple[Part | None, bool]]
) -> Window | None:
    if part.window is None or part.window.bounds == "span":
        return part.window
    for inner, (kept, same_end) in zip(positive, projected, strict=True):
        if kept is None:
            continue
        # Every element of a repetition that stands directly in the operator counts as a part of its own.
        if not same_end and not isinstance(inner, Repetition):
            return None
        if isinstance(part, Sequence) and isinstance(kept, Sequence) and kept.window is None:
            return None  # it would dissolve, and the window would then bound its parts, not its end
    return part.window


def _spliced(part: Sequence | Conjunction, inside: list[Part]) -> tuple[Part, ...]:
    flattened = _flattened(replace(part, parts=tuple(inside)))
    assert isinstance(flattened, Sequence | Conjunction)
    return flattened.parts
