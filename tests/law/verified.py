"""Random rules and traces for ``headwater verify``: what Spark expects is held against what the oracle finds.

A query takes Spark a second whatever the trace, so every case joins many small traces into one: they lie so far apart
in time that no window reaches from one into the next, and the oracle tries all combinations in each on its own. What
the oracle finds is then delivered, as lines with some left out, doubled, altered and made up. How many of each is
known, and must be found.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.pipeline.prepare.prepared_trace import (
    EVENTS,
    Manifest,
    NodeSummary,
    PreparedTrace,
    TypeSummary,
    write_manifest,
)
from headwater.pipeline.verify.compare import KINDS, compared_with
from headwater.pipeline.verify.counted import counted_with
from headwater.pipeline.verify.delivered import read_delivered
from headwater.pipeline.verify.emitted import Emitted, composite_id, in_order_of_reading
from headwater.pipeline.verify.expected import expected, offer
from headwater.pipeline.verify.relations import TraceEvents, Unverifiable
from headwater.protocol.events import Event
from headwater.protocol.pattern import Rule, types_of
from tests.kit.builders import TYPES as BUILDER_TYPES
from tests.kit.builders import Rules, listed, trace
from tests.law.describing import rule_text
from tests.law.generators import TYPES, case_of_seed, random_trace
from tests.oracle import Found, TooManyMatches, evaluate

TRACES: Final = 12
SIZE: Final = 10
APART_US: Final = 10_000  # far more than all windows of a rule together
COLUMNS: Final = {"id": "int", "v": "int", "w": "float", "s": "string", "f": "bool", "g": "bool"}
MATCHES_MAX: Final = 400
READ_MAX: Final = 20


@dataclass(frozen=True)
class Told:
    """Rules, the events of all traces, what the oracle finds in them, and what is delivered of it."""

    seed: int
    rules: tuple[Rule, ...]
    events: tuple[Event, ...]
    found: tuple[Found, ...]
    lines: tuple[str, ...]
    due: Mapping[str, Mapping[str, int]]
    """For each rule how many composites must be called missing, extra, duplicate and altered."""
    features: frozenset[str]


@dataclass
class Outcome:
    """What came of the rules of some seeds."""

    verified: int = 0
    matches: int = 0
    refused: list[str] = field(default_factory=list)
    features: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        return self.verified / max(1, self.verified + len(self.refused))


def told_of_seed(seed: int, traces: int = TRACES) -> Told:
    """The case of a seed, always the same."""
    case = case_of_seed(seed)
    rng = random.Random(f"verify {seed}")
    read = sorted({name for rule in case.rules for name in types_of(rule.pattern)} & set(TYPES))
    events: list[Event] = []
    found: list[Found] = []
    for number in range(traces):
        events_here = case.events if number == 0 else random_trace(rng, read, SIZE, set(case.features))
        apart = [_moved(event, number) for event in events_here]
        try:
            found += evaluate(
                case.rules, apart, case.types, remote=case.remote, matches_max=MATCHES_MAX, read_max=READ_MAX
            )
        except TooManyMatches:
            continue
        events += apart
    lines, due = _delivered(rng, case.rules, found)
    return Told(seed, case.rules, tuple(events), tuple(found), tuple(lines), due, case.features)


def _moved(event: Event, number: int) -> Event:
    values = {name: value for name, value in event.attributes.items() if value is not None}
    return Event(TYPES[event.type], event.ts + number * APART_US, event.node, event.seq + number * 100, values)


def line_of(found: Found) -> dict[str, Any]:
    """A composite as runs print it."""
    parts = []
    for role, identity in found.parts:
        bound = found.binding[role]
        items = bound if isinstance(bound, tuple) else (bound,)
        item = next(each for each in items if each.identity == identity)
        part = {"role": role, "type": item.type, "ts": item.ts, "node": item.end[1], "seq": item.end[2]}
        parts.append(part if isinstance(identity, tuple) else {**part, "id": identity})
    return {
        "id": found.id,
        "type": found.type,
        "ts": found.ts,
        "start": found.start[0],
        "end": found.end[0],
        "rule": found.rule,
        "attributes": dict(found.attributes),
        "events": parts,
    }


def _delivered(
    rng: random.Random, rules: Sequence[Rule], found: Sequence[Found]
) -> tuple[list[str], dict[str, dict[str, int]]]:
    due = {rule.name: dict.fromkeys(KINDS, 0) for rule in rules}
    lines: list[str] = []
    for each in found:
        line, numbers = line_of(each), due[each.rule]
        spoilt = rng.choices((None, *KINDS), (80, 5, 5, 5, 5))[0]
        if spoilt is not None:
            numbers[spoilt] += 1
        match spoilt:
            case "missing":
                continue
            case "extra":
                part = rng.choice(line["events"])
                lines.append(json.dumps({**line, "events": [{**part, "seq": 90_000 + len(lines)}]}))
            case "duplicate":
                lines.append(json.dumps(line))
            case "altered":
                name = rng.choice(("ts", "start", "end", *line["attributes"]))
                if name in line["attributes"]:
                    line["attributes"] = {**line["attributes"], name: _other(line["attributes"][name])}
                else:
                    line[name] += 1
        lines.append(json.dumps(line))
    rng.shuffle(lines)
    return lines, due


def _other(value: Any) -> Any:
    if value is None:
        return 3
    return value + "x" if isinstance(value, str) else value + 1


def check_seed(spark: Any, seed: int, folder: Path, outcome: Outcome) -> None:
    """An AssertionError that tells the case if what Spark says of a rule of the seed is not what the oracle says."""
    check(spark, told_of_seed(seed), folder, outcome)


def check(spark: Any, told: Told, folder: Path, outcome: Outcome) -> None:
    source = source_of(spark, told.events)
    file = folder / f"{told.seed}.jsonl"
    file.write_text("\n".join(told.lines) + "\n", encoding="utf-8")
    delivered = read_delivered(spark, [file])
    assert not delivered.bad_lines, delivered.bad_examples
    for rule, said in verified(told.rules, source, delivered.composites):
        if isinstance(said, Unverifiable):
            assert str(said).startswith(f"rule {rule.name}: "), said
            outcome.refused.append(str(said))
            continue
        wanted = sum(each.rule == rule.name for each in told.found)
        numbers = {kind: getattr(said, kind) for kind in KINDS}
        assert (said.expected, numbers) == (wanted, dict(told.due[rule.name])), (
            f"seed {told.seed}, rule {rule.name}: {said}, and not {wanted} with {told.due[rule.name]}\n{shown(told)}"
        )
        outcome.verified += 1
        outcome.matches += wanted
        outcome.features |= told.features


def verified(rules: Sequence[Rule], source: TraceEvents, composites: Any) -> Iterator[tuple[Rule, Any]]:
    """Each rule with its figures, or with why it is refused."""
    emitted = Emitted(rules)
    for rule in in_order_of_reading(rules):
        try:
            should = offer(expected(rule, source, emitted), emitted)
        except Unverifiable as refused:
            emitted.refuse(rule, str(refused))
            yield rule, refused
            continue
        difference = (counted_with if should.repeated else compared_with)(should, composites, None)
        difference.problems.unpersist()
        yield rule, difference.figures


def source_of(spark: Any, events: Sequence[Event]) -> TraceEvents:
    frame = spark.createDataFrame(table_of(events, node=True)).persist()
    return TraceEvents(frame, TYPES, COLUMNS)


def table_of(events: Sequence[Event], *, node: bool) -> pa.Table:
    """The events by columns; from such a table Spark makes a frame without starting Python again."""
    kinds = {"int": pa.int64(), "float": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
    columns: dict[str, Any] = {
        "type": pa.array([event.type for event in events], pa.string()),
        "ts": pa.array([event.ts for event in events], pa.int64()),
        "seq": pa.array([event.seq for event in events], pa.int64()),
    }
    if node:
        columns["node"] = pa.array([event.node for event in events], pa.string())
    for name, kind in COLUMNS.items():
        columns[name] = pa.array([event.attributes.get(name) for event in events], kinds[kind])
    return pa.table(columns)


def shown(told: Told) -> str:
    return "\n".join(f"{rule_text(rule)}\n{rule!r}" for rule in told.rules)


def by_spark(spark: Any, rules: Rules, text: str) -> list[str]:
    """What Spark expects of a trace written as in tests.kit.builders, in the words of such matches, sorted.

    Of rules with repeated parts: the parts with the ends of repetitions, and how many matches these stand for.
    """
    given = trace(text)
    source = replace(source_of(spark, given.events), types=BUILDER_TYPES)
    emitted = Emitted(listed(rules))
    named: dict[Any, str] = dict(given.names)
    found: list[str] = []
    for rule in in_order_of_reading(listed(rules)):
        should = offer(expected(rule, source, emitted), emitted)
        for row in should.frame.collect():
            words = " ".join(named[part["id"] or (part["node"], part["seq"])] for part in row["parts"])
            parts = [[part["role"], part["id"] or [part["node"], part["seq"]]] for part in row["parts"]]
            named[composite_id(rule.name, rule.version, parts)] = f"({words})"
            values = [row[f"v{number}"] for number in range(len(rule.attributes))]
            shown = f" {'/'.join(map(str, values))}" if values and not should.repeated else ""
            found.append(f"{int(row['ways'])} x {words}" if should.repeated else words + shown)
    return sorted(found)


@contextmanager
def for_small_data(spark: Any) -> Iterator[None]:
    """Settings under which queries over a handful of events are planned and run in a fraction of the time."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def prepared_from(folder: Path, events: Sequence[Event]) -> PreparedTrace:
    """The events as ``headwater traces`` would prepare them."""
    for node in {event.node for event in events}:
        mine = sorted((event for event in events if event.node == node), key=lambda event: event.key)
        (folder / EVENTS / f"node={node}").mkdir(parents=True)
        pq.write_table(table_of(mine, node=False), folder / EVENTS / f"node={node}" / "part-00000.parquet")
    times = [event.ts for event in events]
    span = (min(times), max(times))
    attributes = {**COLUMNS, "w": "float?", "s": "string?", "f": "bool?", "g": "bool?"}
    types = {
        name: TypeSummary(sum(event.type == name for event in events), *span, attributes)
        for name in sorted({event.type for event in events})
    }
    nodes = {
        name: NodeSummary(sum(event.node == name for event in events), *span)
        for name in sorted({event.node for event in events})
    }
    manifest = Manifest("letters", len(events), *span, "00ff", types, nodes, COLUMNS)
    write_manifest(folder, manifest)
    return PreparedTrace(folder, manifest)
