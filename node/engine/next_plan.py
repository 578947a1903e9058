"""Skip-till-next, compiled: the states of a rule and the code that moves runs between them.

The OR combinations of a pattern are merged into a tree of states. `next_match` keeps the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwater.node.engine.codegen.code import Writer
from headwater.node.engine.codegen.context import JoinContext, Mode
from headwater.node.engine.codegen.equalities import bind_all
from headwater.node.engine.codegen.lookup_keys import Lookup, add_ahead, lookups_of
from headwater.node.engine.codegen.negations import negation_found
from headwater.node.engine.codegen.rules import (
    RulePlan,
    add_late_check,
    add_negated_patterns,
    asks_somewhere,
    emit,
    waits,
)
from headwater.node.engine.codegen.store_builder import StoreBuilder
from headwater.node.engine.next_keys import equalities, return_key, run_key
from headwater.protocol.analysis.units import Branch, elementwise, needs_previous, needs_whole
from headwater.protocol.expressions import Expression, Remote, looks_up, roles_of
from headwater.protocol.pattern import Leaf

Run = tuple[Any, ...]

REFUSED, ACCEPTED, OUTSIDE = 0, 1, 2
UNSURE = 4  # added to a verdict that holds only if conditions do whose elements are not at hand


@dataclass(slots=True)
class NextStage:
    """A state: the last unit bound is ``depth`` of ``branch``, which is any branch that passes here."""

    number: int
    depth: int
    branch: Branch
    leaf: Leaf
    many: bool
    complete: bool
    check: int | None = None
    judged: int | None = None
    """The check for matches whose output attributes need elements that may not be at hand."""
    finish_asks: bool = False
    """Whether a complete match may find that an element is not at hand which none of its steps needed."""
    keyed: bool = False
    next: list[NextStage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunAhead:
    """A lookup whose key runs know before they need its element."""

    purpose: str
    """Of the functions that give the key of a run."""
    table: str
    horizon: int
    count: int | None
    """The length of a count window."""
    stages: tuple[int, ...]
    """From the first at which the key is known to the last before the element is needed."""


class NextPlan:
    """The stages of one rule and the code that moves runs between them."""

    def __init__(self, builder: StoreBuilder, plan: RulePlan) -> None:
        self.plan = plan
        self.name = f"m{plan.number}"
        self._asks = builder.pool.asks
        self._accepts = builder.pool.accepts
        self.asks = False
        """Whether a run may have to wait for an element of a remote table."""
        self.aheads: list[RunAhead] = []
        self.stages: list[NextStage] = []
        self.first: list[NextStage] = []
        self.counted = builder.counted
        self.horizon = max(branch.horizon for branch in plan.logical.branches)
        self.exports: list[tuple[int, str, str]] = []
        """(stage, purpose, name) of every generated function."""
        for branch in plan.logical.branches:
            self._add(builder, branch)
        for stage in self.stages:
            self._index(builder, stage)
        types = sorted({stage.leaf.type for stage in self.stages})
        forbidden_types = {
            name for branch in plan.logical.branches for name in _forbidden_types(branch) if name not in types
        }
        builder.machines.append((self.name, types))
        builder.completing |= {stage.leaf.type for stage in self.stages if stage.complete}
        for name in forbidden_types | set(types):
            builder.groups.setdefault(name, {})

    # -------------------------------------------------------------------------------------------------------- building

    def _add(self, builder: StoreBuilder, branch: Branch) -> None:
        add_negated_patterns(builder, branch)
        check = add_late_check(builder, self.plan, branch) if waits(branch) else None
        judged = add_late_check(builder, self.plan, branch, judges=True) if self.plan.sought else None
        self.asks = self.asks or judged is not None or asks_somewhere(builder, branch)
        builder.asks = builder.asks or self.asks
        level = self.first
        passed: list[NextStage] = []
        for depth, unit in enumerate(branch.units):
            complete = depth == len(branch.units) - 1
            stage = next((s for s in level if s.leaf == unit.leaves[0]), None)
            if stage is None:
                stage = NextStage(len(self.stages), depth, branch, unit.leaves[0], unit.many, complete, check, judged)
                stage.finish_asks = complete and (judged is not None or self._asks_at_the_end(branch))
                self.stages.append(stage)
                level.append(stage)
                self._write(builder, stage)
            passed.append(stage)
            level = stage.next
        for lookup in lookups_of(builder, branch, self.plan.sought):
            self._look_ahead(builder, branch, passed, lookup)

    def _asks_at_the_end(self, branch: Branch) -> bool:
        conditions = [c for c in branch.where if self._home(branch, c) == len(branch.units)]
        conditions += [condition for forbidden in branch.forbidden for condition in forbidden.where]
        return any(map(self._asks, conditions))

    def _look_ahead(self, builder: StoreBuilder, branch: Branch, stages: list[NextStage], lookup: Lookup) -> None:
        """Where runs know the key of a lookup before they need its element, write what gives it; otherwise the event
        that names it may give it while it waits for the watermark."""
        positive = {role for unit in branch.units if not unit.many for role in unit.roles}
        needed = len(stages)
        if lookup.condition is not None and lookup.condition in branch.where:
            needed = self._home(branch, lookup.condition)
        units = branch.units_in(lookup.remote) if roles_of(lookup.remote) <= positive else None
        if not units or max(units) >= min(needed, len(stages) - 1):
            add_ahead(builder, self.plan.rule, self.plan.number, branch, lookup)
            return
        known = stages[max(units) : needed]
        purpose = f"ahead {len(self.aheads)}"
        for stage in known:
            if not stage.complete:
                self._function(builder, stage, purpose, "run", partial(self._ahead, lookup.remote))
        numbers = tuple(stage.number for stage in known if not stage.complete)
        self.aheads.append(RunAhead(purpose, lookup.remote.table, branch.horizon, branch.count, numbers))

    def _ahead(self, lookup: Remote, out: Writer, join: JoinContext, stage: NextStage) -> None:
        self._unpack(out, stage, stage.depth + 1)
        out.line(f"key = ({', '.join(join.scope.value(argument).source for argument in lookup.arguments)},)")
        out.line("return None if None in key else key")

    def _write(self, builder: StoreBuilder, stage: NextStage) -> None:
        if any(self._is_own(condition, stage) for condition in stage.branch.where):
            self._function(builder, stage, "own", "x", self._own)
        self._function(builder, stage, "accept", "run, x", self._accept)
        if stage.many:
            self._function(builder, stage, "take", "run, x", self._take)
        if stage.complete:
            self._function(builder, stage, "finish", "run", self._finish)
            if stage.many:
                self._function(builder, stage, "deadline", "run", self._deadline)

    def _index(self, builder: StoreBuilder, stage: NextStage) -> None:
        """Write what gives the key by which runs at a stage are kept, if the stage has one.

        The function ``key_of_run`` gives that of a run, ``key_of_row`` (one per event type) that of an event.
        """
        concerned = [*stage.next, *([stage] if stage.many else [])]
        key = run_key([(other.leaf.type, dict(self._equalities(stage, other))) for other in concerned])
        if key is None:
            return
        stage.keyed = True

        def of_run(out: Writer, join: JoinContext, stage: NextStage) -> None:
            self._unpack(out, stage, stage.depth + 1)
            return_key(out, join, key.of_run)

        self._function(builder, stage, "key_of_run", "run", of_run)
        for event_type, of_rows in key.of_rows.items():
            role = next(iter(roles_of(of_rows[0])))
            leaf = next(other.leaf for other in concerned if other.leaf.role == role)

            def of_event(
                out: Writer,
                join: JoinContext,
                stage: NextStage,
                of_rows: Sequence[Expression] = of_rows,
                leaf: Leaf = leaf,
            ) -> None:
                join.types[leaf.role] = leaf.type
                with join.reading({(leaf.role, ""): "x"}):
                    return_key(out, join, of_rows)

            self._function(builder, stage, f"key_of_row {event_type}", "x", of_event)

    def _equalities(self, stage: NextStage, other: NextStage) -> Iterator[tuple[Expression, Expression]]:
        """What an event at ``other`` must have in common with a run at the stage; see ``next_keys``."""
        conditions = [
            condition
            for condition in other.branch.where
            if self._home(other.branch, condition) == other.depth
            and not self._asks(condition)
            and not self._accepts(condition)
        ]
        return equalities(conditions, stage, other)

    def _function(
        self,
        builder: StoreBuilder,
        stage: NextStage,
        purpose: str,
        arguments: str,
        body: Callable[[Writer, JoinContext, NextStage], None],
    ) -> None:
        join = JoinContext(builder, stage.branch, 0, 0, Mode(ordered=True, newest=False), in_text_order=True)
        if stage.complete and stage.many:
            join.extra_horizon = stage.branch.horizon
        bind_all(join)
        name = f"{self.name}_{len(self.exports)}"
        out = Writer()
        out.line(f"def {name}({arguments}):")
        out.depth += 1
        body(out, join, stage)
        builder.functions.append(str(out))
        builder.owners[name] = self.plan.rule.name
        builder.exports.append(name)
        self.exports.append((stage.number, purpose, name))

    @staticmethod
    def _unpack(out: Writer, stage: NextStage, bound: int) -> None:
        names = [f"k{n}_0" if unit.many else f"r{n}" for n, unit in enumerate(stage.branch.units[:bound])]
        if names:
            out.line(f"{', '.join(names)}, = run")

    @staticmethod
    def _home(branch: Branch, condition: Expression) -> int:
        """The depth at which a conjunct is judged; one past the last for those that need a last repetition whole."""
        units = branch.units_in(condition)
        last = max(units, default=0)
        unit = branch.units[last]
        return last + 1 if unit.many and needs_whole(condition, unit.roles) else last

    def _own(self, out: Writer, join: JoinContext, stage: NextStage) -> None:
        """What an event must satisfy for itself: judged once, not for every run."""
        with join.reading({(stage.leaf.role, ""): "x"}):
            tests = [join.scope.truth(condition) for condition in stage.branch.where if self._is_own(condition, stage)]
        out.line(f"return {' and '.join(tests)}")

    def _accept(self, out: Writer, join: JoinContext, stage: NextStage) -> None:
        depth, branch = stage.depth, stage.branch
        self._unpack(out, stage, depth)
        variable = f"x{depth}_0" if stage.many else f"r{depth}"
        out.line(f"{variable} = x")
        if depth and join.is_composite(depth):
            out.line(f"if not start_of(x) > {join.end_key(depth - 1)}: return {REFUSED}")
        elif depth and join.is_composite(depth - 1):
            out.line(f"if not x[:3] > {join.end_key(depth - 1)}: return {REFUSED}")
        roles = branch.units[depth].roles
        here = [
            condition
            for condition in sorted(branch.where, key=looks_up)
            if self._home(branch, condition) == depth
            and not (stage.many and needs_previous(condition, roles))
            and not self._is_own(condition, stage)
        ]
        names = {(stage.leaf.role, ""): variable} if stage.many else {}
        for condition in here:
            with join.reading(names):
                self._test(out, condition, self._judge(join, condition, stage), REFUSED)
        unsure = self._unsure(out, here)
        if stage.many:
            out.line(f"k{depth}_0 = (x,)")
        for test in self._windows(join, stage):
            out.line(f"if not ({test}): return {OUTSIDE}{unsure}")
        out.line(f"return {ACCEPTED}{unsure}")

    def _test(self, out: Writer, condition: Expression, source: str, refused: int) -> None:
        """Refuse what does not hold. Whether something is not at hand is asked before the first that may not be."""
        if not self._asks(condition):
            out.line(f"if not ({source}): return {refused}")
            return
        if "missed = misses[0]" not in "".join(out.lines[1:]):
            out.line("missed = misses[0]")
            out.line("before = missed")
        out.line(f"if not ({source}) and misses[0] == before: return {refused}")
        out.line("before = misses[0]")

    def _unsure(self, out: Writer, conditions: Iterable[Expression]) -> str:
        """Source of what is added to the verdict."""
        if not any(map(self._asks, conditions)):
            return ""
        out.line(f"unsure = {UNSURE} if misses[0] != missed else 0")
        return " + unsure"

    def _is_own(self, condition: Expression, stage: NextStage) -> bool:
        """A conjunct about the event of the stage alone, which needs no element that may not be at hand."""
        roles = frozenset((stage.leaf.role,))
        is_about_it = roles_of(condition) == roles and (not stage.many or elementwise(condition, roles))
        return is_about_it and not self._asks(condition)

    @staticmethod
    def _judge(join: JoinContext, condition: Expression, stage: NextStage) -> str:
        if stage.many and stage.leaf.role in roles_of(condition):
            return join.scope.truth(condition)
        return join.over_elements(condition)

    def _windows(self, join: JoinContext, stage: NextStage) -> list[str]:
        depth, branch = stage.depth, stage.branch
        tests = [
            f"x[0] - {join.first_ts(gap.earlier, gap.from_start)} <= {gap.length}" for gap in branch.gaps_to(depth)
        ]
        tests += [
            f"x[0] - {join.first_ts(depth, from_start)} <= {length}"
            for unit, length, from_start in branch.own_spans
            if unit == depth
        ]
        tests += [
            join.spread_condition(spread)
            for spread in branch.spreads
            if max(unit for part in spread.parts for unit in part) == depth
        ]
        if branch.count is not None:
            tests.append(f"x[-1] - {join.row_of(0, 'first')}[-1] <= {branch.count - 1}")
        return tests

    def _take(self, out: Writer, join: JoinContext, stage: NextStage) -> None:
        depth, branch = stage.depth, stage.branch
        self._unpack(out, stage, depth + 1)
        element = f"x{depth}_0"
        out.line(f"{element} = x")
        if join.is_composite(depth):
            out.line(f"if not start_of(x) > k{depth}_0[-1][:3]: return False")
        role = stage.leaf.role
        here = [
            condition
            for condition in sorted(branch.where, key=looks_up)
            if not self._is_own(condition, stage)
            and self._home(branch, condition) == depth
            and role in roles_of(condition)
        ]
        with join.reading({(role, ""): element, (role, "i-1"): f"k{depth}_0[-1]"}):
            for condition in here:
                self._test(out, condition, join.scope.truth(condition), REFUSED)
        unsure = self._unsure(out, here)
        if branch.spreads:
            out.line(f"k{depth}_0 = (*k{depth}_0, x)")
        for test in self._windows(join, stage):
            out.line(f"if not ({test}): return {REFUSED}")
        out.line(f"return {ACCEPTED}{unsure}")

    def _finish(self, out: Writer, join: JoinContext, stage: NextStage) -> None:
        branch = stage.branch
        self._unpack(out, stage, len(branch.units))
        for condition in branch.where:
            if self._home(branch, condition) == len(branch.units):
                out.line(f"if not ({join.over_elements(condition)}): return")
        for forbidden in branch.forbidden:
            if not forbidden.waits:
                out.line(f"if {negation_found(join, forbidden)}: return")
        emit(self.plan, branch, stage.check, stage.judged, out, join)

    def _deadline(self, out: Writer, join: JoinContext, stage: NextStage) -> None:
        branch, depth = stage.branch, stage.depth
        self._unpack(out, stage, len(branch.units))
        if branch.count is not None:
            out.line(f"return {join.row_of(0, 'first')}[-1] + {branch.count - 1}")
            return
        ends = [f"{join.first_ts(gap.earlier, gap.from_start)} + {gap.length}" for gap in branch.gaps_to(depth)]
        ends += [
            f"{join.first_ts(unit, from_start)} + {length}"
            for unit, length, from_start in branch.own_spans
            if unit == depth
        ]
        ends.append(f"{join.first_ts(0, from_start=False)} + {branch.horizon}")
        out.line(f"return min({', '.join(ends)}, {ends[0]})")


def _forbidden_types(branch: Branch) -> set[str]:
    types = set()
    for forbidden in branch.forbidden:
        if forbidden.leaf is not None:
            types.add(forbidden.leaf.type)
        for sub in forbidden.sub:
            types |= {leaf.type for unit in sub.units for leaf in unit.leaves}
    return types
