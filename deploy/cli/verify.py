"""``headwater verify``: an independent check of what a run delivered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headwater.deploy.cli.common import declared_types, read_sources, say
from headwater.deploy.cli.tables import table_lines
from headwater.deploy.cluster.runs import Run
from headwater.deploy.network.file import NetworkFile, read_network
from headwater.pipeline.prepare.prepared_trace import PreparedTrace, open_prepared
from headwater.pipeline.verify.compare import Wanted
from headwater.pipeline.verify.delivered import delivered_files
from headwater.pipeline.verify.verify import Task, VerificationReport
from headwater.protocol.edge import FileTo
from headwater.protocol.errors import ConfigError, RuleError
from headwater.protocol.events import EventType
from headwater.protocol.languages import parse_rules
from headwater.protocol.pattern import types_of
from headwater.protocol.subscriptions import Subscription
from headwater.protocol.text import plural

EXAMPLES = 3


def verify(
    trace: Annotated[Path, typer.Argument(help="A trace that headwater traces has prepared.", metavar="TRACE")],
    delivered: Annotated[
        list[Path] | None,
        typer.Option(help="What was delivered: JSON lines, a folder of them, or the folder of a run.", metavar="PATH"),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(help="Instead: the output of headwater run --count --json.", metavar="FILE"),
    ] = None,
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", help="Rule files, .tesla or .sase.", metavar="FILE")
    ] = None,
    network: Annotated[
        Path | None, typer.Option(help="A network file: its rules, and what its sinks subscribed to.", metavar="FILE")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Verify only this rule.", metavar="RULE")] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder to create, with every problem as Parquet.", metavar="FOLDER")
    ] = None,
    examples: Annotated[int, typer.Option(help="How many problems of each kind to show.", min=0)] = EXAMPLES,
    master: Annotated[
        str | None, typer.Option(help="A Spark master. [default: all cores of this machine]", metavar="URL")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """Compute on Spark, without the engine, what rules should find in a trace, and compare it with what was delivered.

    Exit code 0: the same; 1: something is missing, extra, duplicate or altered; 2: the input is wrong, or a rule cannot
    be verified.

    Example: headwater verify cabs --rules fares.sase --delivered found.jsonl
    """
    from headwater.pipeline.spark.session import spark_session
    from headwater.pipeline.verify.verify import verify as run

    if (rules is None) == (network is None):
        raise ConfigError("say what to verify: either rule files with --rules, or a network with --network")
    if (not delivered) == (counts is None):
        raise ConfigError("say what a run has found: either deliveries with --delivered, or numbers with --counts")
    if counts is not None and network is not None:
        raise ConfigError("--counts are the numbers of a single engine; name its rules with --rules, not a network")
    prepared = open_prepared(trace)
    if out is not None and out.exists():
        raise ConfigError(f"{out} exists already; name another folder")
    paths = delivered or ()
    task = _of_network(prepared, read_network(network), paths) if network else _of_rules(prepared, rules, paths)
    if counts is not None:
        task = replace(task, counts=_numbers(counts, task))
    task = _chosen(task, only or ())
    _check_types(task)
    say("starting Spark")
    with spark_session("verify", master) as spark:
        report = run(spark, task, examples=examples, out=out, tell=say)
    print(json.dumps(report.to_json(), indent=1, ensure_ascii=False) if json_ else "\n".join(in_words(report)))
    if report.refused:
        options = " ".join(f"--only {figures.rule}" for figures in report.figures)
        cure = f"; verify the others with {options}" if options else ""
        raise ConfigError("\n".join(report.refused.values()) + cure)
    if not report.equal:
        raise typer.Exit(1)


def _of_rules(trace: PreparedTrace, files: Sequence[Path] | None, delivered: Sequence[Path]) -> Task:
    sources = read_sources(files or ())
    declared = declared_types(sources)
    try:
        emitted = {rule.emits for rule in parse_rules(sources).rules}
    except RuleError:
        emitted = set()  # said below, with the types of the trace known
    trace_types = [event_type for event_type in _types_in(trace) if event_type.name not in declared | emitted]
    parsed = parse_rules(sources, trace_types)
    return Task(trace, parsed.rules, parsed.types, tuple(_files(delivered, None)))


def _numbers(file: Path, task: Task) -> dict[str, int]:
    """The composites of each rule, as a run has counted them."""
    try:
        numbers = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or not all(type(number) is int for number in numbers.values()):
        raise ConfigError(f"{file} is not what headwater run --count --json prints: an object of rules and numbers")
    names = {rule.name for rule in task.rules}
    if set(numbers) != names:
        raise ConfigError(
            f"{file} has numbers of the rules {', '.join(sorted(numbers))}, and those to verify are "
            f"{', '.join(sorted(names))}; name the rules that were run"
        )
    return numbers


def _types_in(trace: PreparedTrace) -> list[EventType]:
    return [EventType(name, recorded.attributes) for name, recorded in trace.manifest.types.items()]


def _of_network(trace: PreparedTrace, network_file: NetworkFile, delivered: Sequence[Path]) -> Task:
    network = network_file.network
    files = tuple(_files(delivered, network_file))
    by_number = _by_number(files)
    elsewhere = _elsewhere(network_file) if any(Run(path).exists() for path in delivered) else frozenset()
    sinks: dict[str, list[Subscription]] = {}
    for number, sink in enumerate(network.sinks):
        if number not in elsewhere:
            sinks.setdefault(str(number) if by_number else sink.node, []).append(sink.subscription)
    subscriptions = tuple(Wanted(label, tuple(of)) for label, of in sinks.items())
    return Task(
        trace,
        network.rules,
        {event_type.name: event_type for event_type in network.types},
        files,
        sinks=subscriptions,
        sources=frozenset((source.node, source.type) for source in network.sources),
    )


def _elsewhere(network_file: NetworkFile) -> frozenset[int]:
    """The sinks that do not go to files, so that a run has left nothing of them to read."""
    return frozenset(
        number for number, destination in enumerate(network_file.destinations) if not isinstance(destination, FileTo)
    )


def _by_number(files: Sequence[Path]) -> bool:
    """Whether deliveries call sinks by their number, as running networks do; otherwise by node, as simulations do."""
    for file in files:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    return isinstance(json.loads(line)["sink"], int)
                except (ValueError, KeyError, TypeError):
                    continue
    return True


def _files(delivered: Sequence[Path], network_file: NetworkFile | None) -> Iterator[Path]:
    for path in delivered:
        run = Run(path)
        if run.exists():
            yield from _files_of_run(run, network_file)
        else:
            yield from delivered_files([path])


def _files_of_run(run: Run, network_file: NetworkFile | None) -> Iterator[Path]:
    """What the sinks of a run wrote into files; sinks that go elsewhere left nothing to read."""
    plan = run.plan()
    file_of_run = network_file or read_network(plan.network)
    folders = {process.name: process.data for process in plan.nodes()}
    files = []
    for sink, destination in zip(file_of_run.network.sinks, file_of_run.destinations, strict=True):
        data = folders.get(sink.node)
        if isinstance(destination, FileTo) and data is not None:
            file = Path(data) / destination.path
            if file.is_file() and file not in files:
                files.append(file)
        elif not isinstance(destination, FileTo):
            say(f"the sink at {sink.node} does not go to a file, so nothing of it is compared")
    if not files:
        raise ConfigError(f"no sink of the run {run.name} has written a file yet")
    yield from files


def _chosen(task: Task, names: Sequence[str]) -> Task:
    rules = {rule.name for rule in task.rules}
    for name in names:
        if name not in rules:
            raise ConfigError(f"there is no rule {name!r}; there are: {', '.join(sorted(rules))}")
    return replace(task, only=frozenset(names)) if names else task


def _check_types(task: Task) -> None:
    """A ConfigError if the trace is not one that these rules could find anything in."""
    trace_types = set(task.trace.manifest.types)
    emitted = {rule.emits for rule in task.rules}
    for rule in (rule for rule in task.rules if task.only is None or rule.name in task.only):
        missing = sorted(types_of(rule.pattern) - trace_types - emitted)
        if missing:
            say(f"note: the trace has no events of the type {', '.join(missing)}, which rule {rule.name} reads")
    if not any(types_of(rule.pattern) & trace_types for rule in task.rules):
        read_types = sorted({name for rule in task.rules for name in types_of(rule.pattern)})
        raise ConfigError(
            f"the rules read {', '.join(read_types)}, and the trace {task.trace.folder} has none of them; "
            f"it has {', '.join(sorted(trace_types)[:10])}"
        )


def in_words(report: VerificationReport) -> Iterator[str]:
    """A table of the rules, then what is wrong with which composites."""
    columns = ("expected", "delivered", "missing", "extra", "duplicate", "altered")
    rows = [(figures.rule, *(f"{getattr(figures, column):,}" for column in columns)) for figures in report.figures]
    rows += [(name, "not verified", *[""] * (len(columns) - 1)) for name in report.refused]
    yield from table_lines(("rule", *columns), rows, figures=range(1, 1 + len(columns)))
    yield from report.notes
    for problem in report.examples:
        yield _in_words(problem)
    if report.figures and report.equal:
        yield "the same"


def _in_words(problem: dict[str, Any]) -> str:
    parts = " ".join(f"{part['role']}:{part['node']}#{part['seq']}" for part in problem["parts"])
    at = f" at sink {problem['sink']}" if problem["sink"] is not None else ""
    composite = f"{problem['rule']} [{parts}]{at}"
    match problem["kind"]:
        case "missing":
            if problem["times"] > 1:
                return f"missing: {problem['times']:,} of {composite} were not delivered"
            return f"missing: {composite}{_with(problem['expected'])} was not delivered"
        case "extra":
            return f"extra: {composite}{_with(problem['delivered'])} was delivered, and should not have been"
        case "duplicate":
            return f"duplicate: {composite} was delivered {plural(problem['times'], 'time')} too often"
        case _:
            return (
                f"altered: {composite} was delivered{_with(problem['delivered'])}, and should have"
                f"{_with(problem['expected'])[5:] or ' what follows from its parts,'} and the times of its parts"
            )


def _with(attributes: dict[str, Any] | None) -> str:
    """The attributes of a composite; nothing where there are none, or they are not known."""
    listed = ", ".join(f"{name} = {value!r}" for name, value in (attributes or {}).items())
    return f" with {listed}" if listed else ""
