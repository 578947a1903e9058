"""Code for repetitions (Kleene closure): their subsets, conditions on elements and on the whole, and their limits."""

from __future__ import annotations

import re

from headwater.node.engine.codegen.context import JoinContext, Level
from headwater.node.engine.codegen.equalities import of_role
from headwater.protocol.analysis.units import Unit, elementwise, needs_previous, needs_whole
from headwater.protocol.expressions import Attribute, Expression, roles_of, walk

DEMAND = "DEMAND"  # stands in generated code for what is asked of a repetition until that is known


def about_element(join: JoinContext, condition: Expression, roles: frozenset[str], role: str) -> bool:
    """Speaks of each element of this one leaf, and of no element of another repetition finished before."""
    return (
        elementwise(condition, roles)
        and roles_of(condition) & roles == {role}
        and not _elements_elsewhere(join, condition, roles)
    )


def limited_units(join: JoinContext) -> list[int]:
    return [number for number, unit in enumerate(join.units) if unit.limit is not None]


def limit_waits(join: JoinContext, unit: int) -> bool:
    """Candidates may still come after the match: nothing in it has to follow the repetition."""
    return join.branch.is_last(unit)


def limit_deadline(join: JoinContext, unit: int) -> str:
    """When no more candidates of a limited repetition can come: a timestamp, or a number under a count window."""
    other_units = [number for number in range(len(join.units)) if number != unit]
    if join.branch.count is not None:
        return f"{join.least_ts(other_units, -1)} + {join.branch.count - 1}"
    ends = [f"{join.first_ts(gap.earlier, gap.from_start)} + {gap.length}" for gap in join.branch.gaps_to(unit)]
    ends.append(f"{join.least_ts(other_units)} + {join.branch.horizon}")
    return f"min({', '.join(ends)})" if len(ends) > 1 else ends[0]


def over_limit_found(join: JoinContext, unit: int) -> str:
    """Source of a condition: beside the other parts, the repetition has more candidates than it may."""
    repetition = join.units[unit]
    leaf = repetition.leaves[0]
    own = join.own_conditions(leaf.role, join.branch.where)
    horizon = join.branch.horizon + join.branch.longest_wait
    rows = join.buffers.buffer(leaf.type, own, None, horizon)
    composite = join.buffers.columns(leaf.type).composite
    start = "start_of(x)" if composite else "x[:3]"
    span = (join.branch.count or 1) - 1
    tests = []
    asking = join.asking_conditions(leaf.role, join.branch.where, "x")
    lows = []
    for other in range(len(join.units)):
        if other == unit:
            continue
        if (other, unit) in join.branch.before:
            tests.append(f"{start} > {join.end_key(other)}")
        if (unit, other) in join.branch.before:
            tests.append(f"x[:3] < {join.start_key(other)}")
        if join.branch.count is not None:
            tests.append(f"x[-1] - {join.row_of(other, 'first')}[-1] <= {span}")
            tests.append(f"{join.row_of(other, 'last')}[-1] - x[-1] <= {span}")
        mates = [
            f"k{other}_{n}" if join.units[other].many else f"r{other}"
            for n, mate in enumerate(join.units[other].leaves)
            if mate.type == leaf.type
        ]
        if mates:
            tests.append(f"not overlaps((x,), ({', '.join(mates)},))")
    for gap in join.branch.gaps_from(unit):
        first = f"{start}[0]" if gap.from_start else "x[0]"
        tests.append(f"{join.end_ts(gap.later)} - {first} <= {gap.length}")
        lows.append(f"{join.end_ts(gap.later)} - {gap.length}")
    for gap in join.branch.gaps_to(unit):
        tests.append(f"x[0] - {join.first_ts(gap.earlier, gap.from_start)} <= {gap.length}")
    tests += [
        f"x[0] - {start}[0] <= {length}"
        for number, length, from_start in join.branch.own_spans
        if number == unit and from_start and composite
    ]
    join.stand_in[unit] = "x"
    tests += [
        join.spread_condition(spread) for spread in join.branch.spreads if any(unit in part for part in spread.parts)
    ]
    del join.stand_in[unit]
    tests += asking
    if lows:
        rows = f"{rows}[bisect_left({rows}, ({lows[0]},)):]"
    return f"exceeds([1 for x in {rows} if {' and '.join(tests) or 'True'}], {repetition.limit}, {join.over_limit})"


def write_forced_checks(
    join: JoinContext, level: Level, leaf: int, conditions: list[Expression], roles: frozenset[str]
) -> None:
    """The triggering element itself must satisfy what its fellows do."""
    role = join.units[level.unit].leaves[leaf].role
    for condition in conditions:
        if about_element(join, condition, roles, role):
            join.skip_unless(join.scope.truth(condition))
    for number, source in join.class_source.items():
        if source.role == role or join.class_step[number] >= join.step_of[level.unit]:
            continue  # what gives the class its value was compared with itself when it came
        for attribute in of_role(join.classes[number].get(level.unit, ()), role):
            join.skip_unless(join.scope.compare("=", join.scope.value(attribute), join.class_value[number]))
    if join.branch.count is not None:
        span = join.branch.count - 1
        for other, step in join.element_step.items():
            if other != level.unit and step < join.step_of[level.unit]:
                join.skip_unless(f"-{span} <= {join.row_of(other, 'last')}[-1] - e[-1] <= {span}")


