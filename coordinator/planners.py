"""The planners of planned strategies, one row each.

A new planned strategy is a row here and one in ``protocol.strategy``.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

from headwater.coordinator.inev.model.rules import Statistics
from headwater.coordinator.inev.plan.layouts import InevPlanner
from headwater.coordinator.layout.planner_interface import Ground, Planner, Routes
from headwater.coordinator.layout.stages import Layout
from headwater.protocol.strategy import strategy_of


@runtime_checkable
class StatisticsPlanner(Protocol):
    """A planner that decides by rates and selectivities, as they were when it was made."""

    statistics: Statistics

    def __init__(self, statistics: Statistics) -> None: ...

    def __call__(self, ground: Ground, kept: Layout) -> tuple[Layout, Routes]: ...


PLANNERS: Final[dict[str, type[StatisticsPlanner]]] = {"inev": InevPlanner}
"""By the name of the strategy. Coordinators save their planner, so its class is a part of what they may save."""


UNASKED: Final = InevPlanner
"""The planner of strategies that are not planned: their nodes share the work along trees, so that it is never asked,
but a coordinator saves one under any strategy."""


def planner_of(strategy: str, statistics: Statistics) -> StatisticsPlanner:
    """The planner of a strategy, for these statistics."""
    return PLANNERS[strategy](statistics) if strategy_of(strategy).planned else UNASKED(statistics)


def statistics_of(planner: Planner) -> Statistics | None:
    """What a planner decides by; None: nothing that was measured."""
    return planner.statistics if isinstance(planner, StatisticsPlanner) else None
