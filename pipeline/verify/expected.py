"""Computes the composite events that a rule should find in a trace, as a relation of their parts and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import Cell, floating
from headwater.pipeline.expressions.expressions import Lookup, Name, cell
from headwater.pipeline.verify.branches import BranchMatches, branches_of
from headwater.pipeline.verify.chains import ChainPlan
from headwater.pipeline.verify.emitted import Emitted, as_events, column_type, common, own_text
from headwater.pipeline.verify.joins import MatchFrame
from headwater.pipeline.verify.next_match import next_matches
from headwater.pipeline.verify.relations import HEADER, Roles, TraceEvents, Unverifiable, first_of, key_text, last_of
from headwater.pipeline.verify.repetitions import (
    WAYS,
    candidates_name,
    finished_holds,
    has_inner,
    lookup_of,
    repeated_in,
    whole,
)
from headwater.pipeline.verify.trees import first_key, last_key
from headwater.protocol.errors import ConfigError
from headwater.protocol.expressions import Attribute, Fold, Remote, walk
from headwater.protocol.pattern import Chain, Negation, Part, Repetition, Rule, leaves, positive_leaves

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PARTS: Final = "parts"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a rule should find. ``frame``: ``parts`` (role, node and seq of each, in the order of the pattern, and the
    ``id`` of composite ones), the key of the earliest start (``start_ts``, ..) and of the latest end (``end_ts``, ..),
    and a column ``v0``, ``v1``, .. for each attribute of the composite.

    Where roles are repeated, a row stands for as many composites as its ``ways``, and ``parts`` holds the first and the
    last element of each.
    """

    rule: Rule
    frame: DataFrame
    values: tuple[Cell, ...]
    """Kind of each attribute, and whether its last digits are certain; "none" where it never has a value."""
    repeated: tuple[str, ...] = ()
    late: frozenset[str] = frozenset()
    """Attributes that depend on which elements were chosen."""
    counted: tuple[CountedBranch, ...] = ()


@dataclass(frozen=True, slots=True)
class CountedBranch:
    """The part of ``Expected.frame`` that one branch gives, with all that is known of the choices it stands for."""

    frame: DataFrame
    branch: BranchMatches
    expected: tuple[Cell, ...]
    rule: Rule
    roles: Roles

    def elements(self, chosen: Mapping[str, Column]) -> dict[str, Column]:
        """All elements of each repeated role, given those chosen between the first and the last one."""
        from pyspark.sql import functions as F

        roles, bound = self.roles, self.branch.matches.bound
        return {
            role: whole(role, chosen[role], roles) if has_inner(role, bound) else F.array(roles.element(first_of(role)))
            for role in repeated_in(bound, roles)
        }

    def candidates(self, role: str) -> Column:
        """What may stand between the first and the last element, in order."""
        from pyspark.sql import functions as F

        if has_inner(role, self.branch.matches.bound):
            return F.col(candidates_name(role, self.roles))
        return F.array().cast("array<struct<`#id`: string, node: string, seq: bigint>>")

    def holds(self, elements: Mapping[str, Column]) -> Column:
        return finished_holds(self.branch.finished, self.branch.matches.bound, elements, self.roles)

    def values(self, elements: Mapping[str, Column]) -> list[Column]:
        """The attributes of the composite with these elements."""
        cells = _cells(self.rule, lookup_of(self.branch.matches.bound, elements, self.roles))
        return _columns(cells, self.expected)


def expected(rule: Rule, source: TraceEvents, emitted: Emitted) -> Expected:
    """What the rule should find, given what the rules before it ``emitted``; Unverifiable where it cannot tell."""
    check(rule)
    composites = emitted.read_by(rule)
    for leaf in leaves(rule.pattern.root):
        if leaf.type not in source.types and leaf.type not in composites:
            raise Unverifiable(f"rule {rule.name}: the trace has no events of the type {leaf.type}")
    try:
        roles = Roles(rule, source, composites)
        branches = _branches(rule, roles)
        cells_of = [_cells(rule, _lookup(branch.matches, roles)) for branch in branches]
    except Unverifiable:
        raise
    except ConfigError as error:
        raise Unverifiable(f"rule {rule.name}: {error}") from None
    values = tuple(
        common([cells[number] for cells in cells_of], f"rule {rule.name}: {attribute.name}")
        for number, attribute in enumerate(rule.attributes)
    )
    frames = [
        _finished(branch, cells, values, roles, own=emitted.is_read(rule))
        for branch, cells in zip(branches, cells_of, strict=True)
    ]
    frame = reduce(lambda one, other: one.unionByName(other), [part.select(*_columns_of(part)) for part in frames])
    if not roles.repeated:
        return Expected(rule, frame, values)
    late = frozenset(
        attribute.name
        for attribute in rule.attributes
        if any(isinstance(part, Fold) and part.role in roles.repeated for part in walk(attribute.value))
    )
    counted = tuple(
        CountedBranch(branch_frame, branch, values, rule, roles)
        for branch, branch_frame in zip(branches, frames, strict=True)
    )
    return Expected(rule, frame, values, tuple(sorted(roles.repeated)), late, counted)


