"""The event types and rules that a node has been told, from which it compiles what it evaluates."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache

from headwater.node.engine import Engine
from headwater.node.engine.program import Program, compile_rules
from headwater.node.engine.remote_memory import ASKED, ASKED_ACCEPTING
from headwater.node.remote.memory import Memory
from headwater.node.streams.blockers import Candidates
from headwater.node.tasks.predicates import row_condition
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.analysis.conjuncts import tables_in
from headwater.protocol.analysis.lookups import tables_of
from headwater.protocol.analysis.partial_rules import PartialRule
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Expression, roles_of
from headwater.protocol.pattern import Chain, Leaf, Pattern, Rule, leaves, types_of
from headwater.protocol.streams import Filter, Part, Stream, Whole, about_subject
from headwater.protocol.subscriptions import SUBJECT


@lru_cache(maxsize=8192)
def compiled(
    rule: Rule,
    types: tuple[EventType, ...],
    composites: tuple[EventType, ...],
    accepting: frozenset[str] = frozenset(),
) -> Program:
    """The program of one rule. Programs are immutable: nodes of one process and trees of one node share them.

    ``accepting``: the remote tables whose comparisons are true where elements cannot be had."""
    tables = {name: ASKED_ACCEPTING if name in accepting else ASKED for name in sorted(tables_of(rule))}
    return compile_rules([rule], types, composites=composites, remote=tables)


class Catalog:
    """Primitive types, and the types of the composites that rules emit."""

    def __init__(
        self,
        types: Iterable[EventType] = (),
        composites: Iterable[EventType] = (),
        memory: Memory | None = None,
        node: str = "",
        reached_from: tuple[tuple[str, tuple[str, ...]], ...] = (),
    ) -> None:
        """``memory``: what the node has at hand of remote tables; ``reached_from``: of those that not every node
        reaches, the nodes that do."""
        self.memory = memory
        self.node = node
        self.reached_from = reached_from
        self.types = {declared.name: declared for declared in types}
        self.composites = {declared.name: declared for declared in composites}

    def knows(self, name: str) -> bool:
        return name in self.types or name in self.composites

    def type(self, name: str) -> EventType:
        return self.types.get(name) or self.composites[name]

    def judged_here(self, where: Iterable[Expression], rule: str = "") -> tuple[Expression, ...]:
        """Those conjuncts of a part of the rule, or of a filter, that this node judges."""
        return self.judged_by(self.node, where, rule)

    def judged_by(self, node: str, where: Iterable[Expression], rule: str = "") -> tuple[Expression, ...]:
        """The same for another node.

        What looks into a table that it does not reach is judged above, and so is every lookup where the policy judges
        complete matches only: what comes too much is no match there. A table that may answer otherwise the next time
        is looked into once, above.
        """
        memory = self.memory
        last = memory is not None and memory.waiting(rule).only_last

        def judges(tables: frozenset[str]) -> bool:
            steady = memory is None or all(map(memory.is_steady, tables))
            return not tables or (steady and not last and not self.out_of_reach(node, tables))

        return tuple(conjunct for conjunct in where if judges(tables_in(conjunct)))

    def out_of_reach(self, node: str, tables: Collection[str]) -> set[str]:
        """Those of the tables that a node does not reach."""
        return {table for table, nodes in self.reached_from if table in tables and node not in nodes}

    def says(self, tables: Iterable[str]) -> bool:
        """Whether composite events say what was looked up in one of the tables."""
        return self.memory is not None and any(map(self.memory.records, tables))

    def engine(self, stream: Stream, judged: Collection[Expression] = ()) -> Engine:
        """An engine for a whole rule, or for a partial one or a filter, whose matches are only read for their parts.
        ``judged``: conditions that everything meets which comes."""
        return Engine(self.program(stream, judged), on_failure=NOTED.note, memory=self.memory)

    def program(self, stream: Stream, judged: Collection[Expression] = ()) -> Program:
        match stream:
            case Whole(rule):
                where = rule.pattern.where
            case Part(partial):
                where = self.judged_here(partial.pattern.where, partial.rule.name)
                rule = Rule(f"{partial.rule.name}/{','.join(partial.roles)}", partial.pattern, "~", ())
            case Filter(name, where):
                where = self.judged_here(where)
                rule = Rule(f"filter {name}", Pattern(Chain(Leaf(SUBJECT, name)), where), "~", ())
        where = tuple(conjunct for conjunct in where if conjunct not in judged)
        if where != rule.pattern.where:
            rule = replace(rule, pattern=replace(rule.pattern, where=where))
        named = sorted(types_of(rule.pattern))
        types = tuple(self.types[name] for name in named if name in self.types)
        composites = tuple(self.composites[name] for name in named if name in self.composites)
        return compiled(rule, types, composites, frozenset() if self.memory is None else self.memory.accepting())

    def candidates(self, partial: PartialRule) -> list[Candidates]:
        """Where the contested roles of a partial rule are watched."""
        types = {leaf.role: leaf.type for leaf in leaves(partial.pattern.root)}
        candidates = []
        for contest in partial.contests:
            # A lookup may have to wait. What would fail it is a candidate, too: nodes above judge it again.
            own = [
                about_subject(conjunct)
                for conjunct in partial.pattern.where
                if roles_of(conjunct) == {contest.role} and not tables_in(conjunct)
            ]
            name = types[contest.role]
            condition = row_condition(tuple(own), self.type(name), name in self.composites)
            candidates.append(Candidates(contest, name, condition))
        return candidates
