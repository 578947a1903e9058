"""Rules stored at a node, and how the root of a tree fetches those it needs from the nodes that store them.

With one tree the root keeps all rules. With many, each rule is kept at one node; the processor of a subscribing sink
asks down its own tree for the rules that emit what is wanted, then for those that emit what these read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.node.plans.catalog import Catalog
from headwater.node.step import Work
from headwater.protocol.analysis.dependencies import in_dependency_order
from headwater.protocol.messages.neighbour import FetchRules, RulesFetched
from headwater.protocol.messages.plans import PlannedRule
from headwater.protocol.pattern import types_of

if TYPE_CHECKING:
    from headwater.node.plans.plan_tasks import PlanTasks

Question = tuple[str, int, str]


class RuleStore:
    """The rules kept here, and the questions about rules that are open."""

    def __init__(self, kept: Iterable[PlannedRule]) -> None:
        self._kept = tuple(kept)
        self._answers: dict[Question, dict[str, tuple[PlannedRule, ...]]] = {}
        """Questions to the children, with the answers so far."""
        self._known: dict[Question, tuple[PlannedRule, ...]] = {}
        """At a root: the rules that the children have sent."""

    def in_order(self) -> list[PlannedRule]:
        """The rules kept here, after those whose composites they read."""
        return _ordered(self._kept)

    def fetch(self, tasks: PlanTasks, name: str, work: Work) -> None:
        """A node up the tree asks for the rules that emit a type."""
        question = (tasks.tree, tasks.epoch, name)
        if question in self._answers or question in self._known:
            return
        self._answers[question] = {}
        for child in tasks.children:
            work.send(child, FetchRules(*question))
        self._conclude(tasks, question, work)

    def fetched(self, tasks: PlanTasks, child: str, name: str, rules: tuple[PlannedRule, ...], work: Work) -> bool:
        """A child has answered; true if this node asked on its own behalf and now knows all."""
        question = (tasks.tree, tasks.epoch, name)
        if question not in self._answers:
            work.report("unknown_answer")
            return False
        self._answers[question][child] = rules
        return self._conclude(tasks, question, work)

    def _conclude(self, tasks: PlanTasks, question: Question, work: Work) -> bool:
        answers = self._answers[question]
        if answers.keys() != set(tasks.children):
            return False
        del self._answers[question]
        rules = [planned for planned in self._kept if planned.rule.emits == question[2]]
        rules += [planned for _, answer in sorted(answers.items()) for planned in answer]
        everything = tuple(sorted(set(rules), key=lambda planned: (planned.rule.name, planned.rule.version)))
        if tasks.parent is not None:
            work.send(tasks.parent, RulesFetched(*question, everything))
            return False
        self._known[question] = everything
        return True

    def needed(self, tasks: PlanTasks, wanted: Iterable[str], catalog: Catalog, work: Work) -> list[PlannedRule] | None:
        """At a root: the rules behind the wanted types, in order; None while answers are still on their way."""
        open_types = [name for name in wanted if name in catalog.composites]
        seen: set[str] = set()
        rules: list[PlannedRule] = []
        complete = True
        while open_types:
            name = open_types.pop()
            if name in seen:
                continue
            seen.add(name)
            question = (tasks.tree, tasks.epoch, name)
            self.fetch(tasks, name, work)
            if question not in self._known:
                complete = False
                continue
            for planned in self._known[question]:
                rules.append(planned)
                open_types += [read for read in sorted(types_of(planned.rule.pattern)) if read in catalog.composites]
        return _ordered(rules) if complete else None

    def table(self) -> list[str]:
        return [f"{planned.rule.name} version {planned.rule.version}" for planned in self._kept]


def _ordered(planned: Iterable[PlannedRule]) -> list[PlannedRule]:
    by_rule = {planned_rule.rule: planned_rule for planned_rule in planned}
    return [by_rule[rule] for rule in in_dependency_order(sorted(by_rule, key=lambda rule: rule.name))]
