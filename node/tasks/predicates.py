"""Conditions on one event, compiled to a function of its row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from headwater.node.engine.codegen.code import CodeScope, Piece, Pool, RowLayout
from headwater.node.engine.runtime import NAMES
from headwater.node.tasks.rule_failures import NOTED
from headwater.protocol.composites import Composite, CompositeSpec
from headwater.protocol.errors import RuleError
from headwater.protocol.events import HEADER_WIDTH, EventType, Value
from headwater.protocol.expressions import Attribute, Binary, Constant, Expression, Fold, walk
from headwater.protocol.functions import Functions
from headwater.protocol.messages.tallies import KNOWN

Row = tuple[Any, ...]
Condition = Callable[[Row], bool]
MatchSelector = Callable[[Sequence[Composite]], list[Composite]]
KnownCondition = Callable[[Row, tuple[Value, ...]], bool]


@lru_cache(maxsize=4096)
def row_condition(where: tuple[Expression, ...], event_type: EventType, composite: bool = False) -> Condition | None:
    """Whether every conjunct holds for a row of the type; None if there is nothing to ask.

    All attributes in the conjuncts are the event's own, whatever their role. A row whose values cannot be compared does
    not meet it, and that is noted (``node.tasks.rule_failures``).
    """
    return _compiled(where, event_type, composite, "e", row_condition) if where else None


@lru_cache(maxsize=4096)
def known_condition(
    where: tuple[Expression, ...], event_type: EventType, composite: bool = False
) -> KnownCondition | None:
    """The same for conjuncts that also name values that come with every row: Attribute(KNOWN, number)."""
    return _compiled(where, event_type, composite, "e, known", known_condition) if where else None


@lru_cache(maxsize=4096)
def match_selector(where: tuple[Expression, ...], spec: CompositeSpec) -> MatchSelector | None:
    """What picks the matches of a rule for whose rows every conjunct holds, without making the rows.

    None if the conjuncts ask for more than values of single events of the match. It raises whatever comparing raises.
    """
    places = dict(zip(spec.type.attributes, spec.places, strict=False))
    parts = [part for conjunct in where for part in walk(conjunct)]
    if not all(isinstance(part, Attribute | Binary | Constant) for part in parts):
        return None
    if any(places.get(part.name) is None for part in parts if isinstance(part, Attribute)):
        return None

    def attribute(reference: Attribute) -> Piece:
        binding, column = places[reference.name] or (0, 0)
        return Piece(f"m[{binding}][{column}]", nullable=True, simple=True)

    pool = Pool(Functions(), {})
    scope = CodeScope(pool, attribute, _no_fold, lambda reference: "0")
    source = " and ".join(scope.truth(conjunct) for conjunct in where)
    space: dict[str, Any] = {**NAMES, **pool.objects}
    exec(
        compile(
            f"def select(matches):\n    return [m for m in matches if {source}]\n", "<headwater condition>", "exec"
        ),
        space,
    )
    select: MatchSelector = space["select"]
    return select


def _compiled(
    where: tuple[Expression, ...], event_type: EventType, composite: bool, arguments: str, maker: Callable[..., Any]
) -> Any:
    optional = zip(event_type.attributes, event_type.optional, strict=True)
    columns = RowLayout(
        event_type.name,
        {attribute: HEADER_WIDTH + place for place, attribute in enumerate(event_type.attributes)},
        frozenset(event_type.attributes if composite else [name for name, may_lack in optional if may_lack]),
        composite,
    )

    def attribute(reference: Attribute) -> Piece:
        if reference.role == KNOWN:
            return Piece(f"known[{int(reference.name)}]", nullable=True, simple=True)
        return columns.read("e", reference.name)

    pool = Pool(Functions(), {})
    scope = CodeScope(pool, attribute, _no_fold, lambda reference: "e[0]")
    source = " and ".join(scope.truth(conjunct) for conjunct in where)
    space: dict[str, Any] = {**NAMES, **pool.objects, "failed": _failed}
    program = (
        f"def condition({arguments}):\n"
        "    try:\n"
        f"        return bool({source})\n"
        "    except Exception as error:\n"
        "        return failed(e, error)\n"
    )
    exec(compile(program, "<headwater condition>", "exec"), space)
    condition = space["condition"]
    condition.recipe = maker, (where, event_type, composite)  # what a saved node makes it from again
    return condition


def _no_fold(reference: Fold) -> Piece:
    raise RuleError("a condition on one event cannot fold several")


def _failed(row: Row, error: Exception) -> bool:
    """Values may only turn out not to be comparable when they are met: then the condition does not hold."""
    name = row[3].type if isinstance(row[3], Composite) else row[3].name
    NOTED.note(
        f"condition on {name}",
        f"a condition on {name} cannot be decided for the event {row[1]}#{row[2]}: {type(error).__name__}: {error}; "
        f"declare the kinds of its attributes",
    )
    return False
