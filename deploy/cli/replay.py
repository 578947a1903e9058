"""``headwater replay``: a prepared trace into a running network."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.deploy.cli.common import RunFailed, say
from headwater.deploy.cli.progress import ProgressLine
from headwater.deploy.network.units import speed_of
from headwater.pipeline.prepare.prepared_trace import Manifest, open_prepared
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from headwater.pipeline.replay.lockstep import TaskProgress
    from headwater.pipeline.replay.replay import ReplayOutcome


def replay(
    trace: Annotated[Path, typer.Argument(help="A trace that headwater traces has prepared.", metavar="TRACE")],
    name: Annotated[
        str | None, typer.Option(help="The name of the run, if there are several.", metavar="NAME", show_default=False)
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR")] = Path(".headwater"),
    speed: Annotated[
        str,
        typer.Option(help="How many times faster than recorded, as in 10; max: as fast as the nodes accept events."),
    ] = "max",
    tasks: Annotated[
        int | None,
        typer.Option(help="How many tasks stream at the same time. [default: one per core]", show_default=False),
    ] = None,
    only_known: Annotated[
        bool, typer.Option("--only-known", help="Skip events for which the network has no source.")
    ] = False,
    no_end: Annotated[
        bool,
        typer.Option("--no-end", help="Do not end the sources: matches that wait for the watermark stay undecided."),
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until the sinks have received everything.")
    ] = False,
    master: Annotated[
        str | None, typer.Option(help="A Spark master. [default: all cores of this machine]", metavar="URL")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Stream a prepared trace into a running network, in order of time.

    The sources of the network file must have replay: any. After an interruption, the same command continues where the
    replay stopped; no event enters twice.
    """
    from headwater.deploy.cli.replay_targets import takers, targets_of, wait_until_drained
    from headwater.deploy.cluster.runs import the_run
    from headwater.pipeline.replay.replay import ReplayFailed
    from headwater.pipeline.replay.replay import replay as replay_into
    from headwater.pipeline.replay.sender import ReplayRefused
    from headwater.pipeline.spark.session import spark_session

    pace = _speed(speed)
    prepared = open_prepared(trace)
    for warning in prepared.manifest.warnings:
        say(f"warning: {warning}")
    into = the_run(folder, name, purpose="replay into")
    nodes = takers(into)
    targets = targets_of(into, nodes, prepared, only_known=only_known)
    say("starting Spark")
    with spark_session("replay", master) as spark, _Watch(prepared.manifest, pace) as watch:
        try:
            outcome = replay_into(
                spark,
                prepared,
                targets,
                speed=pace,
                tasks=tasks,
                ends=not no_end,
                only_known=only_known,
                tell=say,
                watch=watch,
            )
        except ReplayRefused as error:
            raise ConfigError(str(error)) from None
        except ReplayFailed as error:
            raise RunFailed(f"{error}; the same command continues where this one stopped") from error
        seconds = watch.seconds()
    if not no_end and not no_wait:
        say("waiting until the network has drained")
        wait_until_drained(nodes, say)
    report = _report(outcome, prepared.manifest, seconds, watch.seconds())
    print(
        json.dumps(report, ensure_ascii=False) if json_ else "\n".join(_in_words(report, into.name, paced=bool(pace)))
    )


def _speed(text: str) -> float:
    try:
        return speed_of(text)
    except ConfigError as error:
        raise ConfigError(f"--speed: {error}") from None


class _Watch:
    """Shows how far the tasks have come. Called in another thread."""

    def __init__(self, manifest: Manifest, speed: float) -> None:
        self._progress: ProgressLine | None = None
        self._manifest = manifest
        self._paced = bool(speed)
        self._began_s: float | None = None

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.__exit__(kind, error, at)

    def seconds(self) -> float:
        """Since the first task was ready."""
        return 0.0 if self._began_s is None else time.monotonic() - self._began_s

    def __call__(self, tasks: dict[int, TaskProgress]) -> None:
        from headwater.pipeline.prepare.trace_warnings import moment

        if self._progress is None and any(progress.slices is not None for progress in tasks.values()):
            self._began_s = time.monotonic()
            self._progress = ProgressLine("replaying").__enter__()
        behind = min(tasks.values(), key=lambda progress: progress.ts if progress.ts is not None else -(1 << 62))
        if behind.ts is None or self._progress is None:
            return
        manifest = self._manifest
        span_us = max(1, manifest.last_us - manifest.first_us)
        lag = f", {max(progress.lag_s for progress in tasks.values()):.1f} s behind" if self._paced else ""
        self._progress.label(f"{moment(behind.ts)}{lag}, slowest {behind.behind}")
        self._progress.update(
            sum(progress.events for progress in tasks.values()), (behind.ts - manifest.first_us) / span_us
        )


def _report(outcome: ReplayOutcome, manifest: Manifest, seconds: float, drained_s: float) -> dict[str, Any]:
    means = [feed.lag_mean_s for feed in outcome.fed]
    return {
        "trace": manifest.name,
        "checksum": manifest.checksum,
        "events": outcome.born,
        "before": outcome.before,
        "repeated": outcome.repeated,
        "late": outcome.late,
        "left_out": outcome.left_out,
        "seconds": round(seconds, 3),
        "events_per_s": round(outcome.born / seconds, 1) if seconds else None,
        "drained_s": round(drained_s, 3),
        "tasks": outcome.tasks,
        "lag_max_s": round(max((feed.lag_max_s for feed in outcome.fed), default=0.0), 3),
        "lag_mean_s": round(sum(means) / len(means), 3) if means else 0.0,
        "nodes": {
            feed.node: {"events": feed.born, "repeated": feed.repeated, "late": feed.late}
            for feed in sorted(outcome.fed, key=lambda feed: feed.node.encode())
        },
    }


def _in_words(report: dict[str, Any], run: str, *, paced: bool) -> list[str]:
    rate = f" ({report['events_per_s']:,.0f}/s)" if report["events_per_s"] is not None else ""
    lines = [
        f"{report['trace']} into {run}: {report['events']:,} events to {len(report['nodes'])} nodes "
        f"in {report['seconds']:,.1f} s{rate}, by {report['tasks']} tasks",
    ]
    if paced:
        lines.append(f"behind the pace by {report['lag_mean_s']:.2f} s on average, {report['lag_max_s']:.2f} s at most")
    lines += [
        f"{report[key]:,} events {fate}"
        for key, fate in (
            ("before", "were there already"),
            ("repeated", "were sent again after a crash, and not taken twice"),
            ("late", "came too late and are not part of the trace; they are in late.jsonl of their nodes"),
            ("left_out", "were left out: the network has no source for them"),
        )
        if report[key]
    ]
    return lines
