"""What a report needs to know of a network beside its records, as plain data that can be written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.protocol.errors import ConfigError
from headwater.protocol.formats import REPORT_NETWORK

RECORDING: Final = "recording.json"


@dataclass(frozen=True, slots=True)
class ShapeLink:
    one: str
    other: str
    delay_us: int = 0


@dataclass(frozen=True, slots=True)
class ShapeSink:
    """A sink, in the order of the network file; ``type`` is what it subscribes to."""

    node: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One run of a network: who is connected with whom, who wants what, and what centr would do."""

    network: str
    strategy: str
    nodes: tuple[str, ...]
    links: tuple[ShapeLink, ...]
    sources: tuple[tuple[str, str], ...]
    """Node and type of each."""
    sinks: tuple[ShapeSink, ...]
    rules: tuple[str, ...]
    types: tuple[str, ...]
    """Primitive types that a rule or a subscription names: what centr would send."""
    leader: str
    """The node that st would elect, which centr sends everything to."""
    parents: Mapping[str, str | None]
    """The tree of shortest paths to the leader: the parent of every node, None of the leader."""
    run: str = ""
    """As it stands in the records; empty where unknown."""
    seed: int | None = None
    """Of a simulation."""
    simulated: bool = False
    """Whether times are virtual."""
    replayed: bool = False
    """Whether events keep the times of traces, which have nothing to do with the clock."""
    trace: str | None = None
    """The checksum of the prepared trace that was replayed, where that was noted."""
    events: str = ""
    """Of a simulation: equal where the same events were born."""
    centr_bytes: int | None = None
    """Of a simulation: what centr sent over the same events, overhead included, where it was simulated beside it."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Of each process, as its keeper has counted."""

    def hops(self, node: str) -> int:
        """How many links there are between a node and the leader."""
        return len(self.way(node))

    def way(self, node: str) -> list[tuple[str, str]]:
        """The links from a node to the leader, each as (child, parent)."""
        links = []
        while (parent := self.parents.get(node)) is not None:
            links.append((node, parent))
            node = parent
        return links

    @property
    def input(self) -> str:
        """Runs with equal inputs have the same events, so they must deliver the same; empty where unknown."""
        if self.trace is not None:
            return f"trace {self.trace}"
        return f"events {self.events}" if self.events else ""

    def to_json(self) -> dict[str, Any]:
        return {"format": REPORT_NETWORK, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Shape:
        rest = {name: value for name, value in content.items() if name != "format"}
        return cls(
            **{
                **rest,
                "nodes": tuple(content["nodes"]),
                "links": tuple(ShapeLink(**link) for link in content["links"]),
                "sources": tuple((node, name) for node, name in content["sources"]),
                "sinks": tuple(ShapeSink(**sink) for sink in content["sinks"]),
                "rules": tuple(content["rules"]),
                "types": tuple(content["types"]),
            }
        )


def write_recording(folder: Path, shape: Shape) -> None:
    """Written last: a folder that has it is complete."""
    text = json.dumps(shape.to_json(), indent=1, ensure_ascii=False) + "\n"
    (folder / RECORDING).write_text(text, encoding="utf-8")


def read_recording(folder: Path) -> Shape:
    file = folder / RECORDING
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.get("format") != REPORT_NETWORK:
            raise ConfigError(f"{file} was written by another version of Headwater; simulate again with --record")
        return Shape.from_json(content)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is damaged ({error}); simulate again with --record") from None
