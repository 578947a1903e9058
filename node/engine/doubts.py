"""What skip-till-next runs carry that took a step before it was decided."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from headwater.node.engine.next_plan import Run
from headwater.node.engine.runtime import Row
from headwater.protocol.composites import LookedUp

NO_STAGE: Final = -1
"""In place of a stage: the doubt only carries values that the run rests on."""


class Doubt(NamedTuple):
    """A step that a run took as if it were decided: the event was (or was not) accepted at the stage."""

    stage: int
    run: Run
    row: Row
    accepted: bool


Doubts = tuple[Doubt, ...]
WaitingRun: TypeAlias = tuple[int, Run, Doubts]
"""The stage at which it stands, and on what it rests."""


class DoubtedRun(tuple[Any, ...]):
    """A run that rests on doubts."""

    doubts: Doubts
    seen: int
    """How many elements had come when the doubts were last looked at."""


def doubted(run: Run, doubts: Doubts, seen: int = -1) -> Run:
    if not doubts:
        return tuple(run) if isinstance(run, DoubtedRun) else run
    carrying = DoubtedRun(run)
    carrying.doubts, carrying.seen = doubts, seen
    return carrying


def with_doubts(run: Run, doubts: Iterable[Any], seen: int = -1) -> Run:
    """A run as it was saved."""
    return doubted(tuple(run), tuple(Doubt(*doubt) for doubt in doubts), seen)


def doubts_of(run: Run) -> Doubts:
    return run.doubts if isinstance(run, DoubtedRun) else ()


def values_of(doubts: Doubts) -> list[LookedUp]:
    """The values that a run rests on, where runs carry them."""
    return [LookedUp(*value) for doubt in doubts if doubt.stage == NO_STAGE for value in doubt.run]
