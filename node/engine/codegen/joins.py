"""Code for one trigger: given the event that arrived for one unit, find every match it completes.

The generated function binds the remaining units one after another in nested loops. Candidates come from buffers kept in
trace order: a hash lookup where an equality allows it, then bisection by precedence and window, then the remaining
conjuncts. Everything that depends only on what is bound already is computed outside the inner loops.
"""

from __future__ import annotations

from headwater.node.engine.codegen.candidates import (
    bounds_of,
    candidates_source,
    distinctness,
    prepare_level,
    range_source,
)
from headwater.node.engine.codegen.context import Emit, JoinContext, Level
from headwater.node.engine.codegen.equalities import (
    class_conditions,
    class_guards,
    give_classes_values,
    group_equalities,
    has_key,
    place_parameters,
)
from headwater.node.engine.codegen.negations import negation_step, write_measure, write_negations
from headwater.node.engine.codegen.postponing import condition_source, in_order, plan_postponing, write_unsought
from headwater.node.engine.codegen.repetitions import (
    DEMAND,
    about_element,
    demand_source,
    finished_checks,
    limit_waits,
    limited_units,
    over_limit_found,
    subsets_source,
    write_forced_checks,
)
from headwater.protocol.analysis.units import Choice, Measure, Spread
from headwater.protocol.expressions import Expression, looks_up, parameters_of

NEAR = 16  # how far back from the newest event `last` looks before it bisects the whole buffer

LOOPS_MAX = 15  # loops inside each other in one generated function; Python refuses more than 20 blocks


def write_join(join: JoinContext, name: str, emit: Emit) -> str:
    """The source of the function; ``emit`` writes what happens with a finished match."""
    join.emit = emit
    join.numbers = ()
    group_equalities(join)
    _plan(join)
    out = join.out
    out.line(f"def {name}({'e' if join.units[join.trigger].many else f'r{join.trigger}'}):")
    out.depth += 1
    _bind_trigger(join)
    _after_step(join, 0)
    _write_levels(join, 1)
    out.depth = 0
    return str(out)


def _plan(join: JoinContext) -> None:
    """Fix the order of the levels, and for each how and when its candidates are fetched."""
    join.levels = []
    bound = [join.trigger]
    if join.in_text_order:
        for step in join.branch.steps:
            join.levels.append(Level(step.unit, step) if isinstance(step, Choice) else step)
    else:
        rest = [unit for unit in range(len(join.units)) if unit != join.trigger]
        while single := [unit for unit in rest if not join.units[unit].many]:
            chosen = min(single, key=lambda unit: (not has_key(join, unit, bound), _distance(unit, bound), unit))
            join.levels.append(Level(chosen, None))
            bound.append(chosen)
            rest.remove(chosen)
        if join.units[join.trigger].many:
            rest.append(join.trigger)
        join.levels += [Level(unit, None) for unit in sorted(rest)]
    join.step_of = {join.trigger: 0}
    for number, level in enumerate(join.levels, start=1):
        if isinstance(level, Level):
            join.step_of[level.unit] = number
    join.element_step = dict(join.step_of)
    join.element_step[join.trigger] = 0
    give_classes_values(join)
    place_parameters(join)
    join.conditions = {}
    for condition in join.branch.where:
        if condition not in join.class_conditions and not join.is_own(condition):
            at = max((join.step_of[unit] for unit in join.branch.units_in(condition)), default=0)
            at = max([at, *(join.parameter_step[name] for name in parameters_of(condition))])
            join.conditions.setdefault(at, []).append(condition)


def _distance(unit: int, bound: list[int]) -> int:
    return min(abs(unit - other) for other in bound)


def _bind_trigger(join: JoinContext) -> None:
    unit = join.units[join.trigger]
    leaf = unit.leaves[join.trigger_leaf]
    for guard in class_guards(join, join.trigger, leaf.role, "e" if unit.many else f"r{join.trigger}"):
        join.skip_unless(guard)
    for step, level in enumerate(join.levels, start=1):
        if isinstance(level, Level):
            prepare_level(join, step, level)
    plan_postponing(join)
    for condition in in_order(join, join.conditions.get(0, [])):
        join.skip_unless(condition_source(join, condition, 0))


