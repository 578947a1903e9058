"""What the subcommands share: rules, functions, tables and traces as given on the command line."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from headwater.deploy.network.units import UNIT_WORDS, delimiter_of
from headwater.node.traces.reader import STDIN_SAMPLE_ROWS, Survey, TraceReader, TraceSource, survey
from headwater.node.traces.rows import Rows
from headwater.protocol.edge import TIME_UNITS, Layout
from headwater.protocol.errors import ConfigError, HeadwaterError, RuleError
from headwater.protocol.functions import Functions
from headwater.protocol.languages import RuleSet, RuleTextError, Source, parse_rules
from headwater.protocol.languages.diagnostics import UNKNOWN_EVENT_TYPE, Text
from headwater.protocol.languages.parser import parse_text
from headwater.protocol.languages.reader import SyntaxMistake
from headwater.protocol.languages.sources import decode
from headwater.protocol.languages.syntax import TypeDeclaration
from headwater.protocol.pattern import Rule, types_of

PATIENCE_S: Final = 2.0  # before a user who waits for a stream is told what for
NETWORK_FILES: Final = (".yaml", ".yml")


class RunFailed(HeadwaterError):
    """The input was right, and yet the run could not be finished: exit code 1."""


def say(text: str) -> None:
    """A line for the person at the terminal; results go to standard output, everything else here."""
    print(text, file=sys.stderr, flush=True)


def the_trace(given: Sequence[str]) -> str:
    """The one trace that --events names; of several the command line would take the last and not say so."""
    if len(given) != 1:
        raise ConfigError(f"--events takes one trace, not {len(given)}; put the rows into one file, in any order")
    return given[0]


TimeUnitOption = Annotated[
    str | None,
    typer.Option(
        "--time-unit",
        help="The unit of timestamps: s, ms, us or ns since 1970, fractions allowed, or iso. [default: integers are "
        "microseconds, anything else is ISO 8601]",
        metavar="UNIT",
        show_default=False,
    ),
]
TimeColumnOption = Annotated[str, typer.Option("--time-column", help="The column of timestamps.", metavar="NAME")]
TypeColumnOption = Annotated[str, typer.Option("--type-column", help="The column of event types.", metavar="NAME")]
DelimiterOption = Annotated[
    str, typer.Option("--delimiter", help="The delimiter of CSV cells: one character, or tab.", metavar="CHARACTER")
]


def layout_of(time_unit: str | None, time_column: str, type_column: str, delimiter: str) -> Layout:
    """How a trace is written, as options say it; a ConfigError if that cannot be."""
    if time_unit is not None and time_unit not in TIME_UNITS:
        near = UNIT_WORDS.get(time_unit.lower())
        cure = f"did you mean {near}? " if near else ""
        raise ConfigError(
            f"{time_unit!r} is not a unit of time; {cure}write --time-unit and one of {', '.join(TIME_UNITS)}"
        )
    if time_column == type_column:
        raise ConfigError(f"the column {time_column!r} cannot hold both the time and the type")
    return Layout(time_column, time_unit, type_column, delimiter_of(delimiter))


def read_sources(files: Iterable[Path]) -> list[Source]:
    """The texts of rule files; a ConfigError for a file that is absent, unreadable or something else."""
    sources = []
    for file in files:
        if file.suffix.lower() in NETWORK_FILES:
            wrong = f"{file} is not a rule file" if file.exists() else f"there is no rule file {file}"
            raise ConfigError(
                f"{wrong}; rules (.tesla or .sase) are expected here, headwater simulate and headwater up run a network"
            )
        if not file.exists():
            raise ConfigError(f"there is no rule file {file}")
        if file.is_dir():
            raise ConfigError(f"{file} is a folder; name rule files (.tesla or .sase)")
        try:
            sources.append(Source.from_path(file))
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    return sources


def load_functions(file: Path | None) -> Functions:
    """The built-in functions and, from a Python file, those in its FUNCTIONS dict or else all its public functions."""
    functions = Functions()
    if file is None:
        return functions
    if not file.is_file():
        raise ConfigError(f"there is no file {file} to take functions from")
    spec = importlib.util.spec_from_file_location(f"headwater_functions_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
    given = getattr(module, "FUNCTIONS", None)
    if given is None:
        given = {
            name: made
            for name, made in vars(module).items()
            if not name.startswith("_") and inspect.isfunction(made) and made.__module__ == module.__name__
        }
    if not isinstance(given, dict) or not given or not all(callable(made) for made in given.values()):
        raise ConfigError(f"{file} offers no functions: define some, or a dict FUNCTIONS of name to function")
    for name, made in given.items():
        functions.register(name, _guarded(name, made), _parameters(made))
    return functions


def _parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """As many of any kind as the function takes, or None where that may vary or cannot be told."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind not in _POSITIONAL or each.default is not each.empty for each in parameters):
        return None
    return ("any",) * len(parameters)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except Exception as error:
            shown = ", ".join(map(repr, arguments))
            raise RunFailed(f"function {name}({shown}) failed: {type(error).__name__}: {error}") from error
        if result is not None and not isinstance(result, int | float | str):
            shown = ", ".join(map(repr, arguments))
            raise RunFailed(
                f"function {name}({shown}) returned a {type(result).__name__}; it may return an int, a float, a str, "
                "a bool or None"
            )
        return result

    return call


