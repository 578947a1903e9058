"""Tables on the terminal, all in one style: columns two spaces apart, figures to the right, no lines between.

In a pipe a table is plain text and as wide as it must be. On a terminal rich makes the header bold and lets a cell that
has no room go on in the next line. Nothing is ever cut off. Importing rich takes 0.1 s, so that is done only where a
table is about to be written to a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from typing import IO, Final

GAP: Final = 2  # spaces between two columns


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, figures: Collection[int] = (), indent: int = 0
) -> list[str]:
    """The lines of a table as plain text. ``figures`` are the columns whose cells stand to the right, from 0."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        " " * indent
        + (" " * GAP)
        .join(
            cell.rjust(width) if number in figures else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        for line in lines
    ]


def print_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    figures: Collection[int] = (),
    indent: int = 0,
    file: IO[str] | None = None,
) -> None:
    """Write a table to standard output, or to ``file``."""
    out = sys.stdout if file is None else file
    if not out.isatty():
        out.writelines(f"{line}\n" for line in table_lines(header, rows, figures=figures, indent=indent))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text  # a plain text: brackets and colons in names are no markup

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for number, name in enumerate(header):
        table.add_column(Text(name), justify="right" if number in figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=out, highlight=False).print(Padding(table, (0, 0, 0, indent), expand=False))