def _after_step(join: JoinContext, step: int) -> None:
    """Write everything that can be known once the unit of this step is bound."""
    write_unsought(join, step)
    later = [level for level in join.levels[step:] if isinstance(level, Level)]
    for level in later:
        for leaf, name in enumerate(level.names):
            if level.fetch_step[leaf] != step:
                continue
            join.out.line(level.fetch[leaf])
            if level.unit != join.trigger or leaf != join.trigger_leaf:
                join.out.line(f"if not {name}: {join.skip}")
            elif ".get(" in level.fetch[leaf]:  # the trigger itself may be the only element
                join.out.line(f"if {name} is None: {name} = []")
    for level in later:
        for leaf in range(len(level.names)):
            lower, upper, _ = bounds_of(join, level, leaf)
            for bound in (*lower, *upper):
                if bound.step == step:
                    join.out.line(f"{bound.variable} = {bound.source}")
    write_negations(join, step)


def _write_levels(join: JoinContext, step: int) -> None:
    if step > len(join.levels):
        for unit in limited_units(join):
            if join.step_of[unit] != len(join.levels):
                join.out.line(f"if {over_limit_found(join, unit)}: {join.skip}")
        join.emit(join.out, join)
        return
    if _loops_here(join) >= LOOPS_MAX:
        _in_function(join, step)
        return
    level = join.levels[step - 1]
    if isinstance(level, Measure):
        write_measure(join, step, level)
        for condition in in_order(join, join.conditions.get(step, [])):
            join.skip_unless(condition_source(join, condition, step))
        _after_step(join, step)
        _write_levels(join, step + 1)
    elif join.units[level.unit].many:
        _repetition(join, step, level)
    else:
        _single(join, step, level)


def _loops_here(join: JoinContext) -> int:
    """How many loops are open in the function that is being written."""
    return join.skips[::-1].index("return")


def _in_function(join: JoinContext, step: int) -> None:
    """Go on in a function of its own: Python does not allow more than 20 loops inside each other."""
    join.nested += 1
    name = f"deeper{join.nested}"
    join.out.line(f"def {name}():")
    join.out.depth += 1
    join.skips.append("return")
    _write_levels(join, step)
    join.skips.pop()
    join.out.depth -= 1
    join.out.line(f"{name}()")


def _single(join: JoinContext, step: int, level: Level) -> None:
    choice = level.choice
    if choice is not None and choice.policy != "each":
        loops = _choose(join, level, choice, _single_conditions(join, step, level))
        _bound_single(join, step, level.unit)
        _write_levels(join, step + 1)
        if loops:
            join.leave_loop()
        return
    if _collapses(join, step):
        last = step == len(join.levels)
        clauses = [_clause(join, at, step) for at in range(step, len(join.levels) + 1)]
        conditional = not last or " if " in clauses[0]
        join.collect = (" ".join(clauses), candidates_source(join, level, 0), not conditional)
        join.emit(join.out, join)
        return
    join.enter_loop(f"for r{level.unit} in {candidates_source(join, level, 0)}:")
    conditions = _single_conditions(join, step, level)
    if conditions:
        join.skip_unless(" and ".join(conditions))
    _bound_single(join, step, level.unit)
    _write_levels(join, step + 1)
    join.leave_loop()


def _single_conditions(join: JoinContext, step: int, level: Level) -> list[str]:
    """What a candidate must satisfy beyond lying in the range."""
    unit = level.unit
    conditions = class_conditions(join, unit, join.units[unit].leaves[0].role, level.used_class[0])
    rest = [c for c in in_order(join, join.conditions.get(step, [])) if c != level.used_condition[0]]
    conditions += [join.scope.truth(condition) for condition in rest if not looks_up(condition)]
    *_, extra = bounds_of(join, level, 0)
    asking = [condition_source(join, condition, step) for condition in rest if looks_up(condition)]
    extra = [*extra, *_arrived_before(join, f"r{unit}")]
    return conditions + extra + distinctness(join, unit, 0, f"r{unit}") + asking


def _arrived_before(join: JoinContext, row: str) -> list[str]:
    """An evaluation that was held leaves out what came after it: that has found its own matches with the trigger."""
    return [f"id({row}) not in later"] if join.again and not join.mode.ordered else []


def _clause(join: JoinContext, at: int, first: int) -> str:
    """One loop of a comprehension that begins with the loop of step ``first``."""
    level = join.levels[at - 1]
    assert isinstance(level, Level)
    role = join.units[level.unit].leaves[0].role
    conditions = _single_conditions(join, at, level) + class_guards(join, level.unit, role, f"r{level.unit}")
    kept = f" if {' and '.join(conditions)}" if conditions else ""
    return f"for r{level.unit} in {candidates_source(join, level, 0, first)}{kept}"


