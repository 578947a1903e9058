"""The composites that a rule should find in a trace, as a relation: the parts and the attributes of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from pipeline.cells import WIDE, Cell, floating
from pipeline.expressions import Name, cell
from pipeline.verification.chains import ChainPlan
from pipeline.verification.joins import Matches, forbid, joined
from pipeline.verification.next_match import next_matches
from pipeline.verification.relations import HEADER, Refused, Roles, Source, without_same
from pipeline.verification.trees import earliest, last_key, resolved, roles_in
from protocol.errors import ConfigError
from protocol.expressions import Attribute, Expression, Remote, roles_of, walk
from protocol.pattern import Chain, Part, Rule, Window, leaves, positive_leaves, repeated_roles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTS: Final = "parts"
SPARK_KINDS: Final = {"int": "bigint", "float": "double", "string": "string", "bool": "boolean", "none": "boolean"}


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rule should find. ``frame``: ``parts`` (role, node and seq of each, in the order of the pattern), the ts
    of the earliest (``start_ts``), the key of the latest (``end_ts``, ``end_node``, ``end_seq``), and a column ``v0``,
    ``v1``, .. for each attribute of the composite."""

    rule: Rule
    frame: DataFrame
    values: tuple[Cell, ...]
    """Kind of each attribute, and whether its last digits are certain; "none" where it never has a value."""


def expected(rule: Rule, source: Source, emitted: Collection[str] = ()) -> Expected:
    """What the rule should find; Refused where that cannot be computed. ``emitted``: the types that rules emit."""
    check(rule, source, emitted)
    try:
        roles = Roles(rule, source)
        found = [(matches, _cells(matches, rule, roles)) for matches in _matches(rule, roles)]
    except Refused:
        raise
    except ConfigError as error:
        raise Refused(f"rule {rule.name}: {error}") from None
    values = tuple(_common([cells[i] for _, cells in found], rule, i) for i in range(len(rule.attributes)))
    frames = [_finished(matches, cells, values, rule, roles) for matches, cells in found]
    return Expected(rule, reduce(lambda one, other: one.unionByName(other), frames), values)


def check(rule: Rule, source: Source, emitted: Collection[str]) -> None:
    """Refuses what is never verified, by name."""
    root = rule.pattern.root
    for leaf in leaves(root):
        if leaf.type in emitted:
            raise Refused(
                f"rule {rule.name}: {leaf.role} is a composite event {leaf.type} of another rule; rules over the "
                "composites of others cannot be verified yet, only the rules that they are made by"
            )
        if leaf.type not in source.types:
            raise Refused(f"rule {rule.name}: the trace has no events of the type {leaf.type}")
    for expression in (*rule.pattern.where, *(each.value for each in rule.attributes)):
        for part in walk(expression):
            if isinstance(part, Remote):
                raise Refused(
                    f"rule {rule.name}: the lookup REMOTE.{part.table}[..] asks a table outside the trace, "
                    "which cannot be verified"
                )
    window = getattr(root, "window", None)
    if window is not None and window.unit == "events":
        raise Refused(f"rule {rule.name}: a window that counts events cannot be verified")
    if repeated_roles(root):
        raise Refused(f"rule {rule.name}: the repeated part {min(repeated_roles(root))}[] cannot be verified")


def _matches(rule: Rule, roles: Roles) -> list[Matches]:
    root = rule.pattern.root
    if isinstance(root, Chain):
        return [ChainPlan(root, rule.pattern.where, roles).matches()]
    window = getattr(root, "window", None)
    if rule.pattern.skip == "next":
        assert window is not None  # the outermost window is mandatory
        return next_matches(root, window, rule.pattern.where, roles)
    return [_of_branch(branch, window, rule.pattern.where, roles) for branch in resolved(root)]


def _of_branch(branch: Part, window: Window | None, where: Sequence[Expression], roles: Roles) -> Matches:
    bound = roles_in(branch)
    applicable = [each for each in without_same(where, bound) if roles_of(each) <= set(bound)]
    matches = joined(branch, window, applicable, roles)
    return matches if window is None else forbid(matches, branch, window, where, roles)


def _cells(matches: Matches, rule: Rule, roles: Roles) -> list[Cell]:
    """The attributes of the composite of a match."""

    def lookup(name: Name) -> Cell | None:
        if isinstance(name, Attribute) and name.role not in matches.bound:
            return None  # the branch of an OR that was not taken
        return roles.lookup(name)

    made = []
    for each in rule.attributes:
        value = cell(each.value, lookup)
        made.append(Cell(floating(value), "float") if each.kind == "float" and value.kind == "int" else value)
    return made


def _finished(matches: Matches, cells: Sequence[Cell], values: Sequence[Cell], rule: Rule, roles: Roles) -> DataFrame:
    """Parts and attributes of every match, in columns that are alike for all branches."""
    from pyspark.sql import functions as F

    named = [leaf.role for leaf in positive_leaves(rule.pattern.root) if leaf.role in matches.bound]
    parts = [
        F.struct(
            F.lit(role).alias("role"), roles.column(role, "node").alias("node"), roles.column(role, "seq").alias("seq")
        )
        for role in named
    ]
    columns = [
        made.column.cast(SPARK_KINDS[common.kind] if not common.wide else WIDE).alias(f"v{number}")
        for number, (made, common) in enumerate(zip(cells, values, strict=True))
    ]
    end = last_key(named, roles)
    times = [
        earliest(named, roles).alias("start_ts"),
        *(end[name].alias(f"end_{name}") for name in HEADER),
    ]
    return matches.frame.select(F.array(*parts).alias(PARTS), *times, *columns)


def _common(cells: Sequence[Cell], rule: Rule, number: int) -> Cell:
    """What is known of an attribute over all branches: they differ only where one has no value at all."""
    known = [each for each in cells if each.kind != "none"] or list(cells)
    kinds = {each.kind for each in known}
    if len(kinds) > 1:
        raise Refused(
            f"rule {rule.name}: {rule.attributes[number].name} is {' or '.join(sorted(kinds))}, depending "
            "on the branch of an OR, which has no common column in Spark"
        )
    low, high = min(each.low for each in known), max(each.high for each in known)
    return Cell(known[0].column, known[0].kind, low, high, any(c.nan for c in known), any(c.rough for c in known))
