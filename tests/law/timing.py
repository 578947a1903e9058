"""When the engine must emit a match: at once, or as soon as the watermark decides it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.protocol import pattern as pt
from tests.oracle import Found, all_items, items_in


@dataclass(frozen=True)
class Timing:
    """What is known of when a rule's matches are emitted.

    ``eager``: the pattern is monotone, so a match is out as soon as its parts are there (a composite part: as soon as
    it was emitted itself). Otherwise by watermark: ``exact`` if ``deciding_ts`` is the very moment, else it is only a
    moment before which nothing may be emitted. ``prompt``: all composites up to the watermark are out.
    """

    eager: bool
    exact: bool
    prompt: bool


def timings(rules: Sequence[pt.Rule]) -> dict[str, Timing]:
    made: dict[str, Timing] = {}
    waiting = list(rules)
    while waiting:
        for rule in list(waiting):
            read = [other for other in rules if other.emits in pt.types_of(rule.pattern)]
            if all(other.name in made for other in read):
                made[rule.name] = timing_of(rule, [made[other.name] for other in read])
                waiting.remove(rule)
    return made


def timing_of(rule: pt.Rule, read: Sequence[Timing]) -> Timing:
    root = rule.pattern.root
    inputs_prompt = all(timing.prompt for timing in read)
    if isinstance(root, pt.Chain):
        monotone = all(isinstance(step, pt.Selection) and step.policy == "each" for step in root.steps)
        return Timing(monotone, inputs_prompt, inputs_prompt)
    window = root.window  # type: ignore[union-attr]
    assert window is not None
    counting = window.unit == "events"
    limited = any(isinstance(part, pt.Repetition) and part.limit is not None for part in parts_of(root))
    negated = any(isinstance(part, pt.Negation) for part in parts_of(root))
    repeats = any(isinstance(part, pt.Repetition) for part in parts_of(root))
    skips = rule.pattern.skip == "next"
    if not (counting or limited or negated or skips):
        return Timing(True, inputs_prompt, inputs_prompt)
    intricate = counting or limited or (skips and repeats and (has_inner_operators(root) or bool(read)))
    waits = any(negation_waits(part) for part in parts_of(root)) or (skips and repeats) or counting or limited
    return Timing(False, inputs_prompt and not intricate, inputs_prompt and not waits)


def parts_of(part: Any) -> Iterator[Any]:
    yield part
    if isinstance(part, pt.Negation):
        yield from parts_of(part.part)
    for inner in getattr(part, "parts", ()):
        yield from parts_of(inner)


def has_inner_operators(root: Any) -> bool:
    return any(part is not root and isinstance(part, pt.Sequence | pt.Conjunction) for part in parts_of(root))


def negation_waits(operator: Any) -> bool:
    """Whether a negation in this operator looks past the parts of the match."""
    if isinstance(operator, pt.Conjunction):
        return any(isinstance(part, pt.Negation) for part in operator.parts)
    return isinstance(operator, pt.Sequence) and isinstance(operator.parts[-1], pt.Negation)


def deciding_ts(rule: pt.Rule, match: Found) -> int:
    """The watermark at which nothing can change the match any more."""
    root: Any = rule.pattern.root
    decided = match.ts
    if isinstance(root, pt.Chain) or root.window.unit == "events":
        return decided

    def visit(part: Any, owner: Any) -> None:
        nonlocal decided
        if not isinstance(part, pt.Sequence | pt.Conjunction | pt.Disjunction) or not items_in(
            part, dict(match.binding)
        ):
            return
        if getattr(part, "window", None) is not None:
            owner = part
        if negation_waits(part):
            inside = items_in(owner, dict(match.binding))
            decided = max(decided, min(item.start for item in inside)[0] + owner.window.length)
        for inner in part.parts:
            visit(inner, owner)

    visit(root, root)
    if rule.pattern.skip == "next" and not has_inner_operators(root):
        items = all_items(match.binding)
        latest = max(items, key=lambda item: item.own_key)
        if any(isinstance(bound, tuple) and latest in bound for bound in match.binding.values()):
            decided = max(decided, min(item.start for item in items)[0] + root.window.length)
    return decided