def _collapses(join: JoinContext, step: int) -> bool:
    """Whether the loops from this step on can be one comprehension: nothing happens in them but conditions."""
    clauses = len(join.levels) + 1 - step
    if any(sought.step >= step for sought in join.sought.values()):
        return False
    if not _finishes(join, len(join.levels)) or _loops_here(join) + clauses > LOOPS_MAX:
        return False
    for at in range(step, len(join.levels) + 1):
        level = join.levels[at - 1]
        if not isinstance(level, Level) or join.units[level.unit].many or level.fetch_step[0] >= step:
            return False
        if level.choice is not None and level.choice.policy != "each":
            return False
        lower, upper, _ = bounds_of(join, level, 0)
        if any(":=" in bound.source for bound in (*lower, *upper) if bound.step >= step):
            return False
        if any(negation_step(join, f) == at and id(f) not in join.hoisted for f in join.branch.forbidden):
            return False
        if any(_spread_step(join, spread) == at for spread in join.branch.spreads):
            return False
    return True


def _repetition(join: JoinContext, step: int, level: Level) -> None:
    unit = level.unit
    repetition = join.units[unit]
    out = join.out
    forced = unit == join.trigger
    roles = repetition.roles
    conditions = join.conditions.get(step, [])
    lists = _element_lists(join, step, level, conditions)
    join.complete.add(unit)
    tests = finished_checks(join, unit, conditions, roles)
    plain = _finishes(join, step) and not tests
    source = subsets_source(join, unit, repetition, lists, forced, conditions, roles, plain)
    names = [f"k{unit}_{leaf_number}" for leaf_number in range(len(repetition.leaves))]
    target = names[0] if len(names) == 1 else ", ".join(names)
    if plain and DEMAND not in source:
        join.collect = (f"for {target} in {source}", source, True)
        join.counted = (lists[0], forced) if source.startswith("subsets") else None
        join.emit(join.out, join)
        return
    if DEMAND in source:
        target = f"w{unit}, {target if len(names) == 1 else f'({target})'}"
        join.numbers += (f"w{unit}",)
    header = len(out.lines)
    join.enter_loop(f"for {target} in {source}:")
    for test in tests:
        join.skip_unless(test)
    for spread in join.branch.spreads:
        if _spread_step(join, spread) == step:
            join.skip_unless(join.spread_condition(spread))
    _after_step(join, step)
    _write_levels(join, step + 1)
    join.leave_loop()
    if DEMAND in source:
        text = "\n".join([*out.lines[header + 1 :], join.demanded_later]).replace(join.waiting_match or "\0", "")
        out.lines[header] = out.lines[header].replace(DEMAND, demand_source(join, unit, text))


def _element_lists(join: JoinContext, step: int, level: Level, conditions: list[Expression]) -> list[str]:
    """Write the lists of events that may be elements of a repetition, one for each leaf; their names."""
    unit = level.unit
    repetition = join.units[unit]
    out = join.out
    roles = repetition.roles
    forced = unit == join.trigger
    lists = []
    for leaf_number, leaf in enumerate(repetition.leaves):
        element = join.element(unit, leaf_number)
        with join.reading({(leaf.role, ""): element}):
            tests = class_conditions(join, unit, leaf.role, level.used_class[leaf_number])
            tests += [
                join.scope.truth(condition)
                for condition in conditions
                if about_element(join, condition, roles, leaf.role) and condition != level.used_condition[leaf_number]
            ]
        *_, extra = bounds_of(join, level, leaf_number)
        tests += extra + distinctness(join, unit, leaf_number, element)
        if join.again and forced and leaf.type == repetition.leaves[join.trigger_leaf].type:
            tests.append(f"{element} != e")
        tests = _arrived_before(join, element) + tests
        candidates = candidates_source(join, level, leaf_number)
        variable = f"c{unit}_{leaf_number}"
        lists.append(variable)
        if repetition.limit is not None and step == len(join.levels):
            out.line(f"if {over_limit_found(join, unit)}: {join.skip}")
        if tests:
            out.line(f"{variable} = [{element} for {element} in {candidates} if {' and '.join(tests)}]")
        else:
            out.line(f"{variable} = {candidates}")
        if forced and leaf_number == join.trigger_leaf:
            with join.reading({(leaf.role, ""): "e"}):
                write_forced_checks(join, level, leaf_number, conditions, roles)
        else:
            out.line(f"if not {variable}: {join.skip}")
    return lists


