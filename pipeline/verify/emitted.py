"""Turns the composite events of rules into events for the rules that read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgpack

from headwater.pipeline.expressions.cells import WIDE, Cell
from headwater.pipeline.verify.relations import HEADER, START, Composites, Unverifiable
from headwater.protocol.pattern import Rule, types_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SPARK_KINDS = {"int": "bigint", "float": "double", "string": "string", "bool": "boolean", "none": "boolean"}


def in_order_of_reading(rules: Sequence[Rule]) -> list[Rule]:
    """Every rule after those whose composites it reads; there are no cycles among rules that were parsed together."""
    waiting, ordered = list(rules), []
    while waiting:
        to_come = {rule.emits for rule in waiting}
        ready = [rule for rule in waiting if not types_of(rule.pattern) & to_come] or waiting
        ordered += ready
        waiting = [rule for rule in waiting if rule not in ready]
    return ordered


class Emitted:
    """The composites of the rules so far, by type."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules: dict[str, list[str]] = {}
        self._by_type: dict[str, list[Composites]] = {}
        self._refused: dict[str, str] = {}
        read: set[str] = set()
        for rule in rules:
            self._rules.setdefault(rule.emits, []).append(rule.name)
            read |= types_of(rule.pattern)
        self._read = read & set(self._rules)

    def is_read(self, rule: Rule) -> bool:
        return rule.emits in self._read

    def refuse(self, rule: Rule, reason: str) -> None:
        """No rule can read the composites of this rule."""
        self._refused.setdefault(rule.emits, reason)

    def add(self, rule: Rule, composites: Composites) -> None:
        self._by_type.setdefault(rule.emits, []).append(composites)

    def read_by(self, rule: Rule) -> Mapping[str, Composites]:
        """The composites of each type that a rule reads; Unverifiable where they are not known."""
        return dict(self._of_types(rule))

    def _of_types(self, rule: Rule) -> Iterator[tuple[str, Composites]]:
        for type_ in sorted(types_of(rule.pattern) & set(self._rules)):
            makers = " and ".join(sorted(self._rules[type_]))
            if type_ in self._refused:
                raise Unverifiable(
                    f"rule {rule.name}: it reads {type_} of rule {makers}, which is not known: {self._refused[type_]}"
                )
            composites = self._by_type.get(type_, [])
            assert len(composites) == len(self._rules[type_]), "rules come after those that they read"
            yield type_, _together(composites, rule, type_)


def _together(parts: Sequence[Composites], rule: Rule, type_: str) -> Composites:
    """The composites of all rules that emit a type, in common columns."""
    from pyspark.sql import functions as F

    values: dict[str, Cell] = {}
    for name in parts[0].values:
        values[name] = common([composites.values[name] for composites in parts], f"rule {rule.name}: {type_}.{name}")
    frames = [
        composites.events.select(
            *(F.col(f"`{name}`") for name in composites.events.columns if name not in values),
            *(F.col(f"`{name}`").cast(column_type(cell)).alias(name) for name, cell in values.items()),
        )
        for composites in parts
    ]
    return Composites(reduce(lambda one, other: one.unionByName(other), frames), values)


def common(cells: Sequence[Cell], attribute: str) -> Cell:
    """What is known of a value that comes from several places: they differ only where one has none at all."""
    typed = [cell for cell in cells if cell.kind != "none"] or list(cells)
    kinds = {cell.kind for cell in typed}
    if len(kinds) > 1:
        raise Unverifiable(f"{attribute} is {' or '.join(sorted(kinds))}, which has no common column in Spark")
    low, high = min(cell.low for cell in typed), max(cell.high for cell in typed)
    return Cell(typed[0].column, typed[0].kind, low, high, any(c.nan for c in typed), any(c.rough for c in typed))


def column_type(cell: Cell) -> str:
    return WIDE if cell.wide else SPARK_KINDS[cell.kind]


def as_events(frame: DataFrame, rule: Rule, values: Sequence[Cell]) -> Composites:
    """What a rule should find (`expected.Expected`, with ``own``) as events."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    cells = {attribute.name: value for attribute, value in zip(rule.attributes, values, strict=True)}
    events = frame.select(
        *(F.col(f"end_{name}").alias(name) for name in HEADER),
        *(F.col(f"start_{name}").alias(word) for name, word in zip(HEADER, START, strict=True)),
        F.col("parts").alias("#id"),
        F.col("own").alias("#own"),
        *(F.col(f"v{number}").alias(name) for number, name in enumerate(cells)),
    )
    fields = [
        T.StructField(field.name, T.StringType()) if field.name == "#id" else field for field in events.schema.fields
    ]
    # Spark has no such hash, so batches of them go to Python.
    identified = events.mapInArrow(partial(_identified, rule.name, rule.version), T.StructType(fields))
    return Composites(identified, cells)


def _identified(rule: str, version: int, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches with the ids of composites in place of their parts."""
    import pyarrow as pa

    for batch in batches:
        at = batch.schema.get_field_index("#id")
        ids = [
            composite_id(rule, version, [[part["role"], part["id"] or [part["node"], part["seq"]]] for part in parts])
            for parts in batch.column(at).to_pylist()
        ]
        columns = [pa.array(ids, pa.string()) if i == at else batch.column(i) for i in range(batch.num_columns)]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def composite_id(rule: str, version: int, parts: list[Any]) -> str:
    """The identity of a composite: 128 bits over rule, version, and role and identity of every part."""
    return blake2b(msgpack.packb([rule, version, parts]), digest_size=16).hexdigest()


def own_text(rule: Rule, end: Sequence[Column], parts: Sequence[tuple[str, Column]]) -> Column:
    """What orders a composite among all events (`relations.Roles.own_text`); ``parts``: role and text of each."""
    from pyspark.sql import functions as F

    pieces = [*end, F.lit("1" + rule.name + "\0" + f"{rule.version:016x}")]
    for role, text in parts:
        pieces += [F.lit("\x01" + role + "\0"), text]
    return F.concat(*pieces, F.lit("\0"))
