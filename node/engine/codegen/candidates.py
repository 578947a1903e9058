"""Code that finds the candidates of a unit: which buffer, by which key, between which positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.context import IndexBound, JoinContext, Level, SliceBounds
from headwater.node.engine.codegen.equalities import equality_key, of_role
from headwater.node.engine.codegen.negations import forbidden_buffer
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


def prepare_level(join: JoinContext, step: int, level: Level) -> None:
    """Decide the buffers of a level: the earliest step at which some equality gives a hash lookup."""
    unit = join.units[level.unit]
    for leaf_number, leaf in enumerate(unit.leaves):
        own = join.own_conditions(leaf.role, join.branch.where)
        name = f"L{level.unit}_{leaf_number}"
        level.names.append(name)
        fetched = None
        if unit.limit is None:
            for at in range(step):
                fetched = _keyed(join, level, leaf.role, at)
                if fetched is not None:
                    break
        if fetched is None:
            buffer = join.buffers.buffer(leaf.type, own, None, join.branch.horizon)
            level.fetch_step.append(0)
            level.fetch.append(f"{name} = {buffer}")
            level.used_class.append(None)
            level.used_condition.append(None)
            continue
        key, lookup, at, used_class, used_condition = fetched
        buffer = join.buffers.buffer(leaf.type, own, key, join.branch.horizon)
        level.fetch_step.append(at)
        level.fetch.append(f"{name} = {buffer}.get({lookup})")
        level.used_class.append(used_class)
        level.used_condition.append(used_condition)


def _keyed(
    join: JoinContext, level: Level, role: str, at: int
) -> tuple[Piece, str, int, int | None, Expression | None] | None:
    bound = {unit for unit, step in join.element_step.items() if step <= at} - {level.unit}
    for number, members in enumerate(join.classes):
        mine = of_role(members.get(level.unit, ()), role)
        if mine and join.class_step.get(number, at + 1) <= at and any(other in bound for other in members):
            with join.reading({(role, ""): "e"}):
                return join.scope.value(mine[0]), join.class_value[number].source, at, number, None
    where = [c for step, cs in join.conditions.items() for c in cs if step == join.step_of[level.unit]]
    key = equality_key(join, role, where, bound, at)
    return None if key is None else (key[0], key[1], at, None, key[2])


def _is_before(join: JoinContext, one: int, other: int) -> bool:
    """Whether ``one`` is known to end before ``other`` does."""
    if (one, other) in join.branch.before:
        return True
    return join.mode.newest and other == join.trigger and not join.units[other].many


def _slice_bounds(join: JoinContext, level: Level, leaf: int) -> SliceBounds:
    """Lower and upper index bounds of a level's candidates, and conditions bisection cannot express."""
    unit = level.unit
    own_step = join.step_of[unit]
    bound_units = [u for u, step in join.element_step.items() if step < own_step and u != unit]
    join.complete = {u for u, step in join.step_of.items() if step < own_step}
    composite = join.buffers.columns(join.units[unit].leaves[leaf].type).composite
    candidates = _Slice(
        level,
        leaf,
        bound_units,
        row=join.element(unit, leaf) if join.units[unit].many else f"r{unit}",
        composite=composite,
        plain={u: not composite and not join.is_composite(u) for u in bound_units},
    )
    _bound_by_order(join, candidates)
    _bound_by_windows(join, candidates)
    if join.branch.count is not None:
        span, row = join.branch.count - 1, candidates.row
        candidates.extra += [f"-{span} <= {join.row_of(u, 'last')}[-1] - {row}[-1] <= {span}" for u in bound_units]
        many = [u for u in bound_units if join.units[u].many]
        candidates.extra += [f"{row}[-1] - {join.row_of(u, 'first')}[-1] <= {span}" for u in many]
    if join.again and join.mode.ordered and not join.in_text_order and (unit, join.trigger) not in join.branch.before:
        # What came later was not there when the evaluation was held.
        trigger = "e" if join.units[join.trigger].many else f"r{join.trigger}"
        candidates.bound_above(level.fetch_step[leaf], f"bisect_left({level.names[leaf]}, {trigger})")
    for hoisted in _hoisted_negations(join, level, candidates.plain):
        candidates.bound_below(own_step - 1, hoisted)
    join.complete = set()
    return candidates.lower, candidates.upper, candidates.extra


