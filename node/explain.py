"""Why did my pattern not fire? A slow walk through a pattern, step by step, that counts what was turned away and why.

The walk binds the roles of a pattern in the order of the text and keeps every open match (up to a bound, which it
admits to have reached). It shares no code with the engine; how many matches there really are, the engine says.

A repeated role is walked as the set of its possible elements, not as every subset of them: what the walk calls one open
match may be many matches, or, where conditions tie the elements together, none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from node.engine import Engine
from node.explain_chain import ChainWalk
from node.explain_parts import OPEN_MATCHES_MAX, Branch, Miss, Misses, World
from node.explain_shape import alternatives, has_repetition
from node.explain_tree import TreeWalk
from node.expressions_eval import Row
from protocol.events import Event, EventType
from protocol.functions import Functions
from protocol.pattern import Chain, Rule, types_of
from protocol.remote import RemoteTable

BRANCHES_MAX: Final = 16  # combinations of OR branches that are walked


@dataclass(slots=True)
class Explanation:
    rule: str
    matches: int
    """The number of composite events, as the engine counts them."""
    branches: list[Branch]
    misses: list[Miss]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "matches": self.matches,
            "branches": [
                {"roles": list(branch.roles), "steps": [step.to_json() for step in branch.steps]}
                for branch in self.branches
            ],
            "nearest_misses": [
                {"steps": miss.steps, "events": list(miss.events), "reason": miss.reason} for miss in self.misses
            ],
            "notes": self.notes,
        }


def explain(
    rule: Rule,
    rules: Sequence[Rule],
    events: Iterable[Event],
    types: Iterable[EventType] = (),
    *,
    functions: Functions | None = None,
    remote: Mapping[str, RemoteTable] | None = None,
    near: int = 3,
) -> Explanation:
    """Explain one of the rules over a whole trace."""
    trace = list({event[1:3]: event for event in events}.values())
    named = types_of(rule.pattern)
    # Of a rule that reads no composite events only the number of its matches is needed: they may be too many to list.
    counted = not any(other.emits in named for other in rules)
    engine = Engine([rule] if counted else rules, types, functions=functions, remote=remote, count_only=counted)
    composites = [*engine.feed(trace), *engine.close()]
    rows: list[Row] = [tuple(event) for event in trace if event.type in named]
    rows += [composite.row() for composite in composites if composite.type in named]
    world = World(rows, functions or Functions(), remote or {})
    misses = Misses(near)
    notes: list[str] = []
    root = rule.pattern.root
    if isinstance(root, Chain):
        branches = [ChainWalk(root, rule.pattern.where, world, misses).run()]
    else:
        shapes = list(alternatives(root))
        if len(shapes) > BRANCHES_MAX:
            notes.append(f"{len(shapes)} combinations of OR branches; the first {BRANCHES_MAX} are shown")
        branches = [
            TreeWalk(shape, root, rule.pattern.where, rule.pattern.skip, world, misses).run()
            for shape in shapes[:BRANCHES_MAX]
        ]
        if rule.pattern.skip == "next" and len(shapes) > 1:
            notes.append("with SKIP TILL NEXT MATCH the branches of OR compete; each is shown as if it were alone")
        if has_repetition(root):
            notes.append("a repeated role is followed as the set of its possible elements, not as every choice of them")
    if any(step.capped for branch in branches for step in branch.steps):
        notes.append(f"more open matches than can be followed ({OPEN_MATCHES_MAX:,}): the numbers are a part of them")
    matches = (
        engine.counts()[rule.name] if counted else sum(1 for composite in composites if composite.rule == rule.name)
    )
    return Explanation(rule.name, matches, branches, misses.best(), notes)
