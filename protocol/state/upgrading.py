"""What upgrades of saved state have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.protocol.remote import WAIT
from headwater.protocol.state.object_graphs import Tables

EMPTY = ()
"""In place of a value of a new field: an empty tuple."""


def with_fields(tables: Tables, added: Mapping[str, Mapping[str, Any]]) -> Tables:
    """The tables with more fields for instances of some classes, by the names under which these are saved. The values
    are scalars, or EMPTY."""
    shapes = [[*shape, *added.get(shape[0], ())] for shape in tables.shapes]
    empty = [0]  # the first value, since values are made of earlier ones

    def enlarged(entry: Any) -> list[Any]:
        new = added.get(shapes[entry[-1]][0], {}).values()
        return [*map(_shifted, entry[:-1]), *(empty if value == EMPTY else value for value in new), entry[-1]]

    values = [[len(shapes)], *map(enlarged, tables.values)]
    return Tables([*shapes, ["tuple"]], values, list(map(enlarged, tables.objects)), _shifted(tables.root))


def with_table_terms(tables: Tables) -> Tables:
    """The tables with terms for remote tables that had none: their elements never change and are waited for."""
    terms = {"fresh_us": None, "on_failure": WAIT, "lineage": False, "whole": False}
    return with_fields(tables, {"DescribedTable": terms})


def _shifted(part: Any) -> Any:
    """A reference to a value, whose number is now one greater; anything else as it is."""
    if isinstance(part, list | tuple) and type(part[0]) is int and part[0] >= 0:
        return [part[0] + 1]
    return part