def _step_of_bound(join: JoinContext, candidates: _Slice, u: int) -> int:
    """The step at which a bound that another unit sets can be computed."""
    known_at = join.step_of[u] if u in join.complete else join.element_step[u]
    return max(candidates.level.fetch_step[candidates.leaf], known_at)


def _bound_by_order(join: JoinContext, candidates: _Slice) -> None:
    """Candidates come after the units that precede this one, and before those that follow it."""
    unit, name, before = candidates.level.unit, candidates.level.names[candidates.leaf], join.branch.before
    preceding = [u for u in candidates.bound_units if (u, unit) in before]
    for u in preceding:
        if any((u, w) in before for w in preceding):
            continue
        last = join.row_of(u, "last")
        if candidates.plain[u]:
            candidates.bound_below(_step_of_bound(join, candidates, u), f"bisect_right({name}, {last})")
        else:
            after = f"({last}[0], {last}[1], {last}[2] + 1)"
            candidates.bound_below(_step_of_bound(join, candidates, u), f"bisect_left({name}, {after})")
            if candidates.composite and before[u, unit] == "start":
                candidates.extra.append(f"start_of({candidates.row}) > {last}[:3]")
    following = [u for u in candidates.bound_units if (unit, u) in before]
    for u in following:
        if any((w, u) in before for w in following):
            continue
        if join.mode.newest and u == join.trigger and candidates.plain[u] and not join.units[u].many:
            continue
        step = _step_of_bound(join, candidates, u)
        if candidates.plain[u]:
            key, step = join.row_of(u, "first"), join.step_of[unit] if candidates.takes_last else step
        else:
            key = join.start_key(u) if before[unit, u] == "start" else join.end_key(u)
        candidates.bound_above(step, f"bisect_left({name}, {key})")


def _bound_by_windows(join: JoinContext, candidates: _Slice) -> None:
    """Candidates are no older and no newer than the windows around them allow."""
    unit, name = candidates.level.unit, candidates.level.names[candidates.leaf]
    for reach in join.branch.reaches:
        if unit not in reach.units:
            continue
        for u in _latest_to_reach(join, unit, reach, candidates.bound_units):
            ts = join.end_ts(u)
            # What takes the last looks at this bound only once it is needed.
            step = join.step_of[unit] if candidates.takes_last else _step_of_bound(join, candidates, u)
            candidates.bound_below(step, f"bisect_left({name}, ({ts} - {reach.length},))")
            if reach.from_start and candidates.composite:
                candidates.extra.append(f"{ts} - start_of({candidates.row})[0] <= {reach.length}")
        for u in _earliest_to_reach(join, unit, reach, candidates.bound_units):
            ts = join.first_ts(u, reach.from_start)
            candidates.bound_above(
                _step_of_bound(join, candidates, u), f"bisect_left({name}, ({ts} + {reach.length + 1},))"
            )


def _latest_to_reach(join: JoinContext, unit: int, reach: Reach, bound_units: Sequence[int]) -> list[int]:
    """The bound units that limit how old this one may be: none if one that is older still is near enough."""
    inside = [u for u in bound_units if u in reach.units]
    if any(_is_before(join, u, unit) for u in inside):
        return []
    later = [u for u in inside if (u, unit) not in join.branch.before]
    return [u for u in later if not any(_is_before(join, u, other) for other in later if other != u)]


