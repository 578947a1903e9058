"""Code for what must not be there, and for aggregates, which look at ranges in the same way."""

from __future__ import annotations

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.equalities import Equalities
from headwater.protocol.analysis.units import Forbidden, Measure
from headwater.protocol.expressions import Attribute, Binary, Expression, parameters_of, roles_of


class Negations(Equalities):
    """Writes conditions over ranges: negations and aggregates."""

    def deadline(self, forbidden: Forbidden) -> str:
        """When a negation that waits is decided: a timestamp, or a number under a count window."""
        column = -1 if forbidden.numbered else 0
        return f"{self._least_ts(forbidden.owner, column)} + {forbidden.window}"

    def negation_found(self, forbidden: Forbidden) -> str:
        """Source of a condition: something in the range forbids the match."""
        rows, rest = self._forbidden_buffer(forbidden, self._negation_step(forbidden))
        tests = self._forbidden_tests(forbidden, rest)
        name = f"N{self.branch.forbidden.index(forbidden)}"
        low, high = self._forbidden_range(forbidden, name)
        if forbidden.numbered and forbidden.place in ("before", "after", "around"):
            tests += self._forbidden_numbers(forbidden)
        inside = f"{name}[{low}:{high}]"
        if tests:
            is_forbidden = f"any({' and '.join(tests)} for x in {inside})"
        elif low or high:
            is_forbidden = f"{low or 0} < {high or f'len({name})'}"
        else:
            is_forbidden = f"bool({name})"
        return f"({name} := {rows}) and {is_forbidden}"

    def _negation_step(self, forbidden: Forbidden) -> int:
        needed = {*forbidden.left, *forbidden.right}
        if forbidden.place in ("before", "after", "around"):
            needed |= set(forbidden.owner)
        for condition in forbidden.where:
            needed |= {self.branch.unit_of(r) for r in roles_of(condition) if r in self.positive}
        types = {self.types[role] for role in forbidden.roles}
        needed |= {n for n, unit in enumerate(self.units) if any(leaf.type in types for leaf in unit.leaves)}
        step = max((self.step_of[unit] for unit in needed), default=0)
        for level_step, level in enumerate(self.levels, start=1):
            if isinstance(level, Measure) and any(level.name in parameters_of(c) for c in forbidden.where):
                step = max(step, level_step)
        return step

    def _negations(self, step: int) -> None:
        for forbidden in self.branch.forbidden:
            if not forbidden.waits and id(forbidden) not in self.hoisted and self._negation_step(forbidden) == step:
                self.out.line(f"if {self.negation_found(forbidden)}: {self.skip}")

    def _forbidden_buffer(self, forbidden: Forbidden, at: int) -> tuple[str, list[Expression]]:
        """Source of the list of possibly negating events, and the conjuncts it does not settle."""
        horizon = self.branch.forbidden_horizon(forbidden) + self.extra_horizon
        if forbidden.leaf is None:
            return self.buffers.derived(forbidden, horizon), list(forbidden.where)
        role = forbidden.leaf.role
        own = self.own_conditions(role, forbidden.where)
        rest = [
            condition
            for condition in forbidden.where
            if not (roles_of(condition) == {role} and self._is_own(condition))
        ]
        equality = self._forbidden_key(role, rest, at)
        if equality is None:
            return self.buffers.buffer(forbidden.leaf.type, own, None, horizon), rest
        key, lookup, condition = equality
        buffer = self.buffers.buffer(forbidden.leaf.type, own, key, horizon)
        return f"{buffer}.get({lookup}, ())", [c for c in rest if c != condition]

    def _forbidden_key(self, role: str, where: list[Expression], at: int) -> tuple[Piece, str, Expression] | None:
        for condition in where:
            match condition:
                case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                    for mine, other in ((left, right), (right, left)):
                        number = self.class_of.get(other)
                        if mine.role == role and number is not None and self.class_step.get(number, at + 1) <= at:
                            with self.reading({(role, ""): "e"}):
                                return self.scope.value(mine), self.class_value[number].source, condition
        bound = {unit for unit, step in self.step_of.items() if step <= at and not self.units[unit].many}
        return self._equality_key(role, where, bound, at)

    def _forbidden_range(self, forbidden: Forbidden, rows: str) -> tuple[str, str]:
        """Sources of the lower and upper index of a negation's (or aggregate's) range; empty where it is open."""
        if forbidden.numbered and forbidden.place in ("before", "after", "around"):
            return "", ""
        window = forbidden.window
        low = high = ""
        if forbidden.place in ("between", "after"):
            low = f"bisect_left({rows}, after({self._latest_end(forbidden.left)}))"
        elif forbidden.place in ("before", "around"):
            low = f"bisect_left({rows}, ({self._greatest_ts(forbidden.owner)} - {window},))"
        elif forbidden.place == "within":
            low = f"bisect_left({rows}, ({self.end_ts(forbidden.right[0])} - {window},))"
        else:
            ends = f"{self.end_key(forbidden.left[0])}, {self.end_key(forbidden.right[0])}"
            low = f"bisect_left({rows}, after(min({ends})))"
            high = f"bisect_left({rows}, max({ends}))"
        if forbidden.place in ("between", "before"):
            high = f"bisect_left({rows}, {self._earliest_start(forbidden.right)})"
        elif forbidden.place in ("after", "around"):
            high = f"bisect_left({rows}, ({self._least_ts(forbidden.owner)} + {window + 1},))"
        elif forbidden.place == "within":
            high = f"bisect_left({rows}, {self.end_key(forbidden.right[0])})"
        return low, high

    def _forbidden_numbers(self, forbidden: Forbidden) -> list[str]:
        """The range under a count window, in event numbers."""
        tests = []
        if forbidden.place in ("before", "around"):
            tests.append(f"x[-1] >= {self._greatest_ts(forbidden.owner, -1)} - {forbidden.window}")
        if forbidden.place in ("after", "around"):
            tests.append(f"x[-1] <= {self._least_ts(forbidden.owner, -1)} + {forbidden.window}")
        if forbidden.place == "before":
            tests.append(f"x[:3] < {self._earliest_start(forbidden.right)}")
        if forbidden.place == "after":
            tests.append(f"x[:3] > {self._latest_end(forbidden.left)}")
        return tests

    def _forbidden_tests(self, forbidden: Forbidden, rest: list[Expression]) -> list[str]:
        names: dict[tuple[str, str], str] = {}
        tests: list[str] = []
        sub = forbidden.leaf is None
        for number, role in enumerate(forbidden.roles):
            names[role, ""] = f"x[{4 + number}]" if sub else "x"
        with self.reading(names):
            for condition in rest:
                test = self.over_elements(condition)
                if sub:
                    mine = [names[role, ""] for role in sorted(roles_of(condition)) if (role, "") in names]
                    test = f"({' or '.join(f'{row} is None' for row in mine)} or {test})"
                tests.append(test)
        types = {self.types[role] for role in forbidden.roles}
        parts = []
        for number, unit in enumerate(self.units):
            for leaf_number, leaf in enumerate(unit.leaves):
                if leaf.type in types:
                    parts.append(f"k{number}_{leaf_number}" if unit.many else f"r{number}")
        if parts:
            width = len(forbidden.roles)
            rows = f"[row for row in x[4:{4 + width}] if row is not None]" if sub else "(x,)"
            tests.append(f"not overlaps({rows}, ({', '.join(parts)},))")
        return tests

    def _measure(self, step: int, measure: Measure) -> None:
        role = measure.leaf.role
        own = self.own_conditions(role, measure.where)
        rest = [c for c in measure.where if not (roles_of(c) == {role} and self._is_own(c))]
        bound = {unit for unit, at in self.step_of.items() if at < step}
        equality = self._equality_key(role, rest, bound, step - 1)
        name = f"M{step}"
        if equality is None:
            rows = self.buffers.buffer(measure.leaf.type, own, None, self.branch.horizon)
        else:
            key, lookup, condition = equality
            rest = [c for c in rest if c != condition]
            rows = self.buffers.buffer(measure.leaf.type, own, key, self.branch.horizon) + f".get({lookup}, ())"
        range_ = Forbidden(measure.leaf, (), measure.place, measure.left, measure.right, (), measure.window)
        low, high = self._forbidden_range(range_, name)
        self.out.line(f"{name} = {rows}")
        with self.reading({(role, ""): "x"}):
            tests = [self.scope.truth(condition) for condition in rest]
            read = None if measure.attribute is None else self.columns(role).read("x", measure.attribute)
        if read is not None and read.nullable:
            tests.append(f"{read.source} is not None")
        variable = self.parameters[measure.name].source
        inside = f"{name}[{low}:{high}]"
        kept = f" if {' and '.join(tests)}" if tests else ""
        if measure.function == "count":
            source = f"len([1 for x in {inside}{kept}])" if tests else f"max(0, {high} - {low})"
        else:
            assert read is not None
            source = f"fold_{measure.function}([{read.source} for x in {inside}{kept}])"
        self.out.line(f"{variable} = {source}")
