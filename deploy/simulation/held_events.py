"""Events that sources publish while their node is down: held as a broker holds them, and handed over afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.links import Interval
from headwater.protocol.events import Event

HAND_OVER_US_MAX = 2_000  # from one held event to the next


@dataclass(frozen=True, slots=True)
class HandOver:
    """An event that was held reaches its source."""

    source: int
    event: Event


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Everything that was held during a downtime of the node was handed over; the downtimes are counted."""

    node: str
    downtime: int


class Holding:
    """What is held for all nodes."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._seed = seed
        self._held: dict[str, list[tuple[int, Event]]] = {}
        self._downtimes: Counter[str] = Counter()
        self._until_us: dict[str, int] = {}
        """When the last event that is on its way to a node reaches it: the node may go down once more before."""

    def holds(self, node: str, downtime: Interval, source: int, event: Event) -> bool:
        """Whether the event, published during a downtime of its node, is held from now on."""
        if not self._faults.holds(node, downtime):
            return False
        self._held.setdefault(node, []).append((source, event))
        return True

    def handed_over(self, node: str, now_us: int) -> Iterator[tuple[int, HandOver | HandedOver]]:
        """The node is back: what happens then, and when."""
        self._downtimes[node] += 1
        rng = random.Random(f"{self._seed} held {node} {now_us}")
        at_us = max(now_us, self._until_us.get(node, now_us))
        for source, event in self._held.pop(node, ()):
            at_us += rng.randint(0, HAND_OVER_US_MAX)
            yield at_us, HandOver(source, event)
        self._until_us[node] = at_us
        yield at_us, HandedOver(node, self._downtimes[node])

    def is_latest(self, handed_over: HandedOver) -> bool:
        """Whether the node has stayed up since this hand-over began."""
        return self._downtimes[handed_over.node] == handed_over.downtime
