"""Elements that are kept for the next lookup, within a number of bytes: which of them make room is the cache's choice.

``lru`` drops what was not looked up for longest. ``cost`` has two tiers: an element that something waits for and that
was not looked up yet stays while there are others; of the others, those go whose utility is least for their size. It
compares a few of them at a time and never all, so that dropping one costs the same however many there are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headwater.node.engine.remote_memory import MISSING, Key, Place
from headwater.node.remote.provider import size_bytes
from headwater.protocol.errors import ConfigError
from headwater.protocol.remote import Failed, Versions, saved_versions
from headwater.protocol.text import closest

CACHE_BYTES: Final = 64_000_000
ENTRY_BYTES: Final = 200  # what an entry takes beside its values; a key that has no value takes this, too
SAMPLE: Final = 6  # elements that are compared before one of them goes
LEAST_EVERY: Final = 64  # changes of the cache after which its least utility is looked at again


class Entry:
    """One element at hand."""

    __slots__ = ("ahead", "element", "index", "size", "supplied_us")

    def __init__(self, element: Versions | None, size: int, ahead: Any, supplied_us: int, index: int = -1) -> None:
        self.element = element
        self.size = size
        self.ahead = ahead
        """What had it fetched before anything needed it; None once it was looked up, or if something asked for it."""
        self.index = index
        """Its place among those of a cost-based cache that may go; -1: it is not among them."""
        self.supplied_us = supplied_us


class Cache:
    """Elements by table and key; the least recently used ones make room."""

    def __init__(
        self, bytes_max: int, utility: Callable[[Place], float], unused: Callable[[Place, Entry], None]
    ) -> None:
        """``utility``: what an element is worth; ``unused`` is told what goes without having been looked up."""
        self.bytes_max = bytes_max
        self.bytes = 0
        self._utility = utility
        self._unused = unused
        self._kept: OrderedDict[Place, Entry] = OrderedDict()
        self._least = 0.0
        self._changes = 0

    def __contains__(self, place: Place) -> bool:
        return place in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def entries(self) -> Iterator[Entry]:
        """What is kept, the least recently used first."""
        return iter(self._kept.values())

    def saved(self, numbered: Callable[[Any], int | None]) -> list[Any]:
        """Everything as plain values; ``numbered``: what stands for that which had an element fetched."""
        kept = [
            (table, key, entry.element, entry.size, numbered(entry.ahead), entry.supplied_us, entry.index)
            for (table, key), entry in self._kept.items()
        ]
        return [kept, self._least, self._changes]

    def restore(self, saved: Sequence[Any], by_number: Callable[[int | None], Any]) -> None:
        """Continue with what was saved."""
        kept, self._least, self._changes, *_ = saved
        for table, key, element, size, ahead, supplied_us, index in kept:
            versions = None if element is None else saved_versions(*element)
            self._kept[table, key] = Entry(versions, size, by_number(ahead), supplied_us, index)
            self.bytes += size

    def since_us(self, place: Place) -> int:
        """When an element that is kept came."""
        return self._kept[place].supplied_us

    def finder(self, table: str, used: Callable[[Entry], None]) -> Callable[[Key], Any]:
        """What gives the element of a key of the table; ``used`` is told of the first lookup of one fetched ahead."""
        kept = self._kept
        get, touch = kept.get, kept.move_to_end

        def find(key: Key) -> Any:
            place = (table, key)
            entry = get(place)
            if entry is None:
                return MISSING
            touch(place)
            if entry.ahead is not None:
                used(entry)
            return entry.element

        return find

    def keep(self, place: Place, element: Versions | None, ahead: Any = None, supplied_us: int = 0) -> None:
        """Keep an element, unless it alone would be too large. ``ahead``: what had it fetched before it was needed."""
        if place in self._kept:
            self.drop(place)
        entry = Entry(element, ENTRY_BYTES + (0 if element is None else size_bytes(element)), ahead, supplied_us)
        if entry.size > self.bytes_max:
            if ahead is not None:
                self._unused(place, entry)
            return
        self._changes += 1
        while self.bytes + entry.size > self.bytes_max:
            self._make_room()
        self._add(place, entry)

    def least(self) -> float:
        """The utility of what would go next, or a value from some changes ago; nothing while there is room."""
        if self.bytes_max - self.bytes > self.bytes_max // 50:
            return 0.0
        if self._changes >= LEAST_EVERY:
            self._changes = 0
            place = self._next_to_go()
            self._least = 0.0 if place is None else self._utility(place)
        return self._least

    def expire(self, place: Place, before_us: int, *, only_failed: bool = False) -> None:
        """Drop the element if it came before this; ``only_failed``: if it could not be had."""
        entry = self._kept.get(place)
        if entry is None or (only_failed and not isinstance(entry.element, Failed)):
            return
        if entry.supplied_us < before_us:
            self.drop(place)

    def drop(self, place: Place) -> None:
        entry = self._kept.pop(place)
        self.bytes -= entry.size
        if entry.ahead is not None:
            self._unused(place, entry)

    def _add(self, place: Place, entry: Entry) -> None:
        self._kept[place] = entry
        self.bytes += entry.size

    def _make_room(self) -> None:
        place = self._next_to_go()
        assert place is not None
        self.drop(place)

    def _next_to_go(self) -> Place | None:
        return next(iter(self._kept), None)


class CostCache(Cache):
    """Elements by table and key; what is worth least for its size makes room."""

    def __init__(
        self, bytes_max: int, utility: Callable[[Place], float], unused: Callable[[Place, Entry], None]
    ) -> None:
        super().__init__(bytes_max, utility, unused)
        self._certain: dict[Place, None] = {}
        """What something waits for and nothing has looked up yet."""
        self._certain_bytes = 0
        self._others: list[Place] = []
        self._drawn = 0
        """What the next element is drawn from: a generator of numbers so small that it can be saved."""

    def saved(self, numbered: Callable[[Any], int | None]) -> list[Any]:
        return [*super().saved(numbered), self._drawn]

    def restore(self, saved: Sequence[Any], by_number: Callable[[int | None], Any]) -> None:
        super().restore(saved, by_number)
        self._drawn = saved[3]
        at: dict[int, Place] = {}
        for place, entry in self._kept.items():
            if entry.index < 0:
                self._certain[place] = None
                self._certain_bytes += entry.size
            else:
                at[entry.index] = place
        self._others = [at[index] for index in range(len(at))]

    def finder(self, table: str, used: Callable[[Entry], None]) -> Callable[[Key], Any]:
        get = self._kept.get

        def find(key: Key) -> Any:
            entry = get((table, key))
            if entry is None:
                return MISSING
            if entry.index < 0:
                self._demote((table, key), entry)
            elif entry.ahead is not None:
                used(entry)
            return entry.element

        return find

    def drop(self, place: Place) -> None:
        entry = self._kept[place]
        if entry.index < 0:
            self._demote(place, entry)
        moved = self._others.pop()
        if moved != place:
            self._others[entry.index] = moved
            self._kept[moved].index = entry.index
        super().drop(place)

    def _add(self, place: Place, entry: Entry) -> None:
        super()._add(place, entry)
        if entry.ahead is None:
            self._certain[place] = None
            self._certain_bytes += entry.size
            # What waited for an element keeps it without looking it up here: it must not stay in this tier for ever.
            while self._certain_bytes > self.bytes_max // 2:
                oldest = next(iter(self._certain))
                self._demote(oldest, self._kept[oldest])
        else:
            entry.index = len(self._others)
            self._others.append(place)

    def _demote(self, place: Place, entry: Entry) -> None:
        del self._certain[place]
        self._certain_bytes -= entry.size
        entry.index = len(self._others)
        self._others.append(place)

    def _next_to_go(self) -> Place | None:
        others, utility, kept = self._others, self._utility, self._kept
        if not others:
            return next(iter(self._certain), None)
        count = len(others)
        drawn = others if count <= SAMPLE else [others[self._draw(count)] for _ in range(SAMPLE)]
        return min(drawn, key=lambda place: utility(place) / kept[place].size)

    def _draw(self, count: int) -> int:
        """A number below ``count``. The first places of such a generator's numbers are the random ones."""
        self._drawn = (self._drawn * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
        return (self._drawn >> 32) * count >> 32


CACHES: Final[Mapping[str, type[Cache]]] = {"lru": Cache, "cost": CostCache}


def cache_named(name: str) -> type[Cache]:
    """The kind of cache; a ConfigError if there is none of this name."""
    if name in CACHES:
        return CACHES[name]
    near = closest(name, list(CACHES))
    cure = f"did you mean {near}? " if near else ""
    raise ConfigError(f"there is no cache {name!r} for remote elements; {cure}write one of {', '.join(CACHES)}")
