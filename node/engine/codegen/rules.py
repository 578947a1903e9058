"""From rules to the code and the composite specs of one engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from headwater.node.engine.codegen.code import Piece, Writer
from headwater.node.engine.codegen.context import JoinContext, Mode
from headwater.node.engine.codegen.equalities import bind_all
from headwater.node.engine.codegen.joins import write_join
from headwater.node.engine.codegen.lookup_keys import add_ahead, lookups_of
from headwater.node.engine.codegen.negations import negation_deadline, negation_found
from headwater.node.engine.codegen.postponing import in_doubt, plain_conditions
from headwater.node.engine.codegen.repetitions import limit_deadline, limit_waits, limited_units, over_limit_found
from headwater.node.engine.codegen.store_builder import Guarded, StoreBuilder
from headwater.protocol.analysis.units import Branch, Forbidden, Logical, Measure
from headwater.protocol.composites import CompositeSpec
from headwater.protocol.expressions import Remote, roles_of
from headwater.protocol.pattern import Rule


@dataclass(slots=True)
class RulePlan:
    """One rule on its way into a store."""

    number: int
    rule: Rule
    logical: Logical
    spec: CompositeSpec
    parameters: tuple[str, ...]
    """Aggregates that output attributes need: their values travel with the match."""
    checks: list[int] = field(default_factory=list)
    """Numbers of this rule's late checks in its store."""
    counts: bool = False
    sought: tuple[Remote, ...] = ()
    """Lookups that output attributes need and that may not be at hand: their values travel with the match."""

    @property
    def out(self) -> str:
        return f"o{self.number}"


def add_rule(store: StoreBuilder, plan: RulePlan) -> None:
    """Write the rule's code into its store."""
    for branch in plan.logical.branches:
        add_branch(store, plan, branch)


def add_branch(store: StoreBuilder, plan: RulePlan, branch: Branch) -> None:
    add_negated_patterns(store, branch)
    check = add_late_check(store, plan, branch) if waits(branch) else None
    judged = add_late_check(store, plan, branch, judges=True) if may_be_doubtful(store, plan, branch) else None
    asks = judged is not None or asks_somewhere(store, branch)
    store.asks = store.asks or asks
    triggers = [0] if plan.logical.in_text_order else range(len(branch.units))
    for unit in triggers:
        for leaf_number, leaf in enumerate(branch.units[unit].leaves):
            last = branch.is_last(unit) and (leaf_number == len(branch.units[unit].leaves) - 1)
            modes = [Mode(store.ordered, newest=not store.has_composites_in(branch))] if last else []
            if not store.ordered:
                modes.append(Mode(ordered=False, newest=False))
            if last:
                store.completing.add(leaf.type)
            names = []
            for mode in dict.fromkeys(modes):
                join = _join(store, plan, branch, unit, leaf_number, mode, check, judged)
                name = store.add_function(partial(write_join, join, emit=partial(emit, plan, branch, check, judged)))
                names.append(name)
                group = store.group(leaf.type, join.own_conditions(leaf.role, branch.where))
                if last and (mode.newest or store.ordered):
                    group.newest_triggers.append(name)
                if not store.ordered and not mode.newest:
                    group.triggers.append(name)
            if asks and names:
                join = _join(store, plan, branch, unit, leaf_number, Mode(store.ordered, newest=False), check, judged)
                join.again = True
                again = store.add_function(partial(write_join, join, emit=partial(emit, plan, branch, check, judged)))
                undisturbed = None if store.ordered or _may_meet_itself(branch, unit) else names[-1]
                store.guarded |= dict.fromkeys(names, Guarded(plan.number, again, undisturbed))
    for lookup in lookups_of(store, branch, plan.sought):
        add_ahead(store, plan.rule, plan.number, branch, lookup)


def _may_meet_itself(branch: Branch, unit: int) -> bool:
    """Whether a trigger that is among the events seen so far could be bound twice."""
    types = {leaf.type for leaf in branch.units[unit].leaves}
    return branch.units[unit].many or any(
        types & {leaf.type for leaf in other.leaves}
        for number, other in enumerate(branch.units)
        if number != unit and (unit, number) not in branch.before and (number, unit) not in branch.before
    )


def _join(
    store: StoreBuilder,
    plan: RulePlan,
    branch: Branch,
    unit: int,
    leaf: int,
    mode: Mode,
    check: int | None,
    judged: int | None,
) -> JoinContext:
    join = JoinContext(store, branch, unit, leaf, mode, plan.logical.in_text_order)
    join.rule_number = plan.number
    join.over_limit = f"v{plan.number}"
    join.counting = plan.counts
    checks = [store.late_checks[number] for number in (check, judged) if number is not None]
    if checks:
        join.demanded_later = "\n".join(_demanded_later(source, branch) for source in checks)
    return join


def asks_somewhere(store: StoreBuilder, branch: Branch) -> bool:
    """Whether an evaluation of the branch may find that an element is not at hand."""
    conditions = [*branch.where, *(c for forbidden in branch.forbidden for c in forbidden.where)]
    conditions += [c for step in branch.steps if isinstance(step, Measure) for c in step.where]
    return any(map(store.pool.asks, conditions))


