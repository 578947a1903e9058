"""The interface of observers of a simulated run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headwater.deploy.simulation.outcome import Delivery
from headwater.protocol.events import Event

if TYPE_CHECKING:
    from headwater.deploy.simulation.simulator import Simulation


class SimulationWatcher(Protocol):
    """Keeps records of a run, as a node process does of itself."""

    def begins(self, run: Simulation) -> None:
        """The trees stand; the first event is about to be born."""

    def born(self, node: str, source: int, event: Event, refused: Sequence[tuple[str, int]]) -> None:
        """An event was given to a node; ``refused``: what the node has reported if it did not take it."""

    def delivered(self, delivery: Delivery) -> None: ...

    def ended(self, at_us: int) -> None:
        """Everything was heard out at this time; nodes have been left to tidy up since then."""
