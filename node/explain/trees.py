"""Explains operator trees (SASE, INEv, CED)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal

from headwater.node.explain.expressions import Row, evaluate, holds, show_value
from headwater.node.explain.forbidden_range import in_range, near_range, near_times, sub_matches
from headwater.node.explain.nearest_misses import Miss, Misses, Nearest, Objection, quoted
from headwater.node.explain.repetitions import Repetitions, TooManyCombinations, match_scope
from headwater.node.explain.shape import Element, Forbidden, Open, PatternShape, Unit, WindowBound, alternatives
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
)
from headwater.protocol.composites import own_key, start_of
from headwater.protocol.events import Key
from headwater.protocol.expressions import Attribute, Expression, Fold, Same, roles_of, walk
from headwater.protocol.pattern import Part, Window, leaves
from headwater.protocol.text import show_us

_roles_of: Final = lru_cache(maxsize=1024)(roles_of)


class TreeWalk:
    def __init__(
        self,
        shape: Part,
        root: Part,
        where: Sequence[Expression],
        skip: Literal["any", "next"],
        world: World,
        misses: Misses,
    ) -> None:
        self.shape = PatternShape(shape)
        self.skip = skip
        self.world = world
        self.misses = misses
        self.same = [conjunct for conjunct in where if isinstance(conjunct, Same)]
        self.at_unit: dict[int, list[Expression]] = {}
        self.at_end: list[Expression] = []
        self.of_negation: dict[int, list[Expression]] = {}
        negated = {
            leaf.role: number for number, negation in enumerate(self.shape.negations) for leaf in leaves(negation.part)
        }
        for conjunct in where:
            if isinstance(conjunct, Same):
                continue
            roles = _roles_of(conjunct)
            if not all(role in self.shape.unit_of or role in negated for role in roles):
                continue  # it names a branch of an OR that is not this one
            if any(role in negated for role in roles):
                self.of_negation.setdefault(next(negated[role] for role in roles if role in negated), []).append(
                    conjunct
                )
            elif any(isinstance(part, Fold) or (isinstance(part, Attribute) and part.index) for part in walk(conjunct)):
                self.at_end.append(conjunct)
            else:
                last = max((self.shape.unit_of[role] for role in roles), default=0)
                self.at_unit.setdefault(last, []).append(conjunct)

    @property
    def steps(self) -> int:
        return len(self.shape.units) + len(self.shape.negations) + self._judges_repetitions()

    def _judges_repetitions(self) -> bool:
        return any(unit.many for unit in self.shape.units) and bool(
            self.at_end or any(unit.limit for unit in self.shape.units)
        )

    def run(self) -> BranchReport:
        reports: list[StepReport] = []
        opens: Opens[Open] = Opens()
        for number, unit in enumerate(self.shape.units):
            opens = self._bind(number, unit, opens, reports)
        depth = len(self.shape.units)
        for number, negation in enumerate(self.shape.negations):
            opens = self._forbid(number, negation, depth, opens, reports)
            depth += 1
        if self._judges_repetitions():
            self._finish(depth, opens, reports)
        roles = tuple(leaf.role for unit in self.shape.units for leaf in unit.leaves)
        return BranchReport(roles, reports)

    # One unit after the other

    def _bind(self, number: int, unit: Unit, opens: Opens[Open], reports: list[StepReport]) -> Opens[Open]:
        typed = self.world.of(unit.leaves[0].type)
        types = "/".join(dict.fromkeys(leaf.type for leaf in unit.leaves))
        report = StepReport(unit.text, types, len(typed.rows))
        reports.append(report)
        if number == 0:
            return self._begin(unit, typed, report)

        def grow(match: Open) -> list[Open]:
            rejected = Nearest()
            if unit.many:
                grown = self._repeat(number, unit, match, report, rejected)
                matches = [grown] if grown else []
            else:
                matches = self._single(number, match, typed, report, rejected)
                if self.skip == "next" and len(matches) > 1:
                    matches.sort(key=lambda grown_match: own_key(grown_match.single[number][0]))
                    report.turned_away["not the next"] += len(matches) - 1
                    matches = matches[:1]
            if not matches:
                self._miss(number, match, unit.leaves[0].type, rejected)
            return matches

        return go_through(report, opens, self.world.budget, grow)

    def _begin(self, unit: Unit, typed: RowsOfType, report: StepReport) -> Opens[Open]:
        """The first unit: each event that fits begins a partial match; those of a repetition are one partial match."""
        self.world.budget.next_step()
        kept: Opens[Open] = Opens()
        elements: list[Element] = []
        try:
            for row in typed.rows:
                for element in self._iterations(0, unit, (row,)):
                    grown = self._fit(0, Open(), element)
                    report.tried += 1
                    if isinstance(grown, Objection):
                        report.turn_away(grown.counted, grown.looked_up())
                        self.misses.offer(
                            0,
                            grown.cost,
                            grown.distance,
                            lambda objection=grown: Miss(0, (), objection.story),  # type: ignore[misc]
                        )
                    elif unit.many:
                        elements.append(element)
                    else:
                        kept.add([grown])
                report.looked_at += 1
        except OutOfLooks:
            report.cut = True
        if elements:
            kept.add([Open({}, {0: elements})])
        if not typed.rows:
            name = unit.leaves[0].type
            self.misses.offer(0, 0, 0.0, lambda: Miss(0, (), f"there is no {name} event at all"))
        return finished(report, kept)

    def _single(self, number: int, match: Open, typed: RowsOfType, report: StepReport, rejected: Nearest) -> list[Open]:
        low, high = self._bounds(number, match, typed, report)
        matches = []
        for row in typed.rows[low:high]:
            grown = self._fit(number, match, (row,))
            report.tried += 1
            if isinstance(grown, Open):
                matches.append(grown)
                continue
            report.turn_away(grown.counted, grown.looked_up())
            rejected.consider(grown)
        if not matches:
            for row in around(typed, low, high):
                outside = self._fit(number, match, (row,))
                if isinstance(outside, Objection):
                    rejected.consider(outside)
        return matches

    def _repeat(self, number: int, unit: Unit, match: Open, report: StepReport, rejected: Nearest) -> Open | None:
        """The partial match with all possible elements of a repetition."""
        typed = self.world.of(unit.leaves[0].type)
        low, high = self._bounds(number, match, typed, report)
        elements: list[Element] = []
        for row in typed.rows[low:high]:
            for element in self._iterations(number, unit, (row,)):
                grown = self._fit(number, match, element)
                report.tried += 1
                if isinstance(grown, Open):
                    elements.append(element)
                else:
                    report.turn_away(grown.counted, grown.looked_up())
                    rejected.consider(grown)
        if not elements:
            return None
        # Elements bound before this repetition stay as they were: each of these may restrict them differently.
        return Open(match.single, {**match.many, number: elements})

    def _iterations(self, number: int, unit: Unit, begun: Element) -> Iterator[Element]:
        """The events of one iteration of a group, given its first, that a span window has room for."""
        if len(begun) == len(unit.leaves):
            yield begun
            return
        typed = self.world.of(unit.leaves[len(begun)].type)
        spans = [b.window.length for b in self.shape.windows if number in b.units and _is_span(b.window)]
        high = typed.up_to_ts(start_of(begun[0])[0] + min(spans)) if spans else len(typed.rows)
        for row in typed.rows[typed.up_to(begun[-1][:3]) : high]:
            self.world.budget.spend()
            if start_of(row) > begun[-1][:3]:
                yield from self._iterations(number, unit, (*begun, row))

    def _bounds(self, number: int, match: Open, typed: RowsOfType, report: StepReport) -> tuple[int, int]:
        """The part of a type's events that is not excluded by order and the outermost window, counting the others."""
        low, high = 0, len(typed.rows)
        after = self._must_follow(number, match)
        if after is not None:
            unit, key = after
            low = typed.up_to(key)
            report.turned_away[f"not after {self._role(unit)}"] += low
        for bound in self.shape.windows:
            window = bound.window
            if number not in bound.units or not _is_span(window):
                continue
            rows = [row for unit in bound.units for row in match.single.get(unit, ())]
            if rows:
                first, last = min(start_of(row)[0] for row in rows), max(row[0] for row in rows)
                until = max(low, min(high, typed.up_to_ts(first + window.length)))
                since = min(until, max(low, typed.before_ts(last - window.length)))
                report.turned_away[self._window_text(window)] += (high - until) + (since - low)
                low, high = since, until
        return low, high

    def _must_follow(self, number: int, match: Open) -> tuple[int, Key] | None:
        """The unit that this one must come after, and the end of it."""
        latest: tuple[int, Key] | None = None
        for unit, element in match.single.items():
            if (unit, number) in self.shape.before and (latest is None or element[-1][:3] > latest[1]):
                latest = unit, element[-1][:3]
        for unit, elements in match.many.items():
            if (unit, number) in self.shape.before:
                end = min(element[-1][:3] for element in elements)
                if latest is None or end > latest[1]:
                    latest = unit, end
        return latest

    def _fit(self, number: int, match: Open, element: Element) -> Open | Objection:
        """The partial match with one more element, or what speaks against it."""
        self.world.budget.spend()
        against = Objection(element)
        ids = {identity(row) for row in element}
        if any(identity(row) in ids for bound in match.single.values() for row in bound):
            against.place("already part of the match", "is already part of the match", 0)
        after = self._must_follow(number, match)
        start = start_of(element[0])
        if after is not None and not after[1] < start:
            role, early = self._role(after[0]), after[1][0] - start[0]
            story = f"comes {show_us(early)} before the end of {role}" if early > 0 else f"does not come after {role}"
            against.place(f"not after {role}", story, early)
        single = {**match.single, number: element}
        excess = self._excess(number, single)
        if excess is not None:
            window, over = excess
            shown_over = show_us(over) if window.unit == "us" else f"{over} events"
            against.place(self._window_text(window), f"is outside the window by {shown_over}", over)
        disagreeing = self._disagreement(element, [row for bound in match.single.values() for row in bound])
        if disagreeing:
            against.disagreement(disagreeing[0], f"fails {disagreeing[0]} ({disagreeing[1]})")
        scope = match_scope(self.shape, self.world, single)
        for conjunct in self.at_unit.get(number, ()):
            names_elements = any(self.shape.unit_of[role] in match.many for role in _roles_of(conjunct))
            if not names_elements and not holds(conjunct, scope):
                against.condition(conjunct, scope)
        if against:
            return against
        many = {}
        for unit, elements in match.many.items():
            fitting, why = self._fitting_elements(unit, elements, number, single)
            if not fitting:
                role = self._role(unit)
                against.place(f"leaves no {role}[]: {why}", f"leaves no {role}[]: {why}", 0)
                return against
            many[unit] = fitting
        if self.shape.units[number].many:
            # The elements of this unit are gathered by the caller; the element stands in only to be judged.
            return Open(match.single, many)
        return Open(single, many)

    def _fitting_elements(
        self, unit: int, elements: list[Element], number: int, single: dict[int, Element]
    ) -> tuple[list[Element], str]:
        """The possible elements of an earlier repetition that go with what is bound now, or why none does."""
        fitting = []
        why = ""
        bound = single[number]
        self.world.budget.spend(len(elements))
        for element in elements:
            ids = {identity(row) for row in element}
            if any(identity(row) in ids for row in bound):
                why = why or "it is the same event"
                continue
            if (unit, number) in self.shape.before and not element[-1][:3] < start_of(bound[0]):
                why = why or "order"
                continue
            if self._excess(unit, {**single, unit: element}) is not None:
                why = why or "window"
                continue
            disagreeing = self._disagreement(element, list(bound))
            if disagreeing:
                why = disagreeing[0]
                continue
            scope = match_scope(self.shape, self.world, {**single, unit: element})
            failed = next(
                (
                    conjunct
                    for conjunct in self.at_unit.get(number, ())
                    if self.shape.units[unit].roles & _roles_of(conjunct) and not holds(conjunct, scope)
                ),
                None,
            )
            if failed is not None:
                why = quoted(failed)
                continue
            fitting.append(element)
        return fitting, why

    def _disagreement(self, element: Element, bound_rows: list[Row]) -> tuple[str, str] | None:
        for same in self.same:
            values = [evaluate(same.key, self.world.scope({"": row})) for row in (*element, *bound_rows[:1])]
            if any(value is None or value != values[-1] for value in values):
                return quoted(same), " and ".join(show_value(value) for value in values)
        return None

    def _excess(self, number: int, bound: dict[int, Element]) -> tuple[Window, int] | None:
        """The window that a choice of events breaks, and by how much; parts not bound yet are left out."""
        for limit in self.shape.windows:
            if number not in limit.units:
                continue
            rows = [row for unit in limit.units for row in bound.get(unit, ())]
            if limit.window.unit == "events":
                numbers = [self.world.numbers[identity(row)] for row in rows]
                over = max(numbers) - min(numbers) - (limit.window.length - 1)
            elif limit.window.bounds == "span":
                over = max(row[0] for row in rows) - min(start_of(row)[0] for row in rows) - limit.window.length
            else:
                ends = [
                    max(row[0] for unit in part for row in bound[unit])
                    for part in limit.parts
                    if part and all(unit in bound for unit in part)
                ]
                over = max(ends) - min(ends) - limit.window.length if ends else 0
            if over > 0:
                return limit.window, over
        return None

    def _role(self, unit: int) -> str:
        return self.shape.units[unit].leaves[-1].role

    def _window_text(self, window: Window) -> str:
        length = show_us(window.length) if window.unit == "us" else f"{window.length} events"
        return f"outside the window ({length})"

    def _miss(self, steps: int, match: Open, type_name: str, rejected: Nearest) -> None:
        objection = rejected.objection
        self.misses.offer(
            steps,
            objection.cost if objection else 99,
            objection.distance if objection else 0.0,
            lambda: Miss(
                steps, match.shown(), objection.story if objection else f"there is no {type_name} event to go with it"
            ),
        )

    # Negations and conditions over whole repetitions

    def _forbid(
        self, number: int, negation: Forbidden, depth: int, opens: Opens[Open], reports: list[StepReport]
    ) -> Opens[Open]:
        inner = list(leaves(negation.part))
        forbidden = ", ".join(named(leaf) for leaf in inner)
        types = "/".join(dict.fromkeys(leaf.type for leaf in inner))
        events = sum(len(self.world.of(name).rows) for name in dict.fromkeys(leaf.type for leaf in inner))
        report = StepReport(f"not {forbidden}{self._place(negation)}", types, events)
        reports.append(report)

        def judge(match: Open) -> list[Open]:
            forbidding = self._forbidding(number, negation, match, report)
            if forbidding is None:
                return [match]
            report.turned_away[f"forbidden by {types}"] += 1
            story = "forbidden by " + ", ".join(show_event(row) for row in forbidding)
            self.misses.offer(depth, 1, 0.0, lambda: Miss(depth, match.shown(), story))
            return []

        return go_through(report, opens, self.world.budget, judge)

    def _place(self, negation: Forbidden) -> str:
        if not negation.in_sequence:
            return " anywhere near"
        if negation.left and negation.right:
            return f" between {self._role(negation.left[-1])} and {self._role(negation.right[0])}"
        return (
            f" before {self._role(negation.right[0])}" if negation.right else f" after {self._role(negation.left[-1])}"
        )

    def _forbidding(self, number: int, negation: Forbidden, match: Open, report: StepReport) -> Element | None:
        parts = {identity(row) for row in match.rows()}
        conjuncts = self.of_negation.get(number, ())
        agreed = match.rows()[:1]
        window = negation.owner.window if negation.owner else None
        for shape in alternatives(negation.part):
            sub = PatternShape(shape)
            if not sub.windows and len(sub.units) > 1 and window is not None:
                sub.windows.append(WindowBound(window, tuple((unit,) for unit in range(len(sub.units)))))
            if len(sub.units) == 1:
                typed = self.world.of(sub.units[0].leaves[0].type)
                low, high = near_range(negation, match, typed)
                candidates: Iterator[Element] = ((row,) for row in typed.rows[low:high])
            else:
                candidates = sub_matches(self.world, sub, (), *near_times(negation, match, sub))
            for element in candidates:
                self.world.budget.spend()
                report.tried += 1
                last = max(element, key=lambda row: row[:3])
                if not in_range(self.world, negation, match, last) or any(identity(row) in parts for row in element):
                    continue
                if self._disagreement(element, agreed):
                    continue
                roles = {unit.leaves[0].role: row for unit, row in zip(sub.units, element, strict=True)}
                outer = match_scope(self.shape, self.world, match.single)
                scope = self.world.scope({**outer.rows, **roles})
                # A conjunct over another branch of an OR inside the negation does not apply to this one.
                if all(holds(conjunct, scope) for conjunct in conjuncts if _roles_of(conjunct) <= scope.rows.keys()):
                    return element
        return None

    def _finish(self, depth: int, opens: Opens[Open], reports: list[StepReport]) -> None:
        conditions = ", ".join(quoted(conjunct) for conjunct in self.at_end)
        repetitions = Repetitions(self.shape, self.at_end, self.world)
        text = "over the whole repetition" + (f": {conditions}" if conditions else "")
        report = StepReport(text, "", 0)
        reports.append(report)

        def judge(match: Open) -> list[Open]:
            try:
                objection = repetitions.objection(match, report)
            except TooManyCombinations:
                report.undecided += 1
                return []
            if objection is None:
                return [match]
            story = objection.story
            report.turn_away(objection.counted, objection.looked_up())
            self.misses.offer(depth, objection.cost, objection.distance, lambda: Miss(depth, match.shown(), story))
            return []

        go_through(report, opens, self.world.budget, judge)


def _is_span(window: Window) -> bool:
    return window.unit == "us" and window.bounds == "span"
