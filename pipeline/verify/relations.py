"""Events of a trace as relations with one set of columns per role, and joins of them within windows of time.

The event of role number 3 stands in the columns ``p3_ts``, ``p3_node``, ``p3_seq`` and ``p3_`` with each attribute that
an expression of the rule names. Of a composite event that is the key of its end. ``p3_#start_ts``, ``p3_#start_node``
and ``p3_#start_seq`` are that of its start, ``p3_#id`` is its identity; ``p3_#own`` orders it among those with its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import LONG_LEAST, LONG_MOST, Cell, attribute
from headwater.pipeline.expressions.expressions import Name, condition, equality
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.expressions import Attribute, Binary, Expression, Fold, Parameter, Same, rewritten, walk
from headwater.protocol.pattern import Leaf, Rule, leaves, repeated_roles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HEADER: Final = ("ts", "node", "seq")
START: Final = ("#start_ts", "#start_node", "#start_seq")
OF_COMPOSITES: Final = (*START, "#id", "#own")
"""No attribute has such a name."""


class Unverifiable(ConfigError):
    """A rule uses something that cannot be verified; the message names it."""


@dataclass(frozen=True, slots=True)
class TraceEvents:
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


@dataclass(frozen=True, slots=True)
class Composites:
    """The composite events of one type that rules have found, as an input of other rules."""

    events: DataFrame
    """The key of the end (``ts``, ``node``, ``seq``), what OF_COMPOSITES names, and the attributes."""
    values: Mapping[str, Cell]
    """What is known of each attribute; the columns of these cells mean nothing."""


def first_of(role: str) -> str:
    """The role that the first element of a repeated role has here."""
    return f"{role}[first]"


def last_of(role: str) -> str:
    return f"{role}[last]"


def inner_of(role: str) -> str:
    """The role of an element between the first and the last."""
    return f"{role}[]"


class Roles:
    """The roles of one rule: their columns, and what names in its expressions stand for.

    A repeated role has three in its place: of its first, its last, and an inner element.
    """

    def __init__(self, rule: Rule, source: TraceEvents, composites: Mapping[str, Composites]) -> None:
        self.rule = rule
        self.source = source
        self.composites = composites
        self.repeated = repeated_roles(rule.pattern.root)
        self.leaves: dict[str, Leaf] = {}
        for leaf in leaves(rule.pattern.root):
            for role in self.stands_for(leaf.role):
                self.leaves[role] = Leaf(role, leaf.type)
        self.numbers = {role: number for number, role in enumerate(self.leaves)}
        self.parameters: dict[str, Cell] = {}
        named = [*rule.pattern.where, *(output.value for output in rule.attributes)]
        self._needed: dict[str, set[str]] = {role: set() for role in self.leaves}
        for expression in named:
            for part in walk(expression):
                if isinstance(part, Attribute | Fold) and part.name is not None:
                    for role in self.stands_for(part.role) if part.role else list(self.leaves):
                        self._needed[role].add(part.name)

    def stands_for(self, role: str) -> list[str]:
        return [first_of(role), last_of(role), inner_of(role)] if role in self.repeated else [role]

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

    def composite(self, role: str) -> bool:
        return self.leaves[role].type in self.composites

    def start_ts(self, role: str) -> Column:
        return self.column(role, "#start_ts" if self.composite(role) else "ts")

    def start_key(self, role: str) -> Column:
        from pyspark.sql import functions as F

        names = START if self.composite(role) else HEADER
        return F.struct(*(self.column(role, name).alias(word) for name, word in zip(names, HEADER, strict=True)))

    def order(self, role: str) -> list[Column]:
        """What candidates are ordered by: where composites have one end, a primitive event comes first."""
        from pyspark.sql import functions as F

        own = self.column(role, "#own") if self.composite(role) else F.lit("")
        return [*(self.column(role, name) for name in HEADER), own]

    def identity_names(self, role: str) -> list[str]:
        names = ("#id",) if self.composite(role) else ("node", "seq")
        return [f"p{self.numbers[role]}_{name}" for name in names]

    def identity(self, role: str) -> list[Column]:
        from pyspark.sql import functions as F

        return [F.col(f"`{name}`") for name in self.identity_names(role)]

    def part(self, role: str, called: str) -> Column:
        """The event of a role as a part of a composite, under the name that it has there."""
        from pyspark.sql import functions as F

        identity = self.column(role, "#id") if self.composite(role) else F.lit("")
        return F.struct(
            F.lit(called).alias("role"),
            self.column(role, "node").alias("node"),
            self.column(role, "seq").alias("seq"),
            identity.alias("id"),
        )

    def own_text(self, role: str) -> Column:
        """A text by which events are ordered as they are in the global trace, composites after their latest part."""
        from pyspark.sql import functions as F

        if self.composite(role):
            return self.column(role, "#own")
        ts, node, seq = (self.column(role, name) for name in HEADER)
        return F.concat(*key_text(ts, node, seq), F.lit("0"))

    def before(self, one: str, other: str) -> Column:
        """Whether the event of a role has ended before that of another starts, in the global trace."""
        return self._earlier(one, other, START if self.composite(other) else HEADER)

    def ends_before(self, one: str, other: str) -> Column:
        return self._earlier(one, other, HEADER)

    def _earlier(self, one: str, other: str, names: Sequence[str]) -> Column:
        t, n, s = (self.column(one, name) for name in HEADER)
        u, m, r = (self.column(other, name) for name in names)
        return (t < u) | ((t == u) & ((n < m) | ((n == m) & (s < r))))

    def differ(self, one: str, other: str) -> Column:
        pairs = zip(self.identity(one), self.identity(other), strict=True)
        return reduce(lambda a, b: a | b, [a != b for a, b in pairs])

    def fields(self, role: str) -> list[str]:
        """The columns of a role, without the mark of the role."""
        words = sorted(word for word in self._needed[role] - {*HEADER, "type"} if self._held(role, word))
        return [*HEADER, *(OF_COMPOSITES if self.composite(role) else ()), *words]

    def element(self, role: str) -> Column:
        """The event of a role as one value; alike for all roles that a repeated role has here."""
        from pyspark.sql import functions as F

        columns = [self.column(role, name).alias(name) for name in self.fields(role)]
        return F.struct(*columns if self.composite(role) else [F.lit("").alias("#id"), *columns])

    def lookup(self, name: Name) -> Cell | None:
        match name:
            case Parameter(word):
                return self.parameters.get(word)
            case Attribute(role, word, _):
                return self.lookup_attribute(role, word)
        raise Unverifiable(f"{name.function}(..) over a repeated part cannot be verified here")

    def lookup_attribute(self, role: str, word: str, element: Column | None = None) -> Cell | None:
        """What ``role.word`` stands for, of an ``element`` if one is given; None where it never has a value."""
        from pyspark.sql import functions as F

        if word == "type":
            return Cell(F.lit(self.leaves[role].type), "string")
        column = self.column(role, word) if element is None else element[word]
        if word in HEADER:
            low, high = self.source.ranges.get(word, (LONG_LEAST, LONG_MOST))
            return Cell(column, "string") if word == "node" else Cell(column, "int", low, high)
        if self.composite(role):
            cell = self.composites[self.leaves[role].type].values.get(word)
            if cell is None or cell.kind == "none":
                return None
            return Cell(column, cell.kind, cell.low, cell.high, cell.nan, cell.rough)
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

    def _held(self, role: str, word: str) -> bool:
        if self.composite(role):
            return word in self.composites[self.leaves[role].type].values
        return self.kind(role, word) is not None and word in self.source.columns

    def events(self, role: str, where: Iterable[Expression] = ()) -> DataFrame:
        """The events that may stand in a role, by the conjuncts that name it alone."""
        from pyspark.sql import functions as F

        type_, number = self.leaves[role].type, self.numbers[role]
        chosen = []
        for word in self.fields(role):
            column = F.col(f"`{word}`")
            primitive = word not in HEADER and not self.composite(role)
            if primitive and self.kind(role, word) == "float" and self.source.columns[word] == "int":
                column = column.cast("double")
            chosen.append(column.alias(f"p{number}_{word}"))
        if self.composite(role):
            events = self.composites[type_].events.select(*chosen)
        else:
            events = self.source.events.filter(F.col("type") == type_).select(*chosen)
        for expression in where:
            events = events.filter(condition(expression, self.lookup))
        return events

    def judged(self, expression: Expression) -> Column:
        """A conjunct as a condition of a join; not true where it does not hold."""
        key = equality(expression, self.lookup)
        return condition(expression, self.lookup) if key is None else key

    def frequency(self, role: str) -> int:
        return self.source.counts.get(self.leaves[role].type, LONG_MOST)


def without_same(where: Iterable[Expression], roles: Sequence[str]) -> list[Expression]:
    """The conjuncts, with every SAME written out for these roles: the keys of all equal that of the first."""
    conditions: list[Expression] = []
    for expression in where:
        if isinstance(expression, Same):
            keys = [_for_role(expression.key, role) for role in roles]
            # A key without a value equals not even itself.
            conditions += [Binary("=", keys[0], key) for key in keys]
        else:
            conditions.append(expression)
    return conditions


def _for_role(key: Expression, role: str) -> Expression:
    return rewritten(key, lambda name: Attribute(role, name.name, name.index) if name.role == "" else name)


def key_text(ts: Column, node: Column, seq: Column) -> list[Column]:
    """The pieces of a text by which keys are ordered as they are themselves."""
    from pyspark.sql import functions as F

    def whole(number: Column) -> Column:
        return F.lpad(F.hex(number.bitwiseXOR(F.lit(LONG_LEAST).cast("bigint"))), 16, "0")

    return [whole(ts), node, F.lit("\0"), whole(seq)]


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
