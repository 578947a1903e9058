"""Generated cases as text: for people, and as Python that makes the case again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headwater.protocol.events import Event
from headwater.protocol.pattern import (
    Absence,
    Aggregate,
    Between,
    Chain,
    Conjunction,
    Disjunction,
    Leaf,
    Negation,
    Repetition,
    Rule,
    Selection,
    Within,
)
from headwater.protocol.pattern import Sequence as Seq
from tests.law.generators import Case


def describe(case: Case) -> str:
    """The case as text for people and as Python to paste into a test."""
    lines = [f"# seed {case.seed}"]
    for rule in case.rules:
        lines += ["# " + line for line in rule_text(rule).splitlines()]
    lines += ["from headwater.protocol.events import Event, EventType", "from headwater.protocol.expressions import *"]
    lines += [
        "from headwater.protocol.pattern import *",
        "from tests.law.generators import TYPES, Case, Sets, Table",
        "",
    ]
    lines += ["rules = ("] + [f"    {rule!r}," for rule in case.rules] + [")"]
    lines += ["events = ("] + [f"    {event_code(event)}," for event in case.events] + [")"]
    lines += ['case = Case(rules, events, remote={"table": Table(), "sets": Sets()})']
    return "\n".join(lines)


def event_code(event: Event) -> str:
    given = {name: value for name, value in event.attributes.items() if value is not None}
    return f"Event(TYPES[{event.type!r}], {event.ts}, {event.node!r}, {event.seq}, {given!r})"


def rule_text(rule: Rule) -> str:
    """The rule in one of the languages where one can say it, else a compact rendering."""
    try:
        from headwater.protocol.languages import print_rule

        return str(print_rule(rule, "tesla" if isinstance(rule.pattern.root, Chain) else "sase"))
    except Exception:
        where = " WHERE .." if rule.pattern.where else ""
        return f"{rule.name}: {sketch(rule.pattern.root)}{where} SKIP TILL {rule.pattern.skip.upper()} MATCH"


def sketch(part: Any) -> str:  # noqa: C901 - a table: one line for each kind of part
    """A pattern on one line, for people."""
    window = getattr(part, "window", None)
    suffix = f"; {window.length} {window.unit} {window.bounds}" if window else ""

    def inside(parts: Iterable[Any]) -> str:
        return ", ".join(sketch(p) for p in parts)

    match part:
        case Leaf(role, kind):
            return f"{kind} {role}"
        case Seq(parts):
            return f"SEQ({inside(parts)}{suffix})"
        case Conjunction(parts):
            return f"AND({inside(parts)}{suffix})"
        case Disjunction(parts):
            return f"OR({inside(parts)})"
        case Negation(inner):
            return f"!{sketch(inner)}"
        case Repetition(parts, limit):
            return f"({inside(parts)})+" + (f" LIMIT {limit}" if limit is not None else "")
        case Chain(anchor, steps):
            return " and ".join([sketch(anchor), *(sketch(step) for step in steps)])
        case Selection(leaf, policy, within, count):
            return f"{count}-{policy} {sketch(leaf)} {sketch(within)}"
        case Absence(leaf, reach):
            return f"not {sketch(leaf)} {sketch(reach)}"
        case Aggregate(name, function, leaf, attribute, reach):
            return f"${name} = {function}({sketch(leaf)}.{attribute} {sketch(reach)})"
        case Within(length, origin):
            return f"within {length} from {origin}"
        case Between(one, other):
            return f"between {one} and {other}"
    return repr(part)
