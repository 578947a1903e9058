"""Recorded streams with the attributes that queries compare, so that the case studies can be run on them.

They are read from a folder that the user names, each from a folder of its own below it:

- ``inev-citibike-bikes``: for 10 nodes ``nodeN.csv.gz`` with time (H:MM:SS), type (a letter), bike, and bike mod 10;
- ``citibike``: the operator's monthly files (``*-citibike-tripdata.csv.gz``), from which types are derived;
- ``borg2019``: a sample of a cluster's task events (``instance_events_1.csv.gz``).
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from headwater.protocol.errors import ConfigError

SECOND_US: Final = 1_000_000
DAY_S: Final = 86_400

Occurrence = tuple[int, int, str, int]
"""When (microseconds), at which node, of which type, and the value that the events of a match agree in."""

CITI_BIKE: Final = {
    1: ("AND(E e, F f, G g, H h)",),
    2: ("SEQ(C c, D d, E e, I i)",),
    3: ("AND(A a, SEQ(D d, I i), F f)",),
    4: ("SEQ(A a, AND(B b, I i), E e)", "AND(E e, F f, C c, H h)"),
}
"""By number; the fourth is a pair that shares types. Trips are A to C short, D to F long, G to I very long; of each the
first letter is for riders born before 1962, the second for younger ones, the third for customers."""

CLUSTER: Final = {
    1: ("SEQ(A a, H h, B b, I i)",),
    2: ("SEQ(A a, B b, G g, F f, I i)",),
    3: ("SEQ(I i, B b, D d, H h, G g)",),
    4: ("SEQ(B b, C c, F f, H h)",),
}
"""As the stored plans of the authors have them. A submit, B schedule, C evict, D fail, E finish, F kill, G lost,
H update while pending, I update while running."""

BORG: Final = {
    1: ("SEQ(A a, H h, B b)",),
    2: ("SEQ(A a, B b, G g)",),
    3: ("SEQ(B b, D d, H h, G g)",),
    4: ("SEQ(B b, C c, D d, H h)",),
    5: ("SEQ(A a, B b, D d)",),
    6: ("SEQ(J j, B b, D d)",),
}
"""The same as far as the sample has their types: it has no kills and no updates of running tasks, so the first three
leave these out; the fourth asks for failures, as the paper's text has it. Five and six are ours, and have matches:
tasks that were submitted (or enabled, J), scheduled, and failed."""

TABLE_3: Final[Mapping[str, Mapping[int, float]]] = {
    "Citi Bike": {1: 0.00007, 2: 0.0005, 3: 0.00001, 4: 0.00008},
    "Cluster Monitoring": {1: 0.00006, 2: 0.00008, 3: 0.002, 4: 0.00009},
}
"""The paper's transmission ratios."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A stream on disk, and what is asked of it."""

    name: str
    folder: str
    nodes: int
    days: float
    """How long it lasts."""
    key: str
    """What the value is called that the events of a match agree in."""
    window_s: int
    queries: Mapping[int, tuple[str, ...]]
    seconds: float
    """About how long a query takes on one core, all days of it."""
    files: Callable[[Path], list[Path]]
    read: Callable[[Path], Iterator[Occurrence]]
    """The occurrences in one of its files."""

    def occurrences(self, data: Path, days: int) -> list[Occurrence]:
        """Those of the first days, in order; ConfigError if a file is missing or holds something else."""
        return _occurrences(self.name, data, min(days, 1 + int(self.days)))

    def check(self, data: Path) -> None:
        """ConfigError if a file is missing, before anything is run."""
        for file in self.files(data / self.folder):
            if not file.is_file():
                raise ConfigError(f"there is no {file}; --data is the folder that {self.folder} is in")


def present(data: Path, folder: str) -> bool:
    """Whether a recording is there."""
    return (data / folder).is_dir()


