"""``headwater explain``: why did a pattern not match?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.deploy.cli.common import read_sources, say
from headwater.deploy.cli.function_files import load_functions
from headwater.deploy.cli.output import any_number_of_digits, show_count
from headwater.deploy.cli.remote import RemoteOption, tables_of
from headwater.deploy.cli.rule_warnings import warn_of_slips
from headwater.deploy.cli.rules_and_trace import prepare
from headwater.deploy.cli.trace_options import (
    DelimiterOption,
    TimeColumnOption,
    TimeUnitOption,
    TypeColumnOption,
    layout_of,
    the_trace,
)
from headwater.node.explain.explain import Explanation
from headwater.node.explain.explain import explain as explain_rule
from headwater.node.explain.steps import StepReport
from headwater.node.traces.reader import TraceSource
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

MISS_WIDTH = 100  # a miss that is longer is shown with its reason on a line of its own
LOOKED_UP_SHOWN: Final = 5  # values of a remote condition


def explain(
    rules: Annotated[list[Path], typer.Argument(help="Rule files, .tesla or .sase.", metavar="RULE")],
    events: Annotated[
        list[str], typer.Option("--events", "-e", help="The trace, or - for standard input.", metavar="FILE")
    ],
    near: Annotated[int, typer.Option(help="How many of the nearest misses to show.", min=0, metavar="N")] = 3,
    only: Annotated[
        list[str] | None, typer.Option("--rule", help="Explain only the rule of this name.", metavar="NAME")
    ] = None,
    format: Annotated[str | None, typer.Option(help="csv, jsonl or parquet.", metavar="FORMAT")] = None,
    time_unit: TimeUnitOption = None,
    time_column: TimeColumnOption = "ts",
    type_column: TypeColumnOption = "type",
    delimiter: DelimiterOption = ",",
    remote: RemoteOption = None,
    functions: Annotated[
        Path | None, typer.Option(help="A Python file whose functions the rules may call.", metavar="FILE.py")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip malformed rows and count them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per rule.")] = False,
) -> None:
    """Show why a pattern did not match.

    For each step of the pattern: the number of events, how many were rejected by which predicate, window, order or
    negation, and how many partial matches were left. Then the nearest misses: the partial matches that came furthest,
    and what ended each of them.

    The whole trace is read into memory, but only part of a long one is examined; numbers that may be higher are then
    marked "at least". For a long trace, extract a part that shows the problem.
    """
    layout = layout_of(time_unit, time_column, type_column, delimiter)
    registered = load_functions(functions)
    tables = tables_of(remote, layout.time_unit)
    source = TraceSource.at(the_trace(events), format, layout)
    work = prepare(read_sources(rules), source, registered, tables=tables.shapes())
    warn_of_slips(work.rules)
    tables.check()
    chosen = [rule for rule in work.rules.rules if not only or rule.name in only]
    unknown = sorted(set(only or ()) - {rule.name for rule in chosen})
    if unknown:
        names = ", ".join(rule.name for rule in work.rules.rules)
        raise ConfigError(f"there is no rule {unknown[0]!r}; there is: {names}")
    reader = work.reader(skip_bad=skip_bad)
    try:
        trace = reader.whole()
    finally:
        reader.rows.close()
    for number, rule in enumerate(chosen):
        explanation = explain_rule(
            rule,
            work.rules.rules,
            trace,
            work.rules.types.values(),
            functions=registered,
            remote=tables.by_name,
            near=near,
        )
        if as_json:
            with any_number_of_digits():
                print(json.dumps(explanation.to_json(), ensure_ascii=True))
        else:
            if number:
                print()
            print("\n".join(show_explanation(explanation, near)))
    tally = reader.tally
    if tally.repeated:
        say(f"{plural(tally.repeated, 'row')} with the node and seq of an earlier row left out")
    if tally.bad:
        say(f"{plural(tally.bad, 'malformed row')} left out, the first of them:")
        for example in tally.examples:
            say(f"  {example}")


def show_explanation(explanation: Explanation, near: int) -> list[str]:
    lines = [f"{explanation.rule}: {_matches(explanation)}"]
    for branch in explanation.branches:
        if len(explanation.branches) > 1:
            lines.append(f"  with {', '.join(branch.roles)}:")
        for number, step in enumerate(branch.steps, 1):
            lines.extend(_show_step(number, step))
    among = " among what was looked at" if explanation.partial else ""
    if explanation.misses:
        lines.append(f"nearest miss{'es' * (len(explanation.misses) != 1)}{among}:")
        for miss in explanation.misses:
            text = str(miss)
            if len(text) > MISS_WIDTH and miss.events:
                lines.append(f"  {', '.join(miss.events)}:")
                lines.append(f"      {miss.reason}")
            else:
                lines.append(f"  {text}")
    elif near:
        lines.append(
            f"no near misses{among}" if explanation.partial else "no near misses: every partial match was completed"
        )
    lines.extend(f"note: {note}" for note in explanation.notes)
    return lines


def _matches(explanation: Explanation) -> str:
    if explanation.matches is None:
        return "more matches than can be counted"
    return f"{show_count(explanation.matches)} match{'es' * (explanation.matches != 1)}"


def _show_step(number: int, step: StepReport) -> list[str]:
    least = "at least " if step.partial else ""
    parts = [plural(step.events, f"{step.type} event")] if step.type else []
    if number == 1:
        if step.looked_at < step.events:
            parts = [f"looked at the first {step.looked_at:,} of {parts[0]}"]
        parts.append(_partial_matches(least, step.kept) + " left")
    else:
        before = _partial_matches("at least " if step.before_partial else "", step.before)
        looked = f"looked at the first {step.looked_at:,} of" if step.looked_at < step.before else "from"
        parts.append(f"{looked} {before}, {_partial_matches(least, step.kept)} left")
    lines = [f"  {number}. {step.text}", f"       {'; '.join(parts)}"]
    for reason, times in step.turned_away.most_common():
        lines.append(f"       {least}{times:>10,} turned away: {reason}")
        lines += _looked_up(step, reason)
    if step.undecided:
        lines.append(f"       {step.undecided:>10,} not decided: too many choices of elements to try")
    return lines


def _looked_up(step: StepReport, reason: str) -> list[str]:
    """The values in remote tables that a condition has turned events away with, the most frequent first."""
    values = step.looked_up.get(reason)
    if values is None:
        return []
    shown = [(looked_up, number) for looked_up, number in values.most_common(LOOKED_UP_SHOWN) if looked_up]
    lines = [f"       {number:>14,} with {', '.join(map(str, looked_up))}" for looked_up, number in shown]
    rest = values.total() - sum(number for _, number in shown)
    return [*lines, f"       {rest:>14,} with other values"] if rest else lines


def _partial_matches(least: str, number: int) -> str:
    return f"{least}{number:,} partial match{'es' * (number != 1)}"
