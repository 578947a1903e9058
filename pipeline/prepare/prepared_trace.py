"""Prepared traces: a folder of Parquet files by node, each node's in trace order, and a manifest that says what it is.

The folder appears under its name only when everything is in it; a job that fails leaves nothing that looks complete.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from headwater.pipeline.spark.paths import to_read
from headwater.protocol.errors import ConfigError
from headwater.protocol.files import NewFolder
from headwater.protocol.formats import PREPARED_TRACE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MANIFEST: Final = "manifest.json"
EVENTS: Final = "events"
BAD_ROWS: Final = "bad-rows"
HEADER: Final = ("node", "type", "ts", "seq")


@dataclass(frozen=True, slots=True)
class TypeSummary:
    """What a trace holds of one type. ``attributes``: the kind of each, with a ? where some event lacks it."""

    events: int
    first_us: int
    last_us: int
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeSummary:
    events: int
    first_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in a prepared trace. ``checksum`` is of all events, in whatever order they are read."""

    name: str
    events: int
    first_us: int
    last_us: int
    checksum: str
    types: Mapping[str, TypeSummary]
    nodes: Mapping[str, NodeSummary]
    kinds: Mapping[str, str]
    """The columns of the files beside type, ts and seq, and the kind of each."""
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows that became no event, by reason; each of them is in the folder ``bad-rows``."""
    warnings: tuple[str, ...] = ()
    format: int = PREPARED_TRACE

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Manifest:
        return cls(
            **{
                **content,
                "types": {name: TypeSummary(**summary) for name, summary in content["types"].items()},
                "nodes": {name: NodeSummary(**summary) for name, summary in content["nodes"].items()},
                "warnings": tuple(content["warnings"]),
            }
        )


@dataclass(frozen=True, slots=True)
class PreparedTrace:
    """A prepared trace on disk."""

    folder: Path
    manifest: Manifest

    def events(self, spark: SparkSession) -> DataFrame:
        """``node``, ``type``, ``ts``, ``seq`` and the attributes; within a file in trace order."""
        from pyspark.sql import types as T

        spark_types = {"string": T.StringType(), "int": T.LongType(), "float": T.DoubleType(), "bool": T.BooleanType()}
        schema = T.StructType(
            [
                T.StructField("type", T.StringType()),
                T.StructField("ts", T.LongType()),
                T.StructField("seq", T.LongType()),
                *(T.StructField(name, spark_types[kind]) for name, kind in self.manifest.kinds.items()),
                T.StructField("node", T.StringType()),
            ]
        )
        return spark.read.schema(schema).parquet(to_read(self.folder / EVENTS))

    def files_of(self, node: str) -> list[str]:
        """The files with the events of a node, in trace order; none if the trace knows no such node."""
        folders = [path for path in (self.folder / EVENTS).glob("node=*") if _node_of(path) == node]
        return sorted(str(file) for folder in folders for file in folder.glob("*.parquet"))

    def check(self, spark: SparkSession) -> None:
        """A ConfigError if the events are not those that the manifest lists."""
        from pyspark.sql import functions as F

        totals = (
            self.events(spark).agg(F.count("*").alias("events"), checksum(self.manifest.kinds).alias("sum")).first()
        )
        assert totals is not None
        if totals["events"] != self.manifest.events or shown_sum(totals["sum"]) != self.manifest.checksum:
            raise ConfigError(
                f"{self.folder} does not hold what its manifest says: {totals['events']:,} events with the checksum "
                f"{shown_sum(totals['sum'])} instead of {self.manifest.events:,} with "
                f"{self.manifest.checksum}; prepare it again"
            )


def open_prepared(folder: Path) -> PreparedTrace:
    """A trace that ``headwater traces`` has prepared; a ConfigError if the folder is something else."""
    file = folder / MANIFEST
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} with a prepared trace; make one with headwater traces")
    if not file.is_file():
        raise ConfigError(f"{folder} has no {MANIFEST}, so it is not a prepared trace; make one with headwater traces")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content.get("format") != PREPARED_TRACE:
            raise ConfigError(f"{folder} was prepared by another version of Headwater; prepare it again")
        prepared = PreparedTrace(folder, Manifest.from_json(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} is damaged ({error}); prepare the trace again") from None
    there = {_node_of(path.parent) for path in (folder / EVENTS).glob("node=*/*.parquet")}
    gone = [node for node in prepared.manifest.nodes if node not in there]
    if gone:
        named = ", ".join(gone[:5]) + (", .." if len(gone) > 5 else "")
        raise ConfigError(f"{folder} lacks the events of {named}, which its manifest lists; prepare it again")
    return prepared


def _node_of(folder: Path) -> str:
    """Spark writes letters that may not stand in names of folders in their quoted form."""
    return unquote(folder.name[len("node=") :])


def write_manifest(folder: Path, manifest: Manifest) -> None:
    text = json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def checksum(kinds: Mapping[str, str]) -> Column:
    """An aggregate over all events that does not depend on their order."""
    from pyspark.sql import functions as F

    return F.sum(event_hash(kinds))


def event_hash(kinds: Mapping[str, str]) -> Column:
    """What the checksum adds up, of one event; sums leave out what is beyond 64 bits."""
    from pyspark.sql import functions as F

    return F.xxhash64(*HEADER, *(F.col(f"`{name}`") for name in kinds))


def shown_sum(value: int | None) -> str:
    return f"{(value or 0) & (1 << 64) - 1:016x}"


def check_target(folder: Path, *, overwrite: bool, mark: str = MANIFEST, kind: str = "prepared trace") -> None:
    """A ConfigError if a folder of this kind cannot be put there; only one that holds ``mark`` is overwritten."""
    if folder.exists() and not overwrite:
        raise ConfigError(f"{folder} exists already; name another folder, or write --overwrite")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, so it is not overwritten; name another folder")
    if folder.exists() and not (folder / mark).is_file() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not a {kind}, so it is not overwritten; name another folder")
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        raise ConfigError(f"cannot write {folder}: {above} is a file; name another folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write {folder}: nothing may be written into {above}; name another folder")


class Unfinished(NewFolder):
    """A folder that is being written, beside the one that it will be. Use it in a ``with`` block, and ``publish``.

    Only a folder of this kind may be overwritten: one that holds the file ``mark``.
    """

    def __init__(self, folder: Path, *, overwrite: bool, mark: str = MANIFEST, kind: str = "prepared trace") -> None:
        super().__init__(folder)
        self._overwrite = overwrite
        self._mark = mark
        self._kind = kind

    def __enter__(self) -> Unfinished:
        check_target(self.target, overwrite=self._overwrite, mark=self._mark, kind=self._kind)
        try:
            super().__enter__()
        except OSError as error:
            raise ConfigError(f"cannot write {self.folder}: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            _end_jobs()  # otherwise tasks would put back what is removed here
        super().__exit__(kind, error, trace)


def _end_jobs() -> None:
    if sys.modules.get("pyspark") is not None:
        from headwater.pipeline.spark.session import end_jobs

        end_jobs()
