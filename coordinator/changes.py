"""What can be changed while a network runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coordinator.graphs import Planner
from protocol.network import Sink, Source
from protocol.pattern import Rule


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


Change: TypeAlias = TidyUp | LayOutAnew | DeployRule | UndeployRule | AddSink | RemoveSink | AddSource | RemoveSource
