"""Skip-till-next: runs that always take the next event that fits.

The OR combinations of a pattern are merged into a tree of states. A run stands at a state with what it has bound so
far; each event in trace order either moves it to a following state, is taken into its repetition, or passes it by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from node.engine.code import Writer
from node.engine.joins import JoinWriter
from node.engine.logical import Branch, needs_previous, needs_whole
from node.engine.reading import Mode
from node.engine.rules import RulePlan, add_late_check, add_negated_patterns, emit, waits
from node.engine.runtime import Row
from node.engine.store import SWEEPS_PER_HORIZON, State, Store, StoreBuilder
from protocol.composites import Composite
from protocol.expressions import Expression, roles_of
from protocol.pattern import Leaf

Run = tuple[Any, ...]

REFUSED, ACCEPTED, OUTSIDE = 0, 1, 2


@dataclass(slots=True)
class Stage:
    """A state: the last unit bound is ``depth`` of ``branch``, which is any branch that passes here."""

    number: int
    depth: int
    branch: Branch
    leaf: Leaf
    many: bool
    complete: bool
    check: int | None = None
    next: list[Stage] = field(default_factory=list)
    accept: Callable[[Run, Row], int] = lambda run, row: REFUSED
    take: Callable[[Run, Row], bool] = lambda run, row: False
    finish: Callable[[Run], None] = lambda run: None
    deadline: Callable[[Run], int] = lambda run: 0


class NextMatch:
    """The machine of one rule."""

    def __init__(self, builder: StoreBuilder, plan: RulePlan) -> None:
        self.plan = plan
        self.name = f"m{plan.number}"
        self.stages: list[Stage] = []
        self.first: list[Stage] = []
        self.counted = builder.counted
        self.horizon = max(branch.horizon for branch in plan.logical.branches)
        self._exports: list[tuple[Stage, str, str]] = []
        for branch in plan.logical.branches:
            self._add(builder, branch)
        types = sorted({stage.leaf.type for stage in self.stages})
        forbidden_types = {
            name for branch in plan.logical.branches for name in _forbidden_types(branch) if name not in types
        }
        builder.machines.append((self.name, types))
        for name in forbidden_types | set(types):
            builder.groups.setdefault(name, {})

    # -------------------------------------------------------------------------------------------------------- building

    def _add(self, builder: StoreBuilder, branch: Branch) -> None:
        add_negated_patterns(builder, branch)
        check = add_late_check(builder, self.plan, branch) if waits(branch) else None
        level = self.first
        for depth, unit in enumerate(branch.units):
            complete = depth == len(branch.units) - 1
            stage = next((s for s in level if s.leaf == unit.leaves[0]), None)
            if stage is None:
                stage = Stage(len(self.stages), depth, branch, unit.leaves[0], unit.many, complete, check)
                self.stages.append(stage)
                level.append(stage)
                self._write(builder, stage)
            level = stage.next

    def _write(self, builder: StoreBuilder, stage: Stage) -> None:
        self._function(builder, stage, "accept", "run, x", self._accept)
        if stage.many:
            self._function(builder, stage, "take", "run, x", self._take)
        if stage.complete:
            self._function(builder, stage, "finish", "run", self._finish)
            if stage.many:
                self._function(builder, stage, "deadline", "run", self._deadline)

    def _function(
        self,
        builder: StoreBuilder,
        stage: Stage,
        purpose: str,
        arguments: str,
        body: Callable[[Writer, JoinWriter, Stage], None],
    ) -> None:
        join = JoinWriter(builder, stage.branch, 0, 0, Mode(ordered=True, newest=False), in_text_order=True)
        if stage.complete and stage.many:
            join.extra_horizon = stage.branch.horizon
        join.all_bound()
        name = f"{self.name}_{purpose}_{stage.number}"
        out = Writer()
        out.line(f"def {name}({arguments}):")
        out.depth += 1
        body(out, join, stage)
        builder.functions.append(str(out))
        builder.owners[name] = self.plan.rule.name
        builder.exports.append(name)
        self._exports.append((stage, purpose, name))

    @staticmethod
    def _unpack(out: Writer, stage: Stage, bound: int) -> None:
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

    def _accept(self, out: Writer, join: JoinWriter, stage: Stage) -> None:
        depth, branch = stage.depth, stage.branch
        self._unpack(out, stage, depth)
        variable = f"x{depth}_0" if stage.many else f"r{depth}"
        out.line(f"{variable} = x")
        if depth and join.is_composite(depth):
            out.line(f"if not start_of(x) > {join.end_key(depth - 1)}: return {REFUSED}")
        elif depth and join.is_composite(depth - 1):
            out.line(f"if not x[:3] > {join.end_key(depth - 1)}: return {REFUSED}")
        roles = branch.units[depth].roles
        for condition in branch.where:
            if self._home(branch, condition) != depth or (stage.many and needs_previous(condition, roles)):
                continue
            names = {(stage.leaf.role, ""): variable} if stage.many else {}
            with join.reading(names):
                out.line(f"if not ({self._judge(join, condition, stage)}): return {REFUSED}")
        if stage.many:
            out.line(f"k{depth}_0 = (x,)")
        for test in self._windows(join, stage):
            out.line(f"if not ({test}): return {OUTSIDE}")
        out.line(f"return {ACCEPTED}")

    @staticmethod
    def _judge(join: JoinWriter, condition: Expression, stage: Stage) -> str:
        if stage.many and stage.leaf.role in roles_of(condition):
            return join.scope.truth(condition)
        return join.over_elements(condition)

    def _windows(self, join: JoinWriter, stage: Stage) -> list[str]:
        depth, branch = stage.depth, stage.branch
        tests = [
            f"x[0] - {join.first_ts(gap.earlier, gap.from_start)} <= {gap.length}"
            for gap in branch.gaps
            if gap.later == depth and gap.earlier < depth
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

    def _take(self, out: Writer, join: JoinWriter, stage: Stage) -> None:
        depth, branch = stage.depth, stage.branch
        self._unpack(out, stage, depth + 1)
        element = f"x{depth}_0"
        out.line(f"{element} = x")
        if join.is_composite(depth):
            out.line(f"if not start_of(x) > k{depth}_0[-1][:3]: return False")
        role = stage.leaf.role
        with join.reading({(role, ""): element, (role, "i-1"): f"k{depth}_0[-1]"}):
            for condition in branch.where:
                if self._home(branch, condition) == depth and role in roles_of(condition):
                    out.line(f"if not ({join.scope.truth(condition)}): return False")
        out.line(f"k{depth}_0 = (*k{depth}_0, x)")
        for test in self._windows(join, stage):
            out.line(f"if not ({test}): return False")
        out.line("return True")

    def _finish(self, out: Writer, join: JoinWriter, stage: Stage) -> None:
        branch = stage.branch
        self._unpack(out, stage, len(branch.units))
        for condition in branch.where:
            if self._home(branch, condition) == len(branch.units):
                out.line(f"if not ({join.over_elements(condition)}): return")
        for forbidden in branch.forbidden:
            if not forbidden.waits:
                out.line(f"if {join.negation_found(forbidden)}: return")
        emit(self.plan, branch, stage.check, out, join)

    def _deadline(self, out: Writer, join: JoinWriter, stage: Stage) -> None:
        branch, depth = stage.branch, stage.depth
        self._unpack(out, stage, len(branch.units))
        if branch.count is not None:
            out.line(f"return {join.row_of(0, 'first')}[-1] + {branch.count - 1}")
            return
        ends = [
            f"{join.first_ts(gap.earlier, gap.from_start)} + {gap.length}" for gap in branch.gaps if gap.later == depth
        ]
        ends += [
            f"{join.first_ts(unit, from_start)} + {length}"
            for unit, length, from_start in branch.own_spans
            if unit == depth
        ]
        ends.append(f"{join.first_ts(0, from_start=False)} + {branch.horizon}")
        out.line(f"return min({', '.join(ends)}, {ends[0]})")

    # --------------------------------------------------------------------------------------------------------- running

    def attach(self, store: Store) -> None:
        self.store = store
        store.machines.append(self)
        self.bind(store.state)

    def bind(self, state: State) -> None:
        self.state = state
        if not state.runs_of.get(self.plan.number):
            state.runs_of[self.plan.number] = [[] for _ in self.stages]
        self.runs: list[list[Run]] = state.runs_of[self.plan.number]
        for stage, purpose, name in self._exports:
            setattr(stage, purpose, self.store.exports[name])
        self.starting: dict[str, list[Stage]] = {}
        for stage in self.first:
            self.starting.setdefault(stage.leaf.type, []).append(stage)
        self.watching: dict[str, list[tuple[Stage, list[Stage], bool]]] = {}
        for stage in self.stages:
            names = {following.leaf.type for following in stage.next} | ({stage.leaf.type} if stage.many else set())
            for name in sorted(names):
                following = [s for s in stage.next if s.leaf.type == name]
                takes = stage.many and stage.leaf.type == name
                self.watching.setdefault(name, []).append((stage, following, takes))
        self._next_sweep: float = float("-inf")

    def handle(self, row: Row) -> None:
        kind = row[3]
        name = kind.type if isinstance(kind, Composite) else kind.name
        moved: list[tuple[Stage, Run]] = []
        for stage, following, takes in self.watching.get(name, ()):
            runs = self.runs[stage.number]
            if runs:
                self.runs[stage.number][:] = self._step(runs, stage, following, takes, row, moved)
        for stage in self.starting.get(name, ()):
            if stage.accept((), row) == ACCEPTED:
                moved.append((stage, ((row,) if stage.many else row,)))
        for stage, run in moved:
            if stage.complete and not stage.many:
                stage.finish(run)
            else:
                self.runs[stage.number].append(run)

    @staticmethod
    def _step(
        runs: list[Run], stage: Stage, following: list[Stage], takes: bool, row: Row, moved: list[tuple[Stage, Run]]
    ) -> list[Run]:
        kept = []
        for run in runs:
            used = False
            for after in following:
                verdict = after.accept(run, row)
                if verdict:
                    used = True
                    if verdict == ACCEPTED:
                        moved.append((after, (*run, (row,) if after.many else row)))
            if used:
                continue
            if takes and stage.take(run, row):
                run = (*run[:-1], (*run[-1], row))
            kept.append(run)
        return kept

    def finish(self, watermark: float) -> None:
        """A last repetition ends with its window."""
        now = watermark
        if self.counted is not None and watermark != float("inf"):
            now = self.state.number[0]
        for stage in self.stages:
            if stage.complete and stage.many and self.runs[stage.number]:
                kept = []
                for run in self.runs[stage.number]:
                    if stage.deadline(run) <= now:
                        stage.finish(run)
                    else:
                        kept.append(run)
                self.runs[stage.number][:] = kept

    def undecided_before(self) -> float:
        """The least end that a match of an open last repetition can have."""
        return min(
            (
                run[-1][-1][0]
                for stage in self.stages
                if stage.complete and stage.many
                for run in self.runs[stage.number]
            ),
            default=float("inf"),
        )

    def sweep(self, watermark: float) -> None:
        """Drop runs whose window has passed."""
        if self.counted is not None:
            if watermark == float("inf"):
                oldest: float = float("inf")
            else:
                oldest = self.state.number[0] + 2 - self.counted
            column = -1
        else:
            if watermark < self._next_sweep:
                return
            self._next_sweep = watermark + max(1, self.horizon // SWEEPS_PER_HORIZON)
            oldest, column = watermark + 1 - self.horizon, 0
        for stage, runs in zip(self.stages, self.runs, strict=True):
            if runs and not (stage.complete and stage.many):
                many = stage.branch.units[0].many
                runs[:] = [run for run in runs if (run[0][0] if many else run[0])[column] >= oldest]

    def held(self) -> int:
        return sum(map(len, self.runs))


def _roles(condition: Expression) -> frozenset[str]:
    from protocol.expressions import roles_of

    return roles_of(condition)


def _forbidden_types(branch: Branch) -> set[str]:
    found = set()
    for forbidden in branch.forbidden:
        if forbidden.leaf is not None:
            found.add(forbidden.leaf.type)
        for sub in forbidden.sub:
            found |= {leaf.type for unit in sub.units for leaf in unit.leaves}
    return found
