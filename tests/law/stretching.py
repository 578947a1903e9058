"""Generated rules with every duration in them made longer.

The generator of rules counts in ticks; a network has delays in microseconds, so a tick must last a while.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headwater.protocol.expressions import Attribute, Binary, Constant, Expression
from headwater.protocol.pattern import Chain, Negation, Pattern, Rule, Selection, Window, Within


def stretched(rule: Rule, unit_us: int) -> Rule:
    """The rule with every duration in it so many times longer."""
    root = stretched_part(rule.pattern.root, unit_us)
    where = tuple(stretched_conjunct(conjunct, unit_us) for conjunct in rule.pattern.where)
    return replace(rule, pattern=Pattern(root, where, rule.pattern.skip))


def stretched_part(part: Any, unit_us: int) -> Any:
    match part:
        case Chain(anchor, steps):
            return Chain(anchor, tuple(stretched_part(step, unit_us) for step in steps))
        case Selection():
            return replace(part, within=stretched_part(part.within, unit_us))
        case Within(length_us, origin):
            return Within(length_us * unit_us, origin)
        case Negation(inner):
            return Negation(stretched_part(inner, unit_us))
        case Window():
            return replace(part, length=part.length * unit_us)
    changed: dict[str, Any] = {}
    if getattr(part, "window", None) is not None:
        changed["window"] = stretched_part(part.window, unit_us)
    if hasattr(part, "range"):
        changed["range"] = stretched_part(part.range, unit_us)
    if hasattr(part, "parts"):
        changed["parts"] = tuple(stretched_part(inner, unit_us) for inner in part.parts)
    return replace(part, **changed)


def stretched_conjunct(conjunct: Expression, unit_us: int) -> Expression:
    """Generated conjuncts speak of durations in one form: the difference of two timestamps against a constant."""
    match conjunct:
        case Binary(operator, Binary("-", Attribute(_, "ts"), Attribute(_, "ts")) as difference, Constant(int(ticks))):
            return Binary(operator, difference, Constant(ticks * unit_us))
    return conjunct
