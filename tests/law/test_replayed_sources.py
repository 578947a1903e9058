"""Sources that tell their own time, as a replayed trace does: the clock of the nodes has nothing to do with it.

The same random networks as for the law, with every event as late by the clock as you like: what counts is how far each
source has told that it has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from headwater.deploy.simulation.faults import Faults
from headwater.deploy.simulation.outcome import Outcome
from headwater.deploy.simulation.simulator import SETUP_US, Simulation
from headwater.node.core import NodeSettings
from headwater.node.effects import Born
from headwater.protocol.events import Event
from tests.law.law import SERVED, Unjudged, compare, expected
from tests.law.networks import Birth, NetworkCase, network_case

CLOCK_AHEAD_US = 1_700_000_000_000_000
"""The clocks of the nodes say it is 2023; the events of the cases happened near time 0."""

SEEDS = range(7_000, 7_030)


class Replay(Simulation):
    """A run in which the events of each source come in order of their times, each with a promise about the next one."""

    def __init__(self, case: NetworkCase, strategy: str) -> None:
        sources = tuple(replace(source, replayed=True) for source in case.network.sources)
        network = replace(case.network, sources=sources)
        super().__init__(network, strategy, case.seed, Faults(), check=True, settings=NodeSettings(replayed=True))
        self._behind = dict.fromkeys(network.nodes, -CLOCK_AHEAD_US)
        self._following: dict[tuple[str, int], float] = {}
        of_source: dict[int, list[Event]] = {}
        for birth in case.births:
            if not case.is_late(birth):
                of_source.setdefault(birth[1], []).append(birth[2])
        for events in of_source.values():
            events.sort()
            for event, following in zip(events, [*events[1:], None], strict=True):
                watermark = event.ts if following is None else following.ts - 1
                self._following[event.node, event.seq] = watermark

    def _bear(self, source: int, event: Event) -> None:
        node = self.coordinator.sources[source][0]
        self.outcome.born.append(event)
        watermark = self._following[event.node, event.seq]
        self._perform(node, self._handle(node, Born(source, (event,), watermark)))


def births(case: NetworkCase) -> Iterable[Birth]:
    """In order of the events' own times."""
    on_time = [birth for birth in case.births if not case.is_late(birth)]
    return sorted(((event.ts, source, event) for _, source, event in on_time), key=lambda birth: (birth[0], birth[2]))


def replay(case: NetworkCase, strategy: str) -> Outcome:
    run = Replay(case, strategy)
    events = list(births(case))
    run.set_up((events[0][0] if events else 0) - 64 * SETUP_US)
    return run.run(events)


def judged(seed: int) -> tuple[NetworkCase, Any]:
    """The case of the seed, or the next one that the oracle does not give up, and what must be received."""
    while True:
        case = network_case(seed)
        try:
            return case, expected(case, [birth[2] for birth in births(case)])
        except Unjudged:
            seed += 1_000


@pytest.mark.parametrize("seed", SEEDS)
def test_replayed_sources_keep_the_law(seed: int) -> None:
    case, must = judged(seed)
    for strategy in SERVED:
        wrong = compare(case, replay(case, strategy), must)
        assert not wrong, f"{strategy}: {wrong[:5]}"


def test_nothing_of_a_replayed_source_is_late_however_far_the_clock_is() -> None:
    case = network_case(7_000)
    outcome = replay(case, "st")
    assert outcome.counters["late_events"] == 0
    assert len(outcome.born) == len(list(births(case)))
