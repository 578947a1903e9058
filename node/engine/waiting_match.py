"""Skip-till-next runs whose next step may depend on an element that is not at hand.

Where it pays, such a run splits: one goes on as if the condition held, one as if it did not, and both carry the
condition as a *doubt* until its element is there. Otherwise the run *waits*: it is taken out, and when the elements are
there it goes once more through the events since then. Runs do not depend on each other, so no other run has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from headwater.node.engine.next_match import NextMatch, type_name
from headwater.node.engine.next_plan import ACCEPTED, REFUSED, UNSURE, NextPlan, NextStage, Run, RunAhead
from headwater.node.engine.runtime import Row
from headwater.node.engine.splitting import where_splitting_pays
from headwater.node.engine.store import StoreState
from headwater.node.engine.waiting import FOREVER, Asking, HeldEvaluation, Key, Least, NotAtHand, Timing

ROWS_BETWEEN_DECISIONS: Final = 256  # events after which it is decided again where it pays to go on in doubt


class Doubt(NamedTuple):
    """A step that a run took as if it were decided: the event was (or was not) accepted at the stage."""

    stage: int
    run: Run
    row: Row
    accepted: bool


Doubts = tuple[Doubt, ...]


class DoubtedRun(tuple[Any, ...]):
    """A run that rests on doubts."""

    doubts: Doubts
    seen: int
    """How many elements had come when the doubts were last looked at."""


def doubted(run: Run, doubts: Doubts, seen: int = -1) -> Run:
    if not doubts:
        return tuple(run) if isinstance(run, DoubtedRun) else run
    carrying = DoubtedRun(run)
    carrying.doubts, carrying.seen = doubts, seen
    return carrying


def with_doubts(run: Run, doubts: Iterable[Any]) -> Run:
    """A run as it was saved."""
    return doubted(tuple(run), tuple(Doubt(*doubt) for doubt in doubts))


def doubts_of(run: Run) -> Doubts:
    return run.doubts if isinstance(run, DoubtedRun) else ()


class AskingNextMatch(NextMatch):
    """The open runs of one rule that looks something up."""

    def __init__(self, next_plan: NextPlan, asking: Asking) -> None:
        super().__init__(next_plan)
        self._asking = asking
        self._number = self.plan.number
        self._following: list[dict[str, tuple[list[NextStage], bool]]] = [{} for _ in self.stages]
        for name, entries in self.watching.items():
            for stage, following, takes in entries:
                self._following[stage.number][name] = following, takes
        self._splitting = {stage.number: True for stage in self.stages}
        """Whether it pays at a stage to go on in doubt."""
        self._opened = [0] * len(self.stages)
        """How many runs have come to each stage since it was last decided where splitting pays."""
        self._rows_left = ROWS_BETWEEN_DECISIONS
        self._decided_ts: float | None = None
        self._timings = [self._timing(ahead) for ahead in next_plan.aheads]

    def _timing(self, ahead: RunAhead) -> Timing | None:
        """What has elements fetched for runs that will need them; None if nothing does."""
        classes = [
            self._asking.counted(
                self._number,
                f"{self.name} {ahead.purpose} at {stage}",
                ahead.table,
                ahead.horizon if ahead.count is None else ahead.count,
                numbered=ahead.count is not None,
                early=True,
            )
            for stage in ahead.stages
        ]
        counted = [key_class for key_class in classes if key_class is not None]
        return Timing(counted, self._asking.waiting_of[self._number].lookahead) if counted else None

    def _open(self, stage: NextStage, run: Run) -> None:
        super()._open(stage, run)
        self._opened[stage.number] += 1
        for key_of, timing, position in self._aheads[stage.number]:
            try:
                key = key_of(run)
            except Exception:  # whatever is wrong with the events is said when the lookup is made
                continue
            if key is not None:
                last = run[-1][-1] if stage.many else run[-1]
                timing.at(position, key, last[0])

    def bind(self, state: StoreState) -> None:
        super().bind(state)
        self._aheads: list[list[tuple[Callable[[Run], Key | None], Timing, int]]] = [[] for _ in self.stages]
        for ahead, timing in zip(self._compiled.aheads, self._timings, strict=True):
            if timing is not None:
                for position, stage in enumerate(ahead.stages):
                    key_of = self.functions[ahead.purpose][stage]
                    self._aheads[stage].append((key_of, timing, position))
        self._log = state.logs.setdefault(self._number, [])
        """Events since the first at which a run waits, in trace order."""
        self._base = state.log_bases.setdefault(self._number, [0])
        self._positions = Least()

    def restored(self, held: Iterable[HeldEvaluation]) -> None:
        """Evaluations of a snapshot wait again."""
        for entry in held:
            if entry.rule == self._number and entry.what[0] in ("run", "start"):
                self._positions.add(entry.what[-1], entry.serial)

    # ----------------------------------------------------------------------------------------------------------- steps

    def handle(self, row: Row) -> None:
        self._rows_left -= 1
        if self._rows_left <= 0:
            self._decide_splitting(row[0])
        if self._log:
            self._log.append(row)
        self._row = row
        name = type_name(row)
        moved: list[tuple[NextStage, Run]] = []
        self._move(name, row, moved)
        for stage in self.starting.get(name, ()):
            if self._fits(stage, row):
                self._asking.begin(self._number)
                if not self._start(stage, row, moved):
                    self._wait(("start", self._number, stage.number), row)
        for stage, run in moved:
            self._arrived(stage, run, row[0])

    def _decide_splitting(self, ts: int) -> None:
        """See again where it pays to go on in doubt."""
        self._rows_left = ROWS_BETWEEN_DECISIONS
        opened, self._opened = self._opened, [0] * len(self.stages)
        before, self._decided_ts = self._decided_ts, ts
        if before is None or ts <= before:
            return
        rates = {number: count / (ts - before) for number, count in enumerate(opened)}
        standing = {number: sum(map(len, by_key.values())) for number, by_key in enumerate(self.runs)}
        latency_us = max(map(self._asking.memory.latency_us, self._asking.tables), default=0.0)
        self._splitting = where_splitting_pays(self.stages, rates, standing, latency_us)

    def _step(
        self,
        runs: list[Run],
        stage: NextStage,
        following: list[NextStage],
        takes: bool,
        row: Row,
        moved: list[tuple[NextStage, Run]],
    ) -> list[Run]:
        """The runs that stay at the stage."""
        kept: list[Run] = []
        begin, number = self._asking.begin, self._number
        begin(number)
        # Most runs rest on no doubt and are only refused by the event: that must be quick.
        accept = self.accept[following[0].number] if len(following) == 1 and not takes and not stage.many else None
        for run in runs:
            if accept is not None and run.__class__ is tuple:
                try:
                    verdict = accept(run, row)
                except NotAtHand:
                    verdict = UNSURE
                if verdict == REFUSED:
                    kept.append(run)
                    continue
                if verdict == ACCEPTED:
                    moved.append((following[0], (*run, [row] if following[0].many else row)))
                    continue
            begin(number)
            if not self._step_one(stage, following, takes, run, row, moved, kept):
                self._wait(self._waiting_run(stage, run), row)
        return kept

    def _start(self, stage: NextStage, row: Row, moved: list[tuple[NextStage, Run]]) -> bool:
        """Begin a run if the event allows it; false if that must wait."""
        verdict = self._verdict(stage, (), row)
        if verdict is None or (verdict & UNSURE and not self._splits(stage)):
            return False
        if verdict & ~UNSURE == ACCEPTED:
            doubts = (Doubt(stage.number, (), row, True),) if verdict & UNSURE else ()
            self._asking.want_noted()
            moved.append((stage, doubted(([row] if stage.many else row,), doubts, self._asking.supplies)))
        return True

    def _verdict(self, stage: NextStage, run: Run, row: Row) -> int | None:
        """Whether the event continues the run at the stage; None if the evaluation ended at a missing element."""
        try:
            return self.accept[stage.number](run, row)
        except NotAtHand:
            return None

    def _splits(self, stage: NextStage) -> bool:
        waiting = self._asking.waiting_of[self._number]
        if waiting.stages_in_doubt is not None:
            return waiting.postpones and waiting.stages_in_doubt > 0
        return waiting.postpones and self._splitting[stage.number]

    def _doubts_too_long(self, stage: NextStage, doubts: Doubts) -> bool:
        """Whether a run at the stage has passed as many stages in doubt as it may; then what it lacks is noted."""
        most = self._asking.waiting_of[self._number].stages_in_doubt
        if most is None or all(stage.depth - self.stages[doubt.stage].depth < most for doubt in doubts):
            return False
        open_doubts = [doubt for doubt in doubts if self._is_so(doubt) is None]
        return bool(open_doubts)

    def _step_one(
        self,
        stage: NextStage,
        following: list[NextStage],
        takes: bool,
        run: Run,
        row: Row,
        moved: list[tuple[NextStage, Run]],
        kept: list[Run],
    ) -> bool:
        """Take one run past one event; false if it must wait."""
        settled = self._settled(run)
        if settled is None:
            return True  # it rested on something that is not so
        run = settled
        doubts = doubts_of(run)
        verdicts = [(after, self._verdict(after, run, row)) for after in following]
        if any(v is None or (v & UNSURE and (takes or not self._splits(after))) for after, v in verdicts) or (
            doubts and any(verdict for _, verdict in verdicts) and self._doubts_too_long(stage, doubts)
        ):
            return False
        before = (*run[:-1], tuple(run[-1])) if stage.many else run
        new: list[tuple[NextStage, Run]] = []
        refused: list[Doubt] = []
        used = False
        for after, verdict in verdicts:
            assert verdict is not None
            rests_on = doubts
            if verdict & UNSURE:
                doubt = Doubt(after.number, tuple(before), row, True)
                refused.append(doubt._replace(accepted=False))
                rests_on = (*doubts, doubt)
            elif verdict:
                used = True
            if verdict & ~UNSURE == ACCEPTED:
                new.append((after, doubted((*before, [row] if after.many else row), rests_on, self._seen)))
        if not used:
            if takes:
                taken = self._taken(stage, run, row)
                if taken is None:
                    return False
                if taken:
                    run[-1].append(row)
            kept.append(doubted(run, (*doubts, *refused), self._seen))
        if refused:
            self._asking.want_noted()
        moved += new
        return True

    @property
    def _seen(self) -> int:
        return self._asking.supplies

    def _taken(self, stage: NextStage, run: Run, row: Row) -> bool | None:
        """Whether a repetition takes the event; None if that must wait."""
        try:
            verdict = int(self.take[stage.number](run, row))
        except NotAtHand:
            return None
        return None if verdict & UNSURE else bool(verdict)

    def _settled(self, run: Run) -> Run | None:
        """The run without its first doubts, as far as they are resolved; None if one of these was not so. Doubts that
        follow an open one are looked at later: often they wait for the same element."""
        if not isinstance(run, DoubtedRun) or run.seen == self._asking.supplies:
            return run
        noted = dict(self._asking.noted)
        resolved = 0
        for doubt in run.doubts:
            is_so = self._is_so(doubt)
            if is_so is None:
                break
            if not is_so:
                self._asking.noted = noted
                return None
            resolved += 1
        self._asking.noted = noted
        return doubted(run, run.doubts[resolved:], self._asking.supplies)

    def _is_so(self, doubt: Doubt) -> bool | None:
        """Whether a doubt was decided as assumed; None if its element is still missing."""
        verdict = self._verdict(self.stages[doubt.stage], doubt.run, doubt.row)
        if verdict is None or verdict & UNSURE:
            return None
        return (verdict != REFUSED) is doubt.accepted

    def _arrived(self, stage: NextStage, run: Run, ts: float) -> None:
        if stage.complete and not stage.many:
            self._finish_run(stage, run, ts)
        else:
            self._open(stage, run)

    # --------------------------------------------------------------------------------------------------------- endings

    def _end(self, stage: NextStage, run: Run, ts: float) -> None:
        """The window of a last repetition is over. What decides on it is kept as it was needed then."""
        ended_ts = run[-1][-1][0] if self._compiled.counted is not None else self.deadline[stage.number](run)
        ts = min(ts, ended_ts)
        self._finish_run(stage, doubted((*run[:-1], tuple(run[-1])), doubts_of(run)), ts)

    def _finish_run(self, stage: NextStage, run: Run, ts: float, held: HeldEvaluation | None = None) -> None:
        """A run is complete: resolve its doubts, judge what is judged at the end, and emit it."""
        asking, store = self._asking, self._store
        asking.begin(self._number, None if held is None else held.needs)
        open_doubts = False
        for doubt in doubts_of(run):
            is_so = self._is_so(doubt)
            if is_so is None:
                open_doubts = True
            elif not is_so:
                return
        marks = store.marks(self._number)
        if not open_doubts:
            try:
                self.complete[stage.number](tuple(run))
            except NotAtHand:
                open_doubts = True
        if open_doubts or asking.noted:
            store.take_back(self._number, marks)
            end_ts = run[-1][-1][0] if stage.many else run[-1][0]
            what = ("finish", self._number, stage.number, tuple(run), doubts_of(run), ts)
            store.hold(self._number, what, end_ts=end_ts, keeps_ts=ts, again=held)
        else:
            store.judge_doubtful(self._number)

    # --------------------------------------------------------------------------------------------------------- waiting

    def _wait(
        self, what: tuple[Any, ...], row: Row, position: int | None = None, held: HeldEvaluation | None = None
    ) -> None:
        """The run waits for what was noted. ``position``: of the event, which is the newest unless it is given."""
        if position is None:
            if not self._log:
                self._log.append(row)
            position = self._base[0] + len(self._log) - 1
        end_ts = row[0]
        if what[0] == "run" and self.stages[what[2]].complete and self.stages[what[2]].many:
            end_ts = what[3][-1][-1][0]  # the last repetition may end without this event
        entry = self._store.hold(self._number, (*what, position), end_ts=end_ts, keeps_ts=row[0], again=held)
        self._positions.add(position, entry.serial)

    def _waiting_run(self, stage: NextStage, run: Run) -> tuple[Any, ...]:
        return "run", self._number, stage.number, tuple(run), doubts_of(run)

    def retry(self, held: HeldEvaluation) -> None:
        """Go on with a run whose elements are there."""
        kind, _, number, *rest = held.what
        stage = self.stages[number]
        if kind == "finish":
            run, doubts, ts = rest
            self._finish_run(stage, with_doubts(run, doubts), ts, held)
            return
        position = rest[-1]
        self._positions.remove(held.serial)
        self._asking.begin(self._number, held.needs)
        moved: list[tuple[NextStage, Run]] = []
        again: HeldEvaluation | None = held
        if kind == "start":
            row = self._log[position - self._base[0]]
            if not self._start(stage, row, moved):
                self._wait(("start", self._number, number), row, position, held)
                again = None
            for after, run in moved:
                again = self._catch_up(after, run, position + 1, row[0], again)
        else:
            self._catch_up(stage, with_doubts(rest[0], rest[1]), position, None, again)
        self._trim()

    def _catch_up(
        self, stage: NextStage, run: Run, position: int, ts: float | None, held: HeldEvaluation | None
    ) -> HeldEvaluation | None:
        """Take a run through the events since a position. ``ts``: it has just been taken to this stage by an event of
        this time. ``held`` keeps the elements that have come; the first run to wait again takes its number."""
        asking = self._asking
        needs = {} if held is None else held.needs
        work = [(stage, run, position, ts)]
        while work:
            stage, run, position, ts = work.pop()
            if ts is not None and stage.complete and not stage.many:
                self._finish_run(stage, run, ts, held)
                asking.begin(self._number, needs)
                if held is not None and held.serial in asking.held:
                    held = None
                continue
            run = self._own_copy(stage, run)
            for index in range(position - self._base[0], len(self._log)):
                row = self._log[index]
                step = self._concerns(stage, run, row)
                if step is None:
                    continue
                asking.noted = {}
                moved: list[tuple[NextStage, Run]] = []
                kept: list[Run] = []
                at = self._base[0] + index
                if not self._step_one(stage, *step, run, row, moved, kept):
                    self._wait(self._waiting_run(stage, run), row, at, held)
                    if held is not None:
                        held = None
                    break
                work += [(after, new, at + 1, row[0]) for after, new in moved]
                if not kept:
                    break
                (run,) = kept
            else:
                self._open(stage, run)
        return held

    @staticmethod
    def _own_copy(stage: NextStage, run: Run) -> Run:
        """The elements of an open repetition are a list, which a saved run may have as a tuple."""
        if stage.many and not isinstance(run[-1], list):
            return doubted((*run[:-1], list(run[-1])), doubts_of(run))
        return run

    def _concerns(self, stage: NextStage, run: Run, row: Row) -> tuple[list[NextStage], bool] | None:
        name = type_name(row)
        watched = self._following[stage.number].get(name)
        if watched is None:
            return None
        following = [after for after in watched[0] if self._fits(after, row)]
        takes = watched[1] and self._fits(stage, row)
        if not following and not takes:
            return None
        if stage.keyed:
            key = self.functions[f"key_of_row {name}"][stage.number](row)
            if key is None or key != self.functions["key_of_run"][stage.number](run):
                return None
        return following, takes

    def _trim(self) -> None:
        """Forget events that no run waits at any more."""
        least = self._positions.least()
        if least == FOREVER:
            self._base[0] += len(self._log)
            self._log.clear()
        elif least - self._base[0] > len(self._log) // 2:
            passed = int(least) - self._base[0]
            del self._log[:passed]
            self._base[0] += passed

    def held(self) -> int:
        return super().held() + len(self._log)

    def all_runs(self) -> Iterator[Run]:
        for by_key in self.runs:
            for runs in by_key.values():
                yield from runs
