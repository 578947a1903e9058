"""Explains a failed Spark job in one sentence: which file, what is wrong with it, and what to do.

Spark reports a failure as a long Java stack trace, in which the reason is the last of several causes.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headwater.protocol.errors import ConfigError, HeadwaterError


class JobFailed(HeadwaterError):
    """The input was right, as far as it was seen, and Spark could not finish: the disk is full, memory is too small."""


_HEAD: Final = re.compile(r"^(?:Caused by: |: )?(?P<kind>[\w.$]+(?:Exception|Error|Failure)): (?P<said>.*)$")
_TRACE: Final = re.compile(r"^\s+(?:at |\.\.\. \d+ more)|^Driver stacktrace:")
_FILE: Final = re.compile(r"file:/*(?P<path>/[^\s,;]+?)\.?(?=[\s,;]|$)")
_CODE: Final = re.compile(r"^\[[A-Z_0-9.]+\] | SQLSTATE: .*$", re.DOTALL)

_DAMAGED: Final = (
    "is not a Parquet file", "Could not read footer", "CANNOT_READ_FILE_FOOTER", "Unexpected end of ZLIB input stream",
    "Unexpected end of input stream", "not a gzip file", "invalid block type", "invalid stored block lengths",
    "invalid distance", "incorrect data check", "invalid code lengths set", "FAILED_READ_FILE",
    "could not read page", "Could not decompress", "FAILED_TO_UNCOMPRESS", "corrupt",
)  # fmt: skip
_NO_MEMORY: Final = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError", "Java heap space", "GC overhead limit")


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """What Spark raises inside becomes a ConfigError, where the input is wrong, or else a JobFailed."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        raise failure(error) from error
    except ConnectionError as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not any("py4j" in frame.filename for frame in frames):
            raise  # it is about another connection than the one to Java
        raise failure(error) from error


def failure(error: Exception) -> HeadwaterError:
    """The error that says what Spark's means."""
    text = _said(error)
    file = next((match["path"] for match in _FILE.finditer(text)), None)
    if "No space left on device" in text:
        return JobFailed(
            "no space is left on the disk, where the result is written or where Spark keeps what it sorts "
            "(spark.local.dir, SPARK_LOCAL_DIRS); make room, or name another folder"
        )
    if any(sign in text for sign in _NO_MEMORY):
        return JobFailed("Spark ran out of memory; give it more: SPARK_DRIVER_MEMORY=8g before the command")
    if "Permission denied" in text:
        where = re.search(r"(/\S+) \(Permission denied\)|Permission denied: (\S+)", text)
        return ConfigError(f"permission denied{f' for {where[1] or where[2]}' if where else ''}; change its rights")
    if any(sign in text for sign in _DAMAGED):
        damaged, reason = file or "a file", _reason(text)
        if file is not None:
            reason = reason.replace(f"file:{file}", "it")
        return ConfigError(f"{damaged} is damaged, or only a part of a file: {reason}; fetch or make it again")
    if "FileNotFoundException" in text or "FILE_NOT_EXIST" in text or "PATH_NOT_FOUND" in text:
        return ConfigError(f"{file or 'a file'} is gone, or was never there; files must not change while they are read")
    if "datetime pattern" in text or "time-zone" in text:
        return ConfigError(f"times cannot be read so: {_reason(text)}; see time: in the description")
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return JobFailed("Java has ended, with Spark in it; the machine may have run out of memory")
    return JobFailed(f"Spark has given up: {_reason(text)}")


def _said(error: Exception) -> str:
    """All that Spark says, causes included."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def _reason(text: str) -> str:
    """The message of the innermost cause, without the code before it and the trace behind it."""
    lines = text.splitlines()
    heads = [(at, head) for at, line in enumerate(lines) if (head := _HEAD.match(line.strip())) is not None]
    telling = [(at, head) for at, head in heads if head["said"] not in ("", "null")]
    if not telling:
        return without_code(next((line for line in lines if line.strip()), "it does not say why"))
    at, head = telling[-1]
    said = [head["said"]]
    for line in lines[at + 1 :]:
        if not line.strip() or _TRACE.match(line) or _HEAD.match(line.strip()):
            break
        said.append(line.strip())
    return without_code(" ".join(said))


def without_code(said: str) -> str:
    """A message of Spark's without the code before it, and without the state and the plan behind it."""
    return _CODE.sub("", said.strip()).rstrip(".; ")
