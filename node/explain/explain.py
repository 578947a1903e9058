"""Explains why a pattern did not match: walks through it step by step and counts what was rejected, and why.

The walk binds the roles of a pattern in the order of the text. It looks at so many events for each rule and keeps so
many partial matches after each step; what it could not look at it says, and numbers are then marked as what there is at
least. It shares no code with the engine; how many matches there really are, the engine says.

A repeated role is walked as the set of its possible elements, not as every subset of them: what the walk calls one open
match may be many matches, or, where conditions tie the elements together, none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.node.engine import Engine
from headwater.node.engine.counting import TooManyChoices
from headwater.node.engine.runtime import TooManySubsets
from headwater.node.explain.chains import ChainWalk
from headwater.node.explain.expressions import Row
from headwater.node.explain.nearest_misses import Miss, Misses
from headwater.node.explain.shape import alternatives, has_repetition
from headwater.node.explain.steps import LOOKS_MAX, BranchReport, Budget, World
from headwater.node.explain.trees import TreeWalk
from headwater.protocol.errors import RuleError
from headwater.protocol.events import Event, EventType
from headwater.protocol.functions import Functions
from headwater.protocol.pattern import Chain, Rule, types_of
from headwater.protocol.remote import LookupTable

BRANCHES_MAX: Final = 16  # combinations of OR branches that are walked


COMPOSITES_MAX: Final = 50_000  # composite events of the rules that a rule reads that are looked at
FED_AT_ONCE: Final = 1_000  # events between two looks at how many composite events there are


@dataclass(slots=True)
class Explanation:
    rule: str
    matches: int | None
    """The number of composite events, as the engine counts them; None if they are too many even for that."""
    branches: list[BranchReport]
    misses: list[Miss]
    notes: list[str]

    @property
    def partial(self) -> bool:
        """Whether the walk has not looked at everything."""
        return any(step.partial for branch in self.branches for step in branch.steps)

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
    remote: Mapping[str, LookupTable] | None = None,
    near: int = 3,
    looks: int = LOOKS_MAX,
) -> Explanation:
    """Explain one of the rules over a whole trace. ``looks``: how often events may be compared with partial matches."""
    trace = list({event[1:3]: event for event in events}.values())
    named = types_of(rule.pattern)
    read = _read_by(rule, rules)
    notes: list[str] = []
    settings: dict[str, Any] = {"functions": functions, "remote": remote}
    matches = _count(Engine([rule, *read], types, count_only=True, **settings), rule.name, trace, notes)
    composites, number = _composites(Engine(read, types, **settings), named, trace) if read else ([], 0)
    if number > len(composites):
        notes.append(
            f"the rule reads {number:,} composite events; the first {len(composites):,} were looked at, as if there "
            "were no others"
        )
    rows: list[Row] = [tuple(event) for event in trace if event.type in named]
    world = World(rows + composites, functions or Functions(), remote or {})
    misses = Misses(near)
    walks = _walks(rule, world, misses, notes)
    world.budget = Budget(looks, sum(walk.steps for walk in walks))
    branches = [walk.run() for walk in walks]
    if number > len(composites):
        for branch in branches:
            for step in branch.steps:
                step.cut = True
    explanation = Explanation(rule.name, matches, branches, misses.best(), notes)
    if explanation.partial:
        notes.append(
            f"a rule is explained with at most {looks:,} looks at events, and not everything was looked at: what is "
            f'marked "at least" may be more; a shorter part of the trace shows all'
        )
    return explanation


def _read_by(rule: Rule, rules: Sequence[Rule]) -> list[Rule]:
    """The rules whose composite events the rule reads, directly or through others."""
    read: list[Rule] = []
    wanted = types_of(rule.pattern)
    while new := [other for other in rules if other.emits in wanted and other not in read and other is not rule]:
        read += new
        wanted = frozenset().union(*(types_of(other.pattern) for other in new))
    return [other for other in rules if other in read]


def _count(engine: Engine, rule: str, trace: Sequence[Event], notes: list[str]) -> int | None:
    try:
        engine.feed(trace)
        engine.close()
    except RuleError as error:
        if not isinstance(error.__cause__, TooManySubsets | TooManyChoices):
            raise
        notes.append(f"the matches cannot be counted: {error}")
        return None
    return engine.counts()[rule]


def _composites(engine: Engine, named: frozenset[str], trace: Sequence[Event]) -> tuple[list[Row], int]:
    """The composite events that a rule reads, the first of them if there are very many; and how many there are."""
    rows: list[Row] = []
    number = 0
    for start in range(0, len(trace) + FED_AT_ONCE, FED_AT_ONCE):
        batch = trace[start : start + FED_AT_ONCE]
        for composite in engine.feed(batch) if batch else engine.close():
            if composite.type in named:
                number += 1
                if len(rows) < COMPOSITES_MAX:
                    rows.append(composite.row())
    return rows, number


def _walks(rule: Rule, world: World, misses: Misses, notes: list[str]) -> Sequence[ChainWalk | TreeWalk]:
    root, where = rule.pattern.root, rule.pattern.where
    if isinstance(root, Chain):
        return [ChainWalk(root, where, world, misses)]
    shapes = list(alternatives(root))
    if len(shapes) > BRANCHES_MAX:
        notes.append(f"{len(shapes)} combinations of OR branches; the first {BRANCHES_MAX} are shown")
    if rule.pattern.skip == "next" and len(shapes) > 1:
        notes.append("with SKIP TILL NEXT MATCH the branches of OR compete; each is shown as if it were alone")
    if has_repetition(root):
        notes.append("a repeated role is followed as the set of its possible elements, not as every choice of them")
    return [TreeWalk(shape, root, where, rule.pattern.skip, world, misses) for shape in shapes[:BRANCHES_MAX]]
