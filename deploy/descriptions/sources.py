"""The description of a raw data set: its files, and how their rows become events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Final
from zoneinfo import available_timezones

from pydantic import Field
from pydantic_core import PydanticCustomError

from headwater.deploy.network.fields import HIDDEN, FilePart, Given, Listed, Named, NamedEntries, OneOrMore
from headwater.deploy.network.mistakes import Flaw, mistake, wrong
from headwater.deploy.network.values import TextEntry, numbered, numbers, several
from headwater.deploy.network.yaml_tree import Scalar
from headwater.pipeline.prepare.descriptions import (
    FORMATS,
    UNITS,
    ByHash,
    ByNearest,
    ByRegion,
    ByValue,
    ClockTime,
    Files,
    KeptAttribute,
    NumberTime,
    Place,
    RawSource,
    Region,
    TextTime,
    Time,
)

KINDS: Final = ("string", "int", "float", "bool")
FILES_EXAMPLE: Final = 'write files: "trips-*.csv.gz", or a list of such names'
TIME_EXAMPLE: Final = (
    "write time: {value: unix_time, unit: s}, time: {value: started, zone: Europe/Berlin} or time: {clock: t}"
)
NODE_EXAMPLE: Final = "write node: {value: station}, node: {hash: bikeid, nodes: 10}, or one of region and nearest"
NODE_WAYS: Final = ("value", "hash", "region", "nearest")
OFFSET: Final = re.compile(r"(UTC|GMT)?[+-]\d{1,2}(:\d{2})?|Z")
NODES_MAX: Final = 100_000

# --- times ------------------------------------------------------------------------------------------------------------


def _unit(text: Scalar) -> str:
    if text not in UNITS:
        raise wrong(f"{str(text)!r} is not a unit of time", f"write one of {', '.join(UNITS)}")
    return str(text)


def _epoch(text: Scalar) -> bool:
    if text not in ("yes", "no", "true", "false"):
        raise wrong("epoch: is yes or no", "no: the numbers count from a moment of their own")
    return text in ("yes", "true")


def _zone(text: Scalar) -> str:
    if text and not OFFSET.fullmatch(text) and text not in (available_timezones() or (text,)):
        raise wrong(f"there is no time zone {str(text)!r}", "write one like Europe/Berlin, UTC or +02:00")
    return str(text) or "UTC"


class RawTimePart(FilePart):
    """The time of an event."""

    WHAT: ClassVar = "the time"
    EXAMPLE: ClassVar = TIME_EXAMPLE
    SHORT: ClassVar = HIDDEN

    short: Annotated[Scalar | None, TextEntry("the time", TIME_EXAMPLE)] = Field(None, alias=HIDDEN)
    value: Annotated[Scalar | None, TextEntry("the time", TIME_EXAMPLE)] = None
    unit: Annotated[str | None, TextEntry("the unit", "", _unit)] = None
    epoch: Annotated[bool, TextEntry("epoch", "", _epoch)] = True
    pattern: Annotated[Scalar | None, TextEntry("the pattern")] = None
    zone: Annotated[str, TextEntry("the zone", "", _zone)] = "UTC"
    clock: Annotated[Scalar | None, TextEntry("the time", TIME_EXAMPLE)] = None

    def flaws(self) -> Iterator[Flaw]:
        if self.short is None and self.has("value") == self.has("clock") and not self.broken:
            yield (), wrong("the time needs either value: or clock:", TIME_EXAMPLE)
        if self.has("value") and self.has("epoch") and not self.has("unit") and not self.broken:
            yield ("epoch",), wrong("epoch: is for numbers", "add their unit:, as in unit: s", at_key=True)

    def build(self) -> Time:
        if self.clock is not None:
            return ClockTime(str(self.clock))
        value = str(self.short if self.value is None else self.value)
        if self.unit is not None:
            return NumberTime(value, self.unit, self.epoch)
        return TextTime(value, _str(self.pattern), self.zone)


def _str(text: Scalar | None) -> str | None:
    return None if text is None else str(text)


# --- nodes ------------------------------------------------------------------------------------------------------------


class PointPart(FilePart):
    """A node that follows from a point on Earth."""

    latitude: Annotated[Scalar, TextEntry("the latitude")]
    longitude: Annotated[Scalar, TextEntry("the longitude")]

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        return wrong(f"{cls.WHAT} lacks {', '.join(missing)}", cls.EXAMPLE)


class RegionPart(PointPart):
    WHAT: ClassVar = "region"
    EXAMPLE: ClassVar = "write region: {latitude: lat, longitude: lon, regions: {north: [45.1, 46, 7, 9]}}"

    regions: Annotated[
        NamedEntries[
            Annotated[tuple[float, ...], numbers("the region <0>", 4, "write <0>: [south, north, west, east]")]
        ],
        Named("the regions"),
    ]
    otherwise: Annotated[Scalar | None, TextEntry("otherwise")] = None

    def flaws(self) -> Iterator[Flaw]:
        for name, (south, north, west, east) in self.regions.items():
            if south >= north or west >= east:
                yield ("regions",), wrong(f"the region {name} is empty", "write [south, north, west, east]")
        if not self.regions and not self.broken:
            yield (), self.lacking(["regions"])

    def build(self) -> Place:
        regions = {str(name): Region(*ends) for name, ends in self.regions.items()}
        return ByRegion(str(self.latitude), str(self.longitude), regions, _str(self.otherwise))


class NearestPart(PointPart):
    WHAT: ClassVar = "nearest"
    EXAMPLE: ClassVar = "write nearest: {latitude: lat, longitude: lon, nodes: {turin: [45.07, 7.69]}}"

    nodes: Annotated[
        NamedEntries[Annotated[tuple[float, float], numbers("the node <0>", 2, "write <0>: [latitude, longitude]")]],
        Named("the nodes"),
    ]

    def flaws(self) -> Iterator[Flaw]:
        if not self.nodes and not self.broken:
            yield (), self.lacking(["nodes"])

    def build(self) -> Place:
        nodes = {str(name): point for name, point in self.nodes.items()}
        return ByNearest(str(self.latitude), str(self.longitude), nodes)


class RawNodePart(FilePart):
    """At which node an event enters."""

    WHAT: ClassVar = "the node"
    EXAMPLE: ClassVar = NODE_EXAMPLE
    SHORT: ClassVar = HIDDEN

    short: Annotated[Scalar | None, TextEntry("the node", NODE_EXAMPLE)] = Field(None, alias=HIDDEN)
    value: Annotated[Scalar | None, TextEntry("the node")] = None
    hash: Annotated[Scalar | None, TextEntry("what is hashed")] = None
    region: Annotated[RegionPart | None, Given()] = None
    nearest: Annotated[NearestPart | None, Given()] = None
    names: Annotated[
        NamedEntries[Annotated[Scalar, TextEntry("the node for <0>")]] | None, Named("the names of nodes")
    ] = None
    nodes: Annotated[
        tuple[Scalar, ...] | int | None,
        several("a node", "the number of nodes", NODES_MAX, "write nodes: 10, or a list of names"),
    ] = None

    def flaws(self) -> Iterator[Flaw]:
        if self.short is None and sum(map(self.has, NODE_WAYS)) != 1 and not self.broken:
            yield (), wrong(f"the node is given by one of {', '.join(NODE_WAYS)}", NODE_EXAMPLE)
        if self.has("hash") and not self.has("nodes") and not self.broken:
            cure = "write nodes: 10, or a list of names"
            yield ("hash",), wrong("a hash needs nodes to choose from", cure, at_key=True)
        if isinstance(self.nodes, tuple) and len({*self.nodes}) < max(len(self.nodes), 1) and not self.broken:
            yield ("nodes",), wrong("nodes are missing or stand twice", "name each once")

    def build(self) -> Place:
        if self.region is not None or self.nearest is not None:
            return (self.region or self.nearest).build()  # type: ignore[union-attr]
        if self.hash is not None:
            return ByHash(str(self.hash), numbered(self.nodes or 0, "n"))
        names = None if self.names is None else {str(written): str(name) for written, name in self.names.items()}
        return ByValue(str(self.value if self.short is None else self.short), names)


# --- sources ----------------------------------------------------------------------------------------------------------


class KeptPart(FilePart):
    """An attribute: ``kind`` for a column of its name, or an expression and its kind."""

    WHAT: ClassVar = "the attribute <0>"
    SHORT: ClassVar = HIDDEN

    short: Annotated[Scalar | None, TextEntry("the kind of <0>")] = Field(None, alias=HIDDEN)
    value: Annotated[Scalar | None, TextEntry("the value of <1>")] = None
    kind: Annotated[Scalar | None, TextEntry("the kind of <1>")] = None

    def flaws(self) -> Iterator[Flaw]:
        cure = f"one of {', '.join(KINDS)}"
        kind = self.kind if self.short is None else self.short
        if kind is not None and kind not in KINDS:
            yield (), wrong(f"{str(kind)!r} is not a kind of attribute", f"write {cure}")
        if kind is None and not self.broken:
            yield (), mistake("lacking", what=self.WHAT, why="has no kind", cure=f"write kind: and {cure}")


def _inside(text: Scalar) -> Scalar:
    if Path(text).is_absolute() or ".." in Path(text).parts:
        raise wrong(f"{text} leads out of the folder of the data", "name files as they lie in it")
    return text


def _delimiter(text: Scalar) -> str:
    delimiter = {"tab": "\t", "\\t": "\t"}.get(text, str(text)) or ","
    if len(delimiter) != 1:
        raise wrong(f"{delimiter!r} is not one character", "write one, or tab")
    return delimiter


class RawSourcePart(FilePart):
    """Files, and how their rows become events."""

    WHAT: ClassVar = "a source"

    files: Annotated[tuple[Annotated[Scalar, TextEntry("a file", FILES_EXAMPLE, _inside)], ...], OneOrMore()]
    format: Annotated[Scalar | None, TextEntry("the format")] = None
    delimiter: Annotated[str, TextEntry("the delimiter", "", _delimiter)] = ","
    columns: Annotated[tuple[Annotated[Scalar, TextEntry("a column")], ...] | None, Listed("columns")] = None
    where: Annotated[Scalar | None, TextEntry("where")] = None
    type: Annotated[Scalar, TextEntry("the type")]
    time: RawTimePart
    node: Annotated[RawNodePart | None, Given()] = None
    attributes: Annotated[
        NamedEntries[KeptPart] | None, Named("the attributes", "write attributes: {bike: {value: bikeid, kind: int}}")
    ] = None

    @classmethod
    def lacking(cls, missing: list[str]) -> PydanticCustomError:
        message = f"the source does not say {' and '.join(f'{key}:' for key in missing)}"
        return wrong(message, NODE_EXAMPLE if missing == ["node"] else "")

    def flaws(self) -> Iterator[Flaw]:
        if not self.files and "files" not in self.broken:
            yield ("files",), self.lacking(["files"])
        elif not self.broken & {"files", "format"} and self.format_of_files not in FORMATS:
            at = "format" if self.has("format") else "files"
            message = f"the format is {self.format_of_files or 'not given'}"
            yield (at,), wrong(message, f"write format: and one of {', '.join(FORMATS)}")
        elif self.columns is not None and self.format_of_files not in ("csv", None):
            message = f"columns are named in {self.format_of_files} files themselves"
            yield ("columns",), wrong(message, "leave columns: out", at_key=True)
        for name in self.attributes or ():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                cure = "use letters, digits and _, and begin with a letter"
                yield ("attributes", name), wrong(f"{str(name)!r} cannot be named in rules", cure)

    @property
    def format_of_files(self) -> str | None:
        """As it is written, or as the name of the first file ends."""
        if self.format is not None or not self.files:
            return _str(self.format)
        suffixes = [
            suffix for ending in Path(self.files[0]).suffixes if (suffix := ending.rstrip("*")) not in (".gz", ".")
        ]
        return {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet"}.get(
            suffixes[-1] if suffixes else ""
        )

    def build(self, common: RawNodePart | None) -> RawSource:
        columns = None if self.columns is None else tuple(map(str, self.columns))
        files = Files(tuple(map(str, self.files)), str(self.format_of_files), self.delimiter, columns)
        place = self.node or common
        assert place is not None
        attributes = {
            str(name): KeptAttribute(str(kept.value or f"`{name}`"), str(kept.short or kept.kind))
            for name, kept in (self.attributes or {}).items()
        }
        return RawSource(files, str(self.type), self.time.build(), place.build(), attributes, _str(self.where))


class PlacedSourcePart(RawSourcePart):
    """A source in a description that has no node for all of them."""

    node: RawNodePart