def _earliest_to_reach(join: JoinContext, unit: int, reach: Reach, bound_units: Sequence[int]) -> list[int]:
    """The bound units that limit how new this one may be: none if one that is newer still is near enough."""
    inside = [u for u in bound_units if u in reach.units]
    if any(_is_before(join, unit, u) for u in inside):
        return []
    earlier = [u for u in inside if (unit, u) not in join.branch.before]
    return [u for u in earlier if not any(_is_before(join, other, u) for other in earlier if other != u)]


def _hoisted_negations(join: JoinContext, level: Level, plain: dict[int, bool]) -> Iterator[str]:
    """A negation right after this unit that depends on nothing else of it: candidates start after the last one."""
    if join.in_text_order or not join.mode.ordered or join.units[level.unit].many:
        return
    for forbidden in join.branch.forbidden:
        if forbidden.place != "between" or forbidden.left != (level.unit,) or forbidden.leaf is None:
            continue
        if any(unit not in join.complete for unit in forbidden.right):
            continue
        leaf_types = {leaf.type for unit in join.units for leaf in unit.leaves}
        if (
            forbidden.leaf.type in leaf_types
            or not all(plain.values())
            or join.buffers.columns(forbidden.leaf.type).composite
        ):
            continue
        rows, rest = forbidden_buffer(join, forbidden, join.step_of[level.unit] - 1)
        if rest:
            continue
        join.hoisted.add(id(forbidden))
        name = f"N{join.branch.forbidden.index(forbidden)}"
        newest = join.mode.newest and forbidden.right == (join.trigger,)
        last = f"len({name})" if newest else f"bisect_left({name}, {join.earliest_start(forbidden.right)})"
        yield (f"bisect_right({level.names[0]}, {name}[i - 1]) if ({name} := {rows}) and (i := {last}) else 0")


def distinctness(join: JoinContext, unit: int, leaf: int, row: str) -> list[str]:
    """Conditions that keep one event out of two roles, where order does not do it already."""
    event_type = join.units[unit].leaves[leaf].type
    conditions = []
    for other, step in join.element_step.items():
        if other == unit or step >= join.step_of[unit]:
            continue
        finished = 0 < join.step_of[other] < join.step_of[unit]
        if other == join.trigger and not finished and not join.again:
            continue  # the triggering event is not among the candidates yet
        if (unit, other) in join.branch.before or (other, unit) in join.branch.before:
            continue
        for number, mate in enumerate(join.units[other].leaves):
            if mate.type == event_type:
                many = join.units[other].many
                if other == join.trigger and not finished and many:
                    conditions.append(f"{row} != e")
                    break
                conditions.append(f"{row} not in k{other}_{number}" if many else f"{row} != r{other}")
    return conditions


def bounds_of(join: JoinContext, level: Level, leaf: int) -> SliceBounds:
    token = (level.unit, leaf)
    if token not in join.slice_bounds:
        join.slice_bounds[token] = _slice_bounds(join, level, leaf)
    return join.slice_bounds[token]


def range_source(join: JoinContext, level: Level, leaf: int, inline_from: int | None = None) -> tuple[str, str]:
    lower, upper, _ = bounds_of(join, level, leaf)
    inline = len(join.levels) + 1 if inline_from is None else inline_from
    low = [bound.source if bound.step >= inline else bound.variable for bound in lower]
    high = [bound.source if bound.step >= inline else bound.variable for bound in upper]
    least = low[0] if len(low) == 1 else f"max({', '.join(low)})" if low else ""
    greatest = high[0] if len(high) == 1 else f"min({', '.join(high)})" if high else ""
    return least, greatest


def candidates_source(join: JoinContext, level: Level, leaf: int, inline_from: int | None = None) -> str:
    """Source of the candidates; bounds of steps from ``inline_from`` on are written out instead of named."""
    low, high = range_source(join, level, leaf, inline_from)
    name = level.names[leaf]
    return f"{name}[{low}:{high}]" if low or high else name
