"""``headwater report``: what runs sent, found and took; tables, and a page to look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.common import say
from protocol.errors import ConfigError


def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Runs by name, or their folders: of `headwater up`, or of `headwater simulate --record`.",
            metavar="RUN..",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make: tables/ and report.html.", metavar="FOLDER")],
    trace: Annotated[
        Path | None,
        typer.Option(help="The prepared trace that was replayed: centralised is counted over it.", metavar="FOLDER"),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where runs have their folders.", metavar="DIR")] = Path(".headwater"),
    master: Annotated[
        str | None, typer.Option(help="A Spark master; otherwise all cores of this machine.", metavar="URL")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a report that is there already.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print a summary as one JSON object.")] = False,
) -> None:
    """Report on runs from the records that their nodes have left.

    What crossed which link and why, against sending everything to one node; how long composite events took; what nodes
    did and held; what was late or lost. Several runs are laid side by side, and those that had the same events are
    compared: did they deliver the same?

    Example: headwater report fire --out fire-report
    """
    from deploy.reporting.groups import grouped
    from deploy.reporting.inputs import find_runs
    from deploy.reporting.page import page
    from deploy.reporting.terminal import render, to_json
    from pipeline.prepared import Unfinished, open_prepared
    from pipeline.report.job import check_runs, report_tables
    from pipeline.report.tables import write_tables
    from pipeline.spark import spark_session

    found, said = find_runs(runs, folder)
    for line in said:
        say(line)
    check_runs(found)
    prepared = None if trace is None else open_prepared(trace)
    with Unfinished(out, overwrite=overwrite, mark="report.html", what="report") as unfinished:
        say("starting Spark")
        with spark_session("report", master) as spark:
            tables = grouped(report_tables(spark, found, trace=prepared, tell=say))
        say("writing tables and the page")
        write_tables(tables, unfinished.folder / "tables")
        shapes = {run.label: run.shape for run in found}
        try:
            (unfinished.folder / "report.html").write_text(page(tables, shapes), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write {unfinished.folder}: {error.strerror}") from None
        unfinished.publish()
    for row in tables["notes"]:
        say(f"note: {row['run']}: {row['note']}")
    print(json.dumps(to_json(tables), ensure_ascii=False) if json_ else render(tables))
    say(f"the page is {out / 'report.html'}")
