"""Simulated runs as the command and programs start them: what is simulated, and whether sinks got what centr gives."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.progress import ProgressLine
from headwater.deploy.simulation.outcome import Delivery, Outcome
from headwater.protocol.composites import Composite
from headwater.protocol.edge import ClientFeed, MqttFeed, RateFeed, ReplayFeed, TraceFeed
from headwater.protocol.errors import ConfigError, HeadwaterError
from headwater.protocol.events import Event
from headwater.protocol.strategy import CENTRAL, strategy_of

if TYPE_CHECKING:
    from headwater.deploy.network.file import NetworkFile
    from headwater.deploy.simulation.remote import SimulatedTables
    from headwater.deploy.simulation.simulator import SimulationWatcher

SEED: Final = 0  # where neither the command nor the file gives one: a run can always be repeated
EXAMPLES_MAX: Final = 3  # of each kind of difference between two runs


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A network, the events that are born in it, and how it evaluates its rules."""

    file: NetworkFile
    path: Path
    strategy: str
    seed: int
    until_us: int | None
    check: bool

    @classmethod
    def of(cls, file: NetworkFile, path: Path, seed: int | None, *, check: bool) -> SimulatedRun:
        """As a file says, unless the command line says otherwise."""
        chosen = next((number for number in (seed, file.seed) if number is not None), SEED)
        return cls(file, path, file.network.strategy, chosen, file.duration_us, check)

    def command(self) -> str:
        """What repeats the run."""
        words = ["headwater", "simulate", str(self.path), "--strategy", self.strategy, "--seed", str(self.seed)]
        if self.until_us is not None:
            words += ["--duration", f"{self.until_us}us"]
        if self.check:
            words.append("--check")
        if self.file.network.functions is not None:
            words.append("--allow-functions")
        return shlex.join(words)


def check_feeds(run: SimulatedRun) -> None:
    """Checks that the network can be simulated, and that the simulation ends."""
    if run.until_us is not None and run.until_us <= 0:
        raise ConfigError("a run of no duration has no events; give it more, as in --duration 10s")
    for source, feed in zip(run.file.network.sources, run.file.feeds, strict=True):
        where = f"{run.path}: the source of {source.type} at {source.node}"
        match feed:
            case MqttFeed():
                raise ConfigError(
                    f"{where} reads {feed.topic!r} from a broker, which a simulation does not have; "
                    f"give it a trace or a rate"
                )
            case ClientFeed():
                raise ConfigError(
                    f"{where} is fed by programs, which a simulation does not have; give it a trace or a rate"
                )
            case ReplayFeed():
                raise ConfigError(
                    f"{where} is fed by headwater replay, which a simulation does not have; "
                    "give it the trace, too (trace: FOLDER)"
                )
            case RateFeed():
                if run.until_us is None:
                    raise ConfigError(
                        f"{where} makes events for ever; say how long with duration: in the file, or with --duration "
                        "10s"
                    )
            case TraceFeed():
                pass  # it ends by itself
            case _:
                assert_never(feed)


def check_functions(run: SimulatedRun, *, allowed: bool, how: str = "add --allow-functions") -> None:
    """The rules may call functions of a Python file: nodes run them only where that is allowed."""
    if run.file.network.functions is None:
        return
    from headwater.deploy.network.function_file import allow_functions

    allow_functions(run.file.network, allowed=allowed, how=how)


def run_beside_centr(run: SimulatedRun, watcher: SimulationWatcher | None = None) -> tuple[Outcome, Outcome | None]:
    """The run that was asked for, and beside it centr over the same events, unless it is centr itself."""
    outcome = perform(run, run.strategy, watcher)
    return outcome, None if run.strategy == CENTRAL else perform(run, CENTRAL)


def record_beside_centr(run: SimulatedRun, folder: Path, *, overwrite: bool) -> tuple[Outcome, Outcome | None]:
    """As ``run_beside_centr``, with records of the run; the folder appears when they are complete."""
    from headwater.deploy.reporting.shapes import shape_of
    from headwater.deploy.simulation.recording import Recorder
    from headwater.pipeline.prepare.prepared_trace import Unfinished
    from headwater.pipeline.report.shape import RECORDING, write_recording

    network, path = run.file.network, run.path.resolve()
    name = path.parent.name if path.stem == "network" else path.stem
    births = (network.types, network.sources, run.file.feeds, run.seed, run.until_us)
    events, identity = _digest(births), _digest((network, run.strategy, births))
    with Unfinished(folder, overwrite=overwrite, mark=RECORDING, kind="recording") as unfinished:
        outcome, central = run_beside_centr(run, Recorder(unfinished.folder, name, identity))
        centr_bytes = None if central is None else sum(sent.bytes for sent in central.traffic.values())
        shape = shape_of(
            network,
            name,
            run.strategy,
            run=identity,
            seed=run.seed,
            simulated=True,
            events=events,
            centr_bytes=centr_bytes,
        )
        write_recording(unfinished.folder, shape)
        unfinished.publish()
    return outcome, central


