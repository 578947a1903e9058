"""Where it pays that a skip-till-next run goes on in doubt instead of waiting for an element.

A run that waits stops nothing but itself. So going on gains something only where an event is likely to come that may
move the run before its element is there. What is gained then is the time that passes anyway until the run would come
to a later stage, at most the time that the element takes; what it costs is the runs that come into being meanwhile. All
of it is estimated from how often runs come to each stage and how many stand there, as in section 5.2 of the EIRES
paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from headwater.node.engine.next_plan import NextStage

RUN_US: Final = 5.0  # what one more run costs while it is open


def where_splitting_pays(
    stages: Sequence[NextStage], rates: Mapping[int, float], standing: Mapping[int, int], latency_us: float
) -> dict[int, bool]:
    """By stage that a run would come to. ``rates``: runs that come to each stage in a microsecond; ``standing``: how
    many stand there."""
    if latency_us <= RUN_US:
        return dict.fromkeys((stage.number for stage in stages), False)
    before = {after.number: stage for stage in stages for after in stage.next}
    pays = {}
    for stage in stages:
        moves = any(
            _stays_us(at, rates, standing) < latency_us for at in (stage, before.get(stage.number)) if at is not None
        )
        gains = not stage.next or any(_pays(path, rates, standing, latency_us) for path in _paths(stage))
        pays[stage.number] = moves and gains
    return pays


def _stays_us(stage: NextStage, rates: Mapping[int, float], standing: Mapping[int, int]) -> float:
    """How long a run stands at the stage before an event moves it, by Little's law; for ever if none does."""
    rate = sum(rates[after.number] for after in stage.next)
    return standing[stage.number] / rate if rate > 0 else float("inf")


def _paths(stage: NextStage) -> Iterator[list[NextStage]]:
    """Every way from the stage to a later one, without the stage itself."""
    for after in stage.next:
        yield [after]
        for further in _paths(after):
            yield [after, *further]


def _pays(
    path: Sequence[NextStage], rates: Mapping[int, float], standing: Mapping[int, int], latency_us: float
) -> bool:
    rate = sum(rates[stage.number] for stage in path)
    if rate <= 0:
        return True  # no run ever comes there: nothing is known against it, and little can come of it
    passing_us = 1 / rate
    cost_us = RUN_US
    for stage, after in pairwise(path):
        cost_us *= standing[stage.number] * rates[after.number] * passing_us
    return min(passing_us, latency_us) > cost_us
