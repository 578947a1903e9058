"""Verifies a run: computes and compares its rules one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headwater.pipeline.prepare.prepared_trace import PreparedTrace, Unfinished
from headwater.pipeline.spark.paths import to_write
from headwater.pipeline.verify.compare import KINDS, Difference, RuleFigures, Wanted, compared_with
from headwater.pipeline.verify.counted import counted_with
from headwater.pipeline.verify.delivered import DeliveredComposites, other_version, read_delivered
from headwater.pipeline.verify.emitted import Emitted, in_order_of_reading
from headwater.pipeline.verify.expected import Expected, expected, offer
from headwater.pipeline.verify.relations import TraceEvents, Unverifiable
from headwater.pipeline.verify.repetitions import WAYS
from headwater.protocol.errors import ConfigError
from headwater.protocol.events import EventType
from headwater.protocol.pattern import Rule, types_of
from headwater.protocol.text import plural

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROBLEMS: Final = "problems"
SUMMARY: Final = "summary.json"
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.+?)(?:\s+SQLSTATE|\n|$)")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be verified."""

    trace: PreparedTrace
    rules: tuple[Rule, ...]
    types: Mapping[str, EventType]
    """All primitive types that the rules read."""
    delivered: tuple[Path, ...]
    counts: Mapping[str, int] | None = None
    """Composites of each rule, where a run has only counted them; nothing is then read from files."""
    only: frozenset[str] | None = None
    """The rules to compare; None: all. Others are computed where these read them."""
    sinks: tuple[Wanted, ...] | None = None
    """None where there is no network: everything should then have been delivered."""
    sources: frozenset[tuple[str, str]] | None = None
    """Node and type of the events that enter the network; None: all of the trace."""


