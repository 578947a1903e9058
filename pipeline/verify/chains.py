"""Matches of TESLA chains: the anchor, then one step after the other in the order of the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.pipeline.expressions.cells import EXACT_FLOAT, WIDE, Cell, refuse_where
from headwater.pipeline.verify.joins import MatchFrame
from headwater.pipeline.verify.relations import Roles, Unverifiable, near_join
from headwater.pipeline.verify.sums import exact_sum
from headwater.protocol.expressions import Expression, parameters_of, roles_of
from headwater.protocol.pattern import Absence, Aggregate, Between, Chain, Leaf, Selection, Within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class ChainPlan:
    """One chain over one trace."""

    def __init__(self, chain: Chain, where: tuple[Expression, ...], roles: Roles) -> None:
        self.chain = chain
        self.roles = roles
        self.bound: list[str] = []
        self.origin: dict[str, Within] = {}
        order = {chain.anchor.role: 0}
        for number, step in enumerate(chain.steps, 1):
            order[step.leaf.role] = number
            if isinstance(step, Aggregate):
                order["$" + step.name] = number
        self.at: dict[int, list[Expression]] = {}
        for conjunct in where:
            names = [*roles_of(conjunct), *("$" + name for name in parameters_of(conjunct))]
            self.at.setdefault(max((order[name] for name in names), default=0), []).append(conjunct)

    def matches(self) -> MatchFrame:
        anchor = self.chain.anchor.role
        frame = self.roles.events(anchor, self.at.get(0, ()))
        self.bound.append(anchor)
        for number, step in enumerate(self.chain.steps, 1):
            match step:
                case Selection():
                    frame = self._select(frame, step, number)
                case Aggregate():
                    frame = self._aggregate(frame, step, number)
        # Parts that later steps choose do not count as absent, so this is judged when the match is whole.
        for number, step in enumerate(self.chain.steps, 1):
            if isinstance(step, Absence):
                frame = self._forbid(frame, step, number)
        return MatchFrame(frame, tuple(self.bound))

    def _select(self, frame: DataFrame, step: Selection, number: int) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        role = step.leaf.role
        candidates = self._beside(frame, step.leaf, step.within, number, "inner", distinct=True)
        if step.policy != "each":
            ordered = [key.desc() if step.policy == "last" else key.asc() for key in self.roles.order(role)]
            of_match = Window.partitionBy(*self._identity()).orderBy(*ordered)
            candidates = candidates.withColumn("_place", F.row_number().over(of_match))
            candidates = candidates.filter(F.col("_place") <= step.count).drop("_place")
        self.origin[role] = step.within
        self.bound.append(role)
        return candidates

    def _aggregate(self, frame: DataFrame, step: Aggregate, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        if step.attribute is not None:
            self.roles.need(step.leaf.role, step.attribute)
        carried = [name for name in frame.columns if name not in self._identity_names()]
        candidates = self._beside(frame, step.leaf, step.range, number, "left", distinct=False)
        groups = candidates.groupBy(*self._identity())
        kept = [F.first(F.col(f"`{name}`")).alias(name) for name in carried]
        name = f"parameter_{step.name}"
        value, cell = self._folded(step, name)
        frame = groups.agg(*kept, value.alias(name))
        self.roles.parameters[step.name] = cell
        for condition in self.at.get(number, ()):
            if step.name in parameters_of(condition):
                frame = frame.filter(self.roles.judged(condition))
        return frame

    def _folded(self, step: Aggregate, name: str) -> tuple[Column, Cell]:
        """The aggregate over a group, and the cell that it gives."""
        from pyspark.sql import functions as F

        role, folded = step.leaf.role, F.col(f"`{name}`")
        if step.attribute is None:
            return F.count(self.roles.column(role, "seq")), Cell(folded, "int", 0)
        attribute = self.roles.lookup_attribute(role, step.attribute)
        if attribute is None or attribute.kind == "none":
            if step.function == "count":
                return F.lit(0).cast("bigint"), Cell(folded, "int", 0)
            return F.first(F.lit(None).cast("bigint")), Cell(folded, "none")
        column = attribute.column
        if step.attribute == "type":  # a constant, which is there only where an event is
            column = F.when(self.roles.column(role, "seq").isNotNull(), column)
        match step.function:
            case "count":
                return F.count(column), Cell(folded, "int", 0)
            case "min":
                return F.min(column), Cell(folded, attribute.kind, attribute.low, attribute.high)
            case "max":
                return F.max(column), Cell(folded, attribute.kind, attribute.low, attribute.high)
        if attribute.kind == "string":
            return F.first(F.lit(None).cast("bigint")), Cell(folded, "none")
        if attribute.kind == "float":
            total = exact_sum(F.collect_list(column))
            return total if step.function == "sum" else total / F.count(column), Cell(folded, "float")
        total = F.sum(column.cast("bigint").cast("decimal(20,0)")).cast(WIDE)
        if step.function == "sum":
            return total, Cell(folded, "int", -(2**100), 2**100)
        mean = total.cast("double") / F.count(column)
        exact = refuse_where(
            F.abs(total) > EXACT_FLOAT,
            "an average of whole numbers whose sum is beyond 2**53 cannot be verified",
            mean,
        )
        return exact, Cell(folded, "float")

    def _forbid(self, frame: DataFrame, step: Absence, number: int) -> DataFrame:
        return self._beside(frame, step.leaf, step.range, number, "left_anti", distinct=True)

    def _beside(
        self, frame: DataFrame, leaf: Leaf, range_: Within | Between, number: int, how: str, *, distinct: bool
    ) -> DataFrame:
        """The matches so far with the events of a leaf in a range that meet the conjuncts of the step."""
        from pyspark.sql import functions as F

        roles, role = self.roles, leaf.role
        step = self.chain.steps[number - 1]
        where = self.at.get(number, [])
        if isinstance(step, Aggregate):
            where = [condition for condition in where if step.name not in parameters_of(condition)]
        alone = [condition for condition in where if roles_of(condition) <= {role} and not parameters_of(condition)]
        across = [condition for condition in where if condition not in alone]
        events = roles.events(role, alone)
        ts = roles.ts(role)
        if isinstance(range_, Within):
            here, reach = roles.ts(range_.origin), (range_.length_us, 0)
            on = [roles.ends_before(role, range_.origin), ts >= here - range_.length_us]
        else:
            one, other = range_.one, range_.other
            here, reach = F.least(roles.ts(one), roles.ts(other)), (0, self._apart(one, other))
            on = [
                (roles.ends_before(one, role) & roles.ends_before(role, other))
                | (roles.ends_before(other, role) & roles.ends_before(role, one))
            ]
        if distinct:
            on += [roles.differ(role, part) for part in self.bound if roles.leaves[part].type == leaf.type]
        on += [roles.judged(condition) for condition in across]
        return near_join(frame, events, (here, ts), reach, on, how)

    def _apart(self, one: str, other: str) -> int:
        """How far two chosen parts may lie apart: the windows on the way between them add up."""

        def way(role: str) -> dict[str, int]:
            reached, length = {role: 0}, 0
            while role in self.origin:
                length += self.origin[role].length_us
                role = self.origin[role].origin
                reached[role] = length
            return reached

        first, second = way(one), way(other)
        common = [role for role in first if role in second]
        if not common:
            raise Unverifiable(f"rule {self.roles.rule.name}: {one} and {other} have no common origin")
        return min(max(first[role], second[role]) for role in common)

    def _identity(self) -> list[Column]:
        return [column for role in self.bound for column in self.roles.identity(role)]

    def _identity_names(self) -> set[str]:
        return {name for role in self.bound for name in self.roles.identity_names(role)}