def _finishes(join: JoinContext, step: int) -> bool:
    """Nothing is left to do after this step but to emit."""
    if step != len(join.levels) or any(join.step_of[u] < step or limit_waits(join, u) for u in limited_units(join)):
        return False
    if any(_spread_step(join, spread) == step for spread in join.branch.spreads):
        return False
    return not any(
        forbidden.waits or (negation_step(join, forbidden) == step and id(forbidden) not in join.hoisted)
        for forbidden in join.branch.forbidden
    )


def _spread_step(join: JoinContext, spread: Spread) -> int:
    return max(join.step_of[unit] for part in spread.parts for unit in part)


def _bound_single(join: JoinContext, step: int, unit: int) -> None:
    for guard in class_guards(join, unit, join.units[unit].leaves[0].role, f"r{unit}"):
        join.skip_unless(guard)
    for spread in join.branch.spreads:
        if _spread_step(join, spread) == step:
            join.skip_unless(join.spread_condition(spread))
    _after_step(join, step)


def _choose(join: JoinContext, level: Level, choice: Choice, conditions: list[str]) -> bool:
    """Bind the last or first candidate, or open a loop over the n chosen ones; whether it did the latter."""
    out = join.out
    row = f"r{level.unit}"
    name = level.names[0]
    last = choice.policy == "last"
    if last and choice.count == 1 and not conditions:
        _choose_nearest(join, level, row)
        return False
    lower, upper, _ = bounds_of(join, level, 0)
    for bound in (*lower, *upper):
        if bound.step == join.step_of[level.unit]:
            out.line(f"{bound.variable} = {bound.source}")
    low, high = range_source(join, level, 0)
    if choice.count == 1 and not conditions:
        out.line(f"i = {low or 0}")
        out.line(f"if i >= {high or f'len({name})'}: {join.skip}")
        out.line(f"{row} = {name}[i]")
        return False
    candidates = candidates_source(join, level, 0)
    if last:
        candidates = f"reversed({candidates})" if low or high else f"reversed({name})"
    test = " and ".join(conditions) or "True"
    if choice.count == 1:
        out.line(f"for {row} in {candidates}:")
        out.line(f"    if {test}: break")
        out.line(f"else: {join.skip}")
        return False
    chosen = f"chosen{level.unit}"
    out.line(f"{chosen} = []")
    out.line(f"for {row} in {candidates}:")
    out.line(f"    if {test}:")
    out.line(f"        {chosen}.append({row})")
    out.line(f"        if len({chosen}) == {choice.count}: break")
    join.enter_loop(f"for {row} in {chosen}:")
    return True


def _choose_nearest(join: JoinContext, level: Level, row: str) -> None:
    """The last candidate without further conditions: one step back, then see whether it is near enough."""
    name = level.names[0]
    _, upper, _ = bounds_of(join, level, 0)
    _, high = range_source(join, level, 0)
    if len(upper) == 1 and upper[0].step == join.step_of[level.unit]:
        # Mostly the very last one, or one of the last few: look there before bisecting the whole window.
        (origin,) = (gap.later for gap in join.branch.gaps_from(level.unit))
        join.out.line(f"{row} = {name}[-1]")
        join.out.line(f"if not {row} < r{origin}:")
        join.out.line(f"    i = len({name}) - {NEAR}")
        join.out.line(f"    i = bisect_left({name}, r{origin}, i if i > 0 and {name}[i] < r{origin} else 0)")
        join.out.line(f"    if not i: {join.skip}")
        join.out.line(f"    {row} = {name}[i - 1]")
    elif high:
        join.out.line(f"i = {high}")
        join.out.line(f"if not i: {join.skip}")
        join.out.line(f"{row} = {name}[i - 1]")
    else:
        join.out.line(f"{row} = {name}[-1]")
    for gap in join.branch.gaps_from(level.unit):
        if join.step_of[gap.later] < join.step_of[level.unit]:
            join.out.line(f"if {join.end_ts(gap.later)} - {row}[0] > {gap.length}: {join.skip}")
