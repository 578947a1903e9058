"""Warnings about valid rules: likely slips, and patterns that are expensive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.deploy.cli.common import say
from headwater.node.explain.constant_conditions import certainties
from headwater.node.explain.steps import named
from headwater.protocol.analysis.validate import operators_without_bound
from headwater.protocol.languages import RuleSet
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Part,
    Pattern,
    Repetition,
    Rule,
    Selection,
    Within,
)
from headwater.protocol.pattern import Sequence as SequenceOf
from headwater.protocol.text import show_us


def warn_of_slips(rules: RuleSet) -> None:
    """Say what is allowed in these rules and rarely meant."""
    for warning in rules.warnings:
        say(str(warning))
    for rule in rules.rules:
        for certainty in certainties(rule.pattern.where):
            say(f"warning: {rule.name}: {certainty.sentence}; {certainty.cure}")


def warn_of_cost(rules: Iterable[Rule]) -> None:
    """Say which rules may keep, or find, more than a user wants."""
    for rule in rules:
        for part in operators_without_bound(rule.pattern.root):
            say(
                f"warning: {rule.name}: no window bounds how old the events of {show_part(part)} may be, so they are "
                f"kept for ever; give it a window of its own"
            )
        for part in unlimited_repetitions(rule.pattern):
            say(
                f"warning: {rule.name}: {show_part(part)} has a match for every choice of its events (2^n - 1 of n); "
                f"LIMIT n or SKIP TILL NEXT MATCH bounds them, and --count counts them without listing them"
            )


def unlimited_repetitions(pattern: Pattern) -> Iterator[Repetition]:
    """Repetitions of which every choice of events is a match of its own."""

    def inside(part: Part) -> Iterator[Repetition]:
        match part:
            case Repetition(_, limit):
                if limit is None:
                    yield part
            case Leaf() | Negation():
                return
            case _:
                for inner in part.parts:
                    yield from inside(inner)

    if pattern.skip == "any" and not isinstance(pattern.root, Chain):
        yield from inside(pattern.root)


def show_part(part: Part | Chain) -> str:
    """A pattern without its predicates."""
    match part:
        case Leaf():
            return named(part)
        case Chain(anchor, steps):
            return ", ".join([named(anchor), *map(_show_step, steps)])
        case Negation(inner):
            return f"not {show_part(inner)}"
        case Repetition(parts, limit):
            inside = ", ".join(named(leaf) for leaf in parts)
            most = f" (at most {limit} candidates)" if limit is not None else ""
            return f"{inside}+{most}" if len(parts) == 1 else f"({inside})+{most}"
        case SequenceOf(parts) | Conjunction(parts) | Disjunction(parts):
            name = {SequenceOf: "SEQ", Conjunction: "AND", Disjunction: "OR"}[type(part)]
            return f"{name}({', '.join(map(show_part, parts))})"


def _show_step(step: Selection | Absence | Aggregate) -> str:
    match step:
        case Selection(leaf, policy, within, count):
            return f"{policy if count == 1 else f'{count}-{policy}'} {named(leaf)} {_show_range(within)}"
        case Absence(leaf, bounds):
            return f"not {named(leaf)} {_show_range(bounds)}"
        case Aggregate(name, function, leaf, attribute, bounds):
            over = f"{leaf.type}.{attribute}" if attribute else leaf.type
            return f"${name} = {function}({over} {_show_range(bounds)})"


def _show_range(bounds: Within | Between) -> str:
    if isinstance(bounds, Within):
        return f"within {show_us(bounds.length_us)} from {bounds.origin}"
    return f"between {bounds.one} and {bounds.other}"
