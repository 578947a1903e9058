"""Skip-till-next runs whose next step may depend on an element that is not at hand.

Where it pays, such a run splits: one goes on as if the condition held, one as if it did not, and both carry the
condition as a *doubt* until its element is there. Otherwise the run *waits*: it is taken out, and when the elements are
there it goes once more through the events since then. Runs do not depend on each other, so no other run has to wait;
those that wait at one event for the same elements do so together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from headwater.node.engine.doubts import (
    NO_STAGE,
    Doubt,
    DoubtedRun,
    Doubts,
    WaitingRun,
    doubted,
    doubts_of,
    values_of,
    with_doubts,
)
from headwater.node.engine.least import Least
from headwater.node.engine.next_match import NextMatch, type_name
from headwater.node.engine.next_plan import ACCEPTED, REFUSED, UNSURE, NextPlan, NextStage, Run, RunAhead
from headwater.node.engine.remote_memory import MISSING, Key, Place
from headwater.node.engine.runtime import Row
from headwater.node.engine.splitting import where_splitting_pays
from headwater.node.engine.store import StoreState
from headwater.node.engine.timing import Timing
from headwater.node.engine.waiting import FOREVER, Asking, HeldEvaluation, NotAtHand
from headwater.protocol.analysis.lookups import tables_of

ROWS_BETWEEN_DECISIONS: Final = 256  # events after which it is decided again where it pays to go on in doubt


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
        tables = tables_of(self.plan.rule)
        self._records = not all(map(asking.memory.is_steady, tables)) or any(map(asking.memory.records, tables))
        """Whether runs carry what they rest on. None of them splits then: the two that come of a run must be decided by
        the same value."""
        self._splitting = {stage.number: True for stage in self.stages}
        """Whether it pays at a stage to go on in doubt."""
        self._opened = [0] * len(self.stages)
        """How many runs have come to each stage since it was last decided where splitting pays."""
        self._rows_left = ROWS_BETWEEN_DECISIONS
        self._decided_ts: float | None = None
        self._timings = [self._timing(ahead) for ahead in next_plan.aheads]
        self._waiting: dict[tuple[Place, ...], list[WaitingRun]] = {}
        """The runs that must wait at the present event, by the elements that they wait for."""
        self._needs: Mapping[Place, Any] = {}
        """What stays at hand for the evaluation that is running."""
        self._again: HeldEvaluation | None = None
        """What is running once more: the first to wait again takes its place."""

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
        self._note_log()

    def restored(self, held: Iterable[HeldEvaluation]) -> None:
        """Evaluations of a snapshot wait again."""
        for entry in held:
            if entry.rule == self._number and entry.what[0] in ("run", "runs", "start"):
                self._positions.add(entry.what[-1], entry.serial)

    def saved(self) -> list[Any]:
        """What it has learnt of its runs, as plain values."""
        timings = [None if timing is None else timing.saved() for timing in self._timings]
        splitting = [self._splitting[stage.number] for stage in self.stages]
        return [splitting, list(self._opened), self._rows_left, self._decided_ts, timings]

    def restore(self, saved: Sequence[Any]) -> None:
        """Continue with what was learnt."""
        splitting, opened, self._rows_left, self._decided_ts, timings = saved
        self._splitting = dict(zip((stage.number for stage in self.stages), splitting, strict=True))
        self._opened = list(opened)
        for timing, of_timing in zip(self._timings, timings, strict=True):
            if timing is not None and of_timing is not None:
                timing.restore(*of_timing)

    # ----------------------------------------------------------------------------------------------------------- steps

    def handle(self, row: Row) -> None:
        self._rows_left -= 1
        if self._rows_left <= 0:
            self._decide_splitting(row[0])
        name = type_name(row)
        if self._log:
            self._log_row(name, row)
        moved: list[tuple[NextStage, Run]] = []
        try:
            self._move(name, row, moved)
        finally:
            if self._waiting:
                self._hold_waiting(row)
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
        waiting: dict[tuple[Place, ...], list[WaitingRun]] = {}
        asking, number, needs = self._asking, self._number, self._needs
        asking.begin(number, needs)
        # Most runs rest on no doubt and are only refused by the event, or wait for it all together: that must be quick.
        is_simple = len(following) == 1 and not takes and not stage.many and not self._records
        accept = self.accept[following[0].number] if is_simple else None
        splits = accept is not None and self._splits(following[0])
        for run in runs:
            if accept is not None and run.__class__ is tuple:
                try:
                    verdict = accept(run, row)
                except NotAtHand:
                    verdict = UNSURE
                if verdict == REFUSED:
                    kept.append(run)
                    if asking.noted:
                        asking.noted = {}
                    continue
                if verdict == ACCEPTED:
                    moved.append((following[0], (*run, [row] if following[0].many else row)))
                    continue
                if verdict & UNSURE and not splits:
                    waiting.setdefault(tuple(asking.noted), []).append((stage.number, run, ()))
                    asking.noted = {}
                    continue
            asking.begin(number, needs)
            if not self._step_one(stage, following, takes, run, row, moved, kept):
                waiting.setdefault(tuple(asking.noted), []).append((stage.number, tuple(run), doubts_of(run)))
                asking.noted = {}
        for places, together in waiting.items():
            self._waiting.setdefault(places, []).extend(together)
        return kept

    def _start(self, stage: NextStage, row: Row, moved: list[tuple[NextStage, Run]]) -> bool:
        """Begin a run if the event allows it; false if that must wait."""
        verdict = self._verdict(stage, (), row)
        if verdict is None or (verdict & UNSURE and not self._splits(stage)):
            return False
        if verdict & ~UNSURE == ACCEPTED:
            doubts = (Doubt(stage.number, (), row, True),) if verdict & UNSURE else self._basis(())
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
        if self._records:
            return False
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
            doubts
            and not self._records
            and any(verdict for _, verdict in verdicts)
            and self._doubts_too_long(stage, doubts)
        ):
            return False
        before = (*run[:-1], tuple(run[-1])) if stage.many else run
        new: list[tuple[NextStage, Run]] = []
        refused: list[Doubt] = []
        used = False
        for after, verdict in verdicts:
            assert verdict is not None
            rests_on = self._basis(doubts)
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
                    doubts = self._basis(doubts)
            kept.append(doubted(run, (*doubts, *refused), self._seen))
        if refused:
            self._asking.want_noted()
        moved += new
        return True

    def _basis(self, doubts: Doubts) -> Doubts:
        """What a run rests on that goes on with what was just looked up. Where runs carry the values, the first doubt
        holds them and is none: it is of no stage."""
        used = self._asking.used
        if not used:
            return doubts
        said = dict.fromkeys((*values_of(doubts), *used.values()))
        return (Doubt(NO_STAGE, tuple(map(tuple, said)), (), True),)

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
        if self._records or not isinstance(run, DoubtedRun) or run.seen == self._asking.supplies:
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

    def _finish_run(self, stage: NextStage, run: Run, ts: float) -> None:
        """A run is complete: resolve its doubts, judge what is judged at the end, and emit it."""
        if run.__class__ is tuple and not stage.finish_asks and not self._records:
            self.complete[stage.number](run)
            return
        asking, store = self._asking, self._store
        asking.begin(self._number, self._needs)
        open_doubts = False
        for doubt in () if self._records else doubts_of(run):
            is_so = self._is_so(doubt)
            if is_so is None:
                open_doubts = True
            elif not is_so:
                return
        marks = store.marks(self._number)
        self.state.doubtful.most = FOREVER
        if not open_doubts:
            try:
                self.complete[stage.number](tuple(run))
            except NotAtHand:
                open_doubts = True
        if open_doubts or asking.noted:
            store.take_back(self._number, marks)
            end_ts = run[-1][-1][0] if stage.many else run[-1][0]
            what = ("finish", self._number, stage.number, tuple(run), doubts_of(run), ts)
            self._hold(what, end_ts, ts)
        else:
            store.tell_new(self._number, marks, values_of(doubts_of(run)))
            store.judge_doubtful(self._number)

    # --------------------------------------------------------------------------------------------------------- waiting

    def _hold_waiting(self, row: Row, position: int | None = None) -> None:
        """Have the runs wait that must wait at this event."""
        waiting, self._waiting = self._waiting, {}
        for places, runs in waiting.items():
            self._asking.noted = dict.fromkeys(places)
            self._wait(("runs", self._number, tuple(runs)), row, position)

    def _wait(self, what: tuple[Any, ...], row: Row, position: int | None = None) -> None:
        """Runs wait for what was noted. ``position``: of the event, which is the newest unless it is given."""
        if position is None:
            if not self._log:
                self._log_row(type_name(row), row)
            position = self._base[0] + len(self._log) - 1
        end_ts = row[0]
        for number, run, _ in what[2] if what[0] == "runs" else ():
            if self.stages[number].complete and self.stages[number].many:
                end_ts = min(end_ts, run[-1][-1][0])  # the last repetition may end without this event
        entry = self._hold((*what, position), end_ts, row[0])
        self._positions.add(position, entry.serial)

    def _hold(self, what: tuple[Any, ...], end_ts: float, keeps_ts: float) -> HeldEvaluation:
        """See ``Asking.hold``. What has come for the evaluation that is running stays with all that comes of it."""
        held, self._again = self._again, None
        entry = self._store.hold(self._number, what, end_ts=end_ts, keeps_ts=keeps_ts, again=held)
        if entry is not held:
            for place, element in self._needs.items():
                if element is not MISSING:
                    entry.needs.setdefault(place, element)
        return entry

    def retry(self, held: HeldEvaluation) -> None:
        """Go on with runs whose elements are there."""
        self._needs, self._again = held.needs, held
        try:
            if held.what[0] == "finish":
                _, _, number, run, doubts, ts = held.what
                self._finish_run(self.stages[number], with_doubts(run, doubts), ts)
            else:
                self._positions.remove(held.serial)
                self._resume(*held.what)
                self._trim()
        finally:
            self._needs, self._again = {}, None

    def _resume(self, kind: str, _: int, *rest: Any) -> None:
        """Take runs through the event that they waited at, and the events since then."""
        position = rest[-1]
        row = self._log[position - self._base[0]]
        moved: list[tuple[NextStage, Run]] = []
        if kind == "start":
            self._asking.begin(self._number, self._needs)
            if not self._start(self.stages[rest[0]], row, moved):
                self._wait(("start", self._number, rest[0]), row, position)
            self._catch_up([(stage, run, position + 1, row[0]) for stage, run in moved])
            return
        waiting: Iterable[WaitingRun] = rest[0] if kind == "runs" else (rest[:3],)
        at_stage: dict[int, list[Run]] = {}
        for number, run, doubts in waiting:
            if doubts or self.stages[number].many:
                run = self._own_copy(self.stages[number], with_doubts(run, doubts))
            at_stage.setdefault(number, []).append(run)
        work: list[tuple[NextStage, Run, int, float | None]] = []
        failure: Exception | None = None
        for number, runs in at_stage.items():
            stage, moved = self.stages[number], []
            step = self._concerns(stage, runs[0], row)
            assert step is not None, "runs wait at events that concern them"
            try:
                runs = self._step(runs, stage, *step, row, moved)
            except Exception as error:  # as where nothing waits: the event has not moved them, the next may
                failure, moved = error, []
            if runs and not stage.complete and not self._logged(stage, runs[0], position + 1):
                self._put_back(stage, runs)
            else:
                work += [(stage, run, position + 1, None) for run in runs]
            work += [(after, run, position + 1, row[0]) for after, run in moved]
        self._hold_waiting(row, position)
        self._catch_up(work)
        if failure is not None:
            raise failure

    def _put_back(self, stage: NextStage, runs: list[Run]) -> None:
        """Runs of one key stand at the stage again, which they have not left: they are counted as come to it."""
        key = self.functions["key_of_run"][stage.number](runs[0]) if stage.keyed else None
        self.runs[stage.number].setdefault(key, []).extend(runs)

    def _catch_up(self, work: list[tuple[NextStage, Run, int, float | None]]) -> None:
        """Take runs through the events since a position. A time says that an event of this time has just taken the run
        to its stage."""
        while work:
            stage, run, position, ts = work.pop()
            if ts is not None and stage.complete and not stage.many:
                self._finish_run(stage, run, ts)
                continue
            run = self._own_copy(stage, run)
            for at in self._logged(stage, run, position):
                row = self._log[at - self._base[0]]
                step = self._concerns(stage, run, row)
                if step is None:
                    continue
                self._asking.begin(self._number, self._needs)
                moved: list[tuple[NextStage, Run]] = []
                kept: list[Run] = []
                if not self._step_one(stage, *step, run, row, moved, kept):
                    self._wait(("runs", self._number, ((stage.number, tuple(run), doubts_of(run)),)), row, at)
                    break
                work += [(after, new, at + 1, row[0]) for after, new in moved]
                if not kept:
                    break
                (run,) = kept
            else:
                self._open(stage, run)

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

    # ------------------------------------------------------------------------------------------------------- the log

    def _log_row(self, name: str, row: Row) -> None:
        """Keep an event for the runs that wait."""
        self._log.append(row)
        self._note_row(name, row, self._base[0] + len(self._log) - 1)

    def _note_row(self, name: str, row: Row, position: int) -> None:
        for stage, _, _ in self.watching.get(name, ()):
            key = None
            if stage.keyed:
                try:
                    key = self.functions[f"key_of_row {name}"][stage.number](row)
                except Exception:  # said when a run at the stage comes to the event
                    self._unclear.setdefault(stage.number, []).append(position)
                    continue
                if key is None:
                    continue
            self._concerning.setdefault((stage.number, key), []).append(position)

    def _note_log(self) -> None:
        """Note which events of the log concern which runs."""
        self._concerning: dict[tuple[int, Any], list[int]] = {}
        """Positions in the log, by stage and key of the runs that these events concern."""
        self._unclear: dict[int, list[int]] = {}
        """The same by stage, where an event's key cannot be had."""
        for position, row in enumerate(self._log, self._base[0]):
            self._note_row(type_name(row), row, position)

    def _logged(self, stage: NextStage, run: Run, position: int) -> list[int]:
        """The positions from this one on of events that may concern the run."""
        if position - self._base[0] >= len(self._log):
            return []
        key = self.functions["key_of_run"][stage.number](run) if stage.keyed else None
        positions = self._concerning.get((stage.number, key), [])
        unclear = self._unclear.get(stage.number)
        if unclear:
            positions = sorted((*positions, *unclear))
        return positions[bisect_left(positions, position) :]

    def _trim(self) -> None:
        """Forget events that no run waits at any more."""
        least = self._positions.least()
        if least == FOREVER:
            self._base[0] += len(self._log)
            self._log.clear()
            self._concerning.clear()
            self._unclear.clear()
        elif least - self._base[0] > len(self._log) // 2:
            passed = int(least) - self._base[0]
            del self._log[:passed]
            self._base[0] += passed
            self._note_log()

    def held(self) -> int:
        return super().held() + len(self._log)

    def all_runs(self) -> Iterator[Run]:
        for by_key in self.runs:
            for runs in by_key.values():
                yield from runs
