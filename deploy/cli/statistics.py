"""``headwater statistics``: rates and selectivities of a prepared trace, for planners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.deploy.cli.common import say
from headwater.deploy.cli.statistics_task import ROLES_LIMIT, ROLES_MAX, StatisticsTask, task_of
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.deploy.descriptions.statistics_file import CountedTrace

AUTO: Final = "auto"
EXACT: Final = "exact"


def statistics(
    trace: Annotated[Path, typer.Argument(help="A folder that headwater traces has prepared.", metavar="TRACE")],
    rules: Annotated[
        list[Path] | None,
        typer.Option(help="Rules whose conditions are counted; may be given several times.", metavar="FILE"),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            help="A network file: count for its rules, and only the types and nodes of its sources.", metavar="NETWORK"
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write, for headwater plan --statistics.", metavar="FILE")
    ] = None,
    sample: Annotated[
        str,
        typer.Option(
            help="exact, a share of the trace's time (0.1), or auto: exact wherever that takes reasonable time.",
            metavar="SHARE",
        ),
    ] = AUTO,
    roles: Annotated[
        int, typer.Option(help=f"Count matches of up to this many roles together (2 to {ROLES_LIMIT}).", metavar="N")
    ] = ROLES_MAX,
    seed: Annotated[
        int, typer.Option(help="The seed that chooses the stretches of time of a sample.", metavar="N")
    ] = 1,
    master: Annotated[
        str | None, typer.Option(help="A Spark master. [default: all cores of this machine]", metavar="URL")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Count what planners need in a prepared trace: rates, burstiness, selectivities, matches.

    Rates, gaps and burstiness are counted exactly. For rules, so are conditions on single events, and pairs that are
    related only by time, order and equal values. Other combinations are joined, where there are too many in a sample of
    the trace's time.
    """
    from headwater.deploy.descriptions.statistics_file import (
        as_yaml,
        check_statistics_target,
        document,
        in_words,
        write_statistics,
    )
    from headwater.pipeline.spark.session import spark_session

    share = _share(sample)
    task = task_of(trace, rules or (), network, roles)
    if out is not None:
        check_statistics_target(out)
    for warning in task.warnings:
        say(f"warning: {warning}")
    say("starting Spark")
    with spark_session("statistics", master) as spark:
        counted = _counted(spark, task, share, sample, seed)
    if out is not None:
        write_statistics(out, as_yaml(counted))
        say(f"{out} is written")
    if json_:
        print(json.dumps(document(counted), indent=1, ensure_ascii=False))
    else:
        print("\n".join(in_words(counted)))


def _share(sample: str) -> float | None:
    if sample == AUTO:
        return None
    try:
        share = 1.0 if sample == EXACT else float(sample)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(f"--sample {sample!r} is not a share; write a number above 0 and at most 1, exact or auto")
    return share


def _counted(spark: SparkSession, task: StatisticsTask, share: float | None, sample: str, seed: int) -> CountedTrace:
    from headwater.deploy.descriptions.statistics_file import CountedTrace
    from headwater.pipeline.statistics.arrivals import arrivals
    from headwater.pipeline.statistics.rules import rule_statistics
    from headwater.pipeline.statistics.selectivities import TraceFacts

    manifest = task.trace.manifest
    events = _of_sources(task.trace.events(spark), task)
    say(f"counting how {manifest.events:,} events arrive")
    arrived = arrivals(events, manifest.first_us, manifest.last_us, manifest.events)
    if not arrived:
        raise ConfigError(
            f"{task.trace.folder} has no events of the types and nodes that the network has sources of; "
            "prepare a trace for this network"
        )
    counted = sum(arrival.events for (_, node), arrival in arrived.items() if node is None)
    if task.sources is None and counted != manifest.events:
        raise ConfigError(
            f"{task.trace.folder} has {counted:,} events, but its manifest says {manifest.events:,}; prepare it again"
        )
    facts = TraceFacts(manifest.first_us, manifest.last_us, manifest.kinds)
    matches = rule_statistics(spark, events, facts, task.rules, sample=share, seed=seed, tell=say) if task.rules else {}
    return CountedTrace(task, arrived, matches, sample, seed)


def _of_sources(events: DataFrame, task: StatisticsTask) -> DataFrame:
    """The events of the network's sources, or all of them."""
    from pyspark.sql import functions as F

    if task.sources is None:
        return events
    sources = F.array(
        *(F.struct(F.lit(type).alias("type"), F.lit(node).alias("node")) for type, node in sorted(task.sources))
    )
    return events.where(F.array_contains(sources, F.struct("type", "node")))
