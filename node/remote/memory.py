"""What a node has at hand of remote tables, and what it has asked for.

A memory is plain state: it reads no clock and opens no connection. Engines look elements up in it and say which they
want; its owner fetches these and supplies what has come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from headwater.node.engine.asking import ASKED, MISSING, Key, Place, Waiting
from headwater.node.remote.encoding import decode_elements, encode_elements
from headwater.node.remote.policies import DEFAULT, policy_named
from headwater.node.remote.provider import plain_key, size_bytes
from headwater.protocol.remote import LookupTable, Versions

CACHE_BYTES: Final = 64_000_000
ENTRY_BYTES: Final = 200  # what an entry takes beside its values; a key that has no value takes this, too


class Memory:
    """The elements of the remote tables of one node, shared by its rules."""

    def __init__(
        self,
        asked: Mapping[str, Any],
        at_hand: Mapping[str, LookupTable] | None = None,
        *,
        policy: str = DEFAULT,
        policies: Mapping[str, str] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """``policies``: of single rules, by name."""
        self.tables: dict[str, Any] = {**dict.fromkeys(asked, ASKED), **(at_hand or {})}
        self._policy = policy_named(policy)
        self._policies = {rule: policy_named(name) for rule, name in (policies or {}).items()}
        self.cache_bytes = cache_bytes if self._policy.keeps else 0
        self.bytes = 0
        self._kept: OrderedDict[Place, tuple[Versions | None, int]] = OrderedDict()
        self.under_way: dict[Place, None] = {}
        """What was asked for and has not come yet."""
        self._wanted: list[Place] = []

    def waiting(self, rule: str) -> Waiting:
        return self._policies.get(rule, self._policy).waiting

    def finder(self, table: str) -> Callable[[Key], Any]:
        kept = self._kept

        def find(key: Key) -> Any:
            place = (table, key)
            entry = kept.get(place)
            if entry is None:
                return MISSING
            kept.move_to_end(place)
            return entry[0]

        return find

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

    # ---------------------------------------------------------------------------------------------------------- saving

    def saved(self) -> tuple[str, int, bytes]:
        """Everything as plain values: a node that is restored must ask, and find at hand, what it would have."""
        kept = encode_elements((*place, element) for place, (element, _) in self._kept.items())
        under_way = encode_elements((*place, None) for place in self.under_way)
        policies = {rule: policy.name for rule, policy in self._policies.items()}
        return self._policy.name, self.cache_bytes, msgpack.packb([policies, kept, under_way])

    @classmethod
    def restored(cls, policy: str, cache_bytes: int, rest: bytes = b"") -> Memory:
        """What was saved. Nothing is wanted: what is under way is fetched by the one who restores it."""
        policies, kept, under_way = msgpack.unpackb(rest) if rest else ({}, b"\x90", b"\x90")
        memory = cls({}, policy=policy, policies=policies, cache_bytes=cache_bytes)
        for table, key, element in decode_elements(kept):
            memory._keep((table, key), element)
        memory.under_way = {(table, key): None for table, key, _ in decode_elements(under_way)}
        return memory

    def _keep(self, place: Place, element: Versions | None) -> None:
        size = ENTRY_BYTES + (0 if element is None else size_bytes(element))
        if size > self.cache_bytes:
            return
        self._kept[place] = element, size
        self.bytes += size
        while self.bytes > self.cache_bytes:
            _, (_, freed) = self._kept.popitem(last=False)
            self.bytes -= freed
