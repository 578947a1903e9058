"""What composites say of the values that they rest on, against what the tables have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.protocol.composites import Composite
from headwater.protocol.expressions import Attribute, Binary, Expression, Remote, roles_of, walk
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import STEADY, WAIT, TableTerms, Versions

Elements = Callable[[str, tuple[Any, ...]], Versions | None]
"""What a table has for a key."""
Failing = Callable[[str, tuple[Any, ...]], bool]
"""Whether an element cannot be had."""


def wrongly_said(
    rule: Rule, composite: Composite, terms: Mapping[str, TableTerms], elements: Elements, failing: Failing
) -> str:
    """What is wrong with what a composite says of the tables; empty if nothing is."""
    said = {(value.table, value.key, _frozen(value.value), value.on_failure) for value in composite.looked_up}
    for table, key, value, instead in said:
        of_table = terms.get(table, STEADY)
        is_failing = of_table.on_failure != WAIT and failing(table, key)
        versions = elements(table, key)
        if instead != (of_table.on_failure if is_failing else ""):
            return f"{table} {key} was not {instead}ed"
        if not instead and not of_table.lineage:
            return f"{table} should not be mentioned"
        if value is not None and (instead or versions is None or value not in map(_frozen, versions.values)):
            return f"{table} {key} never was {value!r}"
    for table, key, ts in _own(rule, composite):
        of_table, versions = terms.get(table, STEADY), elements(table, key)
        if of_table.on_failure != WAIT and failing(table, key):
            needed: tuple[Any, ...] = table, key, None, of_table.on_failure
        elif of_table.lineage:
            needed = table, key, None if versions is None else versions.at(ts), ""
        else:
            continue
        if needed not in said:
            return f"does not say {needed}"
    return ""


def wrong_lineage(
    rules: Iterable[Rule],
    composites: Iterable[Any],
    terms: Mapping[str, TableTerms],
    elements: Elements,
    failing: Failing,
) -> list[str]:
    """The same for composites of several rules, and for those among their parts."""
    by_name = {(rule.name, rule.version): rule for rule in rules}
    wrong: dict[str, None] = {}
    waiting = [composite for composite in composites if isinstance(composite, Composite)]
    while waiting:
        composite = waiting.pop()
        rule = by_name.get((composite.rule, composite.version))
        if rule is not None and (sentence := wrongly_said(rule, composite, terms, elements, failing)):
            wrong[f"lineage: {composite!r} {sentence}"] = None
        waiting += [row[3] for _, row in composite.parts() if isinstance(row[3], Composite)]
    return list(wrong)


def _own(rule: Rule, composite: Composite) -> list[tuple[str, tuple[Any, ...], int]]:
    """Table, key and time of the lookups that every match must have made for single events of its own."""
    rows: dict[str, list[Any]] = {}
    for role, row in composite.parts():
        rows.setdefault(role, []).append(row)
    found = []
    for conjunct in rule.pattern.where:
        for lookup in walk(conjunct) if _always_needs(conjunct) and roles_of(conjunct) <= rows.keys() else ():
            if not isinstance(lookup, Remote):
                continue
            (argument,) = lookup.arguments
            if not isinstance(argument, Attribute) or argument.name != "id" or len(rows.get(argument.role, ())) != 1:
                continue
            if argument.index:
                continue
            (row,) = rows[argument.role]
            if isinstance(row[3], Composite) or "id" not in row[3].attributes:
                continue  # over links only the names of events travel
            key = row[4 + row[3].attributes.index("id")]
            if key is not None:
                found.append((lookup.table, (key,), row[0]))
    return found


def _always_needs(conjunct: Expression) -> bool:
    """Whether it is decided by a lookup in any case; its other side may have no value all the same."""
    return not any(isinstance(part, Binary) and part.operator in ("and", "or") for part in walk(conjunct))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
