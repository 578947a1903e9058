"""Reads what a run delivered: composite events as JSON lines from ``run``, ``simulate`` or sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from headwater.pipeline.spark.paths import to_read
from headwater.pipeline.verify.emitted import composite_id
from headwater.protocol.errors import ConfigError
from headwater.protocol.pattern import Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES_NAMED: Final = 5
"""So many lines that are no composites are named; they are all counted."""
VERSIONS_TRIED: Final = 1000
SAMPLE: Final = 20
"""So many composites of a rule are looked at for the version of the rule that found them."""
RULES_NAMED: Final = 20

SCHEMA: Final = (
    "id string, type string, rule string, ts bigint, start bigint, end bigint, sink string, node string, seq bigint, "
    "attributes string, events array<struct<role: string, node: string, seq: bigint, ts: bigint, id: string>>"
)


@dataclass(frozen=True, slots=True)
class DeliveredComposites:
    """``composites``: rule, type, sink, id, ts, start, end, parts and attributes (as JSON) of each."""

    composites: DataFrame
    bad_lines: int
    bad_examples: tuple[str, ...]
    """``FILE:LINE: what stands there``, of the first few."""
    events: int
    """Deliveries of primitive events, which are not compared."""
    rules: dict[str, int]
    """Composites by the name of their rule."""


def delivered_files(paths: Sequence[Path]) -> list[Path]:
    """The files with deliveries; a ConfigError if one is not there."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*.jsonl") if file.is_file())
            if not inside:
                raise ConfigError(f"there is no file with deliveries (*.jsonl) in {path}")
            files += inside
        elif path.is_file():
            files.append(path)
        else:
            raise ConfigError(f"there is no file {path} with what a run delivered")
    return files


def read_delivered(spark: SparkSession, files: Sequence[Path]) -> DeliveredComposites:
    from pyspark.sql import functions as F

    lines = spark.read.text([to_read(file) for file in files]).select(
        F.col("value").alias("line"), F.col("_metadata.file_path").alias("file")
    )
    parsed = lines.filter(F.trim("line") != "").withColumn("read", F.from_json("line", SCHEMA))
    is_part = F.forall(
        "read.events", lambda part: part["role"].isNotNull() & part["node"].isNotNull() & part["seq"].isNotNull()
    )
    composite = F.col("read.rule").isNotNull() & (F.size("read.events") > 0) & is_part
    event = F.col("read.rule").isNull() & F.col("read.node").isNotNull() & F.col("read.seq").isNotNull()
    kind = F.when(F.coalesce(composite, F.lit(False)), "composite").when(event, "event").otherwise("bad")
    parts = F.transform(
        "read.events",
        lambda part: F.struct(
            part["role"].alias("role"),
            part["node"].alias("node"),
            part["seq"].alias("seq"),
            F.coalesce(part["id"], F.lit("")).alias("id"),
        ),
    )
    is_bad = F.col("kind") == "bad"
    # Only what is compared is kept while the rules take their turns; of bad lines, the lines.
    classified = (
        parsed.withColumn("kind", kind)
        .select(
            "kind",
            *(f"read.{name}" for name in ("rule", "type", "sink", "id", "ts", "start", "end", "attributes")),
            parts.alias("parts"),
            *(F.when(is_bad, F.col(name)).alias(name) for name in ("file", "line")),
        )
        .persist()
    )
    numbers = {
        (row["kind"], row["rule"]): row["count"]
        for row in classified.groupBy("kind", F.when(F.col("kind") == "composite", F.col("rule")).alias("rule"))
        .count()
        .orderBy(F.desc("count"))
        .limit(10_000)
        .collect()
    }
    bad = numbers.get(("bad", None), 0)
    examples: tuple[str, ...] = ()
    if bad:
        first = classified.filter("kind = 'bad'").select("file", "line").limit(LINES_NAMED).collect()
        examples = tuple(_placed(_path(row["file"]), row["line"]) for row in first)
    return DeliveredComposites(
        classified.filter("kind = 'composite'").drop("kind", "file", "line"),
        bad,
        examples,
        numbers.get(("event", None), 0),
        {rule: number for (kind_of, rule), number in numbers.items() if kind_of == "composite"},
    )


def _path(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _placed(file: Path, line: str) -> str:
    """Spark does not number lines, so the file is read again up to this one."""
    shown = line if len(line) <= 80 else f"{line[:77]}..."
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            if text.rstrip("\r\n") == line:
                return f"{file}:{number}: {shown}"
    return f"{file}: {shown}"


def other_version(composites: DataFrame, rule: Rule) -> int | None:
    """The version of the rule that found the composites, if it is another one: their ids tell."""
    from pyspark.sql import functions as F

    rows = composites.filter(F.col("rule") == rule.name).select("id", "parts").limit(SAMPLE).collect()
    for row in rows:
        parts = [[part["role"], part["id"] or [part["node"], part["seq"]]] for part in row["parts"]]
        if row["id"] is None or row["id"] == composite_id(rule.name, rule.version, parts):
            continue
        for version in range(1, VERSIONS_TRIED):
            if row["id"] == composite_id(rule.name, version, parts):
                return version
    return None
