"""Reads raw files as Spark rows: every cell of a text file is text, and every row knows its place."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from headwater.pipeline.prepare.descriptions import FILE, Files
from headwater.pipeline.spark.paths import to_read
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PLACE: Final = ("_file", "_block", "_row")
"""The place of a row, which shaping finds out: a hash of the file's path, where in the file the row's block begins, and
a number that grows within the block."""

BROKEN: Final = "_broken"  # the column with all of a row that cannot be read

UNPACKED: Final = {".gz": 8, ".parquet": 3}  # times as much
ZEEK_HEADER_LINES_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The files that a description means, in the order of their names."""

    paths: tuple[Path, ...]

    @property
    def size(self) -> int:
        """About how many bytes they would hold as plain text."""
        return sum(path.stat().st_size * UNPACKED.get(path.suffix, 1) for path in self.paths)


def found_files(files: Files, folder: Path) -> RawFiles:
    """The files of the folder that the patterns match; a ConfigError if one of them matches nothing."""
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder} with raw data; name one with --input")
    paths: set[Path] = set()
    for pattern in files.patterns:
        matching = {path for path in folder.glob(pattern) if path.is_file()}
        if not matching:
            raise ConfigError(f"no file in {folder} is called {pattern}; name the folder of the data with --input")
        paths |= matching
    empty = sorted(path.name for path in paths if is_empty(path))
    if empty:
        raise ConfigError(f"{', '.join(empty)} in {folder}: the file is empty; fetch it again, or leave it out")
    return RawFiles(tuple(sorted(paths)))


@contextmanager
def bytes_of(path: Path) -> Iterator[Iterable[bytes]]:
    """The lines of a file, unpacked."""
    with path.open("rb") as stream:
        yield gzip.GzipFile(fileobj=stream) if path.suffix == ".gz" else stream


def is_empty(path: Path) -> bool:
    if path.suffix != ".gz":
        return path.stat().st_size == 0
    try:
        with gzip.open(path) as stream:
            return not stream.read(1)
    except (OSError, EOFError) as error:
        raise ConfigError(f"{path} is not a gzip file, or only a part of one: {error}") from None


def read_raw(spark: SparkSession, files: Files, raw_files: RawFiles) -> DataFrame:
    """All rows, and the name of their file."""
    from pyspark.sql import functions as F

    paths = [to_read(path) for path in raw_files.paths]
    match files.format:
        case "csv":
            rows = _csv(spark, files, raw_files.paths)
        case "jsonl":
            rows = spark.read.json(paths, primitivesAsString=True, mode="PERMISSIVE", columnNameOfCorruptRecord=BROKEN)
        case "parquet":
            rows = spark.read.parquet(*paths)
        case "zeek":
            rows = _zeek(spark, raw_files.paths)
        case other:
            raise AssertionError(other)
    # Spark's column _metadata says it, too, but is made for every row from its first mention on, asked for or not.
    encoded = F.replace(F.input_file_name(), F.lit("+"), F.lit("%2B"))
    return rows.select("*", F.substring_index(F.url_decode(encoded), "/", -1).alias(FILE))


def in_order_of_files(events: DataFrame, read: Sequence[DataFrame]) -> DataFrame:
    """Events with the rank of their file among all that were read in place of the hash of its path.

    Paths themselves are long, and would be moved and compared with every event.
    """
    import pyarrow as pa
    from pyspark.sql import functions as F

    paths = sorted({path for rows in read for path in rows.inputFiles()}, key=unquote)
    if len(paths) == 1:
        return events
    ranks = events.sparkSession.createDataFrame(pa.table({"_path": paths, "_rank": range(len(paths))}))
    by_hash = ranks.select(F.xxhash64("_path").alias(PLACE[0]), F.col("_rank").cast("int"))
    return events.join(F.broadcast(by_hash), PLACE[0]).withColumn(PLACE[0], F.col("_rank")).drop("_rank")


def _csv(spark: SparkSession, files: Files, paths: Sequence[Path]) -> DataFrame:
    columns = files.columns if files.columns is not None else _common_header(files, paths)
    return spark.read.csv(
        [to_read(path) for path in paths],
        schema=_all_text(columns, BROKEN),
        header=files.columns is None,
        sep=files.delimiter,
        enforceSchema=True,
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=BROKEN,
        escape='"',
    )


def _all_text(columns: Sequence[str], *more: str) -> str:
    return ", ".join(f"`{name.replace('`', '``')}` STRING" for name in [*columns, *more])


def _common_header(files: Files, paths: Sequence[Path]) -> tuple[str, ...]:
    """The header that all files have; files that differ would put values into the wrong columns."""
    import csv

    first: tuple[str, ...] = ()
    for path in paths:
        with bytes_of(path) as stream:
            try:
                # Only the first line is looked at here, and a header may go over several.
                lines = (line.decode("utf-8-sig") for line in stream)
                header = tuple(next(csv.reader(lines, delimiter=files.delimiter), ()))
            except (UnicodeDecodeError, csv.Error) as error:
                raise ConfigError(f"{path}: the first line cannot be read as CSV: {error}") from None
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise ConfigError(f"{path}: the column {twice[0]!r} stands twice in the first line; give each its own name")
        if first and header != first:
            raise ConfigError(
                f"{path} has other columns than {paths[0]} ({_difference(header, first)}); describe it as another "
                "source"
            )
        first = header
    return first


def _difference(one: Sequence[str], other: Sequence[str]) -> str:
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            return f"{mine!r} where that has {theirs!r}"
    return f"{len(one)} where that has {len(other)}"


def _zeek(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Zeek's logs: tabs, column names in a line ``#fields``, and signs for what is unset or empty."""
    from pyspark.sql import functions as F

    columns: list[str] | None = None
    for path in paths:
        own_columns = _zeek_columns(path)
        if columns is not None and own_columns != columns:
            raise ConfigError(f"{path} has other fields than {paths[0]}; describe it as another source")
        columns = own_columns
    assert columns is not None
    rows = spark.read.csv(
        [to_read(path) for path in paths],
        schema=_all_text(columns, BROKEN),
        sep="\t",
        comment="#",
        quote="",
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=BROKEN,
    )
    unset = [F.when(~F.col(f"`{name}`").isin("-", "(empty)"), F.col(f"`{name}`")).alias(name) for name in columns]
    return rows.select(*unset, BROKEN)


def _zeek_columns(path: Path) -> list[str]:
    with bytes_of(path) as stream:
        for _, line in zip(range(ZEEK_HEADER_LINES_MAX), stream, strict=False):
            if line.startswith(b"#fields"):
                return line.decode(errors="replace").rstrip("\r\n").split("\t")[1:]
    raise ConfigError(f"{path} has no line #fields, so it is not a log of Zeek's; write another format")
