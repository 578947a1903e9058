"""What remote elements are worth: how many partial matches need them, now and probably later (EIRES, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from headwater.node.engine.remote_memory import Key, Place
from headwater.node.remote.prefetching import LATEST_SHARE, KeyClass

MEMBERS_MAX: Final = 100  # keys of a whole that are counted; a sum over more would cost more than it tells
WHOLES_MAX: Final = 10_000  # elements of which it is remembered what they belong to; a snapshot has them all
LATENCY_US: Final = 1000.0  # assumed of a table until the first of its elements has come


class Weights(NamedTuple):
    """How much the partial matches of now count beside those to come."""

    fetch: float = 0.7
    """Where it is decided what to fetch."""
    cache: float = 0.5
    """Where it is decided what to keep."""


DEFAULT_WEIGHTS: Final = Weights()


class Utility:
    """What elements are worth: how many partial matches need them, now and probably later, times what waiting costs."""

    def __init__(self) -> None:
        self._classes: dict[str, list[KeyClass]] = {}
        self._latencies: dict[str, float] = {}
        self._wholes: dict[Place, tuple[Key, ...]] = {}
        """Of elements that came with others: the keys of all of them."""

    def add(self, key_class: KeyClass) -> None:
        self._classes.setdefault(key_class.table, []).append(key_class)

    def replace(self, classes: Iterable[KeyClass]) -> None:
        """Only these are left."""
        self._classes = {}
        for key_class in classes:
            self.add(key_class)

    def took(self, table: str, latency_us: float) -> None:
        """An element of the table came this long after it was asked for."""
        known = self._latencies.get(table)
        self._latencies[table] = latency_us if known is None else known + LATEST_SHARE * (latency_us - known)

    def latency_us(self, table: str) -> float:
        return self._latencies.get(table, LATENCY_US)

    def together(self, table: str, keys: tuple[Key, ...]) -> None:
        """These keys belong to one whole: fetching one of them serves all."""
        for key in keys[:MEMBERS_MAX]:
            self._wholes.pop((table, key), None)
            self._wholes[table, key] = keys[:MEMBERS_MAX]
        while len(self._wholes) > WHOLES_MAX:
            del self._wholes[next(iter(self._wholes))]

    def of_fetching(self, place: Place, weight: float) -> float:
        """What it is worth to ask for an element: with it come all of the same whole."""
        whole = self._wholes.get(place)
        if whole is None:
            return self.of(place, weight)
        return sum(self.of((place[0], key), weight) for key in whole)

    def of(self, place: Place, weight: float) -> float:
        """``weight``: how much the partial matches of now count beside those to come."""
        table, key = place
        worth = 0.0
        for key_class in self._classes.get(table, ()):
            worth += key_class.of_key(key) * key_class.priority * (weight + (1 - weight) * key_class.fan_out)
        return worth * self._latencies.get(table, LATENCY_US)

    def saved(self) -> list[tuple[str, float]]:
        """The latencies of tables; classes are saved by the one who has them."""
        return list(self._latencies.items())

    def restore(self, latencies: Iterable[tuple[str, float]]) -> None:
        self._latencies = dict(latencies)

    def saved_wholes(self) -> list[Any]:
        """What belongs together: each whole once, and for each element the number of its own."""
        numbers = {whole: number for number, whole in enumerate(dict.fromkeys(self._wholes.values()))}
        return [list(numbers), [(*place, numbers[whole]) for place, whole in self._wholes.items()]]

    def restore_wholes(self, saved: Sequence[Any]) -> None:
        wholes, numbered = saved
        self._wholes = {(table, key): wholes[number] for table, key, number in numbered}

    def weighing(self, weight: float) -> Callable[[Place], float]:
        return lambda place: self.of(place, weight)
