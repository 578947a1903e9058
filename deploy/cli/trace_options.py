"""Options that describe the format of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from headwater.deploy.network.units import UNIT_WORDS, delimiter_of
from headwater.protocol.edge import TIME_UNITS, Layout
from headwater.protocol.errors import ConfigError

TimeUnitOption = Annotated[
    str | None,
    typer.Option(
        "--time-unit",
        help="The unit of timestamps: s, ms, us or ns since 1970, fractions allowed, or iso. [default: integers are "
        "microseconds, anything else is ISO 8601]",
        metavar="UNIT",
        show_default=False,
    ),
]
TimeColumnOption = Annotated[str, typer.Option("--time-column", help="The column of timestamps.", metavar="NAME")]
TypeColumnOption = Annotated[str, typer.Option("--type-column", help="The column of event types.", metavar="NAME")]
DelimiterOption = Annotated[
    str, typer.Option("--delimiter", help="The delimiter of CSV cells: one character, or tab.", metavar="CHARACTER")
]


def layout_of(time_unit: str | None, time_column: str, type_column: str, delimiter: str) -> Layout:
    """How a trace is written, as options say it; a ConfigError if that cannot be."""
    if time_unit is not None and time_unit not in TIME_UNITS:
        near = UNIT_WORDS.get(time_unit.lower())
        cure = f"did you mean {near}? " if near else ""
        raise ConfigError(
            f"{time_unit!r} is not a unit of time; {cure}write --time-unit and one of {', '.join(TIME_UNITS)}"
        )
    if time_column == type_column:
        raise ConfigError(f"the column {time_column!r} cannot hold both the time and the type")
    return Layout(time_column, time_unit, type_column, delimiter_of(delimiter))


def the_trace(names: Sequence[str]) -> str:
    """The one trace that --events names; of several the command line would take the last and not say so."""
    if len(names) != 1:
        raise ConfigError(f"--events takes one trace, not {len(names)}; put the rows into one file, in any order")
    return names[0]
