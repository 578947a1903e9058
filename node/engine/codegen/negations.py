"""Code for what must not be there, and for aggregates, which look at ranges in the same way."""

from __future__ import annotations

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.context import JoinContext
from headwater.node.engine.codegen.equalities import equality_key
from headwater.protocol.analysis.units import Forbidden, Measure
from headwater.protocol.expressions import Attribute, Binary, Expression, parameters_of, roles_of


def negation_deadline(join: JoinContext, forbidden: Forbidden) -> str:
    """When a negation that waits is decided: a timestamp, or a number under a count window."""
    column = -1 if forbidden.numbered else 0
    return f"{join.least_ts(forbidden.owner, column)} + {forbidden.window}"


def negation_found(join: JoinContext, forbidden: Forbidden) -> str:
    """Source of a condition: something in the range forbids the match."""
    rows, rest = forbidden_buffer(join, forbidden, negation_step(join, forbidden))
    tests = _forbidden_tests(join, forbidden, rest)
    name = f"N{join.branch.forbidden.index(forbidden)}"
    low, high = _forbidden_range(join, forbidden, name)
    if forbidden.numbered and forbidden.place in ("before", "after", "around"):
        tests += _forbidden_numbers(join, forbidden)
    inside = f"{name}[{low}:{high}]"
    if tests:
        is_forbidden = f"any({' and '.join(tests)} for x in {inside})"
    elif low or high:
        is_forbidden = f"{low or 0} < {high or f'len({name})'}"
    else:
        is_forbidden = f"bool({name})"
    return f"({name} := {rows}) and {is_forbidden}"


def negation_step(join: JoinContext, forbidden: Forbidden) -> int:
    needed = {*forbidden.left, *forbidden.right}
    if forbidden.place in ("before", "after", "around"):
        needed |= set(forbidden.owner)
    for condition in forbidden.where:
        needed |= {join.branch.unit_of(r) for r in roles_of(condition) if r in join.positive}
    types = {join.types[role] for role in forbidden.roles}
    needed |= {n for n, unit in enumerate(join.units) if any(leaf.type in types for leaf in unit.leaves)}
    step = max((join.step_of[unit] for unit in needed), default=0)
    for level_step, level in enumerate(join.levels, start=1):
        if isinstance(level, Measure) and any(level.name in parameters_of(c) for c in forbidden.where):
            step = max(step, level_step)
    return step


def write_negations(join: JoinContext, step: int) -> None:
    for forbidden in join.branch.forbidden:
        if not forbidden.waits and id(forbidden) not in join.hoisted and negation_step(join, forbidden) == step:
            join.out.line(f"if {negation_found(join, forbidden)}: {join.skip}")


def forbidden_buffer(join: JoinContext, forbidden: Forbidden, at: int) -> tuple[str, list[Expression]]:
    """Source of the list of possibly negating events, and the conjuncts it does not settle."""
    horizon = join.branch.forbidden_horizon(forbidden) + join.extra_horizon
    if forbidden.leaf is None:
        return join.buffers.derived(forbidden, horizon), list(forbidden.where)
    role = forbidden.leaf.role
    own = join.own_conditions(role, forbidden.where)
    rest = [
        condition for condition in forbidden.where if not (roles_of(condition) == {role} and join.is_own(condition))
    ]
    equality = _forbidden_key(join, role, rest, at)
    if equality is None:
        return join.buffers.buffer(forbidden.leaf.type, own, None, horizon), rest
    key, lookup, condition = equality
    buffer = join.buffers.buffer(forbidden.leaf.type, own, key, horizon)
    return f"{buffer}.get({lookup}, ())", [c for c in rest if c != condition]


def _forbidden_key(
    join: JoinContext, role: str, where: list[Expression], at: int
) -> tuple[Piece, str, Expression] | None:
    for condition in where:
        match condition:
            case Binary("=", Attribute(index="") as left, Attribute(index="") as right):
                for mine, other in ((left, right), (right, left)):
                    number = join.class_of.get(other)
                    if mine.role == role and number is not None and join.class_step.get(number, at + 1) <= at:
                        with join.reading({(role, ""): "e"}):
                            return join.scope.value(mine), join.class_value[number].source, condition
    bound = {unit for unit, step in join.step_of.items() if step <= at and not join.units[unit].many}
    return equality_key(join, role, where, bound, at)