@dataclass(slots=True)
class VerificationReport:
    """What came out."""

    figures: list[RuleFigures] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Rules that could not be verified, and why."""
    notes: list[str] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)
    bad_lines: int = 0

    @property
    def equal(self) -> bool:
        return not self.bad_lines and all(figures.equal for figures in self.figures)

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "rules": [figures.to_json() for figures in self.figures],
            "refused": self.refused,
            "bad_lines": self.bad_lines,
            "notes": self.notes,
            "examples": self.examples,
        }


def verify(
    spark: SparkSession, task: Task, *, examples: int, out: Path | None, tell: Callable[[str], None]
) -> VerificationReport:
    """Computes what every rule should have found and compares. ``examples``: how many of each kind to name."""
    report = VerificationReport()
    delivered = _delivered(spark, task, report, tell) if task.counts is None else None
    source = source_of(spark, task, report)
    emitted = Emitted(task.rules)
    differences: list[Difference] = []
    for rule in in_order_of_reading(task.rules):
        is_wanted = task.only is None or rule.name in task.only
        if not is_wanted and not emitted.is_read(rule):
            continue
        tell(f"computing what {rule.name} should have found")
        try:
            should = offer(expected(rule, source, emitted), emitted)
            if not is_wanted:
                continue
            if delivered is None:
                assert task.counts is not None
                report.figures.append(_by_number(should, task.counts.get(rule.name, 0)))
                continue
            difference = (counted_with if should.repeated else compared_with)(should, delivered.composites, task.sinks)
        except Exception as error:
            refused = _refusal(rule, error)
            if refused is None:
                raise
            emitted.refuse(rule, refused)
            if is_wanted:
                report.refused[rule.name] = refused
            continue
        differences.append(difference)
        report.figures.append(difference.figures)
        report.examples += _examples(difference, examples)
    if out is not None:
        _write(spark, out, differences, report)
    return report


def _refusal(rule: Rule, error: Exception) -> str | None:
    """Why a rule cannot be verified, as was said when its relations were made, or by a row that cannot be judged."""
    if isinstance(error, Unverifiable):
        return str(error)
    said = _RAISED.search(str(error))
    return f"rule {rule.name}: {said[1]}" if said else None


def _by_number(should: Expected, delivered: int) -> RuleFigures:
    from pyspark.sql import functions as F

    row = should.frame.agg(F.sum(WAYS).alias("number")).first()
    assert row is not None
    wanted = int(row["number"] or 0)
    return RuleFigures(
        should.rule.name, wanted, delivered, max(0, wanted - delivered), max(0, delivered - wanted), 0, 0
    )


def source_of(spark: SparkSession, task: Task, report: VerificationReport) -> TraceEvents:
    """The events that the rules could see, with the ranges of their whole numbers."""
    from pyspark.sql import functions as F

    trace, manifest = task.trace, task.trace.manifest
    read = {name for rule in task.rules for name in types_of(rule.pattern)} & set(manifest.types)
    events = trace.events(spark).filter(F.col("type").isin(sorted(read)))
    if task.sources is not None:
        events = _entering(events, task, read, report)
    whole = [name for name, kind in manifest.kinds.items() if kind == "int"]
    bounds = events.agg(
        *(F.min(f"`{name}`").alias(f"least {name}") for name in ("seq", *whole)),
        *(F.max(f"`{name}`").alias(f"most {name}") for name in ("seq", *whole)),
    ).first()
    assert bounds is not None
    ranges = {name: (bounds[f"least {name}"] or 0, bounds[f"most {name}"] or 0) for name in ("seq", *whole)}
    ranges["ts"] = (manifest.first_us, manifest.last_us)
    counts = {name: manifest.types[name].events for name in read}
    return TraceEvents(events, task.types, manifest.kinds, counts, ranges)


def _entering(events: DataFrame, task: Task, read: Collection[str], report: VerificationReport) -> DataFrame:
    """Only what the sources of the network take in."""
    from pyspark.sql import functions as F

    assert task.sources is not None
    nodes = task.trace.manifest.nodes
    taken = sorted((node, type_) for node, type_ in task.sources if node in nodes and type_ in read)
    if not taken:
        raise ConfigError(
            f"the trace {task.trace.folder} has no events for any source of the network; its nodes are "
            f"{', '.join(sorted(nodes)[:10])}, its types {', '.join(sorted(task.trace.manifest.types)[:10])}"
        )
    missing = sorted({node for node, _ in task.sources} - set(nodes))
    if missing:
        report.notes.append(f"the trace has no events of the nodes {', '.join(missing[:10])}")
    pairs = F.array(*(F.struct(F.lit(node).alias("node"), F.lit(type_).alias("type")) for node, type_ in taken))
    return events.filter(F.array_contains(pairs, F.struct("node", "type")))


def _delivered(
    spark: SparkSession, task: Task, report: VerificationReport, tell: Callable[[str], None]
) -> DeliveredComposites:
    tell(f"reading what was delivered, from {plural(len(task.delivered), 'file')}")
    delivered = read_delivered(spark, task.delivered)
    names = {rule.name for rule in task.rules if task.only is None or rule.name in task.only}
    rule_names = {rule.name for rule in task.rules}
    report.bad_lines = delivered.bad_lines
    if delivered.bad_lines:
        report.notes.append(f"{delivered.bad_lines:,} delivered lines are not composite events, such as")
        report.notes += [f"  {example}" for example in delivered.bad_examples]
    if delivered.events:
        report.notes.append(f"{delivered.events:,} deliveries of primitive events were not compared")
    if not delivered.rules and not delivered.bad_lines:
        report.notes.append("nothing was delivered")
    unknown = {rule: number for rule, number in delivered.rules.items() if rule not in rule_names}
    for name, number in list(unknown.items())[:10]:
        report.notes.append(f"{number:,} composites are of a rule {name}, which is not among the rules that were given")
    if unknown and not set(delivered.rules) & rule_names:
        raise ConfigError(
            f"what was delivered is of the rules {', '.join(sorted(unknown)[:10])}, and those to verify are "
            f"{', '.join(sorted(names))}; name the rules that were run, or other deliveries"
        )
    for rule in (rule for rule in task.rules if rule.name in names):
        version = other_version(delivered.composites, rule) if rule.name in delivered.rules else None
        if version is not None:
            raise ConfigError(
                f"version {version} of rule {rule.name} found what was delivered, and version {rule.version} is to be "
                "verified; name the rules as they were run"
            )
    return delivered


def _examples(difference: Difference, most: int) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F

    if difference.figures.equal:
        return []
    examples = []
    for kind in KINDS:
        rows = difference.problems.filter(F.col("kind") == kind).orderBy("parts").limit(most).collect()
        for row in rows:
            example = row.asDict(recursive=True)
            example |= {
                name: json.loads(example[name]) if example[name] else None for name in ("expected", "delivered")
            }
            example["times"] = int(example["times"])
            examples.append(example)
    return examples


def _write(spark: SparkSession, out: Path, differences: Sequence[Difference], report: VerificationReport) -> None:
    with Unfinished(out, overwrite=False) as unfinished:
        for number, difference in enumerate(differences):
            mode = "overwrite" if number == 0 else "append"
            difference.problems.write.mode(mode).parquet(to_write(unfinished.folder / PROBLEMS))
        text = json.dumps(report.to_json(), indent=1, ensure_ascii=False) + "\n"
        (unfinished.folder / SUMMARY).write_text(text, encoding="utf-8")
        unfinished.publish()
