"""Code that finds the candidates of a unit: which buffer, by which key, between which positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.equalities import of_role
from headwater.node.engine.codegen.negations import Negations
from headwater.node.engine.codegen.reading import IndexBound, Level
from headwater.protocol.analysis.units import Reach
from headwater.protocol.expressions import Expression


@dataclass(slots=True)
class _Slice:
    """What bounds the candidates of one leaf of a level, as it is found out."""

    level: Level
    leaf: int
    bound_units: Sequence[int]
    """Units that are bound before this one."""
    row: str
    composite: bool
    plain: dict[int, bool]
    """Of the bound units: whether both it and the candidates are primitive events, so that rows compare as keys."""
    lower: list[IndexBound] = field(default_factory=list)
    upper: list[IndexBound] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    """Conditions that bisection cannot express."""

    @property
    def takes_last(self) -> bool:
        return self.level.choice is not None and self.level.choice.policy == "last"

    def bound_below(self, step: int, source: str) -> None:
        self.lower.append(IndexBound(step, f"lo{self.level.unit}_{self.leaf}_{len(self.lower)}", source))

    def bound_above(self, step: int, source: str) -> None:
        self.upper.append(IndexBound(step, f"hi{self.level.unit}_{self.leaf}_{len(self.upper)}", source))


class CandidateWriter(Negations):
    """Decides how each level of a join fetches and narrows its candidates."""

    def _prepare(self, step: int, level: Level) -> None:
        """Decide the buffers of a level: the earliest step at which some equality gives a hash lookup."""
        unit = self.units[level.unit]
        for leaf_number, leaf in enumerate(unit.leaves):
            own = self.own_conditions(leaf.role, self.branch.where)
            name = f"L{level.unit}_{leaf_number}"
            level.names.append(name)
            fetched = None
            if unit.limit is None:
                for at in range(step):
                    fetched = self._keyed(level, leaf.role, at)
                    if fetched is not None:
                        break
            if fetched is None:
                buffer = self.buffers.buffer(leaf.type, own, None, self.branch.horizon)
                level.fetch_step.append(0)
                level.fetch.append(f"{name} = {buffer}")
                level.used_class.append(None)
                level.used_condition.append(None)
                continue
            key, lookup, at, used_class, used_condition = fetched
            buffer = self.buffers.buffer(leaf.type, own, key, self.branch.horizon)
            level.fetch_step.append(at)
            level.fetch.append(f"{name} = {buffer}.get({lookup})")
            level.used_class.append(used_class)
            level.used_condition.append(used_condition)

    def _keyed(self, level: Level, role: str, at: int) -> tuple[Piece, str, int, int | None, Expression | None] | None:
        bound = {unit for unit, step in self.element_step.items() if step <= at} - {level.unit}
        for number, members in enumerate(self.classes):
            mine = of_role(members.get(level.unit, ()), role)
            if mine and self.class_step.get(number, at + 1) <= at and any(other in bound for other in members):
                with self.reading({(role, ""): "e"}):
                    return self.scope.value(mine[0]), self.class_value[number].source, at, number, None
        where = [c for step, cs in self.conditions.items() for c in cs if step == self.step_of[level.unit]]
        key = self._equality_key(role, where, bound, at)
        return None if key is None else (key[0], key[1], at, None, key[2])

    def _is_before(self, one: int, other: int) -> bool:
        """Whether ``one`` is known to end before ``other`` does."""
        if (one, other) in self.branch.before:
            return True
        return self.mode.newest and other == self.trigger and not self.units[other].many

    def _slice_bounds(self, level: Level, leaf: int) -> tuple[list[IndexBound], list[IndexBound], list[str]]:
        """Lower and upper index bounds of a level's candidates, and conditions bisection cannot express."""
        unit = level.unit
        own_step = self.step_of[unit]
        bound_units = [u for u, step in self.element_step.items() if step < own_step and u != unit]
        self.complete = {u for u, step in self.step_of.items() if step < own_step}
        composite = self.buffers.columns(self.units[unit].leaves[leaf].type).composite
        candidates = _Slice(
            level,
            leaf,
            bound_units,
            row=self._element(unit, leaf) if self.units[unit].many else f"r{unit}",
            composite=composite,
            plain={u: not composite and not self.is_composite(u) for u in bound_units},
        )
        self._bound_by_order(candidates)
        self._bound_by_windows(candidates)
        if self.branch.count is not None:
            span, row = self.branch.count - 1, candidates.row
            candidates.extra += [f"-{span} <= {self.row_of(u, 'last')}[-1] - {row}[-1] <= {span}" for u in bound_units]
            many = [u for u in bound_units if self.units[u].many]
            candidates.extra += [f"{row}[-1] - {self.row_of(u, 'first')}[-1] <= {span}" for u in many]
        for hoisted in self._hoisted_negations(level, candidates.plain):
            candidates.bound_below(own_step - 1, hoisted)
        self.complete = set()
        return candidates.lower, candidates.upper, candidates.extra

    def _step_of_bound(self, candidates: _Slice, u: int) -> int:
        """The step at which a bound that another unit sets can be computed."""
        known_at = self.step_of[u] if u in self.complete else self.element_step[u]
        return max(candidates.level.fetch_step[candidates.leaf], known_at)

    def _bound_by_order(self, candidates: _Slice) -> None:
        """Candidates come after the units that precede this one, and before those that follow it."""
        unit, name, before = candidates.level.unit, candidates.level.names[candidates.leaf], self.branch.before
        preceding = [u for u in candidates.bound_units if (u, unit) in before]
        for u in preceding:
            if any((u, w) in before for w in preceding):
                continue
            last = self.row_of(u, "last")
            if candidates.plain[u]:
                candidates.bound_below(self._step_of_bound(candidates, u), f"bisect_right({name}, {last})")
            else:
                after = f"({last}[0], {last}[1], {last}[2] + 1)"
                candidates.bound_below(self._step_of_bound(candidates, u), f"bisect_left({name}, {after})")
                if candidates.composite and before[u, unit] == "start":
                    candidates.extra.append(f"start_of({candidates.row}) > {last}[:3]")
        following = [u for u in candidates.bound_units if (unit, u) in before]
        for u in following:
            if any((w, u) in before for w in following):
                continue
            if self.mode.newest and u == self.trigger and candidates.plain[u] and not self.units[u].many:
                continue
            step = self._step_of_bound(candidates, u)
            if candidates.plain[u]:
                key, step = self.row_of(u, "first"), self.step_of[unit] if candidates.takes_last else step
            else:
                key = self.start_key(u) if before[unit, u] == "start" else self.end_key(u)
            candidates.bound_above(step, f"bisect_left({name}, {key})")

    def _bound_by_windows(self, candidates: _Slice) -> None:
        """Candidates are no older and no newer than the windows around them allow."""
        unit, name = candidates.level.unit, candidates.level.names[candidates.leaf]
        for reach in self.branch.reaches:
            if unit not in reach.units:
                continue
            for u in self._latest_to_reach(unit, reach, candidates.bound_units):
                ts = self.end_ts(u)
                # What takes the last looks at this bound only once it is needed.
                step = self.step_of[unit] if candidates.takes_last else self._step_of_bound(candidates, u)
                candidates.bound_below(step, f"bisect_left({name}, ({ts} - {reach.length},))")
                if reach.from_start and candidates.composite:
                    candidates.extra.append(f"{ts} - start_of({candidates.row})[0] <= {reach.length}")
            for u in self._earliest_to_reach(unit, reach, candidates.bound_units):
                ts = self.first_ts(u, reach.from_start)
                candidates.bound_above(
                    self._step_of_bound(candidates, u), f"bisect_left({name}, ({ts} + {reach.length + 1},))"
                )

    def _latest_to_reach(self, unit: int, reach: Reach, bound_units: Sequence[int]) -> list[int]:
        """The bound units that limit how old this one may be: none if one that is older still is near enough."""
        inside = [u for u in bound_units if u in reach.units]
        if any(self._is_before(u, unit) for u in inside):
            return []
        later = [u for u in inside if (u, unit) not in self.branch.before]
        return [u for u in later if not any(self._is_before(u, other) for other in later if other != u)]

    def _earliest_to_reach(self, unit: int, reach: Reach, bound_units: Sequence[int]) -> list[int]:
        """The bound units that limit how new this one may be: none if one that is newer still is near enough."""
        inside = [u for u in bound_units if u in reach.units]
        if any(self._is_before(unit, u) for u in inside):
            return []
        earlier = [u for u in inside if (unit, u) not in self.branch.before]
        return [u for u in earlier if not any(self._is_before(other, u) for other in earlier if other != u)]

    def _hoisted_negations(self, level: Level, plain: dict[int, bool]) -> Iterator[str]:
        """A negation right after this unit that depends on nothing else of it: candidates start after the last one."""
        if self.in_text_order or not self.mode.ordered or self.units[level.unit].many:
            return
        for forbidden in self.branch.forbidden:
            if forbidden.place != "between" or forbidden.left != (level.unit,) or forbidden.leaf is None:
                continue
            if any(unit not in self.complete for unit in forbidden.right):
                continue
            leaf_types = {leaf.type for unit in self.units for leaf in unit.leaves}
            if (
                forbidden.leaf.type in leaf_types
                or not all(plain.values())
                or self.buffers.columns(forbidden.leaf.type).composite
            ):
                continue
            rows, rest = self._forbidden_buffer(forbidden, self.step_of[level.unit] - 1)
            if rest:
                continue
            self.hoisted.add(id(forbidden))
            name = f"N{self.branch.forbidden.index(forbidden)}"
            newest = self.mode.newest and forbidden.right == (self.trigger,)
            last = f"len({name})" if newest else f"bisect_left({name}, {self._earliest_start(forbidden.right)})"
            yield (f"bisect_right({level.names[0]}, {name}[i - 1]) if ({name} := {rows}) and (i := {last}) else 0")

    def _distinct(self, unit: int, leaf: int, row: str) -> list[str]:
        """Conditions that keep one event out of two roles, where order does not do it already."""
        event_type = self.units[unit].leaves[leaf].type
        conditions = []
        for other, step in self.element_step.items():
            if other == unit or step >= self.step_of[unit]:
                continue
            finished = 0 < self.step_of[other] < self.step_of[unit]
            if other == self.trigger and not finished:
                continue  # the triggering event is not among the candidates yet
            if (unit, other) in self.branch.before or (other, unit) in self.branch.before:
                continue
            for number, mate in enumerate(self.units[other].leaves):
                if mate.type == event_type:
                    many = self.units[other].many
                    conditions.append(f"{row} not in k{other}_{number}" if many else f"{row} != r{other}")
        return conditions

    def _bounds_of(self, level: Level, leaf: int) -> tuple[list[IndexBound], list[IndexBound], list[str]]:
        token = (level.unit, leaf)
        if token not in self._bounds:
            self._bounds[token] = self._slice_bounds(level, leaf)
        return self._bounds[token]

    def _range_source(self, level: Level, leaf: int, inline_from: int | None = None) -> tuple[str, str]:
        lower, upper, _ = self._bounds_of(level, leaf)
        inline = len(self.levels) + 1 if inline_from is None else inline_from
        low = [bound.source if bound.step >= inline else bound.variable for bound in lower]
        high = [bound.source if bound.step >= inline else bound.variable for bound in upper]
        least = low[0] if len(low) == 1 else f"max({', '.join(low)})" if low else ""
        greatest = high[0] if len(high) == 1 else f"min({', '.join(high)})" if high else ""
        return least, greatest

    def _candidates(self, level: Level, leaf: int, inline_from: int | None = None) -> str:
        """Source of the candidates; bounds of steps from ``inline_from`` on are written out instead of named."""
        low, high = self._range_source(level, leaf, inline_from)
        name = level.names[leaf]
        return f"{name}[{low}:{high}]" if low or high else name
