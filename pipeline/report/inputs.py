"""The record files of a run: which are there, which are missing, and how Spark reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.pipeline.report.shape import Shape
from headwater.pipeline.spark.paths import to_read
from headwater.protocol.errors import ConfigError
from headwater.protocol.formats import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FILE: Final = re.compile(r"(metrics|matches|births)-(\d+)\.jsonl")

VALUES: Final = "ARRAY<STRUCT<name: STRING, labels: MAP<STRING, STRING>, value: DOUBLE>>"
"""Of counters and gauges."""

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "metrics": {
        "v": "INT", "run": "STRING", "network": "STRING", "strategy": "STRING", "node": "STRING", "life": "STRING",
        "time": "LONG", "since": "LONG", "born_from": "LONG", "born_to": "LONG", "counters": VALUES, "gauges": VALUES,
    },
    "matches": {
        "v": "INT", "run": "STRING", "node": "STRING", "sink": "INT", "number": "LONG", "id": "STRING",
        "rule": "STRING", "version": "INT", "type": "STRING", "ts": "LONG", "end_node": "STRING", "end_seq": "LONG",
        "delivered": "LONG", "latency_us": "LONG",
    },
    "births": {
        "v": "INT", "run": "STRING", "node": "STRING", "time": "LONG", "first_seq": "LONG", "last_seq": "LONG",
        "first_ts": "LONG", "last_ts": "LONG", "events": "LONG", "trace": "STRING",
    },
}  # fmt: skip
"""Every kind of records with its fields and the type of each."""


def schema_of(kind: str) -> str:
    """The fields of a kind of records, as Spark takes them."""
    return ", ".join(f"{name} {type_}" for name, type_ in FIELDS[kind].items())


NEEDED: Final = {
    "metrics": ("node", "time", "since"),
    "matches": ("node", "sink", "number", "id", "rule", "ts", "delivered"),
    "births": ("node", "time", "first_seq", "last_seq", "events"),
}
"""What a line must say to be one; a line that was cut lacks some of it or is no JSON at all."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run to be reported on: under which name, what it was, and where each node has its records."""

    label: str
    shape: Shape
    folders: Mapping[str, Path]


@dataclass(frozen=True, slots=True)
class ReportNote:
    """Something that a reader of the report must know: what is missing, left out or doubtful."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, by kind."""

    files: Mapping[str, Sequence[Path]]
    notes: Sequence[ReportNote]

    def bytes(self) -> int:
        """How large they are together."""
        return sum(path.stat().st_size for files in self.files.values() for path in files)


def find_files(run: Recorded) -> RunFiles:
    """The files of a run; notes on nodes without records and on files that have been rotated away.

    A run of which nothing is there is a ConfigError.
    """
    files: dict[str, list[Path]] = {kind: [] for kind in FIELDS}
    missing: list[str] = []
    gone: dict[str, list[str]] = {kind: [] for kind in FIELDS}
    torn: list[str] = []
    for node in run.shape.nodes:
        numbered = _numbered_files(run.folders.get(node))
        if not any(numbered.values()):
            missing.append(node)
        for kind, by_number in numbered.items():
            files[kind] += [path for _, path in by_number]
            numbers = [number for number, _ in by_number]
            if numbers and min(numbers) > 1:
                gone[kind].append(f"{node} ({min(numbers) - 1:,})")
            if numbers and max(numbers) - min(numbers) + 1 != len(numbers):
                torn.append(f"{node}/{kind}")
    if not files["metrics"] and not files["matches"]:
        where = next(iter(run.folders.values()), "nowhere")
        raise ConfigError(
            f"{run.label}: no node has left records (looked in {where} and beside); a network writes them while it "
            "runs, and a simulation with --record"
        )
    return RunFiles(files, [ReportNote(run.label, text) for text in _absences(missing, gone, torn)])


def _numbered_files(folder: Path | None) -> dict[str, list[tuple[int, Path]]]:
    """The files of one node by kind, each with its number, in order of their names."""
    numbered: dict[str, list[tuple[int, Path]]] = {kind: [] for kind in FIELDS}
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        name = _FILE.fullmatch(path.name)
        if name is not None:
            numbered[name[1]].append((int(name[2]), path))
    return numbered


def _absences(missing: Sequence[str], gone: Mapping[str, Sequence[str]], torn: Sequence[str]) -> Iterator[str]:
    if missing:
        yield f"no records of {', '.join(missing)}: what they sent, held and delivered is not counted"
    for kind, nodes in gone.items():
        if nodes:
            rotated = f"the oldest files of {kind} have been rotated away: {', '.join(nodes)}"
            yield f"{rotated}; what stood in them is not covered"
    if torn:
        yield f"files are missing in between: {', '.join(torn)}"


def read_lines(spark: SparkSession, kind: str, runs: Iterable[tuple[int, Sequence[Path]]]) -> DataFrame | None:
    """All lines of a kind: ``i`` (number of the run), the fields, and ``whole``: whether it is a line of this version.

    None where no run has a file of the kind. Every run is read once.
    """
    from pyspark.sql import functions as F

    run_of_path = {str(path.resolve()): i for i, files in runs for path in files}
    if not run_of_path:
        return None
    read = (
        spark.read.schema(f"{schema_of(kind)}, _bad STRING")
        .option("columnNameOfCorruptRecord", "_bad")
        .json([to_read(Path(path)) for path in run_of_path])
        .withColumn("i", _number_of_run(run_of_path))
    )
    is_whole = F.col("_bad").isNull() & (F.col("v") == RECORDS)
    for name in NEEDED[kind]:
        is_whole &= F.col(name).isNotNull()
    return read.withColumn("whole", F.coalesce(is_whole, F.lit(False)))


def _number_of_run(run_of_path: Mapping[str, int]) -> Column:
    """The number of the run that the file of a row belongs to. All runs are read together: one job, few tasks."""
    from pyspark.sql import functions as F

    if len(set(run_of_path.values())) == 1:
        return F.lit(next(iter(run_of_path.values())))
    # Spark tells files as addresses, in which unusual characters are written as %XX; a plus is a plus.
    address = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    path = F.regexp_replace(address, "^file:/+", "/")
    numbers = F.from_json(F.lit(json.dumps(run_of_path)), "MAP<STRING, INT>")
    return F.element_at(numbers, path)
