"""Completes matches of a base rule with the values of aggregates, which it requests from other nodes.

Every match of the base rule is a candidate: its parts say over which events each aggregate ranges. When all values have
come, the conjuncts that need them accept or reject it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwater.node.engine.codegen.rules import RulePlan
from headwater.node.explain.expressions import attribute_of
from headwater.node.plans.catalog import Catalog
from headwater.node.step import FOREVER, Numbers, Work
from headwater.node.streams.feeds import Feed
from headwater.node.tasks.aggregates.planning import AskedAggregate, AskingRule
from headwater.node.tasks.aggregates.tallies import TallyPoint
from headwater.protocol.composites import Composite, informed
from headwater.protocol.events import Key, Value
from headwater.protocol.messages.neighbour import Whole
from headwater.protocol.messages.tallies import Question
from headwater.protocol.pattern import Between, Rule, Within
from headwater.protocol.tallies import Part, nothing, value

Row = tuple[Any, ...]

FLOORS_PER_HORIZON = 4  # how often those below hear what will not be asked about any more


@dataclass(slots=True)
class _Candidate:
    """A match of the base rule whose values are not all known."""

    match: Composite
    end_us: int
    values: dict[str, Value]
    missing: int


@dataclass(slots=True)
class _Pending:
    """A question on its way, and the candidates that wait for its answer."""

    token: str
    parameter: int
    candidates: list[_Candidate]


class Completion(Feed):
    """The composite events of a rule some of whose aggregates are asked for.

    Its watermark stays before the end of every candidate that is not decided.
    """

    def __init__(
        self,
        number: int,
        stream: Whole,
        asking: AskingRule,
        base: Feed,
        points: Sequence[TallyPoint],
        horizon_us: int,
        catalog: Catalog,
    ) -> None:
        """``points`` answer for the aggregates in ``asking.asked``, in that order."""
        super().__init__()
        self.number = number
        self.rank = base.rank + 1
        self.queued = False
        self.stream = stream
        self.watermark: float = -FOREVER
        self.horizon_us = horizon_us
        self._asking = asking
        self._catalog = catalog
        self._base = base
        self._points = tuple(points)
        self._serials = Numbers()
        self._incoming: list[Row] = []
        self.seen = 0
        self.found = 0
        """How many candidates came, and how many of them were composites."""
        self._open: list[_Candidate] = []
        self._pending: dict[int, _Pending] = {}
        self._asked: dict[str, int] = {}
        """The serials of the questions on their way, by what is asked."""
        self._told: list[tuple[int, Part]] = []
        self._floor: float = -FOREVER
        base.consumers.append(self)
        for point in dict.fromkeys(self._points):
            point.join(self)
        self._prepare()

    def _prepare(self) -> None:
        self._plan = _compiled(self._asking.rule, self._catalog)
        self._judge = None if self._asking.judge is None else _compiled(self._asking.judge, self._catalog)

    def __getstate__(self) -> dict[str, Any]:
        return {name: kept for name, kept in self.__dict__.items() if name not in ("_plan", "_judge")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    # ------------------------------------------------------------------------------------------------------------ feed

    def current(self, now_us: int) -> float:
        return self.watermark

    def want(self, ts: float, work: Work) -> None:
        if ts > self.watermark:  # candidates are decided as soon as they can be, wanted or not
            self._base.want(ts, work)

    def accept(self, rows: Sequence[Row], work: Work) -> None:
        self._incoming += rows
        work.touch(self)

    def block(self, rows: Sequence[Row], work: Work) -> None:
        raise AssertionError("a whole rule sends no blockers")

    def watermark_moved(self, work: Work) -> None:
        work.touch(self)

    def answered(self, serial: int, part: Part, work: Work) -> None:
        self._told.append((serial, part))
        work.touch(self)

    # --------------------------------------------------------------------------------------------------------- running

    def run(self, work: Work) -> None:
        """Ask for what new candidates need, and decide on those that have all they need."""
        rows, self._incoming = self._incoming, []
        if rows:
            self.seen += len(rows)
            self._take(rows, work)
        answers, self._told = self._told, []
        for serial, part in answers:
            pending = self._pending.pop(serial)
            del self._asked[pending.token]
            for candidate in pending.candidates:
                self._learn(candidate, self._asking.asked[pending.parameter], part)
        if answers or rows:
            self._give(work)
        base = self._base.current(work.now_us)
        self._free(base, work)
        watermark = min([base, *(candidate.end_us - 1 for candidate in self._open)])
        if watermark > self.watermark:
            self.watermark = watermark
            self.tell(work)

    def _take(self, rows: Sequence[Row], work: Work) -> None:
        questions: list[list[Question]] = [[] for _ in self._points]
        for row in rows:
            match: Composite = row[3]
            roles = match.spec.roles
            brought = zip(
                (output.name for output in self._asking.base.attributes), match[1 + len(roles) :], strict=True
            )
            candidate = _Candidate(match, row[0], dict(brought), len(self._points))
            self._open.append(candidate)
            bound = dict(zip(roles, match[1:], strict=False))
            for place, aggregate in enumerate(self._asking.asked):
                least, before = _range(aggregate.step.range, bound)
                if self.stream.since_us is not None:  # earlier events do not exist for the rule
                    least = max(least, (self.stream.since_us, "", 0))
                if least >= before:
                    self._learn(candidate, aggregate, nothing(aggregate.step.function))
                    continue
                values = tuple(attribute_of(bound[part.role], part.name) for part in aggregate.known)
                # Equal values need not look alike (1, 1.0 and True), and functions may tell them apart.
                token = repr((place, least, before, values))
                serial = self._asked.get(token)
                if serial is None:
                    serial = self._asked[token] = self._serials.next()
                    self._pending[serial] = _Pending(token, place, [])
                    questions[place].append(Question(serial, least, before, values))
                self._pending[serial].candidates.append(candidate)
        for point, batch in zip(self._points, questions, strict=True):
            if batch:
                point.ask(self, batch, work)

    @staticmethod
    def _learn(candidate: _Candidate, aggregate: AskedAggregate, part: Part) -> None:
        candidate.values[aggregate.step.name] = value(aggregate.step.function, part)
        candidate.missing -= 1

    def _give(self, work: Work) -> None:
        decided = [candidate for candidate in self._open if not candidate.missing]
        if not decided:
            return
        self._open = [candidate for candidate in self._open if candidate.missing]
        matches = [self._composite(candidate) for candidate in decided if self._accepts(candidate)]
        if matches:
            self.found += len(matches)
            self.pass_on([match.row() for match in matches], work)

    def _accepts(self, candidate: _Candidate) -> bool:
        judge = self._judge
        return judge is None or all(judge.spec.values(*_arguments(judge, candidate)))

    def _composite(self, candidate: _Candidate) -> Composite:
        composite = Composite((self._plan.spec, *_arguments(self._plan, candidate)))
        return informed(composite, candidate.match.looked_up)

    def _free(self, watermark: float, work: Work) -> None:
        """Later candidates end after the watermark of the base rule, so nothing a horizon before it is asked for."""
        floor = watermark - self.horizon_us
        if floor > self._floor and (watermark == FOREVER or floor - self._floor > self.horizon_us / FLOORS_PER_HORIZON):
            self._floor = floor
            for point in dict.fromkeys(self._points):
                point.free_before(self, floor, work)

    # -------------------------------------------------------------------------------------------------------- checking

    def held(self) -> int:
        return len(self._open) + len(self._incoming)

    def unfinished(self) -> list[str]:
        """What still waits for something."""
        waits = [f"{len(self._open)} candidates are not decided"] if self._open else []
        return waits + ([f"its watermark is {self.watermark}"] if self.watermark < FOREVER else [])


def _arguments(plan: RulePlan, candidate: _Candidate) -> list[Any]:
    """What the functions of a compiled rule take: the parts of a match, then the values of aggregates."""
    parts = candidate.match[1 : 1 + len(plan.spec.roles)]
    return [*parts, *(candidate.values[name] for name in plan.parameters)]


def _compiled(rule: Rule, catalog: Catalog) -> RulePlan:
    ((plan, _),) = catalog.program(Whole(rule)).plans
    return plan


def _range(interval: Within | Between, bound: dict[str, Row]) -> tuple[Key, Key]:
    """The keys from which on and before which aggregated events lie."""
    if isinstance(interval, Within):
        origin: Key = bound[interval.origin][:3]
        return (origin[0] - interval.length_us, "", 0), origin
    (ts, node, seq), later = sorted((bound[interval.one][:3], bound[interval.other][:3]))
    return (ts, node, seq + 1), later