@dataclass(slots=True)
class Work:
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
) -> Work:
    """Parse the rules; types that they do not declare are taken from the trace.

    A file is looked at from end to end, a stream in its first rows. ``look_first`` looks at a file in any case, to
    learn whether its rows are in order.
    """
    declared = declared_types(sources)
    rules: RuleSet | None = None
    try:
        rules = parse_rules(sources, (), functions)
        missing = primitive_types(rules.rules) - declared
    except RuleError:
        if not declared:  # without declared types any name is accepted, so this is a mistake of another kind
            raise
        missing = {"?"}
    if rules is not None and not missing and (source.is_stream or not look_first):
        return Work(rules, source, None, None)
    rows = source.open()
    with _patience(source.is_stream):
        found = survey(rows, STDIN_SAMPLE_ROWS if source.is_stream else None, watch)
    if not source.is_stream:
        rows.close()
    if missing or rules is None:
        # A trace may hold events that are called like a composite event of these rules; only if a rule reads the name
        # is that a question of which is meant.
        read = frozenset().union(*(types_of(rule.pattern) for rule in rules.rules)) if rules else frozenset()
        ours = {rule.emits for rule in rules.rules} - read if rules else set()
        inferred = [made for name, made in found.types.items() if name not in declared | ours]
        try:
            rules = parse_rules(sources, inferred, functions)
        except RuleTextError as error:
            raise RuleError("\n".join([str(error), *_hints(error, source, found)])) from None
    return Work(rules, source, rows if source.is_stream else None, found)


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


def _hints(error: RuleTextError, source: TraceSource, found: Survey) -> Iterator[str]:
    """What the trace has to do with mistakes in rules that were read with its types."""
    text = str(error)
    if any(each.code == UNKNOWN_EVENT_TYPE for each in error.diagnostics):
        yield (
            f"types that no rule file declares are taken from {source.shown}; if it just holds none of these, "
            "declare them: event Name(attribute: kind, ..)"
        )
    for (name, attribute), why in found.oddities.items():
        if f".{attribute} " in text or f"{name} has no attribute {attribute!r}" in text:
            yield f"in {source.shown}, {name}.{attribute} {why}"
    if found.first_bad is not None:
        yield f"malformed rows were passed over to learn the types; the first: {found.first_bad}"


def declared_types(sources: Iterable[Source]) -> set[str]:
    """The names of the event types that rule texts declare; mistakes are left for parse_rules to report."""
    names: set[str] = set()
    for source in sources:
        text = decode(source)
        if isinstance(text, Text):
            with contextlib.suppress(SyntaxMistake):
                items = parse_text(text, source.language)
                names.update(item.name.text for item in items if isinstance(item, TypeDeclaration))
    return names


def primitive_types(rules: Iterable[Rule]) -> set[str]:
    """The types that rules read and no rule emits."""
    rules = list(rules)
    return set().union(*(types_of(rule.pattern) for rule in rules)) - {rule.emits for rule in rules}