def offer(wanted: Expected, emitted: Emitted) -> Expected:
    """Makes what a rule should find known to the rules that read it. The result is to be used in place of the first."""
    rule = wanted.rule
    if not emitted.is_read(rule):
        return wanted
    if wanted.repeated:
        emitted.refuse(rule, f"composites with a repeated part {wanted.repeated[0]}[] are counted, not listed")
        return wanted
    kept = Expected(rule, wanted.frame.persist(), wanted.values)
    emitted.add(rule, as_events(kept.frame, rule, kept.values))
    return kept


def check(rule: Rule) -> None:
    """Refuses what is never verified, by name."""
    root = rule.pattern.root
    for expression in (*rule.pattern.where, *(attribute.value for attribute in rule.attributes)):
        for part in walk(expression):
            if isinstance(part, Remote):
                raise Unverifiable(
                    f"rule {rule.name}: the lookup REMOTE.{part.table}[..] asks a table outside the trace, "
                    "which cannot be verified"
                )
    window = getattr(root, "window", None)
    if window is not None and window.unit == "events":
        raise Unverifiable(f"rule {rule.name}: a window that counts events cannot be verified")
    if not isinstance(root, Chain):
        _check_repetitions(root, rule)


def _check_repetitions(part: Part, rule: Rule) -> None:
    if isinstance(part, Repetition):
        if len(part.parts) > 1:
            named = ", ".join(f"{leaf.type} {leaf.role}" for leaf in part.parts)
            raise Unverifiable(f"rule {rule.name}: the repeated group ({named})+ cannot be verified")
        if rule.pattern.skip == "next":
            role = part.parts[0].role
            raise Unverifiable(
                f"rule {rule.name}: the repeated part {role}[] under SKIP TILL NEXT MATCH cannot be verified"
            )
    for inner in getattr(part, "parts", ()):
        if not isinstance(inner, Negation):
            _check_repetitions(inner, rule)


def _branches(rule: Rule, roles: Roles) -> list[BranchMatches]:
    root, where = rule.pattern.root, rule.pattern.where
    if isinstance(root, Chain):
        return [BranchMatches(ChainPlan(root, where, roles).matches())]
    window = getattr(root, "window", None)
    assert window is not None  # the outermost window is mandatory
    if rule.pattern.skip == "next":
        return [BranchMatches(matches) for matches in next_matches(root, window, where, roles)]
    return branches_of(root, window, where, roles)


def _lookup(matches: MatchFrame, roles: Roles) -> Lookup:
    """What names of attributes stand for where elements between the first and the last are not known yet."""

    def lookup(name: Name) -> Cell | None:
        if isinstance(name, Attribute) and name.role not in roles.repeated and name.role not in matches.bound:
            return None  # the branch of an OR that was not taken
        if not roles.repeated:
            return roles.lookup(name)
        candidates = {role: _all_candidates(role, matches, roles) for role in repeated_in(matches.bound, roles)}
        return lookup_of(matches.bound, candidates, roles)(name)

    return lookup


def _all_candidates(role: str, matches: MatchFrame, roles: Roles) -> Column:
    from pyspark.sql import functions as F

    if has_inner(role, matches.bound):
        return whole(role, F.col(candidates_name(role, roles)), roles)
    return F.array(roles.element(first_of(role)))


def _cells(rule: Rule, lookup: Lookup) -> list[Cell]:
    """The attributes of the composite of a match."""
    cells = []
    for attribute in rule.attributes:
        value = cell(attribute.value, lookup)
        cells.append(Cell(floating(value), "float") if attribute.kind == "float" and value.kind == "int" else value)
    return cells


def _columns(cells: Sequence[Cell], values: Sequence[Cell]) -> list[Column]:
    """The attributes in columns that are alike for all branches."""
    return [
        own.column.cast(column_type(shared)).alias(f"v{number}")
        for number, (own, shared) in enumerate(zip(cells, values, strict=True))
    ]


def _finished(
    branch: BranchMatches, cells: Sequence[Cell], values: Sequence[Cell], roles: Roles, *, own: bool
) -> DataFrame:
    """Parts, times and attributes of every match, beside the columns of its roles."""
    from pyspark.sql import functions as F

    matches, rule = branch.matches, roles.rule
    named = [
        (role, leaf.role)
        for leaf in positive_leaves(rule.pattern.root)
        for role in ((first_of(leaf.role), last_of(leaf.role)) if leaf.role in roles.repeated else (leaf.role,))
        if role in matches.bound
    ]
    bound = [role for role, _ in named]
    start, end = first_key(bound, roles), last_key(bound, roles)
    added = [F.array(*(roles.part(role, called) for role, called in named)).alias(PARTS)]
    added += [start[name].alias(f"start_{name}") for name in HEADER]
    added += [end[name].alias(f"end_{name}") for name in HEADER]
    if own:
        texts = [(called, roles.own_text(role)) for role, called in named]
        added.append(own_text(rule, key_text(*(end[name] for name in HEADER)), texts).alias("own"))
    if WAYS not in matches.frame.columns:
        added.append(F.lit(1).alias(WAYS))
    return matches.frame.select("*", *added, *_columns(cells, values))


def _columns_of(frame: DataFrame) -> list[str]:
    """The columns that all branches have."""
    return [name for name in frame.columns if not name.startswith(("p", "candidates_")) or name == PARTS]
