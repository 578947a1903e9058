"""By what the runs of a skip-till-next rule are kept: values that every event which may move them has in common with
them, so that an event meets only the runs that it may concern."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.node.engine.codegen.code import Writer
from headwater.node.engine.codegen.context import JoinContext
from headwater.protocol.analysis.units import Branch
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Index, looks_up, rewritten, walk
from headwater.protocol.pattern import Leaf


class Stage(Protocol):
    """What is asked of a state of a rule; see ``next_plan.NextStage``."""

    depth: int
    branch: Branch
    leaf: Leaf


@dataclass(frozen=True, slots=True)
class RunKey:
    """Values of a run, and by type those of an event, that must be equal."""

    of_run: Sequence[Expression]
    of_rows: Mapping[str, Sequence[Expression]]


def run_key(concerning: Iterable[tuple[str, Mapping[Expression, Expression]]]) -> RunKey | None:
    """What all events that concern a run have in common with it: all attributes, otherwise one other value.

    ``concerning``: the type of such an event, and by value of the run the value of the event that must be equal.
    """
    shared: dict[Expression, dict[str, Expression]] | None = None
    for event_type, pairs in concerning:
        if shared is None:
            shared = {of_run: {event_type: of_row} for of_run, of_row in pairs.items()}
            continue
        shared = {
            of_run: {**rows, event_type: pairs[of_run]}
            for of_run, rows in shared.items()
            if of_run in pairs and rows.get(event_type, pairs[of_run]) == pairs[of_run]
        }
    if not shared:
        return None
    plain = [
        of_run
        for of_run, rows in shared.items()
        if all(isinstance(value, Attribute) for value in (of_run, *rows.values()))
    ]
    chosen = sorted(plain, key=repr) or [min(shared, key=lambda of_run: (looks_up(of_run), repr(of_run)))]
    types = shared[chosen[0]]
    return RunKey(chosen, {event_type: [shared[of_run][event_type] for of_run in chosen] for event_type in types})


def equalities(conditions: Iterable[Expression], stage: Stage, other: Stage) -> Iterator[tuple[Expression, Expression]]:
    """(value known at the stage, value of the event) for equalities among the conditions on an event at ``other``."""
    role = other.leaf.role
    fixed = {  # what does not change any more while a run stands at the stage
        (leaf.role, "first" if unit.many else "")
        for unit in other.branch.units[: stage.depth + 1]
        for leaf in unit.leaves
    }
    for condition in conditions:
        if not isinstance(condition, Binary) or condition.operator != "=":
            continue
        if any(isinstance(part, Fold) for part in walk(condition)):
            continue
        for of_run, of_row in ((condition.left, condition.right), (condition.right, condition.left)):
            if _places(of_row) != {(role, "")}:
                continue
            if other is stage and _places(of_run) == {(role, "i-1")} and _moved(of_run, "") == of_row:
                yield _moved(of_run, "first"), of_row  # equal to its predecessor, so to the first of all
            elif _places(of_run) and _places(of_run) <= fixed - {(role, "")}:
                yield of_run, of_row


def return_key(out: Writer, join: JoinContext, values: Sequence[Expression]) -> None:
    """Write the return of the only value, or of a tuple of several; None if one of them is missing."""
    pieces = [join.scope.value(value) for value in values]
    if len(pieces) == 1:
        out.line(f"return {pieces[0].source}")
        return
    key = f"({', '.join(piece.source for piece in pieces)})"
    if any(piece.nullable for piece in pieces):
        out.line(f"key = {key}")
        key = "None if None in key else key"
    out.line(f"return {key}")


def _places(expression: Expression) -> set[tuple[str, str]]:
    """Which events an expression names: (role, index)."""
    return {(part.role, part.index) for part in walk(expression) if isinstance(part, Attribute)}


def _moved(expression: Expression, to: Index) -> Expression:
    """The same expression about other elements of its repetition."""
    return rewritten(expression, lambda attribute: replace(attribute, index=to))
