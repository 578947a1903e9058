"""The rows of a trace with their places: lists of text (CSV), dicts (JSON lines) or tuples of values (Parquet)."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from headwater.node.traces.headers import checked_columns, renamed_row
from headwater.node.traces.parquet import open_parquet, parquet_values
from headwater.node.traces.pipe_lines import PipeLines
from headwater.node.traces.prepared_trace import is_prepared
from headwater.node.traces.times import are_dates, in_another_unit, likely_unit, saying_the_unit, wrong_unit
from headwater.protocol.edge import USUAL, Layout
from headwater.protocol.errors import ConfigError, EventError

FORMATS: Final = ("csv", "jsonl", "parquet")
EXTENSIONS: Final = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
PARQUET_ROWS: Final = 8192  # rows turned into Python values at a time
UNIT_SAMPLE_ROWS: Final = 1000  # of a file; of a stream the first row tells whether times are in another unit

Row = Any


class BadRow(EventError):
    """A row that is no event; the sentence says why."""


def wrong_width(row: list[str], width: int) -> BadRow:
    return BadRow(f"the row has {len(row)} columns, the header has {width}")


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A file, which can be read again, or standard input (``-``), which cannot."""

    name: str
    format: str
    layout: Layout = USUAL
    required: tuple[str, ...] = ("type", "ts")
    """Columns that must be there, as the file calls them."""

    @classmethod
    def at(
        cls,
        name: str,
        format: str | None = None,
        layout: Layout = USUAL,
        required: tuple[str, ...] | None = None,
    ) -> TraceSource:
        if required is None:
            required = (layout.type_column, layout.time_column)
        if format is not None and format not in FORMATS:
            raise ConfigError(f"unknown format {format!r}; write one of {', '.join(FORMATS)}")
        if name == "-":
            return cls("-", format or "", layout, required)
        path = Path(name)
        if not path.exists():
            raise ConfigError(f"there is no file {name}")
        if path.is_dir():
            if is_prepared(name):
                cure = "one engine reads files; a network reads it where a source says trace:, simulated or running"
                raise ConfigError(f"{name} is a prepared trace; {cure}")
            raise ConfigError(f"{name} is a folder; name a file of events")
        return cls(name, format or _format_of(path), layout, required)

    @property
    def is_stream(self) -> bool:
        """Whether the rows can be read only once: standard input, a named pipe, a device."""
        return self.name == "-" or not Path(self.name).is_file()

    @property
    def shown(self) -> str:
        return "standard input" if self.name == "-" else self.name

    def open(self) -> Rows:
        if self.name != "-":
            try:
                stream: IO[bytes] = open(self.name, "rb")  # noqa: SIM115 -- the rows own and close it
            except OSError as error:
                raise ConfigError(f"cannot read {self.name}: {error.strerror}") from None
            return _rows_of(self, self.format, stream, size=None if self.is_stream else os.path.getsize(self.name))
        if sys.stdin is None:
            raise ConfigError("there is no standard input to read events from")
        stream = sys.stdin.buffer
        if isinstance(stream, io.BufferedReader):
            form = self.format or _sniff(stream.peek(16))
        else:  # a test or an embedding program put something else in place of standard input
            content = stream.read()
            form, stream = self.format or _sniff(content), io.BytesIO(content)
        return _rows_of(self, form, stream, size=None)


def _format_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    form = EXTENSIONS.get(suffixes[-1]) if suffixes else None
    if form is None and suffixes and suffixes[-1] in (".tesla", ".sase"):
        raise ConfigError(f"{path} is a file of rules, not of events; write: headwater run {path} --events FILE")
    if form is None:
        raise ConfigError(
            f"cannot tell the format of {path} from its name; give --format csv, --format jsonl or --format parquet"
        )
    return form


def _sniff(start: bytes) -> str:
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(b"\x1f\x8b"):
        raise ConfigError("standard input is compressed; pipe it through gunzip first, as in: zcat FILE | headwater ..")
    return "jsonl" if start.lstrip().startswith((b"{", b"[")) else "csv"


def _rows_of(source: TraceSource, form: str, stream: IO[bytes], size: int | None) -> Rows:
    if form == "parquet":
        return ParquetRows(source, stream, size)
    lines: Iterable[bytes] = stream
    if source.name.lower().endswith(".gz"):
        lines = gzip.open(stream, "rb")  # noqa: SIM115 -- the rows own and close the stream
    elif source.is_stream and isinstance(stream, io.BufferedReader):
        lines = PipeLines(stream)
    return CsvRows(source, stream, lines, size) if form == "csv" else JsonRows(source, stream, lines, size)


