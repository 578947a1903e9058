"""What a single cell of a trace stands for: the name of a node, the number of an event, the value of an attribute."""

from __future__ import annotations

import sys
from typing import Any

from headwater.node.traces.converting import DEFAULT_NODE, SEQ_MAX
from headwater.node.traces.rows import BadRow
from headwater.node.traces.types import BOOLEANS, value_of_text
from headwater.protocol.errors import EventError
from headwater.protocol.events import EventType, Value


class NodeNames(dict[Any, str]):
    """Node names as they stand in the rows, checked once each and shared between events."""

    def __missing__(self, cell: Any) -> str:
        if cell is None or cell == "":
            name = DEFAULT_NODE
        elif isinstance(cell, str):
            try:
                cell.encode()
            except UnicodeEncodeError:
                raise BadRow(f"node {cell!r} is not a Unicode text") from None
            name = sys.intern(cell)
        elif isinstance(cell, int) and not isinstance(cell, bool):
            name = str(cell)
        else:
            raise BadRow(f"node {cell!r} is not a name")
        self[cell] = name
        return name


def typed_cell(event_type: EventType, attribute: str, kind: str, cell: str | None) -> Value:
    if not cell:
        return None
    try:
        match kind:
            case "int":
                return int(cell)
            case "float":
                return float(cell)
            case "bool":
                return BOOLEANS[cell]
            case "any":
                return value_of_text(cell)
            case _:
                return cell
    except (ValueError, KeyError):
        shown = cell if len(cell) <= 60 else cell[:57] + "..."
        raise EventError(f"{event_type.name}.{attribute} is declared {kind}, but {shown!r} is not") from None


def seq_of_cell(cell: Any) -> int:
    if cell is None or cell == "":
        raise BadRow("the row has no seq, but the trace gives them; give it everywhere or nowhere")
    try:
        if isinstance(cell, bool | float):
            raise ValueError
        seq = int(cell)
    except (ValueError, TypeError):
        raise BadRow(f"seq {cell!r} is not an integer") from None
    if not 0 <= seq <= SEQ_MAX:
        raise BadRow(f"seq {cell} is negative or does not fit into 64 bits")
    return seq
