"""What a node has at hand of remote tables, and what it has asked for.

A memory is plain state: it reads no clock and opens no connection. Engines look elements up in it and say which they
want; its owner fetches these and supplies what has come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from headwater.node.engine.asking import ASKED, MISSING, Key, Place, Waiting
from headwater.node.remote.policies import DEFAULT, policy_named
from headwater.node.remote.provider import plain_key, size_bytes
from headwater.protocol.remote import LookupTable, Versions

CACHE_BYTES: Final = 64_000_000
POLICY, KEPT, UNDER_WAY = "policy", "kept", "under way"
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

    def saved(self) -> tuple[Any, ...]:
        """Everything as plain values: a node that is restored must ask, and find at hand, what it would have."""
        return (
            self._policy.name,
            self.cache_bytes,
            *((POLICY, rule, policy.name) for rule, policy in self._policies.items()),
            *((KEPT, *place, None if entry[0] is None else tuple(entry[0])) for place, entry in self._kept.items()),
            *((UNDER_WAY, *place) for place in self.under_way),
        )

    @classmethod
    def restored(cls, policy: str, cache_bytes: int, *entries: tuple[Any, ...]) -> Memory:
        """What was saved. Nothing is wanted: what is under way is fetched by the one who restores it."""
        memory = cls((), policy=policy, cache_bytes=cache_bytes)
        for kind, *entry in entries:
            match kind, entry:
                case "policy", [rule, name]:
                    memory._policies[rule] = policy_named(name)
                case "kept", [table, key, element]:
                    memory._keep((table, key), None if element is None else Versions(*element))
                case "under way", [table, key]:
                    memory.under_way[table, key] = None
                case _:
                    raise ValueError(f"{kind!r} in a memory")
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