def _digest(inputs: object) -> str:
    return blake2b(repr(inputs).encode(), digest_size=8).hexdigest()


def perform(run: SimulatedRun, strategy: str, watcher: SimulationWatcher | None = None, *, label: str = "") -> Outcome:
    """The run itself, with a progress bar on a terminal."""
    from headwater.deploy.simulation.births import births
    from headwater.deploy.simulation.simulator import simulate as run_simulation

    born, first_us = 0, 0

    def counted(events: Iterable[tuple[int, int, Event]]) -> Iterator[tuple[int, int, Event]]:
        nonlocal born, first_us
        for birth in events:
            if not born:
                first_us = birth[0]
            born += 1
            yield birth

    with _tables(run) as tables, ProgressLine(label or f"simulating {strategy}") as progress:

        def watch(now_us: int) -> None:
            progress.update(born, min(1.0, (now_us - first_us) / run.until_us) if run.until_us else None)

        try:
            return run_simulation(
                run.file.network,
                counted(births(run.file, seed=run.seed, until_us=run.until_us)),
                strategy=strategy,
                seed=run.seed,
                on_progress=watch,
                check=run.check,
                watcher=watcher,
                remote=tables,
                **_planning(run, strategy),
            )
        except Exception as error:
            # Wrong input says what is wrong; whatever else goes wrong must be possible to look at again.
            if isinstance(error, RunFailed) or not isinstance(error, HeadwaterError):
                say(f"strategy {strategy} failed with seed {run.seed}; to repeat it: {run.command()}")
            raise


@contextmanager
def _tables(run: SimulatedRun) -> Iterator[SimulatedTables | None]:
    """The remote tables of the network: they are asked as the run goes on, and answer in virtual time."""
    if not run.file.network.tables:
        yield None
        return
    from headwater.deploy.simulation.described_tables import simulated_tables

    with simulated_tables(run.file.network) as tables:
        yield tables


def _planning(run: SimulatedRun, strategy: str) -> dict[str, Any]:
    """The planner that decides what is evaluated where, for a strategy that needs one."""
    if not strategy_of(strategy).planned:
        return {}
    from headwater.coordinator.planners import planner_of
    from headwater.deploy.network.planning_problem import statistics_of
    from headwater.deploy.network.sampled_statistics import sampled

    lay_out = planner_of(strategy, statistics_of(run.file, sampled(run.file, run.seed)))
    return {"lay_out": lay_out, "falls_back": run.file.falls_back}


def difference(run: SimulatedRun, outcome: Outcome, central: Outcome) -> str | None:
    """What sinks received under a strategy and not under centr, or the other way round; None as it must be: no strategy
    may change what sinks receive."""
    ours, theirs = (Counter(map(_identity, run_outcome.delivered)) for run_outcome in (outcome, central))
    if ours == theirs:
        return None
    shown = {_identity(delivery): delivery for delivery in (*outcome.delivered, *central.delivered)}
    surplus = [shown[identity] for identity in (ours - theirs).elements()]
    missing = [shown[identity] for identity in (theirs - ours).elements()]
    examples = [f"  too many at {delivery.node}: {delivery.item!r}" for delivery in surplus[:EXAMPLES_MAX]]
    examples += [f"  missing at {delivery.node}: {delivery.item!r}" for delivery in missing[:EXAMPLES_MAX]]
    return (
        f"{run.strategy} and centr delivered different events ({len(surplus):,} only with {run.strategy}, "
        f"{len(missing):,} only with centr), which is a bug; seed {run.seed}, to repeat it: {run.command()}\n"
        + "\n".join(examples)
    )


def _identity(delivery: Delivery) -> tuple[Any, ...]:
    item = delivery.item
    if isinstance(item, Composite):
        return delivery.sink, item.id, *item.attributes.values()
    return delivery.sink, item.node, item.seq
