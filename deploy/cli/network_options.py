"""Options of the commands that query or change a running network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

RunName: TypeAlias = Annotated[
    str | None,
    typer.Option("--name", help="The name of the run, if there are several.", metavar="NAME", show_default=False),
]
RunFolder: TypeAlias = Annotated[Path, typer.Option("--folder", help="The folder of all runs.", metavar="DIR")]
CoordinatorUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        help="The HTTP address of the coordinator, for a network that was not started here.",
        metavar="URL",
        show_default=False,
    ),
]
Token: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="The coordinator's token. [default: that of the run]",
        metavar="TOKEN",
        envvar="HEADWATER_TOKEN",
        show_default=False,
        show_envvar=True,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None, typer.Option("--token-file", help="The file that holds the token.", metavar="FILE", show_default=False)
]
AllowFunctions: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-functions",
        help="Run the Python functions that the network file names under functions:. Only for files you trust.",
    ),
]
HOME = Path(".headwater")
