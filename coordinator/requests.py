"""What can be changed while a network runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headwater.coordinator.layout.fallback import StageName
from headwater.coordinator.layout.graphs import Planner
from headwater.protocol.network import Sink, Source
from headwater.protocol.pattern import Rule


@dataclass(frozen=True, slots=True)
class DeployRule:
    rule: Rule


@dataclass(frozen=True, slots=True)
class UndeployRule:
    name: str


@dataclass(frozen=True, slots=True)
class AddSink:
    sink: Sink
    number: int | None = None
    """The number it has had before; None: the next."""


@dataclass(frozen=True, slots=True)
class RemoveSink:
    number: int


@dataclass(frozen=True, slots=True)
class AddSource:
    source: Source
    number: int | None = None
    """The number it has had before; None: the next."""


@dataclass(frozen=True, slots=True)
class RemoveSource:
    number: int


@dataclass(frozen=True, slots=True)
class TidyUp:
    """Let go of what has ended and is not needed any more."""


@dataclass(frozen=True, slots=True)
class LayOutAnew:
    """Evaluate everything where this planner says, from now on. What is detected and delivered stays the same."""

    lay_out: Planner


@dataclass(frozen=True, slots=True)
class FallBack:
    """Have a stage evaluated as its fall-back says, from now on; everything else stays where it is."""

    stages: tuple[StageName, ...]
    """The same stage of several rules, if it is evaluated once for all of them."""
    home: str | None
    """At this node alone; None: not at all, its readers read its inputs."""
    laying: int
    """With which of the layouts that were made from scratch this was decided: none that follows is meant."""
    why: str = ""

    def what(self) -> str:
        """In words."""
        stage = ", ".join(dict.fromkeys(name.what() for name in self.stages))
        return f"leave out {stage}" if self.home is None else f"put {stage} together at {self.home} alone"


Change: TypeAlias = (
    TidyUp | LayOutAnew | FallBack | DeployRule | UndeployRule | AddSink | RemoveSink | AddSource | RemoveSource
)
