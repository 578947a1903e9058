"""Reads rules and the trace that they are run on, and reconciles their event types."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.deploy.cli.common import declared_types, primitive_types, say
from headwater.node.traces.reader import STDIN_SAMPLE_ROWS, Survey, TraceReader, TraceSource, survey
from headwater.node.traces.rows import Rows
from headwater.protocol.errors import RuleError
from headwater.protocol.functions import Functions
from headwater.protocol.languages import RuleSet, RuleTextError, Source, parse_rules
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE
from headwater.protocol.pattern import types_of
from headwater.protocol.remote import TableShape

PATIENCE_S: Final = 2.0  # before a user who waits for a stream is told what for


@dataclass(slots=True)
class TraceWork:
    """Rules, and the trace they are to be run on, with the types of both agreed."""

    rules: RuleSet
    source: TraceSource
    rows: Rows | None
    """Rows already opened (a stream cannot be opened twice)."""
    survey: Survey | None
    """What the first look at the trace told; None where all types are declared and none was needed."""

    @property
    def wanted(self) -> frozenset[str]:
        """The event types that rules read."""
        return frozenset().union(*(types_of(rule.pattern) for rule in self.rules.rules))

    def reader(self, *, skip_bad: bool) -> TraceReader:
        rows, self.rows = self.rows or self.source.open(), None
        return TraceReader(
            rows,
            self.rules.types,
            self.wanted,
            skip_bad=skip_bad,
            inferred=self.source.is_stream and self.survey is not None,
        )


def prepare(
    sources: Sequence[Source],
    source: TraceSource,
    functions: Functions,
    *,
    look_first: bool = False,
    watch: Callable[[int, float | None], None] | None = None,
    tables: Mapping[str, TableShape] | None = None,
) -> TraceWork:
    """Parse the rules; types that they do not declare are taken from the trace.

    A file is looked at from end to end, a stream in its first rows. ``look_first`` looks at a file in any case, to
    learn whether its rows are in order. ``tables``: the remote tables that rules may look into; None: any.
    """
    declared = declared_types(sources)
    rules: RuleSet | None = None
    try:
        rules = parse_rules(sources, (), functions, tables=tables)
        missing = primitive_types(rules.rules) - declared
    except RuleError:
        if not declared:  # without declared types any name is accepted, so this is a mistake of another kind
            raise
        missing = {"?"}
    if rules is not None and not missing and (source.is_stream or not look_first):
        return TraceWork(rules, source, None, None)
    rows = source.open()
    with _patience(source.is_stream):
        trace_survey = survey(rows, STDIN_SAMPLE_ROWS if source.is_stream else None, watch)
    if not source.is_stream:
        rows.close()
    if missing or rules is None:
        # A trace may hold events that are called like a composite event of these rules; only if a rule reads the name
        # is that a question of which is meant.
        read = frozenset().union(*(types_of(rule.pattern) for rule in rules.rules)) if rules else frozenset()
        ours = {rule.emits for rule in rules.rules} - read if rules else set()
        inferred = [event_type for name, event_type in trace_survey.types.items() if name not in declared | ours]
        try:
            rules = parse_rules(sources, inferred, functions, tables=tables)
        except RuleTextError as error:
            raise RuleError("\n".join([str(error), *_hints(error, source, trace_survey)])) from None
    return TraceWork(rules, source, rows if source.is_stream else None, trace_survey)


@contextlib.contextmanager
def _patience(waiting: bool) -> Iterator[None]:
    """While a stream is looked at for its types nothing is evaluated: say so if that takes long."""
    timer = threading.Timer(
        PATIENCE_S,
        say,
        [
            f"waiting for {STDIN_SAMPLE_ROWS:,} rows, or the end, to learn the event types from; "
            "declare them in the rules to be answered at once"
        ],
    )
    timer.daemon = True
    if waiting:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _hints(error: RuleTextError, source: TraceSource, trace_survey: Survey) -> Iterator[str]:
    """What the trace has to do with mistakes in rules that were read with its types."""
    text = str(error)
    if any(diagnostic.code == UNKNOWN_EVENT_TYPE for diagnostic in error.diagnostics):
        yield (
            f"types that no rule file declares are taken from {source.shown}; if it just holds none of these, "
            "declare them: event Name(attribute: kind, ..)"
        )
    for (name, attribute), why in trace_survey.oddities.items():
        if f".{attribute} " in text or f"{name} has no attribute {attribute!r}" in text:
            yield f"in {source.shown}, {name}.{attribute} {why}"
    if trace_survey.first_bad is not None:
        yield f"malformed rows were passed over to learn the types; the first: {trace_survey.first_bad}"
