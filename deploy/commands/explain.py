"""``headwater explain``: why did my pattern not fire?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.common import load_functions, prepare, read_sources, say, the_trace
from deploy.remote_files import check_lookups, load_remote_tables
from node.explain import Explanation
from node.explain import explain as explain_rule
from node.explain_parts import StepReport
from node.traces.reader import TraceSource
from protocol.errors import ConfigError

MISS_WIDTH = 100  # a miss that is longer is shown with its reason on a line of its own


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
    remote: Annotated[list[str] | None, typer.Option(help="A table for REMOTE.", metavar="NAME=FILE")] = None,
    functions: Annotated[
        Path | None, typer.Option(help="A Python file whose functions the rules may call.", metavar="FILE.py")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave malformed rows out and count them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per rule.")] = False,
) -> None:
    """Answer "why did my pattern not fire?"

    For each step of the pattern: how many events there were, how many were turned away by which predicate, window,
    order or negation, and how many open matches were left. Then the nearest misses: the open matches that came
    furthest, and what ended each of them.

    The whole trace is read into memory. Take a part of it that shows the problem.
    """
    registered = load_functions(functions)
    tables = load_remote_tables(remote or ())
    work = prepare(read_sources(rules), TraceSource.at(the_trace(events), format), registered)
    check_lookups(work.rules.rules, tables)
    chosen = [rule for rule in work.rules.rules if not only or rule.name in only]
    unknown = sorted(set(only or ()) - {rule.name for rule in chosen})
    if unknown:
        known = ", ".join(rule.name for rule in work.rules.rules)
        raise ConfigError(f"there is no rule {unknown[0]!r}; there is: {known}")
    reader = work.reader(skip_bad=skip_bad)
    try:
        trace = reader.whole()
    finally:
        reader.rows.close()
    for number, rule in enumerate(chosen):
        found = explain_rule(
            rule,
            work.rules.rules,
            trace,
            work.rules.types.values(),
            functions=registered,
            remote=tables,
            near=near,
        )
        if as_json:
            print(json.dumps(found.to_json(), ensure_ascii=True))
        else:
            if number:
                print()
            print("\n".join(show_explanation(found, near)))
    tally = reader.tally
    if tally.repeated:
        say(f"{tally.repeated:,} row{'s' * (tally.repeated != 1)} with the node and seq of an earlier row left out")
    if tally.bad:
        say(f"{tally.bad:,} malformed row{'s' * (tally.bad != 1)} left out, the first of them:")
        for example in tally.examples:
            say(f"  {example}")


def show_explanation(found: Explanation, near: int) -> list[str]:
    plural = "" if found.matches == 1 else "es"
    lines = [f"{found.rule}: {found.matches:,} match{plural}"]
    for branch in found.branches:
        if len(found.branches) > 1:
            lines.append(f"  with {', '.join(branch.roles)}:")
        for number, step in enumerate(branch.steps, 1):
            lines.extend(_show_step(number, step))
    if found.misses:
        lines.append(f"nearest miss{'es' * (len(found.misses) != 1)}:")
        for miss in found.misses:
            text = str(miss)
            if len(text) > MISS_WIDTH and miss.events:
                lines.append(f"  {', '.join(miss.events)}:")
                lines.append(f"      {miss.reason}")
            else:
                lines.append(f"  {text}")
    elif near:
        lines.append("no near misses: every open match went on to the end")
    lines.extend(f"note: {note}" for note in found.notes)
    return lines


def _show_step(number: int, step: StepReport) -> list[str]:
    plural = "" if step.kept == 1 else "es"
    kept = f"{step.kept:,} open match{plural} left" + (" (stopped counting)" if step.capped else "")
    events = f"{step.events:,} {step.type} event{'s' * (step.events != 1)}; " if step.type else ""
    if number > 1:
        events += f"from {step.before:,} open match{'es' * (step.before != 1)}, "
    lines = [f"  {number}. {step.text}", f"       {events}{kept}"]
    for reason, times in step.turned_away.most_common():
        lines.append(f"       {times:>10,} turned away: {reason}")
    return lines
