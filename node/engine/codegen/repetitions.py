"""Code for repetitions: their subsets, conditions on elements and on the whole, and their limits."""

from __future__ import annotations

import re

from headwater.node.engine.codegen.candidates import CandidateWriter
from headwater.node.engine.codegen.equalities import of_role
from headwater.node.engine.codegen.reading import Level
from headwater.protocol.analysis.units import Unit, elementwise, needs_previous, needs_whole
from headwater.protocol.expressions import Attribute, Expression, roles_of, walk

DEMAND = "DEMAND"  # stands in generated code for what is asked of a repetition until that is known


class RepetitionWriter(CandidateWriter):
    """Writes what repetitions need beyond single events."""

    counting = False
    """Whether matches are only counted: choices that nothing tells apart are then taken together."""

    def _about_element(self, condition: Expression, roles: frozenset[str], role: str) -> bool:
        """Speaks of each element of this one leaf, and of no element of another repetition finished before."""
        return (
            elementwise(condition, roles)
            and roles_of(condition) & roles == {role}
            and not self._elements_elsewhere(condition, roles)
        )

    def limited(self) -> list[int]:
        return [number for number, unit in enumerate(self.units) if unit.limit is not None]

    def limit_waits(self, unit: int) -> bool:
        """Candidates may still come after the match: nothing in it has to follow the repetition."""
        return self.branch.is_last(unit)

    def limit_deadline(self, unit: int) -> str:
        """When no more candidates of a limited repetition can come: a timestamp, or a number under a count window."""
        other_units = [number for number in range(len(self.units)) if number != unit]
        if self.branch.count is not None:
            return f"{self._least_ts(other_units, -1)} + {self.branch.count - 1}"
        ends = [f"{self.first_ts(gap.earlier, gap.from_start)} + {gap.length}" for gap in self.branch.gaps_to(unit)]
        ends.append(f"{self._least_ts(other_units)} + {self.branch.horizon}")
        return f"min({', '.join(ends)})" if len(ends) > 1 else ends[0]

    def over_limit_found(self, unit: int) -> str:
        """Source of a condition: beside the other parts, the repetition has more candidates than it may."""
        repetition = self.units[unit]
        leaf = repetition.leaves[0]
        own = self.own_conditions(leaf.role, self.branch.where)
        horizon = self.branch.horizon + self.branch.longest_wait
        rows = self.buffers.buffer(leaf.type, own, None, horizon)
        composite = self.buffers.columns(leaf.type).composite
        start = "start_of(x)" if composite else "x[:3]"
        span = (self.branch.count or 1) - 1
        tests = []
        lows = []
        for other in range(len(self.units)):
            if other == unit:
                continue
            if (other, unit) in self.branch.before:
                tests.append(f"{start} > {self.end_key(other)}")
            if (unit, other) in self.branch.before:
                tests.append(f"x[:3] < {self.start_key(other)}")
            if self.branch.count is not None:
                tests.append(f"x[-1] - {self.row_of(other, 'first')}[-1] <= {span}")
                tests.append(f"{self.row_of(other, 'last')}[-1] - x[-1] <= {span}")
            mates = [
                f"k{other}_{n}" if self.units[other].many else f"r{other}"
                for n, mate in enumerate(self.units[other].leaves)
                if mate.type == leaf.type
            ]
            if mates:
                tests.append(f"not overlaps((x,), ({', '.join(mates)},))")
        for gap in self.branch.gaps_from(unit):
            first = f"{start}[0]" if gap.from_start else "x[0]"
            tests.append(f"{self.end_ts(gap.later)} - {first} <= {gap.length}")
            lows.append(f"{self.end_ts(gap.later)} - {gap.length}")
        for gap in self.branch.gaps_to(unit):
            tests.append(f"x[0] - {self.first_ts(gap.earlier, gap.from_start)} <= {gap.length}")
        tests += [
            f"x[0] - {start}[0] <= {length}"
            for number, length, from_start in self.branch.own_spans
            if number == unit and from_start and composite
        ]
        self.stand_in[unit] = "x"
        tests += [
            self.spread_condition(spread)
            for spread in self.branch.spreads
            if any(unit in part for part in spread.parts)
        ]
        del self.stand_in[unit]
        if lows:
            rows = f"{rows}[bisect_left({rows}, ({lows[0]},)):]"
        return f"exceeds([1 for x in {rows} if {' and '.join(tests) or 'True'}], {repetition.limit}, {self.over_limit})"

    def _forced_checks(self, level: Level, leaf: int, conditions: list[Expression], roles: frozenset[str]) -> None:
        """The triggering element itself must satisfy what its fellows do."""
        role = self.units[level.unit].leaves[leaf].role
        for condition in conditions:
            if self._about_element(condition, roles, role):
                self.skip_unless(self.scope.truth(condition))
        for number, source in self.class_source.items():
            if source.role == role or self.class_step[number] >= self.step_of[level.unit]:
                continue  # what gives the class its value was compared with itself when it came
            for attribute in of_role(self.classes[number].get(level.unit, ()), role):
                self.skip_unless(self.scope.compare("=", self.scope.value(attribute), self.class_value[number]))
        if self.branch.count is not None:
            span = self.branch.count - 1
            for other, step in self.element_step.items():
                if other != level.unit and step < self.step_of[level.unit]:
                    self.skip_unless(f"-{span} <= {self.row_of(other, 'last')}[-1] - e[-1] <= {span}")

    def _subsets(
        self,
        unit: int,
        repetition: Unit,
        lists: list[str],
        forced: bool,
        conditions: list[Expression],
        roles: frozenset[str],
        plain: bool,
    ) -> str:
        """Source of the choices among the candidates. ``plain``: nothing is asked of them but how many there are."""
        linking = [c for c in conditions if needs_previous(c, roles) and not needs_whole(c, roles)]
        if not repetition.is_group:
            element = self._element(unit, 0)
            role = repetition.leaves[0].role
            with self.reading({(role, ""): element, (role, "i-1"): "p"}):
                tests = [self.scope.truth(condition) for condition in linking]
            if self.is_composite(unit):
                tests.insert(0, f"p[:3] < start_of({element})")
            follows = f"lambda p, {element}: {' and '.join(tests)}" if tests else None
            if self.counting and not (plain and follows is None):
                return f"choices_of({lists[0]}, {'e' if forced else None}, {follows}, {DEMAND})"
            if follows is not None:
                return f"chains({lists[0]}, {'e' if forced else None}, {follows})"
            return f"subsets_with({lists[0]}, e)" if forced else f"subsets({lists[0]})"
        here = {(leaf.role, ""): self._element(unit, number) for number, leaf in enumerate(repetition.leaves)}
        before = {(leaf.role, "i-1"): f"p[{number}]" for number, leaf in enumerate(repetition.leaves)}
        after = {(leaf.role, ""): f"q[{number}]" for number, leaf in enumerate(repetition.leaves)}
        together = [c for c in conditions if elementwise(c, roles) and len(roles_of(c) & roles) > 1]
        with self.reading(here):
            tests = [self.scope.truth(condition) for condition in together]
            tests += self._group_equalities(unit)
        with self.reading(before | after):
            links = [self.scope.truth(condition) for condition in linking]
        within = f"lambda {', '.join(here.values())}: {' and '.join(tests) or 'True'}"
        follows = f"lambda p, q: {' and '.join(links) or 'True'}"
        inside = f"[{', '.join(lists)}]"
        leaf, event = (self.trigger_leaf, "e") if forced else (0, None)
        arguments = f"{inside}, {leaf}, {event}, {within}, {follows}"
        return f"group_choices_of({arguments}, {DEMAND})" if self.counting else f"group_chains({arguments})"

    def _demand(self, unit: int, text: str) -> str:
        """Source of what ``text``, generated for the time after the repetition was bound, asks of it."""
        leaves = self.units[unit].leaves
        names = [f"k{unit}_{number}" for number in range(len(leaves))]
        numbers = {leaf.role: number for number, leaf in enumerate(leaves)}
        folds = []
        for source, (fold, read) in self.folds.items():
            if fold.role not in numbers or source not in text:
                continue
            text = text.replace(source, "")
            if read is None:
                folds.append("('len', None)")
            else:
                item = f"f[{numbers[fold.role]}]" if len(leaves) > 1 else "f"
                assert fold.name is not None
                folds.append(f"('{fold.function}', lambda f: {self.columns(fold.role).read(item, fold.name).source})")
        ends = [f"{name}[{end}]" for name in names for end in (0, -1)]
        without_ends = text
        for end in ends:
            without_ends = without_ends.replace(end, "")
        reads_elements = any(re.search(rf"\b{name}\b", without_ends) for name in names)
        return f"Demand({', '.join([str(without_ends != text), str(reads_elements), *folds])})"

    def _group_equalities(self, unit: int) -> list[str]:
        """Classes that only this group's own leaves have reached so far are equal within each group."""
        tests = []
        for number, members in enumerate(self.classes):
            mine = members.get(unit, [])
            if self.class_step.get(number, 1 << 30) >= self.step_of[unit] and len(mine) > 1:
                first = self.scope.value(mine[0])
                tests += [self.scope.compare("=", self.scope.value(other), first) for other in mine[1:]]
        return tests

    def _finished_checks(self, unit: int, conditions: list[Expression], roles: frozenset[str]) -> list[str]:
        """Conditions on the whole repetition: folds, first and last, its own extent."""
        tests = []
        for condition in conditions:
            if needs_whole(condition, roles) or self._elements_elsewhere(condition, roles):
                tests.append(self.over_elements(condition))
        for number, length, from_start in self.branch.own_spans:
            if number == unit and not self._own_span_implied(unit, length, from_start):
                tests.append(f"{self.end_ts(unit)} - {self.first_ts(unit, from_start)} <= {length}")
        if self.branch.count is not None:
            tests.append(
                f"{self.row_of(unit, 'last')}[-1] - {self.row_of(unit, 'first')}[-1] <= {self.branch.count - 1}"
            )
        return tests

    def _elements_elsewhere(self, condition: Expression, roles: frozenset[str]) -> bool:
        """Names elements of a repetition that was finished at an earlier step."""
        for part in walk(condition):
            if isinstance(part, Attribute) and part.role not in roles and self._names_element(part):
                return True
        return False

    def _own_span_implied(self, unit: int, length: int, from_start: bool) -> bool:
        if any(leaf.type for leaf in self.units[unit].leaves if self.buffers.columns(leaf.type).composite):
            return False
        bound_units = {u for u, step in self.step_of.items() if step < self.step_of[unit]}
        return any(
            reach.from_start == from_start
            and reach.length <= length
            and unit in reach.units
            and any(
                (unit, u) in self.branch.before or (u, unit) in self.branch.before for u in bound_units & reach.units
            )
            for reach in self.branch.reaches
        )
