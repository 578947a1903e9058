"""Code for what is known before it is needed: the key of a lookup, from the event that names it.

For every lookup whose arguments name one event there is a function that gives its key for an event of that role, or
None if the event cannot have the role or the key has no value. It runs when the event is taken. Rules without lookups
have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headwater.node.engine.codegen.code import Writer
from headwater.node.engine.codegen.context import JoinContext, Mode
from headwater.node.engine.codegen.store_builder import Ahead, StoreBuilder
from headwater.protocol.analysis.units import Branch, Measure
from headwater.protocol.expressions import Attribute, Expression, Fold, Remote, parameters_of, roles_of, walk
from headwater.protocol.pattern import Rule


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup of a branch."""

    remote: Remote
    condition: Expression | None
    """The conjunct that it stands in; None for an output attribute."""
    where: Sequence[Expression]
    """What the events it names must satisfy."""


def lookups_of(store: StoreBuilder, branch: Branch, outputs: Sequence[Remote]) -> Iterator[Lookup]:
    """The lookups of a branch whose elements may not be at hand, and whose keys are known from events alone."""
    places: list[tuple[Expression | None, Expression, Sequence[Expression]]] = [
        (condition, condition, branch.where) for condition in branch.where
    ]
    for forbidden in branch.forbidden:
        places += [(condition, condition, (*branch.where, *forbidden.where)) for condition in forbidden.where]
    for step in branch.steps:
        if isinstance(step, Measure):
            places += [(condition, condition, (*branch.where, *step.where)) for condition in step.where]
    places += [(None, lookup, branch.where) for lookup in outputs]
    known: set[Remote] = set()
    for condition, expression, where in places:
        for part in walk(expression):
            if isinstance(part, Remote) and part not in known and store.pool.asks(part) and _is_plain(part):
                known.add(part)
                yield Lookup(part, condition, where)


def _is_plain(lookup: Remote) -> bool:
    """Whether the key follows from attributes of single events."""
    parts = [part for argument in lookup.arguments for part in walk(argument)]
    return not any(
        isinstance(part, Remote | Fold) or (isinstance(part, Attribute) and part.index != "") for part in parts
    ) and not any(parameters_of(argument) for argument in lookup.arguments)


def add_ahead(store: StoreBuilder, rule: Rule, number: int, branch: Branch, lookup: Lookup) -> None:
    """Write the function of a lookup whose key one event names; nothing if several do, or none."""
    roles = roles_of(lookup.remote)
    if len(roles) != 1:
        return
    (role,) = roles
    join = JoinContext(store, branch, 0, 0, Mode(ordered=True, newest=False), in_text_order=False)
    event_type = join.types.get(role)
    if event_type is None:
        return
    out = Writer()
    out.depth += 1
    own = join.own_conditions(role, lookup.where)
    if own:
        out.line(f"if not ({' and '.join(own)}): return None")
    with join.reading({(role, ""): "e"}):
        arguments = [join.scope.value(argument).source for argument in lookup.remote.arguments]
    out.line(f"key = ({', '.join(arguments)},)")
    out.line("return None if None in key else key")
    is_last = role in join.positive and branch.is_last(branch.unit_of(role))
    early = store.ordered or not is_last  # an eager store needs elements of the last event as soon as it is there
    name = store.add_ahead_function(rule.name, number, event_type, lookup.remote.table, str(out))
    store.aheads.append(Ahead(number, lookup.remote, event_type, name, branch.horizon, branch.count, early))
