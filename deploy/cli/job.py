"""``headwater job``: the commands on Spark, packaged for spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from headwater.deploy.cli.common import say
from headwater.pipeline.prepare.prepared_trace import Unfinished
from headwater.pipeline.spark.shipping import write_code

CODE: Final = "headwater.zip"
MAIN: Final = "headwater_job.py"


def job(
    out: Annotated[Path, typer.Option(help=f"The folder to create, with {CODE} and {MAIN}.", metavar="FOLDER")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing job.")] = False,
) -> None:
    """Package all commands for spark-submit.

    The zip file contains Headwater itself; its dependencies (pip install 'headwater[spark]') must be installed where
    the driver and the tasks run.

    Example: spark-submit --master spark://host:7077 --py-files job/headwater.zip job/headwater_job.py traces zeek ..
    """
    from importlib.resources import files

    with Unfinished(out, overwrite=overwrite, mark=MAIN, kind="job") as unfinished:
        write_code(unfinished.folder / CODE)
        (unfinished.folder / MAIN).write_bytes((files("headwater.deploy.cli") / "spark_job.py").read_bytes())
        unfinished.publish()
    say("for commands as in headwater COMMAND .., write:")
    print(f"spark-submit --master URL --py-files {out / CODE} {out / MAIN} COMMAND ..")
