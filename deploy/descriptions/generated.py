"""The section ``generate:`` in the description of a data set (YAML): generated events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Final

from pydantic import Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from headwater.deploy.descriptions.generated_attributes import NAME, AttributePart, attributes_of
from headwater.deploy.descriptions.generated_attributes import VALUES_EXAMPLE as ATTRIBUTES_EXAMPLE
from headwater.deploy.network.fields import HIDDEN, MAPPING, VALUE, FilePart, Given, Listed, Named, NamedEntries, shape
from headwater.deploy.network.mistakes import Flaw, wrong
from headwater.deploy.network.units import duration_us, rate_per_s
from headwater.deploy.network.values import TextEntry, lasting, numbered, numbers, several, whole, within
from headwater.deploy.network.yaml_file import Sheet
from headwater.deploy.network.yaml_tree import KeyTable, Scalar
from headwater.pipeline.generate.model import (
    MOTION_KINDS,
    Arrivals,
    Bursty,
    GeneratedStream,
    Generation,
    Motion,
    Poisson,
    Regular,
)

EVENTS_MAX: Final = 2_000_000_000
"""A trace that is expected to be longer is taken for a mistake in a rate or a duration: it would fill a disk."""

CELLS_MAX: Final = 100_000
"""Types times nodes of a stream, or vehicles: each costs a task about 0.1 ms, however few events it has."""

STATES_MAX: Final = 10_000_000
"""Changes between on and off of one type at one node: they are in the memory of a task, with 16 bytes each."""

NODES_EXAMPLE: Final = "write nodes: 20, a list of names, or {turin: [45.07, 7.69], ..}"
ARRIVALS_EXAMPLE: Final = "write poisson, regular or {on: 5s, off: 45s, quiet: 0.1}"
EVERY: Final = lasting(1, "a vehicle cannot be heard of all the time", "write every: 1s, or the like")
LENGTH: Final = lasting(1, "the trace has no length", "write a duration such as 1h")
AREA: Final = "[south, north, west, east]"

Point = tuple[float, float]

# --- streams ----------------------------------------------------------------------------------------------------------


def _plain_arrivals(text: Scalar) -> Arrivals:
    if text not in ("poisson", "regular"):
        raise wrong(f"{str(text)!r} is not a kind of arrivals", ARRIVALS_EXAMPLE)
    return Poisson() if text == "poisson" else Regular()


class ArrivalsPart(FilePart):
    """How the events of a stream follow each other."""

    WHAT: ClassVar = "arrivals"
    EXAMPLE: ClassVar = ARRIVALS_EXAMPLE
    SHORT: ClassVar = HIDDEN

    short: Annotated[Arrivals | None, TextEntry("arrivals", ARRIVALS_EXAMPLE, _plain_arrivals)] = Field(
        None, alias=HIDDEN
    )
    on: Annotated[int, TextEntry("on", "", duration_us)] = 0
    off: Annotated[int, TextEntry("off", "", duration_us)] = 0
    quiet: Annotated[float, within("quiet", 0, 1)] = 0.0

    def flaws(self) -> Iterator[Flaw]:
        if self.short is None and not (self.has("on") and self.has("off")) and not self.broken:
            yield (), wrong("bursts need the mean lengths on: and off:", ARRIVALS_EXAMPLE)

    def build(self) -> Arrivals:
        return self.short or Bursty(self.on, self.off, self.quiet)


class ZipfPart(FilePart):
    """How much more often the first types and nodes occur than the last."""

    WHAT: ClassVar = "zipf"

    types: Annotated[float, within("the exponent over types", 0, 20)] = 0.0
    nodes: Annotated[float, within("the exponent over nodes", 0, 20)] = 0.0


class StreamPart(FilePart):
    """Events of some types at some nodes."""

    type: Annotated[Scalar | None, TextEntry("the type")] = None
    types: Annotated[
        tuple[Scalar, ...] | int | None,
        several("a type", "the number of types", CELLS_MAX, "write types: 12, or a list of names"),
    ] = None
    nodes: Annotated[
        tuple[Annotated[Scalar, TextEntry("a node")], ...] | None, Listed("nodes", "write nodes: [n1, n2]")
    ] = None
    attributes: Annotated[NamedEntries[AttributePart] | None, Named("the attributes", ATTRIBUTES_EXAMPLE)] = None

    NEEDS: ClassVar[Mapping[str, str]]
    """What the stream must say, and how."""

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        return wrong(f"the stream does not say {missing[0]}:", cls.NEEDS[missing[0]])

    def names(self) -> tuple[str, ...]:
        return (str(self.type),) if self.type is not None else numbered(self.types or (), "T")

    def flaws(self) -> Iterator[Flaw]:
        if self.broken & {"type", "types"}:
            return
        if self.has("type") == self.has("types"):
            cure = "write type: Smoke, types: [A, B] or types: 12"
            yield (), wrong("a stream has either type: or types:", cure)
        elif len({*self.names()}) < max(len(self.names()), 1):
            yield ("types",), wrong("a type is missing or stands twice", "name each once")
        elif odd := [name for name in self.names() if not NAME.fullmatch(name)]:
            at = "type" if self.has("type") else "types"
            yield (at,), wrong(f"{odd[0]!r} cannot be named in rules", "use letters, digits and _")


class PlainPart(StreamPart):
    """A stream with a rate."""

    WHAT: ClassVar = "a stream"
    NEEDS: ClassVar = {"rate": "write that of all its events together, as in 200/s"}

    rate: Annotated[float, TextEntry("the rate", "", rate_per_s)]
    arrivals: Annotated[ArrivalsPart | None, Given()] = None
    zipf: ZipfPart = ZipfPart.model_construct()


class MovingPart(StreamPart):
    """Vehicles that are heard of at equal distances."""

    WHAT: ClassVar = "a stream of vehicles"
    NEEDS: ClassVar = {"every": "write how often a vehicle is heard of, as in 1s"}

    vehicles: Annotated[int, whole("the number of vehicles", 1, CELLS_MAX)]
    every: Annotated[int, TextEntry("every", "", EVERY)]
    area: Annotated[tuple[float, float, float, float] | None, numbers("the area", 4, f"write {AREA}")] = None
    speed: Annotated[Point, numbers("the speed", 2, "write [5, 15], in m/s")] = (5.0, 15.0)
    roads: Annotated[float | None, within("the distance of roads", 1, 1e6)] = None

    def flaws(self) -> Iterator[Flaw]:
        yield from super().flaws()
        if len(self.names()) > 1:
            yield ("types",), wrong("vehicles of a stream have one type", "write a stream for each type")
        if not 0.1 <= self.speed[0] <= self.speed[1] <= 1000:
            yield ("speed",), wrong("speeds are from 0.1 to 1000 m/s", "write [slowest, fastest]")


# --- the whole --------------------------------------------------------------------------------------------------------


def _moment_us(text: Scalar) -> int:
    """When a trace starts; without a zone it is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        cure = "write one in ISO 8601, such as 2026-01-31T12:00:00Z"
        raise wrong(f"{str(text)!r} is not a date and time", cure) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


