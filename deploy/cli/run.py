"""``headwater run``: one engine over one trace."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from headwater.deploy.cli.common import RunFailed, read_sources, say
from headwater.deploy.cli.evaluation import Evaluation
from headwater.deploy.cli.function_files import load_functions
from headwater.deploy.cli.output import any_number_of_digits, show_count
from headwater.deploy.cli.progress import ProgressLine
from headwater.deploy.cli.remote import (
    LineageOption,
    RemoteCacheOption,
    RemoteCachePolicyOption,
    RemoteOption,
    RemotePriorityOption,
    RemoteStrategyOption,
    RuleStrategyOption,
    files_of,
    priorities_of,
    strategies_of,
    tables_of,
)
from headwater.deploy.cli.rule_warnings import warn_of_slips
from headwater.deploy.cli.rules_and_trace import prepare
from headwater.deploy.cli.tables import print_table
from headwater.deploy.cli.trace_options import (
    DelimiterOption,
    TimeColumnOption,
    TimeUnitOption,
    TypeColumnOption,
    layout_of,
    the_trace,
)
from headwater.deploy.network.units import duration_us
from headwater.node.engine import Engine, compile_rules
from headwater.node.remote.policies import DEFAULT, checked_priorities, checked_strategies
from headwater.node.traces.reader import TraceSource
from headwater.protocol.errors import ConfigError
from headwater.protocol.text import plural

NAMES_MAX: Final = 12  # how many types or attributes a line of the summary names


def run(
    rules: Annotated[list[Path], typer.Argument(help="Rule files, .tesla or .sase.", metavar="RULES")],
    events: Annotated[
        list[str], typer.Option("--events", "-e", help="The trace, or - for standard input.", metavar="FILE")
    ],
    format: Annotated[
        str | None, typer.Option(help="csv, jsonl or parquet, if the file name does not show it.", metavar="FORMAT")
    ] = None,
    time_unit: TimeUnitOption = None,
    time_column: TimeColumnOption = "ts",
    type_column: TypeColumnOption = "type",
    delimiter: DelimiterOption = ",",
    lateness: Annotated[
        str | None,
        typer.Option(
            help="Read the trace as a stream whose rows may be this late (5s, 200ms); later rows are skipped, counted "
            "and reported. Without it, a file may be in any order, and standard input must be in order.",
            metavar="DURATION",
        ),
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Only count the composite events of each rule.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --count: print a JSON object from rule to number.")
    ] = False,
    remote: RemoteOption = None,
    remote_strategy: RemoteStrategyOption = DEFAULT,
    remote_strategy_for: RuleStrategyOption = None,
    remote_cache: RemoteCacheOption = "64MB",
    remote_cache_policy: RemoteCachePolicyOption = "lru",
    remote_priority: RemotePriorityOption = None,
    lineage: LineageOption = False,
    functions: Annotated[
        Path | None, typer.Option(help="A Python file whose functions the rules may call.", metavar="FILE.py")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip malformed rows, count them and show the first five.")
    ] = False,
    late_out: Annotated[
        Path | None, typer.Option(help="Write late rows to this file, as JSON lines.", metavar="FILE")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write composite events to this file instead of standard output.", metavar="FILE"),
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--sorted",
            help="Print composite events as they are found, or at the end in order of time. "
            "[default: sorted for a file, live for standard input]",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary, unless rows were skipped or late.")] = False,
) -> None:
    """Find composite events in a trace.

    One engine evaluates RULES over the trace and prints the composite events as JSON lines.

    The trace is CSV, JSON lines (either may be .gz) or Parquet with the columns type and ts (integer microseconds, ISO
    8601, or the unit of --time-unit), optionally node and seq, and the attributes of the events. Rows need not be
    sorted. Event types that the rules do not declare are inferred from the trace.

    Example: headwater run fire.tesla --events events.csv
    """
    if as_json and not count:
        raise ConfigError("--json goes with --count; composite events are JSON lines already")
    trace = the_trace(events)
    layout = layout_of(time_unit, time_column, type_column, delimiter)
    source = TraceSource.at(trace, format, layout)
    lateness_us = None if lateness is None else duration_us(lateness)
    emit_live = source.is_stream if live is None else live
    registered = load_functions(functions)
    priorities = priorities_of(remote_priority)
    strategies = strategies_of(remote_strategy_for)
    tables = tables_of(
        remote,
        layout.time_unit,
        remote_strategy,
        remote_cache,
        cache=remote_cache_policy,
        strategies=strategies,
        priorities=priorities,
        lineage=lineage,
    )
    sources = read_sources(rules)
    _refuse_to_overwrite([trace, *rules, *files_of(remote), *([functions] if functions else [])], out, late_out)
    streaming = source.is_stream or lateness_us is not None
    started = time.perf_counter()
    with ProgressLine("looking at the types") as progress:
        work = prepare(
            sources,
            source,
            registered,
            look_first=emit_live and not streaming,
            watch=progress.update,
            tables=tables.shapes(),
        )

    if not quiet:
        warn_of_slips(work.rules)
    names = [rule.name for rule in work.rules.rules]
    checked_priorities(priorities, names)
    checked_strategies(strategies, names)
    tables.check()

    def new_engine() -> Engine:
        return tables.engine(
            compile_rules(work.rules, functions=registered, remote=tables.memory.tables, count_only=count)
        )

    with tables, _naming(out), contextlib.ExitStack() as stack:
        output = _open_output(out, stack)
        late = _late_sink(late_out, stack)
        progress = stack.enter_context(ProgressLine("reading"))
        evaluation = Evaluation(work, new_engine, output, progress, live=emit_live, skip_bad=skip_bad)
        complete = _evaluate(evaluation, is_stream=source.is_stream, lateness_us=lateness_us, late=late)
        if count:
            _print_counts(output, evaluation.engine.counts(), as_json)
    seconds = time.perf_counter() - started
    lines = summary(evaluation, seconds, count=count, quiet=quiet, lateness=lateness, late_out=late_out)
    for line in (*lines, *tables.summary(evaluation.engine, quiet=quiet)):
        say(line)
    if not complete:
        raise KeyboardInterrupt


def _evaluate(
    evaluation: Evaluation, *, is_stream: bool, lateness_us: int | None, late: Callable[[dict[str, Any]], None]
) -> bool:
    """Whether the rows were evaluated to their end. Ctrl-C is how a stream that has no end is ended: what was found so
    far counts."""
    try:
        if is_stream or lateness_us is not None:
            evaluation.stream(lateness_us or 0, late)
        else:
            evaluation.whole()
    except KeyboardInterrupt:
        if not is_stream:
            raise
        evaluation.sink.finish()
        return False
    finally:
        evaluation.reader.rows.close()
    return True


def _refuse_to_overwrite(read: Iterable[str | Path], *written: Path | None) -> None:
    """An output that is also an input would be emptied before it is read."""
    outputs = [path for path in written if path is not None]
    inputs = [Path(path) for path in read]
    for number, output in enumerate(outputs):
        for other in (*inputs, *outputs[:number]):
            if output == other or (output.exists() and other.exists() and output.samefile(other)):
                if output.exists() and not output.is_file():
                    continue  # a terminal or /dev/null may well be both
                raise ConfigError(f"{output} would be overwritten while it is in use; write to another file")


@contextlib.contextmanager
def _naming(out: Path | None) -> Iterator[None]:
    """A full disk does not say which file did not fit."""
    try:
        yield
    except OSError as error:
        if out is None or error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise RunFailed(f"cannot write {out}: {error.strerror or error}") from None


def _open_output(file: Path | None, stack: contextlib.ExitStack) -> IO[str]:
    if file is None and sys.stdout is None:
        raise ConfigError("standard output is closed; --out FILE writes the composite events to a file")
    if file is None:
        with contextlib.suppress(AttributeError, ValueError):
            # A lone surrogate, which JSON can say and UTF-8 cannot, leaves as the escape it came as.
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
        return sys.stdout
    return stack.enter_context(_open_for_writing(file))


def _open_for_writing(file: Path) -> IO[str]:
    try:
        return open(file, "w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}") from None


def _late_sink(file: Path | None, stack: contextlib.ExitStack) -> Callable[[dict[str, Any]], None]:
    if file is None:
        return lambda record: None
    output = stack.enter_context(_open_for_writing(file))

    def write(record: dict[str, Any]) -> None:
        try:
            output.write(json.dumps(record, ensure_ascii=False) + "\n")
        except OSError as error:
            raise RunFailed(f"cannot write {file}: {error.strerror}") from None

    return write


def _print_counts(output: IO[str], counts: dict[str, int], as_json: bool) -> None:
    if as_json:
        with any_number_of_digits():
            output.write(json.dumps(dict(sorted(counts.items()))) + "\n")
    else:
        shown = {rule: show_count(number) for rule, number in sorted(counts.items())}
        print_table(("rule", "composites"), shown.items(), figures=(1,), file=output)
    output.flush()


def summary(
    evaluation: Evaluation,
    seconds: float,
    *,
    count: bool,
    quiet: bool,
    lateness: str | None,
    late_out: Path | None,
) -> list[str]:
    """The outcome of every row, for standard error."""
    tally, engine = evaluation.reader.tally, evaluation.engine
    composites = sum(engine.counts().values()) if count else evaluation.sink.count
    unnamed = sum(tally.unnamed.values())
    rows = tally.read + unnamed + tally.late + tally.bad + tally.repeated
    lines = []
    if not quiet or tally.bad or tally.late:
        speed = f"{rows / seconds:,.0f} rows/s" if seconds > 0 else ""
        lines.append(
            f"{plural(rows, 'row')} read, {tally.bad:,} skipped, {tally.late:,} late; "
            f"{show_count(composites)} composite event{'s' * (composites != 1)} in {seconds:.2f} s ({speed})"
        )
    if tally.repeated:
        repeats, counts = ("repeats", "counts") if tally.repeated == 1 else ("repeat", "count")
        lines.append(
            f"{plural(tally.repeated, 'row')} {repeats} the node and seq of an earlier row and "
            f"{counts} as the same event; number the rows of each node over all types if that is not meant"
        )
    if tally.bad:
        lines.append(f"{plural(tally.bad, 'malformed row')} left out, the first of them:")
        lines.extend(f"  {example}" for example in tally.examples)
    if tally.late:
        by = f"more than {lateness} " if lateness is not None else ""
        they, them, are = ("they", "them", "are") if tally.late != 1 else ("it", "it", "is")
        kept = f"; {they} {are} in {late_out}" if late_out else f"; --late-out FILE keeps {them}"
        if lateness is None:
            kept += f", --lateness DURATION waits for {them}"
        rows_late = plural(tally.late, "row")
        lines.append(f"{rows_late} came {by}behind an earlier row and {are} left out{kept}")
    if not quiet:
        if unnamed:
            named = ", ".join(f"{name} ({number:,})" for name, number in sorted(tally.unnamed.items())[:NAMES_MAX])
            named += ", .." if len(tally.unnamed) > NAMES_MAX else ""
            lines.append(f"{plural(unnamed, 'row')} of types that no rule names: {named}")
        if tally.ignored:
            named = ", ".join(f"{name}.{column}" for name, column in sorted(tally.ignored)[:NAMES_MAX])
            named += ", .." if len(tally.ignored) > NAMES_MAX else ""
            lines.append(f"in the trace, but not declared and so not read: {named}")
    lines.extend(_figure(name, number) for name, number in sorted(engine.counters().items()) if number)
    return lines


def _figure(name: str, number: int) -> str:
    """A counter of the engine in words."""
    kind, _, rule = name.partition(":")
    if kind != "over_limit":
        return f"{name}: {number:,}"
    times = "once" if number == 1 else f"{number:,} times"
    return f"{rule}: {times} a repetition had more events to choose from than its LIMIT, and no match was made"
