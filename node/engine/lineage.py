"""Which values of remote tables a match rests on.

A lookup that is made while a match is being decided notes its value. A match is told what was looked up for its own
events. Where a rule looks something up for events that are no part of the match (a negated one, one that a selection
has passed over, those of a repetition or an aggregate), the match is told all that was looked up in these tables when
it was decided: that may be more than it rests on, and is never less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.node.engine.codegen.code import Pool, RowLayout
from headwater.node.engine.codegen.outputs import lookup_keys
from headwater.node.engine.codegen.rules import RulePlan
from headwater.node.engine.remote_memory import MISSING, Key
from headwater.node.engine.waiting import AskedTable, Asking
from headwater.protocol.composites import Composite, LookedUp, informed
from headwater.protocol.remote import Failed, Versions

Noted = Mapping[tuple[str, Key, int], LookedUp]
"""Lookups by table, key and time, with what they gave."""


class NotingElement:
    """An element that notes what is read of it."""

    __slots__ = ("_asking", "_element", "_key", "_table")

    def __init__(self, table: str, key: Key, element: Versions, asking: Asking) -> None:
        self._table = table
        self._key = key
        self._element = element
        self._asking = asking

    def at(self, ts: int) -> Any:
        element = self._element
        value = element.at(ts)
        instead = element.on_failure if isinstance(element, Failed) else ""
        said = LookedUp(self._table, self._key, None if instead else value, element.fetched_us, instead)
        self._asking.used[self._table, self._key, ts] = said
        return value


class NotingTable(AskedTable):
    """A remote table whose lookups are noted: all of them, or those whose elements could not be had."""

    __slots__ = ("_all",)

    def __init__(self, name: str, find: Callable[[Key], Any], asking: Asking) -> None:
        super().__init__(name, find, asking)
        self._all = asking.memory.records(name)

    def element(self, key: Key) -> Any:
        element = super().element(key)
        if element is MISSING or element is None or not (self._all or isinstance(element, Failed)):
            return element
        return NotingElement(self.name, key, element, self._asking)


def table_of(name: str, find: Callable[[Key], Any], asking: Asking) -> AskedTable:
    """The table as the generated code of an engine sees it."""
    is_plain = asking.memory.is_steady(name) and not asking.memory.records(name)
    return AskedTable(name, find, asking) if is_plain else NotingTable(name, find, asking)


class Lineage:
    """What tells the matches of one rule what they rest on."""

    def __init__(self, plan: RulePlan, layouts: Mapping[str, RowLayout], pool: Pool) -> None:
        self._keys, self._tables = lookup_keys(plan.rule, plan.logical, layouts, pool)

    def tell(self, match: Composite, noted: Noted, before: Iterable[LookedUp] = ()) -> Composite:
        """The match with what it rests on. ``before``: what is known of it already."""
        said = dict.fromkeys((*match.looked_up, *before))
        if noted:
            for table, ts, *key in self._keys(*match[1:]):
                value = noted.get((table, tuple(key), ts))
                if value is not None:
                    said[value] = None
            for (table, _, _), value in noted.items():
                if table in self._tables:
                    said[value] = None
        return informed(match, sorted(said, key=_order))

    def tell_new(self, lists: Iterable[tuple[list[Any], int, int]], noted: Noted, before: Iterable[LookedUp]) -> None:
        """Tell the matches that an evaluation has added to lists: from which position on, and where the match stands in
        an entry (-1: it is the entry)."""
        for entries, start, at in lists:
            for position in range(start, len(entries)):
                entry = entries[position]
                if at < 0:
                    entries[position] = self.tell(entry, noted, before)
                else:
                    entries[position] = (*entry[:at], self.tell(entry[at], noted, before), *entry[at + 1 :])


def _order(value: LookedUp) -> tuple[str, str, str]:
    return value.table, repr(value.key), repr(value[2:])
