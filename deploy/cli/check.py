"""``headwater check``: are these rules and this network correct, and what do they do?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headwater.deploy.cli.common import NETWORK_FILES, declared_types, primitive_types, read_sources, say
from headwater.deploy.cli.function_files import load_functions
from headwater.deploy.cli.remote import (
    RemoteOption,
    checked_tables,
    kinds_of,
    print_kinds,
    report_on,
    tables_of_network,
)
from headwater.deploy.cli.rule_warnings import show_part, warn_of_cost, warn_of_slips
from headwater.deploy.cli.rules_and_trace import prepare
from headwater.deploy.cli.trace_options import (
    DelimiterOption,
    TimeColumnOption,
    TimeUnitOption,
    TypeColumnOption,
    layout_of,
    the_trace,
)
from headwater.deploy.network.file import NetworkFile, check_running, read_network
from headwater.deploy.network.schema import kept_schema
from headwater.node.remote.tables import Tables
from headwater.node.traces.reader import TraceSource
from headwater.protocol.edge import USUAL
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import EventType
from headwater.protocol.function_files import shown
from headwater.protocol.functions import Functions
from headwater.protocol.languages import parse_rules
from headwater.protocol.pattern import Chain, Leaf, Negation, Part, Pattern, Repetition, Rule, Selection, Window, Within
from headwater.protocol.text import show_us


def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Rule files (.tesla, .sase) or network files (.yaml).", metavar="FILE"),
    ] = None,
    events: Annotated[
        list[str] | None,
        typer.Option("--events", "-e", help="Check against the event types of this trace.", metavar="FILE"),
    ] = None,
    format: Annotated[str | None, typer.Option(help="csv, jsonl or parquet.", metavar="FORMAT")] = None,
    time_unit: TimeUnitOption = None,
    time_column: TimeColumnOption = "ts",
    type_column: TypeColumnOption = "type",
    delimiter: DelimiterOption = ",",
    functions: Annotated[
        Path | None, typer.Option(help="A Python file whose functions the rules may call.", metavar="FILE.py")
    ] = None,
    remote: RemoteOption = None,
    remote_check: Annotated[
        bool, typer.Option("--remote-check", help="Try the provider of each remote table and say what is wrong.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of network files, for editors, and exit.")
    ] = False,
) -> None:
    """Check rules and network files, and describe what they do.

    For each rule: what it emits, from which events, how far it reaches back and when it is decided. For a network: its
    size and its rules, and whether every source, rule and sink can work.

    All errors of all files are shown, each with its place in the text. Without --events, event types that no file
    declares are accepted unchecked.
    """
    if schema:
        print(kept_schema(), end="")
        return
    if not files:
        raise typer.BadParameter("name the files to check, or --schema", param_hint="FILE")
    networks = [file for file in files if file.suffix.lower() in NETWORK_FILES]
    if networks and events:
        raise ConfigError("--events is for rule files; a network file names its own traces (trace: FILE)")
    if networks and functions is not None:
        raise ConfigError(
            "--functions is for rule files; a network file names its own functions (functions: FILE.py): check the "
            "network without it"
        )
    layout = layout_of(time_unit, time_column, type_column, delimiter)
    if layout != USUAL and not events:
        raise ConfigError("--time-unit, --time-column, --type-column and --delimiter go with --events")
    rule_files = [file for file in files if file not in networks]
    tables = checked_tables(remote, layout.time_unit, only_networks=not rule_files, tried=remote_check)
    mistakes = [*_check_networks(networks)]
    if rule_files:
        try:
            source = TraceSource.at(the_trace(events), format, layout) if events else None
            check_rules(rule_files, source, load_functions(functions), tables)
        except HeadwaterError as error:
            mistakes.append(error)
    if len(mistakes) == 1:
        raise mistakes[0]
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes)))
    report_on(tables, tried=remote_check)
    for network in (read_network(file).network for file in networks):
        if remote_check:
            report_on(tables_of_network(network), tried=True)
        else:
            print_kinds(kinds_of(network))


def _check_networks(files: list[Path]) -> Iterator[HeadwaterError]:
    """Prints what each network is; gives what is wrong with those that are none."""
    for file in files:
        try:
            network_file = read_network(file)
            check_running(network_file)
        except HeadwaterError as error:
            yield error
            continue
        print(describe_network(network_file))
        if (functions := network_file.network.functions) is not None:
            names = ", ".join(function.name for function in functions.functions)
            print(f"functions of {Path(functions.file).name}: {names}; hash {shown(functions.digest)}, not run here")
        for rule in network_file.network.rules:
            print(describe(rule))
        print("ok")
        for warning in network_file.warnings:
            say(str(warning))
        warn_of_cost(network_file.network.rules)


def check_rules(files: list[Path], trace: TraceSource | None, registered: Functions, tables: Tables) -> None:
    sources = read_sources(files)
    shapes = tables.shapes() if tables.by_name else None
    inferred: list[EventType] = []
    if trace is None:
        parsed = parse_rules(sources, (), registered, tables=shapes)
        rules = parsed.rules
        unknown = sorted(primitive_types(rules) - declared_types(sources))
    else:
        work = prepare(sources, trace, registered, tables=shapes)
        if work.survey is None:
            rows = trace.open()
            rows.refuse_another_unit()
            rows.close()
        parsed = work.rules
        rules = parsed.rules
        unknown = []
        inferred = [work.rules.types[name] for name in sorted(primitive_types(rules) - declared_types(sources))]
    for rule in rules:
        print(describe(rule))
    print("ok")
    warn_of_slips(parsed)
    warn_of_cost(rules)
    if trace is not None and inferred:
        say(f"types taken from {trace.name}:")
        for event_type in inferred:
            attributes = ", ".join(f"{attribute}: {kind}" for attribute, kind in event_type.declaration()[1])
            say(f"  event {event_type.name}({attributes})")
    if unknown:
        say(f"not declared, so their attributes are unchecked: {', '.join(unknown)} (--events FILE checks them)")


def describe_network(file: NetworkFile) -> str:
    """One line: how large it is, and how its rules are evaluated."""
    network = file.network
    sizes = [
        f"{len(items)} {name if len(items) == 1 else name + 's'}"
        for name, items in (
            ("node", network.nodes),
            ("link", network.links),
            ("source", network.sources),
            ("sink", network.sinks),
            ("rule", network.rules),
        )
    ]
    length = f", for {show_us(file.duration_us)}" if file.duration_us is not None else ""
    return f"{file.path}: {', '.join(sizes)}; strategy {network.strategy}{length}"


def describe(rule: Rule) -> str:
    """One line: name, what it emits, roles and types, window, and when it is decided."""
    attributes = ", ".join(f"{attribute.name}: {attribute.kind}" for attribute in rule.attributes)
    when = "fires at once" if is_monotone(rule.pattern) else "waits for the watermark"
    return (
        f"{rule.name}: emits {rule.emits}({attributes}) from {show_part(rule.pattern.root)}; "
        f"{horizon(rule.pattern)}; {when}"
    )


def horizon(pattern: Pattern) -> str:
    """How far back from its latest event a match can reach."""
    root = pattern.root
    if isinstance(root, Chain):
        reach = {root.anchor.role: 0}
        for step in root.steps:
            bounds = step.within if isinstance(step, Selection) else step.range
            if isinstance(bounds, Within):
                length = reach.get(bounds.origin, 0) + bounds.length_us
            else:
                length = max(reach.get(bounds.one, 0), reach.get(bounds.other, 0))
            reach[step.leaf.role] = length
        return f"reaches back {show_us(max(reach.values()))}"
    window: Window | None = getattr(root, "window", None)
    if window is None:
        return "no window"
    return f"within {show_us(window.length)}" if window.unit == "us" else f"within {window.length} events"


def is_monotone(pattern: Pattern) -> bool:
    """Whether no later event can take a match back, so that it is emitted as soon as its parts are there."""
    root = pattern.root
    if isinstance(root, Chain):
        return all(isinstance(step, Selection) and step.policy == "each" for step in root.steps)
    window: Window | None = getattr(root, "window", None)
    counts_events = window is not None and window.unit == "events"
    return pattern.skip == "any" and not counts_events and _only_grows(root)


def _only_grows(part: Part) -> bool:
    match part:
        case Leaf():
            return True
        case Negation():
            return False
        case Repetition(_, limit):
            return limit is None
        case _:
            return all(_only_grows(inner) for inner in part.parts)
