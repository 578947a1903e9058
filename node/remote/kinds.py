"""Elements that do not go with the rules that look them up: a collection where a rule compares one value.

What a table holds is known when an element comes, so that is where it is found. A comparison of one value with a
collection cannot be decided, or is never true, and would not say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from headwater.node.engine.remote_memory import Key
from headwater.protocol.expressions import Binary, Expression, Remote, Unary, walk
from headwater.protocol.pattern import Rule
from headwater.protocol.remote import Versions
from headwater.protocol.text import plural


@lru_cache(maxsize=4096)
def tables_of_single_values(rule: Rule) -> frozenset[str]:
    """The tables whose elements the rule compares, or computes with, as single values."""
    expressions = (*rule.pattern.where, *(output.value for output in rule.attributes))
    parts = (part for expression in expressions for part in walk(expression))
    return frozenset(side.table for part in parts for side in _single(part) if isinstance(side, Remote))


def _single(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Binary("in" | "not in", left, _):
            yield left
        case Binary("and" | "or", _, _):
            return
        case Binary(_, left, right):
            yield from (left, right)
        case Unary("-", operand):
            yield operand


def misfit(rules: Iterable[Rule], table: str, key: Key, element: Versions | None) -> str | None:
    """Why an element does not go with one of the rules, in a sentence; None: it goes with all."""
    collection = None if element is None else next((v for v in element.values if isinstance(v, tuple)), None)
    if collection is None:
        return None
    rule = next((rule for rule in rules if table in tables_of_single_values(rule)), None)
    if rule is None:
        return None
    shown_key = ", ".join(map(repr, key))
    return (
        f"the table {table!r} has a collection of {plural(len(collection), 'value')} for the key {shown_key:.80}, but "
        f"rule {rule.name!r} compares it as one value; write IN in the rule, or let the table have one value for a key"
    )