def may_be_doubtful(store: StoreBuilder, plan: RulePlan, branch: Branch) -> bool:
    """Whether matches may have to be judged once more when they are complete."""
    if plan.sought:
        return True
    join = JoinContext(store, branch, 0, 0, Mode(ordered=True, newest=False), plan.logical.in_text_order)
    return bool(plain_conditions(join, branch))


def _demanded_later(late_check: str, branch: Branch) -> str:
    """What is still asked of repetitions in matches that wait: what decides them looks at, and where they end."""
    _, _, body = late_check.partition("= match[")
    ends = [f"k{number}_{len(unit.leaves) - 1}[-1]" for number, unit in enumerate(branch.units) if unit.many]
    return "\n".join([body, *ends])


def bindings(join: JoinContext, plan: RulePlan) -> str:
    """Source of the tuple that a composite is: spec, one binding per role, and the aggregates its attributes need."""
    variables = {}
    for number, unit in enumerate(join.units):
        for leaf_number, leaf in enumerate(unit.leaves):
            variables[leaf.role] = f"k{number}_{leaf_number}" if unit.many else f"r{number}"
    parts = [variables.get(role, "None") for role in plan.logical.roles]
    parts += [join.parameters[name].source for name in plan.parameters]
    parts += ["None"] * len(plan.sought)  # filled in when the match is judged
    return f"C(({join.buffers.pool.name('S', plan.spec)}, {', '.join(parts)}))"


def emit(plan: RulePlan, branch: Branch, check: int | None, judged: int | None, out: Writer, join: JoinContext) -> None:
    """What happens with a match: it is listed, counted, or kept until nothing can forbid it any more.

    ``check`` looks at matches that have waited; ``judged`` also at the conditions that were postponed.
    """
    doubt = "True" if plan.sought else in_doubt(join)
    if check is not None:
        if doubt:
            out.line(f"if {doubt}:")
            out.depth += 1
            assert judged is not None
            _emit_waiting(plan, branch, judged, out, join)
            out.depth -= 1
            out.line("else:")
            out.depth += 1
        _emit_waiting(plan, branch, check, out, join)
        if doubt:
            out.depth -= 1
        return
    match = bindings(join, plan)
    if not doubt:
        _emit_certain(plan, match, out, join)
    elif plan.counts:
        listed = f"C((*{match}, {' * '.join(join.numbers) or 1}))"
        join.waiting_match = listed
        _emit_doubtful_counts(plan, judged, listed, doubt, out, join)
    elif join.collect is not None:
        out.line(f"found = [{match} {join.collect[0]}]")
        out.line(f"if {doubt}: doubtful.extend([({judged}, m) for m in found])")
        out.line(f"else: {plan.out}.extend(found)")
    else:
        out.line(f"if {doubt}: doubtful.append(({judged}, {match}))")
        out.line(f"else: {plan.out}.append({match})")


def _emit_waiting(plan: RulePlan, branch: Branch, check: int, out: Writer, join: JoinContext) -> None:
    match = bindings(join, plan)
    if plan.counts:
        match = f"C((*{match}, {' * '.join(join.numbers) or 1}))"
        join.waiting_match = match
    times, numbers = _deadlines(join, branch)
    if numbers:
        entry = f"{_greatest(numbers)}, next(serial), {check}, {match}, {_greatest(times)}"
        out.line(f"fresh_numbered.append(({entry}))")
    else:
        out.line(f"fresh.append(({_greatest(times)}, next(serial), {check}, {match}))")


def _emit_certain(plan: RulePlan, match: str, out: Writer, join: JoinContext) -> None:
    if plan.counts:
        out.line(f"{plan.out}[0] += {_how_many(join)}")
    elif join.collect is not None:
        out.line(f"{plan.out}.extend([{match} {join.collect[0]}])")
    else:
        out.line(f"{plan.out}.append({match})")


def _emit_doubtful_counts(
    plan: RulePlan, judged: int | None, listed: str, doubt: str, out: Writer, join: JoinContext
) -> None:
    """Matches in doubt are listed even where they are only counted."""
    if join.collect is None:
        out.line(f"if {doubt}: doubtful.append(({judged}, {listed}))")
        out.line(f"else: {plan.out}[0] += {_how_many(join)}")
        return
    out.line(f"found = [{listed} {join.collect[0]}]")
    out.line(f"if {doubt}: doubtful.extend([({judged}, m) for m in found])")
    out.line(f"else: {plan.out}[0] += {' * '.join([*join.numbers, 'len(found)'])}")


def waits(branch: Branch) -> bool:
    """Whether what comes after a match may still forbid it."""
    limited = any(unit.limit is not None and branch.is_last(number) for number, unit in enumerate(branch.units))
    return limited or any(forbidden.waits for forbidden in branch.forbidden)


