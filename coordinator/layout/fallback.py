"""Fallbacks: what replaces a stage that costs more than it saves.

A stage that is split over several nodes falls back to one node, which the planner has chosen beforehand. Any other
stage that is not the last of its rule is left out: its readers read its inputs. Nothing is searched for and
nothing measured; nodes report whether a fallback pays off (``coordinator.layout.cost_watch``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headwater.coordinator.layout.stages import RuleLayout, Stage


@dataclass(frozen=True, slots=True)
class StageName:
    """A stage of a rule, however the stages around it are numbered."""

    rule: str
    roles: tuple[str, ...]
    split: str | None
    node: str | None
    """Where it is, unless it is split: then it is wherever the events are that split it."""

    def what(self) -> str:
        """In words."""
        return f"{' and '.join(self.roles)} of {self.rule}"


def name_of(rule: str, stage: Stage) -> StageName:
    return StageName(rule, tuple(sorted(stage.roles)), stage.split, stage.nodes[0] if stage.split is None else None)


def position_of(name: StageName, stages: RuleLayout) -> int | None:
    """Where a stage is in the layout of its rule; None if it is not there any more."""
    positions = (position for position, stage in enumerate(stages) if name_of(name.rule, stage) == name)
    return next(positions, None)


def home_of(stages: RuleLayout, position: int) -> tuple[bool, str | None]:
    """Whether a stage has a fallback, and the node that it falls back to (None: it is left out)."""
    stage = stages[position]
    if stage.pulled:  # its nodes see only what they ask for, and the fallback would bring all of it
        return False, None
    if stage.split is not None and len(stage.nodes) > 1:
        return stage.home is not None, None if stage.home is None else stage.home.node
    return position < len(stages) - 1, None


def fallen_back(stages: RuleLayout, position: int, home: str | None) -> RuleLayout:
    """The layout with one stage at one node, or (None) without it. What may be run of it is up to ``divided``."""
    stage = stages[position]
    if home is not None:
        gathered = replace(stage, nodes=(home,), split=None, home=None)
        return (*stages[:position], gathered, *stages[position + 1 :])
    return tuple(_without(other, position, stage, stages) if position in other.stages else other for other in stages)


def _without(reader: Stage, position: int, stage: Stage, stages: RuleLayout) -> Stage:
    """A reader of a stage that is left out: it reads what that reads. What it did not take from the stage, since it has
    all of it anyway, it does not take from there either."""
    unsent = {role for at, role in reader.left_out if at == position}
    left_out = {(at, role) for at, role in reader.left_out if at != position} | stage.left_out
    left_out |= {(below, role) for below in stage.stages for role in unsent & stages[below].roles}
    inside = [below for read in reader.stages for below in (stage.stages if read == position else (read,))]
    return replace(
        reader,
        stages=tuple(sorted(set(inside))),
        events=reader.events | stage.events,
        left_out=frozenset(left_out),
    )


def all_fallen_back(
    layout: Mapping[str, RuleLayout], names: Iterable[StageName], home: str | None
) -> dict[str, RuleLayout] | None:
    """The layouts of the rules whose stages fall back; None if one of the stages is not there any more."""
    replaced: dict[str, RuleLayout] = {}
    for name in names:
        stages = replaced.get(name.rule, layout.get(name.rule, ()))
        position = position_of(name, stages)
        if position is None:
            return None
        replaced[name.rule] = fallen_back(stages, position, home)
    return replaced
