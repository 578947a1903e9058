"""The events of a rule's roles as Spark frames, and the rule's conditions on them as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headwater.pipeline.expressions.cells import Cell, attribute
from headwater.pipeline.expressions.expressions import Lookup, Name, cell, condition
from headwater.pipeline.statistics.combinations import Equality, RoleConstraints
from headwater.protocol.expressions import Attribute, Expression, walk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADER_KINDS = {"ts": "int", "seq": "int", "node": "string", "type": "string"}


class RoleFrames:
    """One rule over one set of marked events (`statistics.sampling`), which have ``stretch`` beside all columns."""

    def __init__(self, constraints: RoleConstraints, events: DataFrame, kinds: Mapping[str, str]) -> None:
        self.constraints = constraints
        self.events = events
        self.kinds = {**kinds, **HEADER_KINDS}

    def lookup(self, prefixes: Mapping[str, str]) -> Lookup:
        """What names stand for in a frame in which the columns of each role begin with a prefix."""
        from pyspark.sql import functions as F

        def looked_up(name: Name) -> Cell | None:
            if not isinstance(name, Attribute) or name.name not in self.kinds or name.role not in prefixes:
                return None
            return attribute(F.col(f"`{prefixes[name.role]}{name.name}`"), self.kinds[name.name])

        return looked_up

    def holds(self, conditions: Sequence[Expression], prefixes: Mapping[str, str]) -> Column:
        from pyspark.sql import functions as F

        lookup = self.lookup(prefixes)
        verdicts: list[Column] = [condition(one, lookup, exact=False) for one in conditions]
        return reduce(lambda one, other: one & other, verdicts, F.lit(True))

    def is_role(self, role: str) -> Column:
        """Whether an event is of a role's type and meets what is asked of the role alone."""
        from pyspark.sql import functions as F

        return (F.col("type") == self.constraints.types[role]) & self.holds(self.constraints.own(role), {role: ""})

    def of(self, role: str, prefix: str = "", conditions: Sequence[Expression] = ()) -> DataFrame:
        """The events of a role, with the columns that identify them and those that the conditions name."""
        from pyspark.sql import functions as F

        wanted = {"ts": None, "node": None, "seq": None, "stretch": None}
        for expression in conditions:
            for part in walk(expression):
                if isinstance(part, Attribute) and part.role == role and part.name in self.kinds:
                    wanted[part.name] = None
        return self.events.where(self.is_role(role)).select(
            *(F.col(f"`{name}`").alias(f"{prefix}{name}") for name in wanted)
        )

    def joins(self, equality: Equality) -> bool:
        """Whether two values are equal in Spark just where they are for the engine, so that they may be keys."""
        lookup = self.lookup({equality.one: "", equality.other: ""})
        left, right = cell(equality.value, lookup), cell(equality.other_value, lookup)
        plain = not any(side.rough or side.nan or side.wide or side.kind == "none" for side in (left, right))
        return plain and left.kind == right.kind

    def key(self, value: Expression, role: str, prefix: str = "") -> Cell:
        return cell(value, self.lookup({role: prefix}))


def whole_div(value: Column, by: int) -> Column:
    """Whole division of what is not negative; a division of floats could round over the bound."""
    return ((value - value % by) / by).cast("long")


def sides(equality: Equality, role: str) -> tuple[Expression, Expression]:
    """What must be equal of a role, and of the other one."""
    if equality.one == role:
        return equality.value, equality.other_value
    return equality.other_value, equality.value


def precedes(one: str, other: str) -> Column:
    """Whether the event whose columns begin with one prefix comes before that of another in the trace."""
    from pyspark.sql import functions as F

    def col(prefix: str, name: str) -> Column:
        return F.col(f"{prefix}{name}")

    same_time = col(one, "ts") == col(other, "ts")
    same_node = col(one, "node") == col(other, "node")
    return (col(one, "ts") < col(other, "ts")) | (
        same_time & ((col(one, "node") < col(other, "node")) | (same_node & (col(one, "seq") < col(other, "seq"))))
    )


def differ(one: str, other: str) -> Column:
    from pyspark.sql import functions as F

    return (F.col(f"{one}seq") != F.col(f"{other}seq")) | (F.col(f"{one}node") != F.col(f"{other}node"))