class Rows:
    """An iterator of rows that goes on after a bad one, with the place it has reached."""

    flavour: str
    columns: list[str] | None = None
    unit = "line"
    has_timestamps = False
    """Whether the times are of a kind that knows its unit."""

    def __init__(self, source: TraceSource, stream: IO[bytes], size: int | None) -> None:
        self.source = source
        self.form = ""
        self.gives_seq = False
        self._stream = stream
        self._size = size
        self.pipe: PipeLines | None = None
        self.raw: Iterator[Row] = iter(())
        self.replayed: list[tuple[int, Row | BadRow]] = []

    @property
    def position(self) -> int:
        """The line (or row) number of the row that was handed out last."""
        raise NotImplementedError

    def where(self, position: int | None = None) -> str:
        at = self.position if position is None else position
        if self.unit == "row":
            return f"{self.source.shown}: row {at}"
        return f"{self.source.shown}:{at}"

    def done_share(self) -> float | None:
        """How much of the file has been read, if that can be known."""
        if not self._size:
            return None
        try:
            return min(1.0, self._stream.tell() / self._size)
        except (OSError, ValueError):
            return None

    def failure(self, error: Exception) -> BadRow | None:
        """What an exception of the raw iterator means; None if the row was only blank. Moves past the row."""
        raise NotImplementedError

    def sample(self, rows_max: int) -> list[Row]:
        """The first rows that are well formed; they and the bad ones among them will be handed out again."""
        taken: list[Row] = [row for _, row in self.replayed if not isinstance(row, BadRow)]
        while len(taken) < rows_max:
            try:
                for row in self.raw:
                    self.replayed.append((self.position, row))
                    taken.append(row)
                    if len(taken) >= rows_max:
                        break
                else:
                    break
            except READ_ERRORS as error:
                bad = self.failure(error)
                if bad is not None:
                    self.replayed.append((self.position, bad))
        return taken

    def refuse_another_unit(self) -> bool:
        """An EventError if the times are dates in another unit than the one they would be read in.

        Whether they are dates for sure: a later number that is one in another unit only is then wrong, too.
        """
        if self.source.layout.time_unit is not None or self.has_timestamps:
            return False
        self.sample(1 if self.source.is_stream else UNIT_SAMPLE_ROWS)
        at: Any = "ts" if self.columns is None else self.columns.index("ts")
        cells = [(position, _cell(row, at)) for position, row in self.replayed if not isinstance(row, BadRow)]
        odd_time = in_another_unit(cell for _, cell in cells)
        if odd_time is None:
            return are_dates(cell for _, cell in cells)
        place = next(position for position, cell in cells if cell is not None and str(cell).strip() == str(odd_time))
        sentence = wrong_unit(odd_time, self.source.layout.time_column)
        unit = likely_unit(odd_time)
        raise EventError(
            f"{self.where(place)}: {sentence}; {saying_the_unit(str(unit))}, or us if microseconds are meant"
        )

    def close(self) -> None:
        if sys.stdin is None or self._stream is not sys.stdin.buffer:
            self._stream.close()


READ_ERRORS: Final = (csv.Error, ValueError, RecursionError, OSError, EOFError, zlib.error)


def _stream_error(source: TraceSource, error: Exception) -> ConfigError:
    return ConfigError(f"cannot read {source.shown}: {error or type(error).__name__}")


_CSV_FAULTS: Final = {
    "new-line character": "a carriage return stands inside it; end every line with LF or CR LF, and put a cell that "
    "holds a line break into double quotes",
    "unexpected end of data": "a double quote is opened and never closed",
    "expected after": 'a closing double quote is followed by something other than a comma; write "" for a quote '
    "inside a quoted cell",
    "field larger": f"a cell has more than {csv.field_size_limit():,} characters; perhaps a double quote before it is "
    "never closed",
}
"""What Python's reader says of a line, by a part of its sentence, and what it means to the owner of the file."""


def csv_fault(error: Exception) -> str:
    return next((meaning for part, meaning in _CSV_FAULTS.items() if part in str(error)), str(error))