Nodes = Annotated[
    Annotated[
        NamedEntries[Annotated[Point, numbers("the node <0>", 2, "write [latitude, longitude]")]],
        Named("nodes"),
        Tag(MAPPING),
    ]
    | Annotated[
        tuple[Scalar, ...] | int, several("a node", "the number of nodes", CELLS_MAX, NODES_EXAMPLE), Tag(VALUE)
    ],
    Discriminator(lambda entry: MAPPING if shape(entry) == MAPPING else VALUE),
]


def _stream(entry: object) -> str:
    return "<vehicles>" if isinstance(entry, KeyTable) and "vehicles" in entry.entries else "<events>"


class GenerationPart(FilePart):
    """Generated events."""

    WHAT: ClassVar = "generate"

    seed: Annotated[int, whole("the seed", 0, 2**63 - 1)] = 1
    start: Annotated[int, TextEntry("the start", "", _moment_us)] = 0
    duration: Annotated[int, TextEntry("the duration", "", LENGTH)]
    nodes: Nodes
    streams: Annotated[
        tuple[
            Annotated[
                Annotated[PlainPart, Tag("<events>")] | Annotated[MovingPart, Tag("<vehicles>")],
                Discriminator(_stream),
            ],
            ...,
        ],
        Listed("streams"),
    ]

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        message = f"generate does not say {' and '.join(f'{key}:' for key in missing)}"
        return wrong(message, NODES_EXAMPLE if "nodes" in missing else "")

    def flaws(self) -> Iterator[Flaw]:
        names = self.names()
        if len({*names}) < max(len(names), 1) and "nodes" not in self.broken:
            yield ("nodes",), wrong("a node is missing or stands twice", "name each once")
        for name, (latitude, longitude) in self.places().items():
            if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
                message = f"the node {name} lies nowhere on Earth"
                yield ("nodes", name), wrong(message, "write [latitude, longitude]")

    def names(self) -> tuple[str, ...]:
        return tuple(map(str, self.nodes)) if isinstance(self.nodes, NamedEntries) else numbered(self.nodes, "n")

    def places(self) -> dict[str, Point]:
        return {str(name): point for name, point in self.nodes.items()} if isinstance(self.nodes, NamedEntries) else {}


