"""Elements that are at hand: the least recently used ones make room, by bytes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from headwater.node.remote.provider import Key, size_bytes
from headwater.protocol.remote import Versions

CACHE_BYTES: Final = 64_000_000
ENTRY_BYTES: Final = 200  # what an entry takes beside its values; a key that has no value takes this, too


class Kept(NamedTuple):
    versions: Versions | None
    """None: the provider does not have the key."""
    bytes: int
    fetched_s: float


class Cache:
    """Elements by table and key, shared by the tables of an engine."""

    def __init__(self, bytes_max: int = CACHE_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._clock = clock
        self._kept: OrderedDict[tuple[str, Key], Kept] = OrderedDict()

    def get(self, table: str, key: Key, fresh_s: float | None = None) -> Kept | None:
        """What is at hand, and with ``fresh_s`` not older than that; None if nothing is."""
        kept = self._kept.get((table, key))
        if kept is None:
            return None
        if fresh_s is not None and self._clock() - kept.fetched_s > fresh_s:
            self._drop((table, key))
            return None
        self._kept.move_to_end((table, key))
        return kept

    def put(self, table: str, key: Key, versions: Versions | None) -> None:
        """Keep an element, unless it alone would be too large."""
        self._drop((table, key))
        size = ENTRY_BYTES + (0 if versions is None else size_bytes(versions))
        if size > self.bytes_max:
            return
        self._kept[table, key] = Kept(versions, size, self._clock())
        self.bytes += size
        while self.bytes > self.bytes_max:
            self._drop(next(iter(self._kept)))

    def _drop(self, place: tuple[str, Key]) -> None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self.bytes -= kept.bytes

    def __len__(self) -> int:
        return len(self._kept)
