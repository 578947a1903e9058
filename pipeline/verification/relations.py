"""Events of a trace as relations with one set of columns per role, and joins of them within windows of time.

The event of role number 3 stands in the columns ``p3_ts``, ``p3_node``, ``p3_seq`` and ``p3_`` with each attribute that
an expression of the rule names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from pipeline.cells import LONG_LEAST, LONG_MOST, Cell, attribute
from pipeline.expressions import Name, condition, equality
from protocol.errors import ConfigError
from protocol.events import EventType
from protocol.expressions import Attribute, Binary, Expression, Fold, Parameter, Same, rewritten, walk
from protocol.pattern import Leaf, Rule, leaves

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADER: Final = ("ts", "node", "seq")


class Refused(ConfigError):
    """A rule uses something that cannot be verified; the message names it."""


@dataclass(frozen=True, slots=True)
class Source:
    """The events of a trace, and what is known of them."""

    events: DataFrame
    """``type``, ``ts``, ``node``, ``seq`` and the attributes."""
    types: Mapping[str, EventType]
    columns: Mapping[str, str]
    """The kind of each column of attributes."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many events there are of a type, for the order of joins; unknown ones count as many."""
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the greatest value of columns of whole numbers, where they are known."""


class Roles:
    """The roles of one rule: their columns, and what names in its expressions stand for."""

    def __init__(self, rule: Rule, source: Source) -> None:
        self.rule = rule
        self.source = source
        self.leaves: dict[str, Leaf] = {leaf.role: leaf for leaf in leaves(rule.pattern.root)}
        self.numbers = {role: number for number, role in enumerate(self.leaves)}
        self.parameters: dict[str, Cell] = {}
        named = [*rule.pattern.where, *(each.value for each in rule.attributes)]
        self._needed: dict[str, set[str]] = {role: set() for role in self.leaves}
        for expression in named:
            for part in walk(expression):
                if isinstance(part, Attribute | Fold) and part.name is not None:
                    for role in [part.role] if part.role else list(self.leaves):
                        self._needed[role].add(part.name)

    def need(self, role: str, name: str) -> None:
        self._needed[role].add(name)

    def column(self, role: str, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(f"`p{self.numbers[role]}_{name}`")

    def ts(self, role: str) -> Column:
        return self.column(role, "ts")

    def key(self, role: str) -> Column:
        from pyspark.sql import functions as F

        return F.struct(*(self.column(role, name).alias(name) for name in HEADER))

    def identity(self, role: str) -> list[Column]:
        return [self.column(role, "node"), self.column(role, "seq")]

    def before(self, one: str, other: str) -> Column:
        """Whether the event of a role comes before that of another in the global trace."""
        (t, n, s), (u, m, r) = ([self.column(role, name) for name in HEADER] for role in (one, other))
        return (t < u) | ((t == u) & ((n < m) | ((n == m) & (s < r))))

    def differ(self, one: str, other: str) -> Column:
        (n, s), (m, r) = self.identity(one), self.identity(other)
        return (s != r) | (n != m)

    def lookup(self, name: Name) -> Cell | None:
        match name:
            case Parameter(word):
                return self.parameters.get(word)
            case Attribute(role, word, _):
                return self.lookup_attribute(role, word)
        raise Refused(f"{name.function}(..) over a repeated part cannot be verified here")

    def lookup_attribute(self, role: str, word: str) -> Cell | None:
        """What ``role.word`` stands for; None where it never has a value."""
        from pyspark.sql import functions as F

        if word == "type":
            return Cell(F.lit(self.leaves[role].type), "string")
        column = self.column(role, word)
        if word in HEADER:
            low, high = self.source.ranges.get(word, (LONG_LEAST, LONG_MOST))
            return Cell(column, "string") if word == "node" else Cell(column, "int", low, high)
        kind = self.kind(role, word)
        if kind is None:
            return None
        low, high = self.source.ranges.get(word, (LONG_LEAST, LONG_MOST))
        return attribute(column, kind, low, high) if kind == "int" else attribute(column, kind)

    def kind(self, role: str, word: str) -> str | None:
        """The kind of an attribute, None where the type of the role has no such attribute."""
        declared = self.source.types.get(self.leaves[role].type)
        if declared is None or declared.position(word) is None:
            return None
        kind = declared.kind(word)
        return self.source.columns.get(word) if kind == "any" else kind

    def events(self, role: str, where: Iterable[Expression] = ()) -> DataFrame:
        """The events that may stand in a role, by the conjuncts that name it alone."""
        from pyspark.sql import functions as F

        number = self.numbers[role]
        chosen = [F.col(name).alias(f"p{number}_{name}") for name in HEADER]
        for word in sorted(self._needed[role] - {*HEADER, "type"}):
            kind = self.kind(role, word)
            if kind is None or word not in self.source.columns:
                continue
            column = F.col(f"`{word}`")
            if kind == "float" and self.source.columns[word] == "int":
                column = column.cast("double")
            chosen.append(column.alias(f"p{number}_{word}"))
        found = self.source.events.filter(F.col("type") == self.leaves[role].type).select(*chosen)
        for each in where:
            found = found.filter(condition(each, self.lookup))
        return found

    def judged(self, expression: Expression) -> Column:
        """A conjunct as a condition of a join; not true where it does not hold."""
        key = equality(expression, self.lookup)
        return condition(expression, self.lookup) if key is None else key

    def frequency(self, role: str) -> int:
        return self.source.counts.get(self.leaves[role].type, LONG_MOST)


def without_same(where: Iterable[Expression], roles: Sequence[str]) -> list[Expression]:
    """The conjuncts, with every SAME written out for these roles: the keys of all equal that of the first."""
    made: list[Expression] = []
    for each in where:
        if isinstance(each, Same):
            keys = [_for_role(each.key, role) for role in roles]
            # A key without a value equals not even itself.
            made += [Binary("=", keys[0], key) for key in keys]
        else:
            made.append(each)
    return made


def _for_role(key: Expression, role: str) -> Expression:
    return rewritten(key, lambda name: Attribute(role, name.name, name.index) if name.role == "" else name)


def all_of(conditions: Sequence[Column]) -> Column:
    from pyspark.sql import functions as F

    return reduce(lambda a, b: a & b, conditions, F.lit(True))


def near_join(
    left: DataFrame,
    right: DataFrame,
    at: tuple[Column, Column],
    reach: tuple[int, int],
    on: Sequence[Column],
    how: str = "inner",
) -> DataFrame:
    """Joins rows whose times lie near each other, without comparing each with all.

    ``at``: the time of the left row and of the right one. The right time lies in [left - back, left + ahead], with
    ``reach`` as (back, ahead). Time is cut into stretches of that length: a left row stands in one, a right row in the
    two that it can be reached from, and rows of one stretch are compared. ``on`` are the conditions; they must imply
    the reach, which is not checked here. Equalities among them spread the work further.
    """
    from pyspark.sql import functions as F

    back, ahead = reach
    length = max(1, back + ahead)
    here, there = at
    marked = left.withColumn("_stretch", _floored(here, length))
    first = _floored(there - ahead, length)
    if back + ahead == 0:
        copies = right.withColumn("_of", first)
    else:
        copies = right.withColumn("_of", F.explode(F.array(first, first + 1)))
    joined = marked.join(copies, all_of([F.col("_stretch") == F.col("_of"), *on]), how)
    return joined.drop("_stretch", "_of")


def _floored(ts: Column, length: int) -> Column:
    from pyspark.sql import functions as F

    unit = F.lit(length).cast("bigint")
    return F.call_function("div", ts - F.pmod(ts, unit), unit)