class CsvRows(Rows):
    flavour = "text"

    def __init__(self, source: TraceSource, stream: IO[bytes], lines: Iterable[bytes], size: int | None) -> None:
        super().__init__(source, stream, size)
        self.pipe = lines if isinstance(lines, PipeLines) else None
        self._undecoded = 0
        self._reader = csv.reader(map(bytes.decode, lines), strict=True, delimiter=source.layout.delimiter)
        self.raw = self._reader
        try:
            header = next((row for row in self._reader if row), None)
        except UnicodeDecodeError:
            raise EventError(f"{source.shown}:1: the header is not UTF-8 text") from None
        except (OSError, EOFError, zlib.error) as error:
            raise _stream_error(source, error) from None
        except csv.Error as error:
            raise EventError(f"{source.shown}:{self.position}: the header is not CSV: {csv_fault(error)}") from None
        if header is None:
            raise EventError(f"{source.shown}: the file is empty; a CSV trace begins with a line of column names")
        header[0] = header[0].removeprefix("\ufeff")
        names = [name.strip() for name in header]
        self.columns = checked_columns(names, self.where(), source.layout, source.required)
        self.gives_seq = "seq" in self.columns

    @property
    def position(self) -> int:
        return self._reader.line_num + self._undecoded

    def failure(self, error: Exception) -> BadRow | None:
        if isinstance(error, UnicodeDecodeError):
            self._undecoded += 1
            return BadRow(f"the line is not UTF-8 text (byte {error.object[error.start]:#04x})")
        if isinstance(error, OSError | EOFError | zlib.error):
            raise _stream_error(self.source, error) from None
        return BadRow(f"the line is not CSV: {csv_fault(error)}")


class JsonRows(Rows):
    flavour = "dict"

    def __init__(self, source: TraceSource, stream: IO[bytes], lines: Iterable[bytes], size: int | None) -> None:
        super().__init__(source, stream, size)
        self.pipe = lines if isinstance(lines, PipeLines) else None
        self._line = 0
        self.raw = map(json.loads, map(bytes.decode, self._counted(lines)))
        if (source.layout.time_column, source.layout.type_column) != ("ts", "type"):
            self.raw = map(partial(renamed_row, source.layout), self.raw)
        first = self.sample(1)
        self.gives_seq = bool(first) and isinstance(first[0], dict) and first[0].get("seq") is not None

    def _counted(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        iterator = iter(lines)
        first = next(iterator, None)
        if first is not None:
            self._line = 1
            yield first.removeprefix(b"\xef\xbb\xbf")
        for line in iterator:
            self._line += 1
            yield line

    @property
    def position(self) -> int:
        return self._line

    def failure(self, error: Exception) -> BadRow | None:
        if isinstance(error, json.JSONDecodeError):
            if not error.doc.strip():
                return None
            return BadRow(f"the line is not JSON: {error.msg} at column {error.colno}")
        if isinstance(error, UnicodeDecodeError):
            return BadRow(f"the line is not UTF-8 text (byte {error.object[error.start]:#04x})")
        if isinstance(error, RecursionError):
            return BadRow("the line is not an event: it is nested too deeply")
        if isinstance(error, OSError | EOFError | zlib.error):
            raise _stream_error(self.source, error) from None
        return BadRow(f"the line is not JSON: {error}")


class ParquetRows(Rows):
    flavour = "values"
    unit = "row"

    def __init__(self, source: TraceSource, stream: IO[bytes], size: int | None) -> None:
        super().__init__(source, stream, None)
        self.parquet = open_parquet(source.shown, stream, readable_again=not source.is_stream)
        self.columns = checked_columns(
            list(self.parquet.schema_arrow.names), source.shown, source.layout, source.required
        )
        self._look_at_times()
        self.gives_seq = "seq" in self.columns
        self._rows = max(1, self.parquet.metadata.num_rows)
        self._row = 0
        self.raw = self._all()

    def _look_at_times(self) -> None:
        if "ts" not in (self.columns or ()):
            return
        kind = str(self.parquet.schema_arrow.field(self.source.layout.time_column).type)
        self.has_timestamps = kind.startswith("timestamp")
        unit = self.source.layout.time_unit
        if self.has_timestamps and unit is not None:
            raise EventError(
                f"{self.source.shown}: the column {self.source.layout.time_column!r} holds {kind}, which says its unit "
                f"itself; leave the unit {unit!r} out"
            )

    def _all(self) -> Iterator[Row]:
        for batch in self.parquet.iter_batches(batch_size=PARQUET_ROWS):
            lists = [
                parquet_values(self.source.shown, name, column)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            for row in zip(*lists, strict=True):
                self._row += 1
                yield row

    @property
    def position(self) -> int:
        return self._row

    def done_share(self) -> float | None:
        return float(self._row / self._rows)

    def failure(self, error: Exception) -> BadRow | None:
        raise _stream_error(self.source, error) from None


def _cell(row: Row, at: Any) -> Any:
    """A cell of a row that may be shorter than the header, or no row at all."""
    try:
        return row[at]
    except (LookupError, TypeError):
        return None
