"""``headwater report``: what runs sent and found and how long it took, as tables and as a page."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headwater.deploy.cli.common import say
from headwater.pipeline.report.job import IN_PROCESS_BYTES_MAX, check_runs, report_tables
from headwater.protocol.errors import ConfigError

if TYPE_CHECKING:
    from headwater.pipeline.prepare.prepared_trace import PreparedTrace
    from headwater.pipeline.report.inputs import Recorded, RunFiles
    from headwater.pipeline.report.tables import Tables

ENGINES: Final = ("auto", "arrow", "spark")


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Runs by name, or their folders: of `headwater up`, or of `headwater simulate --record`.",
            metavar="RUN..",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to create, with tables/ and report.html.", metavar="FOLDER")],
    trace: Annotated[
        Path | None,
        typer.Option(
            help="The prepared trace that was replayed, from which centralised traffic is counted.", metavar="FOLDER"
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="The folder of all runs.", metavar="DIR")] = Path(".headwater"),
    master: Annotated[
        str | None, typer.Option(help="A Spark master. [default: all cores of this machine]", metavar="URL")
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="What reads the records: spark, for any size; arrow, this process alone, which needs no Java; auto: "
            f"arrow up to {IN_PROCESS_BYTES_MAX >> 20} MiB of records, and spark beyond or with --master.",
            metavar="ENGINE",
        ),
    ] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing report.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object.")] = False,
) -> None:
    """Report on runs, from the records of their nodes.

    The report shows what crossed which link and why, relative to sending everything to one node; how long composite
    events took; what nodes evaluated and stored; and what was late or lost. Several runs are shown side by side; for
    runs over the same events it also compares what they delivered.

    Example: headwater report fire --out fire-report
    """
    from headwater.deploy.reporting.groups import grouped
    from headwater.deploy.reporting.inputs import find_runs
    from headwater.deploy.reporting.page import page
    from headwater.deploy.reporting.terminal import render, to_json
    from headwater.pipeline.prepare.prepared_trace import Unfinished, open_prepared
    from headwater.pipeline.report.tables import write_tables

    _check_engine(engine, master)
    recorded_runs, notes = find_runs(runs, folder)
    for line in notes:
        say(line)
    is_on_spark = _is_on_spark(engine, master, check_runs(recorded_runs))
    prepared = None if trace is None else open_prepared(trace)
    with Unfinished(out, overwrite=overwrite, mark="report.html", kind="report") as unfinished:
        tables = grouped(
            _tables(recorded_runs, prepared, master)
            if is_on_spark
            else report_tables(None, recorded_runs, trace=prepared)
        )
        say("writing tables and the page")
        write_tables(tables, unfinished.folder / "tables")
        shapes = {run.label: run.shape for run in recorded_runs}
        try:
            (unfinished.folder / "report.html").write_text(page(tables, shapes), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {unfinished.folder}: {error.strerror}") from None
        unfinished.publish()
    for row in tables["notes"]:
        say(f"note: {row['run']}: {row['note']}")
    print(json.dumps(to_json(tables), ensure_ascii=False) if json_ else render(tables))
    say(f"the page is {out / 'report.html'}")


def _check_engine(engine: str, master: str | None) -> None:
    if engine not in ENGINES:
        raise ConfigError(f"--engine: there is no {engine!r}; there is: {', '.join(ENGINES)}")
    if engine == "arrow" and master is not None:
        raise ConfigError("--master names a Spark that --engine arrow does not use; leave one of them out")
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "reports are written with pyarrow, which is not installed; write: pip install 'headwater[report]'"
        )


def _is_on_spark(engine: str, master: str | None, recorded_runs: Sequence[RunFiles]) -> bool:
    """Whether Spark reads the records; if no engine was chosen, their size decides."""
    if engine != "auto" or master is not None:
        return engine != "arrow"
    size = sum(run.bytes() for run in recorded_runs)
    if size > IN_PROCESS_BYTES_MAX:
        say(
            f"{size / 1e6:,.0f} MB of records are for Spark; --engine arrow reads them without it, if memory some ten "
            "times as large is there"
        )
    return size > IN_PROCESS_BYTES_MAX


def _tables(runs: Sequence[Recorded], trace: PreparedTrace | None, master: str | None) -> Tables:
    from headwater.pipeline.spark.session import spark_session

    say("starting Spark")
    with spark_session("report", master) as spark:
        return report_tables(spark, runs, trace=trace, tell=say)
