"""What a node has at hand of remote tables, and what it has asked for.

A memory is plain state: it opens no connection, and reads no clock but the one that its owner gives it. Engines look
elements up in it and say which they want; its owner fetches these and supplies what has come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headwater.node.engine.asking import ASKED, MISSING, Key, Place, Waiting
from headwater.node.remote.policies import DEFAULT, policy_named
from headwater.node.remote.provider import plain_key, size_bytes
from headwater.protocol.remote import LookupTable, Versions

CACHE_BYTES: Final = 64_000_000
ENTRY_BYTES: Final = 200  # what an entry takes beside its values; a key that has no value takes this, too


@dataclass(slots=True)
class Lookups:
    """How often an element was at hand when one was looked up, and how often not."""

    hits: int = 0
    misses: int = 0


class Memory:
    """The elements of the remote tables of one node, shared by its rules."""

    def __init__(
        self,
        asked: Iterable[str],
        at_hand: Mapping[str, LookupTable] | None = None,
        *,
        policy: str = DEFAULT,
        policies: Mapping[str, str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        fresh_s: Mapping[str, float] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``policies``: of single rules, by name. ``fresh_s``: for how long elements are used, by ``clock``, of tables
        whose elements are not used for ever."""
        self.lookups = {table: Lookups() for table in asked}
        self.tables: dict[str, Any] = {**dict.fromkeys(self.lookups, ASKED), **(at_hand or {})}
        self._policy = policy_named(policy)
        self._policies = {rule: policy_named(name) for rule, name in (policies or {}).items()}
        self.cache_bytes = cache_bytes if self._policy.keeps else 0
        self.bytes = 0
        self._kept: OrderedDict[Place, tuple[Versions | None, int]] = OrderedDict()
        self.under_way: dict[Place, None] = {}
        """What was asked for and has not come yet."""
        self._wanted: list[Place] = []
        self._fresh_s = dict(fresh_s or {})
        self._clock = clock
        self._supplied_s: dict[Place, float] = {}
        """When elements came that are not used for ever."""

    def waiting(self, rule: str) -> Waiting:
        return self._policies.get(rule, self._policy).waiting

    def finder(self, table: str) -> Callable[[Key], Any]:
        kept, lookups, fresh_s = self._kept, self.lookups[table], self._fresh_s.get(table)

        def find(key: Key) -> Any:
            place = (table, key)
            entry = kept.get(place)
            if entry is None:
                lookups.misses += 1
                return MISSING
            kept.move_to_end(place)
            lookups.hits += 1
            return entry[0]

        def find_fresh(key: Key) -> Any:
            self._expire((table, key), fresh_s or 0.0)
            return find(key)

        return find if fresh_s is None else find_fresh

    def _expire(self, place: Place, fresh_s: float) -> None:
        supplied_s = self._supplied_s.get(place)
        if supplied_s is not None and self._clock() - supplied_s > fresh_s:
            del self._supplied_s[place]
            self.bytes -= self._kept.pop(place)[1]

    def want(self, table: str, key: Key) -> None:
        place = (table, plain_key(key))
        if place not in self.under_way:
            self.under_way[place] = None
            self._wanted.append(place)

    def take_wanted(self) -> list[Place]:
        """What is to be fetched, in the order in which it was asked for; each once."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def supply(self, table: str, key: Key, element: Versions | None) -> bool:
        """An element has come; false if it was not asked for."""
        place = (table, key)
        if place not in self.under_way:
            return False
        del self.under_way[place]
        self._keep(place, element)
        return True

    def _keep(self, place: Place, element: Versions | None) -> None:
        size = ENTRY_BYTES + (0 if element is None else size_bytes(element))
        if size > self.cache_bytes:
            return
        if place in self._kept:
            self.bytes -= self._kept.pop(place)[1]
        self._kept[place] = element, size
        self.bytes += size
        if place[0] in self._fresh_s:
            self._supplied_s[place] = self._clock()
        while self.bytes > self.cache_bytes:
            dropped, (_, freed) = self._kept.popitem(last=False)
            self._supplied_s.pop(dropped, None)
            self.bytes -= freed