def generation_of(sheet: Sheet, part: GenerationPart, name: str) -> Generation:
    """What is to be generated. Mistakes in how the streams fit together are noted in the sheet."""
    streams: list[GeneratedStream] = []
    kinds: dict[str, str] = {}
    for stream_part in part.streams:
        nodes = _nodes(sheet, part, stream_part)
        reserved = MOTION_KINDS if isinstance(stream_part, MovingPart) else {}
        attributes = (
            attributes_of(sheet, stream_part.attributes, reserved) if stream_part.attributes is not None else {}
        )
        bare = GeneratedStream(stream_part.names(), nodes, 0.0, attributes=attributes)
        if isinstance(stream_part, MovingPart):
            stream = _moving(sheet, stream_part, bare, part.places())
        else:
            stream = _plain(sheet, stream_part, bare, part.duration)
        for attribute, kind in stream.kinds().items():
            if kinds.setdefault(attribute, kind) != kind:
                message = f"{attribute} is {kind} here and {kinds[attribute]} in an earlier stream"
                sheet.error(stream_part.place, message, "give one of them another name, or both the same kind")
        streams.append(stream)
    if not streams and not sheet.errors:
        sheet.error(part.at("streams"), "the list of streams is empty", "write at least one")
    generation = Generation(name, part.seed, part.start, part.duration, tuple(streams), part.places())
    if generation.expected() > EVENTS_MAX and not sheet.errors:
        message = f"this would make about {generation.expected():,} events, more than {EVENTS_MAX:,}"
        sheet.error(part.at("streams"), message, "make the duration shorter, or the rates smaller")
    return generation


def _nodes(sheet: Sheet, part: GenerationPart, stream: StreamPart) -> tuple[str, ...]:
    names = part.names()
    if stream.nodes is None or "nodes" in part.broken:
        return names
    chosen = tuple(map(str, stream.nodes))
    unknown = [name for name in chosen if name not in names]
    if unknown or (len({*chosen}) < max(len(chosen), 1) and "nodes" not in stream.broken):
        message = f"there is no node {unknown[0]}" if unknown else "nodes are missing or stand twice"
        cure = f"the nodes are {', '.join(names[:8])}{', ..' if len(names) > 8 else ''}"
        sheet.error(stream.at("nodes"), message, cure)
    return tuple(name for name in chosen if name in names)


def _plain(sheet: Sheet, part: PlainPart, bare: GeneratedStream, length_us: int) -> GeneratedStream:
    arrivals = Poisson() if part.arrivals is None else part.arrivals.build()
    match arrivals:
        case Bursty(on, off) if "arrivals" not in part.broken and not (
            on and off and 2 * length_us / (on + off) <= STATES_MAX
        ):
            message = f"this would switch on and off more than {STATES_MAX:,} times"
            sheet.error(part.at("arrivals"), message, "make on: and off: longer")
    if bare.cells > CELLS_MAX:
        message = f"the stream has {bare.cells:,} types times nodes, more than {CELLS_MAX:,}"
        sheet.error(part.place, message, "divide it")
    return replace(
        bare, rate_per_s=part.rate, arrivals=arrivals, types_zipf=part.zipf.types, nodes_zipf=part.zipf.nodes
    )


def _moving(sheet: Sheet, part: MovingPart, bare: GeneratedStream, places: Mapping[str, Point]) -> GeneratedStream:
    unplaced = [name for name in bare.nodes if name not in places]
    if unplaced:
        message = f"vehicles need nodes with coordinates, and {unplaced[0]} has none"
        cure = "write nodes: {turin: [45.07, 7.69], ..} under generate:"
        sheet.error(part.at_key("vehicles"), message, cure)
    area = part.area
    if area is None:  # the least area that holds all nodes
        north, east = zip(*(places.get(name, (0.0, 0.0)) for name in bare.nodes or ("",)), strict=True)
        area = (min(north), max(north), min(east), max(east))
    motion = Motion(part.vehicles, *area, *part.speed, part.roads)
    empty = not (-90 < area[0] < area[1] < 90 and -180 <= area[2] < area[3] <= 180)
    high, wide = (motion.north - motion.south) * 111_000, _width_m(motion)
    if unplaced or not bare.nodes or "area" in part.broken:
        pass
    elif empty:
        at = part.at("area") if part.has("area") else part.place
        sheet.error(at, "the area of the vehicles is empty", f"write area: {AREA}")
    elif part.roads is not None and part.roads > min(high, wide):
        message = f"the area is {high:,.0f} m high and {wide:,.0f} m wide, so it has no two roads"
        sheet.error(part.at("roads"), message, "write the distance of neighbouring roads in metres")
    return replace(bare, rate_per_s=part.vehicles * 1e6 / part.every, arrivals=Regular(), motion=motion)


def _width_m(motion: Motion) -> float:
    return (motion.east - motion.west) * 111_000 * math.cos(math.radians((motion.south + motion.north) / 2))
