"""Repetitions, by counting: the subsets between the first and the last element are never listed.

A match of ``B+ b[]`` has one element, or a first and a last one with any of the candidates between them. Order, windows
and negations concern the first and the last alone, so these are joined like other roles (`trees.resolved`). Here the
candidates between them are collected, and the ways to choose among them are counted: two for each candidate, unless a
conjunct looks at the finished repetition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from headwater.pipeline.expressions.cells import EXACT_FLOAT, WIDE, Cell, refuse_where
from headwater.pipeline.expressions.expressions import Lookup, Name, condition
from headwater.pipeline.verify.joins import MatchFrame
from headwater.pipeline.verify.relations import (
    Roles,
    Unverifiable,
    first_of,
    inner_of,
    last_of,
    near_join,
    without_same,
)
from headwater.pipeline.verify.sums import exact_sum
from headwater.pipeline.verify.trees import bounded
from headwater.protocol.expressions import Attribute, Expression, Fold, Parameter, Same, rewritten, roles_of, walk

if TYPE_CHECKING:
    from pyspark.sql import Column

WAYS: Final = "ways"
SUBSETS_TRIED: Final = 14
"""Where conjuncts look at the finished repetition, all subsets of up to so many candidates are tried."""
CANDIDATES_MOST: Final = 120
"""The subsets of more candidates are beyond the numbers that Spark computes with."""


@dataclass(frozen=True, slots=True)
class Conjuncts:
    """The conjuncts of a rule for one branch, in which repeated roles have one element or two ends."""

    plain: tuple[Expression, ...]
    """Over the roles of the branch alone: elements are the first and the last."""
    inner: Mapping[str, tuple[Expression, ...]]
    """What an element between the two must meet, by repeated role."""
    finished: tuple[Expression, ...]
    """What looks at all elements."""
    negated: tuple[Expression, ...]
    """With SAME, for the judgement of negations."""


def repeated_in(bound: Sequence[str], roles: Roles) -> list[str]:
    """The repeated roles of the rule that a branch binds."""
    return sorted(role for role in roles.repeated if first_of(role) in bound)


def has_inner(role: str, bound: Sequence[str]) -> bool:
    return last_of(role) in bound


def looks_at_all(conjunct: Expression, roles: Roles) -> bool:
    return any(
        part.role in roles.repeated
        for part in walk(conjunct)
        if isinstance(part, Fold) or (isinstance(part, Attribute) and part.index == "i-1")
    )


def names_elements(conjunct: Expression, role: str) -> bool:
    return any(isinstance(part, Attribute) and part.role == role and part.index == "" for part in walk(conjunct))


def looks_back(conjunct: Expression) -> bool:
    return any(isinstance(part, Attribute) and part.index == "i-1" for part in walk(conjunct))


def conjuncts_of(where: Sequence[Expression], bound: Sequence[str], negated: Sequence[str], roles: Roles) -> Conjuncts:
    """The conjuncts that apply to a branch. Unverifiable where one lets the elements decide about negated events."""
    repeated = repeated_in(bound, roles)
    named = {*bound, *repeated}
    plain: list[Expression] = []
    inner: dict[str, list[Expression]] = {role: [] for role in repeated}
    finished: list[Expression] = []
    of_negated: list[Expression] = []
    for expression in where:
        if isinstance(expression, Same):
            of_negated.append(expression)
            plain += without_same([expression], bound)
            for role in repeated:
                inner[role].append(without_same([expression], [bound[0], inner_of(role)])[1])
            continue
        if roles_of(expression) & set(negated):
            if roles_of(expression) <= {*named, *negated}:
                elements = [role for role in repeated if names_elements(expression, role)]
                if elements or looks_at_all(expression, roles):
                    role = min(elements or set(roles_of(expression)) & set(repeated))
                    absent = min(roles_of(expression) & set(negated))
                    raise Unverifiable(
                        f"rule {roles.rule.name}: a condition on the negated {absent} names the elements of {role}[], "
                        f"of which any may be left out; name {role}[first] or {role}[last]"
                    )
                of_negated.append(_at_ends(expression, bound, roles, ""))
            continue
        if not roles_of(expression) <= named:
            continue  # an untaken branch of an OR
        if looks_at_all(expression, roles):
            finished.append(expression)
            continue
        elements = [role for role in repeated if names_elements(expression, role)]
        if not elements:
            plain.append(_at_ends(expression, bound, roles, ""))
            continue
        (role,) = elements
        plain += [_at_ends(expression, bound, roles, end) for end in (first_of(role), last_of(role)) if end in bound]
        inner[role].append(_at_ends(expression, bound, roles, inner_of(role)))
    return Conjuncts(
        tuple(plain),
        {role: tuple(conditions) for role, conditions in inner.items()},
        tuple(finished),
        tuple(of_negated),
    )


def _at_ends(conjunct: Expression, bound: Sequence[str], roles: Roles, element: str) -> Expression:
    """The conjunct over the roles of first and last elements; bare names mean ``element``."""

    def change(name: Attribute) -> Expression:
        if name.role not in roles.repeated:
            return name
        if name.index == "":
            return Attribute(element, name.name)
        return Attribute(last_role(name.role, bound) if name.index == "last" else first_of(name.role), name.name)

    return rewritten(conjunct, change)


def last_role(role: str, bound: Sequence[str]) -> str:
    """The role of the last element, which may be the first."""
    return last_of(role) if has_inner(role, bound) else first_of(role)


def candidates_name(role: str, roles: Roles) -> str:
    return f"candidates_{sorted(roles.repeated).index(role)}"


def with_candidates(
    matches: MatchFrame, conjuncts: Conjuncts, apart: dict[frozenset[str], int], roles: Roles
) -> MatchFrame:
    """The matches with the candidates between the ends of each repetition, in their order, and the ways to choose."""
    from pyspark.sql import functions as F

    repeated = repeated_in(matches.bound, roles)
    frame = matches.frame
    for role in repeated:
        if not has_inner(role, matches.bound):
            continue
        first, last, between = first_of(role), last_of(role), inner_of(role)
        meets = conjuncts.inner[role]
        alone = [expression for expression in meets if roles_of(expression) <= {between}]
        on = [roles.before(first, between), roles.before(between, last)]
        on += [roles.judged(expression) for expression in meets if expression not in alone]
        on += [
            roles.differ(between, other)
            for other in matches.bound
            if other not in (first, last) and roles.leaves[other].type == roles.leaves[between].type
        ]
        reach = (0, bounded(frozenset((first, last)), apart, roles.rule.name))
        joined = near_join(frame, roles.events(between, alone), (roles.ts(first), roles.ts(between)), reach, on, "left")
        identity = [name for other in matches.bound for name in roles.identity_names(other)]
        kept = [F.first(F.col(f"`{name}`")).alias(name) for name in frame.columns if name not in identity]
        elements = F.collect_list(F.when(roles.column(between, "seq").isNotNull(), _sortable(between, roles)))
        ordered = F.transform(F.array_sort(elements), lambda one: one["element"])
        frame = joined.groupBy(*identity).agg(*kept, ordered.alias(candidates_name(role, roles)))
    ways = [_ways(role, matches.bound, conjuncts, roles) for role in repeated]
    total = reduce(lambda a, b: (a * b).cast(WIDE), ways, F.lit(1).cast(WIDE))
    for expression in conjuncts.finished:
        judged = roles_of(expression) & set(repeated)
        if len(judged) > 1 and any(has_inner(role, matches.bound) for role in judged):
            one, other = sorted(judged)[:2]
            raise Unverifiable(
                f"rule {roles.rule.name}: a condition compares all of {one}[] with all of {other}[], whose choices "
                "cannot be counted apart"
            )
        if not any(has_inner(role, matches.bound) for role in judged):
            single = {role: F.array(roles.element(first_of(role))) for role in repeated}
            frame = frame.filter(finished_holds([expression], matches.bound, single, roles))
    return MatchFrame(frame.withColumn(WAYS, total).filter(F.col(WAYS) > 0), matches.bound)


def _sortable(role: str, roles: Roles) -> Column:
    from pyspark.sql import functions as F

    order = [column.alias(f"order_{number}") for number, column in enumerate(roles.order(role))]
    return F.struct(*order, roles.element(role).alias("element"))


def _ways(role: str, bound: Sequence[str], conjuncts: Conjuncts, roles: Roles) -> Column:
    """In how many ways candidates can be chosen between the ends of a repetition."""
    from pyspark.sql import functions as F

    if not has_inner(role, bound):
        return F.lit(1).cast(WIDE)
    candidates = F.col(candidates_name(role, roles))
    number = F.size(candidates)
    finished = [expression for expression in conjuncts.finished if role in roles_of(expression)]
    if not finished:
        bad = number > CANDIDATES_MOST
        half = F.least(number, F.lit(60))
        product = (_power(half).cast("decimal(19,0)") * _power(number - half).cast("decimal(19,0)")).cast(WIDE)
        return refuse_where(bad, f"more than {CANDIDATES_MOST} candidates of a repetition cannot be counted", product)
    if all(looks_back(expression) and not _folds(expression) for expression in finished):
        return _paths(role, bound, candidates, finished, roles)
    return _tried(role, bound, candidates, finished, roles)


def _power(exponent: Column) -> Column:
    from pyspark.sql import functions as F

    return F.call_function("shiftleft", F.lit(1).cast("bigint"), exponent)


def _folds(conjunct: Expression) -> bool:
    return any(isinstance(part, Fold) for part in walk(conjunct))


def _paths(role: str, bound: Sequence[str], candidates: Column, finished: Sequence[Expression], roles: Roles) -> Column:
    """The ways from the first to the last element over candidates each of which follows the one before it."""
    from pyspark.sql import functions as F

    def follows(one: Column, other: Column) -> Column:
        lookup = lookup_of(bound, {}, roles, {role: (other, one)})
        return reduce(lambda a, b: a & b, [condition(expression, lookup) for expression in finished])

    def to(reached: Column, element: Column) -> Column:
        """The number of ways to an element, by the numbers of those to the elements before it."""
        before = F.filter(reached, lambda one: follows(one["element"], element))
        return F.aggregate(before, F.lit(0).cast(WIDE), lambda total, one: (total + one["ways"]).cast(WIDE))

    def add(reached: Column, element: Column) -> Column:
        return F.concat(reached, F.array(_reached(element, to(reached, element))))

    start = F.array(_reached(roles.element(first_of(role)), F.lit(1).cast(WIDE)))
    return to(F.aggregate(candidates, start, add), roles.element(last_of(role)))


def _reached(element: Column, ways: Column) -> Column:
    from pyspark.sql import functions as F

    return F.struct(element.alias("element"), ways.alias("ways"))


def _tried(role: str, bound: Sequence[str], candidates: Column, finished: Sequence[Expression], roles: Roles) -> Column:
    """All subsets, one by one: for conditions on sums and the like there is no shorter way."""
    from pyspark.sql import functions as F

    def chosen(subset: Column) -> Column:
        return F.filter(
            candidates,
            lambda _, at: F.call_function("shiftright", subset, at).bitwiseAND(F.lit(1).cast("bigint")) == 1,
        )

    def holds(subset: Column) -> Column:
        return finished_holds(finished, bound, {role: whole(role, chosen(subset), roles)}, roles)

    number = F.size(candidates)
    bounded = F.least(number, F.lit(SUBSETS_TRIED))
    count = F.size(F.filter(F.sequence(F.lit(0).cast("bigint"), _power(bounded) - 1), holds)).cast(WIDE)
    return refuse_where(
        number > SUBSETS_TRIED,
        f"a condition on all elements of {role}[] has more than {SUBSETS_TRIED} candidates in some window, and all "
        "their subsets would have to be tried; it cannot be verified",
        count,
    )


def whole(role: str, inner: Column, roles: Roles) -> Column:
    """All elements of a repetition that has a first and a last one."""
    from pyspark.sql import functions as F

    return F.concat(F.array(roles.element(first_of(role))), inner, F.array(roles.element(last_of(role))))


def finished_holds(
    finished: Sequence[Expression], bound: Sequence[str], elements: Mapping[str, Column], roles: Roles
) -> Column:
    """Whether conjuncts hold that look at all elements of repetitions."""
    from pyspark.sql import functions as F

    def judged(conjunct: Expression) -> Column:
        def at(element: dict[str, tuple[Column, Column]]) -> Column:
            return condition(conjunct, lookup_of(bound, elements, roles, element))

        turns = [role for role in elements if names_elements(conjunct, role) or _previous(conjunct, role)]
        if not turns:
            return at({})
        (role,) = turns
        listed = elements[role]
        if not looks_back(conjunct):
            return F.forall(listed, lambda one: at({role: (one, one)}))
        number = F.size(listed) - 1
        pairs = F.zip_with(
            F.slice(listed, F.lit(1), number),
            F.slice(listed, F.lit(2), number),
            lambda one, other: F.struct(one.alias("one"), other.alias("other")),
        )
        return F.forall(pairs, lambda pair: at({role: (pair["other"], pair["one"])}))

    return reduce(lambda a, b: a & b, [judged(expression) for expression in finished], F.lit(True))


def _previous(conjunct: Expression, role: str) -> bool:
    return any(isinstance(part, Attribute) and part.role == role and part.index == "i-1" for part in walk(conjunct))


def lookup_of(
    bound: Sequence[str],
    elements: Mapping[str, Column],
    roles: Roles,
    element: Mapping[str, tuple[Column, Column]] | None = None,
) -> Lookup:
    """What names stand for beside the elements of repetitions; ``element``: the one meant, and the one before it."""

    def lookup(name: Name) -> Cell | None:
        match name:
            case Fold(function, role, word):
                return folded(function, role, word, elements[role], roles) if role in elements else None
            case Attribute(role, word, index) if role in roles.repeated:
                if first_of(role) not in bound:
                    return None
                if index == "first":
                    return roles.lookup_attribute(first_of(role), word)
                if index == "last":
                    return roles.lookup_attribute(last_role(role, bound), word)
                assert element is not None
                return roles.lookup_attribute(first_of(role), word, element[role][index == "i-1"])
            case Attribute(role) if role not in bound:
                return None
            case Attribute() | Parameter():
                return roles.lookup(name)

    return lookup


def folded(function: str, role: str, word: str | None, elements: Column, roles: Roles) -> Cell | None:
    """An aggregate over the elements of a repetition."""
    from pyspark.sql import functions as F

    if word is None:
        return Cell(F.size(elements).cast("bigint"), "int", 0)
    cell = roles.lookup_attribute(first_of(role), word)
    if cell is None:
        return Cell(F.lit(0).cast("bigint"), "int", 0, 0) if function == "count" else None

    def value(element: Column) -> Column:
        cell = roles.lookup_attribute(first_of(role), word, element)
        assert cell is not None
        return cell.column

    values = F.filter(F.transform(elements, value), lambda element: element.isNotNull())
    number = F.size(values)
    match function:
        case "count":
            return Cell(number.cast("bigint"), "int", 0)
        case "min":
            return Cell(F.array_min(values), cell.kind, cell.low, cell.high)
        case "max":
            return Cell(F.array_max(values), cell.kind, cell.low, cell.high)
    if cell.kind == "string":
        return None
    if cell.kind == "float":
        total = exact_sum(values)
        return Cell(total if function == "sum" else total / number, "float")
    whole_numbers = F.transform(values, lambda element: element.cast("bigint").cast("decimal(20,0)"))
    summed = F.aggregate(whole_numbers, F.lit(0).cast(WIDE), lambda total, element: (total + element).cast(WIDE))
    total = F.when(number > 0, summed)
    if function == "sum":
        return Cell(total, "int", -(2**100), 2**100)
    mean = total.cast("double") / number
    exact = refuse_where(
        F.abs(total) > EXACT_FLOAT, "an average of whole numbers whose sum is beyond 2**53 cannot be verified", mean
    )
    return Cell(exact, "float")
