"""Options of the commands that look at a running network or change it, and how they show what they wait for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
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
HOME = Path(".headwater")


@contextlib.contextmanager
def waiting(text: str) -> Iterator[None]:
    """On a terminal a line that says what is waited for, while it is; in a pipe nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def since(time_us: int | None) -> str:
    """From when on something holds, in words."""
    from headwater.protocol.text import show_ts

    return "from the beginning" if time_us is None else f"from {show_ts(time_us)} on"


def held_until(time_us: int | None) -> str:
    """Up to when something held that has ended, in words."""
    from headwater.protocol.text import show_ts

    return "" if time_us is None else f"; it held until {show_ts(time_us)}"
