"""Losses and returns in a simulated network, and how long orders and reports of the coordinator take."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headwater.coordinator.core import Coordinator
from headwater.coordinator.requests import Change
from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.links import FOREVER
from headwater.node.effects import LinkReset, MessageReceived
from headwater.protocol.messages.plans import ReportToCoordinator


@dataclass(frozen=True, slots=True)
class Lost:
    """A node, or the link between two, is gone for good."""

    one: str
    other: str | None = None
    returns: bool = False
    """It is a node, and will be back."""


@dataclass(frozen=True, slots=True)
class Back:
    """A link that was given up is up again."""

    one: str
    other: str


@dataclass(frozen=True, slots=True)
class Forgets:
    """A node starts again with an empty memory; the coordinator notices it later."""

    node: str
    noticed: bool = False
    """The coordinator notices it now."""


@dataclass(frozen=True, slots=True)
class ReportArrived:
    """A report has reached the coordinator."""

    node: str
    report: ReportToCoordinator


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Among changes: the one that is being prepared takes too long; it is given up and asked for once more."""


@dataclass(frozen=True, slots=True)
class Decide:
    """Among changes: one that is chosen only when its time has come, by how things stand then; None: nothing."""

    choose: Callable[[Coordinator], Change | None]


class Spoken:
    """When orders and reports arrive: after up to ``most_us``, at random; from one to the other in their order."""

    def __init__(self, most_us: int, seed: int) -> None:
        self.most_us = most_us
        self._random = random.Random(f"{seed} orders")
        self._last_us: dict[tuple[str, str], int] = {}

    def arrival_us(self, sender: str, receiver: str, now_us: int) -> int:
        """Of what is sent now; the coordinator has no name."""
        if not self.most_us:
            return now_us
        arrival = now_us + self._random.randint(0, self.most_us)
        self._last_us[sender, receiver] = max(arrival, self._last_us.get((sender, receiver), arrival))
        return self._last_us[sender, receiver]


def is_of_old_life(node: str, receiver: str, received: Any) -> bool:
    """Whether something that is under way concerns only what a node has forgotten."""
    if receiver == node:
        return received is not None and not isinstance(received, LinkReset)
    return isinstance(received, MessageReceived) and received.neighbour == node


def expected_outages(
    faults: Faults, nodes: Iterable[str], detection_us: int
) -> Iterator[tuple[int, str, Lost | Back | Forgets | None]]:
    """What follows from outages, as (when, node, what): a node starts again (None, with its name), and others hear of
    losses and returns, so long after them."""
    for node in nodes:
        for start, end in faults.downtimes(node):
            if end >= FOREVER:
                yield start + detection_us, "", Lost(node)
            elif faults.forgets(node, (start, end)):
                yield end, "", Forgets(node)
            else:
                yield end, node, None
    for amnesia in faults.amnesias:
        noticed_us = amnesia.from_us + detection_us
        if amnesia.given_up and noticed_us < amnesia.to_us:
            yield noticed_us, "", Lost(amnesia.node, returns=True)
    for cut in faults.link_outages:
        noticed_us = cut.from_us + detection_us
        if cut.to_us >= FOREVER or (cut.given_up and noticed_us < cut.to_us):
            yield noticed_us, "", Lost(cut.one, cut.other)
            if cut.to_us < FOREVER:
                yield cut.to_us + detection_us, "", Back(cut.one, cut.other)
