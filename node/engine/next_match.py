"""Skip-till-next: runs that always take the next event that fits.

A run stands at a state of its rule (`next_plan`) with what it has bound so far; each event in trace order either moves
it to a following state, is taken into its repetition, or passes it by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headwater.node.engine.next_plan import ACCEPTED, NextPlan, NextStage, Run
from headwater.node.engine.runtime import Row
from headwater.node.engine.store import SWEEPS_PER_HORIZON, Store, StoreState
from headwater.node.engine.waiting import HeldEvaluation
from headwater.protocol.composites import Composite


class NextMatch:
    """The open runs of one rule."""

    def __init__(self, next_plan: NextPlan) -> None:
        self._compiled = next_plan
        self.plan = next_plan.plan
        self.name = next_plan.name
        self.stages = next_plan.stages
        self.waits = any(stage.complete and stage.many for stage in self.stages)
        """Whether some runs are decided by time alone."""
        self.starting: dict[str, list[NextStage]] = {}
        for stage in next_plan.first:
            self.starting.setdefault(stage.leaf.type, []).append(stage)
        self.watching: dict[str, list[tuple[NextStage, list[NextStage], bool]]] = {}
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

    def bind(self, state: StoreState) -> None:
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
        self._regroup()

    def _regroup(self) -> None:
        """Keep runs that were saved by an earlier version by what they are found by now."""
        for stage, by_key in zip(self.stages, self.runs, strict=True):
            if stage.keyed and by_key:
                runs = [run for same_key in by_key.values() for run in same_key]
                by_key.clear()
                key_of = self.functions["key_of_run"][stage.number]
                for run in runs:
                    by_key.setdefault(key_of(run), []).append(run)

    def handle(self, row: Row) -> None:
        name = type_name(row)
        moved: list[tuple[NextStage, Run]] = []
        self._move(name, row, moved)
        for stage in self.starting.get(name, ()):
            if self._fits(stage, row) and self.accept[stage.number]((), row) == ACCEPTED:
                moved.append((stage, ([row] if stage.many else row,)))
        for stage, run in moved:
            if stage.complete and not stage.many:
                self.complete[stage.number](run)
            else:
                self._open(stage, run)

    def _move(self, name: str, row: Row, moved: list[tuple[NextStage, Run]]) -> None:
        """Take the open runs past an event; those that it moves to another stage go to ``moved``."""
        for stage, all_following, may_take in self.watching.get(name, ()):
            runs = self.runs[stage.number]
            if not runs:
                continue
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

    def _fits(self, stage: NextStage, row: Row) -> bool:
        own = self.own.get(stage.number)
        return own is None or own(row)

    def _open(self, stage: NextStage, run: Run) -> None:
        key = self.functions["key_of_run"][stage.number](run) if stage.keyed else None
        self.runs[stage.number].setdefault(key, []).append(run)
        if stage.complete:
            self._earliest[stage.number] = min(self._earliest[stage.number], self.deadline[stage.number](run))

    def _step(
        self,
        runs: list[Run],
        stage: NextStage,
        following: list[NextStage],
        takes: bool,
        row: Row,
        moved: list[tuple[NextStage, Run]],
    ) -> list[Run]:
        """The runs that stay at the stage. The elements of an open repetition are a list, of a finished one a tuple."""
        kept = []
        if len(following) == 1 and not takes and not stage.many:  # mostly, and mostly the event is refused
            (after,) = following
            accept = self.accept[after.number]
            for run in runs:
                verdict = accept(run, row)
                if not verdict:
                    kept.append(run)
                elif verdict == ACCEPTED:
                    moved.append((after, (*run, [row] if after.many else row)))
            return kept
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
                        self._end(stage, run, watermark)
                    else:
                        kept.append(run)
                        earliest = min(earliest, deadline)
                if kept:
                    runs[key] = kept
                else:
                    del runs[key]
            self._earliest[stage.number] = earliest

    def _end(self, stage: NextStage, run: Run, ts: float) -> None:
        """The window of a last repetition is over, decided at this time."""
        self.complete[stage.number]((*run[:-1], tuple(run[-1])))

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
                self._earliest[stage.number] = min(deadline(run) for same_key in runs.values() for run in same_key)
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

    def restored(self, held: Iterable[HeldEvaluation]) -> None:
        """The store was restored with these evaluations waiting."""

    def saved(self) -> Sequence[Any] | None:
        """What it has learnt of its runs, as plain values; nothing where they never wait."""
        return None

    def restore(self, saved: Sequence[Any]) -> None:
        raise AssertionError("nothing was learnt where nothing is asked for")

    def retry(self, held: HeldEvaluation) -> None:
        raise AssertionError("no run waits where nothing is asked for")

    def held(self) -> int:
        return sum(len(runs) for by_key in self.runs for runs in by_key.values())


def type_name(row: Row) -> str:
    kind = row[3]
    return kind.type if isinstance(kind, Composite) else kind.name
