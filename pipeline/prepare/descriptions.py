"""The description of a raw data set that ``headwater traces`` is given: how its rows become events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

FORMATS: Final = ("csv", "jsonl", "parquet", "zeek")

UNITS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
"""Numbers as times: how many microseconds each counts."""

FILE: Final = "file"
"""A column that every source has: the name of the file that a row is from, without its folder."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the rows are. ``columns`` names those of CSV files without a header."""

    patterns: tuple[str, ...]
    format: str
    delimiter: str = ","
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class NumberTime:
    """A number since 1970 (``epoch``), or since whatever moment the data set begins at."""

    value: str
    unit: str
    epoch: bool = True


@dataclass(frozen=True, slots=True)
class TextTime:
    """A date and time as text: in a pattern of Spark's, or else in ISO 8601. Without a zone it is in ``zone``."""

    value: str
    pattern: str | None = None
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class ClockTime:
    """Hours, minutes and seconds since the data set began (``743:59:59``)."""

    value: str


Time: TypeAlias = NumberTime | TextTime | ClockTime


@dataclass(frozen=True, slots=True)
class KeptAttribute:
    """An attribute: an expression over the columns, and what kind of value it gives."""

    value: str
    kind: str


@dataclass(frozen=True, slots=True)
class ByValue:
    """The node is named by an expression; ``names`` translates what it says, and what it does not name is bad."""

    value: str
    names: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ByHash:
    """Equal values are born at the same node, and each of the nodes gets about as many."""

    value: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """Latitudes and longitudes from (included) to (excluded)."""

    south: float
    north: float
    west: float
    east: float


@dataclass(frozen=True, slots=True)
class ByRegion:
    """The first region that holds the point; ``otherwise`` outside all of them, or else the row is bad."""

    latitude: str
    longitude: str
    regions: Mapping[str, Region]
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class ByNearest:
    """The node that lies nearest to the point."""

    latitude: str
    longitude: str
    nodes: Mapping[str, tuple[float, float]]


Place: TypeAlias = ByValue | ByHash | ByRegion | ByNearest


@dataclass(frozen=True, slots=True)
class RawSource:
    """Files of one kind, and how a row of them becomes an event. Rows that do not meet ``where`` are left out."""

    files: Files
    type: str
    time: Time
    place: Place
    attributes: Mapping[str, KeptAttribute] = field(default_factory=dict)
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """A data set. Where rows have the same node and time, those of earlier sources come first."""

    name: str
    sources: tuple[RawSource, ...]
    about: str = ""

    def kinds(self) -> dict[str, str]:
        """The kind of every attribute that any source gives."""
        return {name: kept.kind for source in self.sources for name, kept in source.attributes.items()}