def _deadlines(join: JoinContext, branch: Branch) -> tuple[list[str], list[str]]:
    """Timestamps and event numbers that must be reached before a match is decided."""
    times: list[str] = []
    numbers: list[str] = []
    for forbidden in branch.forbidden:
        if forbidden.waits:
            (numbers if forbidden.numbered else times).append(negation_deadline(join, forbidden))
    for unit in limited_units(join):
        if limit_waits(join, unit):
            (times if branch.count is None else numbers).append(limit_deadline(join, unit))
    return times, numbers


def _greatest(sources: list[str]) -> str:
    if not sources:
        return "None"
    return sources[0] if len(sources) == 1 else f"max({', '.join(sources)})"


def _how_many(join: JoinContext) -> str:
    return " * ".join([*join.numbers, *_how_many_now(join)]) or "1"


def _how_many_now(join: JoinContext) -> list[str]:
    """How many matches differ only in what is bound last, where that is not gone through in a loop."""
    if join.counted is not None:
        candidates, forced = join.counted
        return [f"(1 << len({candidates}))" if forced else f"((1 << len({candidates})) - 1)"]
    if join.collect is None:
        return []
    clause, candidates, unconditional = join.collect
    return [f"len({candidates})" if unconditional else f"sum([1 {clause}])"]


def add_negated_patterns(store: StoreBuilder, branch: Branch) -> None:
    """Matches of a negated sub-pattern are found like any other and kept in a buffer of their own."""
    for forbidden in branch.forbidden:
        if forbidden.leaf is not None:
            continue
        buffer = store.derived(forbidden, branch.forbidden_horizon(forbidden))
        for sub in forbidden.sub:
            for unit, trigger in enumerate(sub.units):
                if not sub.is_last(unit):
                    continue
                mode = Mode(ordered=True, newest=not store.has_composites_in(sub))
                join = JoinContext(store, sub, unit, 0, mode, in_text_order=False)

                keep = partial(_keep_sub_match, store, forbidden, buffer, sub, unit)
                name = store.add_function(partial(write_join, join, emit=keep))
                leaf = trigger.leaves[0]
                group = store.group(leaf.type, join.own_conditions(leaf.role, sub.where))
                group.newest_triggers.append(name)


def _output_lookup(join: JoinContext, lookup: Remote) -> str:
    """Source of a lookup of an output attribute; what names an event that the match does not have has no value."""
    return join.scope.value(lookup).source if roles_of(lookup) <= join.positive else "None"


def _keep_sub_match(
    store: StoreBuilder, forbidden: Forbidden, buffer: str, sub: Branch, trigger: int, out: Writer, join: JoinContext
) -> None:
    variables = {leaf.role: f"r{number}" for number, unit in enumerate(sub.units) for leaf in unit.leaves}
    rows = [variables.get(role, "None") for role in forbidden.roles]
    if store.counted is not None:
        rows.append(f"r{trigger}[-1]")
    row = f"(*r{trigger}[:3], None, {', '.join(rows)})"
    if join.collect is not None:
        out.line(f"{buffer}.extend([{row} {join.collect[0]}])")
    else:
        out.line(f"{buffer}.append({row})")


def add_late_check(store: StoreBuilder, plan: RulePlan, branch: Branch, *, judges: bool = False) -> int:
    """A function that tells whether a match that has waited is still allowed.

    ``judges``: and whether the conditions hold that were postponed. Where output attributes need elements, it gives the
    match with their values.
    """
    number = len(store.late_checks)
    store.late_checks.append("")
    store.rule_of_check.append(plan.number)
    store.owners[f"late{number}"] = plan.rule.name
    join = JoinContext(store, branch, 0, 0, Mode(ordered=True, newest=False), plan.logical.in_text_order)
    join.over_limit = f"v{plan.number}"
    bind_all(join)
    variables = {}
    for position, unit in enumerate(branch.units):
        for leaf_number, leaf in enumerate(unit.leaves):
            variables[leaf.role] = f"k{position}_{leaf_number}" if unit.many else f"r{position}"
    out = Writer()
    out.line(f"def late{number}(match):")
    out.depth += 1
    targets = [variables.get(role, "_") for role in plan.logical.roles]
    out.line(f"_, {', '.join(targets)} = match[:{len(targets) + 1}]")
    if judges:
        first = 1 + len(plan.logical.roles)
        for position, name in enumerate(plan.parameters):
            join.parameters[name] = Piece(f"match[{first + position}]", nullable=True, simple=True)
    for condition in plain_conditions(join, branch) if judges and plan.rule.pattern.skip != "next" else ():
        out.line(f"if not ({join.scope.truth(condition)}): return False")
    for forbidden in branch.forbidden:
        if forbidden.waits:
            out.line(f"if {negation_found(join, forbidden)}: return False")
    for repetition in limited_units(join):
        if limit_waits(join, repetition):
            out.line(f"if {over_limit_found(join, repetition)}: return False")
    if judges and plan.sought:
        values = [_output_lookup(join, lookup) for lookup in plan.sought]
        kept = 1 + len(plan.logical.roles) + len(plan.parameters)
        out.line(f"return C((*match[:{kept}], {', '.join(values)}))")
    else:
        out.line("return True")
    store.late_checks[number] = str(out)
    plan.checks.append(number)
    return number
