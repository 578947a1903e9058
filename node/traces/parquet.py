"""Reads Parquet files as columns of plain values. pyarrow is imported only here, when a file is read."""

from __future__ import annotations

import io
from typing import IO, Any

from headwater.protocol.errors import ConfigError, EventError
from headwater.protocol.events import Value


def open_parquet(shown: str, stream: IO[bytes], *, readable_again: bool) -> Any:
    """A pyarrow ParquetFile, or a sentence."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"{shown} is a Parquet file, and reading it needs pyarrow: pip install 'headwater[parquet]'"
        ) from None
    try:
        return pyarrow.parquet.ParquetFile(stream if readable_again else io.BytesIO(stream.read()))
    except (pyarrow.ArrowException, OSError) as error:
        raise EventError(f"{shown} is not a Parquet file: {str(error).splitlines()[0]}") from None


def parquet_values(shown: str, name: str, column: Any) -> list[Value]:
    """One column of a Parquet file as plain values; times become microseconds."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pyarrow.types.is_timestamp(kind):
        column = column.cast(pyarrow.timestamp("us", kind.tz), safe=False).cast(pyarrow.int64())
    elif pyarrow.types.is_decimal(kind):
        column = column.cast(pyarrow.float64())
    elif not (
        pyarrow.types.is_integer(kind)
        or pyarrow.types.is_floating(kind)
        or pyarrow.types.is_boolean(kind)
        or pyarrow.types.is_string(kind)
        or pyarrow.types.is_large_string(kind)
        or pyarrow.types.is_null(kind)
    ):
        raise EventError(
            f"{shown}: column {name!r} holds {kind}; columns hold integers, floats, booleans, strings or timestamps"
        )
    values: list[Value] = column.to_pylist()
    return values
