"""``headwater simulate``: a whole network in virtual time, and what it cost."""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

import typer

from headwater.coordinator.requests import FallBack
from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.progress import Progress
from headwater.deploy.network.units import duration_us
from headwater.deploy.simulation.figures import delivery_lines, figures, render
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.protocol.composites import Composite
from headwater.protocol.edge import ClientFeed, MqttFeed, RateFeed, ReplayFeed, TraceFeed
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import Event
from headwater.protocol.strategy import CENTRAL, STRATEGIES, strategy_of, unknown_strategy
from headwater.protocol.text import UNITS_US, plural, show_us

if TYPE_CHECKING:
    from headwater.deploy.network.file import NetworkFile
    from headwater.deploy.simulation.simulator import Watcher

SEED: Final = 0  # where neither the command nor the file gives one: a run can always be repeated
RULE_SUFFIXES: Final = (".tesla", ".sase")
EXAMPLES_MAX: Final = 3  # of each kind of difference between two runs


def simulate(
    network: Annotated[Path, typer.Argument(help="The network file.", metavar="NETWORK.yaml")],
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(STRATEGIES)}; several to compare, as in st,mt; or all. "
            "[default: that of the file]",
            metavar="STRATEGY",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Equal seeds give equal runs, to the byte. [default: that of the file, or 0]", metavar="N"),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Compare over this many seeds, from --seed on. [default: 1]", metavar="N", min=1),
    ] = None,
    chart: Annotated[
        Path | None,
        typer.Option(help="Write the comparison as an HTML page.", metavar="FILE.html"),
    ] = None,
    duration: Annotated[
        str | None,
        typer.Option(
            help="How long events enter (10s, 5 min). [default: that of the file, or as long as its traces]",
            metavar="DURATION",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check invariants during the run; a violation ends it.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Write what the sinks received, as JSON lines in order of arrival.", metavar="FILE"),
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(help="Write the tables of all nodes at the end, as one JSON object.", metavar="FILE"),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Create a folder of records, like those of a running network, for `headwater report`.",
            metavar="FOLDER",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing recording.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No report; only --json, --out and errors.")] = False,
) -> None:
    """Run a network in virtual time.

    All nodes of the network run in this process: events enter at their sources, nodes evaluate the rules as the
    strategy distributes them, and links delay and lose frames. The report shows what the sinks received, what crossed
    the links, how long composite events took, and which node evaluated what.

    Unless the strategy is centr, which sends every event to one node, centr runs over the same events as well. The
    report compares the two, and the run fails if their sinks received different composite events.

    Several strategies (or all), over one or more seeds, are compared in one table, relative to centr over the same
    events: means with 95 % confidence intervals.

    Example: headwater simulate fire.yaml --strategy mt --out fires.jsonl

    Example: headwater simulate fire.yaml --strategy all --seeds 5 --chart strategies.html
    """
    from headwater.deploy.network.file import read_network

    strategies = _strategies(strategy)
    given_us = None if duration is None else duration_us(duration)
    if len(strategies) > 1 or seeds is not None or chart is not None:
        from headwater.deploy.cli.simulate_several import simulate_several

        _refuse_outputs_of_one_run({"--out": out, "--tables": tables, "--record": record})
        simulate_several(
            network,
            strategies,
            seed=seed,
            seeds=seeds or 1,
            duration_us=given_us,
            check=check,
            chart=chart,
            as_json=as_json,
            quiet=quiet,
        )
        return
    strategy = strategies[0] if strategies else None
    file = read_network(network, strategy=strategy, duration_us=given_us)
    for warning in file.warnings:
        say(str(warning))
    plan = Plan.of(file, network, seed, check=check)
    check_feeds(plan)
    _check_outputs(plan, out, tables)
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        output = _open_output(out, stack)
        tables_output = _open_output(tables, stack)
        outcome, central = _both(plan) if record is None else _recorded(plan, record, overwrite=overwrite)
        if tables_output is not None:
            json.dump(outcome.tables, tables_output, indent=2, ensure_ascii=False)
            tables_output.write("\n")
        if output is not None:
            _write_deliveries(outcome, output)
    for sentence in dict.fromkeys(outcome.planner_failures):
        say(f"warning: {sentence}")
    if central is not None and (wrong := difference(plan, outcome, central)) is not None:
        raise RunFailed(wrong)
    found = figures(outcome, central)
    if as_json:
        print(json.dumps(found.to_json(), ensure_ascii=False))
    elif not quiet:
        print(render(found))
    if not quiet:
        _say_how_it_went(plan, outcome, time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be simulated."""

    file: NetworkFile
    path: Path
    strategy: str
    seed: int
    until_us: int | None
    check: bool

    @classmethod
    def of(cls, file: NetworkFile, path: Path, seed: int | None, *, check: bool) -> Plan:
        """As a file says, unless the command line says otherwise."""
        chosen = next((each for each in (seed, file.seed) if each is not None), SEED)
        return cls(file, path, file.network.strategy, chosen, file.duration_us, check)

    def command(self) -> str:
        """What repeats the run."""
        words = ["headwater", "simulate", str(self.path), "--strategy", self.strategy, "--seed", str(self.seed)]
        if self.until_us is not None:
            words += ["--duration", f"{self.until_us}us"]
        if self.check:
            words.append("--check")
        return shlex.join(words)


def _planning(plan: Plan, strategy: str) -> dict[str, Any]:
    """The planner that decides what is evaluated where, for a strategy that needs one."""
    if not strategy_of(strategy).planned:
        return {}
    from headwater.coordinator.inev.plan.rollout import InevPlanner
    from headwater.deploy.network.problem import statistics_of
    from headwater.deploy.network.sampled_statistics import sampled

    lay_out = InevPlanner(statistics_of(plan.file, sampled(plan.file, plan.seed)))
    return {"lay_out": lay_out, "falls_back": plan.file.falls_back}


def _both(plan: Plan, watcher: Watcher | None = None) -> tuple[Outcome, Outcome | None]:
    """The run that was asked for, and beside it centr over the same events, unless it is centr itself."""
    outcome = run(plan, plan.strategy, watcher)
    return outcome, None if plan.strategy == CENTRAL else run(plan, CENTRAL)


def _recorded(plan: Plan, folder: Path, *, overwrite: bool) -> tuple[Outcome, Outcome | None]:
    """As ``_both``, with records of the run that was asked for; the folder appears when they are complete."""
    from headwater.deploy.reporting.shapes import shape_of
    from headwater.deploy.simulation.recording import Recorder
    from headwater.pipeline.prepare.prepared import Unfinished
    from headwater.pipeline.report.shape import RECORDING, write_recording

    network, path = plan.file.network, plan.path.resolve()
    name = path.parent.name if path.stem == "network" else path.stem
    births = (network.types, network.sources, plan.file.feeds, plan.seed, plan.until_us)
    events, identity = _digest(births), _digest((network, plan.strategy, births))
    with Unfinished(folder, overwrite=overwrite, mark=RECORDING, what="recording") as unfinished:
        outcome, central = _both(plan, Recorder(unfinished.folder, name, identity))
        centr_bytes = None if central is None else sum(sent.bytes for sent in central.traffic.values())
        shape = shape_of(
            network,
            name,
            plan.strategy,
            run=identity,
            seed=plan.seed,
            simulated=True,
            events=events,
            centr_bytes=centr_bytes,
        )
        write_recording(unfinished.folder, shape)
        unfinished.publish()
    return outcome, central


def _digest(what: object) -> str:
    return blake2b(repr(what).encode(), digest_size=8).hexdigest()


def run(plan: Plan, strategy: str, watcher: Watcher | None = None, *, label: str = "") -> Outcome:
    """The run itself, with a progress bar on a terminal."""
    from headwater.deploy.simulation.births import births
    from headwater.deploy.simulation.simulator import simulate as run_simulation

    born, first_us = 0, 0

    def counted(events: Iterable[tuple[int, int, Event]]) -> Iterator[tuple[int, int, Event]]:
        nonlocal born, first_us
        for each in events:
            if not born:
                first_us = each[0]
            born += 1
            yield each

    with Progress(label or f"simulating {strategy}") as progress:

        def watch(now_us: int) -> None:
            progress.update(born, min(1.0, (now_us - first_us) / plan.until_us) if plan.until_us else None)

        try:
            return run_simulation(
                plan.file.network,
                counted(births(plan.file, seed=plan.seed, until_us=plan.until_us)),
                strategy=strategy,
                seed=plan.seed,
                on_progress=watch,
                check=plan.check,
                watcher=watcher,
                **_planning(plan, strategy),
            )
        except Exception as error:
            # Wrong input says what is wrong; whatever else goes wrong must be possible to look at again.
            if isinstance(error, RunFailed) or not isinstance(error, HeadwaterError):
                say(f"strategy {strategy} failed with seed {plan.seed}; to repeat it: {plan.command()}")
            raise


def difference(plan: Plan, outcome: Outcome, central: Outcome) -> str | None:
    """What sinks received under a strategy and not under centr, or the other way round; None as it must be: no strategy
    may change what sinks receive."""
    ours, theirs = (Counter(map(_identity, each.delivered)) for each in (outcome, central))
    if ours == theirs:
        return None
    shown = {_identity(each): each for each in (*outcome.delivered, *central.delivered)}
    surplus = [shown[identity] for identity in (ours - theirs).elements()]
    missing = [shown[identity] for identity in (theirs - ours).elements()]
    examples = [f"  too many at {each.node}: {each.item!r}" for each in surplus[:EXAMPLES_MAX]]
    examples += [f"  missing at {each.node}: {each.item!r}" for each in missing[:EXAMPLES_MAX]]
    return (
        f"{plan.strategy} and centr delivered different events ({len(surplus):,} only with {plan.strategy}, "
        f"{len(missing):,} only with centr), which is a bug; seed {plan.seed}, to repeat it: {plan.command()}\n"
        + "\n".join(examples)
    )


def _identity(delivery: Delivery) -> tuple[Any, ...]:
    item = delivery.item
    if isinstance(item, Composite):
        return delivery.sink, item.id, *item.attributes.values()
    return delivery.sink, item.node, item.seq


def _strategies(given: str | None) -> list[str]:
    """The strategies that --strategy names, each once; none where it says nothing."""
    if given is None:
        return []
    found: list[str] = []
    for name in given.split(","):
        strategy = name.strip()
        found += STRATEGIES if strategy == "all" else [_checked(strategy)]
    return list(dict.fromkeys(found))


def _checked(strategy: str) -> str:
    if strategy in STRATEGIES:
        return strategy
    raise ConfigError(unknown_strategy(strategy, "all"))


def check_feeds(plan: Plan) -> None:
    """Only what a simulation can bring about, and only so much of it that it ends."""
    if plan.until_us is not None and plan.until_us <= 0:
        raise ConfigError("a run of no duration has no events; give it more, as in --duration 10s")
    for source, feed in zip(plan.file.network.sources, plan.file.feeds, strict=True):
        where = f"{plan.path}: the source of {source.type} at {source.node}"
        if isinstance(feed, MqttFeed):
            raise ConfigError(
                f"{where} reads {feed.topic!r} from a broker, which a simulation has not; give it a trace or a rate"
            )
        if isinstance(feed, ClientFeed):
            raise ConfigError(f"{where} is fed by programs, which a simulation has not; give it a trace or a rate")
        if isinstance(feed, ReplayFeed):
            raise ConfigError(
                f"{where} is fed by headwater replay, which a simulation has not; "
                "give it the trace, too (trace: FOLDER)"
            )
        if isinstance(feed, RateFeed) and plan.until_us is None:
            raise ConfigError(
                f"{where} makes events for ever; say how long with duration: in the file, or with --duration 10s"
            )


def _say_how_it_went(plan: Plan, outcome: Outcome, seconds: float) -> None:
    """When parts of the plan fell back, and how long the run was."""
    for change, from_us in outcome.held_from:
        if isinstance(change, FallBack):
            say(f"after {_show_span(from_us - min(event.ts for event in outcome.born))}: {change.why}")
    born = len(outcome.born)
    span = _show_span(_span_us(plan, outcome))
    say(f"{plural(born, 'event')} in {span} of virtual time, seed {plan.seed}; took {seconds:.2f} s")


def _span_us(plan: Plan, outcome: Outcome) -> int:
    """From the first possible birth to the end of the births: rates last for the duration, traces end by themselves."""
    if plan.until_us is not None and any(isinstance(feed, RateFeed) for feed in plan.file.feeds):
        return plan.until_us
    times = [event.ts for event in outcome.born]
    return max(times) - min(times) if times else 0


def _show_span(span_us: int) -> str:
    """A duration with at most two decimals."""
    length = next((each for _, each in UNITS_US[:-1] if span_us >= each), 100)
    hundredth = length // 100
    return show_us(round(span_us / hundredth) * hundredth)


def _refuse_outputs_of_one_run(given: Mapping[str, Path | None]) -> None:
    for name, path in given.items():
        if path is not None:
            raise ConfigError(
                f"{name} is for one run; leave it out, or simulate one strategy without --seeds or --chart"
            )


def _check_outputs(plan: Plan, out: Path | None, tables: Path | None) -> None:
    refuse_to_overwrite(plan, out)
    refuse_to_overwrite(plan, tables)
    if out is not None and tables is not None and out.absolute() == tables.absolute():
        raise ConfigError(f"--out and --tables both name {out}; write to two files")


def refuse_to_overwrite(plan: Plan, out: Path | None) -> None:
    """An output that is also an input would be emptied before it is read."""
    if out is None or not out.is_file():  # a terminal or /dev/null is no harm
        return
    if out.suffix in RULE_SUFFIXES:
        raise ConfigError(f"{out} is a rule file; write what sinks receive to another file")
    for read in (plan.path, *(Path(feed.path) for feed in plan.file.feeds if isinstance(feed, TraceFeed))):
        if read.exists() and out.samefile(read):
            raise ConfigError(f"{out} would be overwritten while it is in use; write to another file")


def _write_deliveries(outcome: Outcome, output: IO[str]) -> None:
    try:
        output.writelines(delivery_lines(outcome.delivered))
        output.flush()
    except OSError as error:
        raise RunFailed(f"cannot write {output.name}: {error.strerror or error}") from None


def _open_output(out: Path | None, stack: contextlib.ExitStack) -> IO[str] | None:
    if out is None:
        return None
    try:
        return stack.enter_context(open(out, "w", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise ConfigError(f"cannot write {out}: {error.strerror}") from None