def subsets_source(
    join: JoinContext,
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
        element = join.element(unit, 0)
        role = repetition.leaves[0].role
        with join.reading({(role, ""): element, (role, "i-1"): "p"}):
            tests = [join.scope.truth(condition) for condition in linking]
        if join.is_composite(unit):
            tests.insert(0, f"p[:3] < start_of({element})")
        follows = f"lambda p, {element}: {' and '.join(tests)}" if tests else None
        if join.counting and not (plain and follows is None):
            return f"choices_of({lists[0]}, {'e' if forced else None}, {follows}, {DEMAND})"
        if follows is not None:
            return f"chains({lists[0]}, {'e' if forced else None}, {follows})"
        return f"subsets_with({lists[0]}, e)" if forced else f"subsets({lists[0]})"
    here = {(leaf.role, ""): join.element(unit, number) for number, leaf in enumerate(repetition.leaves)}
    before = {(leaf.role, "i-1"): f"p[{number}]" for number, leaf in enumerate(repetition.leaves)}
    after = {(leaf.role, ""): f"q[{number}]" for number, leaf in enumerate(repetition.leaves)}
    together = [c for c in conditions if elementwise(c, roles) and len(roles_of(c) & roles) > 1]
    with join.reading(here):
        tests = [join.scope.truth(condition) for condition in together]
        tests += _equalities_within_group(join, unit)
    with join.reading(before | after):
        links = [join.scope.truth(condition) for condition in linking]
    within = f"lambda {', '.join(here.values())}: {' and '.join(tests) or 'True'}"
    follows = f"lambda p, q: {' and '.join(links) or 'True'}"
    inside = f"[{', '.join(lists)}]"
    leaf, event = (join.trigger_leaf, "e") if forced else (0, None)
    arguments = f"{inside}, {leaf}, {event}, {within}, {follows}"
    return f"group_choices_of({arguments}, {DEMAND})" if join.counting else f"group_chains({arguments})"


def demand_source(join: JoinContext, unit: int, text: str) -> str:
    """Source of what ``text``, generated for the time after the repetition was bound, asks of it."""
    leaves = join.units[unit].leaves
    names = [f"k{unit}_{number}" for number in range(len(leaves))]
    numbers = {leaf.role: number for number, leaf in enumerate(leaves)}
    folds = []
    for source, (fold, read) in join.folds.items():
        if fold.role not in numbers or source not in text:
            continue
        text = text.replace(source, "")
        if read is None:
            folds.append("('len', None)")
        else:
            item = f"f[{numbers[fold.role]}]" if len(leaves) > 1 else "f"
            assert fold.name is not None
            folds.append(f"('{fold.function}', lambda f: {join.columns(fold.role).read(item, fold.name).source})")
    ends = [f"{name}[{end}]" for name in names for end in (0, -1)]
    without_ends = text
    for end in ends:
        without_ends = without_ends.replace(end, "")
    reads_elements = any(re.search(rf"\b{name}\b", without_ends) for name in names)
    return f"Demand({', '.join([str(without_ends != text), str(reads_elements), *folds])})"


def _equalities_within_group(join: JoinContext, unit: int) -> list[str]:
    """Classes that only this group's own leaves have reached so far are equal within each group."""
    tests = []
    for number, members in enumerate(join.classes):
        mine = members.get(unit, [])
        if join.class_step.get(number, 1 << 30) >= join.step_of[unit] and len(mine) > 1:
            first = join.scope.value(mine[0])
            tests += [join.scope.compare("=", join.scope.value(other), first) for other in mine[1:]]
    return tests


def finished_checks(join: JoinContext, unit: int, conditions: list[Expression], roles: frozenset[str]) -> list[str]:
    """Conditions on the whole repetition: folds, first and last, its own extent."""
    tests = []
    for condition in conditions:
        if needs_whole(condition, roles) or _elements_elsewhere(join, condition, roles):
            tests.append(join.over_elements(condition))
    for number, length, from_start in join.branch.own_spans:
        if number == unit and not _own_span_implied(join, unit, length, from_start):
            tests.append(f"{join.end_ts(unit)} - {join.first_ts(unit, from_start)} <= {length}")
    if join.branch.count is not None:
        tests.append(f"{join.row_of(unit, 'last')}[-1] - {join.row_of(unit, 'first')}[-1] <= {join.branch.count - 1}")
    return tests


def _elements_elsewhere(join: JoinContext, condition: Expression, roles: frozenset[str]) -> bool:
    """Names elements of a repetition that was finished at an earlier step."""
    for part in walk(condition):
        if isinstance(part, Attribute) and part.role not in roles and join.names_element(part):
            return True
    return False


def _own_span_implied(join: JoinContext, unit: int, length: int, from_start: bool) -> bool:
    if any(leaf.type for leaf in join.units[unit].leaves if join.buffers.columns(leaf.type).composite):
        return False
    bound_units = {u for u, step in join.step_of.items() if step < join.step_of[unit]}
    return any(
        reach.from_start == from_start
        and reach.length <= length
        and unit in reach.units
        and any((unit, u) in join.branch.before or (u, unit) in join.branch.before for u in bound_units & reach.units)
        for reach in join.branch.reaches
    )