def _forbidden_range(join: JoinContext, forbidden: Forbidden, rows: str) -> tuple[str, str]:
    """Sources of the lower and upper index of a negation's (or aggregate's) range; empty where it is open."""
    if forbidden.numbered and forbidden.place in ("before", "after", "around"):
        return "", ""
    window = forbidden.window
    low = high = ""
    if forbidden.place in ("between", "after"):
        low = f"bisect_left({rows}, after({join.latest_end(forbidden.left)}))"
    elif forbidden.place in ("before", "around"):
        low = f"bisect_left({rows}, ({join.greatest_ts(forbidden.owner)} - {window},))"
    elif forbidden.place == "within":
        low = f"bisect_left({rows}, ({join.end_ts(forbidden.right[0])} - {window},))"
    else:
        ends = f"{join.end_key(forbidden.left[0])}, {join.end_key(forbidden.right[0])}"
        low = f"bisect_left({rows}, after(min({ends})))"
        high = f"bisect_left({rows}, max({ends}))"
    if forbidden.place in ("between", "before"):
        high = f"bisect_left({rows}, {join.earliest_start(forbidden.right)})"
    elif forbidden.place in ("after", "around"):
        high = f"bisect_left({rows}, ({join.least_ts(forbidden.owner)} + {window + 1},))"
    elif forbidden.place == "within":
        high = f"bisect_left({rows}, {join.end_key(forbidden.right[0])})"
    return low, high


def _forbidden_numbers(join: JoinContext, forbidden: Forbidden) -> list[str]:
    """The range under a count window, in event numbers."""
    tests = []
    if forbidden.place in ("before", "around"):
        tests.append(f"x[-1] >= {join.greatest_ts(forbidden.owner, -1)} - {forbidden.window}")
    if forbidden.place in ("after", "around"):
        tests.append(f"x[-1] <= {join.least_ts(forbidden.owner, -1)} + {forbidden.window}")
    if forbidden.place == "before":
        tests.append(f"x[:3] < {join.earliest_start(forbidden.right)}")
    if forbidden.place == "after":
        tests.append(f"x[:3] > {join.latest_end(forbidden.left)}")
    return tests


def _forbidden_tests(join: JoinContext, forbidden: Forbidden, rest: list[Expression]) -> list[str]:
    names: dict[tuple[str, str], str] = {}
    tests: list[str] = []
    sub = forbidden.leaf is None
    for number, role in enumerate(forbidden.roles):
        names[role, ""] = f"x[{4 + number}]" if sub else "x"
    with join.reading(names):
        for condition in rest:
            test = join.over_elements(condition)
            if sub:
                mine = [names[role, ""] for role in sorted(roles_of(condition)) if (role, "") in names]
                test = f"({' or '.join(f'{row} is None' for row in mine)} or {test})"
            tests.append(test)
    types = {join.types[role] for role in forbidden.roles}
    parts = []
    for number, unit in enumerate(join.units):
        for leaf_number, leaf in enumerate(unit.leaves):
            if leaf.type in types:
                parts.append(f"k{number}_{leaf_number}" if unit.many else f"r{number}")
    if parts:
        width = len(forbidden.roles)
        rows = f"[row for row in x[4:{4 + width}] if row is not None]" if sub else "(x,)"
        tests.append(f"not overlaps({rows}, ({', '.join(parts)},))")
    return tests


def write_measure(join: JoinContext, step: int, measure: Measure) -> None:
    role = measure.leaf.role
    own = join.own_conditions(role, measure.where)
    rest = [c for c in measure.where if not (roles_of(c) == {role} and join.is_own(c))]
    bound = {unit for unit, at in join.step_of.items() if at < step}
    equality = equality_key(join, role, rest, bound, step - 1)
    name = f"M{step}"
    if equality is None:
        rows = join.buffers.buffer(measure.leaf.type, own, None, join.branch.horizon)
    else:
        key, lookup, condition = equality
        rest = [c for c in rest if c != condition]
        rows = join.buffers.buffer(measure.leaf.type, own, key, join.branch.horizon) + f".get({lookup}, ())"
    range_ = Forbidden(measure.leaf, (), measure.place, measure.left, measure.right, (), measure.window)
    low, high = _forbidden_range(join, range_, name)
    join.out.line(f"{name} = {rows}")
    with join.reading({(role, ""): "x"}):
        tests = [join.scope.truth(condition) for condition in rest]
        read = None if measure.attribute is None else join.columns(role).read("x", measure.attribute)
    if read is not None and read.nullable:
        tests.append(f"{read.source} is not None")
    variable = join.parameters[measure.name].source
    inside = f"{name}[{low}:{high}]"
    kept = f" if {' and '.join(tests)}" if tests else ""
    if measure.function == "count":
        source = f"len([1 for x in {inside}{kept}])" if tests else f"max(0, {high} - {low})"
    else:
        assert read is not None
        source = f"fold_{measure.function}([{read.source} for x in {inside}{kept}])"
    join.out.line(f"{variable} = {source}")
