"""Explains TESLA chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwater.node.explain.expressions import Row, Scope, fold, holds
from headwater.node.explain.nearest_misses import Miss, Misses, Nearest, Objection, distance, facts, lookups_in, quoted
from headwater.node.explain.steps import (
    BranchReport,
    Opens,
    OutOfLooks,
    RowsOfType,
    StepReport,
    World,
    around,
    finished,
    go_through,
    identity,
    named,
    show_event,
    type_name,
)
from headwater.protocol.expressions import Expression, parameters_of, roles_of
from headwater.protocol.pattern import Absence, Aggregate, Between, Chain, Leaf, Selection, Within
from headwater.protocol.text import show_us


@dataclass(slots=True)
class _Open:
    """A partial match of a chain."""

    rows: dict[str, Row]
    parameters: dict[str, Any] = field(default_factory=dict)

    def shown(self) -> tuple[str, ...]:
        return tuple(show_event(row) for row in self.rows.values())

    def holds_event(self, row: Row) -> bool:
        wanted = identity(row)
        return any(identity(bound) == wanted for bound in self.rows.values())


class ChainWalk:
    def __init__(self, chain: Chain, where: Sequence[Expression], world: World, misses: Misses) -> None:
        self.chain = chain
        self.world = world
        self.misses = misses
        order: list[tuple[str, str]] = [("role", chain.anchor.role)]
        for step in chain.steps:
            order.append(("role", step.leaf.role))
            if isinstance(step, Aggregate):
                order.append(("parameter", step.name))
        place = {name: index for index, name in enumerate(order)}
        self.conjuncts: dict[tuple[str, str], list[Expression]] = {}
        for conjunct in where:
            names = [("role", role) for role in roles_of(conjunct)]
            names += [("parameter", name) for name in parameters_of(conjunct)]
            last = max((place[name] for name in names if name in place), default=0)
            self.conjuncts.setdefault(order[last], []).append(conjunct)

    def run(self) -> BranchReport:
        reports: list[StepReport] = []
        opens = self._anchor(reports)
        for number, step in enumerate(self.chain.steps, 1):
            match step:
                case Selection():
                    opens = self._selection(step, number, opens, reports)
                case Absence():
                    opens = self._absence(step, number, opens, reports)
                case Aggregate():
                    opens = self._aggregate(step, number, opens, reports)
        for step, number in self._waiting():
            opens = self._absence(step, number, opens, reports, all_chosen=True)
        return BranchReport((self.chain.anchor.role, *(step.leaf.role for step in self.chain.steps)), reports)

    @property
    def steps(self) -> int:
        return 1 + len(self.chain.steps) + len(self._waiting())

    def _waiting(self) -> list[tuple[Absence, int]]:
        """The negations that a part chosen later may concern: it does not negate its own match."""
        return [
            (step, number)
            for number, step in enumerate(self.chain.steps, 1)
            if isinstance(step, Absence) and step.leaf.type in self._types_after(number)
        ]

    def _report(self, text: str, leaf: Leaf, reports: list[StepReport]) -> StepReport:
        report = StepReport(text, leaf.type, len(self.world.of(leaf.type).rows))
        reports.append(report)
        return report

    def _scope(self, match: _Open, role: str, row: Row) -> Scope:
        return self.world.scope({**match.rows, role: row}, parameters=match.parameters)

    def _fits(self, role: str, scope: Scope) -> bool:
        self.world.budget.spend()
        return all(holds(conjunct, scope) for conjunct in self.conjuncts.get(("role", role), ()))

    def _conditions(self, role: str, scope: Scope, against: Objection) -> None:
        for conjunct in self.conjuncts.get(("role", role), ()):
            if not holds(conjunct, scope):
                against.condition(conjunct, scope)

    def _anchor(self, reports: list[StepReport]) -> Opens[_Open]:
        leaf = self.chain.anchor
        typed = self.world.of(leaf.type)
        report = self._report(named(leaf), leaf, reports)
        self.world.budget.next_step()
        kept: Opens[_Open] = Opens()
        nothing = _Open({})
        for row in typed.rows:
            try:
                self.world.budget.spend()
            except OutOfLooks:
                report.cut = True
                break
            report.tried += 1
            report.looked_at += 1
            against = Objection((row,))
            self._conditions(leaf.role, self._scope(nothing, leaf.role, row), against)
            if not against:
                kept.add([_Open({leaf.role: row})])
                continue
            report.turn_away(against.counted, against.looked_up())
            self.misses.offer(
                0,
                against.cost,
                against.distance,
                lambda objection=against: Miss(0, (), objection.story),  # type: ignore[misc]
            )
        if not typed.rows:
            self.misses.offer(0, 0, 0.0, lambda: Miss(0, (), f"there is no {leaf.type} event at all"))
        return finished(report, kept)

    def _selection(self, step: Selection, number: int, opens: Opens[_Open], reports: list[StepReport]) -> Opens[_Open]:
        leaf, within = step.leaf, step.within
        typed = self.world.of(leaf.type)
        policy = step.policy if step.count == 1 else f"{step.count}-{step.policy}"
        report = self._report(
            f"{policy} {named(leaf)} within {show_us(within.length_us)} from {within.origin}", leaf, reports
        )

        def choose(match: _Open) -> list[_Open]:
            origin = match.rows[within.origin]
            low, high = typed.before_ts(origin[0] - within.length_us), typed.before(origin[:3])
            low = min(low, high)
            report.tried += high - low
            report.turned_away[_window_text(within)] += low
            report.turned_away[f"not before {within.origin}"] += len(typed.rows) - high
            nearest = Nearest()
            fitting = []
            for row in typed.rows[low:high]:
                objection = self._against(step, match, row)
                if objection is None:
                    fitting.append(row)
                else:
                    report.turn_away(objection.counted, objection.looked_up())
                    nearest.consider(objection)
            chosen = fitting
            if step.policy != "each":
                chosen = fitting[-step.count :] if step.policy == "last" else fitting[: step.count]
                report.turned_away[f"not the {policy}"] += len(fitting) - len(chosen)
            if not chosen:
                for row in around(typed, low, high):
                    objection = self._against(step, match, row)
                    if objection is not None:
                        nearest.consider(objection)
                self._miss(number, match, leaf, nearest.objection)
            return [_Open({**match.rows, leaf.role: row}, match.parameters) for row in chosen]

        return go_through(report, opens, self.world.budget, choose)

    def _against(self, step: Selection, match: _Open, row: Row) -> Objection | None:
        """What speaks against an event as the next part of a partial match."""
        self.world.budget.spend()
        against = Objection((row,))
        within, origin = step.within, match.rows[step.within.origin]
        if match.holds_event(row):
            against.place("already part of the match", "is already part of the match", 0)
        if row[:3] >= origin[:3]:
            after = row[0] - origin[0]
            story = f"comes {show_us(after)} after {within.origin}" if after else f"is not before {within.origin}"
            against.place(f"not before {within.origin}", story, after)
        elif origin[0] - row[0] > within.length_us:
            excess = origin[0] - row[0] - within.length_us
            against.place(_window_text(within), f"is outside the window by {show_us(excess)}", excess)
        self._conditions(step.leaf.role, self._scope(match, step.leaf.role, row), against)
        return against or None

    def _miss(self, number: int, match: _Open, leaf: Leaf, objection: Objection | None) -> None:
        story = objection.story if objection else f"there is no {leaf.type} event to go with it"
        cost, excess = (objection.cost, objection.distance) if objection else (99, 0.0)
        self.misses.offer(number, cost, excess, lambda: Miss(number, match.shown(), story))

    def _range(self, match: _Open, bounds: Within | Between, typed: RowsOfType) -> list[Row]:
        if isinstance(bounds, Within):
            origin = match.rows[bounds.origin]
            low, high = typed.before_ts(origin[0] - bounds.length_us), typed.before(origin[:3])
        else:
            ends = sorted((match.rows[bounds.one][:3], match.rows[bounds.other][:3]))
            low, high = typed.up_to(ends[0]), typed.before(ends[1])
        return typed.rows[low:high]

    def _absence(
        self,
        step: Absence,
        number: int,
        opens: Opens[_Open],
        reports: list[StepReport],
        all_chosen: bool = False,
    ) -> Opens[_Open]:
        leaf = step.leaf
        typed = self.world.of(leaf.type)
        again = ", now that all parts are chosen" if all_chosen else ""
        report = self._report(f"not {named(leaf)} {_show_range(step.range)}{again}", leaf, reports)
        # What a later step may choose does not forbid as long as it has not chosen.
        chosen_later = self._types_after(number)

        def judge(match: _Open) -> list[_Open]:
            forbidding = None
            for row in self._range(match, step.range, typed):
                report.tried += 1
                if match.holds_event(row) or (not all_chosen and type_name(row) in chosen_later):
                    continue
                if self._fits(leaf.role, self._scope(match, leaf.role, row)):
                    forbidding = row
                    break
            if forbidding is None:
                return [match]
            report.turned_away[f"forbidden by {leaf.type}"] += 1
            story = f"forbidden by {show_event(forbidding)}"
            self.misses.offer(number, 1, 0.0, lambda: Miss(number, match.shown(), story))
            return []

        return go_through(report, opens, self.world.budget, judge)

    def _types_after(self, number: int) -> set[str]:
        """The types that steps after this one choose from."""
        return {step.leaf.type for step in self.chain.steps[number:] if isinstance(step, Selection)}

    def _aggregate(self, step: Aggregate, number: int, opens: Opens[_Open], reports: list[StepReport]) -> Opens[_Open]:
        leaf = step.leaf
        typed = self.world.of(leaf.type)
        over = f"{leaf.type}.{step.attribute}" if step.attribute else leaf.type
        over += f" as {leaf.role}" if leaf.role != leaf.type else ""
        report = self._report(f"${step.name} = {step.function}({over} {_show_range(step.range)})", leaf, reports)

        def measure(match: _Open) -> list[_Open]:
            rows = []
            for row in self._range(match, step.range, typed):
                report.tried += 1
                if self._fits(leaf.role, self._scope(match, leaf.role, row)):
                    rows.append(row)
            parameters = {**match.parameters, step.name: fold(step.function, rows, step.attribute)}
            grown = _Open(match.rows, parameters)
            scope = self.world.scope(grown.rows, parameters=parameters)
            conditions = self.conjuncts.get(("parameter", step.name), ())
            failed = next((conjunct for conjunct in conditions if not holds(conjunct, scope)), None)
            if failed is None:
                return [grown]
            report.turn_away(quoted(failed), lookups_in(failed, scope))
            story = f"fails {quoted(failed)}{facts(failed, scope)}, over {len(rows)} of {leaf.type}"
            self.misses.offer(number, 1, distance(failed, scope), lambda: Miss(number, match.shown(), story))
            return []

        return go_through(report, opens, self.world.budget, measure)


def _window_text(within: Within) -> str:
    return f"outside the window ({show_us(within.length_us)} from {within.origin})"


def _show_range(bounds: Within | Between) -> str:
    if isinstance(bounds, Within):
        return f"within {show_us(bounds.length_us)} from {bounds.origin}"
    return f"between {bounds.one} and {bounds.other}"
