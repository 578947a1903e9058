"""Skip-till-next: runs that always take the next event that fits.

The OR combinations of a pattern are merged into a tree of states. A run stands at a state with what it has bound so
far; each event in trace order either moves it to a following state, is taken into its repetition, or passes it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from headwater.node.engine.codegen.code import Writer
from headwater.node.engine.codegen.joins import JoinWriter
from headwater.node.engine.codegen.reading import Mode
from headwater.node.engine.codegen.rules import RulePlan, add_late_check, add_negated_patterns, emit, waits
from headwater.node.engine.codegen.store_builder import StoreBuilder
from headwater.node.engine.runtime import Row
from headwater.node.engine.store import SWEEPS_PER_HORIZON, State, Store
from headwater.protocol.analysis.units import Branch, elementwise, needs_previous, needs_whole
from headwater.protocol.composites import Composite
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Index, rewritten, roles_of, walk
from headwater.protocol.pattern import Leaf

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
    keyed: bool = False
    next: list[Stage] = field(default_factory=list)


class NextPlan:
    """The stages of one rule and the code that moves runs between them."""

    def __init__(self, builder: StoreBuilder, plan: RulePlan) -> None:
        self.plan = plan
        self.name = f"m{plan.number}"
        self.stages: list[Stage] = []
        self.first: list[Stage] = []
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
        if any(_is_own(condition, stage) for condition in stage.branch.where):
            self._function(builder, stage, "own", "x", self._own)
        self._function(builder, stage, "accept", "run, x", self._accept)
        if stage.many:
            self._function(builder, stage, "take", "run, x", self._take)
        if stage.complete:
            self._function(builder, stage, "finish", "run", self._finish)
            if stage.many:
                self._function(builder, stage, "deadline", "run", self._deadline)

    def _index(self, builder: StoreBuilder, stage: Stage) -> None:
        """Find an equality that every event that concerns runs at this stage must satisfy: runs are then kept by it.

        The function ``key_of_run`` gives a run's value, ``key_of_row`` (one per event type) that of an event.
        """
        concerned = [*stage.next, *([stage] if stage.many else [])]
        found: dict[Expression, dict[str, Expression]] | None = None
        for other in concerned:
            mine = {known: (other.leaf.type, of_row) for known, of_row in self._equalities(stage, other)}
            if found is None:
                found = {known: {event_type: of_row} for known, (event_type, of_row) in mine.items()}
                continue
            both = {}
            for known, rows in found.items():
                if known in mine and rows.get(mine[known][0], mine[known][1]) == mine[known][1]:
                    both[known] = {**rows, mine[known][0]: mine[known][1]}
            found = both
        if not found:
            return
        known = min(found, key=repr)
        stage.keyed = True

        def of_run(out: Writer, join: JoinWriter, stage: Stage) -> None:
            self._unpack(out, stage, stage.depth + 1)
            out.line(f"return {join.scope.value(known).source}")

        self._function(builder, stage, "key_of_run", "run", of_run)
        for event_type, of_row in found[known].items():
            role = next(iter(roles_of(of_row)))
            leaf = next(other.leaf for other in concerned if other.leaf.role == role)

            def of_event(
                out: Writer, join: JoinWriter, stage: Stage, of_row: Expression = of_row, leaf: Leaf = leaf
            ) -> None:
                join.types[leaf.role] = leaf.type
                with join.reading({(leaf.role, ""): "x"}):
                    out.line(f"return {join.scope.value(of_row).source}")

            self._function(builder, stage, f"key_of_row {event_type}", "x", of_event)

    def _equalities(self, stage: Stage, other: Stage) -> Iterator[tuple[Expression, Expression]]:
        """(value known at the stage, value of the event) for equalities that an event at ``other`` must satisfy."""
        branch, role = other.branch, other.leaf.role
        fixed = {  # what does not change any more while a run stands at the stage
            (leaf.role, "first" if unit.many else "")
            for unit in branch.units[: stage.depth + 1]
            for leaf in unit.leaves
        }
        for condition in branch.where:
            if not isinstance(condition, Binary) or condition.operator != "=":
                continue
            if self._home(branch, condition) != other.depth or any(isinstance(p, Fold) for p in walk(condition)):
                continue
            for known, of_row in ((condition.left, condition.right), (condition.right, condition.left)):
                if _places(of_row) != {(role, "")}:
                    continue
                if other is stage and _places(known) == {(role, "i-1")} and _moved(known, "") == of_row:
                    yield _moved(known, "first"), of_row  # equal to its predecessor, so to the first of all
                elif _places(known) and _places(known) <= fixed - {(role, "")}:
                    yield known, of_row

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

    def _own(self, out: Writer, join: JoinWriter, stage: Stage) -> None:
        """What an event must satisfy for itself: judged once, not for every run."""
        with join.reading({(stage.leaf.role, ""): "x"}):
            tests = [join.scope.truth(condition) for condition in stage.branch.where if _is_own(condition, stage)]
        out.line(f"return {' and '.join(tests)}")

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
            if _is_own(condition, stage):
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
                if _is_own(condition, stage):
                    continue
                if self._home(branch, condition) == depth and role in roles_of(condition):
                    out.line(f"if not ({join.scope.truth(condition)}): return False")
        if branch.spreads:
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
        ends = [f"{join.first_ts(gap.earlier, gap.from_start)} + {gap.length}" for gap in branch.gaps_to(depth)]
        ends += [
            f"{join.first_ts(unit, from_start)} + {length}"
            for unit, length, from_start in branch.own_spans
            if unit == depth
        ]
        ends.append(f"{join.first_ts(0, from_start=False)} + {branch.horizon}")
        out.line(f"return min({', '.join(ends)}, {ends[0]})")


class NextMatch:
    """The open runs of one rule."""

    def __init__(self, next_plan: NextPlan) -> None:
        self._compiled = next_plan
        self.plan = next_plan.plan
        self.name = next_plan.name
        self.stages = next_plan.stages
        self.starting: dict[str, list[Stage]] = {}
        for stage in next_plan.first:
            self.starting.setdefault(stage.leaf.type, []).append(stage)
        self.watching: dict[str, list[tuple[Stage, list[Stage], bool]]] = {}
        for stage in self.stages:
            names = {following.leaf.type for following in stage.next} | ({stage.leaf.type} if stage.many else set())
            for name in sorted(names):
                following = [s for s in stage.next if s.leaf.type == name]
                takes = stage.many and stage.leaf.type == name
                self.watching.setdefault(name, []).append((stage, following, takes))

    def attach(self, store: Store) -> None:
        self._store = store
        store.machines.append(self)
        self.bind(store.state)

    def bind(self, state: State) -> None:
        """Work on this state of the store from now on."""
        self.state = state
        self.runs = state.runs_of.setdefault(self.plan.number, [{} for _ in self.stages])
        self.functions: dict[str, dict[int, Any]] = {}
        for number, purpose, name in self._compiled.exports:
            self.functions.setdefault(purpose, {})[number] = self._store.exports[name]
        self.accept: dict[int, Callable[[Run, Row], int]] = self.functions.get("accept", {})
        self.own: dict[int, Callable[[Row], bool]] = self.functions.get("own", {})
        self.take: dict[int, Callable[[Run, Row], bool]] = self.functions.get("take", {})
        self.complete: dict[int, Callable[[Run], None]] = self.functions.get("finish", {})
        self.deadline: dict[int, Callable[[Run], int]] = self.functions.get("deadline", {})
        self._earliest = [float("-inf")] * len(self.stages)

    def handle(self, row: Row) -> None:
        kind = row[3]
        name = kind.type if isinstance(kind, Composite) else kind.name
        moved: list[tuple[Stage, Run]] = []
        for stage, all_following, may_take in self.watching.get(name, ()):
            runs = self.runs[stage.number]
            if runs:
                following = [after for after in all_following if self._fits(after, row)]
                takes = may_take and self._fits(stage, row)
                if not following and not takes:
                    continue
                key = self.functions[f"key_of_row {name}"][stage.number](row) if stage.keyed else None
                here = runs.get(key)
                if here and (key is not None or not stage.keyed):
                    here[:] = self._step(here, stage, following, takes, row, moved)
                    if not here:
                        del runs[key]
        for stage in self.starting.get(name, ()):
            if self._fits(stage, row) and self.accept[stage.number]((), row) == ACCEPTED:
                moved.append((stage, ([row] if stage.many else row,)))
        for stage, run in moved:
            if stage.complete and not stage.many:
                self.complete[stage.number](run)
            else:
                self._open(stage, run)

    def _fits(self, stage: Stage, row: Row) -> bool:
        own = self.own.get(stage.number)
        return own is None or own(row)

    def _open(self, stage: Stage, run: Run) -> None:
        key = self.functions["key_of_run"][stage.number](run) if stage.keyed else None
        self.runs[stage.number].setdefault(key, []).append(run)
        if stage.complete:
            self._earliest[stage.number] = min(self._earliest[stage.number], self.deadline[stage.number](run))

    def _step(
        self,
        runs: list[Run],
        stage: Stage,
        following: list[Stage],
        takes: bool,
        row: Row,
        moved: list[tuple[Stage, Run]],
    ) -> list[Run]:
        """The runs that stay at the stage. The elements of an open repetition are a list, of a finished one a tuple."""
        kept = []
        for run in runs:
            used = False
            for after in following:
                verdict = self.accept[after.number](run, row)
                if verdict:
                    used = True
                    if verdict == ACCEPTED:
                        before = (*run[:-1], tuple(run[-1])) if stage.many else run
                        moved.append((after, (*before, [row] if after.many else row)))
            if used:
                continue
            if takes and self.take[stage.number](run, row):
                run[-1].append(row)
            kept.append(run)
        return kept

    def finish(self, watermark: float) -> None:
        """A last repetition ends with its window."""
        now = watermark
        if self._compiled.counted is not None and watermark != float("inf"):
            now = self.state.number[0]
        for stage in self.stages:
            if not (stage.complete and stage.many) or self._earliest[stage.number] > now:
                continue
            earliest = float("inf")
            runs = self.runs[stage.number]
            for key in list(runs):
                kept = []
                for run in runs[key]:
                    deadline = self.deadline[stage.number](run)
                    if deadline <= now:
                        self.complete[stage.number]((*run[:-1], tuple(run[-1])))
                    else:
                        kept.append(run)
                        earliest = min(earliest, deadline)
                if kept:
                    runs[key] = kept
                else:
                    del runs[key]
            self._earliest[stage.number] = earliest

    def undecided_before(self) -> float:
        """The least end that a match of an open last repetition can have."""
        ends = (
            run[-1][-1][0]
            for stage in self.stages
            if stage.complete and stage.many
            for runs in self.runs[stage.number].values()
            for run in runs
        )
        return min(ends, default=float("inf"))

    def decided_at(self) -> float:
        """When the first open last repetition ends by time alone, or a moment before; infinity if there is none."""
        if self._compiled.counted is not None:
            return float("inf")
        first = float("inf")
        for stage in self.stages:
            runs = self.runs[stage.number]
            if not (stage.complete and stage.many) or not runs:
                continue
            if self._earliest[stage.number] == float("-inf"):
                deadline = self.deadline[stage.number]
                self._earliest[stage.number] = min(deadline(run) for found in runs.values() for run in found)
            first = min(first, self._earliest[stage.number])
        return first

    def sweep(self, watermark: float) -> float:
        """Drop runs whose window has passed; when to come again."""
        horizon = self._compiled.horizon
        due = watermark + max(1, horizon // SWEEPS_PER_HORIZON)
        oldest, column = watermark + 1 - horizon, 0
        if self._compiled.counted is not None and watermark != float("inf"):
            oldest, column, due = self.state.number[0] + 2 - self._compiled.counted, -1, watermark
        for stage, by_key in zip(self.stages, self.runs, strict=True):
            if stage.complete and stage.many:
                continue
            many = stage.branch.units[0].many
            for key in list(by_key):
                kept = [run for run in by_key[key] if (run[0][0] if many else run[0])[column] >= oldest]
                if kept:
                    by_key[key] = kept
                else:
                    del by_key[key]
        return due

    @property
    def waits(self) -> bool:
        """Whether some runs are decided by time alone."""
        return any(stage.complete and stage.many for stage in self.stages)

    def held(self) -> int:
        return sum(len(runs) for by_key in self.runs for runs in by_key.values())


def _places(expression: Expression) -> set[tuple[str, str]]:
    """Which events an expression names: (role, index)."""
    return {(part.role, part.index) for part in walk(expression) if isinstance(part, Attribute)}


def _moved(expression: Expression, to: Index) -> Expression:
    """The same expression about other elements of its repetition."""
    return rewritten(expression, lambda attribute: replace(attribute, index=to))


def _is_own(condition: Expression, stage: Stage) -> bool:
    """A conjunct about the event of the stage alone."""
    roles = frozenset((stage.leaf.role,))
    return roles_of(condition) == roles and (not stage.many or elementwise(condition, roles))


def _forbidden_types(branch: Branch) -> set[str]:
    found = set()
    for forbidden in branch.forbidden:
        if forbidden.leaf is not None:
            found.add(forbidden.leaf.type)
        for sub in forbidden.sub:
            found |= {leaf.type for unit in sub.units for leaf in unit.leaves}
    return found