@lru_cache(maxsize=2)
def _occurrences(name: str, data: Path, days: int) -> list[Occurrence]:
    recording = RECORDINGS[name]
    recording.check(data)
    end_us = days * DAY_S * SECOND_US
    occurrences: list[Occurrence] = []
    for file in recording.files(data / recording.folder):
        occurrences += (occurrence for occurrence in recording.read(file) if occurrence[0] < end_us)
    return sorted(occurrences)


@contextmanager
def _lines(file: Path, content: str) -> Iterator[Iterator[str]]:
    try:
        with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
            yield iter(lines)
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot read {file}: {why}") from None
    except (ValueError, KeyError):
        raise ConfigError(f"{file} does not hold lines of {content}") from None


# -- Citi Bike with the types of the authors ---------------------------------------------------------------------------


def _bike_files(folder: Path) -> list[Path]:
    return [folder / f"node{node}.csv.gz" for node in range(10)]


def _read_bikes(file: Path) -> Iterator[Occurrence]:
    node = int(file.name.removeprefix("node").removesuffix(".csv.gz"))
    with _lines(file, "time, type, bike and bike mod 10") as lines:
        for line in lines:
            clock, kind, bike, _ = line.split(",")
            hours, minutes, seconds = clock.split(":")
            second = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
            yield second * SECOND_US, node, kind, int(bike)


# -- Citi Bike as the operator publishes it ----------------------------------------------------------------------------

SHORT_S: Final = 100
LONG_S: Final = 5000
OLD_YEAR: Final = 1962  # riders born earlier have types of their own
JERSEY_NODES: Final = 10
JERSEY_BEGIN: Final = datetime(2019, 1, 1)


def _trip_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-citibike-tripdata.csv.gz")) or [folder / "JC-201901-citibike-tripdata.csv.gz"]


def _read_trips(file: Path) -> Iterator[Occurrence]:
    """A trip occurs when it ends, at the node of its end station."""
    with _lines(file, "trips with tripduration, stoptime, end station id, bikeid, usertype and birth year") as lines:
        for row in csv.DictReader(lines):
            since = datetime.fromisoformat(row["stoptime"]) - JERSEY_BEGIN
            node = int(row["end station id"]) % JERSEY_NODES
            yield round(since.total_seconds() * SECOND_US), node, trip_type(row), int(row["bikeid"])


def trip_type(row: Mapping[str, str]) -> str:
    """A to I: by how long the trip took, and by whom."""
    duration_s = float(row["tripduration"])
    length = 0 if duration_s < SHORT_S else 1 if duration_s <= LONG_S else 2
    born = float(row["birth year"] or OLD_YEAR)
    rider = 2 if row["usertype"] == "Customer" else 0 if born < OLD_YEAR else 1
    return "ABCDEFGHI"[3 * length + rider]


# -- a cluster ---------------------------------------------------------------------------------------------------------

BORG_NODES: Final = 10
BORG_TYPES: Final = {0: "A", 1: "K", 2: "J", 3: "B", 4: "C", 5: "D", 6: "E", 7: "F", 8: "G", 9: "H", 10: "I"}


def _borg_files(folder: Path) -> list[Path]:
    return [folder / "instance_events_1.csv.gz"]


def _read_borg(file: Path) -> Iterator[Occurrence]:
    """A task's event occurs at the node of its machine; tasks of one job belong together."""
    with _lines(file, "time_us, event_type, collection_id and machine_id") as lines:
        for row in csv.DictReader(lines):
            node = int(row["machine_id"]) % BORG_NODES
            yield int(row["time_us"]), node, BORG_TYPES[int(row["event_type"])], int(row["collection_id"])


RECORDINGS: Final[Mapping[str, Recording]] = {
    recording.name: recording
    for recording in (
        Recording("Citi Bike", "inev-citibike-bikes", 10, 31, "bike", DAY_S, CITI_BIKE, 310, _bike_files, _read_bikes),
        Recording("Jersey City", "citibike", JERSEY_NODES, 91, "bike", DAY_S, CITI_BIKE, 20, _trip_files, _read_trips),
        Recording("Borg", "borg2019", BORG_NODES, 17.44, "job", 1800, BORG, 40, _borg_files, _read_borg),
    )
}
