"""The event types and rules that a node has been told, from which it compiles what it evaluates."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headwater.node.engine import Engine
from headwater.node.engine.program import Program, compile_rules
from headwater.node.engine.waiting import ASKED
from headwater.node.remote.memory import Memory
from headwater.node.streams.blockers import Candidates
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.analysis.lookups import tables_of
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.events import EventType
from headwater.protocol.expressions import roles_of
from headwater.protocol.pattern import Rule, leaves, types_of
from headwater.protocol.streams import Part, Whole, about_subject


@lru_cache(maxsize=8192)
def compiled(rule: Rule, types: tuple[EventType, ...], composites: tuple[EventType, ...]) -> Program:
    """The program of one rule. Programs are immutable: nodes of one process and trees of one node share them."""
    return compile_rules([rule], types, composites=composites, remote=dict.fromkeys(sorted(tables_of(rule)), ASKED))


class Catalog:
    """Primitive types, and the types of the composites that rules emit."""

    def __init__(
        self, types: Iterable[EventType] = (), composites: Iterable[EventType] = (), memory: Memory | None = None
    ) -> None:
        """``memory``: what the node has at hand of remote tables."""
        self.memory = memory
        self.types = {declared.name: declared for declared in types}
        self.composites = {declared.name: declared for declared in composites}

    def knows(self, name: str) -> bool:
        return name in self.types or name in self.composites

    def type(self, name: str) -> EventType:
        return self.types.get(name) or self.composites[name]

    def engine(self, stream: Whole | Part) -> Engine:
        """An engine for a whole rule, or for a partial one, whose matches are only read for their parts."""
        return Engine(self.program(stream), on_failure=NOTED.note, memory=self.memory)

    def program(self, stream: Whole | Part) -> Program:
        if isinstance(stream, Whole):
            rule = stream.rule
        else:
            partial = stream.partial
            rule = Rule(f"{partial.rule.name}/{','.join(partial.roles)}", partial.pattern, "~", ())
        named = sorted(types_of(rule.pattern))
        types = tuple(self.types[name] for name in named if name in self.types)
        composites = tuple(self.composites[name] for name in named if name in self.composites)
        return compiled(rule, types, composites)

    def candidates(self, partial: PartialRule) -> list[Candidates]:
        """Where the contested roles of a partial rule are watched."""
        types = {leaf.role: leaf.type for leaf in leaves(partial.pattern.root)}
        candidates = []
        for contest in partial.contests:
            own = [
                about_subject(conjunct) for conjunct in partial.pattern.where if roles_of(conjunct) == {contest.role}
            ]
            name = types[contest.role]
            condition = row_condition(tuple(own), self.type(name), name in self.composites)
            candidates.append(Candidates(contest, name, condition))
        return candidates
