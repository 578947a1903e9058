"""Maps the columns that a trace's header names to the reader's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from headwater.protocol.edge import Layout
from headwater.protocol.errors import EventError


def renamed(layout: Layout, name: str) -> str:
    """A column as the reader calls it. One that is called like another that holds the time or the type gives way."""
    if name == layout.time_column:
        return "ts"
    if name == layout.type_column:
        return "type"
    return f"_{name}" if name in ("ts", "type") else name


def renamed_row(layout: Layout, row: Any) -> Any:
    return {renamed(layout, name): cell for name, cell in row.items()} if isinstance(row, dict) else row


def checked_columns(names: list[str], place: str, layout: Layout, required: Iterable[str]) -> list[str]:
    """The columns as the reader calls them."""
    for number, name in enumerate(names, 1):
        if not name:
            raise EventError(f"{place}: column {number} of the header has no name")
    for name in required:
        if name not in names:
            why = _why_missing(name, names, layout.delimiter)
            raise EventError(f"{place}: there is no column {name!r}; the columns are {', '.join(names)}{why}")
    names = [renamed(layout, name) for name in names]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise EventError(f"{place}: the header names {twice[0]!r} twice")
    return names


def _why_missing(wanted: str, names: list[str], delimiter: str) -> str:
    for separator, shown, option in (
        (",", "','", ","),
        (";", "';'", "';'"),
        ("\t", "a tab", "tab"),
        ("|", "'|'", "'|'"),
    ):
        if len(names) == 1 and separator in names[0] and separator != delimiter:
            return f" (columns are separated by {shown} here: write --delimiter {option})"
    similar = [name for name in names if name.lower() == wanted]
    if similar:
        return f" (write {wanted!r}, not {similar[0]!r})"
    column = {"ts": "--time-column NAME", "type": "--type-column NAME"}.get(wanted)
    return f" ({column} names another one)" if column else ""
