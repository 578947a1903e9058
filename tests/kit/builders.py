"""Short ways to write rules, traces and expected matches in tests.

    found = matches(rule(seq("A a", "B b", within=5)), "A@0 B@4 B@6")
    assert found == ["A@0 B@4"]

A trace is a string of events ``Type@ts(attribute=value,..)/node``; attributes and node may be left out. An event is
named in matches by its ``Type@ts`` (and ``/node`` where given), a composite part by its own parts in brackets. Events
of one node are numbered in the order of the string, so the string also says how ties at one node are ordered.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.protocol import expressions as ex
from headwater.protocol import pattern as pt
from headwater.protocol.composites import Composite
from headwater.protocol.events import Event, EventType
from tests.oracle import Found, evaluate

TYPES: Mapping[str, EventType] = {
    name: EventType(name, {"id": "int", "v": "int", "w": "float?", "s": "string?"}) for name in "ABCDE"
}

# -- patterns ----------------------------------------------------------------------------------------------------------

PartOrText = Any  # a part of a pattern, or "Type role" for a leaf


def leaf(text: PartOrText) -> Any:
    if not isinstance(text, str):
        return text
    kind, role = text.split()
    return pt.Leaf(role, kind)


def window(within: int | None, bounds: str, events: int | None) -> pt.Window | None:
    if events is not None:
        return pt.Window(events, "events")
    return None if within is None else pt.Window(within, "us", bounds)  # type: ignore[arg-type]


def seq(*parts: PartOrText, within: int | None = None, bounds: str = "ends", events: int | None = None) -> pt.Sequence:
    return pt.Sequence(tuple(map(leaf, parts)), window(within, bounds, events))


def both(
    *parts: PartOrText, within: int | None = None, bounds: str = "ends", events: int | None = None
) -> pt.Conjunction:
    """AND."""
    return pt.Conjunction(tuple(map(leaf, parts)), window(within, bounds, events))


def either(*parts: PartOrText) -> pt.Disjunction:
    """OR."""
    return pt.Disjunction(tuple(map(leaf, parts)))


def no(part: PartOrText) -> pt.Negation:
    return pt.Negation(leaf(part))


def many(*parts: PartOrText, limit: int | None = None) -> pt.Repetition:
    return pt.Repetition(tuple(map(leaf, parts)), limit)


def chain(anchor: PartOrText, *steps: pt.Step) -> pt.Chain:
    return pt.Chain(leaf(anchor), steps)


def each(part: PartOrText, within: int, of: str) -> pt.Selection:
    return pt.Selection(leaf(part), "each", pt.Within(within, of))


def last(part: PartOrText, within: int, of: str, count: int = 1) -> pt.Selection:
    return pt.Selection(leaf(part), "last", pt.Within(within, of), count)


def first(part: PartOrText, within: int, of: str, count: int = 1) -> pt.Selection:
    return pt.Selection(leaf(part), "first", pt.Within(within, of), count)


def absent(part: PartOrText, within: int | None = None, of: str = "", between: str = "") -> pt.Absence:
    return pt.Absence(leaf(part), reach(within, of, between))


def aggregate(
    name: str,
    function: str,
    part: PartOrText,
    attribute: str | None = None,
    within: int | None = None,
    of: str = "",
    between: str = "",
) -> pt.Aggregate:
    return pt.Aggregate(name, function, leaf(part), attribute, reach(within, of, between))


def reach(within: int | None, of: str, between: str) -> pt.Within | pt.Between:
    if within is not None:
        return pt.Within(within, of)
    one, other = between.split()
    return pt.Between(one, other)


# -- expressions -------------------------------------------------------------------------------------------------------

NUMBER = re.compile(r"-?\d+(\.\d+)?")


def term(text: Any) -> ex.Expression:
    """``a.v``, ``b[i-1].v``, ``b[first].v``, ``sum(b.v)``, ``count(b)``, ``$p``, ``7``, ``'x'``."""
    if not isinstance(text, str):
        return text if isinstance(text, ex.Expression) else ex.Constant(text)
    if NUMBER.fullmatch(text):
        return ex.Constant(float(text) if "." in text else int(text))
    if text.startswith("'"):
        return ex.Constant(text.strip("'"))
    if text.startswith("$"):
        return ex.Parameter(text[1:])
    if fold := re.fullmatch(r"(\w+)\((\w+)(?:\.(\w+))?\)", text):
        return ex.Fold(fold[1], fold[2], fold[3])
    named = re.fullmatch(r"(\w+)(?:\[(i-1|first|last)\])?\.(\w+)", text)
    assert named, f"not a term: {text!r}"
    return ex.Attribute(named[1], named[3], named[2] or "")  # type: ignore[arg-type]


def cond(text: str) -> ex.Expression:
    """A comparison ``term operator term``, where a term may also be ``term + term`` and the like."""
    left, operator, right = re.split(r" (=|!=|<=?|>=?) ", text)
    return ex.Binary(operator, arithmetic(left), arithmetic(right))


def arithmetic(text: str) -> ex.Expression:
    parts = text.split(" ")
    made = term(parts[0])
    for operator, right in zip(parts[1::2], parts[2::2], strict=True):
        made = ex.Binary(operator, made, term(right))
    return made


def same(name: str) -> ex.Same:
    return ex.Same(ex.Attribute("", name))


def rule(
    root: pt.Part | pt.Chain,
    *where: str | ex.Expression,
    name: str = "r",
    emits: str = "X",
    skip: str = "any",
    out: Mapping[str, str] | None = None,
    version: int = 1,
) -> pt.Rule:
    conjuncts = tuple(cond(c) if isinstance(c, str) else c for c in where)
    outputs = tuple(pt.OutputAttribute(n, "any", arithmetic(text)) for n, text in (out or {}).items())
    return pt.Rule(name, pt.Pattern(root, conjuncts, skip), emits, outputs, version)  # type: ignore[arg-type]


# -- traces ------------------------------------------------------------------------------------------------------------

EVENT = re.compile(r"(?P<type>\w+)@(?P<ts>\d+)(?:\((?P<values>[^)]*)\))?(?:/(?P<node>\w+))?")


@dataclass(frozen=True)
class Trace:
    events: tuple[Event, ...]
    names: Mapping[tuple[str, int], str]


def trace(text: str) -> Trace:
    """The events of the string and the names by which matches speak of them."""
    events: list[Event] = []
    names: dict[tuple[str, int], str] = {}
    for token in text.split():
        read = EVENT.fullmatch(token)
        assert read, f"not an event: {token!r}"
        values: dict[str, Any] = {"id": 0, "v": 0}
        for pair in filter(None, (read["values"] or "").split(",")):
            attribute, given = pair.split("=")
            constant = term(given)
            assert isinstance(constant, ex.Constant)
            values[attribute] = constant.value
        node = read["node"] or "n"
        seq_number = sum(event.node == node for event in events)
        events.append(Event(TYPES[read["type"]], int(read["ts"]), node, seq_number, values))
        name = f"{read['type']}@{read['ts']}" + (f"/{read['node']}" if read["node"] else "")
        while name in names.values():
            name += "'"  # a second event of this type and ts is A@1', a third A@1''
        names[node, seq_number] = name
    return Trace(tuple(events), names)


# -- evaluation --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Match:
    """A composite event in the words of the test; a whole list of them compares with the list of their texts."""

    text: str
    rule: str
    id: str
    ts: int
    start: int
    end: int
    attributes: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        return self.text == (other.text if isinstance(other, Match) else other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return repr(self.text)


Rules = pt.Rule | Sequence[pt.Rule]
Evaluator = Callable[..., list[Match]]


def by_oracle(rules: Rules, text: str, remote: Mapping[str, Any] | None = None) -> list[Match]:
    given = trace(text)
    found = evaluate(listed(rules), given.events, TYPES.values(), None, remote)
    by_id = {match.id: match for match in found}

    def name(identity: Any) -> str:
        if isinstance(identity, tuple):
            return given.names[identity]
        return "(" + wording(by_id[identity]) + ")"

    def wording(match: Found) -> str:
        return " ".join(name(identity) for _, identity in match.parts)

    return [Match(wording(m), m.rule, m.id, m.ts, m.start[0], m.end[0], m.attributes) for m in found]


def by_engine(rules: Rules, text: str, remote: Mapping[str, Any] | None = None) -> list[Match]:
    return engine_run(rules, trace(text), remote, lambda events: [events])


def by_engine_shuffled(rules: Rules, text: str, remote: Mapping[str, Any] | None = None) -> list[Match]:
    def one_by_one(events: list[Event]) -> list[list[Event]]:
        shuffled = events + events[::2]  # some twice
        random.Random(text).shuffle(shuffled)
        return [[event] for event in shuffled]

    return engine_run(rules, trace(text), remote, one_by_one)


def engine_run(
    rules: Rules, given: Trace, remote: Any, batches: Callable[[list[Event]], list[list[Event]]]
) -> list[Match]:
    from headwater.node.engine import Engine

    engine = Engine(listed(rules), tuple(TYPES.values()), remote=remote)
    composites: list[Any] = []
    for batch in batches(list(given.events)):
        composites += engine.feed(batch)
    composites += engine.close()

    def wording(composite: Composite) -> str:
        return " ".join(
            "(" + wording(part) + ")" if isinstance(part, Composite) else given.names[part.node, part.seq]
            for _, part in composite.events
        )

    return [
        Match(wording(c), c.rule, c.id, c.ts, c.start[0], c.end[0], c.attributes)
        for c in sorted(composites, key=lambda c: c.key)
    ]


def listed(rules: Rules) -> list[pt.Rule]:
    return [rules] if isinstance(rules, pt.Rule) else list(rules)


EVALUATORS: Mapping[str, Evaluator] = {
    "oracle": by_oracle,
    "engine": by_engine,
    "engine, shuffled": by_engine_shuffled,
}
