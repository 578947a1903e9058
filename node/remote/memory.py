"""What a node has at hand of remote tables, and what it has asked for.

A memory is plain state: it opens no connection, and reads no clock but the one that its owner gives it. Engines look
elements up in it and say which they want; its owner fetches these and supplies what has come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from typing import Any, Final

from headwater.node.engine.remote_memory import ASKED, ASKED_ACCEPTING, MISSING, AskedMarker, Key, Place, Waiting
from headwater.node.remote.caches import CACHE_BYTES, ENTRY_BYTES, Entry, cache_named
from headwater.node.remote.encoding import decode_elements, decode_plain, encode_plain
from headwater.node.remote.policies import DEFAULT, Policy, policy_named
from headwater.node.remote.prefetching import RETIRED, Identity, KeyClass, Retired
from headwater.node.remote.provider import plain_key
from headwater.node.remote.utility import DEFAULT_WEIGHTS, Utility, Weights
from headwater.protocol.remote import (
    ACCEPT,
    STEADY,
    WAIT,
    Failed,
    LookupTable,
    RemoteValue,
    TableTerms,
    Versions,
    failed,
)

__all__ = ["CACHE_BYTES", "ENTRY_BYTES", "Memory"]

_RETIRED: Final = -1
FAILED_US: Final = 1_000_000  # for so long it is not asked again for what could not be had
AHEAD_MAX: Final = 1000  # fetches under way that nothing needs yet; more would only delay those that something needs


class ElementAtHand:
    """What a table that is at hand has for a key."""

    __slots__ = ("_key", "_table")

    fetched_us = None

    def __init__(self, table: LookupTable, key: Key) -> None:
        self._table = table
        self._key = key

    def at(self, ts: int) -> RemoteValue:
        return self._table.lookup(self._key, ts)


@dataclass(slots=True)
class Lookups:
    """Of one table: how often an element was at hand when one was looked up, and what was fetched ahead."""

    hits: int = 0
    misses: int = 0
    prefetched: int = 0
    """Elements that were asked for before anything needed them."""
    prefetched_late: int = 0
    """Of these, how many were needed before they came."""
    prefetched_unused: int = 0
    """And how many made room before anything looked them up."""
    given_up: int = 0
    """Elements that could not be had and were rejected or accepted."""


class Memory:
    """The elements of the remote tables of one node, shared by its rules."""

    def __init__(
        self,
        asked: Iterable[str],
        at_hand: Mapping[str, LookupTable] | None = None,
        *,
        policy: str = DEFAULT,
        policies: Mapping[str, str] | None = None,
        cache: str = "lru",
        cache_bytes: int = CACHE_BYTES,
        terms: Mapping[str, TableTerms] | None = None,
        clock: Callable[[], int] | None = None,
        weights: Weights = DEFAULT_WEIGHTS,
        priorities: Mapping[str, float] | None = None,
    ) -> None:
        """``policies`` and ``priorities``: of single rules, by name; the latter say how much their matches count where
        it is decided what to fetch ahead and to keep, 1 if nothing is said; ``cache``: ``lru`` or ``cost``; ``terms``:
        what lookups mean, by table, where they are not steady; ``clock`` gives microseconds: without one, time is what
        the owner says it is (``now_us``)."""
        self.lookups = {table: Lookups() for table in asked}
        self.terms = dict(terms or {})
        self._at_hand = {table: given for table, given in (at_hand or {}).items() if self.records(table)}
        """Tables with everything at hand whose values composites say: rules ask for them as for others."""
        asked = (*self.lookups, *self._at_hand)
        self.tables: dict[str, Any] = {**(at_hand or {}), **{table: self.marker(table) for table in asked}}
        self._policy = policy_named(policy)
        self._policies = {rule: policy_named(name) for rule, name in (policies or {}).items()}
        self._utility = Utility()
        self._weights = weights
        self._priorities = dict(priorities or {})
        self._cache_name = cache
        self._by_utility = cache != "lru"
        keeps = any(policy.keeps for policy in (self._policy, *self._policies.values()))
        self._cache = cache_named(cache)(
            cache_bytes if keeps else 0, self._utility.weighing(weights.cache), self._unused
        )
        self.under_way: dict[Place, None] = {}
        """What was asked for and has not come yet."""
        self._ahead: dict[Place, KeyClass | Retired] = {}
        """Of these, what nothing needs yet."""
        self._wanted: list[Place] = []
        self.now_us = 0
        """The time, where there is no clock: that of the input which is being handled."""
        self._clock = clock
        self._classes: dict[Identity, KeyClass] = {}

    @property
    def prefetched(self) -> int:
        """Elements of all tables that were asked for before anything needed them."""
        return sum(lookups.prefetched for lookups in self.lookups.values())

    @property
    def prefetched_late(self) -> int:
        return sum(lookups.prefetched_late for lookups in self.lookups.values())

    @property
    def prefetched_unused(self) -> int:
        return sum(lookups.prefetched_unused for lookups in self.lookups.values())

    def lookups_of(self, table: str) -> Lookups:
        return self.lookups.setdefault(table, Lookups())

    @property
    def cache_bytes(self) -> int:
        """What the kept elements may take."""
        return self._cache.bytes_max

    @property
    def kept_bytes(self) -> int:
        """What the kept elements take."""
        return self._cache.bytes

    def waiting(self, rule: str) -> Waiting:
        return self._policy_of(rule).waiting

    def _policy_of(self, rule: str) -> Policy:
        return self._policies.get(rule.partition("/")[0], self._policy)  # a part of a rule follows the rule's

    def finder(self, table: str) -> Callable[[Key], Any]:
        if table in self._at_hand:
            return partial(ElementAtHand, self._at_hand[table])
        find, lookups = self._cache.finder(table, self._used), self.lookups_of(table)

        def find_counted(key: Key) -> Any:
            element = find(key)
            if element is MISSING:
                lookups.misses += 1
            else:
                lookups.hits += 1
            return element

        def find_fresh(key: Key) -> Any:
            self._expire((table, key))
            return find_counted(key)

        return find_counted if self.is_steady(table) else find_fresh

    def _expire(self, place: Place) -> None:
        """Drop the element if it is older than it may be."""
        terms = self.terms_of(place[0])
        if terms.fresh_us is not None:
            self._cache.expire(place, self.time_us() - terms.fresh_us)
        if terms.on_failure != WAIT:
            self._cache.expire(place, self.time_us() - FAILED_US, only_failed=True)

    def is_steady(self, table: str) -> bool:
        return self.terms_of(table).is_steady

    def records(self, table: str) -> bool:
        terms = self.terms_of(table)
        return terms.fresh_us is not None or terms.lineage

    def stamped(self, table: str, element: Versions | None) -> Versions | None:
        """The element with the time at which it comes, where composites say that."""
        if not self.records(table) or isinstance(element, Failed):
            return element
        if element is None:
            return Versions((), (), self.time_us())
        return element if element.fetched_us is not None else element._replace(fetched_us=self.time_us())

    def time_us(self) -> int:
        return self.now_us if self._clock is None else self._clock()

    def terms_of(self, table: str) -> TableTerms:
        return self.terms.get(table, STEADY)

    def accepting(self) -> frozenset[str]:
        """The tables whose comparisons are true where elements cannot be had."""
        return frozenset(table for table, terms in self.terms.items() if terms.on_failure == ACCEPT)

    def instead(self, table: str) -> Failed | None:
        """What stands for an element of the table that could not be had; None if it is waited for."""
        on_failure = self.terms_of(table).on_failure
        if on_failure == WAIT:
            return None
        self.lookups_of(table).given_up += 1
        return failed(on_failure, self.time_us())

    def marker(self, table: str) -> AskedMarker:
        """What rules that look into the table are compiled with."""
        return ASKED_ACCEPTING if self.terms_of(table).on_failure == ACCEPT else ASKED

    def want(self, table: str, key: Key) -> None:
        place = (table, plain_key(key) if float in map(type, key) else key)
        if place not in self.under_way:
            self.under_way[place] = None
            self._wanted.append(place)
        elif place in self._ahead:
            self._ahead.pop(place).came_late()
            self.lookups_of(table).prefetched_late += 1

    def take_wanted(self) -> list[Place]:
        """What is to be fetched, in the order in which it was asked for; each once."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def supply(self, table: str, key: Key, element: Versions | None) -> bool:
        """An element has come; false if it was not asked for. One that came with another of the same whole is kept."""
        place = (table, key)
        if place not in self.under_way:
            if self.terms_of(table).whole:
                self._cache.keep(place, element, None, self.time_us())
            return False
        del self.under_way[place]
        came_us = self.time_us()
        if element is not None and element.fetched_us is not None:  # by a neighbour, perhaps a while ago
            came_us = min(came_us, element.fetched_us)
        self._cache.keep(place, element, self._ahead.pop(place, None), came_us)
        return True

    def at_hand(self, place: Place) -> Any:
        """The element that is kept, for a neighbour that asks for it, or MISSING."""
        table, key = place
        self._expire(place)
        element = self._cache.finder(table, self._used)(key)
        return element if element is MISSING else self.dated(place, element, self._cache.since_us(place))

    def dated(self, place: Place, element: Versions | None, came_us: int) -> Versions | None:
        """The element as a neighbour is told of it: of a table that is fresh for a while, with the time that counts."""
        if self.terms_of(place[0]).fresh_us is None:
            return element
        if element is None:
            return Versions((), (), came_us)
        return element if element.fetched_us is not None else element._replace(fetched_us=came_us)

    def relay(self, place: Place) -> bool:
        """A neighbour needs the element; whether it is to be asked for now, because it is not under way yet."""
        if place in self.under_way:
            return False
        self.under_way[place] = None
        return True

    def give_up(self, place: Place) -> None:
        """The element will not come: the next time that it is needed it is asked for once more."""
        self.under_way.pop(place, None)
        self._ahead.pop(place, None)

    # ------------------------------------------------------------------------------------------------------- foresight

    def key_class(
        self, rule: str, name: str, table: str, horizon: int, *, numbered: bool, early: bool
    ) -> KeyClass | None:
        """What counts the partial matches of a class and fetches what they will need; None if that is of no use under
        the rule's policy."""
        if table in self._at_hand:
            return None
        return self._class_of(Identity(rule, name, table, horizon, numbered, early))

    def _class_of(self, identity: Identity) -> KeyClass | None:
        prefetches = self._policy_of(identity.rule).prefetches and self._cache.bytes_max > 0
        if not (prefetches or self._by_utility):
            return None
        key_class = self._classes.get(identity)
        if key_class is None:
            rule = identity.rule.partition("/")[0]  # a part of a rule counts as the rule does
            priority = self._priorities.get(rule, 1.0)
            key_class = self._classes[identity] = KeyClass(self, identity, prefetches=prefetches, priority=priority)
            self._utility.add(key_class)
        return key_class

    def counts(self) -> bool:
        """Whether there are any classes."""
        return bool(self._classes)

    def retain(self, used: Collection[int]) -> None:
        """Only these classes, by their identity in memory, are used by any engine: what others have counted is worth
        nothing any more."""
        kept = {identity: key_class for identity, key_class in self._classes.items() if id(key_class) in used}
        if len(kept) == len(self._classes):
            return
        self._classes = kept
        self._utility.replace(kept.values())
        for entry in self._cache.entries():
            if entry.ahead is not None and id(entry.ahead) not in used:
                entry.ahead = RETIRED
        for place, by in self._ahead.items():
            if id(by) not in used:
                self._ahead[place] = RETIRED

    def fetch_ahead(self, place: Place, by: KeyClass) -> None:
        """Have an element fetched that may be needed, unless it is worth less than what would make room for it."""
        if float in map(type, place[1]):
            place = (place[0], plain_key(place[1]))
        self._expire(place)
        if place in self.under_way or place in self._cache or len(self._ahead) >= AHEAD_MAX:
            return
        least = self._cache.least()
        if least and self._utility.of_fetching(place, self._weights.fetch) <= least:
            return
        self.under_way[place] = None
        self._wanted.append(place)
        self._ahead[place] = by
        self.lookups_of(place[0]).prefetched += 1

    def came_together(self, table: str, keys: Iterable[Key]) -> None:
        """These keys of a table belong to one whole: an answer for one of them brings them all."""
        if self.terms_of(table).whole:
            self._utility.together(table, tuple(keys))

    def is_ahead(self, place: Place) -> bool:
        """Whether the element was asked for, and nothing needs it yet."""
        return place in self._ahead

    def took(self, table: str, latency_us: float) -> None:
        """An element of the table came this long after it was asked for."""
        self._utility.took(table, latency_us)

    def latency_us(self, table: str) -> float:
        return self._utility.latency_us(table)

    @staticmethod
    def _used(entry: Entry) -> None:
        entry.ahead.was_used()
        entry.ahead = None

    def _unused(self, place: Place, entry: Entry) -> None:
        entry.ahead.was_unused()
        self.lookups_of(place[0]).prefetched_unused += 1

    # ---------------------------------------------------------------------------------------------------------- saving

    def saved(self) -> tuple[str, int, bytes]:
        """Everything as plain values: a node that is restored must ask, find at hand and foresee what it would have."""
        numbers = {id(key_class): number for number, key_class in enumerate(self._classes.values())}

        def numbered(by: Any) -> int | None:
            return None if by is None else numbers.get(id(by), _RETIRED)

        content = {
            "cache": self._cache_name,
            "policies": {rule: policy.name for rule, policy in self._policies.items()},
            "terms": {table: astuple(terms) for table, terms in self.terms.items()},
            "weights": self._weights,
            "priorities": self._priorities,
            "now": self.now_us,
            "classes": [key_class.saved() for key_class in self._classes.values()],
            "kept": self._cache.saved(numbered),
            "under way": [(*place, numbered(self._ahead.get(place))) for place in self.under_way],
            "wanted": self._wanted,
            "latencies": self._utility.saved(),
            "wholes": self._utility.saved_wholes(),
            "lookups": [(table, astuple(counts)) for table, counts in self.lookups.items()],
        }
        return self._policy.name, self.cache_bytes, encode_plain(content)

    @staticmethod
    def restored(policy: str, cache_bytes: int, content: bytes) -> Memory:
        """What was saved. What is under way is fetched by the one who restores it."""
        saved = decode_plain(content)
        memory = Memory(
            [table for table, _ in saved["lookups"]],
            policy=policy,
            policies=saved["policies"],
            cache=saved["cache"],
            cache_bytes=cache_bytes,
            terms={table: TableTerms(*terms) for table, terms in saved["terms"].items()},
            weights=Weights(*saved["weights"]),
            priorities=saved["priorities"],
        )
        memory._restore(saved)
        return memory

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Continue with what was saved by a memory of the same settings."""
        self.now_us = saved["now"]
        self.lookups = {table: Lookups(*counts) for table, counts in saved["lookups"]}
        for identity, *figures in saved["classes"]:
            key_class = self._class_of(Identity(*identity))
            if key_class is not None:
                key_class.restore(*figures)
        by_number = dict(enumerate(self._classes.values()))

        def numbered(number: int | None) -> Any:
            return None if number is None else by_number.get(number, RETIRED)

        self._cache.restore(saved["kept"], numbered)
        self.under_way = {(table, key): None for table, key, _ in saved["under way"]}
        self._ahead = {
            (table, key): numbered(number) for table, key, number in saved["under way"] if number is not None
        }
        self._wanted = list(saved["wanted"])
        self._utility.restore(saved["latencies"])
        self._utility.restore_wholes(saved.get("wholes", ((), ())))


def with_foresight(policy: str, cache_bytes: int, content: bytes = b"") -> bytes:
    """What is saved of a memory, of what was saved of one that foresaw nothing."""
    policies, kept, under_way = decode_plain(content) if content else ({}, b"\x90", b"\x90")
    memory = Memory((), policy=policy, policies=policies, cache_bytes=cache_bytes)
    for table, key, element in decode_elements(kept):
        memory._cache.keep((table, key), element, None, 0)
    memory.under_way = {(table, key): None for table, key, _ in decode_elements(under_way)}
    return memory.saved()[2]
