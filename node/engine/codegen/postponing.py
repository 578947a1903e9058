"""Code for plain conditions that look something up: judged where they stand if the element is at hand, else later.

The value of such a lookup is kept in a variable from the step on at which its arguments are bound, and is looked up
when the first condition needs it. If it is not at hand, the variable holds M and the conditions that read it let the
candidate pass; a match found under such a variable is in doubt, and judged when its elements are there.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.node.engine.codegen.code import Piece
from headwater.node.engine.codegen.context import JoinContext, Level, Sought
from headwater.protocol.analysis.units import Branch, Choice
from headwater.protocol.expressions import Expression, Remote, looks_up, parameters_of, roles_of, walk

LOOPS_BEFORE_MEMO = 2  # inside one loop an evaluation comes to each event once, and has nothing to remember
LEVELS_MAX = 14  # a longer join is written as functions inside each other, which do not share variables


def plain_conditions(join: JoinContext, branch: Branch) -> list[Expression]:
    """The conjuncts that ask for elements and can as well be judged on a complete match: what they accept or reject
    decides on that match alone."""
    chosen = {step.unit for step in branch.steps if isinstance(step, Choice) and step.policy != "each"}
    return [
        condition
        for condition in branch.where
        if join.asks(condition)
        and not parameters_of(condition)
        and not _is_nested(condition)
        and roles_of(condition)
        and not any(join.units[unit].many for unit in branch.units_in(condition))
        and not (join.in_text_order and branch.units_in(condition) & chosen)
    ]


def _is_nested(condition: Expression) -> bool:
    """Whether a lookup's argument is looked up itself."""
    lookups = [part for part in walk(condition) if isinstance(part, Remote)]
    return any(
        isinstance(part, Remote) for lookup in lookups for argument in lookup.arguments for part in walk(argument)
    )


def plan_postponing(join: JoinContext) -> None:
    """Give every lookup of a plain condition of this join its variable."""
    if join.rule_number < 0 or len(join.levels) > LEVELS_MAX:
        return
    used = {c for level in join.levels if isinstance(level, Level) for c in level.used_condition}
    plain = set(plain_conditions(join, join.branch)) - used
    for step, conditions in join.conditions.items():
        for condition in conditions:
            if condition not in plain:
                continue
            join.postponable[condition] = step
            for part in walk(condition):
                if isinstance(part, Remote) and part not in join.sought:
                    bound = max((join.step_of[unit] for unit in join.branch.units_in(part)), default=0)
                    name = f"got{len(join.sought)}"
                    site = join.buffers.site(join.rule_number, part, by_trigger=bound == 0)
                    memo = f"memo{len(join.sought)}" if bound >= LOOPS_BEFORE_MEMO else ""
                    join.sought[part] = Sought(name, bound, site, memo)
                    if memo:
                        join.out.line(f"{memo} = {{}}")


def in_order(join: JoinContext, conditions: Sequence[Expression]) -> list[Expression]:
    """What needs no element first, then what cannot be postponed: no element is asked for, or looked up, that another
    condition makes superfluous."""
    return sorted(conditions, key=lambda condition: (looks_up(condition), condition in join.postponable))


def condition_source(join: JoinContext, condition: Expression, step: int) -> str:
    """Source of a conjunct: true if it holds, or is postponed."""
    if condition not in join.postponable:
        return join.scope.truth(condition)
    lookups = dict.fromkeys(part for part in walk(condition) if isinstance(part, Remote))
    pieces = {lookup: Piece(join.sought[lookup].variable, nullable=True, simple=True) for lookup in lookups}
    tests = []
    for lookup in lookups:
        sought = join.sought[lookup]
        table, *named = join.scope.lookup_arguments(lookup)
        call = f"{sought.variable} := seek({sought.site}, {', '.join((table, *named))})"
        if sought.memo:
            call = (
                f"{sought.variable} if ({sought.variable} := {sought.memo}.get(({', '.join(named)}), U)) is not U "
                f"else ({sought.variable} := seek_once({sought.memo}, {sought.site}, {', '.join((table, *named))}))"
            )
        if sought.step < step:
            call = f"{sought.variable} if {sought.variable} is not U else ({call})"
        tests.append(f"({call}) is M")
    join.scope.sought = pieces
    try:
        tests.append(join.scope.truth(condition))
    finally:
        join.scope.sought = {}
    return f"({' or '.join(tests)})"


def write_unsought(join: JoinContext, step: int) -> None:
    """The unit of a step is bound: what its events name was not looked up yet, unless a condition of the step did."""
    for lookup, sought in join.sought.items():
        if sought.step == step and not _looked_up_at(join, lookup, step):
            join.out.line(f"{sought.variable} = U")


def _looked_up_at(join: JoinContext, lookup: Remote, step: int) -> bool:
    return any(
        at == step and any(part == lookup for part in walk(condition)) for condition, at in join.postponable.items()
    )


def in_doubt(join: JoinContext) -> str:
    """Source of whether a condition of the match that was found is postponed; empty if none can be."""
    return " or ".join(f"{sought.variable} is M" for sought in join.sought.values())
