"""Selects the rows of a trace file that belong to one source of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from headwater.node.traces.converting import DEFAULT_NODE
from headwater.node.traces.prepared_trace import files_of, is_prepared
from headwater.node.traces.reader import TraceReader, TraceSource, survey
from headwater.protocol.edge import USUAL, Layout
from headwater.protocol.events import Event, EventType

PREPARED: Final = Layout(time_unit="us")
"""How the files of a prepared trace are written; its times may count from a beginning of their own."""


def look(path: str, layout: Layout = USUAL) -> tuple[bool, bool]:
    """Whether the rows are in order of time, and whether they come with a seq."""
    if is_prepared(path):
        return True, True
    rows = TraceSource.at(path, layout=layout).open()
    try:
        return survey(rows).in_order, rows.gives_seq
    finally:
        rows.close()


def events_of_source(
    path: str,
    node: str,
    event_type: EventType,
    *,
    in_order: bool,
    layout: Layout = USUAL,
    on_bad: Callable[[str], None] | None = None,
) -> Iterator[Event]:
    """The rows of this type that name this node, or none, in order of time; the same ones each time.

    The first bad row is an EventError, unless ``on_bad`` is told of each.
    """
    if is_prepared(path):
        for file in files_of(path, node):
            yield from events_of_source(file, node, event_type, in_order=True, layout=PREPARED, on_bad=on_bad)
        return
    rows = TraceSource.at(path, layout=layout).open()
    try:
        reader = TraceReader(rows, {event_type.name: event_type}, on_bad=on_bad)
        if in_order:
            for batch, _ in reader.batches():
                yield from (event for event in batch if event[1] in (node, DEFAULT_NODE))
        else:
            yield from [event for event in reader.whole() if event[1] in (node, DEFAULT_NODE)]
    finally:
        rows.close()
