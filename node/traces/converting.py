"""Generates the code that turns rows of a trace into events of one type.

A converter knows the columns and is as fast as plain Python permits. It has the same outcome as the reader's slow path
for good rows, and calls that path for all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headwater.node.traces.times import DATE_MAX, DATE_MIN, TS_MAX, TS_MIN
from headwater.protocol.events import EventType

DEFAULT_NODE: Final = "local"
SEQ_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the rows of a trace look like, and who numbers them."""

    flavour: str
    """"text", "dict", or anything else for rows of typed values."""
    columns: Mapping[str, int]
    """Where the cells of a row stand; empty for dicts."""
    unit: str | None
    """Of times; None: microseconds, or dates as text."""
    iso: bool
    dated: bool
    """Whether times are dates in microseconds, and not numbers from a beginning of their own."""
    gives_seq: bool
    numbers: bool
    """Whether rows without a seq are numbered as they come."""

    def cell(self, column: str) -> str | None:
        """The code that reads a cell; None if rows have no such column."""
        if self.flavour == "dict":
            return f"row.get({column!r})"
        return f"row[{self.columns[column]}]" if column in self.columns else None


def converter_code(shape: RowShape, event_type: EventType | None, noticed: Collection[str]) -> str:
    """The source of ``convert(row, horizon)`` for a type; None: only time, node and seq of its events count.

    ``noticed`` are the columns that need not be noticed any more.
    """
    body: list[str] = []
    if shape.flavour == "text":
        body.append(f"if len(row) != {len(shape.columns)}: return slow(row, horizon)")
    body += _time_code(shape)
    node = shape.cell("node")
    body.append(f"node = {DEFAULT_NODE!r}" if node is None else f"node = nodes[{node}]")
    names: list[str] = []
    if event_type is not None:
        names = [f"v{index}" for index in range(len(event_type.attributes))]
        body += _attributes_code(shape, event_type)
        body += _notice_code(shape, noticed)
    body += _seq_code(shape)
    values = "".join(f", {name}" for name in names)
    body.append(f"return new(Event, (ts, node, seq, event_type{values}))")
    code = "def convert(row, horizon):\n    try:\n"
    code += "".join(f"        {line}\n" for line in body)
    code += "    except (ValueError, LookupError, TypeError, OverflowError, BadRow, BadTime):\n"
    return code + "        return slow(row, horizon)\n"


def _time_code(shape: RowShape) -> Iterator[str]:
    yield f"ts = {shape.cell('ts')}"
    if shape.unit is not None:
        yield "ts = time_of(ts)"
    elif shape.flavour == "text":
        yield "ts = iso(ts) if ts[4:5] == '-' else time_of(ts)" if shape.iso else "ts = int(ts)"
    else:
        yield "if ts.__class__ is not int: ts = time_of(ts)"
    least, most = (DATE_MIN, DATE_MAX) if shape.dated else (TS_MIN, TS_MAX)
    yield f"if not {least} <= ts <= {most}: return slow(row, horizon)"
    yield "if ts < horizon: return None"


def _attributes_code(shape: RowShape, event_type: EventType) -> Iterator[str]:
    declared = zip(event_type.attributes, event_type.kinds, event_type.optional, strict=True)
    for index, (attribute, kind, optional) in enumerate(declared):
        variable, cell = f"v{index}", shape.cell(attribute)
        if cell is None:
            yield f"{variable} = None" if optional else "return slow(row, horizon)"
        elif shape.flavour == "text":
            yield from _text_code(variable, cell, kind, optional)
        else:
            yield from _value_code(variable, cell, kind, optional)


def _notice_code(shape: RowShape, noticed: Collection[str]) -> Iterator[str]:
    """Columns that the type does not have, and that were not noticed before."""
    if shape.flavour == "dict":
        yield "if not row.keys() <= noticed: notice(event_type, row)"
        return
    extra = [f"row[{at}]" for column, at in shape.columns.items() if column not in noticed]
    if extra:
        test = " or ".join(extra if shape.flavour == "text" else [f"{cell} is not None" for cell in extra])
        yield f"if {test}: notice(event_type, row)"


def _seq_code(shape: RowShape) -> Iterator[str]:
    if shape.flavour == "dict" and not shape.gives_seq:
        yield "if 'seq' in row: return slow(row, horizon)"
    if shape.gives_seq:
        seq = shape.cell("seq")
        if shape.flavour == "text":
            yield f"seq = int({seq})"
        else:
            yield f"seq = {seq}"
            yield "if seq.__class__ is not int: return slow(row, horizon)"
        yield f"if not 0 <= seq <= {SEQ_MAX}: return slow(row, horizon)"
    elif shape.numbers:
        yield "numbers[node] = seq = numbers.get(node, 0) + 1"
    else:
        yield "seq = 0"


def _text_code(variable: str, cell: str, kind: str, optional: bool) -> list[str]:
    convert = {
        "int": "int({})",
        "float": "float({})",
        "bool": "booleans[{}]",
        "string": "{}",
        "any": "value_of_text({})",
    }[kind]
    lines = [f"{variable} = {cell}"]
    if optional:
        if kind == "string":
            lines.append(f"if not {variable}: {variable} = None")
            return lines
        lines.append(f"if {variable}:")
        lines.append(f"    {variable} = {convert.format(variable)}")
        if kind in ("float", "any"):
            lines.append(f"    if {variable}.__class__ is float and {variable} - {variable}: return slow(row, horizon)")
        lines.append(f"else: {variable} = None")
        return lines
    if kind == "string":
        lines.append(f"if not {variable}: return slow(row, horizon)")
    elif kind == "any":
        lines.append(f"{variable} = {convert.format(variable)}")
        lines.append(f"if {variable} is None: return slow(row, horizon)")
        lines.append(f"if {variable}.__class__ is float and {variable} - {variable}: return slow(row, horizon)")
    else:
        lines = [f"{variable} = {convert.format(cell)}"]
        if kind == "float":
            # A number minus itself is 0, unless it is infinite or no number.
            lines.append(f"if {variable} - {variable}: return slow(row, horizon)")
    return lines


def _value_code(variable: str, cell: str, kind: str, optional: bool) -> list[str]:
    lines = [f"{variable} = {cell}"]
    test = {
        "int": f"{variable}.__class__ is not int",
        "float": f"{variable}.__class__ is not float or {variable} - {variable}",
        "bool": f"{variable}.__class__ is not bool",
        "string": f"{variable}.__class__ is not str",
        "any": "True",
    }[kind]
    if kind == "float":
        lines.append(f"if {variable}.__class__ is int: {variable} = float({variable})")
    if optional:
        test = f"{variable} is not None and ({test})"
    lines.append(f"if {test}: return slow(row, horizon)")
    return lines
